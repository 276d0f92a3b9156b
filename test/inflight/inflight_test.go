package inflight

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// inFlightRules are for envoy/in-flight.yaml. hold is how long a place is kept at most.
func inFlightRules(hold string) string {
	return `
domain: edge
descriptors:
  - {key: in_flight, value: backend, rate_limit: {name: backend, policy: in_flight, max: 20, hold: ` + hold + `, body: openai}}
  - {key: in_flight, value: address, descriptors: [{key: masked_remote_address, value: 127.0.0.9/32, rate_limit: {name: address, policy: in_flight, max: 5, hold: ` + hold + `}}]}
  - {key: budget, value: units, descriptors: [{key: api_key, rate_limit: {name: budget, unit: hour, requests_per_unit: 1000}}]}
`
}

// A backend is an application that counts the requests in it. The query of a request says what
// the backend does with it.
type backend struct {
	now, most atomic.Int64
	open      chan struct{} // requests with wait end when it is closed

	mu      sync.Mutex
	visits  map[*visit]bool
	retries map[string]int
}

// A visit is a request at the backend.
type visit struct {
	request context.Context //nolint:containedctx // Envoy ends it
	conn    syscall.RawConn // nil: not known
}

// enter counts a request until the caller calls leave, or Envoy ends it.
func (b *backend) enter(ctx context.Context) (leave func()) {
	v := &visit{request: ctx}
	v.conn, _ = ctx.Value(stack.ConnKey{}).(syscall.RawConn)
	b.mu.Lock()
	if b.visits == nil {
		b.visits = make(map[*visit]bool)
	}
	b.visits[v] = true
	n := int64(len(b.visits))
	if n > b.most.Load() {
		// Envoy has ended some requests, and this process has not noticed yet.
		n = 0
		for other := range b.visits {
			if !other.ended() {
				n++
			}
		}
		b.most.Store(max(n, b.most.Load()))
	}
	b.now.Store(int64(len(b.visits)))
	b.mu.Unlock()
	left := sync.OnceFunc(func() {
		b.mu.Lock()
		delete(b.visits, v)
		b.now.Store(int64(len(b.visits)))
		b.mu.Unlock()
	})
	context.AfterFunc(ctx, left) // Envoy has ended the request
	return left
}

// ended reports whether Envoy has ended the request: by a reset of the stream, or by closing the
// connection. The kernel knows of that while the server still has bytes of the request to read.
func (v *visit) ended() (ended bool) {
	if v.request.Err() != nil || v.conn == nil {
		return v.request.Err() != nil
	}
	err := v.conn.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		ended = err != nil || info.State != unix.BPF_TCP_ESTABLISHED
	})
	return ended || err != nil
}

// TestEndedBehindUnreadBody: a request has ended when its connection is closed, even if the backend
// has not read all of its body.
func TestEndedBehindUnreadBody(t *testing.T) {
	t.Parallel()
	var b backend
	arrived, read := make(chan *visit), make(chan struct{})
	addr := stack.ServeHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer b.enter(r.Context())()
		for v := range b.visits {
			arrived <- v
		}
		<-read
	}))
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n")
	v := <-arrived
	defer close(read)
	_, _ = io.WriteString(conn, "some")
	if v.ended() {
		t.Error("an open connection counts as closed")
	}
	conn.Close()
	process.Eventually(t, "a closed connection", v.ended)
}

