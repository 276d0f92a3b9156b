package test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/tier/pgsource"
	"github.com/slidegate/slidegate/test/servers"
)

// Settings of sources.
const (
	envTiersWait       = "SLIDEGATE_TIERS_WAIT"
	envTiersTimeout    = "SLIDEGATE_TIERS_TIMEOUT"
	envTiersTTL        = "SLIDEGATE_TIERS_CACHE_TTL"
	envTiersUnknownTTL = "SLIDEGATE_TIERS_CACHE_UNKNOWN_TTL"
	envTiersOnError    = "SLIDEGATE_TIERS_ON_ERROR"
	envTiersLookups    = "SLIDEGATE_TIERS_LOOKUPS_PER_SECOND"
	envAuthzWait       = "SLIDEGATE_AUTHZ_WAIT"
	envCredentials     = "SLIDEGATE_AUTHZ_CREDENTIALS"
	envSecretsKey      = "SLIDEGATE_SECRETS_KEY"
	envPreviousKey     = "SLIDEGATE_SECRETS_PREVIOUS_KEY"
)

const (
	tierNames = "tiers: [free, pro, top]\ndefault: free\n"

	// byTier tells tiers apart by their limits, which no test reaches.
	byTier = `
domain: edge
descriptors:
  - key: api_key
    rate_limit:
      name: per-key
      by_tier:
        free: {unit: hour, requests_per_unit: 1000001}
        pro:  {unit: hour, requests_per_unit: 1000002}
        top:  {unit: hour, requests_per_unit: 1000003}
  - key: remote_address
`
)

// tierOf is the tier with a limit in byTier.
var tierOf = map[uint32]string{1000001: "free", 1000002: "pro", 1000003: "top"}

// A customer is somebody with API keys.
type customer struct {
	id, tier  string
	disabled  bool
	overrides string // JSON, empty for none
	keys      []string
}

func digestOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// A home is where customers live: a server, behind a proxy that rls asks through.
type home struct {
	t     *testing.T
	proxy *servers.Proxy
	env   map[string]string // what rls is told of it
	// tells: it tells of changes by itself.
	tells  bool
	server interface{ Start(); Pause(); Resume() }
	kill   func()
	// write writes a customer, and has changes told where the home can. revoke takes
	// a key away. corrupt makes the customer's record none.
	write   func(customer)
	revoke  func(key string)
	corrupt func(customer)
	// rubbish has everybody answered by something that is no answer, or not.
	rubbish func(on bool)
	// digest is what the home knows keys by.
	digest func(key string) string

	customers map[string]customer // as last written, by id
	listening []*servers.RLSServer
}

// eachHome runs a test with customers in each kind of home.
func eachHome(t *testing.T, f func(t *testing.T, h *home)) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *home{
		"postgres": inPostgres, "redis": inRedis, "http": overHTTP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			h.t, h.customers = t, make(map[string]customer)
			if h.digest == nil {
				h.digest = digestOf
			}
			f(t, h)
		})
	}
}

