package memstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

// attempt returns a check of an attempt, under a limit per hour.
func attempt(key string, id, hits uint64) window.Check {
	return window.Check{
		Key: "{" + key + "}", Cost: 1, Limit: window.Limit{Hits: hits, Window: time.Hour},
		Once: window.Once{ID: id, For: time.Minute, Repeats: 100},
	}
}

// TestOnceRecordsAreSwept: an idempotency record lives exactly as long as it says, and is dropped then.
func TestOnceRecordsAreSwept(t *testing.T) {
	s, now := testStore(t)
	*now = time.Minute
	take(t, s, attempt("k", 1, 5))
	for _, tt := range []struct {
		at   time.Duration
		logs int
	}{{2*time.Minute - time.Microsecond, 2}, {2 * time.Minute, 1}} {
		*now = tt.at
		s.Sweep()
		verify(t, s)
		if n := s.Len(); n != tt.logs {
			t.Errorf("at %v: %d logs, want %d", tt.at, n, tt.logs)
		}
	}
}

// TestOnceRecordsOfTwoLimits: two limits of one key have idempotency records of their own, and a list and a reset
// see none of them.
func TestOnceRecordsOfTwoLimits(t *testing.T) {
	s, _ := testStore(t)
	short, long := attempt("k", 1, 5), attempt("k", 1, 50)
	short.Limit.Window = time.Minute
	take(t, s, short, long)
	if n := s.Len(); n != 4 {
		t.Errorf("%d logs, want two and their receipts", n)
	}
	ids, next, err := s.List(t.Context(), inspect.Match{}, "")
	if err != nil || next != "" || len(ids) != 2 {
		t.Errorf("the list has %v, error %v, want the two logs", ids, err)
	}
	if _, err := s.Remove(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	for i, d := range take(t, s, short, long) {
		if !d.Repeated || d.Remaining != []uint64{5, 50}[i] {
			t.Errorf("after a reset, limit %d: got %+v, want a repeat, and nothing used", i, d)
		}
	}
	verify(t, s)
}

// TestOnceRecordsAreBounded makes ever new idempotency records. Idempotency records make room for more, and no log that
// counts is lost for them.
func TestOnceRecordsAreBounded(t *testing.T) {
	s, _ := boundedStore(t, 64*4000)
	for i := range 100 { // logs with room, which a flood of logs would evict
		take(t, s, check(fmt.Sprint("log", i), 5, 3))
	}
	for id := range uint64(20_000) {
		if d := take(t, s, attempt("k", 1+id, 1_000_000)); d[0].Repeated {
			t.Fatalf("attempt %d is a repeat", id)
		}
		if d := take(t, s, attempt("k", 1+id, 1_000_000)); !d[0].Repeated {
			t.Fatalf("the receipt of attempt %d is dropped before older ones", id)
		}
	}
	verify(t, s) // the bounds
	if stats := s.Stats(); stats.Evicted == 0 || stats.Refused > 0 {
		t.Errorf("%+v: want receipts that were dropped, and none refused", stats)
	}
	for i := range 100 {
		if d := take(t, s, check(fmt.Sprint("log", i), 5, 0)); d[0].Remaining != 2 {
			t.Errorf("log %d was dropped for a receipt: %+v", i, d[0])
		}
	}
	if d := take(t, s, attempt("k", 0, 1_000_000)); d[0].Remaining != 1_000_000-20_001 {
		t.Errorf("the log of the receipts: %+v", d[0])
	}
}

// TestNoRoomForAnOnceRecord: if all logs limit, a charge that would need an idempotency record is refused, and
// charges nothing. A repeat needs no room.
func TestNoRoomForAnOnceRecord(t *testing.T) {
	s, _ := boundedStore(t, roomFor(4))
	c := attempt("k", 1, 9)
	take(t, s, c)
	take(t, s, check("a", 1, 1))
	take(t, s, check("b", 1, 1)) // now it is full: two limit, and a log and its idempotency record
	if d := take(t, s, c); !d[0].Repeated || d[0].Remaining != 8 {
		t.Errorf("a repeat in a full store: %+v", d[0])
	}
	c.Limit.Hits = 1 // the log limits too
	take(t, s, func() window.Check { c := c; c.Once.ID = 0; c.Cost = 0; return c }())
	take(t, s, check("c", 1, 1)) // in place of the idempotency record
	other := attempt("c2", 1, 1)
	var d [1]window.Decision
	if _, err := s.Take(t.Context(), window.MayWait, []window.Check{other}, d[:]); !errors.Is(err, ErrFull) {
		t.Errorf("got %+v, error %v, want %v", d, err, ErrFull)
	}
	verify(t, s)
	other.Once.ID, other.Cost = 0, 0
	if d := take(t, s, other); d[0].Remaining != 1 {
		t.Errorf("a refused charge was recorded: %+v", d[0])
	}
}

// TestSnapshotOfOnceRecords: a store that was loaded knows the idempotency records, with their ends and repeats.
func TestSnapshotOfOnceRecords(t *testing.T) {
	s, now := testStore(t)
	*now = time.Hour
	c := attempt("k", 1, 5)
	c.Once.Repeats = 2
	take(t, s, c)
	take(t, s, c)
	loaded, clock, counts := loadAt(t, saved(t, s), 0, 0)
	if want := (Loaded{Logs: 2}); counts != want {
		t.Errorf("loaded %+v, want %+v", counts, want)
	}
	verify(t, loaded)
	*clock += time.Minute - time.Microsecond
	if d := take(t, loaded, c); !d[0].Repeated || d[0].Remaining != 4 {
		t.Errorf("the second repeat: %+v", d[0])
	}
	if d := take(t, loaded, c); d[0].Repeated || d[0].Remaining != 3 {
		t.Errorf("the third: %+v, want it charged", d[0])
	}
	*clock += time.Microsecond
	if d := take(t, loaded, c); d[0].Repeated {
		t.Errorf("after its end: %+v", d[0])
	}
	if _, _, counts := loadAt(t, saved(t, s), time.Hour, 0); counts != (Loaded{Expired: 2}) {
		t.Errorf("an hour later: loaded %+v, want nothing", counts)
	}
}
