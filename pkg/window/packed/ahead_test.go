package packed

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// TestAhead has the edges of charges that are recorded ahead. The window is 100 us.
func TestAhead(t *testing.T) {
	type aheadStep struct {
		at    int64
		ahead time.Duration
		c     window.Check
		want  window.Decision
	}
	for _, tt := range []struct {
		name  string
		steps []aheadStep
	}{
		{"it counts from now until a window after it could last be spent", []aheadStep{
			{0, 30 * us, check(5, 4), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 130 * us, ResetAfter: 130 * us}},
			{0, 0, check(5, 2), window.Decision{Remaining: 1, RetryAfter: 130 * us, UnitAfter: 130 * us, ResetAfter: 130 * us}},
			{129, 0, check(5, 2), window.Decision{Remaining: 1, RetryAfter: us, UnitAfter: us, ResetAfter: us}},
			{130, 0, check(5, 2), window.Decision{Allowed: true, Remaining: 3, UnitAfter: 100 * us, ResetAfter: 100 * us}},
		}},
		{"what follows is not recorded before it", []aheadStep{
			{0, 0, check(5, 1), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{10, 30 * us, check(5, 1), window.Decision{Allowed: true, Remaining: 3, UnitAfter: 90 * us, ResetAfter: 130 * us}},
			{20, 0, check(5, 1), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 80 * us, ResetAfter: 120 * us}},
			{20, 5 * us, check(5, 1), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 80 * us, ResetAfter: 120 * us}},
			{20, 0, check(5, 3), window.Decision{Remaining: 1, RetryAfter: 120 * us, UnitAfter: 80 * us, ResetAfter: 120 * us}}, // 10 and all that came to it
			{20, 21 * us, check(5, 1), window.Decision{Allowed: true, UnitAfter: 80 * us, ResetAfter: 121 * us}},
			{139, 0, check(5, 2), window.Decision{Remaining: 1, RetryAfter: us, UnitAfter: us, ResetAfter: 2 * us}},
			{140, 0, check(5, 0), window.Decision{Allowed: true, Remaining: 4, UnitAfter: us, ResetAfter: us}},
		}},
		{"rounded up after that", []aheadStep{
			{1, 9 * us, precise(10*us, 5, 1), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 109 * us, ResetAfter: 109 * us}},
			{1, 10 * us, precise(10*us, 5, 1), window.Decision{Allowed: true, Remaining: 3, UnitAfter: 109 * us, ResetAfter: 119 * us}},
		}},
		{"parts of a microsecond count as a whole one, below zero as none", []aheadStep{
			{0, 1, check(5, 1), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 101 * us, ResetAfter: 101 * us}},
			{0, -time.Hour, check(5, 1), window.Decision{Allowed: true, Remaining: 3, UnitAfter: 101 * us, ResetAfter: 101 * us}},
		}},
		{"below zero on an empty log", []aheadStep{
			{50, -20 * us, check(5, 1), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 100 * us, ResetAfter: 100 * us}},
		}},
		{"no more than MaxAhead", []aheadStep{
			{0, window.MaxAhead + time.Hour, check(5, 1), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 100*us + window.MaxAhead, ResetAfter: 100*us + window.MaxAhead}},
		}},
		{"a clock that is set back is held before it is ahead", []aheadStep{
			{500, 30 * us, check(5, 1), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 130 * us, ResetAfter: 130 * us}},
			{490, 40 * us, check(5, 1), window.Decision{Allowed: true, Remaining: 3, UnitAfter: 140 * us, ResetAfter: 150 * us}}, // 540
			{490, 10 * us, check(5, 3), window.Decision{Allowed: true, UnitAfter: 140 * us, ResetAfter: 150 * us}},
		}},
		{"what is ahead does not hold the clock", []aheadStep{
			{0, 0, check(5, 3), window.Decision{Allowed: true, Remaining: 2, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{90, 50 * us, check(5, 2), window.Decision{Allowed: true, UnitAfter: 10 * us, ResetAfter: 150 * us}},
			{99, 0, check(5, 3), window.Decision{RetryAfter: us, UnitAfter: us, ResetAfter: 141 * us}},
			{100, 0, check(5, 3), window.Decision{Allowed: true, UnitAfter: 140 * us, ResetAfter: 140 * us}},
		}},
		{"a refund takes it like any other", []aheadStep{
			{0, 0, check(5, 2), window.Decision{Allowed: true, Remaining: 3, UnitAfter: 100 * us, ResetAfter: 100 * us}},
			{0, 30 * us, check(5, 2), window.Decision{Allowed: true, Remaining: 1, UnitAfter: 100 * us, ResetAfter: 130 * us}},
			{0, 30 * us, inMode(window.Refund, check(5, 3)), window.Decision{Allowed: true, Remaining: 4, UnitAfter: 100 * us, ResetAfter: 100 * us}},
		}},
	} {
		var log []byte
		for i, s := range tt.steps {
			var got window.Decision
			log = takeAhead(log, s.at, &s.c, s.ahead, &got)
			if diff := gocmp.Diff(s.want, got); diff != "" {
				t.Errorf("%s: step %d at %d: (-want +got)\n%s", tt.name, i, s.at, diff)
			}
		}
	}
}

// TestAheadNeverTooMany reserves at random and spends what was reserved at random
// times until its end: no window ever holds more than the limit. It looks at what
// was spent only, not at the log.
func TestAheadNeverTooMany(t *testing.T) {
	seed := random.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	full := 0
	for range 300 {
		var (
			win   = pick(r, 100*us, 10*time.Second, 7*24*time.Hour)
			w     = win.Microseconds()
			limit = 1 + r.Uint64N(60)
			ahead = min(pick(r, win/100, win/10, win/2).Truncate(us), window.MaxAhead)
			p     = pick(r, 0, 0, win/20)
			pace  = w / int64(limit)
			clock = int64(1_000_000)
			log   []byte
			spent []int64 // a unit each
			begun []aheadCharge
		)
		for range 300 {
			clock += r.Int64N(pace) + 1
			c := &window.Check{Limit: window.Limit{Hits: limit, Window: win}, Cost: 1 + r.Uint64N(max(limit/4, 1)), Precision: p}
			until := ahead
			if r.IntN(3) == 0 {
				until = 0
			}
			var d window.Decision
			if log = takeAhead(log, clock, c, until, &d); !d.Allowed {
				full++
				continue
			}
			// The caller may spend it at any time, so it counts at once.
			begun = slices.DeleteFunc(begun, func(o aheadCharge) bool { return o.until <= clock })
			begun = append(begun, aheadCharge{clock + until.Microseconds() + w, c.Cost})
			used := uint64(0)
			for _, o := range begun {
				used += o.cost
			}
			if used > limit {
				t.Fatalf("window %v, at %d: %d of %d are reserved or still count", win, clock, used, limit)
			}
			for range c.Cost {
				spent = append(spent, clock+r.Int64N(until.Microseconds()+1))
			}
		}
		slices.SortFunc(spent, cmp.Compare)
		for i := range spent {
			if j := i + int(limit); j < len(spent) && spent[j]-spent[i] < w {
				t.Fatalf("window %v: %d units between %d and %d, limit %d", win, limit+1, spent[i], spent[j], limit)
			}
		}
	}
	if full < 1000 {
		t.Errorf("%d denials: the test asks for too little", full)
	}
}

// aheadCharge is a cost that counts until some time.
type aheadCharge struct {
	until int64
	cost  uint64
}
