package memstore_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	open := func(t *testing.T) windowtest.Harness {
		var now atomic.Int64
		s := memstore.New(memstore.Options{
			Clock: func() time.Duration { return time.Duration(now.Load()) },
			// The clock is set back at will: a swept log would have held it.
			SweepInterval: -1,
		})
		t.Cleanup(func() { s.Close() })
		return windowtest.Harness{Store: s, SetNow: func(d time.Duration) { now.Store(int64(d)) }}
	}
	o := windowtest.Options{Steps: 30_000, ShortWindows: true}
	policytest.Run(t, o, open)
	windowtest.Run(t, o, open)
}

// inFlight makes a harness for streams.
func inFlight(t *testing.T) policytest.InFlightHarness {
	var now atomic.Int64
	s := memstore.New(memstore.Options{
		Clock:         func() time.Duration { return time.Duration(now.Load()) },
		SweepInterval: -1, // the clock is set back at will
	})
	t.Cleanup(func() { s.Close() })
	return policytest.InFlightHarness{Stores: []window.Store{s}, SetNow: func(d time.Duration) { now.Store(int64(d)) }}
}

func TestInFlight(t *testing.T) {
	policytest.RunInFlight(t, windowtest.Options{Steps: 60_000}, inFlight)
}

func TestBudgets(t *testing.T) {
	policytest.RunBudgets(t, windowtest.Options{Steps: 60_000}, inFlight)
}

func TestOnce(t *testing.T) {
	policytest.RunOnce(t, windowtest.Options{Steps: 60_000, ShortWindows: true}, func(t *testing.T) windowtest.Harness {
		var now atomic.Int64
		s := memstore.New(memstore.Options{
			Clock:         func() time.Duration { return time.Duration(now.Load()) },
			SweepInterval: -1, // the clock is set back at will
		})
		t.Cleanup(func() { s.Close() })
		return windowtest.Harness{Store: s, SetNow: func(d time.Duration) { now.Store(int64(d)) }}
	})
}

// BenchmarkTake measures one request on the store's own clock: groups of one and
// three checks, allowed and denied, by one caller and by many, on a hundred
// thousand keys.
func BenchmarkTake(b *testing.B) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	windowtest.BenchmarkTake(b, s, 100_000, 1, window.Limit{Hits: 1 << 30, Window: time.Second})
}

// TestMemory measures what a key costs, everything but the bytes of the key
// itself included: the map, the log's header, and its slots. docs/operate.md has
// the numbers.
func TestMemory(t *testing.T) {
	for _, tt := range []struct {
		name string
		keys int
		hits int
		most int
	}{
		{"one hit", 50_000, 1, 120},
		{"ten hits", 6_000, 10, 220},
		{"a full log of 100", 4_000, 100, 1120},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const keyBytes = 16 // a size that the allocator has
			before := heap()
			var now time.Duration
			s := memstore.New(memstore.Options{Clock: func() time.Duration { return now }, SweepInterval: -1})
			defer s.Close()

			d := make([]window.Decision, 1)
			c := []window.Check{{Limit: window.Limit{Hits: 100, Window: time.Minute}, Cost: 1}}
			for key := range tt.keys {
				c[0].Key = fmt.Sprintf("%0*d", keyBytes, key)
				for range tt.hits {
					now += time.Microsecond
					if _, err := s.Take(t.Context(), window.MayWait, c, d); err != nil || !d[0].Allowed {
						t.Fatalf("got %+v, error %v, want allowed", d, err)
					}
				}
			}
			got := int(heap()-before)/tt.keys - keyBytes
			if counted := int(s.Stats().Bytes)/tt.keys - keyBytes; counted < got*9/10 || counted > got*11/10 {
				t.Errorf("the store counts %d bytes for each key, want %d within a tenth", counted, got)
			}
			runtime.KeepAlive(s)
			t.Logf("%d bytes for each of %d keys, and the key", got, tt.keys)
			if got > tt.most {
				t.Errorf("got %d bytes for each of %d keys, want at most %d", got, tt.keys, tt.most)
			}
		})
	}
}

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
