package decide

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// TestTooManyLimits proves that a request with more limits than window.MaxChecks is decided by
// on_store_error, without the store. The limits are those of many descriptors or of one rule.
func TestTooManyLimits(t *testing.T) {
	// A descriptor of the tier starter has two limits, one of the tier free has one.
	for _, tt := range []struct{ two, one, limits int }{
		{0, window.MaxChecks, window.MaxChecks},
		{0, window.MaxChecks + 1, window.MaxChecks + 1},
		{window.MaxChecks / 2, 0, window.MaxChecks},
		{window.MaxChecks / 2, 1, window.MaxChecks + 1},
		{window.MaxChecks, 0, 2 * window.MaxChecks},
	} {
		req := request()
		for range tt.two {
			req.Descriptors = append(req.Descriptors, d("api_key=acme-key"))
		}
		for i := range tt.one {
			req.Descriptors = append(req.Descriptors, d(fmt.Sprint("remote_address=192.0.2.", i)))
		}
		store := &waitingStore{Store: memstore.New(memstore.Options{})}
		defer store.Close()
		decider, _ := newDecider(t, testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)}), store)
		beyond := tt.limits > window.MaxChecks
		for _, wait := range []bool{window.MayWait, window.NoWait} {
			var c Call
			decider.Begin(&c, *req)
			decided, err := c.Decide(t.Context(), wait)
			if !decided || err != nil {
				t.Fatalf("%+v, wait %t: decided %t, %v", tt, wait, decided, err)
			}
			if v := c.Verdict(); len(v.Limits) != tt.limits || v.Degraded != beyond || beyond && (v.Allowed || v.DegradedBy() != rules.StoreErrorDeny) {
				t.Errorf("%+v: %d limits, allowed %t, degraded %t", tt, len(v.Limits), v.Allowed, v.Degraded)
			}
		}
		if asked := store.calls > 0; asked == beyond {
			t.Errorf("%+v: the store was asked %d times", tt, store.calls)
		}
	}
}

