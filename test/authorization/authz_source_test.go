package authorization

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/deploy/postgres"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// startCustomerDatabase starts a PostgreSQL with the tables of rls and one customer,
// and returns the settings of an rls that uses it. Records in the cache of rls do not
// expire during a test. The timeouts are long for the reason of stack.PatientEnvoy.
func startCustomerDatabase(t *testing.T) (pg *servers.PostgresServer, settings map[string]string) {
	t.Helper()
	pg = servers.StartPostgres(t, servers.PostgresOptions{})
	stack.Execute(t, pg, postgres.Schema)
	stack.Execute(t, pg, `GRANT USAGE ON SCHEMA slidegate TO slidegate`)
	stack.Execute(t, pg, `GRANT SELECT ON slidegate.subjects, slidegate.keys, slidegate.tiers TO slidegate`)
	stack.Execute(t, pg, `INSERT INTO slidegate.subjects (id, tier) VALUES ('acme', 'free')`)
	stack.Execute(t, pg, `INSERT INTO slidegate.keys (digest, subject) VALUES ($1, 'acme')`, stack.DigestOf("acme-old-key"))
	return pg, map[string]string{
		stack.EnvTrustedEntry:          "tier",
		stack.EnvTiersSource:           "postgres",
		"SLIDEGATE_TIERS_POSTGRES_URL": pg.URL(),
		"SLIDEGATE_TIERS_WAIT":         "10s",
		"SLIDEGATE_AUTHZ_WAIT":         "10s",
		"SLIDEGATE_TIERS_CACHE_TTL":    "1h",
	}
}

// TestAChangeInPostgresCounts changes a customer in every way. Records in the cache of
// rls last for an hour, so rls learns of the changes from the database.
func TestAChangeInPostgresCounts(t *testing.T) {
	eachWay(t, func(t *testing.T, config string) {
		pg, env := startCustomerDatabase(t)
		s := stack.Setup{Rules: stack.Authorized, Tiers: stack.TierNames, Config: config, Env: env}.Start(t)
		stack.Watching(t, s.RLS)
		c := s.From("127.0.0.1")
		becomes := func(status int, key string) (got stack.Answer) {
			t.Helper()
			process.Eventually(t, "a "+http.StatusText(status), func() bool {
				got = c.Get("/", "x-api-key", key)
				return got.Status == status
			})
			return got
		}

		c.Want(200, 3, "/", "x-api-key", "acme-old-key")
		c.Want(429, 1, "/", "x-api-key", "acme-old-key")

		// 3 of 6 are spent. The first one that passes is the fourth: denials are free.
		stack.Execute(t, pg, `UPDATE slidegate.subjects SET tier = 'starter'`)
		got := becomes(200, "acme-old-key")
		if r := got.Header.Get("RateLimit"); !strings.Contains(r, ";r=2;") {
			t.Errorf("after the upgrade: got RateLimit %s, want 2 remaining", r)
		}
		if h := s.App.Last(t).Header.Get("X-Tier"); h != "starter" {
			t.Errorf("X-Tier after the upgrade: got %q, want starter", h)
		}

		// 4 of 3 are spent.
		stack.Execute(t, pg, `UPDATE slidegate.subjects SET tier = 'free'`)
		process.Eventually(t, "the downgrade", func() bool {
			got := c.Get("/", "x-api-key", "acme-old-key")
			return got.Status == 429 && stack.ProblemOf(t, got).Limit == 3
		})

		// A limit of its own.
		stack.Execute(t, pg, `UPDATE slidegate.subjects SET labels = '{"region": "eu"}',
			overrides = '{"per-subject": {"window": "1h", "requests": 20}, "per-key": {"window": "1h", "requests": 20}}'`)
		becomes(200, "acme-old-key")

		// Keys are added and revoked, also one that rls has found to be unknown.
		c.Want(401, 1, "/", "x-api-key", "acme-new-key")
		stack.Execute(t, pg, `INSERT INTO slidegate.keys (digest, subject) VALUES ($1, 'acme')`, stack.DigestOf("acme-new-key"))
		becomes(200, "acme-new-key")
		stack.Execute(t, pg, `UPDATE slidegate.keys SET revoked_at = now() WHERE digest = $1`, stack.DigestOf("acme-old-key"))
		becomes(401, "acme-old-key")
		c.Want(200, 1, "/", "x-api-key", "acme-new-key")

		stack.Execute(t, pg, `UPDATE slidegate.subjects SET disabled = true`)
		becomes(403, "acme-new-key")
		stack.Execute(t, pg, `DELETE FROM slidegate.subjects`)
		becomes(401, "acme-new-key")
		s.WantAllDecided()
	})
}

