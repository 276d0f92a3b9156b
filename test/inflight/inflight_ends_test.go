package inflight

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// specialBackend is a backend for WebSockets, gRPC and external authorization. It gives all
// other requests to an ordinary backend.
type specialBackend struct {
	*backend
	grpc *grpc.Server
}

func newSpecialBackend() *specialBackend {
	s := &specialBackend{&backend{open: make(chan struct{})}, grpc.NewServer()}
	healthv1.RegisterHealthServer(s.grpc, health.NewServer())
	return s
}

// ServeHTTP counts requests as backend does.
func (s *specialBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/authorization/"):
		s.authorize(w, r)
	case strings.HasPrefix(r.URL.Path, "/grpc.health.v1.Health/"):
		leave := s.enter(r.Context())
		defer leave()
		s.grpc.ServeHTTP(w, r)
	case r.Header.Get("Upgrade") == "websocket":
		leave := s.enter(context.WithoutCancel(r.Context()))
		defer leave()
		serveSocket(w, r)
	default:
		s.backend.ServeHTTP(w, r)
	}
}

// authorize answers the external authorization filter of Envoy. Its calls take no place.
func (s *specialBackend) authorize(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get("X-Authorization") {
	case "deny":
		w.WriteHeader(http.StatusForbidden)
	case "hang":
		<-r.Context().Done()
	}
}

