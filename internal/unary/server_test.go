package unary_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/unary"
)

// TestGRPCGoClient calls with a client of grpc-go. Streams are UNIMPLEMENTED.
func TestGRPCGoClient(t *testing.T) {
	l := loopback(t)
	startServer(t, serverKind{"health", func(_ *testService, o unary.Options) transport {
		s := unary.NewServer(o)
		healthv1.RegisterHealthServer(s, health.NewServer())
		return s
	}}, unary.Options{}, l)
	cc, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	client := healthv1.NewHealthClient(cc)
	for range 100 {
		r, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Fatal(r, err)
		}
	}
	w, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := w.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream got %v, %v, want UNIMPLEMENTED", m, err)
	}
}
