package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// about reports whether got is want, give or take a share of it.
func about(got, want, share float64) bool { return math.Abs(got-want) <= share*want }

const draws = 200_000

// drawn returns sorted draws with a fixed seed, and their mean.
func drawn(draw func(r *rand.Rand) time.Duration) (sorted []time.Duration, mean float64) {
	r := source(7, 7)
	for range draws {
		d := draw(r)
		sorted = append(sorted, d)
		mean += float64(d) / draws
	}
	slices.Sort(sorted)
	return sorted, mean
}

func TestLogNormal(t *testing.T) {
	l := logNormal{300 * time.Millisecond, 0.8}
	all, mean := drawn(l.draw)
	if want := float64(l.median) * math.Exp(l.sigma*l.sigma/2); !about(mean, want, 0.01) {
		t.Errorf("mean %v, want %v", time.Duration(mean), time.Duration(want))
	}
	// The quantiles of the normal distribution.
	for share, z := range map[float64]float64{0.1: -1.2816, 0.5: 0, 0.9: 1.2816, 0.99: 2.3263} {
		got, want := float64(all[int(share*draws)]), float64(l.median)*math.Exp(z*l.sigma)
		if !about(got, want, 0.02) {
			t.Errorf("quantile %v: %v, want %v", share, time.Duration(got), time.Duration(want))
		}
	}
}

func TestExponential(t *testing.T) {
	const mean = 5 * time.Second
	all, got := drawn(func(r *rand.Rand) time.Duration { return exponential(r, mean) })
	if !about(got, float64(mean), 0.01) {
		t.Errorf("mean %v, want %v", time.Duration(got), mean)
	}
	if got, want := float64(all[draws/2]), float64(mean)*math.Ln2; !about(got, want, 0.02) {
		t.Errorf("median %v, want %v", time.Duration(got), time.Duration(want))
	}
	if got := exponential(source(1, 1), 0); got != 0 {
		t.Errorf("mean 0: got %v", got)
	}
}

func TestUniform(t *testing.T) {
	all, mean := drawn(func(r *rand.Rand) time.Duration { return uniform(r, time.Second, 3*time.Second) })
	if all[0] < time.Second || all[draws-1] >= 3*time.Second || !about(mean, 2e9, 0.01) {
		t.Errorf("from %v to %v, mean %v, want 1s to 3s, mean 2s", all[0], all[draws-1], time.Duration(mean))
	}
}

func TestShares(t *testing.T) {
	percents := []int{1, 9, 90}
	percent := func(i int) int { return percents[i] }
	for n, want := range map[int][]int{100: {1, 9, 90}, 200: {2, 18, 180}, 30: {1, 2, 27}, 1: {1, 0, 0}, 0: {0, 0, 0}} {
		got := make([]int, 3)
		for _, kind := range shares(n, 3, percent) {
			got[kind]++
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: got %v, want %v", n, got, want)
		}
	}
}

// TestPopulation holds a large population to its proportions, and its callers to Zipf's law: the
// share of rank k is in proportion to (1+k)^-s.
func TestPopulation(t *testing.T) {
	p := standard(10*time.Second, 1000)
	p.callers = 300_000
	all := people(p, 10*time.Second, 3)
	if len(all) != 1001 || all[1000].behaviour.retry != saturates || len(all[1000].callers) != p.saturating {
		t.Fatalf("got %d customers, want 1000 and the saturating one", len(all))
	}
	tiers, behaves, callers := make(map[string]int), make(map[retry]int), 0
	for _, c := range all[:1000] {
		tiers[c.tier.name]++
		behaves[c.behaviour.retry]++
		callers += len(c.callers)
	}
	if tiers["enterprise"] != 10 || tiers["pro"] != 90 || tiers["free"] != 900 {
		t.Errorf("tiers: %v", tiers)
	}
	if behaves[prevents] != 400 || behaves[heeds] != 250 || behaves[advised] != 150 || behaves[ignores] != 200 {
		t.Errorf("behaviours: %v", behaves)
	}
	if callers != p.callers {
		t.Errorf("%d callers, want %d", callers, p.callers)
	}
	hired := func(rank int) float64 { return float64(len(all[rank].callers) - 1) }
	for _, rank := range []int{1, 3, 9, 31} {
		if got, want := hired(rank)/hired(0), math.Pow(float64(1+rank), -p.zipf); !about(got, want, 0.05) {
			t.Errorf("rank %d: %.4f of the first, want %.4f", rank, got, want)
		}
	}
}

// TestOnAndOff: the means say which share of the time a caller is busy.
func TestOnAndOff(t *testing.T) {
	b := &behaviour{retry: heeds, think: logNormal{10 * time.Millisecond, 0.5}, on: 2 * time.Second, off: 6 * time.Second}
	c := &customer{behaviour: b, tier: &tier{}}
	r := newCaller(c, source(5, 1))
	const long = 40_000 * time.Second
	busy, starts := 0, 0
	now := r.first
	for now < long {
		if _, send := r.turn(now); !send {
			t.Fatal("a caller without a limit does not send")
		}
		next := r.answered(now, now, true, 0)
		c.calls = nil
		if next-now > 500*time.Millisecond { // a pause
			starts++
		} else {
			busy += int(next - now)
		}
		now = next
	}
	if got, want := float64(busy)/float64(long), 0.25; !about(got, want, 0.05) {
		t.Errorf("busy %.3f of the time, want %.3f", got, want)
	}
	if got, want := float64(starts), long.Seconds()/8; !about(got, want, 0.1) {
		t.Errorf("%v pauses, want about %v", got, want)
	}
}

