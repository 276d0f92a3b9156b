package daemon

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/test/servers"
)

// TestWhyUnhealthy has each state, alone and unset.
func TestWhyUnhealthy(t *testing.T) {
	const rules, store = settings.UnhealthyRules, settings.UnhealthyStore
	node := func(reason string) func() storeState {
		return func() storeState { return storeState{Nodes: []nodeState{{"a", reason, ""}}, Reached: true} }
	}
	for _, c := range []struct {
		what      string
		unhealthy []string
		domains   int
		state     func() storeState
		silent    bool
		draining  bool
		want      string
	}{
		{"never", nil, 0, node("x"), true, true, ""},
		{"rules", []string{rules}, 1, node("x"), true, true, ""},
		{"no rules", []string{rules}, 0, nil, false, false, "no rules are loaded"},
		{"memory store", []string{store}, 0, nil, false, true, ""},
		{"store", []string{store}, 0, node(""), false, true, ""},
		{"store away", []string{store}, 1, node("connect"), false, false, "no node of the store decides"},
		{"store silent", []string{store}, 1, node(""), true, false, "there is no connection to the store"},
		{"store never reached", []string{store}, 1, func() storeState { return storeState{} }, false, false, "the store has not been reached yet"},
		{"all are well", []string{rules, store}, 1, node(""), false, true, ""},
	} {
		for _, plain := range []bool{false, true} {
			p := &probes{
				store: settings.StoreRedis, ready: settings.ReadyAlways, state: c.state, tiers: func() string { return "" },
				unhealthy: c.unhealthy, domains: func() int { return c.domains }, connected: func() bool { return !c.silent }, plain: plain,
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
	for _, name := range healthNames {
		got, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
		if err != nil || got.GetStatus() != status {
			t.Errorf("health of %q: %v, %v, want %v", name, got.GetStatus(), err, status)
		}
	}
}

// TestHealthFollows changes the reason on a running server. Checks see it at once, and a watch
// soon.
func TestHealthFollows(t *testing.T) { onEachTransport(t, testHealthFollows) }

func testHealthFollows(t *testing.T, s settings.Settings) {
	var why atomic.Pointer[string]
	set := func(reason string) { why.Store(&reason) }
	set("no rules are loaded")
	core, logs := observer.New(zapcore.DebugLevel)
	registry := prometheus.NewRegistry()
	tr := newTransport(s.GRPC, nil, calls{metrics.New(registry, metrics.Options{}), zap.New(core), nil, nil}, registry)
	tr.unhealthy = func() string { return *why.Load() }
	server, h, parts := tr.server(nil)
	describing := newDescribing(server, h)
	type listening interface {
		Serve(net.Listener) error
		Stop()
	}
	serve := func(server listening) *grpc.ClientConn {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(l) }() // ends with Stop
		t.Cleanup(server.Stop)
		return dial(t, l.Addr().String())
	}
	client := healthv1.NewHealthClient(serve(server))
	watch, err := healthv1.NewHealthClient(serve(describing)).Watch(t.Context(), new(healthv1.HealthCheckRequest))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, p := range parts {
		all.Go(func() { _ = p(ctx) })
	}
	defer all.Wait()
	defer cancel()
	if len(parts) != 1 {
		t.Fatalf("%d parts, want 1", len(parts))
	}
	for round, reason := range []string{"no rules are loaded", "", "there is no connection to the store", "", "draining"} {
		set(reason)
		want := healthv1.HealthCheckResponse_SERVING
		if reason != "" {
			want = healthv1.HealthCheckResponse_NOT_SERVING
		}
		for _, name := range healthNames {
			got, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
			if err != nil || got.GetStatus() != want {
				t.Errorf("round %d: health of %q: %v, %v, want %v", round, name, got.GetStatus(), err, want)
			}
		}
		list, err := client.List(t.Context(), new(healthv1.HealthListRequest))
		if err != nil || list.GetStatuses()["ratelimit"].GetStatus() != want {
			t.Errorf("round %d: the list is %v, %v, want %v", round, list, err, want)
		}
		for status := healthv1.HealthCheckResponse_UNKNOWN; status != want; {
			got, err := watch.Recv()
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			status = got.GetStatus()
		}
	}
	if n := logs.FilterMessageSnippet("unhealthy").Len(); n != 3 {
		t.Errorf("%d lines of log, want 3: %v", n, logs.All())
	}
}

// TestHealthFollowsNothing proves that without dropin.unhealthy nothing runs.
func TestHealthFollowsNothing(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s settings.Settings) {
		server, _, parts := transport{settings: s.GRPC, calls: calls{log: zap.NewNop()}}.server(nil)
		server.Stop()
		if len(parts) > 0 {
			t.Error("there is a part")
		}
	})
}

// TestUnhealthyStore loses Redis without a request that would notice, and finds it again.
func TestUnhealthyStore(t *testing.T) { onEachTransport(t, testUnhealthyStore) }

func testUnhealthyStore(t *testing.T, s settings.Settings) {
	server := servers.StartRedis(t)
	server.Stop()
	onRedis(t, &s, server.Addr())
	s.DropIn.Unhealthy = []string{settings.UnhealthyStore, settings.UnhealthyRules}
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

// TestHealthDuringDrain: while rls drains, gRPC health is NOT_SERVING only with drain.not_serving, and
// rls still decides.
func TestHealthDuringDrain(t *testing.T) { onEachTransport(t, testHealthDuringDrain) }

func testHealthDuringDrain(t *testing.T, s settings.Settings) {
	s.Drain.Delay = 3 * time.Second
	for _, c := range []struct {
		notServing bool
		status     healthv1.HealthCheckResponse_ServingStatus
	}{
		{false, healthv1.HealthCheckResponse_SERVING},
		{true, healthv1.HealthCheckResponse_NOT_SERVING},
	} {
		s.Drain.NotServing = c.notServing
		r := start(t, s)
		conn := dial(t, r.GRPC[0])
		if err := asks(t, conn); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.waitLog("draining; another signal ends it at once")
		if code, body := get(t, "http://"+r.HTTP+"/healthcheck"); code != http.StatusOK {
			t.Errorf("/healthcheck is %d %q, want 200", code, body)
		}
		waitFor(t, "the health", func() bool {
			got, err := healthv1.NewHealthClient(conn).Check(t.Context(), new(healthv1.HealthCheckRequest))
			return err == nil && got.GetStatus() == c.status
		})
		if _, err := r.ask(demo); err != nil {
			t.Errorf("a call while it drains: %v", err)
		}
	}
}
