package httpsource

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/tiertest"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	planted = "sk-planted+/=%"
	acme    = `{"subject":"acme","tier":"pro"}`
)

var digest = strings.Repeat("2c", 32)

// parsed parses a URL.
func parsed(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return u
}

// serve starts a server for the time of the test.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() { stop(server) })
	return server.URL
}

// says is a handler that answers with JSON.
func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

// TestQuestions checks the requests on the wire.
func TestQuestions(t *testing.T) {
	type question struct{ method, uri, body, auth, kind string }
	var got question
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = question{r.Method, r.RequestURI, string(body), r.Header.Get("Authorization"), r.Header.Get("Content-Type")}
		if r.Header.Get("Accept") != "application/json" || r.UserAgent() != "slidegate" || r.Header["Idempotency-Key"] != nil {
			t.Errorf("header %v", r.Header)
		}
		w.Header().Set("Cache-Control", "max-age=60")
		says(acme)(w, r)
	})
	for _, tt := range []struct {
		path  string
		o     Options
		key   tier.Key
		token string
		want  question
	}{
		{"/a%2Fb?x=%41&y", Options{}, tier.Key{Digest: digest}, "", question{"GET", "/a%2Fb?x=%41&y&digest=" + digest, "", "", ""}},
		{"", Options{}, tier.Key{ID: "a b&c=d%+#"}, "", question{"GET", "/?id=a+b%26c%3Dd%25%2B%23", "", "", ""}},
		{"/t", Options{}, tier.Key{Digest: digest, Plain: planted}, "s3cret", question{"GET", "/t?digest=" + digest, "", "Bearer s3cret", ""}},
		{"/t", Options{SendKey: true}, tier.Key{Digest: digest, Plain: planted}, "", question{"POST", "/t", `{"key":"` + planted + `"}`, "", "application/json"}},
		{"/t", Options{SendKey: true}, tier.Key{ID: "acme"}, "", question{"POST", "/t", `{"id":"acme"}`, "", "application/json"}},
	} {
		tt.o.URL = parsed(url + tt.path)
		tt.o.Token = func() string { return tt.token }
		r, err := newSource(t, tt.o).Lookup(t.Context(), tt.key)
		if err != nil || r.Subject == nil || r.Subject.ID != "acme" || r.MaxAge != time.Minute {
			t.Errorf("Lookup = %+v, %v", r, err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(question{})); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestUnasked checks the keys for which the endpoint is not asked.
func TestUnasked(t *testing.T) {
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked: %s %s", r.Method, r.RequestURI) })
	s := newSource(t, Options{URL: parsed(url), SendKey: true})
	if r, err := s.Lookup(t.Context(), tier.Key{Digest: digest}); err == nil || !strings.Contains(err.Error(), "only its digest") {
		t.Errorf("without the key: %+v, %v", r, err)
	}
	// JSON would change the key. Clients choose it, so it must not look like a failure of
	// the endpoint.
	if r, err := s.Lookup(t.Context(), tier.Key{Digest: digest, Plain: "\xff"}); err != nil || r.Subject != nil {
		t.Errorf("a key that is not UTF-8: %+v, %v", r, err)
	}
	s = newSource(t, Options{URL: parsed(url), Token: func() string { return planted + "\n" }})
	if r, err := s.Lookup(t.Context(), tier.Key{Digest: digest}); err == nil || !strings.Contains(err.Error(), "the token has") || strings.Contains(err.Error(), planted) {
		t.Errorf("a token with the end of a line: %+v, %v", r, err)
	}
}

// TestAnswers checks what each answer means.
func TestAnswers(t *testing.T) {
	var elsewhere atomic.Int32
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		says(acme)(w, r)
	})
	const (
		kind     = "application/json"
		other404 = `status 404 Not Found; the JSON {"subject":null} says that a key is unknown`
	)
	subject := &tier.Subject{ID: "acme", Tier: "pro"}
	for _, tt := range []struct {
		status     int
		kind, body string
		want       *tier.Subject
		err        string // of the source
		bad        string // a bad record
	}{
		{200, kind, acme, subject, "", ""},
		{200, "application/json;charset=UTF-8", " \n" + acme + "\n", subject, "", ""},
		{200, "application/hal+json", acme, subject, "", ""},
		{200, kind, `{"subject":"acme","tier":null,"disabled":null,"overrides":null,"labels":null}`, &tier.Subject{ID: "acme"}, "", ""},
		{200, kind, `{"subject":"acme","disabled":true,"labels":{"a":"b"},"plan":{"x":[1]}}`, &tier.Subject{ID: "acme", Disabled: true, Extra: &tier.Extra{Labels: map[string]string{"a": "b"}}}, "", ""},
		{200, kind, `{"subject":null}`, nil, "", ""},
		{200, kind, `{"subject":null,"tier":"pro"}`, nil, "", ""},
		{404, kind, `{"subject":null,"message":"no such key"}`, nil, "", ""},

		{404, kind, `{"message":"no Route matched with those values"}`, nil, other404, ""},
		{404, kind, acme, nil, other404, ""},
		{404, kind, ``, nil, other404, ""},
		{404, "text/plain", `{"subject":null}`, nil, other404, ""},
		{204, "", "", nil, "status 204 No Content; the JSON", ""},
		{200, "text/html", "<html>" + planted, nil, "not of the type application/json", ""},
		{200, "application/jsonp", acme, nil, "not of the type application/json", ""},
		{200, ";", acme, nil, "not of the type application/json", ""},
		{201, kind, acme, nil, "status 201 Created", ""},
		{206, kind, acme, nil, "status 206 Partial Content", ""},
		{301, kind, acme, nil, "status 301 Moved Permanently; redirections are not followed", ""},
		{302, kind, acme, nil, "status 302 Found; redirections are not followed", ""},
		{307, kind, acme, nil, "status 307 Temporary Redirect; redirections", ""},
		{308, kind, acme, nil, "status 308 Permanent Redirect; redirections", ""},
		{304, "", "", nil, "status 304 Not Modified", ""},
		{400, kind, acme, nil, "status 400 Bad Request", ""},
		{401, kind, `{"subject":null}`, nil, "status 401 Unauthorized; check the token", ""},
		{403, kind, `{"subject":null}`, nil, "status 403 Forbidden; check the token", ""},
		{405, kind, `{"subject":null}`, nil, "status 405 Method Not Allowed; check the method", ""},
		{410, kind, `{"subject":null}`, nil, "status 410 Gone", ""},
		{429, kind, `{"subject":null}`, nil, "status 429 Too Many Requests", ""},
		{500, kind, acme, nil, "status 500 Internal Server Error", ""},
		{503, "text/plain", planted, nil, "status 503 Service Unavailable", ""},
		{599, kind, acme, nil, "status 599", ""},
		{200, kind, acme + strings.Repeat(" ", 64<<10), nil, "more than 65536 bytes", ""},

		{200, kind, ``, nil, "", "it is not JSON from byte 1 on"},
		{200, kind, `{`, nil, "", "it is not JSON from byte 2 on"},
		{200, kind, planted, nil, "", "it is not JSON from byte 1 on"},
		{200, kind, `null`, nil, "", "it is no JSON object"},
		{200, kind, `[` + acme + `]`, nil, "", "it is no JSON object"},
		{200, kind, acme + acme, nil, "", "something stands behind"},
		{200, kind, `{"subject":"acme","subject":null}`, nil, "", "member 2 has the name"},
		{200, kind, `{}`, nil, "", `there is no subject; {"subject":null} says that a key is unknown`},
		{200, kind, `{"Subject":"acme"}`, nil, "", "there is no subject"},
		{200, kind, `{"subject":""}`, nil, "", "id: it is empty"},
		{200, kind, `{"subject":42}`, nil, "", "subject: it is no text"},
		{200, kind, `{"subject":{"id":"` + planted + `"}}`, nil, "", "subject: it is no text"},
		{200, kind, `{"subject":"` + planted + `é"}`, nil, "", "id: byte 15 is 0xc3"},
		{200, kind, `{"subject":"a","tier":["pro"]}`, nil, "", "tier: it is no text"},
		{200, kind, `{"subject":"a","disabled":"no"}`, nil, "", "disabled: it is neither true nor false"},
		{200, kind, `{"subject":"a","disabled":0}`, nil, "", "disabled: it is neither true nor false"},
		{200, kind, `{"subject":"a","overrides":"` + planted + `"}`, nil, "", "overrides: "},
		{200, kind, `{"subject":"a","labels":{"a":{}}}`, nil, "", "labels: a: it is no text"},
		{200, kind, `{"subject":"a","labels":{"a":"b","a":"c"}}`, nil, "", "labels: member 2"},
		{200, kind, "{\"subject\":\"\xff\"}", nil, "", "it is not UTF-8"},
		{200, kind, `{"subject":` + strings.Repeat("[", 60_000), nil, "", "it is not JSON"},
	} {
		for _, sendKey := range []bool{false, true} {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", other+"/"+r.URL.RawQuery)
				w.Header()["Content-Type"] = []string{tt.kind}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			s := newSource(t, Options{URL: parsed(url + "/tiers?token=" + planted), SendKey: sendKey})
			r, err := s.Lookup(t.Context(), tier.Key{Digest: digest, Plain: planted})
			name := fmt.Sprintf("key %t: %d %s %.60q", sendKey, tt.status, tt.kind, tt.body)
			if err == nil {
				if tt.err+tt.bad != "" {
					t.Errorf("%s: %+v, want an error %s", name, r, tt.err+tt.bad)
				} else if diff := cmp.Diff(tt.want, r.Subject, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", name, diff)
				}
				continue
			}
			if tt.err+tt.bad == "" || !strings.HasPrefix(err.Error(), "tiers.http: "+url+"/tiers: ") || !strings.Contains(err.Error(), tt.err+tt.bad) || errors.Is(err, tier.ErrBadRecord) != (tt.bad != "") {
				t.Errorf("%s: %v; want %q", name, err, tt.err+tt.bad)
			}
			if strings.Contains(err.Error(), "sk-planted") || strings.Contains(err.Error(), digest) {
				t.Errorf("%s: the error has a key in it: %v", name, err)
			}
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d redirections were followed", n)
	}
}

func TestMaxAge(t *testing.T) {
	const never = -time.Second
	for _, tt := range []struct {
		lines []string
		age   string
		want  time.Duration
	}{
		{nil, "", 0},
		{nil, "30", 0},
		{[]string{""}, "", 0},
		{[]string{"public, must-revalidate"}, "", 0},
		{[]string{"max-age=60"}, "", time.Minute},
		{[]string{` private , MAX-AGE = "60" `}, "", time.Minute},
		{[]string{"max-age=60"}, "20", 40 * time.Second},
		{[]string{"max-age=60"}, "rubbish", time.Minute},
		{[]string{"max-age=60"}, "60", never},
		{[]string{"max-age=60"}, "99999999999999999999", never},
		{[]string{"max-age=60, max-age=5"}, "", 5 * time.Second},
		{[]string{"max-age=60", "max-age=90"}, "", time.Minute},
		{[]string{"s-maxage=9, x-max-age=9, stale-if-error=9"}, "", 0},
		{[]string{"max-age=0"}, "", never},
		{[]string{"max-age=-1"}, "", never},
		{[]string{"max-age=+1"}, "", never},
		{[]string{"max-age=1.5"}, "", never},
		{[]string{"max-age="}, "", never},
		{[]string{"max-age"}, "", never},
		{[]string{"max-age=60", "no-store"}, "", never},
		{[]string{"max-age=60, No-Cache"}, "", never},
		{[]string{`no-cache="set-cookie"`}, "", never},
		{[]string{`x="a, max-age=5"`}, "", 5 * time.Second},
		{[]string{"max-age=99999999999999999999999"}, "", (1 << 31) * time.Second},
	} {
		h := http.Header{"Cache-Control": tt.lines}
		if tt.age != "" {
			h.Set("Age", tt.age)
		}
		if got := maxAge(h); got != tt.want {
			t.Errorf("maxAge(%q, age %q) = %v, want %v", tt.lines, tt.age, got, tt.want)
		}
	}
}

// TestBroken has endpoints whose answers end too early or are not valid HTTP.
func TestBroken(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
	for _, tt := range []struct {
		name, said string
		hang       bool
		want       string
	}{
		{"says nothing", "", true, "context deadline exceeded"},
		{"hangs in the header", head, true, "context deadline exceeded"},
		{"hangs behind the header", head + "\r\n", true, "context deadline exceeded"},
		{"hangs in the body", head + "\r\n" + `{"subject":`, true, "context deadline exceeded"},
		{"hangs behind 100", "HTTP/1.1 100 Continue\r\n\r\n", true, "context deadline exceeded"},
		{"closes", "", false, "closed before the end"},
		{"closes in the header", head, false, "closed before the end"},
		{"closes in the body", head + "\r\n" + acme, false, "closed before the end"},
		{"is no HTTP", "220 " + planted + " ESMTP\r\n", false, "not valid HTTP"},
		{"has a bad length", "HTTP/1.1 200 OK\r\nContent-Length: " + planted + "\r\n\r\n", false, "not valid HTTP"},
		{"has a long header", head + "X: " + strings.Repeat("x", 2*maxHeader), true, "not valid HTTP"},
		{"switches protocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", true, "status 101"},
	} {
		for _, key := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, key), func(t *testing.T) {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				over := make(chan struct{})
				defer close(over)
				defer listener.Close()
				go func() {
					for {
						conn, err := listener.Accept()
						if err != nil {
							return
						}
						go func() {
							defer conn.Close()
							// The source reports an error of this write.
							if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
								_, _ = io.Copy(io.Discard, req.Body)
							}
							_, _ = io.WriteString(conn, tt.said)
							if tt.hang {
								<-over
							}
						}()
					}
				}()
				o := Options{URL: parsed("http://" + listener.Addr().String()), Timeout: 300 * time.Millisecond}
				if !tt.hang {
					o.Timeout = 30 * time.Second // the endpoint ends the answer itself
				}
				if key {
					o.SendKey = true
				}
				_, err = newSource(t, o).Lookup(t.Context(), tier.Key{Digest: digest, Plain: planted})
				if err == nil || errors.Is(err, tier.ErrBadRecord) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Lookup: %v; want %q", err, tt.want)
				} else if strings.Contains(err.Error(), "sk-planted") {
					t.Errorf("the error has a key in it: %v", err)
				}
			})
		}
	}
}

