package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/random"
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
			d := &decisions[i]
			switch {
			case checks[i].Limit.Policy != window.InFlight:
				d.Unsettled = false // a mixed group marks its logs for a second or two
			case checks[i].Mode.Unconditional():
				d.Unsettled = !d.Never && (!d.Allowed || d.Remaining == 0) // answered before the group's other checks
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
		if random.Long() { // TestContract has the same without scopes
			policytest.Run(t, windowtest.Options{Steps: 2000}, open)
			windowtest.Run(t, windowtest.Options{Steps: 2000}, open)
		}
		t.Run("Once", func(t *testing.T) { policytest.RunOnce(t, windowtest.Options{Steps: 2000}, open) })
	})
	t.Run("Mixed", func(t *testing.T) {
		open := openScopes(t, spread)
		policytest.Run(t, windowtest.Options{Steps: 2000, CheckByCheck: true}, open)
		windowtest.Run(t, windowtest.Options{Steps: 2000, CheckByCheck: true}, open)
	})
}

// TestScopesInFlight: an end reaches every scope in which the stream may hold something.
func TestScopesInFlight(t *testing.T) {
	open := openScopes(t, spread)
	policytest.RunInFlight(t, windowtest.Options{Steps: 2000, CheckByCheck: true}, func(t *testing.T) policytest.InFlightHarness {
		h := open(t)
		return policytest.InFlightHarness{Stores: []window.Store{h.Store}, SetNow: h.SetNow, Epoch: h.Epoch}
	})
}

// hour is check with a window that no test outlives.
func hour(key string, hits, cost uint64) window.Check {
	c := check(key, hits, cost)
	c.Limit.Window = time.Hour
	return c
}

// in puts a check into a scope.
func in(scope window.Scope, c window.Check) window.Check {
	c.Scope = scope
	return c
}

// brief is the timeout of a scope that a test stops.
const brief = 200 * time.Millisecond

// openPair returns the store of a region and of one more scope, which has a timeout, each on a server of its own.
func openPair(t *testing.T, global redisstore.Client, timeout time.Duration) (s *redisstore.Scopes, stores []*redisstore.Store) {
	t.Helper()
	stores = []*redisstore.Store{
		redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Prefix: t.Name(), Timeout: patient}),
		redisstore.New(global, redisstore.Options{Prefix: t.Name(), Timeout: timeout, Failures: 3}),
	}
	s = redisstore.NewScopes([]string{"region", "global"}, stores)
	t.Cleanup(func() { _ = s.Close() })
	return s, stores
}

// TestScopesCluster: a scope can be a cluster, on which the checks are on several slots.
func TestScopesCluster(t *testing.T) {
	c := startCluster(t)
	s, stores := openPair(t, newClusterClient(t, c), patient)
	keys := onSlotsOf(c)
	group := []window.Check{hour("r", 10, 1), in(1, hour(keys[0], 10, 1)), in(1, hour(keys[1], 2, 1)), in(1, hour(keys[2], 10, 1))}
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
	held := in(1, window.Check{Key: keys[0], Limit: window.Limit{Hits: 1, Window: time.Hour, Policy: window.InFlight}, Cost: 1, Stream: 1})
	if _, err := s.Take(t.Context(), window.MayWait, []window.Check{group[0], held}, make([]window.Decision, 2)); !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("in flight on a cluster, beside another scope: got error %v", err)
	}
	if got := take(t, s, held); !got[0].Allowed {
		t.Errorf("in flight on a cluster alone: got %+v", got)
	}
}

