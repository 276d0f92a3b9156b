package regions

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A replicated log is one log that every region has. A region decides by its own hits and by
// those hits of the others that have arrived, and does not wait. It is the most that asynchronous
// replication can do: no hit is lost, every hit arrives after the same delay and keeps its own
// time, and all copies are merged without conflict.
type replicated struct {
	limit   window.Limit
	delay   time.Duration
	regions []*replica
	sent    []hit // admitted hits, oldest first
	arrived int   // how many of sent have arrived everywhere
}

// A replica is the log in one region: what the region has admitted, and what it has heard from the
// others. Each part is a log in a store of the service.
type replica struct{ own, heard *part }

// A part is one store with a clock of its own, so that a hit can be recorded at its own time.
type part struct {
	clock time.Duration
	store *memstore.Store
}

// A hit is an admitted request.
type hit struct {
	at     time.Duration
	region int
}

func newPart() *part {
	p := new(part)
	p.store = memstore.New(memstore.Options{Clock: func() time.Duration { return p.clock }, SweepInterval: -1})
	return p
}

func newReplicated(t *testing.T, n int, limit window.Limit, delay time.Duration) *replicated {
	r := &replicated{limit: limit, delay: delay}
	for range n {
		one := &replica{newPart(), newPart()}
		t.Cleanup(func() { one.own.store.Close(); one.heard.store.Close() })
		r.regions = append(r.regions, one)
	}
	return r
}

// take decides one check at a time.
func (p *part) take(t *testing.T, at time.Duration, c window.Check) window.Decision {
	t.Helper()
	p.clock = at
	d := make([]window.Decision, 1)
	if _, err := p.store.Take(t.Context(), window.NoWait, []window.Check{c}, d); err != nil {
		t.Fatal(err)
	}
	return d[0]
}

// copies is a limit that no copy reaches.
func (r *replicated) copies() window.Limit {
	return window.Limit{Hits: window.ExactHits, Window: r.limit.Window}
}

// ask lets a region decide a request at a time, which never goes back.
func (r *replicated) ask(t *testing.T, at time.Duration, region int) (allowed bool) {
	t.Helper()
	for ; r.arrived < len(r.sent) && r.sent[r.arrived].at+r.delay <= at; r.arrived++ {
		h := r.sent[r.arrived]
		for i, other := range r.regions {
			if i != h.region {
				other.heard.take(t, h.at, window.Check{Key: "k", Limit: r.copies(), Cost: 1, Mode: window.Always})
			}
		}
	}
	here := r.regions[region]
	heard := r.copies().Hits - here.heard.take(t, at, window.Check{Key: "k", Limit: r.copies()}).Remaining
	if heard >= r.limit.Hits {
		return false
	}
	limit := r.limit
	limit.Hits -= heard
	if allowed = here.own.take(t, at, window.Check{Key: "k", Limit: limit, Cost: 1}).Allowed; allowed {
		r.sent = append(r.sent, hit{at, region})
	}
	return allowed
}

// most returns the largest number of admitted hits in any window.
func (r *replicated) most() (most int) {
	first := 0
	for i, h := range r.sent {
		for h.at-r.sent[first].at >= r.limit.Window {
			first++
		}
		most = max(most, i+1-first)
	}
	return most
}

// A demand is what every region is asked for.
type demand struct {
	name string
	each int           // requests to each region
	over time.Duration // the time over which they come, evenly
}

// demands are a burst of one limit's worth in each region, and twice the limit from all regions
// together, for three windows.
func demands(n int, limit window.Limit) []demand {
	return []demand{
		{"the whole limit at once in each region", int(limit.Hits), 20 * time.Millisecond},
		{"twice the limit, evenly, for 3 windows", 6 * int(limit.Hits) / n, 3 * limit.Window},
	}
}

// run sends a demand to all regions in turn.
func (r *replicated) run(t *testing.T, d demand) {
	t.Helper()
	n := len(r.regions)
	step := max(d.over/time.Duration(d.each*n), time.Microsecond)
	for i := range d.each * n {
		r.ask(t, time.Duration(i)*step, i%n)
	}
}

// replicationLimit is the limit of the table. The window is long against every delay but the last.
var replicationLimit = window.Limit{Hits: 1000, Window: 10 * time.Second}

// TestReplication shows what regions admit that count for themselves and exchange what they have
// counted afterwards: up to the limit in every region. One log for all regions never admits more
// than the limit. With -v it prints a table of what it counts.
func TestReplication(t *testing.T) {
	var table strings.Builder
	table.WriteString("| regions | a hit arrives after | load | one log admits | replicated logs admit | of the limit |\n|---|---|---|---|---|---|\n")
	limit := replicationLimit
	for _, n := range []int{2, 3, 10} {
		for i, delay := range []time.Duration{40 * time.Millisecond, 80 * time.Millisecond, time.Second, time.Minute} {
			for burst, d := range demands(n, limit) {
				single, several := newReplicated(t, n, limit, 0), newReplicated(t, n, limit, delay)
				single.run(t, d)
				several.run(t, d)
				one, most := single.most(), several.most()
				if one != int(limit.Hits) {
					t.Errorf("%d regions, %s: without a delay one window has %d hits, want the limit", n, d.name, one)
				}
				if most <= one || most > n*one {
					t.Errorf("%d regions, %s, delay %v: %d in one window, want above the limit and at most %d", n, d.name, delay, most, n*one)
				}
				if burst == 0 && most != n*one {
					t.Errorf("%d regions, a burst shorter than the delay %v: %d in one window, want %d", n, delay, most, n*one)
				}
				if burst == 0 && i > 0 {
					continue // the same for every delay that is longer than the burst
				}
				after := policy.FormatWindow(delay)
				if burst == 0 {
					after = "40ms or more"
				}
				fmt.Fprintf(&table, "| %d | %s | %s | %d | %d | %.2f |\n", n, after, d.name, one, most, float64(most)/float64(one))
			}
		}
	}
	t.Log("\n" + table.String())
}

// TestReplicationAgrees holds the simulation to what it must be without a delay: one log. Regions
// whose hits arrive at once decide as one log does, request by request.
func TestReplicationAgrees(t *testing.T) {
	limit := window.Limit{Hits: 7, Window: time.Second}
	several, one := newReplicated(t, 3, limit, 0), newPart()
	t.Cleanup(func() { one.store.Close() })
	at := time.Duration(0)
	for i := range 3000 {
		at += time.Duration(i*i%97) * time.Millisecond
		region := i * 7 % 3
		want := one.take(t, at, window.Check{Key: "k", Limit: limit, Cost: 1}).Allowed
		if got := several.ask(t, at, region); got != want {
			t.Fatalf("request %d at %v in region %d: allowed %v, one log says %v", i, at, region, got, want)
		}
	}
}
