package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/grpcserver"
	"github.com/slidegate/slidegate/test/servers"
)

const cutOff = "calls were still in flight at the end of drain.timeout; their connections are closed; if this happens often, raise drain.timeout"

// drainingServer is a grpcserver.Server whose last call ends after a while, or with Stop.
type drainingServer struct {
	grpcserver.Server
	after   time.Duration
	stopped chan struct{}
	ended   func() // is called when the last call has, before GracefulStop returns
}

func (f *drainingServer) GracefulStop() {
	select {
	case <-time.After(f.after):
		f.ended()
	case <-f.stopped:
	}
	synctest.Wait() // goroutines that have noticed it go first
}

func (f *drainingServer) Stop() { close(f.stopped) }

// TestDrain ends calls before and after drain.timeout. The log has a warning only if calls were
// still in flight.
func TestDrain(t *testing.T) {
	const delay, timeout = time.Second, 10 * time.Second
	for name, tt := range map[string]struct {
		after    time.Duration // the last call ends
		endsAll  bool          // Serve returns then, and so does the rest of the process
		fails    time.Duration // another part does; zero: none
		want     time.Duration // the drain takes
		warnings int
	}{
		"calls finish":             {after: 9 * time.Second, want: delay + 9*time.Second},
		"Serve returns first":      {after: 9 * time.Second, endsAll: true, want: delay + 9*time.Second},
		"at once":                  {endsAll: true, want: delay},
		"a call does not finish":   {after: time.Hour, want: delay + timeout, warnings: 1},
		"another part fails":       {after: time.Hour, fails: 5 * time.Second, want: 5 * time.Second},
		"it fails after the drain": {after: time.Hour, fails: 20 * time.Second, want: delay + timeout, warnings: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				server := &drainingServer{after: tt.after, stopped: make(chan struct{}), ended: func() {}}
				if tt.endsAll {
					server.ended = cancel
				}
				if tt.fails > 0 {
					defer time.AfterFunc(tt.fails, cancel).Stop()
				}
				core, logs := observer.New(zapcore.DebugLevel)
				start := time.Now()
				drain(ctx, settings.Drain{Delay: delay, Timeout: timeout}, server, nil, zap.New(core))
				if took := time.Since(start); took != tt.want {
					t.Errorf("the drain took %v, want %v", took, tt.want)
				}
				if n := logs.FilterMessage(cutOff).Len(); n != tt.warnings || logs.FilterLevelExact(zapcore.WarnLevel).Len() != n {
					t.Errorf("got %d warnings of calls in flight, want %d; all: %v", n, tt.warnings, logs.All())
				}
			})
		})
	}
}

// TestStopsWithoutAWarning stops often, each time with a client connected.
func TestStopsWithoutAWarning(t *testing.T) { onEachTransport(t, testStopsWithoutAWarning) }

func testStopsWithoutAWarning(t *testing.T, s settings.Settings) {
	for range 20 {
		r := start(t, s)
		if _, err := r.ask(demo); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.waitLog("stopped")
		if all := r.logs.FilterLevelExact(zapcore.WarnLevel).All(); len(all) > 0 {
			t.Errorf("warnings of a stop: %v", all)
		}
	}
}

// TestSaysHowGRPCIsServed reads the log line of the start.
func TestSaysHowGRPCIsServed(t *testing.T) { onEachTransport(t, testSaysHowGRPCIsServed) }

func testSaysHowGRPCIsServed(t *testing.T, s settings.Settings) {
	for _, on := range []bool{false, true} {
		if on {
			secure(&s, servers.NewAuthority(t))
		}
		r := start(t, s)
		r.waitLog("starting")
		got := r.logs.FilterMessage("starting").All()[0].ContextMap()
		if got["transport"] != s.GRPC.Transport || got["tls"] != on {
			t.Errorf("transport %v, tls %v, want %v, %v", got["transport"], got["tls"], s.GRPC.Transport, on)
		}
	}
}

// TestAliveWhileLoading proves that the process answers probes while it loads a snapshot, that
// no caller of gRPC waits then, and that the listeners serve afterwards.
func TestAliveWhileLoading(t *testing.T) {
	for name, plain := range map[string]string{"OK\nstore: memory, loading the snapshot\n": "", "OK": "plain"} {
		s := testSettings(t)
		s.GRPC.Address = append(s.GRPC.Address, settings.Address(unixScheme+filepath.Join(t.TempDir(), "s")))
		s.Metrics.Address = "127.0.0.1:0"
		ls, err := openListeners(s)
		if err != nil {
			t.Fatal(err)
		}
		get := func(l net.Listener, path string) (int, string) {
			t.Helper()
			resp, err := http.Get("http://" + address(l) + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(body)
		}
		loaded := ls.answerWhileLoading(plain != "", zap.NewNop())
		for _, l := range []net.Listener{ls.http, ls.admin, ls.metrics} {
			if code, body := get(l, "/healthcheck"); code != http.StatusOK || body != name {
				t.Errorf("/healthcheck: %d %q, want %q", code, body, name)
			}
			for _, path := range []string{"/readyz", "/json", "/metrics", "/authz/"} {
				if code, body := get(l, path); code != http.StatusServiceUnavailable || !strings.Contains(body, "loading the snapshot") {
					t.Errorf("%s: %d %q, want 503", path, code, body)
				}
			}
		}
		dial := func(l net.Listener) net.Conn {
			t.Helper()
			c, err := net.Dial(l.Addr().Network(), strings.TrimPrefix(address(l), unixScheme))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		for _, l := range ls.grpc {
			c := dial(l)
			if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%v: read %d bytes, %v, want a closed connection", l.Addr(), n, err)
			}
			_ = c.Close()
		}
		loaded()
		for _, l := range append(ls.grpc, ls.http, ls.admin, ls.metrics) {
			_ = dial(l).Close()
			c, err := l.Accept()
			if err != nil {
				t.Fatalf("%v does not serve afterwards: %v", l.Addr(), err)
			}
			_ = c.Close()
		}
		_ = ls.close()
	}
	http.DefaultClient.CloseIdleConnections()
}
