package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/grpcserver"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/test/servers"
)

// TestWhyUnhealthy has each state, alone and unset.
func TestWhyUnhealthy(t *testing.T) {
	node := func(reason string) func() storeState {
		return func() storeState {
			return storeState{Nodes: []glance.Server{{Address: "a", Reason: reason}}, Reached: true}
		}
	}
	for _, c := range []struct {
		what     string
		rules    bool
		store    bool
		domains  int
		state    func() storeState
		silent   bool
		draining bool
		want     string
	}{
		{"never", false, false, 0, node("x"), true, true, ""},
		{"rules", true, false, 1, node("x"), true, true, ""},
		{"no rules", true, false, 0, nil, false, false, "no rules are loaded"},
		{"memory store", false, true, 0, nil, false, true, ""},
		{"store", false, true, 0, node(""), false, true, ""},
		{"store away", false, true, 1, node("connect"), false, false, "no node of the store decides"},
		{"store silent", false, true, 1, node(""), true, false, "there is no connection to the store"},
		{"store never reached", false, true, 1, func() storeState { return storeState{} }, false, false, "the store has not been reached yet"},
		{"all are well", true, true, 1, node(""), false, true, ""},
	} {
		for _, plain := range []bool{false, true} {
			p := &probes{
				store: settings.StoreRedis, ready: settings.ReadyAlways, state: c.state, tiers: func() string { return "" },
				needsRules: c.rules, needsStore: c.store, domains: func() int { return c.domains }, connected: func() bool { return !c.silent }, plain: plain,
			}
			p.draining.Store(c.draining)
			if got := p.whyUnhealthy(); got != c.want {
				t.Errorf("%s: %q, want %q", c.what, got, c.want)
			}
			w := httptest.NewRecorder()
			p.healthcheck(w, httptest.NewRequest(http.MethodGet, "/healthcheck", nil))
			code, body, whole := http.StatusOK, "OK\n", plain
			switch {
			case c.want != "":
				code, body, whole = http.StatusInternalServerError, "unhealthy: "+c.want+"\n", false
			case plain:
				body = "OK"
			}
			if got := w.Body.String(); w.Code != code || !strings.HasPrefix(got, body) || whole && got != body {
				t.Errorf("%s: /healthcheck is %d %q, want %d %q", c.what, w.Code, got, code, body)
			}
		}
	}
}

// wantHealth waits for the code and the reason of /healthcheck, and asks for the health.
func (r *testRun) wantHealth(t *testing.T, code int, reason string) {
	t.Helper()
	status := healthv1.HealthCheckResponse_SERVING
	if code != http.StatusOK {
		status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	client := healthv1.NewHealthClient(dial(t, r.GRPC[0]))
	waitFor(t, reason, func() bool {
		got, body := get(t, "http://"+r.HTTP+"/healthcheck")
		return got == code && strings.Contains(body, reason)
	})
	for _, name := range grpcserver.HealthNames {
		waitFor(t, "the health of "+name, func() bool {
			got, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
			return err == nil && got.GetStatus() == status
		})
	}
}

// TestHealthFollows changes the reason, which the health of all names follows, and logs each change.
func TestHealthFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why atomic.Value
		why.Store("")
		core, logs := observer.New(zapcore.DebugLevel)
		h := health.NewServer()
		go func() { _ = followHealth(t.Context(), h, func() string { return why.Load().(string) }, zap.New(core)) }()
		for round, reason := range []string{"no rules are loaded", "", "there is no connection to the store", "", "draining"} {
			why.Store(reason)
			time.Sleep(healthInterval)
			synctest.Wait()
			want := healthv1.HealthCheckResponse_SERVING
			if reason != "" {
				want = healthv1.HealthCheckResponse_NOT_SERVING
			}
			for _, name := range grpcserver.HealthNames {
				got, err := h.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
				if err != nil || got.GetStatus() != want {
					t.Errorf("round %d: health of %q: %v, %v, want %v", round, name, got.GetStatus(), err, want)
				}
			}
		}
		if n := logs.FilterMessageSnippet("unhealthy").Len(); n != 3 {
			t.Errorf("%d lines of log, want 3: %v", n, logs.All())
		}
	})
}

