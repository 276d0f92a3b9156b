package packed

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// A naiveLog decides as the contract says: it keeps every charge and loops over
// all of them. Times are microseconds. It shares nothing with the packed log: no
// sums, no search, no bytes, no pruning, no units but for the rounding.
type naiveLog struct {
	win, unit int64
	clock     int64 // of the last write
	spent     []naiveEntry
}

type naiveEntry struct {
	at   int64
	cost uint64
}

func newNaive(win time.Duration) *naiveLog {
	n := &naiveLog{win: win.Microseconds(), unit: 1}
	if win > 6*24*time.Hour {
		n.unit = 1000
	}
	return n
}

// counts returns the entries that count at now.
func (n *naiveLog) counts(now int64) []naiveEntry {
	var counts []naiveEntry
	for _, e := range n.spent {
		if e.at+n.win > now {
			counts = append(counts, e)
		}
	}
	return counts
}

func total(entries []naiveEntry) (sum uint64) {
	for _, e := range entries {
		sum += e.cost
	}
	return sum
}

// merged returns entries with equal times as one.
func merged(entries []naiveEntry) []Entry {
	var all []Entry
	for _, e := range entries {
		at := time.Duration(e.at) * time.Microsecond
		if len(all) > 0 && all[len(all)-1].At == at {
			all[len(all)-1].Cost += uint32(e.cost)
		} else {
			all = append(all, Entry{at, uint32(e.cost)})
		}
	}
	return all
}

// wait returns when a cost fits, letting one entry after the other expire.
func (n *naiveLog) wait(clock, now int64, limit, cost uint64) time.Duration {
	counts := n.counts(now)
	used := total(counts)
	for _, e := range counts {
		if used+cost <= limit {
			break
		}
		used -= e.cost
		if used+cost <= limit {
			return time.Duration(e.at+n.win-clock) * time.Microsecond
		}
	}
	return 0
}

func (n *naiveLog) charge(now, ahead int64, cost uint64, precision time.Duration) {
	counts := n.counts(now)
	cost = min(cost, 1<<32-1-total(counts))
	if cost == 0 {
		return
	}
	step := int64(1)
	for time.Duration(step)*time.Microsecond < min(precision, time.Duration(n.win)*time.Microsecond) {
		step++ // the whole microseconds, rounded up
		if step < int64(precision/time.Microsecond) {
			step = int64(precision / time.Microsecond)
		}
	}
	for step%n.unit != 0 {
		step++
	}
	at := now + ahead
	if rest := at % step; rest != 0 {
		at += step - rest
	}
	if len(counts) > 0 {
		at = max(at, counts[len(counts)-1].at)
	}
	n.spent = append(n.spent, naiveEntry{at, cost})
	n.clock = now
}

// refund takes one unit after the other from the newest entry that has any.
func (n *naiveLog) refund(now int64, cost uint64) {
	counts := n.counts(now)
	cost = min(cost, total(counts))
	if cost == 0 {
		return
	}
	n.clock = now
	for cost > 0 {
		last := &n.spent[len(n.spent)-1]
		take := min(cost, last.cost)
		last.cost -= take
		cost -= take
		if last.cost == 0 {
			n.spent = n.spent[:len(n.spent)-1]
		}
	}
}

// most returns a large part of what is used, or more.
func (n *naiveLog) most(r *rand.Rand) uint64 {
	used := total(n.counts(n.clock))
	return pick(r, used, used+1, used/2, used-used/8, used-used/32)
}

// take decides a group of one check, whose cost is spent until some time ahead.
func (n *naiveLog) take(clock int64, c *window.Check, ahead time.Duration) window.Decision {
	clock = max(clock, 0)
	now := max(clock, n.clock)
	limit, need := c.Limit.Hits, max(c.Cost, 1)
	room, cut := total(n.counts(now))+need <= limit, false
	switch c.Mode {
	case window.Refund:
		room = true
		n.refund(now, c.Cost)
	case window.Always:
		used := total(n.counts(now))
		cost := min(c.Cost, max(2*limit, used)-used) // the debt is at most one limit
		cut = cost < c.Cost || cost > 1<<32-1-used
		n.charge(now, ahead.Microseconds(), cost, c.Precision)
	default:
		if room {
			n.charge(now, ahead.Microseconds(), c.Cost, c.Precision)
		}
	}

	d := window.Decision{Allowed: room, Cut: cut}
	counts := n.counts(now)
	if used := total(counts); used < limit {
		d.Remaining = limit - used
	}
	if len(counts) > 0 {
		d.ResetAfter = time.Duration(counts[len(counts)-1].at+n.win-clock) * time.Microsecond
	}
	switch {
	case d.Remaining == 0 && limit > 0:
		d.UnitAfter = n.wait(clock, now, limit, 1)
	case len(counts) > 0 && limit > 0:
		d.UnitAfter = time.Duration(counts[0].at+n.win-clock) * time.Microsecond
	}
	if !room {
		if need > limit {
			d.Never = true
		} else {
			d.RetryAfter = n.wait(clock, now, limit, need)
		}
	}
	return d
}

