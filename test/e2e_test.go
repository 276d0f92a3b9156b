package test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

const (
	edgeConfig          = "../envoy/ratelimit.yaml"
	sidecarConfig       = "../envoy/sidecar-uds.yaml"
	authorizationConfig = "../envoy/authorization.yaml"
	oneHopConfig        = "../envoy/one-hop.yaml"
	tlsConfig           = "../envoy/tls.yaml"

	// patience is how long a condition may take to become true. It decides how
	// long a broken test takes to fail, never how long a good one takes.
	patience = 30 * time.Second
)

// patientEnvoy returns changes of a file that give rls much time. On a busy machine answers
// and handshakes may take longer than the timeouts of the file, 50 to 250 ms. Envoy would then
// pass or deny a request that a test counts. Every test makes these changes and changes of
// addresses.
func patientEnvoy(t *testing.T, config string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	changes := make(map[string]string)
	for _, timeout := range []string{"timeout: 0.05s", "timeout: 0.2s", "timeout: 0.25s"} {
		if bytes.Contains(text, []byte(timeout)) {
			changes[timeout] = "timeout: 10s"
		}
	}
	return changes
}

// Settings of rls that tests need.
const (
	envStoreType    = "SLIDEGATE_STORE_TYPE"
	envStoreTimeout = "SLIDEGATE_STORE_TIMEOUT"
	envRedisURL     = "SLIDEGATE_STORE_REDIS_URL"
	envTiersSource  = "SLIDEGATE_TIERS_SOURCE"
	envGRPCAddress  = "SLIDEGATE_GRPC_ADDRESS"
	envHTTPAddress  = "SLIDEGATE_HTTP_ADDRESS"
	envAdminAddress = "SLIDEGATE_ADMIN_ADDRESS"
	envStyles       = "SLIDEGATE_HEADERS_STYLES"
	envDrainDelay   = "SLIDEGATE_DRAIN_DELAY"
	envLogLevel     = "SLIDEGATE_LOG_LEVEL"
	envRulesPath    = "SLIDEGATE_RULES_PATH"
	envTiersPath    = "SLIDEGATE_TIERS_PATH"
)

// onRedis returns the settings for a redis-server. The timeout of the store is long
// for the reason of patientEnvoy.
func onRedis(addr string) map[string]string {
	return map[string]string{envStoreType: "redis", envRedisURL: "redis://" + addr, envStoreTimeout: "10s"}
}

// eachStore runs a test on every store. settings select the store.
func eachStore(t *testing.T, f func(t *testing.T, settings map[string]string)) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		f(t, map[string]string{envStoreType: "memory"})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		f(t, onRedis(servers.Redis(t)))
	})
}

// setup says what a stack is made of.
type setup struct {
	rules string
	tiers string // empty: no tiers, every key has its own log
	env   map[string]string
	// config is Envoy's; empty: edgeConfig. change are further changes of its text.
	config string
	change map[string]string
	// upstream is the application; empty: one that records.
	upstream string
	// tls has the certificates of rls; nil: no TLS.
	tls *servers.Authority
	// way is how Envoy gets to rls; empty: as the environment says.
	way edge.Way
}

// stack is an application, rls and Envoy in front of both.
type stack struct {
	t     *testing.T
	app   *application
	rls   *edge.RLSServer
	envoy *edge.EnvoyServer
	// others are further instances of rls behind the same Envoy.
	others []*edge.RLSServer
}

// serve starts rls with the rules of s.
func (s setup) serve(t *testing.T) *edge.RLSServer {
	t.Helper()
	env := maps.Clone(s.env)
	if env == nil {
		env = make(map[string]string)
	}
	if s.tiers == "" && env[envTiersSource] == "" {
		env[envTiersSource] = "none"
	}
	return edge.RLS(t, edge.RLSOptions{Rules: s.rules, Tiers: s.tiers, Env: env, TLS: s.tls, Way: s.way})
}

// start starts the whole stack.
func (s setup) start(t *testing.T) *stack {
	t.Helper()
	st := &stack{t: t, app: newApplication(t), rls: s.serve(t)}
	s.startEnvoy(st)
	return st
}

// startEnvoy puts an Envoy before the application and rls of st.
func (s setup) startEnvoy(st *stack) {
	st.t.Helper()
	if s.upstream == "" {
		s.upstream = st.app.addr
	}
	if s.config == "" {
		s.config = edgeConfig
	}
	changes := patientEnvoy(st.t, s.config)
	o := edge.EnvoyOptions{Config: s.config, Upstream: s.upstream, RLS: endpoint(st.rls), Replace: changes}
	for _, other := range st.others {
		o.Others = append(o.Others, endpoint(other))
	}
	if s.tls == nil && st.rls.Authority() != nil {
		o.TLS = st.rls.Authority()
	}
	maps.Copy(changes, s.change)
	st.envoy = edge.Envoy(st.t, o)
}

