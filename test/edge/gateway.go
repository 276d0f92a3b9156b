package edge

import (
	"fmt"
	"os"

	"github.com/slidegate/slidegate/test/process"
)

// GatewayOptions say what Nginx or Caddy runs. Config is required.
type GatewayOptions struct {
	// Config is a file of the gateway, with the addresses that Nginx or Caddy names.
	Config string
	// RLS and Upstream are the host:port of the HTTP port of rls and of the
	// application.
	RLS, Upstream string
	// Replace holds further changes of the file's text, from old to new. The old text
	// must be there once.
	Replace map[string]string
}

// A Gateway is a running nginx or Caddy.
type Gateway struct {
	process *process.Process
	addr    string
}

// address is a text in a file with an address, and its replacement.
type address struct{ what, from, to string }

// startGateway starts a gateway for the time of the test, on a free port. start runs
// the gateway with the text of its file and waits for its listener; dir is for its
// files.
func startGateway(t process.TB, o GatewayOptions, addresses func(listen string) []address, start func(dir, text, listen string) (*process.Process, error)) *Gateway {
	t.Helper()
	data, err := os.ReadFile(o.Config)
	if err != nil {
		t.Fatalf("edge: %v", err)
	}
	dir, g := t.TempDir(), new(Gateway)
	err = process.Launch(func(port int) error {
		g.addr = process.Address(port)
		text, err := o.render(string(data), addresses(g.addr))
		if err == nil {
			g.process, err = start(dir, text, g.addr)
		}
		return err
	})
	if err != nil {
		t.Fatalf("edge: %s: %v", o.Config, err)
	}
	t.Cleanup(g.process.Kill)
	return g
}

func (o GatewayOptions) render(text string, addresses []address) (string, error) {
	var err error
	for _, a := range addresses {
		if text, err = replaceOne(text, []string{a.from}, a.to); err != nil {
			return "", fmt.Errorf("address of the %s: %w", a.what, err)
		}
	}
	for from, to := range o.Replace {
		if text, err = replaceOne(text, []string{from}, to); err != nil {
			return "", err
		}
	}
	return text, nil
}

// Addr returns host:port of the listener.
func (g *Gateway) Addr() string { return g.addr }

// Output returns what the gateway has printed.
func (g *Gateway) Output() string { return g.process.Output() }
