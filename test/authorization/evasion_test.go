package authorization

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// TestAValueThatIsNotUTF8IsLimited sends bytes that are not UTF-8. Go's own gRPC codec
// refuses such a call, and Envoy would then let the request pass.
func TestAValueThatIsNotUTF8IsLimited(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: strings.ReplaceAll(stack.PerKey, "100", "3"), Env: settings}.Start(t)
		for _, value := range []string{"k\xff", "k\xfe", "\xc3\x28", "\xed\xa0\x80", "k"} {
			for i := range 4 {
				want := http.StatusOK
				if i == 3 {
					want = http.StatusTooManyRequests
				}
				if got, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11("/", "x-api-key: "+value)); got.Status != want {
					t.Errorf("x-api-key: %q: request %d of a limit of 3: got %d, want %d", value, i+1, got.Status, want)
				}
			}
		}
		s.WantAllDecided()
	})
}

// evasion has limits on keys and on logins. Addresses are limited only at logins.
const evasion = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 2}}
  - {key: route, value: login, descriptors: [{key: remote_address, rate_limit: {name: login-per-address, window: 1h, requests: 2}}]}
`

// TestTheKeyThatCountsIsTheKeyThatIsServed sends the header of the key twice, under
// other names, and empty.
func TestTheKeyThatCountsIsTheKeyThatIsServed(t *testing.T) {
	t.Parallel()
	s := stack.Setup{Rules: evasion}.Start(t)
	for _, tt := range []struct {
		name   string
		lines  []string
		served []string // x-api-key as the application sees it
		counts string   // the key that is charged
	}{
		{"twice", []string{"x-api-key: a", "x-api-key: b"}, []string{"a"}, "a"},
		{"in capitals too", []string{"x-api-key: c", "X-API-KEY: d"}, []string{"c"}, "c"},
		{"the first one empty", []string{"x-api-key:", "x-api-key: e"}, []string{""}, ""},
	} {
		for i := range 3 {
			got, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11("/", tt.lines...))
			if i == 2 {
				if got.Status != http.StatusTooManyRequests {
					t.Errorf("%s: request 3 of a limit of 2: got %d, want 429", tt.name, got.Status)
				}
				continue
			}
			if diff := cmp.Diff(tt.served, s.App.Last(t).Header.Values("X-Api-Key")); got.Status != http.StatusOK || diff != "" {
				t.Errorf("%s: got %d, the application got x-api-key (-want +got):\n%s", tt.name, got.Status, diff)
			}
		}
		if diff := cmp.Diff([]uint32{0}, s.Peek("api_key="+tt.counts)); diff != "" {
			t.Errorf("%s: remaining of key %q (-want +got):\n%s", tt.name, tt.counts, diff)
		}
	}
	for _, key := range []string{"b", "d", "e"} {
		if diff := cmp.Diff([]uint32{2}, s.Peek("api_key="+key)); diff != "" {
			t.Errorf("key %s, which was not served, is charged (-want +got):\n%s", key, diff)
		}
	}

	before := len(s.App.Received())
	if got, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11("/", "x_api_key: f")); got.Status != http.StatusBadRequest {
		t.Errorf("a header that some applications take for x-api-key: got %d, want 400", got.Status)
	}
	if n := len(s.App.Received()); n != before {
		t.Error("the application got a header that some applications take for x-api-key")
	}
	s.WantAllDecided()
}

// TestClientsCannotSayWhoTheyAre sends headers that only trusted proxies may send.
func TestClientsCannotSayWhoTheyAre(t *testing.T) {
	t.Parallel()
	s := stack.Setup{Rules: evasion}.Start(t)
	c := s.From("127.0.0.1")
	got := c.Get("/", "X-Tier", "pro", "X-Consumer-Id", "bigco", "x-api-key", "k")
	if got.Status != http.StatusOK {
		t.Fatalf("got %d, want 200", got.Status)
	}
	for _, name := range []string{"X-Tier", "X-Consumer-Id"} {
		if v := s.App.Last(t).Header.Values(name); len(v) > 0 {
			t.Errorf("the application got %s: %q, want it removed", name, v)
		}
	}
	c.Want(200, 1, "/login", "X-Forwarded-For", "192.0.2.1")
	c.Want(200, 1, "/login", "X-Forwarded-For", "192.0.2.2", "X-Real-IP", "192.0.2.2")
	c.Want(429, 1, "/login", "X-Forwarded-For", "192.0.2.3")
	c.Want(429, 1, "/login", "X-Forwarded-For", "192.0.2.4, 127.0.0.1", "X-Envoy-External-Address", "192.0.2.4")
	s.WantAllDecided()
}

// TestNothingOfARequestComesBack searches the bytes of the answer for what the client
// has sent.
func TestNothingOfARequestComesBack(t *testing.T) {
	t.Parallel()
	s := stack.Setup{Rules: `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {window: 1h, requests: 1}}
  - key: remote_address
