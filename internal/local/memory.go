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
	// allowedAge is how long it is believed that nothing remains where a call was
	// allowed. The first one that is denied says it for longer.
	allowedAge = 100 * time.Millisecond
	// inlineChecks is how many checks a group may have before asking about it
	// allocates. Few requests have more.
	inlineChecks = 4
	// stripes is the number of generations. Logs that share one are forgotten
	// together, which costs a question to the store and nothing else.
	stripes = 1 << 10
)

// memory holds what the store has said last of each log.
type memory struct {
	told   *otter.Cache[window.LogID, *told]
	maxAge time.Duration
	// statusAge and exact are for tests, which compare every answer with that of the
	// store: exact leaves to the store what could only be answered with a wait that
	// is a lower bound.
	statusAge time.Duration
	exact     bool

	seed        maphash.Seed
	generations [stripes]atomic.Uint64
}

// told is what the store said to one check. It is immutable.
type told struct {
	// generation is that of the log at the time of the call: if it has moved on,
	// something was given back since, or during the call.
	generation uint64
	hits       uint64 // the limit
	need       uint64 // the cost, at least 1
	precision  time.Duration
	// sent is a moment before the store decided, received one after it. A denial
	// ends by sent, so that it never lasts too long; waits are told by received, so
	// that they are never too short. A call that began before received gets the
	// longer for it.
	sent, received time.Duration
	// maxAge is how long it is believed at most.
	maxAge   time.Duration
	decision window.Decision
}

// asked is what is known before the store is asked about one check.
type asked struct {
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
	m := &memory{told: c, maxAge: o.MaxAge, statusAge: statusAge, seed: maphash.MakeSeed()}
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
func (m *memory) recall(checks []window.Check, group []asked, now time.Duration) (denied bool) {
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
func (m *memory) answer(checks []window.Check, decisions []window.Decision, group []asked, now time.Duration) bool {
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
	age := now - t.sent
	if age < 0 || age >= min(t.maxAge, m.maxAge) {
		return false
	}
	if t.decision.Remaining == 0 {
		return m.nothing(c, t, now, d)
	}
	return m.something(c, t, now, d)
}

// nothing is known where nothing remained. Nothing does before UnitAfter has
// passed, whatever others do: they could only be denied.
func (m *memory) nothing(c *window.Check, t *told, now time.Duration, d *window.Decision) bool {
	if now >= t.sent+t.decision.UnitAfter {
		return false
	}
	passed, need := now-t.received, max(c.Cost, 1)
	*d = window.Decision{
		UnitAfter:  t.decision.UnitAfter - passed,
		ResetAfter: t.decision.ResetAfter - passed,
	}
	exact := c.Limit.Hits == t.hits
	switch {
	case need > c.Limit.Hits:
		d.Never = true
	case t.decision.RetryAfter > 0 && need >= t.need:
		d.RetryAfter = t.decision.RetryAfter - passed
		exact = exact && need == t.need
	default:
		d.RetryAfter = d.UnitAfter
		exact = exact && need == 1
	}
	return exact || !m.exact
}

// something is known where something remained, which others may have spent since,
// or which may be more by now.
func (m *memory) something(c *window.Check, t *told, now time.Duration, d *window.Decision) bool {
	passed, need := now-t.received, max(c.Cost, 1)
	if c.Limit.Hits != t.hits || now-t.sent >= m.statusAge {
		return false
	}
	*d = window.Decision{Remaining: t.decision.Remaining}
	if reset := t.decision.ResetAfter; reset > 0 {
		if passed >= reset {
			return false // the log is empty, unless others have spent
		}
		d.ResetAfter = reset - passed
	}
	exact := true
	switch {
	case need <= d.Remaining:
		d.Allowed = true
	case need > c.Limit.Hits:
		d.Never = true
	case need >= t.need && now < t.sent+t.decision.RetryAfter:
		d.RetryAfter = t.decision.RetryAfter - passed
		exact = need == t.need
	default:
		return false
	}
	return exact || !m.exact
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
func (m *memory) remember(checks []window.Check, decisions []window.Decision, group []asked, sent, received time.Duration) {
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
		m.told.Set(c.Log(), &told{
			generation: group[i].generation,
			hits:       c.Limit.Hits,
			need:       max(c.Cost, 1),
			precision:  c.Precision,
			// The store cuts its clock to whole microseconds, so it may have said a wait
			// that is longer by less than one.
			sent:     sent - time.Microsecond,
			received: received,
			maxAge:   maxAge,
			decision: *d,
		})
	}
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

// drop removes what is known of a group that was asked about all the same: it is
// not true any more, or not for long.
func (m *memory) drop(checks []window.Check, group []asked) {
	for i := range checks {
		if group[i].told != nil {
			m.told.Invalidate(checks[i].Log())
		}
	}
}
