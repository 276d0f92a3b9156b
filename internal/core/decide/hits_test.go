package decide

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestHits counts a limit of 10, whose threshold is 8, by the rules of envoyproxy/ratelimit.
func TestHits(t *testing.T) {
	status := func(cost uint64, mode window.Mode, allowed bool, remaining uint64) LimitStatus {
		s := LimitStatus{
			Limit: rules.Limit{Limit: window.Limit{Hits: 10}}, Cost: cost, Mode: mode,
			Decision: window.Decision{Allowed: allowed, Remaining: remaining},
		}
		if mode == window.Observe {
			s.Enforcement = verdict.Observed
		}
		return s
	}
	usage := status(5, window.Enforce, false, 0)
	usage.Update.Recorded, usage.Update.Room = true, 3
	report := status(3, window.Enforce, true, 1)
	report.Update.Recorded, report.Update.Room = true, 4
	shadowAll := status(1, window.Observe, false, 0)
	shadowAll.Enforcement = verdict.ObservedForAll
	for _, tt := range []struct {
		name    string
		status  LimitStatus
		allowed bool // the request
		want    Hits
	}{
		{"below the threshold", status(8, window.Enforce, true, 2), true, Hits{Total: 8, Within: 8}},
		{"across the threshold", status(5, window.Enforce, true, 1), true, Hits{Total: 5, Within: 5, Near: 1}},
		{"above the threshold", status(2, window.Enforce, true, 0), true, Hits{Total: 2, Within: 2, Near: 2}},
		{"from below to the limit", status(10, window.Enforce, true, 0), true, Hits{Total: 10, Within: 10, Near: 2}},
		{"denied", status(3, window.Enforce, false, 1), false, Hits{Total: 3, Over: 3}},
		{"another limit denies, so what remains lacks the cost", status(3, window.Enforce, true, 4), false, Hits{Total: 3, Within: 3, Near: 1}},
		{"a report is charged although another limit denies", status(3, window.Always, true, 1), false, Hits{Total: 3, Within: 3, Near: 1}},
		{"a report beyond the limit", status(3, window.Always, false, 0), false, Hits{Total: 3, Over: 3}},
		{"the rule is in shadow mode", status(1, window.Observe, false, 0), true, Hits{Total: 1, Over: 1, Shadowed: 1}},
		{"all rules are in shadow mode", shadowAll, true, Hits{Total: 1, Over: 1}},
		{"usage is recorded although it does not fit", usage, false, Hits{Total: 5, Over: 2, Near: 2}},
		{"usage is recorded although another limit denies", report, false, Hits{Total: 3, Within: 3, Near: 1}},
		{"a question", status(0, window.Enforce, false, 0), false, Hits{}},
		{"a refund", status(5, window.Refund, true, 10), true, Hits{}},
	} {
		if diff := cmp.Diff(tt.want, hitsOf(&tt.status, tt.allowed, 0.8)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
	// The reference multiplies as float32: 0.7 of 10 is 7 there, and 6.999… as float64.
	seven := status(1, window.Enforce, true, 3)
	if got := hitsOf(&seven, true, 0.7); got.Near != 0 {
		t.Errorf("the seventh hit of ten is near 0.7: %+v", got)
	}
}