// serveSocket accepts a WebSocket and repeats what it receives. It closes the connection at a
// line "close".
func serveSocket(w http.ResponseWriter, r *http.Request) {
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if r.URL.Query().Get("does") == "refuse" {
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	for {
		line, err := both.ReadString('\n')
		if err != nil || line == "close\n" {
			return
		}
		_, _ = io.WriteString(conn, line)
	}
}

// specialFilters deny requests behind the filter that charges, by their header.
const specialFilters = `          - name: envoy.filters.http.rbac
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC
              rules:
                action: DENY
                policies:
                  refused: {permissions: [{header: {name: x-role, string_match: {exact: refused}}}], principals: [{any: true}]}
          - name: envoy.filters.http.ext_authz
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
              transport_api_version: V3
              allowed_headers: {patterns: [{exact: x-authorization}]}
              http_service:
                path_prefix: /authorization
                server_uri: {uri: "http://upstream", cluster: upstream, timeout: 10s}
`

// startSpecial is startInFlight with a specialBackend and the filters above. delayed puts a proxy
// between Envoy and rls, and change are further changes of Envoy's file.
func startSpecial(t *testing.T, env map[string]string, delayed bool, change map[string]string) (*inFlight, *servers.Proxy) {
	t.Helper()
	special := newSpecialBackend()
	t.Cleanup(special.grpc.Stop)
	changes := inFlightChanges(t)
	const trailers, idle = "          # Over HTTP/2, trailers of a request", "          stream_idle_timeout: 300s\n"
	changes[trailers] = strings.TrimSuffix(changes[trailers], trailers) + specialFilters + trailers
	changes[idle] = idle + "          upgrade_configs: [{upgrade_type: websocket}]\n"
	maps.Copy(changes, change)
	s := stack.Setup{Rules: inFlightRules("5m"), Env: env, Config: stack.InFlightConfig, Change: changes, Upstream: stack.ServeHTTP(t, special)}
	st := &stack.Stack{T: t, App: stack.NewApplication(t), RLS: s.Serve(t)}
	var proxy *servers.Proxy
	if delayed {
		at := stack.Endpoint(st.RLS)
		if strings.HasPrefix(at, "/") || st.RLS.Authority() != nil {
			t.Skip("the proxy is for TCP without TLS")
		}
		proxy = servers.StartProxy(t, at)
		host, port, _ := net.SplitHostPort(at)
		_, proxyPort, _ := net.SplitHostPort(proxy.Addr())
		const format = "socket_address: {address: %q, port_value: %s}"
		s.Change[fmt.Sprintf(format, host, port)] = fmt.Sprintf(format, host, proxyPort)
	}
	s.StartEnvoy(st)
	return &inFlight{st, special.backend}, proxy
}

// specialEnds are ends of requests. Each func returns when the client has seen the end.
var specialEnds = []struct {
	name string
	end  func(t *testing.T, f *inFlight)
}{
	{"WebSocket closed by the application", func(t *testing.T, f *inFlight) {
		conn := f.openSocket(t)
		f.wantPlaces(19) // nothing is given back while it is open
		_, _ = io.WriteString(conn, "close\n")
		_, _ = io.Copy(io.Discard, conn)
	}},
	{"WebSocket closed by the client", func(t *testing.T, f *inFlight) { f.openSocket(t).Close() }},
	{"WebSocket reset by the client", func(t *testing.T, f *inFlight) {
		conn := f.openSocket(t)
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}},
	{"WebSocket refused by the application", func(t *testing.T, f *inFlight) {
		got, _ := stack.Send(t, f.Envoy.Addr(), "GET /?does=refuse HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		wantStatus(t, got.Status, http.StatusForbidden)
	}},
	{"gRPC", func(t *testing.T, f *inFlight) {
		_, err := f.healthClient(t).Check(t.Context(), &healthv1.HealthCheckRequest{})
		wantGRPC(t, err, codes.OK)
	}},
	{"gRPC error", func(t *testing.T, f *inFlight) {
		_, err := f.healthClient(t).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "unknown"})
		wantGRPC(t, err, codes.NotFound)
	}},
	{"gRPC stream cancelled", func(t *testing.T, f *inFlight) {
		ctx, cancel := context.WithCancel(t.Context())
		wantGRPC(t, f.watch(ctx, t, cancel), codes.Canceled)
	}},
	{"gRPC deadline", func(t *testing.T, f *inFlight) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := f.watch(ctx, t, func() {})
		// Both ends have the deadline. Where that of the backend passes first, its health service
		// answers Canceled.
		if status.Code(err) != codes.Canceled {
			wantGRPC(t, err, codes.DeadlineExceeded)
		}
	}},
	{"HTTP/2 stream reset", func(t *testing.T, f *inFlight) {
		conn, _ := stack.Open2(t, f.Envoy.Addr(), stack.Get2("/?does=hang"))
		defer conn.Close()
		f.wantWaiting(1)
		if err := http2.NewFramer(conn, nil).WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
		f.wantWaiting(0)
	}},
	{"HTTP/2 connection reset", func(t *testing.T, f *inFlight) {
		conn, _ := stack.Open2(t, f.Envoy.Addr(), stack.Get2("/?does=hang"))
		f.wantWaiting(1)
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
		f.wantWaiting(0)
	}},
	{"denied by the RBAC filter", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.Get("/", "X-Role", "refused").Status, http.StatusForbidden)
	}},
	{"denied by external authorization", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.Get("/", "X-Authorization", "deny").Status, http.StatusForbidden)
	}},
	{"client leaves during external authorization", func(t *testing.T, f *inFlight) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if got, err := f.From("127.0.0.1").Try(ctx, "/", "X-Authorization", "hang"); err == nil {
			t.Errorf("status %d, want no answer", got.Status)
		}
	}},
	{"internal redirect", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.Get("/inside?does=redirect").Status, http.StatusOK)
	}},
	{"mirrored", func(t *testing.T, f *inFlight) { wantStatus(t, f.Get("/mirror?takes=1ms").Status, http.StatusOK) }},
	{"retries", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.Get("/tries?does=fail").Status, http.StatusServiceUnavailable)
	}},
	{"route timeout", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.Get("/timeout?does=hang").Status, http.StatusGatewayTimeout)
	}},
	{"no application", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.Get("/refused").Status, http.StatusServiceUnavailable)
	}},
}

