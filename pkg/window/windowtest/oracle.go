package windowtest

import (
	"fmt"
	"math"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// An oracle decides as the contract says, by a loop over every charge ever made. It shares
// no idea with the stores: no running sums, no search, no pruning, no bytes, no units. It
// does not use the arithmetic of package window either.
type oracle struct {
	epoch time.Duration // added to every time, see Harness
	logs  map[window.LogID]*ledger
	books map[window.LogID]book // of every policy but Sliding
	paid  map[named]*paid
}

// A named is one ID of [window.Check.Once] in one log.
type named struct {
	log window.LogID
	id  uint64
}

// A paid is the charge of an attempt.
type paid struct {
	ends    time.Duration
	cost    uint64
	repeats int // that were let in
}

// repeats returns the charge that a check repeats, or nil. lives says that a receipt lives,
// whether or not it covers the check.
func (o *oracle) repeats(clock time.Duration, c window.Check) (of *paid, lives bool) {
	p := o.paid[named{c.Log(), c.Once.ID}]
	if c.Once.ID == 0 || c.Cost == 0 || withoutLog(c) || p == nil || clock >= p.ends {
		return nil, false
	}
	if c.Cost > p.cost || p.repeats >= int(c.Once.Repeats) {
		return nil, true
	}
	return p, true
}

// A book is what has happened to one log. Clocks are the store's, as given: the book holds
// them at its last write.
type book interface {
	// hasRoom reports whether the cost of a check has room. The limit is neither zero nor
	// unlimited.
	hasRoom(clock time.Duration, c window.Check) bool
	// charge records a cost, until twice the limit is used.
	charge(clock time.Duration, c window.Check) (recorded uint64)
	// refund gives a cost back, as far as there is something to give back.
	refund(clock time.Duration, c window.Check)
	// answer answers a check as of after the call. The limit is not unlimited.
	answer(clock time.Duration, c window.Check, room bool) window.Decision
}

// A ledger is the book of a sliding log.
type ledger struct {
	win   time.Duration
	wrote time.Duration // time of the last charge or refund of something
	spent []spent       // oldest first
}

type spent struct {
	at   time.Duration // rounded up
	cost uint64        // less what was given back
}

func newOracle(epoch time.Duration) *oracle {
	return &oracle{epoch: epoch, logs: make(map[window.LogID]*ledger), books: make(map[window.LogID]book), paid: make(map[named]*paid)}
}

// book returns a log's book, new if need be.
func (o *oracle) book(id window.LogID) book {
	if id.Policy == window.Sliding {
		return o.ledger(id)
	}
	b := o.books[id]
	if b == nil {
		switch id.Policy {
		case window.TokenBucket:
			b = &bucket{}
		case window.Fixed, window.Calendar:
			b = &periods{}
		case window.SlidingCounter:
			b = &counter{}
		default:
			panic(fmt.Sprintf("windowtest: no oracle for %v", id.Policy))
		}
		o.books[id] = b
	}
	return b
}

// ledger returns a log's ledger, new if need be.
func (o *oracle) ledger(id window.LogID) *ledger {
	l := o.logs[id]
	if l == nil {
		l = &ledger{win: id.Window}
		o.logs[id] = l
	}
	return l
}

// take decides one group at the time clock, of which every check is within its period.
func (o *oracle) take(clock time.Duration, checks []window.Check) []window.Decision {
	decisions, err := o.decide(clock, checks)
	if err != nil {
		panic(err)
	}
	return decisions
}

// decide decides one group at the time clock. The error is nil or [window.ErrPeriod].
func (o *oracle) decide(clock time.Duration, checks []window.Check) ([]window.Decision, error) {
	clock += o.epoch
	var (
		asks = make([]window.Check, len(checks)) // with all of the same log and mode
		room = make([]bool, len(checks))
		paid = make([]*paid, len(checks))
	)
	for i, c := range checks {
		asks[i] = together(checks, c)
	}
	for _, c := range asks {
		if c.Limit.Policy == window.Calendar && !withoutLog(c) {
			if _, ok := o.book(c.Log()).(*periods).chosen(clock, c); !ok {
				return nil, window.ErrPeriod
			}
		}
	}

	// Refunds, in the order of the group.
	for i, c := range asks {
		if c.Mode == window.Refund {
			room[i] = true
			if isFirst(checks, i) && c.Limit.Hits != window.MaxHits {
				o.book(c.Log()).refund(clock, c)
			}
		}
	}
	// What is always charged: judged, then charged, one after the other.
	cut := make([]bool, len(checks))
	for i, c := range asks {
		if c.Mode == window.Always && isFirst(checks, i) {
			has, short := o.hasRoom(clock, c), false
			if c.Limit.Hits != window.MaxHits {
				short = o.book(c.Log()).charge(clock, c) < c.Cost
			}
			for j := range checks {
				if sameAsk(checks[i], checks[j]) {
					room[j], cut[j] = has, short
				}
			}
		}
	}
	// The others are judged together.
	for i, c := range asks {
		if c.Mode != window.Refund && c.Mode != window.Always {
			paid[i], _ = o.repeats(clock, c)
			room[i] = paid[i] != nil || o.hasRoom(clock, c)
		}
	}
	allowed := verdict(asks, room)
	for i, c := range asks {
		if !allowed || !room[i] || c.Mode == window.Refund || c.Mode == window.Always || c.Limit.Hits == window.MaxHits {
			continue
		}
		switch {
		case !isFirst(checks, i):
		case paid[i] != nil:
			paid[i].repeats++
		default:
			o.pay(clock, c)
		}
	}

	decisions := make([]window.Decision, len(checks))
	for i, c := range asks {
		switch {
		case c.Limit.Hits == window.MaxHits:
			decisions[i] = window.Decision{Allowed: true, Remaining: window.MaxHits}
		case withoutLog(c):
			decisions[i] = window.Decision{Never: true}
		default:
			decisions[i] = o.book(c.Log()).answer(clock, c, room[i])
			decisions[i].Repeated, decisions[i].Cut = paid[i] != nil, cut[i]
		}
	}
	return decisions, nil
}

// pay charges a check, and notes its attempt.
func (o *oracle) pay(clock time.Duration, c window.Check) {
	o.book(c.Log()).charge(clock, c)
	if _, lives := o.repeats(clock, c); c.Once.ID != 0 && c.Cost > 0 && !lives {
		o.paid[named{c.Log(), c.Once.ID}] = &paid{ends: clock + c.Once.For, cost: c.Cost}
	}
}

// withoutLog reports whether the answer to a check does not depend on its log.
func withoutLog(c window.Check) bool {
	return c.Limit.Hits == window.MaxHits || c.Limit.Hits == 0 && c.Mode != window.Always && c.Mode != window.Refund
}

func (o *oracle) hasRoom(clock time.Duration, c window.Check) bool {
	switch c.Limit.Hits {
	case window.MaxHits:
		return true // unlimited
	case 0:
		return false
	}
	return o.book(c.Log()).hasRoom(clock, c)
}

// sameAsk reports whether two checks of a group are decided as one.
func sameAsk(a, b window.Check) bool { return a.Mode == b.Mode && a.Log() == b.Log() }

// isFirst reports whether no check before i is decided as one with it.
func isFirst(checks []window.Check, i int) bool {
	for j := range i {
		if sameAsk(checks[i], checks[j]) {
			return false
		}
	}
	return true
}

// together returns c with the cost, the limit and the precision of all checks
// that are decided as one with it, and with the period of the first of them.
func together(checks []window.Check, c window.Check) window.Check {
	c.Cost = 0
	first, hold := true, c.Limit.Window
	for _, other := range checks {
		if !sameAsk(c, other) {
			continue
		}
		if first {
			c.Period, first = other.Period, false
		}
		if other.Cost > math.MaxUint64-c.Cost {
			c.Cost = math.MaxUint64
		} else {
			c.Cost += other.Cost
		}
		c.Precision = min(c.Precision, other.Precision)
		if c.Once != other.Once {
			c.Once = window.Once{}
		}
		hold = max(hold, other.Limit.Window) // differs only in flight
		if other.Limit.Hits == window.MaxHits {
			continue
		}
		if c.Limit.Hits == window.MaxHits {
			c.Limit = other.Limit
		}
		c.Limit.Hits = min(c.Limit.Hits, other.Limit.Hits)
		c.Limit.Rate = min(c.Limit.Rate, other.Limit.Rate)
	}
	c.Limit.Window = hold
	return c
}

// verdict reports whether a group is allowed.
func verdict(asks []window.Check, room []bool) bool {
	some, roomy := false, false // of mode Any
	for i, c := range asks {
		switch c.Mode {
		case window.Enforce, window.Always:
			if !room[i] {
				return false
			}
		case window.Any:
			some = true
			roomy = roomy || room[i]
		}
	}
	return roomy || !some
}

// now is the clock, held at the last charge or refund.
func (l *ledger) now(clock time.Duration) time.Duration { return max(clock, l.wrote) }

// used is the cost of the entries that have not expired.
func (l *ledger) used(clock time.Duration) uint64 {
	var used uint64
	for _, e := range l.spent {
		if l.now(clock) < e.at+l.win {
			used += e.cost
		}
	}
	return used
}

// fits reports whether a cost fits beside what is used. Cost 0 asks for a unit.
func fits(used, cost, limit uint64) bool { return used < limit && cost <= limit-used }

func (l *ledger) hasRoom(clock time.Duration, c window.Check) bool {
	return fits(l.used(clock), c.Cost, c.Limit.Hits)
}

// withinDebt returns as much of a cost as leaves the use at twice the limit at most.
func withinDebt(c window.Check, used uint64) uint64 {
	if used >= 2*c.Limit.Hits {
		return 0
	}
	return min(c.Cost, 2*c.Limit.Hits-used)
}

// charge records a cost, up to twice the limit and to what a log can hold. It returns what it has
// recorded.
func (l *ledger) charge(clock time.Duration, c window.Check) uint64 {
	now := l.now(clock)
	cost := min(withinDebt(c, l.used(clock)), math.MaxUint32-l.used(clock))
	if cost == 0 {
		return 0
	}
	at := now
	if rest := now % l.step(c.Precision); rest != 0 {
		at += l.step(c.Precision) - rest
	}
	for _, e := range l.spent {
		if now < e.at+l.win {
			at = max(at, e.at) // the newest may have been rounded up further
		}
	}
	l.spent = append(l.spent, spent{at, cost})
	l.wrote = now
	return cost
}

// step is what times are rounded up to a multiple of.
func (l *ledger) step(precision time.Duration) time.Duration {
	unit := time.Microsecond
	if l.win > 6*24*time.Hour {
		unit = time.Millisecond
	}
	// First to whole microseconds, of which there are no more than in the window;
	// then to whole units.
	for _, whole := range []time.Duration{time.Microsecond, unit} {
		if rest := precision % whole; rest != 0 {
			precision += whole - rest
		}
	}
	return max(precision, unit)
}

// refund takes the cost back from the newest entries, as far as there are any.
func (l *ledger) refund(clock time.Duration, c window.Check) {
	now, cost := l.now(clock), c.Cost
	for i := len(l.spent) - 1; i >= 0; i-- {
		e := &l.spent[i]
		if back := min(cost, e.cost); back > 0 && now < e.at+l.win {
			e.cost -= back
			cost -= back
			l.wrote = now
		}
	}
	// Remove entries without cost: the next charge need not be as late as they are.
	kept := l.spent[:0]
	for _, e := range l.spent {
		if e.cost > 0 {
			kept = append(kept, e)
		}
	}
	l.spent = kept
}

// answer answers a check as of after the call.
func (l *ledger) answer(clock time.Duration, c window.Check, room bool) window.Decision {
	limit := c.Limit.Hits
	d := window.Decision{Allowed: room}
	if used := l.used(clock); used < limit {
		d.Remaining = limit - used
	}
	d.Never = !room && (limit == 0 || c.Cost > limit)
	if !room && !d.Never {
		d.RetryAfter = l.wait(clock, c.Cost, limit)
	}
	if d.Remaining == 0 && limit > 0 {
		d.UnitAfter = l.wait(clock, 1, limit)
	}
	for _, e := range l.spent {
		if l.now(clock) < e.at+l.win {
			if d.Remaining > 0 && d.UnitAfter == 0 {
				d.UnitAfter = e.at + l.win - clock // the oldest
			}
			d.ResetAfter = max(d.ResetAfter, e.at+l.win-clock)
		}
	}
	return d
}

// wait lets one entry after the other expire until the cost has room. Entries
// are in the order of their times, because time does not run backwards here.
func (l *ledger) wait(clock time.Duration, cost, limit uint64) time.Duration {
	now, used := l.now(clock), l.used(clock)
	for _, e := range l.spent {
		if now < e.at+l.win {
			used -= e.cost
			if fits(used, cost, limit) {
				return e.at + l.win - clock
			}
		}
	}
	panic("windowtest: a cost within the limit must have room in an empty log")
}
