package memstore

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestBudgetAndUsageUpdate decides a budget together with a cost that is recorded whatever the group decides.
func TestBudgetAndUsageUpdate(t *testing.T) {
	s := New(Options{SweepInterval: -1})
	t.Cleanup(func() { s.Close() })
	l := window.Limit{Hits: 10, Window: time.Hour}
	group := []window.Check{
		{Key: "{a}:budget", Limit: l, Cost: 4, Stream: 7, Budget: &window.Budget{Hold: time.Minute}},
		{Key: "{a}:always", Limit: l, Cost: 3, Mode: window.Always},
	}
	d := make([]window.Decision, len(group))
	if _, err := s.Take(t.Context(), window.MayWait, group, d); err != nil {
		t.Fatal(err)
	}
	if !d[0].Allowed || d[0].Reserved != 4 || d[0].Remaining != 6 || d[1].Remaining != 7 {
		t.Errorf("got %+v", d)
	}
}
