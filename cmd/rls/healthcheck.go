package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/operate/client"
)

type healthcheckCmd struct {
	Timeout time.Duration
}

func healthcheck(c *cli) *cobra.Command {
	var h healthcheckCmd
	cmd := leaf("healthcheck", "Check that the service of these settings serves; exit 1 if it does not.", "", func() error { return h.Run(c) })
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
	if err := client.Health(s.GRPC, h.Timeout); err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	return nil
}
