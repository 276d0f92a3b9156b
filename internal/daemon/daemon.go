package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/health"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/sources"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/extauthz"
	"github.com/slidegate/slidegate/internal/edge/grpcserver"
	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/internal/migrate/compare"
	"github.com/slidegate/slidegate/internal/migrate/compat/pages"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/calls"
	"github.com/slidegate/slidegate/internal/operate/events"
	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/internal/operate/peers"
	"github.com/slidegate/slidegate/internal/operate/probelist"
	"github.com/slidegate/slidegate/internal/operate/rates"
	"github.com/slidegate/slidegate/internal/operate/tracing"
)

// Options of [Run] that are not settings.
type Options struct {
	// Version and Commit say what runs: a label each of the metric build_info.
	Version, Commit string
	// Log is required.
	Log *zap.Logger
	// Audit gets a line at info for each reset of limits. These lines must not be lost, so its
	// level is not that of Log. Nil: Log.
	Audit *zap.Logger
	// Reload triggers a reload with each signal that arrives. If it is nil, only changes of
	// files trigger reloads.
	Reload <-chan os.Signal
	// LimitMemory sets the memory limit of the Go runtime from the container, unless GOMEMLIMIT is
	// set. It is for a process that runs nothing else.
	LimitMemory bool
	// Run calls Ready once, when every listener is open and before it serves. Ready may be
	// nil.
	Ready func(Running)
}

// Running describes a process that is ready.
type Running struct {
	GRPC        []string // host:port or unix:///path, as bound
	HTTP, Admin string   // host:port; empty: the port is off
	Metrics     string   // of metrics.address: host:port; empty: the port is off
	Reference   string   // of dropin.metrics: host:port; empty: the port is off
	Rules       *rules.Rules
	// StoreMissing says what to do about a store that does not answer. It is
	// empty if the store answers.
	StoreMissing string
}

// Run serves until ctx ends and the drain is over, and then returns nil. If a part of the
// process fails, Run stops the others and returns the error.
func Run(ctx context.Context, s settings.Settings, o Options) (err error) {
	p := &process{settings: s, logs: newLogs(&o), operators: operators{version: o.Version, started: time.Now()}}
	defer func() { err = errors.Join(err, p.open.close()) }()

	// 1. Note the state of the files before step 2 reads them. So the watcher sees every change.
	watcher := watch.New(watch.Options{
		Paths: s.WatchPaths(),
		Which: s.DropIn.Files,
	})
	// 2. Read all files.
	if err := p.readFiles(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		o.Log.Info("stopped")
		return nil
	}
	// 3. Open the listeners, the store and the customer source.
	if err := p.openAll(ctx, o); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			o.Log.Info("stopped")
			return nil
		}
		return err
	}
	// 4. Make the decider, the services and their servers.
	p.makeServers()
	// 5. Collect the parts that run until the process stops.
	g := p.group(ctx, func(ctx context.Context) error { return watcher.Run(ctx, p.generations.reload) },
		func(ctx context.Context) error { return forward(ctx, o.Reload, watcher.Trigger) })
	// 6. Report that the process serves.
	running := Running{
		GRPC: p.network.listeners.addresses(), HTTP: address(p.network.listeners.http), Admin: address(p.network.listeners.admin),
		Metrics: address(p.network.listeners.metrics), Reference: address(p.network.listeners.reference),
		Rules: p.generation.Rules, StoreMissing: p.store.redis.missing(),
	}
	if o.Ready != nil {
		o.Ready(running)
	}
	p.logStart(o.Version, running)
	if o.LimitMemory {
		limitMemory(os.DirFS("/"), o.Log)
	}
	p.generations.start()
	p.remote.serve(p.generations)
	// 7. Run until the first part ends, then close everything.
	err = errors.Join(g.Run(), p.open.close())
	o.Log.Info("stopped")
	return err
}

// A process is everything that [Run] makes.
type process struct {
	settings settings.Settings
	logs     logs
	open     closers

	// From the files, or from an xDS server.
	generation *config.Generation // the first one
	remote     *remote            // nil: the rules are from files
	headers    *answer.Renderer

	// Opened for the requests.
	store    store
	subjects *subjects         // nil: no customer source
	compare  *compare.Comparer // nil: nothing is compared

	// What decides and answers.
	decider     *decide.Decider
	generations *generations
	probes      *probes
	network     network

	// What others see of it.
	measures  measures
	operators operators
}

