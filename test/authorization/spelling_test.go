package authorization

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// onlyHTTP1 changes every file of envoy/ for an application that accepts only
// HTTP/1.1, as a comment in ratelimit.yaml says.
var onlyHTTP1 = map[string]string{
	"        use_downstream_protocol_config:\n          http2_protocol_options: {}\n": "        explicit_http_config: {http_protocol_options: {}}\n",
}

// status2 sends one request over HTTP/2 and returns its status. Header fields are
// written as "name: value"; the value is sent unchanged. The status is 0 if Envoy ends
// the stream or the connection.
func status2(t *testing.T, addr string, lines ...string) int {
	t.Helper()
	var fields []string
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		fields = append(fields, name, value)
	}
	return stack.Send2(t, addr, stack.Get2("/", fields...)).Status
}

// eachFile runs a test with every file of envoy/, with an application that accepts
// HTTP/2, and with one that accepts only HTTP/1.1. rls has customers in a tiers file.
// Where the file works without customers, the test also runs without.
func eachFile(t *testing.T, rules string, f func(t *testing.T, s *stack.Stack)) {
	t.Parallel()
	for _, config := range []string{stack.EdgeConfig, stack.SidecarConfig, stack.TLSConfig, stack.AuthorizationConfig, stack.OneHopConfig} {
		for upstream, change := range map[string]map[string]string{"HTTP1": onlyHTTP1, "HTTP2": nil} {
			for _, tiers := range []string{stack.TiersOf("free"), ""} {
				if authorizes := config == stack.AuthorizationConfig || config == stack.OneHopConfig; tiers == "" && authorizes {
					continue // it lets known customers pass alone
				}
				name := fmt.Sprintf("%s %s %v", filepath.Base(config), upstream, tiers != "")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f(t, stack.FileSetup(t, config, rules, tiers, change).Start(t))
				})
			}
		}
	}
}

// twoPerKey limits a key, or a subject, to two requests.
const twoPerKey = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 2}}
  - {key: subject, rate_limit: {name: per-subject, window: 1h, requests: 2}}
