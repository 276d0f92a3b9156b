package local

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// ShareOptions change how [Shares] decide. The zero value is usable.
type ShareOptions struct {
	// Instances returns the number of processes that share the limits of a scope. Shares call it for
	// every check. What this process has admitted still counts after a change, so a larger share has
	// room only for the difference. Nil: one.
	Instances func(window.Scope) int
	// Memory bounds the logs of what this process admits. The shares use its clock.
	Memory memstore.Options
	// Timeout is the longest time that a call to the shared store takes, in any scope.
	Timeout time.Duration
}

// Shares decides by this process's share of each limit while the shared store cannot
// decide. Create it with [NewShares]. Its methods are safe for concurrent use.
type Shares struct {
	instances func(window.Scope) int
	clock     func() time.Duration
	store     *memstore.Store // of what this process admits
	known     *otter.Cache[window.LogID, *used]
	span      time.Duration // see used
}

var (
	_ window.Store  = (*Shares)(nil)
	_ window.Keeper = (*Shares)(nil)
)

// minSpan is the shortest span; see used.
const minSpan = time.Millisecond

// used is what the shared store said last of a log. Answers to calls at once arrive in any
// order, and the one with the largest use was decided last. So used keeps the largest use
// of the current span and of the span before it.
type used struct {
	mu     sync.Mutex
	hits   uint64        // the largest use in this span
	before uint64        // the largest use in the span before, which has just ended
	from   time.Duration // when the log expires, by the first answer in this span
	until  time.Duration // the same, by the last answer
}

