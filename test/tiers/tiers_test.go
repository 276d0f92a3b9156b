package tiers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/deploy/postgres"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// Settings of sources.
const (
	envTiersWait    = "SLIDEGATE_TIERS_WAIT"
	envTiersTTL     = "SLIDEGATE_TIERS_CACHE_TTL"
	envTiersOnError = "SLIDEGATE_TIERS_ON_ERROR"
	envAuthzWait    = "SLIDEGATE_AUTHZ_WAIT"
	envSecretsKey   = "SLIDEGATE_SECRETS_KEY"
	envPreviousKey  = "SLIDEGATE_SECRETS_PREVIOUS_KEY"
)

// Metrics of sources.
const (
	metricPushes      = "slidegate_tiers_pushes_total"
	metricWatching    = "slidegate_tiers_watching"
	metricOpen        = "slidegate_tiers_source_open"
	metricStale       = `slidegate_tiers_answers_total{from="stale"}`
	metricUnavailable = `slidegate_tiers_answers_total{from="unavailable"}`
	metricBadRecords  = `slidegate_tiers_lookups_total{outcome="bad_record"}`
	metricTimeouts    = `slidegate_tiers_lookups_total{outcome="timeout"}`
)

const (
	threeTiers = "tiers: [free, pro, top]\ndefault: free\n"

	// tiersApart tells tiers apart by their limits, which no test reaches.
	tiersApart = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, by_tier: {free: {unit: hour, requests_per_unit: 1000001}, pro: {unit: hour, requests_per_unit: 1000002}, top: {unit: hour, requests_per_unit: 1000003}}}}
  - key: remote_address
