package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// TestWatch proves that refunds and removals of another process are told, and that everything
// may have been missed after a connection was lost.
func TestWatch(t *testing.T) {
	server := servers.StartRedis(t)
	o := redisstore.Options{Prefix: "p:", Refunds: "p:refunds", ProbeInterval: time.Millisecond}
	s := redisstore.New(newClient(t, server.Addr()), o)
	defer s.Close()
	other := redisstore.New(newClient(t, server.Addr()), o)
	defer other.Close()

	told, removed, all := make(chan window.LogID, 10), make(chan window.LogID, 10), make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- s.Watch(ctx, redisstore.Heard{
			Refunded: func(id window.LogID) { told <- id },
			Removed:  func(id window.LogID) { removed <- id },
			Missed:   func() { all <- struct{}{} },
		})
	}()
	<-all // it listens

	spent := check("a{b}:c", 10, 3)
	take(t, other, spent)
	take(t, other, mode(check("nothing", 10, 1), window.Refund)) // has nothing to give back
	take(t, other, mode(spent, window.Refund))
	want := window.LogID{Key: "a{b}:c", Window: win}
	if diff := cmp.Diff(want, <-told); diff != "" {
		t.Errorf("told of a log (-want +got)\n%s", diff)
	}
	// A removal is told twice: first as what it is, then as a refund for older versions.
	for range 2 { // the second time the log is not there
		if _, err := other.Remove(t.Context(), []window.LogID{want}); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, <-told); diff != "" {
			t.Errorf("told of a removal, as older versions are (-want +got)\n%s", diff)
		}
		select {
		case id := <-removed:
			if id != want {
				t.Errorf("told of the removal of %v, want %v", id, want)
			}
		default:
			t.Error("the removal was not told before the refund")
		}
	}
	if _, err := server.Do("PUBLISH", "p:refunds", "not a key"); err != nil {
		t.Error(err)
	}

	for len(all) > 0 {
		<-all
	}
	if _, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil {
		t.Fatal(err)
	}
	<-all // the connection is lost
	eventually(t, "listening again", func() bool {
		take(t, other, spent)
		take(t, other, mode(spent, window.Refund))
		select {
		case id := <-told:
			return id == want
		default:
			return false
		}
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Watch: %v", err)
	}

	silent := redisstore.New(newClient(t, server.Addr()), redisstore.Options{})
	if err := silent.Watch(t.Context(), redisstore.Heard{}); err == nil {
		t.Error("Watch without a channel: got no error")
	}
}
