package windowtest

import (
	"math"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// An oracle decides as the contract says, by looping over everything that was
// ever charged. It shares no idea with the stores: no running sums, no search,
// no pruning.
type oracle struct {
	logs map[window.LogID][]spent
}

type spent struct {
	at   time.Duration
	cost uint64
}

func newOracle() *oracle { return &oracle{logs: make(map[window.LogID][]spent)} }

// take decides one group at the time clock.
func (o *oracle) take(clock time.Duration, checks []window.Check) []window.Decision {
	type ask struct {
		now   time.Duration
		cost  uint64
		limit uint64
	}
	asks := make([]ask, len(checks))
	group := true
	for i, c := range checks {
		a := ask{now: o.now(c.Log(), clock), limit: math.MaxUint64}
		// Whoever names the same log is decided together.
		for _, other := range checks {
			if other.Log() == c.Log() {
				if a.cost+other.Cost < a.cost {
					a.cost = math.MaxUint64
				} else {
					a.cost += other.Cost
				}
				a.limit = min(a.limit, other.Limit.Hits)
			}
		}
		asks[i] = a
		group = group && o.hasRoom(c.Log(), a.now, a.cost, a.limit)
	}

	decisions := make([]window.Decision, len(checks))
	charged := make(map[window.LogID]bool)
	for i, c := range checks {
		// Room is judged before the charge, everything else after it.
		decisions[i].Allowed = o.hasRoom(c.Log(), asks[i].now, asks[i].cost, asks[i].limit)
		decisions[i].Never = asks[i].limit == 0 || asks[i].cost > asks[i].limit
	}
	if group {
		for i, c := range checks {
			if id := c.Log(); !charged[id] && asks[i].cost > 0 {
				o.logs[id] = append(o.logs[id], spent{asks[i].now, asks[i].cost})
				charged[id] = true
			}
		}
	}
	for i, c := range checks {
		a, d := asks[i], &decisions[i]
		if used := o.used(c.Log(), a.now); used < a.limit {
			d.Remaining = a.limit - used
		}
		if !d.Allowed && !d.Never {
			d.RetryAfter = o.wait(c.Log(), a.now, a.cost, a.limit)
		}
		if d.Remaining == 0 && a.limit > 0 {
			d.UnitAfter = o.wait(c.Log(), a.now, 1, a.limit)
		}
		for _, e := range o.logs[c.Log()] {
			d.ResetAfter = max(d.ResetAfter, e.at+c.Limit.Window-a.now)
		}
	}
	return decisions
}

// now is the clock, held at the newest entry.
func (o *oracle) now(id window.LogID, clock time.Duration) time.Duration {
	if entries := o.logs[id]; len(entries) > 0 {
		return max(clock, entries[len(entries)-1].at)
	}
	return clock
}

// used is the cost of the entries in (now-W, now].
func (o *oracle) used(id window.LogID, now time.Duration) uint64 {
	var used uint64
	for _, e := range o.logs[id] {
		if e.at > now-id.Window && e.at <= now {
			used += e.cost
		}
	}
	return used
}

// hasRoom reports whether a cost can be spent at now. Cost 0 asks for a unit.
func (o *oracle) hasRoom(id window.LogID, now time.Duration, cost, limit uint64) bool {
	used := o.used(id, now)
	return used < limit && cost <= limit-used
}

// wait lets one entry after the other expire until the cost has room. Entries
// are in the order of their times, because time does not run backwards here.
func (o *oracle) wait(id window.LogID, now time.Duration, cost, limit uint64) time.Duration {
	used := o.used(id, now)
	for _, e := range o.logs[id] {
		if e.at > now-id.Window {
			used -= e.cost
			if used < limit && cost <= limit-used {
				return e.at + id.Window - now
			}
		}
	}
	panic("windowtest: a cost within the limit must have room in an empty log")
}
