package redisstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

// A lateReply is a client that holds calls, and then holds their replies, while its channels are set.
type lateReply struct {
	redisstore.Client
	call, reply atomic.Pointer[chan struct{}]
}

func (c *lateReply) Process(ctx context.Context, cmd redis.Cmder) error {
	if hold := c.call.Load(); hold != nil {
		<-*hold
	}
	err := c.Client.Process(ctx, cmd)
	if hold := c.reply.Load(); hold != nil {
		<-*hold
	}
	return err
}

// TestDoubtOfRefusedPieces: of two checks in one scope, the queue refuses one, and the answer to the other is lost.
// The error must not say that the scope has certainly charged nothing: the local store would charge both again.
func TestDoubtOfRefusedPieces(t *testing.T) {
	late := &lateReply{Client: newClient(t, servers.Redis(t))}
	region := redisstore.New(late, redisstore.Options{Timeout: 500 * time.Millisecond, Calls: 1, MaxWaiting: 1})
	global := redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Timeout: patient})
	s := redisstore.NewScopes([]string{"region", "global"}, []*redisstore.Store{region, global})
	defer s.Close()
	take(t, s, hour("warm", 9, 1)) // the script and the clock are known
	call, reply := make(chan struct{}), make(chan struct{})
	late.call.Store(&call)
	go func() {
		_, _ = s.Take(t.Context(), window.MayWait, []window.Check{hour("first", 9, 1)}, make([]window.Decision, 1))
	}()
	eventually(t, "a call to be under way", func() bool { return region.Stats().Nodes[0].InFlight == 1 && region.Stats().Nodes[0].Queued == 0 })

	far := hour("far", 9, 1)
	far.Scope = 1
	failed := make(chan error)
	go func() {
		_, err := s.Take(t.Context(), window.MayWait, []window.Check{hour("a", 9, 1), hour("b", 9, 1), far}, make([]window.Decision, 3))
		failed <- err
	}()
	eventually(t, "one check to wait", func() bool { return region.Stats().Nodes[0].Queued == 1 })
	late.reply.Store(&reply)
	late.call.Store(nil)
	go func() { time.Sleep(50 * time.Millisecond); close(call) }()
	// The first call may end, so that the next one is sent.
	go func() { time.Sleep(100 * time.Millisecond); reply <- struct{}{} }()
	err := <-failed
	close(reply)
	late.reply.Store(nil)
	var part *window.PartError
	if !errors.As(err, &part) || part.Failed[0] == nil {
		t.Fatalf("got %v, want an error of the region", err)
	}
	used := 9 - take(t, s, hour("a", 9, 0))[0].Remaining
	d, known := redisstore.DoubtOf(part.Failed[0])
	t.Logf("%v: charged %d, doubt %+v, %t", part.Failed[0], used, d, known)
	if used > 0 && known && d.Since == redisstore.Never {
		t.Errorf("%v: the error says that nothing was charged, and the log has %d", part.Failed[0], used)
	}
}

// TestPiecesOnIdleServer: a request with more checks than may wait is decided if nothing waits.
func TestPiecesOnIdleServer(t *testing.T) {
	region := redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Timeout: patient, MaxWaiting: 1})
	global := redisstore.New(newClient(t, servers.Redis(t)), redisstore.Options{Timeout: patient, MaxWaiting: 1})
	s := redisstore.NewScopes([]string{"region", "global"}, []*redisstore.Store{region, global})
	defer s.Close()
	far := hour("far", 9, 1)
	far.Scope = 1
	if _, err := s.Take(t.Context(), window.MayWait, []window.Check{hour("a", 9, 1), hour("b", 9, 1), far}, make([]window.Decision, 3)); err != nil {
		t.Errorf("got %v, want a decision", err)
	}
}
