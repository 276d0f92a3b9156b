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

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/test/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// silence is how long a test waits for an answer that must not come.
const silence = 30 * time.Millisecond

// TestProxy makes every fault, and takes it away: a test with a fault that does nothing would
// prove nothing.
func TestProxy(t *testing.T) {
	s := StartRedis(t)
	p := StartProxy(t, s.Addr())
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// ask sends a command and returns what comes back, up to the end of the line.
	ask := func(conn net.Conn, wait time.Duration, command string) (string, error) {
		if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
			return "", err
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		return strings.TrimSpace(line), err
	}
	answers := func(conn net.Conn, command, want string) {
		t.Helper()
		if got, err := ask(conn, process.Timeout, command); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", command, got, err, want)
		}
	}
	silent := func(conn net.Conn, command string) {
		t.Helper()
		if got, err := ask(conn, silence, command); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %q, %v, want a timeout", command, got, err)
		}
	}
	closed := func(conn net.Conn, command, begins string) {
		t.Helper()
		if got, err := ask(conn, process.Timeout, command); got != begins || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %q, %v, want %q and the end", command, got, err, begins)
		}
	}
	counts := func(want string) {
		t.Helper()
		err := eventually(t, func() error {
			if got, err := s.Do("GET", "n"); got != want || err != nil {
				return errors.Join(err, errors.New("n is "+got))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	conn := dial()
	answers(conn, "INCR n", ":1")
	const far = 50 * time.Millisecond
	for _, slow := range []func(time.Duration){p.Latency, p.Distance} {
		slow(far)
		begin := time.Now()
		answers(conn, "PING", "+PONG")
		if took := time.Since(begin); took < far {
			t.Errorf("a reply took %v, want %v or more", took, far)
		}
		slow(0)
	}
	if there, back := p.Passed(); there != int64(len("INCR n\r\nPING\r\nPING\r\n")) || back != int64(len(":1\r\n+PONG\r\n+PONG\r\n")) {
		t.Errorf("%d and %d bytes have passed", there, back)
	}

	p.Blackhole(true)
	silent(conn, "INCR n")
	counts("1")
	p.Blackhole(false)
	counts("2") // it arrives nevertheless
	other := dial()
	answers(other, "PING", "+PONG")
	p.CloseAll()
	closed(other, "PING", "")

	lost, idle := dial(), dial()
	answers(idle, "PING", "+PONG")
	p.DropReplies(true)
	silent(lost, "INCR n")
	counts("3")
	p.DropReplies(false)
	closed(lost, "PING", "")
	answers(idle, "PING", "+PONG")

	p.CutAfter(3)
	closed(idle, "PING", "+PO")
	closed(dial(), "PING", "+PO")
	p.CutAfter(-1)
	p.Refuse(true)
	closed(dial(), "PING", "")
	p.Refuse(false)
	answers(dial(), "PING", "+PONG")
}
