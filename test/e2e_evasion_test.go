package test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
)

// TestAValueThatIsNotUTF8IsLimited sends bytes that are not UTF-8. Go's own gRPC codec
// refuses such a call, and Envoy would then let the request pass.
func TestAValueThatIsNotUTF8IsLimited(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
		s := setup{rules: strings.ReplaceAll(perKey, "100", "3"), env: settings}.start(t)
		for _, value := range []string{"k\xff", "k\xfe", "\xc3\x28", "\xed\xa0\x80", "k"} {
			for i := range 4 {
				want := http.StatusOK
				if i == 3 {
					want = http.StatusTooManyRequests
				}
				if got, _ := send(t, s.envoy.Addr(), get11("/", "x-api-key: "+value)); got.status != want {
					t.Errorf("x-api-key: %q: request %d of a limit of 3: got %d, want %d", value, i+1, got.status, want)
				}
			}
		}
		s.wantAllDecided()
	})
}

// evasion has limits on keys and on logins. Addresses are limited only at logins.
const evasion = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1h, requests: 2}
  - key: route
    value: login
    descriptors:
      - key: remote_address
        rate_limit: {name: login-per-address, window: 1h, requests: 2}
`

// TestTheKeyThatCountsIsTheKeyThatIsServed sends the header of the key twice, under
// other names, and empty.
func TestTheKeyThatCountsIsTheKeyThatIsServed(t *testing.T) {
	t.Parallel()
	s := setup{rules: evasion}.start(t)
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
			got, _ := send(t, s.envoy.Addr(), get11("/", tt.lines...))
			if i == 2 {
				if got.status != http.StatusTooManyRequests {
					t.Errorf("%s: request 3 of a limit of 2: got %d, want 429", tt.name, got.status)
				}
				continue
			}
			if diff := cmp.Diff(tt.served, s.app.last(t).Header.Values("X-Api-Key")); got.status != http.StatusOK || diff != "" {
				t.Errorf("%s: got %d, the application got x-api-key (-want +got):\n%s", tt.name, got.status, diff)
			}
		}
		if diff := cmp.Diff([]uint32{0}, s.peek("api_key="+tt.counts)); diff != "" {
			t.Errorf("%s: remaining of key %q (-want +got):\n%s", tt.name, tt.counts, diff)
		}
	}
	for _, key := range []string{"b", "d", "e"} {
		if diff := cmp.Diff([]uint32{2}, s.peek("api_key="+key)); diff != "" {
			t.Errorf("key %s, which was not served, is charged (-want +got):\n%s", key, diff)
		}
	}

	before := len(s.app.received())
	if got, _ := send(t, s.envoy.Addr(), get11("/", "x_api_key: f")); got.status != http.StatusBadRequest {
		t.Errorf("a header that some applications take for x-api-key: got %d, want 400", got.status)
	}
	if n := len(s.app.received()); n != before {
		t.Error("the application got a header that some applications take for x-api-key")
	}
	s.wantAllDecided()
}

// TestClientsCannotSayWhoTheyAre sends headers that only trusted proxies may send.
func TestClientsCannotSayWhoTheyAre(t *testing.T) {
	t.Parallel()
	s := setup{rules: evasion}.start(t)
	c := s.from("127.0.0.1")
	got := c.get("/", "X-Tier", "pro", "X-Consumer-Id", "bigco", "x-api-key", "k")
	if got.status != http.StatusOK {
		t.Fatalf("got %d, want 200", got.status)
	}
	for _, name := range []string{"X-Tier", "X-Consumer-Id"} {
		if v := s.app.last(t).Header.Values(name); len(v) > 0 {
			t.Errorf("the application got %s: %q, want it removed", name, v)
		}
	}
	c.want(200, 1, "/login", "X-Forwarded-For", "192.0.2.1")
	c.want(200, 1, "/login", "X-Forwarded-For", "192.0.2.2", "X-Real-IP", "192.0.2.2")
	c.want(429, 1, "/login", "X-Forwarded-For", "192.0.2.3")
	c.want(429, 1, "/login", "X-Forwarded-For", "192.0.2.4, 127.0.0.1", "X-Envoy-External-Address", "192.0.2.4")
	s.wantAllDecided()
}

// TestNothingOfARequestComesBack searches the bytes of the answer for what the client
// has sent.
func TestNothingOfARequestComesBack(t *testing.T) {
	t.Parallel()
	s := setup{rules: `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {window: 1h, requests: 1}
  - key: remote_address
