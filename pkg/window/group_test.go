package window

import (
	"fmt"
	"math"
	"testing"
	"time"
)

var allModes = []Mode{Enforce, Any, Observe, Always, Refund}

// member is a check of a group and whether it has room.
type member struct {
	mode Mode
	room bool
}

// naiveVerdict reads the sentences of the contract one after the other.
func naiveVerdict(group []member) (allowed bool, charged []bool) {
	count := func(match func(member) bool) (n int) {
		for _, m := range group {
			if match(m) {
				n++
			}
		}
		return n
	}
	allowed = true
	if count(func(m member) bool { return m.mode == Enforce && !m.room }) > 0 {
		allowed = false // enforce denies without room
	}
	if count(func(m member) bool { return m.mode == Always && !m.room }) > 0 {
		allowed = false // and so does always
	}
	if count(func(m member) bool { return m.mode == Any }) > 0 && count(func(m member) bool { return m.mode == Any && m.room }) == 0 {
		allowed = false // of all any checks at least one must have room
	}
	for _, m := range group {
		is := false
		switch m.mode {
		case Enforce:
			is = allowed
		case Any: // those with room are charged
			is = allowed && m.room
		case Observe: // charged if the request is allowed and it has room itself
			is = allowed && m.room
		case Always: // recorded whatever the others say
			is = true
		case Refund: // always applied
			is = true
		}
		charged = append(charged, is)
	}
	return allowed, charged
}

// TestVerdict compares all groups of up to four checks, in every order, with a
// naive reading.
func TestVerdict(t *testing.T) {
	groups := [][]member{nil}
	for from, size := 0, 1; size <= 4; size++ {
		to := len(groups)
		for _, g := range groups[from:to] {
			for _, m := range allModes {
				for _, room := range []bool{false, true} {
					groups = append(groups, append(g[:len(g):len(g)], member{m, room}))
				}
			}
		}
		from = to
	}
	if got, want := len(groups), 1+10+100+1000+10000; got != want {
		t.Fatalf("groups: got %d, want %d", got, want)
	}
	for _, g := range groups {
		want, wantCharged := naiveVerdict(g)
		var v Verdict
		checks, decisions := make([]Check, len(g)), make([]Decision, len(g))
		for i, m := range g {
			v.Add(m.mode, m.room)
			checks[i].Mode, decisions[i].Allowed = m.mode, m.room
		}
		if got := v.Allowed(); got != want {
			t.Errorf("%v: allowed: got %t, want %t", g, got, want)
		}
		if got := GroupAllowed(checks, decisions); got != want {
			t.Errorf("%v: GroupAllowed: got %t, want %t", g, got, want)
		}
		for i, m := range g {
			if got := m.mode.Charged(v.Allowed(), m.room); got != wantCharged[i] {
				t.Errorf("%v: check %d charged: got %t, want %t", g, i, got, wantCharged[i])
			}
		}
	}
}

func TestMode(t *testing.T) {
	if got, want := fmt.Sprintf("%v %v", allModes, Mode(9)), "[enforce any observe always refund] Mode(9)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, m := range allModes {
		if got, want := m.Unconditional(), m == Always || m == Refund; got != want {
			t.Errorf("%v: Unconditional: got %t, want %t", m, got, want)
		}
	}
	if got := (Check{}).Mode; got != Enforce {
		t.Errorf("the zero check: got mode %v, want %v", got, Enforce)
	}
}

func inMode(m Mode, c Check) Check {
	c.Mode = m
	return c
}

func TestFoldModes(t *testing.T) {
	const s = time.Second
	a, b := ask("a", s, 5, 1), ask("b", s, 5, 1)
	fine, rough := a, ask("a", s, 4, 2)
	fine.Precision, rough.Precision = 3*time.Microsecond, 7*time.Microsecond
	both := ask("a", s, 4, 3)
	both.Precision = 3 * time.Microsecond
	fixed := a
	fixed.Limit.Policy = Fixed
	for _, tt := range []struct {
		name   string
		checks []Check
		folded []Check // nil: the checks themselves
		answer []int
	}{
		{"other modes of one log stay apart", []Check{a, inMode(Always, a), inMode(Refund, a)}, nil, nil},
		{"policies of one key and window stay apart", []Check{a, fixed}, nil, nil},
		{"equal modes are folded", []Check{inMode(Any, a), inMode(Any, a), inMode(Any, b)}, []Check{inMode(Any, ask("a", s, 5, 2)), inMode(Any, b)}, []int{0, 0, 1}},
		{
			"each mode by itself",
			[]Check{a, inMode(Refund, a), a, inMode(Refund, a), inMode(Refund, b)},
			[]Check{ask("a", s, 5, 2), inMode(Refund, ask("a", s, 5, 2)), inMode(Refund, b)},
			[]int{0, 1, 0, 1, 2},
		},
		{"the finest precision, first", []Check{fine, rough}, []Check{both}, []int{0, 0}},
		{"the finest precision, last", []Check{rough, fine}, []Check{both}, []int{0, 0}},
	} {
		wantFold(t, tt.name, tt.checks, tt.folded, tt.answer)
	}

	// The way of large groups tells modes apart too.
	var large []Check
	for i := range smallGroup + 2 {
		large = append(large, ask(fmt.Sprint(i/2), s, 5, 1))
		large[i].Mode = []Mode{Always, Refund}[i%2]
	}
	if folded, answer := Fold(large); answer != nil || len(folded) != len(large) {
		t.Errorf("a large group of different modes: got %d checks and answer %v", len(folded), answer)
	}
}

