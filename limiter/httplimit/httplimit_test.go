package httplimit_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/httplimit"
	shared "github.com/slidegate/slidegate/limiter/middleware"
	"github.com/slidegate/slidegate/limiter/middleware/middlewaretest"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shop = `
domain: shop
descriptors:
  - {key: api_key, rate_limit: {name: per-key, unit: minute, requests_per_unit: 2, charge: allowed}}
  - {key: remote_address, rate_limit: {name: per-address, unit: minute, requests_per_unit: 100}}
  - {key: masked_remote_address, rate_limit: {name: per-network, unit: minute, requests_per_unit: 100}}
  - {key: route, descriptors: [{key: remote_address, rate_limit: {name: per-route, unit: minute, requests_per_unit: 50}}]}
  - {key: all, rate_limit: {name: all, policy: in_flight, max: 1, hold: 1h}}
  - {key: client, rate_limit: {name: per-client, unit: minute, requests_per_unit: 2, charge_once: {entry: idempotency_key, retries: 2}}}
  - {key: teapot, rate_limit: {name: teapot, unit: minute, requests_per_unit: 0, body: no tea, content_type: text/x-tea}}
`

func middleware(t *testing.T, l *limiter.Limiter, o httplimit.Options) http.Handler {
	t.Helper()
	o.Domain = "shop"
	limit, err := httplimit.New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("served")) }))
}

