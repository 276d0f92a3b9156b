package local

import (
	"hash/maphash"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// allowedAge is how long it is believed that nothing remains where a call was
	// allowed. The first one that is denied says it for longer.
	allowedAge = 100 * time.Millisecond
	// inlineChecks is how many checks a group may have before asking about it
	// allocates. Few requests have more.
	inlineChecks = 4
	// stripes is the number of generations. Logs that share one are forgotten
	// together, which costs a question to the store and nothing else.
	stripes = 1 << 10
	// maxWaits is how many waits of earlier answers a record keeps beside those of
	// the last one.
	maxWaits = 8
)

// memory holds what the store has said last of each log.
type memory struct {
	told   *otter.Cache[window.LogID, *told]
	maxAge time.Duration

	seed        maphash.Seed
	generations [stripes]atomic.Uint64
}

// told is what the store said to one check. It is immutable.
type told struct {
	// generation is that of the log at the time of the call: if it has moved on,
	// something was given back since, or during the call.
	generation uint64
	hits       uint64 // the limit
	level      uint64 // what the log must fall to before the cost has room
	precision  time.Duration
	// since is sent of the oldest answer in the record. The age of the record counts
	// from it.
	since time.Duration
	// sent is a moment before the store decided, received one after it. A denial
	// ends by sent, so that it never lasts too long; waits are told by received, so
	// that they are never too short. A call that began before received gets the
	// longer for it.
	sent, received time.Duration
	// maxAge is how long it is believed at most.
	maxAge   time.Duration
	decision window.Decision
	// waits are waits that earlier answers told, or answers under a smaller limit.
	waits []wait
}

// A wait says when the cost in a log will have fallen to a level, if nothing is
// recorded or given back before. A cost has room under a limit as soon as the log has
// fallen to the limit less the cost. So one level serves every limit and cost with that
// difference.
type wait struct {
	level uint64
	// from and until are the earliest and the latest moment at which it can happen:
	// the store decided at some moment between sent and received.
	from, until time.Duration
}

// recalled is what is remembered of one check before the store is asked.
type recalled struct {
	generation uint64
	told       *told // nil if there is nothing
}

func newMemory(o Options) (*memory, error) {
	keys := o.Keys
	if keys == 0 {
		keys = DefaultKeys
	}
	c, err := otter.New(&otter.Options[window.LogID, *told]{
		MaximumSize: keys,
		// What it has to tidy up is little, and no goroutine is to outlive Close.
		Executor: func(f func()) { f() },
	})
	if err != nil {
		return nil, err
	}
	m := &memory{told: c, maxAge: o.MaxAge, seed: maphash.MakeSeed()}
	if m.maxAge == 0 {
		m.maxAge = DefaultMaxAge
	}
	return m, nil
}

// generation is the counter that says how often a log was forgotten. The windows
// of a key share it.
func (m *memory) generation(key string) *atomic.Uint64 {
	return &m.generations[maphash.String(m.seed, key)%stripes]
}

// forget makes void what is remembered of a key, and what calls that are under way
// will want to remember. Nothing is removed: whoever finds it sees its generation.
func (m *memory) forget(key string) { m.generation(key).Add(1) }

func (m *memory) forgetAll() {
	for i := range m.generations {
		m.generations[i].Add(1)
	}
}

// recall finds what is known of every check, and reports whether that denies the
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

// answer answers a group that is denied, and reports whether it could say
// everything that the store would say. Otherwise decisions are undefined.
func (m *memory) answer(checks []window.Check, decisions []window.Decision, group []recalled, now time.Duration) bool {
	if window.Validate(checks, decisions) != nil {
		return false // the store says so
	}
	if _, folded := window.Fold(checks); folded != nil {
		return false // checks of one log are decided together
	}
	for i := range checks {
		if !m.known(&checks[i], group[i].told, now, &decisions[i]) {
			return false
		}
	}
	return true
}

// known answers a check from what was told of its log, and reports whether it
// could. Of a check of a group that is denied nothing is charged, so what remains
// is what remained.
func (m *memory) known(c *window.Check, t *told, now time.Duration, d *window.Decision) bool {
	if answer, ok := window.WithoutLog(c); ok {
		*d = answer
		return true
	}
	if t == nil || t.precision != c.Precision || c.Limit.Hits > t.hits {
		return false
	}
	age := now - t.since
	if age < 0 || age >= min(t.maxAge, m.maxAge) {
		return false
	}
	if t.decision.Remaining == 0 {
		return t.nothing(c, now, d)
	}
	return t.something(c, now, d)
}

// nothing answers where nothing remained. Nothing does before UnitAfter has passed,
// whatever others do: they could only be denied.
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
		UnitAfter:  unit.until - now,
		ResetAfter: t.received + t.decision.ResetAfter - now,
	}
	switch {
	case need > limit:
		d.Never = true
	case need == 1:
		d.RetryAfter = d.UnitAfter
	default:
		retry, ok := t.wait(limit - need)
		d.RetryAfter = retry.until - now
		return ok
	}
	return true
}

// something answers where something remained, which others may have spent since,
// or which may be more by now.
func (t *told) something(c *window.Check, now time.Duration, d *window.Decision) bool {
	limit, need := c.Limit.Hits, max(c.Cost, 1)
	if limit != t.hits || now-t.sent >= statusAge {
		return false
	}
	*d = window.Decision{Remaining: t.decision.Remaining}
	if reset := t.decision.ResetAfter; reset > 0 {
		if d.ResetAfter = t.received + reset - now; d.ResetAfter <= 0 {
			return false // the log is empty, unless others have spent
		}
	}
	switch {
	case need <= d.Remaining:
		d.Allowed = true
	case need > limit:
		d.Never = true
	default:
		retry, ok := t.wait(limit - need)
		d.RetryAfter = retry.until - now
		return ok && now < retry.from
	}
	return true
}

