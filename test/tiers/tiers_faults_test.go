package tiers

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// The times of TestSourceFaults. A request waits less long than a lookup in the slow
// source takes, and that is less than the timeout of a lookup.
const (
	faultWait    = 500 * time.Millisecond
	faultSlow    = 800 * time.Millisecond
	faultTimeout = 4 * time.Second
	faultHang    = 30 * time.Second

	// callers is how many callers send requests all the time, half of them each way.
	// One in five sends made-up keys.
	callers = 10
	// callerPace is the pause of each caller, which leaves CPU time to the servers.
	callerPace = 50 * time.Millisecond
)

// fault is a fault of the source, and its end.
type fault struct {
	name      string
	make, end func(h *customerSource)
	// opens: rls stops calling the source.
	opens bool
	// gone: meanwhile the source accepts no writes, even past the proxy.
	gone bool
	// cuts: rls notices at once that notifications have ended.
	cuts bool
}

var faults = []fault{
	{name: "killed", make: func(h *customerSource) { h.kill() }, end: (*customerSource).start, opens: true, gone: true, cuts: true},
	{name: "frozen", make: func(h *customerSource) { h.server.Pause() }, end: func(h *customerSource) { h.server.Resume() }, opens: true, gone: true},
	{name: "slower than requests wait", make: func(h *customerSource) { h.proxy.Latency(faultSlow) }, end: func(h *customerSource) { h.proxy.Latency(0) }},
	{name: "slower than the timeout of a lookup", make: func(h *customerSource) { h.proxy.Latency(faultHang) }, end: func(h *customerSource) { h.proxy.Latency(0); h.proxy.CloseAll() }, opens: true, cuts: true},
	{name: "cut off", make: func(h *customerSource) { h.proxy.Refuse(true); h.proxy.CloseAll() }, end: func(h *customerSource) { h.proxy.Refuse(false) }, opens: true, cuts: true},
	{name: "answering rubbish", make: func(h *customerSource) { h.rubbish(true) }, end: func(h *customerSource) { h.rubbish(false) }, opens: true, gone: true},
}

// TestSourceFaults makes one fault of the source after the other under load, and
// checks the answer to every request.
func TestSourceFaults(t *testing.T) {
	eachSource(t, func(t *testing.T, h *customerSource) {
		var known []customer
		for i := range 10 {
			known = append(known, customer{
				id: fmt.Sprintf("c%d", i), tier: []string{"pro", "top"}[i%2], keys: []string{fmt.Sprintf("k-%d-a", i), fmt.Sprintf("k-%d-b", i)},
			})
		}
		h.put(known...)
		settings := map[string]string{
			envTiersWait: faultWait.String(), envAuthzWait: faultWait.String(),
			// While the source is slow there are many lookups at once.
			"SLIDEGATE_TIERS_POSTGRES_POOL_SIZE": "24",
		}
		rls := h.serve(tiersApart, settings)
		settings[envTiersOnError] = "deny"
		strict := h.serve(tiersApart, settings)
		for _, r := range []*edge.RLSServer{rls, strict} {
			for path, ask := range waysToAsk(t, r) {
				for _, c := range known {
					for _, key := range c.keys {
						if got := ask(key); got != c.tier {
							t.Fatalf("%s: %s without a fault: got %q, want %q", path, key, got, c.tier)
						}
					}
				}
			}
		}
		l := startLoad(t, rls, known)
		for i, f := range faults {
			h.runFault(f, i, rls, strict, l)
		}
		l.stop()
	})
}

// The log lines of rls about a source. Each is written once for each change.
const (
	sourceDown = "the customer source does not answer and is not asked"
	sourceUp   = "the customer source answers again"
	tellsNot   = "the customer source does not report changes"
	tellsAgain = "the customer source reports changes again"
)

// stateChanges counts these log lines.
func stateChanges(rls *edge.RLSServer) map[string]int {
	n := make(map[string]int)
	for _, line := range rls.Logs() {
		for _, message := range []string{sourceDown, sourceUp, tellsNot, tellsAgain} {
			if text, _ := line["msg"].(string); strings.HasPrefix(text, message) {
				n[message]++
			}
		}
	}
	return n
}

