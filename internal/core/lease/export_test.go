package lease

import (
	"hash/maphash"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// forgottenTogether is the number of groups of keys that package denials forgets together.
const forgottenTogether = 1 << 10

// Apart gives the stores one seed, with which no two of the keys are forgotten together.
func Apart(keys []string, stores ...*Store) {
	seed := maphash.MakeSeed()
	for groups := make(map[uint64]bool); len(groups) < len(keys); {
		seed = maphash.MakeSeed()
		clear(groups)
		for _, k := range keys {
			groups[maphash.String(seed, k)%forgottenTogether] = true
		}
	}
	for _, s := range stores {
		s.memory.Seed = seed
	}
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
func (s *Store) SetMaxAge(age time.Duration) { s.memory.MaxAge = age }

// Forget removes what s remembers of a log, and ends its lease, as a refund by this process does.
func (s *Store) Forget(id window.LogID) {
	s.memory.Forget(id.Key)
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
	groups := make(map[uint64]bool)
	for i := 0; len(groups) < forgottenTogether; i++ {
		key := strconv.Itoa(i)
		groups[maphash.String(s.memory.Seed, key)%forgottenTogether] = true
		s.memory.Forget(key)
	}
	if s.leases != nil {
		s.leases.endAll()
	}
}
