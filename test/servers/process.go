package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is a running command whose output is collected.
type process struct {
	name           string
	cmd            *exec.Cmd
	stdout, stderr output
	exited         chan struct{} // closed when it has ended
}

// startProcess starts cmd, whose outputs must not be set.
func startProcess(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("servers: starting %s: %w", name, err)
	}
	go func() {
		// How it ended is in cmd.ProcessState; here only that it did matters.
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// output returns what the process has printed.
func (p *process) output() string { return p.stdout.String() + p.stderr.String() }

// kill ends the process, in whatever state it is, and waits until it is gone.
func (p *process) kill() {
	// An error here means that the process has ended already.
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("servers: sending %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// wait waits until the process ends by itself and returns its exit code, or -1
// and the signal that ended it.
func (p *process) wait() (int, error) {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	select {
	case <-p.exited:
	case <-deadline.C:
		return -1, fmt.Errorf("servers: %s has not ended within %v\n%s", p.name, startTimeout, p.stderr.String())
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -1, fmt.Errorf("servers: %s was ended by %v", p.name, status.Signal())
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// until calls ready until it returns nil. It gives up when the process ends,
// or after a time that is far longer than any good start.
func (p *process) until(ready func() error) error {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		last := ready()
		if last == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("servers: %s ended by itself:\n%s", p.name, p.output())
		case <-deadline.C:
			return fmt.Errorf("servers: %s: nothing within %v: %w\n%s", p.name, startTimeout, last, p.output())
		case <-poll.C:
		}
	}
}

// errMissing is wrapped by the error of a start whose binary is not there.
var errMissing = errors.New("is not installed")

// withoutSettings is the environment of this process without the variables that
// begin with prefix.
func withoutSettings(prefix string) []string {
	var kept []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, prefix) {
			kept = append(kept, v)
		}
	}
	return kept
}
