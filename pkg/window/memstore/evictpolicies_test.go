package memstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

// counters are the policies whose logs all have one length.
var counters = []window.Policy{window.TokenBucket, window.Fixed, window.Calendar, window.SlidingCounter}

// withKey returns what ofPolicy returns, for another key.
func withKey(key string, p window.Policy, cost uint64) window.Check {
	c := ofPolicy(p, cost)
	c.Key = key
	return c
}

// sizeOf returns the memory that a log of a policy with a key of one byte takes.
func sizeOf(t *testing.T, p window.Policy) int64 {
	t.Helper()
	s, now := testStore(t)
	*now = time.Minute
	take(t, s, ofPolicy(p, 1))
	return s.Stats().Bytes
}

// TestWhoGoesFirstOfPolicies fills a store up to its bytes with logs of one policy, and asks for
// new keys. The least used log goes first, and none goes as long as it limits.
func TestWhoGoesFirstOfPolicies(t *testing.T) {
	for _, tt := range []struct {
		policy  window.Policy
		frees   time.Duration // when a log that was used up at 60 s has room again
		evicted uint64        // by a call at that time: none if the log has expired
	}{
		{window.TokenBucket, 72 * time.Second, 1},
		{window.Fixed, 120 * time.Second, 0},
		{window.Calendar, 120 * time.Second, 0},
		{window.SlidingCounter, 132 * time.Second, 1},
	} {
		t.Run(tt.policy.String(), func(t *testing.T) {
			size := sizeOf(t, tt.policy)
			bound := 3*size + size/2
			s, now := boundedStore(t, bound)
			expect := func(what string, want Stats, keys string) {
				t.Helper()
				want.Logs, want.Bytes = len(keys), int64(len(keys))*size
				if diff := cmp.Diff(want, s.Stats()); diff != "" {
					t.Errorf("%s: stats (-want +got)\n%s", what, diff)
				}
				for _, key := range keys {
					if !has(s, withKey(string(key), tt.policy, 1)) {
						t.Errorf("%s: %c is not there", what, key)
					}
				}
				verify(t, s)
			}
			*now = time.Minute
			take(t, s, withKey("c", tt.policy, 5))
			take(t, s, withKey("a", tt.policy, 2))
			take(t, s, withKey("b", tt.policy, 1))
			expect("full", Stats{}, "abc")
			*now += time.Second
			take(t, s, withKey("d", tt.policy, 1))
			expect("one more", Stats{Evicted: 1}, "acd")

			take(t, s, withKey("a", tt.policy, 3))
			take(t, s, withKey("d", tt.policy, 4))
			*now = tt.frees - time.Microsecond
			if _, ok := tryTake(t, s, withKey("e", tt.policy, 1)); ok {
				t.Error("all limit: got a decision for a new key")
			}
			if d := take(t, s, withKey("c", tt.policy, 1)); d[0].Allowed || d[0].RetryAfter != time.Microsecond {
				t.Errorf("all limit: got %+v, want a wait of 1us", d[0])
			}
			expect("all limit", Stats{Evicted: 1, Refused: 1}, "acd")

			*now = tt.frees
			if d, ok := tryTake(t, s, withKey("e", tt.policy, 1)); !ok || !d[0].Allowed {
				t.Errorf("one has room: got %+v, refused %t", d, !ok)
			}
			if got, want := s.Stats().Evicted, 1+tt.evicted; got != want {
				t.Errorf("one has room: %d evicted, want %d", got, want)
			}
			if has(s, withKey("c", tt.policy, 1)) && tt.evicted > 0 {
				t.Error("one has room: it was not the one that was dropped")
			}
			verify(t, s)
		})
	}
}

// TestPoliciesUnderAFlood invents keys in a store that is bounded in bytes. All are served, the
// bound holds, and customers at their limit are answered as by a store without bounds.
func TestPoliciesUnderAFlood(t *testing.T) {
	const customers, flood, bound = 1000, 30_000, 2 << 20
	for _, p := range counters {
		t.Run(p.String(), func(t *testing.T) {
			s, now := boundedStore(t, bound)
			twin, twinNow := testStore(t)
			*now = time.Minute
			customer := func(i int, cost uint64) window.Check { return withKey(fmt.Sprint("c", i), p, cost) }
			for i := range customers {
				take(t, s, customer(i, 5))
			}
			*twinNow = *now
			for i := range customers {
				take(t, twin, customer(i, 5))
			}
			for i := range flood {
				*now += 100 * time.Microsecond
				d, ok := tryTake(t, s, withKey(fmt.Sprint("evil", i), p, 1))
				if got := s.Stats().Bytes; !ok || !d[0].Allowed || got > bound {
					t.Fatalf("invented key %d: got %+v, refused %t, %d bytes held of %d", i, d, !ok, got, bound)
				}
			}
			if got, made := s.Stats(), customers+flood; got.Refused != 0 || got.Evicted != uint64(made-got.Logs) || got.Evicted == 0 {
				t.Errorf("got %+v of %d logs", got, made)
			}
			verify(t, s)
			for _, later := range []time.Duration{0, 10 * time.Second, 30 * time.Second, time.Minute} {
				*now += later
				*twinNow = *now
				for i := range customers {
					want, got := take(t, twin, customer(i, 1)), take(t, s, customer(i, 1))
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("customer %d, %v later: (-no bound +bounded)\n%s", i, later, diff)
					}
				}
			}
		})
	}
}

// TestFullOfPolicies fills a store with logs at their limit, of every policy. New keys are refused,
// and nothing of their group is charged.
func TestFullOfPolicies(t *testing.T) {
	s, now := boundedStore(t, 100_000)
	*now = time.Minute
	refused := 0
	for i := range 2000 {
		if _, ok := tryTake(t, s, withKey(fmt.Sprint(i), counters[i%len(counters)], 5)); !ok {
			refused++
		}
	}
	before := s.Stats()
	if before.Evicted != 0 || before.Refused != uint64(refused) || before.Logs != 2000-refused || refused == 0 {
		t.Fatalf("got %+v, and %d of 2000 refused", before, refused)
	}
	for _, p := range counters {
		group := []window.Check{withKey("new", p, 1), withKey("0", window.Sliding, 0)}
		if _, err := s.Take(t.Context(), window.MayWait, group, make([]window.Decision, 2)); !errors.Is(err, ErrFull) {
			t.Errorf("%v: got error %v, want %q", p, err, ErrFull)
		}
		if has(s, group[0]) {
			t.Errorf("%v: the log of a refused group is there", p)
		}
	}
	for i, p := range counters {
		if d := take(t, s, withKey(fmt.Sprint(i), p, 1)); d[0].Allowed || d[0].RetryAfter <= 0 {
			t.Errorf("%v: a key at its limit: got %+v", p, d[0])
		}
	}
	verify(t, s)
}
