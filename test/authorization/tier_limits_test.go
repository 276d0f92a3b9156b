package authorization

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/stack"
)

// carryingTiers carry limits of 2 and 3 an hour. Those of the last two are in PostgreSQL.
const carryingTiers = `
default: two
tiers:
  two: {limit: {unit: hour, requests_per_unit: 2}}
  three: {limit: {unit: Hour, requests_per_unit: 3}, limits: {tokens: {unit: day, requests_per_unit: 7}}}
  four: {limit: {unit: hour, requests_per_unit: 1}}
  five:
  none:
`

// TestTierLimits lets Envoy send the limit that the tier of a customer carries in place of that of the
// rule. Each of many customers gets the limit of its tier exactly; a change of its plan counts at once
// and keeps what was spent.
func TestTierLimits(t *testing.T) {
	t.Parallel()
	pg, env := startCustomerDatabase(t)
	n := random.Steps(t, 40, 10_000)
	stack.Execute(t, pg, fmt.Sprintf(`INSERT INTO slidegate.subjects (id, tier)
		SELECT 'c' || i, (ARRAY['two', 'three', 'four', 'five'])[i %% 4 + 1] FROM generate_series(0, %d) AS i`, n))
	stack.Execute(t, pg, `INSERT INTO slidegate.keys (digest, subject)
		SELECT encode(sha256(('key-' || id)::bytea), 'hex'), id FROM slidegate.subjects`)
	stack.Execute(t, pg, `INSERT INTO slidegate.tiers VALUES ('four', '{"limit": {"unit": "hour", "requests_per_unit": 4}}'),
		('five', '{"limit": {"unit": "hour", "requests_per_unit": 5}}')`)
	// Before Envoy 1.39 a limit may come only with the rate_limits of a route itself.
	const (
		before = `                route: {cluster: upstream, timeout: 15s}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
                    - actions:
                      - metadata: {descriptor_key: subject, source: DYNAMIC, metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: subject}]}}
                    - actions:
                      - metadata: {descriptor_key: tier, source: DYNAMIC, metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: tier}]}}
                    - actions:
                      - remote_address: {}

`
		after = `                route:
                  cluster: upstream
                  rate_limits:
                  - actions:
                    - metadata: {descriptor_key: subject, source: DYNAMIC, metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: subject}]}}
                    limit: {dynamic_metadata: {metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: limit}]}}}

`
	)
	s := stack.Setup{
		Rules: `{domain: edge, descriptors: [{key: subject, rate_limit: {name: customer, unit: hour, requests_per_unit: 6}}]}`,
		Tiers: carryingTiers, Config: stack.AuthorizationConfig, Env: env,
		Change: map[string]string{before: after},
	}.Start(t)
	stack.Watching(t, s.RLS)

	var wg sync.WaitGroup
	for w, c := range s.Clients(4) {
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				key := fmt.Sprint("key-c", i)
				for asked := range i%4 + 3 {
					want := 200
					if asked == i%4+2 {
						want = 429
					}
					got, err := c.Try(t.Context(), "/", "x-api-key", key, "x-subject-id", "c0")
					if err != nil || got.Status != want {
						t.Errorf("customer %d, request %d: got %d, %v; want %d", i, asked+1, got.Status, err, want)
						return
					}
				}
			}
		})
	}
	wg.Wait()

	c := s.From("127.0.0.1")
	c.Want(401, 1, "/", "x-api-key", "planted-unknown")
	becomes := func(what string, status int, key string, limit int) {
		t.Helper()
		process.Eventually(t, what, func() bool {
			got := c.Get("/", "x-api-key", key)
			return got.Status == status && (status == 200 || stack.ProblemOf(t, got).Limit == limit)
		})
	}
	stack.Execute(t, pg, `UPDATE slidegate.subjects SET tier = 'three' WHERE id = 'c0'`)
	becomes("the upgrade", 200, "key-c0", 0)
	c.Want(429, 1, "/", "x-api-key", "key-c0") // two were spent before it
	stack.Execute(t, pg, `UPDATE slidegate.subjects SET tier = 'two' WHERE id = 'c0'`)
	becomes("the downgrade", 429, "key-c0", 2)
	for _, who := range [][]string{{"c0"}, {"--descriptor", "edge/subject=c0"}} {
		got := edge.Run(t, edge.RLSOptions{Env: map[string]string{"SLIDEGATE_ADMIN_TOKEN": edge.ActToken}}, "", append([]string{"usage", "--admin", s.RLS.Admin()}, who...)...)
		if !strings.Contains(got.Stdout, "2 per 1h") || !strings.Contains(got.Stdout, "carried by the tier, as limit") || !strings.Contains(got.Stdout, "Used up") {
			t.Errorf("rls usage %v does not show the limit of the tier:\n%s%s", who, got.Stdout, got.Stderr)
		}
	}
	stack.Execute(t, pg, `UPDATE slidegate.tiers SET limits = '{"limit": {"unit": "hour", "requests_per_unit": 7}}' WHERE name = 'five'`)
	becomes("another limit of a tier", 200, "key-c3", 0)
	c.Want(200, 1, "/", "x-api-key", "key-c3")
	c.Want(429, 1, "/", "x-api-key", "key-c3")
	// A tier that carries nothing leaves the limit of the rule.
	stack.Execute(t, pg, `UPDATE slidegate.subjects SET tier = 'none' WHERE id = 'c1'`)
	becomes("the limit of the rule", 200, "key-c1", 0)
	c.Want(200, 5, "/", "x-api-key", "key-c1")
	c.Want(429, 1, "/", "x-api-key", "key-c1")
	s.WantAllDecided()
}
