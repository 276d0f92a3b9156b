package ruletest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

// InMemory returns a [Runner.Begin] that decides on an embedded store, whose time is that of the
// requests.
func InMemory(rs *rules.Rules) func() (Decide, func() error, error) {
	return func() (Decide, func() error, error) {
		t := replay.NewTimeline(rs, 0)
		return t.Decide, t.Close, nil
	}
}

// A KeptStore is a store whose logs can be removed.
type KeptStore interface {
	window.Store
	inspect.Inspector
}

// InStore returns a [Runner.Begin] that decides on a new store with its own clock. A request
// waits until its time has come, counted from the first request of the test. The logs of the
// store are removed after the test. Idempotency records stay until they expire.
func InStore(rs *rules.Rules, open func() KeptStore) func() (Decide, func() error, error) {
	return func() (Decide, func() error, error) {
		store := open()
		if _, _, err := store.List(context.Background(), inspect.Match{}, ""); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("looking for logs of other tests: %w", err), store.Close())
		}
		l := &live{decider: replay.NewLive(rs, store, nil)}
		return l.decide, func() error {
			return errors.Join(removeLogs(store), store.Close())
		}, nil
	}
}

// removeLogs removes all logs of a store.
func removeLogs(store KeptStore) error {
	for cursor := ""; ; {
		ids, next, err := store.List(context.Background(), inspect.Match{}, cursor)
		if err == nil {
			_, err = store.Remove(context.Background(), ids)
		}
		if err != nil {
			return fmt.Errorf("removing the logs of a test: %w", err)
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// live decides requests when their time has come.
type live struct {
	decider *replay.Live
	begun   time.Time
	first   time.Duration
}

func (l *live) decide(ctx context.Context, at time.Duration, req decide.Request, caller *tier.Subject) (*decide.Verdict, error) {
	if l.begun.IsZero() {
		l.begun, l.first = time.Now(), at
	}
	wait := time.NewTimer(time.Until(l.begun.Add(at - l.first)))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-wait.C:
	}
	return l.decider.Decide(ctx, req, caller)
}
