package admin

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Pages are the parts of the admin port that others write.
type Pages struct {
	Metrics prometheus.Gatherer
	// RLConfig writes the active rules as text.
	RLConfig http.HandlerFunc
	// Tiers answers about keys. Nil: there are no tiers.
	Tiers Tiers
	// Guard protects every page. It does not apply to GRPC: no browser sends HTTP/2
	// without TLS, and clients call by any name.
	Guard Guard
	// GRPC answers what comes over HTTP/2 and is a call of gRPC. Nil: nobody does.
	GRPC http.Handler
}

const index = `slidegate

/metrics         Prometheus metrics
/rlconfig        the active rules, the state of the last reload
/v1/tiers/lookup?digest= or ?id=    what is held and what the source says of a key or a subject
/v1/tiers/invalidate                POST {"digest": ...}, {"subject": ...} or {"all": true}: ask the source anew
/debug/pprof/    profiles

gRPC without TLS: reflection, and health with its Watch
`

// Handler returns the handler of the admin port.
func Handler(p Pages) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, index)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /rlconfig", p.RLConfig)
	if p.Tiers != nil {
		tierPages(mux, p.Tiers)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	pages := p.Guard.CheckHost(p.Guard.CheckOrigin(mux))
	if p.GRPC == nil {
		return pages
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			serveGRPC(w, r, p.GRPC)
		} else {
			pages.ServeHTTP(w, r)
		}
	})
}

// serveGRPC answers a call, which may be a stream and then lasts for as long as its
// caller likes: the server's timeouts are not for it.
func serveGRPC(w http.ResponseWriter, r *http.Request, h http.Handler) {
	c := http.NewResponseController(w)
	if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // not a server of net/http
		return
	}
	h.ServeHTTP(w, r)
}
