// Package fallback decides for rules with on_store_error: local if the shared store cannot decide.
// Its [Store] has a quota of each limit for this process, a part of the limit by the number of
// processes. [Store.Learn] notes what the shared store knew.
//
// A process admits its quota of each limit: the limit divided by the number of processes of its scope,
// rounded down, but at least one hit. A limit of zero still denies, and an unlimited rule
// still allows.
//
//   - If the process knows from the shared store what remained ([Store.Learn]), it admits no more
//     than its part of that, rounded up. This holds until the newest hit that the shared store knew
//     of has expired. The process does not know when the older hits expire, so it admits too little
//     rather than too much.
//   - Answers to simultaneous calls arrive in any order, and the largest use is the latest. So
//     the largest use of the last one to two [Options.Timeout] counts.
//   - A cost above the quota but not above the limit has room if nothing else counts. So a
//     process admits one such request in a window.
//   - The logs of a process have only what it has admitted. They stay until their hits
//     expire, so an outage that comes and goes does not renew the quota.
//   - The quota of a bucket is a part of its burst and a part of its rate. What the shared store
//     knew to be missing fills up at the rate.
//   - The quota of a limit of requests in flight is a part of its maximum. It counts the active
//     requests of this process, also those that the shared store admitted. Those of other processes do
//     not count, because when they end is not known. The shared store does not count streams that
//     the quota admits. So when it is back, there may be up to a quota more in flight until they end.
//
// A call is late if the store decides and its answer does not come in time. The quotas then decide,
// and nothing is charged later. So one late call adds at most its cost to what the shared store
// admits, and all of them together at most the quota of this process. If some scopes fail, what was
// spent of leases stays spent until the caller takes the rest back ([window.PartError.GiveBack]).
package fallback

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// knownLogs is the number of logs whose use is known at most, and of streams whose reservations are.
const knownLogs = 100_000

// Options change how a [Store] decides. The zero value is usable.
type Options struct {
	// Instances returns the number of processes that share the limits of a scope. Store calls it for
	// every check. What this process has admitted still counts after a change, so a larger quota has
	// room only for the difference. Nil: one.
	Instances func(window.Scope) int
	// Memory bounds the logs of what this process admits. The Store uses its clock.
	Memory memstore.Options
	// Timeout is the longest time that a call to the shared store takes, in any scope.
	Timeout time.Duration
}

// Store decides by this process's quota of each limit while the shared store cannot
// decide. Create it with [New]. Its methods are safe for concurrent use.
type Store struct {
	instances func(window.Scope) int
	clock     func() time.Duration
	store     *memstore.Store // of what this process admits
	known     *otter.Cache[window.LogID, *knownUse]
	span      time.Duration                                 // see knownUse
	reserved  *otter.Cache[window.StreamID, []window.Check] // see Reserved
}

var (
	_ window.Store      = (*Store)(nil)
	_ inspect.Inspector = (*Store)(nil)
	_ window.Releaser   = (*Store)(nil)
)

// minSpan is the shortest span; see knownUse.
const minSpan = time.Millisecond

// A knownUse is the last use of a log by the answers of the shared store. Answers to simultaneous calls
// arrive in any order, and the one with the largest use was decided last. So knownUse keeps the
// largest use of the current span and of the span before it.
type knownUse struct {
	mu     sync.Mutex
	hits   uint64        // the largest use in this span
	before uint64        // the largest use in the span before, which has just ended
	from   time.Duration // when the log expires, by the first answer in this span
	until  time.Duration // the same, by the last answer
}

// learn adds an answer.
func (u *knownUse) learn(hits uint64, until, span time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.until = until
	later := until - u.from
	if -span < later && later < span {
		u.hits = max(u.hits, hits)
		return
	}
	u.before = u.hits
	if later < 0 || later >= 2*span {
		u.before = 0
	}
	u.hits, u.from = hits, until
}

// set forgets all earlier answers.
func (u *knownUse) set(hits uint64, until time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hits, u.before, u.from, u.until = hits, 0, until, until
}

// last returns the use, and when it expires.
func (u *knownUse) last() (hits uint64, until time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return max(u.hits, u.before), u.until
}

