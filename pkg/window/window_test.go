package window

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func ask(key string, w time.Duration, hits, cost uint64) Check {
	return Check{Key: key, Limit: Limit{Hits: hits, Window: w}, Cost: cost}
}

func TestLimitValid(t *testing.T) {
	for _, tt := range []struct {
		limit Limit
		want  string // part of the error; empty for none
	}{
		{Limit{Hits: 1, Window: time.Second}, ""},
		{Limit{Hits: 0, Window: time.Second}, ""},
		{Limit{Hits: Unlimited, Window: time.Second}, ""},
		{Limit{Hits: MaxHits, Window: time.Second, Policy: Fixed}, ""},
		{Limit{Hits: MaxHits, Window: time.Second, Policy: TokenBucket, Rate: math.MaxUint32}, ""},
		{Limit{Hits: MaxHits, Window: time.Second, Policy: TokenBucket, Rate: 1}, "to fill"},
		{Limit{Hits: MaxHits, Window: time.Second, Policy: InFlight}, "in flight is above"},
		{Limit{Hits: 1, Window: MinWindow}, ""},
		{Limit{Hits: 1, Window: MaxWindow}, ""},
		{Limit{Hits: 1, Window: MinWindow + time.Microsecond}, ""},
		{Limit{}, "shorter than"},
		{Limit{Hits: 1, Window: MinWindow - time.Microsecond}, "shorter than"},
		{Limit{Hits: 1, Window: -time.Second}, "shorter than"},
		{Limit{Hits: 1, Window: math.MinInt64}, "shorter than"},
		{Limit{Hits: 1, Window: MaxWindow + time.Microsecond}, "longer than"},
		{Limit{Hits: 1, Window: math.MaxInt64}, "longer than"},
		{Limit{Hits: 1, Window: time.Second + 1}, "not a whole number of microseconds"},
		{Limit{Hits: 1, Window: time.Second - 1}, "not a whole number of microseconds"},
		{Limit{Hits: Unlimited + 1, Window: time.Second}, "a sliding limit of 4294967296 is above 4294967294"},
		{Limit{Hits: MaxHits + 1, Window: time.Second, Policy: Fixed}, "above 9007199254740991"},
		{Limit{Hits: math.MaxUint64, Window: time.Second}, "above 9007199254740991"},
	} {
		err := tt.limit.Valid()
		if tt.want == "" {
			if err != nil {
				t.Errorf("%+v: got error %v, want none", tt.limit, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got error %v, want one with %q", tt.limit, err, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	good := ask("k", time.Second, 1, 1)
	for _, tt := range []struct {
		name      string
		checks    []Check
		decisions int
		want      string // the error; empty for none
	}{
		{"nothing", nil, 0, ""},
		{"one", []Check{good}, 1, ""},
		{"any bytes in the key and any cost", []Check{ask("\x00\xff:{}", time.Second, 0, math.MaxUint64)}, 1, ""},
		{"the same log twice", []Check{good, good}, 2, ""},
		{"too few decisions", []Check{good, good}, 1, "window: bad check: 2 checks, but room for 1 decisions"},
		{"too many decisions", nil, 1, "window: bad check: 0 checks, but room for 1 decisions"},
		{"no key", []Check{good, ask("", time.Second, 1, 1)}, 2, "window: bad check: check 1 has no key"},
		{"no limit", []Check{good, good, {Key: "k"}}, 3, "window: bad check: check 2: window 0s is shorter than 10ms"},
		{"the first of two", []Check{{Key: "k"}, {}}, 2, "window: bad check: check 0: window 0s is shorter than 10ms"},
	} {
		err := Validate(tt.checks, make([]Decision, tt.decisions))
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: got error %v, want none", tt.name, err)
			}
			continue
		}
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got error %v, want %q", tt.name, err, tt.want)
		}
		if !errors.Is(err, ErrBadCheck) {
			t.Errorf("%s: got error %v, want one that wraps %q", tt.name, err, ErrBadCheck)
		}
	}
}

func TestFold(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, tt := range []struct {
		name   string
		checks []Check
		folded []Check // nil: the checks themselves
		answer []int
	}{
		{"none", nil, nil, nil},
		{"one", []Check{ask("a", s, 5, 1)}, nil, nil},
		{"different keys", []Check{ask("a", s, 5, 1), ask("b", s, 5, 1)}, nil, nil},
		{"different windows", []Check{ask("a", s, 5, 1), ask("a", m, 5, 1)}, nil, nil},
		{"twice", []Check{ask("a", s, 5, 1), ask("a", s, 5, 2)}, []Check{ask("a", s, 5, 3)}, []int{0, 0}},
		{"the smallest limit holds, first", []Check{ask("a", s, 3, 1), ask("a", s, 5, 1)}, []Check{ask("a", s, 3, 2)}, []int{0, 0}},
		{"the smallest limit holds, last", []Check{ask("a", s, 5, 1), ask("a", s, 3, 1)}, []Check{ask("a", s, 3, 2)}, []int{0, 0}},
		{"cost zero", []Check{ask("a", s, 5, 0), ask("a", s, 5, 0)}, []Check{ask("a", s, 5, 0)}, []int{0, 0}},
		{"the sum saturates", []Check{ask("a", s, 5, math.MaxUint64), ask("a", s, 5, 2)}, []Check{ask("a", s, 5, math.MaxUint64)}, []int{0, 0}},
		{
			"between others",
			[]Check{ask("a", s, 9, 1), ask("b", s, 9, 1), ask("a", m, 9, 1), ask("b", s, 8, 2), ask("c", s, 9, 1), ask("a", s, 7, 3), ask("b", s, 9, 4)},
			[]Check{ask("a", s, 7, 4), ask("b", s, 8, 7), ask("a", m, 9, 1), ask("c", s, 9, 1)},
			[]int{0, 1, 2, 1, 3, 0, 1},
		},
	} {
		before := append([]Check(nil), tt.checks...)
		wantFold(t, tt.name, tt.checks, tt.folded, tt.answer)
		if diff := cmp.Diff(before, tt.checks); diff != "" {
			t.Errorf("%s: Fold changed its argument (-before +after)\n%s", tt.name, diff)
		}
	}
}

// TestFoldLargeGroups covers the way that groups take which are too large to
// compare all pairs.
func TestFoldLargeGroups(t *testing.T) {
	for _, n := range []int{15, 16, 17, 18, 100} {
		var checks []Check
		for i := range n {
			checks = append(checks, ask(fmt.Sprint(i), time.Second, 5, 1))
		}
		folded, answer := Fold(checks)
		if answer != nil || len(folded) != n || &folded[0] != &checks[0] {
			t.Errorf("%d different logs: got %d checks and answer %v, want the checks themselves and nil", n, len(folded), answer)
		}

		checks[n-1].Key = checks[0].Key
		folded, answer = Fold(checks)
		if len(folded) != n-1 || len(answer) != n || answer[n-1] != 0 || answer[n-2] != n-2 {
			t.Errorf("%d checks, first and last the same log: got %d checks and answer %v", n, len(folded), answer)
		}
		if got := folded[0].Cost; got != 2 {
			t.Errorf("%d checks, first and last the same log: got cost %d, want 2", n, got)
		}
	}
}

func TestFoldDoesNotAllocate(t *testing.T) {
	checks := []Check{ask("a", time.Second, 1, 1), ask("a", time.Minute, 1, 1), ask("b", time.Second, 1, 1)}
	if got := testing.AllocsPerRun(100, func() { Fold(checks) }); got != 0 {
		t.Errorf("no log named twice: got %v allocations, want none", got)
	}
}

func TestAddSaturating(t *testing.T) {
	for _, tt := range []struct{ a, b, want uint64 }{
		{0, 0, 0},
		{1, 2, 3},
		{math.MaxUint64, 0, math.MaxUint64},
		{0, math.MaxUint64, math.MaxUint64},
		{math.MaxUint64 - 1, 1, math.MaxUint64},
		{math.MaxUint64, 1, math.MaxUint64},
		{1, math.MaxUint64, math.MaxUint64},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64},
		{1 << 63, 1 << 63, math.MaxUint64},
	} {
		if got := AddSaturating(tt.a, tt.b); got != tt.want {
			t.Errorf("AddSaturating(%d, %d): got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestCheckLog(t *testing.T) {
	if got, want := ask("k", time.Minute, 7, 3).Log(), (LogID{Key: "k", Window: time.Minute}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestFillsSoon holds the short cut for token buckets to the exact answer, near the longest time
// to fill and with the largest numbers.
func TestFillsSoon(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	soon := 0
	for range 100_000 {
		l := Limit{
			Policy: TokenBucket,
			Hits:   MaxHits >> r.IntN(53),
			Rate:   uint32(1 + r.Uint64N(Unlimited-1)>>r.IntN(32)),
			Window: max(MinWindow, (MaxWindow >> r.IntN(30)).Truncate(time.Microsecond)),
		}
		if r.IntN(2) == 0 { // near the bound
			most := uint64(math.MaxUint64)
			if high, low := bits.Mul64(uint64(l.Rate), uint64(MaxWindow)); high < uint64(l.Window) {
				most, _ = bits.Div64(high, low, uint64(l.Window))
			}
			l.Hits = min(max(most, 3)-3+r.Uint64N(6), MaxHits-1)
		}
		if l.fillsSoon() {
			soon++
			if !l.fillsWithin(MaxWindow) {
				t.Fatalf("%+v: fillsSoon is true, and fillsWithin is false", l)
			}
		}
	}
	if soon < 10_000 {
		t.Errorf("got %d buckets that fill soon, want many", soon)
	}
}

// wantFold compares what Fold returns for checks. A nil folded is the checks themselves.
func wantFold(t *testing.T, name string, checks, folded []Check, answer []int) {
	t.Helper()
	if folded == nil {
		folded = checks
	}
	got, gotAnswer := Fold(checks)
	if diff := cmp.Diff(folded, got); diff != "" {
		t.Errorf("%s: checks (-want +got)\n%s", name, diff)
	}
	if diff := cmp.Diff(answer, gotAnswer); diff != "" {
		t.Errorf("%s: answer (-want +got)\n%s", name, diff)
	}
}

// TestFoldOfLarge: an unlimited check is not stricter than one with a limit above it.
func TestFoldOfLarge(t *testing.T) {
	large := Check{Key: "k", Limit: Limit{Hits: MaxHits, Window: time.Second, Policy: Fixed}, Cost: 1 << 53}
	none := large
	none.Limit.Hits = Unlimited
	for _, checks := range [][]Check{{large, none}, {none, large}} {
		if folded, _ := Fold(checks); len(folded) != 1 || folded[0].Limit.Hits != MaxHits || folded[0].Cost != 1<<54 {
			t.Errorf("got %+v, want one check with the limit %d", folded, uint64(MaxHits))
		}
	}
}