// TestSuite runs the suite of all frameworks, behind a mux of net/http.
func TestSuite(t *testing.T) {
	middlewaretest.Run(t, `"GET /items/{id}"`, func(t *testing.T, s middlewaretest.Setup) string {
		limit, err := httplimit.New(s.Limiter, httplimit.Options{
			Domain: middlewaretest.Domain, Observe: s.Observe, DenyOnError: s.DenyOnError,
			Descriptors: [][]httplimit.Key{byKey[0], {httplimit.Route("route"), httplimit.Address("remote_address", s.Trusted...)}, {httplimit.Value("all", "x")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		h := limit(http.HandlerFunc(middlewaretest.Serve))
		if s.Outer != nil {
			around, err := httplimit.New(s.Outer, httplimit.Options{Domain: middlewaretest.Domain, Descriptors: [][]httplimit.Key{{httplimit.Value("all", "x")}}})
			if err != nil {
				t.Fatal(err)
			}
			h = around(h)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", h)
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		return server.URL
	})
}

// get asks h, and returns the answer without the fields of net/http.
func get(h http.Handler, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody)
	r.RemoteAddr = "192.0.2.1:999"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func withKey(key string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("X-API-Key", key) }
}

var byKey = [][]httplimit.Key{{httplimit.Header("api_key", "x-api-key")}}

func TestOwnBody(t *testing.T) {
	h := middleware(t, middlewaretest.NewLimiter(t, shop, nil), httplimit.Options{Descriptors: [][]httplimit.Key{{httplimit.Value("teapot", "x")}}})
	if w := get(h, nil); w.Code != 429 || w.Body.String() != "no tea" || w.Header().Get("Content-Type") != "text/x-tea" || w.Header().Get("Retry-After") != "" {
		t.Errorf("got %d %s %v", w.Code, w.Body, w.Header())
	}
}

// TestKeys tells which descriptors a request has.
func TestKeys(t *testing.T) {
	var got limiter.Decision
	l := middlewaretest.NewLimiter(t, shop, nil)
	rules := func(descriptors [][]httplimit.Key, change func(*http.Request)) string {
		o := httplimit.Options{Domain: "shop", Descriptors: descriptors, Decided: func(_ *http.Request, d limiter.Decision, _ error) { got = d }}
		limit, err := httplimit.New(l, o)
		if err != nil {
			t.Fatal(err)
		}
		got = limiter.Decision{}
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", limit(http.NotFoundHandler()))
		get(mux, change)
		var names []string
		for _, s := range got.Limits() {
			names = append(names, s.Rule)
		}
		return strings.Join(names, " ")
	}
	route := []httplimit.Key{httplimit.Route("route"), httplimit.Address("remote_address")}
	address := []httplimit.Key{httplimit.Address("remote_address")}
	own := httplimit.Func("api_key", func(r *http.Request) (string, bool) { return r.URL.Path, r.URL.Path != "" })
	for name, tt := range map[string]struct {
		descriptors [][]httplimit.Key
		change      func(*http.Request)
		want        string
	}{
		"route":              {[][]httplimit.Key{route}, nil, "per-route"},
		"several":            {[][]httplimit.Key{route, address, byKey[0]}, withKey("k"), "per-route per-address per-key"},
		"one is missing":     {[][]httplimit.Key{address, byKey[0]}, nil, "per-address"},
		"function":           {[][]httplimit.Key{{own}}, nil, "per-key"},
		"host":               {[][]httplimit.Key{{httplimit.Header("api_key", "host")}}, nil, "per-key"},
		"no address":         {[][]httplimit.Key{address}, func(r *http.Request) { r.RemoteAddr = "@" }, ""},
		"two keys of a part": {[][]httplimit.Key{{httplimit.Header("api_key", "X-API-Key"), httplimit.Header("teapot", "X-Other")}}, withKey("k"), ""},
	} {
		if got := rules(tt.descriptors, tt.change); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestNetwork: the addresses of one network share a log.
func TestNetwork(t *testing.T) {
	for _, tt := range []struct {
		remote, forwarded, want string
	}{
		{"192.0.2.77:1", "", "192.0.2.0/24"},
		{"[2001:db8:1:2:3:4:5:6]:1", "", "2001:db8:1:2::/64"},
		{"[::ffff:192.0.2.77]:1", "", "192.0.2.0/24"},
		{"10.0.0.1:1", "2001:db8::9", "2001:db8::/64"},
		{"@", "", ""},
	} {
		names := new(naming)
		h := middleware(t, middlewaretest.NewLimiter(t, shop, names), httplimit.Options{Descriptors: [][]httplimit.Key{{httplimit.Network("masked_remote_address", 24, 64, "10.0.0.0/8")}}})
		get(h, func(r *http.Request) {
			r.RemoteAddr = tt.remote
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		})
		want := "{" + strings.NewReplacer(":", "%3A", "/", "%2F").Replace(tt.want) + "}"
		if tt.want == "" && names.key != "" || tt.want != "" && !strings.HasPrefix(names.key, want) {
			t.Errorf("%+v: asked for the log %q", tt, names.key)
		}
	}
}

// TestAddress finds the client behind proxies.
func TestAddress(t *testing.T) {
	for _, tt := range []struct {
		remote    string
		forwarded []string
		trusted   []string
		want      string
	}{
		{"192.0.2.1:1", nil, nil, "192.0.2.1"},
		{"192.0.2.1:1", []string{"203.0.113.9"}, nil, "192.0.2.1"},
		{"[::ffff:192.0.2.1]:1", nil, nil, "192.0.2.1"},
		{"[2001:DB8:0::1]:1", nil, nil, "2001:db8::1"},
		{"[fe80::1%eth0]:1", nil, nil, "fe80::1"},
		{"10.0.0.1:1", []string{"203.0.113.9"}, []string{"10.0.0.0/8"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"203.0.113.9:4711"}, []string{"10.0.0.1"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"[2001:db8::9]:4711"}, []string{"10.0.0.1"}, "2001:db8::9"},
		{"10.0.0.1:1", []string{"[2001:db8::9]"}, []string{"10.0.0.1"}, "2001:db8::9"},
		{"10.0.0.1:1", []string{`"[2001:DB8::9]"`}, []string{"10.0.0.1"}, "2001:db8::9"},
		{"10.0.0.1:1", []string{"203.0.113.9:_port"}, []string{"10.0.0.1"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"[2001:db8::9"}, []string{"10.0.0.1"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"1.1.1.1, 203.0.113.9, 10.0.0.2"}, []string{"10.0.0.0/8"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"1.1.1.1,203.0.113.9", " 10.0.0.2\t"}, []string{"10.0.0.0/8"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"10.0.0.3"}, []string{"10.0.0.0/8"}, "10.0.0.3"},
		{"10.0.0.1:1", []string{"203.0.113.9, unknown, 10.0.0.2"}, []string{"10.0.0.0/8"}, "10.0.0.2"},
		{"10.0.0.1:1", []string{""}, []string{"10.0.0.0/8"}, "10.0.0.1"},
		{"10.0.0.1:1", nil, []string{"10.0.0.0/8"}, "10.0.0.1"},
		{"[2001:db8::1]:1", []string{"203.0.113.9"}, []string{"2001:db8::/32"}, "203.0.113.9"},
		{"@", []string{"203.0.113.9"}, []string{"unix"}, "203.0.113.9"},
		{"@", []string{"203.0.113.9"}, nil, ""},
		{"@", nil, []string{"unix"}, ""},
	} {
		var got string
		o := httplimit.Options{Descriptors: [][]httplimit.Key{{httplimit.Address("remote_address", tt.trusted...)}}}
		o.Decided = func(*http.Request, limiter.Decision, error) { got = "asked" }
		// The store gets the name of the log, which has the address.
		names := new(naming)
		h := middleware(t, middlewaretest.NewLimiter(t, shop, names), o)
		get(h, func(r *http.Request) {
			r.RemoteAddr = tt.remote
			r.Header["X-Forwarded-For"] = tt.forwarded
		})
		want := "{" + strings.ReplaceAll(tt.want, ":", "%3A") + "}"
		if tt.want == "" && got != "" || tt.want != "" && !strings.HasPrefix(names.key, want) {
			t.Errorf("%+v: asked for the log %q", tt, names.key)
		}
	}
}

// naming is a store that allows everything, and keeps the name of the last log.
type naming struct {
	window.Store
	key string
}

func (n *naming) Take(_ context.Context, _ bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	n.key = checks[0].Key
	for i := range decisions {
		decisions[i] = window.Decision{Allowed: true, Remaining: 1}
	}
	return true, nil
}

func (n *naming) End(context.Context, window.Ending) (window.Settled, error) {
	return window.Settled{}, nil
}

// impatient is a store that gives up if its caller has.
type impatient struct{ window.Store }

func (s impatient) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if err := ctx.Err(); err != nil {
		return true, err
	}
	return s.Store.Take(ctx, wait, checks, decisions)
}

func (s impatient) End(ctx context.Context, end window.Ending) (window.Settled, error) {
	return s.Store.(window.Releaser).End(ctx, end)
}

// TestClientLeaves: a client that closes its connection early does not pass by the limit.
func TestClientLeaves(t *testing.T) {
	m := memstore.New(memstore.Options{})
	defer m.Close()
	served := 0
	limit, err := httplimit.New(middlewaretest.NewLimiter(t, shop, impatient{m}), httplimit.Options{Domain: "shop", Descriptors: byKey})
	if err != nil {
		t.Fatal(err)
	}
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 5 {
		r := httptest.NewRequestWithContext(gone, http.MethodPost, "/", http.NoBody)
		r.Header.Set("X-API-Key", "k")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if served != 2 {
		t.Errorf("%d requests reached the handler, want 2", served)
	}
}

// TestPanic: a handler that panics gives back its place.
func TestPanic(t *testing.T) {
	limit, err := httplimit.New(middlewaretest.NewLimiter(t, shop, nil), httplimit.Options{Domain: "shop", Descriptors: [][]httplimit.Key{{httplimit.Value("all", "x")}}})
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	var taken atomic.Int32
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
		panic(http.ErrAbortHandler)
	}))
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			get(h, nil)
		}()
	}
	// So does one that has taken its connection over.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var conn net.Conn
		defer func() { conn.Close() }() // the place is given back before
		limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			taken.Add(1)
			got, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
			}
			conn = got.(interface{ NetConn() net.Conn }).NetConn()
			panic(http.ErrAbortHandler)
		})).ServeHTTP(w, r)
	}))
	for range 3 {
		if resp, err := server.Client().Get(server.URL); err == nil {
			resp.Body.Close()
			t.Errorf("got %d", resp.StatusCode)
		}
	}
	server.Close()
	if served != 3 || taken.Load() != 3 {
		t.Errorf("%d and %d requests were served, want 3 and 3", served, taken.Load())
	}
}

