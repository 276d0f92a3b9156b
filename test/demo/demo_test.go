package main

import (
	"os"
	"testing"
	"time"
)

func TestFixedWindowStartsAgainEverySecond(t *testing.T) {
	second := time.Unix(1_000_000, 0)
	f := fixedWindow{limit: 2}
	for _, step := range []struct {
		at   time.Duration
		want bool
	}{
		{-20 * time.Millisecond, true},
		{-10 * time.Millisecond, true},
		{-1, false},
		{0, true}, // the same limit again, at once
		{10 * time.Millisecond, true},
		{20 * time.Millisecond, false},
		{999 * time.Millisecond, false},
		{time.Second, true},
	} {
		if got := f.allow(second.Add(step.at)); got != step.want {
			t.Errorf("at %v: got %t, want %t", step.at, got, step.want)
		}
	}
}

// sample is a burst as it should be: sent as planned, the second half denied.
func sample() *burst {
	b := &burst{requests: make([]request, 2*half)}
	f := fixedWindow{limit: limit}
	for i := range b.requests {
		r := &b.requests[i]
		r.offset = plan(i)
		r.fixed = f.allow(time.Unix(1_000_000, 0).Add(r.offset))
		r.allowed = i < half
		if r.allowed {
			r.remaining = limit - 1 - i
		} else {
			r.retryAfter = 1
		}
	}
	return b
}

func TestPlan(t *testing.T) {
	b := sample()
	if !b.asPlanned() {
		t.Error("the plan is not as planned")
	}
	for i, r := range b.requests[1:] {
		if r.offset <= b.requests[i].offset {
			t.Errorf("request %d is planned at %v, after %v", i+2, r.offset, b.requests[i].offset)
		}
	}
	if n := b.length(); n > 150*time.Millisecond {
		t.Errorf("the burst takes %v", n)
	}
	if n := b.admitted(fixed); n != 2*limit {
		t.Errorf("the fixed window admits %d, want twice the limit", n)
	}
	b.requests[half-1].offset = time.Millisecond
	if b.asPlanned() {
		t.Error("a request that is late by a second is as planned")
	}
}

// TestPoliciesDrawing holds docs/policies.svg to what the policies decide.
func TestPoliciesDrawing(t *testing.T) {
	want, err := policiesDrawing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/policies.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/policies.svg is not what the policies decide; go run ./test/demo -policies docs/policies.svg")
	}
}
