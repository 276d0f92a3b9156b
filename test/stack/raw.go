package stack

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

// DialRaw opens a TCP connection that is closed when the test ends, or after process.Patience.
func DialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(process.Patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Send writes bytes to a server as they are. It returns the answer, and the bytes of the
// answer.
func Send(t *testing.T, addr, request string) (Answer, string) {
	t.Helper()
	conn := DialRaw(t, addr)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), nil)
	if err != nil {
		t.Fatalf("%q: %v after %q", request, err, raw.String())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}, raw.String()
}

// Get11 is the text of a request with the given lines as its header.
func Get11(path string, lines ...string) string {
	lines = append([]string{"GET " + path + " HTTP/1.1", "Host: api.example", "Connection: close"}, lines...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}