// logs are the log, and what limits its lines.
type logs struct {
	main    *zap.Logger
	audit   *zap.Logger // of resets: no line is lost
	sampled *zap.Logger // of single requests
	rare    *zap.Logger // of what any client can cause
}

func newLogs(o *Options) logs {
	return logs{
		main: o.Log, audit: cmp.Or(o.Audit, o.Log),
		sampled: o.Log.WithOptions(zap.WrapCore(sampled)), rare: o.Log.WithOptions(zap.WrapCore(rarely)),
	}
}

type network struct {
	listeners   listeners
	tls         *tls.Config // of gRPC; nil: plain text
	grpc        grpcserver.Server
	health      *health.Server
	http, admin *http.Server
}

type measures struct {
	registry  *prometheus.Registry
	metrics   *metrics.Metrics
	tracer    *tracing.Tracer // nil: traces are off
	reference reference
}

// operators is what answers the people who run the process.
type operators struct {
	insight  *insight.Insight
	events   *events.Events
	webhook  []part // empty: events are not sent
	history  *history.Counter
	grants   insight.Grants
	probes   *probelist.List
	access   *admin.Access
	peers    *peers.Peers // nil: this process knows no others
	sampler  *rates.Sampler
	instance string // the name of this process in answers
	version  string
	started  time.Time
}

// readFiles reads rules, tiers and certificates. If the rules come from an xDS server, it
// waits for the first ones, unless a drop-in does not wait. If ctx ends meanwhile, it returns
// without a generation.
func (p *process) readFiles(ctx context.Context) (err error) {
	if p.generation, err = config.Load(p.settings); err != nil {
		return err
	}
	if p.settings.Rules.Source == settings.RulesXDS {
		if p.remote, err = askServer(ctx, p.settings, p.generation, p.logs.main); err != nil {
			return err
		}
		p.open.add(p.remote.close)
		if p.generation = p.remote.first(ctx); p.generation == nil {
			return nil
		}
	}
	p.headers = answer.NewRenderer(p.settings.Headers.Styles...).Named(answer.ReferenceNames(p.settings.DropIn.Headers))
	if p.measures.reference, err = openReference(p.settings, p.logs.main); err != nil {
		return err
	}
	p.network.tls, err = serverTLS(p.settings.GRPC, p.logs.main)
	return err
}

// openAll opens the listeners, the store and the customer source. open closes them.
func (p *process) openAll(ctx context.Context, o Options) (err error) {
	s := p.settings
	if p.network.listeners, err = openListeners(s); err != nil {
		return err
	}
	p.open.add(p.network.listeners.close)
	p.measures.registry = prometheus.NewRegistry()
	p.measures.metrics = metrics.New(p.measures.registry, metrics.Options{Version: o.Version, Commit: o.Commit, MaxDetailSeries: s.Metrics.MaxDetailSeries})
	p.remote.register(p.measures.registry)
	p.operators.sampler = rates.New(p.readTotals)
	if err = p.openTracer(ctx, o.Version); err != nil {
		return err
	}
	loaded := func() {}
	if s.Store.Type == settings.StoreMemory && s.Store.Memory.Snapshot != "" {
		loaded = p.network.listeners.answerWhileLoading(s.DropIn.Answers, p.logs.main)
	}
	p.store, err = openStore(ctx, s, p.measures.metrics, p.measures.registry, p.operators.version, p.logs.main, p.logs.sampled, p.measures.answered())
	loaded()
	if err != nil {
		return err
	}
	p.open.add(p.store.close)
	p.measures.reference.measure(p.store.redis)
	active := func() *rules.Rules { return p.decider.Rules() }
	if p.subjects, err = openSubjects(s, p.generation.Secrets, active, p.measures.metrics, p.measures.registry, p.logs.main, p.logs.sampled); err != nil {
		return err
	}
	p.open.add(p.subjects.close)
	if err = p.openCompare(); err != nil {
		return err
	}
	if p.operators.access, err = openAccess(s.Admin, p.network.listeners.admin, p.logs.main, p.logs.rare); err != nil {
		return err
	}
	p.openInsight()
	p.openHistory()
	return p.openEvents()
}

