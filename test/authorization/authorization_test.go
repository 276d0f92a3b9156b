package authorization

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// Settings of rls that authorization needs.
const (
	envRemoveCredential = "SLIDEGATE_AUTHZ_REMOVE_CREDENTIAL"
	envLabelHeaders     = "SLIDEGATE_AUTHZ_LABEL_HEADERS"
	envAddress          = "SLIDEGATE_AUTHZ_ADDRESS"
	envHops             = "SLIDEGATE_AUTHZ_HOPS"
)

// eachWay runs a test with rate limits behind authorization and with both in one
// hop.
func eachWay(t *testing.T, f func(t *testing.T, config string)) {
	t.Parallel()
	for name, config := range map[string]string{"two questions": stack.AuthorizationConfig, "one hop": stack.OneHopConfig} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, config)
		})
	}
}

// The bodies of denials by authorization.
const (
	refused    = `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"`
	noKey      = refused + `This request needs an API key.","reason":"missing"}`
	badKey     = refused + `The API key is malformed, or there is more than one.","reason":"malformed"}`
	nobodysKey = refused + `The API key is not valid.","reason":"unknown"}`
	disabled   = `{"type":"about:blank","title":"Forbidden","status":403,"detail":"The subject of this API key is disabled.","reason":"disabled"}`
)

// The challenges for the default credentials, and for a bad key.
var (
	challenges    = []string{`ApiKey realm="api"`, `Bearer realm="api"`}
	badChallenges = []string{`ApiKey realm="api"`, `Bearer realm="api", error="invalid_token"`}
)

