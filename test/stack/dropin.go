package stack

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slidegate/slidegate/test/process"
)

// A DropIn is rls, started as ratelimit with an environment of a deployment, and nothing else.
type DropIn struct {
	*process.Process
	Port int // HTTP; gRPC and debug are the next two
}

// AsRatelimit returns the path of rls under the name of the reference's program.
func AsRatelimit(t *testing.T) string {
	t.Helper()
	rls, err := process.Build("cmd/rls")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(rls, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// StartDropIn starts a program on free ports. It returns when /healthcheck answers 200.
func StartDropIn(t *testing.T, program string, environ []string) *DropIn {
	t.Helper()
	d := new(DropIn)
	err := process.Launch(func(port int) error {
		cmd := exec.Command(program)
		cmd.Env = append(slices.Clone(environ), fmt.Sprintf("PORT=%d", port), fmt.Sprintf("GRPC_PORT=%d", port+1), fmt.Sprintf("DEBUG_PORT=%d", port+2))
		p, err := process.Start("ratelimit", cmd)
		if err != nil {
			return err
		}
		d.Process, d.Port = p, port
		if err := p.Until(d.healthy); err != nil {
			p.Kill()
			return err
		}
		return nil
	}, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d
}

// healthy returns nil if /healthcheck answers 200.
func (d *DropIn) healthy() error {
	response, err := http.Get("http://" + process.Address(d.Port) + "/healthcheck")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return fmt.Errorf("got %s: %s", response.Status, body)
	}
	return nil
}
