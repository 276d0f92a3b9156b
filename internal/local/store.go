package local

import (
	"context"
	"fmt"
	"slices"
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
	// Reserver reserves ahead, in the logs of the store that is asked, for checks that
	// allow it; see [window.Check]. Nil: nothing is reserved. Nor is it if nothing is
	// remembered.
	Reserver Reserver
	// Leases is how many reservations there are at most at a time. Zero or less means
	// DefaultLeases.
	Leases int
}

// Store answers what this process knows by itself and asks another store for the
// rest. Create it with New; its methods are safe for concurrent use.
type Store struct {
	store  window.Store
	clock  func() time.Duration
	memory *memory // nil: nothing is remembered
	leases *leases // nil: nothing is reserved
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
	if o.Reserver != nil && s.memory != nil {
		ls, err := newLeases(o.Reserver, o.Leases, s.clock, s.memory.forget)
		if err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
		s.leases = ls
	}
	return s, nil
}

// monotonic returns a clock that counts from now.
func monotonic() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Close gives back what is reserved, for a second at most, and closes the store that
// is asked. No goroutine is left.
func (s *Store) Close() error {
	if s.leases != nil {
		s.leases.close()
	}
	return s.store.Close()
}

// Stats say what a store has answered by itself.
type Stats struct {
	// Denials is how many groups were denied without asking.
	Denials uint64
	// Keys is the number of logs that something is remembered of, true or not any
	// more.
	Keys int
	// Leases is how often something was reserved ahead, LeasedHits how many hits were
	// admitted on that without asking, ReturnedHits how many were given back.
	Leases, LeasedHits, ReturnedHits uint64
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	st := Stats{Denials: s.denied.Load()}
	if s.memory != nil {
		st.Keys = s.memory.told.EstimatedSize()
	}
	if ls := s.leases; ls != nil {
		st.Leases, st.LeasedHits, st.ReturnedHits = ls.made.Load(), ls.spent.Load(), ls.returned.Load()
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
	if s.leases != nil {
		s.leases.endSoon(id)
	}
}

// ForgetAll ends all that is remembered, because the store may have lost its logs
// or been given back to while nobody was told.
func (s *Store) ForgetAll() {
	if s.memory != nil {
		s.memory.forgetAll()
	}
	if s.leases != nil {
		s.leases.endAll()
	}
}

// Take implements [window.Store]. It answers denials that it remembers, spends what it
// has reserved ahead, and asks the store about everything else. Without wait it never
// asks the store: it then answers what it can, or changes nothing and returns false.
func (s *Store) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if s.memory == nil || len(checks) == 0 {
		return s.store.Take(ctx, wait, checks, decisions)
	}
	leased := false
	for i := range checks {
		if checks[i].Mode.Unconditional() {
			if !wait {
				return false, nil
			}
			return true, s.takeUnconditional(ctx, checks, decisions)
		}
		leased = leased || s.leases != nil && may(&checks[i])
	}
	// Read before the store is asked, so that every answer of the store is newer.
	now := s.clock()
	if leased {
		return s.takeLeased(ctx, wait, checks, decisions, now)
	}
	var inline [inlineChecks]recalled
	group := groupOf(&inline, len(checks))
	_, answered := s.denies(ctx, checks, decisions, group, now)
	if answered || !wait {
		return answered, nil
	}
	return true, s.ask(ctx, checks, decisions, group, now)
}

func groupOf(inline *[inlineChecks]recalled, n int) []recalled {
	if n > len(inline) {
		return make([]recalled, n)
	}
	return inline[:n]
}

// denies fills group with what is remembered of the checks, and reports whether that
// denies them. If it also answers every check, denies fills decisions and answered is
// true.
func (s *Store) denies(ctx context.Context, checks []window.Check, decisions []window.Decision, group []recalled, now time.Duration) (denied, answered bool) {
	denied = s.memory.recall(checks, group, now)
	answered = denied && ctx.Err() == nil && s.memory.answer(checks, decisions, group, now)
	if answered {
		s.denied.Add(1)
	}
	return denied, answered
}

// ask asks the store, and remembers an answer that can answer later calls.
func (s *Store) ask(ctx context.Context, checks []window.Check, decisions []window.Decision, group []recalled, now time.Duration) error {
	if _, err := s.store.Take(ctx, window.MayWait, checks, decisions); err != nil {
		return err
	}
	if s.memory.worth(checks, decisions) {
		s.memory.remember(checks, decisions, group, now, s.clock())
	} else {
		s.memory.drop(checks, group)
	}
	return nil
}