// TestUnhealthyStore loses Redis without a request that would notice, and finds it again.
func TestUnhealthyStore(t *testing.T) { onEachTransport(t, testUnhealthyStore) }

func testUnhealthyStore(t *testing.T, s settings.Settings) {
	server := servers.StartRedis(t)
	server.Stop()
	onRedis(t, &s, server.Addr())
	s.DropIn.NeedsStore, s.DropIn.NeedsRules = true, true
	r := start(t, s)
	r.wantHealth(t, http.StatusInternalServerError, "the store has not been reached yet")
	server.Start()
	r.wantHealth(t, http.StatusOK, "OK")
	server.Stop()
	r.wantHealth(t, http.StatusInternalServerError, "the store")
	server.Start()
	r.wantHealth(t, http.StatusOK, "OK")
	server.Pause()
	r.wantHealth(t, http.StatusInternalServerError, "the store")
	server.Resume()
	r.wantHealth(t, http.StatusOK, "OK")
}

// problems returns the problems that the instance names, by their help.
func (r *testRun) problems() map[string]glance.Problem {
	r.t.Helper()
	var s glance.State
	code, body := get(r.t, "http://"+r.Admin+"/v1/state")
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
		r.t.Fatalf("state: %d, %v\n%s", code, err, body)
	}
	all := make(map[string]glance.Problem)
	for _, p := range s.Problems {
		all[p.Help] = p
	}
	return all
}

// A fault is something that breaks, what names it in the state, and its repair.
type fault struct {
	name          string
	help          []string // sections of pages in docs
	text          string   // a part of the first one's text
	breaks, heals func()
}

// TestStateNamesProblems breaks real things one by one. The state names each with a section of
// the documentation, and names nothing after the repair.
func TestStateNamesProblems(t *testing.T) {
	server, customers := servers.StartRedis(t), servers.StartCustomers(t)
	s := usageSettings(t)
	onRedis(t, &s, server.Addr())
	s.Store.Timeout = 2 * time.Second // on a busy machine too the store decides
	u, _, err := settings.Load("", []string{"SLIDEGATE_TIERS_SOURCE=http", "SLIDEGATE_TIERS_HTTP_URL=http://" + customers.Addr() + "/lookup"})
	if err != nil {
		t.Fatal(err)
	}
	s.Tiers.Source, s.Tiers.HTTP.URL = u.Tiers.Source, u.Tiers.HTTP.URL
	write(t, s.Tiers.Path, "tiers: [free, pro]\ndefault: free\n")
	r := start(t, s)
	client, n := rlsv3.NewRateLimitServiceClient(dial(t, r.GRPC[0])), 0
	ask := func() {
		n++
		_, _ = client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{{
			Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "api_key", Value: fmt.Sprint("k-", n)}},
		}}}) // with a fault it may fail
	}
	for _, f := range []fault{
		{
			"Redis is stopped", []string{"operate.md#redis-is-slow-or-unavailable", "operate.md#fallback-answers"}, "The store does not decide: no node of the store decides", server.Stop, server.Start,
		},
		{
			"Redis evicts logs",
			[]string{"operate.md#set-up-redis"},
			"The server " + server.Addr() + " has the maxmemory-policy allkeys-lru",
			func() { set(t, "allkeys-lru", server) }, func() { set(t, "noeviction", server) },
		},
		{
			"the rules are broken",
			[]string{"operate.md#change-rules"},
			"A newer configuration was refused, and the last good one stays active: " + s.Rules.Path,
			func() {
				write(t, s.Rules.Path, "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: fortnight}}]\n")
			},
			func() { write(t, s.Rules.Path, usageRules) },
		},
		{
			"the rules are empty",
			[]string{"operate.md#no-client-is-denied"},
			"The rules are empty, so nothing is limited",
			func() { write(t, s.Rules.Path, "domain: edge\n") }, func() { write(t, s.Rules.Path, usageRules) },
		},
		{
			"the customer source fails",
			[]string{"reference/alerts.md#slidegatetierssourcefails"},
			"The customer source http fails and is not asked",
			customers.Stop, customers.Start,
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("problems: %+v", r.problems())
				}
			}()
			quiet := func() bool { ask(); return len(r.problems()) == 0 }
			waitFor(t, "no problem before", quiet)
			f.breaks()
			waitFor(t, "the problem", func() bool {
				ask()
				all := r.problems()
				return !slices.ContainsFunc(f.help, func(help string) bool {
					p, ok := all[docs.Path+help]
					return !ok || help == f.help[0] && !strings.Contains(p.Text, f.text)
				})
			})
			for _, help := range f.help {
				page, _, _ := strings.Cut(help, "#")
				if code, body := get(t, "http://"+r.Admin+docs.Path+page); code != http.StatusOK || !strings.Contains(body, "# ") {
					t.Errorf("%s: %d, want the page", page, code)
				}
			}
			f.heals()
			waitFor(t, "no problem after", quiet)
		})
	}
}

