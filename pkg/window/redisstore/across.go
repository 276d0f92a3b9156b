package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// takeBackTimeout is how long after a request its charges may be taken back. It is shorter
// than the time for which take.lua marks a log, so a denial without the mark is final.
const takeBackTimeout = 200 * time.Millisecond

// reserved returns the reservation of an allowed check, from its answer and the server's
// clock in microseconds. The charge is in the newest slot of the log. The instant is in the
// log's unit.
func reserved(key string, c *window.Check, d *window.Decision, clock int64) window.Reservation {
	newest := clock + d.ResetAfter.Microseconds() - c.Limit.Window.Microseconds()
	return window.Reservation{Log: key, Window: c.Limit.Window, Instant: newest / packed.Unit(c.Limit.Window).Microseconds(), Cost: c.Cost}
}

// A side is one store of a request whose checks are on several slots or in several stores.
type side struct {
	store    *Store
	ctx      context.Context //nolint:containedctx // of the caller
	ended    uint32          // of the messages
	deadline int64           // of the local clock; 0: none
	priority window.Priority // of the request
	err      error           // why the store does not decide
}

// A piece is one check of a request whose checks are on several slots or in several stores.
type piece struct {
	side     *side
	check    *window.Check
	decision *window.Decision
	// held is the charge: Cost is zero if there is none. Instant is its place: of a sliding log, as
	// of a reservation; of others when the period of the charge ends, by the server's clock in
	// microseconds, or 0 if there is none.
	held window.Reservation
	of   *window.Decision // the piece asks for the present state of a log, for this decision
}

// charged notes what the allowed check of a piece has charged at a server's clock. made says
// that its stream holds the cost since now.
func (p *piece) charged(clock int64, made bool) {
	reset := clock + p.decision.ResetAfter.Microseconds()
	switch p.check.Limit.Policy {
	case window.Sliding:
		p.held = reserved(p.held.Log, p.check, p.decision, clock)
	case window.Fixed, window.Calendar:
		p.held.Instant = reset
	case window.SlidingCounter:
		p.held.Instant = reset - p.check.Limit.Window.Microseconds() // it counts in the next window too
	case window.InFlight:
		if !made {
			return // an earlier request of the stream holds it
		}
	default:
	}
	p.held.Cost = p.check.Cost
}

// takeAcross decides a request whose logs are on several slots. It charges every check by
// itself, in all slots at once. If a check denies the request, it takes back the charges.
func (s *Store) takeAcross(ctx context.Context, deadline int64, ended uint32, checks []window.Check, decisions []window.Decision) error {
	one := side{store: s, ctx: ctx, ended: ended, deadline: deadline}
	p := newPieces(checks, decisions, func(*window.Check) *side { return &one })
	p.decide(ctx, []*side{&one})
	return one.err
}

// pieces are a request that is decided check by check.
type pieces struct {
	rounds    [3][]*piece // refunds, checks of mode Always, and the others: a store decides in this order
	verdict   window.Verdict
	denied    bool // a check denies the group whatever the others say
	folded    []window.Decision
	answer    []int // see window.Fold
	decisions []window.Decision
}

// newPieces returns the pieces of a request. of tells the side of a check. The pieces have no
// receipts: if another piece denied the request, its repeat would be free without a charge.
func newPieces(checks []window.Check, decisions []window.Decision, of func(*window.Check) *side) *pieces {
	folded, answer := window.Fold(checks)
	if answer == nil {
		folded = slices.Clone(checks) // charges are taken back after the caller has got its checks back
	}
	p := &pieces{folded: decisions, answer: answer, decisions: decisions}
	priority := window.PriorityLow
	for i := range folded {
		priority = max(priority, folded[i].Priority)
	}
	if answer != nil {
		p.folded = make([]window.Decision, len(folded))
	}
	for i := range folded {
		c := &folded[i]
		c.Once = window.Once{}
		if d, ok := window.WithoutLog(c); ok {
			p.folded[i] = d
			p.judge(c, &d)
			continue
		}
		round := 2
		switch c.Mode {
		case window.Refund:
			round = 0
		case window.Always:
			round = 1
		}
		s := of(c)
		s.priority = priority
		p.rounds[round] = append(p.rounds[round], &piece{side: s, check: c, decision: &p.folded[i]})
	}
	return p
}

// judge adds the decision on a check to the verdict.
func (p *pieces) judge(c *window.Check, d *window.Decision) {
	p.verdict.Add(c.Mode, d.Allowed)
	p.denied = p.denied || !d.Allowed && (c.Mode == window.Enforce || c.Mode == window.Always)
}

