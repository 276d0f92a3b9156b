package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/deploy/postgres"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
)

// tierNames is a tiers file without subjects.
const tierNames = `
tiers: [free, starter]
default: free
`

// startCustomerDatabase starts a PostgreSQL with the tables of rls and one customer,
// and returns the settings of an rls that uses it. Records in the cache of rls do not
// expire during a test. The timeouts are long for the reason of patientEnvoy.
func startCustomerDatabase(t *testing.T) (pg *servers.PostgresServer, settings map[string]string) {
	t.Helper()
	pg = servers.StartPostgres(t, servers.PostgresOptions{})
	execute(t, pg, postgres.Schema)
	execute(t, pg, `GRANT USAGE ON SCHEMA slidegate TO slidegate`)
	execute(t, pg, `GRANT SELECT ON slidegate.subjects, slidegate.keys TO slidegate`)
	execute(t, pg, `INSERT INTO slidegate.subjects (id, tier) VALUES ('acme', 'free')`)
	execute(t, pg, `INSERT INTO slidegate.keys (digest, subject) VALUES ($1, 'acme')`, digestOf("acme-old-key"))
	return pg, map[string]string{
		envTrustedEntry:                "tier",
		envTiersSource:                 "postgres",
		"SLIDEGATE_TIERS_POSTGRES_URL": pg.URL(),
		"SLIDEGATE_TIERS_WAIT":         "10s",
		"SLIDEGATE_AUTHZ_WAIT":         "10s",
		"SLIDEGATE_TIERS_CACHE_TTL":    "1h",
	}
}

func execute(t *testing.T, pg *servers.PostgresServer, sql string, args ...any) {
	t.Helper()
	if err := pg.Exec(sql, args...); err != nil {
		t.Fatalf("%.60s: %v", sql, err)
	}
}

// watching waits until rls gets the notifications of changes.
func watching(t *testing.T, rls *edge.RLSServer) {
	t.Helper()
	eventually(t, "rls to listen for changes", func() bool { return metric(t, rls, "slidegate_tiers_watching") == "1" })
}

// TestAChangeInPostgresCounts changes a customer in every way. Records in the cache of
// rls last for an hour, so rls learns of the changes from the database.
func TestAChangeInPostgresCounts(t *testing.T) {
	eachWay(t, func(t *testing.T, config string) {
		pg, env := startCustomerDatabase(t)
		s := setup{rules: authorized, tiers: tierNames, config: config, env: env}.start(t)
		watching(t, s.rls)
		c := s.from("127.0.0.1")
		becomes := func(status int, key string) (got answer) {
			t.Helper()
			eventually(t, "a "+http.StatusText(status), func() bool {
				got = c.get("/", "x-api-key", key)
				return got.status == status
			})
			return got
		}

		c.want(200, 3, "/", "x-api-key", "acme-old-key")
		c.want(429, 1, "/", "x-api-key", "acme-old-key")

		// 3 of 6 are spent. The first one that passes is the fourth: denials are free.
		execute(t, pg, `UPDATE slidegate.subjects SET tier = 'starter'`)
		got := becomes(200, "acme-old-key")
		if r := got.header.Get("RateLimit"); !strings.Contains(r, ";r=2;") {
			t.Errorf("after the upgrade: got RateLimit %s, want 2 remaining", r)
		}
		if h := s.app.last(t).Header.Get("X-Tier"); h != "starter" {
			t.Errorf("X-Tier after the upgrade: got %q, want starter", h)
		}

		// 4 of 3 are spent.
		execute(t, pg, `UPDATE slidegate.subjects SET tier = 'free'`)
		eventually(t, "the downgrade", func() bool {
			got := c.get("/", "x-api-key", "acme-old-key")
			return got.status == 429 && problemOf(t, got).Limit == 3
		})

		// A limit of its own.
		execute(t, pg, `UPDATE slidegate.subjects SET labels = '{"region": "eu"}',
			overrides = '{"per-subject": {"window": "1h", "requests": 20}, "per-key": {"window": "1h", "requests": 20}}'`)
		becomes(200, "acme-old-key")

		// Keys are added and revoked, also one that rls has found to be unknown.
		c.want(401, 1, "/", "x-api-key", "acme-new-key")
		execute(t, pg, `INSERT INTO slidegate.keys (digest, subject) VALUES ($1, 'acme')`, digestOf("acme-new-key"))
		becomes(200, "acme-new-key")
		execute(t, pg, `UPDATE slidegate.keys SET revoked_at = now() WHERE digest = $1`, digestOf("acme-old-key"))
		becomes(401, "acme-old-key")
		c.want(200, 1, "/", "x-api-key", "acme-new-key")

		execute(t, pg, `UPDATE slidegate.subjects SET disabled = true`)
		becomes(403, "acme-new-key")
		execute(t, pg, `DELETE FROM slidegate.subjects`)
		becomes(401, "acme-new-key")
		s.wantAllDecided()
	})
}

