package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/figures"
)

var (
	policyTopic = &topic{
		name: "policy", title: "Redis per decision, by policy", unit: "µs", base: "our sliding log", extra: "script",
		about: "CPU of Redis for one decision at a limit of 100, states as above, against the sliding log in the same state. *gcra* is a script of the generic cell rate algorithm, and *two-counters* the one of the table above; both are written for this program.",
	}
	policyMixTopic = &topic{
		name: "policy-mix", title: "Redis per request of three policies", unit: "µs", base: "three sliding logs", extra: "script",
		about: "CPU of Redis for one request with three limits of 100, each with another policy, against a request with three sliding logs. States as above. *Apart*: against three requests with one of the policies each.",
	}
	policyBytesTopic = &topic{
		name: "policy-memory", title: "Memory of a key, by policy", unit: "bytes", base: "our sliding log",
		about: "MEMORY USAGE of a key of which 100 hits are used, divided by 100, against the sliding log of as many.",
	}
	policyTakeTopic = &topic{
		name: "policy-take", title: "In memory: one hit, by policy", unit: "ns", base: "sliding",
		about: "A decision at a limit of 100, states as above, on a clock that the benchmark sets. *log*: on the bytes of one log, by window.State. *store*: a request of one limit to the embedded store. Both sides take turns of 256 hits, and each figure is the median of its turns. The rows of in_flight measure a request that begins (hit), the end of one (end), and both, with half of the limit in flight. One end is measured against one hit.",
	}
	policyMixTakeTopic = &topic{
		name: "policy-mix-take", title: "In memory: a request of three policies", unit: "ns", base: "three of sliding",
		about: "A request with three limits to the embedded store, each with another policy, against a request with three sliding logs. *Apart*: against three requests with one of the policies each.",
	}
)

// The policies that keep a few numbers, and the requests that mix policies.
var (
	numbers = []window.Policy{window.TokenBucket, window.Fixed, window.Calendar, window.SlidingCounter}
	mixes   = [][]window.Policy{
		{window.Sliding, window.TokenBucket, window.Calendar},
		{window.TokenBucket, window.Fixed, window.SlidingCounter},
	}
	threeSliding = []window.Policy{window.Sliding, window.Sliding, window.Sliding}
)

// mixName names the policies of a request.
func mixName(policies []window.Policy) string {
	var names []string
	for _, p := range policies {
		names = append(names, p.String())
	}
	return strings.Join(names, "+")
}

// policyRows returns the rows about the other policies in Redis.
func (b *bench) policyRows() (all rowList) {
	sliding := limit{hits: 100}
	for _, s := range []string{full, denied} {
		base := b.decisions(packed{}, s, sliding, 1)
		for _, p := range numbers {
			bound := target{}
			if s == full && (p == window.TokenBucket || p == window.Fixed) {
				bound.ratio = 0.90
			}
			all.add(policyTopic, p.String()+"/"+s, b.decisions(packed{}, s, limit{hits: 100, policy: p}, 1), base, bound)
		}
		all.add(policyTopic, "gcra/"+s, b.decisions(other{gcraScript}, s, sliding, 1), base, target{})
		all.add(policyTopic, "two-counters/"+s, b.decisions(other{twoCountersScript}, s, sliding, 1), base, target{})
	}
	for _, s := range []string{full, denied} {
		for _, m := range mixes {
			all.add(policyMixTopic, mixName(m)+"/"+s, b.mixed(s, m, false), b.mixed(s, threeSliding, false), target{ratio: 1})
			all.add(policyMixTopic, mixName(m)+"/"+s+"/apart", b.mixed(s, m, false), b.mixed(s, m, true), target{ratio: 1})
		}
	}
	for _, p := range numbers {
		all.add(policyBytesTopic, p.String(), b.memory(packed{}, limit{hits: 100, policy: p}), b.memory(packed{}, sliding), target{})
	}
	return all
}

// policyTakeRows returns the rows about the other policies in the memory of a process.
func (b *bench) policyTakeRows() (all rowList) {
	one := func(p window.Policy) []window.Policy { return []window.Policy{p} }
	for _, s := range []string{full, denied} {
		for _, p := range numbers {
			ours, base := b.turns(func() (hits, error) { return b.logHits(s, p) }, func() (hits, error) { return b.logHits(s, window.Sliding) })
			all.add(policyTakeTopic, "log/"+p.String()+"/"+s, ours, base, target{ratio: 1.1})
		}
		for _, p := range numbers {
			ours, base := b.turns(func() (hits, error) { return b.storeHits(s, one(p), false) }, func() (hits, error) { return b.storeHits(s, one(window.Sliding), false) })
			all.add(policyTakeTopic, "store/"+p.String()+"/"+s, ours, base, target{ratio: 1.1})
		}
	}
	for _, what := range []string{hitAlone, endAlone, hitAndEnd, denied} {
		s, bound := full, target{ratio: 1.1}
		switch what {
		case denied:
			s = denied
		case hitAndEnd:
			bound = target{} // two calls against one
		}
		ours, base := b.turns(func() (hits, error) { return b.flights(what) }, func() (hits, error) { return b.storeHits(s, one(window.Sliding), false) })
		all.add(policyTakeTopic, "store/in_flight/"+what, ours, base, bound)
	}
	for _, s := range []string{full, denied} {
		for _, m := range mixes {
			mixed := func() (hits, error) { return b.storeHits(s, m, false) }
			ours, base := b.turns(mixed, func() (hits, error) { return b.storeHits(s, threeSliding, false) })
			all.add(policyMixTakeTopic, mixName(m)+"/"+s, ours, base, target{ratio: 1})
			ours, base = b.turns(mixed, func() (hits, error) { return b.storeHits(s, m, true) })
			all.add(policyMixTakeTopic, mixName(m)+"/"+s+"/apart", ours, base, target{ratio: 1})
		}
	}
	return all
}

