package compare

import (
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// asked returns a question about limits of one descriptor each.
func asked(at time.Time, ours Answer, limits ...limit) *question {
	q := &question{at: at, ours: ours, decisive: 0, limits: limits}
	for i := range limits {
		q.descriptors = append(q.descriptors, described{hash: uint64(i + 1), rule: perClient})
	}
	return q
}

// without removes the limits of a question.
func without(q *question) *question {
	q.limits = nil
	return q
}

// TestReason has the hit that must expire on each side of the other's edge.
func TestReason(t *testing.T) {
	minute := time.Date(2026, 11, 22, 12, 30, 0, 0, time.UTC) // an edge
	at := minute.Add(20 * time.Second)
	ten := rules.Limit{Limit: window.Limit{Hits: 10, Window: time.Minute}}
	hour := rules.Limit{Limit: window.Limit{Hits: 10, Window: time.Hour}}
	denies := func(l rules.Limit, retry time.Duration) limit {
		return limit{limit: l, denies: true, retryAfter: retry}
	}
	second := func(l limit) limit { l.descriptor = 1; return l }
	status := func(code rlsv3.RateLimitResponse_Code, hits uint64, w time.Duration) descriptorStatus {
		return descriptorStatus{code: code, limited: true, hits: hits, window: w}
	}
	ok, over := status(codeOK, 10, time.Minute), status(codeOverLimit, 10, time.Minute)
	for _, c := range []struct {
		name     string
		q        *question
		statuses []descriptorStatus
		denied   time.Time // the last denial of the first descriptor
		want     Reason
	}{
		{"the hit came before the edge", asked(at, OverLimit, denies(ten, 39*time.Second)), []descriptorStatus{ok}, time.Time{}, WindowEdge},
		{"the hit came at the edge", asked(at, OverLimit, denies(ten, 40*time.Second)), []descriptorStatus{ok}, time.Time{}, WindowEdge},
		{"the hit came after the edge", asked(at, OverLimit, denies(ten, 41*time.Second)), []descriptorStatus{ok}, time.Time{}, Other},
		{"the edge comes between the answers", asked(minute.Add(-time.Millisecond), OverLimit, denies(ten, 59*time.Second)), []descriptorStatus{ok}, time.Time{}, WindowEdge},
		{"the cost never fits", asked(at, OverLimit, limit{limit: ten, denies: true, never: true}), []descriptorStatus{ok}, time.Time{}, Other},
		{"another limit there", asked(at, OverLimit, denies(ten, time.Second)), []descriptorStatus{status(codeOK, 11, time.Minute)}, time.Time{}, Other},
		{"another window there", asked(at, OverLimit, denies(ten, time.Second)), []descriptorStatus{status(codeOK, 10, time.Hour)}, time.Time{}, Other},
		{"no limit there", asked(at, OverLimit, denies(ten, time.Second)), []descriptorStatus{{code: codeOK}}, time.Time{}, Other},
		{"no status there", asked(at, OverLimit, denies(ten, time.Second)), nil, time.Time{}, Other},
		{"one of two denials is explained", asked(at, OverLimit, denies(ten, time.Second), second(denies(ten, 41*time.Second))), []descriptorStatus{ok, ok}, time.Time{}, Other},
		{"two denials are explained", asked(at, OverLimit, denies(ten, time.Second), second(denies(ten, 2*time.Second))), []descriptorStatus{ok, ok}, time.Time{}, WindowEdge},
		{"the other limit allows", asked(at, OverLimit, denies(ten, time.Second), second(limit{limit: hour})), []descriptorStatus{ok, ok}, time.Time{}, WindowEdge},
		{"an hour has another edge", asked(at, OverLimit, denies(hour, 40*time.Minute)), []descriptorStatus{status(codeOK, 10, time.Hour)}, time.Time{}, Other},
		{"no limit denies", asked(at, OverLimit, limit{limit: ten}), []descriptorStatus{ok}, time.Time{}, Other},

		{"denied since the edge", asked(at, OK, limit{limit: ten}), []descriptorStatus{over}, minute.Add(time.Second), FreeDenial},
		{"denied before the edge", asked(at, OK, limit{limit: ten}), []descriptorStatus{over}, minute.Add(-time.Millisecond), Other},
		{"never denied", asked(at, OK, limit{limit: ten}), []descriptorStatus{over}, time.Time{}, Other},
		{"denied, but another limit there", asked(at, OK, limit{limit: ten}), []descriptorStatus{status(codeOverLimit, 9, time.Minute)}, at, Other},
		{"denied, but no limit here", without(asked(at, OK, limit{limit: ten})), []descriptorStatus{over}, at, Other},
		{"denied, but they deny another descriptor", asked(at, OK, limit{limit: ten}, second(limit{limit: ten})), []descriptorStatus{ok, over}, at, Other},
		{"they deny without saying which", asked(at, OK, limit{limit: ten}), []descriptorStatus{ok}, at, FreeDenial},
	} {
		t.Run(c.name, func(t *testing.T) {
			past := new(denials)
			if !c.denied.IsZero() {
				past.note(asked(c.denied, OverLimit, limit{limit: ten}), c.denied)
			}
			if got := c.q.reason(&answer{statuses: c.statuses}, at, past); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestSubject names the descriptor that a difference is about.
func TestSubject(t *testing.T) {
	q := &question{ours: OK, decisive: 0, descriptors: []described{{rule: perClient}, {rule: global}}}
	over := &answer{statuses: []descriptorStatus{{code: codeOK}, {code: codeOverLimit}}}
	if _, rule := q.rule(over); rule != "global" {
		t.Errorf("only they deny: got %q", rule)
	}
	if _, rule := q.rule(new(answer)); rule != "per-client" {
		t.Errorf("no statuses: got %q", rule)
	}
	q.ours = OverLimit
	if domain, rule := q.rule(over); domain != "shop" || rule != "per-client" {
		t.Errorf("both deny: got %q, %q", domain, rule)
	}
}

// FuzzShow shows any request without a panic and without what is secret.
func FuzzShow(f *testing.F) {
	encoded, _ := call(f, "ada", 1)
	f.Add(encoded, 0)
	f.Fuzz(func(t *testing.T, encoded string, descriptor int) {
		domain, text := show(encoded, descriptor, tier.NewSecrets(nil, nil))
		if len(domain) > maxShown+3 || len(text) > maxShown+3 {
			t.Errorf("%d and %d bytes", len(domain), len(text))
		}
	})
}
