package servers

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/test/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// do sends a command and fails the test on an error.
func do(t *testing.T, s *RedisServer, args ...string) string {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

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
	// The test can only wait for an answer that must not come.
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, conn, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("PING to a paused server: got %q, %v, want a timeout", got, err)
	}

	s.Resume()
	if err := conn.SetReadDeadline(time.Now().Add(process.Timeout)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if line != "+PONG\r\n" {
		t.Errorf("the answer after resuming: got %q, %v, want +PONG", line, err)
	}

	s.Pause() // the cleanup must be able to end a frozen process
}

func TestRedisArguments(t *testing.T) {
	s := StartRedis(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction",
		"--user", "default", "off", "--user", "reader", "on", ">open-sesame", "~r:*", "+get")
	host, port, _ := net.SplitHostPort(s.Addr())
	replica := StartRedis(t, "--replicaof", host, port)

	for range 2 { // the options are those of every start
		conn := dial(t, s.Addr())
		for _, tt := range []struct{ command, want string }{
			{"PING", "-NOAUTH"},
			{"AUTH reader open-sesame", "+OK"},
			{"GET r:1", "$-1"},
			{"GET other", "-NOPERM"},
		} {
			if got, err := ask(t, conn, tt.command); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s: got %q, %v, want %s", tt.command, got, err, tt.want)
			}
		}
		s.Stop()
		s.Start()
	}

	// Whatever the default user may do, Do may do everything.
	if got := do(t, s, "CONFIG", "GET", "maxmemory*"); !strings.Contains(got, "maxmemory\n3145728") || !strings.Contains(got, "noeviction") {
		t.Errorf("maxmemory: got %q, want 3 MB and noeviction", got)
	}
	if got := do(t, s, "GET", "nothing"); got != "" {
		t.Errorf("GET of a key that is not there: got %q, want nothing", got)
	}
	var refused redis.Error
	var err error
	for i := 0; err == nil && i < 10; i++ {
		_, err = s.Do("SET", strconv.Itoa(i), strings.Repeat("x", 1<<20))
	}
	if !errors.As(err, &refused) || !strings.HasPrefix(refused.Error(), "OOM ") {
		t.Errorf("SET above maxmemory: got %v, want OOM", err)
	}
	if _, err := replica.Do("SET", "k", "v"); !errors.As(err, &refused) || !strings.HasPrefix(refused.Error(), "READONLY ") {
		t.Errorf("SET on a replica: got %v, want READONLY", err)
	}
}

// TestRedisTLS connects several clients. Redis answers only a client with a certificate of the
// server's present authority.
func TestRedisTLS(t *testing.T) {
	s := StartRedisTLS(t)
	ca, cert, key := s.TLSFiles()
	load := func() *tls.Config {
		t.Helper()
		pem, err := os.ReadFile(ca)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			t.Fatalf("%s: no certificate", ca)
		}
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: []tls.Certificate{pair}}
	}
	ping := func(c *tls.Config) error {
		t.Helper()
		conn := tls.Client(dial(t, s.Addr()), c)
		// With TLS 1.3 a client learns with its first read that it is refused.
		got, err := ask(t, conn, "PING")
		if err == nil && got != "+PONG" {
			t.Errorf("PING: got %q, want +PONG or an error", got)
		}
		return err
	}

	first := load()
	if err := ping(first); err != nil {
		t.Errorf("with a certificate: got %v, want an answer", err)
	}
	without := first.Clone()
	without.Certificates = nil
	if err := ping(without); err == nil {
		t.Error("without a certificate: got an answer")
	}
	if got, err := ask(t, dial(t, s.Addr()), "PING"); got == "+PONG" {
		t.Errorf("without TLS: got %q, %v, want no answer", got, err)
	}

	s.RenewTLS()
	var unknown x509.UnknownAuthorityError
	if err := ping(first); !errors.As(err, &unknown) {
		t.Errorf("with the authority of before: got %v, want %T", err, unknown)
	}
	second := load()
	stale := second.Clone()
	stale.Certificates = first.Certificates
	if err := ping(stale); err == nil {
		t.Error("with a certificate of before: got an answer")
	}
	if err := ping(second); err != nil {
		t.Errorf("with new certificates: got %v, want an answer", err)
	}
	s.Stop()
	s.Start()
	if err := ping(second); err != nil {
		t.Errorf("after a restart: got %v, want an answer", err)
	}
}
