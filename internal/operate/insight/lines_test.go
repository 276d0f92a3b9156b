package insight

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestLines checks the line of a denial, that there are not too many, and that the next one says
// how many were left out.
func TestLines(t *testing.T) {
	c, rs := newClock(), testRules(t)
	core, logs := observer.New(zapcore.InfoLevel)
	i := open(t, c, func(o *Options) { o.Record.Log, o.Record.LogPerSecond = zap.New(core), 2 })
	a := ask(t, rs, "per-user", "user", "acme", "remote_address", "192.0.2.7", "route", "search")
	a.req.ID = "3f1c6d0e-8a52-9c1b-b7a4-0d5e2f7a9b10"
	for range 10 {
		a.deny(i)
	}
	shadow := ask(t, rs, "per-user", "user", "seen")
	shadow.v.Limits[0].Enforcement = verdict.Observed
	shadow.deny(i)
	i.Denials(Filter{}) // empties the queue
	c.add(time.Second)
	never := ask(t, rs, "per-user", "user", "acme")
	never.v.Limits[0].Decision.Never = true
	never.v.Limits[0].Limit.Limit = window.Limit{Hits: 10, Rate: 2, Window: time.Second, Policy: window.TokenBucket}
	never.deny(i)
	i.Denials(Filter{})
	lines := logs.FilterMessage("denied").All()
	if len(lines) != 3 || logs.Len() != 3 {
		t.Fatalf("got %v, want 3 lines", logs.All())
	}
	want := map[string]any{
		"domain": "edge", "rule": "per-user", "subject": "acme", "address": "192.0.2.0/24", "route": "search", "request_id": "3f1c6d0e-8a52-9c1b-b7a4-0d5e2f7a9b10",
		"limit": uint64(10), "window_seconds": 60.0, "used": uint64(10), "cost": uint64(1), "wait_seconds": 20.0,
		"reset": "2026-03-01T12:00:20Z", "shadow": false, "degraded": false,
	}
	got := lines[0].ContextMap()
	delete(got, "left_out")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the first line: -want +got\n%s", diff)
	}
	got = lines[2].ContextMap()
	if _, has := got["wait_seconds"]; has || got["never"] != true || got["policy"] != "token_bucket" || got["amount"] != "2 per 1s, bursts of 10" {
		t.Errorf("a cost above a token bucket: got %v", got)
	}
	left := uint64(0)
	for _, l := range lines {
		left += l.ContextMap()["left_out"].(uint64)
	}
	if left != 8 {
		t.Errorf("left_out: got %d in all, want 8", left)
	}
}

// TestShadowLines checks that a request which only a rule in shadow mode would deny has its line
// at level debug.
func TestShadowLines(t *testing.T) {
	c, rs := newClock(), testRules(t)
	core, logs := observer.New(zapcore.DebugLevel)
	i := open(t, c, func(o *Options) { o.Record.Log, o.Record.LogPerSecond = zap.New(core), 1 })
	a := ask(t, rs, "per-user", "user", "acme")
	a.v.Limits[0].Enforcement = verdict.Observed
	a.deny(i)
	i.Denials(Filter{})
	lines := logs.All()
	if len(lines) != 1 || lines[0].Level != zapcore.DebugLevel || lines[0].ContextMap()["shadow"] != true {
		t.Errorf("got %v", lines)
	}
}
