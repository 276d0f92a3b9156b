package pgsource

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/deploy/postgres"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/tiertest"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits before it fails.
const patience = 30 * time.Second

// start starts a server with the schema and its role.
func start(t *testing.T, o servers.PostgresOptions) *servers.PostgresServer {
	t.Helper()
	s := servers.StartPostgres(t, o)
	exec(t, s, postgres.Schema)
	grants := regexp.MustCompile(`(?m)^-- +(GRANT .*;)$`).FindAllStringSubmatch(postgres.Schema, -1)
	for _, g := range grants {
		exec(t, s, g[1])
	}
	return s
}

func exec(t *testing.T, s *servers.PostgresServer, sql string, args ...any) {
	t.Helper()
	if err := s.Exec(sql, args...); err != nil {
		t.Fatalf("%.100s: %v", sql, err)
	}
}

func text(t *testing.T, s *servers.PostgresServer, sql string) string {
	t.Helper()
	got, err := s.Text(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// open returns a source that is closed when the test ends.
func open(t *testing.T, o Options) *Source {
	t.Helper()
	o.Overrides = tiertest.ReadOverrides
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// lookup looks a key up with a long deadline.
func lookup(t *testing.T, s *Source, k tier.Key) (*tier.Subject, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := s.Lookup(ctx, k)
	if err != nil {
		if r != nil {
			t.Errorf("a record together with an error: %v, %v", r, err)
		}
		return nil, err
	}
	if r.MaxAge != 0 {
		t.Errorf("got a record with a bound of %v, want none", r.MaxAge)
	}
	return r.Subject, nil
}

// digest returns a digest of one repeated digit.
func digest(digit string) string { return strings.Repeat(digit, tier.DigestLen) }

const customers = `
INSERT INTO slidegate.subjects (id, tier, disabled, overrides, labels) VALUES
	('acme', 'pro', false, '{"per-key": {"limits": [{"window": "1m", "requests": 500}]}}', '{"region": "eu"}'),
	('gone', 'free', true, NULL, NULL),
	('plain', NULL, false, '{}', '{}');
INSERT INTO slidegate.keys (digest, subject, revoked_at) VALUES
	(repeat('a', 64), 'acme', NULL), (repeat('b', 64), 'acme', NULL), (repeat('c', 64), 'acme', now()),
	(repeat('d', 64), 'gone', NULL), (repeat('e', 64), 'plain', NULL)`

// TestQueries runs the tests that can share a server. Each one finds the tables as the one
// before has left them.
func TestQueries(t *testing.T) {
	t.Parallel()
	s := start(t, servers.PostgresOptions{})
	exec(t, s, customers)
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *servers.PostgresServer)
	}{
		{"lookup", testLookup},
		{"own query", testCustomQuery},
		{"slow", testSlow},
		{"no TLS", testNoTLS},
		{"payloads", testPayloads},
		{"huge row", testHugeRow},
		{"changed table", testChangedTable},
		{"schema refuses", testSchemaRefuses},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, s) })
	}
}