// learn adds an answer.
func (u *used) learn(hits uint64, until, span time.Duration) {
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
func (u *used) set(hits uint64, until time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hits, u.before, u.from, u.until = hits, 0, until, until
}

// last returns the use, and when it expires.
func (u *used) last() (hits uint64, until time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return max(u.hits, u.before), u.until
}

// NewShares returns Shares that know of no use.
func NewShares(o ShareOptions) (*Shares, error) {
	s := &Shares{span: max(o.Timeout, minSpan), clock: o.Memory.Clock, instances: o.Instances}
	if s.instances == nil {
		s.instances = func(window.Scope) int { return 1 }
	}
	if s.clock == nil {
		s.clock = epoch()
		o.Memory.Clock = s.clock
	}
	known, err := otter.New(&otter.Options[window.LogID, *used]{
		MaximumSize: DefaultKeys,
		Executor:    func(f func()) { f() }, // no goroutine outlives Close
	})
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	s.known = known
	s.store = memstore.New(o.Memory)
	return s, nil
}

// Close ends the goroutine that sweeps the logs.
func (s *Shares) Close() error { return s.store.Close() }

// Logs returns the number of logs of what this process has admitted.
func (s *Shares) Logs() int { return s.store.Len() }

// Read implements [window.Keeper] for the logs of what this process has admitted. The clock
// is that of this process.
func (s *Shares) Read(ctx context.Context, ids []window.LogID) ([]window.Reading, error) {
	return s.store.Read(ctx, ids)
}

// List implements [window.Keeper] for the logs of what this process has admitted.
func (s *Shares) List(ctx context.Context, m window.Match, cursor string) (ids []window.LogID, next string, err error) {
	return s.store.List(ctx, m, cursor)
}

// Remove implements [window.Keeper] for the logs of what this process has admitted. It also
// forgets the known use of the logs. Other processes keep what they know.
func (s *Shares) Remove(ctx context.Context, ids []window.LogID) ([]window.Reading, error) {
	for _, id := range ids {
		s.known.Invalidate(id)
	}
	return s.store.Remove(ctx, ids)
}

// Reset is Remove of one log. Call it when the log was removed from the shared store.
func (s *Shares) Reset(id window.LogID) {
	_, _ = s.Remove(context.Background(), []window.LogID{id}) // fails only if the context ends
}

// Learn notes what the shared store has decided, so that the shares know the use when an
// outage begins. It keeps neither argument.
func (s *Shares) Learn(c *window.Check, d *window.Decision) {
	if c.Stream != 0 {
		s.learnHold(c, d)
		return
	}
	if c.Limit.Hits == window.MaxHits || c.Limit.Policy == window.InFlight {
		return // when the requests end that the shared store knew of is not known
	}
	hits := c.Limit.Hits - min(d.Remaining, c.Limit.Hits)
	u, ok := s.known.GetIfPresent(c.Log())
	if !ok {
		if hits == 0 {
			return
		}
		u, _ = s.known.SetIfAbsent(c.Log(), new(used))
	}
	until := s.clock() + d.ResetAfter
	if c.Mode == window.Refund {
		u.set(hits, until) // only a refund makes a smaller use the later one
		return
	}
	u.learn(hits, until, s.span)
}

// Take implements [window.Store] for the shares of the checks' limits. It always decides,
// because the shares are in the memory of this process.
func (s *Shares) Take(ctx context.Context, _ bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if err := window.Validate(checks, decisions); err != nil {
		return true, fmt.Errorf("local: %w", err)
	}
	folded, answer := window.Fold(checks)
	answers := decisions
	if answer != nil {
		answers = make([]window.Decision, len(folded))
	}
	now := s.clock()
	parts := make([]part, len(folded))
	own := make([]window.Check, len(folded))
	for i := range folded {
		own[i] = folded[i]
		parts[i] = s.part(&folded[i], now)
		own[i].Limit = shareLimit(own[i].Limit, parts[i].hits, parts[i].instances)
	}
	if _, err := s.store.Take(ctx, window.MayWait, own, answers); err != nil {
		return true, err
	}
	// The group is charged, so a caller that leaves now gets no error.
	ctx = context.WithoutCancel(ctx)
	for i := range folded {
		if err := s.tell(ctx, &folded[i], &parts[i], &answers[i]); err != nil {
			return true, err
		}
	}
	for i, j := range answer {
		decisions[i] = answers[j]
	}
	return true, nil
}

// A part is what this process may admit of a limit.
type part struct {
	hits  uint64        // now
	later uint64        // when the known use has expired
	share uint64        // the share of the limit, for any cost
	left  time.Duration // until the known use expires; zero if there is none

	instances uint64
}

// part returns what this process may admit of a check's limit.
func (s *Shares) part(c *window.Check, now time.Duration) part {
	limit := c.Limit.Hits
	instances := uint64(max(s.instances(c.Scope), 1))
	if limit == 0 || limit == window.MaxHits {
		return part{hits: limit, later: limit, share: limit, instances: instances}
	}
	share := max(limit/instances, 1)
	p := part{hits: share, later: share, share: share, instances: instances}
	if c.Cost <= limit {
		// Otherwise a cost above the share would never have room, although the rule
		// allows it.
		p.later = max(share, c.Cost)
	}
	if u, ok := s.known.GetIfPresent(c.Log()); ok {
		hits, until := u.last()
		if left := until - now; left > 0 {
			if c.Limit.Policy == window.TokenBucket {
				hits = min(hits, missing(&c.Limit, left))
			}
			rest := limit - min(hits, limit)
			p.hits = min(share, (rest+instances-1)/instances)
			p.left = left
			return p
		}
	}
	p.hits = p.later
	return p
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

// shareLimit returns a limit of which this process may admit so many hits. The rate of a token
// bucket is divided by the number of processes, rounded down, but at least one hit.
func shareLimit(l window.Limit, hits, instances uint64) window.Limit {
	l.Hits = hits
	if l.Policy != window.TokenBucket {
		return l
	}
	l.Rate = uint32(max(uint64(l.Rate)/instances, 1))
	if l.Hits != window.MaxHits { // the rounded rate must fill the bucket in time
		high, low := bits.Mul64(uint64(window.MaxWindow), uint64(l.Rate))
		if most, _ := bits.Div64(high%uint64(l.Window), low, uint64(l.Window)); high < uint64(l.Window) {
			l.Hits = min(l.Hits, most)
		}
	}
	return l
}

// untilKnown returns the wait until the known use of a token bucket lets this process admit a
// cost.
func (p *part) untilKnown(c *window.Check) time.Duration {
	need := (max(c.Cost, 1)-1)*p.instances + 1 // of what remains in all
	if need > c.Limit.Hits {
		return p.left
	}
	// So much time before the known bucket is full, it has what is needed.
	hi, lo := bits.Mul64(c.Limit.Hits-need, uint64(c.Limit.Window))
	if hi >= uint64(c.Limit.Rate) {
		return 0
	}
	before, _ := bits.Div64(hi, lo, uint64(c.Limit.Rate))
	if before >= uint64(p.left) {
		return 0
	}
	wait := p.left - time.Duration(before)
	return (wait + time.Microsecond - 1).Truncate(time.Microsecond)
}

// tell turns the answer of this process's log into the answer of the share.
func (s *Shares) tell(ctx context.Context, c *window.Check, p *part, d *window.Decision) error {
	if over := p.hits - min(p.share, p.hits); over > 0 && d.Remaining > 0 {
		d.Remaining -= min(over, d.Remaining)
		if d.Remaining == 0 {
			d.UnitAfter = d.RetryAfter
		}
	}
	if p.left == 0 {
		return nil
	}
	if d.Remaining > 0 && (d.UnitAfter == 0 || d.UnitAfter > p.left) {
		d.UnitAfter = p.left // the known use counts as one hit
	}
	if d.Allowed && d.Remaining > 0 {
		d.ResetAfter = max(d.ResetAfter, p.left)
		return nil
	}
	later, err := s.look(ctx, c, p)
	if err != nil {
		return err
	}
	if c.Limit.Policy == window.TokenBucket {
		p.tellBucket(c, d, &later)
		return nil
	}
	// The wait ends when enough of this process's own hits expire, or the known use.
	wait := func(now, then time.Duration) time.Duration {
		if now > 0 && now <= p.left {
			return now
		}
		return max(p.left, then)
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
	d.ResetAfter = max(d.ResetAfter, later.ResetAfter, p.left)
	return nil
}

// tellBucket is the rest of tell for a token bucket: what the shared store knew fills up hit by
// hit, and so does the bucket of this process. later is the answer of the bucket of this process
// as if the shared store knew of no use.
func (p *part) tellBucket(c *window.Check, d, later *window.Decision) {
	if !d.Allowed && c.Cost <= c.Limit.Hits {
		d.Never = false
		d.RetryAfter = max(p.untilKnown(c), later.RetryAfter, time.Microsecond)
	}
	if d.Remaining == 0 {
		one := *c
		one.Cost = 1
		unit := later.UnitAfter
		if later.Remaining > 0 {
			unit = 0
		}
		d.UnitAfter = max(p.untilKnown(&one), unit, time.Microsecond)
	}
	d.ResetAfter = max(d.ResetAfter, later.ResetAfter, p.left)
}

// look asks a log of this process under the limit that holds when the known use has expired. It
// charges nothing, because the second check of the group denies it.
func (s *Shares) look(ctx context.Context, c *window.Check, p *part) (window.Decision, error) {
	var decisions [2]window.Decision
	checks := [2]window.Check{*c, {Key: "-", Limit: window.Limit{Window: c.Limit.Window}}}
	checks[0].Mode = window.Enforce
	checks[0].Limit = shareLimit(c.Limit, p.later, p.instances)
	_, err := s.store.Take(ctx, window.MayWait, checks[:], decisions[:])
	return decisions[0], err
}
