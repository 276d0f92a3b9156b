package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
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
	s := setup{rules: inFlightRules("5m"), env: env, config: inFlightConfig, change: changes, upstream: serveHTTP(t, special)}
	st := &stack{t: t, app: newApplication(t), rls: s.serve(t)}
	var proxy *servers.Proxy
	if delayed {
		at := endpoint(st.rls)
		if strings.HasPrefix(at, "/") || st.rls.Authority() != nil {
			t.Skip("the proxy is for TCP without TLS")
		}
		proxy = servers.StartProxy(t, at)
		host, port, _ := net.SplitHostPort(at)
		_, proxyPort, _ := net.SplitHostPort(proxy.Addr())
		const format = "socket_address: {address: %q, port_value: %s}"
		s.change[fmt.Sprintf(format, host, port)] = fmt.Sprintf(format, host, proxyPort)
	}
	s.startEnvoy(st)
	return &inFlight{st, special.backend}, proxy
}

// released returns how many streams have given places back.
func (f *inFlight) released() string {
	f.t.Helper()
	return metric(f.t, f.rls, `slidegate_stream_ends_total{result="released"}`)
}

// openSocket opens a WebSocket through Envoy, and returns its connection after an echo.
func (f *inFlight) openSocket(t *testing.T) net.Conn {
	t.Helper()
	conn := dialRaw(t, f.envoy.Addr())
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("no WebSocket: %v", resp)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if line, err := reader.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("the WebSocket repeats %q, %v", line, err)
	}
	return conn
}

// wantWaiting waits until n requests are at the backend.
func (f *inFlight) wantWaiting(n int64) {
	f.t.Helper()
	eventually(f.t, fmt.Sprint(n, " requests at the backend"), func() bool { return f.backend.now.Load() == n })
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
		got, _ := send(t, f.envoy.Addr(), "GET /?does=refuse HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		wantStatus(t, got.status, http.StatusForbidden)
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
		conn, _ := open2(t, f.envoy.Addr(), get2("/?does=hang"))
		defer conn.Close()
		f.wantWaiting(1)
		if err := http2.NewFramer(conn, nil).WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
		f.wantWaiting(0)
	}},
	{"HTTP/2 connection reset", func(t *testing.T, f *inFlight) {
		conn, _ := open2(t, f.envoy.Addr(), get2("/?does=hang"))
		f.wantWaiting(1)
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
		f.wantWaiting(0)
	}},
	{"denied by the RBAC filter", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.get("/", "X-Role", "refused").status, http.StatusForbidden)
	}},
	{"denied by external authorization", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.get("/", "X-Authorization", "deny").status, http.StatusForbidden)
	}},
	{"client leaves during external authorization", func(t *testing.T, f *inFlight) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if got, err := f.from("127.0.0.1").try(ctx, "/", "X-Authorization", "hang"); err == nil {
			t.Errorf("status %d, want no answer", got.status)
		}
	}},
	{"internal redirect", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.get("/inside?does=redirect").status, http.StatusOK)
	}},
	{"mirrored", func(t *testing.T, f *inFlight) { wantStatus(t, f.get("/mirror?takes=1ms").status, http.StatusOK) }},
	{"retries", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.get("/tries?does=fail").status, http.StatusServiceUnavailable)
	}},
	{"route timeout", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.get("/timeout?does=hang").status, http.StatusGatewayTimeout)
	}},
	{"no application", func(t *testing.T, f *inFlight) {
		wantStatus(t, f.get("/refused").status, http.StatusServiceUnavailable)
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

// healthClient calls the application with gRPC, through Envoy.
func (f *inFlight) healthClient(t *testing.T) healthv1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(f.envoy.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthv1.NewHealthClient(conn)
}

// watch opens a stream, calls then after its first message, and returns how the stream ends.
func (f *inFlight) watch(ctx context.Context, t *testing.T, then func()) error {
	t.Helper()
	stream, err := f.healthClient(t).Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	then()
	_, err = stream.Recv()
	return err
}

// TestEachEndGivesThePlaceBack ends requests in one way after the other, first one and then many
// at a time.
func TestEachEndGivesThePlaceBack(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
		f, _ := startSpecial(t, settings, false, nil)
		for _, e := range specialEnds {
			before := f.released()
			e.end(t, f)
			ended := time.Now()
			f.wantPlaces(20)
			t.Logf("%s: the place is free after %v", e.name, time.Since(ended).Round(time.Millisecond))
			// Redis has given the place back before the service has its reply and counts it.
			eventually(t, e.name+": a place to be given back", func() bool { return f.released() != before })
			if t.Failed() {
				t.Fatalf("the end was: %s", e.name)
			}
		}
		f.wantAllDecided()
	})
}

