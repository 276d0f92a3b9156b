package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	services = 3
	hotKeys  = 4 // of each rule
)

// Small limits, of which the callers ask for several times as much.
var (
	shortLimit = window.Limit{Hits: 50, Window: 500 * time.Millisecond}
	longLimit  = window.Limit{Hits: 120, Window: 2 * time.Second}
	hourLimit  = window.Limit{Hits: 90, Window: time.Hour}
)

// hotRules have requests on one log, on two logs of one slot, and on two logs of different slots.
// The store charges the last two one by one, and takes charges back. The window of the last rule
// is longer than the run, and its callers begin after the fault has begun.
const hotRules = "domain: " + domain + `
descriptors:
  - key: one
    rate_limit: {name: one, window: 500ms, requests: 50}
  - key: two
    rate_limit: {name: two, limits: [{window: 500ms, requests: 50}, {window: 2s, requests: 120}]}
  - key: left
    rate_limit: {name: left, window: 500ms, requests: 50}
  - key: right
    rate_limit: {name: right, window: 500ms, requests: 50}
  - key: hour
    rate_limit: {name: hour, window: 1h, requests: 90}
`

// A shared run has three services share hot logs during a fault. They count themselves.
type shared struct {
	verdict
	start func(t process.TB) *testbed
	// outage says that no server decides during the fault.
	outage bool

	fault     span
	logs      []*hotLog
	answers   [][]answer
	instances int // the smallest number that a service has counted since the fault began
}

func sharedRuns() []*shared {
	return []*shared{
		{verdict: verdict{name: "three services, slots migrate"}, start: migrating},
		{verdict: verdict{name: "three services, SIGSTOP for 60 s, FLUSHALL"}, outage: true, start: func(t process.TB) *testbed {
			return direct(t, nil, func(s *servers.RedisServer, f *fault) {
				f.begin(s.Pause)
				flush, err := net.Dial("tcp", s.Addr())
				if err != nil {
					t.Fatalf("%w", err)
				}
				defer flush.Close()
				fmt.Fprint(flush, "FLUSHALL\r\n")
				traffic.Pause(f.ctx, 20*f.lasts)
				s.Resume()
				f.over()
				if _, err := fmt.Fscanf(flush, "+OK\r\n"); err != nil {
					t.Fatalf("FLUSHALL: %w", err)
				}
				// A number of instances can fall ten seconds later.
				traffic.Pause(f.ctx, 4*f.lasts)
			})
		}},
	}
}

// run makes the fault while the services share logs, and judges what they did.
func (r *shared) run(t process.TB, o *options) error {
	ctx := t.Context()
	bed := r.start(t)
	var all []*edge.RLSServer
	var addresses []string
	for range services {
		s := startService(t, o.rls, hotRules, bed.url)
		all, addresses = append(all, s), append(addresses, s.GRPC())
	}
	if err := counted(ctx, all); err != nil {
		return err
	}
	requests, logs := hotRequests(o.callers)
	l, err := newLoad(t, addresses, requests, o.interval())
	if err != nil {
		return err
	}
	requests, hours := hourRequests(o.callers)
	later, err := newLoad(t, addresses, requests, o.interval())
	if err != nil {
		return err
	}
	l.start(ctx)
	traffic.Pause(ctx, o.warmUp)
	f := &fault{ctx: ctx, lasts: o.lasts, begun: func() { later.start(ctx) }}
	bed.fault(f)
	traffic.Pause(ctx, o.recovery)
	r.answers = append(l.end(), later.end()...)
	r.logs, r.fault = append(logs, hours...), f.fault
	if err := ctx.Err(); err != nil {
		return err
	}
	r.instances = services
	for _, s := range all {
		_, least, err := instances(s.Logs(), r.fault.from)
		if err != nil {
			return err
		}
		r.instances = min(r.instances, least)
	}
	r.judge()
	return nil
}

// counted waits until each service has counted all of them.
func counted(ctx context.Context, all []*edge.RLSServer) error {
	for deadline := time.Now().Add(2 * settling); ; traffic.Pause(ctx, 100*time.Millisecond) {
		least := services
		for _, s := range all {
			n, _, err := instances(s.Logs(), time.Time{})
			if err != nil {
				return err
			}
			least = min(least, n)
		}
		if least == services || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a service counts %d instances, want %d", least, services)
		}
	}
}

