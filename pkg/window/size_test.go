package window

import (
	"testing"
	"time"
)

// TestLogBytes fills logs and compares.
func TestLogBytes(t *testing.T) {
	for _, c := range []Check{
		{Limit: Limit{Hits: 1, Window: time.Minute}},
		{Limit: Limit{Hits: 13, Window: time.Minute}},
		{Limit: Limit{Hits: 14, Window: time.Minute}},
		{Limit: Limit{Hits: 100, Window: time.Minute}},
		{Limit: Limit{Hits: 3000, Window: time.Minute}},
		{Limit: Limit{Hits: 1000, Window: time.Minute}, Precision: time.Second},
		{Limit: Limit{Hits: 100_000, Window: time.Hour}, Precision: Precision(Limit{Hits: 100_000, Window: time.Hour})},
	} {
		c.Cost = 1
		var log []byte
		var d Decision
		most := 0
		// Three windows at an even pace: as many hits in each as there are allowed.
		step := max(1, c.Limit.Window.Microseconds()/int64(c.Limit.Hits))
		for clock := int64(1e6); clock < 3*c.Limit.Window.Microseconds(); clock += step {
			log = Take(log, clock, &c, &d)
			most = max(most, len(log))
		}
		if want := LogBytes(&c); most > want || most < want*9/10 {
			t.Errorf("%+v: a full log has %d bytes, LogBytes says %d", c, most, want)
		}
	}
	for _, hits := range []uint64{0, MaxHits} {
		if got := LogBytes(&Check{Limit: Limit{Hits: hits, Window: time.Minute}}); got != 0 {
			t.Errorf("limit %d: %d bytes, want none", hits, got)
		}
	}
}
