package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

// takeBackTimeout is how long after a request its charges may be taken back. It is shorter
// than the time for which take.lua marks a log, so a denial without the mark is final.
const takeBackTimeout = 200 * time.Millisecond

// reserved returns the reservation of an allowed check, from its answer and the server's
// clock in microseconds. The charge is in the newest slot of the log. The instant is in the
// log's unit.
func reserved(key string, c *window.Check, d *window.Decision, clock int64) window.Reservation {
	newest := clock + d.ResetAfter.Microseconds() - c.Limit.Window.Microseconds()
	return window.Reservation{Log: key, Window: c.Limit.Window, Instant: newest / window.Unit(c.Limit.Window).Microseconds(), Cost: c.Cost}
}

// A piece is one check of a request whose checks are on several slots.
type piece struct {
	check    *window.Check
	decision *window.Decision
	held     window.Reservation // Cost is what was charged; the other fields are those of a sliding log
	ends     int64              // when the period of the charge ends, by the server's clock in microseconds; 0: there is none
	ended    uint32             // of the message
	receipt  held               // what was recorded in its receipt
	err      error
}

// recorded reports whether the piece has recorded something that may have to be taken back.
func (p *piece) recorded() bool { return p.held.Cost > 0 || p.receipt.did != 0 }

// charged notes what the allowed check of a piece has charged at a server's clock. made says
// that its stream holds the cost since now.
func (p *piece) charged(key string, clock int64, made bool) {
	reset := clock + p.decision.ResetAfter.Microseconds()
	switch p.check.Limit.Policy {
	case window.Sliding:
		p.held = reserved(key, p.check, p.decision, clock)
		return
	case window.Fixed, window.Calendar:
		p.ends = reset
	case window.SlidingCounter:
		p.ends = reset - p.check.Limit.Window.Microseconds() // it counts in the next window too
	case window.InFlight:
		if !made {
			return // an earlier request of the stream holds it
		}
	default:
	}
	p.held = window.Reservation{Log: key, Window: p.check.Limit.Window, Cost: p.check.Cost}
}

// takeAcross decides a request whose logs are on several slots. It charges every check by
// itself, in all slots at once. If a check denies the request, it takes back the charges.
func (s *Store) takeAcross(ctx context.Context, deadline int64, ended uint32, checks []window.Check, decisions []window.Decision) error {
	if deadline == 0 {
		return s.takePieces(ctx, ended, checks, decisions)
	}
	bounded, cancel := context.WithTimeout(ctx, time.Duration(deadline-now()))
	defer cancel()
	err := s.takePieces(bounded, ended, checks, decisions)
	if ClassOf(err) == ClassGone && ctx.Err() == nil {
		err = &Error{Class: ClassTimeout, Err: context.DeadlineExceeded} // the caller has not left
	}
	return err
}

// takePieces is takeAcross until ctx is done.
func (s *Store) takePieces(ctx context.Context, ended uint32, checks []window.Check, decisions []window.Decision) error {
	folded, answer := window.Fold(checks)
	to := decisions
	if answer != nil {
		to = make([]window.Decision, len(folded))
	}
	var verdict window.Verdict
	denied := false // a check denies the group whatever the others say
	judge := func(c *window.Check, d *window.Decision) {
		verdict.Add(c.Mode, d.Allowed)
		denied = denied || !d.Allowed && (c.Mode == window.Enforce || c.Mode == window.Always)
	}
	var rounds [3][]*piece // refunds, checks of mode Always, and the others: a store decides in this order
	for i := range folded {
		c := &folded[i]
		if d, ok := window.WithoutLog(c); ok {
			to[i] = d
			judge(c, &d)
			continue
		}
		round := 2
		switch c.Mode {
		case window.Refund:
			round = 0
		case window.Always:
			round = 1
		}
		rounds[round] = append(rounds[round], &piece{check: c, decision: &to[i], ended: ended})
	}
	for _, pieces := range rounds {
		if err := s.askable(ctx, pieces); err != nil {
			return err
		}
		s.askAll(ctx, pieces, denied)
		var err error
		for _, p := range pieces {
			if p.err != nil {
				err = p.err
				continue
			}
			judge(p.check, p.decision)
		}
		if err != nil {
			// The failed checks may have been charged too, but only known charges can be
			// taken back.
			s.giveBack(pieces)
			return err
		}
	}
	if !verdict.Allowed() {
		s.settle(ctx, rounds[2])
	}
	// Decisions describe the logs after the call, also if an earlier round asked the same
	// log.
	for i := range rounds[:2] {
		for _, p := range rounds[i] {
			for _, later := range slices.Concat(rounds[i+1:]...) {
				if later.check.Log() == p.check.Log() && later.check.Limit == p.check.Limit {
					p.decision.Remaining, p.decision.UnitAfter, p.decision.ResetAfter = later.decision.Remaining, later.decision.UnitAfter, later.decision.ResetAfter
				}
			}
		}
	}
	for i, j := range answer {
		decisions[i] = to[j]
	}
	return nil
}