// tierLoad is callers that send requests all the time, and the answers that they get.
type tierLoad struct {
	t     *testing.T
	start time.Time
	known []customer
	stop  func()
	now   atomic.Pointer[string]
	// forgotten has the ids of customers that are changing.
	forgotten sync.Map

	mu  sync.Mutex
	got map[string]map[string]int // answers to unknown keys, by phase and path
	n   map[string]int            // requests of known customers, by phase
}

// startLoad starts the load in the phase "start". A request with a known key that is
// not answered by its own tier fails the test, in every phase.
func startLoad(t *testing.T, rls *edge.RLSServer, known []customer) *tierLoad {
	t.Helper()
	l := &tierLoad{t: t, start: time.Now(), known: known, got: make(map[string]map[string]int), n: make(map[string]int)}
	l.phase("start")
	paths := []string{"limits", "authorization"}
	var asks []map[string]askFunc
	for range callers {
		asks = append(asks, waysToAsk(t, rls))
	}
	l.stop = process.Workers(t, callers, callerPace, func(i, n int) bool {
		path := paths[i%2]
		if i < callers/5 {
			l.stranger(path, asks[i][path], fmt.Sprintf("k-made-up-%d-%d", i, n))
		} else {
			l.customer(path, asks[i][path], known[(i+n)%len(known)], n)
		}
		return true
	})
	return l
}

func (l *tierLoad) phase(name string) { l.now.Store(&name) }

// forget ends the checks of a customer whose tier is about to change.
func (l *tierLoad) forget(c customer) { l.forgotten.Store(c.id, true) }

func (l *tierLoad) customer(path string, ask askFunc, c customer, n int) {
	before := l.now.Load()
	got := ask(c.keys[n%len(c.keys)])
	if _, ok := l.forgotten.Load(c.id); ok || l.t.Context().Err() != nil {
		return
	}
	if got != c.tier {
		l.t.Errorf("%s: %s: %s: got %q, want %q", *before, path, c.id, got, c.tier)
	}
	if before == l.now.Load() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.n[*before]++
	}
}

