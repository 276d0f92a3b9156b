package local

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// maxDebts is how many logs have a debt at most at a time.
	maxDebts = 1024
	// settleTime bounds how long a debt is tried to be settled.
	settleTime = time.Second
	// maxSettling is how many debts are settled at once: many begin together, when one
	// call with many requests is late, and requests need connections meanwhile.
	maxSettling = 4
)

// A Settler is the shared store, where what was admitted without it is charged
// afterwards. It is safe for concurrent use, and bounds the time of a call itself.
type Settler interface {
	window.Store
	// Forget ends what the process remembers or has reserved of a log.
	Forget(window.LogID)
	// Doubt tells from an error of Take when the call may have been charged. known is
	// false if it is not to be charged afterwards, because the store does not decide. Of
	// an error of Read, known says that it is worth trying again.
	Doubt(err error) (d Doubt, known bool)
	// Read returns the bytes of a log, none if there is no log. Those of a large log may
	// lack their end.
	Read(context.Context, window.LogID) ([]byte, error)
}

// A Doubt says when a call may have been charged: after Since and not after Until, by
// the store's clock in microseconds. Since is the largest number for a call that was
// certainly not charged.
type Doubt struct{ Since, Until int64 }

// charged reports whether the call may have been charged to a log that it can only have
// been charged to before the log was read.
func (d Doubt) charged(c *window.Check, log []byte) bool {
	contents, err := window.Decode(log)
	if err != nil {
		// The end is missing, or the next charge throws away what is no log.
		const kind, clock = 1, 8
		return len(log) >= kind+clock && binary.BigEndian.Uint64(log[kind:]) > uint64(d.Since)
	}
	if contents.Clock.Microseconds() <= d.Since {
		return false
	}
	if c.Lease.Length > 0 || c.Precision > contents.Unit {
		return true // what is charged is recorded at another instant
	}
	return slices.ContainsFunc(contents.Entries, func(e window.Entry) bool {
		at, unit := e.At.Microseconds(), contents.Unit.Microseconds()
		return at > d.Since && at-unit < d.Until
	})
}

// Settled says what became of hits that shares have admitted after a call to the shared
// store that failed.
type Settled struct {
	// Charged hits were charged to the shared store afterwards. Found hits were charged
	// already, by the call that failed. Abandoned hits could not be charged.
	Charged, Found, Abandoned uint64
}

// debts are what the shares have admitted and the shared store may not have charged.
// While a log has a debt, the shares decide its requests, so that nothing is asked of a
// log that lacks a charge.
type debts struct {
	shares *Shares
	store  Settler
	sleep  func() // until calls that are under way have ended

	count atomic.Int64 // of logs
	mu    sync.Mutex   // held while the shares decide requests that may make a debt
	logs  map[window.LogID]*debt

	wg       sync.WaitGroup
	settling chan struct{} // a place for each debt that is being settled

	charged, found, abandoned atomic.Uint64
}

// A debt is what one log lacks.
type debt struct {
	check window.Check // of the last request
	owed  []owed
	paid  uint64 // was owed, and was charged
}

// owed is cost that the store may not have charged.
type owed struct {
	doubt Doubt
	cost  uint64
}

// uncharged is the doubt about what was certainly not charged.
var uncharged = Doubt{math.MaxInt64, math.MaxInt64}

// find moves what a log holds of what is owed to what is paid, and returns how much. The
// log tells of those alone that were owed when it was read.
func (o *debt) find(log []byte, then []owed) (found uint64) {
	left := o.owed[:0]
	for _, w := range o.owed {
		known := slices.ContainsFunc(then, func(t owed) bool { return t.doubt == w.doubt })
		switch {
		case !known:
			left = append(left, w)
		case w.doubt.charged(&o.check, log):
			found = window.AddSaturating(found, w.cost)
		default:
			left = append(left, owed{uncharged, w.cost})
		}
	}
	o.owed = left
	o.paid = window.AddSaturating(o.paid, found)
	return found
}

// sum is all that is owed.
func (o *debt) sum() (cost uint64) {
	for _, w := range o.owed {
		cost = window.AddSaturating(cost, w.cost)
	}
	return cost
}

// doubtful reports whether a look at the log may find what is owed.
func (o *debt) doubtful() bool {
	return slices.ContainsFunc(o.owed, func(w owed) bool { return w.doubt != uncharged })
}

func newDebts(s *Shares, store Settler, pause time.Duration) *debts {
	sleep := func() { time.Sleep(pause) }
	return &debts{shares: s, store: store, sleep: sleep, logs: make(map[window.LogID]*debt), settling: make(chan struct{}, maxSettling)}
}

// Owing reports whether there is a debt at all. It is one atomic load.
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

