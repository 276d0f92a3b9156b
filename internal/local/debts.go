package local

import (
	"context"
	"math"
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
)

// A Settler is the shared store, where what was admitted without it is charged
// afterwards. It is safe for concurrent use, and bounds the time of a call itself.
type Settler interface {
	window.Store
	// Forget ends what the process remembers or has reserved of a log.
	Forget(window.LogID)
	// Doubt tells from an error of Take when the call may have been charged: each of its
	// logs only if it was written after since. known is false if the call is not to be
	// charged afterwards, because the store does not decide.
	Doubt(err error) (since int64, known bool)
	// LastWrite returns when a log was written last, by the clock that since is of.
	LastWrite(context.Context, window.LogID) (int64, error)
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

	wg sync.WaitGroup

	charged, found, abandoned atomic.Uint64
}

// A debt is what one log lacks.
type debt struct {
	check window.Check // of the last request
	owed  []owed
}

// owed is cost that the store has charged only if it has written the log after since.
type owed struct {
	since int64
	cost  uint64
}

// uncharged is the instant since which a cost was certainly not charged.
const uncharged = math.MaxInt64

func newDebts(s *Shares, store Settler, pause time.Duration) *debts {
	sleep := func() { time.Sleep(pause) }
	return &debts{shares: s, store: store, sleep: sleep, logs: make(map[window.LogID]*debt)}
}

// Owing reports whether there is a debt at all. It is one atomic load.
func (s *Shares) Owing() bool { return s.debts != nil && s.debts.count.Load() > 0 }

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
	if err := s.Take(ctx, checks, decisions); err != nil {
		return false, err
	}
	s.debts.owe(checks, decisions, uncharged)
	return true, nil
}

// TakeAfter decides a group whose call to the shared store has failed with cause. If
// that leaves open whether the call was charged, the group owes what it charges.
func (s *Shares) TakeAfter(ctx context.Context, cause error, checks []window.Check, decisions []window.Decision) error {
	if s.debts == nil {
		return s.Take(ctx, checks, decisions)
	}
	since, known := s.debts.store.Doubt(cause)
	if !known {
		return s.Take(ctx, checks, decisions)
	}
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	if err := s.Take(ctx, checks, decisions); err != nil {
		return err
	}
	s.debts.owe(checks, decisions, since)
	return nil
}

// owe notes what a group charges. Refunds are not made good.
func (d *debts) owe(checks []window.Check, decisions []window.Decision, since int64) {
	allowed := window.GroupAllowed(checks, decisions)
	for i := range checks {
		c := &checks[i]
		if _, free := window.WithoutLog(c); free || c.Cost == 0 || c.Mode == window.Refund || !c.Mode.Charged(allowed, decisions[i].Allowed) {
			continue
		}
		id := c.Log()
		log := d.logs[id]
		if log == nil {
			if len(d.logs) >= maxDebts {
				d.abandoned.Add(c.Cost)
				continue
			}
			log = &debt{}
			d.logs[id] = log
			d.count.Add(1)
			d.store.Forget(id)
			d.wg.Go(func() { d.settle(id, log) })
		}
		log.check = *c
		if n := len(log.owed); n > 0 && log.owed[n-1].since == since {
			log.owed[n-1].cost = window.AddSaturating(log.owed[n-1].cost, c.Cost)
		} else {
			log.owed = append(log.owed, owed{since, c.Cost})
		}
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
		check, all := log.check, log.owed
		log.owed = nil
		if len(all) == 0 || last {
			// The last time requests are not held back: they may come all the time.
			delete(d.logs, id)
			d.count.Add(-1)
		}
		d.mu.Unlock()
		if len(all) == 0 {
			return
		}
		left, again := d.charge(id, check, all)
		if wait = len(left) > 0 && again && !last; wait {
			d.mu.Lock()
			log.owed = append(left, log.owed...)
			d.mu.Unlock()
			continue
		}
		for _, o := range left {
			d.abandoned.Add(o.cost)
		}
		if last {
			return
		}
	}
}

// charge charges what of all a log was not charged yet, at once. It returns what it
// could not charge, and whether it is worth trying again.
func (d *debts) charge(id window.LogID, c window.Check, all []owed) (left []owed, again bool) {
	ctx := context.Background() // the store bounds its calls
	written := int64(0)
	if all[0].since != uncharged || all[len(all)-1].since != uncharged {
		var err error
		if written, err = d.store.LastWrite(ctx, id); err != nil {
			_, again = d.store.Doubt(err)
			return all, again
		}
	}
	var found uint64
	c.Mode, c.Cost, c.Lease = window.Always, 0, window.Lease{}
	for _, o := range all {
		if written > o.since {
			found = window.AddSaturating(found, o.cost)
		} else {
			c.Cost = window.AddSaturating(c.Cost, o.cost)
		}
	}
	checks, decisions := [1]window.Check{c}, [1]window.Decision{}
	if err := d.store.Take(ctx, checks[:], decisions[:]); err != nil {
		since, again := d.store.Doubt(err)
		left = []owed{{since, c.Cost}}
		if found > 0 {
			left = append(left, owed{-1, found}) // it is found again: every log was written since
		}
		return left, again
	}
	d.charged.Add(c.Cost)
	d.found.Add(found)
	d.mu.Lock()
	defer d.mu.Unlock()
	// From here on the store's answers hold what the log of this process held.
	d.shares.Learn(&checks[0], &decisions[0])
	c.Mode, c.Cost = window.Refund, window.AddSaturating(c.Cost, found)
	checks[0] = c
	_ = d.shares.store.Take(ctx, checks[:], decisions[:]) // else less is admitted here, until it expires
	return nil, false
}
