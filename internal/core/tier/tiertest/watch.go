package tiertest

import (
	"context"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// A watch is a running call of Watch.
type watch struct {
	ready   chan struct{}
	changes chan tier.Change
	ended   chan error
	cancel  context.CancelFunc
}

func startWatch(t *testing.T, w tier.Watcher) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	running := &watch{
		ready:   make(chan struct{}, 10),
		changes: make(chan tier.Change, 10_000),
		ended:   make(chan error, 1),
		cancel:  cancel,
	}
	t.Cleanup(cancel)
	go func() {
		running.ended <- w.Watch(ctx, func() { running.ready <- struct{}{} }, func(c tier.Change) { running.changes <- c })
	}()
	select {
	case <-running.ready:
	case err := <-running.ended:
		t.Fatalf("Watch before it was ready: %v", err)
	case <-time.After(patience):
		t.Fatalf("Watch is not ready after %v", patience)
	}
	return running
}

// expect waits for a change of a subject or of one of its keys.
func (w *watch) expect(t *testing.T, id string, digests ...string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case c := <-w.changes:
			if c == (tier.Change{}) || c.ID == id {
				return
			}
			for _, d := range digests {
				if c.Digest == d {
					return
				}
			}
		case err := <-w.ended:
			t.Fatalf("Watch has ended: %v", err)
		case <-timeout:
			t.Fatalf("no change of %s within %v", id, patience)
		}
	}
}

// end waits for Watch to return.
func (w *watch) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.ended:
		if n := len(w.ready); n != 0 {
			t.Errorf("Watch was ready %d times", n+1)
		}
		return err
	case <-time.After(patience):
		t.Fatalf("Watch has not ended within %v", patience)
		return nil
	}
}

func runWatch(t *testing.T, f Fixture) {
	source, ok := watcher(f)
	if !ok {
		return
	}
	w := startWatch(t, source)
	s := tier.Subject{ID: "acme", Tier: "free"}
	f.Put(t, s, digest("a"), digest("b"))
	w.expect(t, "acme", digest("a"), digest("b"))
	want(t, f, byDigest("a"), &s)
	s.Tier = "pro"
	f.Put(t, s)
	// The first change may have caused two reports, so the second change may come later.
	for {
		w.expect(t, "acme", digest("a"), digest("b"))
		r, err := lookup(t, f, byDigest("a"))
		if err != nil {
			t.Fatal(err)
		}
		if r.Subject != nil && r.Subject.Tier == "pro" {
			break
		}
	}
	for len(w.changes) > 0 {
		<-w.changes
	}
	f.Remove(t, digest("a"))
	w.expect(t, "acme", digest("a"))
	want(t, f, byDigest("a"), nil)
	for len(w.changes) > 0 {
		<-w.changes
	}
	f.RemoveSubject(t, "acme")
	w.expect(t, "acme", digest("b"))
	want(t, f, byDigest("b"), nil)
	w.cancel()
	_ = w.end(t) // Watch may return the context's error or nil
}

func runWatchOutage(t *testing.T, f Fixture) {
	source, ok := watcher(f)
	if !ok {
		return
	}
	w := startWatch(t, source)
	f.Stop(t)
	if err := w.end(t); err == nil {
		t.Error("Watch ended without an error although the server is gone")
	}
	// While the server is away, Watch fails.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := source.Watch(ctx, func() { t.Error("ready without a server") }, func(tier.Change) {}); err == nil || ctx.Err() != nil {
		t.Errorf("Watch without a server: %v, within %v: %v", err, patience, ctx.Err())
	}
	f.Start(t)
	w = startWatch(t, source)
	s := tier.Subject{ID: "acme", Tier: "pro"}
	f.Put(t, s, digest("a"))
	w.expect(t, "acme", digest("a"))
	if err := f.Source.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	w.cancel()
	_ = w.end(t)
}
