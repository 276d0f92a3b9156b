package simulate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// mutants are what a run does otherwise than the product. The zero value changes nothing.
type mutants struct {
	// old and put change the script with the name file: each old becomes put.
	file, old, put string
	applied        *int // how often
	// instead may answer a call of a script.
	instead func(text string, keys, argv []string) (answer any)
	// twice runs each thousandth call of a script again, as a client does that sends what may have run.
	twice bool
	// redirected runs a call twice that was sent to another node before.
	redirected bool
	// timeout is that of the store, probes is the time between two probes of a server that does not answer, and
	// alone makes each instance take itself for the only one. Zero: as in the service.
	timeout, probes time.Duration
	alone           bool
	// deaf drops the news of customers, forgets drops what is known of them soon, and apart gives each tier a log.
	deaf, forgets, apart bool
	// wrap replaces what leases call.
	wrap func(lease.Reserver) lease.Reserver
	// record gets all calls of scripts, by their servers.
	record *[][]scriptCall
}

// broken are the ways in which the protocol is broken, and what must be noticed. TestMutants prints
// after how many seeds each is found.
var broken = []struct {
	name string
	mutants
	quick bool // make test tries it, too
}{
	{name: "Redis runs calls after their deadline", mutants: mutants{file: "take.lua", old: "if clock > soonest and soonest > 0 then", put: "if false then"}},
	{name: "a window is a hundredth too short", quick: true, mutants: mutants{file: "take.lua", old: "now - window", put: "now - window * 0.99"}},
	{name: "Retry-After is a tenth too short", quick: true, mutants: mutants{file: "take.lua", old: "retry = unit_after", put: "retry = math.floor(unit_after * 0.9)"}},
	{name: "a limit of a group is charged although another one denies", mutants: mutants{file: "take.lua", old: "if settling and room and not denied and", put: "if settling and room and"}},
	{name: "a reply is lost and the call is sent again", mutants: mutants{twice: true}},
	{name: "a call that follows a redirection runs twice", mutants: mutants{redirected: true}},
	{name: "a take-back is lost", mutants: mutants{instead: func(text string, keys, argv []string) any {
		if scriptName(text) != "takeback.lua" || !strings.Contains(keys[0], joinedKey) {
			return nil
		}
		return argv[0][15:20] + strings.Repeat("\x00", 7) // all is taken back, and the log is empty
	}}},
	{name: "a lease is not returned", mutants: mutants{wrap: func(r lease.Reserver) lease.Reserver { return keeps{r} }}},
	{name: "a hold expires at half of its time", mutants: mutants{file: "reserves.lua", old: "s.ends = math.ceil((s.now + window) / 1000)", put: "s.ends = math.ceil((s.now + window / 2) / 1000)"}},
	{name: "the end of a stream leaves no tombstone", mutants: mutants{file: "streams.lua", old: "elseif micros > 0 then", put: "elseif false then"}},
	{name: "an end releases nothing", mutants: mutants{file: "ends.lua", old: "local released = s.cost > 0", put: "local released = false"}},
	{name: "an idempotency record is forgotten", mutants: mutants{file: "oncerecords.lua", old: "s.stays = clock < s.ends", put: "s.stays = clock < s.ends - 3.6e9 + 2000"}},
	{name: "what is reserved of a budget leaves room", mutants: mutants{file: "take.lua", old: "used < limit - res.used and cost <= limit - res.used - used", put: "used < limit and cost <= limit - used"}},
	{name: "a settlement leaves the reservation", mutants: mutants{file: "settle.lua", old: "cut_hold(s, 0)", put: "s.cost = 0"}},
	{name: "a settlement charges nothing", mutants: mutants{file: "settle.lua", old: "pack('>I7', cost + due)", put: "pack('>I7', 0)"}},
	{name: "a settlement counts twice", mutants: mutants{file: "settle.lua", old: "pack('>I7', cost + due)", put: "pack('>I7', 2 * cost + due)"}},
	{name: "a reservation that expires leaves room", mutants: mutants{file: "large.lua", old: "if gone(s, ends, cost) > s.now then", put: "if ends * 1000 > s.now then"}},
	{name: "a usage update that is denied does not count", mutants: mutants{file: "take.lua", old: "charge = math.max(math.min(cost, 2 * limit - used, (other", put: "charge = not room and 0 or math.max(math.min(cost, 2 * limit - used, (other"}},
	{name: "usage updates have no bound", mutants: mutants{file: "take.lua", old: "charge = math.max(math.min(cost, 2 * limit - used, (other", put: "charge = math.max(math.min(cost, 9 * limit - used, (other"}},
	{name: "a refund gives back twice", mutants: mutants{file: "take.lua", old: "used = used - cost\n      last, newest", put: "used = math.max(used - 2 * cost, 0)\n      last, newest"}},
	{name: "a period of a calendar ends early", mutants: mutants{file: "look.lua", old: "elseif clock < step * 1000000 then\n    minor = step * 1000000", put: "elseif clock < (step - 2) * 1000000 then\n    minor = (step - 2) * 1000000"}},
	{name: "the store's timeout is twice as long", mutants: mutants{timeout: 2 * storeTimeout}},
	{name: "a server is asked again after a long time", mutants: mutants{probes: 3 * time.Second}},
	{name: "each instance takes itself for the only one", mutants: mutants{alone: true}},
	{name: "news of a customer is lost", quick: true, mutants: mutants{deaf: true}},
	{name: "a customer is forgotten while the database fails", mutants: mutants{forgets: true}},
	{name: "each tier has its own log", mutants: mutants{apart: true}},
	{name: "a bucket fills twice as fast", mutants: mutants{file: "look.lua", old: "local gained = passed * most", put: "local gained = 2 * passed * most"}},
	{name: "a fixed window ends early", mutants: mutants{file: "look.lua", old: "if idle > clock and not corrupt then", put: "if idle - window / 10 > clock and not corrupt then"}},
	{name: "a sliding counter forgets the window before", mutants: mutants{file: "look.lua", old: "major, minor = 0, major", put: "major, minor = 0, 0"}},
	{name: "the clock of a log runs backwards", mutants: mutants{file: "take.lua", old: "if log_clock > clock then", put: "if false then"}},
}

