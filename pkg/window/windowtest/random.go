package windowtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
	"github.com/slidegate/slidegate/test/random"
)

// PerHarness is the number of random calls after which another store is
// opened, so that long runs do not fill the memory.
const PerHarness = 100_000

// A Generator makes random histories.
type Generator struct {
	// steps is the number of calls of one history. Each has its own keys.
	Steps int
	// repeats says that checks have [window.Check.Once].
	Repeats bool
	// start returns the source of one history's calls and the time at which it
	// begins.
	Start func(r *rand.Rand, h *Harness) (Caller, time.Duration)
}

// A Caller chooses the next call of a history: its time and its checks.
type Caller interface {
	Next(r *rand.Rand, past *History) (time.Duration, []window.Check)
}

// forward returns g with a clock that is never set back.
func forward(g Generator) Generator {
	start := g.Start
	g.Start = func(r *rand.Rand, h *Harness) (Caller, time.Duration) {
		c, at := start(r, h)
		return forwardCaller{c}, at
	}
	return g
}

type forwardCaller struct{ Caller }

func (f forwardCaller) Next(r *rand.Rand, past *History) (time.Duration, []window.Check) {
	at, checks := f.Caller.Next(r, past)
	return max(at, past.Now), checks
}

// A History is what has happened on some keys that no other history has.
type History struct {
	Oracle *oracle.Oracle
	Prefix string // of every key
	Now    time.Duration
	Last   []window.Decision // of the call before
	calls  []call            // for the message of a failure
}

// A call is what was asked and what the oracle answered.
type call struct {
	at     time.Duration
	checks []window.Check
	want   []window.Decision
}

// A tally counts what has happened in histories.
type tally struct {
	calls, allowed int
	refused        int                         // calls outside their period
	roomy, full    [window.Refund + 1]int      // checks of each mode with and without room
	room           [window.InFlight + 1][2]int // checks of each policy without and with room
	repeats        int                         // checks that repeat a charge
}

// RunRandom compares every decision of random histories with the oracle's.
func RunRandom(t *testing.T, open func(*testing.T) Harness, g Generator, steps int) {
	seed := random.Seed(t)
	var met tally
	for met.calls < steps && !t.Failed() {
		// Each history has its own seed, so that one can be repeated alone.
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			h := open(t)
			for end := min(met.calls+PerHarness, steps); met.calls < end; seed++ {
				if !runHistory(t, &h, g, seed, &met) {
					t.Fatalf("repeat this history alone with %s=%d", random.SeedVariable, seed)
				}
			}
		})
	}
	if t.Failed() {
		return
	}
	t.Logf("%d calls, %d groups allowed, %d outside their period; checks by mode with room %v, without %v; by policy %v; %d repeats",
		met.calls, met.allowed, met.refused, met.roomy, met.full, met.room, met.repeats)
	const enough = 100 // histories: those of a short run may be of one kind by chance
	if met.calls >= enough*g.Steps {
		met.judge(t)
		if g.Repeats != (met.repeats > met.calls/20) {
			t.Errorf("%d of %d calls have a repeat: the generator is lopsided", met.repeats, met.calls)
		}
	}
}

// judge fails the test if the generator proves little: if nearly all groups are denied or
// allowed, or if a mode is missing. A few histories are not enough for it.
func (m *tally) judge(t *testing.T) {
	if fraction := float64(m.allowed) / float64(m.calls); fraction < 0.15 || fraction > 0.85 {
		t.Errorf("of %d groups %d were allowed: the generator is lopsided", m.calls, m.allowed)
	}
	for mode := window.Enforce; mode <= window.Refund; mode++ {
		if m.roomy[mode] == 0 || m.full[mode] == 0 && mode != window.Refund {
			t.Errorf("mode %v: %d checks with room and %d without: the generator misses something", mode, m.roomy[mode], m.full[mode])
		}
	}
}

// runHistory runs one history and reports whether the store and the oracle agree
// on it.
func runHistory(t *testing.T, h *Harness, g Generator, seed uint64, met *tally) bool {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	past := &History{Oracle: oracle.New(h.Epoch), Prefix: fmt.Sprintf("{%d}:", seed)}
	var c Caller
	c, past.Now = g.Start(r, h)
	for range g.Steps {
		if !past.step(t, h, r, c) {
			return false
		}
	}
	for _, c := range past.calls {
		met.calls++
		if c.want == nil {
			met.refused++
			continue
		}
		if window.GroupAllowed(c.checks, c.want) {
			met.allowed++
		}
		for i, ch := range c.checks {
			if c.want[i].Repeated {
				met.repeats++
			}
			if c.want[i].Allowed {
				met.roomy[ch.Mode]++
				met.room[ch.Limit.Policy][1]++
			} else {
				met.full[ch.Mode]++
				met.room[ch.Limit.Policy][0]++
			}
		}
	}
	return true
}

