package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/program"
)

// A scenario is one fault.
type scenario struct {
	name string
	// degrades says that the fault must degrade some answers. Otherwise the fault has
	// not happened.
	degrades bool
	// partial says that other servers still decide for their own logs.
	partial bool
	// start starts the servers of the service.
	start func(t process.TB) *testbed
}

// A testbed is the servers of a scenario, and the fault.
type testbed struct {
	url string
	// near is the URL of the region's own store. url is then that of a store that all regions
	// share. Empty: there is only one store.
	near string
	// masters returns the addresses of the servers with the logs.
	masters func() []string
	// fault makes the fault and removes it, and reports the times to f. It runs in the
	// goroutine of the scenario.
	fault func(f *fault)
	// absent says that there is no Redis when the service starts.
	absent bool
}

// A fault records the times of a fault.
type fault struct {
	ctx context.Context
	// lasts is how long the fault is to last where that is up to the scenario.
	lasts time.Duration

	mu      sync.Mutex
	begun   time.Time
	ended   time.Time
	lost    time.Time // what was charged before may be gone
	moments []span
	notes   []string
}

// note adds a line below the tables.
func (f *fault) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// begin calls what, which makes the fault. Calls under way at that time are in flight at
// the moment of the fault.
func (f *fault) begin(what func()) {
	f.mu.Lock()
	f.begun = time.Now()
	f.mu.Unlock()
	f.moment(what)
}

// moment calls what, which calls under way may not survive.
func (f *fault) moment(what func()) {
	from := time.Now()
	what()
	f.during(span{from, time.Now()})
}

// during records a time that calls under way may not survive.
func (f *fault) during(s span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moments = append(f.moments, s)
}

// last waits while the fault lasts.
func (f *fault) last() { program.Pause(f.ctx, f.lasts) }

// over records that the fault has been removed.
func (f *fault) over() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = time.Now()
}

// loses records that charges before now may be lost by design.
func (f *fault) loses() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = time.Now()
}

// A result is everything that was measured in a scenario.
type result struct {
	scenario string
	redis    string // its version
	rules    []string
	answers  [][]answer // of each caller, in order; caller i asked rules[i%len(rules)]
	control  [][]answer // of callers whose answers need no store
	history
	// last is when the last degraded answer was received.
	last time.Time
	// far says that the store is that of all regions. region are then the answers of callers who
	// need only the region's own.
	far    bool
	region [][]answer
	// noticed is how long after its beginning the service stopped asking a server;
	// negative: it did not.
	noticed  time.Duration
	end      time.Time
	ledger   ledger
	inFlight int
	before   program.State
	after    program.State
	notes    []string
	failures []string
}

// stall is how long an answer that needs no store may take. A longer one means that the
// machine was busy.
const stall = 10 * time.Millisecond

// runScenario runs one fault, up to o.attempts times until the machine is quiet. It
// returns the quietest attempt, with the failures of all attempts.
func runScenario(ctx context.Context, o *options, s scenario) (*result, error) {
	var quietest *result
	var failures []string
	for range o.attempts {
		r, err := attempt(ctx, o, s)
		if err != nil {
			return nil, err
		}
		failures = append(failures, r.failures...)
		if quietest == nil || r.machine() < quietest.machine() {
			quietest = r
		}
		if quietest.machine() <= stall {
			break
		}
	}
	quietest.failures = failures
	return quietest, nil
}

// machine returns the time of the slowest answer that needs no store.
func (r *result) machine() time.Duration { return quantilesOf(r.control, r.met(), nil).slowest }

// attempt runs one fault from beginning to end.
func attempt(ctx context.Context, o *options, s scenario) (*result, error) {
	r := &result{scenario: s.name, rules: o.rules}
	err := process.Run(ctx, func(t process.TB) {
		if err := r.run(t, o, s); err != nil {
			t.Fatalf("%w", err)
		}
	})
	return r, err
}

