package monitoring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/slidegate/slidegate/deploy/postgres"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/otlp"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

const (
	tiersText = "tiers: [free, pro]\ndefault: free\n"
	rulesText = `
domain: edge
descriptors:
  - key: subject
    rate_limit:
      name: per-subject
      limits:
        - {window: 1s, requests: 100000}
        - {unit: hour, requests_per_unit: 1000000}
  - key: tier
  - key: remote_address
    shadow_mode: true
    rate_limit: {name: per-address, window: 1s, requests: 5}
  - key: route
    value: search
    descriptors:
      - key: subject
        detailed_metric: true
        rate_limit: {name: search, window: 6s, requests: 30}
  - key: invented
    descriptors:
      - key: api_key
        rate_limit: {name: invented, window: 1s, requests: 1}
  - key: route
    value: login
    descriptors:
      - key: remote_address
        rate_limit: {name: login, window: 1s, requests: 100000}
  - key: budget
    rate_limit: {name: budget, unit: hour, requests_per_unit: 5, budget: {reserve: 1, hold: 1s}}
`
	// pace is the pause of each caller. There are workers callers, so that some go on while others wait
	// for a frozen rls.
	pace    = 100 * time.Millisecond
	workers = 4
)

// A scene is what Prometheus looks at: rls on Redis with tiers from PostgreSQL, Envoy before it, and a
// second rls with the memory store and rules of an xDS server.
type scene struct {
	t *testing.T
	*prometheus
	redis      *servers.RedisServer
	proxy      *servers.Proxy
	postgres   *servers.PostgresServer
	management *servers.XDSServer
	rls, small *edge.RLSServer
	envoy      *edge.EnvoyServer

	// What the callers do besides.
	flood, invent, otherDomain, misroute atomic.Bool
	// fill is the domain whose keys fill the memory store; empty: none.
	fill                   atomic.Value
	number, calls, budgets atomic.Int64
}

// TestMonitoring looks at the dashboards under load, and then causes every fault that has an alert.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.load()
	t.Run("panels", func(t *testing.T) { s.panels(t) })
	s.faults()
	t.Run("metrics", func(t *testing.T) { s.metrics(t) })
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, redis: servers.StartRedis(t), management: servers.StartXDS(t)}
	s.fill.Store("")
	s.proxy = servers.StartProxy(t, s.redis.Addr())
	s.postgres = servers.StartPostgres(t, servers.PostgresOptions{})
	s.sql(postgres.Schema)
	s.sql("GRANT USAGE ON SCHEMA slidegate TO slidegate; GRANT SELECT ON ALL TABLES IN SCHEMA slidegate TO slidegate")
	for i := range 5 {
		s.sql("INSERT INTO slidegate.subjects (id, tier) VALUES ($1, 'pro')", fmt.Sprint("customer-", i))
		s.sql("INSERT INTO slidegate.keys (digest, subject) VALUES (encode(sha256($1), 'hex'), $2)", []byte(fmt.Sprint("key-", i)), fmt.Sprint("customer-", i))
	}
	s.management.Set("small", manyOf("steady", ratelimitv3.RateLimitUnit_SECOND, 1_000_000), manyOf("full", ratelimitv3.RateLimitUnit_MINUTE, 1), manyOf("roomy", ratelimitv3.RateLimitUnit_HOUR, 1_000_000))
	anything := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	s.rls = edge.RLS(t, edge.RLSOptions{Rules: rulesText, Tiers: tiersText, Way: edge.Way{Transport: edge.Unary, Listen: edge.TCP}, Env: map[string]string{
		"SLIDEGATE_ADMIN_TOKEN_FILE": "", "SLIDEGATE_EVENTS_WEBHOOK": "http://" + stack.ServeHTTP(t, anything),
		"SLIDEGATE_STORE_TYPE": "redis", "SLIDEGATE_STORE_REDIS_URL": "redis://" + s.proxy.Addr(), "SLIDEGATE_STORE_TIMEOUT": "3s",
		"SLIDEGATE_TIERS_SOURCE": "postgres", "SLIDEGATE_TIERS_POSTGRES_URL": s.postgres.URL(),
		"SLIDEGATE_TIERS_WAIT": "2s", "SLIDEGATE_AUTHZ_WAIT": "1s", "SLIDEGATE_TIERS_CACHE_TTL": "500ms",
		// Each invented key takes the source long.
		"SLIDEGATE_TIERS_POSTGRES_QUERY": slowForUnknown,
	}})
	s.small = edge.RLS(t, edge.RLSOptions{Way: edge.Way{Transport: edge.Unary, Listen: edge.TCP}, Env: map[string]string{
		"SLIDEGATE_ADMIN_TOKEN_FILE": "",
		"SLIDEGATE_STORE_TYPE":       "memory", "SLIDEGATE_STORE_MEMORY_MAX_BYTES": "1048576", "SLIDEGATE_TIERS_SOURCE": "none",
		"SLIDEGATE_RULES_SOURCE": "xds", "SLIDEGATE_RULES_XDS_ADDRESS": s.management.Address(), "SLIDEGATE_RULES_XDS_NODE_ID": "small",
		"OTEL_EXPORTER_OTLP_ENDPOINT": otlp.Start(t).HTTP,
	}})
	s.envoy = edge.Envoy(t, edge.EnvoyOptions{
		Config: "../../envoy/authorization.yaml", Upstream: stack.ServeHTTP(t, anything), RLS: s.rls.GRPC(),
		Replace: map[string]string{
			"timeout: 0.05s": "timeout: 3s", "timeout: 0.2s": "timeout: 3s", "timeout: 0.25s": "timeout: 3s",
			// If rls is frozen, the ratelimit filter is asked too.
			"failure_mode_allow: false": "failure_mode_allow: true",
		},
	})
	trim := func(url string) string { return strings.TrimPrefix(url, "http://") }
	s.prometheus = startPrometheus(t, []string{trim(s.rls.Admin()), trim(s.small.Admin())}, trim(s.envoy.Admin()))
	return s
}

