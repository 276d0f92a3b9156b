package admin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/test/tree"
)

const readToken, actToken = "read-0123456789abcdef0123456789abcdef", "act-0123456789abcdef0123456789abcdef"

func testTokens() []settings.Token {
	return []settings.Token{
		{Digest: sha256.Sum256([]byte(readToken)), Name: "grafana"},
		{Digest: sha256.Sum256([]byte(actToken)), Act: true, Name: "alice"},
	}
}

func testAccess(free bool) *Access {
	return NewAccess(AccessOptions{FreeReads: free, Tokens: testTokens})
}

// call is a request of a test.
type call struct {
	method, path, from, token, cookie, body string
	header                                  http.Header
}

func (c call) send(t *testing.T, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
	r.Host, r.RemoteAddr = "localhost", c.from
	if r.RemoteAddr == "" {
		r.RemoteAddr = "127.0.0.1:1000"
	}
	for name, values := range c.header {
		if r.Header[name] = values; name == "Host" {
			r.Host = values[0]
		}
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.cookie != "" {
		r.Header.Set("Cookie", c.cookie)
	}
	if c.method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestAccess asks each kind of page with each kind of token, on loopback and beyond it.
func TestAccess(t *testing.T) {
	const far = "192.0.2.9:1000"
	invalidate := call{method: "POST", path: "/v1/tiers/invalidate", body: `{"all":true}`}
	for _, tt := range []struct {
		name         string
		free, tokens bool
		from, token  string
		read, act    int
	}{
		{"free", true, true, "", "", 200, 401},
		{"free, IPv6", true, true, "[::1]:1", "", 200, 401},
		{"free, mapped", true, true, "[::ffff:127.0.0.1]:1", "", 200, 401},
		{"free without tokens", true, false, "", "", 200, 403},
		{"free without tokens, with one", true, false, "", actToken, 200, 403},
		{"free, read", true, true, "", readToken, 200, 403},
		{"free, act", true, true, "", actToken, 200, 204},
		{"free, wrong", true, true, "", "wrong-0123456789abcdef", 200, 401},
		{"free from elsewhere", true, true, far, "", 401, 401},
		{"tokens", false, true, far, "", 401, 401},
		{"tokens from loopback", false, true, "", "", 401, 401},
		{"no tokens", false, false, far, "", 403, 403},
		{"no tokens from loopback", false, false, "", "", 403, 403},
		{"tokens, wrong", false, true, far, "wrong-0123456789abcdef", 401, 401},
		{"tokens, beginning of a token", false, true, far, actToken[:16], 401, 401},
		{"tokens, read", false, true, far, readToken, 200, 403},
		{"tokens, act", false, true, far, actToken, 200, 204},
	} {
		core, logs := observer.New(zap.DebugLevel)
		o := AccessOptions{FreeReads: tt.free, Log: zap.New(core)}
		if tt.tokens {
			o.Tokens = testTokens
		}
		h := Handler(Pages{Metrics: prometheus.NewRegistry(), Active: func() Active { return hostile }, Tiers: new(fakeTiers), Access: NewAccess(o), Docs: docs.Handler("0.1.0")})
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap", "/debug/pprof/symbol"} {
			if got := (call{method: "GET", path: path, from: tt.from, token: tt.token}).send(t, h).Code; got != tt.act && (got != 200 || tt.act != 204) {
				t.Errorf("%s: GET %s is %d, want %d", tt.name, path, got, tt.act)
			}
		}
		for _, path := range []string{"/", "/metrics", "/rlconfig", "/stats", "/v1/rules", "/v1/openapi.yaml", "/v1/tiers/lookup?id=a", "/docs/", "/docs/operate.md", "/docs/reference/alerts.md"} {
			if got := (call{method: "GET", path: path, from: tt.from, token: tt.token}).send(t, h).Code; got != tt.read {
				t.Errorf("%s: GET %s is %d, want %d", tt.name, path, got, tt.read)
			}
		}
		write := invalidate
		write.from, write.token = tt.from, tt.token
		got := write.send(t, h)
		if got.Code != tt.act {
			t.Errorf("%s: a write is %d, want %d: %s", tt.name, got.Code, tt.act, got.Body)
		}
		if asks := got.Header().Get("WWW-Authenticate") != ""; asks != (tt.act == 401) {
			t.Errorf("%s: a write that is %d has WWW-Authenticate: %v", tt.name, tt.act, asks)
		}
		if tt.act >= 400 {
			var p Problem
			if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || p.Status != tt.act || p.Type != "about:blank" || p.Detail == "" {
				t.Errorf("%s: the problem is %s, %v", tt.name, got.Body, err)
			}
			if logs.FilterMessage("a request to the admin port was refused").Len() == 0 {
				t.Errorf("%s: the log says nothing", tt.name)
			}
		}
		for _, e := range logs.All() {
			for _, f := range e.Context {
				if tt.token != "" && strings.Contains(f.String, tt.token) {
					t.Errorf("%s: the log has the token", tt.name)
				}
			}
		}
	}
}

// TestProxyIsNotLoopback reads as a program of this machine, and as a proxy on it does, which sends
// the requests of others.
func TestProxyIsNotLoopback(t *testing.T) {
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Tiers: new(fakeTiers), Access: NewAccess(AccessOptions{FreeReads: true})})
	for line, want := range map[string]int{
		"Accept: */*": 200, "Host: localhost:6070": 200, "Host: LOCALHOST.": 200, "Host: 127.0.0.9:1": 200, "Host: [::1]:6070": 200, "Host: ": 200,
		"Host: [::ffff:127.0.0.1]": 200, "Host: 192.0.2.1": 403, "Host: [2001:db8::1]:6070": 403, "Host: evil.example": 421, "Host: localhost:x": 421,
		"X-Forwarded-For: 127.0.0.1": 403, "X-Forwarded-For: ": 403, "X_forwarded_for: 127.0.0.1": 403, "x-forwarded-for: ::1": 403,
		"X-Forwarded-Proto: http": 403, "X-Forwarded: for=::1": 403, "X-Real-Ip: 127.0.0.1": 403,
		"Forwarded: for=127.0.0.1": 403, "Forwarded: ": 403, "FORWARDED: x": 403, "Via: 1.1 proxy": 403, "Via: ": 403, "vIA: x": 403,
	} {
		name, value, _ := strings.Cut(line, ": ")
		for _, path := range []string{"/stats", "/v1/tiers/lookup?id=a"} {
			got := call{method: "GET", path: path, header: http.Header{name: {value}}}.send(t, h)
			if got.Code != want {
				t.Errorf("GET %s with %q: %d, want %d", path, line, got.Code, want)
			}
			if got.Code == 403 && !strings.Contains(got.Body.String(), "without a proxy") {
				t.Errorf("GET %s with %q: %s, want how to read without a token", path, line, got.Body)
			}
		}
	}
}