// TestStateWithoutRules has an xDS server that has sent no rules.
func TestStateWithoutRules(t *testing.T) {
	s := testSettings(t)
	s.Rules.Source, s.Rules.XDS.Address, s.DropIn.WithoutRules = settings.RulesXDS, "127.0.0.1:1", true
	r := start(t, s)
	if p := r.problems()[docs.Path+"operate.md#rules-from-an-xds-server"]; p.Level != levelError || !strings.Contains(p.Text, "No rules are loaded") {
		t.Errorf("got %+v", r.problems())
	}
}

func TestProbes(t *testing.T) {
	type node struct{ Address, Reason, Evicts string }
	for _, c := range []struct {
		what    string
		nodes   []node // nil: in memory
		reached bool
		ready   string
		drain   bool
		health  string
		want    string // of /readyz; "ready" is 200
	}{
		{"memory", nil, false, settings.ReadyStore, false, "memory", "ready"},
		{"memory draining", nil, false, settings.ReadyAlways, true, "memory", "not ready: draining"},
		{"not reached", []node{{"a", "", ""}}, false, settings.ReadyStore, false, "redis, not reached yet", "not ready: the store has not been reached yet"},
		{"not reached, always", []node{{"a", "", ""}}, false, settings.ReadyAlways, false, "redis, not reached yet", "ready"},
		{"well", []node{{"b", "", ""}, {"a", "", ""}}, true, settings.ReadyStore, false, "redis, 2 of 2 nodes decide", "ready"},
		{"well, draining", []node{{"a", "", ""}}, true, settings.ReadyStore, true, "redis, 1 of 1 nodes decide", "not ready: draining"},
		{"one away", []node{{"b", "timeout", ""}, {"a", "", ""}, {"c", "", ""}}, true, settings.ReadyStore, false, "redis, 2 of 3 nodes decide; degraded: b (timeout)", "ready"},
		{
			"all away",
			[]node{{"a", "connect", ""}, {"b", "timeout", ""}},
			true, settings.ReadyStore, false,
			"redis, 0 of 2 nodes decide; degraded: a (connect), b (timeout)", "not ready: no node of the store decides",
		},
		{"all away, always", []node{{"a", "x", ""}}, true, settings.ReadyAlways, false, "redis, 0 of 1 nodes decide; degraded: a (x)", "ready"},
		{"never reached and away", []node{{"a", "x", ""}}, false, settings.ReadyAlways, false, "redis, 0 of 1 nodes decide; degraded: a (x)", "ready"},
		{
			"one evicts",
			[]node{{"a", "", "allkeys-lru"}, {"b", "", ""}},
			true, settings.ReadyStore, false,
			"redis, 2 of 2 nodes decide\nwarning: a has the maxmemory-policy allkeys-lru: when its memory is full, it evicts logs, which resets their limits; set noeviction", "ready",
		},
		{"no node known", []node{}, true, settings.ReadyStore, false, "redis, 0 of 0 nodes decide", "not ready: no node of the store decides"},
	} {
		p := &probes{tiers: func() string { return "" }, store: settings.StoreMemory, ready: c.ready}
		p.draining.Store(c.drain)
		if c.nodes != nil {
			p.store = settings.StoreRedis
			state := storeState{Reached: c.reached}
			for _, n := range c.nodes {
				state.Nodes = append(state.Nodes, glance.Server(n))
			}
			p.state = func() storeState { return state }
		}
		w := httptest.NewRecorder()
		p.healthcheck(w, httptest.NewRequest(http.MethodGet, "/healthcheck", nil))
		if got, want := w.Body.String(), "OK\nstore: "+c.health+"\n"; w.Code != http.StatusOK || got != want {
			t.Errorf("%s: /healthcheck is %d %q, want 200 %q", c.what, w.Code, got, want)
		}
		w = httptest.NewRecorder()
		p.readyz(w, nil)
		code := http.StatusServiceUnavailable
		if c.want == "ready" {
			code = http.StatusOK
		}
		if got := w.Body.String(); w.Code != code || got != c.want+"\n" {
			t.Errorf("%s: /readyz is %d %q, want %d %q", c.what, w.Code, got, code, c.want)
		}
	}
}

