package test

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/edge"
)

// TestFloodOfMadeUpKeys has many callers send a new made-up key with each request. In
// no second may there be more lookups than the setting allows. The number of records
// is bounded, customers get their tier, and all made-up keys share one log.
func TestFloodOfMadeUpKeys(t *testing.T) {
	const (
		lookups = 60 // in a second
		held    = 50
		seconds = 4
		limit   = 12 // of all unknown keys from an address
	)
	rules := strings.Replace(tiersApart, "1000001", strconv.Itoa(limit), 1)
	eachSource(t, func(t *testing.T, h *customerSource) {
		asked := h.asked()
		var known []customer
		for i := range 5 {
			known = append(known, customer{id: fmt.Sprintf("c%d", i), tier: "pro", keys: []string{fmt.Sprintf("k-%d", i)}})
		}
		h.put(known...)
		rls := h.serve(rules, map[string]string{
			envTiersLookups: strconv.Itoa(lookups), "SLIDEGATE_TIERS_CACHE_UNKNOWN": strconv.Itoa(held),
			// Records of customers expire all the time.
			envTiersTTL: "1s", envTiersWait: "100ms", envAuthzWait: "100ms",
		})
		ways := waysToAsk(t, rls)
		for _, c := range known {
			// Until the source has answered, a key is limited as an unknown one. An authorization
			// then charges nothing, so that the log of unknown keys stays empty.
			eventually(t, "a customer to be known", func() bool { return ways["authorization"](c.keys[0]) == "pro" })
			if got := ways["limits"](c.keys[0]); got != "pro" {
				t.Errorf("limits of %s, who is known: got %q, want pro", c.id, got)
			}
		}

		var requests, passed atomic.Int64
		var limits []func(...string) (*rlsv3.RateLimitResponse, error)
		var authz []askFunc
		for range callers {
			limits, authz = append(limits, limiter(t, rls)), append(authz, waysToAsk(t, rls)["authorization"])
		}
		stop := workers(t, callers, callerPace, func(i, n int) bool {
			key := rand.Text()
			if i%3 == 0 {
				if got := authz[i](key); got != "401" && got != "no decision" && t.Context().Err() == nil {
					t.Errorf("authorization of a key that was made up: got %q", got)
				}
				return true
			}
			requests.Add(1)
			// Half of them have the descriptors in the other order.
			descriptors := []string{"api_key=" + key, "remote_address=192.0.2.1"}
			if n%2 == 0 {
				slices.Reverse(descriptors)
			}
			out, err := limits[i](descriptors...)
			switch {
			case err != nil && t.Context().Err() == nil:
				t.Errorf("limits of a key that was made up: %v", err)
			case out.GetOverallCode() == rlsv3.RateLimitResponse_OK:
				passed.Add(1)
			}
			return true
		})
		asks := waysToAsk(t, rls)
		customers := 0
		eventually(t, "the source to be asked for some seconds", func() bool {
			for path, ask := range asks {
				for _, c := range known {
					customers++
					if got := ask(c.keys[0]); got != "pro" {
						t.Errorf("%s during the flood: %s: got %q, want pro", path, c.id, got)
					}
				}
			}
			return len(asked()) >= lookups*seconds
		})
		stop()

		times := asked()
		way := slowest(t, rls) + 50*time.Millisecond
		t.Logf("%d questions in %v, at most %d in a second, answered within %v; %d requests of strangers, %d of customers",
			len(times), times[len(times)-1].Sub(times[0]), busiest(times, time.Second), way, requests.Load(), customers)
		// The times are of the source's clock. A lookup that arrives in a second may have
		// been sent before it.
		if most := busiest(times, time.Second-way); most > lookups {
			t.Errorf("questions in one second: got %d, want at most %d", most, lookups)
		}
		all := times[len(times)-1].Sub(times[0]) + way
		if most := lookups * (int(all/time.Second) + 1); len(times) > most {
			t.Errorf("questions in %v: got %d, want at most %d", all, len(times), most)
		}
		if got := number(t, rls, metricUnknownHeld); got > held || got < held/2 {
			t.Errorf("%s: got %d, want about %d and no more", metricUnknownHeld, got, held)
		}
		if number(t, rls, metricLimited) == 0 {
			t.Errorf("%s is 0, want that the limit was met", metricLimited)
		}
		if got := passed.Load(); got != limit {
			t.Errorf("%d requests with keys that were made up: %d passed, want %d", requests.Load(), got, limit)
		}
	})
}

// slowest returns an upper bound of the time of all lookups.
func slowest(t *testing.T, rls *edge.RLSServer) time.Duration {
	t.Helper()
	const name = "slidegate_tiers_source_seconds"
	metrics := page(t, rls.Admin()+"/metrics")
	_, all, _ := strings.Cut(metrics, "\n"+name+"_count ")
	all, _, _ = strings.Cut(all, "\n")
	for line := range strings.Lines(metrics) {
		// The buckets are in order, and count what is in those before.
		rest, ok := strings.CutPrefix(line, name+`_bucket{le="`)
		if bound, n, _ := strings.Cut(rest, `"} `); ok && strings.TrimSpace(n) == all {
			seconds, err := strconv.ParseFloat(bound, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(min(seconds, 3600) * float64(time.Second)) // the last one is infinite
		}
	}
	t.Fatalf("no bucket of %s has all %s", name, all)
	return 0
}

// busiest returns the largest number of times, which are in order, within d.
func busiest(times []time.Time, d time.Duration) int {
	if d <= 0 {
		return 0
	}
	most, first := 0, 0
	for i, at := range times {
		for at.Sub(times[first]) >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// monitor calls each for every command that a Redis gets from now on, in the form of
// the command MONITOR. It returns when the Redis has agreed.
func monitor(t *testing.T, addr string, each func(line string)) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: got %q, %v", lines.Text(), lines.Err())
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		for lines.Scan() {
			each(lines.Text())
		}
		if errors.Is(lines.Err(), bufio.ErrTooLong) {
			t.Errorf("MONITOR: %v", lines.Err())
		}
	}()
}

// hashReads returns the times at which a Redis was asked for a hash whose name begins
// with prefix, by its own clock.
func hashReads(t *testing.T, addr, prefix string) func() []time.Time {
	t.Helper()
	var mu sync.Mutex
	var times []time.Time
	monitor(t, addr, func(line string) {
		// +1700000000.123456 [0 127.0.0.1:4711] "hmget" "slidegate:tier:key:2c70…"
		at, command, _ := strings.Cut(strings.TrimPrefix(line, "+"), " ")
		if !strings.Contains(strings.ToLower(command), `"hmget" "`+prefix) {
			return
		}
		seconds, err := strconv.ParseFloat(at, 64)
		if err != nil {
			t.Errorf("MONITOR printed %q", line)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		times = append(times, time.UnixMicro(int64(seconds*1e6)))
	})
	return func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(times)
	}
}

// statements returns the times at which a PostgreSQL was asked for a key, by its own log
// and clock. The prefix of the log's lines is a Unix time.
func statements(log string) (times []time.Time) {
	for line := range strings.Lines(log) {
		at, rest, _ := strings.Cut(line, " ")
		if !strings.Contains(rest, "execute") || !strings.Contains(rest, "SELECT s.id AS subject") {
			continue
		}
		if seconds, err := strconv.ParseFloat(at, 64); err == nil {
			times = append(times, time.UnixMicro(int64(seconds*1e6)))
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}
