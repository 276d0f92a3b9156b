package policytest

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
)

// The promise of each policy, without an oracle: what was admitted is recorded with true
// times, and compared with the promise.

// A meter watches a token bucket from outside. Between any two charges, both included, it
// has seen no more than the burst and what comes back meanwhile.
type meter struct {
	limit window.Limit
	sum   int64    // hits so far
	least *big.Int // of rate * time - window * (hits before), at any charge so far
}

func (m *meter) product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// charge adds a charge and reports whether the promise holds.
func (m *meter) charge(at time.Duration, hits uint64) bool {
	w, refilled := m.limit.Window.Microseconds(), m.product(at.Microseconds(), int64(m.limit.Rate))
	before := new(big.Int).Sub(refilled, m.product(w, m.sum))
	if m.least == nil || before.Cmp(m.least) < 0 {
		m.least = before
	}
	m.sum += int64(hits)
	// window * (hits since then) - rate * (time since then), at its largest
	excess := new(big.Int).Sub(m.product(w, m.sum), refilled)
	return excess.Add(excess, m.least).Cmp(m.product(w, int64(m.limit.Hits))) <= 0
}

// bucketLimits are of rates that divide badly, and of bounds.
func bucketLimits(shortWindows bool) []window.Limit {
	of := func(rate uint32, w time.Duration, burst uint64) window.Limit {
		return window.Limit{Policy: window.TokenBucket, Hits: burst, Window: w, Rate: rate}
	}
	limits := []window.Limit{
		of(7, second, 100), of(7, second, 301), of(3, second, 50), of(10, second, 250), of(999_983, second, 1<<31),
		of(7, time.Minute, 3), of(59, time.Minute, 20), of(7, time.Hour+micro, 50), of(1, 365*day, 1), of(12, 365*day, 13),
		of(1, window.MaxWindow, 1), of(10_007, window.MaxWindow-micro, 10_007), of(math.MaxUint32, window.MaxWindow, windowtest.Most),
		of(math.MaxUint32, 11*second, windowtest.Most), of(math.MaxUint32, 7*second, window.MaxHits), of(math.MaxUint32, day+7*micro, 5),
	}
	if shortWindows {
		limits = append(limits, of(7, second, 1), of(7, second, 3), of(10, second, 50), of(math.MaxUint32, window.MinWindow, windowtest.Most), of(1, window.MinWindow, 7))
	}
	return limits
}

// runBucketPromise proves both halves of the promise of a token bucket: it admits no more in
// any interval, and a caller that never lets it fill gets every hit.
func runBucketPromise(t *testing.T, h windowtest.Harness, shortWindows bool, rounds int) {
	r := rand.New(rand.NewPCG(20, 7))
	for n, l := range bucketLimits(shortWindows) {
		for _, greedy := range []bool{true, false} {
			c := window.Check{Key: fmt.Sprint("bucket", n, greedy), Limit: l}
			now := h.Aligned(second, windowtest.UpTo(r, year).Truncate(micro)) + windowtest.UpTo(r, second).Truncate(micro)
			start := now
			m := meter{limit: l}
			spend := func(cost uint64) window.Decision {
				t.Helper()
				c.Cost = cost
				h.SetNow(now)
				d := take(t, h.Store, one(c))[0]
				if d.Allowed && cost > 0 && !m.charge(now, cost) {
					t.Fatalf("%+v: at %v after %v, an interval admits more than the promise", c, now, now-start)
				}
				return d
			}
			if d := spend(l.Hits); !d.Allowed {
				t.Fatalf("%+v: a new bucket is not full: %+v", c, d)
			}
			for range rounds {
				d := spend(0)
				if greedy && d.ResetAfter == 0 {
					t.Fatalf("%+v: a bucket that was not full answers %+v", c, d)
				}
				wait := windowtest.Pick(r, d.UnitAfter, d.UnitAfter, d.UnitAfter-micro, windowtest.UpTo(r, d.ResetAfter+micro).Truncate(micro), micro, 0)
				if now += max(min(wait, d.ResetAfter-micro), 0); now > windowtest.LastClock-h.Epoch-2*window.MaxWindow {
					break
				}
				if !greedy {
					if r.IntN(10) == 0 {
						now += d.ResetAfter
					}
					for range r.IntN(4) {
						spend(windowtest.Pick(r, 1, 1, 2, l.Hits, l.Hits/2, 1+r.Uint64N(l.Hits)))
					}
					continue
				}
				if left := spend(0).Remaining; left > 0 && !spend(left).Allowed {
					t.Fatalf("%+v: at %v the remaining %d hits have no room", c, now, left)
				}
				// It was never full since the first charge: burst + rate * time, to the hit.
				want := oracle.Floor(oracle.Refilled(l, now-start)).Int64() + int64(l.Hits)
				if m.sum != want {
					t.Fatalf("%+v: %v after the burst it has admitted %d hits, want %d", c, now-start, m.sum, want)
				}
			}
			// A burst is there again when what it lacks has come back.
			full := time.Duration(oracle.Ceil(new(big.Rat).Quo(oracle.Whole(l.Hits), oracle.Refilled(l, micro))).Int64()) * micro
			if now += full; !spend(l.Hits).Allowed {
				t.Errorf("%+v: %v after the last hit there is no burst", c, full)
			}
		}
	}
}

