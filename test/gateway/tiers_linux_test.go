package gateway

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/slidegate/slidegate/deploy/postgres"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
)

// carrying is a tiers file. The limits of the last two tiers are in PostgreSQL.
const carrying = `default: two
tiers:
  two: {limit: {unit: hour, requests_per_unit: 2}}
  three: {limit: {unit: hour, requests_per_unit: 3}}
  four:
  five:
  none:
`

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

// startTiers starts a stack with n customers of four tiers in PostgreSQL, with the keys key-c0, key-c1
// and so on.
func startTiers(t *testing.T, rules string, n int, prepare func(*pod)) (stack, *servers.PostgresServer) {
	t.Helper()
	access := filepath.Join(t.TempDir(), "pg_hba.conf")
	err := os.WriteFile(access, []byte("local all all trust\nhost all all 0.0.0.0/0 trust\n"), 0o644)
	for dir := filepath.Dir(access); err == nil && dir != os.TempDir(); dir = filepath.Dir(dir) {
		err = os.Chmod(dir, 0o755) // PostgreSQL is another user
	}
	if err != nil {
		t.Fatal(err)
	}
	pg := servers.StartPostgres(t, servers.PostgresOptions{Settings: []string{"listen_addresses=0.0.0.0", "hba_file=" + access}})
	for _, sql := range []string{
		postgres.Schema,
		"GRANT USAGE ON SCHEMA slidegate TO slidegate",
		"GRANT SELECT ON slidegate.subjects, slidegate.keys, slidegate.tiers TO slidegate",
		fmt.Sprintf(`INSERT INTO slidegate.subjects (id, tier)
			SELECT 'c' || i, (ARRAY['two', 'three', 'four', 'five'])[i %% 4 + 1] FROM generate_series(0, %d) AS i`, n-1),
		`INSERT INTO slidegate.subjects (id, tier) VALUES ('probe', 'two'), ('plain', 'none'), ('odd', 'unknown')`,
		`INSERT INTO slidegate.keys (digest, subject) SELECT encode(sha256(('key-' || id)::bytea), 'hex'), id FROM slidegate.subjects`,
		`INSERT INTO slidegate.tiers VALUES ('four', '{"limit": {"unit": "hour", "requests_per_unit": 4}}'),
			('five', '{"limit": {"unit": "hour", "requests_per_unit": 5}}')`,
	} {
		if err := pg.Exec(sql); err != nil {
			t.Fatalf("gateway: %.40s: %v", sql, err)
		}
	}
	s := start(t, rules, func(e *controlPlane, p *pod) {
		e.write("resources/authorization.yaml", fmt.Sprintf(authorization, e.certificates("envoy-rate-limit")["ca.crt"]))
		p.write("etc/slidegate/tiers.yaml", []byte(carrying), 0o644)
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

	var wg sync.WaitGroup
	passed := make([]int, 4)
	for w := range passed { // each worker has one tier
		wg.Go(func() {
			client := &http.Client{Transport: new(http.Transport), Timeout: process.Timeout}
			defer client.CloseIdleConnections()
			for i := w; i < n; i += len(passed) {
				for asked := range w + 3 {
					want := ok
					if asked == w+2 {
						want = denied
					}
					q := request{key: fmt.Sprint("key-c", i), subject: "c0", client: client} // its own header changes nothing
					got, _, err := s.get(q)
					if err != nil || got != want {
						t.Errorf("customer %d, request %d: got %d, %v; want %d", i, asked+1, got, err, want)
						return
					}
					if got == ok {
						passed[w]++
					}
				}
			}
		})
	}
	wg.Wait()
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
