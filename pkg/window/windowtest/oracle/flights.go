package oracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Flight is the oracle of [window.InFlight]: lists of holds, and of what has ended.
type Flight struct {
	Epoch time.Duration
	Logs  map[string]*FlightLog
	Ended map[window.StreamID]time.Duration // until when it is denied
}

// A FlightLog is the book of a limit in flight.
type FlightLog struct {
	wrote time.Duration
	holds []hold
}

type hold struct {
	stream window.StreamID
	until  time.Duration
	cost   uint64
}

// roundMilli rounds a time up to milliseconds.
func roundMilli(d time.Duration) time.Duration {
	return (d + time.Millisecond - time.Microsecond).Truncate(time.Millisecond)
}

func (f *Flight) log(key string) *FlightLog {
	if f.Logs[key] == nil {
		f.Logs[key] = &FlightLog{}
	}
	return f.Logs[key]
}

// at returns the log as it is at a time, without what has expired. The time does not run
// backwards in a log.
func (l *FlightLog) at(clock time.Duration) *FlightLog {
	now := &FlightLog{wrote: max(clock, l.wrote)}
	for _, h := range l.holds {
		if h.until > now.wrote {
			now.holds = append(now.holds, h)
		}
	}
	return now
}

func (l *FlightLog) used() (sum uint64) {
	for _, h := range l.holds {
		sum += h.cost
	}
	return sum
}

func (l *FlightLog) of(stream window.StreamID) int {
	return slices.IndexFunc(l.holds, func(h hold) bool { return h.stream == stream })
}

// keep replaces a log by what it has become. A log that holds nothing is forgotten.
func (f *Flight) keep(key string, l *FlightLog) {
	if l.holds = slices.DeleteFunc(l.holds, func(h hold) bool { return h.cost == 0 }); len(l.holds) == 0 {
		l.wrote = 0
	}
	f.Logs[key] = l
}

// End ends a stream.
func (f *Flight) End(clock time.Duration, stream window.StreamID, deny time.Duration) (was bool) {
	clock += f.Epoch
	if f.Ended[stream] > clock {
		return false
	}
	for key, l := range f.Logs {
		if l.of(stream) < 0 {
			continue
		}
		l = l.at(clock)
		if i := l.of(stream); i >= 0 {
			was = true
			l.holds[i].cost = 0
		}
		f.keep(key, l) // what has expired does not come back
	}
	if delete(f.Ended, stream); deny > 0 {
		f.Ended[stream] = roundMilli(clock + deny)
	}
	return was
}

// Take decides one group at the time clock.
func (f *Flight) Take(clock time.Duration, checks []window.Check) []window.Decision {
	clock += f.Epoch
	asks, room := make([]window.Check, len(checks)), make([]bool, len(checks))
	for i, c := range checks {
		asks[i] = together(checks, c)
	}
	for _, mode := range []window.Mode{window.Refund, window.Always} {
		for i, c := range asks {
			if c.Mode != mode {
				continue
			}
			if !isFirst(checks, i) {
				room[i] = room[slices.IndexFunc(checks, func(o window.Check) bool { return sameAsk(o, c) })]
				continue
			}
			room[i] = c.Mode == window.Refund || f.room(clock, c)
			f.record(clock, c)
		}
	}
	for i, c := range asks {
		if c.Mode != window.Refund && c.Mode != window.Always {
			room[i] = f.room(clock, c)
		}
	}
	allowed := verdict(asks, room)
	for i, c := range asks {
		if allowed && room[i] && c.Mode != window.Refund && c.Mode != window.Always && isFirst(checks, i) {
			f.record(clock, c)
		}
	}
	decisions := make([]window.Decision, len(checks))
	for i, c := range asks {
		decisions[i] = f.answer(clock, c, room[i])
	}
	return decisions
}

func (f *Flight) room(clock time.Duration, c window.Check) bool {
	l := f.log(c.Key).at(clock)
	switch {
	case c.Limit.Hits == window.Unlimited:
		return true
	case c.Limit.Hits == 0 && c.Mode != window.Always || f.Ended[c.Stream] > clock:
		return false
	case l.of(c.Stream) >= 0:
		return true
	}
	return fits(l.used(), c.Cost, c.Limit.Hits)
}

func (f *Flight) record(clock time.Duration, c window.Check) {
	l := f.log(c.Key).at(clock)
	i := l.of(c.Stream)
	switch {
	case c.Cost == 0 || c.Limit.Hits == window.Unlimited:
	case c.Mode == window.Refund && i >= 0:
		l.holds[i].cost -= min(c.Cost, l.holds[i].cost)
		f.keep(c.Key, l)
	case c.Mode != window.Refund && i < 0 && f.Ended[c.Stream] <= clock:
		l.holds = append(l.holds, hold{c.Stream, roundMilli(l.wrote + c.Limit.Window), c.Cost})
		f.keep(c.Key, l)
		delete(f.Ended, c.Stream) // that is over, also if the clock is set back
	}
}

func (f *Flight) answer(clock time.Duration, c window.Check, room bool) window.Decision {
	limit := c.Limit.Hits
	switch {
	case limit == window.Unlimited:
		return window.Decision{Allowed: true, Remaining: window.Unlimited}
	case limit == 0 && !c.Mode.Unconditional():
		return window.Decision{Never: true}
	}
	l := f.log(c.Key).at(clock)
	used := l.used()
	d := window.Decision{Allowed: room, Never: !room && (limit == 0 || c.Cost > limit), Remaining: limit - min(limit, used)}
	d.Unsettled = !d.Never && (!room || d.Remaining == 0)
	if !room && !d.Never {
		d.RetryAfter = max(l.wait(clock, func(used uint64) bool { return fits(used, c.Cost, limit) }), f.Ended[c.Stream]-clock, 0)
	}
	if limit > 0 && used > 0 {
		d.UnitAfter = l.wait(clock, func(now uint64) bool { return limit-min(limit, now) > d.Remaining })
	}
	d.ResetAfter = l.wait(clock, func(used uint64) bool { return used == 0 })
	return d
}

// wait returns the wait until what is used is good, if holds only expire.
func (l *FlightLog) wait(clock time.Duration, good func(used uint64) bool) time.Duration {
	left := slices.SortedFunc(slices.Values(l.holds), func(a, b hold) int { return cmp.Compare(a.until, b.until) })
	used := l.used()
	if good(used) {
		return 0
	}
	for _, h := range left {
		if used -= h.cost; good(used) {
			return h.until - clock
		}
	}
	panic("windowtest: there is no hold, and a cost within the limit has no room")
}
