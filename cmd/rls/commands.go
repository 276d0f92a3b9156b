package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/tier"
)

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run() error {
	fmt.Println("slidegate", version)
	return nil
}

// invalid puts problems on lines of their own, where editors find their places.
func invalid(err error) error { return fmt.Errorf("the configuration is not valid:\n%w", err) }

// maxKeyBytes is far above what any header can carry.
const maxKeyBytes = 1 << 20

type digestCmd struct{}

// Run reads keys from standard input, so that they stay out of the shell's
// history and the process list.
func (digestCmd) Run(c *cli) error {
	s, err := config.LoadSettings(c.Config, os.Environ())
	if err != nil {
		return err
	}
	secrets := tier.NewSecrets(s.Secrets.Entries, s.Secrets.Key.Reveal())
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, maxKeyBytes)
	for in.Scan() {
		if in.Text() != "" {
			fmt.Println(secrets.Digest(in.Text()))
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("reading keys from standard input: %w", err)
	}
	return nil
}

type healthcheckCmd struct {
	Timeout time.Duration `default:"1s" help:"How long to wait for the answer."`
}

// Run asks the gRPC health service at the first address of grpc.address.
func (h healthcheckCmd) Run(c *cli) error {
	s, err := config.LoadSettings(c.Config, os.Environ())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	address := s.GRPC.Address[0]
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	target := address
	if !strings.HasPrefix(address, "unix:") {
		// Dialled as it is, within the deadline: gRPC's own resolver would ask DNS
		// first, which a container without a way out waits for.
		target = "passthrough:///" + address
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("healthcheck: %s: %w", address, err)
	}
	defer conn.Close()
	out, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("healthcheck: %s: %w", address, err)
	}
	if out.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("healthcheck: %s says %s", address, out.GetStatus())
	}
	return nil
}
