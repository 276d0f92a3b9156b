package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/slidegate/slidegate/internal/admin"
	"github.com/slidegate/slidegate/internal/answer"
	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/extauthz"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/ratelimit"
)

// Options of [Run] that are not settings.
type Options struct {
	Version string
	// Log is required.
	Log *zap.Logger
	// Reload asks for a reload whenever something arrives. Nil: only the files do.
	Reload <-chan struct{}
	// Ready is called once every listener is open and about to be served. Nil:
	// nobody is told.
	Ready func(Running)
}

// Running says what a process does once it is ready.
type Running struct {
	GRPC        []string // host:port or unix:///path, as bound
	HTTP, Admin string   // empty: off
	Rules       *policy.Rules
	// StoreMissing says what to do about a store that could not be reached. Empty: it
	// was.
	StoreMissing string
}

// Run serves until ctx ends and the drain is over, or until a part of it fails.
// It returns nil only in the first case.
func Run(ctx context.Context, s settings.Settings, o Options) error {
	gs := &generations{settings: s, log: o.Log}
	// Before the first load, so that no change is missed between the two.
	watch := watch.New(watch.Options{
		Paths:          s.WatchPaths(),
		IgnoreDotFiles: s.Rules.IgnoreDotFiles,
		Interval:       s.Reload.Interval,
		OnChange:       gs.reload,
		OnWarning: func(err error) {
			o.Log.Warn("files are watched by looking at them every now and then", zap.Error(err))
		},
	})
	generation, err := config.Load(s)
	if err != nil {
		return err
	}
	render, err := answer.NewRenderer(styles(s)...)
	if err != nil {
		return fmt.Errorf("headers.styles: %w", err)
	}
	secure, err := serverTLS(s.GRPC, o.Log)
	if err != nil {
		return err
	}
	ls, err := openListeners(s)
	if err != nil {
		return err
	}
	defer ls.close()
	registry := prometheus.NewRegistry()
	m := metrics.New(registry, metrics.Options{Version: o.Version, MaxDetailSeries: s.Metrics.MaxDetailSeries})
	// Changes of state are few, unless a store flaps.
	sampledLog := o.Log.WithOptions(zap.WrapCore(sampled))
	rareLog := o.Log.WithOptions(zap.WrapCore(rarely))
	store, err := openStore(ctx, s, m, o.Log, sampledLog)
	if err != nil {
		return err
	}
	outside, err := openSubjects(s, generation.Secrets, m, registry, o.Log, sampledLog)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	options := policy.Options{
		Store:          &reporting{Store: store, log: sampledLog},
		Meters:         m,
		StoreSeconds:   m.StoreSeconds,
		Wait:           s.Tiers.Wait,
		DenyUnresolved: s.Tiers.OnError == settings.OnErrorDeny,
		Log:            sampledLog,
		Unknown:        rareLog,
	}
	if outside != nil {
		options.Subjects = outside
		defer func() { _ = outside.Close() }() // nothing is written there
	}
	if embedded, ok := store.(*memoryStore); ok {
		metrics.Memory(registry, embedded.Stats)
	}
	probes := &probes{store: s.Store.Type, ready: s.HTTP.Ready}
	shared, _ := store.(*redisStore)
	if shared != nil {
		probes.state = shared.state
		metrics.Store(registry, shared.Stats)
		metrics.Pool(registry, shared.poolStats)
		metrics.Local(registry, shared.localStats)
		options.Store = shared.local
		options.Local = shared.shares
	}
	decider := policy.NewDecider(generation.Rules, options)
	var keys admin.Tiers = directory{decider.Rules}
	if outside != nil {
		outside.decider.Store(decider)
		keys = outside
	}
	plainKeys := asksByKey(s.Tiers)
	limits := ratelimit.NewService(ratelimit.Options{
		Decider: decider, Secrets: generation.Secrets, Headers: render, Meters: m, PlainKeys: plainKeys, EchoRequest: s.Metadata.Request,
	})
	authorization := extauthz.NewService(authorizationOptions(s.Authz, extauthz.Options{
		Decider: decider, Subjects: options.Subjects, Secrets: generation.Secrets, Headers: render,
		Meters: newAuthorizationMeters(registry, m), Log: sampledLog, PlainKeys: plainKeys,
	}))
	transport := transport{settings: s.GRPC, secure: secure, calls: calls{m, o.Log}}
	if s.GRPC.Transport == settings.TransportUnary {
		transport.meters = metrics.NewTransport(registry)
	}
	server, health := transport.server(map[string]service{
		rlsv3.RateLimitService_ShouldRateLimit_FullMethodName: limits,
		authv3.Authorization_Check_FullMethodName:             authorization,
	})
	gs.decider, gs.metrics = decider, m

	var g run.Group
	for _, l := range ls.grpc {
		g.Add(func() error { return server.Serve(l) }, func(error) { server.Stop() })
	}
	addHTTP(&g, ls.http, newHTTP(httpHandler(limits, authorization, probes, int64(s.GRPC.MaxMessageBytes), transport.calls,
		admin.Guard{Setting: "http.hosts", Hosts: s.HTTP.Hosts, Log: rareLog}), o.Log))
	addHTTP(&g, ls.admin, newAdmin(admin.Pages{
		Metrics: registry, Active: gs.page, Tiers: keys,
		Guard: admin.Guard{Setting: "admin.hosts", Hosts: s.Admin.Hosts, Log: rareLog},
	}, newDescribing(server, health), o.Log))
	addContext(ctx, &g, watch.Run)
	if outside != nil {
		probes.tiers = func() string { return outside.text(s.Tiers.Source) }
		addContext(ctx, &g, outside.Run)
		addContext(ctx, &g, func(ctx context.Context) error {
			outside.probe(ctx, plainKeys, o.Log)
			<-ctx.Done()
			return nil
		})
	}
	if shared != nil {
		addContext(ctx, &g, shared.reach)
		addContext(ctx, &g, shared.watch)
	}
	addContext(ctx, &g, func(ctx context.Context) error { return forward(ctx, o.Reload, watch.Trigger) })
	addContext(ctx, &g, func(inner context.Context) error {
		select {
		case <-ctx.Done():
			probes.draining.Store(true)
			drain(inner, s.Drain, server, health, o.Log)
		case <-inner.Done(): // another part failed
		}
		return nil
	})

	if o.Ready != nil {
		running := Running{GRPC: ls.addresses(), HTTP: address(ls.http), Admin: address(ls.admin), Rules: generation.Rules}
		if shared != nil && shared.missing != nil {
			running.StoreMissing = "it cannot be reached; until it answers, on_store_error decides every request; " + redisAdvice
		}
		o.Ready(running)
	}
	o.Log.Info("starting", zap.String("version", o.Version), zap.String("store", s.Store.Type), zap.String("tiers", s.Tiers.Source),
		zap.Strings("grpc", ls.addresses()), zap.String("transport", s.GRPC.Transport), zap.Bool("tls", s.GRPC.TLS.On()),
		zap.String("http", address(ls.http)), zap.String("admin", address(ls.admin)))
	if s.Secrets.Key == "" && s.Tiers.Source != settings.TiersNone {
		o.Log.Info("secrets.key is not set: API keys are kept as plain SHA-256 digests")
	}
	gs.start(generation)
	err = g.Run()
	if closeErr := store.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("closing the store: %w", closeErr))
	}
	o.Log.Info("stopped")
	return err
}

