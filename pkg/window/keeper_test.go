package window_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// TestCutReading reads rings that are larger than MaxRead. Everything is counted, and nothing
// too short.
func TestCutReading(t *testing.T) {
	const slots = window.MaxRead/9 + 20_000
	id := window.LogID{Key: "k", Window: 200 * time.Millisecond}
	c := &window.Check{Key: id.Key, Limit: window.Limit{Hits: window.MaxHits - 1, Window: id.Window}, Cost: 1}
	var (
		log   []byte
		d     window.Decision
		clock int64
		cuts  int
	)
	for n := range 3 * slots / 2 { // the oldest expire, so the ring's head moves
		clock++
		c.Cost = uint64(1 + n%3)
		log = windowtest.Take(log, clock, c, &d)
		if n%50_000 != 0 || len(log) <= window.MaxRead {
			continue
		}
		cuts++
		now := time.Duration(clock) * time.Microsecond
		whole, cut := window.NewReading(id, now, log), window.NewReading(id, now, log[:window.MaxRead])
		if whole.Cut || !cut.Cut {
			t.Fatalf("%d bytes: cut %t, its beginning %t", len(log), whole.Cut, cut.Cut)
		}
		if got, want := cut.Contents.Used(), whole.Contents.Used(); got != want {
			t.Errorf("%d bytes: the cut log has %d hits, want %d", len(log), got, want)
		}
		if cut.Contents.Bytes != len(log) || cut.Contents.Capacity != whole.Contents.Capacity || cut.Contents.Clock != whole.Contents.Clock {
			t.Errorf("%d bytes: the cut log has the head %+v", len(log), cut.Contents.Bytes)
		}
		// Until any time, no more has expired of the cut log than of the whole.
		var expired, expiredCut uint64
		all := whole.Contents.Entries
		for _, e := range cut.Contents.Entries {
			for len(all) > 0 && all[0].At <= e.At {
				expired += uint64(all[0].Cost)
				all = all[1:]
			}
			if expiredCut += uint64(e.Cost); expiredCut != expired {
				t.Fatalf("%d bytes: at %v the cut log has %d, the whole %d", len(log), e.At, expiredCut, expired)
			}
		}
		if n := len(cut.Contents.Entries); n < 80_000 || n > len(whole.Contents.Entries) {
			t.Errorf("%d of %d entries", n, len(whole.Contents.Entries))
		}
	}
	if cuts < 3 {
		t.Errorf("%d cut logs: nothing was proven", cuts)
	}

	// Whatever the header says, nothing panics, and what is not a log is empty.
	r := rand.New(rand.NewPCG(1, 1))
	header := append([]byte(nil), log[:41]...)
	for range 300 {
		b := log[:window.MaxRead]
		copy(b, header)
		for range 1 + r.IntN(4) {
			b[r.IntN(41)] = byte(r.IntN(256))
		}
		if got := window.NewReading(id, 0, b); !got.Cut && len(got.Contents.Entries) > 0 {
			t.Fatalf("a damaged log reads as %d entries, and is not cut", len(got.Contents.Entries))
		}
	}
	copy(log, header)
	if got := window.NewReading(window.LogID{Key: "k", Window: 30 * 24 * time.Hour}, 0, log); len(got.Contents.Entries) != 0 {
		t.Error("a log of another unit is read")
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		m    window.Match
		key  string
		want bool
	}{
		{window.Match{}, "k", true},
		{window.Match{Tag: "a"}, "{a}:r", true},
		{window.Match{Tag: "a"}, "{ab}:r", false},
		{window.Match{Tag: "a"}, "x{a}:r", false},
		{window.Match{Tag: "a"}, "{a", false},
		{window.Match{Contains: "r"}, "{a}:r", true},
		{window.Match{Tag: "a", Contains: "x"}, "{a}:r", false},
	} {
		if got := tt.m.Matches(tt.key); got != tt.want {
			t.Errorf("%+v matches %q: got %t", tt.m, tt.key, got)
		}
	}
}
