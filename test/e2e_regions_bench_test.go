package test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/program"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	benchLasts  = 20 * time.Second
	benchWindow = 10 * time.Second
	benchRate   = 500 // requests a second
)

// A timed is one request of a benchmark.
type timed struct {
	sent time.Duration // since the beginning
	took time.Duration
	told
}

// pace sends requests at an even rate, whatever the answers take, and returns them by their times.
func pace(ctx context.Context, lasts time.Duration, ask func(n int) told) []timed {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var mu sync.Mutex
	var all []timed
	begin := time.Now()
	program.Every(ctx, time.Second/benchRate, 5000, func(n int) {
		sent := time.Now()
		got := ask(n)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, timed{sent.Sub(begin), time.Since(sent), got})
	})
	slices.SortFunc(all, func(a, b timed) int { return int(a.sent - b.sent) })
	return all
}

// report reports what answers say, and how long they took.
func report(b *testing.B, all []timed) (admitted int) {
	var took []time.Duration
	degraded, failed := 0, 0
	for _, a := range all {
		took = append(took, a.took)
		switch {
		case a.err != nil:
			failed++
		case a.degraded:
			degraded++
		}
		if a.allowed {
			admitted++
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(len(all)), "requests")
	b.ReportMetric(float64(admitted), "admitted")
	b.ReportMetric(float64(degraded), "degraded")
	b.ReportMetric(float64(failed), "failed")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	return admitted
}

// ideal returns how many of the requests an exact log without a round trip admits, at the times at
// which they were sent.
func ideal(all []timed, limit int) int {
	var log []time.Duration
	admitted := 0
	for _, a := range all {
		for len(log) > 0 && log[0] <= a.sent-benchWindow {
			log = log[1:]
		}
		if len(log) < limit {
			log = append(log, a.sent)
			admitted++
		}
	}
	return admitted
}

// scripts returns how many calls of scripts a Redis has run.
func scripts(b *testing.B, s *servers.RedisServer) (n float64) {
	b.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	stats, err := client.InfoMap(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var calls float64
		if _, err := fmt.Sscanf(stats["Commandstats"][name], "calls=%g", &calls); err == nil {
			n += calls
		}
	}
	return n
}

// BenchmarkRegionsHotKey asks a global limit on one key at 500 requests a second, from a region
// that is a round trip away, without and with leases, below and above the limit.
func BenchmarkRegionsHotKey(b *testing.B) {
	for _, away := range distances[1:] {
		for _, lease := range []string{"none", "1s"} {
			for _, share := range []float64{2, 0.9, 0.5} {
				b.Run(fmt.Sprintf("away=%v/lease=%s/limit=%v", away, lease, share), func(b *testing.B) {
					limit := int(benchRate * share * benchWindow.Seconds())
					rules := fmt.Sprintf("domain: edge\ndescriptors:\n  - key: world\n    rate_limit: {name: world, scope: global, window: %v, requests: %d, lease: %s}\n", benchWindow, limit, lease)
					for b.Loop() {
						r := startRegions(b, rules, nil)
						one := r.all[0]
						one.line.Distance(away)
						before := scripts(b, r.global)
						there, back := one.line.Passed()
						all := pace(b.Context(), benchLasts, func(int) told { return one.ask(1, "world=hot") })
						admitted := report(b, all)
						thereAfter, backAfter := one.line.Passed()
						thousands := float64(len(all)) / 1000
						b.ReportMetric((scripts(b, r.global)-before)/thousands, "calls/1000")
						b.ReportMetric(float64(thereAfter-there+backAfter-back)/thousands/1000, "kB/1000")
						b.ReportMetric(float64(max(0, ideal(all, limit)-admitted)), "too-early")
					}
				})
			}
		}
	}
}

// BenchmarkRegionsTimeouts sends requests through Envoy that meet a regional and a global limit,
// with different timeouts of the scope and of Envoy.
func BenchmarkRegionsTimeouts(b *testing.B) {
	for _, c := range []struct {
		away, scope, envoy time.Duration
	}{
		{40 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond},
		{40 * time.Millisecond, 150 * time.Millisecond, 100 * time.Millisecond},
		{40 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond},
		{80 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond},
		{80 * time.Millisecond, 300 * time.Millisecond, 150 * time.Millisecond},
		{80 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond},
	} {
		b.Run(fmt.Sprintf("away=%v/scope=%v/envoy=%v", c.away, c.scope, c.envoy), func(b *testing.B) {
			rules := strings.NewReplacer("requests_per_unit: 300", "requests_per_unit: 1000000", "requests_per_unit: 40", "requests_per_unit: 1000000", "requests_per_unit: 600", "requests_per_unit: 3000000").Replace(exampleOfRegions(b))
			for b.Loop() {
				r := startRegions(b, rules, map[string]string{envScope + "TIMEOUT": c.scope.String(), envStoreTimeout: "15ms"})
				one := r.all[0]
				one.line.Distance(c.away)
				app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				defer app.Close()
				envoy := edge.Envoy(b, edge.EnvoyOptions{
					Config: edgeConfig, Upstream: app.Listener.Addr().String(), RLS: endpoint(one.rls),
					Replace: map[string]string{"timeout: 0.05s": fmt.Sprintf("timeout: %gs", c.envoy.Seconds())},
				})
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 5000}, Timeout: patience}
				all := pace(b.Context(), benchLasts/2, func(n int) told {
					req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, envoy.URL()+"/search", nil)
					if err != nil {
						return told{err: err}
					}
					req.Header.Set("x-api-key", fmt.Sprint("customer-", n%100))
					resp, err := client.Do(req)
					if err != nil {
						return told{err: err}
					}
					resp.Body.Close()
					return told{allowed: resp.StatusCode == http.StatusOK}
				})
				report(b, all)
				gaveUp, err := envoy.Stat("cluster.upstream.ratelimit.failure_mode_allowed")
				if err != nil {
					b.Fatal(err)
				}
				metrics, err := program.ReadMetrics(b.Context(), one.rls.Admin()+"/metrics")
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(gaveUp), "envoy-gave-up")
				b.ReportMetric(metrics.Sum("slidegate_degraded_answers_total"), "degraded")
			}
		})
	}
}