func testLookup(t *testing.T, s *servers.PostgresServer) {
	exec(t, s, postgres.Schema) // it may be applied again
	acme := &tier.Subject{ID: "acme", Tier: "pro", Extra: &tier.Extra{
		Overrides: map[string]tier.Override{"per-key": {Limits: []window.Limit{{Window: time.Minute, Hits: 500}}}},
		Labels:    map[string]string{"region": "eu"},
	}}
	gone, plain := &tier.Subject{ID: "gone", Tier: "free", Disabled: true}, &tier.Subject{ID: "plain"}
	// In each mode of queries, because a pooler may need another than the default.
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		source := open(t, Options{URL: s.URL() + "?default_query_exec_mode=" + mode, PoolSize: 1})
		for _, tt := range []struct {
			name string
			key  tier.Key
			want *tier.Subject
		}{
			{"by digest", tier.Key{Digest: digest("a")}, acme},
			{"by another digest", tier.Key{Digest: digest("b")}, acme},
			{"revoked", tier.Key{Digest: digest("c")}, nil},
			{"disabled", tier.Key{Digest: digest("d")}, gone},
			{"no tier", tier.Key{Digest: digest("e")}, plain},
			{"unknown digest", tier.Key{Digest: digest("f")}, nil},
			{"by id", tier.Key{ID: "acme"}, acme},
			{"disabled by id", tier.Key{ID: "gone"}, gone},
			{"unknown id", tier.Key{ID: "unknown"}, nil},
			{"quotes", tier.Key{ID: `' OR 1=1 --"`}, nil},
			{"no id", tier.Key{ID: "a\x00\xff"}, nil},
			{"nothing", tier.Key{}, nil},
		} {
			got, err := lookup(t, source, tt.key)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%s, %s: %v (-want +got)\n%s", mode, tt.name, err, diff)
			}
		}
	}
	if got := text(t, s, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'slidegate'"); got != "5" {
		t.Errorf("got %s connections, want one of each source", got)
	}
	socket := open(t, Options{URL: s.SocketURL()})
	if got, err := lookup(t, socket, tier.Key{ID: "plain"}); err != nil || got == nil {
		t.Errorf("by socket: got %v, %v", got, err)
	}
}

// testSchemaRefuses checks which rows the tables refuse.
func testSchemaRefuses(t *testing.T, s *servers.PostgresServer) {
	for _, bad := range []string{
		`INSERT INTO slidegate.subjects (id) VALUES ('')`,
		`INSERT INTO slidegate.subjects (id) VALUES (' a')`,
		`INSERT INTO slidegate.subjects (id) VALUES ('a ')`,
		`INSERT INTO slidegate.subjects (id) VALUES (E'a\nb')`,
		`INSERT INTO slidegate.subjects (id) VALUES ('größer')`,
		`INSERT INTO slidegate.subjects (id) VALUES (repeat('a', 257))`,
		`INSERT INTO slidegate.subjects (id, overrides) VALUES ('a', '[]')`,
		`INSERT INTO slidegate.subjects (id) VALUES ('ip:10.0.0.1')`,
		`INSERT INTO slidegate.subjects (id, labels) VALUES ('a', '"x"')`,
		`INSERT INTO slidegate.subjects (id, labels) VALUES ('a', '[{"x": "y"}]')`,
		`INSERT INTO slidegate.subjects (id, labels) VALUES ('a', '{"": "y"}')`,
		`INSERT INTO slidegate.subjects (id, labels) VALUES ('a', '{"region": "eu", "a b": "y"}')`,
		`INSERT INTO slidegate.subjects (id, labels) VALUES ('a', '{"x\n": "y"}')`,
		`INSERT INTO slidegate.subjects (id, labels) VALUES ('a', jsonb_build_object(repeat('x', 65), 'y'))`,
		`INSERT INTO slidegate.subjects (id, labels) VALUES ('a', '{"x": 1}')`,
		`INSERT INTO slidegate.keys (digest, subject) VALUES (repeat('A', 64), 'acme')`,
		`INSERT INTO slidegate.keys (digest, subject) VALUES (repeat('0', 63), 'acme')`,
		`INSERT INTO slidegate.keys (digest, subject) VALUES (repeat('0', 64) || E'\n', 'acme')`,
		`INSERT INTO slidegate.keys (digest, subject) VALUES (repeat('0', 64), 'unknown')`,
	} {
		if err := s.Exec(bad); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
	exec(t, s, `INSERT INTO slidegate.subjects (id) VALUES ('a'), ('a b'), ('ip'), ('IP:x'), (repeat('~', 256))`)
	exec(t, s, `INSERT INTO slidegate.subjects (id, labels) VALUES ('labels', jsonb_build_object('A-z_0.9', 'größer', repeat('x', 64), ''))`)
	exec(t, s, `UPDATE slidegate.subjects SET updated_at = 'epoch', tier = 'free' WHERE id = 'acme'`)
	if got := text(t, s, `SELECT updated_at > 'epoch' FROM slidegate.subjects WHERE id = 'acme'`); got != "t" {
		t.Error("updated_at is not kept by the trigger")
	}
}

// TestPlanted proves that functions in the schema public cannot attack a role that applies
// the schema or writes to it.
func TestPlanted(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t, servers.PostgresOptions{})
	exec(t, s, `GRANT CREATE ON SCHEMA public TO slidegate; CREATE TABLE caught (by text); GRANT INSERT ON caught TO PUBLIC; SET ROLE slidegate;
		CREATE FUNCTION public.pg_advisory_xact_lock(integer) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.caught VALUES ('pg_advisory_xact_lock') $$;
		CREATE FUNCTION public.cardinality(text[]) RETURNS integer LANGUAGE sql AS $$ INSERT INTO public.caught VALUES ('cardinality') RETURNING 1 $$;
		CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS $$ INSERT INTO public.caught VALUES ('unnest') RETURNING 'x' $$;
		CREATE FUNCTION public.json_build_object(text, text) RETURNS json LANGUAGE sql AS $$ INSERT INTO public.caught VALUES ('json_build_object') RETURNING '{}'::json $$`)
	noAttacker := func(when string) {
		t.Helper()
		exec(t, s, `UPDATE slidegate.subjects SET disabled = NOT disabled; UPDATE slidegate.keys SET revoked_at = CASE WHEN revoked_at IS NULL THEN now() END`)
		if got := text(t, s, `SELECT coalesce(string_agg(DISTINCT by, ', '), '') FROM caught`); got != "" {
			t.Errorf("%s: the caller who applies or writes runs %s of another user", when, got)
		}
	}
	exec(t, s, postgres.Schema)
	exec(t, s, customers)
	noAttacker("new")

	// As it was before it had a path of its own.
	exec(t, s, `DO $$ DECLARE f regprocedure; BEGIN
		FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'slidegate'::regnamespace LOOP EXECUTE format('ALTER FUNCTION %s RESET ALL', f); END LOOP;
	END $$`)
	exec(t, s, postgres.Schema)
	noAttacker("applied again")
}