// TestWhoMayPass sends requests with good keys, bad keys and without a key, in every
// form.
func TestWhoMayPass(t *testing.T) {
	eachWay(t, func(t *testing.T, config string) {
		s := stack.Setup{
			Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Config: config,
			Env: stack.With(stack.TrustOwnTier, map[string]string{stack.EnvLogLevel: "debug"}), Change: allowPages,
		}.Start(t)
		wantPages(t, s.Envoy.Addr())
		process.Eventually(t, "the access log", func() bool { return len(s.Envoy.AccessLog()) == 4 })
		for _, tt := range []struct {
			name, path      string
			lines           []string
			status          int
			body            string
			challenges      []string
			subject, reason any // in the access log
		}{
			{name: "a key", lines: []string{"x-api-key: acme-old-key"}, status: 200, subject: "acme"},
			{name: "another key", lines: []string{"x-api-key: acme-new-key"}, status: 200, subject: "acme"},
			{name: "a bearer", lines: []string{"authorization: bearer other-key"}, status: 200, subject: "other"},
			{name: "none", status: 401, body: noKey, challenges: challenges, reason: "missing"},
			{name: "another scheme", lines: []string{"authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("a:acme-old-key"))}, status: 401, body: noKey, challenges: challenges, reason: "missing"},
			{name: "a query parameter, which is no credential", path: "?x-api-key=acme-old-key", status: 401, body: noKey, challenges: challenges, reason: "missing"},
			{name: "unknown", lines: []string{"x-api-key: planted-unknown"}, status: 401, body: nobodysKey, challenges: badChallenges, reason: "unknown"},
			{name: "unknown, with a good one in a later place", lines: []string{"x-api-key: planted-unknown", "authorization: Bearer acme-old-key"}, status: 401, body: nobodysKey, challenges: badChallenges, reason: "unknown"},
			{name: "empty", lines: []string{"x-api-key:"}, status: 401, body: badKey, challenges: badChallenges, reason: "malformed"},
			{name: "with a space", lines: []string{"x-api-key: planted malformed"}, status: 401, body: badKey, challenges: badChallenges, reason: "malformed"},
			{name: "not UTF-8", lines: []string{"x-api-key: acme-old-key\xff"}, status: 401, body: badKey, challenges: badChallenges, reason: "malformed"},
			{name: "twice", lines: []string{"x-api-key: acme-old-key", "x-api-key: acme-new-key"}, status: 401, body: badKey, challenges: badChallenges, reason: "malformed"},
			{name: "twice the same", lines: []string{"x-api-key: acme-old-key", "X-API-KEY: acme-old-key"}, status: 401, body: badKey, challenges: badChallenges, reason: "malformed"},
			{name: "twice, in one line", lines: []string{"x-api-key: acme-old-key, acme-new-key"}, status: 401, body: badKey, challenges: badChallenges, reason: "malformed"},
			{name: "two bearers", lines: []string{"authorization: Bearer acme-old-key", "authorization: Bearer acme-new-key"}, status: 401, body: badKey, challenges: badChallenges, reason: "malformed"},
			{name: "too long", lines: []string{"x-api-key: " + strings.Repeat("x", 5000)}, status: 401, body: badKey, challenges: badChallenges, reason: "malformed"},
			{name: "disabled", lines: []string{"x-api-key: gone-key"}, status: 403, body: disabled, subject: "gone", reason: "disabled"},
			{name: "no key, where none is needed", path: "login", status: 200, subject: "ip:127.0.0.1"},
			{name: "a key, where none is needed", path: "login", lines: []string{"x-api-key: other-key"}, status: 200, subject: "other"},
			{name: "a bad key, where none is needed", path: "login", lines: []string{"x-api-key: planted-unknown"}, status: 401, body: nobodysKey, challenges: badChallenges, reason: "unknown"},
		} {
			before, logged := len(s.App.Received()), len(s.Envoy.AccessLog())
			got, raw := stack.Send(t, s.Envoy.Addr(), stack.Get11("/"+tt.path, tt.lines...))
			if got.Status != tt.status {
				t.Errorf("%s: got %d, want %d: %s", tt.name, got.Status, tt.status, got.Body)
			}
			for _, key := range []string{"acme-", "planted", "gone-key"} {
				if strings.Contains(raw, key) {
					t.Errorf("%s: the key came back:\n%s", tt.name, raw)
				}
			}
			process.Eventually(t, "the access log", func() bool { return len(s.Envoy.AccessLog()) > logged })
			entry := s.Envoy.AccessLog()[logged]
			if diff := cmp.Diff([]any{tt.subject, tt.reason}, []any{entry["subject"], entry["reason"]}); diff != "" {
				t.Errorf("%s: subject and reason in the access log (-want +got):\n%s", tt.name, diff)
			}
			reached := len(s.App.Received()) - before
			if tt.status == http.StatusOK {
				if reached != 1 {
					t.Errorf("%s: the application got %d requests, want 1", tt.name, reached)
				}
				continue
			}
			want := []any{0, tt.body, "application/problem+json", tt.challenges}
			if diff := cmp.Diff(want, []any{reached, got.Body, got.Header.Get("Content-Type"), got.Header.Values("Www-Authenticate")}); diff != "" {
				t.Errorf("%s: what reached the application, body, type and challenges (-want +got):\n%s", tt.name, diff)
			}
		}
		for where, text := range map[string]string{
			"rls's log": s.RLS.Output(), "the metrics": stack.Page(t, s.RLS.Admin()+"/metrics"), "the access log": s.Envoy.Output(),
		} {
			for _, key := range []string{"acme-old-key", "acme-new-key", "other-key", "gone-key", "planted"} {
				if strings.Contains(text, key) {
					t.Errorf("%s holds the key %s", where, key)
				}
			}
		}
		for name, want := range map[string]uint64{"ok": 5, "denied": 18, "error": 0} {
			if n := s.Stat("cluster.upstream.ext_authz." + name); n != want {
				t.Errorf("Envoy's counter %s: got %d, want %d", name, n, want)
			}
		}
		s.WantAllDecided()
	})
}

// allowPages lets web pages of one origin in.
var allowPages = map[string]string{"allow_origin_string_match: []": `allow_origin_string_match: [{exact: "https://app.example.com"}]`}

// wantPages sends to a gateway what a browser sends for pages of an origin that may call, and of another
// one. The gateway answers only the first one's preflight itself. A page that may call reads denials too.
func wantPages(t *testing.T, gateway string) {
	t.Helper()
	const origin = "https://app.example.com"
	for _, tt := range []struct {
		name, method, origin string
		preflight, passes    bool
	}{
		{"a preflight", "OPTIONS", origin, true, true},
		{"a preflight of another origin", "OPTIONS", origin + ".evil.example", true, false},
		{"OPTIONS", "OPTIONS", origin, false, false},
		{"GET", "GET", origin, false, false},
	} {
		lines := []string{"Origin: " + tt.origin}
		if tt.preflight {
			lines = append(lines, "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: x-api-key")
		}
		got, _ := stack.Send(t, gateway, tt.method+strings.TrimPrefix(stack.Get11("/", lines...), "GET"))
		allowed := ""
		if tt.origin == origin {
			allowed = origin
		}
		if to := got.Header.Get("Access-Control-Allow-Origin"); got.Status/100 == 2 != tt.passes || !tt.passes && got.Status != 401 || to != allowed {
			t.Errorf("%s: got %d for %q, want it for %q, and 401 unless it is the preflight", tt.name, got.Status, to, allowed)
		}
		if headers := got.Header.Get("Access-Control-Allow-Headers"); tt.passes && !strings.Contains(headers, "x-api-key") {
			t.Errorf("%s: a page may send %q", tt.name, headers)
		}
	}
}

// TestOnlyRlsSaysWhoCalls sends headers that only rls may set, with and without
// Envoy's own defence.
func TestOnlyRlsSaysWhoCalls(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]string{
		"as it is":          nil,
		"with rls alone":    {"              - remove: x-subject-id\n": "", "              - remove: x-tier\n": ""},
		"with headers sent": {"              encode_raw_headers: true\n": "", "              - remove: x-subject-id\n": "", "              - remove: x-tier\n": ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.Setup{
				Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Config: stack.AuthorizationConfig, Change: change,
				Env: stack.With(stack.TrustOwnTier, map[string]string{envLabelHeaders: "x-region=region"}),
			}.Start(t)
			spoofed := []string{"x-tier: pro", "X-Tier: starter", "x-subject-id: bigco", "X-Subject-Id: zeta", "x-consumer-id: bigco", "x-region: moon", "x-region: mars"}
			for _, tt := range []struct {
				name, path, key       string
				subject, tier, region []string
			}{
				{"no label", "/", "x-api-key: acme-old-key", []string{"acme"}, []string{"starter"}, nil},
				{"with a label", "/", "x-api-key: zeta-key", []string{"zeta"}, []string{"starter"}, []string{"eu-west"}},
				{"no key", "/login", "x-nothing: x", nil, []string{"free"}, nil},
			} {
				got, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11(tt.path, append([]string{tt.key}, spoofed...)...))
				if got.Status != http.StatusOK {
					t.Fatalf("%s: got %d, want 200: %s", tt.name, got.Status, got.Body)
				}
				h := s.App.Last(t).Header
				for name, want := range map[string][]string{"X-Subject-Id": tt.subject, "X-Tier": tt.tier, "X-Region": tt.region, "X-Consumer-Id": nil} {
					if diff := cmp.Diff(want, h[name]); diff != "" {
						t.Errorf("%s: %s at the application (-want +got):\n%s", tt.name, name, diff)
					}
				}
			}
			// acme has the tier starter whatever was sent, and no other subject was charged.
			want := []uint32{5, 0, 6}
			if diff := cmp.Diff(want, append(peekAs(s, "starter", "subject=acme", "subject=zeta"), peekAs(s, "starter", "subject=bigco")...)); diff != "" {
				t.Errorf("remaining of acme, zeta and bigco (-want +got):\n%s", diff)
			}
			s.WantAllDecided()
		})
	}
}