// TestLogOutEndsASession uses a copy of a cookie after its holder has logged out, and another
// session of the same token.
func TestLogOutEndsASession(t *testing.T) {
	a := testAccess(false)
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Access: a})
	gone, _ := logIn(t, a, readToken)
	stays, _ := logIn(t, a, readToken)
	out := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/logout", nil)
	out.Header.Set("Cookie", gone)
	a.LogOut(httptest.NewRecorder(), out)
	for cookie, want := range map[string]int{gone: 401, stays: 200} {
		if got := (call{method: "GET", path: "/stats", cookie: cookie}).send(t, h).Code; got != want {
			t.Errorf("%.30s: %d, want %d", cookie, got, want)
		}
	}
}

// TestCookieOfAnotherPort sends a second cookie of the same name, which a page at another port
// of the host can set.
func TestCookieOfAnotherPort(t *testing.T) {
	a := testAccess(false)
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Access: a})
	good, _ := logIn(t, a, readToken)
	other := cookieName + "=x"
	for cookie, want := range map[string]int{
		other + "; " + good: 200, good + "; " + other: 200,
	} {
		if got := (call{method: "GET", path: "/stats", cookie: cookie}).send(t, h).Code; got != want {
			t.Errorf("%.60s: %d, want %d", cookie, got, want)
		}
	}
}