func wantStatus(t *testing.T, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("status %d, want %d", got, want)
	}
}

func wantGRPC(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("gRPC code %v, want %v: %v", got, want, err)
	}
}

// TestEachEndGivesThePlaceBack ends requests in one way after the other, first one and then many
// at a time.
func TestEachEndGivesThePlaceBack(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		f, _ := startSpecial(t, settings, false, nil)
		for _, e := range specialEnds {
			before := f.released()
			e.end(t, f)
			ended := time.Now()
			f.wantPlaces(20)
			t.Logf("%s: the place is free after %v", e.name, time.Since(ended).Round(time.Millisecond))
			// Redis has given the place back before the service has its reply and counts it.
			process.Eventually(t, e.name+": a place to be given back", func() bool { return f.released() != before })
			if t.Failed() {
				t.Fatalf("the end was: %s", e.name)
			}
		}
		f.WantAllDecided()
	})
}

// TestWebSocketsInFlight opens 20 WebSockets. The next request is denied, until one of them is
// closed.
func TestWebSocketsInFlight(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		f, _ := startSpecial(t, settings, false, nil)
		sockets := make([]net.Conn, 20)
		for i := range sockets {
			sockets[i] = f.openSocket(t)
			defer sockets[i].Close()
		}
		f.wantPlaces(0)
		wantStatus(t, f.Get("/").Status, http.StatusTooManyRequests)
		sockets[7].Close()
		f.wantPlaces(1)
		wantStatus(t, f.Get("/").Status, http.StatusOK)
		for _, s := range sockets {
			s.Close()
		}
		f.wantPlaces(20)
	})
}

// slowCharges runs a test with each store, in which slow delays the answers of rls to Envoy, and
// once in which slow delays the answers of Redis to rls.
func slowCharges(t *testing.T, changes map[string]string, run func(f *inFlight, slow func(time.Duration), ofRLS bool)) {
	t.Parallel()
	t.Run("answers of rls", func(t *testing.T) {
		stack.EachStore(t, func(t *testing.T, settings map[string]string) {
			f, proxy := startSpecial(t, settings, true, changes)
			run(f, proxy.Latency, true)
		})
	})
	t.Run("answers of Redis", func(t *testing.T) {
		t.Parallel()
		redis := servers.StartProxy(t, servers.Redis(t))
		f, _ := startSpecial(t, stack.OnRedis(redis.Addr()), false, changes)
		run(f, redis.Latency, false)
	})
}

// TestClientsLeaveDuringASlowCharge has clients leave before, during and after a slow charge.
func TestClientsLeaveDuringASlowCharge(t *testing.T) {
	slowCharges(t, nil, func(f *inFlight, slow func(time.Duration), _ bool) {
		slow(100 * time.Millisecond)
		for range 3 {
			f.leaveEarly(40, 200*time.Millisecond)
		}
		slow(0)
		f.wantPlaces(20)
		f.wantMost(20)
	})
}

// TestEnvoyDoesNotWaitForTheCharge has Envoy let requests pass because rls answers too late. The
// places that they took late are free at rest.
func TestEnvoyDoesNotWaitForTheCharge(t *testing.T) {
	short := map[string]string{"timeout: 0.05s": "timeout: 0.05s"}
	slowCharges(t, short, func(f *inFlight, slow func(time.Duration), ofRLS bool) {
		slow(100 * time.Millisecond)
		f.sendMany(30)
		// If Redis is slow, rls may decide by its share, in time for Envoy.
		if ofRLS && f.Stat("cluster.upstream.ratelimit.error") == 0 {
			f.T.Error("rls was in time for all requests")
		}
		slow(0)
		f.wantPlaces(20)
	})
}