func TestObserve(t *testing.T) {
	denied := 0
	h := middleware(t, middlewaretest.NewLimiter(t, shop, nil), httplimit.Options{Descriptors: byKey, Observe: true, Decided: func(_ *http.Request, d limiter.Decision, _ error) {
		if !d.Allowed {
			denied++
		}
	}})
	for range 5 {
		if w := get(h, withKey("k")); w.Code != 200 || w.Header().Get("Ratelimit") != "" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
	}
	if denied != 3 {
		t.Errorf("%d denials, want 3", denied)
	}
}

// TestCost: a cost, a question, and a question of the caller's own.
func TestCost(t *testing.T) {
	l := middlewaretest.NewLimiter(t, shop, nil)
	var cost uint64
	h := middleware(t, l, httplimit.Options{Descriptors: byKey, Cost: func(*http.Request) uint64 { return cost }})
	own := middleware(t, l, httplimit.Options{Request: func(r *http.Request) (limiter.Request, bool) {
		return limiter.One("", "api_key", r.Header.Get("X-API-Key")), r.Header.Get("X-API-Key") != ""
	}})
	for i, step := range []struct {
		h    http.Handler
		cost uint64
		want string
	}{
		{h, 0, `"per-key";r=2;t=0`}, {h, 1, `"per-key";r=1;t=60`}, {h, 0, `"per-key";r=1;t=60`}, {h, 3, `"per-key";r=1`}, {own, 0, `"per-key";r=0;t=60`},
	} {
		cost = step.cost
		if got := get(step.h, withKey("k")).Header().Get("Ratelimit"); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if w := get(own, nil); w.Code != 200 {
		t.Errorf("without a question: %d", w.Code)
	}
}

// TestOptional: a request without an optional key has the descriptor without its entry, so it is limited
// and charged. With the key, its repeats are free. A descriptor whose keys are all missing is left out.
func TestOptional(t *testing.T) {
	idempotency := httplimit.Header("idempotency_key", "Idempotency-Key").Optional()
	h := middleware(t, middlewaretest.NewLimiter(t, shop, nil), httplimit.Options{Descriptors: [][]httplimit.Key{{httplimit.Header("client", "X-Client"), idempotency}, {idempotency}}})
	for i, tt := range []struct {
		idempotency string
		want        int
		remaining   string
	}{{"a", 200, "r=1"}, {"a", 200, "r=1"}, {"", 200, "r=0"}, {"", 429, "r=0"}, {"a", 200, "r=0"}, {"b", 429, "r=0"}} {
		got := get(h, func(r *http.Request) {
			r.Header.Set("X-Client", "c")
			if tt.idempotency != "" {
				r.Header.Set("Idempotency-Key", tt.idempotency)
			}
		})
		if got.Code != tt.want || !strings.Contains(got.Header().Get("Ratelimit"), tt.remaining) {
			t.Errorf("request %d with %q: %d %q, want %d and %s", i, tt.idempotency, got.Code, got.Header().Get("Ratelimit"), tt.want, tt.remaining)
		}
	}
}

// TestProblems: everything that is wrong at once.
func TestProblems(t *testing.T) {
	l := middlewaretest.NewLimiter(t, shop, nil)
	for name, tt := range map[string]struct {
		l    *limiter.Limiter
		o    httplimit.Options
		want []string
	}{
		"nothing": {nil, httplimit.Options{}, []string{"a Limiter", "Domain is empty", "set Descriptors or Request"}},
		"domain":  {l, httplimit.Options{Domain: "shopp", Descriptors: byKey}, []string{`no domain "shopp", only shop`}},
		"both":    {l, httplimit.Options{Domain: "shop", Descriptors: byKey, Request: func(*http.Request) (limiter.Request, bool) { return limiter.Request{}, false }}, []string{"only one"}},
		"keys": {l, httplimit.Options{Domain: "shop", Descriptors: [][]httplimit.Key{
			{},
			{{}},
			{httplimit.Header("", "x")},
			{httplimit.Header("a", "")},
			{httplimit.Func("f", nil)},
			{httplimit.Address("a", "10.0.0.0/33", "localhost", "::ffff:10.0.0.0/104", "fe80::1%eth0")},
			{httplimit.Network("n", 33, 129), httplimit.Network("n", -1, 0)},
			{shared.Field[*http.Request]("f", "x", nil), shared.Address[*http.Request]("a", nil), shared.Network[*http.Request]("n", 24, 64, nil)},
		}}, []string{"key 0 of descriptor 7: the function is nil", "key 1 of descriptor 7: the function is nil", "key 2 of descriptor 7: the function is nil", "33 of 32 bits", "129 of 128 bits", "-1 of 32 bits", "descriptor 0 has no keys", "key 0 of descriptor 1", "key 0 of descriptor 2", "the field has no name", "key 0 of descriptor 4", "10.0.0.0/33", "localhost", "::ffff:10.0.0.0/104", "%eth0"}},
	} {
		_, err := httplimit.New(tt.l, tt.o)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", name, want, err)
			}
		}
	}
}