`

// TestWhiteSpaceAroundAKey uses up the limit of a key, and then sends the key with
// spaces and tabs around it. Envoy passes these on over HTTP/2.
func TestWhiteSpaceAroundAKey(t *testing.T) {
	eachFile(t, twoPerKey, func(t *testing.T, s *stack.Stack) {
		addr := s.Envoy.Addr()
		// One key over HTTP/2, another one over HTTP/1.1: both of known customers.
		for _, key := range []string{"acme-old-key", "other-key"} {
			for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
				got := 0
				if key == "other-key" {
					a, _ := stack.Send(t, addr, stack.Get11("/", "x-api-key: "+key))
					got = a.Status
				} else {
					got = status2(t, addr, "x-api-key: "+key)
				}
				if got != want {
					t.Fatalf("%s: request %d of a limit of 2: got %d, want %d", key, i+1, got, want)
				}
			}
			passed := len(s.App.Received())
			for _, value := range []string{" " + key, key + " ", "\t" + key, key + "\t", " \t " + key + " \t ", "  " + key, strings.Repeat(" ", 100) + key} {
				if got := status2(t, addr, "x-api-key: "+value); got != http.StatusTooManyRequests {
					t.Errorf("HTTP/2, x-api-key: %q after the limit: got %d, want 429", value, got)
				}
				if got, _ := stack.Send(t, addr, stack.Get11("/", "x-api-key: "+value)); got.Status != http.StatusTooManyRequests {
					t.Errorf("HTTP/1.1, x-api-key: %q after the limit: got %d, want 429", value, got.Status)
				}
			}
			if n := len(s.App.Received()) - passed; n != 0 {
				t.Errorf("%d requests with the key %s after its limit have reached the application, want none", n, key)
			}
		}
		s.WantAllDecided()
	})
}

// TestOtherPaddingIsAnotherKey proves that only spaces and tabs are not part of a
// value, as docs/reference/rules.md says. Envoy refuses control characters.
func TestOtherPaddingIsAnotherKey(t *testing.T) {
	t.Parallel()
	s := stack.Setup{Rules: twoPerKey}.Start(t)
	addr := s.Envoy.Addr()
	for i, padding := range []string{"\u00a0", "\u0085", "\u2003", "\u200b", "\xa0", "\x85", "\ufeff"} {
		for over, ask := range map[string]func(value string) int{
			"HTTP/2": func(value string) int { return status2(t, addr, "x-api-key: "+value) },
			"HTTP/1.1": func(value string) int {
				got, _ := stack.Send(t, addr, stack.Get11("/", "x-api-key: "+value))
				return got.Status
			},
		} {
			key := fmt.Sprintf("%s-%d", strings.ReplaceAll(over, "/", ""), i)
			for _, value := range []string{key, padding + key, key + padding} {
				if got := []int{ask(value), ask(value + " "), ask(" " + value)}; !slices.Equal(got, []int{200, 200, 429}) {
					t.Errorf("%s: three requests with x-api-key: %q: got %v, want two to pass", over, value, got)
				}
			}
		}
	}
	before := len(s.App.Received())
	for _, padding := range []string{"\x00", "\v", "\f", "\r", "\n", "\x1c", "\x7f"} {
		if got := status2(t, addr, "x-api-key: k"+padding); got == http.StatusOK {
			t.Errorf("HTTP/2, padded by %q: got 200, want it refused", padding)
		}
	}
	for _, padding := range []string{"\x00", "\v", "\f", "\x1c", "\x7f"} {
		if got, _ := stack.Send(t, addr, stack.Get11("/", "x-api-key: k"+padding)); got.Status != http.StatusBadRequest {
			t.Errorf("HTTP/1.1, padded by %q: got %d, want 400", padding, got.Status)
		}
	}
	if n := len(s.App.Received()) - before; n != 0 {
		t.Errorf("the application got %d requests that Envoy should refuse", n)
	}
	// Over HTTP/1.1 Envoy removes a single CR, and what folds a line.
	for i, padding := range []string{"", "\r", "\r\r", "\r\n ", "\n\t"} {
		want := http.StatusOK
		if i >= 2 {
			want = http.StatusTooManyRequests
		}
		if got, _ := stack.Send(t, addr, stack.Get11("/", "x-api-key: folded"+padding)); got.Status != want {
			t.Errorf("HTTP/1.1, request %d of a limit of 2, padded by %q: got %d, want %d", i+1, padding, got.Status, want)
		}
	}
	s.WantAllDecided()
}

// byAuthorization changes stack.EdgeConfig to take the key from Authorization.
var byAuthorization = map[string]string{
	"request_headers: {header_name: x-api-key, descriptor_key: api_key}": "request_headers: {header_name: authorization, descriptor_key: authorization}",
}

// spellingsOf returns spellings of one credential of the scheme Bearer or ApiKey.
func spellingsOf(key string) []string {
	return []string{
		"Bearer " + key, "bearer " + key, "BEARER " + key, "Bearer  " + key, "Bearer\t" + key, "bEARER \t " + key, " Bearer " + key + "\t",
		"ApiKey " + key, "apikey   " + key, key, " " + key,
		"Bearer " + key + " more", "Bearer " + key + ",Bearer more",
	}
}

// TestOneCredentialHasOneQuota uses up the limit of a credential, and then sends the
// credential in every other spelling.
func TestOneCredentialHasOneQuota(t *testing.T) {
	t.Parallel()
	pair := func(pair string) string { return base64.StdEncoding.EncodeToString([]byte(pair)) }
	for name, tt := range map[string]struct {
		tiers     string
		key       string
		spellings []string
		other     string // another credential
	}{
		"a customer":    {stack.TiersOf("free"), "Bearer acme-old-key", append(spellingsOf("acme-old-key"), spellingsOf("acme-new-key")...), "Bearer other-key"},
		"any key":       {"", "Bearer k", spellingsOf("k"), "Bearer K"},
		"a pair":        {"", "Basic " + pair("u:k"), []string{"basic " + pair("u:k"), "BASIC\t" + pair("u:k") + " "}, "Basic " + pair("v:k")},
		"no pair":       {"", "Basic !" + pair("u:k"), []string{"Basic " + pair("u:k") + " more", "Basic " + strings.TrimRight(pair("u:kk"), "=") + "=x", "basic !"}, "Basic " + pair("u:k")},
		"other schemes": {"", "Token k", []string{"token k", "TOKEN\t k "}, "Token K"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.Setup{Rules: strings.ReplaceAll(twoPerKey, "api_key", "authorization"), Tiers: tt.tiers, Change: byAuthorization}.Start(t)
			addr := s.Envoy.Addr()
			for i, want := range []int{200, 200, 429} {
				if got := status2(t, addr, "authorization: "+tt.key); got != want {
					t.Fatalf("request %d of a limit of 2: got %d, want %d", i+1, got, want)
				}
			}
			for _, value := range tt.spellings {
				if got := status2(t, addr, "authorization: "+value); got != http.StatusTooManyRequests {
					t.Errorf("HTTP/2, %q after the limit: got %d, want 429", value, got)
				}
				if got, _ := stack.Send(t, addr, stack.Get11("/", "authorization: "+value)); got.Status != http.StatusTooManyRequests {
					t.Errorf("HTTP/1.1, %q after the limit: got %d, want 429", value, got.Status)
				}
				if diff := cmp.Diff([]uint32{0}, s.Peek(strings.ReplaceAll("authorization="+value, ",", " "))); diff != "" {
					t.Errorf("/json, %q after the limit: remaining (-want +got):\n%s", value, diff)
				}
			}
			// Envoy joins two lines of Authorization by a comma. The first key counts.
			if strings.HasPrefix(tt.key, "Bearer ") {
				if got := status2(t, addr, "authorization: "+tt.key, "authorization: "+tt.other); got != http.StatusTooManyRequests {
					t.Errorf("another line behind that of the key: got %d, want 429", got)
				}
			}
			if got := status2(t, addr, "authorization: "+tt.other); got != http.StatusOK {
				t.Errorf("%q, which is another credential: got %d, want 200", tt.other, got)
			}
			s.WantAllDecided()
		})
	}
}

// TestBothWaysHaveOneQuota has two Envoys in front of one rls: one sends the header as
// a descriptor, the other authorizes and limits in one hop.
func TestBothWaysHaveOneQuota(t *testing.T) {
	t.Parallel()
	env := map[string]string{stack.EnvCredentials: "bearer,basic,apikey"}
	s := stack.Setup{Rules: strings.ReplaceAll(twoPerKey, "requests: 2", "requests: 12"), Tiers: stack.TiersOf("free"), Env: env, Change: map[string]string{
		"request_headers: {header_name: x-api-key, descriptor_key: api_key}": "request_headers: {header_name: authorization, descriptor_key: api_key}",
	}}.Start(t)
	hop := &stack.Stack{T: t, App: s.App, RLS: s.RLS}
	stack.Setup{Config: stack.OneHopConfig}.StartEnvoy(hop)
	want := uint32(12)
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	for _, value := range []string{"Bearer acme-old-key", "bearer\tacme-old-key ", "ApiKey  acme-new-key", basic("user:acme-old-key"), strings.ToLower("Basic") + basic("acme-new-key:")[5:], "\tBEARER acme-new-key"} {
		for _, way := range []*stack.Stack{s, hop} {
			if got := status2(t, way.Envoy.Addr(), "authorization: "+value); got != http.StatusOK {
				t.Errorf("%q: got %d, want 200", value, got)
			}
			want--
			digest := strings.TrimSpace(edge.Run(t, edge.RLSOptions{Env: env}, value+"\n", "digest").Stdout)
			if known := strings.TrimSpace(edge.Run(t, edge.RLSOptions{}, "acme-old-key\nacme-new-key\n", "digest").Stdout); !strings.Contains(known, digest) || digest == "" {
				t.Errorf("rls digest of %q: got %q, want that of a key of acme", value, digest)
			}
			if diff := cmp.Diff([]uint32{want}, s.Peek("api_key=acme-old-key")); diff != "" {
				t.Errorf("%q: remaining (-want +got):\n%s", value, diff)
			}
		}
	}
	s.WantAllDecided()
}

// ambiguous is the body of a refusal.
const ambiguous = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"The request has API keys of two subjects.","reason":"ambiguous"}`

