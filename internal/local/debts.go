package local

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxDebts is the largest number of logs that have a debt at a time.
	maxDebts = 1024
	// settleTime is ShareOptions.SettleTime where that is zero.
	settleTime = time.Second
	// maxSettling is the number of debts that are settled at once. If one call with many
	// requests is late, many debts begin together. Requests need connections meanwhile.
	maxSettling = 4
)

// A Settler is the shared store as [Shares] charges it afterwards, with what they have
// admitted without it. It is safe for concurrent use, and bounds the time of its calls.
type Settler interface {
	window.Store
	// Forget removes what the process remembers of a log, and ends its lease.
	Forget(window.LogID)
	// Doubt tells from an error of Take when the store may have charged the call. If known
	// is false, the call must not be charged afterwards, because the store does not
	// decide. For an error of Read, known tells whether another try can succeed.
	Doubt(err error) (d Doubt, known bool)
	// Read returns the bytes of a log. They are empty if there is no log, and the end may
	// be missing if the log is large.
	Read(context.Context, window.LogID) ([]byte, error)
}

// A Doubt is the time in which a store may have charged a call: after Since and not after
// Until. Both are in microseconds of the store's clock. If the store has certainly not
// charged the call, Since is the largest int64.
type Doubt struct{ Since, Until int64 }

// Settled counts the hits that [Shares] have admitted after calls to the shared store that
// failed.
type Settled struct {
	// Charged hits were charged to the shared store afterwards. Found hits had been
	// charged by the call that failed. Abandoned hits were never charged.
	Charged, Found, Abandoned uint64
}

// debts has the debts of all logs. While a log has a debt, the shares decide its requests,
// because the log in the shared store may lack a charge.
type debts struct {
	shares *Shares
	store  Settler
	sleep  func() // returns when calls that are under way now have ended
	// within is the time after which a debt that cannot be settled is given up.
	within time.Duration

	count atomic.Int64 // the number of logs
	mu    sync.Mutex   // held while the shares decide requests that may make a debt
	logs  map[window.LogID]*debt

	wg       sync.WaitGroup
	settling chan struct{} // has a value for each debt that is being settled

	charged, found, abandoned atomic.Uint64
}

// A debt is the cost that the shares have admitted for one log, and that the log in the
// shared store may lack.
type debt struct {
	// until is when the shares decide the requests of the log no longer. A debt that begins
	// because another log of the group has one ends with that one. Otherwise two logs that
	// requests name together would renew each other's debts for as long as requests come.
	until time.Duration
	check window.Check // of the last request
	owed  []owed
	paid  uint64 // the cost that turned out to be charged
	// resets is how often the debt was dropped.
	resets uint64
}

// owed is a cost that the store may not have charged.
type owed struct {
	doubt Doubt
	cost  uint64
}

// uncharged is the doubt for a cost that the store has certainly not charged.
var uncharged = Doubt{math.MaxInt64, math.MaxInt64}

// find looks in a log for the costs that were owed when it was read. It moves those that it
// finds from owed to paid, and returns their sum. The log must have been read after the last
// moment at which the store could charge them.
func (o *debt) find(log []byte, then []owed) (found uint64) {
	contents, err := window.Decode(log)
	// Otherwise the policy keeps no single charges, the end of the log is missing, charges are not
	// recorded at their own time, or the value is not a log and the next charge replaces it.
	exact := err == nil && o.check.Limit.Policy == window.Sliding && o.check.Lease.Length == 0 && o.check.Precision <= contents.Unit
	// One entry of the log is the charge of one call. In this order, the calls find as many
	// entries as possible.
	slices.SortStableFunc(o.owed, func(a, b owed) int { return cmp.Compare(a.doubt.Until, b.doubt.Until) })
	left := o.owed[:0]
	for _, w := range o.owed {
		if slices.ContainsFunc(then, func(t owed) bool { return t.doubt == w.doubt }) {
			part := w.cost
			if !w.doubt.written(log, o.check.Limit.Policy) {
				part = 0
			} else if exact {
				part = w.doubt.take(&contents, w.cost)
			}
			found = window.AddSaturating(found, part)
			w = owed{uncharged, w.cost - part}
		}
		if w.cost > 0 {
			left = append(left, w)
		}
	}
	o.owed = left
	o.paid = window.AddSaturating(o.paid, found)
	return found
}

