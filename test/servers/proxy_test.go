package servers

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

// silence is how long a test waits for an answer that must not come.
const silence = 30 * time.Millisecond

// through sends a command on a connection and returns the line that comes back. If the line is
// not complete, through returns its beginning and an error.
func through(t *testing.T, conn net.Conn, wait time.Duration, command string) (string, error) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// until waits for something at the server.
func until(t *testing.T, s *RedisServer, want string, command ...string) {
	t.Helper()
	err := eventually(t, func() error {
		if got := do(t, s, command...); got != want {
			return errors.New("it is " + got)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s, waiting for %s: %v", strings.Join(command, " "), want, err)
	}
}

func wantReply(t *testing.T, conn net.Conn, command, want string) {
	t.Helper()
	if got, err := through(t, conn, process.Timeout, command); got != want || err != nil {
		t.Errorf("%s: got %q, %v, want %q", command, got, err, want)
	}
}

func TestProxyLatency(t *testing.T) {
	s := StartRedis(t)
	p := StartProxy(t, s.Addr())
	conn := dial(t, p.Addr())
	wantReply(t, conn, "INCR k", ":1")

	const latency = 50 * time.Millisecond
	p.Latency(latency)
	start := time.Now()
	wantReply(t, conn, "INCR k", ":2")
	if got := time.Since(start); got < latency {
		t.Errorf("a reply took %v, want %v or more", got, latency)
	}
	// A request is not late, only its reply is.
	p.Latency(time.Hour)
	if _, err := io.WriteString(conn, "INCR k\r\n"); err != nil {
		t.Fatal(err)
	}
	until(t, s, "3", "GET", "k")
	p.Latency(0)
	wantReply(t, dial(t, p.Addr()), "INCR k", ":4")
}

// TestProxyDistance: a request arrives half a round trip after it was sent, and the reply as much
// later. The proxy counts the bytes of both ways.
func TestProxyDistance(t *testing.T) {
	const far = 200 * time.Millisecond
	s := StartRedis(t)
	p := StartProxy(t, s.Addr())
	conn := dial(t, p.Addr())
	wantReply(t, conn, "SET near 1", "+OK")
	there, back := p.Passed()
	if there != int64(len("SET near 1\r\n")) || back != int64(len("+OK\r\n")) {
		t.Errorf("%d and %d bytes have passed", there, back)
	}
	p.Distance(far)
	begin := time.Now()
	reply, err := through(t, conn, process.Timeout, `EVAL "local t = redis.call('TIME') return t[1] * 1000000 + t[2]" 0`)
	took := time.Since(begin)
	micros, bad := strconv.ParseInt(strings.TrimPrefix(reply, ":"), 10, 64)
	if err != nil || bad != nil {
		t.Fatalf("got %q, %v, %v", reply, err, bad)
	}
	if arrived := time.UnixMicro(micros).Sub(begin); arrived < far/2 || took < arrived+far/2 {
		t.Errorf("the request arrived after %v and the reply after %v, want each way to take %v", arrived, took, far/2)
	}
}

func TestProxyBlackhole(t *testing.T) {
	s := StartRedis(t)
	p := StartProxy(t, s.Addr())
	conn := dial(t, p.Addr())
	wantReply(t, conn, "INCR k", ":1")

	p.Blackhole(true)
	p.Blackhole(true)
	fresh := dial(t, p.Addr())
	for _, c := range []net.Conn{conn, fresh} {
		if got, err := through(t, c, silence, "INCR k"); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("INCR into the black hole: got %q, %v, want a timeout", got, err)
		}
	}
	if got := do(t, s, "GET", "k"); got != "1" {
		t.Errorf("k in the meantime: got %s, want 1", got)
	}
	if got := p.Connections(); got != 2 {
		t.Errorf("connections: got %d, want 2", got)
	}

	// One has given up; its command arrives nevertheless.
	fresh.Close()
	p.Blackhole(false)
	p.Blackhole(false)
	until(t, s, "3", "GET", "k")
	if err := conn.SetDeadline(time.Now().Add(process.Timeout)); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(conn).ReadString('\n'); got != ":2\r\n" && got != ":3\r\n" {
		t.Errorf("the reply that was held up: got %q, %v, want 2 or 3", got, err)
	}
	wantReply(t, conn, "INCR k", ":4")
}

func TestProxyDropReplies(t *testing.T) {
	s := StartRedis(t)
	p := StartProxy(t, s.Addr())
	conn, idle := dial(t, p.Addr()), dial(t, p.Addr())
	wantReply(t, conn, "INCR k", ":1")
	wantReply(t, idle, "PING", "+PONG")

	p.DropReplies(true)
	if got, err := through(t, conn, silence, "INCR k"); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("INCR without a reply: got %q, %v, want a timeout", got, err)
	}
	until(t, s, "2", "GET", "k") // it has been executed
	// Once the reply has come to the proxy it is lost for good; one that comes
	// later is not. The server tells when it has sent it, the proxy when it has it.
	err := eventually(t, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for l := range p.links {
			if l.lost {
				return nil
			}
		}
		return errors.New("no reply is lost")
	})
	if err != nil {
		t.Fatal(err)
	}

	p.DropReplies(false)
	if got, err := through(t, conn, process.Timeout, "INCR k"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection that lost a reply: got %q, %v, want that it is closed", got, err)
	}
	wantReply(t, idle, "PING", "+PONG")
}

