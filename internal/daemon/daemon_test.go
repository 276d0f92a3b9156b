package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	programs "github.com/slidegate/slidegate/test/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testRun is a Run in the process of the test.
type testRun struct {
	Running
	t      *testing.T
	stop   context.CancelFunc
	logs   *observer.ObservedLogs
	reload chan os.Signal
	ready  chan Running
	done   chan error
}

// testSettings are the defaults on free ports, without a delay before the drain.
func testSettings(t *testing.T) settings.Settings {
	t.Helper()
	s := settings.Default()
	s.GRPC.Address = []settings.Address{"127.0.0.1:0"}
	s.HTTP.Address = "127.0.0.1:0"
	s.Admin.Address = "127.0.0.1:0"
	s.Drain.Delay = 0
	return s
}

// onRedis selects the Redis store at an address.
func onRedis(t testing.TB, s *settings.Settings, address string) {
	t.Helper()
	s.Store.Type, s.Store.Redis.URL = settings.StoreRedis, redisURL(t, "redis://"+address)
}

// redisURL returns the parsed URL of the store's Redis.
func redisURL(t testing.TB, text string) settings.RedisURL {
	t.Helper()
	s, _, err := settings.Load("", []string{"SLIDEGATE_STORE_REDIS_URL=" + text})
	if err != nil {
		t.Fatal(err)
	}
	return s.Store.Redis.URL
}

// onEachTransport runs a test with the settings for each transport.
func onEachTransport(t *testing.T, test func(*testing.T, settings.Settings)) {
	t.Helper()
	for _, transport := range []string{settings.TransportStandard, settings.TransportUnary} {
		t.Run(transport, func(t *testing.T) {
			s := testSettings(t)
			s.GRPC.Transport = transport
			test(t, s)
		})
	}
}

func start(t *testing.T, s settings.Settings, change ...func(*Options)) *testRun {
	t.Helper()
	r := startWaiting(t, s, change...)
	select {
	case r.Running = <-r.ready:
	case err := <-r.done:
		r.stop()
		t.Fatalf("Run: %v", err)
	}
	t.Cleanup(func() {
		r.stop()
		if err := <-r.done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// startWaiting starts Run with changed options, and does not wait until it serves. The caller
// stops it.
func startWaiting(t *testing.T, s settings.Settings, change ...func(*Options)) *testRun {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	ctx, cancel := context.WithCancel(context.Background())
	r := &testRun{t: t, stop: cancel, logs: logs, reload: make(chan os.Signal), ready: make(chan Running, 1), done: make(chan error, 1)}
	o := Options{
		Version: "test", Log: zap.New(core), Reload: r.reload,
		Ready: func(running Running) { r.ready <- running },
	}
	for _, c := range change {
		c(&o)
	}
	go func() { r.done <- Run(ctx, s, o) }()
	return r
}

// waitFor polls until ok or until the test has waited far too long.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !programs.Poll(20*time.Second, ok) {
		t.Fatalf("%s: waited in vain", what)
	}
}

func (r *testRun) waitLog(message string) {
	r.t.Helper()
	waitFor(r.t, "log line "+message, func() bool { return r.logs.FilterMessage(message).Len() > 0 })
}

// wantMetrics checks that the metrics page has all of these lines.
func (r *testRun) wantMetrics(lines ...string) {
	r.t.Helper()
	_, page := get(r.t, "http://"+r.Admin+"/metrics")
	for _, line := range lines {
		if !strings.Contains(page, "\n"+line+"\n") {
			r.t.Errorf("metrics lack %s", line)
		}
	}
}

// dial returns a connection that is closed when the test ends, without TLS by default.
func dial(t *testing.T, address string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *testRun) ask(text string) (*rlsv3.RateLimitResponse, error) {
	r.t.Helper()
	return askAt(r.t, r.GRPC[0], text)
}

func askAt(t *testing.T, address, text string) (*rlsv3.RateLimitResponse, error) {
	t.Helper()
	in := new(rlsv3.RateLimitRequest)
	if err := protojson.Unmarshal([]byte(text), in); err != nil {
		t.Fatal(err)
	}
	return rlsv3.NewRateLimitServiceClient(dial(t, address)).ShouldRateLimit(t.Context(), in)
}

// get sends a request with the token of usageSettings.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	code, _, body := exchange(t, http.MethodGet, url, "", "Authorization", "Bearer a-token-that-may-reset-all-limits")
	return code, body
}