// take takes up to cost off the entries that were charged in the time of doubt, the oldest
// first. It returns how much it took.
func (d Doubt) take(log *window.Contents, cost uint64) (taken uint64) {
	unit := log.Unit.Microseconds()
	for i := range log.Entries {
		e := &log.Entries[i]
		if at := e.At.Microseconds(); at > d.Since && at-unit < d.Until {
			part := min(cost-taken, uint64(e.Cost))
			e.Cost -= uint32(part) // no more than it is
			taken += part
		}
	}
	return taken
}

// written reports whether the log was written after the doubt began.
func (d Doubt) written(log []byte, p window.Policy) bool {
	const kind, clock, small = 1, 8, 7
	if p != window.Sliding {
		if len(log) < kind+small {
			return false
		}
		var whole [clock]byte
		copy(whole[clock-small:], log[kind:kind+small])
		return binary.BigEndian.Uint64(whole[:]) > uint64(d.Since)
	}
	return len(log) >= kind+clock && binary.BigEndian.Uint64(log[kind:]) > uint64(d.Since)
}

// sum returns the cost that is owed.
func (o *debt) sum() (cost uint64) {
	for _, w := range o.owed {
		cost = window.AddSaturating(cost, w.cost)
	}
	return cost
}

// doubtful reports whether the store may have charged a part of the debt.
func (o *debt) doubtful() bool {
	return slices.ContainsFunc(o.owed, func(w owed) bool { return w.doubt != uncharged })
}

// drop drops the debt of a log, which was removed. The caller holds the lock. The goroutine
// that settles it charges nothing more, and ends.
func (d *debts) drop(id window.LogID) {
	if log := d.logs[id]; log != nil {
		log.owed, log.paid = nil, 0
		log.resets++
	}
}

// dropped reports whether the debt of a log was dropped after o was copied from it.
func (d *debts) dropped(log, o *debt) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return log.resets != o.resets
}

// newDebts returns no debts. No call to the store takes longer than o.Timeout.
func newDebts(s *Shares, o *ShareOptions) *debts {
	pause := o.Timeout
	return &debts{
		shares: s, store: o.Settler, sleep: func() { time.Sleep(pause) }, within: max(cmp.Or(max(o.SettleTime, 0), settleTime), pause),
		logs: make(map[window.LogID]*debt), settling: make(chan struct{}, maxSettling),
	}
}

// Owing reports whether any log has a debt. It takes one atomic load.
func (s *Shares) Owing() bool { return s.debts != nil && s.debts.count.Load() > 0 }