// peekAs is peek for a subject of a tier.
func peekAs(s *stack.Stack, tier string, descriptors ...string) []uint32 {
	s.T.Helper()
	return s.Peek(append(descriptors, "tier="+tier)...)[:len(descriptors)]
}

// TestCredentialsStayHere sends credentials in every place. The application must not
// get them.
func TestCredentialsStayHere(t *testing.T) {
	eachWay(t, func(t *testing.T, config string) {
		s := stack.Setup{
			Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Config: config,
			Env: stack.With(stack.TrustOwnTier, map[string]string{
				stack.EnvCredentials: "header:x-api-key,bearer,basic,apikey,query:api_key,cookie:session",
				envRemoveCredential:  "true",
			}),
			Change: map[string]string{
				"                - exact: authorization\n": "                - exact: authorization\n                - exact: cookie\n",
			},
		}.Start(t)
		basic := func(pair string) string {
			return "authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(pair))
		}
		for i, tt := range []struct {
			name, path string
			lines      []string
			arrives    string // the path at the application
			cookies    []string
		}{
			{name: "header", path: "/a?x=1", lines: []string{"x-api-key: acme-old-key"}, arrives: "/a?x=1"},
			{name: "bearer", path: "/", lines: []string{"authorization: Bearer acme-old-key"}, arrives: "/"},
			{name: "basic", path: "/", lines: []string{basic("user:acme-old-key")}, arrives: "/"},
			{name: "apikey", path: "/", lines: []string{"authorization: ApiKey other-key"}, arrives: "/"},
			{name: "query, which Envoy sorts then", path: "/a?z=1&api_key=other-key&y=%2Fa+b&c", arrives: "/a?c=&y=%2Fa+b&z=1"},
			{name: "query, alone and written otherwise", path: "/a?api%5Fkey=acme%2Dold-key", arrives: "/a"},
			{name: "cookie", path: "/", lines: []string{"cookie: a=1; session=acme-old-key; b=2"}, arrives: "/", cookies: []string{"a=1; b=2"}},
			{name: "cookie, alone", path: "/", lines: []string{"cookie: session=acme-old-key"}, arrives: "/"},
			{name: "header, with another beside it", path: "/?api_key=zeta-key", lines: []string{"x-api-key: zeta-key", "authorization: Bearer somebodys-token", "cookie: session=zeta-key"}, arrives: "/"},
		} {
			got, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11(tt.path, tt.lines...))
			if got.Status != http.StatusOK {
				t.Errorf("%s: got %d, want 200: %s", tt.name, got.Status, got.Body)
				continue
			}
			if n := len(s.App.Received()); n != i+1 {
				t.Fatalf("%s: %d requests have reached the application, want %d", tt.name, n, i+1)
			}
			r := s.App.Last(t)
			want := []any{tt.arrives, tt.cookies, []string(nil), []string(nil)}
			have := []any{r.RequestURI, r.Header["Cookie"], r.Header["Authorization"], r.Header["X-Api-Key"]}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s: path, cookies, Authorization, X-Api-Key at the application (-want +got):\n%s", tt.name, diff)
			}
		}
		for _, request := range []string{
			stack.Get11("/?api_key=acme-old-key&api_key=acme-old-key"),
			stack.Get11("/?api_key=acme-old-key&api%5fkey=other-key"),
			stack.Get11("/", "cookie: session=acme-old-key; session=other-key"),
			stack.Get11("/", "cookie: session=acme-old-key", "cookie: session=other-key"),
		} {
			if got, _ := stack.Send(t, s.Envoy.Addr(), request); got.Status != http.StatusUnauthorized || got.Body != badKey {
				t.Errorf("%q: got %d %s, want 401 malformed", request, got.Status, got.Body)
			}
		}
		s.WantAllDecided()
	})
}

