package tracing

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"github.com/slidegate/slidegate/test/otlp"
)

// TestHostileContexts begins calls whose trace context is malformed, huge, doubled or not ASCII. Each
// call has a span, which the receiver can read, of a trace of its own or of a valid one.
func TestHostileContexts(t *testing.T) {
	receiver := otlp.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.HTTP)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	tracer, err := Open(t.Context(), Options{Version: "test", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	const (
		trace  = "4bf92f3577b34da6a3ce929d0e0e4736"
		parent = "00f067aa0ba902b7"
		valid  = "00-" + trace + "-" + parent + "-01"
	)
	huge := strings.Repeat("a", 1<<20)
	texts := []string{
		"", "-", "--", "---", "00", "00-", "00---", valid + "-", valid + huge, "ff" + valid[2:], "01" + valid[2:] + "-x", " " + valid,
		strings.ToUpper(valid), "00-" + strings.Repeat("0", 32) + "-" + parent + "-01", "00-" + trace + "-" + strings.Repeat("0", 16) + "-01",
		"00-" + strings.Repeat("g", 32) + "-" + parent + "-01", trace + "-" + parent, trace + "-" + parent + "-d", trace + "-" + parent + "-1-" + parent,
		trace + "-" + parent + "-2", "0", "1", "d", huge, strings.Repeat(",", 1<<16), strings.Repeat("a=b,", 1<<16), "k=\x00\x1b[31m", "schlüssel=ä", "\xff\xfe",
		"a=" + huge, strings.Repeat("-", 1<<16), "ключ", trace[:31] + "é-" + parent + "-1",
	}
	fields := append([]string{"tracestate", "traceparent", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags", "baggage"}, tracer.Fields()...)
	calls := 0
	begin := func(md metadata.MD) {
		t.Helper()
		calls++
		_, c := tracer.Begin(t.Context(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", md)
		if c == nil {
			t.Fatalf("%.100q has no span", md)
		}
		c.End(nil)
	}
	for _, text := range texts {
		all := metadata.MD{}
		for _, field := range fields {
			all[field] = []string{text}
			begin(metadata.MD{field: {text}})
			begin(metadata.MD{field: {text, valid}, "traceparent": {valid, text}})
		}
		begin(all)
	}
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	spans := receiver.Spans()
	if len(spans) != calls {
		t.Errorf("the receiver has %d spans of %d calls", len(spans), calls)
	}
	for _, s := range spans {
		if s.Trace == strings.Repeat("0", 32) || len(s.Trace) != 32 || s.Parent == strings.Repeat("0", 16) {
			t.Errorf("got trace %q and parent %q", s.Trace, s.Parent)
		}
	}
	if raw := receiver.Raw(); strings.Contains(string(raw), huge[:1024]) {
		t.Error("a span has a huge text of a client")
	}
}