// mixed measures requests that have a limit of each policy; apart, one request for each limit.
func (b *bench) mixed(state string, policies []window.Policy, apart bool) probe {
	return func(ctx context.Context) (sample, error) {
		l := limit{hits: 100}
		win, slack, before := time.Hour, uint64(0), past{hits: int(l.hits), pace: time.Second}
		send := load{each: len(policies), count: b.calls}
		if state == full {
			win, slack, before.pace, send.pace = time.Duration(l.hits)*pace, l.hits/10+3, pace, pace
		}
		if apart {
			send.each = 1
		}
		for i := range max(1, b.keys/len(policies)) {
			var group []window.Check
			for j, p := range policies {
				c := limit{hits: l.hits, policy: p}.check(fmt.Sprintf("mix%d:%d", i, j), win, slack)
				if err := (packed{}).plant(ctx, b, c, before); err != nil {
					return sample{}, err
				}
				group = append(group, c)
			}
			requests := [][]window.Check{group}
			if apart {
				requests = slices.Collect(slices.Chunk(group, 1))
			}
			for _, r := range requests {
				c, err := packed{}.calls([][]window.Check{r}, state == full)
				if err != nil {
					return sample{}, err
				}
				send.calls = append(send.calls, c)
			}
		}
		send.batch = len(send.calls)
		s, err := b.send(ctx, send)
		n := float64(len(policies))
		return sample{value: s.value * n, extra: s.extra * n}, err
	}
}

// A hits is one way to hit.
type hits struct {
	make  func(n int) error // makes so many hits, and fails if an answer is not the wanted one
	ready func(n int) error // prepares them, which is not measured; nil if nothing is to do
}

// turnHits is how many hits a turn has: few, so that a program that interrupts a turn changes
// few of them.
const turnHits = 256

// turns returns the probes of two ways to hit, which are measured together: a turn of one,
// then a turn of the other. So what slows the machine for a while slows both. A sample is the
// median of the turns, in nanoseconds for each hit.
func (b *bench) turns(ours, base func() (hits, error)) (first, second probe) {
	var measured [2]*sample
	measure := func() error {
		var (
			sides [2]hits
			took  [2][]float64
			err   error
		)
		for i, open := range []func() (hits, error){ours, base} {
			if sides[i], err = open(); err != nil {
				return err
			}
		}
		for turn := range max(2, 20*b.calls/turnHits) {
			for i := range sides {
				i = (i + turn) % len(sides)
				if sides[i].ready != nil {
					if err := sides[i].ready(turnHits); err != nil {
						return err
					}
				}
				start := time.Now()
				if err := sides[i].make(turnHits); err != nil {
					return err
				}
				took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/turnHits)
			}
		}
		for i := range measured {
			measured[i] = &sample{value: figures.Median(took[i])}
		}
		return nil
	}
	side := func(i int) probe {
		return func(context.Context) (sample, error) {
			if measured[i] == nil {
				if err := measure(); err != nil {
					return sample{}, err
				}
			}
			s := *measured[i]
			measured[i] = nil
			return s, nil
		}
	}
	return side(0), side(1)
}

// hitCheck returns a check at a limit of 100 and the time between two hits of its log, in a
// state.
func hitCheck(key, state string, p window.Policy) (c window.Check, step time.Duration) {
	l := limit{hits: 100, policy: p}
	if state == full && p != window.InFlight {
		return l.check(key, time.Duration(l.hits)*pace, l.hits/10+3), pace
	}
	return l.check(key, time.Hour, 0), time.Microsecond
}

// begin is when the clock of a benchmark begins: in the period of [limit.check], and not at the
// end of a window.
func begin() time.Duration {
	return time.Duration(time.Now().Truncate(time.Hour).Add(time.Minute).UnixNano())
}

