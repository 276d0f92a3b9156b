package socket_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/slidegate/slidegate/internal/socket"
)

// networks are those whose sockets have cheaper system calls.
var networks = []string{"tcp", "unix"}

// pair returns the two ends of a connection: a is as Direct makes it if direct is set, and b is plain.
func pair(network string, direct bool) (a, b net.Conn, err error) {
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "socket")
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		address = filepath.Join(dir, "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if b, err = net.Dial(network, l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if a, err = l.Accept(); err != nil {
		return nil, nil, err
	}
	if direct {
		a = socket.Direct(a)
	}
	return a, b, nil
}

// TestSuite runs the suite of Go for connections.
func TestSuite(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			nettest.TestConn(t, func() (a, b net.Conn, stop func(), err error) {
				if a, b, err = pair(network, true); err != nil {
					return nil, nil, nil, err
				}
				b = socket.Direct(b)
				return a, b, func() { a.Close(); b.Close() }, nil
			})
		})
	}
}

// ends are ways in which a connection ends. Each returns what the end under test saw.
var ends = map[string]func(t *testing.T, a, b net.Conn) string{
	"read after the peer's end": func(_ *testing.T, a, b net.Conn) string {
		b.Close()
		return read(a)
	},
	"read after a reset": func(_ *testing.T, a, b net.Conn) string {
		_, _ = a.Write([]byte("not read")) // a unix socket resets then
		if tcp, ok := b.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		b.Close()
		return read(a)
	},
	"write after a reset": func(_ *testing.T, a, b net.Conn) string {
		if tcp, ok := b.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		b.Close()
		first := read(a)
		return first + ", then " + write(a, 1)
	},
	"close": func(_ *testing.T, a, _ net.Conn) string { a.Close(); return read(a) + ", then " + write(a, 1) },
	"close while read": func(_ *testing.T, a, _ net.Conn) string {
		time.AfterFunc(20*time.Millisecond, func() { a.Close() })
		return read(a)
	},
	"close while written": func(_ *testing.T, a, _ net.Conn) string {
		time.AfterFunc(100*time.Millisecond, func() { a.Close() })
		return part.ReplaceAllString(write(a, len(large)), "write some")
	},
	"close of one side": func(t *testing.T, a, b net.Conn) string {
		if err := a.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Write([]byte("still")); err != nil {
			t.Fatal(err)
		}
		return read(b) + ", " + read(a) + ", " + write(a, 1)
	},
	"deadline to read": func(_ *testing.T, a, _ net.Conn) string {
		_ = a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		first := read(a)
		_ = a.SetReadDeadline(time.Unix(1, 0))
		return first + ", then " + read(a)
	},
	"deadline put off": func(_ *testing.T, a, _ net.Conn) string {
		_ = a.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		until := time.Now().Add(60 * time.Millisecond)
		_ = a.SetReadDeadline(until)
		first := read(a)
		return fmt.Sprint(first, ", too early: ", time.Now().Before(until), ", then ", read(a))
	},
	"deadline put off while read": func(_ *testing.T, a, b net.Conn) string {
		_ = a.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		time.AfterFunc(0, func() { _ = a.SetReadDeadline(time.Now().Add(time.Hour)) })
		time.AfterFunc(400*time.Millisecond, func() { _, _ = b.Write([]byte("late")) })
		return read(a)
	},
	"deadline removed while read": func(_ *testing.T, a, b net.Conn) string {
		_ = a.SetDeadline(time.Now().Add(300 * time.Millisecond))
		time.AfterFunc(0, func() { _ = a.SetDeadline(time.Time{}) })
		time.AfterFunc(400*time.Millisecond, func() { _, _ = b.Write([]byte("late")) })
		return read(a) + ", " + write(a, 1)
	},
	"deadline advanced while read": func(_ *testing.T, a, _ net.Conn) string {
		_ = a.SetReadDeadline(time.Now().Add(time.Hour))
		time.AfterFunc(20*time.Millisecond, func() { _ = a.SetReadDeadline(time.Now()) })
		return read(a)
	},
	"deadlines of many calls": func(_ *testing.T, a, b net.Conn) string {
		_ = a.SetDeadline(time.Now()) // fires at once
		for range 100 {
			_ = a.SetDeadline(time.Now().Add(time.Minute))
			if _, err := b.Write([]byte("x")); err != nil {
				return err.Error()
			}
			if got := read(a) + write(a, 1); strings.Contains(got, "timeout") {
				return got
			}
		}
		_ = a.SetDeadline(time.Now().Add(20 * time.Millisecond))
		return read(a) + ", " + part.ReplaceAllString(write(a, len(large)), "write some")
	},
	"deadline to write put off": func(_ *testing.T, a, _ net.Conn) string {
		_ = a.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		until := time.Now().Add(100 * time.Millisecond)
		_ = a.SetWriteDeadline(until)
		first := part.ReplaceAllString(write(a, len(large)), "write some")
		return fmt.Sprint(first, ", too early: ", time.Now().Before(until))
	},
	"deadline to write": func(_ *testing.T, a, _ net.Conn) string {
		_ = a.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		return part.ReplaceAllString(write(a, len(large)), "write some")
	},
	"nothing": func(_ *testing.T, a, _ net.Conn) string {
		n, err := a.Read(nil)
		m, err2 := a.Write(nil)
		return fmt.Sprint(n, err, m, err2)
	},
}