// TestClientsCannotForgeStreams sends what names and ends streams as headers of requests. They
// change nothing.
func TestClientsCannotForgeStreams(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		f := startInFlight(t, "5m", settings)
		forged := []string{
			"X-Slidegate-Stream", "mine", "X-Rls-End", "via_upstream", "Slidegate", "end", "X-Request-Id", "mine",
			"Slidegate.Id", "mine", "Api-Key", "end",
		}
		client := inFlightClient(t, true)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range 20 {
			all.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Envoy.URL()+"/?does=hang", nil)
				if err != nil {
					return
				}
				for i := 0; i < len(forged); i += 2 {
					req.Header.Set(forged[i], forged[i+1])
				}
				if resp, err := client.Do(req); err == nil {
					resp.Body.Close()
				}
			})
		}
		f.wantWaiting(20)
		for range 10 {
			wantStatus(t, f.Get("/", forged...).Status, http.StatusTooManyRequests)
		}
		f.wantPlaces(0)
		f.wantMost(20)
		cancel()
		all.Wait()
		f.wantPlaces(20)
		f.oneAddressTakesFive()
		if n := stack.Metric(t, f.RLS, `slidegate_in_flight_misuses_total`); n != "0" {
			t.Errorf("%s misuses", n)
		}
	})
}

// TestEndsAreHeardByAnotherInstance charges with one instance of rls and ends with another one, on
// every kind of Redis: with calls like those of Envoy, and with an Envoy that uses both.
func TestEndsAreHeardByAnotherInstance(t *testing.T) {
	stack.EachTopology(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: inFlightRules("5m"), Env: settings, Config: stack.InFlightConfig, Change: inFlightChanges(t)}
		b := &backend{open: make(chan struct{})}
		s.Upstream = stack.ServeHTTP(t, b)
		st := &stack.Stack{T: t, App: stack.NewApplication(t), RLS: s.Serve(t), Others: []*edge.RLSServer{s.Serve(t)}}
		charge, end := streamCaller(t, st.RLS), streamCaller(t, st.Others[0])
		for i := range 40 {
			id := fmt.Sprint("stream ", i)
			if !charge(id, "", stack.Request(1, "in_flight=backend")) {
				t.Fatalf("stream %d is denied, although all before it have ended", i)
			}
			if i%2 == 0 {
				charge(id, "via_upstream", stack.Request(1, "slidegate=end"))
			} else {
				end(id, "via_upstream", stack.Request(1, "slidegate=end"))
			}
		}
		end("early", "downstream_remote_disconnect", stack.Request(1, "slidegate=end"))
		if charge("early", "", stack.Request(1, "in_flight=backend")) {
			t.Error("a stream whose end came first to the other instance is allowed")
		}
		s.StartEnvoy(st)
		f := &inFlight{st, b}
		f.wantPlaces(20)
		client := inFlightClient(t, false)
		process.Concurrently(t, 40, func(i int) error {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*time.Millisecond)
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Envoy.URL()+"/?takes=5ms", nil)
				if err == nil {
					if resp, err := client.Do(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}
				cancel()
			}
			return nil
		})
		f.wantPlaces(20)
		f.wantMost(20)
		for _, rls := range append(st.Others, st.RLS) {
			if n := stack.Metric(t, rls, `slidegate_stream_ends_total{result="released"}`); n == "0" || n == "" {
				t.Errorf("an instance has given %q places back, want some", n)
			}
		}
	})
}

// streamCaller returns a function that calls rls as Envoy does, and reports whether the answer is OK.
func streamCaller(t *testing.T, rls *edge.RLSServer) func(stream, ending string, in *rlsv3.RateLimitRequest) bool {
	t.Helper()
	client := rlsv3.NewRateLimitServiceClient(stack.Dial(t, rls))
	return func(stream, ending string, in *rlsv3.RateLimitRequest) bool {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "x-slidegate-stream", stream)
		if ending != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-rls-end", ending)
		}
		out, err := client.ShouldRateLimit(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		return out.GetOverallCode() == rlsv3.RateLimitResponse_OK
	}
}