// wait returns when the log falls to a level, and reports whether that is known.
func (t *told) wait(level uint64) (wait, bool) {
	d := &t.decision
	unit := t.after(t.hits-1, d.UnitAfter)
	if level == unit.level && d.Remaining == 0 {
		return unit, true
	}
	retry := t.after(t.level, d.RetryAfter)
	if level == retry.level && d.RetryAfter > 0 {
		return retry, true
	}
	// The log falls from level to level. So between two levels that it reaches at the
	// same time, it reaches all others then too.
	b := bounds{level: level, lower: wait{until: math.MinInt64}, upper: math.MaxInt64}
	b.add(t.after(0, d.ResetAfter))
	if d.Remaining == 0 {
		b.add(unit)
	}
	if d.RetryAfter > 0 {
		b.add(retry)
	}
	for i := range t.waits {
		b.add(t.waits[i])
	}
	return b.lower, b.lower.until >= b.upper
}

// after returns what the record's own answer says of a level.
func (t *told) after(level uint64, after time.Duration) wait {
	return wait{level, t.sent + after, t.received + after}
}

// bounds are what the waits of other levels say of one.
type bounds struct {
	level uint64
	lower wait          // the longest wait for this level or a higher one
	upper time.Duration // the end of the shortest wait for this level or a lower one
}

func (b *bounds) add(w wait) {
	if w.level >= b.level && w.until > b.lower.until {
		b.lower = w
	}
	if w.level <= b.level {
		b.upper = min(b.upper, w.until)
	}
}

// worth reports whether an answer lets the next one be given without the store:
// some check denies, or will.
func (m *memory) worth(checks []window.Check, decisions []window.Decision) bool {
	for i := range checks {
		d := &decisions[i]
		if checks[i].Mode == window.Enforce && (!d.Allowed || d.Remaining == 0) {
			return true
		}
	}
	return false
}

// remember keeps what the store said to a group.
func (m *memory) remember(checks []window.Check, decisions []window.Decision, group []recalled, sent, received time.Duration) {
	if _, folded := window.Fold(checks); folded != nil {
		m.drop(checks, group) // the decision is on the sum of several costs
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
			level:      c.Limit.Hits - min(max(c.Cost, 1), c.Limit.Hits),
			precision:  c.Precision,
			// The store cuts its clock to whole microseconds, so it may have said a wait
			// that is longer by less than one.
			sent:     sent - time.Microsecond,
			received: received,
			maxAge:   maxAge,
			decision: *d,
		}
		fresh.since = fresh.sent
		m.told.Set(c.Log(), fresh.with(group[i].told, m.maxAge))
	}
}

// with returns t with the waits of an older record of the log, or t alone where
// something may have been recorded or given back between the two answers.
func (t *told) with(old *told, maxAge time.Duration) *told {
	if old == nil || !t.continues(old, maxAge) {
		return t
	}
	// What denies more is kept, and the waits of the other.
	kept, from := *t, old
	if old.hits > t.hits {
		kept, from = *old, t
	}
	kept.since = old.since
	kept.waits = nil
	add := func(w wait) {
		own := w.level == kept.hits-1 || w.level == kept.level && kept.decision.RetryAfter > 0
		if own || len(kept.waits) == maxWaits || slices.ContainsFunc(kept.waits, func(v wait) bool { return v.level == w.level }) {
			return
		}
		kept.waits = append(kept.waits, w)
	}
	if from.decision.RetryAfter > 0 {
		add(from.after(from.level, from.decision.RetryAfter))
	}
	if from.hits < kept.hits {
		add(from.after(from.hits-1, from.decision.UnitAfter))
	}
	for _, w := range old.waits {
		add(w)
	}
	return &kept
}

// continues reports whether the log has had no room from the older answer until this
// one, so that nothing was recorded. The newest hit tells what others recorded or gave
// back all the same: the two answers must agree on when it expires.
func (t *told) continues(old *told, maxAge time.Duration) bool {
	reset, was := t.decision.ResetAfter, old.decision.ResetAfter
	return t.decision.Remaining == 0 && t.received < old.sent+old.decision.UnitAfter && t.hits <= old.hits &&
		t.maxAge == old.maxAge && t.received-old.since < min(t.maxAge, maxAge) &&
		t.sent+reset <= old.received+was && old.sent+was <= t.received+reset
}

// believed returns how long a decision is believed at most, for what others may
// give back.
func believed(c *window.Check, d *window.Decision) time.Duration {
	// What is recorded ahead, by more than times are rounded up, is reserved.
	ahead := d.ResetAfter > c.Limit.Window+max(c.Precision, time.Millisecond)
	switch {
	case c.Lease.Length > 0 && (ahead || d.Unsettled):
		// A rule that allows leases accepts that what others may still give back denies
		// for as long as a lease.
		return c.Lease.Length
	case d.Unsettled:
		return 0
	case d.Allowed && d.Remaining == 0:
		// A store may say of denials alone that they count what may be taken back.
		return allowedAge
	default:
		return math.MaxInt64
	}
}

// drop removes what is known of a group that the store was asked about all the same: it is
// not true any more, or not for long.
func (m *memory) drop(checks []window.Check, group []recalled) {
	for i := range checks {
		if group[i].told != nil {
			m.told.Invalidate(checks[i].Log())
		}
	}
}