func read(c net.Conn) string {
	n, err := c.Read(make([]byte, 100))
	return fmt.Sprintf("read %d: %v, %s", n, err, kind(err))
}

// large is more than fits into a socket.
var large = make([]byte, 32<<20)

func write(c net.Conn, n int) string {
	n, err := c.Write(large[:n])
	return fmt.Sprintf("write %d: %v, %s", n, err, kind(err))
}

// kind returns what callers ask of an error.
func kind(err error) string {
	var (
		of      *net.OpError
		timeout net.Error
	)
	is := fmt.Sprint(errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF))
	if errors.As(err, &of) {
		is += fmt.Sprint(" ", of.Op, of.Net, of.Source != nil, of.Addr != nil)
	}
	if errors.As(err, &timeout) {
		is += fmt.Sprint(" ", timeout.Timeout())
	}
	return is
}

var (
	address = regexp.MustCompile(`127\.0\.0\.1:\d+|/\S+/s`)
	part    = regexp.MustCompile(`^write [1-9]\d*`)
)

// TestEnds compares how connections end with and without Direct.
func TestEnds(t *testing.T) {
	for _, network := range networks {
		for name, end := range ends {
			t.Run(network+"/"+name, func(t *testing.T) {
				t.Parallel()
				var saw [2]string
				for i, direct := range []bool{false, true} {
					a, b, err := pair(network, direct)
					if err != nil {
						t.Fatal(err)
					}
					defer a.Close()
					defer b.Close()
					saw[i] = address.ReplaceAllString(end(t, a, b), "ADDRESS")
				}
				if saw[0] != saw[1] {
					t.Errorf("with Direct: %s\nwithout:     %s", saw[1], saw[0])
				}
			})
		}
	}
}

// TestLarge writes more than fits into the socket, while the peer reads little by little.
func TestLarge(t *testing.T) {
	for _, network := range networks {
		a, b, err := pair(network, true)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer b.Close()
		sent := strings.Repeat("0123456789abcde", 1<<20)
		go func() {
			if n, err := io.WriteString(a, sent); n != len(sent) || err != nil {
				t.Errorf("wrote %d of %d: %v", n, len(sent), err)
			}
			a.Close()
		}()
		var got strings.Builder
		if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{b}, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if got.String() != sent {
			t.Errorf("%s: %d bytes came, or others than were sent", network, got.Len())
		}
	}
}

// TestReadIsBounded reads less at once than the socket has, because the thread does nothing else meanwhile.
func TestReadIsBounded(t *testing.T) {
	a, b, err := pair("unix", true)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	if _, ok := a.(interface{ Silent() bool }); !ok {
		t.Skip("there is no Direct for this system")
	}
	if err := b.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	has, err := b.Write(make([]byte, 1<<20)) // as much as the socket takes
	if n, _ := a.Read(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || has <= 64<<10 || n != 64<<10 {
		t.Errorf("read %d bytes at once of %d, want 65536; %v", n, has, err)
	}
}

// TestOthers returns connections that are no sockets as they are.
func TestOthers(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	secured := tls.Client(a, &tls.Config{ServerName: "x"})
	for _, c := range []net.Conn{a, secured} {
		if socket.Direct(c) != c {
			t.Errorf("Direct has changed a %T", c)
		}
	}
}

// TestSilent looks at a connection as a pool does before it uses it again.
func TestSilent(t *testing.T) {
	for _, network := range networks {
		a, b, err := pair(network, true)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		d, ok := a.(interface{ Silent() bool })
		if !ok {
			t.Skip("there is no Direct for this system")
		}
		check := func(when string, want bool) {
			t.Helper()
			for end := time.Now().Add(5 * time.Second); d.Silent() != want; {
				if time.Now().After(end) {
					t.Fatalf("%s: %s: Silent is %v", network, when, !want)
				}
			}
		}
		check("at first", true)
		if _, err := b.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		check("with a byte", false)
		if got := read(a); !strings.HasPrefix(got, "read 1: <nil>") {
			t.Fatal("a look has taken the byte: " + got)
		}
		check("after the byte", true)
		b.Close()
		check("after its end", false)
	}
}
