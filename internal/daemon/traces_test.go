package daemon

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/otlp"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	limitSpan = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	checkSpan = "envoy.service.auth.v3.Authorization/Check"
	// planted is an API key that must not be in any span.
	planted = "sk_live_planted_0123456789"

	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

// traced sends spans to a receiver, over HTTP.
func traced(t testing.TB) *otlp.Receiver {
	t.Helper()
	r := otlp.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.HTTP)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	return r
}

// askWith asks with metadata.
func (r *testRun) askWith(text string, md ...string) (*rlsv3.RateLimitResponse, error) {
	r.t.Helper()
	in := new(rlsv3.RateLimitRequest)
	if err := protojson.Unmarshal([]byte(text), in); err != nil {
		r.t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(r.t.Context(), md...)
	return rlsv3.NewRateLimitServiceClient(dial(r.t, r.GRPC[0])).ShouldRateLimit(ctx, in)
}

// end stops the process before the test ends, so that all spans are sent.
func (r *testRun) end() {
	r.t.Helper()
	r.stop()
	r.done <- <-r.done // for the end of the test
}

func TestSpanOfADecision(t *testing.T) { onEachTransport(t, testSpanOfADecision) }

func testSpanOfADecision(t *testing.T, s settings.Settings) {
	receiver := traced(t)
	s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
	writeRules(t, s.Rules.Path, "plain", "1")
	r := start(t, s)
	for i, want := range []map[string]any{
		{"slidegate.outcome": "allowed"},
		{"slidegate.outcome": "denied"},
	} {
		parent := strings.Replace(spanID, "7", string(rune('8'+i)), 1)
		if _, err := r.askWith(strings.ReplaceAll(demo, "demo-free", planted), "traceparent", "00-"+traceID+"-"+parent+"-01", "tracestate", "vendor=1"); err != nil {
			t.Fatal(err)
		}
		got := receiver.Wait(t, "the span", func(s otlp.Span) bool { return s.Parent == parent })
		if got.Name != limitSpan || got.Trace != traceID || got.Kind != tracev1.Span_SPAN_KIND_SERVER || got.Failed {
			t.Errorf("got the span %+v, want %s in trace %s", got, limitSpan, traceID)
		}
		for name, value := range map[string]any{
			"slidegate.domain": "edge", "slidegate.rule": "plain", "slidegate.tier": "free", "slidegate.limits": int64(1), "slidegate.degraded": false,
			"rpc.system": "grpc", "rpc.service": "envoy.service.ratelimit.v3.RateLimitService", "rpc.method": "ShouldRateLimit", "rpc.grpc.status_code": int64(0),
		} {
			want[name] = value
		}
		seconds, ok := got.Attributes["slidegate.store.seconds"].(float64)
		if !ok || seconds <= 0 || seconds > 10 {
			t.Errorf("slidegate.store.seconds: got %v", got.Attributes["slidegate.store.seconds"])
		}
		delete(got.Attributes, "slidegate.store.seconds")
		if wait, ok := got.Attributes["slidegate.wait.seconds"].(float64); ok != (i == 1) || ok && wait <= 0 {
			t.Errorf("request %d: slidegate.wait.seconds: got %v", i+1, got.Attributes["slidegate.wait.seconds"])
		}
		delete(got.Attributes, "slidegate.wait.seconds")
		if diff := cmp.Diff(want, got.Attributes); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
		if name := got.Resource["service.name"]; name != "slidegate" {
			t.Errorf("service.name: got %v, want slidegate", name)
		}
	}
	if bytes.Contains(receiver.Raw(), []byte(planted)) || bytes.Contains(receiver.Raw(), []byte("slidegate.subject")) {
		t.Error("the spans have an API key or a subject")
	}
}

// TestContextOfATrace reads the context of a trace in each format.
func TestContextOfATrace(t *testing.T) { onEachTransport(t, testContextOfATrace) }

func testContextOfATrace(t *testing.T, s settings.Settings) {
	receiver := traced(t)
	r := start(t, s)
	for name, md := range map[string][]string{
		"traceparent":    {"traceparent", "00-" + traceID + "-" + spanID + "-01"},
		"b3":             {"b3", traceID + "-" + spanID + "-1"},
		"b3 multi":       {"x-b3-traceid", traceID, "x-b3-spanid", spanID, "x-b3-sampled", "1"},
		"W3C before B3":  {"traceparent", "00-" + traceID + "-" + spanID + "-01", "b3", strings.Repeat("1", 32) + "-" + strings.Repeat("2", 16) + "-1"},
		"B3 not sampled": {"b3", traceID + "-" + strings.Repeat("3", 16) + "-0"},
		"not sampled":    {"traceparent", "00-" + traceID + "-" + strings.Repeat("3", 16) + "-00"},
	} {
		before := len(receiver.Spans())
		if _, err := r.askWith(demo, md...); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "not") {
			continue
		}
		waitFor(t, name, func() bool { return len(receiver.Spans()) > before })
		got := receiver.Spans()[before]
		if got.Trace != traceID || got.Parent != spanID {
			t.Errorf("%s: got trace %s and parent %s, want %s and %s", name, got.Trace, got.Parent, traceID, spanID)
		}
	}
	r.end()
	if n := len(receiver.Spans()); n != 4 {
		t.Errorf("got %d spans, want 4: a call that its caller does not sample has none", n)
	}
}