// TestRetries: what each kind does after denials of one request with a Retry-After of 20 s.
func TestRetries(t *testing.T) {
	const retryAfter = 20 * time.Second
	think := logNormal{300 * time.Millisecond, 0}
	for _, tt := range []struct {
		name      string
		retry     retry
		low, high func(try int) time.Duration // of the wait before the try
	}{
		{"heeds", heeds, func(int) time.Duration { return retryAfter }, func(int) time.Duration { return retryAfter }},
		{"prevents", prevents, func(int) time.Duration { return retryAfter }, func(int) time.Duration { return retryAfter }},
		{"returns", returns, func(int) time.Duration { return retryAfter }, func(int) time.Duration { return retryAfter }},
		{"advised", advised, func(int) time.Duration { return retryAfter }, func(try int) time.Duration {
			if try == 1 {
				return retryAfter + retryAfter/10
			}
			return retryAfter + time.Second<<try
		}},
		{"ignores", ignores, func(int) time.Duration { return 100 * time.Millisecond }, func(int) time.Duration { return 200 * time.Millisecond }},
	} {
		for seed := range uint64(50) {
			c := &customer{behaviour: &behaviour{retry: tt.retry, think: think, on: time.Hour}, tier: &tier{}}
			r := &caller{customer: c, random: source(seed, 0), busy: never, wants: -1}
			now := time.Duration(0)
			for try := 1; try < mostTries; try++ {
				if _, send := r.turn(now); !send {
					t.Fatalf("%s: it does not send", tt.name)
				}
				next := r.answered(now, now, false, retryAfter)
				if wait := next - now; wait < tt.low(try) || wait > tt.high(try) {
					t.Errorf("%s: try %d after %v, want %v to %v", tt.name, try, wait, tt.low(try), tt.high(try))
				}
				now = next
			}
			waited := now
			r.turn(now)
			if c.waited != waited {
				t.Errorf("%s: it has waited %v, want %v", tt.name, c.waited, waited)
			}
			if next := r.answered(now, now, false, retryAfter); next-now != think.median {
				t.Errorf("%s: the next request after giving up comes after %v, want %v", tt.name, next-now, think.median)
			}
			if c.calls[mostTries-1].try != mostTries-1 || r.try != 0 || c.flying != 0 {
				t.Errorf("%s: it does not give up", tt.name)
			}
		}
	}
}

func TestSaturates(t *testing.T) {
	b := saturating(10 * time.Second)
	r := newCaller(&customer{behaviour: &b, tier: &tier{}}, source(1, 1))
	for range 1000 {
		if next := r.answered(0, 0, false, time.Hour); next <= 0 || next > time.Second {
			t.Fatalf("the next request comes after %v", next)
		}
	}
}

// TestRoom: a customer who counts sends what fits for certain, and nothing else.
func TestRoom(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	past := func(answers ...int) (calls []call) {
		for _, at := range answers {
			calls = append(calls, call{sent: ms(at - 5), answered: ms(at), allowed: true})
		}
		return calls
	}
	slack := int(clockSlack / time.Millisecond)
	for _, tt := range []struct {
		name   string
		calls  []call
		flying int
		now    int
		want   int // when there is room; now: at once
	}{
		{"nothing used", nil, 0, 100, 100},
		{"some used", past(50, 60), 0, 100, 100},
		{"all used", past(50, 60, 70), 0, 100, 1050 + slack},
		{"the oldest has just expired", past(50, 60, 70), 0, 1050 + slack, 1050 + slack},
		{"the oldest may not have expired", past(50, 60, 70), 0, 1049 + slack, 1050 + slack},
		{"a denial is free", append(past(50, 60), call{answered: ms(70)}), 0, 100, 100},
		{"one under way", past(50, 60), 1, 100, 1050 + slack},
		{"all under way", nil, 3, 100, 110},
		{"more than the limit, as after a smaller one", past(50, 60, 70, 80), 0, 100, 1060 + slack},
	} {
		c := &customer{tier: &tier{limits: []limit{{3, time.Second}, {100, time.Hour}}}, calls: tt.calls, flying: tt.flying}
		if at, ok := c.room(ms(tt.now)); at != ms(tt.want) || ok != (tt.want == tt.now) {
			t.Errorf("%s: room at %v, now %t; want %v", tt.name, at, ok, ms(tt.want))
		}
	}
}

func TestRecordKeepsTheOrderOfAnswers(t *testing.T) {
	c := new(customer)
	for _, at := range []time.Duration{5, 2, 9, 7, 7, 1} {
		c.record(call{answered: at})
	}
	if !slices.IsSortedFunc(c.calls, func(a, b call) int { return int(a.answered - b.answered) }) || len(c.calls) != 6 {
		t.Errorf("got %v", c.calls)
	}
}
