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

	"github.com/slidegate/slidegate/internal/compat/pages"
	"github.com/slidegate/slidegate/internal/docs"
	"github.com/slidegate/slidegate/internal/insight"
)

// Pages are the contents of the admin port.
type Pages struct {
	Metrics prometheus.Gatherer
	// Exemplars says that metrics have exemplars. Then /metrics has the format OpenMetrics too,
	// which shows them.
	Exemplars bool
	// Active returns the configuration for /rlconfig.
	Active func() Active
	// Insight answers questions about usage and denials. Nil disables its pages.
	Insight *insight.Insight
	// State returns the state of the process.
	State func() insight.State
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
		entries = append(entries, indexed[r.path])
	}
	entries = append(entries, Entry{"/debug/pprof/", "profiles of this process; needs a token that may act"})
	return Index("Slidegate: admin port", entries, "This port also serves gRPC without TLS: reflection, and health including Watch.")
}

// indexed has the entry of each path of the API.
var indexed = map[string]Entry{
	"/v1/openapi.yaml":     {"/v1/openapi.yaml", "the API as OpenAPI"},
	"/v1/usage":            {"/v1/usage?subject=", "what a customer has used of each limit; or address=, digest=, descriptor="},
	"/v1/logs":             {"/v1/logs", "what all subjects and addresses have used, or with rule= in those of some rules"},
	"/v1/reset":            {"/v1/reset", `POST {"subject": ..., "reason": ...}: removes what it has used of its limits`},
	"/v1/resets":           {"/v1/resets", "the last resets of this instance"},
	"/v1/denials":          {"/v1/denials", "the last denials of this instance"},
	"/v1/top":              {"/v1/top?by=subject", "who is denied most, or is nearest to its limits"},
	"/v1/rules":            {"/v1/rules", "the active rules in plain words"},
	"/v1/state":            {"/v1/state", "problems, rates, store and configuration of this instance"},
	"/v1/explain":          {"/v1/explain", `POST {"descriptors": [...]}: which rules match, and why; charges nothing`},
	"/v1/reload":           {"/v1/reload", "POST: read the rules and tiers again"},
	"/v1/tiers/lookup":     {"/v1/tiers/lookup?digest= or ?id=", "the records of a key or a subject: in this instance, and in the source"},
	"/v1/tiers/invalidate": {"/v1/tiers/invalidate", `POST {"digest": ...}, {"subject": ...} or {"all": true}: ask the source again`},
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
	a.serve(mux)
	// Profiles show memory and take work.
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline, "GET /debug/pprof/profile": pprof.Profile,
		"GET /debug/pprof/symbol": pprof.Symbol, "POST /debug/pprof/symbol": pprof.Symbol, "GET /debug/pprof/trace": pprof.Trace,
	} {
		mux.Handle(pattern, p.Access.Actors(h))
	}
	guarded := p.Guard.CheckHost(p.Guard.CheckEmbedding(p.Guard.CheckOrigin(p.withDocs(mux))))
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

// withDocs serves the documentation, and leaves all other requests to next. A mux would redirect
// /docs/../ to /, and such a path has no page.
func (p *Pages) withDocs(next http.Handler) http.Handler {
	if p.Docs == nil {
		return next
	}
	served := p.Access.Readers(p.Docs)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path+"/", docs.Path) {
			served.ServeHTTP(w, r)
		} else {
			next.ServeHTTP(w, r)
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
