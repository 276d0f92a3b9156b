package servers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	redisBinary = "redis-server"

	// startTimeout is generous: it only decides how long a broken start takes to
	// fail, never how long a good one takes.
	startTimeout = 30 * time.Second
	pollInterval = 2 * time.Millisecond

	// startAttempts bounds how often another port is tried. Redis cannot be asked
	// which port it chose, so a free one is picked first, and somebody else may
	// take it in between.
	startAttempts = 5
)

// Redis starts a redis-server for the time of the test and returns its address
// as host:port. It keeps nothing on disk.
func Redis(t testing.TB) string {
	t.Helper()
	return StartRedis(t).Addr()
}

// A RedisServer is a redis-server process that a test can stop, start again on
// the same port, and freeze. Its methods fail the test on an error and may be
// called in any state; they must be called from the test's goroutine.
type RedisServer struct {
	t    testing.TB
	path string
	dir  string
	port int

	cmd    *exec.Cmd     // nil while stopped
	exited chan struct{} // closed when cmd has ended
}

// StartRedis starts a redis-server that is killed when the test ends.
func StartRedis(t testing.TB) *RedisServer {
	t.Helper()
	path, err := exec.LookPath(redisBinary)
	if err != nil {
		missing(t, redisBinary, "install Redis 6.2 or later, for instance: apt-get install redis-server")
	}
	s := &RedisServer{t: t, path: path, dir: t.TempDir()}
	t.Cleanup(s.Stop)

	for range startAttempts {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.start(); err == nil {
			return s
		}
	}
	t.Fatalf("servers: starting %s: %v", redisBinary, err)
	return nil
}

// Addr returns host:port, which stays the same across Stop and Start.
func (s *RedisServer) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// Start starts a stopped server again, empty, on the same port.
func (s *RedisServer) Start() {
	s.t.Helper()
	if s.cmd != nil {
		return
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("servers: starting %s again on %s: %v", redisBinary, s.Addr(), err)
	}
}

// Stop kills the server, frozen or not, and waits until it is gone. Its
// connections are reset and its data is lost.
func (s *RedisServer) Stop() {
	if s.cmd == nil {
		return
	}
	// An error here means that the process has ended already.
	_ = s.cmd.Process.Kill()
	<-s.exited
	s.cmd = nil
}

// Pause freezes the server: the kernel still accepts connections and bytes, and
// nobody answers.
func (s *RedisServer) Pause() { s.t.Helper(); s.signal(syscall.SIGSTOP) }

// Resume lets a frozen server go on, with everything that was sent meanwhile.
func (s *RedisServer) Resume() { s.t.Helper(); s.signal(syscall.SIGCONT) }

func (s *RedisServer) signal(sig os.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatalf("servers: sending %v to a stopped %s", sig, redisBinary)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("servers: sending %v to %s: %v", sig, redisBinary, err)
	}
}

// start runs one process and waits until it answers, or has failed.
func (s *RedisServer) start() error {
	out := &output{}
	cmd := exec.Command(s.path,
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(s.port),
		"--save", "",
		"--appendonly", "no",
		"--dir", s.dir,
		"--daemonize", "no",
	)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		// How it ended shows in its output; here only that it did matters.
		_ = cmd.Wait()
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited

	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		last := s.ready()
		if last == nil {
			return nil
		}
		select {
		case <-exited:
			s.cmd = nil
			return fmt.Errorf("it ended by itself:\n%s", out)
		case <-deadline.C:
			s.Stop()
			return fmt.Errorf("no answer within %v: %w\n%s", startTimeout, last, out)
		case <-poll.C:
		}
	}
}

// ready returns nil once our process answers. Asking for the process id matters:
// if somebody else took the port, theirs answers while ours is about to fail.
func (s *RedisServer) ready() error {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)

	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	if line, err := r.ReadString('\n'); err != nil {
		return err
	} else if line != "+PONG\r\n" {
		return fmt.Errorf("answer to PING: got %q, want %q", line, "+PONG\r\n")
	}

	if _, err := io.WriteString(conn, "INFO server\r\n"); err != nil {
		return err
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if id, ok := strings.CutPrefix(line, "process_id:"); ok {
			if id = strings.TrimSpace(id); id != strconv.Itoa(s.cmd.Process.Pid) {
				return errors.New("another process answers on this port")
			}
			return nil
		}
	}
}

// freePort returns a port of the loopback interface that nobody listened on a
// moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// missing ends a test whose server is not installed.
func missing(t testing.TB, binary, hint string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("servers: %s is not in PATH, and CI=true forbids skipping; %s", binary, hint)
	}
	t.Skipf("servers: %s is not in PATH; %s", binary, hint)
}

// output collects what a process prints, for the message of a failed start.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
