package decide

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/random"
)

// halfStore is a store of two scopes, of which the second can fail.
type halfStore struct {
	window.Store
	fails error
	backs int // how often the charges of a group were taken back
	// decided, if not nil, is called at the end of a call.
	decided func()
}

func (h *halfStore) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	if h.decided != nil {
		defer h.decided()
	}
	part := new(window.PartError)
	var own []window.Check
	var at []int
	for i, c := range checks {
		if c.Scope == 1 && h.fails != nil {
			part.Failed[1] = h.fails
			continue
		}
		own, at = append(own, c), append(at, i)
	}
	answers := make([]window.Decision, len(own))
	if _, err := h.Store.Take(ctx, window.MayWait, own, answers); err != nil {
		return true, err
	}
	for i, to := range at {
		decisions[to] = answers[i]
	}
	if len(own) == len(checks) {
		return true, nil
	}
	if window.GroupAllowed(own, answers) {
		part.Undo = func(context.Context) {
			h.backs++
			for i, c := range own {
				c.Mode = window.Refund
				_, _ = h.Store.Take(ctx, window.MayWait, []window.Check{c}, answers[i:i+1])
				decisions[at[i]] = answers[i]
			}
		}
	}
	return true, part
}

// scopedRules are a rule of the region and one that has a choice, in the scope global.
func scopedRules(t *testing.T, region uint64, choice rules.OnStoreError) *rules.Rules {
	t.Helper()
	rs := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets(nil, nil)})
	rs.SetScopes([]string{rules.RegionScope, "global"})
	for _, r := range []rules.Rule{
		{Domain: "edge", Path: []descriptors.Node{anyOf("a")}, Name: "near", Terms: per(region, time.Minute)},
		{Domain: "edge", Path: []descriptors.Node{anyOf("b")}, Name: "far", Storage: rules.Storage{Scope: "global", OnError: choice}, Terms: per(1, time.Minute)},
	} {
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return rs
}

// TestAScopeFails: the choice of a rule decides for it alone, the limits of the other scope are
// decided by their store, and a denial takes back what they have charged.
func TestAScopeFails(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		choice rules.OnStoreError
		region uint64 // the limit of the region
		used   uint64 // of this process's log for the scope
		want   string // of the second request
	}{
		{rules.StoreErrorAllow, 5, 0, "allowed, degraded, 3 of the region remain, taken back 0 times"},
		{rules.StoreErrorAllow, 1, 0, "denied, 0 of the region remain, taken back 0 times"},
		{rules.StoreErrorDeny, 5, 0, "denied, degraded, 5 of the region remain, taken back 2 times"},
		{rules.StoreErrorReported, 5, 0, "error, 5 of the region remain, taken back 2 times"},
		{rules.StoreErrorReported, 0, 0, "denied, 0 of the region remain, taken back 0 times"},
		{rules.StoreErrorLocal, 5, 0, "denied, degraded, 4 of the region remain, taken back 1 times"}, // the limit is one
		{rules.StoreErrorLocal, 1, 0, "denied, 0 of the region remain, taken back 0 times"},
	} {
		t.Run(fmt.Sprintf("%v of %d", c.choice, c.region), func(t *testing.T) {
			shared, own := memstore.New(memstore.Options{SweepInterval: -1}), memstore.New(memstore.Options{SweepInterval: -1})
			h := &halfStore{Store: shared, fails: boom}
			counted := counts{}
			dec := NewDecider(scopedRules(t, c.region, c.choice), Options{Store: h, Local: own, Meters: counted})
			var v Verdict
			var err error
			for range 2 {
				v, err = decideErr(t.Context(), dec, request("a=x", "b=y"))
			}
			var got []string
			switch {
			case err != nil:
				got = append(got, "error")
				if !errors.Is(err, boom) {
					t.Errorf("got error %v, want that of the scope", err)
				}
			case v.Allowed:
				got = append(got, "allowed")
			default:
				got = append(got, "denied")
			}
			if v.Degraded {
				got = append(got, "degraded")
			}
			h.fails = nil
			left, err := decideErr(t.Context(), dec, &Request{Domain: "edge", Descriptors: []Descriptor{{Entries: d("a=x").Entries, Cost: 0}}})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d of the region remain", left.Limits[0].Decision.Remaining), fmt.Sprintf("taken back %d times", h.backs))
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("got %s\nwant %s", text, c.want)
			}
			if counted["edge/far error"] != 2 || counted["edge/near error"] != 0 {
				t.Errorf("errors are counted as %v, want two of the rule far", counted)
			}
		})
	}
}