// endpoint is where Envoy finds an rls.
func endpoint(rls *edge.RLSServer) string { return strings.TrimPrefix(rls.GRPC(), "unix://") }

// stat returns one of Envoy's counters.
func (s *stack) stat(name string) uint64 {
	s.t.Helper()
	n, err := s.envoy.Stat(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// wantAllDecided fails the test if Envoy let a request pass because rls did not
// answer. The counts of the test would then be wrong.
func (s *stack) wantAllDecided() {
	s.t.Helper()
	if n := s.stat("cluster.upstream.ratelimit.error"); n != 0 {
		s.t.Errorf("Envoy got no decision for %d requests, want one for each", n)
	}
}

// get sends a request from 127.0.0.1; see client.get.
func (s *stack) get(path string, header ...string) answer {
	s.t.Helper()
	return s.from("127.0.0.1").get(path, header...)
}

// from returns a client that calls from an address of the loopback network.
func (s *stack) from(address string) *client {
	s.t.Helper()
	return newClient(s.t, s.envoy.URL(), address)
}

// clients returns n clients that call from 127.0.0.1.
func (s *stack) clients(n int) []*client {
	s.t.Helper()
	all := make([]*client, n)
	for i := range all {
		all[i] = s.from("127.0.0.1")
	}
	return all
}

// want sends n requests and expects one status for all of them.
func (c *client) want(status, n int, path string, header ...string) {
	c.t.Helper()
	for i := range n {
		if got := c.get(path, header...); got.status != status {
			c.t.Errorf("request %d of %d for %s %q: got %d, want %d (%v)", i+1, n, path, header, got.status, status, got.header)
		}
	}
}

// peek returns how much remains of each descriptor, without charging. A question of 0 would
// make the costs of the rule usage reports.
func (s *stack) peek(descriptors ...string) []uint32 {
	s.t.Helper()
	_, out := postJSON(s.t, s.rls.HTTP(), refundOf(0, descriptors...))
	var remaining []uint32
	for _, st := range out.GetStatuses() {
		remaining = append(remaining, st.GetLimitRemaining())
	}
	return remaining
}

// question returns a request of the domain edge. A descriptor is written as
// "key=value,key=value".
func question(cost uint64, descriptors ...string) *rlsv3.RateLimitRequest {
	in := &rlsv3.RateLimitRequest{Domain: "edge"}
	for _, text := range descriptors {
		d := &ratelimitcommonv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(cost)}
		for entry := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		in.Descriptors = append(in.Descriptors, d)
	}
	return in
}

// refundOf returns a request that gives hits back. A refund of 0 tells what remains.
func refundOf(cost uint64, descriptors ...string) *rlsv3.RateLimitRequest {
	in := question(cost, descriptors...)
	for _, d := range in.GetDescriptors() {
		d.IsNegativeHits = true
	}
	return in
}

// postJSON sends a request to /json.
func postJSON(t *testing.T, url string, in *rlsv3.RateLimitRequest) (answer, *rlsv3.RateLimitResponse) {
	t.Helper()
	body, err := protojson.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := newClient(t, url, "127.0.0.1").do(req)
	if err != nil {
		t.Fatal(err)
	}
	out := new(rlsv3.RateLimitResponse)
	if err := protojson.Unmarshal([]byte(got.body), out); err != nil {
		t.Fatalf("/json: %d %s: %v", got.status, got.body, err)
	}
	return got, out
}

// dial returns a connection to the gRPC port of an rls, on any way.
func dial(t *testing.T, rls *edge.RLSServer) *grpc.ClientConn {
	t.Helper()
	conn, err := rls.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// connect returns a connection to a gRPC server.
func connect(t *testing.T, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// page returns a page of an rls or of Envoy.
func page(t *testing.T, url string) string {
	t.Helper()
	base, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	got := newClient(t, "http://"+base, "127.0.0.1").get("/"+path, "Authorization", "Bearer "+edge.ActToken)
	if got.status != http.StatusOK {
		t.Fatalf("GET %s: got %d, want 200", url, got.status)
	}
	return got.body
}

// metric returns the value of one line of the metrics page.
func metric(t *testing.T, rls *edge.RLSServer, name string) string {
	t.Helper()
	for line := range strings.Lines(page(t, rls.Metrics())) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// waitInstances waits until an rls counts the instances that share the store of a scope. Empty: there
// is one scope.
func waitInstances(t *testing.T, rls *edge.RLSServer, scope string, n int) {
	t.Helper()
	name := "slidegate_store_replicas"
	if scope != "" {
		name += `{scope="` + scope + `"}`
	}
	eventually(t, fmt.Sprintf("%s %d", name, n), func() bool { return metric(t, rls, name) == fmt.Sprint(n) })
}

// generation returns the digest of the active rules and tiers.
func generation(t *testing.T, rls *edge.RLSServer) string {
	t.Helper()
	_, rest, ok := strings.Cut(page(t, rls.Admin()+"/rlconfig"), "# generation ")
	digest, _, ok2 := strings.Cut(rest, ",")
	if !ok || !ok2 {
		t.Fatal("/rlconfig does not say which generation is active")
	}
	return digest
}

// answer is a response as the client saw it.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
	// sent is before the first byte of the request, received after the last one of
	// the response: the decision was in between.
	sent, received time.Time
}

// client sends requests over HTTP/1.1 from one address.
type client struct {
	t    *testing.T
	url  string
	http *http.Client
}

func newClient(t *testing.T, url, address string) *client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, url: url, http: &http.Client{Transport: transport, Timeout: patience}}
}

// try sends a request with header fields given as name, value, name, value.
func (c *client) try(ctx context.Context, path string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return c.do(req)
}

func (c *client) do(req *http.Request) (answer, error) {
	got := answer{sent: time.Now()}
	resp, err := c.http.Do(req)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got.received = time.Now()
	got.status, got.header, got.trailer, got.body = resp.StatusCode, resp.Header, resp.Trailer, string(body)
	return got, err
}

// get is try for a request that must be answered.
func (c *client) get(path string, header ...string) answer {
	c.t.Helper()
	got, err := c.try(c.t.Context(), path, header...)
	if err != nil {
		c.t.Fatalf("GET %s: %v", path, err)
	}
	return got
}

// concurrently runs n goroutines, each with clients of its own, and waits for them.
func concurrently(t *testing.T, n int, each func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = each(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// workers runs n goroutines. Each calls work with its own number and the number of the call,
// once in each pace. It ends with stop, with the test, or when work returns false. stop
// returns when all calls have returned.
func workers(t *testing.T, n int, pace time.Duration, work func(worker, call int) bool) (stop func()) {
	t.Helper()
	ended := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range n {
		wg.Go(func() {
			ticks := time.NewTicker(pace)
			defer ticks.Stop()
			for call := 0; ; call++ {
				select {
				case <-ended:
					return
				case <-ticks.C:
				}
				if !work(worker, call) {
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		close(ended)
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// dialRaw opens a TCP connection that is closed when the test ends, or after patience.
func dialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// send writes bytes to a server as they are. It returns the answer, and the bytes of the
// answer.
func send(t *testing.T, addr, request string) (answer, string) {
	t.Helper()
	conn := dialRaw(t, addr)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), nil)
	if err != nil {
		t.Fatalf("%q: %v after %q", request, err, raw.String())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body)}, raw.String()
}

// get11 is the text of a request with the given lines as its header.
func get11(path string, lines ...string) string {
	lines = append([]string{"GET " + path + " HTTP/1.1", "Host: api.example", "Connection: close"}, lines...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// The answer of the application.
const (
	appBody        = `{"from":"the application"}`
	appContentType = "application/vnd.example+json; charset=utf-8"
)

// application is the service behind Envoy. It records the requests that it gets.
type application struct {
	addr string

	mu       sync.Mutex
	requests []*http.Request
}

// newApplication serves until the test ends.
func newApplication(t *testing.T) *application {
	t.Helper()
	a := new(application)
	a.addr = serveHTTP(t, a)
	return a
}

// serveHTTP serves HTTP/1.1, and HTTP/2 without TLS, until the test ends. It returns
// host:port.
func serveHTTP(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
		if tcp, ok := conn.(syscall.Conn); ok {
			if raw, err := tcp.SyscallConn(); err == nil {
				return context.WithValue(ctx, connection{}, raw)
			}
		}
		return ctx
	}}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("application: %v", err)
		}
	})
	return listener.Addr().String()
}

// ServeHTTP answers with fields that rls must not change, and with rate-limit fields
// of its own, which Envoy removes.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r.Clone(context.WithoutCancel(r.Context())))
	a.mu.Unlock()
	w.Header().Set("Content-Type", appContentType)
	w.Header().Set("RateLimit", `"application";r=1`)
	w.Header().Set("RateLimit-Policy", `"application";q=1`)
	w.Header().Set("X-Application", "yes")
	fmt.Fprint(w, appBody)
}

// received returns the requests so far.
func (a *application) received() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*http.Request(nil), a.requests...)
}

// last returns the newest request.
func (a *application) last(t *testing.T) *http.Request {
	t.Helper()
	all := a.received()
	if len(all) == 0 {
		t.Fatal("nothing has reached the application")
	}
	return all[len(all)-1]
}

// eventually polls until ok returns true. After patience it fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !process.Poll(patience, ok) {
		t.Fatalf("waited %v in vain for %s", patience, what)
	}
}

// waitUntil blocks until a point in time. It is for tests in which a window has to
// pass, so that there is no condition to wait for.
func waitUntil(at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	<-timer.C
}
