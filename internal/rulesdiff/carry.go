package rulesdiff

import (
	"math"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/window"
)

// unknownMost stands for a use that has no known bound.
const unknownMost = window.MaxHits

// A carried says what a limit would have used of the hits in other logs.
type carried struct {
	limit *policy.Limit
	cost  uint64    // of each request
	at    time.Time // of the logs
	debts bool      // the logs may have been charged over their limits
}

// used returns what surely counts, and what may. If the logs tell neither, why says what is missing.
func (c *carried) used(logs []insight.LimitUsage) (least, most uint64, why string) {
	l := c.limit.Limit
	for i := range logs {
		u := &logs[i]
		switch {
		case policy.ParsePolicy(u.Policy) != l.Policy:
		case l.Policy == window.InFlight || windowOf(u) == l.Window && l.Policy != window.TokenBucket:
			return u.Used, u.Used, ""
		case l.Policy == window.TokenBucket && windowOf(u) == l.Window:
			used := bucketUsed(u, l.Hits)
			return used, used, ""
		}
	}
	into := c.into()
	p := c.past(logs, into)
	if p.window <= 0 {
		return 0, 0, "the log has no window"
	}
	switch l.Policy {
	case window.Sliding:
		return p.least(l.Window), p.most(l.Window), ""
	case window.Fixed, window.Calendar:
		return p.least(into), p.most(into), ""
	case window.SlidingCounter:
		least, most = counterUsed(p, into, l.Window)
		return least, most, ""
	case window.TokenBucket:
		if p.policy == window.InFlight {
			return 0, 0, "a log of requests in flight does not tell how many there were"
		}
		least, most = c.bucket(p)
		return least, most, ""
	default:
		// How long requests take is in no log, but none is held for longer than the window.
		if most = p.most(l.Window); most == unknownMost {
			return 0, 0, "the log does not tell how many requests began in the last " + policy.FormatWindow(l.Window) + ", for which the limit holds each"
		}
		return 0, most, ""
	}
}

// into returns how long the present window of the clock, or the present period, has lasted.
func (c *carried) into() time.Duration {
	switch l := c.limit; {
	case l.Policy == window.Calendar && l.Calendar != nil:
		return c.at.Sub(time.Unix(l.Calendar.Period(c.at).Start, 0))
	case l.Policy == window.Fixed, l.Policy == window.SlidingCounter:
		return time.Duration(c.at.UnixNano()) % l.Window
	default:
		return 0
	}
}

// past chooses the log that tells most about the time that matters.
func (c *carried) past(logs []insight.LimitUsage, into time.Duration) past {
	need := c.limit.Window
	switch c.limit.Policy {
	case window.Fixed, window.Calendar:
		need = into
	case window.SlidingCounter:
		need += into
	}
	var best *insight.LimitUsage
	for i := range logs {
		u := &logs[i]
		if policy.ParsePolicy(u.Policy) != window.Sliding {
			continue
		}
		if best == nil || windowOf(best) < need && windowOf(u) > windowOf(best) || windowOf(u) >= need && windowOf(u) < windowOf(best) {
			best = u
		}
	}
	if best == nil {
		best = &logs[0]
	}
	p := past{u: best, policy: policy.ParsePolicy(best.Policy), window: windowOf(best), debts: c.debts}
	left := time.Duration(best.NextFree * float64(time.Second))
	switch {
	case p.policy == window.Sliding: // its history has the times
	case best.Used == 0:
		p.short, p.long = 0, p.window
	case p.policy == window.Fixed:
		p.short, p.long = max(p.window-left-rounded, 0), p.window-left+rounded
	case p.policy == window.Calendar: // a month has 28 to 31 days, a day 23 to 25 hours
		p.short, p.long = max(p.window*9/10-left, 0), p.window*10/9-left
	case p.policy == window.SlidingCounter:
		p.readCounter(time.Duration(best.Empty * float64(time.Second)))
	}
	return p
}