// exchange sends a request with pairs of header names and values. It returns the response.
func exchange(t *testing.T, method, url, body string, headers ...string) (code int, header http.Header, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

const demo = `{"domain":"edge","descriptors":[{"entries":[{"key":"api_key","value":"demo-free"}]}]}`

func TestServesTheBuiltInExample(t *testing.T) { onEachTransport(t, testServesTheBuiltInExample) }

func testServesTheBuiltInExample(t *testing.T, s settings.Settings) {
	r := start(t, s)
	for i := range 101 {
		out, err := r.ask(demo)
		if err != nil {
			t.Fatal(err)
		}
		want := rlsv3.RateLimitResponse_OK
		if i == 100 {
			want = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		if out.GetOverallCode() != want {
			t.Fatalf("request %d: %v, want %v", i+1, out.GetOverallCode(), want)
		}
	}
	for _, tt := range []struct{ url, want string }{
		{r.HTTP + "/healthcheck", "OK\nstore: memory\n"},
		{r.HTTP + "/readyz", "ready\n"},
		{r.Admin + "/", "/metrics"},
		{r.Admin + "/rlconfig", "edge|api_key  name=per-key"},
		{r.Admin + "/metrics", `slidegate_decisions_total{domain="edge",outcome="denied",rule="per-key"} 1`},
		{r.Admin + "/metrics", `slidegate_build_info{commit=`},
		{r.Admin + "/metrics", "slidegate_store_seconds_count 101"},
		{r.Admin + "/metrics", `slidegate_rpc_seconds_count{code="OK",method="/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"} 101`},
		{r.Admin + "/metrics", "slidegate_config_broken 0"},
	} {
		if code, body := get(t, "http://"+tt.url); code != http.StatusOK || !strings.Contains(body, tt.want) {
			t.Errorf("GET %s = %d, want 200 and %q in\n%s", tt.url, code, tt.want, body)
		}
	}
}

func TestMessagesAreBounded(t *testing.T) { onEachTransport(t, testMessagesAreBounded) }

func testMessagesAreBounded(t *testing.T, s settings.Settings) {
	r := start(t, s)
	for size, want := range map[int]rlsv3.RateLimitResponse_Code{1 << 19: rlsv3.RateLimitResponse_OK, 1 << 21: rlsv3.RateLimitResponse_OVER_LIMIT} {
		form := strings.NewReplacer("demo-free", strings.Repeat("x", size), `[{"entries"`, `[{"entries":[{"key":"form","value":"openai"}]},{"entries"`)
		out, err := r.ask(form.Replace(demo))
		if err != nil || out.GetOverallCode() != want { // an error would let the request pass
			t.Errorf("a key of %d bytes: %v, %v, want %v", size, out.GetOverallCode(), err, want)
		}
		if body := string(out.GetRawBody()); want == rlsv3.RateLimitResponse_OVER_LIMIT && !strings.HasPrefix(body, `{"error":{"message":"The request is too large for its limits to be checked."`) {
			t.Errorf("a key of %d bytes: %s, want the form of the route", size, body)
		}
	}
	check := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: &authv3.AttributeContext_HttpRequest{Body: strings.Repeat("x", 1<<21)},
	}}}
	out, err := authv3.NewAuthorizationClient(dial(t, r.GRPC[0])).Check(t.Context(), check)
	if err != nil || out.GetDeniedResponse().GetStatus().GetCode() != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a check with a body of 2 MiB: %v, %v, want 431", out, err)
	}
	r.wantMetrics(`slidegate_degraded_answers_total{choice="deny"} 1`)
	if lines := r.logs.FilterMessageSnippet("a request exceeds a bound").All(); len(lines) != 1 || lines[0].ContextMap()["domain"] != "edge" || !strings.Contains(fmt.Sprint(lines[0].ContextMap()["bound"]), "put fewer header values into descriptors") {
		t.Errorf("logged %v, want a line with the domain and what to do", lines)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	r := start(t, testSettings(t))
	for size, want := range map[int]int{60 << 10: http.StatusOK, 100 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		if code, _ := get(t, "http://"+r.HTTP+"/readyz?"+strings.Repeat("x", size)); code != want {
			t.Errorf("a header of %d bytes: %d, want %d", size, code, want)
		}
	}
}

