package windowtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

// seedVariable names the environment variable that repeats a failed run.
const seedVariable = "WINDOWTEST_SEED"

// A generator makes random histories.
type generator struct {
	// steps is the number of calls of one history. Each has its own keys.
	steps int
	// start returns the source of one history's calls.
	start func(r *rand.Rand) caller
}

// A caller chooses the next call of a history: its time and its checks.
type caller interface {
	next(r *rand.Rand, past *history) (time.Duration, []window.Check)
}

// A history is what has happened on some keys that nobody else uses.
type history struct {
	oracle  *oracle
	prefix  string // of every key
	now     time.Duration
	last    []window.Decision // of the call before
	calls   []call            // for the message of a failure
	charged int               // number of calls that were charged
}

// A call is what was asked and what the oracle answered.
type call struct {
	at     time.Duration
	checks []window.Check
	want   []window.Decision
}

// runRandom compares every decision of random histories with the oracle's.
func runRandom(t *testing.T, h Harness, g generator, steps int) {
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))

	calls, charged := 0, 0
	for n := 0; calls < steps; n++ {
		past := &history{oracle: newOracle(), prefix: fmt.Sprintf("{%d}:", n)}
		c := g.start(r)
		for range g.steps {
			if !past.step(t, h, r, c) {
				t.Fatalf("history %d of seed %d; repeat with %s=%d", n, seed, seedVariable, seed)
			}
		}
		calls += g.steps
		charged += past.charged
	}
	// A generator that only makes denials, or none, would prove little. A few
	// histories may well be so.
	const enough = 20
	if share := float64(charged) / float64(calls); calls >= enough*g.steps && (share < 0.15 || share > 0.85) {
		t.Errorf("of %d calls %d were charged: the generator is lopsided", calls, charged)
	}
}

// step makes one call and reports whether the store and the oracle agree.
func (p *history) step(t *testing.T, h Harness, r *rand.Rand, c caller) bool {
	t.Helper()
	at, checks := c.next(r, p)
	p.now = max(at, 0)
	h.SetNow(p.now)
	got := take(t, h.Store, checks)
	p.last = p.oracle.take(p.now, checks)
	if window.Allowed(p.last) {
		p.charged++
	}
	p.calls = append(p.calls, call{p.now, checks, p.last})
	if !slices.Equal(p.last, got) {
		t.Errorf("%v\nthe last decision differs: (-want +got)\n%s", p, cmp.Diff(p.last, got))
		return false
	}
	return true
}

// String tells the end of a history, one call a line, for a failure's message.
func (p *history) String() string {
	const most = 40
	var b strings.Builder
	for _, c := range p.calls[max(0, len(p.calls)-most):] {
		fmt.Fprintf(&b, "%v:", c.at)
		for i, ch := range c.checks {
			verb := "denied"
			if c.want[i].Allowed {
				verb = "allowed"
			}
			fmt.Fprintf(&b, "  %q/%v cost %d of %d %s", ch.Key, ch.Limit.Window, ch.Cost, ch.Limit.Hits, verb)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// edge returns the instant at which something changes, or the microsecond
// before or after it: an entry's expiry, or the end of a wait that was promised.
func (p *history) edge(r *rand.Rand, id window.LogID) time.Duration {
	edge := p.now
	entries := p.oracle.logs[id]
	if len(entries) > 0 && r.IntN(2) == 0 {
		edge = entries[r.IntN(len(entries))].at + id.Window
	} else if len(p.last) > 0 {
		d := p.last[r.IntN(len(p.last))]
		edge += pick(r, d.RetryAfter, d.UnitAfter, d.ResetAfter)
	}
	return edge + pick(r, -micro, 0, 0, micro)
}

// pick returns one of the values, each as likely as the number of times it is
// listed.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// dense makes short histories of few entries, where almost every call is at an
// edge: tiny limits on a coarse grid of times, a few logs that are often named
// together or twice, and limits that differ from call to call.
var dense = generator{
	steps: 60,
	start: func(*rand.Rand) caller { return denseCaller{} },
}

type denseCaller struct{}

func (denseCaller) next(r *rand.Rand, past *history) (time.Duration, []window.Check) {
	checks := make([]window.Check, pick(r, 1, 1, 1, 2, 2, 3, 6))
	for i := range checks {
		key := past.prefix + pick(r, "a", "a", "b", "c")
		hits := pick[uint64](r, 0, 1, 2, 3, 3, 4, 5)
		cost := pick[uint64](r, 0, 1, 1, 1, 2, 3, hits, hits+1)
		checks[i] = askIn(pick(r, win, win, 2*win), key, hits, cost)
	}
	at := past.now
	switch r.IntN(10) {
	case 0, 1, 2: // the same instant
	case 3, 4, 5:
		at += time.Duration(r.IntN(4)) * second
	case 6:
		at -= time.Duration(r.IntN(15)) * second
	case 7:
		at += pick(r, win, 2*win, win-micro, win/2)
	default:
		at = max(at, past.edge(r, checks[0].Log()))
	}
	return at, checks
}

// long makes histories of logs with many entries: larger limits that change now
// and then, weights, bursts at one instant, times on a grid of the window's
// 80th so that many entries expire together, partial and full expiry, and a
// clock that steps back.
var long = generator{
	steps: 500,
	start: func(r *rand.Rand) caller {
		return &longCaller{limit: pick[uint64](r, 40, 200, 1000), heavy: pick[uint64](r, 1, 3, 40)}
	},
}

type longCaller struct {
	limit uint64
	heavy uint64 // the largest usual cost
}

func (l *longCaller) next(r *rand.Rand, past *history) (time.Duration, []window.Check) {
	const grid = win / 80 // and its eighth too is whole microseconds
	if r.IntN(40) == 0 {
		l.limit = pick(r, l.limit/2+1, l.limit*2, l.limit+1, l.limit/10+1)
		l.limit = min(max(l.limit, 8), 3000)
	}
	a, b := past.prefix+"a", past.prefix+"b"
	cost := 1 + r.Uint64N(l.heavy)
	if r.IntN(20) == 0 {
		cost = pick(r, 0, l.limit, l.limit/2, l.limit+1, r.Uint64N(l.limit+1))
	}
	checks := one(ask(a, l.limit, cost))
	if r.IntN(4) == 0 {
		checks = append(checks, askIn(4*win, a, 3*l.limit, cost), ask(b, l.limit/2, r.Uint64N(3)))
	}

	at := past.now
	switch r.IntN(100) {
	case 0: // about half of the log expires
		at += win / 2
	case 1: // all of it
		at += win + time.Duration(r.IntN(2))*win
	case 2, 3:
		at -= time.Duration(r.IntN(80)) * grid
	case 4, 5, 6, 7, 8, 9:
		at = max(at, past.edge(r, checks[0].Log()))
	default:
		at += pick(r, 0, 0, 0, grid, grid/8, micro)
	}
	return at, checks
}
