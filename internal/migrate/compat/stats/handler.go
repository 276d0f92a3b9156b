package stats

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// Handler serves the metrics at a path, for Prometheus, with the metrics of the process and of Go.
// [Options.Mapping] must be set. log gets a warning if mappings give one name to metrics of two kinds.
func (s *Stats) Handler(path string, log *zap.Logger) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Mappings of a file may contradict each other. Other metrics are still true.
	o := promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != path:
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		default:
			promhttp.HandlerFor(prometheus.Gatherers{process, s.options.Mapping.times, s.gather(log)}, o).ServeHTTP(w, r)
		}
	})
}