`}.start(t)
	for _, value := range []string{"planted%0d%0aset-cookie:x=1", `planted";q=1,"`, "planted\xff\xfe", "planted\tvalue", "planted" + strings.Repeat("x", 8000)} {
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			got, raw := send(t, s.envoy.Addr(), get11("/planted/path", "x-api-key: "+value, "x-planted: planted"))
			if got.status != want {
				t.Errorf("%.40q: request %d: got %d, want %d", value, i+1, got.status, want)
			}
			if strings.Contains(raw, "planted") || strings.Contains(raw, "set-cookie") {
				t.Errorf("%.40q: what was sent came back:\n%s", value, raw)
			}
		}
	}
	s.wantAllDecided()
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

	got := run(t, rulesIn(t, rules), "", "validate")
	if strings.ContainsAny(strings.ReplaceAll(got.stderr, "\n", ""), "\r\x00\x7f") {
		t.Errorf("rls validate: the message %q holds what it warns of", got.stderr)
	}
	for i := range names {
		if want := fmt.Sprintf("rules.yaml:%d: ", i+3); got.code != 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("rls validate: got exit code %d and %q, want 0 and a warning with %q", got.code, got.stderr, want)
		}
	}

	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	s := setup{rules: rules}.serve(t)
	questions := []string{"route=b\r\nset-cookie: x=1"}
	for i := range names {
		questions = append(questions, fmt.Sprintf("k%d=v", i))
	}
	for _, q := range questions {
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			got, out := postJSON(t, s.HTTP(), question(1, q))
			if got.status != want || len(out.GetResponseHeadersToAdd()) == 0 {
				t.Errorf("%q: got %d with %v, want %d with header fields", q, got.status, out.GetResponseHeadersToAdd(), want)
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
			env := onRedis(redisAddr)
			env[envTiersSource] = source
			env[envLogLevel] = "debug"
			env["SLIDEGATE_STORE_REDIS_KEY_PREFIX"] = source + ":"
			s := setup{
				rules: strings.ReplaceAll(evasion, "requests: 2", "requests: 1"),
				tiers: strings.ReplaceAll(tiersOf("free"), "acme-old-key", known),
				env:   env,
			}.start(t)
			c := s.from(address)
			for _, key := range []string{known, unknown} {
				c.get("/", "x-api-key", key)
				c.get("/login?key="+key, "x-api-key", key)
				if got := c.get("/", "x-api-key", key); got.status != http.StatusTooManyRequests {
					t.Fatalf("key %s: got %d, want 429", key, got.status)
				}
				// Not through Envoy: the port for people must be as silent.
				postJSON(t, s.rls.HTTP(), question(1, "api_key="+key, "remote_address="+address))
			}
			eventually(t, "denials in the log", func() bool { return strings.Contains(s.rls.Output(), `"msg":"denied"`) })
			if _, err := s.envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["flags"] == "RL" }); err != nil {
				t.Fatal(err)
			}
			dump := dumpRedis(t, redisAddr, source+":")
			if !strings.Contains(dump, source+":{") {
				t.Fatalf("Redis holds no log:\n%s", dump)
			}
			metrics := page(t, s.rls.Admin()+"/metrics")
			if want := `slidegate_decisions_total{domain="edge",outcome="denied",rule="per-key"} `; !strings.Contains(metrics, want) {
				t.Errorf("/metrics does not have %s", want)
			}
			digests := strings.Fields(run(t, edge.RLSOptions{}, known+"\n"+unknown+"\n", "digest").stdout)
			if len(digests) != 2 || len(digests[0]) != 64 {
				t.Fatalf("rls digest: got %q, want two digests", digests)
			}
			for where, text := range map[string]string{
				"/metrics":     metrics,
				"/rlconfig":    page(t, s.rls.Admin()+"/rlconfig"),
				"rls's log":    s.rls.Output(),
				"Redis":        dump,
				"Envoy's logs": s.envoy.Output(),
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
			s := o.start(t)
			var lines, fields []string
			for _, name := range []string{"x.api.key", "x-api.key", "x!api!key", "x~api-key", "x.subject.id", "x-subject.id", "x#subject#id", "x.tier", "x|tier", "x'tier", "x.consumer.id", "x.original.url", "x^tier", "x`tier", "x$tier", "x%tier", "x&tier", "x*tier", "x+tier"} {
				lines = append(lines, name+": planted")
				fields = append(fields, name, "planted")
			}
			lines = append(lines, "x-api-key: acme-new-key", "x-other-1: stays")
			fields = append(fields, "x-api-key", "acme-new-key", "x-other-1", "stays")
			for version, got := range map[string]int{
				"HTTP/1.1": func() int { a, _ := send(t, s.envoy.Addr(), get11("/", lines...)); return a.status }(),
				"HTTP/2":   send2(t, s.envoy.Addr(), get2("/", fields...)).status,
			} {
				if got != http.StatusOK {
					t.Errorf("%s: got %d, want 200", version, got)
				}
			}
			all := s.app.received()
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
			s.wantAllDecided()
		})
	}
}

// TestTrailersSayNothing sends headers that only rls may set, and a second key, as
// trailers. An application that merges trailers into headers must not get them.
func TestTrailersSayNothing(t *testing.T) {
	t.Parallel()
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Proto, r.Trailer.Values("X-Subject-Id"), r.Trailer.Values("X-Tier"), r.Trailer.Values("X-Api-Key"), err)
	}))
	for file, o := range shipped(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			o.upstream = app
			s := o.start(t)
			got := send2(t, s.envoy.Addr(), get2("/", "x-api-key", "acme-new-key", "trailer", "x-subject-id, x-tier, x-api-key"), "x-subject-id", "zeta", "x-tier", "pro", "x-api-key", "zeta-key")
			if want := "HTTP/2.0[] [] [] <nil>"; got.status != http.StatusOK || got.body != want {
				t.Errorf("got %d, and the application got trailers %q, want 200 and %q", got.status, got.body, want)
			}
			s.wantAllDecided()
		})
	}
}
