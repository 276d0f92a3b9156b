package local_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/local"
	"github.com/slidegate/slidegate/pkg/window"
)

// counted returns a check of cost 1 with a policy.
func counted(key string, l window.Limit) window.Check {
	c := window.Check{Key: key, Limit: l, Cost: 1}
	switch l.Policy {
	case window.Calendar:
		c.Period = window.Period{Start: 0, End: 10, Next: 20}
	case window.InFlight:
		c.Stream = 1
	}
	return c
}

// countingPolicies has a limit of 2 of each policy that counts hits.
var countingPolicies = []window.Limit{
	{Hits: 2, Window: win},
	{Hits: 2, Rate: 1, Window: win / 2, Policy: window.TokenBucket},
	{Hits: 2, Window: win, Policy: window.Fixed},
	{Hits: 2, Window: win, Policy: window.Calendar},
	{Hits: 2, Window: win, Policy: window.SlidingCounter},
}

// TestRememberedDenialsOfPolicies: a process repeats a denial as long as the shared store would
// deny, with the wait that the shared store would tell, and then asks again.
func TestRememberedDenialsOfPolicies(t *testing.T) {
	for _, l := range countingPolicies {
		s := newShared(t)
		s.setNow(second)
		p := s.process(t, local.Options{})
		p.SetMaxAge(time.Hour)
		c := counted("a", l)
		for range 2 {
			take(t, p, c)
		}
		wait := take(t, p, c)[0].RetryAfter
		calls := s.calls.Load()
		for at := second; at < second+wait-10*micro; at += (wait / 7).Truncate(micro) {
			s.setNow(at)
			got := take(t, p, c)
			var want [1]window.Decision
			if _, err := s.Store.Take(t.Context(), window.MayWait, []window.Check{c}, want[:]); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[:], got); diff != "" {
				t.Errorf("%v at %v (-store +process):\n%s", l.Policy, at, diff)
			}
		}
		// The answer of an allowed call is believed for a short time only.
		if n := s.calls.Load() - calls; n != 1 {
			t.Errorf("%v: %d calls of the shared store in the wait, want one", l.Policy, n)
		}
		if s.setNow(second + wait); !take(t, p, c)[0].Allowed {
			t.Errorf("%v: denied after the wait of %v", l.Policy, wait)
		}
	}
}

// TestAnotherPeriodIsAsked: a denial of a calendar says nothing of a check with other periods,
// which the store refuses if they contradict its clock.
func TestAnotherPeriodIsAsked(t *testing.T) {
	s := newShared(t)
	s.setNow(second)
	p := s.process(t, local.Options{})
	c := counted("a", window.Limit{Hits: 1, Window: win, Policy: window.Calendar})
	for range 3 {
		take(t, p, c)
	}
	calls := s.calls.Load()
	if take(t, p, c)[0].Allowed || s.calls.Load() != calls {
		t.Fatalf("the denial is not remembered: %d calls of the store", s.calls.Load()-calls)
	}
	c.Period = window.Period{Start: 1000, End: 1010, Next: 1020}
	if _, err := p.Take(t.Context(), window.MayWait, []window.Check{c}, make([]window.Decision, 1)); !errors.Is(err, window.ErrPeriod) {
		t.Errorf("got error %v, want one that wraps %v", err, window.ErrPeriod)
	}
}

// TestAnotherBucketIsAsked: a denial of a bucket says nothing of another rate or burst, because
// the bucket keeps tokens.
func TestAnotherBucketIsAsked(t *testing.T) {
	s := newShared(t)
	p := s.process(t, local.Options{})
	l := window.Limit{Hits: 4, Rate: 1, Window: win, Policy: window.TokenBucket}
	for range 5 {
		take(t, p, counted("a", l))
	}
	for _, other := range []window.Limit{{Hits: 2, Rate: 1, Window: win, Policy: l.Policy}, {Hits: 4, Rate: 2, Window: win, Policy: l.Policy}} {
		calls := s.calls.Load()
		got := take(t, p, counted("a", other))[0]
		if s.calls.Load() == calls {
			t.Errorf("%+v was answered from memory", other)
		}
		if want := win / time.Duration(other.Rate); got.RetryAfter != want {
			t.Errorf("%+v: wait %v, want %v", other, got.RetryAfter, want)
		}
	}
}

// handmade is a shared store that gives the same answers to each call.
type handmade struct {
	answers []window.Decision
	calls   int
}

func (h *handmade) Take(_ context.Context, wait bool, _ []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	h.calls++
	copy(decisions, h.answers)
	return true, nil
}

func (*handmade) Close() error { return nil }

