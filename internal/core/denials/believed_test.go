package denials

import (
	"math"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestBelieved checks the age up to which each kind of answer is believed.
func TestBelieved(t *testing.T) {
	const (
		ever   = time.Duration(math.MaxInt64)
		second = time.Second
		win    = 10 * second
		length = 100 * time.Millisecond
	)
	denied := func(reset time.Duration) window.Decision {
		return window.Decision{RetryAfter: second, UnitAfter: second, ResetAfter: reset}
	}
	plain := window.Check{Key: "a", Limit: window.Limit{Hits: 2, Window: win}, Cost: 1}
	leased := plain
	leased.Lease = window.Lease{Length: length}
	coarse := leased
	coarse.Precision = second
	for _, tt := range []struct {
		name  string
		check window.Check
		d     window.Decision
		want  time.Duration
	}{
		{"a denial", plain, denied(win), ever},
		{"an unsettled denial", plain, window.Decision{RetryAfter: second, ResetAfter: win, Unsettled: true}, 0},
		{"an unsettled denial, with leases", leased, window.Decision{RetryAfter: second, ResetAfter: win, Unsettled: true}, length},
		{"something remains", plain, window.Decision{Allowed: true, Remaining: 1, UnitAfter: win, ResetAfter: win}, ever},
		{"nothing remains", plain, window.Decision{Allowed: true, UnitAfter: second, ResetAfter: win}, 100 * time.Millisecond},
		{"the clock of a log is ahead, without leases", plain, denied(win + second), ever},
		{"a hit is reserved", leased, denied(win + time.Millisecond + 1), length},
		{"no hit is reserved", leased, denied(win + time.Millisecond), ever},
		{"times are rounded up", coarse, denied(win + second), ever},
		{"a hit is reserved, and times are rounded up", coarse, denied(win + second + 1), length},
	} {
		if got := believed(&tt.check, &tt.d); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
