package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
)

// authorization lets Envoy ask the rate-limit service whose key a request has.
const authorization = `apiVersion: v1
kind: ConfigMap
metadata: {name: rls, namespace: default}
data: {ca.crt: %q}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: rls, namespace: default}
spec:
  endpoints: [{fqdn: {hostname: envoy-ratelimit.envoy-gateway-system.svc.cluster.local, port: 8081}}]
  tls:
    sni: envoy-ratelimit.envoy-gateway-system
    caCertificateRefs: [{group: "", kind: ConfigMap, name: rls}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: keys, namespace: default}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: backend}]
  extAuth:
    timeout: 20s
    headersToExtAuth: [x-api-key]
    grpc: {backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: rls}]}
`

// perSubject is the one rule for all customers: n an hour, unless the tier carries a limit.
func perSubject(n int) string {
	return fmt.Sprintf("{clientSelectors: [{headers: [{name: x-subject-id, type: Distinct}]}], limit: "+
		"{requests: %d, unit: Hour, fromMetadata: {namespace: envoy.filters.http.ext_authz, key: limit}}}", n)
}

// startTiers starts a stack whose n customers are those of servers.StartTiers.
func startTiers(t *testing.T, rules string, n int, prepare func(*pod)) (stack, *servers.PostgresServer) {
	t.Helper()
	pg := servers.StartTiers(t, n)
	s := start(t, rules, func(e *controlPlane, p *pod) {
		e.write("resources/authorization.yaml", fmt.Sprintf(authorization, e.certificates("envoy-rate-limit")["ca.crt"]))
		p.write("etc/slidegate/tiers.yaml", []byte(servers.TiersFile), 0o644)
		p.env = append(p.env, "SLIDEGATE_TIERS_SOURCE=postgres", "SLIDEGATE_TIERS_PATH=/etc/slidegate/tiers.yaml",
			"SLIDEGATE_TIERS_POSTGRES_URL="+strings.Replace(pg.URL(), "127.0.0.1", nodeIP, 1), "SLIDEGATE_TIERS_POSTGRES_TLS_MODE=disable",
			"SLIDEGATE_TIERS_WAIT=10s", "SLIDEGATE_AUTHZ_WAIT=10s")
		if prepare != nil {
			prepare(p)
		}
	})
	return s, pg
}

// becomes asks until a customer gets a status, or any if it is 0, with a limit of n an hour.
func (s stack) becomes(q request, status, n int) {
	s.t.Helper()
	s.wait(func() error {
		got, headers, err := s.get(q)
		if limit := headers.Get(limitHeader); err == nil && (status != 0 && got != status || limit != fmt.Sprintf("%d, %d;w=3600", n, n)) {
			err = fmt.Errorf("got status %d with the limit %q, want %d with %d", got, limit, status, n)
		}
		return err
	})
}

// TestTiers proves that one rule gives each customer the limit of its tier exactly, and that a change of
// its plan counts at once and keeps what was spent. It lasts through a restart of rls and a changed
// policy.
func TestTiers(t *testing.T) {
	n := random.Steps(t, 100, 10_000)
	s, pg := startTiers(t, perSubject(100), n, nil)
	exec := func(sql string) {
		t.Helper()
		if err := pg.Exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	s.becomes(request{key: "key-probe"}, ok, 2)

	passed := servers.SpendTiers(t, n, func(client *http.Client, key string) (int, error) {
		status, _, err := s.get(request{key: key, subject: "c0", client: client}) // its own header changes nothing
		return status, err
	})
	t.Logf("%d customers, %d of each tier: %v requests passed", n, n/4, passed)

	c0, plain := request{key: "key-c0"}, request{key: "key-plain"}
	s.want(request{key: "key-nobodys"}, http.StatusUnauthorized)
	s.want(request{subject: "c1"}, http.StatusUnauthorized)
	s.becomes(request{key: "key-odd"}, ok, 2) // an unknown tier counts as the default one
	s.becomes(plain, ok, 100)                 // its tier carries nothing
	exec(`UPDATE slidegate.subjects SET tier = 'three' WHERE id = 'c0'`)
	s.becomes(c0, ok, 3)
	s.want(c0, denied) // two were spent before
	exec(`UPDATE slidegate.subjects SET tier = 'two' WHERE id = 'c0'`)
	s.becomes(c0, denied, 2)
	exec(`UPDATE slidegate.tiers SET limits = '{"limit": {"unit": "hour", "requests_per_unit": 7}}' WHERE name = 'five'`)
	s.becomes(request{key: "key-c3"}, ok, 7)
	s.want(request{key: "key-c3"}, ok, denied)

	s.policy(perSubject(50))
	s.becomes(plain, 0, 50)
	s.becomes(c0, denied, 2)

	_ = s.pod.process.Signal(syscall.SIGTERM) // an error means that it has ended
	if _, err := s.pod.process.Wait(); err != nil {
		t.Errorf("the end of rls: %v", err)
	}
	s.pod.start()
	s.becomes(c0, denied, 2)
	s.want(request{key: "key-c4"}, denied)
}

// TestTiersOf gives the rules that Envoy Gateway sends limits by tier, from a file beside them.
func TestTiersOf(t *testing.T) {
	const file = `rules: [{domain: "*", path: "*/rule-0-match-0", by_tier: {default: {unit: hour, requests_per_unit: %d}, three: {unit: hour, requests_per_unit: 3}}}]`
	rule := strings.Replace(perUser(100), "x-user-id", "x-subject-id", 1)
	s, pg := startTiers(t, rule, 4, func(p *pod) {
		p.write("etc/slidegate/tiers-of.yaml", fmt.Appendf(nil, file, 2), 0o644)
		p.env = append(p.env, "SLIDEGATE_RULES_TIERS_OF=/etc/slidegate/tiers-of.yaml")
	})
	c0, c1 := request{key: "key-c0"}, request{key: "key-c1"}
	s.becomes(request{key: "key-probe"}, ok, 2)
	s.want(c0, ok, ok, denied)
	s.want(c1, ok, ok, ok, denied)
	if err := pg.Exec(`UPDATE slidegate.subjects SET tier = 'three' WHERE id = 'c0'`); err != nil {
		t.Fatal(err)
	}
	s.becomes(c0, ok, 3)
	s.want(c0, denied)
	s.pod.write("etc/slidegate/tiers-of.yaml", fmt.Appendf(nil, file, 9), 0o644)
	s.becomes(request{key: "key-c2"}, ok, 9)
}
