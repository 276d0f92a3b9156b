package oracle

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// Budgets is the oracle of logs with a budget: those of an [Oracle], and a list of reservations for each. Its
// decisions have no waits. All reservations of a log last equally long.
type Budgets struct {
	Oracle  *Oracle
	logs    map[window.LogID]*reservations
	ended   map[window.StreamID]time.Duration // until when it is denied
	streams map[window.StreamID]map[window.LogID]window.Check
}

type reservations struct {
	wrote time.Duration
	list  []reservation
}

type reservation struct {
	stream   window.StreamID
	at, ends time.Duration
	cost     uint64
	expired  bool // it has expired, and a write has reported that
}

// NewBudgets returns an oracle of empty logs, whose clock begins at epoch.
func NewBudgets(epoch time.Duration) *Budgets {
	return &Budgets{New(epoch), make(map[window.LogID]*reservations), make(map[window.StreamID]time.Duration), make(map[window.StreamID]map[window.LogID]window.Check)}
}

// forgotten returns when what was spent at a time does not count any more.
func forgotten(c *window.Check, at time.Duration) time.Duration {
	switch w := c.Limit.Window; c.Limit.Policy {
	case window.Sliding:
		return at + w
	case window.Fixed:
		return at - at%w + w
	case window.SlidingCounter:
		return at - at%w + 2*w
	case window.Calendar:
		for _, bound := range []int64{c.Period.Start, c.Period.End} {
			if end := time.Duration(bound) * time.Second; at < end {
				return end
			}
		}
		return time.Duration(c.Period.Next) * time.Second
	default:
		fill := new(big.Int).Mul(big.NewInt(int64(c.Limit.Hits)), big.NewInt(c.Limit.Window.Microseconds()))
		fill.Div(fill, big.NewInt(int64(c.Limit.Rate)))
		return at + c.Budget.Hold + 2*time.Duration(fill.Int64()+1)*time.Microsecond
	}
}

// at returns what counts of a log at a time, as a check sees it: the time, what is counted, what of it has not expired,
// and the reservation of a stream.
func (b *Budgets) at(clock time.Duration, c *window.Check) (now time.Duration, counts []reservation, counted, reserved uint64, own int) {
	of := b.logs[c.Log()]
	if of == nil {
		of = &reservations{}
		b.logs[c.Log()] = of
	}
	now, own = max(clock, of.wrote), -1
	for _, r := range of.list {
		if r.ends <= now && forgotten(c, r.at) <= now {
			continue
		}
		if r.stream == c.Stream {
			own = len(counts)
		}
		counts = append(counts, r)
		counted += r.cost
		if r.ends > now {
			reserved += r.cost
		}
	}
	return now, counts, counted, reserved, own
}

// withReserved returns the check of the log that asks for room next to what is reserved.
func withReserved(c window.Check, counted uint64) window.Check {
	c.Cost = max(c.Cost, 1) + counted
	return c
}

// Take decides one check with a budget at the time clock.
func (b *Budgets) Take(clock time.Duration, c window.Check) window.Decision {
	clock += b.Oracle.Epoch
	now, counts, counted, _, own := b.at(clock, &c)
	room := own >= 0 || b.Oracle.book(c.Log()).hasRoom(clock, withReserved(c, counted))
	if b.ended[c.Stream] > clock {
		room = false
	}
	var expired window.Expired
	if room && own < 0 && c.Cost > 0 {
		counts = b.pay(clock, now, c, counts)
		at := roundMilli(now + c.Budget.Hold)
		counts = append(counts, reservation{stream: c.Stream, at: at - c.Budget.Hold, ends: at, cost: c.Cost})
		expired = b.write(now, c, counts)
		delete(b.ended, c.Stream)
		if b.streams[c.Stream] == nil {
			b.streams[c.Stream] = make(map[window.LogID]window.Check)
		}
		b.streams[c.Stream][c.Log()] = c
	}
	_, _, counted, reserved, _ := b.at(clock, &c)
	d := b.Oracle.book(c.Log()).answer(clock, c, true)
	d = window.Decision{Allowed: room, Never: !room && c.Cost > c.Limit.Hits, Remaining: d.Remaining - min(d.Remaining, counted), Reserved: reserved, Expired: expired}
	d.Unsettled, d.Repeated = !d.Never && (!room || d.Remaining == 0), room && own >= 0 && c.Cost > 0
	return d
}