// TestWebSocketsInFlight opens 20 WebSockets. The next request is denied, until one of them is
// closed.
func TestWebSocketsInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
		f, _ := startSpecial(t, settings, false, nil)
		sockets := make([]net.Conn, 20)
		for i := range sockets {
			sockets[i] = f.openSocket(t)
			defer sockets[i].Close()
		}
		f.wantPlaces(0)
		wantStatus(t, f.get("/").status, http.StatusTooManyRequests)
		sockets[7].Close()
		f.wantPlaces(1)
		wantStatus(t, f.get("/").status, http.StatusOK)
		for _, s := range sockets {
			s.Close()
		}
		f.wantPlaces(20)
	})
}

// leaveEarly sends n requests over HTTP/1.1 and HTTP/2, and every client leaves after a time that
// is up to most.
func (f *inFlight) leaveEarly(n int, most time.Duration) {
	f.t.Helper()
	clients := []*http.Client{inFlightClient(f.t, false), inFlightClient(f.t, true)}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(f.t.Context(), time.Millisecond+most*time.Duration(i)/time.Duration(n))
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.envoy.URL()+"/?takes=1ms", nil)
			if err != nil {
				return
			}
			if resp, err := clients[i%2].Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	all.Wait()
}

// slowCharges runs a test with each store, in which slow delays the answers of rls to Envoy, and
// once in which slow delays the answers of Redis to rls.
func slowCharges(t *testing.T, changes map[string]string, run func(f *inFlight, slow func(time.Duration), ofRLS bool)) {
	t.Parallel()
	t.Run("answers of rls", func(t *testing.T) {
		eachStore(t, func(t *testing.T, settings map[string]string) {
			f, proxy := startSpecial(t, settings, true, changes)
			run(f, proxy.Latency, true)
		})
	})
	t.Run("answers of Redis", func(t *testing.T) {
		t.Parallel()
		redis := servers.StartProxy(t, servers.Redis(t))
		f, _ := startSpecial(t, onRedis(redis.Addr()), false, changes)
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

// wantMost fails the test if more requests were at the backend at a time.
func (f *inFlight) wantMost(most int64) {
	f.t.Helper()
	if got := f.backend.most.Load(); got > most {
		f.t.Errorf("%d requests were at the backend at a time, want at most %d", got, most)
	}
}

// TestEnvoyDoesNotWaitForTheCharge has Envoy let requests pass because rls answers too late. The
// places that they took late are free at rest.
func TestEnvoyDoesNotWaitForTheCharge(t *testing.T) {
	short := map[string]string{"timeout: 0.05s": "timeout: 0.05s"}
	slowCharges(t, short, func(f *inFlight, slow func(time.Duration), ofRLS bool) {
		slow(100 * time.Millisecond)
		f.sendMany(30)
		// If Redis is slow, rls may decide by its share, in time for Envoy.
		if ofRLS && f.stat("cluster.upstream.ratelimit.error") == 0 {
			f.t.Error("rls was in time for all requests")
		}
		slow(0)
		f.wantPlaces(20)
	})
}

// sendMany sends n requests at a time. Each is answered by the application, or denied.
func (f *inFlight) sendMany(n int) {
	f.t.Helper()
	concurrently(f.t, n, func(int) error {
		got, err := f.from("127.0.0.1").try(f.t.Context(), "/?takes=20ms")
		if err == nil && got.status != http.StatusOK && got.status != http.StatusTooManyRequests {
			err = fmt.Errorf("status %d", got.status)
		}
		return err
	})
}

// TestClientsCannotForgeStreams sends what names and ends streams as headers of requests. They
// change nothing.
func TestClientsCannotForgeStreams(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
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
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.envoy.URL()+"/?does=hang", nil)
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
			wantStatus(t, f.get("/", forged...).status, http.StatusTooManyRequests)
		}
		f.wantPlaces(0)
		f.wantMost(20)
		cancel()
		all.Wait()
		f.wantPlaces(20)
		f.oneAddressTakesFive()
		if n := metric(t, f.rls, `slidegate_in_flight_misuses_total`); n != "0" {
			t.Errorf("%s misuses", n)
		}
	})
}