// run measures one fault and judges what it did.
func (r *result) run(t process.TB, o *options, s scenario) error {
	ctx := t.Context()
	bed := s.start(t)
	service := startService(t, o.rls, rulesFile(o.rules, bed.near != ""), bed.url, bed.near)
	if err := r.meet(t, o, bed, service); err != nil {
		return err
	}
	outages, err := unasked(service.Logs(), r.end)
	if err != nil {
		return err
	}
	r.setOutages(outages, s.partial)
	masters := bed.masters()
	charges, err := readCharges(ctx, masters)
	if err != nil {
		return err
	}
	if r.redis, err = versionOf(ctx, masters[0]); err != nil {
		return err
	}
	r.ledger = compareLedger(r.answers, charges, r.history)
	r.inFlight = inFlight(r.answers, r.moments)
	for _, calls := range r.answers {
		for i := range calls {
			if a := &calls[i]; !a.exact() && a.received.After(r.last) {
				r.last = a.received
			}
		}
	}
	if r.after, err = program.Settle(ctx, service.Admin(), settling, func(s program.State) bool { return grown(s, r.before) == nil }); err != nil {
		return err
	}
	r.judge(s)
	if o.explain != nil {
		r.explain(o.explain)
	}
	select {
	case <-service.Exited():
		r.fail("the service has ended:\n%s", service.Output())
	default:
	}
	return nil
}

// meet sends calls before, during and after the fault. It records the answers and the times.
func (r *result) meet(t process.TB, o *options, bed *testbed, service *edge.RLSServer) error {
	ctx := t.Context()

	var questions []*rlsv3.RateLimitRequest
	for i := range o.callers {
		questions = append(questions, question(o.rules[i%len(o.rules)], callerName(i)))
	}
	l, err := newLoad([]string{service.GRPC()}, questions, o.interval())
	if err != nil {
		return err
	}
	t.Cleanup(l.close)
	free, err := newLoad([]string{service.GRPC()}, slices.Repeat([]*rlsv3.RateLimitRequest{question(free, "x")}, controlCallers), o.interval())
	if err != nil {
		return err
	}
	t.Cleanup(free.close)
	var ofRegion []*rlsv3.RateLimitRequest
	if bed.near != "" {
		ofRegion = slices.Repeat([]*rlsv3.RateLimitRequest{question(near, "x")}, controlCallers)
	}
	region, err := newLoad([]string{service.GRPC()}, ofRegion, o.interval())
	if err != nil {
		return err
	}
	t.Cleanup(region.close)

	// The warm service is the state that it must return to.
	warm := time.Now()
	l.during(ctx, o.warmUp)
	free.during(ctx, o.warmUp/4)
	if r.before, err = program.AtRest(ctx, service.Admin()); err != nil {
		return err
	}

	f := &fault{ctx: ctx, lasts: o.lasts}
	if bed.absent {
		// The fault has been there from the beginning.
		f.begun = warm
		f.moments = append(f.moments, span{warm, warm})
	}
	l.start(ctx)
	free.start(ctx)
	region.start(ctx)
	program.Pause(ctx, o.warmUp)
	bed.fault(f)
	program.Pause(ctx, o.recovery)
	r.end = time.Now()
	l.end()
	free.end()
	region.end()
	if err := ctx.Err(); err != nil {
		return err
	}

	r.answers, r.control, r.region = l.answers(), free.answers(), region.answers()
	r.history = history{fault: span{f.begun, f.ended}, moments: f.moments, lostBefore: f.lost}
	r.far = bed.near != ""
	if r.far {
		q := quantilesOf(r.region, r.met(), nil)
		f.note("%d answers under a limit of the region: p50 %s ms, p99.9 %s ms, slowest %s ms; %d of them degraded",
			q.count, millis(q.p50), millis(q.p999), millis(q.slowest), r.degradedInRegion())
	}
	r.notes = f.notes
	return nil
}

// setOutages sets when the service noticed the fault, and when it did not ask the server.
// partial: other servers still decided.
func (r *result) setOutages(outages map[string][]span, partial bool) {
	r.noticed = -1
	for _, spans := range outages {
		for _, u := range spans {
			if after := u.from.Sub(r.fault.from); after >= 0 && u.from.Before(r.fault.to) && (r.noticed < 0 || after < r.noticed) {
				r.noticed = after
			}
		}
		if len(outages) == 1 && !partial {
			r.unasked = spans
		}
	}
}