// FuzzAddress: no X-Forwarded-For makes the middleware panic, or an untrusted peer choose its address.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"", "203.0.113.9", "1.1.1.1, 10.0.0.1", "[::1]:80,", ",,,", "[", "::ffff:10.0.0.1", "%"} {
		f.Add(seed, "192.0.2.1:1")
		f.Add(seed, "10.0.0.1:1")
	}
	names := new(naming)
	rules, err := limiter.ParseRules("rules.yaml", []byte(shop))
	if err != nil {
		f.Fatal(err)
	}
	l, err := limiter.New(names, rules)
	if err != nil {
		f.Fatal(err)
	}
	limit, err := httplimit.New(l, httplimit.Options{Domain: "shop", Descriptors: [][]httplimit.Key{{httplimit.Address("remote_address", "10.0.0.0/8")}}})
	if err != nil {
		f.Fatal(err)
	}
	h := limit(http.NotFoundHandler())
	f.Fuzz(func(t *testing.T, forwarded, remote string) {
		names.key = ""
		get(h, func(r *http.Request) { r.RemoteAddr, r.Header["X-Forwarded-For"] = remote, []string{forwarded} })
		if remote == "192.0.2.1:1" && !strings.HasPrefix(names.key, "{192.0.2.1}") {
			t.Errorf("%q made it %q", forwarded, names.key)
		}
	})
}

