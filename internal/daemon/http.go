package daemon

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/internal/edge/extauthz"
	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/calls"
)

// httpHandler returns the handler of the HTTP port. The guard checks the Host of requests
// that can charge a limit, such as /authz. It accepts any Host for probes, and below /authz/,
// where Envoy's http_service calls with the Host of its client and no limit is charged. With
// anyHost it also accepts any Host at /json, but from no browser.
func httpHandler(limits *ratelimit.Service, authorization *extauthz.Service, probes *probes, c calls.Recorder, guard admin.Guard, anyHost bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", admin.Index("Slidegate: HTTP port", []admin.Entry{
		{Path: "/healthcheck", Text: "200 while this process answers, with the state of its store"},
		{Path: "/readyz", Text: "200 while this instance wants requests, else 503 with the reason"},
		{Path: "/json", Text: "POST a RateLimitRequest as JSON; the decision charges limits as Envoy's do"},
		{Path: "/authz", Text: "authorization for nginx, Traefik, Caddy and Envoy's http_service"},
	}, "Envoy's gRPC is on grpc.address. Metrics and the active rules are on admin.address."))
	mux.HandleFunc("/json", limits.ServeJSON)
	mux.HandleFunc("GET /healthcheck", probes.healthcheck)
	mux.HandleFunc("GET /readyz", probes.readyz)
	// The authorization handler comes before the mux, because the mux would clean the
	// client's path behind /authz.
	open := authorization.HTTPHandler(guard.CheckOrigin(mux))
	guarded := guard.CheckHost(open)
	return c.RecoverHTTP(c.TraceHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A browser sends Origin with every method that can have a body.
		json := anyHost && r.URL.Path == "/json" && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
		if json || r.URL.Path == "/healthcheck" || r.URL.Path == "/readyz" || strings.HasPrefix(r.URL.Path, "/authz/") {
			open.ServeHTTP(w, r)
		} else {
			guarded.ServeHTTP(w, r)
		}
	})))
}

// Timeouts of the HTTP servers. A profile takes half a minute, and httpWriteTimeout leaves
// room for it. No client can keep a connection for ever.
const (
	httpReadTimeout  = 10 * time.Second
	httpWriteTimeout = 2 * time.Minute
	httpIdleTimeout  = 2 * time.Minute
	httpStopTimeout  = time.Second
)

// maxHTTPHeader bounds the header of a request, in bytes. At /authz a proxy sends the header
// of its client: Envoy up to 60 kB, and nginx up to 32 kB.
const maxHTTPHeader = 64 << 10

func newHTTP(h http.Handler, log *zap.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: httpReadTimeout,
		ReadTimeout:       httpReadTimeout,
		WriteTimeout:      httpWriteTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    maxHTTPHeader,
		ErrorLog:          zap.NewStdLog(log),
	}
}

// metricsHandler serves /metrics alone, for metrics.address. A network may reach that port, so it
// has nothing that changes the process or shows a customer. It only reads, so it accepts any Host.
// With exemplars it has the format OpenMetrics too.
func metricsHandler(registry prometheus.Gatherer, exemplars bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: exemplars}))
	return mux
}

// newAdmin returns the server of the admin port. It accepts HTTP/2 without TLS, for gRPC
// calls to describing.
func newAdmin(p admin.Pages, describing *grpc.Server, log *zap.Logger) *http.Server {
	p.GRPC = describing
	server := newHTTP(admin.Handler(p), log)
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	// Shutdown waits for calls in flight, and a Watch of the health does not end by itself.
	server.RegisterOnShutdown(describing.Stop)
	return server
}

func addHTTP(g *run.Group, l net.Listener, server *http.Server) {
	if l == nil {
		return
	}
	g.Add(func() error { return server.Serve(l) }, func(error) {
		// Requests in flight are short. Only a profile takes longer, and Close ends it.
		ctx, cancel := context.WithTimeout(context.Background(), httpStopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
}
