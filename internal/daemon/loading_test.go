package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/snapshot"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

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

// TestStoppedWhileLoading proves that SIGTERM ends a process at once that loads a snapshot.
func TestStoppedWhileLoading(t *testing.T) {
	loading := make(chan struct{})
	openSnapshot = func(ctx context.Context, file string, o memstore.Options, log *zap.Logger) (*snapshot.Store, error) {
		close(loading)
		<-ctx.Done() // the file is endless
		return snapshot.Open(ctx, file, o, log)
	}
	t.Cleanup(func() { openSnapshot = snapshot.Open })
	s := testSettings(t)
	s.Store.Memory.Snapshot = filepath.Join(t.TempDir(), "logs")
	write(t, s.Store.Memory.Snapshot, "not read")
	r := startWaiting(t, s)
	select {
	case <-loading:
	case err := <-r.done:
		t.Fatal(err)
	}
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the process does not end")
	}
	r.waitLog("stopped")
	if text, err := os.ReadFile(s.Store.Memory.Snapshot); string(text) != "not read" || err != nil {
		t.Errorf("the file is %q, %v, want it as it was", text, err)
	}
}
