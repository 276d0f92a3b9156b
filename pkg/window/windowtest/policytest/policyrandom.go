package policytest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
)

// policies makes short histories that mix all policies in one call. Almost every call is at
// an edge. Limits and rates are small or very large, and change from call to call; so do the
// anchors of calendars. The clock stands still, steps back, and leaves years out.
//
// If steady is true, each log keeps its limit and its anchor, callers know the store's clock, and it
// does not step back.
func policies(shortWindows, steady bool) windowtest.Generator {
	windows := []time.Duration{win, win, time.Minute, time.Hour + micro, day, 30 * day, 365 * day, window.MaxWindow}
	if shortWindows {
		windows = append(windows, window.MinWindow, window.MinWindow+micro, second, second)
	}
	return windowtest.Generator{
		Steps: 60,
		Start: func(r *rand.Rand, h *windowtest.Harness) (windowtest.Caller, time.Duration) {
			w := windowtest.Pick(r, windows...)
			p := &policyCaller{
				epoch:  h.Epoch,
				win:    w,
				grid:   windowtest.Pick(r, w/10, w/10, w/7, micro, milli, second/7).Truncate(micro),
				cycle:  windowtest.Pick(r, Cycles...),
				limits: []uint64{0, 1, 2, 3, 3, 4, 5},
			}
			p.anchors = []int64{p.cycle.anyAnchor(r), p.cycle.anyAnchor(r)}
			if steady {
				p.anchors[1], p.kept = p.anchors[0], make(map[window.LogID]window.Limit)
			}
			switch r.IntN(6) {
			case 0:
				p.limits = []uint64{7, 12, 13, 14, 15, 25}
			case 1:
				p.limits = []uint64{1000, 999_983, 1 << 31, window.Unlimited - 1, window.Unlimited + 1, 500_000e6, window.MaxHits - 1, window.MaxHits}
			}
			p.bucketWindow, p.rates = rates(r, w, shortWindows)
			if r.IntN(3) == 0 {
				p.only = windowtest.Pick(r, counted...)
			}
			now := p.begin(r, h)
			return p, now
		},
	}
}

// counted are the policies that this suite tests.
var counted = []window.Policy{window.TokenBucket, window.Fixed, window.Calendar, window.SlidingCounter}

// rates picks the unit of a bucket's rate, and rates that belong together.
func rates(r *rand.Rand, w time.Duration, shortWindows bool) (time.Duration, []uint32) {
	switch r.IntN(8) {
	case 0:
		return 365 * day, []uint32{1, 2, 12}
	case 1:
		return window.MaxWindow, []uint32{1, 1, 7}
	case 2:
		return windowtest.Pick(r, win, second), []uint32{math.MaxUint32, math.MaxUint32 - 1, 1 << 31}
	case 3:
		if shortWindows {
			return window.MinWindow, []uint32{1, 7, math.MaxUint32}
		}
		return time.Minute, []uint32{59, 60, 61}
	case 4:
		return w, []uint32{1, 2, 3}
	default:
		return windowtest.Pick(r, second, second, time.Minute), []uint32{7, 7, 3, 10, 11, 1}
	}
}

type policyCaller struct {
	epoch        time.Duration
	win          time.Duration
	grid         time.Duration
	limits       []uint64
	bucketWindow time.Duration
	rates        []uint32
	cycle        cycle
	anchors      []int64
	only         window.Policy                 // zero: all
	kept         map[window.LogID]window.Limit // nil: limits change from call to call, and the clock steps back
}

// begin picks the time at which a history begins: at least two years after the store's clock
// began, so that calendars have earlier periods, and often just before a window's edge.
func (p *policyCaller) begin(r *rand.Rand, h *windowtest.Harness) time.Duration {
	before := windowtest.Pick(r, p.win/2, p.win/3, micro, 3*micro).Truncate(micro)
	at := 2*year + windowtest.UpTo(r, windowtest.Pick(r, day, year, 60*year)).Truncate(micro)
	switch r.IntN(4) {
	case 0:
		return at
	case 1:
		period := p.cycle.In(at+h.Epoch, p.anchors[0])
		return time.Duration(period.End)*second - h.Epoch - before
	default:
		return h.Aligned(p.win, at) - before
	}
}

