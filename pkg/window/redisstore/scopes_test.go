package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/test/servers"
)

// scoped gives the checks of a store their scopes: the scope of each key is the same in every
// call. Ids have no scopes outside.
type scoped struct {
	*redisstore.Scopes
	of func(key string) window.Scope
}

func (s scoped) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	checks = slices.Clone(checks)
	for i := range checks {
		checks[i].Scope = s.of(checks[i].Key)
	}
	decided, err := s.Scopes.Take(ctx, wait, checks, decisions)
	window.GiveBack(ctx, err)
	if !window.OneScope(checks) {
		for i := range decisions {
			if checks[i].Limit.Policy != window.InFlight {
				decisions[i].Unsettled = false // a mixed group marks its logs for a second or two
			}
		}
	}
	return decided, err
}

// spread is a scope of three for each key.
func spread(key string) window.Scope {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return window.Scope(h.Sum32() % 3)
}

// second is the same scope for all keys.
func second(string) window.Scope { return 1 }

// openScopes returns a function that makes a store of three scopes on one server each, whose
// clocks are set together.
func openScopes(t *testing.T, of func(string) window.Scope) func(t *testing.T) windowtest.Harness {
	var clients [3]redisstore.Client
	var sets [3]func(t testing.TB, key string, now time.Duration)
	for i := range clients {
		c := newClient(t, servers.Redis(t))
		clients[i] = c
		sets[i] = func(t testing.TB, key string, now time.Duration) { setClock(t, c, key, now) }
	}
	n := 0
	return func(t *testing.T) windowtest.Harness {
		n++
		clockKey := fmt.Sprintf("clock%d", n)
		var stores []*redisstore.Store
		for _, c := range clients {
			stores = append(stores, redisstore.NewWithClock(t, c, redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}, clockKey))
		}
		s := redisstore.NewScopes([]string{"region", "one", "two"}, stores)
		s.Holds(1)
		s.Holds(2)
		t.Cleanup(func() { _ = s.Close() })
		return windowtest.Harness{
			Store: scoped{s, of},
			SetNow: func(now time.Duration) {
				for _, set := range sets {
					set(t, clockKey, now)
				}
			},
			Epoch: epoch,
		}
	}
}

// TestScopesContract runs the suite on a store of several scopes: with all checks in one, and
// mixed.
func TestScopesContract(t *testing.T) {
	t.Run("OneScope", func(t *testing.T) {
		open := openScopes(t, second)
		windowtest.RunPolicies(t, windowtest.Options{Steps: 2000}, open)
		windowtest.Run(t, windowtest.Options{Steps: 2000}, open)
	})
	t.Run("Mixed", func(t *testing.T) {
		open := openScopes(t, spread)
		windowtest.RunPolicies(t, windowtest.Options{Steps: 2000, Pieces: true}, open)
		windowtest.Run(t, windowtest.Options{Steps: 2000, Pieces: true}, open)
	})
}

// TestScopesInFlight: an end reaches every scope in which the stream may hold something.
func TestScopesInFlight(t *testing.T) {
	open := openScopes(t, spread)
	windowtest.RunInFlight(t, windowtest.Options{Pieces: true}, func(t *testing.T) windowtest.InFlightHarness {
		h := open(t)
		return windowtest.InFlightHarness{Stores: []window.Store{h.Store}, SetNow: h.SetNow, Epoch: h.Epoch}
	})
}

// in puts a check into a scope.
func in(scope window.Scope, c window.Check) window.Check {
	c.Scope = scope
	return c
}

// openPair returns the store of a region and of one more scope, each on a server of its own.
func openPair(t *testing.T, global redisstore.Client) (s *redisstore.Scopes, stores []*redisstore.Store) {
	t.Helper()
	stores = []*redisstore.Store{
		redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Prefix: t.Name(), Timeout: patient}),
		redisstore.New(global, redisstore.Options{Prefix: t.Name(), Timeout: 200 * time.Millisecond, Failures: 3}),
	}
	s = redisstore.NewScopes([]string{"region", "global"}, stores)
	t.Cleanup(func() { _ = s.Close() })
	return s, stores
}

// TestScopesCluster: a scope can be a cluster, on which the checks are on several slots.
func TestScopesCluster(t *testing.T) {
	c := startCluster(t)
	s, stores := openPair(t, newClusterClient(t, c))
	keys := onSlotsOf(c)
	group := []window.Check{check("r", 10, 1), in(1, check(keys[0], 10, 1)), in(1, check(keys[1], 2, 1)), in(1, check(keys[2], 10, 1))}
	for i, want := range []string{"9 9 1 9", "8 8 0 8", "8 8 0 8"} {
		got := take(t, s, group...)
		text := fmt.Sprint(got[0].Remaining, got[1].Remaining, got[2].Remaining, got[3].Remaining)
		if text != want {
			t.Errorf("call %d: what remains is %s, want %s", i, text, want)
		}
	}
	for i, one := range stores {
		if n := one.Stats().NotTakenBack; n != 0 {
			t.Errorf("scope %d: %d hits were not taken back", i, n)
		}
	}
}