func styles(s settings.Settings) []answer.Style {
	var all []answer.Style
	for _, style := range s.Headers.Styles {
		all = append(all, answer.Style(style))
	}
	return all
}

// listeners is every open listener; http and admin are nil where they are off.
type listeners struct {
	grpc        []net.Listener
	http, admin net.Listener
}

func openListeners(s settings.Settings) (ls listeners, err error) {
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	for _, a := range s.GRPC.Address {
		l, err := listen("grpc.address", a, fs.FileMode(s.GRPC.SocketMode))
		if err != nil {
			return ls, err
		}
		ls.grpc = append(ls.grpc, l)
	}
	if s.HTTP.Address != "" {
		if ls.http, err = listen("http.address", s.HTTP.Address, 0); err != nil {
			return ls, err
		}
	}
	if s.Admin.Address != "" {
		if ls.admin, err = listen("admin.address", s.Admin.Address, 0); err != nil {
			return ls, err
		}
	}
	return ls, nil
}

// close closes what is open. Servers close theirs themselves; twice is harmless.
func (ls listeners) close() {
	for _, l := range append(ls.grpc, ls.http, ls.admin) {
		if l != nil {
			_ = l.Close()
		}
	}
}

func (ls listeners) addresses() []string {
	var all []string
	for _, l := range ls.grpc {
		all = append(all, address(l))
	}
	return all
}

func address(l net.Listener) string {
	switch l := l.(type) {
	case nil:
		return ""
	case unixListener:
		return unixScheme + l.path
	default:
		return l.Addr().String()
	}
}

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

// addContext runs a part that stops when its context ends.
func addContext(ctx context.Context, g *run.Group, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.Add(func() error { return part(ctx) }, func(error) { cancel() })
}

// forward calls trigger whenever something arrives.
func forward(ctx context.Context, from <-chan struct{}, trigger func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-from:
			trigger()
		}
	}
}

// drain answers everything for a while, then lets calls in flight finish. It
// ends at once when ctx does: another part has ended, maybe since the last call has
// and the server with it.
func drain(ctx context.Context, s settings.Drain, server grpcServer, h *health.Server, log *zap.Logger) {
	delay, timeout := s.Delay, s.Timeout
	log.Info("draining; another signal ends it at once", zap.Duration("delay", delay), zap.Duration("timeout", timeout),
		zap.Bool("not_serving", s.NotServing))
	if s.NotServing {
		h.Shutdown()
	}
	wait(ctx, delay)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		server.GracefulStop()
	}()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-finished:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			log.Warn("calls were still in flight at the end of drain.timeout and are cut off")
		}
		server.Stop()
		<-finished
	}
}

// wait returns after d or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// sampled lets ten lines of one message a second through to the log and then
// every hundredth: denials are many.
func sampled(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Second, 10, 100)
}

// rarely lets ten lines of one message a minute through to the log. It is for what
// strangers can cause as often as they like: their lines cannot fill a disk.
func rarely(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Minute, 10, 0)
}