// ServeHTTP counts a request until its last bytes are written.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Host, "-shadow") { // before the port
		return // a mirrored request has no place of its own
	}
	leave := b.enter(r.Context())
	defer leave()
	q := r.URL.Query()
	flush := func() { _ = http.NewResponseController(w).Flush() }
	if ms, err := time.ParseDuration(q.Get("takes")); err == nil {
		b.pause(r, ms)
	}
	switch q.Get("does") {
	case "wait":
		select {
		case <-b.open:
		case <-r.Context().Done():
		}
	case "hang":
		<-r.Context().Done()
		return
	case "reset":
		leave()
		panic(http.ErrAbortHandler)
	case "reset-in-body":
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "some")
		flush()
		leave()
		panic(http.ErrAbortHandler)
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
		for range 5 {
			_, _ = io.WriteString(w, "data: x\n\n")
			flush()
			b.pause(r, 2*time.Millisecond)
		}
	case "silent":
		_, _ = io.WriteString(w, "some")
		flush()
		<-r.Context().Done()
		return
	case "trailers":
		w.Header().Set("Trailer", "X-End")
		_, _ = io.WriteString(w, "some")
		w.Header().Set("X-End", "yes")
	case "fail":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "fail-twice":
		if b.tries(q.Get("id")) <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	case "redirect":
		w.Header().Set("Location", "http://"+r.Host+"/?takes=1ms")
		w.WriteHeader(http.StatusFound)
	case "grpc":
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		flush()
		w.Header().Set("Grpc-Status", "5")
	case "read":
		_, _ = io.Copy(io.Discard, r.Body)
	}
	w.Header().Set("X-Cost", cmp.Or(q.Get("cost"), "1"))
}

