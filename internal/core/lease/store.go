package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/cells"
	"github.com/slidegate/slidegate/internal/core/denials"
	"github.com/slidegate/slidegate/pkg/window"
)

// inlineChecks is the number of checks up to which a group needs no allocation. Few requests have more.
const inlineChecks = 4

// Options change what a [Store] does. The zero value is usable.
type Options struct {
	// Clock returns the time since a fixed instant. It must not run backwards or be set,
	// because waits are measured with it. Nil means the monotonic clock of the process.
	Clock func() time.Duration
	// Keys is the largest number of logs whose answers are remembered. Zero: 100,000.
	Keys int
	// Reserver reserves hits in the shared store, for checks with a lease. Nil disables
	// leases.
	Reserver Reserver
}

// Store decides from memory and from leases, and asks the shared store for the rest. Create it with
// [New]. Its methods are safe for concurrent use.
type Store struct {
	store    window.Store // the shared store
	clock    func() time.Duration
	memory   *denials.Memory
	leases   *leases // nil: Store makes no leases
	denied   cells.Counter
	releases releases // that the shared store does not know yet
}

var _ window.Store = (*Store)(nil)

// New returns a Store in front of a shared store. [Store.Close] closes both.
func New(store window.Store, o Options) (*Store, error) {
	s := &Store{store: store, clock: o.Clock}
	if s.clock == nil {
		s.clock = monotonic()
	}
	var err error
	if s.memory, err = denials.New(o.Keys); err != nil {
		return nil, err
	}
	if o.Reserver != nil {
		if s.leases, err = newLeases(o.Reserver, s.clock, s.memory.Forget); err != nil {
			return nil, fmt.Errorf("lease: %w", err)
		}
	}
	return s, nil
}

// monotonic returns a clock that starts at zero.
func monotonic() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Close gives leases back, for a second at most, and closes the shared store. It ends all
// goroutines of the Store.
func (s *Store) Close() error {
	if s.leases != nil {
		s.leases.close()
	}
	s.releases.close()
	return s.store.Close()
}

// Stats counts what a [Store] has decided without the shared store.
type Stats struct {
	// Denials is the number of groups denied from memory.
	Denials uint64
	// Keys is the number of remembered logs. It includes answers that are out of date.
	Keys int
	// Leases is the number of reservations. LeasedHits is the number of hits that leases
	// admitted, ReturnedHits the number that went back.
	Leases, LeasedHits, ReturnedHits uint64
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	st := Stats{Denials: s.denied.Load(), Keys: s.memory.Len()}
	if ls := s.leases; ls != nil {
		st.Leases, st.LeasedHits, st.ReturnedHits = ls.made.Load(), ls.spent.Load(), ls.returned.Load()
	}
	return st
}

// Reset removes what Store remembers of a log that was removed from the shared store. The
// reservation of its lease is gone with the log. So Store neither spends the rest of the lease nor
// gives it back. It does not remember the answers of calls that are under way either.
func (s *Store) Reset(id window.LogID) {
	s.memory.Forget(id.Key)
	if s.leases != nil {
		s.leases.drop(id)
	}
}

// Take implements [window.Store]. It denies from memory, spends leases, and asks the shared
// store for the rest. Without wait it asks the shared store without wait, and not about a group with
// leases. If it cannot decide the group then, it leaves no trace and returns false.
func (s *Store) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if len(checks) == 0 {
		return s.store.Take(ctx, wait, checks, decisions)
	}
	leased, once := false, false
	for i := range checks {
		if checks[i].Mode.Unconditional() {
			if !wait {
				return false, nil
			}
			return true, s.takeUnconditional(ctx, checks, decisions)
		}
		once = once || checks[i].RecordsOnce()
		leased = leased || s.leases != nil && leasable(&checks[i])
	}
	// The clock is read before the shared store is asked, so every answer is newer.
	now := s.clock()
	if once {
		return s.takeOnce(ctx, wait, checks, decisions, now)
	}
	if leased {
		return s.takeLeased(ctx, wait, checks, decisions, now)
	}
	var inline [inlineChecks]denials.Known
	group := groupOf(&inline, len(checks))
	_, answered := s.denies(ctx, checks, decisions, group, now)
	if answered {
		return true, nil
	}
	return s.ask(ctx, wait, checks, decisions, group, now)
}