func testCustomQuery(t *testing.T, s *servers.PostgresServer) {
	exec(t, s, `CREATE TYPE plan AS ENUM ('free', 'pro'); CREATE DOMAIN digits AS text; CREATE TABLE hidden (digest text)`)
	subject := func(id, tierName string) *tier.Subject { return &tier.Subject{ID: id, Tier: tierName} }
	long := `repeat('x', 300000)`
	for _, tt := range []struct {
		name, query string // every query has WHERE $1 <> '' appended
		want        *tier.Subject
		err         []string // parts of the error; "bad record" stands for tier.ErrBadRecord
	}{
		{"text", `SELECT 'acme' AS subject`, subject("acme", ""), nil},
		{"uuid", `SELECT '6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid AS subject`, subject("6ba7b810-9dad-11d1-80b4-00c04fd430c8", ""), nil},
		{"integer", `SELECT 17::bigint AS subject, 'pro'::varchar AS tier`, subject("17", "pro"), nil},
		{"enumeration", `SELECT 'pro'::plan AS tier, 'acme'::name AS subject`, subject("acme", "pro"), nil},
		{"nulls", `SELECT 'acme' AS subject, NULL AS tier, NULL::bool AS disabled, NULL::jsonb AS overrides, NULL AS labels`, subject("acme", ""), nil},
		{
			"JSON as text", `SELECT 'a' AS subject, true AS disabled, 'null' AS overrides, '{"x": "y"}'::json AS labels`,
			&tier.Subject{ID: "a", Disabled: true, Extra: &tier.Extra{Labels: map[string]string{"x": "y"}}}, nil,
		},
		{"no row", `SELECT 'acme' AS subject FROM (SELECT LIMIT 0) AS none`, nil, nil},

		{"two rows", `SELECT 'acme' AS subject FROM generate_series(1, 2)`, nil, []string{"bad record", "more than one row"}},
		{"many rows", `SELECT 'acme' AS subject FROM generate_series(1, 100000)`, nil, []string{"bad record", "more than one row"}},
		{"null subject", `SELECT NULL AS subject`, nil, []string{"bad record", "id: it is empty"}},
		{"bad subject", `SELECT E'a\nb' AS subject`, nil, []string{"bad record", "id: byte 2"}},
		{"bad tier", `SELECT 'a' AS subject, E'\t' AS tier`, nil, []string{"bad record", "tier: "}},
		{"bad overrides", `SELECT 'a' AS subject, '{"per-key": "much"}'::jsonb AS overrides`, nil, []string{"bad record", "overrides: [0]: expected a mapping, got a text"}},
		{"overrides no JSON", `SELECT 'a' AS subject, '{' AS overrides`, nil, []string{"bad record", "overrides: "}},
		{"bad labels", `SELECT 'a' AS subject, '{"x": 1}'::jsonb AS labels`, nil, []string{"bad record", "labels: x: "}},
		{"long labels", `SELECT 'a' AS subject, ` + long + ` AS labels`, nil, []string{"bad record", "the row is longer"}},
		{"bad data", `SELECT 'a' AS subject, ('sesame' || $1)::int > 0 AS disabled`, nil, []string{"bad record", "SQLSTATE 22P02"}},

		{"no subject", `SELECT 'pro' AS tier`, nil, []string{`wrong columns: none is "subject"`}},
		{"no subject, no row", `SELECT 'pro' AS tier FROM (SELECT LIMIT 0) AS none`, nil, []string{`wrong columns: none is "subject"`}},
		{"no name", `SELECT 'acme'`, nil, []string{`number 1 is "?column?"`, "name it with AS"}},
		{"unknown column", `SELECT 'acme' AS subject, 1 AS override`, nil, []string{`number 2 is "override"`}},
		{"twice", `SELECT 'acme' AS subject, 'x' AS subject`, nil, []string{`two are "subject"`}},
		{"wrong type of subject", `SELECT '\x00'::bytea AS subject`, nil, []string{`"subject" is of type bytea`, "want text"}},
		{"wrong type of disabled", `SELECT 'a' AS subject, 0 AS disabled`, nil, []string{`"disabled" is of type int4`, "want boolean"}},
		{"wrong type of labels", `SELECT 'a' AS subject, ARRAY['x'] AS labels`, nil, []string{`"labels" is of type _text`, "want jsonb"}},
		{"no table", `SELECT 'a' AS subject FROM missing`, nil, []string{`"missing" does not exist`}},
		{"no column", `SELECT missing AS subject`, nil, []string{`"missing" does not exist`}},
		{"no right", `SELECT digest AS subject FROM hidden`, nil, []string{"permission denied for table hidden", "GRANT"}},
		{"syntax", `SELEKT 'a' AS subject`, nil, []string{"syntax error"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := open(t, Options{URL: s.URL(), PoolSize: 1, Query: tt.query + ` WHERE $1 <> ''`})
			got, err := lookup(t, source, tier.Key{Digest: digest("a")})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if (err != nil) != (tt.err != nil) {
				t.Fatalf("got error %v, want %q", err, tt.err)
			}
			if err == nil {
				return
			}
			for _, part := range append(tt.err, "tiers.postgres.query: ") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %v, want %q in it", err, part)
				}
			}
			if bad := tt.err[0] == "bad record"; bad != errors.Is(err, tier.ErrBadRecord) {
				t.Errorf("got error %v, a bad record: %t, want %t", err, !bad, bad)
			}
			if strings.Contains(err.Error(), "sesame") {
				t.Errorf("the error quotes the data: %v", err)
			}
		})
	}

	for _, tt := range []struct {
		name, query string
		err         string // empty: acme is found
	}{
		{"text", `SELECT 'acme' AS subject WHERE $1 <> ''`, ""},
		{"varchar", `SELECT 'acme' AS subject WHERE $1::varchar <> ''`, ""},
		{"char", `SELECT 'acme' AS subject WHERE $1::char(64) <> ''`, ""},
		{"bytea of text", `SELECT 'acme' AS subject WHERE repeat('a', 64)::bytea <> decode($1, 'hex')`, ""},
		{"integer of text", `SELECT 'acme' AS subject WHERE length($1::text)::text::integer > 0`, ""},
		{"own type", `SELECT 'acme' AS subject WHERE $1::digits <> ''`, ""},

		{"bytea", `SELECT 'acme' AS subject WHERE '\xaa'::bytea = $1`, "$1 is of type bytea, want text: write decode($1, 'hex')"},
		{"integer", `SELECT 'acme' AS subject WHERE 1 = $1`, "$1 is of type int4, want text: write $1::text, or $1::text::int4"},
		{"uuid", `SELECT 'acme' AS subject WHERE $1::uuid IS NOT NULL`, "$1 is of type uuid, want text: write $1::text, or $1::text::uuid"},
		{"name", `SELECT 'acme' AS subject WHERE $1::name <> ''`, "$1 is of type name"},
		{"two", `SELECT 'acme' AS subject WHERE $1 <> '' AND $2 <> ''`, "it has 2, want $1 alone"},
		{"in quotes", `SELECT 'acme' AS subject WHERE '$1' <> ''`, "it has 0, want $1 alone"},
	} {
		t.Run("parameter "+tt.name, func(t *testing.T) {
			for _, mode := range []string{"cache_statement", "cache_describe", "exec", "simple_protocol"} {
				source := open(t, Options{URL: s.URL() + "?default_query_exec_mode=" + mode, PoolSize: 1, Query: tt.query, QueryByID: tt.query})
				for setting, k := range map[string]tier.Key{"tiers.postgres.query: ": {Digest: digest("a")}, "tiers.postgres.query_by_id: ": {ID: "aced"}} {
					for range 2 {
						got, err := lookup(t, source, k)
						if tt.err == "" && (err != nil || !cmp.Equal(got, subject("acme", ""))) {
							t.Errorf("%s, %sgot %v, %v, want acme", mode, setting, got, err)
						}
						if tt.err != "" && (err == nil || !strings.HasPrefix(err.Error(), setting) || !strings.Contains(err.Error(), tt.err) || errors.Is(err, tier.ErrBadRecord)) {
							t.Errorf("%s, %sgot %v, %v, want %q", mode, setting, got, err, tt.err)
						}
					}
				}
			}
		})
	}

	t.Run("by id", func(t *testing.T) {
		none := open(t, Options{URL: s.URL(), Query: `SELECT $1 AS subject`})
		if got, err := lookup(t, none, tier.Key{ID: "acme"}); got != nil || err != nil {
			t.Errorf("without a query by id: got %v, %v, want no subject", got, err)
		}
		own := open(t, Options{URL: s.URL(), QueryByID: `SELECT $1 AS subject, 'pro' AS tier`})
		if got, err := lookup(t, own, tier.Key{ID: "acme"}); err != nil || !cmp.Equal(got, subject("acme", "pro")) {
			t.Errorf("with one: got %v, %v, want acme", got, err)
		}
	})
}

