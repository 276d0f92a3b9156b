package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/grpcserver"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/test/servers"
)

// TestWhyUnhealthy has each state, alone and unset.
func TestWhyUnhealthy(t *testing.T) {
	node := func(reason string) func() storeState {
		return func() storeState {
			return storeState{Nodes: []insight.Server{{Address: "a", Reason: reason}}, Reached: true}
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