func TestProxyCutAfter(t *testing.T) {
	s := StartRedis(t)
	p := StartProxy(t, s.Addr())
	do(t, s, "SET", "k", "a value of some length")
	conn := dial(t, p.Addr())
	wantReply(t, conn, "PING", "+PONG")

	p.CutAfter(5)
	if err := conn.SetDeadline(time.Now().Add(process.Timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET k\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "$22\r\n" || err != nil {
		t.Errorf("GET: got %q, %v, want the first five bytes and the end", got, err)
	}
	for range 2 { // new connections meet it too, each from its beginning
		if got, err := through(t, dial(t, p.Addr()), process.Timeout, "PING"); got != "+PONG" || !errors.Is(err, io.EOF) {
			t.Errorf("PING: got %q, %v, want +PONG without its line end", got, err)
		}
	}
	p.CutAfter(0)
	if got, err := through(t, dial(t, p.Addr()), process.Timeout, "INCR n"); got != "" || !errors.Is(err, io.EOF) {
		t.Errorf("INCR: got %q, %v, want the end", got, err)
	}
	if got := do(t, s, "GET", "n"); got != "1" {
		t.Errorf("n: got %s, want 1: it was executed", got)
	}
	p.CutAfter(-1)
	wantReply(t, dial(t, p.Addr()), "GET k", "$22")
}

func TestProxyConnections(t *testing.T) {
	s := StartRedis(t)
	p := StartProxy(t, s.Addr())
	conn := dial(t, p.Addr())
	wantReply(t, conn, "PING", "+PONG")

	p.Refuse(true)
	if got, err := through(t, dial(t, p.Addr()), process.Timeout, "PING"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection: got %q, %v, want that it is closed", got, err)
	}
	wantReply(t, conn, "PING", "+PONG")
	p.Refuse(false)
	other := dial(t, p.Addr())
	wantReply(t, other, "PING", "+PONG")
	if got := p.Connections(); got != 2 {
		t.Errorf("connections: got %d, want 2", got)
	}

	p.CloseAll()
	for _, c := range []net.Conn{conn, other} {
		if got, err := through(t, c, process.Timeout, "PING"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after CloseAll: got %q, %v, want that it is closed", got, err)
		}
	}
	gone := func() {
		t.Helper()
		err := eventually(t, func() error {
			if got := p.Connections(); got != 0 {
				return errors.New("there are connections")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	gone()

	// A server that goes away takes its connections with it, and one that is not
	// there closes new ones.
	conn = dial(t, p.Addr())
	wantReply(t, conn, "PING", "+PONG")
	s.Stop()
	for _, c := range []net.Conn{conn, dial(t, p.Addr())} {
		if got, err := through(t, c, process.Timeout, "PING"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("without a server: got %q, %v, want that it is closed", got, err)
		}
	}
	gone()
	s.Start()
	wantReply(t, dial(t, p.Addr()), "PING", "+PONG")
	p.Blackhole(true) // the cleanup must be able to end what waits
	if got, err := through(t, dial(t, p.Addr()), silence, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("PING into the black hole: got %q, %v, want a timeout", got, err)
	}
}