`}.Start(t)
	for _, value := range []string{"planted%0d%0aset-cookie:x=1", `planted";q=1,"`, "planted\xff\xfe", "planted\tvalue", "planted" + strings.Repeat("x", 8000)} {
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			got, raw := stack.Send(t, s.Envoy.Addr(), stack.Get11("/planted/path", "x-api-key: "+value, "x-planted: planted"))
			if got.Status != want {
				t.Errorf("%.40q: request %d: got %d, want %d", value, i+1, got.Status, want)
			}
			if strings.Contains(raw, "planted") || strings.Contains(raw, "set-cookie") {
				t.Errorf("%.40q: what was sent came back:\n%s", value, raw)
			}
		}
	}
	s.WantAllDecided()
}

// TestNamesThatWouldBreakAResponse gives rules names with characters that would break
// a header field. rls must not send such a name.
func TestNamesThatWouldBreakAResponse(t *testing.T) {
	t.Parallel()
	names := []string{`"a\r\nset-cookie: x=1"`, `"a\nb"`, `"a\0b"`, `"a\x7f"`, `'a"b'`, `a;q=1`, `"a b"`, "é"}
	rules := "domain: edge\ndescriptors:\n"
	for i, name := range names {
		rules += fmt.Sprintf("  - {key: k%d, rate_limit: {name: %s, window: 1h, requests: 1}}\n", i, name)
	}
	// A value may hold anything, and the rule has its name from it.
	rules += `  - {key: route, value: "b\r\nset-cookie: x=1", rate_limit: {window: 1h, requests: 1}}` + "\n"

	got := edge.Run(t, stack.RulesIn(t, rules), "", "validate")
	if strings.ContainsAny(strings.ReplaceAll(got.Stderr, "\n", ""), "\r\x00\x7f") {
		t.Errorf("rls validate: the message %q holds what it warns of", got.Stderr)
	}
	for i := range names {
		if want := fmt.Sprintf("rules.yaml:%d: ", i+3); got.Code != 0 || !strings.Contains(got.Stderr, want) {
			t.Errorf("rls validate: got exit code %d and %q, want 0 and a warning with %q", got.Code, got.Stderr, want)
		}
	}

	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	s := stack.Setup{Rules: rules}.Serve(t)
	questions := []string{"route=b\r\nset-cookie: x=1"}
	for i := range names {
		questions = append(questions, fmt.Sprintf("k%d=v", i))
	}
	for _, q := range questions {
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			got, out := stack.PostJSON(t, s.HTTP(), stack.Request(1, q))
			if got.Status != want || len(out.GetResponseHeadersToAdd()) == 0 {
				t.Errorf("%q: got %d with %v, want %d with header fields", q, got.Status, out.GetResponseHeadersToAdd(), want)
			}
			for _, h := range out.GetResponseHeadersToAdd() {
				if strings.ContainsAny(h.GetKey()+h.GetValue(), "\r\n\x00\x7f") || strings.Count(h.GetValue(), `"`)%2 != 0 {
					t.Errorf("header field %q: %q would break a response", h.GetKey(), h.GetValue())
				}
			}
			if name := out.GetStatuses()[0].GetCurrentLimit().GetName(); strings.TrimLeft(name, letters) != "" {
				t.Errorf("name of the limit: %q would break a response", name)
			}
		}
	}
}