// TestNoDenialInFlightIsRemembered: a request that is held may end at any time. But a denial by
// another limit of the request is remembered beside a limit in flight that has room.
func TestNoDenialInFlightIsRemembered(t *testing.T) {
	inFlight := counted("up", window.Limit{Hits: 20, Window: time.Minute, Policy: window.InFlight})
	sliding := ask("a", 2, 1)
	full := window.Decision{RetryAfter: 9 * second, UnitAfter: 9 * second, ResetAfter: 9 * second}
	room := window.Decision{Allowed: true, Remaining: 5, UnitAfter: second, ResetAfter: time.Minute}
	for name, tt := range map[string]struct {
		checks  []window.Check
		answers []window.Decision
		calls   int // of 3
	}{
		"full":                       {[]window.Check{inFlight}, answers(full), 3},
		"sliding is full":            {[]window.Check{sliding, inFlight}, answers(full, room), 1},
		"both are full":              {[]window.Check{sliding, inFlight}, answers(full, full), 3},
		"full, and sliding has room": {[]window.Check{sliding, inFlight}, answers(room, full), 3},
	} {
		h := &handmade{answers: tt.answers}
		c := new(clock)
		p, err := local.New(h, local.Options{Clock: c.read})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got := take(t, p, tt.checks...); got[0].Allowed != tt.answers[0].Allowed {
				t.Errorf("%s: got %+v", name, got)
			}
			c.now += 100 * time.Millisecond
		}
		if h.calls != tt.calls {
			t.Errorf("%s: %d calls of the shared store, want %d", name, h.calls, tt.calls)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSharesOfPolicies: a process admits its part of hits, of a burst and of a rate while the
// shared store is away.
func TestSharesOfPolicies(t *testing.T) {
	const start = 1000 * second // a whole number of windows since 1970
	bucket := window.Limit{Hits: 50, Rate: 10, Window: second, Policy: window.TokenBucket}
	fixed := window.Limit{Hits: 30, Window: win, Policy: window.Fixed}
	calendar := window.Limit{Hits: 30, Window: win, Policy: window.Calendar}
	counter := window.Limit{Hits: 30, Window: win, Policy: window.SlidingCounter}
	full := func(reset time.Duration) *window.Decision {
		return &window.Decision{RetryAfter: reset, UnitAfter: reset, ResetAfter: reset}
	}
	for _, tt := range []struct {
		name     string
		l        window.Limit
		replicas int
		known    *window.Decision // at start
		admits   map[time.Duration]int
		order    []time.Duration // after start
	}{
		{"a bucket: burst and rate are divided", bucket, 2, nil, map[time.Duration]int{0: 25, second: 5, 3 * second: 10, time.Minute: 25}, []time.Duration{0, second, 3 * second, time.Minute}},
		{"a rate is rounded down", bucket, 3, nil, map[time.Duration]int{0: 16, second: 3, 2 * second: 3}, []time.Duration{0, second, 2 * second}},
		{"but is at least one", bucket, 20, nil, map[time.Duration]int{0: 2, second: 1}, []time.Duration{0, second}},
		// The bucket was empty. After a second 10 tokens are there for both processes.
		{
			"a known bucket fills on", bucket, 2, &window.Decision{RetryAfter: 100 * time.Millisecond, UnitAfter: 100 * time.Millisecond, ResetAfter: 5 * second},
			map[time.Duration]int{0: 0, second: 5, 2 * second: 5, 2*second + 200*time.Millisecond: 1},
			[]time.Duration{0, second, 2 * second, 2*second + 200*time.Millisecond},
		},
		{"fixed: a new share with each window", fixed, 3, nil, map[time.Duration]int{0: 10, 9 * second: 0, win: 10}, []time.Duration{0, 9 * second, win}},
		{"fixed: what is known counts until its end", fixed, 3, full(4 * second), map[time.Duration]int{6 * second: 10, 0: 0}, []time.Duration{0, 6 * second}},
		{"calendar: a share of each period", calendar, 3, nil, map[time.Duration]int{0: 10, 9 * second: 0, win: 10}, []time.Duration{0, 9 * second, win}},
		{"a counter has a share too", counter, 3, nil, map[time.Duration]int{0: 10, 9 * second: 0, 2 * win: 10}, []time.Duration{0, 9 * second, 2 * win}},
	} {
		c := &clock{start}
		s := newShares(t, always(tt.replicas), c)
		check := counted("a", tt.l)
		check.Period = window.Period{}
		if tt.l.Policy == window.Calendar {
			check.Period = window.Period{Start: 1000, End: 1010, Next: 1020}
		}
		if tt.known != nil {
			s.Learn(&check, tt.known)
		}
		for _, after := range tt.order {
			c.now = start + after
			admitted := 0
			var d window.Decision
			for range 200 {
				if d = take(t, s, check)[0]; !d.Allowed {
					break
				}
				admitted++
			}
			if want := tt.admits[after]; admitted != want {
				t.Errorf("%s: %d admitted after %v, want %d", tt.name, admitted, after, want)
			}
			if d.Allowed || d.Never {
				t.Fatalf("%s: %+v after %v, want a denial that ends", tt.name, d, after)
			}
			// The wait is true: not a microsecond before, and then it passes.
			c.now += d.RetryAfter
			if tt.l.Policy == window.Calendar {
				continue // the caller computes other periods then
			}
			question := check
			question.Cost = 0
			if got := take(t, s, question)[0]; !got.Allowed {
				t.Errorf("%s: denied after the wait of %v that was told after %v: %+v", tt.name, d.RetryAfter, after, got)
			}
			c.now -= micro
			if got := take(t, s, question)[0]; got.Allowed {
				t.Errorf("%s: room before the wait of %v that was told after %v", tt.name, d.RetryAfter, after)
			}
			c.now = start + after
		}
	}
}

// TestShareOfRequestsInFlight: a process has a part of max, and no request that the shared store
// knew of counts, because when it ends is not known.
func TestShareOfRequestsInFlight(t *testing.T) {
	s := newShares(t, always(4), &clock{})
	check := counted("up", window.Limit{Hits: 20, Window: time.Minute, Policy: window.InFlight})
	s.Learn(&check, &window.Decision{RetryAfter: time.Minute, UnitAfter: time.Minute, ResetAfter: time.Minute})
	if hits := local.ShareOf(s, &check); hits != 5 {
		t.Errorf("the share is %d of 20 in flight, want 5", hits)
	}
}