// keeps is a Reserver that gives nothing back.
type keeps struct{ lease.Reserver }

func (keeps) Return(_ context.Context, _ window.Reservation, cost uint64) (uint64, error) {
	return cost, nil
}

// TestMutants breaks the protocol in each way, and counts the seeds until a promise shows it: within a
// thousand. make test tries only some that the first seeds show.
func TestMutants(t *testing.T) {
	var table strings.Builder
	for _, m := range broken {
		if !random.Long() && !m.quick {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			applied := 0
			m.applied = &applied
			for seed := uint64(1); seed <= 1000; seed++ {
				w := run(t, newPlan(seed), m.mutants)
				if applied == 0 && m.old != "" {
					t.Fatalf("%s has no %q", m.file, m.old)
				}
				if len(w.broken) > 0 {
					promise, _, _ := strings.Cut(promiseOf(w), ".")
					fmt.Fprintf(&table, "%5d  %-60s  %s\n", seed, m.name, promise)
					t.Logf("after %d seeds: %s", seed, w.broken[0])
					return
				}
			}
			t.Error("no promise shows it")
		})
	}
	t.Logf("seeds, what is broken, and the promise that shows it:\n%s", table.String())
}

// script returns the text of a script, changed if the mutant is of this script.
func (m *mutants) script(text string) string {
	if m.old == "" || !strings.Contains(text, m.old) {
		return text
	}
	*m.applied++
	return strings.ReplaceAll(text, m.old, m.put)
}

func (m *mutants) reserver(r lease.Reserver) lease.Reserver {
	if m.wrap == nil {
		return r
	}
	return m.wrap(r)
}