// TestMixedModes proves which modes may name one log in a group.
func TestMixedModes(t *testing.T) {
	a, other := ask("a", time.Second, 5, 1), ask("b", time.Second, 5, 1)
	longer := ask("a", time.Minute, 5, 1)
	for _, m := range allModes {
		for _, n := range allModes {
			checks := []Check{inMode(Observe, other), inMode(m, a), inMode(Any, longer), inMode(n, a)}
			i, j, got := mixesModes(checks)
			want := m != n && m != Always && m != Refund && n != Always && n != Refund
			if got != want {
				t.Errorf("%v and %v: got refused %t, want %t", m, n, got, want)
			}
			if got && (i != 1 || j != 3) {
				t.Errorf("%v and %v: got checks %d and %d, want 1 and 3", m, n, i, j)
			}
		}
	}
}

func TestValidateModes(t *testing.T) {
	good := ask("k", time.Second, 5, 1)
	precise := func(p time.Duration) Check {
		c := good
		c.Precision = p
		return c
	}
	for _, tt := range []struct {
		checks []Check
		want   string
	}{
		{[]Check{good, inMode(Mode(5), good)}, "window: bad check: check 1: Mode(5) is not a mode"},
		{[]Check{precise(-1)}, "window: bad check: check 0: precision -1ns is below zero"},
		{[]Check{precise(time.Second + 1)}, "window: bad check: check 0: precision 1.000000001s is longer than the window 1s"},
		{[]Check{good, inMode(Observe, good)}, "window: bad check: checks 0 and 1 name one log with modes enforce and observe"},
	} {
		err := Validate(tt.checks, make([]Decision, len(tt.checks)))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%+v: got error %v, want %q", tt.checks, err, tt.want)
		}
	}
}

func TestWithoutLog(t *testing.T) {
	unlimited := Decision{Allowed: true, Remaining: Unlimited}
	for _, m := range allModes {
		for _, hits := range []uint64{0, 1, MaxSliding, Unlimited, Unlimited + 1, MaxHits} {
			for _, cost := range []uint64{0, 1, math.MaxUint64} {
				c := inMode(m, ask("k", time.Second, hits, cost))
				got, ok := WithoutLog(&c)
				var want Decision
				switch {
				case hits == Unlimited:
					want = unlimited
				case hits == 0 && m != Always && m != Refund:
					want = Decision{Never: true}
				}
				if wantOK := want != (Decision{}); ok != wantOK || got != want {
					t.Errorf("%+v: got %+v and %t, want %+v and %t", c, got, ok, want, wantOK)
				}
			}
		}
	}
}

func TestPrecision(t *testing.T) {
	for _, tt := range []struct {
		hits uint64
		win  time.Duration
		want time.Duration
	}{
		{0, time.Hour, 0},
		{10_000, time.Hour, 0},
		{10_001, time.Hour, 360 * time.Millisecond},
		{1_000_000, 24 * time.Hour, 8640 * time.Millisecond},
		{Unlimited, MaxWindow, 3456 * time.Second},
		{20_000, MinWindow, time.Microsecond},
		{20_000, MinWindow + time.Microsecond, 2 * time.Microsecond}, // rounded up to whole microseconds
		{20_000, 3*MinWindow - time.Microsecond, 3 * time.Microsecond},
	} {
		if got := Precision(Limit{Hits: tt.hits, Window: tt.win}); got != tt.want {
			t.Errorf("%d hits in %v: got %v, want %v", tt.hits, tt.win, got, tt.want)
		}
	}
}