// oneAddressTakesFive has a client without a key start 20 uploads that do not end. It takes the 5
// places of its address, and a customer at another address gets one of the others.
func (f *inFlight) oneAddressTakesFive() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	var all sync.WaitGroup
	var denied atomic.Int64
	attacker := inFlightClient(f.t, false)
	attacker.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).DialContext
	for range 20 {
		all.Go(func() {
			body, client := io.Pipe() // the transport waits for the end of a body
			context.AfterFunc(ctx, func() { client.CloseWithError(ctx.Err()) })
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.envoy.URL()+"/?does=hang", body)
			if err != nil {
				return
			}
			resp, err := attacker.Do(req)
			if err != nil {
				return
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				denied.Add(1)
			}
		})
	}
	eventually(f.t, "15 uploads of the address to be denied", func() bool { return denied.Load() == 15 })
	f.wantPlaces(15)
	wantStatus(f.t, f.get("/", "x-api-key", "customer").status, http.StatusOK)
	cancel()
	all.Wait()
	f.wantPlaces(20)
}

// TestEndsAreHeardByAnotherInstance charges with one instance of rls and ends with another one, on
// every kind of Redis: with calls like those of Envoy, and with an Envoy that uses both.
func TestEndsAreHeardByAnotherInstance(t *testing.T) {
	eachTopology(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: inFlightRules("5m"), env: settings, config: inFlightConfig, change: inFlightChanges(t)}
		b := &backend{open: make(chan struct{})}
		s.upstream = serveHTTP(t, b)
		st := &stack{t: t, app: newApplication(t), rls: s.serve(t), others: []*edge.RLSServer{s.serve(t)}}
		charge, end := streamCaller(t, st.rls), streamCaller(t, st.others[0])
		for i := range 40 {
			id := fmt.Sprint("stream ", i)
			if !charge(id, "", question(1, "in_flight=backend")) {
				t.Fatalf("stream %d is denied, although all before it have ended", i)
			}
			if i%2 == 0 {
				charge(id, "via_upstream", question(1, "slidegate=end"))
			} else {
				end(id, "via_upstream", question(1, "slidegate=end"))
			}
		}
		end("early", "downstream_remote_disconnect", question(1, "slidegate=end"))
		if charge("early", "", question(1, "in_flight=backend")) {
			t.Error("a stream whose end came first to the other instance is allowed")
		}
		s.startEnvoy(st)
		f := &inFlight{st, b}
		f.wantPlaces(20)
		client := inFlightClient(t, false)
		concurrently(t, 40, func(i int) error {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*time.Millisecond)
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.envoy.URL()+"/?takes=5ms", nil)
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
		for _, rls := range append(st.others, st.rls) {
			if n := metric(t, rls, `slidegate_stream_ends_total{result="released"}`); n == "0" || n == "" {
				t.Errorf("an instance has given %q places back, want some", n)
			}
		}
	})
}

// streamCaller returns a function that calls rls as Envoy does, and reports whether the answer is OK.
func streamCaller(t *testing.T, rls *edge.RLSServer) func(stream, ending string, in *rlsv3.RateLimitRequest) bool {
	t.Helper()
	client := rlsv3.NewRateLimitServiceClient(dial(t, rls))
	return func(stream, ending string, in *rlsv3.RateLimitRequest) bool {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
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