`
)

// tierOf is the tier with a limit in tiersApart.
var tierOf = map[uint32]string{1000001: "free", 1000002: "pro", 1000003: "top"}

// A customer is a subject with its API keys.
type customer struct {
	id, tier  string
	disabled  bool
	overrides string // JSON, empty for none
	keys      []string
}

// A customerSource is a server with customers, behind a proxy through which rls calls
// it.
type customerSource struct {
	t     *testing.T
	proxy *servers.Proxy
	env   map[string]string // the settings of rls for it
	// tells is how many messages announce a change of a subject, a new key, and a
	// revoked key. Zero: the source sends no notifications.
	tells  struct{ subject, newKey, revoked int }
	server interface {
		Start()
		Pause()
		Resume()
	}
	kill func()
	// write writes a customer, revoke revokes a key, corrupt makes the customer's
	// record malformed. All announce the change.
	write   func(customer)
	revoke  func(key string)
	corrupt func(customer)
	// repair makes the record well-formed again. Nil: put does.
	repair func(customer)
	// writeAll writes many customers with a key each at once, before an rls runs. Nil: put
	// does.
	writeAll func([]customer)
	// rubbish makes the source answer every lookup with nonsense, or ends that.
	rubbish func(on bool)
	// digest returns the name of a key in the source.
	digest func(key string) string

	customers map[string]customer // as last written, by id
	listening []*edge.RLSServer
}

// eachSource runs a test with customers in each kind of source.
func eachSource(t *testing.T, f func(t *testing.T, h *customerSource)) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *customerSource{
		"postgres": postgresSource, "redis": redisSource, "http": httpSource,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			h.t, h.customers = t, make(map[string]customer)
			if h.digest == nil {
				h.digest = stack.DigestOf
			}
			if h.writeAll == nil {
				h.writeAll = func(all []customer) { h.put(all...) }
			}
			if h.repair == nil {
				h.repair = func(c customer) { h.put(c) }
			}
			f(t, h)
		})
	}
}

func postgresSource(t *testing.T) *customerSource {
	t.Helper()
	s := servers.StartPostgres(t, servers.PostgresOptions{Settings: []string{"log_statement=all", "max_connections=200"}})
	exec := func(sql string, args ...any) {
		t.Helper()
		if err := s.Exec(sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(postgres.Schema)
	exec("GRANT USAGE ON SCHEMA slidegate TO slidegate; GRANT SELECT ON ALL TABLES IN SCHEMA slidegate TO slidegate")
	h := &customerSource{server: s, kill: s.Kill, proxy: servers.StartProxy(t, s.Addr())}
	h.tells.subject, h.tells.newKey, h.tells.revoked = 1, 1, 1
	h.env = map[string]string{
		stack.EnvTiersSource:           "postgres",
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
	h.writeAll = func(all []customer) {
		var ids, tiers, digests []string
		for _, c := range all {
			ids, tiers, digests = append(ids, c.id), append(tiers, c.tier), append(digests, h.digest(c.keys[0]))
		}
		exec("INSERT INTO slidegate.subjects (id, tier) SELECT * FROM unnest($1::text[], $2::text[])", ids, tiers)
		exec("INSERT INTO slidegate.keys (digest, subject) SELECT * FROM unnest($1::text[], $2::text[])", digests, ids)
	}
	h.revoke = func(key string) {
		exec("UPDATE slidegate.keys SET revoked_at = now() WHERE digest = $1", h.digest(key))
	}
	h.corrupt = func(c customer) {
		exec(`UPDATE slidegate.subjects SET overrides = '{"per-key": {"unit": "fortnight"}}' WHERE id = $1`, c.id)
	}
	h.rubbish = func(on bool) {
		if on {
			// As after a failed migration: a column has another type.
			exec("ALTER TABLE slidegate.subjects ALTER COLUMN disabled DROP DEFAULT, ALTER COLUMN disabled TYPE integer USING disabled::integer")
			return
		}
		exec("ALTER TABLE slidegate.subjects ALTER COLUMN disabled TYPE boolean USING disabled = 1, ALTER COLUMN disabled SET DEFAULT false")
	}
	return h
}

func redisSource(t *testing.T) *customerSource {
	t.Helper()
	s := servers.StartRedis(t)
	do := func(args ...string) {
		t.Helper()
		if _, err := s.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	const prefix, channel = "slidegate:tier:", "slidegate:tiers"
	do("SET", prefix+"ready", "1")
	h := &customerSource{server: s, kill: s.Stop, proxy: servers.StartProxy(t, s.Addr())}
	h.tells.subject, h.tells.revoked = 1, 1
	h.env = map[string]string{stack.EnvTiersSource: "redis", "SLIDEGATE_TIERS_REDIS_URL": "redis://" + h.proxy.Addr()}
	h.write = func(c customer) {
		t.Helper()
		do("HSET", prefix+"subject:"+c.id, "tier", c.tier, "disabled", fmt.Sprint(c.disabled), "overrides", c.overrides)
		for _, key := range c.keys {
			do("HSET", prefix+"key:"+h.digest(key), "subject", c.id)
		}
		do("SET", prefix+"ready", "1") // last: a killed server has lost its customers
		do("PUBLISH", channel, `{"subject":"`+c.id+`"}`)
	}
	h.writeAll = func(all []customer) {
		args := []string{"EVAL", `for i = 1, #ARGV, 3 do
			redis.call("HSET", KEYS[1] .. "subject:" .. ARGV[i], "tier", ARGV[i + 1])
			redis.call("HSET", KEYS[1] .. "key:" .. ARGV[i + 2], "subject", ARGV[i])
		end`, "1", prefix}
		for _, c := range all {
			args = append(args, c.id, c.tier, h.digest(c.keys[0]))
		}
		do(args...)
	}
	h.revoke = func(key string) {
		do("HSET", prefix+"key:"+h.digest(key), "revoked", "1")
		do("PUBLISH", channel, h.digest(key))
	}
	h.corrupt = func(c customer) {
		do("SET", prefix+"subject:"+c.id, "a text")
		do("PUBLISH", channel, `{"subject":"`+c.id+`"}`)
	}
	h.repair = func(c customer) {
		do("DEL", prefix+"subject:"+c.id)
		h.put(c)
	}
	h.rubbish = func(on bool) {
		if on {
			do("ACL", "SETUSER", "default", "-hmget") // as after a wrong change of the ACL
			return
		}
		do("ACL", "SETUSER", "default", "+hmget")
	}
	return h
}

func httpSource(t *testing.T) *customerSource {
	t.Helper()
	s := servers.StartCustomers(t)
	h := &customerSource{server: s, kill: s.Stop, proxy: servers.StartProxy(t, s.Addr())}
	h.env = map[string]string{stack.EnvTiersSource: "http", "SLIDEGATE_TIERS_HTTP_URL": "http://" + h.proxy.Addr() + "/lookup"}
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
			s.Rubbish(http.StatusBadGateway, "<html><h1>502 Bad Gateway</h1></html>")
			return
		}
		s.Rubbish(0, "")
	}
	return h
}

// put writes customers. start writes them again after the source has lost its data.
func (h *customerSource) put(all ...customer) {
	h.t.Helper()
	for _, c := range all {
		h.write(c)
		h.customers[c.id] = c
	}
}

// change makes a change that the source announces in the given number of messages, and
// waits until rls has got them. It sends no request.
func (h *customerSource) change(rls *edge.RLSServer, messages int, do func()) {
	h.t.Helper()
	before := stack.Number(h.t, rls, metricPushes)
	do()
	if h.tells.subject > 0 {
		process.Eventually(h.t, "a change to be told", func() bool { return stack.Number(h.t, rls, metricPushes) == before+messages })
	}
}

// update writes one customer with put, and waits as change does.
func (h *customerSource) update(rls *edge.RLSServer, c customer) {
	h.t.Helper()
	messages := h.tells.subject
	if _, ok := h.customers[c.id]; !ok {
		messages += h.tells.newKey * len(c.keys)
	}
	h.change(rls, messages, func() { h.put(c) })
}

// start starts a killed source. No client reaches it before it has its customers
// again.
func (h *customerSource) start() {
	h.t.Helper()
	h.proxy.Refuse(true)
	h.server.Start()
	for _, c := range h.customers {
		h.write(c)
	}
	h.proxy.Refuse(false)
}

// serve starts an rls that uses this source. Unless env says otherwise, records do not
// expire during a test and there is much time for lookups. So rls learns of a change
// only from the source.
func (h *customerSource) serve(rules string, env map[string]string) *edge.RLSServer {
	h.t.Helper()
	all := map[string]string{
		envTiersTTL: "1h", envTiersWait: "10s", envAuthzWait: "10s",
	}
	maps.Copy(all, h.env)
	maps.Copy(all, env)
	rls := edge.RLS(h.t, edge.RLSOptions{Rules: rules, Tiers: threeTiers, Env: all})
	h.listening = append(h.listening, rls)
	h.watched(rls)
	return rls
}

// watched waits until rls gets the notifications of changes, if the source sends any.
func (h *customerSource) watched(rls *edge.RLSServer) {
	h.t.Helper()
	if h.tells.subject > 0 {
		stack.Watching(h.t, rls)
	}
}

// tell announces a change to every rls, for a source that sends no notifications.
func (h *customerSource) tell(change string) {
	h.t.Helper()
	for _, rls := range h.listening {
		invalidate(h.t, rls, change)
	}
}

// invalidate makes an rls look up its records again.
func invalidate(t *testing.T, rls *edge.RLSServer, change string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, rls.Admin()+"/v1/tiers/invalidate", strings.NewReader(change))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+edge.ActToken)
	got, err := stack.NewClient(t, rls.Admin(), "127.0.0.1").Do(req)
	if err != nil || got.Status >= 300 {
		t.Fatalf("invalidate %s: got %d, %v: %s", change, got.Status, err, got.Body)
	}
}

// An askFunc calls an rls with an API key and returns the outcome in a word: a tier,
// or the reason why there is none.
type askFunc func(key string) string

// waysToAsk returns the ways to call an rls with an API key, by name.
func waysToAsk(t *testing.T, rls *edge.RLSServer) map[string]askFunc {
	t.Helper()
	conn := stack.Dial(t, rls)
	limits, authz := rlsv3.NewRateLimitServiceClient(conn), authv3.NewAuthorizationClient(conn)
	return map[string]askFunc{
		"limits": func(key string) string {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			defer cancel()
			out, err := limits.ShouldRateLimit(ctx, stack.Request(1, "api_key="+key, "remote_address=192.0.2.1"))
			switch {
			case err != nil:
				return "error " + status.Code(err).String()
			case out.GetOverallCode() != rlsv3.RateLimitResponse_OK:
				return "denied"
			}
			return tierOf[out.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()]
		},
		"authorization": func(key string) string {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
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

// checked counts the calls of checkOf.
var checked atomic.Uint32

// checkOf returns Envoy's Check of a request with these headers. Each request comes from another
// address, because an address may send few unknown keys.
func checkOf(headers map[string]string) *authv3.CheckRequest {
	n := checked.Add(1)
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: http.MethodGet, Path: "/orders?page=2", Host: "api.example", Headers: headers,
		}},
	}}
}

// upstreamHeader returns the value of a header for the application.
func upstreamHeader(out *authv3.CheckResponse, name string) string {
	for _, h := range out.GetOkResponse().GetHeaders() {
		if h.GetHeader().GetKey() == name {
			return h.GetHeader().GetValue() + string(h.GetHeader().GetRawValue())
		}
	}
	return ""
}

// wantTiers asks in both ways on behalf of a key.
func wantTiers(t *testing.T, ask map[string]askFunc, what, key, limits, authorization string) {
	t.Helper()
	for path, want := range map[string]string{"limits": limits, "authorization": authorization} {
		if got := ask[path](key); got != want {
			t.Errorf("%s: %s: %s: got %q for the next request, want %q", what, path, key, got, want)
		}
	}
}

// TestChangesAreTold changes customers. Each change must apply to the next request.
func TestChangesAreTold(t *testing.T) {
	eachSource(t, func(t *testing.T, h *customerSource) {
		acme := customer{id: "acme", tier: "free", keys: []string{"k-acme-1", "k-acme-2"}}
		h.put(acme)
		rls := h.serve(tiersApart, nil)
		ask := waysToAsk(t, rls)
		want := func(what, key, limits, authorization string) {
			t.Helper()
			wantTiers(t, ask, what, key, limits, authorization)
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

		h.update(rls, customer{id: "new", tier: "pro", keys: []string{"k-new"}})
		want("a customer whose key was asked for before", "k-new", "pro", "pro")
		acme.tier = "top"
		h.update(rls, acme)
		want("an upgrade", "k-acme-1", "top", "top")
		want("an upgrade, with the other key", "k-acme-2", "top", "top")
		acme.tier = "pro"
		h.update(rls, acme)
		want("a downgrade", "k-acme-2", "pro", "pro")
		acme.disabled = true
		h.update(rls, acme)
		want("disabled", "k-acme-1", "free", "403")
		acme.disabled = false
		h.update(rls, acme)
		want("enabled", "k-acme-1", "pro", "pro")
		h.change(rls, h.tells.revoked, func() { h.revoke("k-acme-1") })
		want("a revoked key", "k-acme-1", "free", "401")
		want("the other one", "k-acme-2", "pro", "pro")
	})
}

// quota has limits that a test reaches.
const quota = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, by_tier: {free: {unit: hour, requests_per_unit: 5}, pro: {unit: hour, requests_per_unit: 12}, top: {unit: hour, requests_per_unit: 40}}}}
  - key: remote_address
`