// New returns a Store that knows of no use.
func New(o Options) (*Store, error) {
	s := &Store{span: max(o.Timeout, minSpan), instances: o.Instances}
	if s.instances == nil {
		s.instances = func(window.Scope) int { return 1 }
	}
	known, err := otter.New(&otter.Options[window.LogID, *knownUse]{
		MaximumSize: knownLogs,
		Executor:    func(f func()) { f() }, // no goroutine outlives Close
	})
	if err != nil {
		return nil, fmt.Errorf("fallback: %w", err)
	}
	s.known = known
	s.reserved, err = otter.New(&otter.Options[window.StreamID, []window.Check]{MaximumSize: knownLogs, Executor: func(f func()) { f() }})
	if err != nil {
		return nil, fmt.Errorf("fallback: %w", err)
	}
	s.store = memstore.New(o.Memory)
	s.clock = s.store.Now
	return s, nil
}

// Close ends the goroutine that sweeps the logs.
func (s *Store) Close() error { return s.store.Close() }

// Logs returns the number of logs that this process has for its quotas.
func (s *Store) Logs() int { return s.store.Len() }

// Read implements [inspect.Inspector] for the logs of what this process has admitted. The clock
// is that of this process.
func (s *Store) Read(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return s.store.Read(ctx, ids)
}

// List implements [inspect.Inspector] for the logs of what this process has admitted.
func (s *Store) List(ctx context.Context, m inspect.Match, cursor string) (ids []window.LogID, next string, err error) {
	return s.store.List(ctx, m, cursor)
}

// Remove implements [inspect.Inspector] for the logs of what this process has admitted. It also
// forgets the known use of the logs. Other processes keep it.
func (s *Store) Remove(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	for _, id := range ids {
		s.known.Invalidate(id)
	}
	return s.store.Remove(ctx, ids)
}

// Reset is Remove of one log. Call it when the log was removed from the shared store.
func (s *Store) Reset(id window.LogID) {
	_, _ = s.Remove(context.Background(), []window.LogID{id}) // fails only if the context ends
}

// Learn notes what the shared store has decided, so that the use is known when an outage
// begins. It keeps neither argument.
func (s *Store) Learn(c *window.Check, d *window.Decision) {
	switch {
	case c.Limit.Policy == window.InFlight && c.Stream != 0:
		s.learnActive(c, d)
		return
	case c.Limit.Policy == window.InFlight || c.Limit.Hits == window.Unlimited:
		return // when the requests end that the shared store knew of is not known
	}
	hits := c.Limit.Hits - min(d.Remaining, c.Limit.Hits)
	u, ok := s.known.GetIfPresent(c.Log())
	if !ok {
		if hits == 0 {
			return
		}
		u, _ = s.known.SetIfAbsent(c.Log(), new(knownUse))
	}
	until := s.clock() + d.ResetAfter
	if c.Mode == window.Refund {
		u.set(hits, until) // only a refund makes a smaller use the later one
		return
	}
	u.learn(hits, until, s.span)
}

// Take implements [window.Store] for the quotas of the checks' limits. It always decides,
// because its logs are in the memory of this process.
func (s *Store) Take(ctx context.Context, _ bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if err := window.Validate(checks, decisions); err != nil {
		return true, fmt.Errorf("fallback: %w", err)
	}
	folded, answer := window.Fold(checks)
	answers := decisions
	if answer != nil {
		answers = make([]window.Decision, len(folded))
	}
	now := s.clock()
	quotas := make([]quota, len(folded))
	local := make([]window.Check, len(folded))
	for i := range folded {
		local[i] = folded[i]
		quotas[i] = s.quota(&folded[i], now)
		local[i].Limit = quotaLimit(local[i].Limit, quotas[i].hits, quotas[i].instances)
	}
	if _, err := s.store.Take(ctx, window.MayWait, local, answers); err != nil {
		return true, err
	}
	// The group is charged, so a caller that leaves now gets no error.
	ctx = context.WithoutCancel(ctx)
	for i := range folded {
		if err := s.adjust(ctx, &folded[i], &quotas[i], &answers[i]); err != nil {
			return true, err
		}
	}
	s.noteReserved(folded, answers)
	for i, j := range answer {
		decisions[i] = answers[j]
	}
	return true, nil
}