// decide asks all sides at once, round by round. It takes back what the sides have charged that
// fail. If the request is denied, it takes back what the others have charged, and waits for that
// as long as ctx allows. If a side has failed and no other check denies the request, the charges
// stay: see giveBack.
func (p *pieces) decide(ctx context.Context, sides []*side) {
	failed := false
	for _, round := range p.rounds {
		p.ask(sides, round)
		for _, one := range round {
			if one.side.err == nil {
				p.judge(one.check, one.decision)
			}
		}
	}
	for _, one := range slices.Concat(p.rounds[:]...) {
		if one.side.err != nil {
			failed = true
			// The failed checks may have been charged too, but only known charges can be
			// taken back.
			one.abandon()
		}
	}
	if p.denied || !failed && !p.verdict.Allowed() {
		until := now()
		for _, s := range sides {
			if s.deadline == 0 {
				until = now() + int64(longest)
			}
			until = max(until, s.deadline)
		}
		p.settle(ctx, until)
	}
	p.look(sides, p.rounds[0], slices.Concat(p.rounds[1], p.rounds[2]))
	p.look(sides, p.rounds[1], p.rounds[2])
	p.finish()
}

// giveBack takes back what the sides have charged that have decided.
func (p *pieces) giveBack(ctx context.Context) {
	until := now() + int64(takeBackTimeout)
	if d, ok := ctx.Deadline(); ok {
		left := at(d) - now()
		until = min(until, now()+left-max(int64(answerTime), left/answerPart))
	}
	p.settle(ctx, until)
	p.finish()
}

// finish fills in the decisions of checks that were folded.
func (p *pieces) finish() {
	for i, j := range p.answer {
		p.decisions[i] = p.folded[j]
	}
}

// look updates the decisions of a round of which a later round has asked the same log. Decisions
// describe the logs after the call.
func (p *pieces) look(sides []*side, round []*piece, after []*piece) {
	var again []*piece
	for _, one := range round {
		if one.side.err != nil {
			continue
		}
		for _, later := range after {
			switch d := one.decision; {
			case later.check.Log() != one.check.Log():
			case later.check.Limit == one.check.Limit:
				l := later.decision
				d.Remaining, d.UnitAfter, d.ResetAfter = l.Remaining, l.UnitAfter, l.ResetAfter
			default:
				// Under another limit, the log has to be asked again.
				question := *one.check
				question.Mode, question.Cost = window.Refund, 0
				again = append(again, &piece{side: one.side, check: &question, decision: new(window.Decision), of: d})
			}
		}
	}
	if len(again) == 0 {
		return
	}
	p.ask(sides, again)
	for _, one := range again {
		if l := one.decision; one.side.err == nil {
			one.of.Remaining, one.of.UnitAfter, one.of.ResetAfter = l.Remaining, l.UnitAfter, l.ResetAfter
		}
	}
	for _, one := range again {
		one.side.err = nil // the request is decided without the question
	}
}

// ask asks every piece of a round by itself, on all sides at once. If the request is already
// denied, the pieces are judged and not charged.
func (p *pieces) ask(sides []*side, round []*piece) {
	var all sync.WaitGroup
	for i, s := range sides {
		var own []*piece
		for _, one := range round {
			if one.side == s && s.err == nil {
				own = append(own, one)
			}
		}
		switch {
		case len(own) == 0:
		case i == len(sides)-1:
			s.ask(own, p.denied)
		default:
			all.Go(func() { s.ask(own, p.denied) })
		}
	}
	all.Wait()
}

// askable returns an error if the breaker of one of the servers is open. So the others need not
// charge and take back.
func (s *side) askable(own []*piece) error {
	if s.store.single != nil || len(own) < 2 {
		return nil // the only server refuses the messages itself
	}
	var key []byte
	for _, p := range own {
		key = appendKey(key[:0], s.store.opts.Prefix, p.check.Log())
		n, err := s.store.nodeFor(s.ctx, string(key), s.deadline)
		if err != nil {
			return err
		}
		if n.open.Load() {
			return n.refused()
		}
	}
	return nil
}