func (s *scene) sql(text string, args ...any) {
	s.t.Helper()
	if err := s.postgres.Exec(text, args...); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
}

// manyOf returns rules that give each value of a key a limit.
func manyOf(domain string, unit ratelimitv3.RateLimitUnit, limit uint32) *ratelimitv3.RateLimitConfig {
	return &ratelimitv3.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Key: "k", RateLimit: &ratelimitv3.RateLimitPolicy{Unit: unit, RequestsPerUnit: limit},
	}}}
}

// load starts the callers, which end with the test.
func (s *scene) load() {
	conn, err := s.rls.Dial()
	if err != nil {
		s.t.Fatal(err)
	}
	authz := authv3.NewAuthorizationClient(conn)
	ctx, stop := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	s.t.Cleanup(func() {
		stop()
		running.Wait()
		_ = conn.Close()
	})
	s.get(ctx, "/orders", "no customer's key") // Envoy counts a denial
	repeat := func(pace time.Duration, f func()) {
		running.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					f()
				}
			}
		})
	}
	for range workers {
		repeat(pace, func() { s.call(ctx, authz) })
		// The memory store gets its requests also while Redis is slow.
		repeat(pace/2, func() { s.callSmall(ctx) })
	}
}

// slowForUnknown is the query of Slidegate's schema, but takes half a second for a key that
// is not there.
const slowForUnknown = `SELECT s.id AS subject, s.tier, s.disabled, s.overrides, s.labels
FROM slidegate.keys k JOIN slidegate.subjects s ON s.id = k.subject WHERE k.digest = $1
UNION ALL SELECT '', NULL, false, NULL, NULL
WHERE CASE WHEN EXISTS (SELECT FROM slidegate.keys WHERE digest = $1) THEN false ELSE pg_sleep(0.5) IS NULL END`

