package guides

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// TestEnvoyRun runs make envoy-run, as docs/start.md says, at other ports. It puts Envoy in front of
// rls. The 101st request through Envoy is denied.
func TestEnvoyRun(t *testing.T) {
	for _, program := range []string{"make", "bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s here", program)
		}
	}
	edge.EnvoyAccepts(t, stack.EdgeConfig) // or it says what is missing
	program, err := exec.LookPath(edge.EnvoyProgram())
	if err != nil {
		t.Fatal(err)
	}
	// Another program may have the ports of envoy/ratelimit.yaml.
	port, err := process.FreePort(1)
	if err != nil {
		t.Fatal(err)
	}
	rls := edge.StartRLS(t, edge.RLSOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	binary, err := edge.RLSOptions{}.Command(ctx)
	if err != nil {
		t.Fatal(err)
	}
	envoy := typed(ctx, fmt.Sprintf("make envoy-run RLS=%s APP=%s ENVOY_PORT=%d ENVOY_ADMIN_PORT=%d", rls.GRPC(), strings.TrimPrefix(rls.HTTP(), "http://"), port, port+1))
	envoy.Env = append(edge.UserEnviron(), "ENVOY_BIN="+program, "RLS_BIN="+binary.Path)
	var said strings.Builder
	envoy.Stdout, envoy.Stderr = &said, &said
	if err := envoy.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = envoy.Wait() // what it said tells why
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	// Until Envoy has found rls healthy, requests pass without a limit.
	address := fmt.Sprintf("http://localhost:%d/healthcheck", port)
	process.Eventually(t, "an answer with limits", func() bool {
		select {
		case <-ended:
			t.Fatalf("make envoy-run ended, and said\n%s", said.String())
		default:
		}
		response, err := http.Get(address)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.Header.Get("RateLimit") != ""
	})
	line := "curl -s -o /dev/null -w '%{http_code} ' -H 'x-api-key: demo-free' '" + address + "?[1-101]'"
	out, err := typed(ctx, line).CombinedOutput()
	if want := strings.Repeat("200 ", 100) + "429 "; err != nil || string(out) != want {
		t.Errorf("%s: got %q, %v, want %q", line, out, err, want)
	}
}

// typed returns a command of the shell in the root of the repository. Killing it kills
// its children.
func typed(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = "../.."
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}
