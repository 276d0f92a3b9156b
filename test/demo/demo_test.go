package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
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

func TestSummary(t *testing.T) {
	b := sample()
	want := "Limit 10 a second, 20 requests within 128ms: the fixed window admitted 20, slidegate exactly 10."
	if got := b.summary(); got != want {
		t.Errorf("summary = %q, want %q", got, want)
	}
	b.requests[half].allowed = true
	if got := b.summary(); !strings.HasSuffix(got, "slidegate 11.") {
		t.Errorf("summary = %q, want it to say 11", got)
	}
	if r := b.lastDenied(); r != &b.requests[2*half-1] {
		t.Errorf("lastDenied = %v", r)
	}
	if r := (&burst{}).lastDenied(); r != nil {
		t.Errorf("lastDenied of nothing = %v", r)
	}
}

func TestParseRemaining(t *testing.T) {
	for field, want := range map[string]int{`"per-key";r=9;t=1`: 9, `"per-key"; t=1; r=0`: 0} {
		if got, err := parseRemaining(field); err != nil || got != want {
			t.Errorf("parseRemaining(%q) = %d, %v, want %d", field, got, err, want)
		}
	}
	for _, field := range []string{"", `"per-key"`, `"per-key";t=1`, `"per-key";r=x`, `"per-key";r=-1`} {
		if got, err := parseRemaining(field); err == nil {
			t.Errorf("parseRemaining(%q) = %d, want an error", field, got)
		}
	}
}

func TestTimeLine(t *testing.T) {
	b := sample()
	for name, tt := range map[string]struct {
		by              lane
		allowed, denied int
	}{"fixed window": {fixed, 20, 0}, "slidegate": {slidegate, 10, 10}} {
		line := timeLine(b, tt.by)
		if a, d := strings.Count(line, string(markAllowed)), strings.Count(line, string(markDenied)); a != tt.allowed || d != tt.denied {
			t.Errorf("%s: %s has %d and %d marks, want %d and %d", name, line, a, d, tt.allowed, tt.denied)
		}
		if n := len([]rune(line)); n != lineWidth {
			t.Errorf("%s: %d columns, want %d", name, n, lineWidth)
		}
	}
	var out strings.Builder
	writeTable(&out, b)
	writeTimeLine(&out, b)
	for _, want := range []string{"  1     -64 ms   admitted      admitted           9", " 20     +64 ms   admitted      denied             0          1 s", "a full second", "20 admitted"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not have %q:\n%s", want, &out)
		}
	}
}

func TestReach(t *testing.T) {
	for last, want := range map[time.Duration]time.Duration{
		0: 20 * time.Millisecond, time.Millisecond: 20 * time.Millisecond, 80 * time.Millisecond: 80 * time.Millisecond, 81 * time.Millisecond: 100 * time.Millisecond,
	} {
		b := &burst{requests: []request{{offset: 0}, {offset: last}}}
		if got := reach(b); got != want {
			t.Errorf("reach to %v = %v, want %v", last, got, want)
		}
	}
}

func TestDrawing(t *testing.T) {
	text := drawing(sample(), `Through <Envoy> & "co"`)
	elements := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	// One disc and one cross more than the marks: the legend.
	for name, want := range map[string]int{"title": 1, "desc": 1, "circle": 31, "path": 11} {
		if elements[name] != want {
			t.Errorf("%d <%s>, want %d", elements[name], name, want)
		}
	}
	if strings.Contains(text, "http") && strings.Count(text, "http") != 1 {
		t.Error("the drawing refers to something outside of it")
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
