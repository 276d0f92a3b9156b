package limits

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/stack"
)

// plainRoute begins the route of Envoy's file. More fields of the route can follow.
const plainRoute = "match: {prefix: /}\n                route: {cluster: upstream, timeout: 15s"

// TestWhichRetriesAreCharged lets Envoy repeat requests in each of its ways, and counts what
// reaches the application and what is charged. docs/clients.md has the table.
func TestWhichRetriesAreCharged(t *testing.T) {
	for _, tt := range []struct {
		name, route string
		answer      func(w http.ResponseWriter, r *http.Request)
		status      int
		sent        int64 // to the application
		charged     uint32
	}{
		{"retry on 5xx", `, retry_policy: {retry_on: 5xx, num_retries: 3}`, answering(503), 503, 4, 1},
		{"retry on 429 of the application", `, retry_policy: {retry_on: retriable-status-codes, retriable_status_codes: [429], num_retries: 3}`, answering(429), 429, 4, 1},
		{"hedging", `, hedge_policy: {hedge_on_per_try_timeout: true}, retry_policy: {retry_on: 5xx, num_retries: 1, per_try_timeout: 0.3s}`, slow(2 * time.Second), 200, 2, 1},
		{"internal redirect", `, internal_redirect_policy: {max_internal_redirects: 2}`, redirect, 200, 2, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			upstream, sent := counted(t, tt.answer)
			s := stack.Setup{Rules: stack.PerKey, Upstream: upstream, Change: map[string]string{plainRoute: plainRoute + tt.route}}.Start(t)
			if got := s.Get("/", "x-api-key", "k"); got.Status != tt.status {
				t.Errorf("got status %d, want %d", got.Status, tt.status)
			}
			if charged := 100 - s.Peek("api_key=k")[0]; sent.Load() != tt.sent || charged != tt.charged {
				t.Errorf("the application got %d requests and %d were charged, want %d and %d", sent.Load(), charged, tt.sent, tt.charged)
			}
			s.WantAllDecided()
		})
	}
}

// TestEnvoyDoesNotRetryDenials: a 429 of rls is final, even if Envoy is told to retry on 429, and
// nothing of it reaches the application.
func TestEnvoyDoesNotRetryDenials(t *testing.T) {
	const one = "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: 1h, requests: 1}\n"
	s := stack.Setup{Rules: one, Change: map[string]string{
		plainRoute: plainRoute + `, retry_policy: {retry_on: "5xx,retriable-status-codes", retriable_status_codes: [429], num_retries: 3}`,
	}}.Start(t)
	for _, want := range []int{200, 429} {
		if got := s.Get("/", "x-api-key", "k"); got.Status != want {
			t.Errorf("got status %d, want %d", got.Status, want)
		}
	}
	if n := len(s.App.Received()); n != 1 {
		t.Errorf("the application got %d requests, want 1", n)
	}
	if n := s.Stat("cluster.upstream.ratelimit.over_limit"); n != 1 {
		t.Errorf("Envoy asked for %d requests that were denied, want 1", n)
	}
}

// counted serves an application, and counts the requests that reach it.
func counted(t *testing.T, answer http.HandlerFunc) (upstream string, sent *atomic.Int64) {
	sent = new(atomic.Int64)
	return stack.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		answer(w, r)
	})), sent
}

func answering(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// slow answers after a time, unless Envoy gives up.
func slow(d time.Duration) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
}

// redirect sends a request elsewhere on the same host.
func redirect(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		http.Redirect(w, r, "http://"+r.Host+"/there", http.StatusFound)
	}
}
