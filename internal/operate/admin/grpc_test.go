package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/test/bufconn"
)

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
