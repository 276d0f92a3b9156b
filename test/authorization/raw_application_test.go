package authorization

import (
	"bufio"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"sync"
	"testing"
)

// A rawApplication is an HTTP/1.1 server that records the path of each request byte
// for byte. net/http refuses some of them before a handler runs.
type rawApplication struct {
	addr string

	mu    sync.Mutex
	paths []string
}

// newRawApplication serves until the test ends.
func newRawApplication(t *testing.T) *rawApplication {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &rawApplication{addr: listener.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { a.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		wg.Wait()
	})
	return a
}

// serve answers one request, which has no body, and closes the connection.
func (a *rawApplication) serve(conn net.Conn) {
	defer conn.Close()
	r := textproto.NewReader(bufio.NewReader(conn))
	line, err := r.ReadLine()
	if err != nil {
		return
	}
	if _, err := r.ReadMIMEHeader(); err != nil {
		return
	}
	_, rest, _ := strings.Cut(line, " ")
	a.mu.Lock()
	a.paths = append(a.paths, rest[:max(0, strings.LastIndex(rest, " "))])
	a.mu.Unlock()
	fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

// received returns the paths, with their queries, oldest first.
func (a *rawApplication) received() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.paths...)
}
