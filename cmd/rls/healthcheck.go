package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/client"
)

type healthcheckCmd struct {
	Timeout time.Duration
}

func healthcheck(c *cli) *cobra.Command {
	var h healthcheckCmd
	cmd := leaf("healthcheck", "Check that the service of these settings serves; exit 1 if it does not.", func() error { return h.Run(c) })
	cmd.Flags().DurationVar(&h.Timeout, "timeout", time.Second, "how long to wait for the answer")
	return cmd
}

// Run calls the gRPC health service at the first address of grpc.address. With TLS it prefers
// the first unix socket in plain text, if there is one.
func (h healthcheckCmd) Run(c *cli) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	address, secure, err := client.Local(s.GRPC)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	conn, err := client.Dial(address, secure)
	if err != nil {
		return fmt.Errorf("healthcheck: %s: %w", address, err)
	}
	defer conn.Close()
	out, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	cause := status.Convert(err)
	switch reason := cmp.Or(cause.Message(), cause.Code().String()); {
	case err == nil:
	case client.NothingListens(err):
		return fmt.Errorf("healthcheck: nothing listens on %s: start rls, or set grpc.address", address)
	case cause.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("healthcheck: %s: no answer within %v", address, h.Timeout)
	case s.GRPC.TLS.ClientCAFile != "" && s.GRPC.TLS.Covers(address):
		// A refused certificate often looks like a broken pipe: in TLS 1.3 the client writes
		// before it learns of the refusal.
		return fmt.Errorf("healthcheck: %s: %s (%s, or grpc.address must have a unix socket in plain text)", address, reason, forClients(s.GRPC.TLS))
	default:
		return fmt.Errorf("healthcheck: %s: %s", address, reason)
	}
	if out.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("healthcheck: %s answers %s", address, out.GetStatus())
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