// TestLimitsBySubject has limits by the subject that Envoy got from authorization.
func TestLimitsBySubject(t *testing.T) {
	t.Parallel()
	s := stack.Setup{Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Config: stack.AuthorizationConfig, Env: stack.TrustOwnTier}.Start(t)
	c := s.From("127.0.0.1")

	// The starter's limit of 6, over both keys of acme.
	c.Want(200, 3, "/", "x-api-key", "acme-old-key")
	c.Want(200, 3, "/", "authorization", "Bearer acme-new-key")
	for _, key := range []string{"acme-old-key", "acme-new-key"} {
		got := c.Get("/denied", "x-api-key", key)
		if p := stack.ProblemOf(t, got); got.Status != 429 || p.Rule != "per-subject" || p.Limit != 6 {
			t.Errorf("%s after 6 of 6: got %d by %+v, want 429 by the limit of 6 of per-subject", key, got.Status, p)
		}
	}
	entry, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["path"] == "/denied" })
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"acme", "starter", nil, "per-subject", 6.0, 0.0, "RL"}
	if diff := cmp.Diff(want, []any{entry["subject"], entry["tier"], entry["reason"], entry["rule"], entry["limit"], entry["remaining"], entry["flags"]}); diff != "" {
		t.Errorf("access log (-want +got):\n%s", diff)
	}

	// The limit of zeta's own, in place of its tier's.
	c.Want(200, 1, "/", "x-api-key", "zeta-key")
	c.Want(429, 1, "/", "x-api-key", "zeta-key")
	// The default tier's, and the route's.
	c.Want(200, 2, "/search", "x-api-key", "other-key")
	if p := stack.ProblemOf(t, c.Get("/search", "x-api-key", "other-key")); p.Rule != "search-per-subject" {
		t.Errorf("the third search: got rule %q, want search-per-subject", p.Rule)
	}
	c.Want(200, 1, "/", "x-api-key", "other-key")
	c.Want(429, 1, "/", "x-api-key", "other-key")
	// Without a key, each address is a subject.
	for _, address := range []string{"127.0.0.2", "127.0.0.3"} {
		s.From(address).Want(200, 2, "/login")
		s.From(address).Want(429, 1, "/login")
	}
	// 7 requests of starters have passed, and 7 others: 3 with a key, 4 without; 10 from here.
	left := s.Peek("tier=starter", "tier=free", "remote_address=127.0.0.1", "remote_address=127.0.0.2")
	if diff := cmp.Diff([]uint32{49993, 49993, 49990, 49998}, left); diff != "" {
		t.Errorf("remaining of starters, of others and of two addresses (-want +got):\n%s", diff)
	}
	s.WantAllDecided()
}

