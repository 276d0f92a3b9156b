package guides

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

const customersPage = "docs/customers.md"

// blockOf returns the first block of a language after a text of a page.
func blockOf(t *testing.T, page, after, language string) string {
	t.Helper()
	_, rest, ok := strings.Cut(tree.Read(t, page), after)
	_, rest, ok2 := strings.Cut(rest, "```"+language+"\n")
	block, _, ok3 := strings.Cut(rest, "```\n")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s has no block of %s after %q", page, language, after)
	}
	return block
}

// shop is the database of an operator, before it knows of Slidegate.
const shop = `
CREATE TABLE customers (id bigint PRIMARY KEY, plan text, suspended boolean, limits jsonb);
CREATE TABLE api_keys (key text, customer bigint REFERENCES customers, expires_at timestamptz);
INSERT INTO customers VALUES (17, 'pro', false, '{"per-key": {"unit": "minute", "requests_per_unit": 500}}'), (18, 'Pro', NULL, NULL);
INSERT INTO api_keys VALUES ('seventeen', 17, 'infinity'), ('expired', 17, now()), ('eighteen', 18, 'infinity');`

// TestOwnTables runs the first command of the page against tables of an operator, with the settings
// and the SQL of the page. Then it makes the mistakes of an operator.
func TestOwnTables(t *testing.T) {
	t.Parallel()
	pg := servers.StartPostgres(t, servers.PostgresOptions{})
	stack.Execute(t, pg, shop)
	const own = "## PostgreSQL with your own tables"
	stack.Execute(t, pg, blockOf(t, customersPage, own, "sql"))
	for line := range strings.Lines(blockOf(t, customersPage, "**The index", "sql")) {
		stack.Execute(t, pg, line)
	}
	dir := t.TempDir()
	settings := strings.NewReplacer(
		"postgres://slidegate@db.example.com:5432/shop", pg.URL(), "    password_file: /etc/slidegate/postgres-password\n", "", "/etc/slidegate/", dir+"/",
	).Replace(blockOf(t, customersPage, own, "yaml"))
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		tree.Write(t, path, text)
		return path
	}
	put("rules.yaml", "domain: edge\ndescriptors:\n- key: api_key\n  rate_limit: {name: per-key, unit: minute, requests_per_unit: 100}\n")
	put("tiers.yaml", "tiers: [free, pro]\ndefault: free\n")

	// The page shows the end of the output.
	_, shown, _ := strings.Cut(blockOf(t, customersPage, "# Customers and API keys", "console"), "...\n")
	for _, by := range [][]string{{"--key-stdin"}, {"--subject", "17"}} {
		got := edge.Run(t, edge.RLSOptions{}, "seventeen\n", append([]string{"validate", put("settings.yaml", settings)}, by...)...)
		if got.Code != 0 || !strings.HasSuffix(got.Stdout, "\n\n"+shown) {
			t.Errorf("%s: got exit code %d, %s%s, want 0 and\n%s", by, got.Code, got.Stdout, got.Stderr, shown)
		}
	}
	got := edge.Run(t, edge.RLSOptions{}, "seventeen\n", "validate", "--json", put("settings.yaml", settings), "--key-stdin")
	if !regexp.MustCompile(`"customer": ?\{\s*"subject": ?"17",\s*"tier": ?"pro",`).MatchString(got.Stdout) {
		t.Errorf("--json: got %s%s", got.Stdout, got.Stderr)
	}

	for _, tt := range []struct {
		name, old, with string // in the settings
		args            []string
		key, want       string
	}{
		{"unknown key", "", "", nil, "unknown-key", "tiers.postgres: no customer has the key with the digest " + stack.DigestOf("unknown-key")[:12] + "…: compare it with"},
		{"expired key", "", "", nil, "expired", "tiers.postgres: no customer has the key with the digest"},
		{"unknown id", "", "", []string{"--subject", "99"}, "", "tiers.postgres: no customer has this id"},
		{"bad id", "", "", []string{"--subject", "acme"}, "", "tiers.postgres: no customer has this id"},
		{"unknown tier", "", "", nil, "eighteen", `tiers.postgres: customer 18 has the tier "Pro", which tiers.path does not name: expected one of free, pro, did you mean "pro"?`},
		{"misnamed column", "c.plan AS tier", "c.plan", nil, "seventeen", `tiers.postgres.query: wrong columns: number 2 is "plan": want subject, tier, disabled, overrides, labels and limits; name it with AS`},
		{"missing column", "c.id AS subject, ", "", nil, "seventeen", `tiers.postgres.query: wrong columns: none is "subject"`},
		{"wrong type", "c.suspended AS", "c.plan AS", nil, "seventeen", `tiers.postgres.query: wrong columns: "disabled" is of type text: want boolean`},
		{"missing table", "FROM api_keys", "FROM keys", nil, "seventeen", `tiers.postgres.query: ERROR: relation "keys" does not exist`},
		{"missing rights", "FROM api_keys k", "FROM pg_authid a, api_keys k", nil, "seventeen", "tiers.postgres.query: the user of tiers.postgres.url may not read this; GRANT it"},
		{"parameter", "k.digest = $1", "k.digest::bytea = $1", nil, "seventeen", "write decode($1, 'hex')"},
		{"no server", pg.URL(), "postgres://slidegate@127.0.0.1:1/slidegate", nil, "seventeen", "tiers.postgres.url: "},
	} {
		changed := strings.Replace(settings, tt.old, tt.with, 1)
		args := tt.args
		if args == nil {
			args = []string{"--key-stdin"}
		}
		got := edge.Run(t, edge.RLSOptions{}, tt.key+"\n", append([]string{"validate", put("settings.yaml", changed)}, args...)...)
		if got.Code != 1 || !strings.Contains(got.Stderr, tt.want) {
			t.Errorf("%s: got exit code %d, %s, want 1 and %s", tt.name, got.Code, got.Stderr, tt.want)
		}
	}

	// An override of a rule that does not exist has no effect.
	stack.Execute(t, pg, `UPDATE customers SET limits = '{"per-kee": {"unlimited": true}}'`)
	got = edge.Run(t, edge.RLSOptions{}, "seventeen\n", "validate", put("settings.yaml", settings), "--key-stdin")
	if want := "tiers.postgres: customer 17, override of per-kee: no rule has this name"; got.Code != 0 || !strings.Contains(got.Stderr, want) {
		t.Errorf("got exit code %d, %s, want 0 and %s", got.Code, got.Stderr, want)
	}
	if strings.Contains(got.Stdout+got.Stderr, "seventeen") {
		t.Errorf("the output has the key: %s%s", got.Stdout, got.Stderr)
	}
}