func inPostgres(t *testing.T) *home {
	t.Helper()
	s := servers.StartPostgres(t, servers.PostgresOptions{Settings: []string{"log_statement=all"}})
	exec := func(sql string, args ...any) {
		t.Helper()
		if err := s.Exec(sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(pgsource.Schema())
	exec("GRANT USAGE ON SCHEMA slidegate TO slidegate; GRANT SELECT ON ALL TABLES IN SCHEMA slidegate TO slidegate")
	h := &home{server: s, kill: s.Kill, tells: true, proxy: servers.StartProxy(t, s.Addr())}
	h.env = map[string]string{
		envTiersSource:                 "postgres",
		"SLIDEGATE_TIERS_POSTGRES_URL": "postgres://slidegate@" + h.proxy.Addr() + "/slidegate",
	}
	h.write = func(c customer) {
		t.Helper()
		exec(`INSERT INTO slidegate.subjects (id, tier, disabled, overrides) VALUES ($1, $2, $3, nullif($4, '')::jsonb)
			ON CONFLICT (id) DO UPDATE SET tier = excluded.tier, disabled = excluded.disabled, overrides = excluded.overrides`,
			c.id, c.tier, c.disabled, c.overrides)
		for _, key := range c.keys {
			exec("INSERT INTO slidegate.keys (digest, subject) VALUES ($1, $2) ON CONFLICT DO NOTHING", h.digest(key), c.id)
		}
	}
	h.revoke = func(key string) {
		exec("UPDATE slidegate.keys SET revoked_at = now() WHERE digest = $1", h.digest(key))
	}
	h.corrupt = func(c customer) {
		exec(`UPDATE slidegate.subjects SET overrides = '{"per-key": {"unit": "fortnight"}}' WHERE id = $1`, c.id)
	}
	h.rubbish = func(on bool) {
		if on {
			// Somebody's migration went wrong: a column has another type.
			exec("ALTER TABLE slidegate.subjects ALTER COLUMN disabled DROP DEFAULT, ALTER COLUMN disabled TYPE integer USING disabled::integer")
			return
		}
		exec("ALTER TABLE slidegate.subjects ALTER COLUMN disabled TYPE boolean USING disabled = 1, ALTER COLUMN disabled SET DEFAULT false")
	}
	return h
}

func inRedis(t *testing.T) *home {
	t.Helper()
	s := servers.StartRedis(t)
	do := func(args ...string) {
		t.Helper()
		if _, err := s.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	const prefix, channel = "slidegate:tier:", "slidegate:tiers"
	h := &home{server: s, kill: s.Stop, tells: true, proxy: servers.StartProxy(t, s.Addr())}
	h.env = map[string]string{envTiersSource: "redis", "SLIDEGATE_TIERS_REDIS_URL": "redis://" + h.proxy.Addr()}
	h.write = func(c customer) {
		t.Helper()
		do("HSET", prefix+"subject:"+c.id, "tier", c.tier, "disabled", fmt.Sprint(c.disabled), "overrides", c.overrides)
		for _, key := range c.keys {
			do("HSET", prefix+"key:"+h.digest(key), "subject", c.id)
		}
		do("PUBLISH", channel, `{"subject":"`+c.id+`"}`)
	}
	h.revoke = func(key string) {
		do("HSET", prefix+"key:"+h.digest(key), "revoked", "1")
		do("PUBLISH", channel, h.digest(key))
	}
	h.corrupt = func(c customer) {
		do("SET", prefix+"subject:"+c.id, "a text")
		do("PUBLISH", channel, `{"subject":"`+c.id+`"}`)
	}
	h.rubbish = func(on bool) {
		if on {
			do("ACL", "SETUSER", "default", "-hgetall") // somebody's change of the ACL went wrong
			return
		}
		do("ACL", "SETUSER", "default", "+hgetall")
	}
	return h
}

func overHTTP(t *testing.T) *home {
	t.Helper()
	s := servers.StartCustomers(t)
	h := &home{server: s, kill: s.Stop, proxy: servers.StartProxy(t, s.Addr())}
	h.env = map[string]string{envTiersSource: "http", "SLIDEGATE_TIERS_HTTP_URL": "http://" + h.proxy.Addr() + "/lookup"}
	h.write = func(c customer) {
		t.Helper()
		record := map[string]any{"subject": c.id, "tier": c.tier, "disabled": c.disabled}
		if c.overrides != "" {
			record["overrides"] = json.RawMessage(c.overrides)
		}
		answer, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range c.keys {
			s.Put(h.digest(key), string(answer))
		}
		h.tell(`{"subject":"` + c.id + `"}`)
	}
	h.revoke = func(key string) {
		s.Remove(h.digest(key))
		h.tell(`{"digest":"` + h.digest(key) + `"}`)
	}
	h.corrupt = func(c customer) {
		for _, key := range c.keys {
			s.Put(h.digest(key), `{"subject": ["`+c.id+`"]}`)
		}
		h.tell(`{"subject":"` + c.id + `"}`)
	}
	h.rubbish = func(on bool) {
		if on {
			s.Rubbish(http.StatusOK, "<html>Welcome to nginx!</html>")
			return
		}
		s.Rubbish(0, "")
	}
	return h
}

// put writes customers, who are written again when the home has lost them.
func (h *home) put(all ...customer) {
	h.t.Helper()
	for _, c := range all {
		h.customers[c.id] = c
		h.write(c)
	}
}

// start starts a home that was killed. Nobody reaches it before it knows
// everybody again.
func (h *home) start() {
	h.t.Helper()
	h.proxy.Refuse(true)
	h.server.Start()
	for _, c := range h.customers {
		h.write(c)
	}
	h.proxy.Refuse(false)
}

// serve starts an rls that asks this home. Unless env says otherwise what it knows
// expires in no test's time, and there is time enough to ask: what a test sees of
// a change was told.
func (h *home) serve(rules string, env map[string]string) *servers.RLSServer {
	h.t.Helper()
	all := map[string]string{
		envTiersTTL: "1h", envTiersUnknownTTL: "1h", envTiersTimeout: "20s", envTiersWait: "10s", envAuthzWait: "10s",
		envTiersLookups: "100000",
	}
	maps.Copy(all, h.env)
	maps.Copy(all, env)
	rls := servers.RLS(h.t, servers.RLSOptions{Rules: rules, Tiers: tierNames, Env: all})
	h.listening = append(h.listening, rls)
	h.watched(rls)
	return rls
}

// watched waits until rls hears of changes, if the home tells of any.
func (h *home) watched(rls *servers.RLSServer) {
	h.t.Helper()
	if h.tells {
		eventually(h.t, "changes to be told", func() bool { return metric(h.t, rls, metricWatching) == "1" })
	}
}

// tell tells every rls of a change in a home that does not.
func (h *home) tell(change string) {
	h.t.Helper()
	for _, rls := range h.listening {
		invalidate(h.t, rls, change)
	}
}

// invalidate has an rls ask again.
func invalidate(t *testing.T, rls *servers.RLSServer, change string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, rls.Admin()+"/v1/tiers/invalidate", strings.NewReader(change))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	got, err := newClient(t, rls.Admin(), "127.0.0.1").do(req)
	if err != nil || got.status >= 300 {
		t.Fatalf("invalidate %s: got %d, %v: %s", change, got.status, err, got.body)
	}
}

// An asker asks an rls on behalf of an API key and says in a word what came of
// it: a tier, or why not.
type asker func(key string) string

// askers are the ways to ask, by name.
func askers(t *testing.T, rls *servers.RLSServer) map[string]asker {
	t.Helper()
	conn := connect(t, rls.GRPC())
	limits, authz := rlsv3.NewRateLimitServiceClient(conn), authv3.NewAuthorizationClient(conn)
	return map[string]asker{
		"limits": func(key string) string {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out, err := limits.ShouldRateLimit(ctx, question(1, "api_key="+key, "remote_address=192.0.2.1"))
			switch {
			case err != nil:
				return "error " + status.Code(err).String()
			case out.GetOverallCode() != rlsv3.RateLimitResponse_OK:
				return "denied"
			}
			return tierOf[out.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()]
		},
		"authorization": func(key string) string {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out, err := authz.Check(ctx, checkOf(map[string]string{"x-api-key": key}))
			switch {
			case err != nil:
				return "error " + status.Code(err).String()
			case out.GetErrorResponse() != nil:
				return "no decision"
			case out.GetDeniedResponse() != nil:
				return fmt.Sprint(int(out.GetDeniedResponse().GetStatus().GetCode()))
			case out.GetStatus().GetCode() != 0:
				return "status " + fmt.Sprint(out.GetStatus().GetCode())
			}
			return upstreamHeader(out, "x-tier")
		},
	}
}

// checkOf is a request with these headers, as Envoy tells of it.
func checkOf(headers map[string]string) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: "192.0.2.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: http.MethodGet, Path: "/orders?page=2", Host: "api.example", Headers: headers,
		}},
	}}
}