// A charged is what a store has admitted.
type charged struct {
	at, end time.Duration // of its window or period
	cost    uint64
}

// runPeriodPromise proves that no fixed window and no period admits more than the
// limit, also when anchors change and the caller's clock is off, and that each admits all of
// the limit.
func runPeriodPromise(t *testing.T, h windowtest.Harness, rounds int) {
	const limit = 5
	r := rand.New(rand.NewPCG(20, 8))
	for n := range 2 * (len(Cycles) + 1) {
		var (
			kind    = n % (len(Cycles) + 1)
			changes = n > len(Cycles)
			key     = fmt.Sprint("period", n)
			now     = h.Aligned(day, 2*year) + windowtest.UpTo(r, year).Truncate(micro)
			past    []charged
			anchor  int64
		)
		for range rounds {
			if now > windowtest.LastClock-h.Epoch-3*year {
				now, key, past = 3*year, key+"+", nil
			}
			var c window.Check
			var end time.Duration // as the store's clock says it
			nominal := win
			if kind == len(Cycles) {
				c = fixedIn(win, key, limit, 0)
				end = (now+h.Epoch)/win*win + win
			} else {
				cycle := &Cycles[kind]
				nominal = cycle.Nominal
				if changes && r.IntN(8) == 0 {
					anchor = cycle.anyAnchor(r)
				}
				end = time.Duration(cycle.In(now+h.Epoch, anchor).End) * second
				c = calendarIn(nominal, cycle.In(now+h.Epoch+windowtest.Pick(r, 0, 0, -oracle.Early, oracle.Early), anchor), key, limit, 0)
			}
			c.Cost = 1 + r.Uint64N(3)
			h.SetNow(now)
			d := take(t, h.Store, one(c))[0]
			if d.Allowed {
				past = append(past, charged{now + h.Epoch, end, c.Cost})
			}
			if !changes {
				var used uint64
				for _, p := range past {
					if p.end == end {
						used += p.cost
					}
				}
				if want := uint64(limit) - min(used, limit); used > limit || d.Remaining != want {
					t.Fatalf("%+v at %v: the period to %v has admitted %d of %d, and %d remain", c, now, end, used, limit, d.Remaining)
				}
			}
			if first, used := overfull(past, limit); used > limit {
				t.Fatalf("%+v at %v: from %v to the end of its period %v it has admitted %d of %d", c, now, first.at, first.end, used, limit)
			}
			now += windowtest.Pick(r, 0, micro, windowtest.UpTo(r, nominal/4), windowtest.UpTo(r, nominal), end-h.Epoch-now, end-h.Epoch-now-micro, max(d.RetryAfter, micro)).Truncate(micro)
		}
	}
}