// TestATierChangeReachesBothQuestions moves a subject up and down, and then takes
// a key away.
func TestATierChangeReachesBothQuestions(t *testing.T) {
	eachWay(t, func(t *testing.T, config string) {
		s := stack.Setup{Rules: stack.Authorized, Tiers: stack.CustomersWith("free"), Config: config, Env: stack.TrustOwnTier}.Start(t)
		c := s.From("127.0.0.1")
		rewrite := func(tiers string) {
			t.Helper()
			before := stack.Generation(t, s.RLS)
			if err := s.RLS.WriteTiers(tiers); err != nil {
				t.Fatal(err)
			}
			process.Eventually(t, "the new tiers", func() bool { return stack.Generation(t, s.RLS) != before })
		}
		c.Want(200, 3, "/", "x-api-key", "acme-old-key")
		c.Want(429, 1, "/", "x-api-key", "acme-old-key")

		rewrite(stack.CustomersWith("starter")) // 3 of 6 are spent
		c.Want(200, 2, "/", "x-api-key", "acme-old-key")
		if got := s.App.Last(t).Header.Get("X-Tier"); got != "starter" {
			t.Errorf("X-Tier after the upgrade: got %q, want starter", got)
		}

		rewrite(stack.CustomersWith("free")) // 5 of 3 are spent
		got := c.Get("/", "x-api-key", "acme-old-key")
		if p := stack.ProblemOf(t, got); got.Status != 429 || p.Limit != 3 {
			t.Errorf("after the downgrade: got %d by a limit of %d, want 429 by a limit of 3", got.Status, p.Limit)
		}

		rewrite(strings.ReplaceAll(stack.CustomersWith("free"), "      - plain: acme-old-key\n", ""))
		c.Want(401, 1, "/", "x-api-key", "acme-old-key")
		c.Want(429, 1, "/", "x-api-key", "acme-new-key")
		s.WantAllDecided()
	})
}

