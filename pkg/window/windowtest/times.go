package windowtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

// runWindows proves the edges of windows of all lengths, exact or in
// milliseconds.
func runWindows(t *testing.T, h Harness, shortWindows bool) {
	windows := []time.Duration{
		win, win + 7*micro, time.Hour, day, sixDays - micro, sixDays,
		sixDays + micro, sixDays + milli, 31 * day, 365 * day, window.MaxWindow - micro, window.MaxWindow,
	}
	if shortWindows {
		windows = append(windows, window.MinWindow, window.MinWindow+micro, second)
	}
	origin := h.aligned(milli, 0)
	for _, w := range windows {
		hit := func(hits, cost uint64) []window.Check { return one(askIn(w, "k", hits, cost)) }
		steps := []step{
			{3 * micro, hit(2, 1), answers(allowed(1, w))},
			{4 * micro, hit(2, 1), answers(allowedLast(w-micro, w))},
			{w + 2*micro, hit(2, 1), answers(denied(0, micro, micro, 2*micro))},
			{w + 3*micro, hit(2, 2), answers(denied(1, micro, micro, micro))},
			{w + 3*micro, hit(2, 1), answers(allowedLast(micro, w))},
			{w + 4*micro, hit(3, 2), answers(allowedLast(w-micro, w))},
			{3 * w, hit(3, 3), answers(allowedLast(w, w))},
		}
		if w > sixDays {
			whole := (w + milli - 1).Truncate(milli) - w // what W misses to whole milliseconds
			steps = []step{
				{0, hit(4, 1), answers(allowed(3, w))}, // 0 ms
				{1 * micro, hit(4, 1), answers(allowedOf(2, w-micro, w+milli-micro))},
				{999 * micro, hit(4, 1), answers(allowedOf(1, w-999*micro, w+micro))},
				{1 * milli, hit(4, 1), answers(allowedLast(w-milli, w))}, // all three at 1 ms
				{w - micro, hit(4, 1), answers(denied(0, micro, micro, milli+micro))},
				{w, hit(4, 0), answers(allowed(1, milli))},
				{w + milli - micro, hit(4, 2), answers(denied(1, micro, micro, micro))},
				{w + milli, hit(4, 4), answers(allowedLast(w+whole, w+whole))},
				{2*w + milli + whole - micro, hit(4, 1), answers(denied(0, micro, micro, micro))},
				{2*w + milli + whole, hit(4, 0), answers(allowed(4, 0))},
			}
		}
		for i, s := range steps {
			s.checks[0].Key = fmt.Sprint("window ", w)
			h.SetNow(origin + s.at)
			if diff := cmp.Diff(s.want, take(t, h.Store, s.checks)); diff != "" {
				t.Fatalf("window %v, step %d at %v: (-want +got)\n%s", w, i, s.at, diff)
			}
		}
	}

	// Of windows too short to rely on their history: one call, and one after it.
	for n, w := range []time.Duration{window.MinWindow, window.MinWindow + micro, second} {
		key := fmt.Sprint("short", n)
		runTable(t, h, 0, []step{
			{0, group(askIn(w, key, 5, 1), always(askIn(w, key, 5, 3))), answers(allowed(1, w), allowed(1, w))},
			{w, group(askIn(w, key, 5, 3), always(askIn(w, key, 5, 3))), answers(denied(2, w, w, w), allowed(2, w))},
		})
	}
}

// A follower makes calls that the store and an oracle must answer alike.
type follower struct {
	h      *Harness
	oracle *oracle
}

func follow(h *Harness) *follower { return &follower{h, newOracle(h.Epoch)} }

// take makes a call and returns its answer.
func (f *follower) take(t *testing.T, at time.Duration, checks ...window.Check) []window.Decision {
	t.Helper()
	f.h.SetNow(at)
	got := take(t, f.h.Store, checks)
	if diff := cmp.Diff(f.oracle.take(at, checks), got); diff != "" {
		t.Fatalf("at %v: Take(%+v): (-want +got)\n%s", at, checks, diff)
	}
	return got
}

