package memstore

import (
	"github.com/slidegate/slidegate/pkg/window"
)

// touchAtOnce is how many logs [Store.Touch] reads at once.
const touchAtOnce = 32

// Touch reads the logs of checks, so that they are in the caches of the processor when these checks
// are decided soon after. The processor waits for several of them at once then, and not for one
// after the other. Touch decides and changes nothing, and takes no lock: no other goroutine may use
// the store meanwhile.
func (s *Store) Touch(checks []*window.Check) {
	for len(checks) > 0 {
		n := min(len(checks), touchAtOnce)
		s.touch(checks[:n])
		checks = checks[n:]
	}
}

// touch is Touch for at most touchAtOnce checks. Each loop reads what the one before it has found.
func (s *Store) touch(checks []*window.Check) {
	var (
		logs   [touchAtOnce]*log
		hashes [touchAtOnce]uint32
		a      checkState
		sum    byte
	)
	for i, c := range checks {
		s.place(&a, c)
		logs[i], hashes[i] = *a.shard.at(a.hash), a.hash
	}
	for i := range checks {
		for logs[i] != nil && logs[i].hash != hashes[i] {
			logs[i] = logs[i].next
		}
	}
	for i := range checks {
		if l := logs[i]; l != nil && len(l.key) > 0 && len(l.packed) > 0 {
			sum += l.key[0] + l.packed[0] + l.packed[min(len(l.packed)-1, cacheLine)]
		}
	}
	s.touched = sum
}

// cacheLine is the length of what a processor reads of the memory at once, in bytes.
const cacheLine = 64
