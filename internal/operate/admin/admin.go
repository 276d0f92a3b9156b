package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slidegate/slidegate/internal/migrate/compat/pages"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/peers"
	"github.com/slidegate/slidegate/internal/operate/probelist"
)

// Pages are the contents of the admin port.
type Pages struct {
	Metrics prometheus.Gatherer
	// Exemplars says that metrics have exemplars. Then /metrics has the format OpenMetrics too,
	// which shows them.
	Exemplars bool
	// Active returns the configuration for /rlconfig.
	Active func() Active
	// Insight answers questions about usage and denials.
	Insight *insight.Insight
	// History answers what was counted in the last 30 days.
	History func(context.Context, history.Query) (*history.History, error)
	// State returns the state of the process.
	State func() glance.State
	Shared
	// Explain says what the active rules say to a request, and charges nothing. A mistake in the
	// request is an [insight.InvalidError].
	Explain func(context.Context, ExplainRequest) (*Explained, error)
	// Reload reads the rules and tiers again, and returns why they are refused.
	Reload func(context.Context) error
	// Console serves the pages for people, and asks Access itself who may see them, because its
	// login needs no token. Nil: "/" is a list of the pages.
	Console http.Handler
	// Docs serves the documentation below docs.Path. Nil: there is none.
	Docs http.Handler
	// Access decides who may use the pages. Nil: this machine reads, and does nothing else.
	Access *Access
	// Tiers answers lookups of keys. Nil disables the pages about tiers.
	Tiers Tiers
	// Guard protects every page, but not GRPC: browsers do not send HTTP/2 without TLS, and
	// clients may call any name.
	Guard Guard
	// GRPC answers gRPC calls over HTTP/2. Nil disables gRPC.
	GRPC http.Handler
}

// Shared is what instances do together.
type Shared struct {
	// Peers are the other instances. Nil: this one knows none.
	Peers *peers.Peers
	// Probes starts probes and answers what they saw. It is required.
	Probes *probelist.List
}

// index lists the pages and the paths of the API.
func index(a *api) http.HandlerFunc {
	var entries []Entry
	if a.Console != nil {
		entries = append(entries, Entry{"/?format=html", "the console, which a browser gets at /"})
	}
	entries = append(entries, []Entry{
		{"/rlconfig", "the active rules, and the errors in newer files"},
		{"/metrics", "metrics for Prometheus"},
		{"/stats", "the command line and the memory of this process"},
	}...)
	if a.Docs != nil {
		entries = append(entries, Entry{docs.Path, "the documentation of this version"})
	}
	for _, r := range a.routes() {
		entries = append(entries, Entry{r.path, r.summary})
	}
	entries = append(entries, Entry{"/debug/pprof/", "profiles of this process; needs a token that may act"})
	return Index("Slidegate: admin port", entries, "This port also serves gRPC without TLS: reflection, and health including Watch.")
}

// Handler returns the handler of the admin port.
func Handler(p Pages) http.Handler {
	if p.Access == nil {
		p.Access = NewAccess(AccessOptions{FreeReads: true})
	}
	mux := http.NewServeMux()
	read := func(pattern string, h http.Handler) { mux.Handle(pattern, p.Access.Readers(h)) }
	a := &api{p}
	if list := p.Access.Readers(index(a)); p.Console == nil {
		mux.Handle("GET /{$}", list)
	} else {
		mux.Handle("/", p.Console)
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
			// Scripts and probes compare the list, so only browsers get the console.
			if wantsHTML(r) {
				p.Console.ServeHTTP(w, r)
			} else {
				list.ServeHTTP(w, r)
			}
		})
	}
	read("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{EnableOpenMetrics: p.Exemplars}))
	read("GET /rlconfig", rulesPage(p.Active))
	read("GET /stats", http.HandlerFunc(pages.Stats))
	if p.Docs != nil {
		read(docs.Path, p.Docs)
	}
	a.serve(mux)
	if p.Peers != nil {
		mux.Handle("POST "+peers.Path, p.Peers.Handler(a.forPeers()))
	}
	// Profiles show memory and take work.
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline, "GET /debug/pprof/profile": pprof.Profile,
		"GET /debug/pprof/symbol": pprof.Symbol, "POST /debug/pprof/symbol": pprof.Symbol, "GET /debug/pprof/trace": pprof.Trace,
	} {
		mux.Handle(pattern, p.Access.Actors(h))
	}
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
