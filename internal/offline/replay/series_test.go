package replay

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestSeries counts requests at random times and compares every bucket with a naive count.
func TestSeries(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		span := time.Duration(r.Int64N(int64(time.Second) << r.IntN(33)))
		begin := time.Duration(r.Int64N(int64(60 * 365 * 24 * time.Hour)))
		var s Series
		var times []time.Duration
		var refused []bool
		at := begin
		for range 300 {
			at += time.Duration(r.Int64N(int64(span/150) + 1))
			times, refused = append(times, at), append(refused, r.IntN(3) == 0)
			s.Count(at, refused[len(refused)-1])
		}
		n := len(s.Requests)
		if n == 0 || n > maxBuckets || n != len(s.Denied) {
			t.Fatalf("seed %d: %d and %d buckets", seed, n, len(s.Denied))
		}
		length := time.Duration(s.Seconds) * time.Second
		requests, denied := make([]uint64, n), make([]uint64, n)
		for i, at := range times {
			b := int(at-time.Duration(s.From.UnixNano())) / int(length)
			requests[b]++
			if refused[i] {
				denied[b]++
			}
		}
		for b := range requests {
			if requests[b] != s.Requests[b] || denied[b] != s.Denied[b] {
				t.Fatalf("seed %d, bucket %d: got %d and %d, want %d and %d", seed, b, s.Requests[b], s.Denied[b], requests[b], denied[b])
			}
		}
		if s.From.UnixNano()%int64(length) != 0 {
			t.Errorf("seed %d: %v is no multiple of %v", seed, s.From, length)
		}
	}
}