// noteReserved notes what the stream of a decided group has reserved here.
func (s *Store) noteReserved(checks []window.Check, decisions []window.Decision) {
	for i := range checks {
		if c := checks[i]; c.Budget != nil && c.Cost > 0 && window.GroupAllowed(checks, decisions) && c.Mode.Charged(true, decisions[i].Allowed) {
			stream := c.Stream
			c.Mode, c.Stream, c.Budget = window.Enforce, 0, nil
			before, _ := s.reserved.GetIfPresent(stream)
			if same := func(o window.Check) bool { return o.Log() == c.Log() }; !slices.ContainsFunc(before, same) {
				s.reserved.Set(stream, append(slices.Clip(before), c))
			}
		}
	}
}

// Reserved returns what a stream has reserved here, of which the shared store knows nothing, as estimates of a
// [window.Ending]. The limits are whole. Call Settled when the shared store has charged them.
func (s *Store) Reserved(stream window.StreamID) []window.Check {
	checks, _ := s.reserved.GetIfPresent(stream)
	return checks
}

// Settled forgets what a stream has reserved here.
func (s *Store) Settled(stream window.StreamID) { s.reserved.Invalidate(stream) }

// A quota is what this process may admit of a limit.
type quota struct {
	hits  uint64        // now
	later uint64        // when the known use has expired
	even  uint64        // the limit divided by the instances, for any cost
	left  time.Duration // until the known use expires; zero if there is none

	instances uint64
}

// quota returns what this process may admit of a check's limit.
func (s *Store) quota(c *window.Check, now time.Duration) quota {
	limit := c.Limit.Hits
	instances := uint64(max(s.instances(c.Scope), 1))
	if limit == 0 || limit == window.Unlimited {
		return quota{hits: limit, later: limit, even: limit, instances: instances}
	}
	even := max(limit/instances, 1)
	q := quota{hits: even, later: even, even: even, instances: instances}
	if c.Cost <= limit {
		// Otherwise a cost above the quota would never have room, although the rule
		// allows it.
		q.later = max(even, c.Cost)
	}
	if u, ok := s.known.GetIfPresent(c.Log()); ok {
		hits, until := u.last()
		if left := until - now; left > 0 {
			if c.Limit.Policy == window.TokenBucket {
				hits = min(hits, missing(&c.Limit, left))
			}
			rest := limit - min(hits, limit)
			q.hits = min(even, (rest+instances-1)/instances)
			q.left = left
			return q
		}
	}
	q.hits = q.later
	return q
}

// missing returns how many tokens a bucket lacks that is full after left, rounded up.
func missing(l *window.Limit, left time.Duration) uint64 {
	hi, lo := bits.Mul64(uint64(left), uint64(l.Rate))
	lo, carry := bits.Add64(lo, uint64(l.Window)-1, 0)
	if hi += carry; hi >= uint64(l.Window) {
		return math.MaxUint64
	}
	tokens, _ := bits.Div64(hi, lo, uint64(l.Window))
	return tokens
}

// quotaLimit returns l with the hits that this process may admit. The rate of a token bucket is
// divided by the number of processes, rounded down, but at least one hit.
func quotaLimit(l window.Limit, hits, instances uint64) window.Limit {
	if hits == window.Unlimited && l.Hits != window.Unlimited {
		hits-- // a part of a limit is not unlimited
	}
	l.Hits = hits
	if l.Policy != window.TokenBucket {
		return l
	}
	l.Rate = uint32(max(uint64(l.Rate)/instances, 1))
	if l.Hits != window.Unlimited { // the rounded rate must fill the bucket in time
		high, low := bits.Mul64(uint64(window.MaxWindow), uint64(l.Rate))
		if most, _ := bits.Div64(high%uint64(l.Window), low, uint64(l.Window)); high < uint64(l.Window) {
			l.Hits = min(l.Hits, most)
		}
	}
	return l
}

// untilKnown returns the wait until the known use of a token bucket lets this process admit a
// cost.
func (q *quota) untilKnown(c *window.Check) time.Duration {
	need := (max(c.Cost, 1)-1)*q.instances + 1 // of what remains in all
	if need > c.Limit.Hits {
		return q.left
	}
	// The known bucket has what is needed this long before it is full.
	hi, lo := bits.Mul64(c.Limit.Hits-need, uint64(c.Limit.Window))
	if hi >= uint64(c.Limit.Rate) {
		return 0
	}
	before, _ := bits.Div64(hi, lo, uint64(c.Limit.Rate))
	if before >= uint64(q.left) {
		return 0
	}
	wait := q.left - time.Duration(before)
	return (wait + time.Microsecond - 1).Truncate(time.Microsecond)
}

