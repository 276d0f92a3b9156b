package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// priorities has a rule of each priority. No limit is reached.
const priorities = `
domain: edge
descriptors:
  - key: pay
    rate_limit: {unit: hour, requests_per_unit: 1000000, priority: high, on_store_error: allow}
  - key: browse
    rate_limit: {unit: hour, requests_per_unit: 1000000, on_store_error: allow}
  - key: crawl
    rate_limit: {unit: hour, requests_per_unit: 1000000, priority: low, on_store_error: allow}
`

// TestTenTimesWhatRedisBears sends ten times as many requests as a Redis decides that is behind a
// long line. Each must be answered before its deadline, by the store or by on_store_error. The
// store must decide those of the highest priority, which it can bear.
func TestTenTimesWhatRedisBears(t *testing.T) {
	const (
		distance = 400 * time.Millisecond
		bears    = 2 * 48 * int(time.Second/distance) // two calls of the script at a time
		// Of 20 requests, one is of the priority high: half of what Redis bears.
		tick    = 50 * time.Millisecond
		perTick = 10 * bears * int(tick) / int(time.Second) / 20 * 20
		ticks   = 80
	)
	server := servers.StartRedis(t)
	proxy := servers.StartProxy(t, server.Addr())
	env := stack.OnRedis(proxy.Addr())
	env[stack.EnvStoreTimeout] = "3s"
	rls := stack.Setup{Rules: priorities, Env: env}.Serve(t)
	client := rlsv3.NewRateLimitServiceClient(stack.Dial(t, rls))
	ask := func(key string) (degraded bool) {
		// Envoy's deadline. It is long, for a slow machine: a request must not wait for it.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		out, err := client.ShouldRateLimit(ctx, stack.Request(1, key+"=a"))
		if err != nil || out.GetOverallCode() != rlsv3.RateLimitResponse_OK {
			t.Errorf("%s: got %v, %v, want OK", key, out.GetOverallCode(), err)
			return true
		}
		return out.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue()
	}
	process.Eventually(t, "Redis to decide", func() bool { return !ask("pay") })
	proxy.Distance(distance)

	keys := map[string]*struct{ asked, decided atomic.Int64 }{"pay": {}, "browse": {}, "crawl": {}}
	var all sync.WaitGroup
	send := func(key string) {
		all.Go(func() {
			n := keys[key]
			n.asked.Add(1)
			if !ask(key) {
				n.decided.Add(1)
			}
		})
	}
	pace := time.NewTicker(tick)
	defer pace.Stop()
	for range ticks {
		for j := range perTick {
			switch {
			case j%20 == 0:
				send("pay")
			case j%2 == 0:
				send("browse")
			default:
				send("crawl")
			}
		}
		<-pace.C
	}
	all.Wait()

	share := func(key string) float64 { n := keys[key]; return float64(n.decided.Load()) / float64(n.asked.Load()) }
	t.Logf("the store decided %.0f %% of high, %.0f %% of normal, %.0f %% of low", 100*share("pay"), 100*share("browse"), 100*share("crawl"))
	if got := share("pay"); got < 0.9 {
		t.Errorf("the store decided %.0f %% of the requests with the priority high, want nearly all", 100*got)
	}
	if pay, browse, crawl := share("pay"), share("browse"), share("crawl"); pay <= browse || browse <= crawl {
		t.Errorf("the store decided %.2f of high, %.2f of normal and %.2f of low, want the more the higher", pay, browse, crawl)
	}
	if n := stack.Number(t, rls, `slidegate_store_refused_total{priority="high"}`); n > 0 {
		t.Errorf("%d requests of the priority high were refused, want none", n)
	}
	proxy.Distance(0)
	process.Eventually(t, "Redis to decide each request again", func() bool { return !ask("crawl") && !ask("browse") && !ask("pay") })
}
