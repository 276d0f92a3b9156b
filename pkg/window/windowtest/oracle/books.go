package oracle

import (
	"fmt"
	"math/big"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// The books of the policies that keep no log of hits. They count in exact fractions and
// take every wait from its definition: the first instant at which the thing is true.

// A bucket is the book of a token bucket.
type bucket struct {
	wrote time.Duration
	level *big.Rat // tokens at wrote; nil: nothing was recorded, so the bucket is full
}

// Whole returns a number of hits as a fraction.
func Whole(hits uint64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(hits), big.NewInt(1))
}

// Refilled returns what comes back in a time.
func Refilled(l window.Limit, in time.Duration) *big.Rat {
	hits := new(big.Int).Mul(big.NewInt(in.Microseconds()), big.NewInt(int64(l.Rate)))
	return new(big.Rat).SetFrac(hits, big.NewInt(l.Window.Microseconds()))
}

// Floor returns the largest whole number up to r.
func Floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) } // Euclid's, for a positive divisor

// Ceil returns the smallest whole number from r on.
func Ceil(r *big.Rat) *big.Int {
	return new(big.Int).Neg(Floor(new(big.Rat).Neg(r)))
}

// at returns the tokens at a time, for the limit of the question.
func (b *bucket) at(clock time.Duration, l window.Limit) *big.Rat {
	burst := Whole(l.Hits)
	if b.level == nil {
		return burst
	}
	level := b.level
	if lowest := new(big.Rat).Neg(Whole(overdraft(l.Hits))); level.Cmp(lowest) < 0 {
		level = lowest // recorded under a larger burst
	}
	level = new(big.Rat).Add(level, Refilled(l, max(clock-b.wrote, 0)))
	if level.Cmp(burst) > 0 {
		return burst
	}
	return level
}

// overdraft returns how far below zero a bucket of a burst may be: no log holds more than [window.MaxHits].
func overdraft(burst uint64) uint64 { return min(burst, window.MaxHits-burst) }

func (b *bucket) set(clock time.Duration, level *big.Rat) {
	b.wrote, b.level = max(clock, b.wrote), level
}

// holds reports whether there are that many tokens at a time.
func (b *bucket) has(clock time.Duration, l window.Limit, tokens uint64) bool {
	return b.at(clock, l).Cmp(Whole(tokens)) >= 0
}

func (b *bucket) hasRoom(clock time.Duration, c window.Check) bool {
	return b.has(clock, c.Limit, max(c.Cost, 1))
}

// charge takes tokens, down to a burst below zero.
func (b *bucket) charge(clock time.Duration, c window.Check) uint64 {
	level := b.at(clock, c.Limit)
	cost := new(big.Int).SetUint64(c.Cost)
	if most := new(big.Int).Add(Floor(level), new(big.Int).SetUint64(overdraft(c.Limit.Hits))); cost.Cmp(most) > 0 {
		cost = most
	}
	if cost.Sign() > 0 {
		b.set(clock, new(big.Rat).Sub(level, new(big.Rat).SetInt(cost)))
	}
	return cost.Uint64()
}

func (b *bucket) refund(clock time.Duration, c window.Check) {
	level, burst := b.at(clock, c.Limit), Whole(c.Limit.Hits)
	if c.Cost == 0 || level.Cmp(burst) >= 0 {
		return
	}
	level = new(big.Rat).Add(level, Whole(c.Cost))
	if level.Cmp(burst) > 0 {
		level = burst
	}
	b.set(clock, level)
}

func (b *bucket) answer(clock time.Duration, c window.Check, room bool) window.Decision {
	d := window.Decision{Allowed: room, Never: !room && (c.Limit.Hits == 0 || c.Cost > c.Limit.Hits)}
	if tokens := Floor(b.at(clock, c.Limit)); tokens.Sign() > 0 {
		d.Remaining = tokens.Uint64()
	}
	if !room && !d.Never {
		d.RetryAfter = b.wait(clock, c.Limit, max(c.Cost, 1))
	}
	if d.Remaining < c.Limit.Hits {
		d.UnitAfter = b.wait(clock, c.Limit, d.Remaining+1)
	}
	d.ResetAfter = b.wait(clock, c.Limit, c.Limit.Hits)
	return d
}

// wait returns the time until there are that many tokens, of which the bucket can hold all.
func (b *bucket) wait(clock time.Duration, l window.Limit, tokens uint64) time.Duration {
	if b.has(clock, l, tokens) {
		return 0
	}
	missing := new(big.Rat).Sub(Whole(tokens), b.at(clock, l))
	parts := missing.Mul(missing, new(big.Rat).SetFrac64(l.Window.Microseconds(), int64(l.Rate)))
	wait := max(b.wrote-clock, 0) + time.Duration(Ceil(parts).Int64())*time.Microsecond
	if !b.has(clock+wait, l, tokens) || b.has(clock+wait-time.Microsecond, l, tokens) {
		panic(fmt.Sprintf("windowtest: %d tokens are not there first after %v", tokens, wait))
	}
	return wait
}

// periods are the book of a fixed window, or of the periods of a calendar.
type periods struct {
	wrote time.Duration
	end   time.Duration // of the period of the last write
	used  uint64        // in it
}

// Early is how long before the start of its first period a check may arrive.
const Early = time.Minute