// TestRefused has no server at the address.
func TestRefused(t *testing.T) {
	s := newSource(t, Options{URL: parsed("http://127.0.0.1:1/x?token=" + planted)})
	_, err := s.Lookup(t.Context(), tier.Key{Digest: digest})
	if err == nil || !strings.HasPrefix(err.Error(), "tiers.http: http://127.0.0.1:1/x: connecting: ") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Lookup: %v", err)
	}
}

// TestClosedConnections proves that an endpoint may close idle connections.
func TestClosedConnections(t *testing.T) {
	proxy := servers.StartProxy(t, strings.TrimPrefix(serve(t, says(acme)), "http://"))
	for _, sendKey := range []bool{false, true} {
		s := newSource(t, Options{URL: parsed("http://" + proxy.Addr()), SendKey: sendKey})
		for i := range 50 {
			if _, err := s.Lookup(t.Context(), tier.Key{Digest: digest, Plain: planted}); err != nil {
				t.Errorf("key %t, %d: %v", sendKey, i, err)
			}
			proxy.CloseAll()
		}
	}
}

// TestConnections proves that the number of connections is bounded, and that questions
// that wait for one get answers.
func TestConnections(t *testing.T) {
	var now, made atomic.Int32
	full := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now.Add(1) == Connections {
			close(full)
		}
		<-full
		says(acme)(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			made.Add(1)
		}
	}
	server.Start()
	defer stop(server)
	s := newSource(t, Options{URL: parsed(server.URL)})
	errs := make(chan error, 2*Connections)
	for range cap(errs) {
		go func() {
			_, err := s.Lookup(t.Context(), tier.Key{Digest: digest})
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := made.Load(); n > Connections {
		t.Errorf("%d connections, want at most %d", n, Connections)
	}
}

// TestClose proves that idle connections are closed.
func TestClose(t *testing.T) {
	proxy := servers.StartProxy(t, strings.TrimPrefix(serve(t, says(acme)), "http://"))
	s := newSource(t, Options{URL: parsed("http://" + proxy.Addr())})
	if _, err := s.Lookup(t.Context(), tier.Key{Digest: digest}); err != nil || proxy.Connections() != 1 {
		t.Fatalf("%v; %d connections, want one that is kept", err, proxy.Connections())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); proxy.Connections() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection is still there")
		}
	}
}

