package replay

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/window"
)

// A whatIf varies the limits of rules: each limit alone, as if the others were not there.
type whatIf struct {
	chosen func(rule string) bool
	tally  *tally
	live   *Live // asks nothing but which logs a request has
	now    time.Duration
	search bool // only the smallest limits are searched; the tables are complete
	memory memory
}

func newWhatIf(rules *policy.Rules, t *tally, chosen func(string) bool) *whatIf {
	w := &whatIf{chosen: chosen, tally: t, memory: memory{most: maxVariedBytes}}
	w.live = NewLive(rules, roomy{}, func() time.Duration { return w.now })
	return w
}

// roomy is a store in which every check has room, and that keeps nothing.
type roomy struct{}

func (roomy) Take(_ context.Context, _ bool, _ []window.Check, decisions []window.Decision) (bool, error) {
	for i := range decisions {
		decisions[i] = window.Decision{Allowed: true, Remaining: 1}
	}
	return true, nil
}
func (roomy) Close() error { return nil }

// End implements [window.Ender]: every request was allowed, so its stream held something.
func (roomy) End(context.Context, window.StreamID, time.Duration) (bool, error) { return true, nil }

// ask lets the what-if see the limits of a question that nothing else decides.
func (w *whatIf) ask(ctx context.Context, at time.Duration, req *policy.Request, caller *tier.Subject, atEnd bool) error {
	w.now = at
	v, err := w.live.decide(ctx, req, caller)
	if err != nil {
		return err
	}
	checks := w.live.Checks()
	for i := range v.Limits {
		l := &v.Limits[i]
		w.see(w.tally.meet(req, l, &checks[i], i), &checks[i], at, atEnd)
	}
	return nil
}

// see decides a check under each limit in place of its own.
func (w *whatIf) see(m meeting, c *window.Check, at time.Duration, atEnd bool) {
	p := m.part
	if p.sim == nil {
		if p.fixed {
			return
		}
		if p.own || !varied(&p.limit) || !w.chosen(p.rule.Name) {
			p.fixed = true
			return
		}
		p.sim = newSimulation(p.limit, &w.memory)
	}
	s := &p.sim.table
	if w.search {
		if s = p.sim.pass; s == nil {
			return
		}
	}
	s.see(m.hash, c, at, atEnd)
}

// varied reports whether a limit can have other values.
func varied(l *policy.Limit) bool {
	return l.Policy != window.InFlight && l.Hits != window.MaxHits && l.Hits > 0
}

// A simulation is what other limits would have done in place of one.
type simulation struct {
	table   variants
	targets [2]target
	pass    *variants // of the search
	memory  *memory
}

// A target is a share of the requests, and what is known of the smallest limit that denies less.
type target struct {
	share float64
	// low denies the share or more, and high denies less. high is zero if no such limit is known.
	low, high uint64
	lowLogs   uint64 // how many logs low denied
	none      bool   // no limit denies less
}

func (t *target) solved() bool { return t.none || t.high == t.low+1 }

const (
	smaller, larger = 6, 6 // limits in a table, around the current one
	perPass         = 60   // limits in one pass of the search, at most
	// maxPassBytes is about the most memory of the logs that a pass keeps for denied callers.
	maxPassBytes = 256 << 20
)

func newSimulation(l policy.Limit, m *memory) *simulation {
	s := &simulation{targets: [2]target{{share: 0.001}, {share: 0.01}}, memory: m}
	s.table = newVariants(l, around(current(&l)))
	m.hold(&s.table)
	return s
}

// current returns what is varied of a limit.
func current(l *policy.Limit) uint64 {
	if l.Policy == window.TokenBucket {
		return uint64(l.Rate)
	}
	return l.Hits
}

// around returns limits by steps of 1, 2 and 5 around one, and that one, by rising value.
func around(limit uint64) (all []uint64) {
	var below, above []uint64
	for n := uint64(1); n < window.MaxHits; n *= 10 {
		for _, step := range [...]uint64{n, 2 * n, 5 * n} {
			switch {
			case step < limit:
				below = append(below, step)
			case step > limit && step < window.MaxHits && len(above) < larger:
				above = append(above, step)
			}
		}
	}
	all = append(all, below[max(0, len(below)-smaller):]...)
	return append(append(all, limit), above...)
}

