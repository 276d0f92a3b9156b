package daemon

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
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
