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

// takeBackTimeout bounds how long after a request something may be taken back.
// Less than the time for which take.lua marks a log: a denial that was not marked
// is one that holds.
const takeBackTimeout = 200 * time.Millisecond

// reserved returns what was recorded for a check that was allowed and is the
// newest of its log, by an answer at the server's clock. The instant is in units of
// the log.
func reserved(key string, c *window.Check, d *window.Decision, clock int64) window.Reservation {
	newest := clock + d.ResetAfter.Microseconds() - c.Limit.Window.Microseconds()
	return window.Reservation{Log: key, Window: c.Limit.Window, Instant: newest / window.Unit(c.Limit.Window).Microseconds(), Cost: c.Cost}
}

// A piece is one check of a request whose checks are on several slots.
type piece struct {
	check    *window.Check
	decision *window.Decision
	held     window.Reservation
	err      error
}

// takeAcross decides a request whose logs are on several slots: it charges every
// check by itself, in all slots at once, and takes back what it has charged if
// one denies the request.
func (s *Store) takeAcross(ctx context.Context, deadline int64, checks []window.Check, decisions []window.Decision) error {
	if deadline == 0 {
		return s.takePieces(ctx, checks, decisions)
	}
	bounded, cancel := context.WithTimeout(ctx, time.Duration(deadline-now()))
	defer cancel()
	err := s.takePieces(bounded, checks, decisions)
	if ClassOf(err) == ClassGone && ctx.Err() == nil {
		err = &Error{Class: ClassTimeout, Err: context.DeadlineExceeded} // it was not the caller who left
	}
	return err
}

// takePieces is takeAcross within the time of ctx.
func (s *Store) takePieces(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	folded, answer := window.Fold(checks)
	to := decisions
	if answer != nil {
		to = make([]window.Decision, len(folded))
	}
	var verdict window.Verdict
	denied := false // by one that need not wait for the others
	judge := func(c *window.Check, d *window.Decision) {
		verdict.Add(c.Mode, d.Allowed)
		denied = denied || !d.Allowed && (c.Mode == window.Enforce || c.Mode == window.Always)
	}
	var rounds [3][]*piece // refunds, what always charges, and the others: a store decides in this order
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
		rounds[round] = append(rounds[round], &piece{check: c, decision: &to[i]})
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
			// What is not known to have been charged cannot be taken back.
			s.giveBack(pieces)
			return err
		}
	}
	if !verdict.Allowed() {
		s.settle(ctx, rounds[2])
	}
	// Decisions tell how things stand after the call, also of a log that was asked
	// in an earlier round.
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

// askable is an error if one of the servers is not asked at all: then nothing need
// be charged, and taken back, on the others.
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

// askAll asks for every piece by itself, all at once. If the request is denied
// already, they are judged and not charged.
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
	m.pack(s.opts.Prefix, group)
	m.route()
	n, err := s.nodeFor(ctx, m.keys[0], m.deadline)
	if err != nil {
		m.free()
		p.err = err
		return
	}
	key := m.keys[0]
	if p.err = n.ask(ctx, m); p.err != nil {
		return
	}
	defer m.free()
	if err := m.answer(s.opts.Foreign); err != nil {
		p.err = &Error{Class: ClassReply, Err: err}
		return
	}
	if !denied && !p.check.Mode.Unconditional() && p.decision.Allowed && p.check.Cost > 0 {
		p.held = reserved(key, p.check, p.decision, m.clock)
	}
}

// giveBack takes back what pieces have charged, and waits for nothing.
func (s *Store) giveBack(pieces []*piece) {
	for _, p := range pieces {
		if p.held.Cost > 0 {
			s.background(func() { _, _, _ = s.takeBackOf(context.Background(), p.held, p.held.Cost) }) // counted there
		}
	}
}

// settle takes back what pieces have charged, and tells in their decisions how
// things stand without it. It waits for that as long as the caller does.
func (s *Store) settle(ctx context.Context, pieces []*piece) {
	type settled struct {
		piece *piece
		taken uint64
		reset time.Duration
	}
	done := make(chan settled, len(pieces))
	waiting := 0
	for _, p := range pieces {
		if p.held.Cost == 0 {
			continue
		}
		waiting++
		p.decision.Unsettled = true // until it is known to be back
		s.background(func() {
			taken, reset, err := s.takeBackOf(context.Background(), p.held, p.held.Cost)
			if err != nil {
				taken = 0
			}
			done <- settled{p, taken, reset}
		})
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	for range waiting {
		select {
		case r := <-done:
			if d := r.piece.decision; r.taken > 0 {
				d.Remaining += r.taken
				d.UnitAfter, d.ResetAfter = 0, r.reset
				d.Unsettled = r.taken < r.piece.held.Cost
			}
		case <-ctx.Done():
			return
		}
	}
}

// takeBackOf takes back some of what was reserved, at most once. It returns how
// much of it was still there, and how long the log takes to be empty after it.
func (s *Store) takeBackOf(ctx context.Context, r window.Reservation, cost uint64) (taken uint64, reset time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	defer func() {
		s.counts.takenBack.Add(taken)
		s.counts.notTakenBack.Add(cost - min(taken, cost))
	}()
	// A server that is not asked is not asked for this either: it would hold up
	// what can be given back elsewhere.
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

// takenBytes is what takeback.lua answers for each log.
const takenBytes = 5 + 7

// Reserve charges an ordinary check ahead of time: what it charges is recorded at
// the instant ahead of the server's clock, so that it can be spent until then and
// still counts for a whole window after. The check must be of mode
// [window.Enforce]. If it is denied the reservation is none. For a second
// denials of the log, by checks with a lease, are [window.Decision.Unsettled].
// Errors are those of [Store.Take].
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

// Return gives back what is left of a reservation, exactly the entries that it
// has recorded, and returns how much of it was still there. It is tried once: what
// an error leaves unknown stays charged or is back.
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