// call makes the next requests to Envoy. Answers do not matter: Prometheus sees what they are.
func (s *scene) call(ctx context.Context, authz authv3.AuthorizationClient) {
	n := s.number.Add(1)
	s.get(ctx, "/orders", fmt.Sprint("key-", n%5))
	if n%5 == 0 {
		s.get(ctx, "/login", "")
	}
	if s.calls.Add(1)%40 == 0 { // not number: callSmall may take all multiples of 40
		s.get(ctx, "/search", "key-1")
		post(ctx, s.rls, "edge", `{"key": "budget", "value": "%d"}`, s.budgets.Add(1)/5, 1)
	}
	// The window is longer than a busy machine stalls. In a shorter one most hits after a stall
	// find much room: they are denied then, but few are near the limit.
	for range 5 {
		if s.flood.Load() {
			s.get(ctx, "/search", "key-1")
		}
	}
	if s.invent.Load() {
		// rls keeps 32768 unknown keys waiting, and goes on when this caller has left.
		brief, cancel := context.WithTimeout(ctx, pace)
		post(brief, s.rls, "edge", `{"key": "invented"}, {"key": "api_key", "value": "%d"}`, 250*n, 250)
		cancel()
	}
	if s.otherDomain.Load() {
		post(ctx, s.rls, "egde", `{"key": "k", "value": "%d"}`, 0, 1)
	}
	if s.misroute.Load() {
		bad, cancel := context.WithTimeout(ctx, patience)
		_, _ = authz.Check(bad, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			ContextExtensions: map[string]string{"domain": "edge", "anonymous": "true", "cost": "much"},
			Request:           &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: http.MethodGet, Path: "/", Host: "api.example"}},
		}})
		cancel()
	}
}

// callSmall sends a request to the rls with the memory store.
func (s *scene) callSmall(ctx context.Context) {
	n := s.number.Add(1)
	domain, first, count := "steady", n%5, int64(1)
	if fill := s.fill.Load().(string); fill != "" {
		domain, first, count = fill, 50*n, 50 // the smallest store holds 4096 logs
	}
	post(ctx, s.small, domain, `{"key": "k", "value": "%d"}`, first, count)
}

func (s *scene) get(ctx context.Context, path, key string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.envoy.URL()+path, http.NoBody)
	if err != nil {
		panic(err)
	}
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	send(req)
}

// post asks rls about a descriptor for each of some numbers.
func post(ctx context.Context, rls *edge.RLSServer, domain, entries string, first, count int64) {
	all := make([]string, count)
	for i := range all {
		all[i] = `{"entries": [` + fmt.Sprintf(entries, first+int64(i)) + `]}`
	}
	body := fmt.Sprintf(`{"domain": %q, "descriptors": [%s]}`, domain, strings.Join(all, ","))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, rls.HTTP()+"/json", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	send(req)
}

var client = http.Client{Timeout: 10 * time.Second}