// runWalks lets logs live until everything about them has gone round: times of
// five bytes, which they do after 12.7 days in microseconds and after 34.8 years
// in milliseconds, and sums of four bytes. Whatever the store counts time from,
// some log is in use when that happens.
func runWalks(t *testing.T, h Harness) {
	for _, w := range []time.Duration{day, sixDays, 400 * day} {
		round := (1 << 40) * micro
		if w > sixDays {
			round = (1 << 40) * milli
		}
		f := follow(&h)
		few, many, heavy := askIn(w, fmt.Sprint("few", w), 3, 1), askIn(w, fmt.Sprint("many", w), 40, 1), askIn(w, fmt.Sprint("heavy", w), most, 1<<30+1)
		step := (w / 9).Truncate(micro)
		for at := time.Duration(0); at < round+2*w; at += step {
			f.take(t, at, few)
			f.take(t, at, heavy)
			for i := range time.Duration(6) {
				f.take(t, at+i*(step/7).Truncate(micro), many)
			}
		}
	}

	// Idle until the times have almost wrapped, or have just wrapped. Also for half as
	// long, after which a time could be read as one in the future.
	for _, w := range []time.Duration{win, sixDays, sixDays + milli} {
		unit := micro
		if w > sixDays {
			unit = milli
		}
		for _, idle := range []time.Duration{1 << 39, 1<<40 - 1, 1 << 40, 1<<40 + 1, 1<<40 + 1<<39} {
			for _, n := range []int{1, 20} { // a small log, and one that is not
				f := follow(&h)
				c := askIn(w, fmt.Sprint("idle", w, idle, n), 20, 1)
				at := time.Duration(0)
				for i := range n {
					at = time.Duration(i) * unit
					f.take(t, at, c)
				}
				for _, late := range []time.Duration{-unit, 0, unit, w - unit, w} {
					c.Cost = 0
					f.take(t, max(at+idle*unit+late, 0), c)
				}
				c.Cost = 20
				f.take(t, at+idle*unit, c)
				f.take(t, at+idle*unit+w-unit, c)
			}
		}
	}
}

// runLarge takes one log through everything that changes its size. It grows to many
// entries, half of them expire, then all. It shrinks by refunds and by expiry, and grows
// again.
func runLarge(t *testing.T, h Harness) {
	const hits = 600
	f := follow(&h)
	c := askIn(time.Hour, "large", hits, 1)
	now := time.Duration(0)
	charge := func(n int, every time.Duration) {
		t.Helper()
		for range n {
			now += every
			if !f.take(t, now, c)[0].Allowed {
				t.Fatalf("at %v: no room for another hit", now)
			}
		}
	}
	// probe asks what waits for which entry, under several limits. A limit of zero
	// beside it sees that nothing is charged.
	probe := func() {
		t.Helper()
		for _, limit := range []uint64{hits / 20, hits / 4, c.Limit.Hits} {
			for i := range uint64(16) {
				waits := c
				waits.Limit.Hits, waits.Cost = limit, limit-i*limit/16
				f.take(t, now, ask("no", 0, 1), waits)
			}
		}
	}

	charge(hits, milli) // full
	probe()
	f.take(t, now, c)
	now += time.Hour - hits/2*milli // half have expired, and were not dropped
	probe()
	f.take(t, now, giveBack(askIn(time.Hour, "large", hits, 0)))
	charge(1, 0)
	probe()
	charge(hits/2, 100*micro) // every tenth charge drops an entry
	probe()
	f.take(t, now, giveBack(askIn(time.Hour, "large", hits, 2*hits/5)))
	charge(200, milli)
	probe()
	now += time.Hour - 150*milli // of those 200, some expire, and a refund drops some more
	charge(1, 0)
	f.take(t, now, askIn(time.Hour, "large", hits, 5))
	now += 10 * milli
	f.take(t, now, giveBack(askIn(time.Hour, "large", hits, 3)))
	probe()
	charge(hits/3, milli)
	c.Limit.Hits = 3 * hits // where it has gone round, it grows
	charge(hits, milli)
	probe()
	c.Limit.Hits = hits
	now += time.Hour - micro // but for one
	probe()
	charge(1, 0)
	charge(hits/2, micro)
	f.take(t, now, giveBack(askIn(time.Hour, "large", hits, hits/2-5))) // small again
	probe()
	charge(hits/2, second)
	f.take(t, now, giveBack(askIn(time.Hour, "large", hits, hits/3)))
	probe()
	now += 2 * time.Hour // all
	probe()
	charge(30, second)
	probe()
	now += time.Hour - 20*second
	probe()
	charge(5, micro)
	f.take(t, now, giveBack(askIn(time.Hour, "large", hits, hits)))
	charge(14, 0)
	charge(14, micro)
	probe()
}