// TestScopeFails: the error of a call has why a scope has failed. The other scope has decided, and
// what it has charged can be taken back.
func TestScopeFails(t *testing.T) {
	server := servers.StartRedis(t)
	s, _ := openPair(t, newClient(t, server.Addr()))
	region, global := check("k", 10, 1), in(1, check("k", 10, 1))
	take(t, s, region, global)
	for _, fault := range []struct {
		name         string
		begin, after func()
	}{
		{"frozen", server.Pause, server.Resume},
		{"stopped", server.Stop, server.Start},
	} {
		before := take(t, s, region)[0].Remaining
		fault.begin()
		for i := range 8 { // past the opening of the breaker
			decisions := make([]window.Decision, 2)
			err := s.TakeBut(t.Context(), nil, []window.Check{region, global}, decisions)
			var part *window.PartError
			if !errors.As(err, &part) || part.Failed[0] != nil || redisstore.ClassOf(part.Failed[1]) == "" {
				t.Fatalf("%s, call %d: got error %v, want one of the scope global", fault.name, i, err)
			}
			if !decisions[0].Allowed || decisions[0].Remaining != before-1 {
				t.Errorf("%s, call %d: the region answers %+v, want %d remaining", fault.name, i, decisions[0], before-1)
			}
			part.GiveBack(t.Context())
			if decisions[0].Remaining != before {
				t.Errorf("%s, call %d: %d remain after the charge was taken back, want %d", fault.name, i, decisions[0].Remaining, before)
			}
			part.GiveBack(t.Context()) // does nothing
		}
		if got := take(t, s, region)[0].Remaining; got != before-1 {
			t.Errorf("%s: %d remain in the region, want %d", fault.name, got, before-1)
		}
		fault.after()
		for {
			decisions := make([]window.Decision, 1)
			if _, err := s.Take(t.Context(), window.MayWait, []window.Check{global}, decisions); err == nil {
				break
			}
		}
	}
}

// TestScopeDenies: if one scope denies, what the other has charged is taken back, whichever fails
// or denies.
func TestScopeDenies(t *testing.T) {
	s, _ := openPair(t, newClient(t, servers.Redis(t)))
	few, many := in(1, check("few", 2, 1)), check("many", 100, 1)
	for i := range 10 {
		got := take(t, s, many, few)
		if want := i < 2; windowtest.Allowed(got) != want {
			t.Errorf("call %d: allowed is %t, want %t", i, !want, want)
		}
		if got[0].Remaining != uint64(99-min(i, 1)) && i < 2 || got[0].Remaining != 98 && i >= 2 {
			t.Errorf("call %d: %d remain in the region", i, got[0].Remaining)
		}
	}
	// A scope that is left out has failed with the caller's error.
	out := errors.New("left out")
	left := &window.PartError{}
	left.Failed[1] = out
	decisions := make([]window.Decision, 2)
	err := s.TakeBut(t.Context(), left, []window.Check{many, few}, decisions)
	if !errors.Is(err, out) || !decisions[0].Allowed || decisions[0].Remaining != 97 {
		t.Errorf("without a scope: got %+v, error %v", decisions[0], err)
	}
}

// TestScopesKeep: logs are read, listed and removed in the store of their scope.
func TestScopesKeep(t *testing.T) {
	s, _ := openPair(t, newClient(t, servers.Redis(t)))
	region, global := check("{a}k", 10, 1), in(1, check("{a}k", 10, 2))
	take(t, s, region, global)
	ids := []window.LogID{global.Log(), region.Log()}
	used := func(readings []window.Reading, err error) (all []uint64) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range readings {
			if r.ID != ids[i] {
				t.Errorf("reading %d is of %+v, want %+v", i, r.ID, ids[i])
			}
			sum := uint64(0)
			for _, e := range r.Contents.Entries {
				sum += uint64(e.Cost)
			}
			all = append(all, sum)
		}
		return all
	}
	if got := used(s.Read(t.Context(), ids)); !slices.Equal(got, []uint64{2, 1}) {
		t.Errorf("read %v, want 2 in the global log and 1 in that of the region", got)
	}
	var listed []window.LogID
	for cursor, more := "", true; more; more = cursor != "" {
		some, next, err := s.List(t.Context(), window.Match{Tag: "a"}, cursor)
		if err != nil {
			t.Fatal(err)
		}
		listed, cursor = append(listed, some...), next
	}
	if want := []window.LogID{region.Log(), global.Log()}; !slices.Equal(listed, want) {
		t.Errorf("listed %+v, want %+v", listed, want)
	}
	for _, cursor := range []string{"5|", "x|0", "-1|", "0"} {
		if _, _, err := s.List(t.Context(), window.Match{}, cursor); !errors.Is(err, window.ErrCursor) {
			t.Errorf("cursor %q: got error %v", cursor, err)
		}
	}
	used(s.Remove(t.Context(), ids[:1]))
	if got := used(s.Read(t.Context(), ids)); !slices.Equal(got, []uint64{0, 1}) {
		t.Errorf("after the global log was removed: read %v", got)
	}
}
