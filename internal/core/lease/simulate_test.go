package lease_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// A load is the requests for one key to several processes.
type load struct {
	rate      float64 // requests a second, over all processes, at random times
	limit     float64 // of the rate
	processes int
	roundTrip time.Duration // to the store and back; zero: 400 µs
	window    time.Duration // of the limit; zero: 1 s
}

// An outcome is the result of a load.
type outcome struct {
	asked, calls, admitted float64
}

// TestSimulation measures how many calls of the store are saved by denials from memory, and
// by leases. It compares what is admitted with what the store alone would admit. Time is simulated, so the figures of two machines differ only
// by the order of events at the same time.
func TestSimulation(t *testing.T) {
	const seconds = 3
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-28s %22s %22s\n", "requests/s, limit, processes", "calls a request", "admitted of exact")
	fmt.Fprintf(&table, "%-28s %11s %10s %11s %10s\n", "", "denials", "leases", "denials", "leases")
	for _, rate := range []float64{5000, 500, 50} {
		for _, limit := range []float64{2, 1, 0.5} {
			for _, processes := range []int{1, 4, 8} {
				if !random.Long() && (processes == 4 || rate == 5000 && limit == 1) {
					continue // between the others
				}
				l := load{rate: rate, limit: limit, processes: processes}
				exact := simulate(t, l, seconds, false, 0)
				denials := simulate(t, l, seconds, true, 0)
				leased := simulate(t, l, seconds, true, length)
				fmt.Fprintf(&table, "%6.0f %8.0f/s %10d %11.3f %10.3f %11.3f %10.3f\n", rate, rate*limit, processes,
					denials.calls/denials.asked, leased.calls/leased.asked,
					denials.admitted/exact.admitted, leased.admitted/exact.admitted)
				if got := denials.admitted / exact.admitted; got < 0.98 || got > 1.02 {
					t.Errorf("%+v: denials without the store admit %.3f of what the store would", l, got)
				}
				if got := leased.admitted / exact.admitted; got < 0.9 || got > 1.02 {
					t.Errorf("%+v: leases admit %.3f of what the store would", l, got)
				}
				if got := leased.calls / leased.asked; rate == 5000 && limit == 2 && got > 0.25 {
					t.Errorf("%+v: %.3f calls a request with leases, want few", l, got)
				}
			}
		}
	}
	t.Log(table.String())
}

// TestSimulationFar measures the same where the store is a long line away, with one process in
// each of three regions. A lease that is not much longer than the round trip is over when it
// arrives.
func TestSimulationFar(t *testing.T) {
	const seconds = 20
	var table strings.Builder
	table.WriteString("\n| round trip | lease | requests/s | calls for 1,000 requests | the same, limit at 90 % of the requests | admitted of exact |\n|---|---|---|---|---|---|\n")
	for _, roundTrip := range []time.Duration{40 * time.Millisecond, 80 * time.Millisecond} {
		for _, lease := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			for _, rate := range []float64{1000, 100, 10} {
				if !random.Long() && (rate == 100 || (lease == 200*time.Millisecond) != (roundTrip == 40*time.Millisecond)) {
					continue // between the others
				}
				roomy := load{rate: rate, limit: 2, processes: 3, roundTrip: roundTrip, window: 10 * time.Second}
				tight := roomy
				tight.limit = 0.9
				saves, full, exact := simulate(t, roomy, seconds, true, lease), simulate(t, tight, seconds, true, lease), simulate(t, tight, seconds, false, 0)
				share := full.admitted / exact.admitted
				fmt.Fprintf(&table, "| %v | %v | %.0f | %.0f | %.0f | %.3f |\n", roundTrip, lease, rate, 1000*saves.calls/saves.asked, 1000*full.calls/full.asked, share)
				if share < 0.95 || share > 1.02 {
					t.Errorf("round trip %v, lease %v, %.0f requests a second: leases admit %.3f of what the store would", roundTrip, lease, rate, share)
				}
				if got := saves.calls / saves.asked; lease == time.Second && rate == 1000 && got > 0.2 {
					t.Errorf("round trip %v: %.3f calls a request with a lease of a second, want few", roundTrip, got)
				}
			}
		}
	}
	t.Log(table.String())
}

// simulate runs a load. If locally is false, every request asks the store. If length is
// zero, there are no leases.
func simulate(t *testing.T, l load, seconds float64, locally bool, length time.Duration) (out outcome) {
	synctest.Test(t, func(t *testing.T) {
		s := newAhead()
		way := cmp.Or(l.roundTrip, 400*time.Microsecond) / 2
		s.slow(way, way)
		span := cmp.Or(l.window, time.Second)
		processes := make([]window.Store, l.processes)
		for i := range processes {
			processes[i] = s
			if !locally {
				continue
			}
			p, err := lease.New(s, lease.Options{Reserver: s})
			if err != nil {
				t.Fatal(err)
			}
			processes[i] = p
		}
		check := window.Check{
			Key: "k", Cost: 1, Limit: window.Limit{Hits: uint64(l.rate * l.limit * span.Seconds()), Window: span},
			Lease: window.Lease{Length: length},
		}
		r := rand.New(rand.NewPCG(1, 2))
		var asked, admitted atomic.Int64
		var wg sync.WaitGroup
		for at := 0.0; at < seconds; at += r.ExpFloat64() / l.rate {
			if d := time.Duration(at*float64(time.Second)) - s.now(); d > 0 {
				time.Sleep(d)
			}
			p := processes[r.IntN(l.processes)]
			wg.Go(func() {
				asked.Add(1)
				d := make([]window.Decision, 1)
				if _, err := p.Take(t.Context(), window.MayWait, []window.Check{check}, d); err != nil {
					t.Error(err)
				} else if d[0].Allowed {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		for _, p := range processes {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		calls, _ := s.counts()
		out = outcome{float64(asked.Load()), float64(calls), float64(admitted.Load())}
	})
	return out
}
