package replay

import (
	"math/bits"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// whatIf decides a check under each limit in place of the real one: each limit alone, as if the others were
// not there.
func (d *decider) whatIf(m match, c *window.Check, at time.Duration, atEnd bool) {
	p := m.part
	if p.sim == nil {
		if p.fixed {
			return
		}
		if p.override || p.rule.Charge.Once.Retries > 0 || !varied(&p.limit) || d.varies == nil || !d.varies(p.rule.Name) {
			p.fixed = true
			return
		}
		p.sim = newVariants(p.limit, d.tally.sample)
	}
	p.sim.see(m.hash, c, at, atEnd)
}

// varied reports whether a limit can have other values.
func varied(l *rules.Limit) bool {
	return l.Policy != window.InFlight && l.Hits != window.Unlimited && l.Hits > 0
}

// current returns what is varied of a limit.
func current(l *rules.Limit) uint64 {
	if l.Policy == window.TokenBucket {
		return uint64(l.Rate)
	}
	return l.Hits
}

// around returns a limit and those around it, by rising value up to the largest: about ten to each power of ten.
func around(limit, largest uint64) []uint64 {
	const most = 6 // to each side
	all := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for n := uint64(1); n < largest/100; n *= 10 {
		for _, step := range [...]uint64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			all = append(all, step*n)
		}
	}
	at, found := slices.BinarySearch(all, limit)
	above := all[at:]
	if found {
		above = above[1:]
	}
	return slices.Concat(all[max(0, at-most):at], []uint64{limit}, above[:min(most, len(above))])
}

// report returns the table and the smallest limits that are known, or nil if the limit applied to no request.
// logs is the number of all logs.
func (v *variants) report(l *rules.Limit, logs uint64) *WhatIf {
	if v.requests == 0 {
		return nil // Envoy asks at the end of requests only, when nothing can be denied
	}
	w := &WhatIf{Requests: v.requests}
	for i, limit := range v.values {
		row := WhatIfRow{Limit: limit, Denied: min(v.denied[i], v.requests), DeniedFraction: v.fraction(i), Current: limit == current(l)}
		for _, one := range v.logs {
			row.DeniedLogs += one.denied >> i & 1 * v.sample.times()
		}
		if logs > 0 {
			row.LogsFraction = min(float64(row.DeniedLogs)/float64(logs), 1)
		}
		w.Rows = append(w.Rows, row)
	}
	for _, fraction := range [...]float64{0.001, 0.01} {
		one := Smallest{Fraction: fraction}
		for i := len(v.values) - 1; i >= 0; i-- {
			if v.fraction(i) < fraction {
				one.Limit = v.values[i]
			} else if one.Above == 0 && !v.mixed && v.sample.level == 0 { // with several costs a larger limit can deny more
				one.Above = v.values[i]
			}
		}
		w.Smallest = append(w.Smallest, one)
	}
	return w
}

// variants decide the checks of one limit under several others at once, each on its own log of a caller.
type variants struct {
	limit    window.Limit
	values   []uint64 // by rising value, at most 64
	denied   []uint64 // requests, by value
	logs     map[uint64]*variedLog
	sweepAt  int
	requests uint64
	cost     uint64 // of the requests so far
	mixed    bool   // they have several costs
	// precision is that which the rule chooses for all values. If it is negative, it follows from each.
	precision time.Duration
	joined    bool // callers that no limit denies have one log
	sample    *sample
}

// A variedLog is one log under each limit of variants. While no limit denies, a sliding log is the same
// under all.
type variedLog struct {
	shared []byte   // without logs, that of all limits
	logs   [][]byte // by limit
	denied uint64   // the set of limits that denied it
}

// variedBytes are about the bytes of a log besides its content, and textBytes those of each limit.
const (
	variedBytes = 128
	textBytes   = 24
)

func (l *variedLog) bytes() int {
	n := variedBytes + cap(l.shared)
	for _, log := range l.logs {
		n += textBytes + cap(log)
	}
	return n
}

