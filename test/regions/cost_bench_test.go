package regions

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/program"
	"github.com/slidegate/slidegate/test/servers"
)

// BenchmarkDecision measures what a decision costs Redis, and how many bytes it takes on the
// line, alone in a call and in a full one. They are the inputs of TestCapacity.
func BenchmarkDecision(b *testing.B) {
	for _, callers := range []int{1, 2000} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			for b.Loop() {
				measureDecisions(b, callers)
			}
		})
	}
}

// measureDecisions measures the cost of some decisions for callers that ask at the same time.
func measureDecisions(b *testing.B, callers int) {
	const decisions = 20_000
	server := servers.StartRedis(b)
	line := servers.StartProxy(b, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: line.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	near := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer near.Close()
	var shared, answers atomic.Int64 // the sum of 1/requests is how many calls there were
	s := redisstore.New(client, redisstore.Options{Prefix: "slidegate:", Timeout: 10 * time.Second, Answered: func(_ context.Context, requests int) {
		shared.Add(int64(1e9) / int64(requests))
		answers.Add(1)
	}})
	defer s.Close()
	take := func(caller int) error {
		key := fmt.Sprintf("{id.customer-%06d}:edge|api_key:id.customer-%06d", caller, caller)
		checks := []window.Check{{Key: key, Limit: window.Limit{Hits: 1_000_000, Window: time.Minute}, Cost: 1, Precision: 6 * time.Millisecond}}
		_, err := s.Take(b.Context(), window.MayWait, checks, make([]window.Decision, 1))
		return err
	}
	if err := take(0); err != nil {
		b.Fatal(err)
	}
	shared.Store(0)
	answers.Store(0)
	cpu, err := program.RedisCPU(b.Context(), near)
	if err != nil {
		b.Fatal(err)
	}
	there, back := line.Passed()
	var all sync.WaitGroup
	var next atomic.Int64
	for caller := range callers {
		all.Go(func() {
			for next.Add(1) <= decisions {
				if err := take(caller); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	after, err := program.RedisCPU(b.Context(), near)
	if err != nil {
		b.Fatal(err)
	}
	thereAfter, backAfter := line.Passed()
	calls := float64(shared.Load()) / 1e9
	b.ReportMetric(float64(answers.Load())/calls, "decisions/call")
	b.ReportMetric((after-cpu)/calls*1e6, "redis-µs/call")
	b.ReportMetric(float64(thereAfter-there)/calls, "sent-B/call")
	b.ReportMetric(float64(backAfter-back)/calls, "received-B/call")
}
