package local

import (
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// statusAge is the age up to which an answer tells what remains, if something does.
	// Other processes may spend it at any time.
	statusAge = time.Second
	// allowedAge is the age up to which the answer of an allowed call tells that nothing
	// remains. The answer of a denied call tells it for longer.
	allowedAge = 100 * time.Millisecond
	// inlineChecks is the number of checks up to which a group needs no allocation. Few
	// requests have more.
	inlineChecks = 4
	// stripes is the number of generations. Logs that share a generation are forgotten
	// together, which costs one more call of the shared store.
	stripes = 1 << 10
)

// memory has the last answer of the shared store for each log.
type memory struct {
	told   *otter.Cache[window.LogID, *told]
	maxAge time.Duration

	seed        maphash.Seed
	generations [stripes]atomic.Uint64
}

// told is a record: the answer of the shared store to one check. It is immutable.
type told struct {
	// generation is the generation of the log when the call began. If the log has another
	// one now, cost was given back since then.
	generation uint64
	hits       uint64        // the limit
	rate       uint32        // of a token bucket
	period     window.Period // of a calendar
	level      uint64        // the cost has room once the log has fallen to it
	precision  time.Duration
	// sent is a moment before the shared store decided, received a moment after. A denial
	// ends by sent, so it never lasts too long. Waits count from received, so they are
	// never too short.
	sent, received time.Duration
	// maxAge is the age up to which the record is believed.
	maxAge   time.Duration
	decision window.Decision
	// denied is true once a record from an allowed call has denied. Nil: the record is from
	// a denied call.
	denied *atomic.Bool
}

// recalled is what memory has of one check before the shared store is asked.
type recalled struct {
	generation uint64
	told       *told // nil: no record
}

func newMemory(o Options) (*memory, error) {
	keys := o.Keys
	if keys == 0 {
		keys = DefaultKeys
	}
	c, err := otter.New(&otter.Options[window.LogID, *told]{
		MaximumSize: keys,
		// Its work is small, and no goroutine may outlive Close.
		Executor: func(f func()) { f() },
	})
	if err != nil {
		return nil, err
	}
	return &memory{told: c, maxAge: maxAge, seed: maphash.MakeSeed()}, nil
}

// generation returns the counter of how often a key was forgotten. The logs of a key share
// it.
func (m *memory) generation(key string) *atomic.Uint64 {
	return &m.generations[maphash.String(m.seed, key)%stripes]
}

// forget makes the records of a key invalid, and those that calls under way will make. It
// removes nothing: an invalid record has an old generation.
func (m *memory) forget(key string) { m.generation(key).Add(1) }

// recall fills group with the records of the checks, and reports whether they deny the
// group.
func (m *memory) recall(checks []window.Check, group []recalled, now time.Duration) (denied bool) {
	for i := range checks {
		c, a := &checks[i], &group[i]
		a.generation = m.generation(c.Key).Load()
		if t, ok := m.told.GetIfPresent(c.Log()); ok && t.generation == a.generation {
			a.told = t
		}
		if c.Mode == window.Enforce && !denied {
			var d window.Decision
			denied = m.known(c, a.told, now, &d) && !d.Allowed
		}
	}
	return denied
}

// answer fills the decisions of a denied group, and reports whether the records answer
// every check. If it returns false, decisions are undefined.
func (m *memory) answer(checks []window.Check, decisions []window.Decision, group []recalled, now time.Duration) bool {
	if window.Validate(checks, decisions) != nil {
		return false // the shared store returns the error
	}
	if _, folded := window.Fold(checks); folded != nil {
		return false // the shared store decides checks of one log together
	}
	for i := range checks {
		if !m.known(&checks[i], group[i].told, now, &decisions[i]) {
			return false
		}
	}
	for i := range checks {
		decisions[i].Remembered = !decisions[i].Allowed && group[i].told.repeats()
	}
	return true
}

// repeats reports whether a denial by the record repeats an earlier one. The first denial by
// the answer of an allowed call does not.
func (t *told) repeats() bool {
	return t != nil && (t.denied == nil || t.denied.Swap(true))
}

// known answers a check of a denied group from the record of its log, and reports whether
// it can. A denied group charges nothing, so what remains is what remained.
func (m *memory) known(c *window.Check, t *told, now time.Duration, d *window.Decision) bool {
	if answer, ok := window.WithoutLog(c); ok {
		*d = answer
		return true
	}
	if t == nil || t.precision != c.Precision || c.Limit.Hits > t.hits {
		return false
	}
	switch c.Limit.Policy {
	case window.TokenBucket:
		// The bucket keeps tokens, so what is used depends on the burst, and waits on the rate.
		if c.Limit.Hits != t.hits || c.Limit.Rate != t.rate {
			return false
		}
	case window.Calendar:
		// The store judges whether another period contradicts its clock.
		if c.Period != t.period {
			return false
		}
	case window.InFlight:
		// A request that is held may end at any time, so no denial is certain.
		if t.decision.Remaining < max(c.Cost, 1) {
			return false
		}
	}
	age := now - t.sent
	if age < 0 || age >= min(t.maxAge, m.maxAge) {
		return false
	}
	if t.decision.Remaining == 0 {
		return t.nothing(c, now, d)
	}
	return t.something(c, now, d)
}

