package local

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/slidegate/slidegate/pkg/window"
)

// Believed exports believed for a test.
var Believed = believed

// Apart gives the stores one seed, with which no two of the keys share a stripe. So
// forgetting one of the keys forgets no other.
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

// ShareOf returns what the process may admit now.
func ShareOf(s *Shares, c *window.Check) uint64 {
	p := s.part(c, s.clock())
	return shareLimit(c.Limit, p.hits, p.replicas).Hits
}