// chosen returns the end of the period in which a check is, or false if its bounds do not
// fit the clock.
func (p *periods) chosen(clock time.Duration, c window.Check) (time.Duration, bool) {
	if c.Limit.Policy == window.Fixed {
		start := clock / c.Limit.Window * c.Limit.Window
		return start + c.Limit.Window, true
	}
	start := time.Duration(c.Period.Start) * time.Second
	if clock < start-Early {
		return 0, false
	}
	for _, bound := range []int64{c.Period.Start, c.Period.End, c.Period.Next} {
		if end := time.Duration(bound) * time.Second; clock < end {
			return end, true
		}
	}
	return 0, false
}

// counts is what counts at a time.
func (p *periods) counts(clock time.Duration) uint64 {
	if max(clock, p.wrote) < p.end {
		return p.used
	}
	return 0
}

func (p *periods) hasRoom(clock time.Duration, c window.Check) bool {
	return fits(p.counts(clock), c.Cost, c.Limit.Hits)
}

// write records what was used, in the period that ends last: a period that is open stays
// open.
func (p *periods) write(clock time.Duration, c window.Check, used uint64) {
	end, ok := p.chosen(clock, c)
	if !ok {
		panic("windowtest: a write outside the given periods")
	}
	p.used, p.end, p.wrote = used, max(p.end, end), max(clock, p.wrote)
}

func (p *periods) charge(clock time.Duration, c window.Check) uint64 {
	used := p.counts(clock)
	cost := min(withinMaxBelow(c, used), window.MaxHits-used)
	if cost > 0 {
		p.write(clock, c, used+cost)
	}
	return cost
}

func (p *periods) refund(clock time.Duration, c window.Check) {
	used := p.counts(clock)
	if cost := min(c.Cost, used); cost > 0 {
		p.write(clock, c, used-cost)
	}
}

func (p *periods) answer(clock time.Duration, c window.Check, room bool) window.Decision {
	used, limit := p.counts(clock), c.Limit.Hits
	d := window.Decision{Allowed: room, Never: !room && (limit == 0 || c.Cost > limit)}
	if used < limit {
		d.Remaining = limit - used
	}
	if used == 0 {
		return d
	}
	left := p.end - clock
	d.ResetAfter = left
	if limit > 0 {
		d.UnitAfter = left
	}
	if !room && !d.Never {
		d.RetryAfter = left
	}
	return d
}

// A counter is the book of a sliding counter: the hits in each fixed window.
type counter struct {
	wrote time.Duration
	hits  map[time.Duration]uint64 // by the start of the window
}

// Weighted is what the hits of the fixed window before now still count for, rounded up.
func Weighted(previous uint64, covered, window time.Duration) uint64 {
	hits := new(big.Int).Mul(new(big.Int).SetUint64(previous), big.NewInt(covered.Microseconds()))
	return Ceil(new(big.Rat).SetFrac(hits, big.NewInt(window.Microseconds()))).Uint64()
}

// counts is what counts at a time.
func (n *counter) counts(clock, window time.Duration) uint64 {
	now := max(clock, n.wrote)
	start := now - now%window
	used := n.hits[start]
	if previous := n.hits[start-window]; previous > 0 {
		used += Weighted(previous, start+window-now, window)
	}
	return used
}

func (n *counter) hasRoom(clock time.Duration, c window.Check) bool {
	return fits(n.counts(clock, c.Limit.Window), c.Cost, c.Limit.Hits)
}

// add changes the hits of a fixed window.
func (n *counter) add(clock time.Duration, start time.Duration, hits uint64) {
	if n.hits == nil {
		n.hits = make(map[time.Duration]uint64)
	}
	n.hits[start] = hits
	n.wrote = max(clock, n.wrote)
}

func (n *counter) charge(clock time.Duration, c window.Check) uint64 {
	now := max(clock, n.wrote)
	start := now - now%c.Limit.Window
	used := n.counts(clock, c.Limit.Window)
	cost := min(withinMaxBelow(c, used), window.MaxHits-used)
	if cost > 0 {
		n.add(clock, start, n.hits[start]+cost)
	}
	return cost
}

func (n *counter) refund(clock time.Duration, c window.Check) {
	now, cost := max(clock, n.wrote), min(c.Cost, window.MaxHits+1) // of both windows together
	start := now - now%c.Limit.Window
	for _, from := range []time.Duration{start, start - c.Limit.Window} {
		if back := min(cost, n.hits[from]); back > 0 {
			cost -= back
			n.add(clock, from, n.hits[from]-back)
		}
	}
}

func (n *counter) answer(clock time.Duration, c window.Check, room bool) window.Decision {
	w, limit := c.Limit.Window, c.Limit.Hits
	used := n.counts(clock, w)
	d := window.Decision{Allowed: room, Never: !room && (limit == 0 || c.Cost > limit)}
	if used < limit {
		d.Remaining = limit - used
	}
	if used == 0 {
		return d
	}
	if !room && !d.Never {
		d.RetryAfter = n.wait(clock, w, limit-max(c.Cost, 1))
	}
	if limit > 0 {
		d.UnitAfter = n.wait(clock, w, min(used, limit)-1)
	}
	d.ResetAfter = n.wait(clock, w, 0)
	return d
}

// wait returns the time until no more than so many hits count. Without charges ever fewer
// count, so bisecting finds the first such instant.
func (n *counter) wait(clock, window time.Duration, hits uint64) time.Duration {
	low := max(n.wrote-clock, 0) // before it nothing changes
	if n.counts(clock+low, window) <= hits {
		return 0
	}
	high := low + 2*window // by then nothing counts
	for high-low > time.Microsecond {
		middle := (low + (high-low)/2).Truncate(time.Microsecond)
		if n.counts(clock+middle, window) <= hits {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}
