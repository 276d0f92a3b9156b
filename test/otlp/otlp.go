// Package otlp has a receiver of traces for tests. It accepts OTLP over gRPC and over HTTP, and
// keeps every span.
package otlp

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/test/process"
)

// A Span is a span that a Receiver got. IDs are in hexadecimal digits.
type Span struct {
	Name, Trace, ID, Parent string
	Kind                    tracev1.Span_SpanKind
	Failed                  bool
	Attributes              map[string]any
	// Resource describes the process that the span is from.
	Resource map[string]any
}

// A Receiver accepts spans until the test ends. It is safe for concurrent use.
type Receiver struct {
	collectorv1.UnimplementedTraceServiceServer

	// GRPC and HTTP are its endpoints, as OTEL_EXPORTER_OTLP_ENDPOINT has them.
	GRPC, HTTP string
	// Refuse makes it refuse all spans.
	Refuse atomic.Bool

	mu      sync.Mutex
	spans   []Span
	raw     [][]byte
	headers []http.Header
	asked   int
}

// Start starts a Receiver.
func Start(t testing.TB) *Receiver {
	t.Helper()
	r := new(Receiver)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, r)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	h := httptest.NewServer(r)
	t.Cleanup(func() {
		h.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r.GRPC, r.HTTP = "http://"+l.Addr().String(), h.URL
	return r
}

// StartNothing starts a receiver over HTTP that accepts everything unread, for benchmarks. It
// returns the endpoint.
func StartNothing(t testing.TB) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// Export implements collectorv1.TraceServiceServer.
func (r *Receiver) Export(ctx context.Context, in *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	header := make(http.Header)
	for name, values := range md {
		header[http.CanonicalHeaderKey(name)] = values
	}
	if !r.take(in, header) {
		return nil, status.Error(codes.InvalidArgument, "refused")
	}
	return new(collectorv1.ExportTraceServiceResponse), nil
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	in := new(collectorv1.ExportTraceServiceRequest)
	if err == nil {
		err = proto.Unmarshal(body, in)
	}
	if err != nil || q.URL.Path != "/v1/traces" || !r.take(in, q.Header) {
		http.Error(w, "refused", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// take keeps the spans of a request. It reports whether it accepts them.
func (r *Receiver) take(in *collectorv1.ExportTraceServiceRequest, header http.Header) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.Refuse.Load() {
		return false
	}
	if raw, err := proto.Marshal(in); err == nil {
		r.raw = append(r.raw, raw)
	}
	r.headers = append(r.headers, header)
	for _, rs := range in.GetResourceSpans() {
		resource := valuesOf(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				r.spans = append(r.spans, Span{
					Name: s.GetName(), Kind: s.GetKind(), Attributes: valuesOf(s.GetAttributes()), Resource: resource,
					Failed: s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR,
					Trace:  hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
				})
			}
		}
	}
	return true
}

func valuesOf(attributes []*commonv1.KeyValue) map[string]any {
	all := make(map[string]any)
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *commonv1.AnyValue_BoolValue:
			all[a.GetKey()] = v.BoolValue
		case *commonv1.AnyValue_IntValue:
			all[a.GetKey()] = v.IntValue
		case *commonv1.AnyValue_DoubleValue:
			all[a.GetKey()] = v.DoubleValue
		default:
			all[a.GetKey()] = fmt.Sprint(a.GetValue())
		}
	}
	return all
}

// Spans returns all spans so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Raw returns all requests so far, encoded.
func (r *Receiver) Raw() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.raw...)
}

// Headers returns the header of each accepted request.
func (r *Receiver) Headers() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.headers)
}

// Asked returns how many requests came, accepted or refused.
func (r *Receiver) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// patience bounds how long Wait waits.
const patience = 20 * time.Second

// Wait waits for a span that is wanted, and returns it.
func (r *Receiver) Wait(t testing.TB, what string, wanted func(Span) bool) Span {
	t.Helper()
	var spans []Span
	i := -1
	if !process.Poll(patience, func() bool {
		spans = r.Spans()
		i = slices.IndexFunc(spans, wanted)
		return i >= 0
	}) {
		t.Fatalf("%s: no such span among %+v", what, spans)
	}
	return spans[i]
}
