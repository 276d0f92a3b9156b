package settings

import (
	"time"

	"github.com/slidegate/slidegate/internal/config/files"
)

// DropIn is what only a drop-in for envoyproxy/ratelimit has. Package compat makes it from the
// variables of that service, and checks it. [Default] has the values of every other process.
type DropIn struct {
	// Given are values of settings, between the defaults and the file.
	Given []Given
	// Answers gives answers the form of envoyproxy/ratelimit: names of limits only from the
	// rules, its resets and statuses, no further headers, bodies and metadata, and /json with
	// every method.
	Answers bool
	// UsageReports makes rules without charge count as there: a cost above 1 that does not fit
	// while something remains is recorded and denied.
	UsageReports bool
	// Pages makes the admin port serve the debug pages of envoyproxy/ratelimit alone.
	Pages bool
	// EchoRequest puts the request, without API keys, into the dynamic metadata of its answer.
	EchoRequest bool
	// QuotaMode makes every rule one with quota_mode.
	QuotaMode bool
	// NeedsRules and NeedsStore make /healthcheck 500 without rules, and without a store that decides.
	NeedsRules, NeedsStore bool
	// SocketTLS makes unix sockets of grpc.address accept only TLS too.
	SocketTLS bool
	// RedisAnyName accepts a trusted certificate of Redis with any name.
	RedisAnyName bool
	// Files says which files below rules.path hold rules.
	Files files.Which
	// Headers are the names of the headers of the style reference.
	Headers ReferenceNames
	// NodeMetadata has name=value for the node in requests to the xDS server, and
	// XDSHeaders name=value for the headers of these requests.
	NodeMetadata []string
	XDSHeaders   []Secret
	// WithoutRules serves before the xDS server has sent rules.
	WithoutRules bool
	// LocalCache counts denials that rls repeats from memory as over_limit_with_local_cache,
	// besides over_limit.
	LocalCache bool
	// NearLimit is the fraction of a limit from which requests count as near_limit.
	NearLimit float64
	// Tags are tags of every metric for statsd, and labels for Prometheus.
	Tags    map[string]string
	Metrics ReferenceMetrics
	Statsd  Statsd
	Traces  Traces
}

// A Given is the value of a setting that a variable of envoyproxy/ratelimit says.
type Given struct {
	Path string // of the setting
	Text string // as a variable has it
	// From names where the value comes from, for problems. Empty: a default of a mode.
	From string
}

// ReferenceMetrics is a listener for Prometheus with the metrics of envoyproxy/ratelimit.
type ReferenceMetrics struct {
	Address Address // host:port; empty: off
	Path    string
	// MapperFile has mappings of statsd_exporter. Empty: those of envoyproxy/ratelimit.
	MapperFile string
	// Milliseconds is the unit of the response time, unless there is a MapperFile.
	Milliseconds bool
}

// Statsd is the server that gets the metrics of envoyproxy/ratelimit.
type Statsd struct {
	Address  string // host:port; empty: off
	Protocol string // tcp or udp
	Interval time.Duration
}

// Traces turns traces on or off. Where spans go, the variables of OpenTelemetry say. The zero value
// leaves all to them.
type Traces struct {
	Protocol   string
	Sampling   float64 // from 0 to 1
	Attributes []string
}

// The values of Traces.Protocol, besides none.
const (
	TracesGRPC = "grpc"
	TracesHTTP = "http"
	TracesOff  = "off"
)

// ReferenceNames are the names of the header fields of rules.StyleReference.
type ReferenceNames struct{ Limit, Remaining, Reset string }
