package daemon

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// raw sends bytes to a port and returns the status and the body of the answer.
func raw(t *testing.T, address, request string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// post writes a POST with the lines of its header.
func post(path, body string, lines ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\n%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", path, strings.Join(lines, "\r\n"), len(body), body)
}

// TestWebPagesCannotPost posts as a browser does for a page of another origin. The service
// neither charges nor refunds a quota, and invalidates no subject. It answers curl.
func TestWebPagesCannotPost(t *testing.T) {
	const token = "act-0123456789abcdef0123456789abcdef"
	s := testSettings(t)
	s.Admin.TokenFile = filepath.Join(t.TempDir(), "tokens")
	write(t, s.Admin.TokenFile, "act "+token+"\n")
	r := start(t, s)
	refund := strings.Replace(demo, `{"entries"`, `{"hits_addend":5,"is_negative_hits":true,"entries"`, 1)
	for _, tt := range []struct {
		name  string
		lines []string // beside Host
		taken bool
	}{
		{"curl", nil, true},
		{"curl -d", []string{"Content-Type: application/x-www-form-urlencoded"}, true},
		{"a page of this port", []string{"Origin: http://" + r.HTTP, "Sec-Fetch-Site: same-origin"}, true},
		{"a page of this port, in a browser without Sec-Fetch-Site", []string{"Origin: http://" + r.HTTP}, true},
		{"the address bar", []string{"Sec-Fetch-Site: none"}, true},
		{"fetch", []string{"Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Content-Type: text/plain"}, false},
		{"a form", []string{"Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Content-Type: application/x-www-form-urlencoded"}, false},
		{"a form of a page without an origin", []string{"Origin: null", "Sec-Fetch-Site: cross-site"}, false},
		{"another port of this host", []string{"Origin: http://127.0.0.1:1", "Sec-Fetch-Site: same-site"}, false},
		{"sendBeacon", []string{"Origin: http://evil.example", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Site: cross-site"}, false},
		// Browsers send Sec-Fetch-Site to localhost and over TLS alone.
		{"a page, to an address of the network", []string{"Origin: http://evil.example"}, false},
		{"a page without an origin, to an address of the network", []string{"Origin: null"}, false},
	} {
		for _, body := range []string{demo, refund} {
			status, answer := raw(t, r.HTTP, post("/json", body, append([]string{"Host: " + r.HTTP}, tt.lines...)...))
			if tt.taken && status != http.StatusOK || !tt.taken && (status != http.StatusForbidden || !strings.Contains(answer, "origin")) {
				t.Errorf("%s: POST /json is %d %q, want it taken: %v", tt.name, status, answer, tt.taken)
			}
		}
		lines := append([]string{"Host: " + r.Admin, "Content-Type: application/json", "Authorization: Bearer " + token}, tt.lines...)
		for i, line := range lines {
			lines[i] = strings.Replace(line, "http://"+r.HTTP, "http://"+r.Admin, 1)
		}
		status, answer := raw(t, r.Admin, post("/v1/tiers/invalidate", `{"all":true}`, lines...))
		if tt.taken && status != http.StatusNoContent || !tt.taken && status != http.StatusForbidden {
			t.Errorf("%s: POST /v1/tiers/invalidate is %d %q, want it taken: %v", tt.name, status, answer, tt.taken)
		}
	}
	if status, answer := raw(t, r.HTTP, post("/json", demo, "Host: "+r.HTTP)); status != http.StatusOK || !strings.Contains(answer, `"limitRemaining":99`) {
		t.Errorf("after as many refunds as hits: %d %s, want 99 left", status, answer)
	}
}

// TestHosts calls both ports under many spellings of a host. The service refuses names that the
// settings do not have: a web page may have pointed them at this machine (DNS rebinding).
func TestHosts(t *testing.T) {
	s := testSettings(t)
	s.HTTP.Hosts, s.Admin.Hosts = []string{"rls.example.com"}, []string{"rls"}
	r := start(t, s)
	for _, tt := range []struct {
		host        string // %s: the port
		http, admin bool
	}{
		{"127.0.0.1:%s", true, true},
		{"127.0.0.1", true, true},
		{"127.0.0.1.:%s", true, true},
		{"10.1.2.3:80", true, true},
		{"[::1]:%s", true, true},
		{"[::1]", true, true},
		{"[fe80::1%%25eth0]:%s", true, true},
		{"[::ffff:127.0.0.1]:%s", true, true},
		{"localhost:%s", true, true},
		{"localhost", true, true},
		{"localhost:", true, true},
		{"localhost.:%s", true, true},
		{"LOCALHOST:%s", true, true},
		{"", true, true}, // no browser sends that
		{"rls.example.com:%s", true, false},
		{"RLS.Example.COM.", true, false},
		{"rls:%s", false, true},
		{"rls.", false, true},
		{"rls..", false, false},
		{"a.rls", false, false},
		{"evil.example:%s", false, false},
		{"evil.rls.example.com", false, false},
		{"rls.example.com.evil.example", false, false},
		{"app.localhost:%s", false, false},
		{"localhost.evil.example", false, false},
		{"127.0.0.1.nip.io:%s", false, false},
		{"127.1", false, false}, // a browser writes 127.0.0.1
		{"2130706433", false, false},
		{"0x7f000001", false, false},
		{"localhost:80:80", false, false},
		{"[::1", false, false},
		{"[evil.example]:%s", false, false},
		{"localhost,evil.example", false, false},
		{"xn--bcher-kva.example", false, false},
	} {
		for _, port := range []struct {
			setting, address string
			taken            bool
			paths            []string
		}{
			{"http.hosts", r.HTTP, tt.http, []string{"/json", "/authz?domain=edge&descriptors=api_key", "/", "/nowhere", "//healthcheck", "/healthcheck/", "/authzed"}},
			{"admin.hosts", r.Admin, tt.admin, []string{"/", "/rlconfig", "/metrics", "/debug/pprof/cmdline", "/v1/tiers/lookup?id=x", "/nowhere"}},
		} {
			_, number, _ := net.SplitHostPort(port.address)
			host := tt.host
			if strings.Contains(host, "%") {
				host = fmt.Sprintf(host, number)
			}
			for _, path := range port.paths {
				status, body := raw(t, port.address, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nX-Original-URI: /\r\nConnection: close\r\n\r\n")
				if (status != http.StatusMisdirectedRequest) != port.taken || !port.taken && !strings.Contains(body, port.setting) {
					t.Errorf("GET %s with Host: %s is %d %q, want it taken: %v, or %s in the answer", path, host, status, body, port.taken, port.setting)
				}
			}
		}
		// The service accepts any Host from probes, and below /authz/, where Envoy sends that of
		// its client and no limit is charged.
		host := strings.ReplaceAll(tt.host, "%s", "1")
		for _, path := range []string{"/healthcheck", "/readyz", "/authz/a"} {
			want := http.StatusOK
			if path == "/authz/a" {
				want = http.StatusUnauthorized
			}
			if status, body := raw(t, r.HTTP, "GET "+path+" HTTP/1.1\r\nHost: "+strings.ReplaceAll(host, "%%", "%")+"\r\nConnection: close\r\n\r\n"); status != want {
				t.Errorf("GET %s with Host: %s is %d %q, want %d", path, host, status, body, want)
			}
		}
	}
	if status, body := raw(t, r.HTTP, "GET http://evil.example/json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); status != http.StatusMisdirectedRequest {
		t.Errorf("a request whose target names another host: %d %q, want 421", status, body)
	}
	for _, host := range []string{"user@localhost", "localhost:80@evil.example", "localhost\r\nHost: evil.example"} {
		if status, body := raw(t, r.HTTP, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); status != http.StatusBadRequest {
			t.Errorf("Host: %s is %d %q, want 400", host, status, body)
		}
	}
	if status, body := raw(t, r.HTTP, "GET / HTTP/1.0\r\n\r\n"); status != http.StatusOK {
		t.Errorf("HTTP/1.0 without Host: %d %q, want 200", status, body)
	}
	if lines := r.logs.FilterMessage("a request was refused because of its Host; if the name is yours, add it to the setting").All(); len(lines) == 0 || len(lines[0].ContextMap()["host"].(string)) > 300 {
		t.Errorf("the log has %v, want the refused names", lines)
	}
}

// TestPagesCannotAuthorize calls /authz as a link or an image of a web page does. A page
// cannot add the header that proxies add, so no limit is charged.
func TestPagesCannotAuthorize(t *testing.T) {
	r := start(t, testSettings(t))
	const target = "/authz?domain=edge&descriptors=remote_address&anonymous=true"
	for _, tt := range []struct {
		method string
		lines  string
		status int
	}{
		{"GET", "", 500},
		{"POST", "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n", 500},
		{"OPTIONS", "Origin: https://evil.example\r\nAccess-Control-Request-Headers: x-original-uri\r\n", 500},
		// A proxy sends the header fields of its client.
		{"GET", "X-Original-URI: /a\r\nOrigin: https://shop.example\r\nSec-Fetch-Site: cross-site\r\n", 200},
		{"POST", "X-Forwarded-Method: POST\r\nOrigin: https://shop.example\r\nSec-Fetch-Site: cross-site\r\n", 200},
	} {
		if status, body := raw(t, r.HTTP, tt.method+" "+target+" HTTP/1.1\r\nHost: "+r.HTTP+"\r\n"+tt.lines+"Connection: close\r\n\r\n"); status != tt.status {
			t.Errorf("%s %s with %q is %d %q, want %d", tt.method, target, tt.lines, status, body, tt.status)
		}
	}
}

// TestPagesCannotEmbed gets expensive pages of the admin port as a page of another origin does
// by itself. The service refuses them. It answers when a person follows a link.
func TestPagesCannotEmbed(t *testing.T) {
	r := start(t, testSettings(t))
	for _, tt := range []struct {
		lines  string
		status int
	}{
		{"", 200},
		{"Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", 200},
		{"Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n", 200},
		{"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", 200},
		{"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n", 403},
		{"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n", 403},
		{"Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n", 403},
		{"Sec-Fetch-Site: cross-site\r\nOrigin: https://evil.example\r\n", 403},
	} {
		for _, path := range []string{"/v1/tiers/lookup?id=x", "/stats", "/metrics", "/rlconfig"} {
			if status, body := raw(t, r.Admin, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+tt.lines+"Connection: close\r\n\r\n"); status != tt.status {
				t.Errorf("GET %s with %q is %d %q, want %d", path, tt.lines, status, body, tt.status)
			}
		}
	}
}

// TestTokensOnLoopback reads the admin port on loopback. With tokens, or with a name by which a
// proxy may serve the port, a read needs a token too.
func TestTokensOnLoopback(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	write(t, tokens, "read 0123456789abcdef0123456789abcdef\n")
	for name, tt := range map[string]struct {
		admin settings.Admin
		want  int
	}{
		"nothing set": {settings.Admin{}, 200},
		"tokens":      {settings.Admin{TokenFile: tokens}, 401},
		"a name":      {settings.Admin{Hosts: []string{"rls.example"}}, 403},
		"both":        {settings.Admin{TokenFile: tokens, Hosts: []string{"rls.example"}}, 401},
	} {
		s := testSettings(t)
		s.Admin.TokenFile, s.Admin.Hosts = tt.admin.TokenFile, tt.admin.Hosts
		r := start(t, s)
		for _, path := range []string{"/v1/usage?subject=x", "/v1/logs", "/metrics", "/rlconfig", "/stats"} {
			for token, want := range map[string]int{"": tt.want, "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n": 200} {
				if s.Admin.TokenFile == "" {
					want = tt.want
				}
				got, body := raw(t, r.Admin, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+token+"Connection: close\r\n\r\n")
				if got != want {
					t.Errorf("%s: GET %s with %q is %d %.200q, want %d", name, path, token, got, body, want)
				}
			}
		}
	}
}

// TestRarelyLogged sends a flood of requests with unknown domains. The number of their log
// lines is bounded, and lines that are dropped allocate nothing.
func TestRarelyLogged(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	clock := constantClock(time.Unix(1_800_000_000, 0))
	rs := rules.NewRules(rules.Identity{})
	log := zap.New(core, zap.WithClock(&clock), zap.AddCaller()).WithOptions(zap.WrapCore(rarely))
	// A sweeper allocates in each step, and allocations of all goroutines are counted below.
	store := memstore.New(memstore.Options{SweepInterval: -1})
	t.Cleanup(func() { _ = store.Close() })
	decider := decide.NewDecider(rs, decide.Options{
		Store: store, Meters: metrics.New(prometheus.NewRegistry(), metrics.Options{}), Log: warnings(log),
	})
	var c decide.Call
	req := decide.Request{}
	flood := func() {
		for i := range 10_000 {
			req.Domain = names[i%len(names)]
			decider.Begin(&c, req)
			if _, err := c.Decide(t.Context(), window.NoWait); err != nil {
				t.Fatal(err)
			}
		}
	}
	flood()
	if n := len(logs.TakeAll()); n != 10 {
		t.Errorf("%d lines of a flood, want 10", n)
	}
	if n := testing.AllocsPerRun(3, flood); n != 0 {
		t.Errorf("%v allocations for 10000 requests that are not logged, want 0", n)
	}
	clock = constantClock(time.Time(clock).Add(time.Minute))
	flood()
	if n := len(logs.TakeAll()); n != 10 {
		t.Errorf("%d lines of a flood in the next minute, want 10", n)
	}
}

var names = []string{"a", "b", "c", "d", "e", "f", "g"}

// A constantClock is a zapcore.Clock that stands still.
type constantClock time.Time

func (c *constantClock) Now() time.Time                     { return time.Time(*c) }
func (*constantClock) NewTicker(time.Duration) *time.Ticker { return nil }

// TestUnknownDomainIsNamed asks for a domain with a typing mistake. The log obeys no mark in it.
func TestUnknownDomainIsNamed(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s settings.Settings) {
		r := start(t, s)
		text := strings.Replace(demo, "edge", "egde\u202e", 1)
		if _, err := r.ask(text); err != nil {
			t.Fatal(err)
		}
		if status, answer := raw(t, r.HTTP, post("/json", text, "Host: localhost")); status != http.StatusOK {
			t.Fatalf("/json: %d %s", status, answer)
		}
		lines := r.logs.FilterMessage("a request names a domain without rules and is allowed; correct domain in Envoy, or in the rules").All()
		if len(lines) != 2 || lines[0].ContextMap()["domain"] != `egde\u202e` || lines[1].ContextMap()["domain"] != `egde\u202e` {
			t.Errorf("the log has %v, want a line for each request that names egde", lines)
		}
	})
}

// TestHostsOfReference asks /json by the name of a service, as clients of envoyproxy/ratelimit
// do. A page that a browser shows under that name is refused.
func TestHostsOfReference(t *testing.T) {
	const body = `{"domain":"edge","descriptors":[{"entries":[{"key":"api_key","value":"k"}]}]}`
	for _, reference := range []bool{false, true} {
		s := testSettings(t)
		s.DropIn.Answers = reference
		r := start(t, s)
		for header, taken := range map[string]bool{
			"":                                  reference,
			"Origin: http://ratelimit:8080\r\n": false,
			"Sec-Fetch-Site: same-origin\r\n":   false,
		} {
			status, text := raw(t, r.HTTP, fmt.Sprintf("POST /json HTTP/1.1\r\nHost: ratelimit:8080\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", header, len(body), body))
			if (status == http.StatusOK) != taken || !taken && status != http.StatusMisdirectedRequest {
				t.Errorf("reference=%v %q: %d %s", reference, header, status, text)
			}
		}
		if status, _ := raw(t, r.HTTP, "GET / HTTP/1.1\r\nHost: ratelimit:8080\r\nConnection: close\r\n\r\n"); status != http.StatusMisdirectedRequest {
			t.Errorf("reference=%v: GET / is %d, want 421", reference, status)
		}
	}
}

// TestMetricsPort asks metrics.address: it has the metrics under any Host, and nothing else of the
// admin port, because a network may reach it.
func TestMetricsPort(t *testing.T) {
	s := testSettings(t)
	s.Metrics.Address = "127.0.0.1:0"
	r := start(t, s)
	ask := func(method, path string) (int, string) {
		return raw(t, r.Metrics, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: slidegate.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method, path))
	}
	if status, body := ask("GET", "/metrics"); status != http.StatusOK || !strings.Contains(body, "slidegate_build_info") {
		t.Errorf("GET /metrics: got %d and %.200q, want 200 and the metrics", status, body)
	}
	if status, _ := ask("POST", "/metrics"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics: got %d, want 405", status)
	}
	for _, path := range []string{"/", "/rlconfig", "/stats", "/debug/pprof/", "/v1/tiers/lookup", "/v1/tiers/invalidate", "/json", "/healthcheck"} {
		for _, method := range []string{"GET", "POST"} {
			if status, _ := ask(method, path); status != http.StatusNotFound {
				t.Errorf("%s %s: got %d, want 404", method, path, status)
			}
		}
	}
}
