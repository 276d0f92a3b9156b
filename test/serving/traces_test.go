package serving

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/otlp"
	"github.com/slidegate/slidegate/test/stack"
)

// tracingEnvoy returns the changes with which an Envoy of the examples traces every request and
// sends its spans to a receiver.
func tracingEnvoy(t *testing.T, endpoint string) map[string]string {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"          stat_prefix: ingress\n": `          stat_prefix: ingress
          tracing:
            random_sampling: {value: 100}
            provider:
              name: envoy.tracers.opentelemetry
              typed_config:
                "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                grpc_service: {envoy_grpc: {cluster_name: otlp}, timeout: 1s}
                service_name: envoy
`,
		"\n  clusters:\n": fmt.Sprintf(`
  clusters:
  - name: otlp
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: otlp
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}
`, u.Hostname(), u.Port()),
	}
}

// TestTracesOfEnvoy sends the spans of Envoy and of rls to one receiver. They share a trace, and
// the span of rls is a child of Envoy's. No span has the API key.
func TestTracesOfEnvoy(t *testing.T) {
	t.Parallel()
	const planted = "sk_live_planted_0123456789"
	for name, tt := range map[string]struct{ config, span, outcome string }{
		"rate limit":    {stack.EdgeConfig, "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "slidegate.outcome"},
		"authorization": {stack.OneHopConfig, "envoy.service.auth.v3.Authorization/Check", "slidegate.authorization"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := otlp.Start(t)
			s := stack.Setup{
				Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Config: tt.config, Change: tracingEnvoy(t, receiver.GRPC),
				Env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.GRPC, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_BSP_SCHEDULE_DELAY": "100"},
			}.Start(t)
			s.Get("/", "x-api-key", planted)
			ours := receiver.Wait(t, "the span of rls", func(s otlp.Span) bool { return s.Name == tt.span && s.Resource["service.name"] == "slidegate" })
			parent := receiver.Wait(t, "the span of Envoy above it", func(s otlp.Span) bool { return s.ID == ours.Parent && s.Resource["service.name"] == "envoy" })
			root := receiver.Wait(t, "the first span of Envoy", func(s otlp.Span) bool { return s.Trace == ours.Trace && s.Parent == "" })
			if parent.Trace != ours.Trace || root.Resource["service.name"] != "envoy" || ours.Attributes[tt.outcome] == nil {
				t.Errorf("got %+v below %+v, want one trace that Envoy began, and %s", ours, parent, tt.outcome)
			}
			for _, span := range receiver.Spans() {
				if span.Resource["service.name"] == "slidegate" && strings.Contains(fmt.Sprint(span), planted) {
					t.Errorf("a span of rls has the API key: %+v", span)
				}
			}
			if bytes.Contains([]byte(s.RLS.Output()), []byte(planted)) {
				t.Error("the log of rls has the API key")
			}
		})
	}
}

// TestShadowedAndDegradedInAccessLogs has a rule that only observes, and a store that does not
// answer, behind each file of envoy/ that listens on TCP.
func TestShadowedAndDegradedInAccessLogs(t *testing.T) {
	t.Parallel()
	const observed = `
domain: edge
descriptors:
  - key: remote_address
    shadow_mode: true
    rate_limit: {name: watched, window: 1h, requests: 1}
`
	for _, config := range []string{stack.EdgeConfig, stack.AuthorizationConfig, stack.OneHopConfig} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			for _, down := range []bool{false, true} {
				env := map[string]string{stack.EnvStoreType: "memory"}
				if down {
					env = stack.OnRedis("127.0.0.1:1") // no server listens there
				}
				s := stack.Setup{Rules: observed, Tiers: stack.CustomersWith("starter"), Config: config, Env: env}.Start(t)
				for i, shadowed := range []any{nil, "watched"} {
					path := fmt.Sprintf("/%d", i)
					s.Get(path, "x-api-key", "acme-old-key")
					entry, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["path"] == path })
					if err != nil {
						t.Fatal(err)
					}
					var degraded any
					if down {
						degraded = true
					}
					if entry["shadowed"] != shadowed || entry["degraded"] != degraded || entry["status"] != 200.0 {
						t.Errorf("store down %v, request %d: got shadowed %v, degraded %v, status %v, want %v, %v, 200", down, i+1, entry["shadowed"], entry["degraded"], entry["status"], shadowed, degraded)
					}
				}
			}
		})
	}
}