// TestTokensAreRotated changes the file of tokens while sessions are open.
func TestTokensAreRotated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		t.Helper()
		tree.Write(t, file+".new", text)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("act " + actToken + " alice\n")
	tokens, err := Tokens(file, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	a := NewAccess(AccessOptions{Tokens: tokens})
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Access: a})
	cookie, got := logIn(t, a, actToken)
	if got.Name != "alice" || !got.Act || !got.LoggedIn {
		t.Errorf("logged in as %+v", got)
	}
	status := func(want int) {
		t.Helper()
		if got := (call{method: "GET", path: "/stats", token: actToken}).send(t, h).Code; got != want {
			t.Errorf("with the token: %d, want %d", got, want)
		}
		if got := (call{method: "GET", path: "/stats", cookie: cookie}).send(t, h).Code; got != want {
			t.Errorf("with the cookie: %d, want %d", got, want)
		}
	}
	status(200)
	write("act " + readToken + "\n")
	status(401)
	write("act " + actToken + " alice\n# again, and longer\n")
	status(200)
	write("act short\n")
	status(200) // what the file held before stays
	if _, err := Tokens(filepath.Join(t.TempDir(), "gone"), zap.NewNop()); err == nil || !strings.HasPrefix(err.Error(), "admin.token_file: ") {
		t.Errorf("a missing file: %v", err)
	}
}

func logIn(t *testing.T, a *Access, token string) (cookie string, c Caller) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", nil)
	if err := a.LogIn(w, r, token); err != nil {
		t.Fatal(err)
	}
	set := w.Result()
	_ = set.Body.Close()
	if len(set.Cookies()) != 1 {
		t.Fatalf("%d cookies, want 1", len(set.Cookies()))
	}
	k := set.Cookies()[0]
	if !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/" || strings.Contains(k.Value, token) || k.MaxAge != 12*3600 {
		t.Errorf("the cookie is %v", k)
	}
	r.AddCookie(k)
	return k.Name + "=" + k.Value, a.Caller(r)
}

// TestSessions tries cookies that are wrong in every way.
func TestSessions(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	clock := func() time.Time { return now }
	a := NewAccess(AccessOptions{Tokens: testTokens, Now: clock})
	other := NewAccess(AccessOptions{Tokens: testTokens, Now: clock})
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Tiers: new(fakeTiers), Access: a})
	good, _ := logIn(t, a, readToken)
	act, _ := logIn(t, a, actToken)
	another, _ := logIn(t, other, readToken)
	value := strings.TrimPrefix(good, cookieName+"=")
	for cookie, want := range map[string]int{
		good: 200, act: 200, another: 401, "": 401, cookieName + "=": 401, cookieName + "=" + readToken: 401,
		cookieName + "=" + value[:len(value)-4]: 401, cookieName + "=b" + value[1:]: 401, "x" + good: 401,
	} {
		if got := (call{method: "GET", path: "/stats", cookie: cookie}).send(t, h).Code; got != want {
			t.Errorf("%.30s: %d, want %d", cookie, got, want)
		}
	}
	for cookie, want := range map[string]int{good: 403, act: 204} {
		if got := (call{method: "POST", path: "/v1/tiers/invalidate", body: `{"all":true}`, cookie: cookie}).send(t, h).Code; got != want {
			t.Errorf("a write: %d, want %d", got, want)
		}
	}
	now = now.Add(sessionLength)
	if got := (call{method: "GET", path: "/stats", cookie: good}).send(t, h).Code; got != 401 {
		t.Errorf("after %v: %d, want 401", sessionLength, got)
	}
	if logIn(t, a, readToken); len(a.sessions) != 1 {
		t.Errorf("%d sessions are kept, want only the one that is not over", len(a.sessions))
	}
	act, _ = logIn(t, a, actToken)
	for range maxSessions + 1 {
		logIn(t, a, readToken)
	}
	if got := (call{method: "GET", path: "/stats", cookie: act}).send(t, h).Code; got != 200 || len(a.sessions) > maxSessions+1 {
		t.Errorf("many sessions of another token: %d, and %d sessions", got, len(a.sessions))
	}
	w := httptest.NewRecorder()
	a.LogOut(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/logout", nil))
	if got := w.Header().Get("Set-Cookie"); !strings.Contains(got, "Max-Age=0") {
		t.Errorf("LogOut sets %q", got)
	}
	if err := a.LogIn(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", nil), "wrong"); err != ErrWrongToken { //nolint:errorlint // the error itself
		t.Errorf("a wrong token: %v", err)
	}
}

