package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// A plan is all that a run does not choose by itself: the same plan gives the same history. It is made
// from a seed, and made smaller if the run breaks a promise.
type plan struct {
	Seed      uint64
	Servers   int // one for each scope, the first that of the region; or the nodes of a cluster
	Cluster   bool
	Instances int
	Pauses    bool          // calls that come together pause, and share a send
	Length    time.Duration // until the callers stop
	Midnight  time.Duration // when a day begins
	Keys      []keySpec
	Faults    []fault
}

// A keySpec is a key with one limit, and the callers that use it.
type keySpec struct {
	Number  int
	Limit   window.Limit
	Lease   window.Lease
	Once    bool          // each request has an idempotency key, and is sent up to three times
	Hold    time.Duration // not zero: the limit is a budget, and a reservation waits so long
	Resets  bool          // an operator resets it now and then
	Always  bool          // its requests count also if they are denied
	Tiers   bool          // its limit follows from the tier of the customer
	Refunds bool          // callers give back a part of what they have spent
	Server  int
	Joins   int // another key whose limit each request meets, too; -1: none
	Callers int
	Think   time.Duration // between two calls of a caller, on average
	Costs   uint64        // the highest cost
	Patient bool          // callers wait for Retry-After
}

// A faultKind is what can go wrong.
type faultKind int

const (
	faultLoss      faultKind = iota // Size of a thousand messages to and from a server are lost
	faultCut                        // no message gets from the instance Size to a server
	faultFreeze                     // a server runs nothing
	faultPause                      // an instance sends and gets nothing
	faultFailover                   // a replica takes over, without what was written in the last Size milliseconds
	faultRestart                    // a server restarts; Size 0: without its data
	faultClock                      // a server's clock is set by Size milliseconds
	faultCrash                      // an instance is killed and starts again; Size 1: it is stopped in order
	faultMove                       // slots of a cluster move to a server, around the slot of the key Size
	faultCustomers                  // the customer database does not answer
	faultKinds
)

// A fault goes wrong at a time, and for a time.
type fault struct {
	Kind    faultKind
	At, For time.Duration
	Who     int // the server or the instance; of a move: where to
	Size    int
}

func (f fault) String() string {
	server, instance := fmt.Sprintf("redis-%d", f.Who), fmt.Sprintf("rls-%d", f.Who)
	switch f.Kind {
	case faultLoss:
		return fmt.Sprintf("%s: %d of 1000 messages are lost for %v", server, f.Size, f.For)
	case faultCut:
		return fmt.Sprintf("rls-%d cannot reach %s for %v", f.Size, server, f.For)
	case faultFreeze:
		return fmt.Sprintf("%s freezes for %v", server, f.For)
	case faultPause:
		return fmt.Sprintf("%s freezes for %v", instance, f.For)
	case faultFailover:
		return fmt.Sprintf("%s fails over in %v, and loses the last %d ms", server, f.For, f.Size)
	case faultRestart:
		return fmt.Sprintf("%s restarts in %v, with data: %t", server, f.For, f.Size != 0)
	case faultClock:
		return fmt.Sprintf("%s: the clock is set by %d ms", server, f.Size)
	case faultCustomers:
		return fmt.Sprintf("the customer database does not answer for %v", f.For)
	case faultMove:
		return fmt.Sprintf("slots move to %s within %v, among them that of key-%d", server, f.For, f.Size)
	}
	return fmt.Sprintf("%s restarts in %v, in order: %t", instance, f.For, f.Size != 0)
}

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 2))
	p := &plan{Seed: seed, Servers: 1 + r.IntN(3), Instances: 1 + r.IntN(3), Length: 8 * time.Second}
	p.Midnight = time.Second + time.Duration(r.IntN(5000))*time.Millisecond
	p.Cluster = p.Servers > 1 && r.IntN(2) == 0
	add := func(k keySpec) int {
		k.Number, k.Server = len(p.Keys), r.IntN(p.Servers)
		if p.Cluster {
			k.Server = p.nodeOf(slotOf(k.tag()))
		}
		p.Keys = append(p.Keys, k)
		return k.Number
	}
	short := func() time.Duration { return time.Duration(500+r.IntN(2500)) * time.Millisecond }
	think := func(most int) time.Duration { return time.Duration(2+r.IntN(most)) * time.Millisecond }
	add(keySpec{Limit: window.Limit{Hits: 3 + r.Uint64N(20), Window: short()}, Callers: 3, Think: think(40), Costs: 1, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 5 + r.Uint64N(20), Window: short()}, Callers: 3, Think: think(40), Costs: 3, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 2 + r.Uint64N(5), Window: short()}, Callers: 1, Think: think(10), Costs: 2, Joins: -1, Patient: true})
	add(keySpec{Limit: window.Limit{Hits: 20 + r.Uint64N(60), Window: total}, Callers: 3, Think: think(300), Costs: 2, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 100 + r.Uint64N(200), Window: short()}, Lease: leaseOf(r), Callers: 4, Think: think(8), Costs: 1, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 3000 + r.Uint64N(3000), Window: total}, Lease: leaseOf(r), Callers: 4, Think: think(8), Costs: 1, Joins: -1})
	roomy := add(keySpec{Limit: window.Limit{Hits: 50_000, Window: total}, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 2 + r.Uint64N(10), Window: short()}, Callers: 3, Think: think(50), Costs: 2, Joins: roomy})
	add(keySpec{Limit: window.Limit{Hits: 1 + r.Uint64N(5), Window: total, Policy: window.InFlight}, Callers: 5, Think: think(30), Costs: 1, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 2 + r.Uint64N(5), Window: time.Second + short(), Policy: window.InFlight}, Callers: 5, Think: think(30), Costs: 2, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 200 + r.Uint64N(500), Window: total}, Once: true, Callers: 3, Think: think(60), Costs: 2, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 20 + r.Uint64N(60), Window: total}, Resets: true, Callers: 3, Think: think(100), Costs: 2, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 3 + r.Uint64N(20), Rate: 1 + r.Uint32N(20), Window: short(), Policy: window.TokenBucket}, Callers: 3, Think: think(40), Costs: 2, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 3 + r.Uint64N(20), Window: short(), Policy: window.Fixed}, Callers: 3, Think: think(40), Costs: 2, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 3 + r.Uint64N(20), Window: short(), Policy: window.SlidingCounter}, Callers: 3, Think: think(40), Costs: 2, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 1000 + r.Uint64N(2000), Window: total}, Hold: []time.Duration{time.Second, 10 * time.Minute}[r.IntN(2)], Callers: 4, Think: think(30), Costs: 40, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 20 + r.Uint64N(60), Window: day, Policy: window.Calendar}, Callers: 3, Think: think(100), Costs: 2, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 20 + r.Uint64N(60), Window: total}, Always: true, Callers: 3, Think: think(200), Costs: 3, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 20 + r.Uint64N(40), Window: total}, Refunds: true, Callers: 3, Think: think(200), Costs: 4, Joins: -1})
	add(keySpec{Limit: window.Limit{Hits: 60 + r.Uint64N(200), Window: total}, Tiers: true, Callers: 3, Think: think(120), Costs: 2, Joins: -1})
	p.Faults = newFaults(r, p)
	p.Pauses = r.IntN(2) == 0
	return p
}

