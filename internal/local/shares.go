package local

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// ShareOptions change how shares are given out. The zero value is usable.
type ShareOptions struct {
	// Replicas is how many processes share the limits. Zero or less means one.
	Replicas int
	// Keys is how many logs it is kept of what was last known. Zero or less means
	// DefaultKeys.
	Keys int
	// Memory bounds the logs of what is admitted here. Its clock is that of the
	// shares too.
	Memory memstore.Options
	// Settler, unless nil, is charged afterwards with what the shares admit because a
	// call to it failed, where that leaves open whether it was charged.
	Settler Settler
	// Timeout is how long a call to Settler takes at most.
	Timeout time.Duration
}

// Shares decides by this process's part of each limit, for the time in which nobody
// can ask the shared store. Create it with NewShares; its methods are safe for
// concurrent use.
type Shares struct {
	replicas uint64
	clock    func() time.Duration
	store    *memstore.Store
	known    *otter.Cache[window.LogID, *used]
	span     int64  // in nanoseconds; see used
	debts    *debts // nil: nothing is charged afterwards
}

var _ window.Store = (*Shares)(nil)

// minSpan is the shortest time in which answers count as answers to calls at once.
const minSpan = time.Millisecond

// used is what the shared store said last of a log. Answers to calls at once arrive in any
// order, and the one with the largest use was decided last. So used keeps the largest use
// of the current span and of the span before it.
type used struct {
	hits  atomic.Uint64 // the largest use in this span
	until atomic.Int64  // when the log expires
	from  atomic.Int64  // until of the first answer in this span

	mu     sync.Mutex // held to begin a span
	before uint64     // the largest use in the span before, which has just ended
}

// learn adds an answer.
func (u *used) learn(hits uint64, until, span int64) {
	if u.within(until, span) {
		u.raise(hits, until)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.within(until, span) { // another call has begun the span
		u.raise(hits, until)
		return
	}
	last := u.hits.Swap(hits)
	if later := until - u.from.Load(); later < 0 || later >= 2*span {
		last = 0
	}
	u.before = last
	u.from.Store(until)
	u.until.Store(until)
}

// within reports whether an answer belongs to the current span.
func (u *used) within(until, span int64) bool {
	later := until - u.from.Load()
	return -span < later && later < span
}

// raise adds an answer to the current span.
func (u *used) raise(hits uint64, until int64) {
	u.until.Store(until)
	for {
		old := u.hits.Load()
		if hits <= old || u.hits.CompareAndSwap(old, hits) {
			return
		}
	}
}

// last returns the use, and when it expires.
func (u *used) last() (hits uint64, until time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return max(u.hits.Load(), u.before), time.Duration(u.until.Load())
}

// NewShares returns shares of which nothing is used.
func NewShares(o ShareOptions) (*Shares, error) {
	s := &Shares{replicas: uint64(max(o.Replicas, 1)), span: int64(max(o.Timeout, minSpan)), clock: o.Memory.Clock}
	if s.clock == nil {
		s.clock = monotonic()
		o.Memory.Clock = s.clock
	}
	keys := o.Keys
	if keys <= 0 {
		keys = DefaultKeys
	}
	known, err := otter.New(&otter.Options[window.LogID, *used]{
		MaximumSize: keys,
		Executor:    func(f func()) { f() }, // as for the memory of denials
	})
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	s.known = known
	s.store = memstore.New(o.Memory)
	if o.Settler != nil {
		s.debts = newDebts(s, o.Settler, o.Timeout)
	}
	return s, nil
}

// Close waits until what is owed is charged or abandoned, about a second at most, and
// ends the sweeper of the logs. The Settler must still be open.
func (s *Shares) Close() error {
	if s.debts != nil {
		s.debts.wg.Wait()
	}
	return s.store.Close()
}

// Settled returns the counts of what was charged afterwards.
func (s *Shares) Settled() Settled {
	if s.debts == nil {
		return Settled{}
	}
	return Settled{Charged: s.debts.charged.Load(), Found: s.debts.found.Load(), Abandoned: s.debts.abandoned.Load()}
}

// Logs is how many logs there are of what was admitted here.
func (s *Shares) Logs() int { return s.store.Len() }

// Learn tells what the shared store has decided, so that an outage does not begin
// with shares of which nothing is used. It keeps neither argument.
func (s *Shares) Learn(c *window.Check, d *window.Decision) { s.learn(c, d, s.owes(c.Log())) }

// learn is Learn for a log of which it is known whether it has a debt.
func (s *Shares) learn(c *window.Check, d *window.Decision, owes bool) {
	if c.Limit.Hits == window.MaxHits {
		return
	}
	hits := c.Limit.Hits - min(d.Remaining, c.Limit.Hits)
	u, ok := s.known.GetIfPresent(c.Log())
	if !ok {
		if hits == 0 {
			return
		}
		u, _ = s.known.SetIfAbsent(c.Log(), new(used))
	}
	if until := int64(s.clock() + d.ResetAfter); owes {
		u.raise(hits, until) // the use includes a debt, so it does not fall
	} else {
		u.learn(hits, until, s.span)
	}
}

// Take implements [window.Store] for the shares of the checks' limits. It always
// decides: shares are memory of this process.
func (s *Shares) Take(ctx context.Context, _ bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	return true, s.take(ctx, checks, decisions)
}

func (s *Shares) take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	if err := window.Validate(checks, decisions); err != nil {
		return fmt.Errorf("local: %w", err)
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
		own[i].Limit.Hits = parts[i].hits
	}
	if _, err := s.store.Take(ctx, window.MayWait, own, answers); err != nil {
		return err
	}
	// It is decided, so a caller that gives up now does not make it an error.
	ctx = context.WithoutCancel(ctx)
	for i := range folded {
		if err := s.tell(ctx, &folded[i], &parts[i], &answers[i]); err != nil {
			return err
		}
	}
	for i, j := range answer {
		decisions[i] = answers[j]
	}
	return nil
}

