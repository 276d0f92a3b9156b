package authorization

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

const (
	nginxConfig = "../../deploy/integrations/nginx/nginx.conf"
	caddyConfig = "../../deploy/integrations/caddy/Caddyfile"
	// httpServiceConfig is an Envoy that asks over HTTP.
	httpServiceConfig = "testdata/envoy-authz-http.yaml"
)

// A gatewaySetup is a gateway in the place of Envoy, before an application.
type gatewaySetup struct {
	app     *stack.Application
	rls     *edge.RLSServer
	gateway *edge.Gateway
}

// newGateway starts a gateway that calls rls over HTTP.
func newGateway(t *testing.T, run func(process.TB, edge.GatewayOptions) *edge.Gateway, config string, replace map[string]string) gatewaySetup {
	t.Helper()
	g := gatewaySetup{app: stack.NewApplication(t)}
	g.rls = stack.Setup{Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Env: map[string]string{
		envAddress: "x-forwarded-for", stack.EnvCredentials: "header:x-api-key,bearer,basic,apikey,cookie:session", envRemoveCredential: "true",
	}}.Serve(t)
	g.gateway = run(t, edge.GatewayOptions{
		Config: config, Upstream: g.app.Addr, RLS: strings.TrimPrefix(g.rls.HTTP(), "http://"), Replace: replace,
	})
	return g
}

// ask sends a request with all headers by which a client may pretend to be the
// gateway.
func (g gatewaySetup) ask(t *testing.T, path string, lines ...string) stack.Answer {
	t.Helper()
	got, raw := stack.Send(t, g.gateway.Addr(), stack.Get11(path, append(lines,
		"x-tier: pro", "X-Tier: starter", "x-subject-id: bigco", "x-original-uri: /elsewhere", "x-original-method: PUT",
		"x-forwarded-uri: /elsewhere", "x-forwarded-method: PUT", "x-forwarded-host: elsewhere", "x-authz-status: 200", "x-forwarded-for: 192.0.2.1",
		"x_subject_id: bigco", "x-subject_id: bigco",
	)...))
	if strings.Contains(raw, "acme-") || strings.Contains(raw, "planted") {
		t.Errorf("%s: the key came back:\n%s", path, raw)
	}
	return got
}

// wantPasses sends a good key. The application must get the request with the headers
// of rls and without the key.
func (g gatewaySetup) wantPasses(t *testing.T) stack.Answer {
	t.Helper()
	const path = "/a?x=1&anonymous=true&domain=other"
	got := g.ask(t, path, "x-api-key: acme-old-key")
	if got.Status != http.StatusOK || got.Body != stack.AppBody {
		t.Fatalf("got %d %s, want the application's answer\n%s", got.Status, got.Body, g.gateway.Output())
	}
	r := g.app.Last(t)
	for name := range r.Header {
		if strings.Contains(name, "_") {
			t.Errorf("the application got the client's %s", name)
		}
	}
	want := []any{path, []string{"acme"}, []string{"starter"}, []string(nil)}
	if diff := cmp.Diff(want, []any{r.RequestURI, r.Header["X-Subject-Id"], r.Header["X-Tier"], r.Header["X-Api-Key"]}); diff != "" {
		t.Errorf("path, X-Subject-Id, X-Tier and X-Api-Key at the application (-want +got):\n%s", diff)
	}
	return got
}

