package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
)

// lateLimit is the limit in the tests of late calls, which ask it lateCalls times.
const (
	lateLimit = 100
	lateCalls = 130
)

// A lateCase is an instance on a Redis whose calls and replies a test can hold up.
type lateCase struct {
	*opened
	t       *testing.T
	decider *decide.Decider
	proxies []*servers.Proxy
	late    int // calls that were held, and late
}

// newLateCase starts an instance on url, which goes through the proxies.
func newLateCase(t *testing.T, url string, proxies ...*servers.Proxy) *lateCase {
	t.Helper()
	s := redisSettings(t, url)
	s.Store.Timeout = 15 * time.Millisecond
	everyCallTries(t) // a slow machine must not open the breaker
	rs := rules.NewRules(rules.Identity{Secrets: new(tier.Secrets)})
	rs.SetOnStoreError(rules.StoreErrorLocal)
	add := func(key string, r rules.Rule, limits ...window.Limit) {
		r.Domain, r.Path = "edge", []descriptors.Node{{Key: key, AnyValue: true}}
		for _, l := range limits {
			r.Terms.Limits = append(r.Terms.Limits, rules.Limit{Limit: l, Precision: window.Precision(l)})
		}
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	limit := window.Limit{Hits: lateLimit, Window: time.Hour}
	add("one", rules.Rule{}, limit)
	add("two", rules.Rule{}, limit, window.Limit{Hits: 10 * lateLimit, Window: 24 * time.Hour})
	o := open(t, s)
	l := &lateCase{opened: o, t: t, proxies: proxies}
	l.decider = decide.NewDecider(rs, decide.Options{Store: o.store.Front, Local: o.store.Fallback, Meters: o.metrics})
	waitFor(t, "Redis", func() bool { return l.load(t.Context(), time.Second) == nil })
	o.decides("warm")
	return l
}

// verdict asks for one hit.
func (l *lateCase) verdict(key, value string) *decide.Verdict {
	l.t.Helper()
	req := decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{{Key: key, Value: value}}, Cost: 1}}}
	var c decide.Call
	l.decider.Begin(&c, req)
	decided, err := c.Decide(l.t.Context(), window.NoWait)
	if !decided {
		_, err = c.Decide(l.t.Context(), window.MayWait)
	}
	if err != nil {
		l.t.Error(err)
	}
	return c.Verdict()
}

// run asks lateCalls times, holding up those calls that late names by their number. Beside the limit,
// it may be allowed one hit for each degraded answer. lost says that the held calls reach Redis after
// their deadline, so Redis charges none of them.
func (l *lateCase) run(name, key string, hold func(*servers.Proxy, bool), late func(int) bool, lost bool) {
	l.t.Helper()
	exact, local, degraded, delayed := 0, 0, 0, 0
	for i := 1; i <= lateCalls; i++ {
		holds := late(i)
		if holds {
			for _, p := range l.proxies {
				hold(p, true)
			}
		}
		v := l.verdict(key, name)
		if holds {
			for _, p := range l.proxies {
				hold(p, false)
			}
		}
		switch {
		case v.Degraded:
			degraded++
			if holds { // it may be denied from memory, and a node of a Cluster may have no proxy
				delayed++
			}
			if v.Allowed {
				local++
			}
		case v.Allowed:
			exact++
		}
	}
	l.late += delayed
	slow := degraded // answers of Redis that it may have charged
	if lost {
		slow -= delayed
	}
	if exact > lateLimit || exact < min(lateLimit, lateCalls-degraded)-slow {
		l.t.Errorf("%s: Redis allowed %d calls, and the share %d of %d; want %d of Redis, or up to %d less", name, exact, local, degraded, lateLimit, slow)
	}
	check := window.Check{
		Key:   "{" + name + "}:edge|" + key + ":" + name,
		Limit: window.Limit{Hits: 10 * lateLimit, Window: time.Hour}, Precision: window.Precision(window.Limit{Hits: lateLimit, Window: time.Hour}),
	}
	var d [1]window.Decision
	waitFor(l.t, "what Redis holds", func() bool {
		_, err := l.Take(l.t.Context(), window.MayWait, []window.Check{check}, d[:])
		return err == nil
	})
	if charged := 10*lateLimit - int(d[0].Remaining); charged < exact || charged > min(exact+slow, lateLimit) {
		l.t.Errorf("%s: %d hits are charged, want the %d that Redis allowed and up to %d more", name, charged, exact, slow)
	}
}

