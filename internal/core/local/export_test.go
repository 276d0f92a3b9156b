package local

import (
	"hash/maphash"
	"sync/atomic"
	"time"

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
	return shareLimit(c.Limit, p.hits, p.instances).Hits
}

// ForgetAccounts evicts all accounts, as others can. Their leases stay.
func ForgetAccounts(s *Store) { s.leases.accounts.InvalidateAll() }

// Leases returns the number of leases that s keeps.
func Leases(s *Store) int {
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	return len(s.leases.kept)
}

// SetLeases sets the largest number of leases at a time.
func (s *Store) SetLeases(most int) { s.leases.most = most }

// SetMaxAge sets the age up to which s believes an answer, so that denials end by themselves.
func (s *Store) SetMaxAge(age time.Duration) { s.memory.maxAge = age }

// Forget removes what s remembers of a log, and ends its lease, as a refund by this process does.
func (s *Store) Forget(id window.LogID) {
	s.memory.forget(id.Key)
	if s.leases == nil {
		return
	}
	if a, ok := s.leases.accounts.GetIfPresent(id); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		s.leases.end(a)
	}
}

// ForgetAll is Forget for all logs.
func (s *Store) ForgetAll() {
	for i := range s.memory.generations {
		s.memory.generations[i].Add(1)
	}
	if s.leases != nil {
		s.leases.endAll()
	}
}
