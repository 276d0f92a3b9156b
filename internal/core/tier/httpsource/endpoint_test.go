package httpsource

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/tiertest"
	"github.com/slidegate/slidegate/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An endpoint is an HTTP endpoint as an operator would write it.
type endpoint struct {
	mu      sync.Mutex
	bodies  map[string][]byte // by id
	keys    map[string]string // ids by digest
	corrupt map[string]bool
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct{ Digest, ID string }
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
			http.Error(w, "no question", http.StatusBadRequest)
			return
		}
	} else {
		question.Digest, question.ID = r.URL.Query().Get("digest"), r.URL.Query().Get("id")
	}
	body := e.answer(question.Digest, question.ID)
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(body)
}

func (e *endpoint) answer(digest, id string) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if digest != "" {
		id = e.keys[digest]
	}
	switch body := e.bodies[id]; {
	case e.corrupt[digest]:
		return []byte(`{"subject":["rubbish"]}`)
	case body == nil:
		return []byte(`{"subject":null}`)
	default:
		return body
	}
}

// write returns the endpoint's answer for a subject.
func write(t *testing.T, s tier.Subject) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"subject":   s.ID,
		"tier":      s.Tier,
		"disabled":  s.Disabled,
		"overrides": json.RawMessage(tiertest.Overrides(s)),
		"labels":    json.RawMessage(tiertest.Labels(s)),
		"limits":    json.RawMessage(tiertest.Limits(s)),
		"name":      []int{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// fixture returns an endpoint behind a proxy that can freeze.
func fixture(t *testing.T, o Options, secure bool) tiertest.Fixture {
	e := &endpoint{bodies: make(map[string][]byte), keys: make(map[string]string), corrupt: make(map[string]bool)}
	change := func(f func()) {
		e.mu.Lock()
		defer e.mu.Unlock()
		f()
	}
	var server *httptest.Server
	serve := func(address string) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}}
		if secure {
			server.StartTLS()
		} else {
			server.Start()
		}
	}
	serve("127.0.0.1:0")
	address := server.Listener.Addr().String()
	t.Cleanup(func() { stop(server) })
	proxy := servers.StartProxy(t, address)

	o.Timeout = time.Hour // too long to end a question here
	o.URL = parsed("http://" + proxy.Addr() + "/tiers?v=1")
	if secure {
		o.URL.Scheme = "https"
		o.TLS = trust(server)
	}
	return tiertest.Fixture{
		Source: newSource(t, o),
		Put: func(t *testing.T, s tier.Subject, digests ...string) {
			t.Helper()
			body := write(t, s)
			change(func() {
				e.bodies[s.ID] = body
				for _, d := range digests {
					e.keys[d] = s.ID
				}
			})
		},
		Remove:        func(_ *testing.T, digest string) { change(func() { delete(e.keys, digest) }) },
		RemoveSubject: func(_ *testing.T, id string) { change(func() { delete(e.bodies, id) }) },
		Corrupt:       func(_ *testing.T, digest string) { change(func() { e.corrupt[digest] = true }) },
		Stop:          func(*testing.T) { stop(server) },
		Start:         func(*testing.T) { serve(address) },
		Freeze:        func(*testing.T) { proxy.Blackhole(true) },
		Thaw:          func(*testing.T) { proxy.Blackhole(false) },
	}
}

// stop ends a server and its connections.
func stop(server *httptest.Server) {
	server.CloseClientConnections()
	_ = server.Config.Close()
	server.Close()
}

func newSource(t *testing.T, o Options) *Source {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	o.Overrides = tiertest.ReadOverrides
	s := New(o)
	if s.transport.Proxy != nil {
		t.Error("the environment may name a proxy")
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSource(t *testing.T) {
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			tiertest.Run(t, func(t *testing.T) tiertest.Fixture { return fixture(t, Options{}, secure) })
		})
	}
}