// logHits makes hits on the bytes of one log.
func (b *bench) logHits(state string, p window.Policy) (hits, error) {
	var (
		log     []byte
		d       window.Decision
		c, step = hitCheck("log", state, p)
		now     = begin().Microseconds()
	)
	take := func() {
		now += step.Microseconds()
		var s window.State
		s.Look(log, now, &c)
		room := s.Room(&c)
		if room {
			s.Charge(&c)
		}
		s.Answer(&c, room, &d)
		log = s.Log()
	}
	for range 100 {
		take()
	}
	return hits{make: func(n int) error {
		wrong := 0
		for range n {
			if take(); d.Allowed != (state == full) {
				wrong++
			}
		}
		if wrong > 0 {
			return fmt.Errorf("%d of %d decisions are not as they should be; the last is %+v", wrong, n, d)
		}
		return nil
	}}, nil
}

// storeHits makes requests to the embedded store. Each has a limit of each policy; apart, one
// hit is a request for each limit.
func (b *bench) storeHits(state string, policies []window.Policy, apart bool) (hits, error) {
	now := begin()
	s := memstore.New(memstore.Options{Clock: func() time.Duration { return now }, SweepInterval: -1})
	requests := make([][]window.Check, b.keys)
	var step time.Duration
	for i := range requests {
		for j, p := range policies {
			var c window.Check
			c, step = hitCheck(fmt.Sprintf("a-key-of-some-length:%d:%d", i, j), state, p)
			requests[i] = append(requests[i], c)
		}
	}
	each := len(policies)
	if apart {
		each = 1
	}
	var (
		ctx       = context.Background()
		decisions = make([]window.Decision, len(policies))
		next      int
	)
	take := func() error {
		if next++; next == len(requests) {
			next, now = 0, now+step
		}
		checks := requests[next]
		for i := 0; i < len(checks); i += each {
			if _, err := s.Take(ctx, window.MayWait, checks[i:i+each], decisions[i:i+each]); err != nil {
				return err
			}
		}
		return nil
	}
	for range 100 * len(requests) {
		if err := take(); err != nil {
			return hits{}, err
		}
	}
	return hits{make: func(n int) error {
		wrong := 0
		for range n {
			if err := take(); err != nil {
				return err
			}
			for i := range decisions {
				if decisions[i].Allowed != (state == full) {
					wrong++
				}
			}
		}
		if wrong > 0 {
			return fmt.Errorf("%d answers to %d requests are not as they should be; the last are %+v", wrong, n, decisions)
		}
		return nil
	}}, nil
}

// What a row about requests in flight measures.
const (
	hitAndEnd = "hit+end"
	hitAlone  = "hit"
	endAlone  = "end"

	endDenied = 10 * time.Second // how long a stream is denied after its end, as rls does it
)

// flights makes requests to the embedded store at limits of [window.InFlight], each of a new
// stream. Half of each limit is in flight, or all of it if the state is denied. Each request that
// begins ends an older one.
func (b *bench) flights(what string) (hits, error) {
	now := begin()
	s := memstore.New(memstore.Options{Clock: func() time.Duration { return now }, SweepInterval: -1})
	checks := make([][]window.Check, max(b.keys, 8)) // a turn neither ends all streams nor fills a limit
	for i := range checks {
		c, _ := hitCheck(fmt.Sprintf("a-key-of-some-length:%d", i), full, window.InFlight)
		checks[i] = []window.Check{c}
	}
	var (
		ctx         = context.Background()
		decisions   = make([]window.Decision, 1)
		first, next window.StreamID // the streams from first up to next are in flight
		wrong       int
	)
	take := func() error {
		c := checks[int(next)%len(checks)]
		if next++; int(next)%len(checks) == 0 {
			now += time.Microsecond
		}
		c[0].Stream = next * 0x9e3779b97f4a7c15 // as even as a digest
		_, err := s.Take(ctx, window.MayWait, c, decisions)
		if decisions[0].Allowed == (what == denied) {
			wrong++
		}
		return err
	}
	end := func() error {
		first++
		held, err := s.End(ctx, first*0x9e3779b97f4a7c15, endDenied)
		if !held {
			wrong++
		}
		return err
	}
	repeat := func(steps ...func() error) func(n int) error {
		return func(n int) error {
			for range n {
				for _, step := range steps {
					if err := step(); err != nil {
						return err
					}
				}
			}
			if wrong > 0 {
				return fmt.Errorf("%d answers are not as they should be; the last is %+v", wrong, decisions)
			}
			return nil
		}
	}
	// ready lets the store forget the streams that have ended, and makes other hits.
	ready := func(steps ...func() error) func(n int) error {
		return func(n int) error {
			now += endDenied
			s.Sweep()
			return repeat(steps...)(n)
		}
	}
	inFlight := 50
	if what == denied {
		inFlight = 100
	}
	for range inFlight * len(checks) {
		if err := take(); err != nil {
			return hits{}, err
		}
	}
	wrong = 0
	switch what {
	case hitAlone:
		return hits{make: repeat(take), ready: ready(end)}, nil
	case endAlone:
		return hits{make: repeat(end), ready: ready(take)}, nil
	case hitAndEnd:
		return hits{make: repeat(end, take), ready: ready()}, nil
	default:
		return hits{make: repeat(take)}, nil
	}
}