// part is what this process may admit of a limit.
type part struct {
	hits  uint64        // now
	later uint64        // when what was last known does not count any more
	share uint64        // of the limit, whatever the cost
	left  time.Duration // for which what was last known counts; zero if nothing does
}

func (s *Shares) part(c *window.Check, now time.Duration) part {
	limit := c.Limit.Hits
	if limit == 0 || limit == window.MaxHits {
		return part{hits: limit, later: limit, share: limit}
	}
	share := max(limit/s.replicas, 1)
	p := part{hits: share, later: share, share: share}
	if c.Cost <= limit {
		// A cost above the share would never have room, which is not what the rule
		// says. It has where nothing else counts.
		p.later = max(share, c.Cost)
	}
	if u, ok := s.known.GetIfPresent(c.Log()); ok {
		hits, until := u.last()
		if left := until - now; left > 0 {
			rest := limit - min(hits, limit)
			p.hits = min(share, (rest+s.replicas-1)/s.replicas)
			p.left = left
			return p
		}
	}
	p.hits = p.later
	return p
}

// tell makes what the log of this process says of its part what the share says.
func (s *Shares) tell(ctx context.Context, c *window.Check, p *part, d *window.Decision) error {
	if over := p.hits - min(p.share, p.hits); over > 0 {
		d.Remaining -= min(over, d.Remaining)
		if d.Remaining == 0 && d.UnitAfter == 0 {
			d.UnitAfter = d.RetryAfter
		}
	}
	if p.left == 0 {
		return nil
	}
	if d.Allowed && d.Remaining > 0 {
		d.ResetAfter = max(d.ResetAfter, p.left)
		return nil
	}
	later, err := s.look(ctx, c, p.later)
	if err != nil {
		return err
	}
	// Either enough of what was admitted here expires first, or what was known before.
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
		d.UnitAfter = wait(d.UnitAfter, later.UnitAfter)
	}
	d.ResetAfter = max(d.ResetAfter, later.ResetAfter, p.left)
	return nil
}

// look asks a log of this process under another limit and charges nothing, because
// the second check of the group denies it.
func (s *Shares) look(ctx context.Context, c *window.Check, hits uint64) (window.Decision, error) {
	var decisions [2]window.Decision
	checks := [2]window.Check{*c, {Key: "-", Limit: window.Limit{Window: c.Limit.Window}}}
	checks[0].Mode = window.Enforce
	checks[0].Limit.Hits = hits
	_, err := s.store.Take(ctx, window.MayWait, checks[:], decisions[:])
	return decisions[0], err
}