// TestNoSchema has a database without the schema.
func TestNoSchema(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t, servers.PostgresOptions{})
	source := open(t, Options{URL: s.URL()})
	for _, k := range []tier.Key{{Digest: digest("a")}, {ID: "acme"}} {
		if _, err := lookup(t, source, k); err == nil || !strings.Contains(err.Error(), "deploy/postgres/schema.sql") {
			t.Errorf("no schema: got %v, want what to do", err)
		}
	}
	exec(t, s, postgres.Schema)
	if _, err := lookup(t, source, tier.Key{ID: "acme"}); err == nil || !strings.Contains(err.Error(), "GRANT") {
		t.Errorf("no rights: got %v, want what to do", err)
	}
	exec(t, s, `GRANT USAGE ON SCHEMA slidegate TO slidegate; GRANT SELECT ON ALL TABLES IN SCHEMA slidegate TO slidegate`)
	if _, err := lookup(t, source, tier.Key{ID: "acme"}); err != nil {
		t.Errorf("with all: %v", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	const secret = "sesame"
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"nothing", Options{}, "tiers.postgres.url: want postgres://"},
		{"another scheme", Options{URL: "mysql://u:sesame@h/db"}, "tiers.postgres.url: want postgres://"},
		{"keywords", Options{URL: "host=h password=sesame"}, "want postgres://"},
		{"at sign in the database", Options{URL: "postgres://u:ses/ame@h/db"}, "must be escaped"},
		{"slash in the password", Options{URL: "postgres://u:a/sesame@h/db"}, "must be escaped"},
		{"question mark in the password", Options{URL: "postgres://u:a?sesame@h/db"}, "must be escaped"},
		{"hash in the password", Options{URL: "postgres://u:a#sesame@h/db"}, "must be escaped"},
		{"percent in the password", Options{URL: "postgres://u:sesame%zz@h/db"}, "its password is not escaped"},
		{"port", Options{URL: "postgres://u:sesame@h:x/db"}, "invalid port"},
		{"connect_timeout", Options{URL: "postgres://u:sesame@h/db?connect_timeout=x"}, "invalid connect_timeout"},
		{"mode", Options{URL: "postgres://u:sesame@h/db?default_query_exec_mode=x"}, `invalid default_query_exec_mode: unknown value "x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Overrides = tiertest.ReadOverrides
			s, err := New(tt.o)
			if err == nil {
				s.Close()
				t.Fatal("got no error")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, want %q in it and no password", err, tt.want)
			}
		})
	}
	for _, url := range []string{"postgres://h", "postgresql://u:p%40%2F@h:1/db?application_name=a", "postgres://u@h1:1,h2:2/db?target_session_attrs=read-write", "postgres://h?default_query_exec_mode=exec"} {
		if s, err := New(Options{URL: url, Overrides: tiertest.ReadOverrides}); err != nil {
			t.Errorf("%s: %v", url, err)
		} else {
			s.Close()
		}
	}
}

// FuzzCutPassword looks for a password that stays in the URL, which errors repeat.
func FuzzCutPassword(f *testing.F) {
	f.Add("secret", "h:5432", "db", "a=b")
	f.Add("p@ss:w/rd?#%", "h1,h2", "", "")
	f.Fuzz(func(t *testing.T, password, host, database, query string) {
		text := "postgres://u:" + password + "sesame" + password + "@" + host + "/" + database + "?" + query
		without, cut, err := cutPassword(text)
		if err != nil {
			if strings.Contains(err.Error(), "sesame") && !strings.Contains(query+host+database, "sesame") {
				t.Errorf("%q: the error holds the password: %v", text, err)
			}
			return
		}
		if strings.Contains(without, "sesame") && !strings.Contains(query+host+database, "sesame") {
			t.Errorf("%q: got %q, which holds the password; cut was %q", text, without, cut)
		}
	})
}

// TestContract runs the suite against the schema without its checks, which would refuse
// the malformed records. It is not parallel, because the suite would take goroutines of
// other tests for leaks.
func TestContract(t *testing.T) {
	s := start(t, servers.PostgresOptions{})
	exec(t, s, `ALTER TABLE slidegate.subjects DROP CONSTRAINT subjects_id_check, DROP CONSTRAINT subjects_overrides_check, DROP CONSTRAINT subjects_labels_check`)
	s.Kill()
	tiertest.Run(t, func(t *testing.T) tiertest.Fixture {
		s.Start()
		t.Cleanup(s.Kill) // ends the processes of the server too
		exec(t, s, `TRUNCATE slidegate.subjects CASCADE`)
		source, err := New(Options{URL: s.URL(), Channel: channel, Overrides: tiertest.ReadOverrides})
		if err != nil {
			t.Fatal(err)
		}
		return tiertest.Fixture{
			Source: source,
			Put: func(t *testing.T, subject tier.Subject, digests ...string) {
				t.Helper()
				exec(t, s, `WITH put AS (
						INSERT INTO slidegate.subjects (id, tier, disabled, overrides, labels) VALUES ($1, $2, $3, $4, $5)
						ON CONFLICT (id) DO UPDATE SET tier = excluded.tier, disabled = excluded.disabled, overrides = excluded.overrides, labels = excluded.labels),
					carried AS (INSERT INTO slidegate.tiers SELECT $2, $7::jsonb WHERE $7 IS NOT NULL ON CONFLICT DO NOTHING)
					INSERT INTO slidegate.keys (digest, subject) SELECT unnest($6::text[]), $1
					ON CONFLICT (digest) DO UPDATE SET subject = excluded.subject, revoked_at = NULL`,
					subject.ID, subject.Tier, subject.Disabled, tiertest.Overrides(subject), tiertest.Labels(subject), digests, tiertest.Limits(subject))
			},
			Remove: func(t *testing.T, digest string) {
				t.Helper()
				exec(t, s, `UPDATE slidegate.keys SET revoked_at = now() WHERE digest = $1`, digest)
			},
			RemoveSubject: func(t *testing.T, id string) {
				t.Helper()
				exec(t, s, `DELETE FROM slidegate.subjects WHERE id = $1`, id)
			},
			Corrupt: func(t *testing.T, digest string) {
				t.Helper()
				exec(t, s, `UPDATE slidegate.subjects SET overrides = '[]' WHERE id = (SELECT subject FROM slidegate.keys WHERE digest = $1)`, digest)
			},
			Stop:   func(*testing.T) { s.Kill() },
			Start:  func(*testing.T) { s.Start() },
			Freeze: func(*testing.T) { s.Pause() },
			Thaw:   func(*testing.T) { s.Resume() },
		}
	})
}

// FuzzRow reads any row that a server may send.
func FuzzRow(f *testing.F) {
	f.Add("subject", uint32(25), []byte("acme"), "tier", uint32(1043), []byte("pro"))
	f.Add("disabled", uint32(16), []byte("t"), "subject", uint32(20), []byte("7"))
	f.Add("subject", uint32(17), []byte(nil), "subject", uint32(25), []byte(""))
	f.Add("labels", uint32(3802), []byte(`{"a":"b"}`), "subject", uint32(70000), []byte("\xff"))
	f.Fuzz(func(t *testing.T, name1 string, type1 uint32, value1 []byte, name2 string, type2 uint32, value2 []byte) {
		c, err := readColumns([]pgconn.FieldDescription{{Name: name1, DataTypeOID: type1}, {Name: name2, DataTypeOID: type2}}, false)
		if err != nil {
			return
		}
		for _, row := range [][][]byte{{value1, value2}, {value1}, {nil, nil}, nil} {
			_, s, err := c.read(row, tiertest.ReadOverrides)
			if (s == nil) == (err == nil) {
				t.Fatalf("%q: got both or neither: %v, %v", row, s, err)
			}
			if err != nil && !errors.Is(err, tier.ErrBadRecord) {
				t.Errorf("%q: got %v, want a bad record", row, err)
			}
			if err == nil && tier.ValidID(s.ID) != nil {
				t.Errorf("%q: got a subject with id %q", row, s.ID)
			}
		}
	})
}
