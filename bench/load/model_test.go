package main

import (
	"slices"
	"testing"
	"time"
)

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
