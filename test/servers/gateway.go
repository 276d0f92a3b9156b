package servers

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"
)

// GatewayOptions say what Nginx or Caddy runs. Config is required.
type GatewayOptions struct {
	// Config is a file of the gateway, with the addresses that Nginx or Caddy names.
	Config string
	// RLS and Upstream are the host:port of the HTTP port of rls and of the
	// application.
	RLS, Upstream string
	// Replace holds further changes of the file's text. What is to be replaced
	// must be there.
	Replace map[string]string
}

// A Gateway is a running nginx or Caddy.
type Gateway struct {
	process *process
	addr    string
}

// address is one that a file has, and what takes its place.
type address struct{ what, from, to string }

// startGateway starts a gateway for the time of the test, on a free port. start
// runs it with the text of its file and waits for its listener; dir is for all that
// it writes.
func startGateway(t testing.TB, o GatewayOptions, addresses func(listen string) []address, start func(dir, text, listen string) (*process, error)) *Gateway {
	t.Helper()
	data, err := os.ReadFile(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for range startAttempts {
		var port int
		if port, err = freePort(false); err != nil {
			break
		}
		g := &Gateway{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
		var text string
		if text, err = o.render(string(data), addresses(g.addr)); err != nil {
			break
		}
		if g.process, err = start(dir, text, g.addr); err == nil {
			t.Cleanup(g.process.kill)
			return g
		}
	}
	t.Fatalf("servers: %s: %v", o.Config, err)
	return nil
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

// reach connects to an address once.
func reach(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Addr returns host:port of the listener.
func (g *Gateway) Addr() string { return g.addr }

// Output returns what the gateway has said.
func (g *Gateway) Output() string { return g.process.output() }