// nodeOf returns the node of a cluster that has a slot at first.
func (p *plan) nodeOf(slot uint16) int { return int(slot) * p.Servers / slots }

// tag returns the hash tag of the logs of a key.
func (k *keySpec) tag() string {
	if k.Tiers {
		return fmt.Sprintf("id.key-%d", k.Number)
	}
	return fmt.Sprintf("%%7Bkey-%d%%7D", k.Number)
}

const slots = 16384 // of a cluster

// slotOf returns the slot of a hash tag: its CRC-16.
func slotOf(tag string) uint16 {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			high := crc >= 1<<15
			if crc <<= 1; high {
				crc ^= 0x1021
			}
		}
	}
	return crc % slots
}

// joinedKey is the name of the key whose limit the requests of another key meet, too.
const joinedKey = "key-6"

// total is the window of limits that count all of a run.
const total = time.Hour

// day is the period of a calendar. One begins in a run.
const day = 24 * time.Hour

func leaseOf(r *rand.Rand) window.Lease {
	return window.Lease{Length: time.Duration(20+r.IntN(180)) * time.Millisecond}
}

// newFaults makes the faults of a plan. One run in four has none, but for slots that move. All are over two
// seconds before the callers stop.
func newFaults(r *rand.Rand, p *plan) (all []fault) {
	count := 1 + r.IntN(6)
	if r.IntN(4) == 0 {
		count = 0
	}
	for range count {
		all = append(all, newFault(r, p, faultKind(r.IntN(int(faultKinds)))))
	}
	if p.Cluster && r.IntN(2) == 0 {
		all = append(all, newFault(r, p, faultMove))
	}
	return all
}

// newFault makes a fault.
func newFault(r *rand.Rand, p *plan, kind faultKind) fault {
	f := fault{
		Kind: kind, Who: r.IntN(p.Servers),
		At:  500*time.Millisecond + time.Duration(r.Int64N(int64(p.Length-4*time.Second))),
		For: time.Duration(1+r.Int64N(1500))*time.Millisecond + time.Duration(r.IntN(1_000_000)),
	}
	switch f.Kind {
	case faultLoss:
		f.Size = 5 + r.IntN(300)
	case faultCut:
		f.Size = r.IntN(p.Instances)
	case faultPause, faultCrash:
		f.Who, f.Size = r.IntN(p.Instances), r.IntN(2)
	case faultFailover:
		f.Size = r.IntN(1000)
	case faultRestart:
		f.Size = r.IntN(2)
	case faultClock:
		f.Size, f.For = r.IntN(4000)-2000, 0
	case faultMove:
		if f.Size = r.IntN(len(p.Keys)); !p.Cluster {
			f.Kind, f.Size = faultFreeze, 0
		} else if f.Who == p.Keys[f.Size].Server {
			f.Who = (f.Who + 1) % p.Servers
		}
	}
	return f
}