// TestBeyondABound proves which requests pass that exceed a bound: those whose every limit has
// on_store_error allow, as far as the limits are known, or only observes. An error would make
// Envoy let all of them pass.
func TestBeyondABound(t *testing.T) {
	many := func(text string) *Request {
		req := request()
		for range window.MaxChecks + 1 {
			req.Descriptors = append(req.Descriptors, d(text))
		}
		return req
	}
	cut := func(domain string, texts ...string) *Request {
		req := request(texts...)
		req.Domain, req.Exceeds = domain, "its message is too large"
		return req
	}
	with := func(name string, choice rules.OnStoreError, change func(*rules.Rule)) rules.Rule {
		r := rule(name, per(1, time.Hour), anyOf(name))
		r.Storage.OnError = choice
		if change != nil {
			change(&r)
		}
		return r
	}
	all := []rules.Rule{
		with("unset", rules.StoreErrorUnset, nil),
		with("allow", rules.StoreErrorAllow, nil),
		with("deny", rules.StoreErrorDeny, nil),
		with("local", rules.StoreErrorLocal, nil),
		with("report", rules.StoreErrorReported, nil),
		with("watched", rules.StoreErrorDeny, func(r *rules.Rule) { r.Terms.Observe = 1 }),
		with("quota", rules.StoreErrorDeny, func(r *rules.Rule) { r.Quota = true }),
		with("open", rules.StoreErrorAllow, func(r *rules.Rule) { r.Quota = true }),
		with("allow", rules.StoreErrorAllow, func(r *rules.Rule) { r.Domain = "open" }),
		with("watched", rules.StoreErrorUnset, func(r *rules.Rule) { r.Domain, r.Terms.Observe = "open", 1 }),
	}
	for _, tt := range []struct {
		name    string
		req     *Request
		setting rules.OnStoreError
		shadow  bool
		allowed bool
	}{
		{"no choice, the setting denies", many("unset=x"), rules.StoreErrorDeny, false, false},
		{"no choice, the setting reports", many("unset=x"), rules.StoreErrorReported, false, false},
		{"no choice, the setting is local", many("unset=x"), rules.StoreErrorLocal, false, false},
		{"no choice, the setting allows", many("unset=x"), rules.StoreErrorAllow, false, true},
		{"allow", many("allow=x"), rules.StoreErrorDeny, false, true},
		{"deny", many("deny=x"), rules.StoreErrorAllow, false, false},
		{"local", many("local=x"), rules.StoreErrorAllow, false, false},
		{"report", many("report=x"), rules.StoreErrorAllow, false, false},
		{"only observed", many("watched=x"), rules.StoreErrorDeny, false, true},
		{"all only observed", many("deny=x"), rules.StoreErrorDeny, true, true},
		{"an alternative that denies", many("quota=x"), rules.StoreErrorAllow, false, false},
		{"an alternative that passes", func() *Request {
			req := many("quota=x")
			req.Descriptors = append(req.Descriptors, d("open=x"))
			return req
		}(), rules.StoreErrorDeny, false, true},
		{"the strictest counts", func() *Request {
			req := many("allow=x")
			req.Descriptors = append(req.Descriptors, d("deny=x"))
			return req
		}(), rules.StoreErrorAllow, false, false},
		{"refunds", func() *Request {
			req := many("deny=x")
			for i := range req.Descriptors {
				req.Descriptors[i].Refund = true
			}
			return req
		}(), rules.StoreErrorDeny, false, true},
		{"cut off: another rule could deny", cut("edge", "allow=x"), rules.StoreErrorAllow, false, false},
		{"cut off: every rule allows or only observes", cut("open", "allow=x"), rules.StoreErrorDeny, false, true},
		{"cut off: a rule denies", cut("edge", "deny=x"), rules.StoreErrorAllow, false, false},
		{"cut off: no rule is known", cut("edge"), rules.StoreErrorLocal, false, false},
		{"cut off: no domain is known", cut(""), rules.StoreErrorLocal, false, false},
		{"cut off: no domain is known, a rule denies", cut(""), rules.StoreErrorAllow, false, false},
		{"cut off: no domain is known, all only observed", cut(""), rules.StoreErrorDeny, true, true},
		{"cut off: a domain without rules", cut("nowhere", "deny=x"), rules.StoreErrorDeny, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var now time.Duration
			d, _ := newModes(t, func(rs *rules.Rules) {
				rs.SetOnStoreError(tt.setting)
				if tt.shadow {
					rs.ObserveAll()
				}
			}, &now, all...)
			v := decide(t, d, tt.req)
			if v.Allowed != tt.allowed {
				t.Fatalf("allowed %t, want %t", v.Allowed, tt.allowed)
			}
			if known := tt.req.Domain != "nowhere"; v.Degraded != known || known && !v.Allowed && v.DegradedBy() != rules.StoreErrorDeny {
				t.Errorf("degraded %t by %v", v.Degraded, v.DegradedBy())
			}
			if v.Decisive >= 0 && (!v.Limits[v.Decisive].DeniedUndecided() || !v.Limits[v.Decisive].Decision.Never) {
				t.Errorf("the decisive limit is %+v: no wait helps", v.Limits[v.Decisive])
			}
		})
	}
}

// TestBeyondIsLogged proves that requests that exceed a bound have a line a minute for each domain,
// with the bound and what to do.
func TestBeyondIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		rs := rules.NewRules(rules.Identity{Secrets: secrets})
		for _, domain := range []string{"one", "two"} {
			r := rule("k", per(1, time.Hour), anyOf("k"))
			r.Domain = domain
			if err := rs.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		store := memstore.New(memstore.Options{SweepInterval: -1})
		defer store.Close()
		decider := NewDecider(rs, Options{Store: store, Log: logTo(core)})
		ask := func(domain string) {
			req := request("k=x")
			req.Domain, req.Exceeds = domain, "it has too many parts: send fewer"
			decide(t, decider, req)
		}
		for range 3 {
			for _, domain := range []string{"one", "two", "", "three"} {
				ask(domain)
			}
		}
		var got []string
		for _, line := range logs.FilterMessageSnippet("exceeds a bound").All() {
			got = append(got, fmt.Sprint(line.ContextMap()["domain"], ": ", line.ContextMap()["bound"], ": ", line.ContextMap()["answer"]))
		}
		const bound = ": it has too many parts: send fewer: denied"
		if want := []string{"one" + bound, "two" + bound, bound}; strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("logged %q, want %q", got, want)
		}
		logs.TakeAll()
		time.Sleep(time.Minute)
		if ask("one"); logs.Len() != 1 {
			t.Errorf("%d lines after a minute, want 1", logs.Len())
		}
	})
}

