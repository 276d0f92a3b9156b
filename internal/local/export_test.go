package local

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/slidegate/slidegate/pkg/window"
)

// Believed is for a table.
var Believed = believed

// Apart gives stores the same stripes, of which no two of the keys share one, so
// that forgetting one of these logs forgets no other.
func Apart(keys []string, stores ...*Store) {
	m := stores[0].memory
	for {
		m.seed = maphash.MakeSeed()
		stripes := make(map[*atomic.Uint64]bool)
		for _, k := range keys {
			stripes[m.generation(k)] = true
		}
		if len(stripes) == len(keys) {
			break
		}
	}
	for _, s := range stores {
		s.memory.seed = m.seed
	}
}

// SpendAfter is TryTake of a group that leases cover, with something happening
// between the moment when they are found and that when they are spent.
func (s *Store) SpendAfter(happens func(), checks ...window.Check) bool {
	found, decisions, now := make([]*lease, len(checks)), make([]window.Decision, len(checks)), s.clock()
	for i := range checks {
		if found[i] = s.leases.find(&checks[i], now, &decisions[i]); found[i] == nil {
			panic("no lease is found")
		}
	}
	happens()
	return s.spendAll(checks, decisions, found, now)
}
