package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/operate/insight"
)

// TestUnusualLimits describes limits for which used and limit alone would mislead.
func TestUnusualLimits(t *testing.T) {
	for _, tt := range []struct {
		usage         insight.LimitUsage
		state, passes string
	}{
		{insight.LimitUsage{Sent: true, Counter: insight.Counter{Used: 5}, Terms: insight.Terms{Window: 60}}, "sent", "Each request brings a limit"},
		{insight.LimitUsage{Terms: insight.Terms{Limit: 5, Window: 60}, Counter: insight.Counter{Used: 9, NextFree: 42, History: []uint64{4, 5}}}, "denied", "in 42s."},
		{insight.LimitUsage{Terms: insight.Terms{Limit: 5, Window: 60}, Counter: insight.Counter{Used: 5, NextFree: 42}, Outage: insight.Outage{Local: true, OnStoreError: "allow"}}, "sent", "on_store_error decides: allow."},
	} {
		l := newLimit(tt.usage)
		if l.State != tt.state || !strings.Contains(l.Passes, tt.passes) {
			t.Errorf("%+v: got %s, %q, want %s, %q", tt.usage, l.State, l.Passes, tt.state, tt.passes)
		}
		p := subjectPage{Limits: []limit{l}, Usage: &insight.Usage{Limits: []insight.LimitUsage{tt.usage}}}
		if p.headline(); (p.Level == "denied") != (tt.state == "denied") {
			t.Errorf("%+v: the headline is %q", tt.usage, p.Headline)
		}
	}
}

// TestDenying: the limit that decides how long a request waits is the first of those that deny.
func TestDenying(t *testing.T) {
	u := insight.Usage{Limits: []insight.LimitUsage{
		{Rule: "room", Terms: insight.Terms{Limit: 5}, Counter: insight.Counter{Remaining: 1}},
		{Rule: "short", Terms: insight.Terms{Limit: 5}, Counter: insight.Counter{NextFree: 1}},
		{Rule: "long", Terms: insight.Terms{Limit: 5}, Counter: insight.Counter{NextFree: 9}},
		{Rule: "zero"},
		{Rule: "shadow", Shadow: true},
		{Rule: "unlimited", Unlimited: true},
	}}
	var rules []string
	for _, l := range u.Denying() {
		rules = append(rules, l.Rule)
	}
	if got := strings.Join(rules, " "); got != "zero long short" {
		t.Errorf("got %s, want zero long short", got)
	}
}

// TestRun: denials by the limit in the headline belong together until a window passes without one.
func TestRun(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	denial := func(rule string, ago time.Duration) insight.Denial {
		return insight.Denial{At: now.Add(-ago), Domain: "edge", Rule: rule, Stands: 2}
	}
	p := subjectPage{Usage: &insight.Usage{Limits: []insight.LimitUsage{{Domain: "edge", Rule: "minute", Terms: insight.Terms{Limit: 5, Window: 60}}}}}
	p.Denied.All.Denials = []insight.Denial{denial("other", time.Second), denial("minute", 50*time.Second), denial("minute", 110*time.Second), denial("minute", 171*time.Second)}
	if r := p.run(now); r == nil || r.Count != 4 || r.First != now.Add(-110*time.Second) || r.Last != now.Add(-50*time.Second) || r.Cut {
		t.Errorf("got %+v", r)
	}
	if r := p.run(now.Add(time.Minute)); r != nil {
		t.Errorf("a minute later: %+v", r)
	}
	p.Denied.All.Denials = nil
	for i := range askedOfEach {
		p.Denied.All.Denials = append(p.Denied.All.Denials, denial("minute", time.Duration(i)*time.Second))
	}
	if r := p.run(now); r == nil || !r.Cut {
		t.Errorf("earlier denials may be missing: %+v", r)
	}
	p.Usage.Limits[0].Remaining = 1
	if r := p.run(now); r != nil {
		t.Errorf("with room: %+v", r)
	}
}

// TestFreed says for each policy what gives back what is used.
func TestFreed(t *testing.T) {
	for policy, want := range map[string]string{
		"sliding":   "The next hit comes back in 12s, the last one in 58s.",
		"in_flight": "If no request reports its end, the next one stops counting in 12s, the last one in 58s.",
	} {
		l := newLimit(insight.LimitUsage{Terms: insight.Terms{Policy: policy, Limit: 100, Window: 60}, Counter: insight.Counter{Used: 9, Remaining: 91, NextFree: 12, Empty: 58}})
		if got := l.Freed(); got != want {
			t.Errorf("%s: got %q, want %q", policy, got, want)
		}
	}
}

// TestTopLinks leads from each kind of entry to a page that finds it.
func TestTopLinks(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		entry insight.TopEntry
		want  string
	}{
		{insight.TopEntry{Name: "acme"}, "/subject?id=acme"},
		{insight.TopEntry{Name: "key abababababab", Digest: digest}, "/subject?digest=" + digest},
		{insight.TopEntry{Name: "192.0.2.0/24", Address: "192.0.2.0/24"}, "/subject?address=192.0.2.0%2F24"},
	} {
		if got := (topPage{Top: insight.Top{By: "subject"}}).Link(tt.entry); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.entry, got, tt.want)
		}
	}
}

// TestBursts groups equal denials that follow one another, and no others.
func TestBursts(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	one := func(ago time.Duration, subject, id string) insight.Denial {
		return insight.Denial{At: at.Add(-ago), Rule: "per-key", Caller: insight.Caller{Subject: subject, RequestID: id}, Stands: 1}
	}
	var all []insight.Denial
	for i := range 30 {
		all = append(all, one(time.Duration(2*i)*time.Second, "acme", fmt.Sprint(i)), one(time.Duration(2*i)*time.Second, "globex", ""))
	}
	all = append(all, one(69*time.Second, "acme", "late"))
	got := bursts(all, 10)
	if len(got) != 3 || got[0].Count != 30 || got[0].Stands != 30 || got[0].RequestID != "0" || got[0].First != at.Add(-58*time.Second) || got[1].Subject != "globex" || got[2].Count != 1 {
		t.Errorf("got %+v", got)
	}
	if got := bursts(all, 1); len(got) != 1 || got[0].Count != 30 {
		t.Errorf("one group: %+v", got)
	}
}
