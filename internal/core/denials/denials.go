// Package denials remembers what the shared store has denied, so that a process can repeat it.
// [Memory] keeps the last answer for each log, counts its waits down, and answers groups that it
// knows to be denied.
//
// A log records only what was allowed. So a denial stays true until its
// [window.Decision.RetryAfter] has passed, unless hits are given back or the log is removed. [Memory]
// has the last answer of the shared store for each log, and believes it for a second at most. It
// denies a group if it knows the wait of every check without room. So a refund or a reset by another
// process, and a shared store that has lost its logs, count here within a second.
//
// A denial ends earlier after [Memory.Forget], under a larger limit, and under another precision.
// Memory does not remember a denial that is marked [window.Decision.Unsettled], as those that the end of
// a request can lift, or the answer of a call during which the log was forgotten.
//
// # What is exact, and what is not
//
// The denial from memory lasts no longer than one of the shared store: from the moment before the
// call was sent, less a microsecond, because the store's clock has whole microseconds. If a call is
// allowed and nothing remains, its answer already has the wait for one unit. The shared store may not
// say then whether other processes may give hits back. So Memory believes such an answer for 100 ms.
//
// Waits count down from the moment at which the answer arrived. They are never shorter than
// the true waits, and longer by one round trip at most. Another process may spend meanwhile, so the
// true wait can become longer, for a second at most. If nothing remained, only a larger limit on the
// same log or a usage update can do that.
//
// A wait depends on one number, the level that the cost in the log must fall to: the limit less the
// cost of the request. A full log has three known waits: for one unit, for the cost that was denied,
// and until the log is empty. If the log reaches two of these levels at the same time, it reaches all
// levels between them too. Memory knows no wait for another level.
//
// A denied group charges nothing, so its other checks only need a status. If nothing remained, it is
// exact until the wait for one unit has passed. Otherwise it is at most a second old. A group that has
// a log twice has no answer from memory.
//
// # Cost
//
// A denial takes one look-up for each check and allocates nothing. Memory keeps only answers that
// deny, or that will deny the next call, so a log with room takes no memory.
package denials

import (
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// defaultLogs is the number of logs whose answers a Memory keeps, unless New says another.
	defaultLogs = 100_000
	// maxAge is the age up to which an answer is believed. Up to that age a process may deny from
	// memory although the shared store has lost its logs. The clocks of two machines drift apart
	// for that time at most.
	maxAge = time.Second
	// statusAge is the age up to which an answer says what remains, if something does.
	// Other processes may spend it at any time.
	statusAge = time.Second
	// allowedAge is the age up to which the answer of an allowed call says that nothing
	// remains. The answer of a denied call says it for longer.
	allowedAge = 100 * time.Millisecond
	// stripes is the number of generations. Logs that share a generation are forgotten
	// together, which costs one more call of the shared store.
	stripes = 1 << 10
)

// A Memory has the last answer of the shared store for each log. Create it with [New]. Its methods are
// safe for concurrent use. Their times are by a clock of the process that is never set.
type Memory struct {
	// MaxAge is the age up to which an answer is believed, a second. Tests set it before the first call.
	MaxAge time.Duration
	// Seed says which keys are forgotten together. Tests set it before the first call.
	Seed maphash.Seed

	cached      *otter.Cache[window.LogID, *cachedDecision]
	generations [stripes]atomic.Uint64
}

// A cachedDecision is the answer of the shared store to one check. It is immutable.
type cachedDecision struct {
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
	// maxAge is the age up to which the answer is believed.
	maxAge   time.Duration
	decision window.Decision
	// denied is true once an answer to an allowed call has denied. Nil: the answer is to
	// a denied call.
	denied *atomic.Bool
}

// Known is what a [Memory] knows of the log of one check before the shared store is asked.
type Known struct {
	generation uint64
	cached     *cachedDecision // nil: nothing
}

// seed is that of all Memories, so that they agree about the keys that are forgotten together.
var seed = maphash.MakeSeed()

// New returns an empty Memory with room for a number of logs. Zero: 100,000.
func New(logs int) (*Memory, error) {
	if logs == 0 {
		logs = defaultLogs
	}
	c, err := otter.New(&otter.Options[window.LogID, *cachedDecision]{
		MaximumSize: logs,
		Executor:    func(f func()) { f() }, // its work is small, and it has no goroutine
	})
	if err != nil {
		return nil, fmt.Errorf("denials: %w", err)
	}
	return &Memory{cached: c, MaxAge: maxAge, Seed: seed}, nil
}

// Len returns the number of logs that m has an answer for. It includes answers that are out of date.
func (m *Memory) Len() int { return m.cached.EstimatedSize() }

// generation returns the counter of how often a key was forgotten. The logs of a key share
// it.
func (m *Memory) generation(key string) *atomic.Uint64 {
	return &m.generations[maphash.String(m.Seed, key)%stripes]
}

// Forget makes the answers for the logs of a key invalid, and those that calls under way will get. It
// removes nothing: an invalid answer has an old generation.
func (m *Memory) Forget(key string) { m.generation(key).Add(1) }