// TestAskedCustomerRefused checks command lines of validate that ask for no customer, or for two.
func TestAskedCustomerRefused(t *testing.T) {
	t.Parallel()
	own := configtest.Write(t, "settings.yaml", "tiers: {source: postgres, postgres: {url: \"postgres://a@127.0.0.1/b\", query: \"SELECT 'x' AS subject WHERE $1 <> ''\"}}\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--key-stdin"}, "set tiers.source to postgres, redis or http"},
		{[]string{"--config", own, "--key-stdin", "--subject", "acme"}, "--subject and --key-stdin: give one"},
		{[]string{"--config", own, "--key-stdin", "-"}, "--key-stdin and -: standard input holds one of them"},
		{[]string{"--config", own, "--subject", "acme"}, "--subject: set tiers.postgres.query_by_id, or use --key-stdin"},
		{[]string{"--config", own, "--key-stdin"}, "standard input holds no API key"},
	} {
		got := edge.Run(t, edge.RLSOptions{}, "", append([]string{"validate"}, tt.args...)...)
		if got.Code != 2 || !strings.Contains(got.Stderr, tt.want) {
			t.Errorf("%s: got exit code %d, %s, want 2 and %s", tt.args, got.Code, got.Stderr, tt.want)
		}
	}
}

// TestTierOfAJWT sends tokens with a tier to an Envoy with the filter jwt_authn and the descriptors of
// the page.
func TestTierOfAJWT(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef0123456789abcdef")
	encode := base64.RawURLEncoding.EncodeToString
	token := func(subject, tier string) string {
		text := encode([]byte(`{"alg":"HS256"}`)) + "." + encode([]byte(`{"iss":"own","sub":"`+subject+`","tier":"`+tier+`"}`))
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		return "Bearer " + text + "." + encode(mac.Sum(nil))
	}
	const (
		filter  = "          - name: envoy.filters.http.ratelimit\n"
		actions = `                    - actions:
                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}
                    - actions:
                      - remote_address: {}

          http_filters:
`
	)
	authn := `          - name: envoy.filters.http.jwt_authn
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
              providers:
                own:
                  issuer: own
                  payload_in_metadata: jwt
                  local_jwks: {inline_string: '{"keys":[{"kty":"oct","alg":"HS256","k":"` + encode(secret) + `"}]}'}
              rules: [{match: {prefix: /}, requires: {provider_name: own}}]
`
	var own strings.Builder
	for line := range strings.Lines(blockOf(t, customersPage, "### JWT", "yaml")) {
		if strings.HasPrefix(line, "  rate_limits:") {
			continue
		}
		own.WriteString(strings.Repeat(" ", 18) + line)
	}
	s := stack.Setup{
		Rules: "domain: edge\ndescriptors:\n- key: subject\n  rate_limit: {name: per-subject, by_tier: {free: {unit: hour, requests_per_unit: 1}, starter: {unit: hour, requests_per_unit: 3}}}\n",
		Tiers: stack.TierNames, Config: stack.EdgeConfig,
		Change: map[string]string{actions: own.String() + "\n          http_filters:\n", filter: authn + filter},
		Env:    map[string]string{stack.EnvTiersSource: "header", stack.EnvTrustedEntry: "tier"},
	}.Start(t)
	c := s.From("127.0.0.1")
	c.Want(200, 1, "/", "authorization", token("acme", "free"))
	c.Want(429, 1, "/", "authorization", token("acme", "free"))
	c.Want(200, 3, "/", "authorization", token("bigco", "starter"))
	c.Want(429, 1, "/", "authorization", token("bigco", "starter"))
	c.Want(401, 1, "/", "authorization", token("acme", "free")+"x")
	s.WantAllDecided()
}