// readCounter finds what a sliding counter may have in its two windows. It is empty at the end of
// the window after the last one with hits. Its use is the hits of the present window, and the share
// of those before that still counts, rounded up.
func (p *past) readCounter(empty time.Duration) {
	used, most := float64(p.u.Used), float64(unknownMost)
	if !p.debts && p.u.Used <= p.u.Limit {
		most = float64(p.u.Limit)
	}
	into, now := p.window-empty, empty > p.window // now: there are hits in the present window
	if now {
		into += p.window
		used--
	}
	p.short, p.long = max(into-rounded, 0), into+rounded
	large, small := 1-float64(p.short)/float64(p.window), max(1-float64(p.long)/float64(p.window), 0) // the share
	p.before.most = uint64(min(used/small, most))
	if !now {
		p.before.least = min(uint64((used-1)/large)+1, p.before.most)
		p.both = p.before
		return
	}
	p.within = span{1, p.u.Used}
	if old := uint64(math.Ceil(float64(p.before.most) * large)); old < p.u.Used {
		p.within.least = max(p.u.Used-old, 1)
	}
	p.both = span{p.u.Used, min(p.u.Used+uint64(math.Ceil(float64(p.before.most)*(1-small))), unknownMost)}
}

// rounded is more than a time in JSON is rounded by.
const rounded = time.Millisecond

// A past is what one log says of the hits before now.
type past struct {
	u           *insight.LimitUsage
	policy      window.Policy
	window      time.Duration
	short, long time.Duration // how long a period has lasted: at least, and at most
	debts       bool
	// The hits of the window before and of the present one of a sliding counter, and of both.
	before, within, both span
}

// A span is a number of hits, at least and at most.
type span struct{ least, most uint64 }

// least returns how many hits there surely were in the last time.
func (p *past) least(last time.Duration) uint64 {
	switch p.policy {
	case window.Sliding:
		if last < p.window {
			least, _ := lastParts(p.u.History, p.window, last)
			return least
		}
		return p.u.Used
	case window.TokenBucket:
		// A bucket that lacks tokens now has spent them since it was full, or those that came back.
		if back := p.back(last); !p.debts && p.u.Used <= p.u.Limit && float64(p.u.Used)+back > float64(p.u.Limit) {
			return min(p.u.Used, uint64(float64(p.u.Used)+back)-p.u.Limit)
		}
		return 0
	case window.Fixed, window.Calendar:
		if last >= p.long {
			return p.u.Used
		}
		return 0
	case window.SlidingCounter:
		switch {
		case last >= p.long+p.window:
			return p.both.least
		case last >= p.long:
			return p.within.least
		}
		return 0
	default: // in flight
		if last >= p.window {
			return p.u.Used
		}
		return 0
	}
}

// most returns how many hits there may have been in the last time.
func (p *past) most(last time.Duration) uint64 {
	switch {
	case p.policy == window.Sliding && last < p.window && p.u.Used > 0:
		_, most := lastParts(p.u.History, p.window, last)
		return most
	case p.policy == window.SlidingCounter && last <= p.short:
		return p.within.most
	case p.policy == window.SlidingCounter && last <= p.short+p.window:
		return p.both.most
	case p.policy == window.Sliding && last <= p.window, (p.policy == window.Fixed || p.policy == window.Calendar) && last <= p.short:
		return p.u.Used
	case p.policy == window.TokenBucket:
		return p.u.Used + uint64(math.Ceil(p.back(last)))
	default:
		return unknownMost
	}
}

// back returns how many tokens a bucket gets in a time.
func (p *past) back(in time.Duration) float64 {
	return float64(p.u.Rate) * float64(in) / float64(p.window)
}

