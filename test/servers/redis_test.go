package servers

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// ask sends one inline command and returns the first line of the answer.
func ask(t *testing.T, conn net.Conn, command string) (string, error) {
	t.Helper()
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("dialing %s: %v", addr, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestRedisStopAndStart(t *testing.T) {
	s := StartRedis(t)
	addr := s.Addr()
	if got, err := ask(t, dial(t, addr), "SET k v"); got != "+OK" {
		t.Fatalf("SET: got %q, %v, want +OK", got, err)
	}

	s.Stop()
	s.Stop() // a second time is harmless
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Fatal("dialing a stopped server: got no error")
	}

	s.Start()
	s.Start()
	if got := s.Addr(); got != addr {
		t.Errorf("address after starting again: got %s, want %s", got, addr)
	}
	if got, err := ask(t, dial(t, addr), "EXISTS k"); got != ":0" {
		t.Errorf("EXISTS after starting again: got %q, %v, want :0", got, err)
	}
}

func TestRedisPauseAndResume(t *testing.T) {
	s := StartRedis(t)
	conn := dial(t, s.Addr())

	s.Pause()
	// The only way to see that nobody answers is to wait for an answer.
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, conn, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("PING to a paused server: got %q, %v, want a timeout", got, err)
	}

	s.Resume()
	if err := conn.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if line != "+PONG\r\n" {
		t.Errorf("the answer after resuming: got %q, %v, want +PONG", line, err)
	}

	s.Pause() // the cleanup must be able to end a frozen process
}

// recorder is a testing.TB that notes how a test was ended instead of ending it.
type recorder struct {
	testing.TB
	skipped, failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.skipped = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

func TestMissingServer(t *testing.T) {
	for _, tt := range []struct {
		ci         string
		wantFailed bool
	}{
		{ci: "", wantFailed: false},
		{ci: "false", wantFailed: false},
		{ci: "true", wantFailed: true},
	} {
		t.Setenv("CI", tt.ci)
		r := &recorder{}
		missing(r, "some-server", "install it")
		if r.failed != tt.wantFailed {
			t.Errorf("CI=%q: got failed %t, want %t", tt.ci, r.failed, tt.wantFailed)
		}
		if !tt.wantFailed && !r.skipped {
			t.Errorf("CI=%q: got no skip", tt.ci)
		}
	}
}