// TestSpanOfAuthorization asks for an authorization without a credential.
func TestSpanOfAuthorization(t *testing.T) { onEachTransport(t, testSpanOfAuthorization) }

func testSpanOfAuthorization(t *testing.T, s settings.Settings) {
	receiver := traced(t)
	r := start(t, s)
	if _, err := authv3.NewAuthorizationClient(dial(t, r.GRPC[0])).Check(t.Context(), new(authv3.CheckRequest)); err != nil {
		t.Fatal(err)
	}
	got := receiver.Wait(t, "the span", func(s otlp.Span) bool { return s.Name == checkSpan })
	if result := got.Attributes["slidegate.authorization"]; result != "missing" || got.Parent != "" {
		t.Errorf("got slidegate.authorization %v and parent %q, want missing and none", result, got.Parent)
	}
}

// TestSpansOverHTTP asks /json, and a page that decides nothing.
func TestSpansOverHTTP(t *testing.T) {
	receiver := traced(t)
	r := start(t, testSettings(t))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.HTTP+"/json", strings.NewReader(demo))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("traceparent", "00-"+traceID+"-"+spanID+"-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	get(t, "http://"+r.HTTP+"/healthcheck")
	got := receiver.Wait(t, "the span", func(s otlp.Span) bool { return s.Name == "/json" })
	if got.Trace != traceID || got.Parent != spanID || got.Attributes["slidegate.outcome"] != "allowed" {
		t.Errorf("got %+v, want an allowed request in trace %s", got, traceID)
	}
	if n := len(receiver.Spans()); n != 1 {
		t.Errorf("got %d spans, want one", n)
	}
}

// TestSpanOfTheStore asks Redis with many calls at once, which share calls of the script.
func TestSpanOfTheStore(t *testing.T) { onEachTransport(t, testSpanOfTheStore) }

func testSpanOfTheStore(t *testing.T, s settings.Settings) {
	receiver := traced(t)
	redis := servers.StartRedis(t)
	onRedis(t, &s, redis.Addr())
	s.Store.Timeout = 30 * time.Second // a span of a store that fails says nothing of sharing
	r := start(t, s)
	client := rlsv3.NewRateLimitServiceClient(dial(t, r.GRPC[0]))
	in := new(rlsv3.RateLimitRequest)
	if err := protojson.Unmarshal([]byte(demo), in); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), in); err != nil { // the script is loaded
		t.Fatal(err)
	}
	const calls = 200 // two calls of the script leave some of them waiting
	var all sync.WaitGroup
	redis.Pause() // so that calls wait for others, which go to Redis together
	for range calls {
		all.Go(func() {
			if _, err := client.ShouldRateLimit(t.Context(), in); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, "calls to wait", func() bool {
		_, page := get(t, "http://"+r.Admin+"/metrics")
		return regexp.MustCompile(`(?m)^slidegate_store_node_queued\S* ([2-9]|\d\d+)$`).MatchString(page)
	})
	redis.Resume()
	all.Wait()
	waitFor(t, "all spans", func() bool {
		n := 0
		for _, s := range receiver.Spans() {
			if s.Name == limitSpan {
				n++
			}
		}
		return n == calls+1
	})
	most, stores := int64(0), 0
	parents := make(map[string]string)
	for _, s := range receiver.Spans() {
		if s.Name == limitSpan {
			parents[s.ID] = s.Trace
		}
	}
	for _, s := range receiver.Spans() {
		if s.Name != "store" {
			continue
		}
		stores++
		shared, _ := s.Attributes["slidegate.store.shared_by"].(int64)
		if shared < 1 || shared > calls || parents[s.Parent] != s.Trace || s.Kind != tracev1.Span_SPAN_KIND_CLIENT {
			t.Errorf("got the span %+v, want a child of a decision, shared by 1 to %d requests", s, calls)
		}
		most = max(most, shared)
	}
	if stores == 0 || most < 2 {
		t.Errorf("got %d spans of the store, shared by %d requests at most, want some that share", stores, most)
	}
}

// TestSpanOfAStoreThatFails has a span with an error for the store, and a degraded decision.
func TestSpanOfAStoreThatFails(t *testing.T) {
	receiver := traced(t)
	s := testSettings(t)
	onRedis(t, &s, "127.0.0.1:1") // no server listens there
	r := start(t, s)
	if _, err := r.ask(demo); err != nil {
		t.Fatal(err)
	}
	store := receiver.Wait(t, "the span of the store", func(s otlp.Span) bool { return s.Name == "store" })
	got := receiver.Wait(t, "the span", func(s otlp.Span) bool { return s.Name == limitSpan })
	if !store.Failed || store.Parent != got.ID || got.Failed || got.Attributes["slidegate.degraded"] != true {
		t.Errorf("got %+v and %+v, want a failed call of the store below a degraded decision", got, store)
	}
}

// TestExemplars reads metrics as Prometheus does, with traces and without.
func TestExemplars(t *testing.T) { onEachTransport(t, testExemplars) }

func testExemplars(t *testing.T, s settings.Settings) {
	scrape := func(r *testRun) (contentType, page string) {
		_, header, page := exchange(t, http.MethodGet, "http://"+r.Admin+"/metrics", "",
			"Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
		return header.Get("Content-Type"), page
	}
	off := start(t, s)
	if kind, _ := scrape(off); !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("without traces: got %s, want text/plain", kind)
	}
	traced(t)
	on := start(t, s)
	if _, err := on.askWith(demo, "traceparent", "00-"+traceID+"-"+spanID+"-01"); err != nil {
		t.Fatal(err)
	}
	kind, page := scrape(on)
	if !strings.HasPrefix(kind, "application/openmetrics-text") {
		t.Errorf("with traces: got %s, want OpenMetrics", kind)
	}
	for _, name := range []string{"slidegate_rpc_seconds_bucket", "slidegate_store_seconds_bucket"} {
		found := false
		for line := range strings.Lines(page) {
			found = found || strings.HasPrefix(line, name) && strings.Contains(line, `trace_id="`+traceID+`"`)
		}
		if !found {
			t.Errorf("%s has no exemplar with the trace", name)
		}
	}
	_, plain := get(t, "http://"+on.Admin+"/metrics")
	if strings.Contains(plain, traceID) || !strings.Contains(plain, `le="1"`) {
		t.Error("the plain format has changed")
	}
}

// TestReceiverThatFails has no effect on calls, and is logged.
func TestReceiverThatFails(t *testing.T) {
	receiver := traced(t)
	receiver.Refuse.Store(true)
	r := start(t, testSettings(t))
	if _, err := r.ask(demo); err != nil {
		t.Fatal(err)
	}
	r.waitLog("spans could not be sent and are lost; check the receiver and OTEL_EXPORTER_OTLP_ENDPOINT")
	r.wantMetrics("slidegate_spans_lost_total 1")
}

// TestReceiverThatHangs does not keep the process from stopping.
func TestReceiverThatHangs(t *testing.T) {
	hung := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung })}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { close(hung); _ = server.Close() })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	r := startWaiting(t, testSettings(t))
	r.Running = <-r.ready
	if _, err := r.ask(demo); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("stopping took %v, want about two seconds", took)
	}
}