// TestMatchingIsBounded: a client cannot make matching take long by a long value, and gets past no
// limit with one. What takes long waits for a separate goroutine. What takes too long is decided by
// on_store_error.
func TestMatchingIsBounded(t *testing.T) {
	decider := func(wildcards int, choice rules.OnStoreError) *Decider {
		var now time.Duration
		all := make([]rules.Rule, 0, wildcards+1)
		for i := range wildcards {
			all = append(all, rule(fmt.Sprint("w", i), per(1000, time.Hour), fits("path", fmt.Sprintf("*x%d-*y*", i))))
		}
		all = append(all, rule("blocked", per(0, time.Hour), fits("path", "*/admin/*")), rule("none", per(1, time.Hour), one("other", "1")))
		d, _ := newModes(t, func(rs *rules.Rules) { rs.SetOnStoreError(choice) }, &now, all...)
		return d
	}
	many, few := decider(1000, rules.StoreErrorLocal), decider(3, rules.StoreErrorLocal)
	allowing := decider(1000, rules.StoreErrorAllow)
	pad := func(n int) string { return strings.Repeat("x9", n/2) }
	for _, tt := range []struct {
		name    string
		decider *Decider
		path    string
		inline  bool // decided by the goroutine that reads the connection
		beyond  bool
		allowed bool
	}{
		{"short", many, "/admin/", true, false, false},
		{"long, few wildcards", few, "/" + pad(15_000) + "/admin/", true, false, false},
		{"longer, few wildcards", few, "/" + pad(60_000) + "/admin/", false, false, false},
		{"long, few wildcards, no rule", few, "/" + pad(15_000), true, false, true},
		{"some length", many, "/" + pad(4000) + "/admin/", false, false, false},
		{"some length, no rule", many, "/" + pad(4000), false, false, true},
		{"an early wildcard fits", many, "x0-" + pad(60_000) + "y", true, false, true},
		{"too long", many, "/" + pad(60_000) + "/admin/", false, true, false},
		{"too long, no rule", many, "/" + pad(60_000), false, true, false},
		{"too long, allow", allowing, "/" + pad(60_000) + "/admin/", false, true, true},
	} {
		for _, name := range []string{"alone", "beside a small one"} {
			req := Request{Domain: "edge", Descriptors: []Descriptor{{Cost: 1, Entries: descriptors.Descriptor{{Key: "path", Value: tt.path}}}}}
			if name == "beside a small one" {
				req.Descriptors = append([]Descriptor{{Cost: 1, Entries: descriptors.Descriptor{{Key: "none", Value: "1"}}}}, req.Descriptors...)
			}
			var c Call
			tt.decider.Begin(&c, req)
			if s, ok := tt.decider.opts.Store.(pausingStore); ok {
				tt.decider.opts.Store = s.Store // it decides without waiting
			}
			inline, err := c.Decide(t.Context(), window.NoWait)
			if inline != tt.inline || err != nil {
				t.Errorf("%s, %s: decided %v without waiting, %v", tt.name, name, inline, err)
			}
			if decided, err := c.Decide(t.Context(), window.MayWait); !decided || err != nil {
				t.Fatalf("%s, %s: decided %v, %v", tt.name, name, decided, err)
			}
			if v := c.Verdict(); v.Allowed != tt.allowed || v.Degraded != tt.beyond {
				t.Errorf("%s, %s: allowed %v, degraded %v, want %v, %v", tt.name, name, v.Allowed, v.Degraded, tt.allowed, tt.beyond)
			}
			c.Forget()
		}
	}
}

// TestManyDescriptorsShareTheBound: the bound is for a request, not for each of its descriptors.
func TestManyDescriptorsShareTheBound(t *testing.T) {
	var now time.Duration
	d, _ := newModes(t, nil, &now, rule("w", per(1, time.Hour), fits("path", "*a*b*")))
	value := strings.Repeat("x", 30_000)
	for n, want := range map[int]bool{1: true, 2: true, 3: false} {
		var c Call
		req := Request{Domain: "edge"}
		for range n {
			req.Descriptors = append(req.Descriptors, Descriptor{Cost: 1, Entries: descriptors.Descriptor{{Key: "path", Value: value}}})
		}
		d.Begin(&c, req)
		if inline, err := c.Decide(t.Context(), window.NoWait); inline != want || err != nil {
			t.Errorf("%d descriptors: decided %v without waiting, %v, want %v", n, inline, err, want)
		}
	}
}
