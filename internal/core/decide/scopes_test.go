package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
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
		{Domain: "edge", Path: []descriptors.Node{anyOf("b")}, Name: "far", Scope: "global", OnStoreError: choice, Terms: per(1, time.Minute)},
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
	bad := rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("c")}, Scope: "globe", Terms: per(1, time.Minute)}
	if err := rs.Add(bad); err == nil || !strings.Contains(err.Error(), `unknown scope "globe"`) {
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
	flying := rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("c")}, Scope: "global"}
	flying.Terms.Limits = []rules.Limit{{Limit: window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}}}
	if err := rs.Add(flying); err != nil {
		t.Fatal(err)
	}
	if got := rs.HoldScopes(); !slices.Equal(got, []window.Scope{1}) {
		t.Errorf("requests in flight hold something in %v, want the scope 1", got)
	}
}
