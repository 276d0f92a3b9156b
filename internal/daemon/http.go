package daemon

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/oklog/run"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/internal/admin"
	"github.com/slidegate/slidegate/internal/extauthz"
	"github.com/slidegate/slidegate/internal/ratelimit"
)

// httpHandler returns the handler of the HTTP port. Probes call it by any name. So
// does Envoy's http_service below /authz/, where nothing is charged; at /authz itself
// limits are, so the guard checks the Host there.
func httpHandler(limits *ratelimit.Service, authorization *extauthz.Service, probes *probes, maxBytes int64, c calls, guard admin.Guard) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", admin.Index("Slidegate: HTTP port", []admin.Entry{
		{Path: "/healthcheck", Text: "whether this process answers, and what its store does", Link: true},
		{Path: "/readyz", Text: "whether this instance wants requests", Link: true},
		{Path: "/json", Text: "POST a RateLimitRequest as JSON: a decision, charged as one of Envoy's"},
		{Path: "/authz", Text: "authorization for nginx, Traefik, Caddy and Envoy's http_service"},
	}, "Envoy's gRPC is on grpc.address. Metrics and the active rules are on admin.address."))
	mux.Handle("/json", limits.JSONHandler(maxBytes))
	mux.HandleFunc("GET /healthcheck", probes.healthcheck)
	mux.HandleFunc("GET /readyz", probes.readyz)
	// In front, since the mux would clean the path of a client that stands behind
	// /authz.
	open := authorization.HTTPHandler(guard.CheckOrigin(mux))
	guarded := guard.CheckHost(open)
	return c.recoverHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthcheck" || r.URL.Path == "/readyz" || strings.HasPrefix(r.URL.Path, "/authz/") {
			open.ServeHTTP(w, r)
		} else {
			guarded.ServeHTTP(w, r)
		}
	}))
}

// recoverHTTP turns a panic in a request over HTTP into an answer.
func (c calls) recoverHTTP(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				// Not the whole path: behind /authz it is a client's.
				first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
				c.panicked("/" + first)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// Timeouts of the HTTP servers: generous for a profile of half a minute, but
// nobody holds a connection for ever.
const (
	httpReadTimeout  = 10 * time.Second
	httpWriteTimeout = 2 * time.Minute
	httpIdleTimeout  = 2 * time.Minute
	httpStopTimeout  = time.Second
)

// maxHTTPHeader bounds the header of a request, in bytes. Behind /authz it is a
// client's, of which Envoy passes on 60 kB, and nginx 32 kB.
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

// newAdmin returns the server of the admin port, where HTTP/2 without TLS brings
// calls of gRPC.
func newAdmin(p admin.Pages, describing *grpc.Server, log *zap.Logger) *http.Server {
	p.GRPC = describing
	server := newHTTP(admin.Handler(p), log)
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	// Whoever watches the health would go on until he is cut off.
	server.RegisterOnShutdown(describing.Stop)
	return server
}

func addHTTP(g *run.Group, l net.Listener, server *http.Server) {
	if l == nil {
		return
	}
	g.Add(func() error { return server.Serve(l) }, func(error) {
		// Requests in flight are short; a profile that is being taken is cut off.
		ctx, cancel := context.WithTimeout(context.Background(), httpStopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
}