func (l *tierLoad) stranger(path string, ask askFunc, key string) {
	before := l.now.Load()
	got := ask(key)
	if before != l.now.Load() {
		return // the phase has changed, so the right answer is not known
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	in := *before + " " + path
	if l.got[in] == nil {
		l.got[in] = make(map[string]int)
	}
	l.got[in][got]++
}

// healthy begins phases until most unknown keys get the right answer in one. Some may
// not: on a busy machine a lookup takes longer than they wait.
func (l *tierLoad) healthy(name string) {
	l.t.Helper()
	process.Eventually(l.t, name, func() bool {
		phase := name + ", " + time.Now().String()
		l.phase(phase)
		l.enough("limits", "authorization")
		l.mu.Lock()
		defer l.mu.Unlock()
		got := l.got[phase+" authorization"]
		return got["401"] > got["no decision"] && len(l.got[phase+" limits"]) == 1
	})
}

// enough waits until there were many requests in this phase.
func (l *tierLoad) enough(paths ...string) {
	l.t.Helper()
	phase := *l.now.Load()
	count := func() (known, fewest int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fewest = 1 << 30
		for _, path := range paths {
			all := 0
			for _, n := range l.got[phase+" "+path] {
				all += n
			}
			fewest = min(fewest, all)
		}
		return l.n[phase], fewest
	}
	process.Eventually(l.t, "requests while "+phase, func() bool {
		known, strangers := count()
		return known >= 5*callers && strangers >= callers/5
	})
}

// want waits for many requests in this phase, and compares the answers to unknown
// keys.
func (l *tierLoad) want(strangers map[string][]string) {
	l.t.Helper()
	l.enough(slices.Collect(maps.Keys(strangers))...)
	phase := *l.now.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	for path, want := range strangers {
		got := l.got[phase+" "+path]
		if answers := slices.Sorted(maps.Keys(got)); !slices.Equal(answers, want) {
			l.t.Errorf("%s: %s: strangers got %v, want only %v", phase, path, got, want)
		}
	}
	l.t.Logf("%v: %s: %d requests of customers, all right; strangers: %v %v", time.Since(l.start).Round(time.Second), phase, l.n[phase], l.got[phase+" limits"], l.got[phase+" authorization"])
}

// TestBadRecords has malformed records. They must affect only their own customers, who
// keep their previous tier.
func TestBadRecords(t *testing.T) {
	eachSource(t, func(t *testing.T, h *customerSource) {
		acme := customer{id: "acme", tier: "pro", keys: []string{"k-acme-1", "k-acme-2"}}
		other := customer{id: "other", tier: "top", keys: []string{"k-other"}}
		h.put(acme, other)
		rls := h.serve(tiersApart, nil)
		asks := waysToAsk(t, rls)
		want := func(what, key, limits, authorization string) {
			t.Helper()
			wantTiers(t, asks, what, key, limits, authorization)
		}
		want("before", "k-acme-1", "pro", "pro") // the other key is not asked for
		h.change(rls, h.tells.subject, func() { h.corrupt(acme) })
		for range 10 {
			want("a bad record", "k-acme-1", "pro", "pro")
			want("a bad record, never seen as a good one", "k-acme-2", "free", "no decision")
			want("a bad record of another", "k-other", "top", "top")
		}
		if got := stack.Number(t, rls, metricBadRecords); got != 2 {
			t.Errorf("%s: got %d, want 2: one for each key, which is then left alone", metricBadRecords, got)
		}
		if got := stack.Metric(t, rls, metricOpen); got != "0" {
			t.Errorf("%s: got %s, want 0: the source is well", metricOpen, got)
		}
		said := 0
		for _, line := range rls.Logs() {
			if text, _ := line["msg"].(string); strings.Contains(text, "malformed record") {
				said++
			}
		}
		if said == 0 {
			t.Error("no log line tells of the bad record")
		}
		acme.tier = "top"
		h.change(rls, h.tells.subject, func() { h.repair(acme) })
		want("repaired", "k-acme-1", "top", "top")
		want("repaired", "k-acme-2", "top", "top")
	})
}

// TestManyCustomersAtOnce has all customers call at once after a start, while a client
// sends a new invented key with each request. No first call is denied, though the source
// may answer late: such a key has a log by itself. All customers have their tier at the
// second call.
func TestManyCustomersAtOnce(t *testing.T) {
	const (
		customers = 1000
		at        = 32 // callers at once
	)
	rules := strings.Replace(tiersApart, "1000001", "3", 1) // of the default tier
	eachSource(t, func(t *testing.T, h *customerSource) {
		all := make([]customer, customers)
		for i := range all {
			all[i] = customer{id: fmt.Sprintf("c%d", i), tier: "pro", keys: []string{fmt.Sprintf("k-%d", i)}}
		}
		h.writeAll(all)
		rls := h.serve(rules, map[string]string{envTiersWait: "5ms"})
		ask, ways := stack.Limiter(t, rls), waysToAsk(t, rls)
		each := func(call func(c customer)) {
			var next atomic.Int64
			var callers sync.WaitGroup
			for range at {
				callers.Go(func() {
					for n := next.Add(1); n <= customers; n = next.Add(1) {
						call(all[n-1])
					}
				})
			}
			callers.Wait()
		}
		stop := process.Workers(t, 30, 5*time.Millisecond, func(int, int) bool {
			_, err := ask("api_key="+rand.Text(), "remote_address=192.0.2.1")
			return err == nil || t.Context().Err() != nil || !t.Failed()
		})
		defer stop()

		began := time.Now()
		var late atomic.Int64
		each(func(c customer) {
			out, err := ask("api_key="+c.keys[0], "remote_address=192.0.2.1")
			switch {
			case err != nil:
				t.Errorf("%s: %v", c.id, err)
			case out.GetOverallCode() != rlsv3.RateLimitResponse_OK:
				t.Errorf("the first call of %s is denied", c.id)
			case out.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == 3:
				late.Add(1)
			}
		})
		first := time.Since(began)
		const known = `slidegate_tiers_lookups_total{outcome="found"}`
		process.Eventually(t, "all customers to be known", func() bool { return stack.Number(t, rls, known) >= customers })
		found := time.Since(began)
		each(func(c customer) {
			for path, ask := range ways {
				if got := ask(c.keys[0]); got != "pro" {
					t.Errorf("%s: the second call of %s: got %q, want pro", path, c.id, got)
				}
			}
		})
		t.Logf("first calls in %v, %d of them before the answer of the source; all known after %v; look-ups: %d of customers, %d of invented keys, %d dropped",
			first, late.Load(), found, stack.Number(t, rls, `slidegate_tiers_lookups_total{outcome="found"}`),
			stack.Number(t, rls, `slidegate_tiers_lookups_total{outcome="unknown"}`), stack.Number(t, rls, `slidegate_tiers_lookups_total{outcome="limited"}`))
	})
}