// TestPostgresIsAway sends requests of known and unknown customers while PostgreSQL is
// down. One rls has an Envoy of each kind in front.
func TestPostgresIsAway(t *testing.T) {
	t.Parallel()
	pg, env := startCustomerDatabase(t)
	// Short, so that what is known has expired.
	env["SLIDEGATE_TIERS_CACHE_TTL"] = "10ms"
	rls := setup{rules: authorized, tiers: tierNames, env: env}.serve(t)
	watching(t, rls)
	type edge struct {
		*stack
		unknown string // an unknown key
		open    bool   // failure_mode_allow
	}
	var edges []edge
	for _, config := range []string{authorizationConfig, oneHopConfig} {
		for _, mode := range []string{"false", "true"} {
			e := edge{&stack{t: t, app: newApplication(t), rls: rls}, fmt.Sprintf("planted-%d", len(edges)), mode == "true"}
			setup{config: config, change: map[string]string{"failure_mode_allow: false": "failure_mode_allow: " + mode}}.startEnvoy(e.stack)
			edges = append(edges, e)
		}
	}
	for _, e := range edges {
		e.from("127.0.0.1").want(200, 1, "/", "x-api-key", "acme-old-key")
		e.from("127.0.0.1").want(401, 1, "/", "x-api-key", "planted-unknown")
	}

	pg.Kill()
	eventually(t, "an answer from a record that has expired", func() bool {
		for _, e := range edges {
			if got := e.get("/", "x-api-key", "acme-old-key"); got.status != 200 && got.status != 429 {
				t.Fatalf("a known key: got %d, want 200 or, by its limit, 429", got.status)
			}
		}
		stale := metric(t, rls, `slidegate_tiers_answers_total{from="stale"}`)
		return stale != "" && stale != "0"
	})
	for _, e := range edges {
		c := e.from("127.0.0.1")
		// The known one's limits hold too.
		for range 3 {
			c.get("/", "x-api-key", "acme-old-key")
		}
		c.want(429, 1, "/", "x-api-key", "acme-old-key")

		got := c.get("/stranger", "x-api-key", e.unknown, "x-subject-id", "bigco")
		want := []any{503, `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The API key cannot be checked now.","reason":"unavailable"}`, "1", "application/problem+json"}
		switch {
		case envoyVersion(t)[1] < 37:
			// This Envoy takes "could not decide" for a denial, and makes up a status.
			want = []any{403, "", "", ""}
		case e.open:
			want = []any{200, appBody, "", appContentType}
			if h := e.app.last(t).Header.Values("X-Subject-Id"); len(h) > 0 {
				t.Errorf("X-Subject-Id at the application: got %q, want none: rls has not set it", h)
			}
		}
		if diff := cmp.Diff(want, []any{got.status, got.body, got.header.Get("Retry-After"), got.header.Get("Content-Type")}); diff != "" {
			t.Errorf("a key that rls does not know, %s: status, body, Retry-After, type (-want +got):\n%s", e.unknown, diff)
		}
	}

	pg.Start()
	eventually(t, "answers from PostgreSQL", func() bool {
		return edges[0].get("/", "x-api-key", edges[0].unknown).status == http.StatusUnauthorized
	})
}