// takeOnce is Take for a group of which a check may repeat a charge. Only the shared store knows:
// memory would deny a repeat, and a lease would be spent on it.
func (s *Store) takeOnce(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision, now time.Duration) (decided bool, err error) {
	var inline [inlineChecks]denials.Known
	group := groupOf(&inline, len(checks))
	s.memory.Recall(checks, group, now) // what to remember, and no more
	return s.ask(ctx, wait, checks, decisions, group, now)
}

// groupOf returns n zero values, from inline if it has that many.
func groupOf(inline *[inlineChecks]denials.Known, n int) []denials.Known {
	if n > len(inline) {
		return make([]denials.Known, n)
	}
	return inline[:n]
}

// denies fills group with what Store remembers of the checks, and reports whether that
// denies them. If that also answers every check, denies fills decisions and answered is
// true.
func (s *Store) denies(ctx context.Context, checks []window.Check, decisions []window.Decision, group []denials.Known, now time.Duration) (denied, answered bool) {
	denied = s.memory.Recall(checks, group, now)
	answered = denied && ctx.Err() == nil && s.memory.Answer(checks, decisions, group, now)
	if answered {
		s.denied.Add(1)
	}
	return denied, answered
}

// ask asks the shared store. It remembers the answer if that can answer later calls.
func (s *Store) ask(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision, group []denials.Known, now time.Duration) (decided bool, err error) {
	if decided, err = s.store.Take(ctx, wait, checks, decisions); decided && err == nil {
		s.memory.Learn(checks, decisions, group, now, s.clock)
	}
	return decided, err
}

