package decide

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/reuse/reusetest"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/random"
)

// A drawn is what a step of TestReusedEqualsFresh does: it decides a request, or begins it only.
type drawn struct {
	request   func() Request
	fails     bool // the store
	waits     bool // Decide is called without waiting first
	begins    bool // the request is left after that
	forgets   bool // the request is forgotten before the next one begins
	unwaiting map[string]bool
}

// mixedRules are rules of every policy and kind. Two deciders must not share them: rules learn.
func mixedRules(t tester) *rules.Rules {
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t)})
	limits := func(all ...window.Limit) (terms rules.Terms) {
		for _, l := range all {
			terms.Limits = append(terms.Limits, rules.Limit{Limit: l, Precision: rules.PrecisionOf(l)})
		}
		return terms
	}
	sliding := func(hits uint64) window.Limit { return window.Limit{Hits: hits, Window: time.Minute} }
	for _, r := range []rules.Rule{
		with(rule("per-key", limits(sliding(3)), anyOf("api_key")), func(r *rules.Rule) {
			r.ByTier = map[string]rules.Terms{"free": limits(sliding(2)), "starter": limits(sliding(4), window.Limit{Hits: 9, Window: time.Hour, Policy: window.Fixed})}
			r.OnStoreError = rules.StoreErrorLocal
		}),
		with(rule("once", limits(sliding(3)), anyOf("user")), func(r *rules.Rule) { once(r); r.OnStoreError = rules.StoreErrorAllow }),
		with(rule("quota", limits(sliding(2)), anyOf("quota")), func(r *rules.Rule) { r.Quota, r.Subject = true, "api_key" }),
		rule("flight", limits(sliding(5), window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}), anyOf("flight")),
		rule("bucket", limits(window.Limit{Hits: 3, Window: time.Minute, Policy: window.TokenBucket, Rate: 2}), anyOf("bucket")),
		with(rule("always", limits(sliding(3)), anyOf("always")), func(r *rules.Rule) { r.Always = true }),
		rule("watched", rules.Terms{Limits: limits(sliding(1)).Limits, Observe: 0.5}, anyOf("watched"), anyOf("api_key")),
		with(rule("replaces", limits(sliding(2)), anyOf("replaces")), func(r *rules.Rule) { r.Replaces = []string{"once", "bucket"} }),
		with(rule("unlimited", rules.Terms{Unlimited: true}, anyOf("unlimited")), func(r *rules.Rule) { r.OnStoreError = rules.StoreErrorDeny }),
		with(rule("counter", limits(window.Limit{Hits: 3, Window: time.Minute, Policy: window.SlidingCounter}), anyOf("counter")), func(r *rules.Rule) { r.Factor, r.Detailed, r.RetryJitter = 2, true, 0.5 }),
	} {
		r.Domain = "edge"
		if err := rs.Add(r); err != nil {
			t.Fatal(r.Name, err)
		}
	}
	return rs
}

// drawRequest draws a request of descriptors that meet many rules, and some that meet none.
func drawRequest(t *rapid.T) func() Request {
	domain := rapid.SampledFrom([]string{"edge", "edge", "edge", "edge", "edge", "nowhere"}).Draw(t, "domain")
	stream := rapid.SampledFrom([]string{"", "", "s1", "s2", "s3"}).Draw(t, "stream")
	ending := rapid.SampledFrom([]string{"", "", "", "via_upstream", inflight.EndedInOrder}).Draw(t, "ending")
	endless, caller := rapid.IntRange(0, 9).Draw(t, "endless") == 0, rapid.IntRange(0, 4).Draw(t, "caller") == 0
	keys := []string{"acme-key", "hobby-key", "gone-key", "own-key", "lost-key", "stranger"}
	n := rapid.SampledFrom([]int{0, 1, 1, 2, 3, 5, window.MaxChecks + 1}).Draw(t, "descriptors")
	type one struct {
		text                     string
		cost                     uint64
		refund, ends, overridden bool
	}
	all := make([]one, n)
	for i := range all {
		key := rapid.SampledFrom(keys).Draw(t, "key")
		value := rapid.SampledFrom([]string{"a", "b", "::ffff:192.0.2.1", "", "%~{}"}).Draw(t, "value")
		name := rapid.SampledFrom([]string{"user", "quota", "flight", "bucket", "always", "replaces", "unlimited", "counter", "remote_address", "none", "slidegate"}).Draw(t, "entry")
		o := one{cost: rapid.SampledFrom([]uint64{1, 1, 1, 2, 0, 50}).Draw(t, "cost"), text: name + "=" + value}
		switch rapid.IntRange(0, 7).Draw(t, "form") {
		case 0, 1:
			o.text = "api_key=" + key
		case 2:
			o.text = "watched=" + value + " api_key=" + key
		case 3:
			o.text += " attempt=" + rapid.SampledFrom([]string{"1", "2", ""}).Draw(t, "attempt")
		case 4:
			o.refund = true
		case 5:
			o.overridden = true
		}
		o.ends = name == "slidegate"
		all[i] = o
	}
	return func() Request {
		r := Request{Domain: domain, Stream: inflight.NewStreamID(stream), Ending: ending, NoEndSignal: endless}
		if caller {
			r.Caller = &identity.Caller{Fingerprint: secrets.Value("api_key", "acme-key"), Answer: known(tier.Subject{ID: "called", Tier: "starter"})}
		}
		for _, o := range all {
			one := d(o.text)
			one.Cost, one.Refund, one.Ends = o.cost, o.refund, o.ends
			if o.overridden {
				one.Override = &window.Limit{Hits: 2, Window: time.Second}
			}
			r.Descriptors = append(r.Descriptors, one)
		}
		return r
	}
}

