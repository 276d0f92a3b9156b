package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// An ahead is a simple store that can reserve ahead. It supports the modes Enforce and
// Refund, and no precision. Its clock is the time of the test's bubble.
type ahead struct {
	start time.Time

	mu          sync.Mutex
	logs        map[window.LogID]*ledger
	calls       int // of all methods
	returns     int
	err         error         // of every call
	there, back time.Duration // how long a call takes on each way
}

// slow sets how long a call takes on its way to the store and back.
func (s *ahead) slow(there, back time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.there, s.back = there, back
}

// fail lets every call fail.
func (s *ahead) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// counts returns the number of calls, and how many of them gave hits back.
func (s *ahead) counts() (calls, returns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, s.returns
}

// A ledger has the charges of one log, in the order of time, and their sum.
type ledger struct {
	charges []*charge
	used    uint64
}

// A charge counts until one window after its time. The time may be in the future.
type charge struct {
	at   time.Duration
	cost uint64
}

func newAhead() *ahead {
	return &ahead{start: time.Now(), logs: make(map[window.LogID]*ledger)}
}

func (s *ahead) now() time.Duration { return time.Since(s.start) }

// log removes expired charges from a log, and returns the log.
func (s *ahead) log(id window.LogID) *ledger {
	l := s.logs[id]
	if l == nil {
		l = new(ledger)
		s.logs[id] = l
	}
	for len(l.charges) > 0 && (l.charges[0].at <= s.now()-id.Window || l.charges[0].cost == 0) {
		l.take(l.charges[0], l.charges[0].cost)
		l.charges = l.charges[1:]
	}
	for n := len(l.charges); n > 0 && l.charges[n-1].cost == 0; n-- {
		l.charges = l.charges[:n-1]
	}
	return l
}

// add appends a charge to a ledger, at the time of the newest charge or later.
func (l *ledger) add(c *charge) *charge {
	if n := len(l.charges); n > 0 {
		c.at = max(c.at, l.charges[n-1].at)
	}
	l.charges = append(l.charges, c)
	l.used += c.cost
	return c
}

// take removes a part of a charge.
func (l *ledger) take(c *charge, cost uint64) {
	c.cost -= cost
	l.used -= cost
}

func (s *ahead) room(c *window.Check) bool {
	used := s.log(c.Log()).used
	return used < c.Limit.Hits && c.Cost <= c.Limit.Hits-used
}

func (s *ahead) answer(c *window.Check, room bool) window.Decision {
	log := s.log(c.Log())
	used := log.used
	d := window.Decision{Allowed: room, Remaining: c.Limit.Hits - min(used, c.Limit.Hits)}
	wait := func(cost uint64) time.Duration {
		left := used
		for _, e := range log.charges {
			if left -= e.cost; left+cost <= c.Limit.Hits {
				return e.at + c.Limit.Window - s.now()
			}
		}
		return 0
	}
	if n := len(log.charges); n > 0 {
		d.ResetAfter = log.charges[n-1].at + c.Limit.Window - s.now()
	}
	if d.Remaining == 0 {
		d.UnitAfter = wait(1)
	}
	switch {
	case room:
	case c.Cost > c.Limit.Hits:
		d.Never = true
	default:
		d.RetryAfter = wait(max(c.Cost, 1))
	}
	return d
}

// call runs f, with the delays and the error that the test has set.
func (s *ahead) call(f func() error) error {
	s.mu.Lock()
	there, back := s.there, s.back
	s.mu.Unlock()
	if there > 0 {
		time.Sleep(there)
	}
	s.mu.Lock()
	s.calls++
	err := s.err
	if err == nil {
		err = f()
	}
	s.mu.Unlock()
	if back > 0 {
		time.Sleep(back)
	}
	return err
}

func (s *ahead) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	if ctx.Err() != nil {
		return true, ctx.Err()
	}
	if err := window.Validate(checks, decisions); err != nil {
		return true, err
	}
	return true, s.call(func() error {
		allowed := true
		room := make([]bool, len(checks))
		for i := range checks {
			c := &checks[i]
			if c.Mode == window.Refund {
				s.refund(c)
				room[i] = true
				continue
			}
			room[i] = s.room(c)
			allowed = allowed && room[i]
		}
		for i := range checks {
			if c := &checks[i]; allowed && c.Mode == window.Enforce && c.Cost > 0 {
				s.log(c.Log()).add(&charge{s.now(), c.Cost})
			}
		}
		for i := range checks {
			decisions[i] = s.answer(&checks[i], room[i])
		}
		return nil
	})
}

func (s *ahead) refund(c *window.Check) {
	log, cost := s.log(c.Log()), c.Cost
	for _, e := range slices.Backward(log.charges) {
		back := min(cost, e.cost)
		log.take(e, back)
		cost -= back
	}
}

func (s *ahead) Reserve(_ context.Context, c window.Check, length time.Duration) (d window.Decision, r window.Reservation, err error) {
	err = s.call(func() error {
		room := s.room(&c)
		if room {
			at := s.log(c.Log()).add(&charge{s.now() + length, c.Cost}).at
			r = window.Reservation{Log: c.Key, Window: c.Limit.Window, Instant: int64(at), Cost: c.Cost}
		}
		d = s.answer(&c, room)
		return nil
	})
	return d, r, err
}

func (s *ahead) Return(ctx context.Context, r window.Reservation, cost uint64) (taken uint64, err error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if r.Log == "" {
		return 0, errors.New("nothing was reserved")
	}
	err = s.call(func() error {
		s.returns++
		log := s.log(window.LogID{Key: r.Log, Window: r.Window})
		for _, c := range log.charges {
			if c.at == time.Duration(r.Instant) {
				back := min(cost-taken, c.cost)
				log.take(c, back)
				taken += back
			}
		}
		return nil
	})
	return taken, err
}

func (*ahead) Close() error { return nil }

// remove removes a log, as an operator does.
func (s *ahead) remove(id window.LogID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, id)
}

// count returns the use of a log, and the number of calls.
func (s *ahead) count(id window.LogID) (used uint64, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log(id).used, s.calls
}
