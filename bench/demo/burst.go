package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/bench/internal/traffic"
)

const (
	// A burst sends half of its requests before the full second and half after it. They have
	// even distances, and a pause before and after the second.
	half  = limit
	step  = 6 * time.Millisecond
	space = 10 * time.Millisecond

	// attempts is how often a burst is sent anew that a busy machine has kept
	// from being sent as planned.
	attempts = 5

	// lead is how long before the first request everything is ready.
	lead = 200 * time.Millisecond
)

// A request of the burst and its answer.
type request struct {
	offset time.Duration // from the full second; when it was sent
	fixed  bool          // the verdict of the fixed window
	answer
}

// An answer is the response that a client gets.
type answer struct {
	traffic.Response
	remaining int
}

// A burst is all requests in the order in which they were sent.
type burst struct{ requests []request }

// The two counters, as lanes of the time line and the drawing.
type lane func(request) bool

func fixed(r request) bool     { return r.fixed }
func slidegate(r request) bool { return r.Allowed }

// admitted counts what one of the counters admits.
func (b *burst) admitted(by lane) int {
	n := 0
	for _, r := range b.requests {
		if by(r) {
			n++
		}
	}
	return n
}

// length is the time from the first request to the last.
func (b *burst) length() time.Duration {
	return (b.requests[len(b.requests)-1].offset - b.requests[0].offset).Round(time.Millisecond)
}

// lastDenied returns the last request that slidegate denied, or nil.
func (b *burst) lastDenied() *request {
	for i := len(b.requests) - 1; i >= 0; i-- {
		if !b.requests[i].Allowed {
			return &b.requests[i]
		}
	}
	return nil
}

func (b *burst) summary() string {
	exactly := "exactly "
	if b.admitted(slidegate) != limit {
		exactly = ""
	}
	return fmt.Sprintf("Limit %d a second, %d requests within %v: the fixed window admitted %d, slidegate %s%d.",
		limit, len(b.requests), b.length(), b.admitted(fixed), exactly, b.admitted(slidegate))
}

// asPlanned reports whether the requests were sent before and after the full
// second as planned.
func (b *burst) asPlanned() bool {
	for i, r := range b.requests {
		if (i < half) != (r.offset < 0) {
			return false
		}
	}
	return true
}

// straddle sends the burst around the next full second. If the machine was too busy to send it
// as planned, straddle sends it again around a later one.
func straddle(ctx context.Context, url string) (*burst, error) {
	if err := warmUp(ctx, url); err != nil {
		return nil, err
	}
	var b *burst
	for range attempts {
		first := half*step + space - step // how long before the full second it begins
		second := time.Now().Add(first + lead).Truncate(time.Second).Add(time.Second)
		var err error
		if b, err = sendBurst(ctx, url, second); err != nil {
			return nil, err
		}
		if b.asPlanned() {
			break
		}
		// Nothing of this attempt may be left in the window of the next.
		if err := sleepUntil(ctx, time.Now().Add(time.Second)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// warmUp opens as many connections as the burst needs, with requests that are not
// limited.
func warmUp(ctx context.Context, url string) error {
	errs := make([]error, 2*half)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = send(ctx, url, "") })
	}
	all.Wait()
	return errors.Join(errs...)
}

// sendBurst sends every request at its time, whether or not the one before has
// been answered.
func sendBurst(ctx context.Context, url string, second time.Time) (*burst, error) {
	b := &burst{requests: make([]request, 2*half)}
	errs := make([]error, len(b.requests))
	counter := fixedWindow{limit: limit}
	var all sync.WaitGroup
	defer all.Wait()
	for i := range b.requests {
		if err := sleepUntil(ctx, second.Add(plan(i))); err != nil {
			return nil, err
		}
		now := time.Now()
		r := &b.requests[i]
		r.offset = now.Sub(second)
		r.fixed = counter.allow(now)
		all.Go(func() { r.answer, errs[i] = send(ctx, url, apiKey) })
	}
	all.Wait()
	return b, errors.Join(errs...)
}

// plan is when request i is to be sent, from the full second.
func plan(i int) time.Duration {
	if i < half {
		return -space - time.Duration(half-1-i)*step
	}
	return space + time.Duration(i-half)*step
}

func sleepUntil(ctx context.Context, at time.Time) error {
	traffic.Pause(ctx, time.Until(at))
	return ctx.Err()
}

// client keeps the connections of the warm-up for the burst.
var client = &http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 2 * half},
}

// send sends a request. Without a key, no rule limits it.
func send(ctx context.Context, url, key string) (a answer, err error) {
	if a.Response, err = traffic.Get(ctx, client, url, key); err != nil || key == "" {
		return a, err
	}
	a.remaining, err = parseRemaining(a.Header.Get("RateLimit"))
	return a, err
}

// parseRemaining reads the parameter r of a RateLimit field with one item, such
// as "per-key";r=9;t=1.
func parseRemaining(field string) (int, error) {
	for _, p := range strings.Split(field, ";")[1:] {
		if v, ok := strings.CutPrefix(strings.TrimSpace(p), "r="); ok {
			n, err := strconv.Atoi(v)
			if err == nil && n >= 0 {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("an answer with RateLimit %q", field)
}
