package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/middleware"
)

// A taker is the ResponseWriter of a request in flight whose handler may take the connection over. The
// connection then is in flight until it is closed.
type taker struct {
	http.ResponseWriter
	hijack http.Hijacker
	d      *limiter.Decision
	taken  bool
}

var (
	_ http.Flusher    = (*taker)(nil)
	_ http.Hijacker   = (*taker)(nil)
	_ io.ReaderFrom   = (*taker)(nil)
	_ io.StringWriter = (*taker)(nil)
)

// Hijack implements [http.Hijacker].
func (t *taker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := t.hijack.Hijack()
	if err != nil {
		return conn, buffered, err
	}
	t.taken = true
	return &takenConn{conn, *t.d}, buffered, nil
}

// Flush implements [http.Flusher].
func (t *taker) Flush() { _ = http.NewResponseController(t.ResponseWriter).Flush() }

// ReadFrom implements [io.ReaderFrom], so that net/http sends files as without a taker.
func (t *taker) ReadFrom(r io.Reader) (int64, error) { return io.Copy(t.ResponseWriter, r) }

// WriteString implements [io.StringWriter].
func (t *taker) WriteString(s string) (int, error) { return io.WriteString(t.ResponseWriter, s) }

// Unwrap is for [http.ResponseController].
func (t *taker) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// A takenConn is a connection that a handler has taken over.
type takenConn struct {
	net.Conn
	d limiter.Decision
}

// Close implements [net.Conn], and ends the request in flight.
func (c *takenConn) Close() error {
	defer middleware.Done(context.Background(), &c.d)
	return c.Conn.Close()
}

// NetConn returns the connection itself, as that of [crypto/tls.Conn] does. A program that closes it
// without Close of c is in flight until the hold of the rule expires.
func (c *takenConn) NetConn() net.Conn { return c.Conn }
