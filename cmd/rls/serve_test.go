package main

import (
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/daemon"
)

// TestWelcome reads what a terminal is told of the gRPC port.
func TestWelcome(t *testing.T) {
	g, err := config.Load(config.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ transport, cert, want string }{
		{config.TransportUnary, "", "  gRPC for Envoy   [::]:8081, unix:///s   transport unary, plain text\n"},
		{config.TransportStandard, "server.crt", "  gRPC for Envoy   [::]:8081, unix:///s   transport standard, TLS over TCP\n"},
	} {
		s := config.Default()
		s.GRPC.Transport, s.GRPC.TLS.CertFile = tt.transport, tt.cert
		var out strings.Builder
		welcome(&out, s, daemon.Running{GRPC: []string{"[::]:8081", "unix:///s"}, Rules: g.Rules})
		if !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s, certificate %q: want the line %q in\n%s", tt.transport, tt.cert, tt.want, out.String())
		}
	}
}