// takeLeased is Take for a group with checks that may have a lease. It spends the leases
// first, and puts everything back if the rest of the group is undecided or denied.
func (s *Store) takeLeased(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision, now time.Duration) (decided bool, err error) {
	// A group that names a log twice gets no lease. The shared store returns the error for
	// an invalid group.
	_, folded := window.Fold(checks)
	plain := ctx.Err() != nil || folded != nil || window.Validate(checks, decisions) != nil
	// Nothing is spent for a group that stays undecided.
	if !wait && (plain || len(checks) > 1 && !s.decides(checks, now)) {
		return false, nil
	}
	var inline [inlineChecks]*lease
	found := inline[:min(len(checks), len(inline))]
	if len(checks) > len(inline) {
		found = make([]*lease, len(checks))
	}
	covered, spent := 0, uint64(0)
	for i := range checks {
		if c := &checks[i]; !plain && leasable(c) {
			if found[i] = s.leases.spend(c, now, wait, &decisions[i]); found[i] != nil {
				covered++
				spent += c.Cost
			}
		}
	}
	decided, allowed := true, covered == len(checks)
	switch {
	case allowed:
	case covered == 0 && !plain && s.answers(ctx, checks, decisions, now): // allocates nothing
	case covered == 0 && !wait:
		return false, nil
	default:
		g := group{checks: checks, decisions: decisions, leases: slices.Clone(found), plain: plain}
		if decided, allowed, err = s.takeRest(ctx, wait, &g, now); !allowed {
			s.putBackAfter(err, &g, now)
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

// decides reports whether Store can decide a group without the shared store: leases cover
// all checks, or memory answers the others and denies one of them. It spends nothing.
func (s *Store) decides(checks []window.Check, now time.Duration) bool {
	rest, denied := false, false
	for i := range checks {
		c := &checks[i]
		if leasable(c) && s.leases.covers(c, now) {
			continue
		}
		rest = true
		var known [1]denials.Known
		if s.memory.Recall(checks[i:i+1], known[:], now) {
			denied = true
		}
		var d window.Decision
		if !s.memory.AnswerCheck(c, known[0], now, &d) {
			return false
		}
	}
	return denied || !rest
}

// answers denies a group from memory, and reports whether it did.
func (s *Store) answers(ctx context.Context, checks []window.Check, decisions []window.Decision, now time.Duration) bool {
	var inline [inlineChecks]denials.Known
	_, answered := s.denies(ctx, checks, decisions, groupOf(&inline, len(checks)), now)
	return answered
}

// A group is the checks of one call, of which leases answer a part.
type group struct {
	checks    []window.Check
	decisions []window.Decision
	leases    []*lease // one for each check; nil: no lease answers the check
	plain     bool     // no more leases may be made for it
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

// putBack puts back what a group has spent of its leases.
func (s *Store) putBack(g *group, now time.Duration) {
	for i, l := range g.leases {
		if l != nil {
			s.leases.putBack(l, &g.checks[i], now, &g.decisions[i])
		}
	}
}

// putBackAfter is putBack for a group that is not allowed. If some scopes have failed, the caller
// may still allow it: then the leases are put back when it takes the rest back.
func (s *Store) putBackAfter(err error, g *group, now time.Duration) {
	part, ok := errors.AsType[*window.PartError](err)
	if !ok || part.Undo == nil {
		s.putBack(g, now)
		return
	}
	undo := part.Undo
	part.Undo = func(ctx context.Context) {
		undo(ctx)
		s.putBack(g, now)
	}
}

// takeRest decides the checks that leases do not answer, and reports whether they are
// allowed. On an error, allowed is false.
func (s *Store) takeRest(ctx context.Context, wait bool, g *group, now time.Duration) (decided, allowed bool, err error) {
	rest, at := g.rest()
	if len(rest) == 0 {
		return true, true, nil
	}
	decisions := make([]window.Decision, len(rest))
	if len(rest) == len(g.checks) {
		decisions = g.decisions // its length may be wrong, which the shared store reports
	}
	remembered := make([]denials.Known, len(rest))
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
			_, err = s.ask(ctx, window.MayWait, rest, decisions, remembered, now)
		}
		if err != nil {
			g.takePart(err, decisions, at)
			return true, false, err
		}
	}
	for i, to := range at {
		g.decisions[to] = decisions[i]
		if leasable(&rest[i]) {
			s.leases.learn(&rest[i], &decisions[i])
		}
	}
	return true, window.GroupAllowed(rest, decisions), nil
}

// takePart takes the decisions of the scopes that have not failed, now and after they were taken
// back.
func (g *group) takePart(err error, decisions []window.Decision, at []int) {
	part, ok := errors.AsType[*window.PartError](err)
	if !ok {
		return
	}
	take := func() {
		for i, to := range at {
			g.decisions[to] = decisions[i]
		}
	}
	take()
	if undo := part.Undo; undo != nil {
		part.Undo = func(ctx context.Context) {
			undo(ctx)
			take()
		}
	}
}

// reserve makes a lease for the first check of the rest with enough demand. A group gets
// one new lease at most, because each costs a round trip.
func (s *Store) reserve(ctx context.Context, g *group, rest []window.Check, at []int, now time.Duration) (made bool, err error) {
	if g.plain {
		return false, nil
	}
	g.plain = true
	for i := range rest {
		c := &rest[i]
		if !leasable(c) {
			continue
		}
		more := s.leases.want(c, now)
		if more == 0 {
			continue
		}
		l, err := s.leases.reserve(ctx, c, more, &g.decisions[at[i]])
		g.leases[at[i]] = l
		if l != nil {
			s.memory.Forget(c.Key) // the reservation has changed what remains
		}
		return l != nil, err
	}
	return false, nil
}

// takeUnconditional asks the shared store about a group with a check of mode Always or
// Refund. Then it forgets the logs: a refund ends a denial, and a charge changes what
// remains. Store does not remember answers of calls at the same time either, because the
// shared store may have decided them earlier.
func (s *Store) takeUnconditional(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	if s.leases != nil {
		for i := range checks {
			if checks[i].Mode == window.Refund {
				// A refund takes the newest hits, which are those of the lease.
				s.leases.endNow(ctx, checks[i].Log())
			}
		}
	}
	_, err := s.store.Take(ctx, window.MayWait, checks, decisions)
	for i := range checks {
		s.memory.Forget(checks[i].Key)
	}
	return err
}