// owes reports whether a log has a debt.
func (s *Shares) owes(id window.LogID) bool {
	if !s.Owing() {
		return false
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	return s.debts.logs[id] != nil
}

// TakeOwed decides a group if one of its logs has a debt, and reports whether it did. The
// shared store has not decided the group, so the group owes its whole cost.
func (s *Shares) TakeOwed(ctx context.Context, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if !s.Owing() {
		return false, nil
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	now, until := s.clock(), time.Duration(math.MinInt64)
	for i := range checks {
		if checks[i].Mode == window.Refund {
			return false, nil // only the shared store can refund
		}
		if log := s.debts.logs[checks[i].Log()]; log != nil {
			until = max(until, log.until)
		}
	}
	if until <= now {
		return false, nil
	}
	if err := s.take(ctx, checks, decisions); err != nil {
		return false, err
	}
	s.debts.owe(checks, decisions, uncharged, until)
	return true, nil
}

// Owed returns the scopes in which a log of a group has a debt, each with [window.ErrOwed]. It
// returns nil if there is none, or if the group has a refund: only the shared store can refund.
func (s *Shares) Owed(checks []window.Check) (failed *window.PartError) {
	if !s.Owing() {
		return nil
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	now := s.clock()
	for i := range checks {
		if checks[i].Mode == window.Refund {
			return nil
		}
		if log := s.debts.logs[checks[i].Log()]; log != nil && log.until > now {
			if failed == nil {
				failed = new(window.PartError)
			}
			failed.Failed[checks[i].Scope] = window.ErrOwed
		}
	}
	return failed
}

// TakeAfter decides a group after its call to the shared store has failed with cause. If the
// store may or may not have charged the call, the group owes its cost. If cause is a
// [window.PartError], the group has only the checks of the scopes that have failed.
func (s *Shares) TakeAfter(ctx context.Context, cause error, checks []window.Check, decisions []window.Decision) error {
	if s.debts == nil {
		return s.take(ctx, checks, decisions)
	}
	var (
		doubts [window.MaxScope + 1]*Doubt
		known  bool
	)
	for i := range checks {
		scope := checks[i].Scope
		switch failed := window.FailedIn(cause, scope); {
		case failed == nil:
		case errors.Is(failed, window.ErrOwed):
			doubts[scope], known = &Doubt{math.MaxInt64, math.MaxInt64}, true
		default:
			if doubt, ok := s.debts.store.Doubt(failed); ok {
				doubts[scope], known = &doubt, true
			}
		}
	}
	if !known {
		return s.take(ctx, checks, decisions)
	}
	// Count first: an answer that arrives after take has looked at what remains must go
	// through Recheck.
	s.debts.count.Add(1)
	defer s.debts.count.Add(-1)
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	if err := s.take(ctx, checks, decisions); err != nil {
		return err
	}
	until := s.clock() + s.debts.within
	allowed := window.GroupAllowed(checks, decisions)
	for i := range checks {
		c := &checks[i]
		doubt := doubts[c.Scope]
		if doubt == nil || !charges(c, allowed, &decisions[i]) {
			continue
		}
		if own := s.debts.until(checks, c.Scope); *doubt == uncharged && own > 0 {
			s.debts.add(c, *doubt, own)
		} else {
			s.debts.add(c, *doubt, until)
		}
	}
	return nil
}

// until returns until when the debts of a group in a scope last, and zero if it has none. The
// caller holds the lock.
func (d *debts) until(checks []window.Check, scope window.Scope) (until time.Duration) {
	for i := range checks {
		if checks[i].Scope == scope {
			if log := d.logs[checks[i].Log()]; log != nil {
				until = max(until, log.until)
			}
		}
	}
	return until
}

// Recheck looks again at a group that the shared store has allowed. The store may have
// decided it before it was charged with the debt of a log. If that log has no room for both,
// Recheck decides the group by the shares and returns true. The charge of the store then
// pays a part of the debt.
func (s *Shares) Recheck(ctx context.Context, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if !s.Owing() {
		return false, nil
	}
	d := s.debts
	d.look(ctx, checks, decisions)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range checks {
		decided = decided || d.short(&checks[i], &decisions[i]) != nil
	}
	if !decided {
		return false, nil
	}
	answered := slices.Clone(decisions)
	if err := s.take(ctx, checks, decisions); err != nil {
		copy(decisions, answered)
		return false, err
	}
	allowed := window.GroupAllowed(checks, decisions)
	for i := range checks {
		c := &checks[i]
		log := d.logs[c.Log()]
		if log == nil {
			continue // the store has charged this log, and it owes nothing
		}
		if c.Mode.Charged(true, answered[i].Allowed) && !answered[i].Repeated {
			d.found.Add(log.pay(c.Cost))
		}
		if charges(c, allowed, &decisions[i]) {
			d.add(c, uncharged, log.until)
		}
	}
	return true, nil
}

// short returns the debt of a log if an answer of the store leaves no room for it, and nil
// otherwise. The caller holds the lock.
func (d *debts) short(c *window.Check, answer *window.Decision) *debt {
	log := d.logs[c.Log()]
	if log == nil || c.Mode != window.Enforce || answer.Remaining >= log.sum() {
		return nil
	}
	return log
}

// look reads the logs of a group that have no room for their debts, and finds there what is
// charged already. It does not hold the lock while it reads, so other requests do not wait
// for the store.
func (d *debts) look(ctx context.Context, checks []window.Check, decisions []window.Decision) {
	for i := range checks {
		var then []owed
		d.mu.Lock()
		log := d.short(&checks[i], &decisions[i])
		if log != nil && log.doubtful() {
			then = slices.Clone(log.owed)
		}
		d.mu.Unlock()
		if then == nil {
			continue
		}
		if bytes, err := d.store.Read(ctx, checks[i].Log()); err == nil {
			d.mu.Lock()
			d.found.Add(log.find(bytes, then))
			d.mu.Unlock()
		}
	}
}

// pay moves a cost from owed to paid, and returns how much of it was owed.
func (o *debt) pay(cost uint64) (paid uint64) {
	for i := range o.owed {
		part := min(o.owed[i].cost, cost-paid)
		o.owed[i].cost -= part
		paid += part
	}
	o.paid = window.AddSaturating(o.paid, paid)
	return paid
}

// charges reports whether a check makes a debt if the store has not charged it. Refunds
// and repeats of a charge make no debt.
func charges(c *window.Check, allowed bool, answer *window.Decision) bool {
	_, free := window.WithoutLog(c)
	inFlight := c.Limit.Policy == window.InFlight // what it holds ends by itself
	return !free && !inFlight && !answer.Repeated && c.Cost > 0 && c.Mode != window.Refund && c.Mode.Charged(allowed, answer.Allowed)
}

// owe adds what a group charges to the debts of its logs. until is for new debts.
func (d *debts) owe(checks []window.Check, decisions []window.Decision, doubt Doubt, until time.Duration) {
	allowed := window.GroupAllowed(checks, decisions)
	for i := range checks {
		if c := &checks[i]; charges(c, allowed, &decisions[i]) {
			d.add(c, doubt, until)
		}
	}
}

// add adds what a check charges to the debt of its log. until is for a new debt.
func (d *debts) add(c *window.Check, doubt Doubt, until time.Duration) {
	id := c.Log()
	log := d.logs[id]
	if log == nil {
		if len(d.logs) >= maxDebts {
			d.abandoned.Add(c.Cost)
			return
		}
		log = &debt{until: until}
		d.logs[id] = log
		d.count.Add(1)
		d.store.Forget(id)
		d.wg.Go(func() { d.settle(id, log) })
	}
	log.check = *c
	if n := len(log.owed); n > 0 && log.owed[n-1].doubt == doubt {
		log.owed[n-1].cost = window.AddSaturating(log.owed[n-1].cost, c.Cost)
	} else {
		log.owed = append(log.owed, owed{doubt, c.Cost})
	}
}

// settle charges the debt of a log until nothing is owed. It begins when every call that
// was under way has ended. By then the store refuses the calls that it has not decided, and
// this process makes no other call for the log.
func (d *debts) settle(id window.LogID, log *debt) {
	wait := true
	for {
		if wait {
			d.sleep()
		}
		last := d.shares.clock() >= log.until
		d.mu.Lock()
		now := *log
		log.owed, log.paid = nil, 0
		done := len(now.owed) == 0 && now.paid == 0
		if done || last {
			// The last charge does not hold back requests, which may never pause.
			delete(d.logs, id)
			d.count.Add(-1)
		}
		d.mu.Unlock()
		if done {
			return
		}
		again := d.charge(id, log, &now)
		if wait = again && !last; wait {
			d.mu.Lock()
			if log.resets == now.resets {
				log.owed, log.paid = append(now.owed, log.owed...), window.AddSaturating(log.paid, now.paid)
			}
			d.mu.Unlock()
			continue
		}
		d.abandoned.Add(now.sum())
		if last {
			return
		}
	}
}

// charge charges all that is owed with one call, and leaves in o what it could not charge. o
// is a copy of log. If the debt is dropped meanwhile, nothing is left. charge reports whether
// another try can succeed.
func (d *debts) charge(id window.LogID, log, o *debt) (again bool) {
	d.settling <- struct{}{}
	defer func() { <-d.settling }()
	ctx := context.Background() // the store bounds its calls
	if o.doubtful() {
		bytes, err := d.store.Read(ctx, id)
		if err != nil {
			_, again = d.store.Doubt(err)
			return again
		}
		d.found.Add(o.find(bytes, slices.Clone(o.owed)))
	}
	if d.dropped(log, o) {
		*o = debt{resets: o.resets}
		return false
	}
	c := o.check
	c.Mode, c.Cost, c.Lease, c.Once = window.Always, o.sum(), window.Lease{}, window.Once{}
	checks, decisions := [1]window.Check{c}, [1]window.Decision{}
	if _, err := d.store.Take(ctx, window.MayWait, checks[:], decisions[:]); err != nil {
		doubt, again := d.store.Doubt(err)
		o.owed = []owed{{doubt, c.Cost}}
		return again
	}
	d.charged.Add(c.Cost)
	d.mu.Lock()
	defer d.mu.Unlock()
	if log.resets != o.resets {
		*o = debt{resets: o.resets}
		return false // the log of this process was removed with the cost
	}
	// From now on the store's answers count this cost, so the log of this process must not.
	d.shares.learn(&checks[0], &decisions[0], true)
	replicas := d.shares.replicasOf(c.Scope)
	checks[0].Limit = shareLimit(c.Limit, max(c.Limit.Hits/replicas, 1), replicas)
	checks[0].Mode, checks[0].Cost = window.Refund, window.AddSaturating(c.Cost, o.paid)
	_, _ = d.shares.store.Take(ctx, window.MayWait, checks[:], decisions[:]) // if it fails, less is admitted here until the hits expire
	*o = debt{}
	return false
}
