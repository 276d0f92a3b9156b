package replay

import (
	"maps"
	"math"
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
		if p.override || !varied(&p.limit) || d.varies == nil || !d.varies(p.rule.Name) {
			p.fixed = true
			return
		}
		p.sim = newVariants(p.limit, d.tally.sample)
	}
	p.sim.see(m.hash, c, at, atEnd)
}

// varied reports whether a limit can have other values.
func varied(l *rules.Limit) bool {
	return l.Policy != window.InFlight && l.Hits != window.MaxHits && l.Hits > 0
}

// current returns what is varied of a limit.
func current(l *rules.Limit) uint64 {
	if l.Policy == window.TokenBucket {
		return uint64(l.Rate)
	}
	return l.Hits
}

// around returns a limit and those around it, by rising value: about ten to each power of ten.
func around(limit uint64) []uint64 {
	const most = 10 // to each side
	all := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for n := uint64(1); n < window.MaxHits/100; n *= 10 {
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
	for i, limit := range v.limits {
		row := WhatIfRow{Limit: limit, Denied: min(v.denied[i], v.requests), DeniedFraction: v.fraction(i), DeniedLogs: v.logsDenied(i), Current: limit == current(l)}
		if logs > 0 {
			row.LogsFraction = min(float64(row.DeniedLogs)/float64(logs), 1)
		}
		w.Rows = append(w.Rows, row)
	}
	for _, fraction := range [...]float64{0.001, 0.01} {
		one := Smallest{Fraction: fraction}
		for i := len(v.limits) - 1; i >= 0; i-- {
			if v.fraction(i) < fraction {
				one.Limit = v.limits[i]
			} else if one.Above == 0 && !v.mixed && v.sample.level == 0 { // with several costs a larger limit can deny more
				one.Above = v.limits[i]
			}
		}
		w.Smallest = append(w.Smallest, one)
	}
	return w
}

// variants decide the checks of one limit under several others at once.
type variants struct {
	limits     []uint64 // by rising value, at most 64
	groups     []group
	denied     []uint64
	deniedLogs map[uint64]uint64 // of each log that was denied: the set of limits that denied it
	requests   uint64
	cost       uint64 // of the requests so far
	mixed      bool   // they have several costs
	sample     *sample
}

func newVariants(l rules.Limit, s *sample) *variants {
	limits := around(current(&l))
	v := &variants{limits: limits, denied: make([]uint64, len(limits)), deniedLogs: make(map[uint64]uint64), sample: s}
	s.holders = append(s.holders, v.drop)
	chosen := l.Precision != window.Precision(l.Limit) // the rule chooses its precision
	for i, hits := range limits {
		precision := l.Precision
		if !chosen && l.Policy == window.Sliding {
			precision = window.Precision(window.Limit{Hits: hits, Window: l.Window})
		}
		if n := len(v.groups); n > 0 && v.groups[n-1].precision == precision {
			v.groups[n-1].limits = limits[v.groups[n-1].first : i+1]
			continue
		}
		v.groups = append(v.groups, group{limit: l.Limit, precision: precision, first: i, limits: limits[i : i+1], logs: make(map[uint64]*variedLog), sweepAt: minSweep, sample: s})
	}
	return v
}

// fraction returns the fraction of the requests that the i-th limit denied.
func (v *variants) fraction(i int) float64 {
	if v.requests == 0 {
		return 0
	}
	return min(float64(v.denied[i])/float64(v.requests), 1)
}

// drop drops the logs that the sample does not keep. now is in microseconds.
func (v *variants) drop(now int64) {
	before := len(v.deniedLogs)
	maps.DeleteFunc(v.deniedLogs, func(hash, _ uint64) bool { return !v.sample.keeps(hash) })
	v.sample.bytes -= deniedBytes * (before - len(v.deniedLogs))
	for i := range v.groups {
		v.groups[i].sweep(now)
	}
}

// logsDenied returns how many logs the i-th limit denied.
func (v *variants) logsDenied(i int) (n uint64) {
	for _, set := range v.deniedLogs {
		n += set >> i & 1
	}
	return n * v.sample.times()
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
	var set uint64
	for i := range v.groups {
		g := &v.groups[i]
		set |= g.see(hash, c, at.Microseconds()) << g.first
	}
	if set == 0 || atEnd {
		return
	}
	for i := range v.denied {
		v.denied[i] += set >> i & 1 * v.sample.times()
	}
	before := len(v.deniedLogs)
	v.deniedLogs[hash] |= set
	v.sample.bytes += deniedBytes * (len(v.deniedLogs) - before)
}

// A group is some of the limits of variants, with logs of one precision.
//
// All sliding limits that decide alike have the same log. So a log is kept once, for the largest
// limit, and a smaller limit gets a separate log when it denies what the largest allows. A
// window later the two logs hold the same again, and the second one is dropped. Other policies have
// short logs, one for each limit from the start.
type group struct {
	limit     window.Limit
	precision time.Duration
	first     int // index of the first limit in those of the variants
	limits    []uint64
	logs      map[uint64]*variedLog
	sweepAt   int
	sample    *sample
}

// A variedLog is one log under the limits of a group.
type variedLog struct {
	log   []byte // of the largest limit, and of those that are not apart
	apart []apart
}

// An apart is the log of a limit that has decided otherwise than the largest one.
type apart struct {
	limit int   // index in the limits of the group
	until int64 // when it is the same again, in microseconds
	log   []byte
}

// About the bytes of a log besides its content: its entry in the map, and its headers.
const (
	variedBytes = 128
	apartBytes  = 48
	deniedBytes = 32 // of a log that was denied
)

func (l *variedLog) bytes() int {
	n := variedBytes + cap(l.log)
	for i := range l.apart {
		n += l.apart[i].bytes()
	}
	return n
}

func (a *apart) bytes() int { return apartBytes + cap(a.log) }

// see decides a check, and returns the set of limits that deny it.
func (g *group) see(hash uint64, c *window.Check, now int64) (denied uint64) {
	l := g.logs[hash]
	if l == nil {
		if len(g.logs) >= g.sweepAt {
			g.sweep(now)
		}
		l = new(variedLog)
		if g.limit.Policy != window.Sliding {
			for i := range g.limits {
				l.apart = append(l.apart, apart{limit: i, until: math.MaxInt64})
			}
		}
		g.logs[hash] = l
		g.sample.bytes += l.bytes()
	}
	check := *c
	check.Precision, check.Lease = g.precision, window.Lease{}
	if check.Mode != window.Always && check.Mode != window.Refund {
		check.Mode = window.Enforce
	}
	if g.limit.Policy != window.Sliding {
		for i := range l.apart {
			if !g.take(&l.apart[i].log, &check, g.limits[i], now) {
				denied |= 1 << i
			}
		}
		return denied
	}
	return g.seeSliding(l, &check, now)
}

// take decides a check under a limit on a log, and charges it.
func (g *group) take(log *[]byte, c *window.Check, limit uint64, now int64) (room bool) {
	if g.limit.Policy == window.TokenBucket {
		c.Limit.Rate = uint32(limit)
	} else {
		c.Limit.Hits = limit
	}
	var s packed.State
	s.Look(*log, now, c)
	room = s.Room(c)
	switch {
	case c.Cost == 0:
		return room
	case c.Mode == window.Refund:
		s.Refund(c)
	case room || c.Mode == window.Always:
		s.Charge(c)
	}
	before := cap(*log)
	*log = s.Log()
	g.sample.bytes += cap(*log) - before
	return room
}

// seeSliding is see for sliding windows.
func (g *group) seeSliding(l *variedLog, c *window.Check, now int64) (denied uint64) {
	last := len(g.limits) - 1
	c.Limit.Hits = g.limits[last]
	used, _ := packed.Weigh(l.log, now, c.Log(), c.Limit.Hits)
	need, carry := bits.Add64(used, max(c.Cost, 1), 0)
	switch {
	case c.Mode == window.Refund:
		need = 0
	case carry > 0:
		need = math.MaxUint64
	}
	if need <= g.limits[0] && len(l.apart) == 0 {
		g.take(&l.log, c, g.limits[last], now)
		return 0
	}
	charged := need <= g.limits[last] || c.Mode == window.Always // of the largest limit
	// The precision, and a unit of long windows, can make a hit count longer.
	until := now + (c.Limit.Window + g.precision + 2*packed.Unit(c.Limit.Window)).Microseconds()
	kept, at := l.apart[:0], 0
	old := len(l.apart)
	var fresh []apart
	for i, limit := range g.limits {
		if at < old && l.apart[at].limit == i {
			a := l.apart[at]
			at++
			if now < a.until {
				room := g.take(&a.log, c, limit, now)
				if !room {
					denied |= 1 << i
				}
				if (room || c.Mode == window.Always) != charged && c.Cost > 0 {
					a.until = until
				}
				kept = append(kept, a)
				continue
			}
			g.sample.bytes -= a.bytes()
		}
		if need <= limit {
			continue
		}
		denied |= 1 << i
		if charged && c.Mode != window.Always && c.Cost > 0 {
			fresh = append(fresh, apart{limit: i, until: until, log: slices.Clone(l.log)})
			g.sample.bytes += fresh[len(fresh)-1].bytes()
		}
	}
	g.take(&l.log, c, g.limits[last], now)
	if l.apart = kept; len(fresh) > 0 {
		l.apart = append(l.apart, fresh...)
		slices.SortFunc(l.apart, func(a, b apart) int { return a.limit - b.limit })
	}
	if len(l.apart) == 0 {
		l.apart = nil
	}
	return denied
}

// sweep drops logs in which nothing counts any more, and those that the sample does not keep.
func (g *group) sweep(now int64) {
	id := window.Check{Limit: g.limit}.Log()
	empty := func(log []byte) bool {
		used, _ := packed.Weigh(log, now, id, g.limit.Hits)
		return used == 0
	}
	for hash, l := range g.logs {
		if !g.sample.keeps(hash) || empty(l.log) && !slices.ContainsFunc(l.apart, func(a apart) bool { return !empty(a.log) }) {
			delete(g.logs, hash)
			g.sample.bytes -= l.bytes()
		}
	}
	g.sweepAt = max(2*len(g.logs), minSweep)
}
