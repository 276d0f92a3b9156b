package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/bench/internal/metrics"
	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

// TestSoak is a run that shows that the program works.
func TestSoak(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	failures, err := soak(t.Context(), options{lasts: 2 * time.Second, every: 200 * time.Millisecond, rate: 300}, &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range failures {
		t.Error(f)
	}
	rows := regexp.MustCompile(`(?m)^\| \d.*\|$`).FindAllString(out.String(), -1)
	if len(rows) < 2 { // ten, but a busy machine skips some
		t.Errorf("got %d lines, want one each 200 ms:\n%s", len(rows), &out)
	}
	for _, row := range rows {
		if header, _, _ := strings.Cut(out.String(), "\n"); strings.Count(row, "|") != strings.Count(header, "|") {
			t.Errorf("a line has other columns than the head:\n%s\n%s", header, row)
		}
	}
	for _, kind := range []string{"steady", "proper", "hasty", "reset", "narrow", "old", "cut", "silent", "limits", "checks", "health checks", "Canceled"} {
		if !strings.Contains(out.String(), kind+" ") {
			t.Errorf("there was nothing of %q:\n%s", kind, &out)
		}
	}
}

func TestCalls(t *testing.T) {
	for _, q := range []*call{anyCall(), usedUp(), apiKeyCheck(), healthCheck()} {
		for _, m := range []proto.Message{
			traffic.NewAnswer(q.Method), // without a word
			&rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK},
			&rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OVER_LIMIT},
			&authv3.CheckResponse{},
			&healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING},
		} {
			if m.ProtoReflect().Type() != traffic.NewAnswer(q.Method).ProtoReflect().Type() {
				continue
			}
			bytes, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Read(bytes); !errors.Is(err, traffic.ErrWrong) {
				t.Errorf("%s %v: the answer %v is taken: %v", q.kind, q.Request, m, err)
			}
		}
	}
}

func TestTally(t *testing.T) {
	refused := status.Error(codes.Unavailable, "refused")
	for _, tt := range []struct {
		name  string
		count func(*tally)
		want  []string
	}{
		{"answered", func(*tally) {}, nil},
		{"failed", func(c *tally) { c.called(usedUp(), "steady", refused) }, []string{
			"1 calls: Unavailable", "such as steady, limits: rpc error: code = Unavailable desc = refused",
		}},
		{"wrong", func(c *tally) { c.called(usedUp(), "steady", fmt.Errorf("%w: x", traffic.ErrWrong)) }, []string{
			"1 calls: wrong answer", "such as steady, limits: wrong answer: x",
		}},
		{"given up", func(c *tally) { c.excused(usedUp(), "hasty", status.Error(codes.Canceled, ""), codes.Canceled) }, nil},
		{"given up and answered", func(c *tally) { c.excused(usedUp(), "hasty", nil, codes.Canceled) }, nil},
		{"no time left", func(c *tally) {
			c.excused(usedUp(), "hasty", status.Error(codes.Unavailable, noTimeLeft), codes.DeadlineExceeded)
		}, nil},
		{"given up, but that is not why", func(c *tally) { c.excused(usedUp(), "hasty", refused, codes.Canceled) }, []string{
			"1 calls: Unavailable", "such as hasty, limits: rpc error: code = Unavailable desc = refused",
		}},
	} {
		c := newTally()
		c.called(usedUp(), "steady", nil)
		c.called(apiKeyCheck(), "steady", nil)
		tt.count(c)
		if got := c.failures(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if newTally().failures() == nil {
		t.Error("a run without calls is a good one")
	}
}

func TestGrown(t *testing.T) {
	flat := func(n int) []metrics.State {
		states := make([]metrics.State, n)
		for i := range states {
			// As it grows at first, that is of no interest.
			states[i] = metrics.State{Goroutines: 100, Files: 50, Heap: 4e6, Resident: 30e6}
			if i < n/2 {
				states[i] = metrics.State{Goroutines: float64(i)}
			}
		}
		return states
	}
	for _, tt := range []struct {
		name   string
		change func(*metrics.State)
		want   string
	}{
		{"as ever", func(*metrics.State) {}, ""},
		{"a little", func(s *metrics.State) { *s = metrics.State{Goroutines: 119, Files: 64, Heap: 6.2e6, Resident: 40e6} }, ""},
		{"goroutines", func(s *metrics.State) { s.Goroutines = 121 }, "121 goroutines in the last quarter, 100 in the one before"},
		{"files", func(s *metrics.State) { s.Files = 66 }, "66 open files in the last quarter, 50 in the one before"},
		{"heap", func(s *metrics.State) { s.Heap = 7e6 }, "7000000 bytes of live heap in the last quarter, 4000000 in the one before"},
		{"memory", func(s *metrics.State) { s.Resident = 42e6 }, "42000000 bytes of resident memory in the last quarter, 30000000 in the one before"},
	} {
		states := flat(40)
		for i := range states[30:] {
			tt.change(&states[30+i])
		}
		if got := strings.Join(grown(states), "; "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	for n := range 5 {
		if got := grown(flat(n)); got != nil {
			t.Errorf("%d states: got %q", n, got)
		}
	}
}

func TestRemains(t *testing.T) {
	before := metrics.State{Goroutines: 80, Files: 15}
	for _, tt := range []struct {
		after metrics.State
		want  int
	}{
		{before, 0},
		{metrics.State{Goroutines: 85, Files: 20}, 0},
		{metrics.State{Goroutines: 86, Files: 15}, 1},
		{metrics.State{Goroutines: 86, Files: 21}, 2},
	} {
		if got := remains(before, tt.after); len(got) != tt.want {
			t.Errorf("%v: got %q, want %d complaints", tt.after, got, tt.want)
		}
	}
}