// trust returns the configuration of a client that trusts a server's certificate.
func trust(server *httptest.Server) func() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots} }
}

// certificate makes a self-signed certificate.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestTLS proves that both sides check certificates, and that each new connection reads
// the files again.
func TestTLS(t *testing.T) {
	client, stranger := certificate(t), certificate(t)
	clients := x509.NewCertPool()
	clients.AddCert(client.Leaf)
	server := httptest.NewUnstartedServer(says(acme))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.EnableHTTP2 = true // the source does not use it
	server.StartTLS()
	defer stop(server)
	known := trust(server)()

	config := known.Clone()
	s := newSource(t, Options{URL: parsed(server.URL), TLS: func() *tls.Config { return config }})
	for _, tt := range []struct {
		name   string
		change func(*tls.Config)
		want   string // of the error; empty: none
	}{
		{"ours", func(c *tls.Config) { c.Certificates = []tls.Certificate{client} }, ""},
		{"none of ours", func(*tls.Config) {}, "certificate required"},
		{"a stranger's", func(c *tls.Config) { c.Certificates = []tls.Certificate{stranger} }, "tls: "},
		{"another authority", func(c *tls.Config) { c.Certificates, c.RootCAs = []tls.Certificate{client}, clients }, "unknown authority"},
		{"another name", func(c *tls.Config) { c.Certificates, c.ServerName = []tls.Certificate{client}, "tiers.internal" }, "not tiers.internal"},
		{"a name of the certificate", func(c *tls.Config) { c.Certificates, c.ServerName = []tls.Certificate{client}, "example.com" }, ""},
	} {
		config = known.Clone()
		tt.change(config)
		before := config.Clone()
		s.transport.CloseIdleConnections()
		_, err := s.Lookup(t.Context(), tier.Key{Digest: digest})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
		if config.ServerName != before.ServerName || len(config.NextProtos) != 0 {
			t.Errorf("%s: the configuration was changed", tt.name)
		}
	}

	// The system does not trust its authority.
	if _, err := newSource(t, Options{URL: parsed(server.URL)}).Lookup(t.Context(), tier.Key{Digest: digest}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without a configuration: %v", err)
	}
	// A server without TLS.
	plain := "https" + strings.TrimPrefix(serve(t, says(acme)), "http")
	if _, err := newSource(t, Options{URL: parsed(plain)}).Lookup(t.Context(), tier.Key{Digest: digest}); err == nil || !strings.Contains(err.Error(), "TLS: ") {
		t.Errorf("a server without TLS: %v", err)
	}
}