// all runs every kind of late call: each of the calls alone, and several of them.
func (l *lateCase) all(every int) {
	for _, kind := range []struct {
		name string
		hold func(*servers.Proxy, bool)
		lost bool
	}{{"request", (*servers.Proxy).Blackhole, true}, {"reply", (*servers.Proxy).DropReplies, false}} {
		for i := 1; i <= lateCalls; i += every {
			l.run(fmt.Sprintf("%s-%d", kind.name, i), "one", kind.hold, func(call int) bool { return call == i }, kind.lost)
		}
		for _, key := range []string{"one", "two"} {
			seed := random.Seed(l.t)
			random := rand.New(rand.NewPCG(seed, 0))
			l.run(fmt.Sprintf("%s-%s-seed-%d", kind.name, key, seed), key, kind.hold, func(call int) bool { return call > 97 && call < 104 || random.IntN(12) == 0 }, kind.lost)
		}
	}
	if l.late == 0 {
		l.t.Error("no call was late")
	}
}

// TestLateCalls makes calls of one caller late on their way to Redis and on their way back. One late
// call adds at most one hit to the limit, and Redis charges no call after its deadline.
func TestLateCalls(t *testing.T) {
	p := servers.StartProxy(t, servers.StartRedis(t).Addr())
	newLateCase(t, "redis://"+p.Addr()+"/0", p).all(random.Steps(t, 6, 1))
}

// TestStallWithManyCallers stops Redis while many callers ask for one key at once, until
// the first of them was answered without it. Redis goes on while the other calls end, so
// of these some are charged, some refused and some charged without an answer. Beside the limit,
// only degraded answers are allowed, and no more of them than the limit.
func TestStallWithManyCallers(t *testing.T) {
	server := servers.StartRedis(t)
	l := newLateCase(t, "redis://"+server.Addr()+"/0")
	const atOnce = 12
	for run := range random.Steps(t, 15, 60) {
		value := fmt.Sprintf("stall-%d", run)
		var asked, exact, degraded, unknown atomic.Int64
		var paused atomic.Bool
		resume := func() {
			if paused.CompareAndSwap(true, false) {
				server.Resume()
			}
		}
		stopAt := int64(30 + 2*run)
		var callers sync.WaitGroup
		for range atOnce {
			callers.Go(func() {
				for {
					n := asked.Add(1)
					if n > lateCalls {
						return
					}
					if n == stopAt {
						server.Pause()
						paused.Store(true)
					}
					v := l.verdict("one", value)
					switch {
					case !v.Degraded && v.Allowed:
						exact.Add(1)
					case v.Degraded:
						resume()
						unknown.Add(1)
						if v.Allowed {
							degraded.Add(1)
						}
					}
				}
			})
		}
		callers.Wait()
		resume()
		if e, d, u := exact.Load(), degraded.Load(), unknown.Load(); e > lateLimit || e < min(lateLimit, lateCalls-u)-u || d > lateLimit {
			t.Errorf("%s: Redis allowed %d calls, and the share %d of %d; want up to %d of each", value, e, d, u, lateLimit)
		}
	}
}

// TestLateCallsOnACluster is TestLateCalls on a Cluster whose nodes are known by
// the addresses of proxies.
func TestLateCallsOnACluster(t *testing.T) {
	cluster := servers.StartCluster(t)
	var proxies []*servers.Proxy
	for _, n := range cluster.Nodes() {
		p := servers.StartProxy(t, n.Addr())
		_, port, err := net.SplitHostPort(p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := n.Do("CONFIG", "SET", "cluster-announce-port", port); err != nil || got != "OK" {
			t.Fatal(got, err)
		}
		proxies = append(proxies, p)
	}
	newLateCase(t, "redis-cluster://"+proxies[0].Addr(), proxies...).all(random.Steps(t, 20, 9))
}