// TestSecurityPage finds Envoy's lines of docs/security.md in the files of Envoy that rls prints.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	const page = "docs/security.md"
	line := func(text string) string {
		text, _, _ = strings.Cut(text, " # ")
		return strings.TrimSpace(text)
	}
	have := make(map[string]bool)
	for text := range strings.Lines(tree.Read(t, "envoy/ratelimit.yaml") + tree.Read(t, "envoy/authorization.yaml")) {
		have[line(text)] = true
	}
	// The files name no origin.
	own := strings.Replace(tree.Read(t, page), `[{exact: "https://app.example.com"}]`, "[]", 1)
	found := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(  .*?)```").FindAllStringSubmatch(own, -1) {
		for text := range strings.Lines(m[1]) {
			if found++; !have[line(text)] {
				t.Errorf("%s: no file of Envoy has the line %s", page, text)
			}
		}
	}
	if found < 20 {
		t.Errorf("%s: got %d lines for Envoy, want 20 or more", page, found)
	}
}

// TestOwnEndpoint serves the answers of the page over HTTP, and asks for them by key and by id.
func TestOwnEndpoint(t *testing.T) {
	t.Parallel()
	answer := blockOf(t, customersPage, "### HTTP", "json")
	for _, send := range []string{"digest", "key"} {
		endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var sent struct{ Key, ID string }
			if r.Method == http.MethodPost {
				if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
					t.Error(err)
				}
			}
			w.Header().Set("Content-Type", "application/json")
			if query := r.URL.Query(); sent.Key == "acme-key" || sent.ID == "acme" || query.Get("digest") == stack.DigestOf("acme-key") || query.Get("id") == "acme" {
				fmt.Fprint(w, answer)
				return
			}
			fmt.Fprint(w, `{"subject": null}`)
		}))
		t.Cleanup(endpoint.Close)
		o := edge.RLSOptions{Env: map[string]string{
			stack.EnvTiersSource: "http", "SLIDEGATE_TIERS_HTTP_URL": endpoint.URL, "SLIDEGATE_TIERS_HTTP_SEND": send,
		}}
		for _, tt := range []struct {
			args []string
			key  string
			code int
			want string
		}{
			{[]string{"--key-stdin"}, "acme-key", 0, "customer acme: tier pro\n  label region: eu\n"},
			{[]string{"--subject", "acme"}, "", 0, "customer acme: tier pro\n"},
			{[]string{"--key-stdin"}, "other-key", 1, "tiers.http: no customer has the key"},
			{[]string{"--subject", "other"}, "", 1, "tiers.http: no customer has this id"},
		} {
			got := edge.Run(t, o, tt.key+"\n", append([]string{"validate"}, tt.args...)...)
			if got.Code != tt.code || !strings.Contains(got.Stdout+got.Stderr, tt.want) {
				t.Errorf("%s, %s: got exit code %d, %s%s, want %d and %s", send, tt.args, got.Code, got.Stdout, got.Stderr, tt.code, tt.want)
			}
		}
	}
}
