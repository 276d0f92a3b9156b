package memstore

import (
	"context"
	"fmt"
	"hash/maphash"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// inlineChecks is the most checks that a group may have without an allocation. Few
// requests have more.
const inlineChecks = 4

// Take implements [window.Store]. It waits only for short locks, so it always decides. If
// ctx is already done, Take returns its error and charges nothing. For checks that keep
// the contract the only other error is [ErrFull], if the store has bounds.
func (s *Store) Take(ctx context.Context, _ bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if err := window.Validate(checks, decisions); err != nil {
		return true, fmt.Errorf("memstore: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return true, fmt.Errorf("memstore: %w", err)
	}
	return true, s.take(checks, decisions)
}

// take decides checks that keep the contract.
func (s *Store) take(checks []window.Check, decisions []window.Decision) error {
	if len(checks) == 1 {
		switch c := &checks[0]; {
		case c.Stream == 0 && !c.RecordsOnce():
			return s.takeOne(c, &decisions[0])
		case c.Stream != 0 && c.Budget == nil && !c.Mode.Unconditional():
			return s.takeInFlight(c, &decisions[0], nil)
		case c.Budget != nil:
			return s.takeReserving(c, &decisions[0])
		}
	}
	folded, answer := window.Fold(checks)
	switch {
	case answer == nil && !needsMore(checks):
		return s.takeGroup(checks, decisions, nil)
	case answer == nil:
		return s.takeMore(checks, decisions)
	}
	answers := make([]window.Decision, len(folded))
	if err := s.takeMore(folded, answers); err != nil {
		return err
	}
	for i, j := range answer {
		decisions[i] = answers[j]
		answers[j].Expired = window.Expired{} // each is reported once
	}
	return nil
}

// takeOne is takeGroup for the most frequent group: one check.
func (s *Store) takeOne(c *window.Check, d *window.Decision) error {
	if answer, ok := window.WithoutLog(c); ok {
		*d = answer
		return nil
	}
	var group [1]checkState // makeRoom does not drop the logs of the group
	a := &group[0]
	s.locate(a, c)
	a.shard.mu.Lock()
	defer a.shard.mu.Unlock()

	now := s.clock().Microseconds()
	if !covered(c, now) {
		return errPeriod
	}
	a.look(c, now)
	var verdict window.Verdict
	a.judge(c, &verdict)
	a.charged = c.Mode.Charged(verdict.Allowed(), a.room)
	if a.charged {
		if !a.fits(c) {
			if err := a.shard.makeRoomOf(c.Key, a.need(c), now, group[:]); err != nil {
				return err
			}
		}
		a.record(c, now)
	}
	a.answer(c, d)
	return nil
}

// takeReserving is takeGroup for one check with a budget.
//
//go:noinline
func (s *Store) takeReserving(c *window.Check, d *window.Decision) error {
	more := scratches.Get().(*scratch)
	err := s.takeInFlight(c, d, &more.reserved[0])
	more.reserved[0].log = nil // not to keep it from the collector
	scratches.Put(more)
	return err
}

// takeInFlight is takeGroup for one check of a stream that no mode records unconditionally: in flight, or with what is
// reserved of its log.
func (s *Store) takeInFlight(c *window.Check, d *window.Decision, reserved *reservedLog) error {
	if answer, ok := window.WithoutLog(c); ok {
		*d = answer
		return nil
	}
	var (
		a       checkState
		flight  = streamState{id: c.Stream}
		verdict window.Verdict
	)
	touched := 1<<s.locate(&a, c) | s.locateStream(&flight)
	a.reserved = reserved
	s.lock(touched)
	defer s.unlock(touched)

	now := s.clock().Microseconds()
	if !covered(c, now) {
		return errPeriod
	}
	flight.look()
	flight.inform(c, &a, now)
	a.lookBoth(c, now)
	a.judge(c, &verdict)
	if a.charged = c.Mode.Charged(verdict.Allowed(), a.room); a.charged {
		if !flight.fits(c, &a) {
			if err := s.makeRoomInFlight(c, &a, &flight, touched, now); err != nil {
				return err
			}
		}
		if reserved != nil {
			a.reserve(c, now)
		} else {
			a.record(c, now)
		}
		flight.record(c, &a, now)
	}
	if reserved != nil {
		reserved.state.Answer(&a.state, c, a.room, d)
	} else {
		a.state.Answer(c, a.room, d)
	}
	return nil
}

// makeRoomInFlight is makeRoom for takeInFlight.
//
//go:noinline
func (s *Store) makeRoomInFlight(c *window.Check, a *checkState, flight *streamState, touched uint64, now int64) error {
	group := [3]checkState{*a, {log: flight.log}} // makeRoom does not drop their logs
	more := extra{flight: *flight}
	if a.reserved != nil {
		more.reserved, group[2].log = []reservedLog{*a.reserved}, a.reserved.log
	}
	return s.makeRoom([]window.Check{*c}, group[:], &more, touched, now)
}

// takeMore is takeGroup for checks that may have a stream or idempotency records. What it needs besides is not
// a variable of takeGroup, where it would slow other groups down.
//
//go:noinline
func (s *Store) takeMore(checks []window.Check, decisions []window.Decision) error {
	var more extra
	err := s.takeGroup(checks, decisions, &more)
	if more.scratch != nil {
		clear(more.reserved) // not to keep logs from the collector
		scratches.Put(more.scratch)
	}
	return err
}

// takeGroup decides checks of which no two have the same log and mode. more is new, or nil if
// none of them has a stream or an idempotency record.
func (s *Store) takeGroup(checks []window.Check, decisions []window.Decision, more *extra) error {
	var inline [inlineChecks]checkState
	group := inline[:]
	states := len(checks)
	if more != nil {
		states += 1 + len(checks) // those of the stream and of the idempotency records, whose logs makeRoom does not drop
	}
	if states > inlineChecks {
		group = make([]checkState, states)
	}
	group = group[:states]

	var verdict window.Verdict
	touched, unconditional := s.locateGroup(checks, group, decisions, &verdict)
	if more != nil {
		touched |= s.locateStreamOf(&more.flight, checks, group) | s.onceRecordsOf(more, checks, group)
		more.reservedOf(checks, group)
	}
	s.lock(touched)
	defer s.unlock(touched)

	// The clock is read under the locks, so it is not before what another group has just
	// recorded.
	now := s.clock().Microseconds()
	if more != nil {
		more.look(checks, group, now, unconditional)
	}
	if unconditional {
		if err := s.recordUnconditional(checks, group, more, touched, now, &verdict); err != nil {
			return err
		}
	}
	if err := judgeRest(checks, group, now, &verdict); err != nil {
		return err // nothing of the group is charged yet
	}
	allowed := verdict.Allowed()
	for i := range checks {
		group[i].charged = checks[i].Mode.Charged(allowed, group[i].room)
	}
	if more != nil {
		more.settle(group)
	}
	if !unconditional {
		if err := s.makeRoom(checks, group, more, touched, now); err != nil {
			return err
		}
	}
	recordRest(checks, group, now)
	if more != nil {
		more.record(checks, group, now)
	}
	for i := range checks {
		c, a := &checks[i], &group[i]
		if a.shard == nil {
			continue
		}
		if unconditional {
			a.look(c, now) // another check of the group may have written to the log
		}
		if a.reserved != nil {
			a.reserved.state.Answer(&a.state, c, a.room, &decisions[i])
			continue
		}
		a.answer(c, &decisions[i])
		decisions[i].Repeated = a.paid
	}
	return nil
}

// recordRest records the checks that are to be charged, except those that were recorded before the verdict.
func recordRest(checks []window.Check, group []checkState, now int64) {
	for i := range checks {
		switch c, a := &checks[i], &group[i]; {
		case a.shard == nil || !a.charged || c.Mode.Unconditional():
		case a.reserved != nil:
			a.reserve(c, now)
		default:
			a.record(c, now)
		}
	}
}

// lookBoth reads the log, and what is reserved of it.
func (a *checkState) lookBoth(c *window.Check, now int64) {
	a.look(c, now)
	if a.reserved != nil {
		a.reserved.look(a, c, now)
	}
}

// judgeRest judges the checks whose charges depend on the verdict.
func judgeRest(checks []window.Check, group []checkState, now int64, verdict *window.Verdict) error {
	for i := range checks {
		if c, a := &checks[i], &group[i]; a.shard != nil && !c.Mode.Unconditional() {
			if !covered(c, now) {
				return errPeriod
			}
			a.lookBoth(c, now)
			a.judge(c, verdict)
		}
	}
	return nil
}

// locateGroup finds the shards of the logs of checks, and answers the checks that need no log.
// touched has a bit for every shard. unconditional says whether a check with a log has such a mode.
func (s *Store) locateGroup(checks []window.Check, group []checkState, decisions []window.Decision, verdict *window.Verdict) (touched uint64, unconditional bool) {
	for i := range checks {
		c := &checks[i]
		if answer, ok := window.WithoutLog(c); ok {
			decisions[i] = answer
			verdict.Add(c.Mode, answer.Allowed)
			continue
		}
		touched |= 1 << s.locate(&group[i], c)
		unconditional = unconditional || c.Mode.Unconditional()
	}
	return touched, unconditional
}

// errPeriod is the error of a group with a period that contradicts the store's clock.
var errPeriod = fmt.Errorf("memstore: %w", window.ErrPeriod)

// covered reports whether the period of a check is of use at the time now.
func covered(c *window.Check, now int64) bool {
	return c.Limit.Policy != window.Calendar || c.Period.Covers(now)
}

// recordUnconditional judges and records the checks that are recorded before the verdict is known.
// They cannot be taken back. So room is made for all checks.
func (s *Store) recordUnconditional(checks []window.Check, group []checkState, more *extra, touched uint64, now int64, verdict *window.Verdict) error {
	for i := range checks {
		if c, a := &checks[i], &group[i]; a.shard != nil {
			if !covered(c, now) {
				return errPeriod // before the reports of the group are charged
			}
			a.lookBoth(c, now)
			a.charged = true
		}
	}
	if err := s.makeRoom(checks, group, more, touched, now); err != nil {
		return err
	}
	recordFirst(window.Refund, checks, group, now, verdict)
	recordFirst(window.Always, checks, group, now, verdict)
	return nil
}

// recordFirst judges and records the checks of a mode that is recorded whatever the group
// decides.
func recordFirst(m window.Mode, checks []window.Check, group []checkState, now int64, verdict *window.Verdict) {
	for i := range checks {
		if c, a := &checks[i], &group[i]; c.Mode == m && a.shard != nil {
			a.look(c, now)
			a.judge(c, verdict)
			a.record(c, now)
		}
	}
}

// A checkState is what deciding one check needs.
type checkState struct {
	shard    *shard // nil if the check needs no log
	log      *log   // nil if the log does not exist yet
	name     name   // of the log
	hash     uint32
	room     bool
	charged  bool
	holdEnds int64        // of the stream of the check: see [packed.State.LookHold]
	paid     bool         // the check is a repeat
	cut      bool         // a part of the cost was not recorded
	ended    int64        // until when the stream of the check is denied, in milliseconds; or 0
	reserved *reservedLog // of a budget
	state    packed.State
}

// locate finds the shard of a check's log and returns its index.
func (s *Store) locate(a *checkState, c *window.Check) uint {
	a.name = kind(c.Scope, c.Limit.Policy) // without a LogID: copying the check takes longer
	if c.Limit.Policy != window.InFlight {
		a.name |= name(c.Limit.Window)
	}
	i, hash := s.spread(maphash.String(s.seed, c.Key) + uint64(a.name)*golden)
	a.shard, a.hash = &s.shards[i], hash
	return i
}

// look finds the log and sets the view of it at the time now, in microseconds.
func (a *checkState) look(c *window.Check, now int64) {
	var packed []byte
	if a.log = a.shard.lookUp(c.Key, a.name, a.hash); a.log != nil {
		packed = a.log.packed
	}
	if c.Limit.Policy == window.Sliding {
		a.state.View().Look(packed, now, c.Limit.Window) // most checks: one call less
		return
	}
	a.state.LookHold(packed, now, c, a.holdEnds)
	if a.ended > 0 {
		a.state.Ended(a.ended)
	}
}

// judge finds out whether the check has room, and adds that to the group's verdict.
func (a *checkState) judge(c *window.Check, group *window.Verdict) {
	switch {
	case a.paid:
		a.room = true
	case a.reserved != nil:
		a.room = a.reserved.state.Room(&a.state, c)
	case c.Limit.Policy != window.InFlight && c.Mode != window.Refund:
		a.room = a.state.View().Room(c.Limit.Hits, c.Cost)
	default:
		a.room = a.state.Room(c)
	}
	group.Add(c.Mode, a.room)
	if a.log != nil && denies(c.Mode) && a.log.limit != packed.LevelOf(c.Limit.Hits) {
		a.log.limit = packed.LevelOf(c.Limit.Hits)
	}
}

// denies reports whether checks of a mode can deny a request. Their limits decide whether
// a log is limiting.
func denies(m window.Mode) bool { return m != window.Observe && m != window.Refund }

// record charges a check, or gives its cost back. It makes a new log only if it records
// something.
func (a *checkState) record(c *window.Check, now int64) {
	switch {
	case c.Cost == 0:
		return
	case c.Mode == window.Refund:
		a.state.Refund(c)
	case c.Mode == window.Always:
		a.cut = a.state.Recordable(c) < c.Cost
		a.state.Charge(c)
	case c.Limit.Policy == window.Sliding:
		a.state.View().Charge(c)
	default:
		a.state.Charge(c)
	}
	a.keep(c, now)
}

// reserve lets the stream of a check hold its cost.
func (a *checkState) reserve(c *window.Check, now int64) {
	a.reserved.state.Reserve(&a.state, c)
	a.reserved.keep(a, c)
	a.keep(c, now)
}

// keep makes the log have the bytes as they are now, and makes a new one if there are any.
func (a *checkState) keep(c *window.Check, now int64) {
	bytes := a.state.Log()
	if a.log != nil {
		a.shard.keep(a.log, bytes)
	}
	if a.log != nil || bytes == nil {
		return
	}
	a.log = a.shard.add(c.Log(), a.hash)
	a.log.limit = noLimit
	if denies(c.Mode) {
		a.log.limit = packed.LevelOf(c.Limit.Hits)
	}
	a.shard.keep(a.log, bytes)
	a.shard.offerNew(a.log, now)
}

// answer fills in the decision on a check, as the log is now.
func (a *checkState) answer(c *window.Check, d *window.Decision) {
	if c.Limit.Policy == window.Sliding {
		a.state.View().Answer(c, a.room, d)
	} else {
		a.state.Answer(c, a.room, d)
	}
	d.Cut = a.cut
}
