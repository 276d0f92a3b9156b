package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestReserves proves what leaves a mark that it may be taken back: what was
// charged and says so, for a second.
func TestReserves(t *testing.T) {
	r := newRig(t)
	full := func(prefix string) {
		r.take(start, ten(prefix+"full", 5, 5), 0)
	}
	for _, tt := range []struct {
		name  string
		asks  []ask
		marks string // keys that are marked
	}{
		{"charged", []ask{{Check: ten("a", 5, 1), flags: reserves}}, "a"},
		{"charged, and asks too", []ask{{Check: ten("a", 5, 1), flags: reserves + asks}}, "a"},
		{"charged, without a word", []ask{{Check: ten("a", 5, 1)}}, ""},
		{"charged, but only asks", []ask{{Check: ten("a", 5, 1), flags: asks}}, ""},
		{"a question", []ask{{Check: ten("a", 5, 0), flags: reserves}}, ""},
		{"denied", []ask{{Check: ten("full", 5, 1), flags: reserves}}, ""},
		{"never", []ask{{Check: ten("a", 5, 6), flags: reserves}}, ""},
		{"a refund", []ask{{Check: inMode(window.Refund, ten("full", 5, 1)), flags: reserves}}, ""},
		{"over the limit", []ask{{Check: inMode(window.Always, ten("full", 5, 1)), flags: reserves}}, "full"},
		{"an allowed group", []ask{{Check: ten("a", 5, 1), flags: reserves}, {Check: ten("b", 5, 1)}, {Check: ten("c", 5, 1), flags: reserves}}, "a c"},
		{"a denied group", []ask{{Check: ten("a", 5, 1), flags: reserves}, {Check: ten("full", 5, 1), flags: reserves}}, ""},
		{
			"any and observe", []ask{
				{Check: inMode(window.Any, ten("a", 5, 1)), flags: reserves},
				{Check: inMode(window.Any, ten("full", 5, 1)), flags: reserves},
				{Check: inMode(window.Observe, ten("full", 5, 1)), flags: reserves},
			}, "a",
		},
	} {
		prefix := tt.name + ":"
		full(prefix)
		for i := range tt.asks {
			tt.asks[i].Key = prefix + tt.asks[i].Key
		}
		r.run(start, request{asks: tt.asks})
		var marks []string
		for key, log := range r.logs(prefix) {
			if log[atExpiry] != 0 {
				marks = append(marks, strings.TrimSuffix(key, ":10000000"))
			}
		}
		slices.Sort(marks)
		if got := strings.Join(marks, " "); got != tt.marks {
			t.Errorf("%s: marked %q, want %q", tt.name, got, tt.marks)
		}
	}
}

// TestReservesRing proves that a ring's charge leaves a mark as well.
func TestReservesRing(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		r.take(start+int64(i), ten("k", 50, 1), 0)
	}
	r.run(start+30, request{asks: []ask{{Check: ten("k", 50, 1), flags: reserves}}})
	if log := r.logs("k:"); log["10000000"][atExpiry] == 0 {
		t.Error("there is no mark")
	}
}