// judge counts, and finds the failures.
func (r *shared) judge() {
	for _, calls := range r.answers {
		for i := range calls {
			if code := calls[i].code; code != codes.OK {
				r.fail("a gRPC error %s", code)
			}
		}
	}
	if r.instances < services {
		r.fail("a service counted %d instances since the fault began, want %d", r.instances, services)
	}
	if first, _ := r.recovered(); r.outage && (first < 0 || first > recoverTarget) {
		r.fail("a service was not exact again within %v: %v", recoverTarget, first)
	}
	for _, l := range r.logs {
		l.count(r.answers)
		hits, quota := int(l.limit.Hits), l.quota()
		for _, c := range []struct {
			what        string
			most, bound int
		}{
			{"all services admitted", l.exact.most, hits},
			{"a service admitted without Redis", l.most(), quota},
			{"all services admitted with and without Redis", l.both.most, 2 * hits},
		} {
			if c.most > c.bound {
				r.fail("%s %s: %s %d within %v, at most %d may pass", l.rule, l.value, c.what, c.most, l.limit.Window, c.bound)
			}
		}
		if l.exact.most < hits/2 {
			r.fail("%s %s: at most %d within %v: the limit was not tried", l.rule, l.value, l.exact.most, l.limit.Window)
		}
		if !r.outage {
			continue
		}
		if l.most() < quota/2 {
			r.fail("%s %s: a service admitted at most %d without Redis: its quota was not tried", l.rule, l.value, l.most())
		}
		if l.rule == "hour" && l.fallback.all != services*quota {
			r.fail("%s %s: the services admitted %d without Redis, want %d each", l.rule, l.value, l.fallback.all, quota)
		}
	}
}

// recovered returns how long after the fault each service had given an exact answer, negative if
// one never did, and how many answers were degraded later than recoverTarget after it.
func (r *shared) recovered() (first time.Duration, later int) {
	var firsts [services]time.Duration
	for _, calls := range r.answers {
		for i := range calls {
			a := &calls[i]
			after := a.received.Sub(r.fault.to)
			if a.degraded && after > recoverTarget {
				later++
			}
			if at := &firsts[a.service]; a.exact() && after > 0 && (*at == 0 || after < *at) {
				*at = after
			}
		}
	}
	if slices.Contains(firsts[:], 0) {
		return -1, later
	}
	return slices.Max(firsts[:]), later
}

// A hotLog is a log that callers of all services charge.
type hotLog struct {
	rule, value string
	limit       window.Limit
	callers     []int // whose allowed answers it holds

	exact, fallback, both admitted
	byService             [services]admitted // the fallback of each service
}

// admitted is a number of allowed answers, and the largest one that certainly lies in one window.
type admitted struct{ all, most int }

// quota is the largest number that a service may admit in a window while Redis fails.
func (l *hotLog) quota() int { return int(l.limit.Hits) / services }

// most returns the largest number that a service admitted in a window without Redis.
func (l *hotLog) most() (n int) {
	for _, a := range l.byService {
		n = max(n, a.most)
	}
	return n
}

// count counts the allowed answers. A charge is made between the sending of its call and the answer.
func (l *hotLog) count(answers [][]answer) {
	of := func(chosen func(a *answer) bool) (n admitted) {
		var spans []traffic.Span
		for _, caller := range l.callers {
			for i := range answers[caller] {
				if a := &answers[caller][i]; a.allowed && a.code == codes.OK && chosen(a) {
					spans = append(spans, traffic.Span{From: time.Duration(a.sent.UnixNano()), To: time.Duration(a.received.UnixNano())})
				}
			}
		}
		return admitted{len(spans), traffic.MostInWindow(spans, l.limit.Window)}
	}
	l.exact = of((*answer).exact)
	l.fallback = of(func(a *answer) bool { return a.degraded })
	l.both = of(func(*answer) bool { return true })
	for service := range l.byService {
		l.byService[service] = of(func(a *answer) bool { return a.degraded && a.service == service })
	}
}

