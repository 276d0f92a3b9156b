package replay

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
)

// TestReplayInterrupted ends with the report of what was read.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	rules := configtest.Write(t, "rules.yaml", "domain: edge\ndescriptors: [{key: remote_address, rate_limit: {name: per-address, unit: minute, requests_per_unit: 10}}]\n")
	cmd, err := edge.RLSOptions{}.Command(t.Context(), "replay", "--json", "--rules", rules, "--envoy", "../../envoy/ratelimit.yaml", "-")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs process.Output
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds: once it is written, the command reads, and so it catches signals.
	const line = `{"client":"192.0.2.7","details":"via_upstream","method":"GET","path":"/items","subject":null,"time":"2026-03-01T12:00:00.000Z"}` + "\n"
	if _, err := io.WriteString(in, strings.Repeat(line, 20_000)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("got %v: %s", err, errs.String())
	}
	var report struct {
		Requests int
		Partial  bool
	}
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil || !report.Partial || report.Requests > 20_000 {
		t.Errorf("%v: %+v; it says %s", err, report, errs.String())
	}
}