// askable returns an error if the breaker of one of the servers is open. So the others need
// not charge and take back.
func (s *Store) askable(ctx context.Context, pieces []*piece) error {
	if len(pieces) < 2 {
		return nil
	}
	var key []byte
	for _, p := range pieces {
		key = appendKey(key[:0], s.opts.Prefix, p.check.Log())
		n, err := s.nodeFor(ctx, string(key), 0)
		if err != nil {
			return err
		}
		if n.open.Load() {
			return n.refused()
		}
	}
	return nil
}

// askAll asks every piece by itself, all at once. If the request is already denied, the
// pieces are judged and not charged.
func (s *Store) askAll(ctx context.Context, pieces []*piece, denied bool) {
	var all sync.WaitGroup
	for i, p := range pieces {
		if i == len(pieces)-1 {
			s.askOne(ctx, p, denied)
			break
		}
		all.Go(func() { s.askOne(ctx, p, denied) })
	}
	all.Wait()
}

func (s *Store) askOne(ctx context.Context, p *piece, denied bool) {
	m := newMessage()
	m.addCheck(p.check, p.decision)
	group := byte(groupEnds)
	if !p.check.Mode.Unconditional() {
		m.flags = modeReserves | modeAsks
		if denied {
			group |= groupDenied
		}
	}
	s.limit(ctx, m)
	m.ended = p.ended
	m.pack(s.opts.Prefix, group)
	m.route()
	n, err := s.nodeFor(ctx, m.keys[0], m.deadline)
	if err != nil {
		m.free()
		p.err = err
		return
	}
	last := len(m.keys) - 1 // the log; before it may be its receipt
	key, first := m.keys[last], m.keys[0]
	if p.err = n.ask(ctx, m); p.err != nil {
		return
	}
	defer m.free()
	if s.opts.Answered != nil {
		s.opts.Answered(ctx, m.batch)
	}
	if err := m.answer(s.opts.Foreign); err != nil {
		p.err = &Error{Class: ClassReply, Err: err}
		return
	}
	if denied || p.check.Mode.Unconditional() || !p.decision.Allowed || p.check.Cost == 0 {
		return
	}
	if last > 0 {
		p.receipt.key = first
		p.receipt.did, p.receipt.ends = m.receipt(0)
	}
	if !p.decision.Repeated {
		p.charged(key, m.clock, m.logChecks[last].made)
	}
}

// giveBack takes back the charges of pieces, in the background.
func (s *Store) giveBack(pieces []*piece) {
	for _, p := range pieces {
		if p.recorded() {
			s.background(func() {
				if charged, err := s.undo(p); err != nil || !charged {
					return // an error is counted there
				}
				if p.check.Limit.Policy == window.Sliding {
					_, _, _ = s.takeBackOf(context.Background(), p.held, p.held.Cost) // counted there
				} else {
					_, _ = s.restore(context.Background(), p) // counted there
				}
			})
		}
	}
}

