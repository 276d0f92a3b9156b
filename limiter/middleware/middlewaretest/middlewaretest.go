// Package middlewaretest is the suite that the HTTP middleware of every framework must pass, on a real
// server of that framework. Only tests import it.
package middlewaretest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A Setup says what a server does with GET /items/{id}. It asks three descriptors of the domain shop:
// api_key from the field X-API-Key, route with remote_address, behind Trusted, and all with the value
// x, of which one is in flight. Requests that pass get what [Serve] answers.
type Setup struct {
	Limiter              *limiter.Limiter
	Observe, DenyOnError bool
	Trusted              []string
	// Outer is that of a second middleware, around the first one. It asks all with the value x. Nil: there
	// is no second one.
	Outer *limiter.Limiter
}

// NewLimiter returns a Limiter of a store. Nil: one in memory whose clock stands still.
func NewLimiter(t *testing.T, rules string, store window.Store) *limiter.Limiter {
	t.Helper()
	read, err := limiter.ParseRules("rules.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	if store == nil {
		m := memstore.New(memstore.Options{Clock: func() time.Duration { return 1_790_000_000 * time.Second }})
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		store = m
	}
	l, err := limiter.New(store, read)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Serve answers with the status 200 and the body "served". If the request has the field Upgrade, it takes
// the connection over, and returns while [Talk] goes on.
func Serve(w http.ResponseWriter, r *http.Request) {
	taker, ok := w.(http.Hijacker)
	if !ok || r.Header.Get("Upgrade") == "" {
		_, _ = io.WriteString(w, "served") // the client may have gone
		return
	}
	conn, _, err := taker.Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	go Talk(conn)
}

// Talk reads until the client has gone, and closes the connection.
func Talk(conn net.Conn) {
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

// Domain is that of the rules.
const Domain = "shop"

const rules = `
domain: shop
headers: [ratelimit, x-ratelimit]
descriptors:
  - key: api_key
    rate_limit: {name: per-key, unit: minute, requests_per_unit: 2}
  - key: route
    value: %s
    descriptors:
      - key: remote_address
        rate_limit: {name: per-route, unit: minute, requests_per_unit: 9}
  - key: all
    rate_limit: {name: all, policy: in_flight, max: 1, hold: 1h}
`

// outer are rules of the second middleware.
const outer = `
domain: shop
headers: [ratelimit, x-ratelimit]
descriptors:
  - key: all
    rate_limit: {name: outer, unit: minute, requests_per_unit: %s}
`

// Run runs the suite. route is the pattern of GET /items/{id} in the notation of the framework. serve
// starts a server, which ends with t, and returns its URL.
func Run(t *testing.T, route string, serve func(t *testing.T, s Setup) (url string)) {
	s := &suite{&http.Client{Transport: new(http.Transport)}, route, serve}
	t.Cleanup(s.client.CloseIdleConnections)
	t.Run("Key", s.key)
	t.Run("Route", s.perRoute)
	t.Run("Proxy", s.proxy)
	t.Run("Two", s.two)
	t.Run("Taken", s.taken)
	t.Run("Observe", s.observe)
	t.Run("StoreFails", s.storeFails)
}

// A suite has the arguments of [Run].
type suite struct {
	client *http.Client
	route  string
	serve  func(t *testing.T, s Setup) (url string)
}

// start starts a server with a limiter in store, or in memory, and returns a function that asks it.
func (s *suite) start(t *testing.T, store window.Store, setup Setup) (ask func(id string, fields ...string) *answer) {
	t.Helper()
	setup.Limiter = NewLimiter(t, fmt.Sprintf(rules, s.route), store)
	url := s.serve(t, setup)
	return func(id string, fields ...string) *answer { return get(t, s.client, url+"/items/"+id, fields) }
}

func (s *suite) key(t *testing.T) {
	ask := s.start(t, nil, Setup{})
	ask("1", "X-API-Key: k").want(t, 200, `"per-key";r=1;t=60`)
	ask("2", "X-API-Key: Bearer k").want(t, 200, `"per-key";r=0;t=60`)
	// Neither another path nor a second field helps, and the field may have any case.
	denied := ask("3", "x-api-key: k", "X-API-Key: other")
	denied.want(t, 429, `"per-key";r=0;t=60`)
	var problem struct {
		Rule       string
		RetryAfter int `json:"retry_after"`
	}
	if err := json.Unmarshal(denied.body, &problem); err != nil || problem.Rule != "per-key" || problem.RetryAfter != 60 {
		t.Errorf("body %s: %v", denied.body, err)
	}
	for name, want := range map[string]string{"Retry-After": "60", "Content-Type": "application/problem+json", "X-Content-Type-Options": "nosniff"} {
		if got := denied.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	ask("1", "X-API-Key: other").want(t, 200, `"per-key";r=1;t=60`)
}

func (s *suite) perRoute(t *testing.T) {
	ask := s.start(t, nil, Setup{})
	for i := range 9 {
		// The peer is no proxy, so it cannot choose its address.
		ask(fmt.Sprint(i), fmt.Sprint("X-Forwarded-For: 203.0.113.", i)).want(t, 200, fmt.Sprintf(`"per-route";r=%d;t=60`, 8-i))
	}
	ask("10").want(t, 429, `"per-route";r=0;t=60`)
}

func (s *suite) proxy(t *testing.T) {
	ask := s.start(t, nil, Setup{Trusted: []string{"127.0.0.1", "10.0.0.0/8"}})
	ask("1", "X-Forwarded-For: 203.0.113.9, 10.0.0.1").want(t, 200, `"per-route";r=8;t=60`)
	ask("1", "X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 203.0.113.9").want(t, 200, `"per-route";r=7;t=60`)
	ask("1", "X-Forwarded-For: 203.0.113.10").want(t, 200, `"per-route";r=8;t=60`)
}

func (s *suite) two(t *testing.T) {
	two := func(t *testing.T, most string) func(id string, fields ...string) *answer {
		t.Helper()
		return s.start(t, nil, Setup{Outer: NewLimiter(t, fmt.Sprintf(outer, most), nil)})
	}
	ask := two(t, "9") // the inner one is stricter
	ask("1", "X-API-Key: k").want(t, 200, `"outer";r=8;t=60, "per-key";r=1;t=60`, "2", "1", "60")
	ask("1", "X-API-Key: k").want(t, 200, `"outer";r=7;t=60, "per-key";r=0;t=60`, "2", "0", "60")
	denied := ask("1", "X-API-Key: k")
	denied.want(t, 429, `"outer";r=6;t=60, "per-key";r=0;t=60`, "2", "0", "60")
	policies, retry := denied.header.Get("RateLimit-Policy"), denied.header.Get("Retry-After")
	if !strings.HasPrefix(policies, `"outer";q=9;w=60, "per-key";q=2;w=60`) || retry != "60" {
		t.Errorf("RateLimit-Policy: %s, Retry-After: %s", policies, retry)
	}
	ask = two(t, "3") // the outer one is stricter
	for left := range 3 {
		ask("1", fmt.Sprint("X-API-Key: k", left)).want(t, 200, fmt.Sprintf(`"outer";r=%d;t=60, "per-key";r=1;t=60`, 2-left), []string{"2", "3", "3"}[left], []string{"1", "1", "0"}[left], "60")
	}
	ask("1", "X-API-Key: k").want(t, 429, `"outer";r=0;t=60`, "3", "0", "60")
}

func (s *suite) taken(t *testing.T) {
	url := s.serve(t, Setup{Limiter: NewLimiter(t, fmt.Sprintf(rules, s.route), nil)})
	for range 2 {
		conn := take(t, strings.TrimPrefix(url, "http://"))
		get(t, s.client, url+"/items/1", nil).want(t, 429, `"all";r=0;t=1`)
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		for get(t, s.client, url+"/items/1", nil).status != http.StatusOK { // a denial charges nothing
			runtime.Gosched()
		}
	}
}

func (s *suite) observe(t *testing.T) {
	ask := s.start(t, nil, Setup{Observe: true})
	for range 5 {
		ask("1", "X-API-Key: k").want(t, 200, "")
	}
}

func (s *suite) storeFails(t *testing.T) {
	s.start(t, failing{}, Setup{})("1", "X-API-Key: k").want(t, 200, "")
	a := s.start(t, failing{}, Setup{DenyOnError: true})("1", "X-API-Key: k")
	a.want(t, 503, "")
	if got := a.header.Get("Content-Type"); got != "application/problem+json" || strings.Contains(string(a.body), "10.1.2.3") {
		t.Errorf("%s: %s", got, a.body)
	}
}

// take asks a server to hand its connection over, and returns it.
func take(t *testing.T, server string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET /items/1 HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		t.Fatalf("got %q, %v", line, err)
	}
	return conn
}

// An answer is one response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// get sends a request with fields "Name: value".
func get(t *testing.T, client *http.Client, url string, fields []string) *answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Add(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body is read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &answer{resp.StatusCode, resp.Header, body}
}

// want fails the test unless the answer has this status and this RateLimit, and these values of
// X-RateLimit-Limit, -Remaining and -Reset.
func (a *answer) want(t *testing.T, status int, limit string, x ...string) {
	t.Helper()
	for i, want := range x {
		name := []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}[i]
		if got := a.header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q, want %q", limit, name, got, want)
		}
	}
	if got := a.header.Get("RateLimit"); a.status != status || got != limit || status == 200 && string(a.body) != "served" {
		t.Errorf("got %d, %q, %s; want %d, %q", a.status, got, a.body, status, limit)
	}
}

// failing is a store that fails.
type failing struct{ window.Store }

func (failing) Take(context.Context, bool, []window.Check, []window.Decision) (bool, error) {
	return true, errors.New("no route to 10.1.2.3")
}

func (failing) End(context.Context, window.Ending) (window.Settled, error) {
	return window.Settled{}, errors.New("no route to 10.1.2.3")
}
