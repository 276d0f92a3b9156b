package main

import (
	"context"
	"slices"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"github.com/slidegate/slidegate/bench/internal/metrics"
	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// controlCallers is how many callers send requests that need no store.
const controlCallers = 20

// A scenario is one fault.
type scenario struct {
	name string
	// degrades says that the fault must degrade some answers. Otherwise the fault has
	// not happened.
	degrades bool
	// partial says that other servers still decide for their logs.
	partial bool
	// start starts the servers of the service.
	start func(t process.TB) *testbed
}

// A testbed is the servers of a scenario, and the fault.
type testbed struct {
	url string
	// masters returns the servers with the logs.
	masters func() []*servers.RedisServer
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
	// begun is called when the fault has begun. Nil: nothing is.
	begun func()

	mu sync.Mutex
	history
}

// begin calls what, which makes the fault. Calls under way at that time are in flight at
// the moment of the fault.
func (f *fault) begin(what func()) {
	f.mu.Lock()
	f.fault.from = time.Now()
	f.mu.Unlock()
	f.moment(what)
	if f.begun != nil {
		f.begun()
	}
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
func (f *fault) last() { traffic.Pause(f.ctx, f.lasts) }

// over records that the fault has been removed.
func (f *fault) over() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault.to = time.Now()
}

// loses records that charges before now may be lost by design.
func (f *fault) loses() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lostBefore = time.Now()
}

// A result is everything that was measured in a scenario.
type result struct {
	verdict
	redis   string     // its version
	answers [][]answer // of each caller, in order; caller i asked choices[i%len(choices)]
	control [][]answer // of callers whose answers need no store
	history
	// last is when the last degraded answer was received.
	last time.Time
	// noticed is how long after its beginning the service stopped asking a server;
	// negative: it did not.
	noticed          time.Duration
	end              time.Time
	ledger           ledger
	errors, degraded int // answers
	before, after    metrics.State
}

// run measures one fault and judges what it did.
func (r *result) run(t process.TB, o *options, s scenario) error {
	ctx := t.Context()
	bed := s.start(t)
	service := startService(t, o.rls, callerRules(), bed.url)
	if err := r.send(t, o, bed, service); err != nil {
		return err
	}
	outages, err := unasked(service.Logs(), r.end)
	if err != nil {
		return err
	}
	r.setOutages(outages, s.partial)
	masters := bed.masters()
	charges, err := readCharges(masters)
	if err != nil {
		return err
	}
	if r.redis, err = versionOf(masters[0]); err != nil {
		return err
	}
	r.ledger = compareLedger(r.answers, charges, r.history)
	if r.after, err = metrics.Settle(ctx, service.Admin(), settling, func(s metrics.State) bool { return grown(s, r.before) == nil }); err != nil {
		return err
	}
	r.judge(s)
	select {
	case <-service.Exited():
		r.fail("the service has ended:\n%s", service.Output())
	default:
	}
	return nil
}

// send sends calls before, during and after the fault. It records the answers and the times.
func (r *result) send(t process.TB, o *options, bed *testbed, service *edge.RLSServer) error {
	ctx := t.Context()
	var requests []*rlsv3.RateLimitRequest
	for i := range o.callers {
		requests = append(requests, request(choices[i%len(choices)], callerName(i)))
	}
	l, err := newLoad(t, []string{service.GRPC()}, requests, o.interval())
	if err != nil {
		return err
	}
	control, err := newLoad(t, []string{service.GRPC()}, slices.Repeat([]*rlsv3.RateLimitRequest{request(free, "x")}, controlCallers), o.interval())
	if err != nil {
		return err
	}

	// The warm service is the state that it must return to.
	warm := time.Now()
	l.during(ctx, o.warmUp)
	control.during(ctx, o.warmUp/4)
	if r.before, err = metrics.AtRest(ctx, service.Admin()); err != nil {
		return err
	}

	f := &fault{ctx: ctx, lasts: o.lasts}
	if bed.absent {
		// The fault has been there from the beginning.
		f.fault.from = warm
		f.moments = append(f.moments, span{warm, warm})
	}
	l.start(ctx)
	control.start(ctx)
	traffic.Pause(ctx, o.warmUp)
	bed.fault(f)
	traffic.Pause(ctx, o.recovery)
	r.end = time.Now()
	r.answers, r.control = l.end(), control.end()
	r.history = f.history
	return ctx.Err()
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

// judge counts the answers, and finds the failures.
func (r *result) judge(s scenario) {
	refused := make(map[codes.Code]int)
	exactAfter, other := 0, 0
	for _, calls := range slices.Concat(r.answers, r.control) {
		for i := range calls {
			a := &calls[i]
			if !a.exact() && a.received.After(r.last) {
				r.last = a.received
			}
			switch choice := choices[a.caller%len(choices)]; {
			case a.code != codes.OK:
				refused[a.code]++
				r.errors++
			case a.degraded:
				r.degraded++
				if choice == "allow" && !a.allowed || choice == "deny" && a.allowed {
					other++
				}
			case a.sent.After(r.fault.to):
				exactAfter++
			}
		}
	}
	for code, n := range refused {
		r.fail("%d gRPC errors %s", n, code)
	}
	if s.degrades && r.degraded == 0 {
		r.fail("nothing was degraded: the fault has not happened")
	}
	if exactAfter == 0 {
		r.fail("no exact answer after the fault")
	}
	for _, odd := range []struct {
		n    int
		what string
	}{
		{other, "degraded answers that are not those of on_store_error"},
		{r.ledger.double, "charges that no call explains"},
		{r.ledger.late, "charges after their callers had been answered"},
		{r.ledger.missing, "exact answers that were not charged"},
		{r.ledger.beyond, "calls were charged while the server was not asked"},
	} {
		if odd.n > 0 {
			r.fail("%d %s", odd.n, odd.what)
		}
	}
	if err := grown(r.after, r.before); err != nil {
		r.fail("the service does not return to where it was: %v", err)
	}
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