func (r *result) fail(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// judge finds the failures.
func (r *result) judge(s scenario) {
	refused := make(map[codes.Code]int)
	degraded, exactAfter := 0, 0
	for _, calls := range slices.Concat(r.answers, r.control, r.region) {
		for i := range calls {
			a := &calls[i]
			switch {
			case a.code != codes.OK:
				refused[a.code]++
			case a.degraded:
				degraded++
			case a.sent.After(r.fault.to):
				exactAfter++
			}
		}
	}
	for code, n := range refused {
		r.fail("%d gRPC errors %s", n, code)
	}
	if s.degrades && degraded == 0 {
		r.fail("nothing was degraded: the fault has not happened")
	}
	if n := r.degradedInRegion(); n > 0 && r.machine() <= stall {
		r.fail("%d answers that need only the store of the region were degraded", n)
	}
	if exactAfter == 0 {
		r.fail("no exact answer after the fault")
	}
	if n := r.ledger.double; n > 0 {
		r.fail("%d charges that no call explains", n)
	}
	if n := r.ledger.late; n > 0 {
		r.fail("%d charges after their callers had been answered", n)
	}
	if n := r.ledger.missing; n > 0 {
		r.fail("%d exact answers that were not charged", n)
	}
	if n := r.ledger.ghosts.beyond; n > 0 {
		r.fail("%d calls were charged while the server was not asked", n)
	}
	if err := grown(r.after, r.before); err != nil {
		r.fail("the service does not return to where it was: %v", err)
	}
}

// degradedInRegion counts the degraded answers under a limit of the region. A busy machine can
// cause some.
func (r *result) degradedInRegion() (n int) {
	for _, calls := range r.region {
		for i := range calls {
			if calls[i].degraded {
				n++
			}
		}
	}
	return n
}

// met returns when calls may have met the fault: from its beginning to the last
// degraded answer, or its end.
func (r *result) met() span {
	to := r.fault.to
	if r.last.After(to) {
		to = r.last
	}
	return span{r.fault.from, to}
}

// recovered returns how long after the fault the last degraded answer came, and
// false if they came until the end.
func (r *result) recovered() (time.Duration, bool) {
	d := max(0, r.last.Sub(r.fault.to))
	return d, r.end.Sub(r.last) > 10*storeTimeout
}

// errNoScenario is the error of a flag -only that matches nothing.
var errNoScenario = errors.New("matches no scenario")

// explainMost is how many oddities of a kind explain writes.
const explainMost = 20

// explain writes the calls whose answer and charge differ, with times since the
// beginning of the fault, in milliseconds.
func (r *result) explain(w io.Writer) {
	since := func(t time.Time) string { return millis(t.Sub(r.fault.from)) }
	fmt.Fprintf(w, "%s: the fault ended at %s ms\n", r.scenario, since(r.fault.to))
	degraded := make(map[int64]int) // by tenths of a second
	for _, calls := range r.answers {
		for i := range calls {
			if a := &calls[i]; !a.exact() {
				degraded[a.received.Sub(r.fault.from).Milliseconds()/100]++
			}
		}
	}
	for _, tenth := range slices.Sorted(maps.Keys(degraded)) {
		fmt.Fprintf(w, "  degraded answers from %d ms on: %d\n", tenth*100, degraded[tenth])
	}
	for _, m := range r.moments {
		fmt.Fprintf(w, "  a moment from %s to %s\n", since(m.from), since(m.to))
	}
	told := make(map[string]int)
	for _, o := range r.ledger.odd {
		if told[o.what]++; told[o.what] > explainMost {
			continue
		}
		a := &o.answer
		fmt.Fprintf(w, "  %s: caller %d, rule %s, from %s to %s, allowed %t, degraded %t; charged",
			o.what, a.caller, r.rules[a.caller%len(r.rules)], since(a.sent), since(a.received), a.allowed, a.degraded)
		for _, c := range o.charges {
			fmt.Fprintf(w, " %d at %s", c.cost, since(c.at))
		}
		fmt.Fprintln(w)
	}
}