// takeLeased is Take for a group some of whose checks may have a lease. It spends the
// leases first, and puts everything back if the rest of the group is not allowed.
func (s *Store) takeLeased(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision, now time.Duration) (decided bool, err error) {
	var inline [inlineChecks]*lease
	found := inline[:min(len(checks), len(inline))]
	if len(checks) > len(inline) {
		found = make([]*lease, len(checks))
	}
	// A group that names a log twice gets no lease, and the store tells the error of
	// an invalid group.
	_, folded := window.Fold(checks)
	plain := ctx.Err() != nil || folded != nil || window.Validate(checks, decisions) != nil
	covered, spent := 0, uint64(0)
	for i := range checks {
		if c := &checks[i]; !plain && may(c) {
			if found[i] = s.leases.spend(c, now, wait, &decisions[i]); found[i] != nil {
				covered++
				spent += c.Cost
			}
		}
	}
	decided, allowed := true, covered == len(checks)
	switch {
	case allowed:
	case covered == 0 && !plain && s.answers(ctx, checks, decisions, now): // without building a group
	case covered == 0 && !wait:
		return false, nil
	default:
		g := group{checks: checks, decisions: decisions, leases: slices.Clone(found), plain: plain}
		if decided, allowed, err = s.takeRest(ctx, wait, &g, now); !allowed {
			s.putBack(&g, now)
		}
	}
	if decided && !wait {
		s.leases.count(checks, now)
	}
	if allowed {
		s.leases.spent.Add(spent)
	}
	return decided, err
}

// answers answers a group that is known to be denied, and reports whether it did.
func (s *Store) answers(ctx context.Context, checks []window.Check, decisions []window.Decision, now time.Duration) bool {
	var inline [inlineChecks]recalled
	_, answered := s.denies(ctx, checks, decisions, groupOf(&inline, len(checks)), now)
	return answered
}

// group is a group in parts: what leases answer, and the rest.
type group struct {
	checks    []window.Check
	decisions []window.Decision
	leases    []*lease // nil where there is none
	plain     bool     // no lease may be made for it, or no other one
}

// rest returns the checks without a lease, and their indexes.
func (g *group) rest() (rest []window.Check, at []int) {
	for i, l := range g.leases {
		if l == nil {
			rest, at = append(rest, g.checks[i]), append(at, i)
		}
	}
	return rest, at
}

// putBack undoes what a group has spent of its leases.
func (s *Store) putBack(g *group, now time.Duration) {
	for i, l := range g.leases {
		if l != nil {
			s.leases.putBack(l, &g.checks[i], now, &g.decisions[i])
		}
	}
}

// takeRest decides what leases do not answer, and reports whether that is allowed. On
// an error, allowed is false.
func (s *Store) takeRest(ctx context.Context, wait bool, g *group, now time.Duration) (decided, allowed bool, err error) {
	rest, at := g.rest()
	if len(rest) == 0 {
		return true, true, nil
	}
	decisions := make([]window.Decision, len(rest))
	if len(rest) == len(g.checks) {
		decisions = g.decisions // which may be of another length than it should
	}
	remembered := make([]recalled, len(rest))
	denied, answered := s.denies(ctx, rest, decisions, remembered, now)
	if !answered {
		if !wait {
			return false, false, nil
		}
		made := false
		if !denied {
			made, err = s.reserve(ctx, g, rest, at, now)
		}
		if made {
			return s.takeRest(ctx, wait, g, now)
		}
		if err == nil {
			err = s.ask(ctx, rest, decisions, remembered, now)
		}
		if err != nil {
			return true, false, err
		}
	}
	for i, to := range at {
		g.decisions[to] = decisions[i]
		if may(&rest[i]) {
			s.leases.learn(&rest[i], &decisions[i])
		}
	}
	return true, window.GroupAllowed(rest, decisions), nil
}

// reserve makes a lease for the first check of the rest that is asked for often, if
// the group may have one. A group gets one lease at most, since each costs a round
// trip.
func (s *Store) reserve(ctx context.Context, g *group, rest []window.Check, at []int, now time.Duration) (made bool, err error) {
	if g.plain {
		return false, nil
	}
	g.plain = true
	for i := range rest {
		c := &rest[i]
		if !may(c) {
			continue
		}
		more := s.leases.want(c, now)
		if more == 0 {
			continue
		}
		l, err := s.leases.reserve(ctx, c, more, &g.decisions[at[i]])
		g.leases[at[i]] = l
		if l != nil {
			s.memory.forget(c.Key) // less remains than before
		}
		return l != nil, err
	}
	return false, nil
}

// takeUnconditional asks the store about a group that records something whatever
// becomes of it. What was known of its logs is not true any more then: a refund ends
// a denial, and a charge changes what remains. Nothing is remembered of calls that
// ran beside it, either: they may have been answered before it. Until it has
// returned, the old denials are as good as the new.
func (s *Store) takeUnconditional(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	if s.leases != nil {
		for i := range checks {
			if checks[i].Mode == window.Refund {
				// It takes what is newest, which is what is reserved.
				s.leases.endNow(ctx, checks[i].Log())
			}
		}
	}
	_, err := s.store.Take(ctx, window.MayWait, checks, decisions)
	s.forget(checks)
	return err
}

func (s *Store) forget(checks []window.Check) {
	for i := range checks {
		s.memory.forget(checks[i].Key)
	}
}
