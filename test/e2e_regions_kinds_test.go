package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/servers"
)

// startEnvoys starts three regions with an Envoy in each.
func startEnvoys(t *testing.T, rules string) (*regions, []*stack) {
	t.Helper()
	r := startRegions(t, rules, nil)
	var stacks []*stack
	for _, one := range r.all {
		s := &stack{t: t, app: newApplication(t), rls: one.rls}
		setup{}.startEnvoy(s)
		stacks = append(stacks, s)
	}
	return r, stacks
}

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
	r := startRegions(t, `
domain: edge
descriptors:
  - key: in_flight
    value: backend
    rate_limit: {name: backend, policy: in_flight, max: 20, hold: 5m, scope: global}
`, nil)
	var all []*inFlight
	for _, one := range r.all {
		b := &backend{open: make(chan struct{})}
		s := &stack{t: t, app: newApplication(t), rls: one.rls}
		setup{config: inFlightConfig, change: inFlightChanges(t), upstream: serveHTTP(t, b)}.startEnvoy(s)
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
		if got := f.get("/"); got.status != http.StatusTooManyRequests || f.backend.now.Load() != before {
			t.Errorf("region %d: got status %d with all places taken, want 429", i, got.status)
		}
		if n := logsOf(t, r.all[i].near); n != 0 {
			t.Errorf("region %d: %d logs of requests in flight are in its own Redis, want none", i, n)
		}
	}
	first()
	free(12)
	second := all[1].holdPlaces(12)
	free(0)

	// The line is cut when eight requests end. rls tells the global store afterwards.
	line := r.all[2].line
	line.Blackhole(true)
	last()
	eventually(t, "the ends to be reported", func() bool {
		return number(t, all[2].rls, `slidegate_stream_ends_total{result="failed"}`)+number(t, all[2].rls, `slidegate_stream_ends_total{result="released"}`) >= 8
	})
	all[0].wantPlaces(0)
	line.Blackhole(false)
	line.CloseAll()
	free(8)
	second()
	free(20)
	if n := logsOf(t, r.global); n != 0 {
		t.Errorf("%d logs of requests in flight are in the global Redis at rest, want none", n)
	}
	for i, f := range all {
		if n := number(t, f.rls, `slidegate_stream_ends_total{result="released"}`); n < []int{12, 12, 8}[i] {
			t.Errorf("region %d has given back the places of %d streams", i, n)
		}
	}
}

// TestDenialsOfAGlobalLimit: a region that is denied by a global limit repeats the denial from
// memory, and asks the global store again when another region has given hits back.
func TestDenialsOfAGlobalLimit(t *testing.T) {
	t.Parallel()
	_, stacks := startEnvoys(t, `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: contract, scope: global, window: 1h, requests: 30}
`)
	const key, remembered = "acme", "slidegate_local_denials_total"
	stacks[0].from("127.0.0.1").want(200, 30, "/", "x-api-key", key)
	for i, s := range stacks {
		// The first denial is from the store, unless the region has admitted the last hit.
		before := number(t, s.rls, remembered)
		s.from("127.0.0.1").want(429, 21, "/", "x-api-key", key)
		if n := number(t, s.rls, remembered) - before; n < 20 {
			t.Errorf("region %d: %d of 21 denials are from memory, want at least 20", i, n)
		}
	}
	// The message of the refund comes to each region over its line to the global store.
	postJSON(t, stacks[1].rls.HTTP(), refundOf(3, "api_key="+key))
	for i, s := range stacks {
		eventually(t, fmt.Sprintf("region %d to admit what was given back", i), func() bool {
			return s.from("127.0.0.1").get("/", "x-api-key", key).status == http.StatusOK
		})
	}
	for _, s := range stacks {
		s.from("127.0.0.1").want(429, 1, "/", "x-api-key", key)
		s.wantAllDecided()
	}
}

// TestLeasesOfAGlobalLimit: with leases in three regions, all together never admit more than the
// limit. What one region has reserved and not spent is admitted later, so in the end it is exactly
// the limit.
func TestLeasesOfAGlobalLimit(t *testing.T) {
	t.Parallel()
	const limit, key = 1500, "acme"
	r, stacks := startEnvoys(t, fmt.Sprintf(`
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: contract, scope: global, window: 1h, requests: %d, lease: 1s}
`, limit))
	var admitted atomic.Int64
	concurrently(t, 12, func(i int) error {
		c := stacks[i%len(stacks)].from("127.0.0.1")
		for range limit / 3 {
			switch got := c.get("/", "x-api-key", key); got.status {
			case http.StatusOK:
				admitted.Add(1)
			case http.StatusTooManyRequests:
			default:
				return fmt.Errorf("got status %d", got.status)
			}
		}
		return nil
	})
	leased, degraded := 0, 0
	check := func() {
		t.Helper()
		leased, degraded = 0, 0
		for _, s := range stacks {
			var state struct{ Leases struct{ Admitted int } }
			if err := json.Unmarshal([]byte(page(t, s.rls.Admin()+"/v1/state")), &state); err != nil {
				t.Fatal(err)
			}
			leased += state.Leases.Admitted
			degraded += number(t, s.rls, `slidegate_degraded_answers_total{choice="local"}`)
		}
		if n := int(admitted.Load()); n > limit+degraded {
			t.Fatalf("%d were admitted, %d of them without the global store; the limit is %d", n, degraded, limit)
		}
	}
	check()
	if leased == 0 {
		t.Error("no request was admitted by a lease")
	}
	eventually(t, "the rest of the limit to be admitted", func() bool {
		for _, s := range stacks {
			if s.from("127.0.0.1").get("/", "x-api-key", key).status == http.StatusOK {
				admitted.Add(1)
			}
		}
		return int(admitted.Load()) >= limit
	})
	check()
	for _, s := range stacks {
		s.from("127.0.0.1").want(429, 1, "/", "x-api-key", key)
		s.wantAllDecided()
	}
	if left := r.all[2].ask(0, "api_key="+key).remaining; degraded == 0 && (len(left) != 1 || left[0] != 0) {
		t.Errorf("%v remain in the global log, want none", left)
	}
}
