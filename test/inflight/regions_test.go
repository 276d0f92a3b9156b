package inflight

import (
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// logsOf returns how many logs of requests in flight are in a Redis.
func logsOf(t *testing.T, s *servers.RedisServer) int {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	names, err := client.Keys(t.Context(), "*:h").Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestInFlightInAllRegions: a limit of requests in flight in a global scope counts the requests of
// all regions, and the end of each gives its place back in the global store, also if the line to it
// is cut when the request ends.
func TestInFlightInAllRegions(t *testing.T) {
	// Not beside other tests: a call that takes 700 ms is answered by the share of its region.
	r := stack.StartRegions(t, `
domain: edge
descriptors:
  - {key: in_flight, value: backend, rate_limit: {name: backend, policy: in_flight, max: 20, hold: 5m, scope: global}}
`, nil)
	var all []*inFlight
	for _, one := range r.All {
		b := &backend{open: make(chan struct{})}
		s := &stack.Stack{T: t, App: stack.NewApplication(t), RLS: one.RLS}
		stack.Setup{Config: stack.InFlightConfig, Change: inFlightChanges(t), Upstream: stack.ServeHTTP(t, b)}.StartEnvoy(s)
		all = append(all, &inFlight{s, b})
	}
	free := func(want uint32) {
		t.Helper()
		for _, f := range all {
			f.wantPlaces(want)
		}
	}
	first, last := all[0].holdPlaces(12), all[2].holdPlaces(8)
	free(0)
	for i, f := range all {
		before := f.backend.now.Load()
		if got := f.Get("/"); got.Status != http.StatusTooManyRequests || f.backend.now.Load() != before {
			t.Errorf("region %d: got status %d with all places taken, want 429", i, got.Status)
		}
		if n := logsOf(t, r.All[i].Near); n != 0 {
			t.Errorf("region %d: %d logs of requests in flight are in its own Redis, want none", i, n)
		}
	}
	first()
	free(12)
	second := all[1].holdPlaces(12)
	free(0)

	// The line is cut when eight requests end. rls tells the global store afterwards.
	line := r.All[2].Line
	line.Blackhole(true)
	last()
	process.Eventually(t, "the ends to be reported", func() bool {
		return stack.Number(t, all[2].RLS, `slidegate_stream_ends_total{result="failed"}`)+stack.Number(t, all[2].RLS, `slidegate_stream_ends_total{result="released"}`) >= 8
	})
	all[0].wantPlaces(0)
	line.Blackhole(false)
	line.CloseAll()
	free(8)
	second()
	free(20)
	if n := logsOf(t, r.Global); n != 0 {
		t.Errorf("%d logs of requests in flight are in the global Redis at rest, want none", n)
	}
	for i, f := range all {
		if n := stack.Number(t, f.RLS, `slidegate_stream_ends_total{result="released"}`); n < []int{12, 12, 8}[i] {
			t.Errorf("region %d has given back the places of %d streams", i, n)
		}
	}
}
