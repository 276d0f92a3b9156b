package redisstore_test

import (
	"sync/atomic"
	"testing"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/test/servers"
)

// TestDeniedOnceRecordWritesNothing: while a server refuses writes, a denied request with an idempotency key does not show
// that it writes again.
func TestDeniedOnceRecordWritesNothing(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	var again atomic.Int64
	s := redisstore.New(client, redisstore.Options{Timeout: patient, Changed: func(c redisstore.Change) {
		if !c.Refuses && !c.Open {
			again.Add(1)
		}
	}})
	defer s.Close()
	take(t, s, tagged("full", 1, 1, 1))
	if err := client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), window.MayWait, []window.Check{tagged("other", 9, 1, 1)}, make([]window.Decision, 1)); failure.Of(err) != failure.Replicas {
		t.Fatalf("got %v, want the class %s", err, failure.Replicas)
	}
	if d := take(t, s, tagged("full", 1, 1, 2))[0]; d.Allowed {
		t.Fatalf("got %+v, want a denial", d)
	}
	if got := again.Load(); got != 0 {
		t.Error("the server is told to write again, and it refuses to")
	}
}