// TestKeysOfTwoCustomers sends two keys in one request.
func TestKeysOfTwoCustomers(t *testing.T) {
	eachWay(t, func(t *testing.T, config string) {
		pg, postgres := startCustomerDatabase(t)
		stack.Execute(t, pg, `INSERT INTO slidegate.subjects (id, disabled) VALUES ('other', false), ('gone', true)`)
		for key, subject := range map[string]string{"acme-new-key": "acme", "other-key": "other", "gone-key": "gone"} {
			stack.Execute(t, pg, `INSERT INTO slidegate.keys (digest, subject) VALUES ($1, $2)`, stack.DigestOf(key), subject)
		}
		for name, s := range map[string]stack.Setup{
			"tiers file": {Tiers: stack.CustomersWith("free"), Env: stack.TrustOwnTier},
			"PostgreSQL": {Tiers: stack.TierNames, Env: postgres},
		} {
			t.Run(name, func(t *testing.T) {
				s.Rules, s.Config = stack.Authorized, config
				s := s.Start(t)
				for _, lines := range [][]string{
					{"x-api-key: acme-old-key", "authorization: Bearer other-key"},
					{"x-api-key: other-key", "authorization: bearer acme-new-key"},
					{"authorization: BEARER  acme-old-key", "x-api-key: other-key"},
					{"x-api-key: acme-old-key", "authorization: Bearer gone-key"},
				} {
					got, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11("/", lines...))
					want := []any{400, ambiguous, "application/problem+json", []string(nil)}
					if diff := cmp.Diff(want, []any{got.Status, got.Body, got.Header.Get("Content-Type"), got.Header["Www-Authenticate"]}); diff != "" {
						t.Errorf("%q: status, body, type and challenges (-want +got):\n%s", lines, diff)
					}
					if got := status2(t, s.Envoy.Addr(), lines...); got != http.StatusBadRequest {
						t.Errorf("HTTP/2, %q: got %d, want 400", lines, got)
					}
				}
				if n := len(s.App.Received()); n != 0 {
					t.Errorf("%d requests with keys of two customers have reached the application", n)
				}
				if got := stack.Metric(t, s.RLS, `slidegate_authorizations_total{result="ambiguous"}`); got != "8" {
					t.Errorf("authorizations that were ambiguous: got %s, want 8", got)
				}
				if _, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["reason"] == "ambiguous" && e["subject"] == "acme" }); err != nil {
					t.Error(err)
				}
				// Nothing was charged above: all three of acme are left, and the first key
				// is the one that is charged.
				for _, lines := range [][]string{
					{"x-api-key: acme-old-key", "authorization: Bearer acme-new-key"},
					{"x-api-key: acme-old-key", "authorization: Bearer eyJhbGciOiJub25lIn0.e30."},
					{"x-api-key: acme-new-key", "authorization: Bearer "},
				} {
					got, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11("/", lines...))
					if got.Status != http.StatusOK {
						t.Errorf("%q: got %d, want 200", lines, got.Status)
					}
				}
				if got, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11("/", "x-api-key: acme-old-key")); got.Status != http.StatusTooManyRequests {
					t.Errorf("after three of three: got %d, want 429", got.Status)
				}
				s.WantAllDecided()
			})
		}
	})
}

// TestKeysOfTwoCustomersOverHTTP sends two keys through gateways that ask over HTTP.
func TestKeysOfTwoCustomersOverHTTP(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		run    func(process.TB, edge.GatewayOptions) *edge.Gateway
		config string
		want   int
	}{
		"nginx": {edge.Nginx, nginxConfig, http.StatusForbidden}, // it passes on no other code
		"caddy": {edge.Caddy, caddyConfig, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, tt.run, tt.config, nil)
			for _, lines := range [][]string{
				{"x-api-key: acme-old-key", "authorization: Bearer other-key"},
				{"x-api-key: acme-old-key", "cookie: a=b; session=other-key"},
			} {
				if got := g.ask(t, "/", lines...); got.Status != tt.want {
					t.Errorf("%q: got %d, want %d", lines, got.Status, tt.want)
				}
			}
			if n := len(g.app.Received()); n != 0 {
				t.Errorf("%d requests with keys of two customers have reached the application", n)
			}
			if got := g.ask(t, "/", "x-api-key: acme-old-key", "authorization: Bearer somebodys-token"); got.Status != http.StatusOK {
				t.Errorf("with a token beside the key: got %d, want 200", got.Status)
			}
		})
	}
}
