package admin

import (
	"errors"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slidegate/slidegate/internal/compat/pages"
)

// Pages are the contents of the admin port.
type Pages struct {
	Metrics prometheus.Gatherer
	// Active returns the configuration for /rlconfig.
	Active func() Active
	// Tiers answers lookups of keys. Nil disables the pages about tiers.
	Tiers Tiers
	// Guard protects every page, but not GRPC: browsers do not send HTTP/2 without TLS, and
	// clients may call any name.
	Guard Guard
	// GRPC answers gRPC calls over HTTP/2. Nil disables gRPC.
	GRPC http.Handler
}

// index lists the pages. tiers includes the pages about tiers.
func index(tiers bool) http.HandlerFunc {
	entries := []Entry{
		{"/rlconfig", "the active rules, and the errors in newer files", true},
		{"/metrics", "metrics for Prometheus", true},
		{"/stats", "the command line and the memory of this process", true},
	}
	if tiers {
		entries = append(entries,
			Entry{"/v1/tiers/lookup?digest= or ?id=", "the records of a key or a subject: in this instance, and in the source", false},
			Entry{"/v1/tiers/invalidate", `POST {"digest": ...}, {"subject": ...} or {"all": true}: ask the source again`, false})
	}
	entries = append(entries, Entry{"/debug/pprof/", "profiles of this process", true})
	return Index("Slidegate: admin port", entries, "This port also serves gRPC without TLS: reflection, and health including Watch.")
}

// Handler returns the handler of the admin port.
func Handler(p Pages) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index(p.Tiers != nil))
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /rlconfig", rulesPage(p.Active))
	mux.HandleFunc("GET /stats", pages.Stats)
	if p.Tiers != nil {
		tierPages(mux, p.Tiers)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	guarded := p.Guard.CheckHost(p.Guard.CheckEmbedding(p.Guard.CheckOrigin(mux)))
	if p.GRPC == nil {
		return guarded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			serveGRPC(w, r, p.GRPC)
		} else {
			guarded.ServeHTTP(w, r)
		}
	})
}

// serveGRPC answers a call without the timeouts of the server: a stream lasts as long as
// its caller wants.
func serveGRPC(w http.ResponseWriter, r *http.Request, h http.Handler) {
	c := http.NewResponseController(w)
	if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // the server is not net/http's
		return
	}
	h.ServeHTTP(w, r)
}