func (p *process) makeServers() {
	s := p.settings
	o := decide.Options{
		Subjects: p.subjects.resolver(),
		Meters:   p.measures.metrics, Observer: p.measures.observer(storeFailed(p.logs.sampled)), Log: warnings(p.logs.rare),
		NearLimit: float32(s.DropIn.NearLimit), Hits: p.measures.reference.hits(), Recorder: recorder{p.operators.insight, p.operators.events},
		Patience: inflight.DefaultPatience,
		Grants:   p.operators.grants.Active,
		Wait:     s.Tiers.Wait, DenyUnresolved: s.Tiers.OnError == settings.OnErrorDeny,
	}
	p.store.decide(&o)
	p.decider = decide.NewDecider(p.generation.Rules, o)
	p.generations = &generations{settings: s, active: p.generation, decider: p.decider, metrics: p.measures.metrics, stats: p.measures.reference.stats, log: p.logs.main, remote: p.remote, redis: p.store.redis}
	headers := p.headers
	if s.DropIn.Answers {
		headers = headers.Quiet()
	}
	var comparer ratelimit.Comparer
	if p.compare != nil {
		comparer = p.compare
	}
	limits := ratelimit.NewService(ratelimit.Options{
		Decider: p.decider, Secrets: p.generation.Secrets, Headers: headers, Meters: p.measures.metrics,
		PlainKeys: sources.AsksByKey(s.Tiers), EchoRequest: s.DropIn.EchoRequest, Reference: s.DropIn.Answers,
		Compare: comparer, Probes: p.operators.probes.Active(),
	})
	authorization := extauthz.NewService(extauthz.Options{
		Decider: p.decider, Subjects: p.subjects.resolver(), Secrets: p.generation.Secrets, Headers: p.headers,
		Meters: newAuthorizationMeters(p.measures.registry, p.measures.metrics), Log: p.logs.sampled, PlainKeys: sources.AsksByKey(s.Tiers), Traced: p.measures.authorizations(),
		Authz: s.Authz, MaxUnknown: maxUnknownKeys, Probes: p.operators.probes.Active(),
	})
	p.probes = &probes{
		store: s.Store.Type, ready: s.HTTP.Ready, tiers: p.subjects.text,
		needsRules: s.DropIn.NeedsRules, needsStore: s.DropIn.NeedsStore, domains: func() int { return len(p.decider.Rules().Domains()) },
		plain: s.DropIn.Answers,
	}
	if r := p.store.redis; r != nil {
		p.probes.state = r.states
		if r.pings {
			p.probes.connected = func() bool { return !r.scopes[0].silent.Load() }
		}
	}
	const decides, authorizes = rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, authv3.Authorization_Check_FullMethodName
	calls := calls.Recorder{Metrics: p.measures.metrics, Log: p.logs.main, Reference: p.measures.reference.methods(), Tracer: p.measures.tracer, Traced: []string{decides, authorizes}}
	server := grpcserver.Options{
		Settings: s.GRPC, TLS: p.network.tls, Services: map[string]grpcserver.Service{decides: limits, authorizes: authorization},
		Intercept: calls.Intercept, Wrap: calls.Wrap, Log: p.logs.main,
	}
	if p.measures.tracer != nil {
		server.Metadata = p.measures.tracer.Fields()
	}
	if s.GRPC.Transport == settings.TransportUnary {
		server.Meters = metrics.NewTransport(p.measures.registry)
	}
	p.network.grpc, p.network.health = grpcserver.New(server)
	if p.remote != nil {
		p.probes.rules = p.remote.text
	}
	p.network.http = newHTTP(httpHandler(limits, authorization, p.probes, calls,
		admin.Guard{Setting: "http.hosts", Hosts: s.HTTP.Hosts, Log: p.logs.rare}, s.DropIn.Answers), p.logs.main)
	guard := admin.Guard{Setting: "admin.hosts", Hosts: s.Admin.Hosts, Log: p.logs.rare}
	if s.DropIn.Pages {
		p.network.admin = newHTTP(guard.CheckEmbedding(pages.Handler(p.generations.rules)), p.logs.main)
		return
	}
	served := p.pages(guard)
	served.Console = p.console(served)
	p.network.admin = newAdmin(served, grpcserver.Describe(p.network.grpc, p.network.health), p.logs.main)
}