// TestPagesOfOtherOriginsCannotAct sends the cookie as a browser does for a page of another origin.
func TestPagesOfOtherOriginsCannotAct(t *testing.T) {
	a := testAccess(true)
	h := Handler(Pages{Metrics: prometheus.NewRegistry(), Tiers: new(fakeTiers), Access: a})
	cookie, _ := logIn(t, a, actToken)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tiers/invalidate", strings.NewReader(`{"all":true}`))
	r.Host, r.RemoteAddr = "localhost:6070", "127.0.0.1:1"
	r.Header.Set("Cookie", cookie)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", "http://localhost:8000")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if body, _ := io.ReadAll(w.Body); w.Code != http.StatusForbidden {
		t.Errorf("%d %s, want 403", w.Code, body)
	}
}

// TestStreamsOutliveTheTimeouts keeps two streams open longer than the timeouts of pages.
func TestStreamsOutliveTheTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.NewServer()
		describing := grpc.NewServer()
		healthv1.RegisterHealthServer(describing, h)
		reflection.Register(describing)
		server := &http.Server{
			Handler:           Handler(Pages{Metrics: prometheus.NewRegistry(), GRPC: describing}),
			ReadHeaderTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Second,
			Protocols: new(http.Protocols),
		}
		server.Protocols.SetUnencryptedHTTP2(true)
		l := bufconn.Listen(1 << 16)
		go func() { _ = server.Serve(l) }() // ends with Close
		defer server.Close()
		conn, err := grpc.NewClient("passthrough:admin",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()

		watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), new(healthv1.HealthCheckRequest))
		if err != nil {
			t.Fatal(err)
		}
		reported := func(want healthv1.HealthCheckResponse_ServingStatus) {
			t.Helper()
			if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
				t.Errorf("reported %v, %v, want %v", got.GetStatus(), err, want)
			}
		}
		reported(healthv1.HealthCheckResponse_SERVING)
		list, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		h.Shutdown()
		reported(healthv1.HealthCheckResponse_NOT_SERVING)
		if err := list.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: new(reflectionv1.ServerReflectionRequest_ListServices)}); err != nil {
			t.Fatal(err)
		}
		if got, err := list.Recv(); err != nil || len(got.GetListServicesResponse().GetService()) == 0 {
			t.Errorf("reflection after an hour: %v, %v", got, err)
		}
	})
}

// deadlineRecorder is a recorder that accepts deadlines.
type deadlineRecorder struct{ *httptest.ResponseRecorder }

func (deadlineRecorder) SetReadDeadline(time.Time) error  { return nil }
func (deadlineRecorder) SetWriteDeadline(time.Time) error { return nil }

// TestWhatIsACall proves that GRPC gets gRPC calls, and the pages all other requests.
func TestWhatIsACall(t *testing.T) {
	h := Handler(Pages{
		Metrics: prometheus.NewRegistry(),
		GRPC:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a call") }),
	})
	for _, tt := range []struct {
		version     int
		contentType string
		call        bool
	}{
		{1, "", false},
		{1, "application/grpc", false},
		{2, "", false},
		{2, "application/json", false},
		{2, "application/grpc", true},
		{2, "application/grpc+proto", true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.ProtoMajor, r.Host, r.RemoteAddr = tt.version, "localhost", "127.0.0.1:1"
		r.Header.Set("Content-Type", tt.contentType)
		w := deadlineRecorder{httptest.NewRecorder()}
		h.ServeHTTP(w, r)
		if body := w.Body.String(); (body == "a call") != tt.call || !tt.call && !strings.HasPrefix(body, "Slidegate: admin port\n") {
			t.Errorf("HTTP/%d with content type %q: %q, want a call: %v", tt.version, tt.contentType, body, tt.call)
		}
	}
}
