package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/slidegate/slidegate/bench/internal/metrics"
	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	// patience is how long Envoy waits for rls, and rls for Redis. It is far above the 50 ms and the
	// 15 ms of production: no answer of a busy machine may come from on_store_error or from Envoy.
	patience = 30 * time.Second
)

// A live service is rls behind Envoy, with an application behind both.
type live struct {
	rls    *edge.RLSServer
	envoy  *edge.EnvoyServer
	client *http.Client
}

// startLive starts a service with the texts of two files. callers is how many requests are under
// way at most.
func startLive(t process.TB, o *options, store, rules, tiers string, callers int) *live {
	t.Helper()
	env := map[string]string{"SLIDEGATE_STORE_TYPE": store}
	if store == "redis" {
		env["SLIDEGATE_STORE_REDIS_URL"] = "redis://" + servers.Redis(t)
		env["SLIDEGATE_STORE_TIMEOUT"] = "10s" // the longest
	}
	l := &live{rls: edge.StartRLS(t, edge.RLSOptions{Binary: o.rls, Rules: rules, Tiers: tiers, Env: env})}
	l.envoy = edge.Envoy(t, edge.EnvoyOptions{
		Binary: o.envoy, Config: o.config, Upstream: startUpstream(t), RLS: l.rls.GRPC(), Concurrency: 2,
		Replace: map[string]string{"timeout: 0.05s": "timeout: " + strconv.Itoa(int(patience.Seconds())) + "s"},
	})
	transport := &http.Transport{MaxIdleConns: callers, MaxIdleConnsPerHost: callers}
	t.Cleanup(transport.CloseIdleConnections)
	l.client = &http.Client{Transport: transport, Timeout: 2 * patience}
	return l
}

var listening = regexp.MustCompile(`listening on (\S+)\n`)

// startUpstream starts test/upstream and returns its address.
func startUpstream(t process.TB) string {
	t.Helper()
	path, err := process.Build("test/upstream")
	if err != nil {
		t.Fatalf("%w", err)
	}
	p, err := process.Start("upstream", exec.Command(path, "-listen", "127.0.0.1:0"))
	if err != nil {
		t.Fatalf("%w", err)
	}
	t.Cleanup(p.Kill)
	if err := p.UntilOutput("listening on "); err != nil {
		t.Fatalf("%w", err)
	}
	return listening.FindStringSubmatch(p.Output())[1]
}

// ask sends a request and reads the answer as a client does.
func (l *live) ask(ctx context.Context, key string) (allowed bool, retryAfter time.Duration, err error) {
	r, err := traffic.Get(ctx, l.client, l.envoy.URL()+"/items", key)
	return r.Allowed, r.RetryAfter, err
}

// run lets customers send for a time, and then until enough returns true. It returns when every
// request has its answer.
func (l *live) run(ctx context.Context, all []*customer, lasts time.Duration, enough func() bool) error {
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var (
		begun   = time.Now()
		running sync.WaitGroup
		mu      sync.Mutex
		failed  []error
	)
	for _, c := range all {
		for _, caller := range c.callers {
			running.Go(func() {
				if err := l.live(sending, caller, begun); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, err)
					stop()
				}
			})
		}
	}
	for traffic.Pause(sending, lasts); sending.Err() == nil && !enough(); {
		traffic.Pause(sending, 10*time.Millisecond)
	}
	stop()
	running.Wait()
	if len(failed) > 0 {
		return failed[0]
	}
	return ctx.Err()
}

// live is the life of a caller, until sending ends. A request that was sent gets its answer.
func (l *live) live(sending context.Context, c *caller, begun time.Time) error {
	for next := c.first; next < never; {
		traffic.Pause(sending, next-time.Since(begun))
		if sending.Err() != nil {
			return nil
		}
		sent := time.Since(begun)
		at, send := c.turn(sent)
		if !send {
			next = at
			continue
		}
		allowed, retryAfter, err := l.ask(context.WithoutCancel(sending), c.customer.key())
		if err != nil {
			return err
		}
		next = c.answered(sent, time.Since(begun), allowed, retryAfter)
	}
	return nil
}

// audit compares what Envoy and rls have counted with what customers were answered. If one request
// passed without a decision of the store, the run proves nothing.
func (l *live) audit(ctx context.Context, all []*customer) error {
	var allowed, denied uint64
	for _, c := range all {
		for _, a := range c.calls {
			if a.allowed {
				allowed++
			} else {
				denied++
			}
		}
	}
	for _, want := range []struct {
		stat string
		n    uint64
	}{
		{"cluster.upstream.ratelimit.ok", allowed},
		{"cluster.upstream.ratelimit.over_limit", denied},
		{"cluster.upstream.ratelimit.error", 0},
		{"cluster.upstream.upstream_rq_total", allowed}, // what the application got
	} {
		if got, err := l.envoy.Stat(want.stat); err != nil || got != want.n {
			return errors.Join(err, fmt.Errorf("%s of Envoy is %d, and customers were answered %d times so", want.stat, got, want.n))
		}
	}
	m, err := metrics.Read(ctx, l.rls.Admin()+"/metrics")
	if err != nil {
		return err
	}
	if n := m.Sum("slidegate_degraded_answers_total", ""); n > 0 {
		return fmt.Errorf("rls has decided %.0f requests without its store", n)
	}
	return nil
}