// settle learns from limits that were tried.
func (t *target) settle(v *variants) {
	for i, limit := range v.limits {
		if v.share(i) < t.share && (t.high == 0 || limit < t.high) {
			t.high = limit
		}
	}
	for i, limit := range v.limits {
		if v.share(i) >= t.share && limit > t.low && (t.high == 0 || limit < t.high) {
			t.low, t.lowLogs = limit, v.logsDenied(i)
		}
	}
	t.none = t.high == 0 && t.low >= window.MaxHits-1
}

// next appends at most n limits to try. It appends fewer if many callers are denied, because each
// limit has logs of its own for them.
func (t *target) next(all []uint64, n int) []uint64 {
	const hitBytes, logBytes = 9, 64
	each := t.lowLogs * (min(t.low, window.ExactHits)*hitBytes + logBytes)
	n = max(min(n, int(maxPassBytes/max(each, 1))), 2)
	switch {
	case t.solved():
	case t.high == 0:
		for limit := t.low; n > 0 && limit < window.MaxHits-1; n-- {
			limit = min(2*limit+1, window.MaxHits-1)
			all = append(all, limit)
		}
	default:
		gap := t.high - t.low
		n := min(uint64(n), gap-1)
		for k := uint64(1); k <= n; k++ {
			all = append(all, t.low+gap*k/(n+1))
		}
	}
	return all
}

// begin chooses the limits of the next pass. It returns false if the search is over.
func (s *simulation) begin(l policy.Limit) bool {
	last := s.pass
	if last == nil {
		last = &s.table
	}
	s.pass = nil
	s.memory.free(last)
	if s.table.requests == 0 {
		return false
	}
	open := 0
	for i := range s.targets {
		t := &s.targets[i]
		if t.settle(last); !t.solved() {
			open++
		}
	}
	if open == 0 {
		return false
	}
	var limits []uint64
	for i := range s.targets {
		limits = s.targets[i].next(limits, perPass/open)
	}
	slices.Sort(limits)
	v := newVariants(l, slices.Compact(limits))
	s.pass = &v
	s.memory.hold(s.pass)
	return true
}

