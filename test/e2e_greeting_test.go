package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
)

// TestTheGreetingWorksAsItIs runs the lines that rls prints at its start, with another port for
// Envoy. They put Envoy in front of rls. The 101st request through Envoy is denied.
func TestTheGreetingWorksAsItIs(t *testing.T) {
	for _, program := range []string{"make", "bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s here", program)
		}
	}
	edge.EnvoyAccepts(t, edgeConfig) // or it says what is missing
	program, err := exec.LookPath(edge.EnvoyProgram())
	if err != nil {
		t.Fatal(err)
	}
	// Another program may have the ports of envoy/ratelimit.yaml.
	port, err := process.FreePort(1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := edge.RLSOptions{Env: map[string]string{
		envGRPCAddress: "127.0.0.1:0", "SLIDEGATE_HTTP_ADDRESS": "127.0.0.1:0", "SLIDEGATE_ADMIN_ADDRESS": "127.0.0.1:0",
		"SLIDEGATE_LOG_FORMAT": "console",
	}}
	rls, err := o.Command(ctx)
	if err != nil {
		t.Fatal(err)
	}
	greeting, err := rls.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := rls.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = rls.Wait() }) // it was killed
	var toType []string
	for in := bufio.NewScanner(greeting); len(toType) < 2 && in.Scan(); {
		if m := regexp.MustCompile(`^  ((?:make envoy-run|for i in .*localhost:10000).*)$`).FindStringSubmatch(in.Text()); m != nil {
			toType = append(toType, m[1])
		}
	}
	go func() { _, _ = io.Copy(io.Discard, greeting) }() // what it logs
	if len(toType) < 2 {
		t.Fatalf("the greeting has not the lines to type: %q", toType)
	}

	envoy := typed(ctx, toType[0])
	envoy.Env = append(userEnviron(), "ENVOY_BIN="+program, "RLS_BIN="+rls.Path, fmt.Sprintf("ENVOY_PORT=%d", port), fmt.Sprintf("ENVOY_ADMIN_PORT=%d", port+1))
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
	eventually(t, "an answer with limits", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s: it ended, and said\n%s", toType[0], said.String())
		default:
		}
		response, err := http.Get(fmt.Sprintf("http://localhost:%d/healthcheck", port))
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.Header.Get("RateLimit") != ""
	})
	out, err := typed(ctx, strings.ReplaceAll(toType[1], "localhost:10000", fmt.Sprintf("localhost:%d", port))).CombinedOutput()
	if want := strings.Repeat("200 ", 100) + "429 \n"; err != nil || string(out) != want {
		t.Errorf("%s: got %q, %v, want %q", toType[1], out, err, want)
	}
}

// typed returns a command of the shell in the root of the repository. Killing it kills
// its children.
func typed(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = ".."
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}
