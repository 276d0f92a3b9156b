package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// reserving returns a check that reserves a cost under a limit of 5 with a policy.
func reserving(p window.Policy, stream window.StreamID, cost uint64) window.Check {
	c := ofPolicy(p, cost)
	c.Key, c.Stream, c.Budget = "{b}k", stream, &window.Budget{Hold: 10 * time.Second}
	return c
}

// TestSnapshotOfBudgets: a store that is loaded knows what streams have reserved, and their ends settle it.
func TestSnapshotOfBudgets(t *testing.T) {
	for p := window.Sliding; p < window.InFlight; p++ {
		s, now := testStore(t)
		*now = time.Minute
		stream := window.StreamID(uint64(onceRecords)<<policyBits | 7) // as any digest may begin
		take(t, s, reserving(p, stream, 3))
		loaded, _, counts := loadAt(t, saved(t, s), 0, 0)
		if want := (Loaded{Logs: 2}); counts != want {
			t.Errorf("%v: loaded %+v, want %+v: the reservation and the stream", p, counts, want)
		}
		ask := reserving(p, 8, 0)
		if p == window.Calendar {
			at := int64(loaded.Now() / time.Second)
			ask.Period = window.Period{Start: at - 10, End: at + 100, Next: at + 200}
		}
		if d := take(t, loaded, ask)[0]; d.Remaining != 2 || d.Reserved != 3 {
			t.Errorf("%v: loaded: %+v", p, d)
		}
		settled, err := loaded.End(t.Context(), window.Ending{Stream: stream})
		if err != nil || len(settled.Logs) != 1 || settled.Logs[0].Spent != 3 || settled.Logs[0].Remaining != 2 {
			t.Errorf("%v: the end: %+v, error %v", p, settled, err)
		}
		verify(t, loaded)
	}
}

// TestReservationsStay: a store that is full drops no reservation, and refuses instead. The sweeper drops
// what does not count any more.
func TestReservationsStay(t *testing.T) {
	s, now := boundedStore(t, 2*minShardBytes)
	*now = time.Minute
	streams := window.StreamID(0)
	for i := range 200 {
		c := reserving(window.Fixed, window.StreamID(i+1), 1)
		c.Key = fmt.Sprintf("{b%d}k", i)
		if _, ok := tryTake(t, s, c); !ok {
			break
		}
		streams++
	}
	for i := range 20_000 {
		tryTake(t, s, check(fmt.Sprint("other", i), 100, 1))
	}
	verify(t, s)
	for i := range streams {
		c := reserving(window.Fixed, 1<<40, 0)
		c.Key = fmt.Sprintf("{b%d}k", i)
		if d := take(t, s, c)[0]; d.Reserved != 1 {
			t.Fatalf("reservation %d of %d: %+v", i, streams, d)
		}
	}
	*now += 3 * time.Minute
	if s.Sweep(); s.Len() != 0 {
		t.Errorf("%d logs are left", s.Len())
	}
	verify(t, s)
}