// TakeOwed decides a group if one of its logs has a debt, and reports whether it has.
// The shared store was not asked about the group, so it owes all that it charges.
func (s *Shares) TakeOwed(ctx context.Context, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if !s.Owing() {
		return false, nil
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	for i := range checks {
		if checks[i].Mode == window.Refund {
			return false, nil // it would be lost here
		}
		_, owes := s.debts.logs[checks[i].Log()]
		decided = decided || owes
	}
	if !decided {
		return false, nil
	}
	if err := s.take(ctx, checks, decisions); err != nil {
		return false, err
	}
	s.debts.owe(checks, decisions, uncharged)
	return true, nil
}

// TakeAfter decides a group whose call to the shared store has failed with cause. If
// that leaves open whether the call was charged, the group owes what it charges.
func (s *Shares) TakeAfter(ctx context.Context, cause error, checks []window.Check, decisions []window.Decision) error {
	if s.debts == nil {
		return s.take(ctx, checks, decisions)
	}
	doubt, known := s.debts.store.Doubt(cause)
	if !known {
		return s.take(ctx, checks, decisions)
	}
	// Before it is looked at what remains: an answer that comes after that is rechecked.
	s.debts.count.Add(1)
	defer s.debts.count.Add(-1)
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	if err := s.take(ctx, checks, decisions); err != nil {
		return err
	}
	s.debts.owe(checks, decisions, doubt)
	return nil
}

// Recheck is told of a group that the shared store has allowed although it was asked
// before a log of the group had its debt, and was not charged with that. If the log has
// no room for both, the group's charge stands for what was owed, Recheck decides the
// group by the shares and reports true.
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
			continue // the store has charged it
		}
		if c.Mode.Charged(true, answered[i].Allowed) {
			d.found.Add(log.pay(c.Cost))
		}
		if charges(c, allowed, &decisions[i]) {
			d.add(c, uncharged)
		}
	}
	return true, nil
}

// short returns the debt of a log that has no room for what is owed beside an answer, or
// nil. The caller holds the lock.
func (d *debts) short(c *window.Check, answer *window.Decision) *debt {
	log := d.logs[c.Log()]
	if log == nil || c.Mode != window.Enforce || answer.Remaining >= log.sum() {
		return nil
	}
	return log
}

// look finds what is owed in those logs of a group that have no room for it. It does not
// hold the lock while it reads: other requests do not wait for the store.
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

// pay takes a cost off what is owed, and returns how much of it was owed.
func (o *debt) pay(cost uint64) (paid uint64) {
	for i := range o.owed {
		part := min(o.owed[i].cost, cost-paid)
		o.owed[i].cost -= part
		paid += part
	}
	o.paid = window.AddSaturating(o.paid, paid)
	return paid
}

// charges reports whether a check leaves a debt if the store has not charged it. Refunds
// are not made good.
func charges(c *window.Check, allowed bool, answer *window.Decision) bool {
	_, free := window.WithoutLog(c)
	return !free && c.Cost > 0 && c.Mode != window.Refund && c.Mode.Charged(allowed, answer.Allowed)
}

// owe notes what a group charges.
func (d *debts) owe(checks []window.Check, decisions []window.Decision, doubt Doubt) {
	allowed := window.GroupAllowed(checks, decisions)
	for i := range checks {
		if c := &checks[i]; charges(c, allowed, &decisions[i]) {
			d.add(c, doubt)
		}
	}
}

// add notes what a check charges.
func (d *debts) add(c *window.Check, doubt Doubt) {
	id := c.Log()
	log := d.logs[id]
	if log == nil {
		if len(d.logs) >= maxDebts {
			d.abandoned.Add(c.Cost)
			return
		}
		log = &debt{}
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

// settle charges what a log owes until it owes nothing. It begins when every call that
// was under way has ended: then no other call of this process is beside it, and the
// store refuses those that it has not got to yet.
func (d *debts) settle(id window.LogID, log *debt) {
	began := d.shares.clock()
	wait := true
	for {
		if wait {
			d.sleep()
		}
		last := d.shares.clock()-began >= settleTime
		d.mu.Lock()
		now := *log
		log.owed, log.paid = nil, 0
		done := len(now.owed) == 0 && now.paid == 0
		if done || last {
			// The last time requests are not held back: they may come all the time.
			delete(d.logs, id)
			d.count.Add(-1)
		}
		d.mu.Unlock()
		if done {
			return
		}
		again := d.charge(id, &now)
		if wait = again && !last; wait {
			d.mu.Lock()
			log.owed, log.paid = append(now.owed, log.owed...), window.AddSaturating(log.paid, now.paid)
			d.mu.Unlock()
			continue
		}
		d.abandoned.Add(now.sum())
		if last {
			return
		}
	}
}

// charge charges at once what a log was not charged yet, and leaves in o what it could
// not charge. It reports whether that is worth trying again.
func (d *debts) charge(id window.LogID, o *debt) (again bool) {
	d.settling <- struct{}{}
	defer func() { <-d.settling }()
	ctx := context.Background() // the store bounds its calls
	if o.doubtful() {
		log, err := d.store.Read(ctx, id)
		if err != nil {
			_, again = d.store.Doubt(err)
			return again
		}
		d.found.Add(o.find(log, slices.Clone(o.owed)))
	}
	c := o.check
	c.Mode, c.Cost, c.Lease = window.Always, o.sum(), window.Lease{}
	checks, decisions := [1]window.Check{c}, [1]window.Decision{}
	if _, err := d.store.Take(ctx, window.MayWait, checks[:], decisions[:]); err != nil {
		doubt, again := d.store.Doubt(err)
		o.owed = []owed{{doubt, c.Cost}}
		return again
	}
	d.charged.Add(c.Cost)
	d.mu.Lock()
	defer d.mu.Unlock()
	// From here on the store's answers hold what the log of this process held.
	d.shares.learn(&checks[0], &decisions[0], true)
	checks[0].Mode, checks[0].Cost = window.Refund, window.AddSaturating(c.Cost, o.paid)
	_, _ = d.shares.store.Take(ctx, window.MayWait, checks[:], decisions[:]) // else less is admitted here, until it expires
	*o = debt{}
	return false
}
