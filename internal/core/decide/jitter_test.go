package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestRetryJitter: a caller that must wait is asked for the wait and up to the rule's share of it more,
// each caller for another one and always for the same; others get the wait.
func TestRetryJitter(t *testing.T) {
	const wait = 1000 * time.Second
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t)})
	for _, r := range []rules.Rule{
		{Path: []descriptors.Node{anyOf("api_key")}, Name: "per-key", Answer: rules.Answer{RetryJitter: 1}},
		{Path: []descriptors.Node{one("route", "search"), anyOf("api_key")}, Name: "search", Answer: rules.Answer{RetryJitter: 1}},
		{Path: []descriptors.Node{one("route", "all")}, Name: "all", Answer: rules.Answer{RetryJitter: 0.5}},
		{Path: []descriptors.Node{anyOf("remote_address")}, Name: "per-address", Answer: rules.Answer{RetryJitter: 1}},
		{Path: []descriptors.Node{anyOf("plain")}, Name: "plain"},
	} {
		r.Domain, r.Terms = "edge", per(1, time.Hour)
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	denied := window.Decision{RetryAfter: wait, UnitAfter: wait, ResetAfter: wait}
	decision := denied
	d, _ := newDecider(t, rs, &recordingStore{answer: func(window.Check) window.Decision { return decision }})
	asked := func(ds ...string) time.Duration {
		v := decide(t, d, request(ds...))
		return v.Limits[v.Decisive].RetryAfter()
	}

	acme := asked("api_key=acme-key")
	for _, ds := range [][]string{
		{"api_key=acme-key"},
		{"api_key=acme-new-key"},
		{"route=search api_key=acme-key"},
		{"api_key=acme-key", "remote_address=192.0.2.1"},
		{"remote_address=192.0.2.1", "api_key=acme-key"},
	} {
		if got := asked(ds...); got != acme {
			t.Errorf("%v: %v, otherwise %v", ds, got, acme)
		}
	}
	// A log that all share denies. What else is known of the clients tells them apart.
	one, two := asked("route=all", "remote_address=192.0.2.1"), asked("route=all", "remote_address=192.0.2.2")
	if one == two || one > 1500*time.Second {
		t.Errorf("two addresses are asked for %v and %v", one, two)
	}
	if got := asked("plain=a"); got != wait {
		t.Errorf("without retry_jitter %v, want %v", got, wait)
	}
	decision = window.Decision{Never: true}
	if got := asked("api_key=acme-key"); got != 0 {
		t.Errorf("a cost above the limit: %v, want no wait", got)
	}
	decision = window.Decision{Allowed: true, Remaining: 1, ResetAfter: wait}
	if got := asked("api_key=acme-key"); got != wait {
		t.Errorf("something remains: %v, want %v", got, wait)
	}
	decision = denied

	// The hashes have no random part, so the counts are always the same.
	counts := make([]int, 20)
	for i := range 2000 {
		got := asked(fmt.Sprintf("api_key=customer-%d", i))
		if got < wait || got >= 2*wait {
			t.Fatalf("asked for %v, want %v and less than as much again", got, wait)
		}
		counts[int(float64(got-wait)/float64(wait)*20)]++
	}
	for i, n := range counts {
		if n < 60 || n > 140 {
			t.Errorf("%d of 2000 callers wait for the %d. twentieth, want about 100", n, i+1)
		}
	}
}
