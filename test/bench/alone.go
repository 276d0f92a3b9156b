package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slidegate/slidegate/test/figures"
)

// aloneName is what the measurement of one caller is called.
const aloneName = "redis/alone/1"

// alone is how long one caller waits who asks one request after the other: the
// service on Redis, the bare server, and Redis itself for a PING, which is the
// round trip that the service cannot save.
type alone struct{ ours, bare, ping []time.Duration } // medians of rounds

// measureAlone asks each in turn, so that what slows the machine slows all.
func (b *bench) measureAlone(ctx context.Context) (a alone, err error) {
	t, err := b.service(ctx, "redis")
	if err != nil {
		return a, err
	}
	s := scenarios()[0]
	answer, err := s.sample(ctx, t.grpc, 1)
	if err != nil {
		return a, err
	}
	bare, stop, err := b.bare(ctx, answer)
	if err != nil {
		return a, err
	}
	defer stop()
	asker := func(address string) (func() error, func(), error) {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, nil, err
		}
		client := rlsv3.NewRateLimitServiceClient(conn)
		return func() error {
			answer, err := client.ShouldRateLimit(ctx, s.request)
			if err == nil {
				err = s.check(answer)
			}
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
	client := redis.NewClient(&redis.Options{Addr: t.redis})
	defer func() { _ = client.Close() }() // the server ends next
	askRedis := func() error { return client.Ping(ctx).Err() }

	for range b.rounds + 1 { // the first warms up
		var times [3][]time.Duration
		for range max(1000, b.requests/50) {
			for i, ask := range []func() error{askService, askBare, askRedis} {
				began := time.Now()
				if err := ask(); err != nil {
					return a, err
				}
				times[i] = append(times[i], time.Since(began))
			}
		}
		for i, into := range []*[]time.Duration{&a.ours, &a.bare, &a.ping} {
			slices.Sort(times[i])
			*into = append(*into, times[i][len(times[i])/2])
		}
	}
	a.ours, a.bare, a.ping = a.ours[1:], a.bare[1:], a.ping[1:]
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
	var both []time.Duration
	for i := range a.bare {
		both = append(both, a.bare[i]+a.ping[i])
	}
	ratios := figures.Ratios(column(a.ours), column(both))
	fmt.Fprintf(w, "\n| one caller, allowed | p50 µs | bare µs | PING µs | ratio to both (min–max) |\n|---|---|---|---|---|\n")
	fmt.Fprintf(w, "| redis | %.0f | %.0f | %.0f | **%.2f** (%.2f–%.2f) |\n", figures.Median(column(a.ours)),
		figures.Median(column(a.bare)), figures.Median(column(a.ping)), figures.Median(ratios), slices.Min(ratios), slices.Max(ratios))
}