func (p *policyCaller) Next(r *rand.Rand, past *windowtest.History) (time.Duration, []window.Check) {
	checks := make([]window.Check, windowtest.Pick(r, 1, 1, 1, 2, 2, 3, 6))
	usual := windowtest.Pick(r, window.Enforce, window.Enforce, window.Any, window.Observe)
	for i := range checks {
		checks[i] = p.check(r, past.Prefix+windowtest.Pick(r, "a", "a", "a", "b"))
		c := &checks[i]
		p.keep(c)
		c.Mode = windowtest.Pick(r, usual, usual, usual, window.Enforce, window.Any, window.Observe)
		switch r.IntN(12) {
		case 0:
			c.Mode = window.Always
			if r.IntN(4) == 0 {
				c.Cost = windowtest.Pick(r, math.MaxUint32-r.Uint64N(6), 1<<31, c.Limit.Hits*3, math.MaxUint64)
			}
		case 1, 2:
			c.Mode = window.Refund
			if r.IntN(4) == 0 {
				c.Cost = windowtest.Pick(r, math.MaxUint32-r.Uint64N(6), 1<<31, c.Limit.Hits, c.Limit.Hits/2, math.MaxUint64)
			}
		}
		for _, other := range checks[:i] {
			if other.Log() == c.Log() && !other.Mode.Unconditional() && !c.Mode.Unconditional() {
				c.Mode = other.Mode // any other is refused
			}
		}
	}
	at := p.at(r, past)
	if p.kept != nil {
		at = max(at, past.Now)
	}
	for i := range checks {
		if checks[i].Limit.Policy == window.Calendar {
			checks[i].Period = p.period(r, at+p.epoch)
		}
	}
	return at, checks
}

// keep gives a check the limit that its log had before, if logs keep theirs.
func (p *policyCaller) keep(c *window.Check) {
	if p.kept == nil {
		return
	}
	if l, ok := p.kept[c.Log()]; ok {
		c.Limit = l
	}
	p.kept[c.Log()] = c.Limit
}

// period returns the period of a time, or now and then one of an earlier or later time: the
// caller's clock may differ from the store's.
func (p *policyCaller) period(r *rand.Rand, clock time.Duration) window.Period {
	off := windowtest.Pick(r, 0, 0, 0, 0, 0, 0, -second, second, -oracle.Early, oracle.Early)
	if p.kept != nil {
		off = 0
	} else if r.IntN(60) == 0 {
		off = windowtest.Pick[time.Duration](r, -1, 1) * windowtest.Pick(r, time.Hour, p.cycle.Nominal, 2*p.cycle.Nominal, 3*p.cycle.Nominal)
	}
	return p.cycle.In(min(max(clock+off, p.epoch+year), windowtest.LastClock), windowtest.Pick(r, p.anchors[0], p.anchors[0], p.anchors[0], p.anchors[1]))
}

// at picks the time of the next call.
func (p *policyCaller) at(r *rand.Rand, past *windowtest.History) time.Duration {
	at := past.Now
	switch r.IntN(12) {
	case 0, 1, 2: // the same instant
	case 3, 4, 5:
		at += time.Duration(r.IntN(4)) * p.grid
	case 6:
		at -= time.Duration(r.IntN(15)) * windowtest.Pick(r, p.grid, micro)
	case 7:
		at += windowtest.Pick(r, p.win, 2*p.win, p.win-micro, p.win/2, 9*p.win, p.cycle.Nominal, 20*year)
	case 8: // a window's edge
		at += p.win - (at+p.epoch)%p.win + windowtest.Pick(r, -micro, 0, 0, micro)
	default:
		at = max(at, p.edge(r, past))
	}
	return min(max(at, 2*year), windowtest.LastClock-p.epoch).Truncate(micro)
}

// edge returns the end of a promised wait, or the microsecond before or after it.
func (p *policyCaller) edge(r *rand.Rand, past *windowtest.History) time.Duration {
	if len(past.Last) == 0 {
		return past.Now
	}
	d := past.Last[r.IntN(len(past.Last))]
	return past.Now + windowtest.Pick(r, d.RetryAfter, d.RetryAfter, d.UnitAfter, d.UnitAfter, d.ResetAfter) + windowtest.Pick(r, -micro, 0, 0, micro)
}

// check returns a check of one of the policies without a mode or a period.
func (p *policyCaller) check(r *rand.Rand, key string) window.Check {
	hits := windowtest.Pick(r, p.limits...)
	if r.IntN(60) == 0 {
		hits = windowtest.Pick[uint64](r, window.Unlimited, window.Unlimited-1, window.MaxHits)
	}
	policy := p.only
	if policy == window.Sliding || r.IntN(8) == 0 {
		policy = windowtest.Pick(r, counted...)
	}
	c := askIn(p.win, key, hits, windowtest.Pick(r, 0, 1, 1, 1, 2, 3, hits/2, hits, hits+1))
	c.Limit.Policy = policy
	switch policy {
	case window.TokenBucket:
		c.Limit.Window, c.Limit.Rate = p.bucketWindow, windowtest.Pick(r, p.rates...)
		for c.Limit.Valid() != nil { // it takes too long to fill
			c.Limit.Hits /= 2
		}
		c.Cost = min(c.Cost, c.Limit.Hits+1)
	case window.Calendar:
		c.Limit.Window = p.cycle.Nominal
	}
	if r.IntN(10) == 0 {
		c.Limit.Policy, c.Limit.Window, c.Limit.Rate = window.Sliding, p.win, 0
		c.Limit.Hits = min(c.Limit.Hits, 50)
	}
	if r.IntN(100) == 0 {
		c.Cost = windowtest.Pick[uint64](r, math.MaxUint64, math.MaxUint64-1, 1<<53+1, 1<<53, 1<<53-1, 1<<32)
	}
	return c
}
