package windowtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
)

// runWindows proves the edges of windows of all lengths, exact or in
// milliseconds.
func runWindows(t *testing.T, h Harness, shortWindows bool) {
	windows := []time.Duration{
		Win, Win + 7*Micro, time.Hour, Day, sixDays - Micro, sixDays,
		sixDays + Micro, sixDays + Millisecond, 31 * Day, 365 * Day, window.MaxWindow - Micro, window.MaxWindow,
	}
	if shortWindows {
		windows = append(windows, window.MinWindow, window.MinWindow+Micro, Second)
	}
	origin := h.Aligned(Millisecond, 0)
	for _, w := range windows {
		hit := func(hits, cost uint64) []window.Check { return One(AskIn(w, "k", hits, cost)) }
		steps := []Step{
			{3 * Micro, hit(2, 1), Answers(Allowed(1, w))},
			{4 * Micro, hit(2, 1), Answers(AllowedLast(w-Micro, w))},
			{w + 2*Micro, hit(2, 1), Answers(Denied(0, Micro, Micro, 2*Micro))},
			{w + 3*Micro, hit(2, 2), Answers(Denied(1, Micro, Micro, Micro))},
			{w + 3*Micro, hit(2, 1), Answers(AllowedLast(Micro, w))},
			{w + 4*Micro, hit(3, 2), Answers(AllowedLast(w-Micro, w))},
			{3 * w, hit(3, 3), Answers(AllowedLast(w, w))},
		}
		if w > sixDays {
			whole := (w + Millisecond - 1).Truncate(Millisecond) - w // what W misses to whole milliseconds
			steps = []Step{
				{0, hit(4, 1), Answers(Allowed(3, w))}, // 0 ms
				{1 * Micro, hit(4, 1), Answers(AllowedOf(2, w-Micro, w+Millisecond-Micro))},
				{999 * Micro, hit(4, 1), Answers(AllowedOf(1, w-999*Micro, w+Micro))},
				{1 * Millisecond, hit(4, 1), Answers(AllowedLast(w-Millisecond, w))}, // all three at 1 ms
				{w - Micro, hit(4, 1), Answers(Denied(0, Micro, Micro, Millisecond+Micro))},
				{w, hit(4, 0), Answers(Allowed(1, Millisecond))},
				{w + Millisecond - Micro, hit(4, 2), Answers(Denied(1, Micro, Micro, Micro))},
				{w + Millisecond, hit(4, 4), Answers(AllowedLast(w+whole, w+whole))},
				{2*w + Millisecond + whole - Micro, hit(4, 1), Answers(Denied(0, Micro, Micro, Micro))},
				{2*w + Millisecond + whole, hit(4, 0), Answers(Allowed(4, 0))},
			}
		}
		for i, s := range steps {
			s.Checks[0].Key = fmt.Sprint("window ", w)
			h.SetNow(origin + s.At)
			if diff := cmp.Diff(s.Want, Take(t, h.Store, s.Checks)); diff != "" {
				t.Fatalf("window %v, step %d at %v: (-want +got)\n%s", w, i, s.At, diff)
			}
		}
	}

	// Of windows too short to rely on their history: one call, and one after it.
	for n, w := range []time.Duration{window.MinWindow, window.MinWindow + Micro, Second} {
		key := fmt.Sprint("short", n)
		runTable(t, h, 0, []Step{
			{0, Group(AskIn(w, key, 5, 1), Always(AskIn(w, key, 5, 3))), Answers(Allowed(1, w), Allowed(1, w))},
			{w, Group(AskIn(w, key, 5, 3), Always(AskIn(w, key, 5, 3))), Answers(Denied(2, w, w, w), Allowed(2, w))},
		})
	}
}

// A follower makes calls that the store and an oracle must answer alike.
type follower struct {
	h      *Harness
	Oracle *oracle.Oracle
}

// Follow returns a follower whose oracle has the clock of a harness.
func Follow(h *Harness) *follower { return &follower{h, oracle.New(h.Epoch)} }

// Take makes a call and returns its answer.
func (f *follower) Take(t *testing.T, at time.Duration, checks ...window.Check) []window.Decision {
	t.Helper()
	f.h.SetNow(at)
	got := Take(t, f.h.Store, checks)
	if diff := cmp.Diff(f.Oracle.Take(at, checks), got); diff != "" {
		t.Fatalf("at %v: Take(%+v): (-want +got)\n%s", at, checks, diff)
	}
	return got
}

