package local

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// DefaultKeys is how many logs a store remembers answers of.
	DefaultKeys = 100_000
	// DefaultMaxAge is how long an answer is believed at most.
	DefaultMaxAge = 10 * time.Second
	// statusAge is how long it is believed what remains where something does:
	// other processes may spend it at any moment.
	statusAge = time.Second
)

// Options change what a store does. The zero value is usable.
type Options struct {
	// Clock tells the time since some fixed instant. It must not run backwards and
	// not be set: a wait is measured with it. Nil means the monotonic clock of the
	// process.
	Clock func() time.Duration
	// Keys is how many logs are remembered at most. Zero means DefaultKeys; below
	// zero nothing is remembered.
	Keys int
	// MaxAge bounds how long an answer is believed, whatever it said: for so long
	// at most a store that has lost its logs goes on denying from memory, and for so
	// long the clocks of two machines can drift apart. Zero means DefaultMaxAge.
	MaxAge time.Duration
}

// Store answers what this process knows by itself and asks another store for the
// rest. Create it with New; its methods are safe for concurrent use.
type Store struct {
	store  window.Store
	clock  func() time.Duration
	memory *memory // nil: nothing is remembered
	denied atomic.Uint64
}

var _ window.Store = (*Store)(nil)

// New returns a store in front of another one, which it closes when it is closed.
func New(store window.Store, o Options) (*Store, error) {
	s := &Store{store: store, clock: o.Clock}
	if s.clock == nil {
		s.clock = monotonic()
	}
	if o.Keys >= 0 {
		m, err := newMemory(o)
		if err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
		s.memory = m
	}
	return s, nil
}

// monotonic returns a clock that counts from now.
func monotonic() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Close closes the store that is asked. No goroutine of this one is left.
func (s *Store) Close() error { return s.store.Close() }

// Stats say what a store has answered by itself.
type Stats struct {
	// Denials is how many groups were denied without asking.
	Denials uint64
	// Keys is the number of logs that something is remembered of, true or not any
	// more.
	Keys int
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	st := Stats{Denials: s.denied.Load()}
	if s.memory != nil {
		st.Keys = s.memory.told.EstimatedSize()
	}
	return st
}

// Forget ends what is remembered of a log, because cost was given back there by
// somebody else or it was reset. Answers of calls that are under way are not
// remembered either.
func (s *Store) Forget(id window.LogID) {
	if s.memory != nil {
		s.memory.forget(id.Key)
	}
}

// ForgetAll ends all that is remembered, because the store may have lost its logs
// or been given back to while nobody was told.
func (s *Store) ForgetAll() {
	if s.memory != nil {
		s.memory.forgetAll()
	}
}

// Take implements [window.Store]: it answers a denial that is known, and asks the
// store about everything else.
func (s *Store) Take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	if s.memory == nil || len(checks) == 0 {
		return s.store.Take(ctx, checks, decisions)
	}
	for i := range checks {
		if checks[i].Mode.Unconditional() {
			return s.takeUnconditional(ctx, checks, decisions)
		}
	}
	var inline [inlineChecks]asked
	group := inline[:]
	if len(checks) > inlineChecks {
		group = make([]asked, len(checks))
	}
	group = group[:len(checks)]

	// Read before the store is asked: what it answers is true from a later moment on.
	now := s.clock()
	if s.memory.recall(checks, group, now) && s.memory.answer(ctx, checks, decisions, group, now) {
		s.denied.Add(1)
		return nil
	}
	if err := s.store.Take(ctx, checks, decisions); err != nil {
		return err
	}
	if s.memory.worth(checks, decisions) {
		s.memory.remember(checks, decisions, group, now, s.clock())
	} else {
		s.memory.drop(checks, group)
	}
	return nil
}

// takeUnconditional asks the store about a group that records something whatever
// becomes of it. What was known of its logs is not true any more then: a refund ends
// a denial, and a charge changes what remains. Nothing is remembered of calls that
// ran beside it, either: they may have been answered before it. Until it has
// returned, the old denials are as good as the new.
func (s *Store) takeUnconditional(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	err := s.store.Take(ctx, checks, decisions)
	s.forget(checks)
	return err
}

func (s *Store) forget(checks []window.Check) {
	for i := range checks {
		s.memory.forget(checks[i].Key)
	}
}
