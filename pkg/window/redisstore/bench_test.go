package redisstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/test/servers"
)

// BenchmarkTake measures one request to one Redis on this machine: groups of one
// and three checks, allowed and denied, by one caller and by many, on a thousand
// keys.
func BenchmarkTake(b *testing.B) {
	const keys = 1000
	client := newClient(b, servers.Redis(b))
	s := redisstore.New(client, redisstore.Options{})

	groups := func(name string, size int, limit window.Limit) [][]window.Check {
		all := make([][]window.Check, keys)
		for i := range all {
			for j := range size {
				all[i] = append(all[i], window.Check{
					Key: fmt.Sprintf("%s:%d:%d", name, i, j), Limit: limit, Cost: 1,
				})
			}
		}
		return all
	}
	for _, size := range []int{1, 3} {
		for _, outcome := range []struct {
			name  string
			limit window.Limit
			allow bool
		}{
			{"allowed", window.Limit{Hits: window.MaxHits - 1, Window: 10 * time.Second}, true},
			{"denied", window.Limit{Hits: 5, Window: time.Hour}, false},
		} {
			name := fmt.Sprintf("checks=%d/%s", size, outcome.name)
			all := groups(name, size, outcome.limit)
			for i := range all {
				for range 5 {
					take(b, s, all[i]...)
				}
			}
			call := func(b *testing.B, i int, d []window.Decision) {
				if _, err := s.Take(b.Context(), window.MayWait, all[i%keys], d); err != nil {
					b.Error(err)
				} else if windowtest.Allowed(d) != outcome.allow {
					b.Errorf("got %+v, want allowed %t", d, outcome.allow)
				}
			}
			b.Run(name+"/serial", func(b *testing.B) {
				b.ReportAllocs()
				d := make([]window.Decision, size)
				for i := 0; b.Loop(); i++ {
					call(b, i, d)
				}
			})
			b.Run(name+"/parallel", func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(16)
				var start atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					d := make([]window.Decision, size)
					for i := int(start.Add(7919)); pb.Next(); i++ {
						call(b, i, d)
					}
				})
			})
		}
	}
}

// BenchmarkTakeAll measures batches of 16 requests of one check, by one caller; an
// operation is a batch.
func BenchmarkTakeAll(b *testing.B) {
	const size = 16
	s := redisstore.New(newClient(b, servers.Redis(b)), redisstore.Options{})
	var requests []redisstore.Request
	for i := range size {
		requests = append(requests, request(check(fmt.Sprint(i), 1_000_000_000, 1)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.TakeAll(b.Context(), requests); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInFlight measures what Redis spends on a request in flight: on its denial by a full
// limit, and on its charge and its end.
func BenchmarkInFlight(b *testing.B) {
	client := newClient(b, servers.Redis(b))
	s := redisstore.New(client, redisstore.Options{})
	defer s.Close()
	stream := window.StreamID(0)
	next := func(most int) window.Check {
		stream++
		return window.Check{
			Key: fmt.Sprint(most), Cost: 1, Stream: stream,
			Limit: window.Limit{Hits: uint64(most), Window: time.Hour, Policy: window.InFlight},
		}
	}
	for _, most := range []int{10, 100, 1000, 10_000} {
		for range most - 1 {
			take(b, s, next(most))
		}
		b.Run(fmt.Sprintf("most=%d/chargeAndEnd", most), func(b *testing.B) {
			redisCPU(b, client, func() {
				c := next(most)
				if d := take(b, s, c); !d[0].Allowed {
					b.Fatalf("got %+v, want a place", d)
				}
				if held, err := s.End(b.Context(), c.Stream, time.Second); err != nil || !held {
					b.Fatalf("End: held %t, error %v", held, err)
				}
			})
		})
		take(b, s, next(most))
		b.Run(fmt.Sprintf("most=%d/denied", most), func(b *testing.B) {
			redisCPU(b, client, func() {
				if d := take(b, s, next(most)); d[0].Allowed {
					b.Fatalf("got %+v, want a denial", d)
				}
			})
		})
	}
}

// redisCPU runs a benchmark, and reports the time that the server spends on scripts.
func redisCPU(b *testing.B, client *redis.Client, call func()) {
	if err := client.ConfigResetStat(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		call()
	}
	stats, err := client.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, line, _ := strings.Cut(stats, "cmdstat_evalsha:")
	_, line, _ = strings.Cut(line, "usec=")
	spent, _, _ := strings.Cut(line, ",")
	micros, err := strconv.ParseFloat(spent, 64)
	if err != nil {
		b.Fatalf("commandstats: %v", err)
	}
	b.ReportMetric(micros/float64(b.N), "redis-us/op")
}

// BenchmarkReceipts measures one check without a receipt, with a new one each time, and as a
// repeat, by one caller. Compare them within one run.
func BenchmarkReceipts(b *testing.B) {
	s := redisstore.New(newClient(b, servers.Redis(b)), redisstore.Options{})
	defer s.Close()
	plain := window.Check{Key: "{k}", Cost: 1, Limit: window.Limit{Hits: window.MaxHits - 1, Window: 10 * time.Second}, Precision: time.Second}
	for name, next := range map[string]func(n uint64) window.Once{
		"none": func(uint64) window.Once { return window.Once{} },
		"new":  func(n uint64) window.Once { return window.Once{ID: 2 + n, For: time.Second, Repeats: 1} },
		"repeat": func(n uint64) window.Once {
			return window.Once{ID: 1<<40 + n/window.MaxRepeats, For: time.Hour, Repeats: window.MaxRepeats}
		},
	} {
		b.Run(name, func(b *testing.B) {
			c, d := [1]window.Check{plain}, [1]window.Decision{}
			for n := uint64(0); b.Loop(); n++ {
				c[0].Once = next(n)
				if _, err := s.Take(b.Context(), window.MayWait, c[:], d[:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