// A pair is a packed log and the naive one that it must agree with.
type pair struct {
	t     testing.TB
	log   []byte
	naive *naiveLog
	win   time.Duration
	last  window.Decision
	now   int64
	steps []string
	// before is called before every step, unless it is nil.
	before func(clock int64)
	// ahead chooses how far ahead a step is recorded; nil: it is not.
	ahead func(c *window.Check) time.Duration
	// after is called after every step, unless it is nil.
	after func(clock int64, c *window.Check, ahead time.Duration, d window.Decision, log []byte)

	rings, grown, shrunk, small, charged, refunds, wraps int // what has happened
}

func newPair(t testing.TB, win time.Duration) *pair {
	return &pair{t: t, naive: newNaive(win), win: win}
}

// step makes one call on both logs and reports whether they agree.
func (p *pair) step(clock int64, c *window.Check) bool {
	p.t.Helper()
	c.Limit.Window = p.win
	if p.before != nil {
		p.before(clock)
	}
	ahead := time.Duration(0)
	if p.ahead != nil {
		ahead = p.ahead(c)
	}
	p.now = clock
	before := slices.Clone(p.log)
	cost := total(p.naive.counts(max(clock, p.naive.clock)))

	want := p.naive.take(clock, c, ahead)
	var got window.Decision
	if ahead == 0 {
		p.log = take(p.log, clock, c, &got)
	} else {
		p.log = takeAhead(p.log, clock, c, ahead, &got)
	}
	p.last = want

	p.steps = append(p.steps, fmt.Sprintf("%d: %v cost %d of %d precision %v ahead %v: %+v", clock, c.Mode, c.Cost, c.Limit.Hits, c.Precision, ahead, want))
	if got != want {
		return p.fail("the decision differs: (-want +got)\n%s", cmp.Diff(want, got))
	}

	if p.after != nil {
		p.after(clock, c, ahead, got, p.log)
	}
	after := p.naive.counts(max(clock, p.naive.clock))
	wrote := c.Cost > 0 && (total(after) != cost)
	if !wrote {
		if !bytes.Equal(before, p.log) {
			return p.fail("nothing was recorded, but the bytes changed:\n%x\n%x", before, p.log)
		}
		return true
	}
	contents, err := Decode(p.log)
	if err != nil {
		return p.fail("%v\n%x", err, p.log)
	}
	if want := merged(after); !slices.Equal(want, contents.Entries) {
		return p.fail("the entries differ: (-want +got)\n%s", cmp.Diff(want, contents.Entries))
	}
	if want := time.Duration(p.naive.clock) * time.Microsecond; contents.Clock != want {
		return p.fail("clock: got %v, want %v", contents.Clock, want)
	}
	p.note(before, contents, c)
	return p.shape(contents)
}

// shape checks what the layout promises about its size.
func (p *pair) shape(c Contents) bool {
	p.t.Helper()
	n := len(c.Entries)
	switch {
	case !c.Ring && n > 13:
		return p.fail("%d entries in a small log", n)
	case c.Ring && n <= 6:
		return p.fail("%d entries in a ring", n)
	case c.Ring && (n-1 > c.Capacity || n-1 < (c.Capacity-1)/4):
		return p.fail("%d entries in a ring of %d", n, c.Capacity)
	}
	return true
}