// TestAnAPIKeyIsNowhere sends keys, and searches pages, logs, metrics and Redis for
// them and for their digests.
func TestAnAPIKeyIsNowhere(t *testing.T) {
	const (
		known   = "acme-planted-0123456789"
		unknown = "stranger-planted-9876543210"
		address = "127.77.66.55"
	)
	t.Parallel()
	redisAddr := servers.Redis(t)
	for _, source := range []string{"file", "none"} {
		t.Run("tiers="+source, func(t *testing.T) {
			t.Parallel()
			env := stack.OnRedis(redisAddr)
			env[stack.EnvTiersSource] = source
			env[stack.EnvLogLevel] = "debug"
			env["SLIDEGATE_STORE_REDIS_KEY_PREFIX"] = source + ":"
			s := stack.Setup{
				Rules: strings.ReplaceAll(evasion, "requests: 2", "requests: 1"),
				Tiers: strings.ReplaceAll(stack.TiersOf("free"), "acme-old-key", known),
				Env:   env,
			}.Start(t)
			c := s.From(address)
			for _, key := range []string{known, unknown} {
				c.Get("/", "x-api-key", key)
				c.Get("/login?key="+key, "x-api-key", key)
				if got := c.Get("/", "x-api-key", key); got.Status != http.StatusTooManyRequests {
					t.Fatalf("key %s: got %d, want 429", key, got.Status)
				}
				// Not through Envoy: the port for people must be as silent.
				stack.PostJSON(t, s.RLS.HTTP(), stack.Request(1, "api_key="+key, "remote_address="+address))
			}
			process.Eventually(t, "denials in the log", func() bool { return strings.Contains(s.RLS.Output(), `"msg":"denied"`) })
			if _, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["flags"] == "RL" }); err != nil {
				t.Fatal(err)
			}
			dump := servers.DumpRedis(t, redisAddr, source+":")
			if !strings.Contains(dump, source+":{") {
				t.Fatalf("Redis holds no log:\n%s", dump)
			}
			metrics := stack.Page(t, s.RLS.Admin()+"/metrics")
			if want := `slidegate_decisions_total{domain="edge",outcome="denied",rule="per-key"} `; !strings.Contains(metrics, want) {
				t.Errorf("/metrics does not have %s", want)
			}
			digests := strings.Fields(edge.Run(t, edge.RLSOptions{}, known+"\n"+unknown+"\n", "digest").Stdout)
			if len(digests) != 2 || len(digests[0]) != 64 {
				t.Fatalf("rls digest: got %q, want two digests", digests)
			}
			for where, text := range map[string]string{
				"/metrics":     metrics,
				"/rlconfig":    stack.Page(t, s.RLS.Admin()+"/rlconfig"),
				"rls's log":    s.RLS.Output(),
				"Redis":        dump,
				"Envoy's logs": s.Envoy.Output(),
			} {
				secrets := map[string]string{"the known key": known, "the unknown key": unknown}
				if where != "Redis" {
					// A log in Redis is named by the digest of an unknown key, and that of an
					// address by the address.
					secrets["the digest of the known key"] = digests[0]
					secrets["the digest of the unknown key"] = digests[1]
				}
				if where != "Redis" && where != "Envoy's logs" {
					secrets["the address"] = address
				}
				for what, secret := range secrets {
					if i := strings.Index(text, secret); i >= 0 {
						t.Errorf("%s has %s: …%s…", where, what, text[max(0, i-80):min(len(text), i+len(secret)+20)])
					}
				}
			}
		})
	}
}

// TestNamesThatSomeServersReadAsAnother sends header fields with names that some
// servers treat as the name of the key, the subject or the tier. Every shipped file
// must remove them and leave other fields.
func TestNamesThatSomeServersReadAsAnother(t *testing.T) {
	t.Parallel()
	for file, o := range shipped(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s := o.Start(t)
			var lines, fields []string
			for _, name := range []string{"x.api.key", "x-api.key", "x!api!key", "x~api-key", "x.subject.id", "x-subject.id", "x#subject#id", "x.tier", "x|tier", "x'tier", "x.consumer.id", "x.original.url", "x^tier", "x`tier", "x$tier", "x%tier", "x&tier", "x*tier", "x+tier"} {
				lines = append(lines, name+": planted")
				fields = append(fields, name, "planted")
			}
			lines = append(lines, "x-api-key: acme-new-key", "x-other-1: stays")
			fields = append(fields, "x-api-key", "acme-new-key", "x-other-1", "stays")
			for version, got := range map[string]int{
				"HTTP/1.1": func() int { a, _ := stack.Send(t, s.Envoy.Addr(), stack.Get11("/", lines...)); return a.Status }(),
				"HTTP/2":   stack.Send2(t, s.Envoy.Addr(), stack.Get2("/", fields...)).Status,
			} {
				if got != http.StatusOK {
					t.Errorf("%s: got %d, want 200", version, got)
				}
			}
			all := s.App.Received()
			if len(all) != 2 {
				t.Fatalf("the application got %d requests, want 2", len(all))
			}
			for _, r := range all {
				for name, values := range r.Header {
					if strings.Contains(strings.Join(values, ","), "planted") {
						t.Errorf("%s: the application got %s: %q, want it removed", r.Proto, name, values)
					}
				}
				if got := r.Header.Get("X-Other-1"); got != "stays" {
					t.Errorf("%s: the application got x-other-1: %q, want it as it was sent", r.Proto, got)
				}
			}
			s.WantAllDecided()
		})
	}
}

// TestTrailersSayNothing sends headers that only rls may set, and a second key, as
// trailers. An application that merges trailers into headers must not get them.
func TestTrailersSayNothing(t *testing.T) {
	t.Parallel()
	app := stack.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Proto, r.Trailer.Values("X-Subject-Id"), r.Trailer.Values("X-Tier"), r.Trailer.Values("X-Api-Key"), err)
	}))
	for file, o := range shipped(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			o.Upstream = app
			s := o.Start(t)
			got := stack.Send2(t, s.Envoy.Addr(), stack.Get2("/", "x-api-key", "acme-new-key", "trailer", "x-subject-id, x-tier, x-api-key"), "x-subject-id", "zeta", "x-tier", "pro", "x-api-key", "zeta-key")
			if want := "HTTP/2.0[] [] [] <nil>"; got.Status != http.StatusOK || got.Body != want {
				t.Errorf("got %d, and the application got trailers %q, want 200 and %q", got.Status, got.Body, want)
			}
			s.WantAllDecided()
		})
	}
}
