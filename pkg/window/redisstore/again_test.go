package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/servers"
)

// TestReservationAfterTheEnd: on a cluster the log denies a stream that has ended. When that time is over, the stream
// reserves again, and its next end finds the reservation.
func TestReservationAfterTheEnd(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.Redis(t)})
	defer client.Close()
	s := NewWithClock(t, client, Options{}, "clock")
	defer s.Close()
	s.streams, s.ends.Streams = "", "" // as on a cluster
	now := start
	reserve := func(stream window.StreamID, cost uint64, hold time.Duration) window.Decision {
		t.Helper()
		if err := client.Set(t.Context(), "clock", now, 0).Err(); err != nil {
			t.Fatal(err)
		}
		c := [1]window.Check{{Key: "{k}", Cost: cost, Stream: stream, Budget: &window.Budget{Hold: hold}, Limit: window.Limit{Hits: 100, Window: time.Hour}}}
		var d [1]window.Decision
		if _, err := s.Take(t.Context(), window.MayWait, c[:], d[:]); err != nil {
			t.Fatal(err)
		}
		return d[0]
	}
	end := func() []window.SettledLog {
		t.Helper()
		cost := window.Check{Key: "{k}", Cost: 2, Mode: window.Always, Limit: window.Limit{Hits: 100, Window: time.Hour}}
		settled, err := s.End(t.Context(), window.Ending{Stream: 2, Costs: []window.Check{cost}})
		if err != nil {
			t.Fatal(err)
		}
		return settled.Logs
	}
	reserve(1, 50, time.Second) // it expires, and counts as spent behind the log's first slot
	if got := end(); len(got) != 1 || got[0].Spent != 2 {
		t.Fatalf("the first end: %+v", got)
	}
	if d := reserve(2, 3, time.Minute); d.Allowed {
		t.Fatalf("after its end: %+v", d)
	}
	now += (window.MinSettled + time.Second).Microseconds()
	if d := reserve(2, 3, time.Minute); !d.Allowed || d.Reserved != 3 {
		t.Fatalf("later: %+v", d)
	}
	if got := end(); len(got) != 1 || got[0].Reserved != 3 || got[0].Spent != 2 {
		t.Errorf("the second end: %+v", got)
	}
	if d := reserve(9, 0, time.Minute); d.Reserved != 0 || d.Remaining != 100-50-2-2 {
		t.Errorf("at rest: %+v", d)
	}
}
