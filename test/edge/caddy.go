package edge

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/slidegate/slidegate/test/process"
)

// Caddy starts a Caddy for the time of the test, without TLS. Its file has one
// site, example.com, with slidegate:8080 for rls and app:8080 for the application.
func Caddy(t process.TB, o GatewayOptions) *Gateway {
	t.Helper()
	binary, err := exec.LookPath("caddy")
	if err != nil {
		process.Missing(t, "caddy", "install it, for instance: apt-get install caddy")
	}
	return startGateway(t, o, func(listen string) []address {
		host, port, _ := net.SplitHostPort(listen)
		return []address{
			{"listener", "\nexample.com {\n", "\nhttp://:" + port + " {\nbind " + host + "\n"},
			{"rate-limit service", " slidegate:8080 ", " " + o.RLS + " "},
			{"application", " app:8080\n", " " + o.Upstream + "\n"},
		}
	}, func(dir, text, listen string) (*process.Process, error) { return runCaddy(binary, dir, text, listen) })
}

// runCaddy runs one Caddy, with all of its files in dir.
func runCaddy(binary, dir, text, listen string) (*process.Process, error) {
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte("{\nadmin off\nauto_https off\n}\n"+text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "run", "--config", file, "--adapter", "caddyfile")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	p, err := process.Start("caddy", cmd)
	if err != nil {
		return nil, err
	}
	// Caddy prints this when it has bound, so the answering process is ours.
	if err := p.Until(func() error {
		if !strings.Contains(p.Output(), "serving initial configuration") {
			return errors.New("it does not serve yet")
		}
		return process.Reach(listen)
	}); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}