// overfull returns the charge from which on, until the end of its period, most was admitted.
func overfull(past []charged, limit uint64) (worst charged, most uint64) {
	past = past[max(0, len(past)-100):] // earlier ones were looked at before
	for i, p := range past {
		var used uint64
		for _, q := range past[i:] {
			if q.at < p.end {
				used += q.cost
			}
		}
		if used > most {
			worst, most = p, used
		}
		if most > limit {
			break
		}
	}
	return worst, most
}

// runCounterPromise proves the promise of a sliding counter: an interval of length t, up to
// a window, admits at most limit * (1 + t/window), and never twice the limit. The worst
// that TestWorstOfCounter finds is reached.
func runCounterPromise(t *testing.T, h windowtest.Harness, rounds int) {
	r := rand.New(rand.NewPCG(20, 9))
	for n, limit := range []uint64{1, 2, 3, 10, 97} {
		var (
			past []charged
			key  = fmt.Sprint("counter", n)
			now  = h.Aligned(win, windowtest.UpTo(r, year).Truncate(micro))
		)
		for range rounds {
			h.SetNow(now)
			c := counterIn(win, key, limit, windowtest.Pick(r, 1, 1, limit, limit/2+1))
			d := take(t, h.Store, one(c))[0]
			if d.Allowed {
				past = append(past, charged{at: now, cost: c.Cost})
			} else if d.Remaining > 0 {
				c.Cost = d.Remaining
				if !take(t, h.Store, one(c))[0].Allowed {
					t.Fatalf("%+v at %v: the remaining hits have no room", c, now)
				}
				past = append(past, charged{at: now, cost: c.Cost})
			}
			past = past[max(0, len(past)-300):]
			var used uint64
			for i := len(past) - 1; i >= 0 && now-past[i].at < win; i-- {
				used += past[i].cost
				length := now - past[i].at
				most := limit + oracle.Floor(oracle.Refilled(window.Limit{Rate: uint32(limit), Window: win}, length)).Uint64()
				if used > most || used > 2*limit-1 {
					t.Fatalf("%+v: the %v from %v on admit %d, more than %d and %d", c, length, past[i].at, used, most, 2*limit-1)
				}
			}
			edge := win - (now+h.Epoch)%win
			now += windowtest.Pick(r, 0, micro, windowtest.UpTo(r, win/4).Truncate(micro), edge, edge-micro, win-micro, win-2*micro, max(d.UnitAfter, 0))
		}

		// The worst: everything at the end of one fixed window, and then what the next
		// one has until a moment before its own end.
		key += "worst"
		start := h.Aligned(win, now)
		h.SetNow(start - micro)
		if d := take(t, h.Store, one(counterIn(win, key, limit, limit)))[0]; !d.Allowed {
			t.Fatalf("a new counter answers %+v", d)
		}
		h.SetNow(start + win - 2*micro)
		got := take(t, h.Store, one(counterIn(win, key, limit, 0)))[0].Remaining
		if got != limit-1 {
			t.Errorf("limit %d: within a window after a full one, got %d, want %d", limit, got, limit-1)
		}
	}
}

// A probe asks without charging: a limit of zero next to it denies the group.
type probe struct {
	h      *windowtest.Harness
	cycle  *cycle // of a calendar, or nil
	anchor int64
}

func (p *probe) ask(t *testing.T, at time.Duration, c window.Check) window.Decision {
	t.Helper()
	if p.cycle != nil {
		c.Period = p.cycle.In(at+p.h.Epoch, p.anchor)
	}
	p.h.SetNow(at)
	return take(t, p.h.Store, group(c, ask("no", 0, 1)))[0]
}

