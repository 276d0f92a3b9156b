package local

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// DefaultLeases is how many leases there are at most at a time. One goroutine
	// gives them back, one call after the other.
	DefaultLeases = 1000
	// accountsALease is for how many logs that may have a lease it is known how
	// often they are asked for, to each lease that there may be.
	accountsALease = 16
	// minLease is the least that is reserved beside a request's own cost. Most leases
	// cost a call that gives the rest back, and less does not save as much:
	// TestSimulation tells.
	minLease = 4
	// defaultPart is the part of a limit that is reserved at most where the rule
	// does not say, remainingPart that of what remains.
	defaultPart   = 10
	remainingPart = 4
	// returnTimeout bounds a single call that gives something back, closeTimeout all
	// of those that Close waits for. What is not given back expires.
	returnTimeout = time.Second
	closeTimeout  = time.Second
	// marginPart is the part of a lease that is not spent any more. In that time the
	// rest goes back before what was reserved becomes a hit like others. It is more
	// than the clocks of two machines run apart, too.
	marginPart = 10
)

// A Reserver reserves hits ahead in the store that is asked. It is safe for
// concurrent use, and bounds the time of a call itself.
type Reserver interface {
	// Reserve decides a check alone, like Take, but records its cost at the moment
	// ahead of the store's clock. Until then the cost counts as well, and what Take
	// says of the log has a ResetAfter that is longer than the window: that is how
	// the other processes know, unless [window.Decision.Unsettled] says so.
	Reserve(ctx context.Context, c window.Check, ahead time.Duration) (window.Decision, window.Reservation, error)
	// Return gives a part of a reservation back, and returns how much was still
	// there. It may be called several times.
	Return(ctx context.Context, r window.Reservation, cost uint64) (uint64, error)
}

// leases are what this process has reserved.
type leases struct {
	reserver Reserver
	clock    func() time.Duration
	accounts *otter.Cache[window.LogID, *account]
	forget   func(key string) // that something was given back
	most     int

	mu      sync.Mutex
	ends    ends      // of the leases that nobody has ended yet, and of some that have
	pending []surplus // to be given back
	wake    chan struct{}

	done chan struct{}
	wg   sync.WaitGroup

	made, spent, returned atomic.Uint64
}

// An account is what is known of one log that may have a lease.
type account struct {
	mu sync.Mutex
	// How often the log was asked for since begun, and in the time of a lease before.
	begun  time.Duration
	now    demand
	before demand
	// remaining is what the store said last.
	remaining uint64
	// asking says that a reservation is under way.
	asking bool
	lease  *lease // nil: none
}

type demand struct{ calls, hits uint64 }

// A lease is what may be spent without asking. The account's lock guards it.
type lease struct {
	account     *account
	key         string
	reservation window.Reservation
	hits        uint64 // the limit
	precision   time.Duration
	until       time.Duration // by the clock of this process, from before the call
	received    time.Duration
	left        uint64
	decision    window.Decision // of the store, after the reservation
}

// A surplus is a part of a reservation that is not needed.
type surplus struct {
	key         string
	reservation window.Reservation
	cost        uint64
}

// ends is a heap of leases, the one that ends first on top.
type ends []*lease

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].until < e[j].until }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(*lease)) }
func (e *ends) Pop() any {
	old := *e
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return l
}