func newVariants(l rules.Limit, s *sample) *variants {
	largest := uint64(window.MaxHits)
	if l.Policy == window.Sliding || l.Policy == window.TokenBucket {
		largest = window.Unlimited // and no rate is larger
	}
	values := around(current(&l), largest)
	v := &variants{limit: l.Limit, values: values, denied: make([]uint64, len(values)), logs: make(map[uint64]*variedLog), sweepAt: minSweep, precision: l.Precision, sample: s}
	if l.Policy == window.Sliding && l.Precision == window.Precision(l.Limit) {
		v.precision = -1
	}
	v.joined = l.Policy == window.Sliding && window.Precision(window.Limit{Hits: values[len(values)-1], Window: l.Window}) == window.Precision(window.Limit{Hits: values[0], Window: l.Window})
	s.holders = append(s.holders, v.sweep)
	return v
}

// fraction returns the fraction of the requests that the i-th limit denied.
func (v *variants) fraction(i int) float64 {
	if v.requests == 0 {
		return 0
	}
	return min(float64(v.denied[i])/float64(v.requests), 1)
}

// see decides a check. If atEnd is true, the request was counted when it began.
func (v *variants) see(hash uint64, c *window.Check, at time.Duration, atEnd bool) {
	if !atEnd {
		v.mixed = v.mixed || v.requests > 0 && c.Cost != v.cost
		v.cost = c.Cost
		v.requests++
	}
	if !v.sample.keeps(hash) {
		return
	}
	now := at.Microseconds()
	l := v.logs[hash]
	if l == nil {
		if len(v.logs) >= v.sweepAt {
			v.sweep(now)
		}
		l = new(variedLog)
		v.logs[hash] = l
		v.sample.bytes += variedBytes
	}
	if v.joined && l.logs == nil {
		used, _ := packed.Weigh(l.shared, now, c.Log(), v.limit.Hits)
		if need, carry := bits.Add64(used, max(c.Cost, 1), 0); c.Mode == window.Refund || carry == 0 && need <= v.values[0] {
			v.take(&l.shared, *c, v.values[len(v.values)-1], now)
			return
		}
	}
	if l.logs == nil {
		v.sample.bytes -= l.bytes()
		l.logs = make([][]byte, len(v.values))
		for i := range l.logs {
			l.logs[i] = slices.Clone(l.shared)
		}
		l.shared = nil
		v.sample.bytes += l.bytes()
	}
	for i := range v.values {
		if !v.take(&l.logs[i], *c, v.values[i], now) && !atEnd {
			v.denied[i] += v.sample.times()
			l.denied |= 1 << i
		}
	}
}

// take decides a check under a limit on a log, and charges it.
func (v *variants) take(log *[]byte, c window.Check, value uint64, now int64) (room bool) {
	if v.limit.Policy == window.TokenBucket {
		c.Limit.Rate = uint32(value)
	} else {
		c.Limit.Hits = value
	}
	c.Lease, c.Precision = window.Lease{}, v.precision
	if v.precision < 0 {
		c.Precision = window.Precision(c.Limit)
	}
	if c.Mode != window.Always && c.Mode != window.Refund {
		c.Mode = window.Enforce
	}
	var s packed.State
	s.Look(*log, now, &c)
	room = s.Room(&c)
	switch {
	case c.Cost == 0:
		return room
	case c.Mode == window.Refund:
		s.Refund(&c)
		room = true
	case room || c.Mode == window.Always:
		s.Charge(&c)
	}
	before := cap(*log)
	*log = s.Log()
	v.sample.bytes += cap(*log) - before
	return room
}

// sweep drops logs in which nothing counts any more, and those that the sample does not keep. now is in
// microseconds.
func (v *variants) sweep(now int64) {
	id := window.Check{Limit: v.limit}.Log()
	counts := func(log []byte) bool {
		used, _ := packed.Weigh(log, now, id, v.limit.Hits)
		return used > 0
	}
	for hash, l := range v.logs {
		v.sample.bytes -= l.bytes()
		empty := !counts(l.shared) && !slices.ContainsFunc(l.logs, counts)
		if empty {
			l.shared, l.logs = nil, nil
		}
		if !v.sample.keeps(hash) || empty && l.denied == 0 {
			delete(v.logs, hash)
		} else {
			v.sample.bytes += l.bytes()
		}
	}
	v.sweepAt = max(2*len(v.logs), minSweep)
}