// write makes counts what counts of a log, and returns what has expired since the last write.
func (b *Budgets) write(now time.Duration, c window.Check, counts []reservation) (expired window.Expired) {
	of := b.logs[c.Log()]
	for _, r := range of.list {
		if r.ends <= now && !r.expired {
			expired.Add(r.cost)
		}
	}
	for i := range counts {
		counts[i].expired = counts[i].ends <= now
	}
	if of.list, of.wrote = counts, now; len(counts) == 0 {
		of.wrote = 0
	}
	return expired
}

// pay charges a bucket for what has expired.
func (b *Budgets) pay(clock, now time.Duration, c window.Check, counts []reservation) []reservation {
	if c.Limit.Policy != window.TokenBucket {
		return counts
	}
	due := c
	due.Cost = 0
	for _, r := range counts {
		if r.ends <= now {
			due.Cost += r.cost
		}
	}
	b.Oracle.book(c.Log()).charge(clock, due)
	return slices.DeleteFunc(counts, func(r reservation) bool { return r.ends <= now })
}

// rest fills in what is left of a settled log.
func (b *Budgets) rest(clock time.Duration, c window.Check, s window.SettledLog) window.SettledLog {
	_, _, counted, reserved, _ := b.at(clock, &c)
	d := b.Oracle.book(c.Log()).answer(clock, c, true)
	s.Remaining, s.OtherReserved = d.Remaining-min(d.Remaining, counted), reserved
	return s
}

// End ends a stream.
func (b *Budgets) End(clock time.Duration, e window.Ending) (settled []window.SettledLog) {
	clock += b.Oracle.Epoch
	if b.ended[e.Stream] > clock {
		return nil
	}
	deny := e.Deny
	if len(b.streams[e.Stream]) > 0 || len(e.Costs) > 0 && !e.Denied {
		deny = max(deny, window.MinSettled)
	}
	if delete(b.ended, e.Stream); deny > 0 {
		b.ended[e.Stream] = roundMilli(clock + deny)
	}
	for id, c := range b.streams[e.Stream] {
		i := slices.IndexFunc(e.Costs, func(c window.Check) bool { return c.Log() == id })
		if i >= 0 {
			c.Limit, c.Period = e.Costs[i].Limit, e.Costs[i].Period
		} else {
			c.Period = c.Period.At(clock.Microseconds())
		}
		if i >= 0 && e.Costs[i].Mode == window.Enforce {
			i = -1
		}
		now, counts, _, _, own := b.at(clock, &c)
		s := window.SettledLog{Log: id, Cost: i}
		c.Mode = window.Always
		switch {
		case own < 0 && (i < 0 || e.Denied || c.Limit.Policy == window.TokenBucket):
			continue
		case own < 0:
			c.Cost = e.Costs[i].Cost
		default:
			s.Reserved = counts[own].cost
			if c.Cost = s.Reserved; i >= 0 {
				c.Cost = e.Costs[i].Cost
			} else if e.Unreached {
				c.Cost = 0
			} else if c.Budget.PerByte > 0 {
				c.Cost = min(c.Cost, uint64(math.Ceil(float64(e.Bytes)*c.Budget.PerByte)))
			}
			counts = b.pay(clock, now, c, slices.Delete(counts, own, own+1))
			s.Expired = b.write(now, c, counts)
		}
		s.Spent = b.Oracle.book(id).charge(clock, c)
		settled = append(settled, b.rest(clock, c, s))
	}
	for i, c := range e.Costs {
		if _, ok := b.streams[e.Stream][c.Log()]; !ok && !e.Denied && c.Mode != window.Observe {
			c.Mode, c.Budget = window.Always, &window.Budget{Hold: window.MinHold}
			if of := b.logs[c.Log()]; of != nil && len(of.list) > 0 {
				c.Budget.Hold = of.list[0].ends - of.list[0].at
			}
			settled = append(settled, b.rest(clock, c, window.SettledLog{Log: c.Log(), Cost: i, Spent: b.Oracle.book(c.Log()).charge(clock, c)}))
		}
	}
	delete(b.streams, e.Stream)
	return settled
}
