package edge

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/process"
)

// A Result is the exit code and the output of a command of rls.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command of rls that ends by itself.
func Run(t *testing.T, o RLSOptions, stdin string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	cmd, err := o.Command(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	exit := new(exec.ExitError)
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// UserEnviron returns the environment without the settings of rls and of these tests: that of a
// user who types the commands of a page.
func UserEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLIDEGATE_") })
}

// Run runs a command of rls with the settings of s, and the addresses that s has got.
func (s *RLSServer) Run(t *testing.T, args ...string) Result {
	t.Helper()
	o := s.options
	o.Rules, o.Tiers = "", "" // Env names the files
	return Run(t, o, "", args...)
}
