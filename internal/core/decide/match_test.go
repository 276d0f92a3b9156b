package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

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