func TestDrainAnswersEverythingFirst(t *testing.T) {
	onEachTransport(t, testDrainAnswersEverythingFirst)
}

func testDrainAnswersEverythingFirst(t *testing.T, s settings.Settings) {
	for _, notServing := range []bool{false, true} {
		s.Drain.Delay = 300 * time.Millisecond
		s.Drain.NotServing = notServing
		r := start(t, s)
		client := healthv1.NewHealthClient(dial(t, r.GRPC[0]))
		if _, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.waitLog("draining; another signal ends it at once")
		if code, body := get(t, "http://"+r.HTTP+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "draining") {
			t.Errorf("not_serving=%v: /readyz during the delay = %d %q, want 503", notServing, code, body)
		}
		if _, err := r.ask(demo); err != nil {
			t.Errorf("not_serving=%v: a new call during the delay: %v", notServing, err)
		}
		want := healthv1.HealthCheckResponse_SERVING
		if notServing {
			want = healthv1.HealthCheckResponse_NOT_SERVING
		}
		if out, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil || out.GetStatus() != want {
			t.Errorf("not_serving=%v: health during the delay = %v, %v, want %v", notServing, out.GetStatus(), err, want)
		}
		r.waitLog("stopped")
	}
}

func TestUnixSocket(t *testing.T) { onEachTransport(t, testUnixSocket) }

func testUnixSocket(t *testing.T, s settings.Settings) {
	path := filepath.Join(t.TempDir(), "grpc.sock")
	// What a killed process leaves behind.
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = dead.Close()

	s.GRPC.Address = []settings.Address{settings.Address("unix://" + path), "127.0.0.1:0"}
	s.GRPC.SocketMode = 0o600
	r := start(t, s)
	if r.GRPC[0] != "unix://"+path || len(r.GRPC) != 2 {
		t.Errorf("listens on %v, want the socket and a port", r.GRPC)
	}
	if _, err := r.ask(demo); err != nil {
		t.Errorf("over the socket: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v, want mode 0600", info.Mode(), err)
	}
	second := s
	second.GRPC.Address = s.GRPC.Address[:1]
	if err := Run(t.Context(), second, Options{Log: zap.NewNop()}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second process on the socket: %v, want that it is in use", err)
	}
	if _, err := r.ask(demo); err != nil {
		t.Errorf("the first after the second gave up: %v", err)
	}
	r.stop()
	r.waitLog("stopped")
	waitFor(t, "the socket file to go", func() bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) })

	write(t, path, "precious")
	if err := Run(t.Context(), second, Options{Log: zap.NewNop()}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the way: %v, want it refused", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file in the way is %q, %v, want it untouched", b, err)
	}
}

// TestSocketOfASuccessor closes a listener after another process has replaced its file. The
// file of the other process stays.
func TestSocketOfASuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grpc.sock")
	old, err := listen("grpc.address", settings.Address("unix://"+path), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := listen("grpc.address", settings.Address("unix://"+path), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_ = old.Close() // a second time, as a server and its owner do
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the successor's socket: %v", err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after its owner closed it: %v, want none", err)
	}
}