// group returns the parts that run until the process stops. They are the servers, the drain,
// the parts of store and customer source, and further ones.
func (p *process) group(ctx context.Context, further ...part) *run.Group {
	var g run.Group
	for _, l := range p.network.listeners.grpc {
		g.Add(func() error { return p.network.grpc.Serve(l) }, func(error) { p.network.grpc.Stop() })
	}
	addHTTP(&g, p.network.listeners.http, p.network.http)
	addHTTP(&g, p.network.listeners.admin, p.network.admin)
	addHTTP(&g, p.network.listeners.metrics, newHTTP(metricsHandler(p.measures.registry, p.measures.tracer != nil), p.logs.main))
	addHTTP(&g, p.network.listeners.reference, p.measures.reference.server)
	drains := func(inner context.Context) error {
		select {
		case <-ctx.Done():
			p.probes.draining.Store(true)
			s := p.settings.Drain
			drain(inner, s, p.network.grpc, p.network.health, p.logs.main)
		case <-inner.Done(): // another part failed
		}
		return nil
	}
	if d := p.settings.DropIn; d.NeedsRules || d.NeedsStore {
		further = append(further, func(ctx context.Context) error {
			return followHealth(ctx, p.network.health, p.probes.whyUnhealthy, p.logs.main)
		})
	}
	for _, part := range slices.Concat([]part{drains, p.operators.sampler.Run, p.operators.history.Run, p.operators.grants.List.Run, p.operators.probes.Follow, p.operators.probes.Write}, p.store.redis.parts(), p.subjects.parts(), p.measures.reference.parts(), p.operators.webhook, further) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it ends when another member of the group ends
		g.Add(func() error { return part(ctx) }, func(error) { cancel() })
	}
	return &g
}

func (p *process) logStart(version string, r Running) {
	s := p.settings
	p.logs.main.Info("starting", zap.String("version", version), zap.String("store", s.Store.Type), zap.String("tiers", s.Tiers.Source),
		zap.Strings("grpc", r.GRPC), zap.String("transport", s.GRPC.Transport), zap.Bool("tls", s.GRPC.TLS.On()),
		zap.String("http", r.HTTP), zap.String("admin", r.Admin), zap.String("metrics", r.Metrics))
	if p.measures.tracer != nil {
		p.logs.main.Info("traces are on", zap.Stringer("otlp", p.measures.tracer))
	}
	if address := s.DropIn.Statsd.Address; address != "" || r.Reference != "" {
		p.logs.main.Info("metrics of envoyproxy/ratelimit", zap.String("prometheus", r.Reference), zap.String("statsd", address))
	}
	if s.Secrets.Key == "" && s.Tiers.Source != settings.TiersNone {
		p.logs.main.Info("secrets.key_file is not set: Slidegate stores API keys as plain SHA-256 digests")
	}
}

type closers []func() error

func (c *closers) add(closer func() error) { *c = append(*c, closer) }

// close calls each closer once, the last one first, and joins the errors.
func (c *closers) close() (err error) {
	all := *c
	*c = nil
	for _, closer := range slices.Backward(all) {
		err = errors.Join(err, closer())
	}
	return err
}

// A part of the process runs until ctx ends, and then returns nil.
type part = func(ctx context.Context) error

// forward calls trigger for each value that arrives, until ctx ends.
func forward(ctx context.Context, from <-chan os.Signal, trigger func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-from:
			trigger()
		}
	}
}

// sampled limits each message to ten lines a second, and then every hundredth. Denials can
// be many.
func sampled(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Second, 10, 100)
}

// rarely limits each message to ten lines a minute. It is for messages that any client can
// cause without limit. So such lines cannot fill a disk.
func rarely(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Minute, 10, 0)
}

// warnings returns what a decider writes its warnings to. A line that log drops allocates nothing.
func warnings(log *zap.Logger) decide.Log {
	return func(message string) func(...slog.Attr) {
		entry := log.Check(zap.WarnLevel, message)
		if entry == nil {
			return nil
		}
		return func(attrs ...slog.Attr) {
			fields := make([]zap.Field, len(attrs))
			for i, a := range attrs {
				fields[i] = zap.Any(a.Key, a.Value.Any())
			}
			entry.Write(fields...)
		}
	}
}