func (b *backend) pause(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// tries counts how often a request was tried.
func (b *backend) tries(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.retries == nil {
		b.retries = make(map[string]int)
	}
	b.retries[id]++
	return b.retries[id]
}

// inFlightRoutes are what Envoy does with a request, by the path. The file has one route for all.
var inFlightRoutes = map[string]string{
	"/timeout": "{cluster: upstream, timeout: 0.02s}",
	"/tries":   `{cluster: upstream, timeout: 1s, retry_policy: {retry_on: "5xx,reset", num_retries: 3, per_try_timeout: 0.05s, retry_back_off: {base_interval: 0.001s, max_interval: 0.002s}}}`,
	"/idle":    "{cluster: upstream, timeout: 0s, idle_timeout: 0.02s}",
	"/longest": "{cluster: upstream, timeout: 0s, max_stream_duration: {max_stream_duration: 0.02s}}",
	"/inside":  "{cluster: upstream, internal_redirect_policy: {}}",
	"/mirror":  "{cluster: upstream, request_mirror_policies: [{cluster: upstream}]}",
	"/refused": "{cluster: unreachable}",
}

// inFlightChanges adds to the file the routes above, a filter that denies behind the limits, and a
// cluster where nothing listens.
func inFlightChanges(t *testing.T) map[string]string {
	t.Helper()
	text := tree.Text(t, stack.InFlightConfig)
	_, limits, _ := strings.Cut(text, "                route: {cluster: upstream, timeout: 15s}\n")
	limits, _, _ = strings.Cut(limits, "          http_filters:\n")
	var routes strings.Builder
	for path, action := range inFlightRoutes {
		fmt.Fprintf(&routes, "              - match: {prefix: %s}\n                route: %s\n%s", path, action, limits)
	}
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	const everything, trailers, rls = "              - name: everything\n", "          # Over HTTP/2, trailers of a request", "  - name: rls\n"
	return map[string]string{
		everything: routes.String() + everything,
		trailers: `          - name: envoy.filters.http.fault
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
              abort: {header_abort: {}, percentage: {numerator: 100}}
              delay: {header_delay: {}, percentage: {numerator: 100}}
` + trailers,
		rls: `  - name: unreachable
    connect_timeout: 1s
    load_assignment: {cluster_name: unreachable, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ` + fmt.Sprint(port) + `}}}}]}]}
` + rls,
	}
}

// inFlight is a stack with a backend.
type inFlight struct {
	*stack.Stack
	backend *backend
}

func startInFlight(t *testing.T, hold string, env map[string]string) *inFlight {
	t.Helper()
	b := &backend{open: make(chan struct{})}
	s := stack.Setup{
		Rules: inFlightRules(hold), Env: env, Config: stack.InFlightConfig, Change: inFlightChanges(t), Upstream: stack.ServeHTTP(t, b),
	}.Start(t)
	return &inFlight{s, b}
}

// wantPlaces waits until so many places at the backend are free.
func (f *inFlight) wantPlaces(want uint32) {
	f.T.Helper()
	var got uint32
	ask := rlsv3.NewRateLimitServiceClient(stack.Dial(f.T, f.RLS))
	defer func() {
		if got != want {
			f.T.Errorf("%d places are free, want %d", got, want)
			for line := range strings.Lines(stack.Page(f.T, f.RLS.Admin()+"/metrics")) {
				if strings.HasPrefix(line, "slidegate_stream") || strings.HasPrefix(line, "slidegate_in_flight") || strings.HasPrefix(line, "slidegate_rpc_seconds_count") {
					f.T.Log(line)
				}
			}
		}
	}()
	process.Eventually(f.T, fmt.Sprint(want, " free places"), func() bool {
		out, err := ask.ShouldRateLimit(f.T.Context(), stack.Request(0, "in_flight=backend"))
		if err != nil {
			return false
		}
		// A status with room has no numbers of a limit in flight.
		got = uint32(out.GetDynamicMetadata().GetFields()["remaining"].GetNumberValue())
		return got == want
	})
}

// transports of clients: HTTP/1.1, where to cancel closes the connection, and HTTP/2, where it
// resets the stream.
func inFlightClient(t *testing.T, two bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: 50}
	transport.Protocols.SetHTTP1(!two)
	transport.Protocols.SetUnencryptedHTTP2(two)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestAtMostTwentyInFlight has 50 clients at a time send requests that wait. 20 reach the backend
// and the others are denied. Then the clients send many short requests.
func TestAtMostTwentyInFlight(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		f := startInFlight(t, "1m", settings)
		client := inFlightClient(t, false)
		var allowed, denied atomic.Int64
		ask := func(query string) error {
			resp, err := client.Get(f.Envoy.URL() + "/?" + query)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			switch resp.StatusCode {
			case http.StatusOK:
				allowed.Add(1)
			case http.StatusTooManyRequests:
				denied.Add(1)
				if text := string(body); text != noPlace || resp.Header.Get("Retry-After") != "1" {
					return fmt.Errorf("denied with %v and %s", resp.Header, text)
				}
			default:
				return fmt.Errorf("status %d", resp.StatusCode)
			}
			return err
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			process.Concurrently(t, 50, func(int) error { return ask("does=wait") })
		}()
		process.Eventually(t, "30 denials while 20 requests are in flight", func() bool { return denied.Load() == 30 && f.backend.now.Load() == 20 })
		f.wantPlaces(0)
		close(f.backend.open)
		<-done
		f.wantPlaces(20)
		process.Concurrently(t, 50, func(int) error {
			for range 10 {
				if err := ask("takes=2ms"); err != nil {
					return err
				}
			}
			return nil
		})
		f.wantPlaces(20)
		if most := f.backend.most.Load(); most != 20 {
			t.Errorf("%d requests were in flight at a time, want 20", most)
		}
		if allowed.Load()+denied.Load() != 550 {
			t.Errorf("%d allowed and %d denied, want 550 together", allowed.Load(), denied.Load())
		}
		f.WantAllDecided()
		if n := stack.Metric(t, f.RLS, `slidegate_in_flight_misuses_total`); n != "0" {
			t.Errorf("%s misuses", n)
		}
	})
}

// endings are the requests of TestEveryEnd.
var endings = []string{
	"/", "/?takes=3ms", "/?does=trailers", "/?does=events", "/?does=reset", "/?does=reset-in-body", "/?does=fail", "/?does=hang", "/?does=silent",
	"/timeout?does=hang", "/timeout?does=silent", "/tries?does=hang", "/tries?does=fail-twice", "/tries?does=fail", "/idle?does=silent", "/longest?does=silent", "/longest?does=hang",
	"/inside?does=redirect", "/mirror?takes=1ms", "/refused", "/?fault=abort", "/?fault=delay", "/?body=whole&does=read", "/?body=half&does=read", "/?body=half", "/?does=grpc", "/a;b", "/?close=half", "/?close=all",
}