// TestHistoryIsKept changes the tier of a customer who has made requests. Requests
// with any of its keys count against the limit of the present tier.
func TestHistoryIsKept(t *testing.T) {
	eachSource(t, func(t *testing.T, h *customerSource) {
		acme := customer{id: "acme", tier: "free", keys: []string{"k-acme-1", "k-acme-2", "k-acme-3"}}
		h.put(acme)
		rls := h.serve(quota, nil)
		limits := stack.Limiter(t, rls)
		spent := 0
		// spend spends until it is denied, by turns with each key.
		spend := func(what string, limit int) {
			t.Helper()
			for i := 0; ; i++ {
				out, err := limits("api_key="+acme.keys[i%len(acme.keys)], "remote_address=192.0.2.1")
				if err != nil {
					t.Fatal(err)
				}
				if out.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
					break
				}
				spent++
				if got, want := stack.Remaining(out), uint32(limit-spent); got != want {
					t.Errorf("%s: request %d: got %d remaining, want %d", what, spent, got, want)
				}
			}
			if spent != limit {
				t.Errorf("%s: got %d requests in all, want %d", what, spent, limit)
			}
		}
		spend("free", 5)
		acme.tier = "pro"
		h.update(rls, acme)
		spend("pro", 12)
		acme.tier = "free"
		h.update(rls, acme)
		if out, err := limits("api_key="+acme.keys[0], "remote_address=192.0.2.1"); err != nil || out.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("after a downgrade: got %v, %v, want a denial: 12 of 5 are spent", out.GetOverallCode(), err)
		}
		acme.tier, acme.overrides = "top", `{"per-key": {"unit": "hour", "requests_per_unit": 15}}`
		h.update(rls, acme)
		spend("a limit of its own", 15)
		acme.overrides = ""
		h.update(rls, acme)
		spend("top", 40)
	})
}

