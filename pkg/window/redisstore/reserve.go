package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
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

// takeBackOf takes back up to cost of a reservation, at most once. It returns how much it
// took, and the wait until the log is empty.
func (s *Store) takeBackOf(ctx context.Context, r window.Reservation, cost uint64) (taken uint64, reset time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	defer func() { s.counts.notTakenBack.Add(cost - min(taken, cost)) }()
	// A server whose breaker is open is not asked for this either: waiting for it would
	// delay what other servers can take back.
	n, err := s.nodeFor(ctx, r.Log, serverclock.Now()+int64(takeBackTimeout))
	if err != nil {
		return 0, 0, err
	}
	reply, err := runOn[string](ctx, s, n, &s.scripts.takeBack, []string{r.Log}, script.PackTakeBack(r, cost))
	if err != nil {
		return 0, 0, err
	}
	if taken, reset, err = script.ReadTaken(reply, cost); err != nil {
		return 0, 0, &failure.Error{Class: failure.Reply, Err: err}
	}
	return taken, reset, nil
}

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
		return d, r, s.count(&failure.Error{Class: failure.Gone, Err: err})
	}
	m := newMessage()
	m.group.Add(&check[0], &decision[0])
	m.group.Flags = script.Reserves | script.Asks
	m.group.Ahead = uint32(ahead.Microseconds())
	m.deadline, m.patient = s.deadline(ctx)
	m.group.Pack(s.opts.Prefix, false)
	m.route()
	n, err := s.nodeFor(ctx, m.group.Keys[0], m.deadline)
	if err != nil {
		m.free()
		return d, r, s.count(err)
	}
	key := m.group.Keys[0]
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