// counterUsed estimates as a sliding counter does, from the hits of its two windows.
func counterUsed(p past, into, win time.Duration) (least, most uint64) {
	share := float64(win-into) / float64(win)
	estimate := func(current, both uint64) float64 { return float64(current)*(1-share) + float64(both)*share }
	const exact = 1e-6 // about the error of the numbers
	least = uint64(math.Ceil(max(estimate(p.least(into), p.least(into+win))-exact, 0)))
	if current, both := p.most(into), p.most(into+win); current != unknownMost && both != unknownMost {
		return least, uint64(math.Ceil(estimate(current, both) + exact))
	}
	return least, unknownMost
}

// bucket plays a past through a token bucket, which admits what it has tokens for. Within each
// part of the past the hits may have come first or last, and the bucket may have begun full or empty.
func (c *carried) bucket(p past) (least, most uint64) {
	if p.policy == window.TokenBucket {
		return c.otherBucket(p)
	}
	l := c.limit.Limit
	burst, rate := float64(l.Hits), float64(l.Rate)/float64(l.Window)
	low, high := 0.0, burst
	for _, part := range p.stretches() {
		room := math.Floor((burst-low)/float64(c.cost)-1e-6) * float64(c.cost)
		low = max(low+min(float64(part.least), max(room, 0))-rate*float64(part.long), 0)
		high = min(max(high-rate*float64(part.short), 0)+float64(part.most), burst)
	}
	return uint64(math.Ceil(low - 1e-6)), uint64(math.Ceil(high))
}

// A stretch is a part of a past, which lasted from short to long.
type stretch struct {
	span
	short, long time.Duration
}

// stretches returns the past in parts, the oldest first.
func (p *past) stretches() (all []stretch) {
	switch {
	case p.policy == window.SlidingCounter:
		return []stretch{{p.before, p.window, p.window}, {p.within, p.short, p.long}}
	case p.policy != window.Sliding:
		return []stretch{{span{p.u.Used, p.u.Used}, p.short, p.long}}
	case len(p.u.History) == 0:
		return []stretch{{span{}, p.window, p.window}}
	}
	length := p.window / time.Duration(len(p.u.History))
	for _, hits := range p.u.History {
		all = append(all, stretch{span{hits, hits}, length, length + 1})
	}
	return all
}

// otherBucket compares a bucket with one that has another time of its rate.
func (c *carried) otherBucket(p past) (least, most uint64) {
	l := c.limit.Limit
	used := p.u.Used // what was spent of a full bucket, and has not come back
	switch is, was := float64(l.Rate)/float64(l.Window), float64(p.u.Rate)/float64(p.window); {
	case l.Hits < p.u.Limit:
		return 0, max(used, l.Hits) // it would have denied some of the hits
	case is > was:
		return 0, used
	case is < was:
		return used, max(used, l.Hits)
	default:
		return used, used
	}
}

// bucketUsed returns what is missing in a bucket with another burst. Its tokens are the same, but
// not more than the burst.
func bucketUsed(u *insight.LimitUsage, burst uint64) uint64 {
	if u.Used >= u.Limit {
		return burst + (u.Used - u.Limit) // without tokens, or in debt
	}
	return burst - min(u.Limit-u.Used, burst)
}

// lastParts returns the sum of the parts of a history that are within the last time, and the sum
// with the part that is only partly in it.
func lastParts(history []uint64, whole, last time.Duration) (least, most uint64) {
	n := time.Duration(len(history))
	for i := time.Duration(0); i < n; i++ {
		hits := history[n-1-i]
		// The part lasts from whole*(i+1)/n to whole*i/n before now.
		if (i+1)*whole <= last*n {
			least += hits
		}
		if i*whole < last*n {
			most += hits
		}
	}
	return least, most
}

// isFull reports whether a log denies the next request, and is not only observed.
func isFull(logs []insight.LimitUsage) bool {
	return slices.ContainsFunc(logs, func(u insight.LimitUsage) bool { return u.Remaining == 0 && !u.Shadow })
}
