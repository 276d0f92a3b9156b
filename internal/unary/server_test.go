package unary_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/unary"
)

func TestClient(t *testing.T) {
	s := unary.NewServer(unary.Options{})
	healthv1.RegisterHealthServer(s, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	cc, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	for range 100 {
		r, err := healthv1.NewHealthClient(cc).Check(context.Background(), &healthv1.HealthCheckRequest{})
		if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Fatal(r, err)
		}
	}
	w, err := healthv1.NewHealthClient(cc).Watch(context.Background(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := w.Recv(); err == nil {
		t.Fatal(m)
	} else {
		t.Log(err)
	}
	s.GracefulStop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