func send(req *http.Request) {
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), *(\w+)\)$`)

// panels checks that the query of each panel returns data, and each variable a value.
func (s *scene) panels(t *testing.T) {
	for file, d := range readDashboards(t) {
		chosen := strings.NewReplacer("$__rate_interval", "10s", "$__range", "1m", "$job", ".*", "$instance", ".*", "$domain", ".*", "$rule", ".*", "$cluster", "rls")
		for _, v := range d.Templating.List {
			if v.Type == "datasource" {
				continue
			}
			m := labelValues.FindStringSubmatch(v.Definition)
			if m == nil {
				t.Errorf("%s: %s: %q is not label_values", file, v.Name, v.Definition)
				continue
			}
			eventually(t, func() error {
				return s.returns(fmt.Sprintf(`count by (%s) (%s{%s!=""})`, m[2], withoutBraces(chosen.Replace(m[1])), m[2]))
			})
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				eventually(t, func() error {
					if err := s.returns(chosen.Replace(q.Expr)); err != nil {
						return fmt.Errorf("%s: %s: %w", file, p.Title, err)
					}
					return nil
				})
			}
		}
	}
}

// withoutBraces returns the name of a selector's metric.
func withoutBraces(selector string) string {
	name, _, _ := strings.Cut(selector, "{")
	return name
}

// returns reports whether a query yields a number.
func (s *scene) returns(expr string) error {
	result, err := s.query(expr)
	if err != nil {
		return err
	}
	for _, r := range result {
		if r.Value[1] != "NaN" {
			return nil
		}
	}
	return fmt.Errorf("%s: got %v, want a number", expr, result)
}

// A fault has alerts. All faults of a round are caused together.
type fault struct {
	alerts    []string
	make, end func()
}

func (s *scene) rounds() [][]fault {
	on := func(b *atomic.Bool, alerts ...string) fault {
		return fault{alerts, func() { b.Store(true) }, func() { b.Store(false) }}
	}
	filled := func(domain, alert string) fault {
		return fault{[]string{alert}, func() { s.fill.Store(domain) }, func() { s.fill.Store("") }}
	}
	write := func(text string) func() {
		return func() {
			if err := s.rls.WriteRules(text); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	// rls reads the policy of a server again after each new connection.
	policy := func(name string) func() {
		return func() {
			if _, err := s.redis.Do("CONFIG", "SET", "maxmemory-policy", name); err != nil {
				s.t.Fatal(err)
			}
			s.proxy.CloseAll()
		}
	}
	signal := func(sig os.Signal) func() {
		return func() {
			if err := errors.Join(s.rls.Signal(sig), s.small.Signal(sig)); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	return [][]fault{
		{
			on(&s.flood, "SlidegateManyDenials", "SlidegateNearLimit"),
			on(&s.invent, "SlidegateTiersLookupsLimited"),
			on(&s.otherDomain, "SlidegateUnknownDomain"),
			on(&s.misroute, "SlidegateMisconfiguredRoute"),
			filled("roomy", "SlidegateMemoryStoreDropsLogs"),
			{[]string{"SlidegateRedisEvicts"}, policy("allkeys-lru"), policy("noeviction")},
			{[]string{"SlidegateConfigBroken"}, write("domain: ["), write(rulesText)},
		},
		{
			{
				[]string{"SlidegateTiersBadRecord"},
				func() {
					s.sql(`UPDATE slidegate.subjects SET overrides = '{"per-subject": {"unit": "fortnight"}}' WHERE id = 'customer-0'`)
				},
				func() { s.sql(`UPDATE slidegate.subjects SET overrides = NULL WHERE id = 'customer-0'`) },
			},
			filled("full", "SlidegateMemoryStoreTooSmall"),
			{[]string{"SlidegateRulesServerAway"}, s.management.Stop, s.management.Start},
			{[]string{"SlidegateSlow"}, func() { s.proxy.Latency(1500 * time.Millisecond) }, func() { s.proxy.Latency(0) }},
		},
		{
			{[]string{"SlidegateTiersSourceFails", "SlidegateTiersNotWatching"}, s.postgres.Stop, s.postgres.Start},
			{[]string{"SlidegateStoreDown", "SlidegateStoreErrors", "SlidegateDegraded"}, s.redis.Stop, s.redis.Start},
		},
		{
			{[]string{"SlidegateDown", "SlidegateInstanceDown", "SlidegateEnvoyUndecided"}, signal(syscall.SIGSTOP), signal(syscall.SIGCONT)},
		},
	}
}

// faults causes each fault, waits until its alerts fire, ends it, and waits until they do not.
func (s *scene) faults() {
	s.t.Helper()
	// No real fault makes a call panic.
	caused := map[string]bool{"SlidegatePanic": true}
	for _, round := range s.rounds() {
		var names []string
		for _, f := range round {
			names = append(names, f.alerts...)
		}
		begin := time.Now()
		s.wait(false, names...)
		for _, f := range round {
			f.make()
		}
		s.wait(true, names...)
		fired := time.Since(begin)
		for _, f := range round {
			f.end()
		}
		s.wait(false, names...)
		s.t.Logf("%v fired after %v and ended after %v", names, fired.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		for _, name := range names {
			caused[name] = true
		}
	}
	for _, a := range readAlerts(s.t) {
		if !caused[a.Alert] {
			s.t.Errorf("no fault causes %s", a.Alert)
		}
	}
}

var metricNames = regexp.MustCompile(`\b(?:slidegate|envoy|process)_\w+`)

// metrics checks that each metric of a dashboard exists, also those whose panel shows 0 without it.
func (s *scene) metrics(t *testing.T) {
	var names []string
	if err := s.api("label/__name__/values", nil, &names); err != nil {
		t.Fatal(err)
	}
	missing := make(map[string]bool)
	for file, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				for _, name := range metricNames.FindAllString(q.Expr, -1) {
					if name != "envoy_cluster_name" && name != "envoy_response_code_class" && !slices.Contains(names, name) {
						missing[file+": "+name] = true
					}
				}
			}
		}
	}
	for _, m := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s does not exist", m)
	}
}
