package accesslog

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrderOfMany gives records of many to a second in the order of their times, and those of one
// time in the order in which they came. Some come when their second is already given back.
func TestOrderOfMany(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		var o order
		type record struct {
			at int64
			n  uint64
		}
		var waiting []record
		add := func(begin, length int64, count int) {
			for range count {
				one := record{begin + r.Int64N(length), o.seq<<32 | uint64(len(waiting))}
				if r.IntN(2) == 0 {
					one.at = one.at / 1e6 * 1e6 // logs have milliseconds
				}
				waiting = append(waiting, one)
				o.add(held{at: one.at, record: binary.LittleEndian.AppendUint64(nil, one.n)})
			}
		}
		give := func(until int64) {
			slices.SortStableFunc(waiting, func(a, b record) int { return int(min(max(a.at-b.at, -1), 1)) })
			for {
				got, ok := o.take(until, 1<<20)
				if !ok {
					return
				}
				if n := binary.LittleEndian.Uint64(got.record); got.at != waiting[0].at || n != waiting[0].n {
					t.Fatalf("seed %d: got %d of %d, want %v", seed, n, got.at, waiting[0])
				}
				waiting = waiting[1:]
			}
		}
		const second = int64(1e9)
		for begin := int64(1000); begin < 1010; begin++ {
			add(begin*second, 3*second, r.IntN(500))
			give((begin + 1) * second)
			add(begin*second, second, r.IntN(10)) // late
			give((begin + 1) * second)
		}
		give(math.MaxInt64)
		if len(waiting) > 0 || o.held != 0 {
			t.Errorf("seed %d: %d records and %d bytes are left", seed, len(waiting), o.held)
		}
	}
}
