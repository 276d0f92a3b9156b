package inspect_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

// TestReadingIsWhatAStoreAnswers compares what Reading tells of a log with what a View
// answers to a question of cost 0, for random histories with every mode, and for clocks that
// are set back.
func TestReadingIsWhatAStoreAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		win := rapid.SampledFrom([]time.Duration{window.MinWindow, time.Second, 7 * time.Minute, 7 * 24 * time.Hour, window.MaxWindow}).Draw(t, "window")
		hits := rapid.SampledFrom([]uint64{0, 1, 3, 20, 1000, window.Unlimited}).Draw(t, "hits")
		l := window.Limit{Hits: hits, Window: win}
		precision := rapid.SampledFrom([]time.Duration{0, time.Microsecond, win / 7, win}).Draw(t, "precision").Truncate(time.Microsecond)
		clock := int64(1_700_000_000_000_000)
		var log []byte
		var d window.Decision
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			clock += rapid.Int64Range(-win.Microseconds()/20, win.Microseconds()/6).Draw(t, "passed")
			c := window.Check{
				Key: "k", Limit: l, Precision: precision,
				Cost: rapid.Uint64Range(0, max(min(hits, 1000)/2, 2)).Draw(t, "cost"),
				Mode: rapid.SampledFrom([]window.Mode{window.Enforce, window.Enforce, window.Always, window.Refund}).Draw(t, "mode"),
			}
			ahead := time.Duration(rapid.Int64Range(0, 1).Draw(t, "ahead")) * win / 50
			log = reference.TakeAhead(log, clock, &c, ahead, &d)
		}
		clock += rapid.Int64Range(-win.Microseconds()/20, win.Microseconds()+1).Draw(t, "passed in the end")
		compareReading(t, log, clock, l)
	})
}

func compareReading(t *rapid.T, log []byte, clock int64, l window.Limit) {
	r := inspect.NewReading(window.LogID{Key: "k", Window: l.Window}, time.Duration(clock)*time.Microsecond, log)
	var v packed.View
	v.Look(log, clock, l.Window)
	used := r.Used(l)
	if used != v.Used() {
		t.Fatalf("Used = %d, want %d", used, v.Used())
	}
	c := window.Check{Key: "k", Limit: l}
	want, ok := window.WithoutLog(&c)
	if !ok {
		reference.Take(log, clock, &c, &want)
	}
	if got := r.Ask(l); got != want {
		t.Fatalf("Ask = %+v, want %+v\n%v", got, want, r.Contents)
	}
	for _, parts := range []int{1, 7, 60} {
		var sum uint64
		for _, n := range r.History(parts) {
			sum += n
		}
		if sum != used {
			t.Fatalf("History(%d) has the sum %d, want %d", parts, sum, used)
		}
	}
}

// TestHistory puts entries at the edges of the parts: a part includes its end.
func TestHistory(t *testing.T) {
	r := inspect.Reading{ID: window.LogID{Key: "k", Window: 10 * time.Second}, Now: 100 * time.Second, Contents: packed.Contents{Clock: 99 * time.Second, Entries: []packed.Entry{
		{At: 90 * time.Second, Cost: 1}, // expired
		{At: 90*time.Second + time.Microsecond, Cost: 2},
		{At: 95 * time.Second, Cost: 4},
		{At: 95*time.Second + time.Microsecond, Cost: 8},
		{At: 100 * time.Second, Cost: 16},
		{At: 103 * time.Second, Cost: 32}, // ahead
	}}}
	if got := r.History(2); got[0] != 6 || got[1] != 56 {
		t.Errorf("History(2) = %d, want [6 56]", got)
	}
}