// hotRequests returns the requests of the callers, and the logs that they charge.
func hotRequests(callers int) (requests []*rlsv3.RateLimitRequest, logs []*hotLog) {
	log := func(rule, value string, limit window.Limit, caller int) {
		i := slices.IndexFunc(logs, func(l *hotLog) bool { return l.rule == rule && l.value == value && l.limit == limit })
		if i < 0 {
			i = len(logs)
			logs = append(logs, &hotLog{rule: rule, value: value, limit: limit})
		}
		logs[i].callers = append(logs[i].callers, caller)
	}
	for i := range callers {
		value := fmt.Sprintf("hot-%d", i/3%hotKeys)
		switch i % 3 {
		case 0:
			requests = append(requests, request("one", value))
			log("one", value, shortLimit, i)
		case 1:
			requests = append(requests, request("two", value))
			log("two", value, shortLimit, i)
			log("two", value, longLimit, i)
		default:
			// Not always the same pairs, so that one of them denies and the other not.
			other := fmt.Sprintf("hot-%d", i/(3*hotKeys)%hotKeys)
			q := request("left", value)
			q.Descriptors = append(q.Descriptors, traffic.Descriptor("right", other))
			requests = append(requests, q)
			log("left", value, shortLimit, i)
			log("right", other, shortLimit, i)
		}
	}
	return requests, logs
}

// hourRequests returns the requests of further callers, whose ids begin with first, and the logs
// that they charge. Each service has a caller for each log.
func hourRequests(first int) (requests []*rlsv3.RateLimitRequest, logs []*hotLog) {
	for key := range hotKeys {
		l := &hotLog{rule: "hour", value: fmt.Sprintf("hour-%d", key), limit: hourLimit}
		for range services {
			l.callers = append(l.callers, first+len(requests))
			requests = append(requests, request(l.rule, l.value))
		}
		logs = append(logs, l)
	}
	return requests, logs
}

// write writes the result as a Markdown table, a row for each kind of logs.
func (r *shared) write(w io.Writer) {
	n, degraded := 0, 0
	for _, calls := range r.answers {
		for i := range calls {
			n++
			if calls[i].degraded {
				degraded++
			}
		}
	}
	fmt.Fprintf(w, "%s: %d answers, %d degraded", r.name, n, degraded)
	if q := quantilesOf(r.answers, r.fault); q.count > 0 {
		fmt.Fprintf(w, "; %.1f s, p50 %s ms, p99.9 %s ms", r.fault.to.Sub(r.fault.from).Seconds(), millis(q.p50), millis(q.p999))
	}
	first, later := r.recovered()
	fmt.Fprintf(w, "; every service exact after %d ms (≤ %d), %d degraded later than %[2]d ms; instances counted: %[4]d (≥ %d)\n\n",
		first.Milliseconds(), recoverTarget.Milliseconds(), later, r.instances, services)
	figures.Head(w, "| rule | limit | logs | exact | most in a window | ≤ | without Redis | most of a service in a window | ≤ | all, most in a window | ≤ |")
	for i, first := range r.logs {
		same := func(l *hotLog) bool { return l.rule == first.rule && l.limit == first.limit }
		if slices.IndexFunc(r.logs, same) < i {
			continue
		}
		var sum hotLog
		logs, ofService := 0, 0
		for _, l := range r.logs {
			if same(l) {
				logs++
				sum.exact.add(l.exact)
				sum.fallback.add(l.fallback)
				sum.both.add(l.both)
				ofService = max(ofService, l.most())
			}
		}
		fmt.Fprintf(w, "| %s | %d per %v | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", first.rule, first.limit.Hits, first.limit.Window, logs,
			sum.exact.all, sum.exact.most, first.limit.Hits, sum.fallback.all, ofService, first.quota(), sum.both.most, 2*first.limit.Hits)
	}
	fmt.Fprintln(w)
}

// add adds the number of another log.
func (n *admitted) add(other admitted) {
	n.all += other.all
	n.most = max(n.most, other.most)
}
