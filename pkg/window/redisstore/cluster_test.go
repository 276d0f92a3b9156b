package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
	"github.com/slidegate/slidegate/test/servers"
)

// newClusterClient returns a client as the package comment asks for.
func newClusterClient(t testing.TB, c *servers.Cluster) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), MaxRedirects: 8, ContextTimeoutEnabled: true, DisableRoutingPolicies: true,
		NewClient: func(o *redis.Options) *redis.Client {
			o.MaxRetries = -1
			return redis.NewClient(o)
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// startCluster starts a cluster, which takes two seconds: so not in short runs.
func startCluster(t *testing.T) *servers.Cluster {
	t.Helper()
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("a cluster takes long to start")
	}
	return servers.StartCluster(t)
}

// TestHashTag compares the slots of keys and of their hash tags, as a server says them.
func TestHashTag(t *testing.T) {
	c := startCluster(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range 500 {
		key := strconv.Itoa(i)
		for range rnd.IntN(6) {
			key += []string{"{", "}", "a", "{}", "{b}", "\x00\xff"}[rnd.IntN(6)]
		}
		if got, want := c.Slot(window.HashTag(key)), c.Slot(key); got != want {
			t.Errorf("%q: the slot of its tag is %d, want %d", key, got, want)
		}
	}
}

// onSlotsOf returns keys on slots of each master, without the hash tags that
// requests usually have.
func onSlotsOf(c *servers.Cluster) []string {
	var keys []string
	for _, m := range c.Masters() {
		for i := 0; ; i++ {
			if key := fmt.Sprint("key", i); c.MasterOf(key).Addr() == m.Addr() {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

// TestAcrossSlots proves that a request whose logs are on several servers is all
// or nothing: what was charged is taken back if one denies, exactly.
func TestAcrossSlots(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: patient})
	t.Cleanup(func() { _ = s.Close() })
	keys := onSlotsOf(c)
	a, b, d := keys[0], keys[1], keys[2]

	for i, tt := range []struct {
		checks []window.Check
		want   string // allowed and remaining, of each
	}{
		{[]window.Check{check(a, 10, 1), check(b, 5, 2), check(d, 3, 1)}, "true 9, true 3, true 2"},
		{[]window.Check{check(a, 10, 1), check(b, 5, 4), check(d, 3, 1)}, "true 9, false 3, true 2"}, // nothing
		{[]window.Check{check(a, 10, 1), check(b, 5, 3), check(d, 3, 1)}, "true 8, true 0, true 1"},
		{[]window.Check{check(a, 10, 1), check(b, 0, 1), check(d, 3, 1)}, "true 8, false 0, true 1"},  // a limit of zero
		{[]window.Check{check(a, 10, 3), check(b, 5, 1), check(a, 10, 4)}, "true 8, false 0, true 8"}, // folded
		{[]window.Check{check(a, 10, 0), check(b, 5, 0), check(d, 3, 0)}, "true 8, false 0, true 1"},
		{[]window.Check{mode(check(a, 10, 2), window.Always), check(b, 5, 1), check(d, 3, 1)}, "true 6, false 0, true 1"},
		{[]window.Check{mode(check(b, 5, 2), window.Refund), check(b, 5, 1), check(d, 3, 1)}, "true 1, true 1, true 0"},
		{[]window.Check{mode(check(a, 10, 1), window.Any), mode(check(d, 3, 1), window.Any)}, "true 5, false 0"},
		{[]window.Check{mode(check(d, 3, 1), window.Any), mode(check(b, 1, 1), window.Any), mode(check(a, 10, 1), window.Observe)}, "false 0, false 0, true 5"},
		{[]window.Check{mode(check(d, 3, 1), window.Observe), check(a, 10, 1)}, "false 0, true 4"},
	} {
		got := ""
		for i, d := range take(t, s, tt.checks...) {
			if i > 0 {
				got += ", "
			}
			got += fmt.Sprint(d.Allowed, " ", d.Remaining)
		}
		if got != tt.want {
			t.Errorf("step %d: got %s, want %s", i, got, tt.want)
		}
	}
	if got := s.Stats().NotTakenBack; got != 0 {
		t.Errorf("%d hits could not be taken back, want none", got)
	}
}

// TestUnsettled proves that a denial says so while it may count what a request
// on several slots has reserved, and not otherwise.
func TestUnsettled(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: patient})
	t.Cleanup(func() { _ = s.Close() })
	keys := onSlotsOf(c)
	take(t, s, check(keys[0], 1, 1)) // by itself
	if d := take(t, s, check(keys[0], 1, 1))[0]; d.Allowed || d.Unsettled {
		t.Errorf("after a request on one slot: got %+v, want a denial that is settled", d)
	}
	take(t, s, check(keys[1], 1, 1), check(keys[2], 1, 1))
	if d := take(t, s, check(keys[1], 1, 1))[0]; d.Allowed || !d.Unsettled {
		t.Errorf("after a request on two slots: got %+v, want a denial that is not settled", d)
	}
	if d := take(t, s, check(keys[2], 2, 1))[0]; !d.Allowed || d.Remaining != 0 || !d.Unsettled {
		t.Errorf("the last of the rest after it: got %+v, want it allowed, and that nothing remains not settled", d)
	}
}

// mode returns a check of another mode.
func mode(c window.Check, m window.Mode) window.Check {
	c.Mode = m
	return c
}

// TestMigrationUnderLoad moves slots between servers while they are asked, stops
// half way, and proves that no request fails and every charge counts once.
func TestMigrationUnderLoad(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: patient})
	t.Cleanup(func() { _ = s.Close() })
	const tag = "{moves}"
	slot := c.Slot(tag)
	masters := c.Masters()
	from := c.MasterOfSlot(slot)
	to := masters[0]
	if to.Addr() == from.Addr() {
		to = masters[1]
	}
	const limit = 1_000_000
	one, two := check(tag+"one", limit, 1), check(tag+"two", limit, 1)
	take(t, s, one, two)

	var stop atomic.Bool
	var charged atomic.Uint64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := 0; !stop.Load(); n++ {
				group := []window.Check{one, two}
				if i%4 == 0 { // keys that are new on the way
					group = append(group, check(fmt.Sprint(tag, "new", i, "-", n), 1, 1))
				}
				decisions := make([]window.Decision, len(group))
				if _, err := s.Take(t.Context(), window.MayWait, group, decisions); err != nil {
					t.Errorf("while the slot moves: %v", err)
					return
				}
				if !reference.Allowed(decisions) {
					t.Errorf("while the slot moves: got %+v, want all allowed", decisions)
					return
				}
				charged.Add(1)
			}
		})
	}
	progress := func() {
		t.Helper()
		before := charged.Load()
		eventually(t, "some more requests", func() bool { return charged.Load() > before+200 || t.Failed() })
	}
	for range 2 {
		c.BeginMigration(slot, from, to)
		progress()
		c.MigrateKeys(slot, from, to, 1) // of two keys that are asked together one is here, one there
		progress()
		c.FinishMigration(slot, from, to)
		progress()
		from, to = to, from
	}
	stop.Store(true)
	all.Wait()
	got := take(t, s, check(tag+"one", limit, 0), check(tag+"two", limit, 0))
	for i, d := range got {
		if want := limit - 1 - charged.Load(); d.Remaining != want {
			t.Errorf("log %d: remaining %d, want %d: charged %d times for %d requests", i, d.Remaining, want, limit-1-d.Remaining, charged.Load())
		}
	}
}