// waits proves that all waits of an answer are true: at their end it is as promised, and the
// microsecond before it is not.
func (p *probe) waits(t *testing.T, at time.Duration, c window.Check) {
	t.Helper()
	d := p.ask(t, at, c)
	check := func(name string, wait time.Duration, kept func(window.Decision) bool) {
		t.Helper()
		if wait < 0 || at+wait > windowtest.LastClock-p.h.Epoch {
			t.Fatalf("%+v at %v: %s is %v", c, at, name, wait)
		}
		if end := p.ask(t, at+wait, c); !kept(end) {
			t.Fatalf("%+v at %v: %s %v of %+v ends too early: %+v", c, at, name, wait, d, end)
		}
		if wait > 0 {
			if before := p.ask(t, at+wait-micro, c); kept(before) {
				t.Fatalf("%+v at %v: %s %v of %+v is too long: %+v", c, at, name, wait, d, before)
			}
		}
	}
	fits := max(c.Cost, 1) <= c.Limit.Hits
	if d.Never == fits {
		t.Fatalf("%+v at %v: got %+v", c, at, d)
	}
	if fits {
		check("retry after", d.RetryAfter, func(e window.Decision) bool { return e.Allowed && e.RetryAfter == 0 })
	}
	if d.Remaining < c.Limit.Hits {
		check("unit after", d.UnitAfter, func(e window.Decision) bool { return e.Remaining > d.Remaining })
	}
	check("reset after", d.ResetAfter, func(e window.Decision) bool {
		return e.ResetAfter == 0 && e.UnitAfter == 0 && e.Remaining == c.Limit.Hits
	})
}

// runWaits proves that every wait of every policy is true for every cost, in states that
// all modes, changing limits and clocks have made.
func runWaits(t *testing.T, h windowtest.Harness, shortWindows bool, rounds int) {
	r := rand.New(rand.NewPCG(20, 10))
	buckets := bucketLimits(shortWindows)
	for n := range rounds {
		key, now := fmt.Sprint("waits", n), h.Aligned(day, 2*year)-windowtest.UpTo(r, day).Truncate(micro)
		p := probe{h: &h}
		var limit window.Limit
		switch n % 5 {
		case 0:
			limit = buckets[r.IntN(len(buckets))]
		case 1:
			limit = counterIn(windowtest.Pick(r, win, time.Hour+micro, 30*day), key, windowtest.Pick[uint64](r, 1, 7, 10, 1000, windowtest.Most, window.MaxHits), 0).Limit
		case 2:
			limit = fixedIn(windowtest.Pick(r, win, time.Hour+micro, 30*day), key, windowtest.Pick[uint64](r, 1, 7, 10, windowtest.Most, window.MaxHits), 0).Limit
		case 3:
			p.cycle, p.anchor = &Cycles[r.IntN(len(Cycles))], 0
			p.anchor = p.cycle.anyAnchor(r)
			limit = calendarIn(p.cycle.Nominal, window.Period{}, key, windowtest.Pick[uint64](r, 1, 7, 10, windowtest.Most, window.MaxHits), 0).Limit
		case 4:
			limit = ask(key, windowtest.Pick[uint64](r, 1, 7, 10), 0).Limit
		}
		c := window.Check{Key: key, Limit: limit}
		for range 1 + r.IntN(8) {
			call := c
			call.Limit.Hits = windowtest.Pick(r, limit.Hits, limit.Hits, (limit.Hits+1)/2)
			if limit.Rate > 0 {
				call.Limit.Rate = windowtest.Pick(r, limit.Rate, limit.Rate, max(limit.Rate, 2)-1, limit.Rate/2+1, math.MaxUint32)
			}
			if call.Limit.Valid() != nil {
				call.Limit = limit
			}
			call.Cost = windowtest.Pick(r, 1, 1, 2, limit.Hits, 1+r.Uint64N(limit.Hits))
			call.Mode = windowtest.Pick(r, window.Enforce, window.Enforce, window.Enforce, window.Always, window.Refund, window.Observe)
			if p.cycle != nil {
				call.Period = p.cycle.In(now+h.Epoch, p.anchor)
			}
			h.SetNow(now)
			d := take(t, h.Store, one(call))[0]
			now = max(now+windowtest.Pick(r, 0, d.UnitAfter, d.UnitAfter-micro, windowtest.UpTo(r, limit.Window), -windowtest.UpTo(r, limit.Window/3)).Truncate(micro), year)
		}
		for _, cost := range []uint64{0, 1, 2, limit.Hits / 2, limit.Hits, limit.Hits + 1, 1 + r.Uint64N(limit.Hits)} {
			c.Cost = min(cost, window.MaxHits)
			p.waits(t, now, c)
			if t.Failed() {
				return
			}
		}
	}
}