// TestAsks proves who is told of a mark: a check that asks, is denied, and whose
// own log has one, until that has expired.
func TestAsks(t *testing.T) {
	r := newRig(t)
	marked := func(key string) {
		t.Helper()
		got := r.run(start, request{asks: []ask{{Check: ten(key, 5, 3), flags: reserves}}})
		if got[0].outcome != 1 {
			t.Fatalf("%s: %+v", key, got[0])
		}
	}
	outcomes := func(q ...request) string {
		t.Helper()
		var all []int
		for _, a := range r.run(start, q...) {
			if a.outcome == unsettled && (a.decision.Remaining != 2 || a.decision.RetryAfter != 10*time.Second) {
				t.Errorf("got %+v, want 2 to remain for 10 s", a)
			}
			all = append(all, int(a.outcome))
		}
		return fmt.Sprint(all)
	}
	asking := func(c *window.Check) ask { return ask{Check: c, flags: asks} }

	second := func(cost uint64) *window.Check {
		return &window.Check{Key: "a", Limit: window.Limit{Hits: 1, Window: time.Second}, Cost: cost}
	}
	marked("a")
	marked("b")
	marked("e")
	r.take(start, ten("plain", 5, 3), 0)
	for _, tt := range []struct {
		name     string
		requests []request
		want     string
	}{
		{"denied, asks", []request{{asks: []ask{asking(ten("a", 5, 3))}}}, "[8]"},
		{"denied, asks and would reserve", []request{{asks: []ask{{Check: ten("a", 5, 3), flags: asks + reserves}}}}, "[8]"},
		{"denied, does not ask", []request{one(ten("a", 5, 3))}, "[0]"},
		{"denied, would reserve", []request{{asks: []ask{{Check: ten("a", 5, 3), flags: reserves}}}}, "[0]"},
		{"denied, no mark", []request{{asks: []ask{asking(ten("plain", 5, 3))}}}, "[0]"},
		{"another window of the key", []request{one(second(1)), {asks: []ask{asking(second(1))}}}, "[1 0]"},
		{"never", []request{{asks: []ask{asking(ten("a", 5, 6))}}}, "[2]"},
		{"allowed", []request{{asks: []ask{asking(ten("a", 5, 0))}}}, "[1]"},
		{"allowed, and something remains", []request{{asks: []ask{asking(ten("e", 6, 1))}}}, "[1]"},
		{"allowed, and nothing remains", []request{{asks: []ask{asking(ten("e", 5, 1))}}}, "[9]"},
		{"a group", []request{{asks: []ask{asking(ten("a", 5, 1)), asking(ten("b", 5, 3)), asking(ten("plain", 5, 3)), {Check: ten("b", 5, 3)}}}}, "[1 8 0 0]"},
		{"observe", []request{{asks: []ask{asking(inMode(window.Observe, ten("a", 5, 3)))}}}, "[8]"},
		{"several", []request{
			{asks: []ask{{Check: ten("c", 5, 3), flags: reserves}}}, {asks: []ask{asking(ten("c", 5, 3))}}, one(ten("c", 5, 3)),
		}, "[1 8 0]"},
	} {
		if got := outcomes(tt.requests...); got != tt.want {
			t.Errorf("%s: got outcomes %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestMarksEnd proves that a mark is told of for a second at least and two at
// most, that further charges do not make it last, and that one which is over goes.
func TestMarksEnd(t *testing.T) {
	r := newRig(t)
	for _, at := range []int64{0, 1, 999_999, 500_000} { // of a second
		for second := range int64(256) { // more than the marks tell apart
			began := start + second*1_000_000 + at
			key := fmt.Sprint("k", second, "-", at)
			got := r.run(began, request{asks: []ask{{Check: ten(key, 5, 3), flags: reserves}}})
			if got[0].outcome != 1 {
				t.Fatalf("%s: %+v", key, got[0])
			}
			told := func(after int64) bool {
				return r.run(began+after, request{asks: []ask{{Check: ten(key, 5, 3), flags: asks}}})[0].outcome == unsettled
			}
			for _, after := range []int64{0, 500_000, 1_000_000} {
				if !told(after) {
					t.Fatalf("%s: after %d us it is not told", key, after)
				}
			}
			if second%16 == 0 { // a charge in between
				r.run(began+1_000_000, one(ten(key, 5, 1)))
			}
			if told(2_000_000) {
				t.Fatalf("%s: after 2 s it is told still", key)
			}
			if second%16 == 0 {
				r.run(began+3_000_000, one(ten(key, 5, 1)))
				if log := r.logs(key + ":"); log["10000000"][atExpiry] != 0 {
					t.Fatalf("%s: the mark has not gone", key)
				}
			}
		}
	}
}
