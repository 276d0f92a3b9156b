package lease

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/slidegate/slidegate/pkg/window"
)

const (
	// mostLeases is the largest number of leases at a time. One goroutine gives them
	// back, one call after the other.
	mostLeases = 1000
	// accountsPerLease is the number of logs whose demand is counted, for each possible
	// lease.
	accountsPerLease = 16
	// remainingPart divides what remains: one lease reserves that much at most.
	remainingPart = 4
	// returnTimeout bounds one call that gives hits back. closeTimeout bounds all those
	// calls during Close. Hits that are not given back expire.
	returnTimeout = time.Second
	closeTimeout  = time.Second
	// marginPart divides the length of a lease. In that last part the lease is not spent,
	// and the rest goes back before the reservation becomes an ordinary hit. The part is
	// longer than two machines' clocks drift apart in that time.
	marginPart = 10
)

// A Reserver reserves hits ahead in the shared store. It is safe for concurrent use, and
// bounds the time of its calls.
type Reserver interface {
	// Reserve decides one check, as Take does, and records the cost later than the
	// store's clock, by ahead. The cost counts from now on. Until then, answers of Take
	// for the log have a ResetAfter longer than the window, or are
	// [window.Decision.Unsettled]. So the other processes know of the reservation.
	Reserve(ctx context.Context, c window.Check, ahead time.Duration) (window.Decision, window.Reservation, error)
	// Return gives back a part of a reservation, and returns how much of it was still
	// recorded. It may be called several times for one reservation.
	Return(ctx context.Context, r window.Reservation, cost uint64) (uint64, error)
}

// leases has the leases of this process.
type leases struct {
	reserver Reserver
	clock    func() time.Duration
	accounts *otter.Cache[window.LogID, *account]
	forget   func(key string) // called when hits of a key were given back
	most     int

	mu      sync.Mutex
	kept    map[*lease]struct{} // the leases whose time is not over; some have ended
	pending []unused            // waits to be given back
	wake    chan struct{}

	done chan struct{}
	wg   sync.WaitGroup

	made, spent, returned atomic.Uint64
}

// An account has the demand and the lease of one log.
type account struct {
	mu        sync.Mutex
	begun     time.Duration
	now       demand // since begun
	before    demand // in the length of a lease before begun
	remaining uint64 // in the last answer of the store
	asking    bool   // a reservation is under way
	lease     *lease // nil: the log has none
	resets    uint64 // how often the log was removed from the shared store
}

// demand is how often a log was asked for, and the sum of the costs.
type demand struct{ calls, hits uint64 }

// A lease is a reservation that may be spent without asking the store. The lock of its
// account guards it.
type lease struct {
	account     *account
	log         window.LogID
	reservation window.Reservation
	hits        uint64 // the limit
	precision   time.Duration
	until       time.Duration // by the clock of this process, from before the call
	received    time.Duration
	left        uint64
	resets      uint64          // of the account, from before the call
	decision    window.Decision // the answer of the store to the reservation
}

// unused is a part of the reservation of a lease, to give back.
type unused struct {
	lease *lease
	cost  uint64
}