// TestTwoSecrets has customers with digests of the previous secret, and replaces these
// one by one.
func TestTwoSecrets(t *testing.T) {
	const current, previous = "a-secret-of-these-days", "a-secret-of-the-old-days"
	keyed := func(secret string) func(string) string {
		return func(key string) string {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write([]byte(key))
			return hex.EncodeToString(mac.Sum(nil))
		}
	}
	eachSource(t, func(t *testing.T, h *customerSource) {
		h.digest = keyed(previous)
		acme := customer{id: "acme", tier: "pro", keys: []string{"k-acme-1", "k-acme-2"}}
		h.put(acme)
		rls := h.serve(quota, map[string]string{envSecretsKey: current, envPreviousKey: previous})
		limits, ask := stack.Limiter(t, rls), waysToAsk(t, rls)["authorization"]
		spent := uint32(0)
		want := func(tier string, limit uint32, keys ...string) {
			t.Helper()
			for _, key := range keys {
				spent++
				if out, err := limits("api_key="+key, "remote_address=192.0.2.1"); err != nil || stack.Remaining(out) != limit-spent {
					t.Errorf("%s: got %v, %v, want %d remaining in the log of all keys", key, out, err, limit-spent)
				}
				if got := ask(key); got != tier {
					t.Errorf("%s: got %q, want %s", key, got, tier)
				}
			}
		}
		const byPrevious = "slidegate_tiers_previous_secret_total"
		want("pro", 12, acme.keys...)
		if got := stack.Number(t, rls, byPrevious); got != 4 {
			t.Errorf("%s: got %d, want 4: each request so far", byPrevious, got)
		}
		h.digest = keyed(current)
		h.change(rls, h.tells.subject+2*h.tells.newKey, func() {
			h.put(customer{id: "acme", tier: "top", keys: []string{"k-acme-1", "k-acme-3"}})
		})
		if h.tells.subject == 0 {
			// The endpoint has a record for each key.
			h.digest = keyed(previous)
			h.put(customer{id: "acme", tier: "top", keys: []string{"k-acme-2"}})
		}
		want("top", 40, "k-acme-1", "k-acme-2", "k-acme-3")
		before := stack.Number(t, rls, byPrevious)
		want("top", 40, "k-acme-1", "k-acme-3")
		if got := stack.Number(t, rls, byPrevious); got != before {
			t.Errorf("%s: got %d more for keys that have a digest of now, want none", byPrevious, got-before)
		}
		if got := ask("k-unknown"); got != "401" {
			t.Errorf("an unknown key: got %q, want 401", got)
		}
	})
}