func newLeases(r Reserver, most int, clock func() time.Duration, forget func(string)) (*leases, error) {
	if most <= 0 {
		most = DefaultLeases
	}
	ls := &leases{
		reserver: r, clock: clock, forget: forget, most: most,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	var err error
	ls.accounts, err = otter.New(&otter.Options[window.LogID, *account]{
		MaximumSize: accountsALease * most,
		Executor:    func(f func()) { f() }, // as for the memory of denials
	})
	if err != nil {
		return nil, err
	}
	ls.wg.Go(ls.giveBack)
	return ls, nil
}

// may reports whether a check may be answered from a lease.
func may(c *window.Check) bool {
	if c.Lease.Length <= 0 || c.Mode != window.Enforce {
		return false
	}
	_, without := window.WithoutLog(c)
	return !without
}

// account returns the account of a check's log.
func (ls *leases) account(c *window.Check) *account {
	a, ok := ls.accounts.GetIfPresent(c.Log())
	if !ok {
		a, _ = ls.accounts.SetIfAbsent(c.Log(), new(account))
	}
	return a
}

// count counts a call on the log.
func (a *account) count(c *window.Check, now time.Duration) {
	if passed := now - a.begun; passed >= c.Lease.Length || passed < 0 {
		a.before = a.now
		if passed >= 2*c.Lease.Length || passed < 0 {
			a.before = demand{}
		}
		a.now, a.begun = demand{}, now
	}
	a.now.calls++
	a.now.hits = window.AddSaturating(a.now.hits, c.Cost)
}

// spend answers a check from the lease of its log and returns the lease, or nil if
// there is none that covers the cost. With counts it counts the call as demand.
func (ls *leases) spend(c *window.Check, now time.Duration, counts bool, d *window.Decision) *lease {
	a := ls.account(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	if counts {
		a.count(c, now)
	}
	l := ls.current(a, c, now)
	if l == nil || l.left < max(c.Cost, 1) {
		return nil
	}
	l.left -= c.Cost
	l.answer(now, d)
	return l
}

// count counts a group that was decided without waiting: spend has not counted it,
// because the group could have been asked again with waiting.
func (ls *leases) count(checks []window.Check, now time.Duration) {
	for i := range checks {
		if c := &checks[i]; may(c) {
			a := ls.account(c)
			a.mu.Lock()
			a.count(c, now)
			a.mu.Unlock()
		}
	}
}

// current returns the lease of an account, which is locked. It ends one that is over
// or is of other terms than the check.
func (ls *leases) current(a *account, c *window.Check, now time.Duration) *lease {
	l := a.lease
	if l == nil || now < l.until && l.hits == c.Limit.Hits && l.precision == c.Precision {
		return l
	}
	ls.end(a)
	return nil
}

// answer tells what remains, in the store and of the lease.
func (l *lease) answer(now time.Duration, d *window.Decision) {
	passed := now - l.received
	*d = window.Decision{
		Allowed:    true,
		Remaining:  l.decision.Remaining + l.left,
		ResetAfter: max(l.decision.ResetAfter-passed, 0),
	}
	if d.Remaining == 0 {
		d.UnitAfter = max(l.decision.UnitAfter-passed, time.Microsecond)
	}
}

// putBack undoes a spend, because the group was not allowed, and answers anew.
func (ls *leases) putBack(l *lease, c *window.Check, now time.Duration, d *window.Decision) {
	a := l.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease == l {
		l.left += c.Cost
		l.answer(now, d)
		return
	}
	// The rest of it has gone back already.
	d.Remaining += c.Cost
	d.UnitAfter = 0
	ls.queue(surplus{l.key, l.reservation, c.Cost})
}

// want returns how much to reserve beside the check's own cost; zero if it is not
// worth it, or somebody else is at it. Otherwise reserve must be called.
func (ls *leases) want(c *window.Check, now time.Duration) uint64 {
	a := ls.account(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking || a.now.calls+a.before.calls < 2 || c.Cost == 0 {
		return 0
	}
	most := c.Lease.Hits
	if most == 0 {
		most = c.Limit.Hits / defaultPart
	}
	if most < c.Cost {
		return 0
	}
	// As much as was asked for in the time of a lease until now.
	passed := min(now-a.begun, c.Lease.Length)
	before := float64(a.before.hits) * float64(c.Lease.Length-passed) / float64(c.Lease.Length)
	k := min(window.AddSaturating(a.now.hits, uint64(before)), most-c.Cost, a.remaining/remainingPart)
	if k < minLease {
		return 0
	}
	ls.mu.Lock()
	full := len(ls.ends) >= ls.most
	ls.mu.Unlock()
	if full {
		return 0
	}
	a.asking = true
	return k
}

// reserve asks for more than a check's own cost, and answers the check if there is
// room for all of it.
func (ls *leases) reserve(ctx context.Context, c *window.Check, more uint64, d *window.Decision) (*lease, error) {
	a := ls.account(c)
	ask := *c
	ask.Cost += more
	sent := ls.clock()
	told, r, err := ls.reserver.Reserve(ctx, ask, c.Lease.Length)
	received := ls.clock()

	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking = false
	if err != nil {
		return nil, err
	}
	a.remaining = told.Remaining
	if !told.Allowed {
		return nil, nil
	}
	ls.end(a) // a lease that was too small
	l := &lease{
		account: a, key: c.Key, reservation: r, hits: c.Limit.Hits, precision: c.Precision,
		until: sent + c.Lease.Length - c.Lease.Length/marginPart, received: received, left: more, decision: told,
	}
	a.lease = l
	ls.made.Add(1)
	l.answer(received, d)
	ls.mu.Lock()
	heap.Push(&ls.ends, l)
	first := ls.ends[0] == l
	ls.mu.Unlock()
	if first {
		ls.wakeUp()
	}
	return l, nil
}

// learn tells what the store has decided on a log that may have a lease.
func (ls *leases) learn(c *window.Check, d *window.Decision) {
	a := ls.account(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remaining = d.Remaining
	if !d.Allowed {
		ls.end(a) // others may have it
	}
}

// end ends the lease of an account, which is locked, and gives the rest back.
func (ls *leases) end(a *account) {
	l := a.lease
	if l == nil {
		return
	}
	a.lease = nil
	if l.left > 0 {
		ls.queue(surplus{l.key, l.reservation, l.left})
		l.left = 0
	}
}

// endNow ends the lease of a log and has given the rest back when it returns.
func (ls *leases) endNow(ctx context.Context, id window.LogID) {
	a, ok := ls.accounts.GetIfPresent(id)
	if !ok {
		return
	}
	a.mu.Lock()
	l := a.lease
	a.lease = nil
	var rest surplus
	if l != nil {
		rest = surplus{l.key, l.reservation, l.left}
		l.left = 0
	}
	a.mu.Unlock()
	if rest.cost > 0 {
		ls.give(ctx, rest)
	}
}

// endSoon ends the lease of a log.
func (ls *leases) endSoon(id window.LogID) {
	if a, ok := ls.accounts.GetIfPresent(id); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		ls.end(a)
	}
}

// endAll ends all leases.
func (ls *leases) endAll() {
	ls.mu.Lock()
	all := ls.ends
	ls.ends = nil
	ls.mu.Unlock()
	for _, l := range all {
		ls.endOf(l)
	}
}

// endOf ends a lease unless it has ended.
func (ls *leases) endOf(l *lease) {
	l.account.mu.Lock()
	defer l.account.mu.Unlock()
	if l.account.lease == l {
		ls.end(l.account)
	}
}

// queue leaves a surplus to the goroutine.
func (ls *leases) queue(s surplus) {
	ls.mu.Lock()
	ls.pending = append(ls.pending, s)
	ls.mu.Unlock()
	ls.wakeUp()
}

func (ls *leases) wakeUp() {
	select {
	case ls.wake <- struct{}{}:
	default: // it is awake already, or will be
	}
}

// giveBack ends the leases whose time has come, and gives back what is left of
// them, until close.
func (ls *leases) giveBack() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ls.done:
			return
		case <-ls.wake:
		case <-timer.C:
		}
		for _, l := range ls.due() {
			ls.endOf(l)
		}
		for _, s := range ls.takePending() {
			select {
			case <-ls.done:
				ls.queue(s) // for close
				continue
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), returnTimeout)
			ls.give(ctx, s)
			cancel()
		}
		ls.mu.Lock()
		if len(ls.ends) > 0 {
			timer.Reset(max(ls.ends[0].until-ls.clock(), 0))
		}
		ls.mu.Unlock()
	}
}

// due removes the leases whose time has come.
func (ls *leases) due() []*lease {
	now := ls.clock()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var due []*lease
	for len(ls.ends) > 0 && ls.ends[0].until <= now {
		due = append(due, heap.Pop(&ls.ends).(*lease))
	}
	return due
}

func (ls *leases) takePending() []surplus {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := ls.pending
	ls.pending = nil
	return all
}

// give gives a surplus back. If that fails it counts until it expires.
func (ls *leases) give(ctx context.Context, s surplus) {
	taken, err := ls.reserver.Return(ctx, s.reservation, s.cost)
	if err != nil {
		return
	}
	ls.returned.Add(taken)
	ls.forget(s.key) // a denial may have counted it
}

// close gives back what it can in a short time. Nothing may be spent after it.
func (ls *leases) close() {
	close(ls.done)
	ls.wg.Wait()
	ls.endAll()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, s := range ls.takePending() {
		ls.give(ctx, s)
	}
}