// report returns the table and the smallest limits that are known, or nil if no request met the limit.
// logs is the number of all logs.
func (s *simulation) report(l *policy.Limit, logs uint64) *WhatIf {
	v := &s.table
	if v.requests == 0 {
		return nil // Envoy asks at the end of requests only, when nothing can be denied
	}
	w := &WhatIf{Requests: v.requests, LogsShare: 1 / float64(v.weight())}
	for i, limit := range v.limits {
		row := WhatIfRow{Limit: limit, Denied: min(v.denied[i], v.requests), DeniedShare: v.share(i), DeniedLogs: v.logsDenied(i), Current: limit == current(l)}
		if logs > 0 {
			row.LogsShare = min(float64(row.DeniedLogs)/float64(logs), 1)
		}
		w.Rows = append(w.Rows, row)
	}
	for i := range s.targets {
		t := s.targets[i] // a copy: a search may go on
		last := s.pass
		if last == nil {
			last = v
		}
		t.settle(last)
		// With several costs a larger limit can deny more, so the search may miss a smaller one.
		one := Smallest{Share: t.share, Limit: t.high}
		if !v.mixed && v.level == 0 && last.level == 0 {
			one.Above, one.Exact = t.low, t.solved()
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
	deniedLogs *logTable // of each log: the set of limits that denied it; nil: they decide nothing more
	deniedBy   []uint64  // then: how many logs each limit denied
	requests   uint64
	cost       uint64 // of the requests so far
	mixed      bool   // they have several costs
	// level is how many zeros the hash of a log ends with: one log of 2^level is kept.
	level  uint
	memory *memory
}

// maxDeniedLogs bounds the logs of which variants remember that they were denied.
const maxDeniedLogs = 1 << 18

func newVariants(l policy.Limit, limits []uint64) variants {
	v := variants{limits: limits, denied: make([]uint64, len(limits)), deniedLogs: newLogTable(maxDeniedLogs)}
	own := l.Precision != window.Precision(l.Limit) // the rule chooses its precision
	for i, hits := range limits {
		precision := l.Precision
		if !own && l.Policy == window.Sliding {
			precision = window.Precision(window.Limit{Hits: hits, Window: l.Window})
		}
		if n := len(v.groups); n > 0 && v.groups[n-1].precision == precision {
			v.groups[n-1].limits = limits[v.groups[n-1].first : i+1]
			continue
		}
		v.groups = append(v.groups, group{limit: l.Limit, precision: precision, first: i, limits: limits[i : i+1], logs: make(map[uint64]*variedLog), sweepAt: minSweep})
	}
	return v
}

// share returns the share of the requests that the i-th limit denied.
func (v *variants) share(i int) float64 {
	if v.requests == 0 {
		return 0
	}
	return min(float64(v.denied[i])/float64(v.requests), 1)
}

// weight is how many logs one kept log stands for.
func (v *variants) weight() uint64 { return 1 << v.level }

// logsDenied returns how many logs the i-th limit denied.
func (v *variants) logsDenied(i int) (n uint64) {
	if v.deniedLogs == nil {
		return v.deniedBy[i]
	}
	v.deniedLogs.each(func(_, set uint64) { n += set >> i & 1 })
	return n * v.deniedLogs.times()
}

// see decides a check. If atEnd is true, the request was counted when it began.
func (v *variants) see(hash uint64, c *window.Check, at time.Duration, atEnd bool) {
	if !atEnd {
		v.mixed = v.mixed || v.requests > 0 && c.Cost != v.cost
		v.cost = c.Cost
		v.requests++
	}
	if v.memory.held+v.deniedLogs.needs() > v.memory.most {
		v.memory.shrink(at.Microseconds())
	}
	if hash&(v.weight()-1) != 0 {
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
		v.denied[i] += set >> i & 1 << v.level
	}
	before := v.deniedLogs.bytes()
	if value := v.deniedLogs.at(hash); value != nil {
		*value |= set
	}
	v.memory.held += v.deniedLogs.bytes() - before
}

// A group is some of the limits of variants, with logs of one precision.
//
// All sliding limits that decide alike have the same log. So a log is kept once, for the largest
// limit, and a smaller limit gets a log of its own when it denies what the largest allows. A
// window later the two logs hold the same again, and the second one is dropped. Other policies have
// short logs, one for each limit from the start.
type group struct {
	limit     window.Limit
	precision time.Duration
	first     int // index of the first limit in those of the variants
	limits    []uint64
	logs      map[uint64]*variedLog
	sweepAt   int
	bytes     int // of the logs
	memory    *memory
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
		g.hold(l.bytes())
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
	var s window.State
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
	g.hold(cap(*log) - before)
	return room
}

// seeSliding is see for sliding windows.
func (g *group) seeSliding(l *variedLog, c *window.Check, now int64) (denied uint64) {
	last := len(g.limits) - 1
	c.Limit.Hits = g.limits[last]
	used, _ := window.Weigh(l.log, now, c.Log(), c.Limit.Hits)
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
	until := now + (c.Limit.Window + g.precision + 2*window.Unit(c.Limit.Window)).Microseconds()
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
			g.hold(-a.bytes())
		}
		if need <= limit {
			continue
		}
		denied |= 1 << i
		if charged && c.Mode != window.Always && c.Cost > 0 {
			fresh = append(fresh, apart{limit: i, until: until, log: slices.Clone(l.log)})
			g.hold(fresh[len(fresh)-1].bytes())
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

// sweep drops logs in which nothing counts any more.
func (g *group) sweep(now int64) {
	id := window.Check{Limit: g.limit}.Log()
	empty := func(log []byte) bool {
		used, _ := window.Weigh(log, now, id, g.limit.Hits)
		return used == 0
	}
	for hash, l := range g.logs {
		if empty(l.log) && !slices.ContainsFunc(l.apart, func(a apart) bool { return !empty(a.log) }) {
			g.drop(hash, l)
		}
	}
	g.sweepAt = max(2*len(g.logs), minSweep)
}
