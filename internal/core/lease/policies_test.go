package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
)

// A clock is a clock that the test sets.
type clock struct{ now time.Duration }

func (c *clock) read() time.Duration { return c.now }

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
		p := s.process(t, lease.Options{})
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
	p := s.process(t, lease.Options{})
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
	p := s.process(t, lease.Options{})
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
		p, err := lease.New(h, lease.Options{Clock: c.read})
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

// TestContractOfPolicies runs the suite of the policies that count hits.
func TestContractOfPolicies(t *testing.T) { runContract(t, 20_000, policytest.Run) }

// TestContractInFlight runs the suite of requests in flight through two processes that share a
// store.
func TestContractInFlight(t *testing.T) {
	policytest.RunInFlight(t, windowtest.Options{Steps: 10_000}, func(t *testing.T) policytest.InFlightHarness {
		s := newShared(t)
		return policytest.InFlightHarness{
			Stores: []window.Store{s.process(t, lease.Options{}), s.process(t, lease.Options{})},
			SetNow: s.setNow,
		}
	})
}
