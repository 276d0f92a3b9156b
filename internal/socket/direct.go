//go:build linux && (amd64 || arm64) && !plainsockets

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// maxBytes bounds one system call, because the thread cannot run other goroutines, or stop for the
// garbage collector, until the call returns.
const maxBytes = 64 << 10

// A stream is what TCP connections and those of unix sockets have in common.
type stream interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// conn is a stream whose system calls never block: if there is nothing to read, or no room to write,
// the goroutine waits in the runtime's poller. Errors and Close are those of the stream.
type conn struct {
	stream
	raw     syscall.RawConn
	in, out half
}

// A half is one direction of a conn. One Read or Write at a time uses it.
type half struct {
	deadline deadline

	mu    sync.Mutex
	rest  []byte // what is to be filled or sent
	done  int    // bytes
	errno syscall.Errno
	try   func(fd uintptr) (done bool) // made once, because the call through RawConn lets it escape
}

// Direct returns a connection that does what c does, with system calls that cost less. Only TCP and
// unix sockets on Linux have them: other connections are returned as they are. The caller must use c
// no more. A call through the SyscallConn of the new connection may end at an earlier deadline.
func Direct(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return c
	}
	s := c.(stream)
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	d := &conn{stream: s, raw: raw}
	d.in.try, d.out.try = d.in.receive, d.out.send
	d.in.deadline.set, d.out.deadline.set = s.SetReadDeadline, s.SetWriteDeadline
	return d
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.stream.Read(p)
	}
	n, err := c.in.run(c.raw.Read, p)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return n, c.explain("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return c.stream.Write(p)
	}
	n, err := c.out.run(c.raw.Write, p)
	return n, c.explain("write", err)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.in.deadline.change(t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.deadline.change(t) }

// Silent reports whether the connection is open, and has nothing to read.
func (c *conn) Silent() bool {
	silent := false
	err := c.raw.Control(func(fd uintptr) {
		var b [1]byte
		_, errno := receive(fd, b[:], syscall.MSG_PEEK)
		silent = errno == syscall.EAGAIN
	})
	return err == nil && silent
}

// run calls try by means of wait, which is a method of the socket's RawConn.
func (h *half) run(wait func(func(uintptr) bool) error, p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rest, h.done, h.errno = p, 0, 0
	err := wait(h.try)
	for errors.Is(err, os.ErrDeadlineExceeded) && h.deadline.early() {
		err = wait(h.try)
	}
	h.rest = nil
	if err == nil && h.errno != 0 {
		err = h.errno
	}
	return h.done, err
}

// receive reads once. It returns false if there is nothing to read yet.
func (h *half) receive(fd uintptr) (done bool) {
	h.done, h.errno = receive(fd, h.rest[:min(len(h.rest), maxBytes)], 0)
	return h.errno != syscall.EAGAIN
}

// send writes until all is written. It returns false if there is no room yet.
func (h *half) send(fd uintptr) (done bool) {
	for len(h.rest) > 0 {
		var n int
		if n, h.errno = send(fd, h.rest[:min(len(h.rest), maxBytes)]); h.errno != 0 {
			return h.errno != syscall.EAGAIN
		}
		h.done, h.rest = h.done+n, h.rest[n:]
	}
	return true
}

// explain gives an error the form that the stream's own has.
func (c *conn) explain(op string, err error) error {
	if err == nil {
		return nil
	}
	if errno, ok := err.(syscall.Errno); ok { //nolint:errorlint // of half.run, which wraps nothing
		err = os.NewSyscallError(op, errno)
	} else if of, ok := errors.AsType[*net.OpError](err); ok {
		err = of.Err // its Op is that of the RawConn
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
