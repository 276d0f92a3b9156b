package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// aloneName is the name of the measurement of one caller.
const aloneName = "redis/alone/1"

// alone has the times that a single caller waits for an answer of the service on Redis, of
// the bare server, and of Redis to a PING and to the script. The service cannot be faster
// than the script.
type alone struct{ ours, bare, ping, script []time.Duration } // medians of rounds

// measureAlone calls each in turn, so that a slow machine slows all.
func (b *bench) measureAlone(ctx context.Context) (a alone, err error) {
	t, err := b.service(onRedis)
	if err != nil {
		return a, err
	}
	s := limited("allowed", largeKey, 1, rlsv3.RateLimitResponse_OK)
	answer, err := s.sample(ctx, t.grpc, 1)
	if err != nil {
		return a, err
	}
	bare, stop, err := b.bare(bareName, s.Method, answer)
	if err != nil {
		return a, err
	}
	defer stop()
	asker := func(address string) (func() error, func(), error) {
		conn, err := traffic.Dial(address)
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			_, err := s.Send(ctx, conn)
			return err
		}, func() { _ = conn.Close() }, nil
	}
	askService, close1, err := asker(t.grpc)
	if err != nil {
		return a, err
	}
	defer close1()
	askBare, close2, err := asker(bare.grpc)
	if err != nil {
		return a, err
	}
	defer close2()
	askRedis := func() error { return t.redis.Ping(ctx).Err() }
	store := redisstore.New(t.redis, redisstore.Options{Timeout: time.Minute})
	defer func() { _ = store.Close() }() // there is nothing to lose
	check := [1]window.Check{{Key: "alone", Limit: window.Limit{Hits: 1 << 31, Window: time.Second}, Cost: 1, Precision: 100 * time.Microsecond}}
	askScript := func() error {
		var decision [1]window.Decision
		_, err := store.Take(ctx, window.MayWait, check[:], decision[:])
		return err
	}

	for range b.rounds + 1 { // the first warms up
		var times [4][]time.Duration
		for range max(1000, b.requests/50) {
			for i, ask := range []func() error{askService, askBare, askRedis, askScript} {
				began := time.Now()
				if err := ask(); err != nil {
					return a, err
				}
				times[i] = append(times[i], time.Since(began))
			}
		}
		for i, into := range []*[]time.Duration{&a.ours, &a.bare, &a.ping, &a.script} {
			slices.Sort(times[i])
			*into = append(*into, times[i][len(times[i])/2])
		}
	}
	a.ours, a.bare, a.ping, a.script = a.ours[1:], a.bare[1:], a.ping[1:], a.script[1:]
	fmt.Fprintf(b.progress, "%s  %v\n", aloneName, a)
	return a, nil
}

// write writes the result as a Markdown table.
func (a alone) write(w io.Writer) {
	if len(a.ours) == 0 {
		return
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	column := func(all []time.Duration) []float64 { return figures.Column(all, micros) }
	ratio := func(redis []time.Duration) string {
		both := make([]time.Duration, len(redis))
		for i := range both {
			both[i] = a.bare[i] + redis[i]
		}
		return figures.Spread(figures.Ratios(column(a.ours), column(both)), 2)
	}
	figures.Head(w, "| one caller, allowed | p50 µs | bare µs | PING µs | ratio to bare and PING (min–max) | the script alone µs | ratio to bare and script (min–max) |")
	fmt.Fprintf(w, "| redis | %.0f | %.0f | %.0f | %s | %.0f | %s |\n", figures.Median(column(a.ours)), figures.Median(column(a.bare)),
		figures.Median(column(a.ping)), ratio(a.ping), figures.Median(column(a.script)), ratio(a.script))
	fmt.Fprintln(w)
}