// TestTracesAreRefused does not start with a wrong variable.
func TestTracesAreRefused(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	err := Run(context.Background(), testSettings(t), Options{Version: "test", Log: zap.NewNop()})
	if err == nil || err.Error() != `traces: OTEL_TRACES_EXPORTER: "zipkin" is not one of otlp, none` {
		t.Errorf("got the error %v", err)
	}
	_ = os.Unsetenv("OTEL_TRACES_EXPORTER")
}

// TestTracesOfSettings turns traces on by a setting, over gRPC, and samples none that begin here.
func TestTracesOfSettings(t *testing.T) {
	receiver := otlp.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.GRPC)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
	s := testSettings(t)
	s.DropIn.Traces = settings.Traces{Protocol: settings.TracesGRPC, Sampling: 0, Attributes: []string{"service.name=RateLimit"}}
	r := start(t, s)
	for _, md := range [][]string{nil, {"traceparent", "00-" + traceID + "-" + spanID + "-01"}} {
		if _, err := r.askWith(demo, md...); err != nil {
			t.Fatal(err)
		}
	}
	r.end()
	spans := receiver.Spans()
	if len(spans) != 1 || spans[0].Parent != spanID || spans[0].Resource["service.name"] != "RateLimit" {
		t.Fatalf("got %+v, want the one span whose caller samples it, of RateLimit", spans)
	}
	if got := receiver.Headers()[0].Get("Authorization"); got != "Bearer abc" {
		t.Errorf("authorization: got %q, want Bearer abc", got)
	}
}

// TestTracesKeepTheirSecret starts with a wrong and with a right environment whose headers have a
// secret. Neither the error nor the log has it, also while the receiver fails.
func TestTracesKeepTheirSecret(t *testing.T) {
	const secret = "s3cr3t-of-the-receiver"
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization="+secret+"%0a")
	err := Run(context.Background(), testSettings(t), Options{Version: "test", Log: zap.NewNop()})
	if err == nil || !strings.HasPrefix(err.Error(), "traces: OTEL_EXPORTER_OTLP_HEADERS: entry 1 ") || strings.Contains(err.Error(), secret) {
		t.Errorf("got the error %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization="+secret)
	r := start(t, testSettings(t))
	if _, err := r.askWith(demo, "traceparent", "00-"+strings.Repeat("x", 4096), "tracestate", strings.Repeat("a=b,", 1000), "b3", "-", "b3", "--"); err != nil {
		t.Fatal(err)
	}
	r.waitLog("spans could not be sent and are lost; check the receiver and OTEL_EXPORTER_OTLP_ENDPOINT")
	for _, line := range r.logs.All() {
		if text := line.Message + " " + fmt.Sprint(line.ContextMap()); strings.Contains(text, secret) {
			t.Errorf("the log has the secret: %s", text)
		}
	}
}