// A failingStore is a memory store that fails if err is set, and waits if waits is.
type failingStore struct{ waitingStore }

func (s *failingStore) End(ctx context.Context, id window.StreamID, deny time.Duration) (bool, error) {
	return s.Store.End(ctx, id, deny)
}

// TestReusedEqualsFresh: a Call that has decided any requests decides the next one as a Call without a
// past does, and keeps nothing of them.
func TestReusedEqualsFresh(t *testing.T) {
	most := random.Steps(t, 4, 25)
	rapid.Check(t, func(rt *rapid.T) {
		var now atomic.Int64 // the stores sweep beside the test
		now.Store(int64(1_790_000_000 * time.Second))
		clock := memstore.Options{Clock: func() time.Duration { return time.Duration(now.Load()) }}
		type side struct {
			*Decider
			store  *failingStore
			source *tableResolver
		}
		copies, local, shadow := rapid.Bool().Draw(rt, "copies names"), rapid.Bool().Draw(rt, "local"), rapid.IntRange(0, 5).Draw(rt, "shadow") == 0
		var sides [2]side
		for i := range sides {
			rules := mixedRules(rt)
			if shadow {
				rules.ObserveAll()
			}
			store := &failingStore{waitingStore{Store: memstore.New(clock)}}
			defer store.Close()
			source := &tableResolver{answers: answersOf(directory(rt))}
			o := Options{Store: store, CopiesNames: copies && !local, Subjects: source, Wait: time.Second, Clock: clock.Clock, Meters: counts{}}
			if local {
				second := memstore.New(clock)
				defer second.Close()
				o.Local = second
			}
			sides[i] = side{NewDecider(rules, o), store, source}
		}
		reused := new(Call)
		for range rapid.IntRange(1, most).Draw(rt, "requests") {
			step := drawn{
				request: drawRequest(rt), fails: rapid.IntRange(0, 5).Draw(rt, "fails") == 0, waits: rapid.Bool().Draw(rt, "waits"), begins: rapid.IntRange(0, 4).Draw(rt, "begins") == 0,
				forgets: rapid.Bool().Draw(rt, "forgets"), unwaiting: make(map[string]bool),
			}
			for _, key := range []string{"acme-key", "hobby-key", "own-key"} {
				step.unwaiting[secrets.Digest(key)] = rapid.Bool().Draw(rt, "held")
			}
			var got [2]string
			for i, c := range []*Call{reused, new(Call)} {
				s := sides[i]
				s.source.held, s.store.waits, s.store.err = step.unwaiting, step.waits, nil
				if step.fails {
					s.store.err = errors.New("boom")
				}
				got[i] = decideStep(c, s.Decider, &step)
			}
			if diff := cmp.Diff(got[1], got[0]); diff != "" {
				rt.Fatalf("%+v: a fresh call and one that is used again (-fresh +reused):\n%s", step.request(), diff)
			}
			if step.forgets {
				reused.Forget()
				reusetest.NothingIn(rt, "call", reflect.ValueOf(reused).Elem())
			}
			now.Add(int64(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 10 * time.Second, time.Minute}).Draw(rt, "later")))
		}
	})
}

// decideStep does a step, and returns all that the call says then.
func decideStep(c *Call, decider *Decider, step *drawn) string {
	decider.Begin(c, step.request())
	out := ""
	decided, err := c.Decide(context.Background(), window.NoWait)
	out += fmt.Sprint("without waiting: ", decided, " ", err, "\n")
	if decided || !step.begins {
		decided, err = c.Decide(context.Background(), window.MayWait)
		v := *c.Verdict()
		limits := v.Limits
		v.Limits = nil
		out += fmt.Sprintf("%v %v\n%+v\n", decided, err, withoutRules(v))
		for _, l := range limits {
			name := l.Rule.Name
			l.Rule = nil
			out += fmt.Sprintf("%s %+v\n", name, l)
		}
		for _, check := range withoutStreams(c.Checks()) {
			out += fmt.Sprintf("%+v\n", check)
		}
	}
	return out
}

// withoutRules returns a verdict with the names of rules alone.
func withoutRules(v Verdict) string {
	text := ""
	for _, m := range v.Matches {
		if m.Rule != nil {
			text += m.Rule.Name
		}
		if m.ReplacedBy != nil {
			text += " replaced by " + m.ReplacedBy.Name
		}
		m.Rule, m.ReplacedBy = nil, nil
		text += fmt.Sprintf("%+v ", m)
	}
	v.Matches = nil
	return fmt.Sprintf("%s%+v", text, v)
}

// withoutStreams returns checks without the random ids of streams.
func withoutStreams(checks []window.Check) (out []window.Check) {
	for _, c := range checks {
		c.Stream = 0
		out = append(out, c)
	}
	return out
}