// adjust turns the answer of this process's log into the answer of its quota.
func (s *Store) adjust(ctx context.Context, c *window.Check, q *quota, d *window.Decision) error {
	if over := q.hits - min(q.even, q.hits); over > 0 && d.Remaining > 0 {
		d.Remaining -= min(over, d.Remaining)
		if d.Remaining == 0 {
			d.UnitAfter = d.RetryAfter
		}
	}
	if q.left == 0 {
		return nil
	}
	if d.Remaining > 0 && (d.UnitAfter == 0 || d.UnitAfter > q.left) {
		d.UnitAfter = q.left // the known use counts as one hit
	}
	if d.Allowed && d.Remaining > 0 {
		d.ResetAfter = max(d.ResetAfter, q.left)
		return nil
	}
	later, err := s.askLater(ctx, c, q)
	if err != nil {
		return err
	}
	if c.Limit.Policy == window.TokenBucket {
		q.adjustBucket(c, d, &later)
		return nil
	}
	// The wait ends when enough hits of this process expire, or the known use.
	wait := func(now, then time.Duration) time.Duration {
		if now > 0 && now <= q.left {
			return now
		}
		return max(q.left, then)
	}
	if !d.Allowed && c.Cost <= c.Limit.Hits {
		d.Never = false
		d.RetryAfter = wait(d.RetryAfter, later.RetryAfter)
	}
	if d.Remaining == 0 {
		if later.Remaining > 0 {
			later.UnitAfter = 0 // a unit has room then
		}
		d.UnitAfter = wait(d.UnitAfter, later.UnitAfter)
	}
	d.ResetAfter = max(d.ResetAfter, later.ResetAfter, q.left)
	return nil
}

// adjustBucket is the rest of adjust for a token bucket: what the shared store knew fills up hit by
// hit, and so does the bucket of this process. later is the answer of the bucket of this process
// as if the shared store knew of no use.
func (q *quota) adjustBucket(c *window.Check, d, later *window.Decision) {
	if !d.Allowed && c.Cost <= c.Limit.Hits {
		d.Never = false
		d.RetryAfter = max(q.untilKnown(c), later.RetryAfter, time.Microsecond)
	}
	if d.Remaining == 0 {
		one := *c
		one.Cost = 1
		unit := later.UnitAfter
		if later.Remaining > 0 {
			unit = 0
		}
		d.UnitAfter = max(q.untilKnown(&one), unit, time.Microsecond)
	}
	d.ResetAfter = max(d.ResetAfter, later.ResetAfter, q.left)
}

// askLater asks a log of this process under the limit that holds when the known use has expired. It
// charges nothing, because the second check of the group denies it.
func (s *Store) askLater(ctx context.Context, c *window.Check, q *quota) (window.Decision, error) {
	var decisions [2]window.Decision
	checks := [2]window.Check{*c, {Key: "-", Limit: window.Limit{Window: c.Limit.Window}}}
	checks[0].Mode = window.Enforce
	checks[0].Limit = quotaLimit(c.Limit, q.later, q.instances)
	_, err := s.store.Take(ctx, window.MayWait, checks[:], decisions[:])
	return decisions[0], err
}

// End implements [window.Releaser] for the active requests that this process knows: those that it has
// admitted, and those that Learn has noted.
func (s *Store) End(ctx context.Context, end window.Ending) (settled window.Settled, err error) {
	settled, err = s.store.End(ctx, end)
	if err != nil {
		return settled, fmt.Errorf("fallback: %w", err)
	}
	return settled, nil
}

// learnActive notes an active request that the shared store has admitted. So if an outage begins,
// the quota counts it until its stream ends. If another check has denied the group, the stream
// ends soon.
func (s *Store) learnActive(c *window.Check, d *window.Decision) {
	if !d.Allowed || c.Cost == 0 || c.Mode == window.Refund {
		return
	}
	check, decision := [1]window.Check{*c}, [1]window.Decision{}
	check[0].Mode = window.Always // it is active already, whatever the quota is
	_, _ = s.store.Take(context.Background(), window.NoWait, check[:], decision[:])
}
