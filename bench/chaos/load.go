package main

import (
	"context"
	"sync"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/process"
)

const (
	domain = "chaos"
	// connections is how many a caller has to the service: an Envoy has one for
	// each of its threads.
	connections = 4
	// patience is the deadline of a call, which goes with it as grpc-timeout. It is
	// far above store.timeout, so that a slow answer is measured and not cut off.
	patience = time.Second
	// free is a descriptor key that no rule has: its answer needs no store.
	free = "free"
)

// An answer is the outcome of one call.
type answer struct {
	caller         int
	service        int // which service gave it
	sent, received time.Time
	allowed        bool
	degraded       bool // decided by on_store_error
	code           codes.Code
}

func (a *answer) took() time.Duration { return a.received.Sub(a.sent) }

// exact reports whether the store has decided.
func (a *answer) exact() bool { return a.code == codes.OK && !a.degraded }

// during reports whether the call was under way at any time between from and to.
func (a *answer) during(from, to time.Time) bool {
	return !a.received.Before(from) && !a.sent.After(to)
}

// A caller sends one request over and over, one call after the other.
type caller struct {
	client  rlsv3.RateLimitServiceClient
	request *rlsv3.RateLimitRequest
	answer           // what is the same in all answers
	answers []answer // only for its own goroutine while it calls
}

// request returns a request with one descriptor of one entry.
func request(key, value string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{
		Domain:      domain,
		Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{traffic.Descriptor(key, value)},
	}
}

func (c *caller) call(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a := c.answer
	a.sent = time.Now()
	out, err := c.client.ShouldRateLimit(ctx, c.request)
	a.received = time.Now()
	a.code = status.Code(err)
	a.allowed = out.GetOverallCode() == rlsv3.RateLimitResponse_OK
	_, a.degraded = out.GetDynamicMetadata().GetFields()["degraded"]
	c.answers = append(c.answers, a)
}

// load is callers that call at a steady pace: each waits for its answer, and then until
// it is its turn again. So the machine is not busy, and a slow answer is slow in the
// service.
type load struct {
	conns    []*grpc.ClientConn
	callers  []*caller
	interval time.Duration // from call to call of one caller
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// newLoad makes a load on services that share a store, for the time of the run; addresses are
// theirs. Its callers have the ids from 0.
func newLoad(t process.TB, addresses []string, requests []*rlsv3.RateLimitRequest, interval time.Duration) (*load, error) {
	l := &load{interval: interval, stop: func() {}}
	t.Cleanup(l.close)
	for range connections {
		for _, address := range addresses {
			conn, err := traffic.Dial(address)
			if err != nil {
				return nil, err
			}
			l.conns = append(l.conns, conn)
		}
	}
	for i, q := range requests {
		// Callers with one request, at equal distances, are spread over the services too.
		at := (i + i/len(l.conns)) % len(l.conns)
		l.callers = append(l.callers, &caller{
			client:  rlsv3.NewRateLimitServiceClient(l.conns[at]),
			request: q,
			answer:  answer{caller: i, service: at % len(addresses)},
		})
	}
	return l, nil
}

// start starts the callers, evenly spread over the interval.
func (l *load) start(ctx context.Context) {
	ctx, l.stop = context.WithCancel(ctx)
	begin := time.Now()
	for i, c := range l.callers {
		first := begin.Add(l.interval * time.Duration(i) / time.Duration(len(l.callers)))
		l.running.Go(func() {
			// Two calls of a caller are far enough apart to distinguish their charges. A call that has
			// begun is finished: its answer counts.
			traffic.Turns(ctx, first, l.interval, 2*clockSlack, func() { c.call(context.WithoutCancel(ctx)) })
		})
	}
}

// end waits until every caller has its last answer. It returns all answers, by caller, in order.
func (l *load) end() [][]answer {
	l.stop()
	l.running.Wait()
	all := make([][]answer, len(l.callers))
	for i, c := range l.callers {
		all[i] = c.answers
	}
	return all
}

// during runs the load for some time.
func (l *load) during(ctx context.Context, d time.Duration) {
	l.start(ctx)
	traffic.Pause(ctx, d)
	l.end()
}

// close ends the load for good.
func (l *load) close() {
	l.end()
	for _, c := range l.conns {
		c.Close()
	}
}