// TestOneShardDown proves that a server which is gone fails the requests for its
// own keys and no others.
func TestOneShardDown(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: time.Second, Failures: 2, ProbeInterval: 50 * time.Millisecond})
	t.Cleanup(func() { _ = s.Close() })
	keys := onSlotsOf(c)
	ask := func(i int) error {
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{check(keys[i], 1000, 1)}, make([]window.Decision, 1))
		return err
	}
	for i := range keys {
		eventually(t, "every server to answer", func() bool { return ask(i) == nil })
	}
	down := c.MasterOf(keys[0])
	down.Pause()
	eventually(t, "its breaker to open", func() bool { return failure.Of(ask(0)) == failure.Open })
	for range 20 {
		for _, i := range []int{1, 2} {
			if err := ask(i); err != nil {
				t.Errorf("a server that is well: %v", err)
			}
		}
	}
	// Its replica takes over, and its keys are decided again.
	eventually(t, "the keys to be decided again", func() bool { return ask(0) == nil })
	down.Resume()
}

// TestPoliciesAcrossSlots proves that what a request on several servers has charged is taken
// back from logs of every policy if one of its limits denies, and that the answers say so.
func TestPoliciesAcrossSlots(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: patient})
	t.Cleanup(func() { _ = s.Close() })
	keys := onSlotsOf(c)
	now := time.Now().Unix()
	for _, p := range []window.Policy{window.TokenBucket, window.Fixed, window.Calendar, window.SlidingCounter} {
		t.Run(p.String(), func(t *testing.T) {
			counts := window.Check{Key: keys[0], Limit: window.Limit{Hits: 10, Window: 100 * 24 * time.Hour, Policy: p}, Cost: 2}
			switch p {
			case window.TokenBucket:
				counts.Limit.Rate = 10
			case window.Calendar:
				counts.Period = window.Period{Start: now - 1000, End: now + 100_000, Next: now + 200_000}
			}
			other := check(keys[1], 4, 1)
			other.Key += p.String()
			other.Limit.Window = time.Hour
			remain := func(what string, got []window.Decision, allowed bool, want ...uint64) {
				t.Helper()
				if reference.Allowed(got) != allowed || got[0].Remaining != want[0] || got[1].Remaining != want[1] {
					t.Errorf("%s: got %+v, want allowed %t and %d to remain", what, got, allowed, want)
				}
			}
			remain("allowed", take(t, s, counts, other), true, 8, 3)
			denied := other
			denied.Cost = 4
			settled := take(t, s, counts, denied)
			remain("the other denies", settled, false, 8, 3)
			if settled[0].Unsettled {
				t.Errorf("the charge is back, but the answer is %+v", settled[0])
			}
			counts.Cost = 9
			remain("it denies", take(t, s, counts, other), false, 8, 3)
			counts.Cost, other.Cost = 8, 3
			remain("all", take(t, s, counts, other), true, 0, 0)
		})
	}
	if got := s.Stats().NotTakenBack; got != 0 {
		t.Errorf("%d hits could not be taken back, want none", got)
	}
}