// wantKeysRemoved sends keys in every other place: five of acme, and one of other
// without Host.
func (g gatewaySetup) wantKeysRemoved(t *testing.T) {
	t.Helper()
	before := len(g.app.Received())
	for _, tt := range []struct {
		name    string
		lines   []string
		cookies string // at the application
	}{
		{"bearer", []string{"authorization: Bearer acme-new-key", "cookie: a=1", "cookie: b=2"}, "a=1; b=2"},
		{"apikey", []string{"authorization: ApiKey acme-new-key"}, ""},
		{"basic", []string{"authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("user:acme-new-key"))}, ""},
		{"cookie", []string{"cookie: session=acme-new-key"}, ""},
		{"cookie among others, beside Authorization", []string{"cookie: a=1; session=acme-new-key; b=2", "authorization: Bearer acme-old-key"}, "a=1; b=2"},
	} {
		if got := g.ask(t, "/", tt.lines...); got.Status != http.StatusOK {
			t.Errorf("%s: got %d, want 200", tt.name, got.Status)
			continue
		}
		h := g.app.Last(t).Header
		if diff := cmp.Diff([]any{tt.cookies, []string(nil), []string(nil)}, []any{strings.Join(h["Cookie"], "; "), h["Authorization"], h["X-Api-Key"]}); diff != "" {
			t.Errorf("%s: Cookie, Authorization, X-Api-Key at the application (-want +got):\n%s", tt.name, diff)
		}
	}
	if n := len(g.app.Received()) - before; n != 5 {
		t.Errorf("the application got %d requests, want 5", n)
	}
	if got, _ := stack.Send(t, g.gateway.Addr(), "GET / HTTP/1.0\r\nX-Api-Key: other-key\r\n\r\n"); got.Status != http.StatusOK {
		t.Errorf("without Host: got %d, want 200", got.Status)
	}
}

// wantPathsRefused sends a good key with paths that an application may read in another
// way than the gateway.
func (g gatewaySetup) wantPathsRefused(t *testing.T) {
	t.Helper()
	before := len(g.app.Received())
	for _, path := range []string{
		"/login/..;/admin", "/login/%2e%2e;/admin", "/login/..%3B/admin", "/login;x=1", "/;x/login", "/login/../admin", "/login/.%2e/admin", "/login/./x", "/login/..", "/login/.", "/..?x", "/x/..%00/admin",
		"/login%2f..%2Fadmin", "/login\\..\\admin", "/login%5c..%5Cadmin", "/login/%252e%252e/admin", "/%256cogin", "/login%0a", "/login%7f", "/login/..%c0%af/admin", "/%e0%80%aelogin", "/%f0%80%80%ae",
		"/login#/../admin", "/.%20/login", "/%20/login", "http://host/login/..;/admin",
	} {
		if got := g.ask(t, path, "x-api-key: acme-old-key"); got.Status != http.StatusBadRequest {
			t.Errorf("%s: got %d, want 400", path, got.Status)
		}
	}
	if n := len(g.app.Received()) - before; n != 0 {
		t.Errorf("the application got %d requests of paths that it may read in another way, want none", n)
	}
}

// wantLimited sends a request for acme, whose limit is used up, and returns the answer
// and its Retry-After. left is how much remains for the gateway's address. The address
// that the client claims must not be charged.
func (g gatewaySetup) wantLimited(t *testing.T, left uint32) (stack.Answer, int) {
	t.Helper()
	got := g.ask(t, "/", "x-api-key: acme-old-key")
	var problem struct {
		Status     int `json:"status"`
		RetryAfter int `json:"retry_after"`
	}
	if err := json.Unmarshal([]byte(got.Body), &problem); err != nil {
		t.Errorf("limited: %v: %s", err, got.Body)
	}
	retry, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if got.Status != 429 || problem.Status != 429 || err != nil || retry < 3540 || problem.RetryAfter != retry {
		t.Errorf("limited: got %d, Retry-After %q, %s, want 429 with the same time of almost an hour", got.Status, got.Header.Get("Retry-After"), got.Body)
	}
	if h := got.Header.Values("RateLimit"); len(h) != 1 || h[0] != `"per-key";r=0;t=`+strconv.Itoa(retry) {
		t.Errorf("limited: RateLimit: got %q", h)
	}
	for address, want := range map[string]uint32{"127.0.0.1": left, "192.0.2.1": 50000} {
		_, out := stack.PostJSON(t, g.rls.HTTP(), stack.Refund(0, "remote_address="+address))
		if got := stack.Remaining(out); got != want {
			t.Errorf("remaining of %s: got %d, want %d", address, got, want)
		}
	}
	return got, retry
}

// TestNginxAsks has nginx in the place of Envoy.
func TestNginxAsks(t *testing.T) {
	t.Parallel()
	// A busy machine may take longer.
	g := newGateway(t, edge.Nginx, nginxConfig, map[string]string{"proxy_read_timeout 1s;": "proxy_read_timeout 30s;", "proxy_connect_timeout 250ms;": "", `# "https://app.example.com"`: `"https://app.example.com"`})
	wantPages(t, g.gateway.Addr())
	got := g.wantPasses(t)
	if h := got.Header.Values("RateLimit"); len(h) != 1 || !strings.HasPrefix(h[0], `"per-key";r=5;`) {
		t.Errorf("RateLimit: got %q, want one with 5 remaining of per-key", h)
	}

	for _, tt := range []struct {
		name      string
		lines     []string
		challenge string
	}{
		{"none", nil, `ApiKey realm="api"`},
		{"unknown", []string{"x-api-key: planted-unknown"}, `ApiKey realm="api"`},
		{"twice", []string{"x-api-key: acme-old-key", "x-api-key: acme-new-key"}, `ApiKey realm="api"`},
	} {
		got := g.ask(t, "/", tt.lines...)
		// Before 1.23 nginx passes on the first challenge alone.
		if h := got.Header.Values("Www-Authenticate"); got.Status != 401 || len(h) == 0 || h[0] != tt.challenge {
			t.Errorf("%s: got %d with %q, want 401 with %s", tt.name, got.Status, h, tt.challenge)
		}
	}
	got = g.ask(t, "/", "x-api-key: gone-key")
	if diff := cmp.Diff([]any{403, `{"type":"about:blank","title":"Forbidden","status":403}`, "application/problem+json", []string(nil)},
		[]any{got.Status, got.Body, got.Header.Get("Content-Type"), got.Header["Retry-After"]}); diff != "" {
		t.Errorf("disabled: status, body, type, Retry-After (-want +got):\n%s", diff)
	}

	g.wantPathsRefused(t)
	g.wantKeysRemoved(t)
	g.wantLimited(t, 49993)

	// Neither can a client ask rls itself.
	if got := g.ask(t, "/_authz?anonymous=true"); got.Status != http.StatusNotFound {
		t.Errorf("/_authz from outside: got %d, want 404", got.Status)
	}
	g.rls.Kill()
	got = g.ask(t, "/", "x-api-key: acme-old-key")
	if got.Status != 503 || got.Header.Get("Retry-After") != "1" {
		t.Errorf("without rls: got %d with Retry-After %q, want 503 with 1", got.Status, got.Header.Get("Retry-After"))
	}
}

// TestCaddyAsks has Caddy in the place of Envoy. Caddy passes on the answers of rls.
func TestCaddyAsks(t *testing.T) {
	t.Parallel()
	// A busy machine may take longer.
	g := newGateway(t, edge.Caddy, caddyConfig, map[string]string{"response_header_timeout 1s": "response_header_timeout 30s", "dial_timeout 250ms": "dial_timeout 30s"})
	g.wantPasses(t)

	invalid := `, error="invalid_token"`
	for _, tt := range []struct {
		name   string
		lines  []string
		body   string
		bearer string
	}{
		{"none", nil, noKey, ""},
		{"unknown", []string{"x-api-key: planted-unknown"}, nobodysKey, invalid},
		{"twice", []string{"x-api-key: acme-old-key", "x-api-key: acme-new-key"}, badKey, invalid},
	} {
		got := g.ask(t, "/", tt.lines...)
		want := []any{401, tt.body, []string{`ApiKey realm="api"`, `Bearer realm="api"` + tt.bearer, `Basic realm="api"`}}
		if diff := cmp.Diff(want, []any{got.Status, got.Body, got.Header["Www-Authenticate"]}); diff != "" {
			t.Errorf("%s: status, body, challenges (-want +got):\n%s", tt.name, diff)
		}
	}
	got := g.ask(t, "/", "x-api-key: gone-key")
	if diff := cmp.Diff([]any{403, disabled, "application/problem+json", []string(nil)},
		[]any{got.Status, got.Body, got.Header.Get("Content-Type"), got.Header["Retry-After"]}); diff != "" {
		t.Errorf("disabled: status, body, type, Retry-After (-want +got):\n%s", diff)
	}
	g.wantPathsRefused(t)
	g.wantKeysRemoved(t)

	// A header that Connection names is not sent on: a client would be rid of its
	// tier. One request more of other.
	body := "a=1"
	got, _ = stack.Send(t, g.gateway.Addr(), "POST / HTTP/1.1\r\nHost: api.example\r\nConnection: x-tier, close,x-subject-id\r\nConnection: x-forwarded-for\r\nX-Api-Key: other-key\r\n"+
		"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	r := g.app.Last(t)
	if diff := cmp.Diff([]any{200, "POST", int64(len(body)), []string{"other"}, []string{"free"}},
		[]any{got.Status, r.Method, r.ContentLength, r.Header["X-Subject-Id"], r.Header["X-Tier"]}); diff != "" {
		t.Errorf("names in Connection: status; method, length, X-Subject-Id, X-Tier at the application (-want +got):\n%s", diff)
	}
	g.wantLimited(t, 49992)

	g.rls.Kill()
	if got := g.ask(t, "/", "x-api-key: acme-old-key"); got.Status != http.StatusBadGateway {
		t.Errorf("without rls: got %d, want 502", got.Status)
	}
}

// TestEnvoyAsksOverHTTP uses Envoy's authorization over HTTP.
func TestEnvoyAsksOverHTTP(t *testing.T) {
	t.Parallel()
	app := stack.NewApplication(t)
	rls := stack.Setup{
		Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"),
		Env: stack.With(stack.TrustOwnTier, map[string]string{stack.EnvCredentials: "header:x-api-key,bearer,query:api_key,cookie:session", envRemoveCredential: "true"}),
	}.Serve(t)
	envoy := edge.Envoy(t, edge.EnvoyOptions{Config: httpServiceConfig, Upstream: app.Addr, RLS: strings.TrimPrefix(rls.HTTP(), "http://")})
	for _, tt := range []struct {
		name, path string
		lines      []string
		status     int
		body       string
		challenges []string
		subject    []string // at the application
		cookies    []string // there
	}{
		{name: "a key", path: "/", lines: []string{"x-api-key: acme-old-key"}, status: 200, body: stack.AppBody, subject: []string{"acme"}},
		{name: "a cookie", path: "/", lines: []string{"cookie: session=acme-old-key"}, status: 200, body: stack.AppBody, subject: []string{"acme"}},
		{
			name: "a cookie among others, beside Authorization", path: "/", lines: []string{"cookie: a=1; session=acme-old-key; b=2", "authorization: Bearer acme-new-key"},
			status: 200, body: stack.AppBody, subject: []string{"acme"}, cookies: []string{"a=1; b=2"},
		},
		{name: "another cookie", path: "/", lines: []string{"x-api-key: acme-old-key", "cookie: a=1"}, status: 200, body: stack.AppBody, subject: []string{"acme"}, cookies: []string{"a=1"}},
		{name: "a key in the query", path: "/a?x=1&api_key=acme-new-key", status: 200, body: stack.AppBody, subject: []string{"acme"}},
		{name: "a path like a context", path: "/?anonymous=true", status: 401, body: noKey, challenges: challenges},
		{name: "a path like that of rls", path: "/authz?anonymous=true", status: 401, body: noKey, challenges: challenges},
		{name: "a path that is not clean", path: "/a/../authz?anonymous=true", status: 401, body: noKey, challenges: challenges},
		{name: "no path but a query", path: "//?anonymous=true", status: 401, body: noKey, challenges: challenges},
		{name: "unknown", path: "/", lines: []string{"x-api-key: planted-unknown"}, status: 401, body: nobodysKey, challenges: badChallenges},
		{name: "twice", path: "/", lines: []string{"x-api-key: acme-old-key", "x-api-key: acme-new-key"}, status: 401, body: badKey, challenges: badChallenges},
		{name: "disabled", path: "/", lines: []string{"x-api-key: gone-key"}, status: 403, body: disabled},
	} {
		before := len(app.Received())
		got, _ := stack.Send(t, envoy.Addr(), stack.Get11(tt.path, append(tt.lines, "x-subject-id: bigco", "x-tier: pro")...))
		want := []any{tt.status, tt.body, tt.challenges, tt.subject}
		have := []any{got.Status, got.Body, got.Header["Www-Authenticate"], []string(nil)}
		if len(app.Received()) > before {
			h := app.Last(t).Header
			have[3] = h["X-Subject-Id"]
			if diff := cmp.Diff([][]string{{"starter"}, nil, nil, tt.cookies}, [][]string{h["X-Tier"], h["X-Api-Key"], h["Authorization"], h["Cookie"]}); diff != "" {
				t.Errorf("%s: X-Tier, X-Api-Key, Authorization, Cookie at the application (-want +got):\n%s", tt.name, diff)
			}
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: status, body, challenges, and the subject at the application (-want +got):\n%s", tt.name, diff)
		}
	}
	// A key in the query stays in the path: over HTTP rls cannot remove it.
	if got := app.Last(t).RequestURI; got != "/a?x=1&api_key=acme-new-key" {
		t.Errorf("path at the application: got %s", got)
	}
}
