package ruletest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/replay"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// InMemory returns a [Runner.Begin] that decides on an embedded store, whose time is that of the
// requests.
func InMemory(rules *policy.Rules) func() (Decide, func() error, error) {
	return func() (Decide, func() error, error) {
		t := replay.NewTimeline(rules, replay.Options{})
		return t.Decide, t.Close, nil
	}
}

// A KeepingStore can remove the logs of a test.
type KeepingStore interface {
	window.Store
	window.Keeper
}

// InStore returns a [Runner.Begin] that decides on a store with a clock of its own. A request
// waits until its time has come, counted from the first request of the test. The logs are removed
// before and after each test, so nothing else may use the store.
func InStore(rules *policy.Rules, store KeepingStore) func() (Decide, func() error, error) {
	return func() (Decide, func() error, error) {
		if err := empty(context.Background(), store); err != nil {
			return nil, nil, err
		}
		l := &live{decider: replay.NewLive(rules, store)}
		return l.decide, func() error { return empty(context.Background(), store) }, nil
	}
}

// live decides requests when their time has come.
type live struct {
	decider *replay.Live
	begun   time.Time
	first   time.Duration
}

func (l *live) decide(ctx context.Context, at time.Duration, req policy.Request, caller *tier.Subject) (*policy.Verdict, error) {
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

// empty removes all logs of a store.
func empty(ctx context.Context, store KeepingStore) error {
	cursor := ""
	for {
		ids, next, err := store.List(ctx, window.Match{}, cursor)
		if err != nil {
			return fmt.Errorf("looking for logs of other tests: %w", err)
		}
		if _, err := store.Remove(ctx, ids); err != nil && !errors.Is(err, window.ErrNotTold) {
			return fmt.Errorf("removing the logs of a test: %w", err)
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}
