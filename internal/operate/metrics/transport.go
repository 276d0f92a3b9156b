package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// A Transport counts events on the connections of a unary.Server. It is safe for concurrent
// use.
type Transport struct {
	connections prometheus.Gauge
	goAways     *prometheus.CounterVec
	byServer    resets
	byClient    resets
}

var _ unary.Meters = (*Transport)(nil)

// resets counts reset streams by code. It has a counter for each code, because finding one
// by its label is too slow for a client that resets many streams.
type resets struct {
	known [http2.ErrCodeHTTP11Required + 1]prometheus.Counter
	other prometheus.Counter // a client may send any number
}

func newResets(vec *prometheus.CounterVec, by string) (r resets) {
	for code := range r.known {
		r.known[code] = vec.WithLabelValues(by, http2.ErrCode(code).String())
	}
	r.other = vec.WithLabelValues(by, other)
	return r
}

func (r *resets) count(code http2.ErrCode) {
	if code < http2.ErrCode(len(r.known)) {
		r.known[code].Inc()
	} else {
		r.other.Inc()
	}
}

// NewTransport registers the metrics of a Transport.
func NewTransport(registry prometheus.Registerer) *Transport {
	f := factory{registry}
	reset := f.counters("slidegate_grpc_resets_total", "Streams reset on the gRPC port, by side and HTTP/2 error code. A client resets when it gives up: Envoy's timeout sends INTERNAL_ERROR, grpc-go CANCEL.", "by", "code")
	t := &Transport{
		connections: f.gauge("slidegate_grpc_connections", "Open connections to the gRPC port."),
		goAways:     f.counters("slidegate_grpc_goaways_total", "Connections that rls closed, or asked the client to leave, by reason.", "reason"),
		byServer:    newResets(reset, "server"),
		byClient:    newResets(reset, "client"),
	}
	for _, reason := range unary.Reasons {
		t.goAways.WithLabelValues(reason)
	}
	return t
}

// Opened implements unary.Meters.
func (t *Transport) Opened() { t.connections.Inc() }

// Closed implements unary.Meters.
func (t *Transport) Closed() { t.connections.Dec() }

// Reset implements unary.Meters.
func (t *Transport) Reset(byServer bool, code http2.ErrCode) {
	if byServer {
		t.byServer.count(code)
	} else {
		t.byClient.count(code)
	}
}

// GoAway implements unary.Meters.
func (t *Transport) GoAway(reason string) { t.goAways.WithLabelValues(reason).Inc() }
