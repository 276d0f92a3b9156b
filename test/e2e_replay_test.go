package test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// TestReplay runs "rls replay" on two files, one of them packed.
func TestReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	writeFile(t, rules, replayedRules)
	plain, err := os.Create(filepath.Join(dir, "one.log"))
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.Create(filepath.Join(dir, "two.log.gz"))
	if err != nil {
		t.Fatal(err)
	}
	pack := gzip.NewWriter(packed)
	if err := errors.Join(replayedLog(plain, 240), plain.Close(), replayedLog(pack, 240), pack.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	got := run(t, edge.RLSOptions{}, "", "replay", "--json", "--rules", rules, "--envoy", "../envoy/ratelimit.yaml", plain.Name(), packed.Name())
	var report struct {
		Requests, Allowed, Denied int
		Rules                     []struct{ Logs, DeniedLogs int }
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	// Two instances wrote two minutes, and each client may send ten requests in any minute.
	if report.Requests != 480 || report.Allowed != 40 || report.Denied != 440 || report.Rules[0].Logs != 2 {
		t.Errorf("got %+v", report)
	}
	if got := run(t, edge.RLSOptions{}, "", "replay", "--rules", rules, "--envoy", "../envoy/ratelimit.yaml", "--fail-if", "denied>50%", plain.Name()); got.code != 1 {
		t.Errorf("--fail-if: got %+v", got)
	}
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
