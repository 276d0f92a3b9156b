package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
)

// ConnKey is the key of a request's connection in its context; see [ServeHTTP].
type ConnKey struct{}

// The answer of the application.
const (
	AppBody        = `{"from":"the application"}`
	AppContentType = "application/vnd.example+json; charset=utf-8"
)

// An Application is the service behind Envoy. It records the requests that it gets.
type Application struct {
	Addr string

	mu       sync.Mutex
	requests []*http.Request
}

// NewApplication serves until the test ends.
func NewApplication(t *testing.T) *Application {
	t.Helper()
	a := new(Application)
	a.Addr = ServeHTTP(t, a)
	return a
}

// ServeHTTP serves HTTP/1.1, and HTTP/2 without TLS, until the test ends. It returns
// host:port.
func ServeHTTP(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
		if tcp, ok := conn.(syscall.Conn); ok {
			if raw, err := tcp.SyscallConn(); err == nil {
				return context.WithValue(ctx, ConnKey{}, raw)
			}
		}
		return ctx
	}}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("application: %v", err)
		}
	})
	return listener.Addr().String()
}

// ServeHTTP answers with fields that rls must not change, and with rate-limit fields
// of its own, which Envoy removes.
func (a *Application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r.Clone(context.WithoutCancel(r.Context())))
	a.mu.Unlock()
	w.Header().Set("Content-Type", AppContentType)
	w.Header().Set("RateLimit", `"application";r=1`)
	w.Header().Set("RateLimit-Policy", `"application";q=1`)
	w.Header().Set("X-Application", "yes")
	fmt.Fprint(w, AppBody)
}

// Received returns the requests so far.
func (a *Application) Received() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*http.Request(nil), a.requests...)
}

// Last returns the newest request.
func (a *Application) Last(t *testing.T) *http.Request {
	t.Helper()
	all := a.Received()
	if len(all) == 0 {
		t.Fatal("nothing has reached the application")
	}
	return all[len(all)-1]
}
