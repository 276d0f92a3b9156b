package admin

import (
	"errors"
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
	// Active returns what /rlconfig shows.
	Active func() Active
	// Tiers answers about keys. Nil: there are no tiers.
	Tiers Tiers
	// Guard protects every page. It does not apply to GRPC: no browser sends HTTP/2
	// without TLS, and clients call by any name.
	Guard Guard
	// GRPC answers what comes over HTTP/2 and is a call of gRPC. Nil: nobody does.
	GRPC http.Handler
}

// index lists the pages. Those about tiers are there with tiers alone.
func index(tiers bool) http.HandlerFunc {
	entries := []Entry{
		{"/rlconfig", "the active rules, and what is wrong with newer files", true},
		{"/metrics", "metrics for Prometheus", true},
	}
	if tiers {
		entries = append(entries,
			Entry{"/v1/tiers/lookup?digest= or ?id=", "what this instance and the source say of a key or a subject", false},
			Entry{"/v1/tiers/invalidate", `POST {"digest": ...}, {"subject": ...} or {"all": true}: ask the source again`, false})
	}
	entries = append(entries, Entry{"/debug/pprof/", "profiles", true})
	return Index("Slidegate: admin port", entries, "This port also serves gRPC without TLS: reflection, and health with its Watch.")
}

// Handler returns the handler of the admin port.
func Handler(p Pages) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index(p.Tiers != nil))
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /rlconfig", rulesPage(p.Active))
	if p.Tiers != nil {
		tierPages(mux, p.Tiers)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	pages := p.Guard.CheckHost(p.Guard.CheckEmbedding(p.Guard.CheckOrigin(mux)))
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