// note counts what a history has met.
func (p *pair) note(before []byte, c Contents, check *window.Check) {
	if check.Mode == window.Refund {
		p.refunds++
	} else {
		p.charged++
	}
	if c.Ring {
		p.rings++
	}
	if old, err := Decode(before); err == nil {
		switch {
		case old.Ring && !c.Ring:
			p.small++
		case c.Ring && c.Capacity > old.Capacity:
			p.grown++
		case c.Ring && old.Ring && c.Capacity < old.Capacity:
			p.shrunk++
		}
		if c.Base < old.Base {
			p.wraps++
		}
	}
}

func (p *pair) fail(format string, args ...any) bool {
	p.t.Helper()
	p.t.Errorf("window %v\n%s\n%s", p.win, strings.Join(p.steps[max(0, len(p.steps)-30):], "\n"), fmt.Sprintf(format, args...))
	return false
}

// edge returns an instant at which something changes, or the one before or
// after it.
func (p *pair) edge(r *rand.Rand) int64 {
	at := p.now
	if counts := p.naive.counts(p.naive.clock); len(counts) > 0 && r.IntN(2) == 0 {
		at = counts[r.IntN(len(counts))].at + p.win.Microseconds()
	} else {
		at += pick(r, p.last.RetryAfter, p.last.UnitAfter, p.last.ResetAfter).Microseconds()
	}
	return max(at+pick[int64](r, -1, 0, 0, 1), 0)
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// runRandom makes histories until the steps are used up.
func runRandom(t *testing.T, long int, h history) {
	steps := random.Steps(t, long/8, long)
	r := random.Rand(t, 0)
	var sum pair
	made := 0
	for made < steps {
		p := h(r, func(win time.Duration) *pair { return newPair(t, win) })
		made += len(p.steps)
		sum.rings += p.rings
		sum.grown += p.grown
		sum.shrunk += p.shrunk
		sum.small += p.small
		sum.charged += p.charged
		sum.refunds += p.refunds
		sum.wraps += p.wraps
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d steps: %d charged, %d refunded, %d as rings, %d grown, %d shrunk, %d small again, %d sums wrapped",
		made, sum.charged, sum.refunds, sum.rings, sum.grown, sum.shrunk, sum.small, sum.wraps)
}

func TestRandomDense(t *testing.T) { runRandom(t, 150_000, dense) }

func TestRandomRings(t *testing.T) { runRandom(t, 150_000, rings) }

func TestRandomAhead(t *testing.T) {
	runRandom(t, 100_000, ahead(dense))
	runRandom(t, 100_000, ahead(rings))
}

// A history is a generator of calls. It makes them until one goes wrong.
type history func(r *rand.Rand, start func(time.Duration) *pair) *pair

// dense makes a short history of few entries in which almost every call is at an
// edge.
func dense(r *rand.Rand, start func(time.Duration) *pair) *pair {
	win := pick(r, window.MinWindow, 10*time.Second, 10*time.Second+7*time.Microsecond, coarseAbove, coarseAbove+time.Microsecond, window.MaxWindow)
	p := start(win)
	w := win.Microseconds()
	limits := []uint64{0, 1, 2, 3, 4, 5}
	if r.IntN(3) == 0 {
		limits = []uint64{7, 12, 13, 14, 15, 25}
	}
	clock := pick[int64](r, 0, 1, 1<<40-w/2, 1_700_000_000_000_000)
	grid := pick(r, 1, p.naive.unit, w/10, w/10)
	for range 60 {
		hits := pick(r, limits...)
		c := &window.Check{
			Limit:     window.Limit{Hits: hits},
			Cost:      pick(r, 0, 1, 1, 1, 1, 2, 3, hits, hits+1),
			Mode:      pick(r, window.Enforce, window.Enforce, window.Enforce, window.Enforce, window.Any, window.Observe, window.Always, window.Refund),
			Precision: pick(r, 0, 0, 0, win/10, win, win/3, 1500*time.Nanosecond),
		}
		if c.Mode == window.Always && r.IntN(4) == 0 {
			c.Cost = window.Unlimited - r.Uint64N(6) // debt that would not fit, and sums that wrap
		}
		switch r.IntN(10) {
		case 0, 1:
		case 2, 3, 4, 5:
			clock += r.Int64N(4) * grid
		case 6:
			clock = max(clock-r.Int64N(15)*grid, 0)
		case 7:
			clock += pick(r, w, 2*w, w-1, w/2, 10*w)
		default:
			clock = max(clock, p.edge(r))
		}
		if clock > window.MaxClock || !p.step(clock, c) {
			break
		}
	}
	return p
}

// rings makes a long history of a large log: times on a coarse grid so that
// edges are met exactly, times that pass a multiple of 2^40 units, sums that
// wrap, bursts, partial and full expiry, refunds, debt, limits and precisions
// that change.
func rings(r *rand.Rand, start func(time.Duration) *pair) *pair {
	win := pick(r, 10*time.Second, time.Hour, coarseAbove, 30*24*time.Hour, window.MaxWindow)
	p := start(win)
	w := win.Microseconds()
	grid := w / pick[int64](r, 60, 400, 1000, 2000)
	limit := pick[uint64](r, 60, 200, 1000, 3000)
	heavy := pick[uint64](r, 1, 1, 2, 5)
	precision := pick(r, 0, 0, win/50, win/1000)

	// The clock begins a little before the five bytes of a slot's time wrap,
	// and the sums a little before their four bytes do.
	wrap := p.naive.unit << 40
	clock := pick(r, 0, wrap-w/2, 3*wrap-w/3, 1_700_000_000_000_000)
	if r.IntN(2) == 0 {
		p.step(clock, &window.Check{Limit: window.Limit{Hits: window.Unlimited}, Cost: window.Unlimited - r.Uint64N(4*limit)})
		clock += w + p.naive.unit
	}
	for range 1000 {
		if r.IntN(60) == 0 {
			limit = min(max(pick(r, limit/2+1, limit*2, limit*2, limit+1, limit/10+1), 20), 3000)
			precision = pick(r, 0, 0, win/50, win/1000, win)
		}
		c := &window.Check{
			Limit:     window.Limit{Hits: limit},
			Cost:      1 + r.Uint64N(heavy),
			Mode:      window.Enforce,
			Precision: precision,
		}
		switch r.IntN(60) {
		case 0:
			c.Mode, c.Cost = window.Refund, pick(r, 1, 1, heavy, heavy, limit/10+1, uint64(r.IntN(30)), p.naive.most(r))
		case 1:
			c.Mode, c.Cost = window.Always, pick(r, 1, heavy, limit, uint64(r.IntN(9)))
		case 2:
			c.Cost = pick(r, 0, limit, limit/2, limit+1, r.Uint64N(limit+1))
		}
		switch r.IntN(300) {
		case 0:
			clock += w / 2
		case 1:
			if r.IntN(3) == 0 {
				clock += w + pick(r, 0, w, 20*w)
			}
		case 2, 3, 4:
			clock = max(clock-r.Int64N(80)*grid, 0)
		case 5, 6, 7, 8:
			clock = max(clock, p.edge(r))
		case 9:
			// Most of what there is expires, but for the newest few entries.
			if all := p.naive.counts(clock); len(all) > 10 {
				clock = max(clock, all[len(all)-1-r.IntN(len(all)/3)].at+w-r.Int64N(2))
			}
		case 10, 11, 12, 13, 14, 15:
			if all := p.naive.counts(clock); len(all) > 0 {
				clock = max(clock, all[r.IntN(min(len(all), 20))].at+w-r.Int64N(2))
			}
		default:
			clock += pick(r, 0, grid, grid, grid, grid, grid/8, 1)
		}
		if clock > window.MaxClock || !p.step(clock, c) {
			break
		}
		if r.IntN(20) == 0 {
			p.log = slices.Clone(p.log) // nothing is kept outside the bytes
		}
	}
	return p
}

// ahead makes the histories of h with charges that are recorded ahead: some of
// them, by one time or by many.
func ahead(h history) history {
	return func(r *rand.Rand, start func(time.Duration) *pair) *pair {
		return h(r, func(win time.Duration) *pair {
			p := start(win)
			often := pick(r, 1, 2, 2, 10)
			longest := min(win, window.MaxAhead/2)
			length := pick(r, us, win/1000, win/10, longest, window.MaxAhead).Truncate(us)
			p.ahead = func(*window.Check) time.Duration {
				if r.IntN(often) > 0 {
					return 0
				}
				if r.IntN(4) == 0 {
					return time.Duration(r.Int64N(int64(longest))).Truncate(us)
				}
				return min(length, window.MaxAhead)
			}
			return p
		})
	}
}
