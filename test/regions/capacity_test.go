package regions

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Inputs of the capacity. The costs are what BenchmarkDecision measures: of a call of the script
// by itself, and of each decision in it.
const (
	regions       = 10
	perRegion     = 100_000 // requests a second in each region
	instances     = 10      // of rls in each region
	perCall       = 48      // decisions in one call at most
	nearCalls     = 2       // of one instance to one server at a time
	farCalls      = 8       // the same, to the store of a scope
	busyMost      = 0.5     // of a server's time
	callCost      = 16e-6   // seconds
	decisionCost  = 3.7e-6
	callSent      = 91 // bytes, without those of TCP and IP
	decisionSent  = 118
	callBack      = 14
	decisionBack  = 26
	nearRoundTrip = 400 * time.Microsecond
)

// shards returns how many servers keep below busyMost if all calls are full.
func shards(decisions float64) int {
	return max(1, int(math.Ceil(decisions*(callCost/perCall+decisionCost)/busyMost)))
}

// A line is what instances ask one server.
type line struct {
	instances int
	decisions float64 // a second, of all instances together
	roundTrip time.Duration
	calls     int // of one instance at a time
}

// A seen is what a simulation of a line has counted.
type seen struct {
	batch    float64 // decisions a call
	busy     float64 // of the server's time
	p50, p99 time.Duration
	behind   bool // the last decision waits much longer than a round trip
}

// An instance asks as rls does: what comes while all its calls are under way waits, and shares
// the next call.
type instance struct {
	waiting []float64 // when each decision was asked for, in seconds
	calls   int
}

// A moment is when something happens.
type moment struct {
	at     float64
	number int
	happen func(at float64)
}

type moments []moment

func (m *moments) Len() int      { return len(*m) }
func (m *moments) Swap(i, j int) { (*m)[i], (*m)[j] = (*m)[j], (*m)[i] }
func (m *moments) Less(i, j int) bool {
	a, b := (*m)[i], (*m)[j]
	return a.at < b.at || a.at == b.at && a.number < b.number
}
func (m *moments) Push(e any) { *m = append(*m, e.(moment)) }
func (m *moments) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// simulate lets the instances of a line ask for some seconds of virtual time, with decisions at
// random times. A server runs one call after the other.
func (l line) simulate(lasts float64) (s seen) {
	r := rand.New(rand.NewPCG(20, 26))
	var todo moments
	plan := func(at float64, happen func(float64)) {
		heap.Push(&todo, moment{at, len(todo), happen})
	}
	way, free := l.roundTrip.Seconds()/2, 0.0
	var waits []float64
	asked, calls := 0, 0
	var send func(at float64, i *instance)
	send = func(at float64, i *instance) {
		n := min(len(i.waiting), perCall)
		if n == 0 || i.calls == l.calls {
			return
		}
		those := slices.Clone(i.waiting[:n])
		i.waiting = i.waiting[n:]
		i.calls++
		calls++
		plan(at+way, func(at float64) {
			cost := callCost + float64(n)*decisionCost
			free = max(free, at) + cost
			s.busy += cost / lasts
			plan(free+way, func(at float64) {
				for _, from := range those {
					waits = append(waits, at-from)
				}
				i.calls--
				send(at, i)
			})
		})
	}
	for range l.instances {
		i := new(instance)
		var ask func(at float64)
		ask = func(at float64) {
			asked++
			i.waiting = append(i.waiting, at)
			send(at, i)
			if next := at + r.ExpFloat64()*float64(l.instances)/l.decisions; next < lasts {
				plan(next, ask)
			}
		}
		plan(r.ExpFloat64()*float64(l.instances)/l.decisions, ask)
	}
	for len(todo) > 0 {
		m := heap.Pop(&todo).(moment)
		m.happen(m.at)
	}
	s.behind = waits[len(waits)-1] > 4*l.roundTrip.Seconds()+0.02
	slices.Sort(waits)
	at := func(share float64) time.Duration {
		return time.Duration(waits[int(share*float64(len(waits)-1))] * float64(time.Second))
	}
	s.p50, s.p99, s.batch = at(0.5), at(0.99), float64(asked)/float64(calls)
	return s
}