// TestPer: one line limits a handler, by address or by a header.
func TestPer(t *testing.T) {
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, tt := range map[string]struct {
		make func() (func(http.Handler) http.Handler, error)
		want string
	}{
		"address": {func() (func(http.Handler) http.Handler, error) { return httplimit.PerAddress(2, time.Minute) }, "200 200 429 200"},
		"header": {func() (func(http.Handler) http.Handler, error) {
			return httplimit.PerHeader("x-api-key", 2, time.Minute)
		}, "200 200 429 200"},
	} {
		limit, err := tt.make()
		if err != nil {
			t.Fatal(err)
		}
		h := limit(served)
		var got []string
		for _, client := range []string{"1", "1", "1", "2"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = "192.0.2." + client + ":1"
			r.Header.Set("X-API-Key", client)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			got = append(got, fmt.Sprint(w.Code))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %v, want %s", name, got, tt.want)
		}
	}
	for _, window := range []time.Duration{0, -1} {
		if _, err := httplimit.PerAddress(2, window); err == nil {
			t.Errorf("a window of %v is accepted", window)
		}
	}
}

// TestUnknownEntry: an entry that no rule has is an error, because such requests would not be limited.
func TestUnknownEntry(t *testing.T) {
	rules, err := limiter.ParseRules("shop.yaml", []byte(shop))
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(memstore.New(memstore.Options{SweepInterval: -1}), rules)
	if err != nil {
		t.Fatal(err)
	}
	_, err = httplimit.New(l, httplimit.Options{Domain: "shop", Descriptors: [][]httplimit.Key{{httplimit.Address("remoteaddress")}, {httplimit.Header("idempotency_key", "x")}}})
	if want := `httplimit: key 0 of descriptor 0: no rule has the entry "remoteaddress", did you mean "remote_address"?`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