// TestOneHopAnswersAlike sends requests through one hop and through ratelimit.yaml to
// one rls, and compares everything that a client gets.
func TestOneHopAnswersAlike(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		two := stack.Setup{Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Env: settings}.Start(t)
		one := &stack.Stack{T: t, App: two.App, RLS: two.RLS}
		stack.Setup{Config: stack.OneHopConfig}.StartEnvoy(one)

		// names of what the client gets, with values that do not depend on time.
		alike := func(a stack.Answer, without ...string) map[string][]string {
			h := map[string][]string(a.Header.Clone())
			for _, name := range append(without, "Date", "X-Envoy-Upstream-Service-Time") {
				delete(h, name)
			}
			for i := range h["Retry-After-Ms"] {
				h["Retry-After-Ms"][i] = "some"
			}
			h["status and body"] = []string{http.StatusText(a.Status), a.Body}
			return h
		}
		hidden := func(a stack.Answer) stack.Answer {
			a.Header = a.Header.Clone()
			a.Header.Del("RateLimit") // says what remains
			return a
		}
		ask := func(s *stack.Stack) stack.Answer { return s.Get("/", "x-api-key", "acme-old-key") }
		if diff := cmp.Diff(alike(hidden(ask(two))), alike(hidden(ask(one)))); diff != "" {
			t.Errorf("allowed, in two questions (-) and in one (+):\n%s", diff)
		}
		// Both spend from one log: four of six are left.
		for _, s := range []*stack.Stack{one, one, two, two} {
			if got := ask(s); got.Status != http.StatusOK {
				t.Errorf("got %d, want 200", got.Status)
			}
		}
		// A second may end between the two.
		process.Eventually(t, "the same time to wait in both answers", func() bool {
			a, b := ask(two), ask(one)
			if a.Status != 429 || b.Status != 429 {
				t.Fatalf("after 6 of 6: got %d and %d, want 429 from both", a.Status, b.Status)
			}
			if a.Header.Get("Retry-After") != b.Header.Get("Retry-After") {
				return false
			}
			if diff := cmp.Diff(alike(a, "X-Envoy-Ratelimited"), alike(b)); diff != "" {
				t.Errorf("denied, in two questions (-) and in one (+):\n%s", diff)
			}
			return true
		})
		one.Get("/log", "x-api-key", "acme-old-key")
		two.Get("/log", "x-api-key", "acme-old-key")
		logged := func(s *stack.Stack) map[string]any {
			entry, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["path"] == "/log" })
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"time", "duration_ms", "request_id", "retry_after"} {
				delete(entry, name)
			}
			return entry
		}
		want := logged(two)
		want["flags"], want["details"], want["reason"] = "UAEX", "ext_authz_denied", "limited"
		delete(want, "key_digest") // one hop refuses a key without a subject
		if diff := cmp.Diff(want, logged(one)); diff != "" {
			t.Errorf("access log, in two questions (-) and in one (+):\n%s", diff)
		}
		two.WantAllDecided()
	})
}

// TestADeniedGRPCCall has gRPC clients whose calls authorization denies.
func TestADeniedGRPCCall(t *testing.T) {
	t.Parallel()
	s := stack.Setup{Rules: stack.Authorized, Tiers: stack.CustomersWith("starter"), Config: stack.OneHopConfig}.Start(t)
	client := healthv1.NewHealthClient(stack.Connect(t, s.Envoy.Addr()))
	for _, tt := range []struct {
		key  string
		code codes.Code
	}{
		{"", codes.Unauthenticated},
		{"planted-unknown", codes.Unauthenticated},
		{"gone-key", codes.PermissionDenied},
		{"other-key", codes.Internal},   // beside a key of acme
		{"zeta-key", codes.Unavailable}, // of the second call
	} {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		if tt.key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", tt.key)
		}
		if tt.code == codes.Internal {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer acme-old-key")
		}
		if tt.key == "zeta-key" {
			s.Get("/", "x-api-key", tt.key)
		}
		_, err := client.Check(ctx, &healthv1.HealthCheckRequest{})
		if status.Code(err) != tt.code || !strings.HasPrefix(status.Convert(err).Message(), `{"type":`) {
			t.Errorf("key %q: got %v, want %v with a problem document", tt.key, err, tt.code)
		}
	}
}

