package client

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	defaultMaxWait    = time.Minute
	defaultMaxRetries = 4
	defaultRetryRate  = 10

	// The random part of a wait: 1/spread of it, at least leastSpread. From the second retry
	// on, the bound doubles from leastSpread to mostSpread.
	spread      = 10
	leastSpread = time.Second
	mostSpread  = time.Minute

	// A connection is used again if the rest of a body arrives within these bounds.
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// A Transport is an [http.RoundTripper] that repeats requests which a rate limit denied, after
// the wait that the server asks for. The zero value is ready to use. A Transport is safe for
// concurrent use; its fields must not change once it is used. Programs should share one
// Transport, because RetriesPerSecond and Pace apply to the requests of one Transport.
type Transport struct {
	// Base sends the requests. If it is nil, http.DefaultTransport does.
	Base http.RoundTripper

	// MaxWait bounds how long one request waits, over all its retries. Zero means one minute.
	// If it is negative, requests never wait.
	MaxWait time.Duration

	// MaxRetries bounds the retries of one request. Zero means 4. If it is negative, no
	// request is repeated.
	MaxRetries int

	// RetriesPerSecond bounds the retries of all requests. As many may be sent at once after
	// a pause. Further ones wait. Zero means 10. If it is negative, there is no bound. A
	// request that Pace delayed after a denial counts as a retry if the limit is unknown.
	RetriesPerSecond int

	// Pace, if positive, spreads the requests of a key over the window of its limit, so that
	// the limit is not reached. The time between two requests is the window divided by the
	// limit, but at most Pace. When the limit is used up, all requests of the key wait.
	Pace time.Duration

	// Key names the limit that a request belongs to, for Pace. If it is nil, the limit
	// belongs to the host of the URL. Pace keeps at most 1024 keys, and forgets the one that
	// was used least recently.
	Key func(*http.Request) string

	random func() float64 // in [0, 1); nil: math/rand/v2

	mu      sync.Mutex
	lanes   map[string]*lane
	retries time.Time // the bucket of retries is full again at this time
}

// A WaitError reports a request that would have to wait longer than Transport.MaxWait or the
// deadline of its context allows. The request waited for no part of Wait.
type WaitError struct {
	// Wait is how long the request would have had to wait further.
	Wait time.Duration

	// StatusCode is the status of the response that had the wait: 429, 503, or that of a
	// passed request whose response says that the limit is used up (Transport.Pace). It is 0
	// if the wait follows from the spacing of Pace or from Transport.RetriesPerSecond.
	StatusCode int
}

func (e *WaitError) Error() string {
	text := fmt.Sprintf("client: the request would have to wait for %v, longer than it may", e.Wait)
	if e.StatusCode != 0 {
		text += fmt.Sprintf(": status %d", e.StatusCode)
	}
	return text
}

// RoundTrip sends a request, and repeats it while a rate limit denies it. It returns the last
// response as it is if the request may not be repeated. If the wait is too long, it closes the
// body of the response and returns a *WaitError at once.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	ctx := req.Context()
	b := &budget{max: orDefault(t.MaxWait, defaultMaxWait)}
	b.deadline, b.hasDeadline = ctx.Deadline()
	l := t.enter(req)
	defer l.leave()
	send := req
	for retry := 0; ; retry++ {
		passed, delayed, err := l.wait(ctx, b)
		if err == nil && delayed {
			err = t.takeRetry(ctx, b)
		}
		if err != nil {
			closeBody(send)
			return nil, err
		}
		resp, err := base.RoundTrip(send)
		if err != nil || resp == nil {
			return resp, err // http.Client reports a Base that returns neither
		}
		a := readAdvice(resp.Header, time.Now())
		reported, isReported := a.wait()
		denied := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable && a.hasRetryAfter
		wait := reported + t.jitter(retry, reported, isReported)
		l.learn(a, passed, denied && !a.inVain, wait, resp.StatusCode)
		if !denied || a.inVain || retry >= orDefault(t.MaxRetries, defaultMaxRetries) || !repeatable(req) {
			return resp, nil
		}
		if err := b.check(wait, resp.StatusCode); err != nil {
			drain(resp.Body)
			return nil, err
		}
		drain(resp.Body)
		if err := b.sleep(ctx, wait, resp.StatusCode); err != nil {
			return nil, err
		}
		if err := t.takeRetry(ctx, b); err != nil {
			return nil, err
		}
		if send, err = again(req); err != nil {
			return nil, err
		}
	}
}

// CloseIdleConnections closes the idle connections of Base, if it has that method.
// [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// jitter returns the random part of the wait before the given retry, counted from 0.
func (t *Transport) jitter(retry int, reported time.Duration, isReported bool) time.Duration {
	random := t.random
	if random == nil {
		random = rand.Float64
	}
	bound := max(reported/spread, leastSpread)
	if retry > 0 || !isReported {
		bound = min(leastSpread<<min(retry, 6), mostSpread)
	}
	return time.Duration(random() * float64(bound))
}

// takeRetry waits until the bucket of retries has a token.
func (t *Transport) takeRetry(ctx context.Context, b *budget) error {
	rate := orDefault(t.RetriesPerSecond, defaultRetryRate)
	if t.RetriesPerSecond < 0 {
		return nil
	}
	each := time.Second / time.Duration(rate)
	t.mu.Lock()
	now := time.Now()
	full := t.retries
	if full.Before(now) {
		full = now
	}
	full = full.Add(each)
	wait := full.Sub(now) - each*time.Duration(rate)
	if err := b.check(wait, 0); err != nil {
		t.mu.Unlock()
		return err
	}
	t.retries = full
	t.mu.Unlock()
	return b.sleep(ctx, wait, 0)
}

// A budget is how long a request may wait.
type budget struct {
	max, used   time.Duration
	deadline    time.Time
	hasDeadline bool
}

// check returns a *WaitError if the request may not wait so long.
func (b *budget) check(wait time.Duration, status int) error {
	if wait <= 0 {
		return nil
	}
	if wait > b.max-b.used || b.hasDeadline && time.Now().Add(wait).After(b.deadline) {
		return &WaitError{Wait: wait, StatusCode: status}
	}
	return nil
}

// sleep waits, unless check refuses it. It returns the context's error if the context ends.
func (b *budget) sleep(ctx context.Context, wait time.Duration, status int) error {
	if wait <= 0 {
		return ctx.Err()
	}
	if err := b.check(wait, status); err != nil {
		return err
	}
	b.used += wait
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// repeatable reports whether a request may be sent again: its method is idempotent (RFC 9110
// §9.2.2) or it has an idempotency key, and its body can be read again.
func repeatable(req *http.Request) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// again returns a copy of a request with a new body.
func again(req *http.Request) (*http.Request, error) {
	if req.GetBody == nil {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("client: reading the body again: %w", err)
	}
	send := *req
	send.Body = body
	return &send, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		// The request was not sent, so an error changes nothing.
		_ = req.Body.Close()
	}
}

// drain reads the rest of a small body, so that the connection can be used again, and closes it.
func drain(body io.ReadCloser) {
	if body == nil {
		return // http.Client allows it
	}
	timer := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer timer.Stop()
	// If reading fails, the connection is closed.
	_, _ = io.CopyN(io.Discard, body, drainBytes)
	_ = body.Close()
}

// orDefault returns the default for 0, and 0 for a negative value.
func orDefault[T int | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return max(v, 0)
}
