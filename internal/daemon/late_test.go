package daemon

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
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
	decider *policy.Decider
	proxies []*servers.Proxy
}

// newLateCase starts an instance on url, which goes through the proxies.
func newLateCase(t *testing.T, url string, proxies ...*servers.Proxy) *lateCase {
	t.Helper()
	s := redisSettings(t, url)
	s.Store.Timeout = 15 * time.Millisecond
	s.Store.Redis.Breaker.Failures = math.MaxInt32 // a slow machine must not open the breaker
	rules := policy.NewRules(policy.Identity{Secrets: new(tier.Secrets)})
	rules.SetOnStoreError(policy.StoreErrorLocal)
	add := func(key string, r policy.Rule, limits ...window.Limit) {
		r.Domain, r.Path = "edge", []descriptors.Node{{Key: key, AnyValue: true}}
		for _, l := range limits {
			r.Terms.Limits = append(r.Terms.Limits, policy.Limit{Limit: l, Precision: window.Precision(l)})
		}
		if err := rules.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	limit := window.Limit{Hits: lateLimit, Window: time.Hour}
	add("one", policy.Rule{}, limit)
	add("two", policy.Rule{}, limit, window.Limit{Hits: 10 * lateLimit, Window: 24 * time.Hour})
	o := open(t, s)
	// A slow machine must not give up a debt either: the calls that settle it are late there, too.
	shares, err := local.NewShares(local.ShareOptions{
		Replicas: s.Store.Replicas, Memory: bounds(s.Store.Memory), Settler: o.Settler(), Timeout: s.Store.Timeout, SettleTime: time.Hour,
	})
	if err == nil {
		err = o.Shares.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	o.Shares = shares
	l := &lateCase{opened: o, t: t, proxies: proxies}
	l.decider = policy.NewDecider(rules, policy.Options{Store: o.Local, Local: o.Shares, Meters: o.metrics, Log: zap.NewNop()})
	waitFor(t, "Redis", func() bool { return l.load(t.Context(), time.Second) == nil })
	o.decides("warm")
	return l
}

// ask asks for one hit and reports whether it is allowed.
func (l *lateCase) ask(key, value string) bool {
	l.t.Helper()
	v := l.verdict(key, value)
	return v.Allowed
}

// verdict asks for one hit.
func (l *lateCase) verdict(key, value string) *policy.Verdict {
	l.t.Helper()
	req := policy.Request{Domain: "edge", Descriptors: []policy.Descriptor{{Entries: descriptors.Descriptor{{Key: key, Value: value}}, Cost: 1}}}
	var c policy.Call
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

// run asks lateCalls times, holding up those calls that late names by their number, and
// checks that exactly the limit was allowed and charged.
func (l *lateCase) run(name, key string, hold func(*servers.Proxy, bool), late func(int) bool, wait bool) {
	l.t.Helper()
	value := name
	allowed, abandoned := 0, l.Shares.Settled().Abandoned
	for i := 1; i <= lateCalls; i++ {
		held := late(i)
		for _, p := range l.proxies {
			if held {
				hold(p, true)
			}
		}
		if l.ask(key, value) {
			allowed++
		}
		for _, p := range l.proxies {
			if held {
				hold(p, false)
			}
		}
		if held && wait {
			l.settled()
		}
	}
	l.settled()
	l.exact(key, value, allowed, l.Shares.Settled().Abandoned-abandoned)
}

// exact checks that exactly the limit was allowed and charged, when no log has a debt.
func (l *lateCase) exact(key, value string, allowed int, abandoned uint64) {
	l.t.Helper()
	if allowed != lateLimit || abandoned != 0 {
		l.t.Errorf("%s: %d of %d calls were allowed, %d hits abandoned; want exactly %d", value, allowed, lateCalls, abandoned, lateLimit)
	}
	if v := l.verdict(key, value); v.Allowed {
		l.t.Errorf("%s: one more call was allowed afterwards; without Redis: %t", value, v.Degraded)
	}
	l.settled()
	check := window.Check{
		Key:   "{" + value + "}:edge|" + key + ":" + value,
		Limit: window.Limit{Hits: 10 * lateLimit, Window: time.Hour}, Precision: window.Precision(window.Limit{Hits: lateLimit, Window: time.Hour}),
	}
	var d [1]window.Decision
	waitFor(l.t, "what Redis holds", func() bool {
		_, err := l.Take(l.t.Context(), window.MayWait, []window.Check{check}, d[:])
		return err == nil
	})
	if charged := 10*lateLimit - d[0].Remaining; charged != lateLimit {
		l.t.Errorf("%s: %d hits are charged, want %d", value, charged, lateLimit)
	}
}

// settled waits until nothing is owed.
func (l *lateCase) settled() {
	l.t.Helper()
	waitFor(l.t, "all debts to be settled", func() bool { return !l.Shares.Owing() })
}

// all runs every kind of late call: each of the calls alone, and several of them.
func (l *lateCase) all(every int) {
	for name, hold := range map[string]func(*servers.Proxy, bool){"request": (*servers.Proxy).Blackhole, "reply": (*servers.Proxy).DropReplies} {
		for i := 1; i <= lateCalls; i += every {
			l.run(fmt.Sprintf("%s-%d", name, i), "one", hold, func(call int) bool { return call == i }, i%2 == 0)
		}
		for _, key := range []string{"one", "two"} {
			for _, wait := range []bool{false, true} {
				seed := random.Seed(l.t)
				random := rand.New(rand.NewPCG(seed, 0))
				l.run(fmt.Sprintf("%s-%s-seed-%d-%t", name, key, seed, wait), key, hold, func(call int) bool { return call > 97 && call < 104 || random.IntN(12) == 0 }, wait)
			}
		}
	}
	if s := l.Shares.Settled(); s.Charged == 0 || s.Found == 0 {
		l.t.Errorf("settled: %+v, want some charged and some found", s)
	}
}

// TestExactWhenCallsAreLate makes calls of a single instance late on their way to Redis
// and on their way back. Exactly the limit passes, and exactly that is charged.
func TestExactWhenCallsAreLate(t *testing.T) {
	p := servers.StartProxy(t, servers.StartRedis(t).Addr())
	newLateCase(t, "redis://"+p.Addr()+"/0", p).all(random.Steps(t, 4, 1))
}

// TestStallWithManyCallers stops Redis while many callers ask for one key at once, until
// the first of them was answered without it. Redis goes on while the other calls end, so
// of these some are charged, some refused and some charged without an answer. No more
// may differ from the limit than were under way.
func TestStallWithManyCallers(t *testing.T) {
	server := servers.StartRedis(t)
	l := newLateCase(t, "redis://"+server.Addr()+"/0")
	const atOnce = 20
	for run := range random.Steps(t, 15, 60) {
		value := fmt.Sprintf("stall-%d", run)
		var asked, allowed atomic.Int64
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
					if v.Allowed {
						allowed.Add(1)
					}
					if v.Degraded {
						resume()
					}
				}
			})
		}
		callers.Wait()
		resume()
		l.settled()
		if got := allowed.Load(); got < lateLimit-atOnce || got > lateLimit+atOnce {
			t.Errorf("%s: %d of %d calls were allowed, want %d, or up to %d more or less", value, got, lateCalls, lateLimit, atOnce)
		}
	}
}

// TestExactWhenCallsAreLateOnACluster is the same on a Cluster whose nodes are known by
// the addresses of proxies.
func TestExactWhenCallsAreLateOnACluster(t *testing.T) {
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