// TestAcrossSlotsOneFails: if one server of a request does not answer, what another one has charged is
// taken back, also that of an attempt.
func TestAcrossSlotsOneFails(t *testing.T) {
	c := startCluster(t)
	s := redisstore.New(newClusterClient(t, c), redisstore.Options{Timeout: time.Second, Failures: 100})
	t.Cleanup(func() { _ = s.Close() })
	keys := onSlotsOf(c)
	silent := c.MasterOf(keys[1])
	for i, one := range []window.Check{hour(keys[0], 9, 2), tagged(keys[0], 9, 2, 1)} {
		other := hour(keys[1], 9, 1)
		ask := one
		ask.Cost, ask.Once = 0, window.Once{}
		eventually(t, "both servers to decide", func() bool {
			_, err := s.Take(t.Context(), window.MayWait, []window.Check{ask, hour(keys[1], 9, 0)}, make([]window.Decision, 2))
			return err == nil
		})
		silent.Pause()
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{one, other}, make([]window.Decision, 2))
		if failure.Of(err) != failure.Timeout {
			t.Errorf("request %d: got error %v, want the class %s", i, err, failure.Timeout)
		}
		silent.Resume()
		c.WaitOK()
		eventually(t, "the charge to be taken back", func() bool {
			got := make([]window.Decision, 1)
			_, err := s.Take(t.Context(), window.MayWait, []window.Check{ask}, got)
			return err == nil && got[0].Remaining == 9
		})
	}
}