// TestScopeFails: the error of a call has why a scope has failed. The other scope has decided, and
// what it has charged can be taken back.
func TestScopeFails(t *testing.T) {
	server := servers.StartRedis(t)
	s, _ := openPair(t, newClient(t, server.Addr()), brief)
	region, global := hour("k", 10, 1), in(1, hour("k", 10, 1))
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
			_, err := s.Take(t.Context(), window.MayWait, []window.Check{region, global}, decisions)
			var part *window.PartError
			if !errors.As(err, &part) || part.Failed[0] != nil || failure.Of(part.Failed[1]) == "" {
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
	s, _ := openPair(t, newClient(t, servers.Redis(t)), patient)
	few, many := in(1, hour("few", 2, 1)), hour("many", 100, 1)
	for i := range 10 {
		got := take(t, s, many, few)
		if want := i < 2; reference.Allowed(got) != want {
			t.Errorf("call %d: allowed is %t, want %t", i, !want, want)
		}
		if got[0].Remaining != uint64(99-min(i, 1)) && i < 2 || got[0].Remaining != 98 && i >= 2 {
			t.Errorf("call %d: %d remain in the region", i, got[0].Remaining)
		}
	}
}

// A leaving client has no connection for any call of the script after so many.
type leaving struct {
	redisstore.Client
	left atomic.Int64
}

func (l *leaving) Process(ctx context.Context, cmd redis.Cmder) error {
	if l.left.Add(-1) < 0 {
		return &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
	return l.Client.Process(ctx, cmd)
}

// TestUnsettledUntilTakenBack: if another scope denies, and the charge cannot be taken back, the
// decision says that it may count the charge.
func TestUnsettledUntilTakenBack(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	one := &leaving{Client: client}
	one.left.Store(1 << 20)
	s := redisstore.NewScopes([]string{"region", "one"}, []*redisstore.Store{
		redisstore.New(one, redisstore.Options{Prefix: "a:", Timeout: patient, Failures: 100}),
		redisstore.New(client, redisstore.Options{Prefix: "b:", Timeout: patient}),
	})
	defer s.Close()
	many, full := hour("many", 100, 1), in(1, hour("full", 1, 1))
	for _, unsettled := range []bool{false, true} {
		take(t, s, many, in(1, hour("other", 100, 1)))
		take(t, s, full)
		if unsettled {
			one.left.Store(1) // the charge, and not the way back
		}
		if got := take(t, s, many, full); reference.Allowed(got) || got[0].Unsettled != unsettled {
			t.Errorf("got %+v, want a denial that is unsettled: %t", got, unsettled)
		}
	}
}

// TestGivenBackOnce: if the limits that have decided deny a request, they have taken back what they
// charged. The caller cannot take it back again, which would be a charge of another request.
func TestGivenBackOnce(t *testing.T) {
	server := servers.StartRedis(t)
	s, _ := openPair(t, newClient(t, server.Addr()), brief)
	bucket, full, far := hour("bucket", 10, 1), hour("full", 1, 1), in(1, hour("far", 10, 1))
	bucket.Limit.Policy, bucket.Limit.Rate = window.TokenBucket, 1
	bucket.Cost = 5
	take(t, s, bucket)
	bucket.Cost = 1
	take(t, s, full)
	server.Stop()
	decisions := make([]window.Decision, 3)
	_, err := s.Take(t.Context(), window.MayWait, []window.Check{bucket, full, far}, decisions)
	window.GiveBack(t.Context(), err)
	if decisions[1].Allowed || decisions[0].Remaining != 5 || window.FailedIn(err, 1) == nil {
		t.Errorf("got %+v, error %v, want a denial and 5 remaining", decisions, err)
	}
	bucket.Cost = 0
	if got := take(t, s, bucket)[0].Remaining; got != 5 {
		t.Errorf("%d remain in the bucket, want the 5 of before", got)
	}
}

// TestScopesReserve: a reservation is made in the scope of its check, and returned there.
func TestScopesReserve(t *testing.T) {
	s, stores := openPair(t, newClient(t, servers.Redis(t)), patient)
	d, r, err := s.Reserve(t.Context(), in(1, hour("k", 10, 4)), time.Second)
	if err != nil || !d.Allowed || r.Scope != 1 {
		t.Fatalf("got %+v, %+v, error %v, want a reservation in the scope 1", d, r, err)
	}
	if taken, err := s.Return(t.Context(), r, 3); taken != 3 || err != nil {
		t.Errorf("%d hits were returned, error %v, want 3", taken, err)
	}
	if near, far := take(t, stores[0], hour("k", 10, 0))[0].Remaining, take(t, stores[1], hour("k", 10, 0))[0].Remaining; near != 10 || far != 9 {
		t.Errorf("%d and %d remain, want 10 in the region and 9 in the scope", near, far)
	}
}

// TestScopesKeep: logs are read, listed and removed in the store of their scope.
func TestScopesKeep(t *testing.T) {
	s, _ := openPair(t, newClient(t, servers.Redis(t)), patient)
	region, global := hour("{a}k", 10, 1), in(1, hour("{a}k", 10, 2))
	take(t, s, region, global)
	ids := []window.LogID{global.Log(), region.Log()}
	used := func(readings []inspect.Reading, err error) (all []uint64) {
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
		some, next, err := s.List(t.Context(), inspect.Match{Tag: "a"}, cursor)
		if err != nil {
			t.Fatal(err)
		}
		listed, cursor = append(listed, some...), next
	}
	if want := []window.LogID{region.Log(), global.Log()}; !slices.Equal(listed, want) {
		t.Errorf("listed %+v, want %+v", listed, want)
	}
	for _, cursor := range []string{"5|", "x|0", "-1|", "0"} {
		if _, _, err := s.List(t.Context(), inspect.Match{}, cursor); !errors.Is(err, inspect.ErrCursor) {
			t.Errorf("cursor %q: got error %v", cursor, err)
		}
	}
	used(s.Remove(t.Context(), ids[:1]))
	if got := used(s.Read(t.Context(), ids)); !slices.Equal(got, []uint64{0, 1}) {
		t.Errorf("after the global log was removed: read %v", got)
	}
}

// TestScopesUnderFaults lets many callers meet on few logs while the line to one scope is slow,
// silent and cut. At rest, the log of the region has what was allowed and no more, and no log is
// over its limit.
func TestScopesUnderFaults(t *testing.T) {
	proxy := servers.StartProxy(t, servers.Redis(t))
	s, stores := openPair(t, newClient(t, proxy.Addr()), brief)
	const callers, each, limit = 16, 60, 300
	region := func(k int) window.Check { return hour(fmt.Sprintf("near%d", k), limit, 1) }
	global := func(k int) window.Check { return in(1, hour(fmt.Sprintf("far%d", k), limit/2, 1)) }
	var allowed, far [2]atomic.Int64
	for k := range 2 { // before the faults
		take(t, s, region(k), global(k))
		allowed[k].Add(1)
		far[k].Add(1)
	}
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				proxy.Latency(0)
				proxy.Blackhole(false)
				return
			default:
			}
			switch i % 4 {
			case 0:
				proxy.Latency(5 * time.Millisecond)
			case 1:
				proxy.Blackhole(true)
			case 2:
				proxy.Blackhole(false)
				proxy.CloseAll()
			case 3:
				proxy.Latency(0)
			}
			_ = stores[0].Load(t.Context()) // some round trips of time
			_ = stores[1].Load(t.Context())
		}
	})
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			for i := range each {
				k := (n + i) % 2
				checks := []window.Check{region(k), global(k)}
				decisions := make([]window.Decision, 2)
				_, err := s.Take(t.Context(), window.MayWait, checks, decisions)
				var part *window.PartError
				switch {
				case err == nil && reference.Allowed(decisions):
					allowed[k].Add(1)
					far[k].Add(1)
				case err == nil:
				case !errors.As(err, &part):
					t.Errorf("got error %v", err)
				case part.Failed[0] != nil || i%2 == 0 || !decisions[0].Allowed:
					part.GiveBack(t.Context())
				default:
					allowed[k].Add(1) // by the choice of its rule
				}
			}
		})
	}
	all.Wait()
	close(stop)
	faults.Wait()
	for _, one := range stores {
		if err := one.Close(); err != nil { // waits for what is taken back
			t.Fatal(err)
		}
	}
	fresh := redisstore.New(newClient(t, proxy.Addr()), redisstore.Options{Prefix: t.Name()})
	for k := range 2 {
		readings, err := stores[0].Read(t.Context(), []window.LogID{region(k).Log()})
		if err != nil {
			t.Fatal(err)
		}
		// On a busy machine a hit may not be given back in time: the store counts it.
		most := min(allowed[k].Load()+int64(stores[0].Stats().NotTakenBack), limit)
		if used := int64(readings[0].Used(region(k).Limit)); used < allowed[k].Load() || used > most {
			t.Errorf("log %d of the region: %d hits are charged, want from %d to %d", k, used, allowed[k].Load(), most)
		}
		for {
			if readings, err = fresh.Read(t.Context(), []window.LogID{global(k).Log()}); err == nil {
				break
			}
		}
		if used := int64(readings[0].Used(global(k).Limit)); used < far[k].Load() || used > limit/2 {
			t.Errorf("log %d of the other scope: %d hits are charged, want from %d to %d", k, used, far[k].Load(), limit/2)
		}
	}
	_ = fresh.Close()
	if allowed[0].Load() == far[0].Load() {
		t.Errorf("%d requests were allowed, and all of them charged everywhere: the faults did not matter", allowed[0].Load())
	}
}
