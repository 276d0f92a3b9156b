package daemon

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/test/servers"
)

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
				state.Nodes = append(state.Nodes, insight.Server(n))
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