// settle takes back the charges of pieces, and updates their decisions. It waits for that as
// long as the caller does.
func (s *Store) settle(ctx context.Context, pieces []*piece) {
	done := make(chan func(), len(pieces)) // each updates a decision
	waiting := 0
	for _, p := range pieces {
		if !p.recorded() {
			continue
		}
		waiting++
		p.decision.Unsettled = true // until it is known to be taken back
		s.background(func() { done <- s.settleOne(p) })
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	for range waiting {
		select {
		case update := <-done:
			update()
		case <-ctx.Done():
			return
		}
	}
}

// settleOne takes back the charge of a piece, and returns the function that updates its
// decision.
func (s *Store) settleOne(p *piece) (update func()) {
	d := p.decision
	switch charged, err := s.undo(p); {
	case err != nil:
		return func() {}
	case !charged:
		return func() { d.Unsettled = false } // nothing was charged, or it stays
	}
	if p.check.Limit.Policy != window.Sliding {
		now, err := s.restore(context.Background(), p)
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
func (s *Store) restore(ctx context.Context, p *piece) (left window.Decision, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	defer func() {
		if err == nil {
			s.counts.takenBack.Add(p.held.Cost)
		} else {
			s.counts.notTakenBack.Add(p.held.Cost)
		}
	}()
	refund := *p.check
	refund.Mode, refund.Once = window.Refund, window.Once{}
	m := newMessage()
	m.addCheck(&refund, &left)
	m.flags, m.restores = modeRestores, p.ends
	m.pack(s.opts.Prefix, groupEnds)
	n := s.single
	if n == nil {
		m.route()
		if n, err = s.nodeFor(ctx, p.held.Log, now()+int64(takeBackTimeout)); err != nil {
			m.free()
			return left, err
		}
	}
	if err := n.ask(ctx, m); err != nil {
		return left, err
	}
	defer m.free()
	if err := m.answer(s.opts.Foreign); err != nil {
		return left, &Error{Class: ClassReply, Err: err}
	}
	return left, nil
}

// takeBackOf takes back up to cost of a reservation, at most once. It returns how much it
// took, and the wait until the log is empty.
func (s *Store) takeBackOf(ctx context.Context, r window.Reservation, cost uint64) (taken uint64, reset time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	defer func() {
		s.counts.takenBack.Add(taken)
		s.counts.notTakenBack.Add(cost - min(taken, cost))
	}()
	// A server whose breaker is open is not asked for this either: waiting for it would
	// delay what other servers can take back.
	n := s.single
	if n == nil {
		if n, err = s.nodeFor(ctx, r.Log, now()+int64(takeBackTimeout)); err != nil {
			return 0, 0, err
		}
	}
	if n.open.Load() {
		return 0, 0, n.refused()
	}
	done, err := n.breaker.Allow()
	if err != nil {
		return 0, 0, n.refused()
	}
	defer func() {
		if c := ClassOf(err); c != "" && c.ofTheNode() {
			done(err)
		} else {
			done(nil)
		}
	}()
	packed := binary.BigEndian.AppendUint16(nil, uint16(window.Unit(r.Window).Microseconds()))
	packed = appendUint48(packed, uint64(r.Window.Microseconds()))
	packed = appendInstant(packed, r.Instant)
	packed = append(packed, byte(cost>>32))
	packed = binary.BigEndian.AppendUint32(packed, uint32(cost))
	args := []any{"evalsha", s.takeBack.sha, 1, r.Log, string(packed)}
	cmd := newOnce(ctx, args)
	err = s.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", s.takeBack.text
		cmd = newOnce(ctx, args)
		err = s.client.Process(ctx, cmd)
	}
	if err != nil {
		return 0, 0, n.failed(ctx, err)
	}
	text, ok := cmd.Val().(string)
	if !ok || len(text) != takenBytes {
		return 0, 0, &Error{Class: ClassReply, Err: fmt.Errorf("reply is %T of %d bytes, want a string of %d", cmd.Val(), len(text), takenBytes)}
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
	begun := s.limit(ctx, m)
	m.pack(s.opts.Prefix, groupEnds)
	n := s.single
	if n == nil {
		m.route()
		if n, err = s.nodeFor(ctx, m.keys[0], m.deadline); err != nil {
			m.free()
			return d, r, s.count(err)
		}
	}
	s.counts.calls.Add(1)
	key, deadline := m.keys[0], m.deadline
	if err := n.ask(ctx, m); err != nil {
		return d, r, s.count(n.inDoubt(err, begun, deadline))
	}
	defer m.free()
	if err := m.answer(s.opts.Foreign); err != nil {
		return d, r, s.count(&Error{Class: ClassReply, Err: err})
	}
	if d = decision[0]; d.Allowed && c.Cost > 0 {
		r = reserved(key, &check[0], &d, m.clock)
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
	if err != nil {
		return 0, s.count(err)
	}
	return taken, nil
}
