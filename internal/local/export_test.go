package local

import (
	"hash/maphash"
	"sync/atomic"
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