// TestNothingStaysOfAnUndecidedRequest: if a scope has failed and the request gets no decision, what
// the other scope has charged is taken back.
func TestNothingStaysOfAnUndecidedRequest(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		own   error // of the local store
		leave bool  // the caller leaves during the call
	}{
		"the local store fails too": {own: errors.New("full")},
		"the caller has left":       {leave: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &halfStore{Store: memstore.New(memstore.Options{SweepInterval: -1}), fails: boom}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.leave {
				h.decided = cancel
			}
			dec := NewDecider(scopedRules(t, 5, rules.StoreErrorLocal), Options{Store: h, Local: &recordingStore{err: c.own}, Meters: counts{}})
			_, err := decideErr(ctx, dec, request("a=x", "b=y"))
			if !errors.Is(err, boom) || c.own != nil && !strings.Contains(err.Error(), c.own.Error()) {
				t.Errorf("got error %v, want that of the scope and of the local store", err)
			}
			if h.backs != 1 {
				t.Errorf("the charges were taken back %d times, want once", h.backs)
			}
		})
	}
}

// TestAReportFailsWhileAllIsObserved: while all rules are only observed, reports go before the other
// limits. If a scope does not take them, no scope has decided the others.
func TestAReportFailsWhileAllIsObserved(t *testing.T) {
	h := &halfStore{Store: memstore.New(memstore.Options{SweepInterval: -1}), fails: errors.New("boom")}
	rs := scopedRules(t, 5, rules.StoreErrorAllow)
	rs.ObserveAll()
	counted := counts{}
	dec := NewDecider(rs, Options{Store: h, Meters: counted})
	req := request("a=x", "b=y")
	req.Descriptors[1].Refund = true
	v, err := decideErr(t.Context(), dec, req)
	if err != nil || !v.Allowed || !v.Limits[0].Unknown() || !v.Limits[1].Unknown() {
		t.Errorf("got %+v, error %v; want nothing to be known of both limits", v, err)
	}
	if counted["edge/far error"] != 1 || counted["edge/near error"] != 1 {
		t.Errorf("errors are counted as %v, want one of each rule", counted)
	}
}

// TestScopesOfRules: rules name scopes that there are, and their checks have the numbers.
func TestScopesOfRules(t *testing.T) {
	rs := scopedRules(t, 1, rules.StoreErrorUnset)
	bad := rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("c")}, Storage: rules.Storage{Scope: "globe"}, Terms: per(1, time.Minute)}
	if err := rs.Add(bad); err == nil || !strings.Contains(err.Error(), `no scope "globe", but region, global`) {
		t.Errorf("an unknown scope: got error %v", err)
	}
	store := &recordingStore{}
	dec, _ := newDecider(t, rs, store)
	decide(t, dec, request("a=x", "b=y"))
	var scopes []window.Scope
	for _, c := range store.checks {
		scopes = append(scopes, c.Scope)
	}
	if want := []window.Scope{window.Region, 1}; !slices.Equal(scopes, want) {
		t.Errorf("the checks have the scopes %v, want %v", scopes, want)
	}
	if got := rs.HoldScopes(); len(got) != 0 {
		t.Errorf("requests in flight hold something in %v, want nothing", got)
	}
	flying := rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("c")}, Storage: rules.Storage{Scope: "global"}}
	flying.Terms.Limits = []rules.Limit{{Limit: window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}}}
	if err := rs.Add(flying); err != nil {
		t.Fatal(err)
	}
	if got := rs.HoldScopes(); !slices.Equal(got, []window.Scope{1}) {
		t.Errorf("requests in flight hold something in %v, want the scope 1", got)
	}
}