// nothing is known for a record in which nothing remained. Until UnitAfter has passed,
// nothing remains, because every other process is denied too.
func (t *told) nothing(c *window.Check, now time.Duration, d *window.Decision) bool {
	if now >= t.sent+t.decision.UnitAfter {
		return false
	}
	limit, need := c.Limit.Hits, max(c.Cost, 1)
	unit, ok := t.wait(limit - 1)
	if !ok {
		return false
	}
	*d = window.Decision{
		UnitAfter:  t.received + unit - now,
		ResetAfter: t.received + t.decision.ResetAfter - now,
	}
	switch {
	case need > limit:
		d.Never = true
	case need == 1:
		d.RetryAfter = d.UnitAfter
	default:
		retry, ok := t.wait(limit - need)
		d.RetryAfter = t.received + retry - now
		return ok
	}
	return true
}

// something is known for a record in which something remained. Others may have spent it
// since, and hits may have expired.
func (t *told) something(c *window.Check, now time.Duration, d *window.Decision) bool {
	limit, need := c.Limit.Hits, max(c.Cost, 1)
	if limit != t.hits || now-t.sent >= statusAge {
		return false
	}
	*d = window.Decision{Remaining: t.decision.Remaining}
	if reset := t.decision.ResetAfter; reset > 0 {
		if d.ResetAfter = t.received + reset - now; d.ResetAfter <= 0 {
			return false // every hit in the record has expired
		}
		// If the oldest hit has expired, more remains than the record tells.
		d.UnitAfter = max(t.received+t.decision.UnitAfter-now, time.Microsecond)
	}
	switch {
	case need <= d.Remaining:
		d.Allowed = true
	case need > limit:
		d.Never = true
	default:
		retry, ok := t.wait(limit - need)
		d.RetryAfter = t.received + retry - now
		return ok && now < t.sent+retry
	}
	return true
}

// wait returns how long after the answer the log falls to a level, if nothing is recorded or given
// back before, and reports whether the answer says it. A cost has room under a limit once the log
// has fallen to the limit less the cost. So one level serves every limit and cost with that
// difference.
func (t *told) wait(level uint64) (after time.Duration, ok bool) {
	d := &t.decision
	full, refused := d.Remaining == 0, d.RetryAfter > 0
	switch {
	case level == t.hits-1 && full:
		return d.UnitAfter, true
	case level == t.level && refused:
		return d.RetryAfter, true
	case level == 0, full && d.UnitAfter == d.ResetAfter, refused && level < t.level && d.RetryAfter == d.ResetAfter:
		return d.ResetAfter, true // the log reaches all lower levels at once
	}
	return 0, false
}

// worth reports whether an answer can answer the next call: one check denies this call, or
// will deny the next.
func (m *memory) worth(checks []window.Check, decisions []window.Decision) bool {
	for i := range checks {
		d := &decisions[i]
		if checks[i].Mode == window.Enforce && (!d.Allowed || d.Remaining == 0) {
			return true
		}
	}
	return false
}

// remember keeps the answer of the shared store to a group.
func (m *memory) remember(checks []window.Check, decisions []window.Decision, group []recalled, sent, received time.Duration) {
	if _, folded := window.Fold(checks); folded != nil {
		m.drop(checks, group) // the decisions are for the sum of several costs
		return
	}
	for i := range checks {
		c, d := &checks[i], &decisions[i]
		if _, ok := window.WithoutLog(c); ok {
			continue
		}
		maxAge := believed(c, d)
		if maxAge == 0 {
			m.told.Invalidate(c.Log())
			continue
		}
		fresh := &told{
			generation: group[i].generation,
			hits:       c.Limit.Hits,
			rate:       c.Limit.Rate,
			period:     c.Period,
			level:      c.Limit.Hits - min(max(c.Cost, 1), c.Limit.Hits),
			precision:  c.Precision,
			// The store's clock has whole microseconds, so the wait may be too long by
			// less than one.
			sent:     sent - time.Microsecond,
			received: received,
			maxAge:   maxAge,
			decision: *d,
		}
		if d.Allowed {
			fresh.denied = new(atomic.Bool)
		}
		m.told.Set(c.Log(), fresh)
	}
}

// believed returns the age up to which a decision is believed. It is short if others may
// give hits back.
func believed(c *window.Check, d *window.Decision) time.Duration {
	// A hit that expires later than a new hit would is a reservation.
	ahead := d.ResetAfter > c.Limit.Window+max(c.Precision, time.Millisecond)
	switch {
	case c.Limit.Policy == window.InFlight && (!d.Allowed || d.Remaining == 0):
		return 0 // room may come at any time
	case c.Lease.Length > 0 && (ahead || d.Unsettled):
		// With leases, hits that others may give back deny for the length of a lease.
		return c.Lease.Length
	case d.Unsettled:
		return 0
	case d.Allowed && d.Remaining == 0:
		// A store may mark only denials as counting hits that may be given back.
		return allowedAge
	default:
		return math.MaxInt64
	}
}

// drop removes the records of a group that the shared store has decided. They are not true
// any more, or not for long.
func (m *memory) drop(checks []window.Check, group []recalled) {
	for i := range checks {
		if group[i].told != nil {
			m.told.Invalidate(checks[i].Log())
		}
	}
}