// runFault makes one fault and ends it.
func (h *customerSource) runFault(f fault, n int, rls, strict *edge.RLSServer, l *tierLoad) {
	t := h.t
	t.Helper()
	both := []*edge.RLSServer{rls, strict}
	before := stateChanges(rls)
	stale, unavailable := stack.Number(t, rls, metricStale), stack.Number(t, rls, metricUnavailable)
	l.healthy("healthy before " + f.name)

	f.make(h)
	// All records are looked up again, as if they had expired.
	for _, r := range both {
		invalidate(t, r, `{"all":true}`)
	}
	if f.opens {
		process.Eventually(t, f.name+": the source not to be asked", func() bool { return stack.Metric(t, rls, metricOpen) == "1" })
	}
	l.phase(f.name)
	l.want(map[string][]string{"limits": {"free"}, "authorization": {"no decision"}})
	if got := stack.Number(t, rls, metricStale); got <= stale {
		t.Errorf("%s: %s: got %d, want more than the %d before", f.name, metricStale, got, stale)
	}
	if got := stack.Number(t, rls, metricUnavailable); got <= unavailable {
		t.Errorf("%s: %s: got %d, want more than the %d before", f.name, metricUnavailable, got, unavailable)
	}
	for path, ask := range waysToAsk(t, strict) {
		if got := ask("k-0-a"); got != h.customers["c0"].tier {
			t.Errorf("%s: on_error deny: %s: got %q for a known customer, want %q", f.name, path, got, h.customers["c0"].tier)
		}
		want := map[string]string{"limits": "denied", "authorization": "no decision"}[path]
		if got := ask("k-made-up-" + path + strconv.Itoa(n)); got != want {
			t.Errorf("%s: on_error deny: %s: got %q for an unknown key, want %q", f.name, path, got, want)
		}
	}

	// A new customer and another tier, during the fault or right after it.
	fresh := customer{id: "new-" + strconv.Itoa(n), tier: "pro", keys: []string{"k-new-" + strconv.Itoa(n)}}
	changed := h.customers["c1"]
	changed.tier = map[string]string{"top": "pro", "pro": "top"}[changed.tier]
	l.phase("changing")
	l.forget(changed)
	l.phase(f.name + " ends")
	if !f.gone {
		h.put(fresh, changed)
		f.end(h)
	} else {
		h.customers[fresh.id], h.customers[changed.id] = fresh, changed
		f.end(h)
		h.put(fresh, changed)
	}
	for _, r := range both {
		asks := waysToAsk(t, r)
		process.Eventually(t, f.name+" over: the source to be asked", func() bool {
			asks["authorization"]("k-made-up") // strict has no other load
			return stack.Metric(t, r, metricOpen) == "0"
		})
		h.watched(r)
		for path, ask := range asks {
			process.Eventually(t, f.name+" over: a new customer "+path, func() bool { return ask(fresh.keys[0]) == "pro" })
			process.Eventually(t, f.name+" over: a new tier "+path, func() bool { return ask(changed.keys[0]) == changed.tier })
		}
	}
	// strict gets few requests, so it may not have noticed. On a busy machine lookups may be late for
	// long enough to stop rls from asking once more.
	for _, is := range []struct {
		no, again string
		want      bool
	}{{sourceDown, sourceUp, f.opens}, {tellsNot, tellsAgain, f.cuts && h.tells.subject > 0}} {
		process.Eventually(t, fmt.Sprintf("%s: as many log lines %q as %q", f.name, is.no, is.again), func() bool {
			after := stateChanges(rls)
			no, again := after[is.no]-before[is.no], after[is.again]-before[is.again]
			return no == again && (no > 0 || !is.want)
		})
	}
}

