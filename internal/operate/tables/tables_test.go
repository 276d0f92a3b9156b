package tables

import (
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// TestUsageOfUnusualLimits prints limits whose number only requests know, those without a log, and
// those that another rule replaces. None of them is used up.
func TestUsageOfUnusualLimits(t *testing.T) {
	u := insight.Usage{
		Query: insight.Query{Subject: "acme"}, Source: "redis", Notes: []string{"the customer source does not answer"},
		Limits: []insight.LimitUsage{
			{Rule: "override", Sent: true, Counter: insight.Counter{Used: 5, NextFree: 12, Empty: 50, History: []uint64{0, 5}}, Terms: insight.Terms{Window: 60}},
			{Rule: "per-route", NoLog: true, Terms: insight.Terms{Limit: 10, Window: 60}, Counter: insight.Counter{Remaining: 10}},
			{Rule: "carried", Basis: insight.Basis{Carried: "limit_tokens"}, Terms: insight.Terms{Limit: 10, Window: 60}, Counter: insight.Counter{Remaining: 10}},
			{Rule: "usual", ReplacedBy: []string{"special"}, Terms: insight.Terms{Limit: 10, Window: 60}, Counter: insight.Counter{Remaining: 10}},
		},
	}
	var b strings.Builder
	Usage(&b, &u, nil, Page{Width: 120})
	out := b.String()
	for _, want := range []string{
		"note: the customer source does not answer", "each request brings the limit", "no log yet", "carried by the tier, as limit_tokens", "not in requests that match special", "No limit of a rule is used up. For a limit that requests bring, see rls denials.",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the usage has no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "override     0") || strings.Contains(out, "denied") {
		t.Errorf("a limit whose number is not known is a limit of 0:\n%s", out)
	}
}

// TestUsedUp says for each policy what is used up and what gives room again.
func TestUsedUp(t *testing.T) {
	for _, tt := range []struct {
		limit insight.LimitUsage
		want  string
	}{
		{insight.LimitUsage{Terms: insight.Terms{Policy: "sliding", Limit: 5, Window: 60}, Counter: insight.Counter{Used: 5, NextFree: 12}}, "r: 5 used of 5 per 1m. A request of cost 1 passes in 12s."},
		{insight.LimitUsage{Terms: insight.Terms{Policy: "token_bucket", Limit: 5, Rate: 20, Window: 60}, Counter: insight.Counter{Used: 9, NextFree: 15}}, "r: 9 used of 20 per 1m, bursts of 5. A request of cost 1 passes in 15s."},
		{insight.LimitUsage{Terms: insight.Terms{Policy: "calendar", Limit: 5, Window: 30 * 86400}, Counter: insight.Counter{Used: 5, NextFree: 3600}}, "r: 5 used of 5 per month. A request of cost 1 passes in 1h."},
		{
			insight.LimitUsage{Budget: true, Terms: insight.Terms{Policy: "calendar", Limit: 500_000_000, Window: 30 * 86400, Currency: "usd"}, Counter: insight.Counter{Used: 496_900_000, Reserved: 3_100_000, NextFree: 3600}},
			"r: 496.90 of 500.00 USD used, 3.10 reserved. A request passes when another one ends and has cost less than it reserved, or in 1h.",
		},
		{insight.LimitUsage{Terms: insight.Terms{Policy: "in_flight", Limit: 5, Window: 300}, Counter: insight.Counter{Used: 5, NextFree: 200}}, "r: 5 used of 5 requests in flight. A request passes when another one ends, in 3m20s at the latest."},
	} {
		tt.limit.Rule = "r"
		u := insight.Usage{Query: insight.Query{Subject: "acme"}, Source: "redis", Limits: []insight.LimitUsage{tt.limit}}
		var b strings.Builder
		Usage(&b, &u, nil, Page{Width: 120})
		if !strings.Contains(b.String(), tt.want+"\n") {
			t.Errorf("the usage has no %q:\n%s", tt.want, b.String())
		}
	}
}

// TestUsageWithoutStore says that stores are unavailable.
func TestUsageWithoutStore(t *testing.T) {
	contract, search := insight.LimitUsage{Rule: "contract", LogName: insight.LogName{Scope: "global"}, Terms: insight.Terms{Limit: 300, Window: 3600}, Counter: insight.Counter{Used: 10}}, insight.LimitUsage{Rule: "search", Terms: insight.Terms{Limit: 40, Window: 60}, Counter: insight.Counter{Used: 1, Remaining: 39}}
	local := func(l insight.LimitUsage) insight.LimitUsage {
		l.Local = true
		return l
	}
	open := local(contract)
	open.OnStoreError = "allow"
	for _, tt := range []struct {
		limits []insight.LimitUsage
		want   string
	}{
		{[]insight.LimitUsage{local(contract), search}, "x · a store is unavailable; counted by pod-1 meanwhile"},
		{[]insight.LimitUsage{local(contract)}, "Whether its requests pass cannot be known while the store is unavailable."},
		{[]insight.LimitUsage{local(contract)}, "scope global · fallback quota of this instance"},
		{[]insight.LimitUsage{open}, "scope global · the store is unavailable: on_store_error allow decides"},
		{[]insight.LimitUsage{open}, "Whether its requests pass cannot be known while the store is unavailable."},
	} {
		for i := range tt.limits {
			tt.limits[i].NextFree = 9
		}
		var b strings.Builder
		Usage(&b, &insight.Usage{Query: insight.Query{Subject: "x"}, Known: true, Source: "local", Limits: tt.limits}, nil, Page{Width: 200, From: "pod-1"})
		if !strings.Contains(b.String(), tt.want+"\n") {
			t.Errorf("the usage has no %q:\n%s", tt.want, b.String())
		}
	}
}

// TestWait formats waits for a person, rounded up.
func TestWait(t *testing.T) {
	for s, want := range map[float64]string{0: "-", -1: "-", 12.3: "13s", 200000: "2d8h"} {
		if got := wait(s); got != want {
			t.Errorf("wait(%v) = %s, want %s", s, got, want)
		}
	}
}

// TestReplies prints answers. A denial says how long to wait, or why waiting does not help.
func TestReplies(t *testing.T) {
	one, two := []string{"a: 10 of 10 remaining"}, []string{"a: 260 of 300 remaining", "b: 0 of 40 remaining"}
	for _, tt := range []struct {
		reply ratelimit.Reply
		want  string
	}{
		{ratelimit.Reply{Limits: one}, "OK  a: 10 of 10 remaining"},
		{ratelimit.Reply{Limits: one, Degraded: true}, "OK  a: 10 of 10 remaining (degraded)"},
		{ratelimit.Reply{Denied: true, Limits: one, Rule: "a", Never: true}, "OVER_LIMIT  a: 10 of 10 remaining; the cost is above the limit"},
		{ratelimit.Reply{Denied: true, Limits: two, Rule: "b", Never: true}, "OVER_LIMIT  a: 260 of 300 remaining; b: 0 of 40 remaining; the cost is above the limit of b"},
		{ratelimit.Reply{Denied: true, Limits: two, Rule: "b", Wait: time.Hour - time.Second}, "OVER_LIMIT  a: 260 of 300 remaining; b: 0 of 40 remaining; retry after 59m59s"},
		{ratelimit.Reply{Denied: true, Limits: one, Wait: time.Second, Degraded: true}, "OVER_LIMIT  a: 10 of 10 remaining; retry after 1s (degraded)"},
		{ratelimit.Reply{Denied: true, Limits: one}, "OVER_LIMIT  a: 10 of 10 remaining"},
	} {
		if got := Reply(&tt.reply); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