// Recall fills known with what m knows of the checks, and reports whether that denies the group.
func (m *Memory) Recall(checks []window.Check, known []Known, now time.Duration) (denied bool) {
	for i := range checks {
		c, k := &checks[i], &known[i]
		k.generation = m.generation(c.Key).Load()
		if t, ok := m.cached.GetIfPresent(c.Log()); ok && t.generation == k.generation {
			k.cached = t
		}
		if c.Mode == window.Enforce && !denied {
			var d window.Decision
			denied = m.AnswerCheck(c, *k, now, &d) && !d.Allowed
		}
	}
	return denied
}

// Answer fills the decisions of a denied group, and reports whether what m knows answers
// every check. If it returns false, decisions are undefined.
func (m *Memory) Answer(checks []window.Check, decisions []window.Decision, known []Known, now time.Duration) bool {
	if window.Validate(checks, decisions) != nil {
		return false // the shared store returns the error
	}
	if _, folded := window.Fold(checks); folded != nil {
		return false // the shared store decides checks of one log together
	}
	for i := range checks {
		if !m.AnswerCheck(&checks[i], known[i], now, &decisions[i]) {
			return false
		}
	}
	for i := range checks {
		decisions[i].Remembered = !decisions[i].Allowed && known[i].cached.repeats()
	}
	return true
}

// repeats reports whether a denial by a cached answer repeats an earlier one. The first denial by
// the answer of an allowed call does not.
func (t *cachedDecision) repeats() bool {
	return t != nil && (t.denied == nil || t.denied.Swap(true))
}

// AnswerCheck answers a check of a denied group from what m knows of its log, and reports whether
// it can. A denied group charges nothing, so what remains is what remained.
func (m *Memory) AnswerCheck(c *window.Check, known Known, now time.Duration, d *window.Decision) bool {
	if answer, ok := window.WithoutLog(c); ok {
		*d = answer
		return true
	}
	t := known.cached
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
	}
	// An active request may end at any time, so no denial is certain.
	if c.Stream != 0 && t.decision.Remaining < max(c.Cost, 1) {
		return false
	}
	age := now - t.sent
	if age < 0 || age >= min(t.maxAge, m.MaxAge) {
		return false
	}
	if t.decision.Remaining == 0 {
		return t.answerExhausted(c, now, d)
	}
	return t.answerWithRoom(c, now, d)
}

// answerExhausted answers from an answer in which nothing remained. Until UnitAfter has passed,
// nothing remains, because every other process is denied too.
func (t *cachedDecision) answerExhausted(c *window.Check, now time.Duration, d *window.Decision) bool {
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

// answerWithRoom answers from an answer in which something remained. Others may have spent it
// since, and hits may have expired.
func (t *cachedDecision) answerWithRoom(c *window.Check, now time.Duration, d *window.Decision) bool {
	limit, need := c.Limit.Hits, max(c.Cost, 1)
	if limit != t.hits || now-t.sent >= statusAge {
		return false
	}
	*d = window.Decision{Remaining: t.decision.Remaining}
	if reset := t.decision.ResetAfter; reset > 0 {
		if d.ResetAfter = t.received + reset - now; d.ResetAfter <= 0 {
			return false // every hit has expired
		}
		// If the oldest hit has expired, more remains than the answer says.
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
func (t *cachedDecision) wait(level uint64) (after time.Duration, ok bool) {
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

// deniesNext reports whether an answer can answer the next call: one check denies this call, or
// will deny the next.
func deniesNext(checks []window.Check, decisions []window.Decision) bool {
	for i := range checks {
		d := &decisions[i]
		if checks[i].Mode == window.Enforce && (!d.Allowed || d.Remaining == 0) {
			return true
		}
	}
	return false
}

// Learn keeps the answer of the shared store to a group if it can answer later calls, and removes what m
// knew of the group otherwise. known is from before the call, and sent a moment before it. clock
// returns a moment after it.
func (m *Memory) Learn(checks []window.Check, decisions []window.Decision, known []Known, sent time.Duration, clock func() time.Duration) {
	if !deniesNext(checks, decisions) {
		m.drop(checks, known)
		return
	}
	received := clock()
	if _, folded := window.Fold(checks); folded != nil {
		m.drop(checks, known) // the decisions are for the sum of several costs
		return
	}
	for i := range checks {
		c, d := &checks[i], &decisions[i]
		if _, ok := window.WithoutLog(c); ok {
			continue
		}
		maxAge := believed(c, d)
		if maxAge == 0 {
			m.cached.Invalidate(c.Log())
			continue
		}
		fresh := &cachedDecision{
			generation: known[i].generation,
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
		m.cached.Set(c.Log(), fresh)
	}
}

// believed returns the age up to which a decision is believed. It is short if others may
// give hits back.
func believed(c *window.Check, d *window.Decision) time.Duration {
	// A hit that expires later than a new hit would is a reservation.
	ahead := d.ResetAfter > c.Limit.Window+max(c.Precision, time.Millisecond)
	switch {
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

// drop removes the answers for a group that the shared store has decided, because they are no longer
// true, or soon will not be.
func (m *Memory) drop(checks []window.Check, known []Known) {
	for i := range checks {
		if known[i].cached != nil {
			m.cached.Invalidate(checks[i].Log())
		}
	}
}