// ask asks the servers of a side. The pieces for one server share a call.
func (s *side) ask(own []*piece, denied bool) {
	if s.err = s.askable(own); s.err != nil {
		return
	}
	messages := make([]*message, len(own))
	keys := make([]string, len(own)) // as they were sent
	to := make(map[*node][]*message, 1)
	for i, p := range own {
		m := newMessage()
		m.addCheck(p.check, p.decision)
		group := byte(groupEnds)
		if !p.check.Mode.Unconditional() {
			m.flags = modeReserves | modeAsks
			if denied {
				group |= groupDenied
			}
		}
		m.deadline, m.ended, m.priority = s.deadline, s.ended, s.priority
		m.pack(s.store.opts.Prefix, group)
		m.route()
		n, err := s.store.nodeFor(s.ctx, m.keys[0], m.deadline)
		if err != nil {
			m.free()
			s.err = err
			continue
		}
		messages[i], keys[i] = m, m.keys[0]
		to[n] = append(to[n], m)
	}
	for n, those := range to {
		if err := n.queueAll(those); err != nil {
			s.err = err
			for i, m := range messages {
				if slices.Contains(those, m) {
					messages[i] = nil
					m.free()
				}
			}
		}
	}
	for i, m := range messages {
		if m == nil {
			continue
		}
		err := s.store.wait(s.ctx, m)
		if err == nil {
			err = s.take(own[i], m, keys[i], denied)
		}
		if err != nil {
			s.err = err
		}
	}
}

// take takes the answer to a piece. key is the name of its log.
func (s *side) take(p *piece, m *message, key string, denied bool) error {
	defer m.free()
	if err := s.store.read(s.ctx, m); err != nil {
		return err
	}
	if denied || p.check.Mode.Unconditional() || !p.decision.Allowed || p.check.Cost == 0 {
		return nil
	}
	p.held.Log, p.held.Window = key, p.check.Limit.Window
	p.charged(m.clock, m.logChecks[0].made)
	return nil
}

// abandon takes back the charge of a piece whose side has failed, in the background.
func (p *piece) abandon() {
	if p.held.Cost == 0 {
		return
	}
	s := p.side.store
	s.background(func() {
		if p.check.Limit.Policy == window.Sliding {
			_, _, _ = s.takeBackOf(context.Background(), p.held, p.held.Cost) // counted there
		} else {
			_, _ = s.restore(p) // counted there
		}
	})
}

// settle takes back the charges of the sides that have decided, and updates their decisions. It
// waits for that until an instant of the local clock, and no longer than ctx allows.
func (p *pieces) settle(ctx context.Context, until int64) {
	done := make(chan func(), len(p.rounds[2])) // each updates a decision
	waiting := 0
	for _, one := range p.rounds[2] {
		if one.held.Cost == 0 || one.side.err != nil {
			continue
		}
		waiting++
		one.decision.Unsettled = true // until it is known to be taken back
		one.side.store.background(func() { done <- one.settle() })
	}
	if waiting == 0 {
		return
	}
	timer := time.NewTimer(time.Duration(until - now()))
	defer timer.Stop()
	for range waiting {
		select {
		case update := <-done:
			update()
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// settle takes back the charge of a piece, and returns the function that updates its decision.
func (p *piece) settle() (update func()) {
	d, s := p.decision, p.side.store
	if p.check.Limit.Policy != window.Sliding {
		now, err := s.restore(p)
		if err != nil {
			return func() {}
		}
		return func() {
			d.Remaining, d.UnitAfter, d.ResetAfter, d.Unsettled = now.Remaining, now.UnitAfter, now.ResetAfter, false
		}
	}
	taken, reset, err := s.takeBackOf(context.Background(), p.held, p.held.Cost)
	if err != nil || taken == 0 {
		return func() {}
	}
	return func() {
		d.Remaining += taken
		// UnitAfter told when the oldest hit expires, which is this charge if the
		// log is empty now. Otherwise it is right, or a hit of the meantime is the
		// oldest and it is too short by that time.
		d.UnitAfter, d.ResetAfter = min(d.UnitAfter, reset), reset
		d.Unsettled = taken < p.held.Cost
	}
}

// restore gives back the charge of a piece, whose policy is not the sliding log: at most once,
// and only if the period in which it was charged still counts. It returns how the log is then.
func (s *Store) restore(p *piece) (left window.Decision, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), takeBackTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			s.counts.notTakenBack.Add(p.held.Cost)
		}
	}()
	refund := *p.check
	refund.Mode, refund.Cost = window.Refund, p.held.Cost
	m := newMessage()
	m.addCheck(&refund, &left)
	m.flags, m.restores, m.priority = modeRestores, p.held.Instant, window.PriorityHigh
	m.pack(s.opts.Prefix, groupEnds)
	m.route()
	n, err := s.nodeFor(ctx, p.held.Log, now()+int64(takeBackTimeout))
	if err != nil {
		m.free()
		return left, err
	}
	_, err = s.ask(ctx, n, m)
	return left, err
}