// wantNoTrace is the test for one source and one store.
func (h *customerSource) wantNoTrace(store string) {
	t := h.t
	t.Helper()
	p, e := make(plantedKeys), new(evidence)
	acme := customer{id: "acme", tier: "pro", keys: []string{p.at("a customer's")}}
	h.put(acme, customer{id: "gone", tier: "pro", disabled: true, keys: []string{p.at("a disabled customer's")}})

	env := secretSettings()
	var logs *servers.RedisServer
	snapshot := filepath.Join(t.TempDir(), "logs")
	if store == "redis" {
		logs = servers.StartRedis(t)
		maps.Copy(env, stack.OnRedis(logs.Addr()))
		env[stack.EnvStoreTimeout] = "100ms"
		e.watch(t, "what the Redis of the store was told", logs.Addr())
	} else {
		env[stack.EnvSnapshot] = snapshot
	}
	if s, ok := h.server.(*servers.RedisServer); ok {
		e.watch(t, "what the Redis of the source was told", s.Addr())
	}
	env[envTiersWait], env[envAuthzWait] = "200ms", "200ms"
	rls := h.serve(secretRules(p), env)

	sendKeysEverywhere(t, rls, p, e)
	if got := stack.Number(t, rls, `slidegate_authorizations_total{result="authenticated"}`); got == 0 {
		t.Error("no key was recognised")
	}
	h.rubbish(true)
	invalidate(t, rls, `{"all":true}`)
	sendKeysEverywhere(t, rls, p, e)
	h.rubbish(false)
	if s, ok := h.server.(*servers.CustomersServer); ok {
		// It quotes what it was asked, as some do.
		for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
			s.Rubbish(status, `{"subject": "acme", "tier": 5, "error": "no such key: `+acme.keys[0]+`", "`+acme.keys[0]+`": 1}`)
			invalidate(t, rls, `{"all":true}`)
			sendKeysEverywhere(t, rls, p, e)
		}
		s.Rubbish(0, "")
	}
	h.collectFromSource(e)
	h.kill()
	if logs != nil {
		for key, text := range redisTexts(t, logs.Addr()) {
			e.add("the Redis of the store", key, text)
		}
		logs.Pause()
	}
	invalidate(t, rls, `{"all":true}`)
	sendKeysEverywhere(t, rls, p, e)
	if logs != nil {
		logs.Resume()
	}
	e.recordPages(t, rls)
	for _, key := range []string{acme.keys[0], p.at("a disabled customer's")} {
		got := edge.Run(t, edge.RLSOptions{Env: map[string]string{"SLIDEGATE_ADMIN_TOKEN": edge.ActToken}}, "", "usage", "--json", "--admin", rls.Admin(), "--digest", stack.DigestOf(key))
		e.add("rls usage", got.Stdout, got.Stderr)
	}
	e.recordLog(t, rls)
	if store == "memory" {
		kept, err := os.ReadFile(snapshot)
		if err != nil || len(kept) == 0 {
			t.Errorf("the snapshot: got %d bytes, %v", len(kept), err)
		}
		e.add("the snapshot", string(kept))
	}
	e.wantNoKeys(t, p)
}