// TestWithoutRlsNobodyPasses kills rls, in each of Envoy's failure modes.
func TestWithoutRlsNobodyPasses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode   string
		status int
	}{{"false", 503}, {"true", 200}} {
		for _, config := range []string{stack.AuthorizationConfig, stack.OneHopConfig} {
			t.Run(config+" "+tt.mode, func(t *testing.T) {
				t.Parallel()
				s := stack.Setup{
					Rules: stack.Authorized, Tiers: stack.CustomersWith("free"), Config: config, Env: stack.TrustOwnTier,
					Change: map[string]string{"failure_mode_allow: false": "failure_mode_allow: " + tt.mode},
				}.Start(t)
				c := s.From("127.0.0.1")
				c.Want(200, 2, "/", "x-api-key", "acme-old-key")
				for i := range 20 { // more are guesses
					c.Want(401, 1, "/", "x-api-key", fmt.Sprint("planted-unknown-", i))
				}
				c.Want(429, 5, "/", "x-api-key", "planted-unknown")
				if got := c.Get("/", "x-api-key", "planted-unknown"); got.Header.Get("Retry-After") == "" || !strings.Contains(got.Body, "unknown API keys") {
					t.Errorf("a guess: got %v %s, want Retry-After and the reason", got.Header, got.Body)
				}
				c.Want(200, 1, "/", "x-api-key", "acme-old-key")
				c.Want(429, 1, "/", "x-api-key", "acme-old-key")

				s.RLS.Kill()
				for _, key := range []string{"acme-old-key", "planted-unknown"} {
					c.Want(tt.status, 1, "/", "x-api-key", key, "x-subject-id", "bigco", "x-tier", "pro")
				}
				for _, name := range []string{"X-Subject-Id", "X-Tier"} {
					if got := s.App.Last(t).Header.Values(name); tt.status == 200 && len(got) > 0 {
						t.Errorf("%s at the application: got %q, want none: rls has not set it", name, got)
					}
				}

				if err := s.RLS.Start(); err != nil {
					t.Fatal(err)
				}
				process.Eventually(t, "authorization to be back", func() bool {
					return c.Get("/", "x-api-key", "planted-unknown").Status == http.StatusUnauthorized
				})
				c.Want(200, 1, "/", "x-api-key", "acme-old-key")
			})
		}
	}
}

// TestTheAddressByAHeader makes rls read the address from the headers that Envoy
// writes, at the edge and behind another proxy.
func TestTheAddressByAHeader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, header, hops string
		sent               []string // by one client
	}{
		{"at the edge", "x-forwarded-for", "1", []string{"", "192.0.2.1", "192.0.2.2, 192.0.2.3"}},
		{"behind a proxy", "x-forwarded-for", "2", []string{"192.0.2.9", "192.0.2.1, 192.0.2.9", "192.0.2.2,192.0.2.3,192.0.2.9"}},
		{"Envoy's own", "x-envoy-external-address", "1", []string{"", "192.0.2.1", "192.0.2.2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := stack.Setup{
				Rules: stack.Authorized, Tiers: stack.CustomersWith("free"), Config: stack.OneHopConfig,
				Env:    map[string]string{envAddress: tt.header, envHops: tt.hops},
				Change: map[string]string{"                # - exact: x-forwarded-for\n": "                - exact: " + tt.header + "\n"},
			}.Start(t)
			// Not 127.0.0.1: to X-Forwarded-For Envoy adds its own address in its place.
			c := s.From("127.0.0.2")
			for i, sent := range tt.sent {
				var header []string
				if sent != "" {
					header = []string{tt.header, sent}
				}
				want := http.StatusOK
				if i == 2 {
					want = http.StatusTooManyRequests
				}
				c.Want(want, 1, "/login", header...)
			}
			s.From("127.0.0.3").Want(200, 1, "/login", tt.header, "192.0.2.77")
		})
	}
}

// TestBuiltInRulesAuthorize runs the files with only the settings that they name.
func TestBuiltInRulesAuthorize(t *testing.T) {
	eachWay(t, func(t *testing.T, config string) {
		s := stack.Setup{Config: config, Env: stack.With(stack.TrustOwnTier, map[string]string{stack.EnvTiersSource: "file", envRemoveCredential: "true"})}.Start(t)
		c := s.From("127.0.0.1")
		c.Want(200, 100, "/", "x-api-key", "demo-free")
		c.Want(429, 1, "/", "x-api-key", "demo-free")
		c.Want(200, 1, "/", "x-api-key", "demo-starter")
		c.Want(403, 1, "/", "x-api-key", "demo-disabled")
		c.Want(401, 1, "/")
		c.Want(200, 10, "/login")
		c.Want(429, 1, "/login")
		if slices.ContainsFunc(s.App.Received(), func(r *http.Request) bool { return r.Header.Get("X-Api-Key") != "" }) {
			t.Error("the application got a key")
		}
		s.WantAllDecided()
	})
}
