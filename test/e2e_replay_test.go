package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/edge"
)

const (
	replayedRules = "domain: edge\ndescriptors: [{key: remote_address, rate_limit: {name: per-address, unit: minute, requests_per_unit: 10}}]\n"
	// replayedLine is as envoy/ratelimit.yaml makes Envoy write it.
	replayedLine = `{"client":"%s","details":"via_upstream","duration_ms":3,"flags":"-","method":"GET","path":"/items","protocol":"HTTP/2","status":200,"subject":null,"time":%q}` + "\n"
)

// replayedLog writes lines of two clients, one a second each.
func replayedLog(w io.Writer, lines int) error {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range lines {
		at := start.Add(time.Duration(i/2) * time.Second).Format("2006-01-02T15:04:05.000Z")
		if _, err := fmt.Fprintf(w, replayedLine, []string{"192.0.2.7", "2001:db8::1"}[i%2], at); err != nil {
			return err
		}
	}
	return nil
}

// TestReplayInterrupted ends with the report of what was read.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	rules := fileOf(t, "rules.yaml", replayedRules)
	cmd, err := edge.RLSOptions{}.Command(t.Context(), "replay", "--json", "--rules", rules, "--envoy", "../envoy/ratelimit.yaml", "-")
	if err != nil {
		t.Fatal(err)
	}
	var out, errs output
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds: once it is written, the command reads, and so it catches signals.
	if err := replayedLog(in, 20_000); err != nil {
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