// TestContext proves that the deadline of the caller bounds a question too.
func TestContext(t *testing.T) {
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := newSource(t, Options{URL: parsed(url)})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Lookup(ctx, tier.Key{Digest: digest}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lookup: %v", err)
	}
	s = newSource(t, Options{URL: parsed(url), Timeout: 50 * time.Millisecond})
	if _, err := s.Lookup(t.Context(), tier.Key{Digest: digest}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lookup: %v", err)
	}
}

func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		acme, `{"subject":null}`, `{"subject":"a","disabled":true,"labels":{"a":"b"},"overrides":{"x":{"unlimited":true}}}`,
		`{"subject":"a","subject":"b"}`, `{"x":[{}]}`, "", `{"subject":"\ud800"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := readAnswer(body, tiertest.ReadOverrides)
		if err != nil {
			if s != nil || !errors.Is(err, tier.ErrBadRecord) {
				t.Errorf("readAnswer = %+v, %v", s, err)
			}
			return
		}
		if s == nil {
			return
		}
		if tier.ValidID(s.ID) != nil || tier.ValidLabels(s.Labels()) != nil {
			t.Errorf("readAnswer let pass %+v", s)
		}
		again, err := readAnswer(write(t, *s), tiertest.ReadOverrides)
		if diff := cmp.Diff(s, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("written and read again: %v (-first +again)\n%s", err, diff)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add("max-age=60, private", "3")
	f.Add(`no-cache="a,b", max-age=99999999999`, "-1")
	f.Fuzz(func(t *testing.T, cacheControl, age string) {
		got := maxAge(http.Header{"Cache-Control": {cacheControl}, "Age": {age}})
		if got != -time.Second && (got < 0 || got > (1<<31)*time.Second || got%time.Second != 0) {
			t.Errorf("maxAge(%q, %q) = %v", cacheControl, age, got)
		}
	})
}
