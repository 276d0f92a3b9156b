module github.com/slidegate/slidegate

go 1.26.0

// The comment above each direct dependency says what it is for.
require (
	// frequencies: which subjects are denied most, in bounded memory and with a bound of the error.
	github.com/apache/datasketches-go v0.2.0
	// Waits between connections to an xDS server: bounded and random. grpc-go does not export its own.
	github.com/cenkalti/backoff/v5 v5.0.3
	// The percentage of compare.share and of rls replay: every instance and every run must choose the same requests. hash/maphash differs per process.
	github.com/cespare/xxhash/v2 v2.3.0
	// Tests: reads headers as RFC 9651 says.
	github.com/dunglas/httpsfv v1.1.2
	// Tests: an xDS server, as Envoy Gateway has one.
	github.com/envoyproxy/go-control-plane v0.14.0
	// Envoy's protos.
	github.com/envoyproxy/go-control-plane/envoy v1.40.0
	// The messages of rules over xDS. The last tag lacks quota_mode and metadata.
	github.com/envoyproxy/go-control-plane/ratelimit v0.1.1-0.20260729145720-a2d8c7492908
	// Tests: readable differences.
	github.com/google/go-cmp v0.7.0
	// Subjects in PostgreSQL, by its lower layer pgconn: statements, LISTEN and TLS. database/sql has no notifications.
	github.com/jackc/pgx/v5 v5.12.0
	// The pool of these connections, as in pgx.
	github.com/jackc/puddle/v2 v2.2.3
	// zstd and gzip: packed access logs, with bounds for memory. Go's own zstd is internal.
	github.com/klauspost/compress v1.20.1
	// The caches of denials and subjects. It keeps what is asked for most, so a flood of invented keys evicts only itself. Reads take no lock.
	github.com/maypok86/otter/v2 v2.4.0
	// The life of the process: if one part fails, all stop.
	github.com/oklog/run v1.2.0
	// Metrics.
	github.com/prometheus/client_golang v1.25.0
	// The types of client_golang, for the rates of /v1/state.
	github.com/prometheus/client_model v0.6.3
	// PROMETHEUS_MAPPER_YAML, as in envoyproxy/ratelimit. Stay at 0.30: 0.31 refuses timer_type, which these files have.
	github.com/prometheus/statsd_exporter v0.30.0
	// The Redis store, with Sentinel and Cluster.
	github.com/redis/go-redis/v9 v9.23.0
	// Tests: checks the JSON Schemas. It passes the official suite of every draft.
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	// Stops calling a Redis server or a customer source that has failed. It asks and judges in two steps, so one call for many requests counts once.
	github.com/sony/gobreaker/v2 v2.4.0
	// The command line: help, suggestions, completion. kong has no completion.
	github.com/spf13/cobra v1.10.2
	// The flags of a command, for the man page.
	github.com/spf13/pflag v1.0.9
	// The pages at /docs/ of the admin port: CommonMark with tables as HTML, no dependencies, no raw HTML.
	github.com/yuin/goldmark v1.8.7
	// Trace context in the format B3, which Envoy's Zipkin tracer sends.
	go.opentelemetry.io/contrib/propagators/b3 v1.45.0
	// Traces: attributes and formats of trace context. envoyproxy/ratelimit uses it too.
	go.opentelemetry.io/otel v1.45.0
	// Sends spans over OTLP with gRPC. It reads the variables of OpenTelemetry.
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc v1.45.0
	// Sends spans over OTLP with HTTP.
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.45.0
	// Sampling and queue of spans.
	go.opentelemetry.io/otel/sdk v1.45.0
	// Spans.
	go.opentelemetry.io/otel/trace v1.45.0
	// Tests: receives spans.
	go.opentelemetry.io/proto/otlp v1.11.0
	// Tests: finds leaked goroutines.
	go.uber.org/goleak v1.3.0
	// Logs: structured and sampled. A line that is not written allocates nothing.
	go.uber.org/zap v1.28.0
	// rls validate --portable: numbers and texts as envoyproxy/ratelimit reads them.
	go.yaml.in/yaml/v2 v2.4.4
	// YAML as nodes with lines: internal/config/strict reports every problem with its place.
	go.yaml.in/yaml/v4 v4.0.0
	// http2, hpack and httpguts, for grpc.transport unary; in tests dns/dnsmessage.
	golang.org/x/net v0.62.0
	// Tests: whether the other side has closed a TCP connection, as the kernel knows it.
	golang.org/x/sys v0.49.0
	// The width of a terminal, and whether there is one.
	golang.org/x/term v0.47.0
	// width: how many columns a character takes.
	golang.org/x/text v0.43.0
	// The reason of a refusal over xDS; the details of a denial of limiter/grpclimit.
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1
	// grpc.transport standard and the admin port; codes, codecs, health, reflection.
	google.golang.org/grpc v1.85.0
	// Messages; protowire for the codec.
	google.golang.org/protobuf v1.36.12
	// Tests: random histories that shrink.
	pgregory.net/rapid v1.3.0
	// Bodies of the admin API: exact names, each once. encoding/json takes any case, and the last of two.
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730
)

require (
	cel.dev/expr v0.25.3 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cncf/xds/go v0.0.0-20260202195803-dba9d589def2 // indirect
	github.com/envoyproxy/protoc-gen-validate v1.3.3 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.29.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/planetscale/vtprotobuf v0.6.1-0.20240319094008-0393e58bdf10 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/twmb/murmur3 v1.1.8 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.45.0 // indirect
	go.opentelemetry.io/otel/metric v1.45.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)