// step makes one call and reports whether the store and the oracle agree.
func (p *History) step(t *testing.T, h *Harness, r *rand.Rand, c Caller) bool {
	t.Helper()
	at, checks := c.Next(r, p)
	p.Now = min(max(at, 0), LastClock-h.Epoch).Truncate(Micro)
	h.SetNow(p.Now)
	got, err := Attempt(t, h.Store, checks)
	var wantErr error
	p.Last, wantErr = p.Oracle.Decide(p.Now, checks)
	p.calls = append(p.calls, call{p.Now, checks, p.Last})
	if !errors.Is(err, wantErr) {
		t.Errorf("%v\nthe last call: got error %v, want one that wraps %v", p, err, wantErr)
		return false
	}
	if err == nil && !slices.Equal(p.Last, got) {
		t.Errorf("%v\nthe last decision differs: (-want +got)\n%s", p, cmp.Diff(p.Last, got))
		return false
	}
	return true
}

// String returns the end of a history, one call a line, for a failure's message.
func (p *History) String() string {
	const most = 40
	var b strings.Builder
	for _, c := range p.calls[max(0, len(p.calls)-most):] {
		fmt.Fprintf(&b, "%v:", c.at)
		for i, ch := range c.checks {
			verb := "no room"
			switch {
			case c.want == nil:
				verb = "outside its period"
			case c.want[i].Allowed:
				verb = "room"
			}
			fmt.Fprintf(&b, "  %v %q/%v cost %d of %d", ch.Mode, ch.Key, ch.Limit.Window, ch.Cost, ch.Limit.Hits)
			if ch.Limit.Policy != window.Sliding {
				fmt.Fprintf(&b, " %v", ch.Limit.Policy)
			}
			if ch.Limit.Rate != 0 {
				fmt.Fprintf(&b, " rate %d", ch.Limit.Rate)
			}
			if ch.Period != (window.Period{}) {
				fmt.Fprintf(&b, " period %v", ch.Period)
			}
			if ch.Precision != 0 {
				fmt.Fprintf(&b, " precision %v", ch.Precision)
			}
			fmt.Fprintf(&b, ": %s", verb)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// entries returns what is left of a log's entries, expired or not, oldest first.
func (p *History) entries(id window.LogID) []oracle.Spent { return p.Oracle.Ledger(id).Spent }

// expiry returns the time at which an entry of a log expires.
func (p *History) expiry(e oracle.Spent, id window.LogID) time.Duration {
	return e.At + id.Window - p.Oracle.Epoch
}

// live returns the entries that have not expired.
func (p *History) live(id window.LogID) []oracle.Spent {
	entries := p.entries(id)
	for len(entries) > 0 && p.expiry(entries[0], id) <= p.Now {
		entries = entries[1:]
	}
	return entries
}

// much returns a large part of what a log has used, or more.
func (p *History) much(r *rand.Rand, id window.LogID) uint64 {
	used := p.Oracle.Ledger(id).Used(p.Now + p.Oracle.Epoch)
	return Pick(r, used, used+1, used/2, used-used/8, used-used/32)
}

// edge returns the instant at which something changes, or the microsecond before or after
// it. It is an entry's expiry, or the end of a promised wait.
func (p *History) edge(r *rand.Rand, id window.LogID) time.Duration {
	edge := p.Now
	entries := p.entries(id)
	if len(entries) > 0 && r.IntN(2) == 0 {
		edge = p.expiry(entries[r.IntN(len(entries))], id)
	} else if len(p.Last) > 0 {
		d := p.Last[r.IntN(len(p.Last))]
		edge += Pick(r, d.RetryAfter, d.UnitAfter, d.ResetAfter)
	}
	return edge + Pick(r, -Micro, 0, 0, Micro)
}

// Pick returns one of the values, each as likely as the number of times it is
// listed.
func Pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// UpTo returns a time from zero to below d.
func UpTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// begin picks the time at which a history of a window begins. It is any time, or so that
// within a window the clock passes a multiple of 2^40 units of the log. That is where
// times of five bytes wrap.
func begin(r *rand.Rand, h *Harness, w time.Duration) time.Duration {
	wrap := time.Duration(1<<40) * Micro
	if w > sixDays {
		wrap = (1 << 40) * Millisecond
	}
	before := Pick(r, w/2, w/3, Micro)
	return Pick(r, 0, UpTo(r, Year), h.Aligned(wrap, before)-before)
}

// dense makes short histories of few entries, where almost every call is at an edge. They
// have tiny limits on a coarse grid of times, and a few logs that are often named
// together or twice. They use all modes, and limits and precisions that differ from call
// to call.
func dense(shortWindows bool) Generator {
	windows := []time.Duration{
		Win, Win, Win, Win + 7*Micro,
		sixDays - Micro, sixDays, sixDays + Micro, sixDays + Millisecond, window.MaxWindow,
	}
	if shortWindows {
		windows = append(windows, window.MinWindow, window.MinWindow+Micro)
	}
	return Generator{
		Steps: 60,
		Start: func(r *rand.Rand, h *Harness) (Caller, time.Duration) {
			w := Pick(r, windows...)
			other := 2 * w
			if other > window.MaxWindow {
				other = w / 2
			}
			d := &denseCaller{
				win: w, other: other,
				grid:   Pick(r, w/10, w/10, w/10, Micro, Millisecond, Millisecond/3),
				limits: []uint64{0, 1, 2, 3, 3, 4, 5},
			}
			if r.IntN(4) == 0 {
				d.limits = []uint64{7, 12, 13, 14, 15, 25}
			}
			return d, begin(r, h, w)
		},
	}
}

type denseCaller struct {
	win, other time.Duration
	grid       time.Duration
	limits     []uint64
}

func (d *denseCaller) Next(r *rand.Rand, past *History) (time.Duration, []window.Check) {
	checks := make([]window.Check, Pick(r, 1, 1, 1, 1, 2, 2, 3, 6))
	usual := Pick(r, window.Enforce, window.Enforce, window.Any, window.Observe)
	for i := range checks {
		checks[i] = d.check(r, past.Prefix+Pick(r, "a", "a", "b", "c"))
		c := &checks[i]
		c.Mode = Pick(r, usual, usual, usual, window.Enforce, window.Any, window.Observe)
		for _, other := range checks[:i] {
			if other.Log() == c.Log() && other.Mode != window.Always && other.Mode != window.Refund {
				c.Mode = other.Mode // any other is refused
			}
		}
		switch r.IntN(16) {
		case 0:
			c.Mode = window.Always
			if r.IntN(12) == 0 {
				c.Cost = math.MaxUint32 - r.Uint64N(6) // a charge that does not fit twice
			}
		case 1, 2, 3:
			c.Mode = window.Refund
			if r.IntN(4) == 0 {
				c.Cost = past.much(r, c.Log())
			}
		}
	}

	at := past.Now
	switch r.IntN(10) {
	case 0, 1, 2: // the same instant
	case 3, 4, 5:
		at += time.Duration(r.IntN(4)) * d.grid
	case 6:
		at -= time.Duration(r.IntN(15)) * d.grid
	case 7:
		at += Pick(r, d.win, 2*d.win, d.win-Micro, d.win/2, 9*d.win)
	default:
		at = max(at, past.edge(r, checks[0].Log()))
	}
	return at, checks
}

// check returns a check of one of the windows without a mode.
func (d *denseCaller) check(r *rand.Rand, key string) window.Check {
	hits := Pick(r, d.limits...)
	if r.IntN(50) == 0 {
		hits = Pick[uint64](r, window.Unlimited, window.Unlimited-1)
	}
	c := AskIn(Pick(r, d.win, d.win, d.other).Truncate(Micro), key, hits, Pick(r, 0, 1, 1, 1, 2, 3, hits, hits+1))
	if r.IntN(100) == 0 {
		c.Cost = Pick[uint64](r, math.MaxUint64, math.MaxUint64-1, 1<<53, 1<<32)
	}
	w := c.Limit.Window
	c.Precision = Pick(r, 0, 0, 0, 0, w/10, w/3, w, Micro, 1500*time.Nanosecond, 7*Micro, Millisecond+1)
	return c
}

// long makes histories of logs with many entries. They have larger limits, and precisions
// that change now and then. They have weights, bursts at one instant, refunds of one and
// of almost all, and charges over the limit. Times are on a grid of the window, so many entries expire
// together. The clock steps back, and passes where times wrap. Sums begin a little before
// they wrap, too.
var long = Generator{
	Steps: 1000,
	Start: func(r *rand.Rand, h *Harness) (Caller, time.Duration) {
		w := Pick(r, Win, Win, time.Hour, Day, sixDays, sixDays+Millisecond, 31*Day, window.MaxWindow)
		l := &longCaller{
			win:     w,
			other:   4 * w,
			grid:    w / Pick[time.Duration](r, 80, 400, 2000),
			limit:   Pick[uint64](r, 40, 200, 1000),
			heavy:   Pick[uint64](r, 1, 1, 3, 40),
			mode:    Pick(r, window.Enforce, window.Enforce, window.Enforce, window.Any, window.Observe),
			prelude: Pick(r, 0, 2),
		}
		if l.other > window.MaxWindow {
			l.other = w / 4
		}
		return l, begin(r, h, w)
	},
}

type longCaller struct {
	win, other time.Duration
	grid       time.Duration
	limit      uint64
	heavy      uint64 // the largest usual cost
	mode       window.Mode
	precision  time.Duration
	prelude    int // calls that are left of it
}

func (l *longCaller) Next(r *rand.Rand, past *History) (time.Duration, []window.Check) {
	a, b := past.Prefix+"a", past.Prefix+"b"
	if l.prelude > 0 {
		// Almost 2^32 is spent, and expires.
		l.prelude--
		if l.prelude == 1 {
			const hits = window.Unlimited - 1
			return past.Now, One(AskIn(l.win, a, hits, hits-r.Uint64N(4*l.limit)))
		}
		return past.Now + l.win + Millisecond, One(AskIn(l.win, a, l.limit, 1))
	}
	if r.IntN(50) == 0 {
		l.limit = Pick(r, l.limit/2+1, l.limit*2, l.limit*2, l.limit+1, l.limit/10+1)
		l.limit = min(max(l.limit, 8), 3000)
		l.precision = Pick(r, 0, 0, 0, l.win/50, l.win/1000, l.win/7, l.win)
	}
	main := AskIn(l.win, a, l.limit, 1+r.Uint64N(l.heavy))
	main.Mode, main.Precision = l.mode, l.precision
	switch r.IntN(60) {
	case 0:
		main.Mode, main.Cost = window.Refund, Pick(r, 1, 1, l.heavy, l.limit/10+1, r.Uint64N(30), past.much(r, main.Log()))
	case 1:
		main.Mode, main.Cost = window.Always, Pick(r, 1, l.heavy, r.Uint64N(9), l.limit)
	case 2, 3:
		main.Cost = Pick(r, 0, l.limit, l.limit/2, l.limit+1, r.Uint64N(l.limit+1))
	}
	checks := One(main)
	if r.IntN(4) == 0 {
		checks = append(checks, l.company(r, a, b, main)...)
	}
	return l.at(r, past, main.Log()), checks
}

// company returns what is asked together with the main check.
func (l *longCaller) company(r *rand.Rand, a, b string, main window.Check) []window.Check {
	longer, extra := AskIn(l.other, a, 3*l.limit, main.Cost), AskIn(l.win, b, l.limit/2, r.Uint64N(3))
	longer.Mode = Pick(r, l.mode, window.Enforce, window.Observe)
	longer.Precision = Pick(r, 0, l.other/500)
	extra.Mode = Pick(r, l.mode, window.Any, window.Always, window.Refund)
	checks := Group(longer, extra)
	if r.IntN(4) == 0 {
		back := AskIn(l.win, a, l.limit, r.Uint64N(3)) // of the main log, in the same call
		back.Mode = window.Refund
		checks = append(checks, back)
	}
	return checks
}

// at returns the time of the next call.
func (l *longCaller) at(r *rand.Rand, past *History, id window.LogID) time.Duration {
	at := past.Now
	switch r.IntN(200) {
	case 0: // about half of the log expires
		at += l.win / 2
	case 1: // all of it
		at += l.win + Pick(r, 0, l.win, 3*l.win)
	case 2: // all but the newest few entries
		if entries := past.live(id); len(entries) > 3 {
			at = max(at, past.expiry(entries[len(entries)-1-r.IntN(len(entries)/3)], id)-UpTo(r, 2*Micro))
		}
	case 3, 4, 5, 6, 7: // some of the oldest
		if entries := past.live(id); len(entries) > 0 {
			at = max(at, past.expiry(entries[r.IntN(min(len(entries), 20))], id)-UpTo(r, 2*Micro))
		}
	case 8, 9, 10, 11:
		at -= time.Duration(r.IntN(80)) * l.grid
	case 12, 13, 14, 15, 16, 17, 18, 19, 20, 21:
		at = max(at, past.edge(r, id))
	default:
		at += Pick(r, 0, 0, l.grid, l.grid, l.grid/8, Micro)
	}
	return at
}