// TestPostgresIsAway sends requests of known and unknown customers while PostgreSQL is
// down. One rls has an Envoy of each kind in front.
func TestPostgresIsAway(t *testing.T) {
	t.Parallel()
	pg, env := startCustomerDatabase(t)
	// Short, so that what is known has expired.
	env["SLIDEGATE_TIERS_CACHE_TTL"] = "10ms"
	rls := stack.Setup{Rules: stack.Authorized, Tiers: stack.TierNames, Env: env}.Serve(t)
	stack.Watching(t, rls)
	type edge struct {
		*stack.Stack
		unknown string // an unknown key
		open    bool   // failure_mode_allow
	}
	var edges []edge
	for _, config := range []string{stack.AuthorizationConfig, stack.OneHopConfig} {
		for _, mode := range []string{"false", "true"} {
			e := edge{&stack.Stack{T: t, App: stack.NewApplication(t), RLS: rls}, fmt.Sprintf("planted-%d", len(edges)), mode == "true"}
			stack.Setup{Config: config, Change: map[string]string{"failure_mode_allow: false": "failure_mode_allow: " + mode}}.StartEnvoy(e.Stack)
			edges = append(edges, e)
		}
	}
	for _, e := range edges {
		e.From("127.0.0.1").Want(200, 1, "/", "x-api-key", "acme-old-key")
		e.From("127.0.0.1").Want(401, 1, "/", "x-api-key", "planted-unknown")
	}

	pg.Kill()
	process.Eventually(t, "an answer from a record that has expired", func() bool {
		for _, e := range edges {
			if got := e.Get("/", "x-api-key", "acme-old-key"); got.Status != 200 && got.Status != 429 {
				t.Fatalf("a known key: got %d, want 200 or, by its limit, 429", got.Status)
			}
		}
		stale := stack.Metric(t, rls, `slidegate_tiers_answers_total{from="stale"}`)
		return stale != "" && stale != "0"
	})
	for _, e := range edges {
		c := e.From("127.0.0.1")
		// The known one's limits hold too.
		for range 3 {
			c.Get("/", "x-api-key", "acme-old-key")
		}
		c.Want(429, 1, "/", "x-api-key", "acme-old-key")

		got := c.Get("/stranger", "x-api-key", e.unknown, "x-subject-id", "bigco")
		want := []any{503, `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The API key cannot be checked now.","reason":"unavailable"}`, "1", "application/problem+json"}
		switch {
		case stack.EnvoyVersion(t)[1] < 37:
			// This Envoy takes "could not decide" for a denial, and makes up a status.
			want = []any{403, "", "", ""}
		case e.open:
			want = []any{200, stack.AppBody, "", stack.AppContentType}
			if h := e.App.Last(t).Header.Values("X-Subject-Id"); len(h) > 0 {
				t.Errorf("X-Subject-Id at the application: got %q, want none: rls has not set it", h)
			}
		}
		if diff := cmp.Diff(want, []any{got.Status, got.Body, got.Header.Get("Retry-After"), got.Header.Get("Content-Type")}); diff != "" {
			t.Errorf("a key that rls does not know, %s: status, body, Retry-After, type (-want +got):\n%s", e.unknown, diff)
		}
	}

	pg.Start()
	process.Eventually(t, "answers from PostgreSQL", func() bool {
		return edges[0].Get("/", "x-api-key", edges[0].unknown).Status == http.StatusUnauthorized
	})
}