// collectFromSource records what the source has. A source that is asked by keys must
// have them, which also proves that the search finds keys.
func (h *customerSource) collectFromSource(e *evidence) {
	t := h.t
	t.Helper()
	switch s := h.server.(type) {
	case *servers.PostgresServer:
		e.add("the log of PostgreSQL", s.Output())
		for _, sql := range []string{
			"SELECT coalesce(string_agg(a::text, ' '), '') FROM pg_stat_activity a",
			"SELECT coalesce(string_agg(k::text, ' '), '') FROM slidegate.keys k",
			"SELECT coalesce(string_agg(s::text, ' '), '') FROM slidegate.subjects s",
		} {
			text, err := s.Text(sql)
			if err != nil || text == "" {
				t.Errorf("%s: got %q, %v", sql, text, err)
			}
			e.add("PostgreSQL", text)
		}
		if !strings.Contains(s.Output(), stack.DigestOf(h.customers["acme"].keys[0])) {
			t.Error("the log of PostgreSQL does not have what it was asked for")
		}
	case *servers.RedisServer:
		for key, text := range redisTexts(t, s.Addr()) {
			e.add("the Redis of the source", key, text)
		}
	case *servers.CustomersServer:
		bodies := e
		if h.env["SLIDEGATE_TIERS_HTTP_SEND"] == "key" {
			bodies = new(evidence)
		}
		for _, q := range s.Asked() {
			e.add("the URLs and headers of the HTTP source", q.Target, q.Header)
			bodies.add("the HTTP source", q.Body)
		}
		if bodies != e && len(bodies.of(h.customers["acme"].keys[0])) == 0 {
			t.Error("the source that is asked by keys was not sent a customer's")
		}
	}
}
