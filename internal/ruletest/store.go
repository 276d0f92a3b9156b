package ruletest

import (
	"context"
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

// A ClearableStore can remove what a test has left: logs, and receipts of charges, which would make
// requests of the next test free.
type ClearableStore interface {
	window.Store
	RemoveAll(ctx context.Context) error
}

// InStore returns a [Runner.Begin] that decides on a store with a clock of its own. A request
// waits until its time has come, counted from the first request of the test. All that the
// store keeps is removed before and after each test, so nothing else may use the store.
func InStore(rules *policy.Rules, store ClearableStore) func() (Decide, func() error, error) {
	return func() (Decide, func() error, error) {
		if err := store.RemoveAll(context.Background()); err != nil {
			return nil, nil, fmt.Errorf("looking for logs of other tests: %w", err)
		}
		l := &live{decider: replay.NewLive(rules, store, nil)}
		return l.decide, func() error {
			if err := store.RemoveAll(context.Background()); err != nil {
				return fmt.Errorf("removing the logs of a test: %w", err)
			}
			return nil
		}, nil
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
