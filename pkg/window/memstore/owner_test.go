package memstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// ruleOf is the owner of keys such as rule:key.
func ruleOf(key string) string {
	rule, _, _ := strings.Cut(key, ":")
	return rule
}

// ownedStore returns a store with owners, and its clock.
func ownedStore(t *testing.T, size int64) (*Store, *time.Duration) {
	t.Helper()
	now := new(time.Duration)
	*now = time.Hour
	s := New(Options{Clock: func() time.Duration { return *now }, SweepInterval: -1, MaxBytes: size, Owner: ruleOf})
	t.Cleanup(func() { _ = s.Close() })
	return s, now
}

// shareABound reports whether the owners of some keys have one hash.
func shareABound(s *Store, keys ...string) bool {
	hashes := make(map[uint8]bool)
	for _, key := range keys {
		hashes[s.shards[0].owned.owner(key)] = true
	}
	return len(hashes) < len(keys)
}

// TestFloodOfOneRule fills a store with invented keys under rules with a limit of 1, whose logs
// are limiting at once. Other rules count on exactly, with old keys and with new ones.
func TestFloodOfOneRule(t *testing.T) {
	const honest, limit = 50, 100
	for _, size := range []int64{1 << 19, 1 << 20} {
		for floods := 1; floods <= 2; floods++ {
			t.Run(fmt.Sprint(size, " ", floods), func(t *testing.T) {
				s, now := ownedStore(t, size)
				for shareABound(s, "honest:", "flood0:", "flood1:") { // one store in a hundred
					s, now = ownedStore(t, size)
				}
				passed := make([]int, 2*honest)
				call := func(i int) {
					d, ok := tryTake(t, s, check(fmt.Sprint("honest:", i), limit, 10))
					if !ok {
						t.Fatalf("honest key %d is refused", i)
					}
					if d[0].Allowed {
						passed[i] += 10
					}
				}
				for i := range 5 * honest {
					call(i % honest)
				}
				refused := 0
				for i := range 20_000 {
					*now += time.Microsecond
					if _, ok := tryTake(t, s, check(fmt.Sprint("flood", i%floods, ":", i), 1, 1)); !ok {
						refused++
					}
					if i%10 == 0 {
						call(i / 10 % (2 * honest))
					}
				}
				for i := range 2 * honest {
					for passed[i] < limit {
						call(i)
					}
					call(i)
					if passed[i] != limit {
						t.Fatalf("honest key %d passed %d, want %d", i, passed[i], limit)
					}
				}
				if got := s.Stats(); refused < 10_000 || got.Refused != uint64(refused) {
					t.Errorf("%+v, %d refused: want those beyond the part of the rule", got, refused)
				}
				// A key of the flooded rule that has a log is decided.
				if d := take(t, s, check("flood0:0", 1, 1)); d[0].Allowed {
					t.Error("an invented key passes a second time")
				}
				verify(t, s)
			})
		}
	}
}

// TestOneRuleAlone proves that a rule whose logs may go is never refused, fills seven eighths
// of the store, and that a flood under it evicts the flood's own logs.
func TestOneRuleAlone(t *testing.T) {
	const keys = 8192
	s, now := ownedStore(t, keys*(logBytes+17+32))
	for i := range keys {
		*now += time.Microsecond
		if _, ok := tryTake(t, s, check(fmt.Sprint("only:customer", i), 100, 50)); !ok {
			t.Fatalf("customer %d is refused", i)
		}
	}
	if n := s.Len(); n < keys*13/16 || n > keys*15/16 {
		t.Errorf("%d logs, want about seven eighths of %d", n, keys)
	}
	had := 0
	has := func() (n int) {
		for i := range keys {
			if has(s, check(fmt.Sprint("only:customer", i), 100, 1)) {
				n++
			}
		}
		return n
	}
	had = has()
	for i := range 2 * keys {
		*now += time.Microsecond
		if _, ok := tryTake(t, s, check(fmt.Sprint("only:evil", i), 100, 1)); !ok {
			t.Fatalf("made-up key %d is refused", i)
		}
	}
	if lost := had - has(); lost > 8*len(s.shards) {
		t.Errorf("%d of %d customers are lost", lost, had)
	}
	verify(t, s)
}

// TestOwnersAreCounted does random things in small stores with owners. All counts stay right, and
// every error is [ErrFull].
func TestOwnersAreCounted(t *testing.T) {
	for seed := range uint64(random.Steps(t, 7, 20)) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, now := ownedStore(t, 100+r.Int64N(50_000))
		for range 2000 {
			*now += time.Duration(r.Int64N(int64(50 * time.Millisecond)))
			var checks []window.Check
			for range 1 + r.IntN(3) {
				c := check(fmt.Sprint("{r", r.IntN(4), "}:", r.IntN(300)), uint64(1+r.IntN(20)), uint64(1+r.IntN(3)))
				if r.IntN(4) == 0 {
					c.Mode = window.Always
				}
				if c.Mode != window.Always && r.IntN(4) == 0 {
					c.Once = window.Once{ID: uint64(1 + r.IntN(50)), For: time.Second, Repeats: 1}
				}
				checks = append(checks, c)
			}
			decisions := make([]window.Decision, len(checks))
			if _, err := s.Take(t.Context(), window.MayWait, checks, decisions); err != nil && !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
		}
		verify(t, s)
	}
}