func newLeases(r Reserver, clock func() time.Duration, forget func(string)) (*leases, error) {
	ls := &leases{
		reserver: r, clock: clock, forget: forget, most: mostLeases,
		kept: make(map[*lease]struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	var err error
	ls.accounts, err = otter.New(&otter.Options[window.LogID, *account]{
		MaximumSize: accountsPerLease * mostLeases,
		Executor:    func(f func()) { f() }, // no goroutine outlives Close
	})
	if err != nil {
		return nil, err
	}
	ls.wg.Go(ls.giveBack)
	return ls, nil
}

// leasable reports whether a check may be answered from a lease.
func leasable(c *window.Check) bool {
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

// count adds a call to the demand.
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

// spend answers a check from the lease of its log and returns the lease. It returns nil if
// the log has no lease or the lease has too little left. If counts is true, spend adds the
// call to the demand.
func (ls *leases) spend(c *window.Check, now time.Duration, counts bool, d *window.Decision) *lease {
	a := ls.account(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	if counts {
		a.count(c, now)
	}
	l := ls.current(a, c, now)
	if !l.hasRoom(c) {
		return nil
	}
	l.left -= c.Cost
	l.answer(now, d)
	return l
}

// covers reports whether the lease of a check's log has room for the check.
func (ls *leases) covers(c *window.Check, now time.Duration) bool {
	a := ls.account(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	return ls.current(a, c, now).hasRoom(c)
}

// hasRoom reports whether enough is left of l for a check. l may be nil.
func (l *lease) hasRoom(c *window.Check) bool { return l != nil && l.left >= max(c.Cost, 1) }

// count adds a group that was decided without waiting to the demand. spend did not add it,
// because a group that stays undecided is asked again with waiting.
func (ls *leases) count(checks []window.Check, now time.Duration) {
	for i := range checks {
		if c := &checks[i]; leasable(c) {
			a := ls.account(c)
			a.mu.Lock()
			a.count(c, now)
			a.mu.Unlock()
		}
	}
}

// current returns the lease of an account, which is locked. It ends a lease whose time is
// over, or whose limit or precision differs from that of the check.
func (ls *leases) current(a *account, c *window.Check, now time.Duration) *lease {
	l := a.lease
	if l == nil || now < l.until && l.hits == c.Limit.Hits && l.precision == c.Precision {
		return l
	}
	ls.end(a)
	return nil
}

// answer sets d to an allowed decision. What remains is the sum of what remained in the
// store and what is left of the lease.
func (l *lease) answer(now time.Duration, d *window.Decision) {
	passed := now - l.received
	*d = window.Decision{
		Allowed:    true,
		Remaining:  l.decision.Remaining + l.left,
		ResetAfter: max(l.decision.ResetAfter-passed, 0),
	}
	if l.decision.UnitAfter > 0 {
		d.UnitAfter = max(l.decision.UnitAfter-passed, time.Microsecond)
	}
}

// putBack undoes a spend of a group that is not allowed, and updates the answer.
func (ls *leases) putBack(l *lease, c *window.Check, now time.Duration, d *window.Decision) {
	a := l.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease == l {
		l.left += c.Cost
		l.answer(now, d)
		return
	}
	// The lease has ended, and its rest has been given back.
	d.Remaining += c.Cost
	ls.queue(unused{l, c.Cost})
}

// want returns how much to reserve in addition to the cost of the check. It returns zero if
// a lease would save no calls, or if another call is reserving. If it returns more than
// zero, the caller must call reserve.
func (ls *leases) want(c *window.Check, now time.Duration) uint64 {
	a := ls.account(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking || a.now.calls+a.before.calls < 2 || c.Cost == 0 {
		return 0
	}
	most := c.Lease.Hits
	if most == 0 {
		most = c.Limit.Hits / window.LeasePart
	}
	if most < c.Cost {
		return 0
	}
	// What was asked for in the last length of a lease.
	passed := min(now-a.begun, c.Lease.Length)
	before := float64(a.before.hits) * float64(c.Lease.Length-passed) / float64(c.Lease.Length)
	k := min(window.AddSaturating(a.now.hits, uint64(before)), most-c.Cost, a.remaining/remainingPart)
	if k < window.MinLeaseHits-1 { // the cost of the check is at least one more
		return 0
	}
	ls.mu.Lock()
	full := len(ls.kept) >= ls.most
	ls.mu.Unlock()
	if full {
		return 0
	}
	a.asking = true
	return k
}

// reserve asks the store for the cost of the check and more. If both have room, it answers
// the check and returns the lease.
func (ls *leases) reserve(ctx context.Context, c *window.Check, more uint64, d *window.Decision) (*lease, error) {
	a := ls.account(c)
	ask := *c
	ask.Cost += more
	a.mu.Lock()
	resets := a.resets
	a.mu.Unlock()
	sent := ls.clock()
	answered, r, err := ls.reserver.Reserve(ctx, ask, c.Lease.Length)
	received := ls.clock()

	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking = false
	if err != nil {
		a.remaining = 0 // no reservation until the store decides again
		return nil, err
	}
	a.remaining = answered.Remaining
	if !answered.Allowed {
		return nil, nil
	}
	ls.end(a) // the old lease had too little left
	l := &lease{
		account: a, log: c.Log(), reservation: r, hits: c.Limit.Hits, precision: c.Precision,
		until: sent + c.Lease.Length - c.Lease.Length/marginPart, received: received, left: more, resets: resets, decision: answered,
	}
	ls.made.Add(1)
	if a.resets != resets {
		// The log was removed during the call, before or after the reservation. If it was
		// after, the reservation is gone. So only the cost of the check is spent.
		l.left = 0
		l.answer(received, d)
		return l, nil
	}
	a.lease = l
	l.answer(received, d)
	ls.mu.Lock()
	ls.kept[l] = struct{}{}
	ls.mu.Unlock()
	time.AfterFunc(l.until-received, func() { ls.expire(l) })
	return l, nil
}

// expire ends a lease whose time is over.
func (ls *leases) expire(l *lease) {
	ls.mu.Lock()
	delete(ls.kept, l)
	ls.mu.Unlock()
	ls.endOf(l)
}

// learn notes the store's decision on a log that may have a lease.
func (ls *leases) learn(c *window.Check, d *window.Decision) {
	a := ls.account(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remaining = d.Remaining
	if !d.Allowed {
		ls.end(a) // another process may have room for its rest
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
		ls.queue(unused{l, l.left})
		l.left = 0
	}
}

// endNow ends the lease of a log, and gives the rest back before it returns.
func (ls *leases) endNow(ctx context.Context, id window.LogID) {
	a, ok := ls.accounts.GetIfPresent(id)
	if !ok {
		return
	}
	a.mu.Lock()
	l := a.lease
	a.lease = nil
	var rest unused
	if l != nil {
		rest = unused{l, l.left}
		l.left = 0
	}
	a.mu.Unlock()
	if rest.cost > 0 {
		ls.give(ctx, rest)
	}
}

// drop ends the lease of a log that was removed from the shared store. The reservation is
// gone with the log. Its rest is not given back, because the new log may have hits of others
// at the same instant. A reservation that is under way becomes no lease.
func (ls *leases) drop(id window.LogID) {
	if a, ok := ls.accounts.GetIfPresent(id); ok {
		a.drop()
	}
	// The accounts of other leases of the log are not kept any more.
	ls.mu.Lock()
	all := slices.Collect(maps.Keys(ls.kept))
	ls.mu.Unlock()
	for _, l := range all {
		if l.log == id {
			l.account.drop()
		}
	}
}

// drop forgets the lease of an account, and all that is unused of earlier leases.
func (a *account) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resets++
	a.remaining = 0 // until the store answers
	if a.lease != nil {
		a.lease.left = 0
		a.lease = nil
	}
}

// gone reports whether the log of a lease was removed since its reservation began.
func (l *lease) gone() bool {
	l.account.mu.Lock()
	defer l.account.mu.Unlock()
	return l.account.resets != l.resets
}

// endAll ends all leases.
func (ls *leases) endAll() {
	ls.mu.Lock()
	all := ls.kept
	ls.kept = make(map[*lease]struct{})
	ls.mu.Unlock()
	for l := range all {
		ls.endOf(l)
	}
}

// endOf ends a lease if it has not ended yet.
func (ls *leases) endOf(l *lease) {
	l.account.mu.Lock()
	defer l.account.mu.Unlock()
	if l.account.lease == l {
		ls.end(l.account)
	}
}

// queue makes the goroutine give an unused part back.
func (ls *leases) queue(u unused) {
	ls.mu.Lock()
	ls.pending = append(ls.pending, u)
	ls.mu.Unlock()
	select {
	case ls.wake <- struct{}{}:
	default: // the goroutine is going to wake up anyway
	}
}

// giveBack gives back what is left of leases that have ended, until close.
func (ls *leases) giveBack() {
	for {
		select {
		case <-ls.done:
			return
		case <-ls.wake:
		}
		for _, u := range ls.takePending() {
			select {
			case <-ls.done:
				ls.queue(u) // close gives it back
				continue
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), returnTimeout)
			ls.give(ctx, u)
			cancel()
		}
	}
}

func (ls *leases) takePending() []unused {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := ls.pending
	ls.pending = nil
	return all
}

// give gives an unused part back, unless its log was removed. If the store fails, the part
// counts until it expires.
func (ls *leases) give(ctx context.Context, u unused) {
	if u.lease.gone() {
		return
	}
	taken, err := ls.reserver.Return(ctx, u.lease.reservation, u.cost)
	if err != nil {
		return
	}
	ls.returned.Add(taken)
	ls.forget(u.lease.log.Key) // a remembered denial may count these hits
}

// close gives back as much as it can within closeTimeout. No lease may be spent after it.
func (ls *leases) close() {
	close(ls.done)
	ls.wg.Wait()
	ls.endAll()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, u := range ls.takePending() {
		ls.give(ctx, u)
	}
}