// upstreamHeader is what a header has for the application.
func upstreamHeader(out *authv3.CheckResponse, name string) string {
	for _, h := range out.GetOkResponse().GetHeaders() {
		if h.GetHeader().GetKey() == name {
			return h.GetHeader().GetValue() + string(h.GetHeader().GetRawValue())
		}
	}
	return ""
}

// TestChangesAreTold changes customers. Each change counts for the next request.
func TestChangesAreTold(t *testing.T) {
	eachHome(t, func(t *testing.T, h *home) {
		acme := customer{id: "acme", tier: "free", keys: []string{"k-acme-1", "k-acme-2"}}
		h.put(acme)
		rls := h.serve(byTier, nil)
		ask := askers(t, rls)
		// want waits for what was told to arrive, which takes no request.
		told := metric(t, rls, metricPushes)
		want := func(what, key, limits, authorization string) {
			t.Helper()
			if h.tells {
				eventually(t, what+" to be told", func() bool { return metric(t, rls, metricPushes) != told })
				told = settled(t, rls, metricPushes)
			}
			for path, want := range map[string]string{"limits": limits, "authorization": authorization} {
				if got := ask[path](key); got != want {
					t.Errorf("%s: %s: got %q for the next request, want %q", what, path, got, want)
				}
			}
		}
		for path, want := range map[string]string{"limits": "free", "authorization": "401"} {
			if got := ask[path]("k-new"); got != want {
				t.Errorf("%s before there is a customer: got %q, want %q", path, got, want)
			}
			for _, key := range acme.keys {
				if got := ask[path](key); got != "free" {
					t.Errorf("%s: got %q, want free", path, got)
				}
			}
		}

		h.put(customer{id: "new", tier: "pro", keys: []string{"k-new"}})
		want("a customer whose key was asked for before", "k-new", "pro", "pro")
		acme.tier = "top"
		h.put(acme)
		want("an upgrade", "k-acme-1", "top", "top")
		want2 := ask["limits"]("k-acme-2")
		if want2 != "top" {
			t.Errorf("an upgrade: got %q for the other key, want top", want2)
		}
		acme.tier = "pro"
		h.put(acme)
		want("a downgrade", "k-acme-2", "pro", "pro")
		acme.disabled = true
		h.put(acme)
		want("disabled", "k-acme-1", "free", "403")
		acme.disabled = false
		h.put(acme)
		want("enabled", "k-acme-1", "pro", "pro")
		h.revoke("k-acme-1")
		want("a revoked key", "k-acme-1", "free", "401")
		if got := ask["authorization"]("k-acme-2"); got != "pro" {
			t.Errorf("a revoked key: got %q for the other one, want pro", got)
		}
	})
}

// settled returns a metric once it has stopped to change.
func settled(t *testing.T, rls *servers.RLSServer, name string) string {
	t.Helper()
	last := metric(t, rls, name)
	for {
		time.Sleep(50 * time.Millisecond)
		now := metric(t, rls, name)
		if now == last {
			return now
		}
		last = now
	}
}