// takeBackOf takes back up to cost of a reservation, at most once. It returns how much it
// took, and the wait until the log is empty.
func (s *Store) takeBackOf(ctx context.Context, r window.Reservation, cost uint64) (taken uint64, reset time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	defer func() { s.counts.notTakenBack.Add(cost - min(taken, cost)) }()
	// A server whose breaker is open is not asked for this either: waiting for it would
	// delay what other servers can take back.
	n, err := s.nodeFor(ctx, r.Log, now()+int64(takeBackTimeout))
	if err != nil {
		return 0, 0, err
	}
	packed := binary.BigEndian.AppendUint16(nil, uint16(packed.Unit(r.Window).Microseconds()))
	packed = appendUint48(packed, uint64(r.Window.Microseconds()))
	packed = appendInstant(packed, r.Instant)
	packed = append(packed, byte(cost>>32))
	packed = binary.BigEndian.AppendUint32(packed, uint32(cost))
	text, err := runOn[string](ctx, s, n, &s.takeBack, r.Log, string(packed))
	if err != nil {
		return 0, 0, err
	}
	if len(text) != takenBytes {
		return 0, 0, &Error{Class: ClassReply, Err: fmt.Errorf("reply has %d bytes, want %d", len(text), takenBytes)}
	}
	micros := bigEndian(text[5:])
	if taken = bigEndian(text[:5]); taken > cost || micros > maxMicros {
		return 0, 0, &Error{Class: ClassReply, Err: fmt.Errorf("%d hits were taken back of %d, and the log is empty after %d microseconds", taken, cost, micros)}
	}
	return taken, time.Duration(micros) * time.Microsecond, nil
}

// takenBytes is the size of takeback.lua's answer for a log.
const takenBytes = 5 + 7

// Reserve charges a check of mode [window.Enforce] ahead of time. The charge is recorded at
// the server's clock plus ahead, which is from 0 to [window.MaxAhead]. So the caller can
// spend it until then, and it counts for a whole window after that. If the check is denied,
// r is zero. For a second or two, denials of the log by checks with a lease are
// [window.Decision.Unsettled]. Errors are those of [Store.Take].
func (s *Store) Reserve(ctx context.Context, c window.Check, ahead time.Duration) (d window.Decision, r window.Reservation, err error) {
	check, decision := [1]window.Check{c}, [1]window.Decision{}
	if err := window.Validate(check[:], decision[:]); err != nil {
		return d, r, fmt.Errorf("redisstore: %w", err)
	}
	if c.Mode != window.Enforce || ahead < 0 || ahead > window.MaxAhead {
		return d, r, fmt.Errorf("redisstore: %w: a reservation of mode %v, %v ahead; want %v and 0 to %v", window.ErrBadCheck, c.Mode, ahead, window.Enforce, window.MaxAhead)
	}
	if d, ok := window.WithoutLog(&c); ok {
		return d, r, nil
	}
	if err := ctx.Err(); err != nil {
		return d, r, s.count(&Error{Class: ClassGone, Err: err})
	}
	m := newMessage()
	m.addCheck(&check[0], &decision[0])
	m.flags = modeReserves | modeAsks
	m.ahead = uint32(ahead.Microseconds())
	m.deadline, m.patient = s.deadline(ctx)
	m.pack(s.opts.Prefix, groupEnds)
	m.route()
	n, err := s.nodeFor(ctx, m.keys[0], m.deadline)
	if err != nil {
		m.free()
		return d, r, s.count(err)
	}
	key := m.keys[0]
	clock, err := s.ask(ctx, n, m)
	if err != nil {
		return d, r, s.count(err)
	}
	if d = decision[0]; d.Allowed && c.Cost > 0 {
		r = reserved(key, &check[0], &d, clock)
	}
	return d, r, nil
}

// Return gives back up to cost of a reservation, from exactly the entries that it has
// recorded, and returns how much it gave back. It tries once. After an error, the cost may
// still be charged or not.
func (s *Store) Return(ctx context.Context, r window.Reservation, cost uint64) (taken uint64, err error) {
	if cost = min(cost, r.Cost); cost == 0 {
		return 0, nil
	}
	taken, _, err = s.takeBackOf(ctx, r, cost)
	return taken, s.count(err)
}