// TestSocketThatCannotBeAsked listens on the socket of another kind of server. rls cannot find
// out whether it is in use.
func TestSocketThatCannotBeAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grpc.sock")
	other, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if l, err := listen("grpc.address", settings.Address("unix://"+path), 0o600); err == nil || !strings.Contains(err.Error(), "cannot find out") {
		t.Errorf("listen = %v, %v, want it refused", l, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the other's socket: %v", err)
	}
}

// TestStoreFailed: the log has a line for errors of the store that the operator can correct, and
// none for errors of callers and servers.
func TestStoreFailed(t *testing.T) {
	for err, want := range map[error]string{
		window.ErrBadCheck: "the store refused an invalid request",
		memstore.ErrFull:   "the store is full; raise store.memory.max_bytes",
		&failure.Error{Class: failure.Timeout, Err: context.DeadlineExceeded}: "",
	} {
		core, logs := observer.New(zapcore.DebugLevel)
		storeFailed(zap.New(core))(fmt.Errorf("the store could not decide: %w", err))
		got := ""
		for _, e := range logs.All() {
			got += e.Message
		}
		if got != want {
			t.Errorf("error %v: log %q, want %q", err, got, want)
		}
	}
}

// TestDecidesWithoutRedis has rules with each value of on_store_error, while Redis is away.
func TestDecidesWithoutRedis(t *testing.T) { onEachTransport(t, testDecidesWithoutRedis) }

func testDecidesWithoutRedis(t *testing.T, s settings.Settings) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const text = `domain: edge
descriptors:
  - {key: local, rate_limit: {unit: day, requests_per_unit: 1, on_store_error: local}}
  - {key: allow, rate_limit: {unit: day, requests_per_unit: 1, on_store_error: allow}}
  - {key: deny, rate_limit: {unit: day, requests_per_unit: 1, on_store_error: deny}}
  - {key: report, rate_limit: {unit: day, requests_per_unit: 1, on_store_error: report}}
`
	write(t, path, text)
	s.Rules.Path = path
	onRedis(t, &s, "127.0.0.1:1") // no server listens there
	r := start(t, s)
	const ok, over = rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT
	for _, tt := range []struct {
		key  string
		want rlsv3.RateLimitResponse_Code
	}{{"local", ok}, {"local", over}, {"allow", ok}, {"allow", ok}, {"deny", over}} {
		out, err := r.ask(`{"domain":"edge","descriptors":[{"entries":[{"key":"` + tt.key + `","value":"1"}]}]}`)
		if err != nil || out.GetOverallCode() != tt.want || !out.GetDynamicMetadata().GetFields()["degraded"].GetBoolValue() {
			t.Errorf("%s: %v, %v, want %v, degraded", tt.key, out, err, tt.want)
		}
	}
	if out, err := r.ask(`{"domain":"edge","descriptors":[{"entries":[{"key":"report","value":"1"}]}]}`); status.Code(err) != codes.Unavailable {
		t.Errorf("a rule with report: %v, %v, want UNAVAILABLE", out, err)
	}
	if _, body := get(t, "http://"+r.Admin+"/rlconfig"); !strings.Contains(body, "# store.on_error: local,") {
		t.Errorf("/rlconfig does not say what store.on_error is:\n%s", body)
	}
	r.wantMetrics(`slidegate_degraded_answers_total{choice="local"} 2`, `slidegate_degraded_answers_total{choice="allow"} 2`, `slidegate_degraded_answers_total{choice="deny"} 1`)
}

// TestSettingsOfAnswers starts with the settings that change answers and metrics.
func TestSettingsOfAnswers(t *testing.T) { onEachTransport(t, testSettingsOfAnswers) }

