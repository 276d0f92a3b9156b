package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"

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
}

const index = `slidegate

/metrics         Prometheus metrics
/rlconfig        the active rules, the state of the last reload
/v1/tiers/lookup?digest= or ?id=    what is held and what the source says of a key or a subject
/v1/tiers/invalidate                POST {"digest": ...}, {"subject": ...} or {"all": true}: ask the source anew
/debug/pprof/    profiles
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
	return mux
}