// TestReadyWhenRedisAppears starts without Redis, and starts Redis later. The operator gets a
// warning with what to check, and then a message that Redis answers. The service becomes
// ready without any request.
func TestReadyWhenRedisAppears(t *testing.T) {
	server := servers.StartRedis(t)
	server.Stop()
	s := testSettings(t)
	onRedis(t, &s, server.Addr())
	s.HTTP.Ready = settings.ReadyStore
	r := start(t, s)
	if code, body := get(t, "http://"+r.HTTP+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "not been reached") {
		t.Errorf("/readyz without Redis: %d %q, want 503", code, body)
	}
	const want = "check that Redis runs, that store.redis.url is its address, and that user and password are right"
	if !strings.Contains(r.StoreMissing, want) || !strings.Contains(r.StoreMissing, "on_store_error decides") {
		t.Errorf("the greeting is told %q, want %q in it", r.StoreMissing, want)
	}
	warned := r.logs.FilterLevelExact(zapcore.WarnLevel).FilterMessageSnippet(want).All()
	if len(warned) != 1 || !strings.Contains(warned[0].Message, "on_store_error decides") {
		t.Errorf("got the warnings %v, want one with %q", warned, want)
	}
	server.Start()
	r.waitLog("Redis answers now")
	waitFor(t, "/readyz", func() bool {
		code, _ := get(t, "http://"+r.HTTP+"/readyz")
		return code == http.StatusOK
	})
	if code, body := get(t, "http://"+r.HTTP+"/healthcheck"); code != http.StatusOK || body != "OK\nstore: redis, 1 of 1 nodes decide\n" {
		t.Errorf("/healthcheck: %d %q", code, body)
	}
}

// TestScopeMissingAtStart: if only the Redis of a scope does not answer, the greeting and the log say
// so, and that it concerns the keys of that scope.
func TestScopeMissingAtStart(t *testing.T) {
	s := testSettings(t)
	onRedis(t, &s, servers.StartRedis(t).Addr())
	world := s.Store.Redis
	world.URL = redisURL(t, "redis://127.0.0.1:1")
	s.Store.Scopes = settings.Scopes{{Name: "global", ScopeStore: settings.ScopeStore{Timeout: 50 * time.Millisecond, Redis: world}}}
	r := start(t, s)
	const want = "on_store_error decides for its keys"
	for what, got := range map[string]string{"the greeting": r.StoreMissing, "the log": fmt.Sprint(r.logs.FilterMessageSnippet("Redis cannot be reached").All())} {
		if !strings.Contains(got, want) || !strings.Contains(got, "store.scopes.global.redis.url") || strings.Contains(got, "store.redis.url") {
			t.Errorf("%s tells %q", what, got)
		}
	}
}