// runWalks lets logs live until everything about them has gone round: times of
// five bytes, which they do after 12.7 days in microseconds and after 34.8 years
// in milliseconds, and sums of four bytes. Whatever the store counts time from,
// some log is in use when that happens.
func runWalks(t *testing.T, h Harness) {
	for _, w := range []time.Duration{Day, sixDays, 400 * Day} {
		round := (1 << 40) * Micro
		if w > sixDays {
			round = (1 << 40) * Millisecond
		}
		f := Follow(&h)
		few, many, heavy := AskIn(w, fmt.Sprint("few", w), 3, 1), AskIn(w, fmt.Sprint("many", w), 40, 1), AskIn(w, fmt.Sprint("heavy", w), Most, 1<<30+1)
		step := (w / 9).Truncate(Micro)
		for at := time.Duration(0); at < round+2*w; at += step {
			f.Take(t, at, few)
			f.Take(t, at, heavy)
			for i := range time.Duration(6) {
				f.Take(t, at+i*(step/7).Truncate(Micro), many)
			}
		}
	}

	// Idle until the times have almost wrapped, or have just wrapped. Also for half as
	// long, after which a time could be read as one in the future.
	for _, w := range []time.Duration{Win, sixDays, sixDays + Millisecond} {
		unit := Micro
		if w > sixDays {
			unit = Millisecond
		}
		for _, idle := range []time.Duration{1 << 39, 1<<40 - 1, 1 << 40, 1<<40 + 1, 1<<40 + 1<<39} {
			for _, n := range []int{1, 20} { // a small log, and one that is not
				f := Follow(&h)
				c := AskIn(w, fmt.Sprint("idle", w, idle, n), 20, 1)
				at := time.Duration(0)
				for i := range n {
					at = time.Duration(i) * unit
					f.Take(t, at, c)
				}
				for _, late := range []time.Duration{-unit, 0, unit, w - unit, w} {
					c.Cost = 0
					f.Take(t, max(at+idle*unit+late, 0), c)
				}
				c.Cost = 20
				f.Take(t, at+idle*unit, c)
				f.Take(t, at+idle*unit+w-unit, c)
			}
		}
	}
}

// runLarge takes one log through everything that changes its size. It grows to many
// entries, half of them expire, then all. It shrinks by refunds and by expiry, and grows
// again.
func runLarge(t *testing.T, h Harness) {
	const hits = 600
	f, now := Follow(&h), time.Duration(0)
	c := AskIn(time.Hour, "large", hits, 1)
	charge := func(n int, every time.Duration) {
		t.Helper()
		for range n {
			now += every
			if !f.Take(t, now, c)[0].Allowed {
				t.Fatalf("at %v: no room for another hit", now)
			}
		}
	}
	// probe asks what waits for which entry, under several limits. A limit of zero
	// next to it sees that nothing is charged.
	probe := func() {
		t.Helper()
		for _, limit := range []uint64{hits / 20, hits / 4, c.Limit.Hits} {
			for i := range uint64(16) {
				waits := c
				waits.Limit.Hits, waits.Cost = limit, limit-i*limit/16
				f.Take(t, now, Ask("no", 0, 1), waits)
			}
		}
	}
	charge(hits, Millisecond) // full
	probe()
	f.Take(t, now, c)
	now += time.Hour - hits/2*Millisecond // half have expired, and were not dropped
	probe()
	f.Take(t, now, GiveBack(AskIn(time.Hour, "large", hits, 0)))
	charge(1, 0)
	probe()
	charge(hits/2, 100*Micro) // every tenth charge drops an entry
	probe()
	f.Take(t, now, GiveBack(AskIn(time.Hour, "large", hits, 2*hits/5)))
	charge(200, Millisecond)
	probe()
	now += time.Hour - 150*Millisecond // of those 200, some expire, and a refund drops some more
	charge(1, 0)
	f.Take(t, now, AskIn(time.Hour, "large", hits, 5))
	now += 10 * Millisecond
	f.Take(t, now, GiveBack(AskIn(time.Hour, "large", hits, 3)))
	probe()
	charge(hits/3, Millisecond)
	c.Limit.Hits = 3 * hits // where it has gone round, it grows
	charge(hits, Millisecond)
	probe()
	c.Limit.Hits = hits
	now += time.Hour - Micro // but for one
	probe()
	charge(1, 0)
	charge(hits/2, Micro)
	f.Take(t, now, GiveBack(AskIn(time.Hour, "large", hits, hits/2-5))) // small again
	probe()
	charge(hits/2, Second)
	f.Take(t, now, GiveBack(AskIn(time.Hour, "large", hits, hits/3)))
	probe()
	now += 2 * time.Hour // all
	probe()
	charge(30, Second)
	probe()
	now += time.Hour - 20*Second
	probe()
	charge(5, Micro)
	f.Take(t, now, GiveBack(AskIn(time.Hour, "large", hits, hits)))
	charge(14, 0)
	charge(14, Micro)
	probe()
}