// A saving is what answers without a call. crossing is the share of requests that ask the global
// store.
type saving struct {
	name     string
	crossing float64
}

// savings are the rows of the table. Of 1,000 requests of a caller at twice its limit, half are
// denied, and TestSimulation in internal/local asks once for each of the others. With a lease of
// 1s, TestSimulationFar asks 107 times at 80 ms on a key with 1,000 requests a second.
var savings = []saving{
	{"none: every request asks", 1},
	{"remembered denials, callers at twice their limits", 0.5},
	{"leases of 1s on keys with 1,000 requests/s", 0.107},
}

// millions writes a rate of bytes.
func millions(bytes float64) string { return fmt.Sprintf("%.1f", bytes/1e6) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }

// row returns the cells of a table for what was counted.
func (s seen) row() string {
	if s.behind {
		return fmt.Sprintf("%.1f | %.0f %% | never | never |", s.batch, 100*s.busy)
	}
	return fmt.Sprintf("%.1f | %.0f %% | %s | %s |", s.batch, 100*s.busy, milliseconds(s.p50), milliseconds(s.p99))
}

// TestCapacity computes what ten regions with 100,000 requests a second need, and what crosses
// the ocean. Two ways agree or the test fails: arithmetic, which says how many servers there must
// be, and a simulation of the calls to one of them. With -v it prints both as tables.
func TestCapacity(t *testing.T) {
	var near strings.Builder
	near.WriteString("| servers in each region | decisions/s of one | decisions a call | busy | p50 ms | p99 ms |\n|---|---|---|---|---|---|\n")
	least := shards(perRegion)
	for _, n := range []int{least, 2 * least, 4 * least} {
		l := line{instances, perRegion / float64(n), nearRoundTrip, nearCalls}
		s := l.simulate(2)
		fmt.Fprintf(&near, "| %d | %.0f | %s\n", n, l.decisions, s.row())
		if s.behind {
			t.Errorf("%d servers of a region fall behind", n)
		}
	}
	t.Log("in a region:\n" + near.String())

	var far strings.Builder
	far.WriteString("| requests under a global limit | what saves calls | global decisions/s | servers | decisions a call | busy | p50 ms | p99 ms | calls/s that cross | MB/s to the store | MB/s back |\n")
	far.WriteString("|" + strings.Repeat("---|", 11) + "\n")
	for _, share := range []float64{0.01, 0.1, 1} {
		for _, saves := range savings {
			decisions := regions * perRegion * share * saves.crossing
			n := shards(decisions)
			l := line{regions * instances, decisions / float64(n), 80 * time.Millisecond, farCalls}
			s := l.simulate(2)
			calls := decisions / s.batch
			fmt.Fprintf(&far, "| %.0f %% | %s | %.0f | %d | %s %.0f | %s | %s |\n", 100*share, saves.name, decisions, n, s.row(), calls,
				millions(calls*callSent+decisions*decisionSent), millions(calls*callBack+decisions*decisionBack))
			// The most that calls of this length can carry.
			most := regions * instances * farCalls * perCall / l.roundTrip.Seconds()
			if fits := l.decisions < most; fits == s.behind {
				t.Errorf("%.0f %% with %s: %.0f decisions a second to one server of at most %.0f, and behind is %v", 100*share, saves.name, l.decisions, most, s.behind)
			}
			if s.busy > 0.9 {
				t.Errorf("%.0f %% with %s: a server is busy for %.2f of its time", 100*share, saves.name, s.busy)
			}
		}
	}
	t.Log("to the global store:\n" + far.String())
	// One server of which more is asked than the calls can carry.
	if s := (line{regions * instances, 130_000, 80 * time.Millisecond, nearCalls}).simulate(2); !s.behind {
		t.Errorf("130,000 decisions a second to one server are not behind: %+v", s)
	}
}