// noPlace is the denial of the rule backend.
const noPlace = `{"error":{"message":"No room under rule backend: 20 requests in flight; try again in 1 s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`

// TestForms: a request in flight too many is denied in the form of its route, and each form says that a
// client may come back after a second.
func TestForms(t *testing.T) {
	t.Parallel()
	rls := edge.RLS(t, stack.RulesIn(t, "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {name: one, policy: in_flight, max: 1, hold: 1m}}\n"))
	client := rlsv3.NewRateLimitServiceClient(stack.Dial(t, rls))
	const text = "No room under rule one: 1 requests in flight; try again in 1 s."
	for form, want := range map[string]string{
		"openai":    `{"error":{"message":"` + text + `","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
		"anthropic": `{"type":"error","error":{"type":"rate_limit_error","message":"` + text + `"}}`,
		"grpc":      text,
		"mcp":       `{"jsonrpc":"2.0","id":null,"error":{"code":-32029,"message":"` + text + `","data":{"rule":"one","retryAfterMs":1000,"retry":true}}}`,
		"problem":   `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"` + text + `","rule":"one","limit":1,"policy":"in_flight","retry_after":1,"violated-policies":["one"]}`,
	} {
		var out *rlsv3.RateLimitResponse
		for _, stream := range []string{"first", "second"} {
			ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-slidegate-stream", form+stream), process.Patience)
			defer cancel()
			var err error
			if out, err = client.ShouldRateLimit(ctx, stack.Request(1, "user="+form, "form="+form)); err != nil {
				t.Fatal(err)
			}
		}
		fields := make(map[string]string)
		for _, h := range out.GetResponseHeadersToAdd() {
			fields[h.GetKey()] = h.GetValue()
		}
		pushback := ""
		if form == "grpc" {
			pushback = "1000"
		}
		if got := string(out.GetRawBody()); got != want || fields["retry-after"] != "1" || fields["retry-after-ms"] != "1000" || fields["x-should-retry"] != "" || fields["grpc-retry-pushback-ms"] != pushback {
			t.Errorf("%s: %v and %s, want %s", form, fields, got, want)
		}
	}
}

// TestEveryEnd sends 500 requests from 50 clients, with every kind of end. All places are free
// afterwards.
func TestEveryEnd(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		f := startInFlight(t, "5m", settings)
		clients := []*http.Client{inFlightClient(t, false), inFlightClient(t, true)}
		seed := random.Seed(t)
		t.Logf("seed %d", seed)
		var statuses sync.Map
		process.Concurrently(t, 50, func(i int) error {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for j := range 10 {
				status := f.endSomehow(clients[r.IntN(2)], r, endings[(10*i+j)%len(endings)])
				n, _ := statuses.LoadOrStore(status, new(atomic.Int64))
				n.(*atomic.Int64).Add(1)
			}
			return nil
		})
		statuses.Range(func(status, n any) bool {
			t.Logf("status %v: %d", status, n.(*atomic.Int64).Load())
			return true
		})
		f.wantPlaces(20)
		if most := f.backend.most.Load(); most > 20 {
			t.Errorf("%d requests were in flight at a time, want at most 20", most)
		}
		if n := stack.Metric(t, f.RLS, `slidegate_in_flight_misuses_total`); n != "0" {
			t.Errorf("%s misuses", n)
		}
	})
}

// endSomehow sends a request. Half of the clients leave before its end. It returns the status, or 0.
func (f *inFlight) endSomehow(client *http.Client, r *rand.Rand, path string) int {
	if strings.Contains(path, "close=") {
		return f.closeSomehow(strings.Contains(path, "half"), time.Duration(r.IntN(3))*time.Millisecond)
	}
	after := process.Patience
	switch {
	case path == "/?does=hang" || path == "/?does=silent" || strings.Contains(path, "body=half"):
		after = 100 * time.Millisecond // nothing else ends it
	case r.IntN(2) == 0:
		after = time.Duration(r.IntN(8)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	var body io.Reader
	switch {
	case strings.Contains(path, "body=whole"):
		body = strings.NewReader(strings.Repeat("x", 1000))
	case strings.Contains(path, "body=half"):
		body = io.MultiReader(strings.NewReader("some"), stalled{ctx})
	}
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, f.Envoy.URL()+path+"&id="+fmt.Sprint(r.Uint64()), body)
	if err != nil {
		return 0
	}
	switch {
	case strings.Contains(path, "fault=abort"):
		req.Header.Set("X-Envoy-Fault-Abort-Request", "503")
	case strings.Contains(path, "fault=delay"):
		req.Header.Set("X-Envoy-Fault-Delay-Request", "20")
	case strings.Contains(path, "does=grpc"):
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// stalled is a body that ends with its context.
type stalled struct{ ctx context.Context } //nolint:containedctx // a body has no other

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// closeSomehow sends a request on a connection of its own and closes one direction of it, or all.
func (f *inFlight) closeSomehow(half bool, after time.Duration) int {
	conn, err := net.Dial("tcp", f.Envoy.Addr())
	if err != nil {
		return 0
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /?takes=5ms HTTP/1.1\r\nHost: x\r\n\r\n")
	time.Sleep(after) // a client that leaves at any time
	if half {
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = io.Copy(io.Discard, conn)
	}
	return 0
}

// holdPlaces has n requests wait at the backend. The returned function ends them.
func (f *inFlight) holdPlaces(n int) (end func()) {
	f.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client := inFlightClient(f.T, false)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Envoy.URL()+"/?does=hang", nil)
			if err != nil {
				return
			}
			if resp, err := client.Do(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	process.Eventually(f.T, fmt.Sprint(n, " requests at the backend"), func() bool { return f.backend.now.Load() == int64(n) })
	end = func() { cancel(); all.Wait() }
	f.T.Cleanup(end)
	return end
}

// TestEndsWhileRLSRestarts ends requests while rls is away. Envoy repeats the calls, so no place
// is lost.
func TestEndsWhileRLSRestarts(t *testing.T) {
	t.Parallel()
	f := startInFlight(t, "5m", stack.OnRedis(servers.Redis(t)))
	end := f.holdPlaces(15)
	f.wantPlaces(5)
	if code, err := f.RLS.Stop(); code != 0 || err != nil {
		t.Fatalf("exit code: got %d, %v, want 0", code, err)
	}
	end()
	if err := f.RLS.Start(); err != nil {
		t.Fatal(err)
	}
	f.wantPlaces(20)
}

// TestEndsWhileRedisIsAway kills Redis under requests in flight. It comes back empty, and no
// place is taken at rest.
func TestEndsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	env := maps.Clone(stack.OnRedis(server.Addr()))
	env[stack.EnvStoreTimeout] = "300ms"
	f := startInFlight(t, "5m", env)
	end := f.holdPlaces(10)
	f.wantPlaces(10)
	server.Stop()
	f.holdPlaces(0)
	away := f.holdMore(5)
	end()
	away()
	server.Start()
	f.wantPlaces(20)
}

// holdMore has n more requests come to the backend, whatever is there, and returns a function
// that ends them.
func (f *inFlight) holdMore(n int) (end func()) {
	f.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	client := inFlightClient(f.T, false)
	for range n {
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Envoy.URL()+"/?takes=50ms", nil)
			if err != nil {
				return
			}
			if resp, err := client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	return func() { all.Wait(); cancel() }
}

// TestHoldsOfADeadEnvoyExpire kills Envoy, which tells no ends. The places are free after the hold.
func TestHoldsOfADeadEnvoyExpire(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		f := startInFlight(t, "2s", settings)
		f.holdPlaces(20)
		f.wantPlaces(0)
		f.Envoy.Stop()
		f.wantPlaces(20)
	})
}

// TestCostsOfRequestsInFlight charges the cost of each request that had a place, once.
func TestCostsOfRequestsInFlight(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		f := startInFlight(t, "5m", settings)
		client := inFlightClient(t, false)
		var allowed atomic.Int64
		process.Concurrently(t, 40, func(int) error {
			req, err := http.NewRequest(http.MethodGet, f.Envoy.URL()+"/?takes=30ms", nil)
			if err != nil {
				return err
			}
			req.Header.Set("X-Api-Key", "ann")
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			if resp.StatusCode == http.StatusOK {
				allowed.Add(1)
			}
			if resp.Header.Get("X-Cost") != "" {
				t.Error("the client sees the cost")
			}
			return resp.Body.Close()
		})
		f.wantPlaces(20)
		want := 1000 - uint32(allowed.Load())
		left := func(want uint32) {
			t.Helper()
			process.Eventually(t, fmt.Sprintf("%d left of the budget", want), func() bool { return f.Peek("budget=units,api_key=ann")[0] == want })
		}
		left(want)

		// A request may cost more than what is left. The next one is denied then, and takes no place.
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
			req, err := http.NewRequest(http.MethodGet, f.Envoy.URL()+"/?cost=2000", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Api-Key", "ann")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("got %s, want %d", resp.Status, want)
			}
			left(0)
		}
		f.wantPlaces(20)
	})
}

// released returns how many streams have given places back.
func (f *inFlight) released() string {
	f.T.Helper()
	return stack.Metric(f.T, f.RLS, `slidegate_stream_ends_total{result="released"}`)
}

// openSocket opens a WebSocket through Envoy, and returns its connection after an echo.
func (f *inFlight) openSocket(t *testing.T) net.Conn {
	t.Helper()
	conn := stack.DialRaw(t, f.Envoy.Addr())
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
	f.T.Helper()
	process.Eventually(f.T, fmt.Sprint(n, " requests at the backend"), func() bool { return f.backend.now.Load() == n })
}

// healthClient calls the application with gRPC, through Envoy.
func (f *inFlight) healthClient(t *testing.T) healthv1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(f.Envoy.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
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

// leaveEarly sends n requests over HTTP/1.1 and HTTP/2, and every client leaves after a time that
// is up to most.
func (f *inFlight) leaveEarly(n int, most time.Duration) {
	f.T.Helper()
	clients := []*http.Client{inFlightClient(f.T, false), inFlightClient(f.T, true)}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(f.T.Context(), time.Millisecond+most*time.Duration(i)/time.Duration(n))
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Envoy.URL()+"/?takes=1ms", nil)
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

// wantMost fails the test if more requests were at the backend at a time.
func (f *inFlight) wantMost(most int64) {
	f.T.Helper()
	if got := f.backend.most.Load(); got > most {
		f.T.Errorf("%d requests were at the backend at a time, want at most %d", got, most)
	}
}

// sendMany sends n requests at a time. Each is answered by the application, or denied.
func (f *inFlight) sendMany(n int) {
	f.T.Helper()
	process.Concurrently(f.T, n, func(int) error {
		got, err := f.From("127.0.0.1").Try(f.T.Context(), "/?takes=20ms")
		if err == nil && got.Status != http.StatusOK && got.Status != http.StatusTooManyRequests {
			err = fmt.Errorf("status %d", got.Status)
		}
		return err
	})
}

// oneAddressTakesFive has a client without a key start 20 uploads that do not end. It takes the 5
// places of its address, and a customer at another address gets one of the others.
func (f *inFlight) oneAddressTakesFive() {
	f.T.Helper()
	ctx, cancel := context.WithCancel(f.T.Context())
	var all sync.WaitGroup
	var denied atomic.Int64
	attacker := inFlightClient(f.T, false)
	attacker.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).DialContext
	for range 20 {
		all.Go(func() {
			body, client := io.Pipe() // the transport waits for the end of a body
			context.AfterFunc(ctx, func() { client.CloseWithError(ctx.Err()) })
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.Envoy.URL()+"/?does=hang", body)
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
	process.Eventually(f.T, "15 uploads of the address to be denied", func() bool { return denied.Load() == 15 })
	f.wantPlaces(15)
	wantStatus(f.T, f.Get("/", "x-api-key", "customer").Status, http.StatusOK)
	cancel()
	all.Wait()
	f.wantPlaces(20)
}
