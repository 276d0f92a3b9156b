package client

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config/settings"
)

// Health calls the gRPC health service of a service with these settings on this machine. With TLS it
// prefers the first unix socket in plain text, if there is one, and
// waits for the timeout at most. The error says why it does not serve.
func Health(s settings.GRPC, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	address, secure, err := Local(s)
	if err != nil {
		return err
	}
	conn, err := Dial(address, secure)
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	defer conn.Close()
	out, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	cause := status.Convert(err)
	switch reason := cmp.Or(cause.Message(), cause.Code().String()); {
	case err == nil:
	case NothingListens(err):
		return fmt.Errorf("nothing listens on %s: start rls, or set grpc.address", address)
	case cause.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("%s: no answer within %v", address, timeout)
	case s.TLS.ClientCAFile != "" && s.TLS.Covers(address):
		// A refused certificate often looks like a broken pipe: in TLS 1.3 the client writes
		// before it learns of the refusal.
		return fmt.Errorf("%s: %s (%s, or grpc.address must have a unix socket in plain text)", address, reason, forClients(s.TLS))
	default:
		return fmt.Errorf("%s: %s", address, reason)
	}
	if out.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s answers %s", address, out.GetStatus())
	}
	return nil
}

// forClients says what the service's own certificate needs so that the service accepts it from
// a client.
func forClients(t settings.ServerTLS) string {
	text := "the certificate of grpc.tls.cert_file must also be valid for clients"
	if t.ClientSAN != "" {
		text += " and have the name grpc.tls.client_san"
	}
	return text
}
