//go:build linux && (amd64 || arm64) && !plainsockets

package socket

import (
	"math"
	"testing"
	"time"
)

// TestDeadlineTimer counts how often a deadline sets the timer.
func TestDeadlineTimer(t *testing.T) {
	var set []time.Time
	d := deadline{set: func(t time.Time) error {
		set = append(set, t)
		return nil
	}}
	now := time.Now()
	change := func(to time.Time, times int) {
		t.Helper()
		set = nil
		if err := d.change(to); err != nil || len(set) != times {
			t.Errorf("a deadline in %v has set the timer %d times, want %d; %v", to.Sub(now), len(set), times, err)
		}
		if times > 0 && len(set) > 0 && set[0].Sub(to).Abs() > time.Second {
			t.Errorf("the timer is set to %v instead of %v", set[0], to)
		}
	}
	early := func(want bool, times int) {
		t.Helper()
		set = nil
		if got := d.early(); got != want || len(set) != times {
			t.Errorf("the timer has fired early: %v, and is set %d times", got, len(set))
		}
	}
	change(time.Time{}, 0)
	change(now.Add(time.Hour), 1)
	change(now.Add(time.Hour), 0)
	change(now.Add(2*time.Hour), 0)
	change(time.Time{}, 0)
	change(time.Unix(math.MaxInt32, 0).AddDate(400, 0, 0), 0)
	change(now.Add(2*time.Hour), 0)
	early(true, 1) // as if an hour had passed
	if len(set) == 1 && set[0].Sub(now.Add(2*time.Hour)).Abs() > time.Second {
		t.Errorf("the timer is set again to %v", set[0])
	}
	change(now.Add(3*time.Hour), 0)
	change(now.Add(time.Hour), 1)
	change(time.Time{}, 0)
	early(true, 1) // there is no deadline any more
	if len(set) == 1 && !set[0].IsZero() {
		t.Errorf("the timer is set to %v without a deadline", set[0])
	}
	change(now.Add(time.Hour), 1)
	change(time.Unix(1, 0), 1)
	early(false, 0)
	change(now.Add(time.Hour), 0)
	early(true, 1)
}
