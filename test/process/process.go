package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// Timeout is how long a start or an end may take. It is generous: it decides only
	// how long a broken start takes to fail.
	Timeout                     = 30 * time.Second
	shortestPause, longestPause = 2 * time.Millisecond, 50 * time.Millisecond
)

// A Process is a running command. It collects what the command prints.
type Process struct {
	name           string
	cmd            *exec.Cmd
	stdout, stderr Output
	exited         chan struct{} // closed when it has ended
}

// Start starts cmd, whose outputs must not be set. name is for messages.
func Start(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: name, cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		// Wait reads how the process ended from cmd.ProcessState.
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Stdout returns what the process has printed to standard output.
func (p *Process) Stdout() string { return p.stdout.String() }

// Output returns what the process has printed: standard output, then standard error.
func (p *Process) Output() string { return p.stdout.String() + p.stderr.String() }

// ID returns the process id.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Kill ends the process, even a frozen one, and waits until it has ended.
func (p *Process) Kill() {
	// An error here means that the process has ended already.
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Signal sends a signal to the process.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("sending %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// Wait waits until the process ends by itself and returns its exit code. If a
// signal ended it, Wait returns -1 and an error that names the signal.
func (p *Process) Wait() (int, error) {
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	select {
	case <-p.exited:
	case <-deadline.C:
		return -1, fmt.Errorf("%s has not ended within %v\n%s", p.name, Timeout, p.stderr.String())
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -1, fmt.Errorf("%s was ended by %v", p.name, status.Signal())
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// Until calls ready until it returns nil. It fails if the process ends before, or
// after Timeout.
func (p *Process) Until(ready func() error) error {
	var last error
	ended := false
	if !Poll(Timeout, func() bool {
		if last = ready(); last == nil {
			return true
		}
		select {
		case <-p.exited:
			ended = true
		default:
		}
		return ended
	}) {
		return fmt.Errorf("%s is not ready within %v: %w\n%s", p.name, Timeout, last, p.Output())
	}
	if ended {
		return fmt.Errorf("%s ended by itself:\n%s", p.name, p.Output())
	}
	return nil
}

// Poll calls ok until it returns true, and returns true then. It returns false if that takes longer
// than most. The pauses grow: one who waits long leaves the CPU to those that he waits for.
func Poll(most time.Duration, ok func() bool) bool {
	for begun := time.Now(); !ok(); {
		passed := time.Since(begun)
		if passed > most {
			return false
		}
		time.Sleep(min(max(passed/8, shortestPause), longestPause))
	}
	return true
}

// UntilOutput waits until the process has printed text.
func (p *Process) UntilOutput(text string) error {
	return p.Until(func() error {
		if !strings.Contains(p.Output(), text) {
			return fmt.Errorf("it has not printed %q", text)
		}
		return nil
	})
}

// ErrMissing is wrapped by the error of a start whose binary is not installed.
var ErrMissing = errors.New("is not installed")

// Missing ends a test because a binary is not installed. hint says how to get it.
func Missing(t TB, binary, hint string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not in PATH, and CI=true forbids skipping; %s", binary, hint)
	}
	t.Skipf("%s is not in PATH; %s", binary, hint)
}

// Output collects what a process prints. It is safe for concurrent use.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