func testSettingsOfAnswers(t *testing.T, s settings.Settings) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const text = `domain: edge
descriptors:
  - {key: route, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`
	write(t, path, text)
	s.Rules.Path, s.Rules.ShadowMode = path, true
	s.DropIn.EchoRequest = true
	s.Metrics.MaxDetailSeries = 1
	r := start(t, s)
	for _, route := range []string{"a", "b"} {
		out, err := r.ask(`{"domain":"edge","descriptors":[{"entries":[{"key":"route","value":"` + route + `"}]}]}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := out.GetDynamicMetadata().GetFields()["domain"].GetStringValue(); got != "edge" {
			t.Errorf("metadata %v, want the request in it", out.GetDynamicMetadata())
		}
	}
	r.wantMetrics(
		`slidegate_detail_decisions_total{domain="edge",outcome="shadow_allowed",rule="route",values="route_a"} 1`,
		`slidegate_detail_decisions_total{domain="edge",outcome="shadow_allowed",rule="route",values="other"} 1`,
		`slidegate_shadow_decisions_total{domain="edge",outcome="allowed",rule="route"} 2`,
	)
	if _, body := get(t, "http://"+r.Admin+"/rlconfig"); !strings.Contains(body, "rules.shadow_mode") {
		t.Errorf("/rlconfig = %s, want that everything is only observed", body)
	}
}

// TestOverridesMakeNoSeries sends many different limits. They add no series to the metrics.
func TestOverridesMakeNoSeries(t *testing.T) { onEachTransport(t, testOverridesMakeNoSeries) }

func testOverridesMakeNoSeries(t *testing.T, s settings.Settings) {
	r := start(t, s)
	send := func(first, last int) {
		for i := first; i < last; i++ {
			text := fmt.Sprintf(`{"domain":"edge","descriptors":[{"entries":[{"key":"tenant","value":"%d"}],"limit":{"requestsPerUnit":%d,"unit":%d}}]}`, i, i+1, i%9)
			if _, err := r.ask(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	series := func() int {
		_, body := get(t, "http://"+r.Admin+"/metrics")
		return strings.Count(body, "\nslidegate_")
	}
	send(0, 50)
	before := series()
	send(50, 300)
	if after := series(); after != before {
		t.Errorf("%d series after 300 different limits, %d after 50", after, before)
	}
	r.wantMetrics("slidegate_ignored_overrides_total 100") // the units 0, 7 and 8
}

func TestDescribe(t *testing.T) {
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	dir, err := tier.NewDirectory([]string{"free", "pro", "trial"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	limit := func(hits uint64, w, precision time.Duration) rules.Limit {
		return rules.Limit{Limit: window.Limit{Hits: hits, Window: w}, Precision: precision}
	}
	one := rules.Terms{Limits: []rules.Limit{limit(5, time.Minute, 0)}}
	for _, r := range []rules.Rule{
		{Name: "plain", Terms: one},
		{Name: "two", Terms: rules.Terms{Limits: []rules.Limit{limit(5, time.Second, 0), limit(100_000, 24*time.Hour, 8640*time.Millisecond)}, Observe: 0.255}},
		{Name: "hot", Terms: rules.Terms{Limits: []rules.Limit{{Limit: one.Limits[0].Limit, Lease: window.Lease{Length: 50 * time.Millisecond, Hits: 2}}}}},
		{Name: "policies", Terms: rules.Terms{Limits: []rules.Limit{
			{Limit: window.Limit{Hits: 50, Rate: 10, Window: time.Second, Policy: window.TokenBucket}},
			{Limit: window.Limit{Hits: 5, Window: time.Minute, Policy: window.Fixed}},
			{Limit: window.Limit{Hits: 20, Window: 5 * time.Minute, Policy: window.InFlight}},
		}}},
		{Name: "free", Terms: rules.Terms{Unlimited: true}},
		{Name: "none"},
		{Name: "tiers", ByTier: map[string]rules.Terms{"pro": {Unlimited: true}, "free": {Limits: one.Limits, Observe: 1}, "trial": {}}, Terms: one},
		{Name: "quota", Terms: one, Quota: true, Answer: rules.Answer{Metadata: map[string]any{"backend": "a"}}, Storage: rules.Storage{OnError: rules.StoreErrorAllow}},
		{Name: "report", Terms: one, Charge: rules.Charge{Always: true, Factor: 5}, Storage: rules.Storage{OnError: rules.StoreErrorDeny}, Answer: rules.Answer{Denial: rules.Denial{Body: "no"}}},
		{Name: "new", Terms: one, Replaces: []string{"plain", "the other"}, Storage: rules.Storage{OnError: rules.StoreErrorLocal}, Answer: rules.Answer{NeverRetry: true, Denial: rules.Denial{Form: rules.FormOpenAI}}, Metric: rules.Metric{Detailed: true, Values: []bool{true}}},
	} {
		r.Domain, r.Path = "edge", []descriptors.Node{{Key: r.Name, AnyValue: true}}
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := rs.Add(rules.Rule{
		Domain: "edge", Name: "shared", Terms: one, OneLog: []bool{true}, Path: []descriptors.Node{{Key: "path", Value: "a*", Pattern: true}},
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"edge|plain  name=plain  5 per 1m",
		"edge|two  name=two  5 per 1s and 100000 per 1d (precision 8.64s) (25.5% observed)",
		"edge|hot  name=hot  5 per 1m (lease up to 2 for 50ms)",
		"edge|policies  name=policies  10 per 1s, bursts of 50 and 5 per 1m fixed and 20 requests in flight",
		"edge|free  name=free  unlimited",
		"edge|none  name=none  no limit",
		"edge|tiers  name=tiers  5 per 1m  free: 5 per 1m (100% observed)  pro: unlimited  trial: no limit",
		"edge|quota  name=quota  5 per 1m  quota  on_store_error=allow  metadata",
		"edge|report  name=report  5 per 1m  charge=always  cost=5  on_store_error=deny  own denial",
		`edge|new  name=new  5 per 1m  replaces=["plain" "the other"]  on_store_error=local  client_retry=never  detailed_metric  value_to_metric  body=openai`,
		"edge|path=a*  name=shared  5 per 1m  share_threshold",
	}
	if diff := cmp.Diff(want, Running{Rules: rs}.Describe()); diff != "" {
		t.Errorf("describe (-want +got):\n%s", diff)
	}
}

const rule = `domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: NAME, unit: minute, requests_per_unit: LIMIT}
`

func writeRules(t *testing.T, path, name, limit string) {
	t.Helper()
	write(t, path, strings.NewReplacer("NAME", name, "LIMIT", limit).Replace(rule))
}

// TestReload changes the rules once. The history is kept, and the metrics of the old rule go.
// TestReloadUnderLoad has more reloads, and broken files.
func TestReload(t *testing.T) { onEachTransport(t, testReload) }

func testReload(t *testing.T, s settings.Settings) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	writeRules(t, path, "first", "2")
	s.Rules.Path = path
	r := start(t, s)
	config := func() string { _, body := get(t, "http://"+r.Admin+"/rlconfig"); return body }

	if out, err := r.ask(demo); err != nil || out.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Fatalf("first generation: %v, %v", out, err)
	}
	writeRules(t, path, "second", "5")
	waitFor(t, "the second generation", func() bool { return strings.Contains(config(), "name=second") })
	out, err := r.ask(demo)
	if err != nil {
		t.Fatal(err)
	}
	if st := out.GetStatuses()[0]; st.GetCurrentLimit().GetName() != "second" || st.GetLimitRemaining() != 3 {
		t.Errorf("second generation: %v, want 3 of 5 remaining: the history is kept", st)
	}
	if _, body := get(t, "http://"+r.Admin+"/metrics"); strings.Contains(body, `rule="first"`) || !strings.Contains(body, `rule="second"`) {
		t.Errorf("metrics have a rule that is gone, or not the one that is there:\n%s", body)
	}

	r.reload <- os.Interrupt // with unchanged files
	if _, err := r.ask(demo); err != nil {
		t.Errorf("after a reload without a change: %v", err)
	}
}

// TestReloadIsSeen: a reload warns of an entry of charge_once that has gone, because clients that send
// it meet no limit. No log and no greeting shows a name in a way that a terminal obeys.
func TestReloadIsSeen(t *testing.T) {
	const domain = "e\u202edge"
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(entry string) {
		t.Helper()
		text := "domain: " + strconv.Quote(domain) + "\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 3, charge_once: {entry: " + entry + "}}}]\n"
		write(t, path, text)
	}
	write("attempt")
	s := testSettings(t)
	s.Rules.Path = path
	r := start(t, s)
	write("retry")
	waitFor(t, "the second generation", func() bool { return r.logs.FilterMessage("rules reloaded").Len() == 1 })
	warned := r.logs.FilterMessageSnippet("charge_once no longer has this entry").All()
	if len(warned) != 1 || warned[0].ContextMap()["entry"] != "attempt" {
		t.Errorf("an entry has gone: got %v, want one warning that names it", warned)
	}
	shown := fmt.Sprint(r.Describe())
	for _, e := range r.logs.All() {
		shown += fmt.Sprint(e.Message, e.ContextMap())
	}
	if strings.Contains(shown, domain) || !strings.Contains(shown, safetext.Text(domain)) {
		t.Errorf("the name of the domain is not shown, or not escaped, in\n%q", shown)
	}
}

// TestStoreOnError has each value of store.on_error, while Redis is away. It decides for a rule
// without on_store_error, and for a limit that comes with the request.
func TestStoreOnError(t *testing.T) {
	const ok, over = rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT
	for choice, want := range map[string][]any{
		"local": {ok, over}, "allow": {ok, ok}, "deny": {over, over}, "report": {codes.Unavailable, codes.Unavailable},
	} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		writeRules(t, path, "plain", "1")
		s := testSettings(t)
		s.Rules.Path = path
		s.Store.OnError = choice
		onRedis(t, &s, "127.0.0.1:1") // no server listens there
		r := start(t, s)
		for _, request := range []string{demo, strings.Replace(demo, `"descriptors":[{`, `"descriptors":[{"limit":{"requests_per_unit":1,"unit":"DAY"},`, 1)} {
			var got []any
			for range want {
				out, err := r.ask(request)
				if err != nil {
					got = append(got, status.Code(err))
				} else {
					got = append(got, out.GetOverallCode())
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("store.on_error %s, %s: got %v, want %v", choice, request, got, want)
			}
		}
	}
}

func TestRedisUnreachable(t *testing.T) { onEachTransport(t, testRedisUnreachable) }

func testRedisUnreachable(t *testing.T, s settings.Settings) {
	s.Store.OnError = "report"
	onRedis(t, &s, "user:hunter2hunter2@127.0.0.1:1") // no server listens there
	r := start(t, s)
	for range redisstore.DefaultFailures + 2 {
		if _, err := r.ask(demo); status.Code(err) != codes.Unavailable {
			t.Errorf("ShouldRateLimit = %v, want UNAVAILABLE", err)
		}
	}
	r.wantMetrics("slidegate_store_down 1")
	want := "OK\nstore: redis, 0 of 1 nodes decide; degraded: 127.0.0.1:1 (connect)\n"
	if code, body := get(t, "http://"+r.HTTP+"/healthcheck"); code != http.StatusOK || body != want {
		t.Errorf("/healthcheck = %d %q, want 200 and %q: the process can answer", code, body, want)
	}
	if code, _ := get(t, "http://"+r.HTTP+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz = %d, want 200: http.ready is always", code)
	}
	if n := r.logs.FilterMessageSnippet("cannot decide").Len(); n != 1 {
		t.Errorf("%d log lines say that the server cannot decide, want one", n)
	}
	for _, e := range r.logs.All() {
		for k, v := range e.ContextMap() {
			if s, ok := v.(string); ok && strings.Contains(s, "hunter2") {
				t.Errorf("log line %q shows the password in %s", e.Message, k)
			}
		}
	}
}