// A drawn is what a step of TestReusedEqualsFresh does: it decides a request, or begins it only.
type drawn struct {
	request   func() Request
	fails     bool // the store
	waits     bool // Decide is called without waiting first
	begins    bool // the request is left after that
	forgets   bool // the request is forgotten before the next one begins
	unwaiting map[string]bool
}

var drawnBudget = rules.Budget{Reserve: 2, Max: 4, Budget: window.Budget{Hold: time.Minute}}

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
			r.Storage.OnError = rules.StoreErrorLocal
		}),
		with(rule("once", limits(sliding(3)), anyOf("user")), func(r *rules.Rule) { once(r); r.Storage.OnError = rules.StoreErrorAllow }),
		with(rule("quota", limits(sliding(2)), anyOf("quota")), func(r *rules.Rule) { r.Quota, r.Subject = true, "api_key" }),
		rule("flight", limits(sliding(5), window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}), anyOf("flight")),
		rule("budget", rules.Terms{Limits: []rules.Limit{{Limit: sliding(9), Budget: &drawnBudget}}}, anyOf("budget")),
		rule("bucket", limits(window.Limit{Hits: 3, Window: time.Minute, Policy: window.TokenBucket, Rate: 2}), anyOf("bucket")),
		with(rule("always", limits(sliding(3)), anyOf("always")), func(r *rules.Rule) { r.Charge.Always = true }),
		rule("watched", rules.Terms{Limits: limits(sliding(1)).Limits, Observe: 0.5}, anyOf("watched"), anyOf("api_key")),
		with(rule("replaces", limits(sliding(2)), anyOf("replaces")), func(r *rules.Rule) { r.Replaces = []string{"once", "bucket"} }),
		with(rule("unlimited", rules.Terms{Unlimited: true}, anyOf("unlimited")), func(r *rules.Rule) { r.Storage.OnError = rules.StoreErrorDeny }),
		with(rule("counter", limits(window.Limit{Hits: 3, Window: time.Minute, Policy: window.SlidingCounter}), anyOf("counter")), func(r *rules.Rule) { r.Charge.Factor, r.Metric.Detailed, r.Answer.RetryJitter = 2, true, 0.5 }),
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
	cost, caller := rapid.SampledFrom([]string{"", "", "2", "x"}).Draw(t, "exact cost"), rapid.IntRange(0, 4).Draw(t, "caller") == 0
	keys := []string{"acme-key", "hobby-key", "gone-key", "own-key", "lost-key", "stranger"}
	n := rapid.SampledFrom([]int{0, 1, 1, 2, 3, 5, window.MaxChecks + 1}).Draw(t, "descriptors")
	type one struct {
		text                               string
		cost                               uint64
		refund, ends, overridden, unpriced bool
	}
	all := make([]one, n)
	for i := range all {
		key := rapid.SampledFrom(keys).Draw(t, "key")
		value := rapid.SampledFrom([]string{"a", "b", "::ffff:192.0.2.1", "", "%~{}"}).Draw(t, "value")
		name := rapid.SampledFrom([]string{"user", "quota", "flight", "budget", "budget", "bucket", "always", "replaces", "unlimited", "counter", "remote_address", "none", "slidegate"}).Draw(t, "entry")
		o := one{cost: rapid.SampledFrom([]uint64{1, 1, 1, 2, 0, 50}).Draw(t, "cost"), unpriced: rapid.IntRange(0, 3).Draw(t, "unpriced") == 0, text: name + "=" + value}
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
		r := Request{Domain: domain, Stream: inflight.NewStreamID(stream), Ending: ending, Reported: identity.Reported{Cost: cost}}
		if caller {
			r.Caller = &identity.Caller{Fingerprint: secrets.Value("api_key", "acme-key"), Answer: known(tier.Subject{ID: "called", Tier: "starter"})}
		}
		for _, o := range all {
			one := d(o.text)
			one.Cost, one.Refund, one.Ends, one.Unpriced = o.cost, o.refund, o.ends, o.unpriced
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

func (s *failingStore) End(ctx context.Context, end window.Ending) (window.Settled, error) {
	return s.Store.End(ctx, end)
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
