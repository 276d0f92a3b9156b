package unary

import (
	"context"
	"net"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/peer"

	"github.com/slidegate/slidegate/internal/socket"
)

// A conn is one connection. Its fields do not change, or are safe for concurrent use.
// What only the reading goroutine uses is in [reader]; what needs the lock is in
// [locked].
type conn struct {
	server *Server
	raw    net.Conn // the socket, to close without TLS
	peer   *peer.Peer
	ctx    context.Context //nolint:containedctx // the parent of all contexts of calls; it ends with the connection
	cancel context.CancelFunc
	// waiting is the part of Server.waiting that is of this connection.
	waiting atomic.Int64
	earned  atomic.Int64 // tokens for answered calls that the reader has not taken yet
	shared  shared
}

// newConn returns a connection over nc, and its reader.
func newConn(s *Server, nc net.Conn) *reader {
	nc = socket.Direct(nc)
	c := &conn{server: s, raw: nc, peer: &peer.Peer{Addr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr()}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.shared.locked.init(c)
	r := &reader{conn: c, in: nc, recvWindow: firstWindow, peerTable: tableSize, tokens: mostTokens, filled: s.now()}
	r.head.reset()
	r.decoder = hpack.NewDecoder(tableSize, r.emit)
	return r
}

// A connError ends a connection. reason is one of [Reasons].
type connError struct {
	code   http2.ErrCode
	reason string
	text   string // for the log, and for the client if it has sent the preface
}

func (e connError) Error() string { return e.text }

func protocolError(code http2.ErrCode, text string) error {
	return connError{code, reasonProtocol, text}
}

// recovered is deferred on each goroutine of the connection. A panic ends the
// connection. Its value is not logged, because it may hold an API key.
func (c *conn) recovered() {
	if recover() != nil {
		c.server.o.Meters.GoAway(reasonBug)
		c.server.o.Log.Error("a connection panicked; this is a bug, please report it", zap.ByteString("stack", debug.Stack()))
		_ = c.raw.Close()
	}
}

// flush writes what is to be sent.
func (c *conn) flush() {
	l := c.shared.lock()
	defer l.unlock()
	l.flush()
}

// drain asks the client to leave. Calls that the client begins before it has read that
// are answered.
func (c *conn) drain(reason string) {
	l := c.shared.lock()
	defer l.unlock()
	if !l.life.opened {
		l.life.drainWanted, l.life.since = reason, time.Since(c.server.start)
		return
	}
	l.startDrain(reason)
	l.flush()
}

// check acts on the timeouts of the connection. The server calls it at each tick.
func (c *conn) check(now time.Duration) {
	l := c.shared.lock()
	defer l.unlock()
	o := &c.server.o.Lifetime
	switch {
	case l.life.hungUp:
	case l.out.writing && now-l.out.since > o.WriteTimeout:
		l.hangUp(reasonSlow)
	case l.life.phase == failed && now-l.life.since > linger, l.out.ended && now-l.out.since > linger:
		l.hangUp("") // a GOAWAY has said why
	case !l.life.opened && now-l.life.began > o.OpenTimeout:
		l.hangUp(reasonTimeout)
	case !l.life.opened && l.life.drainWanted != "" && now-l.life.since > linger:
		l.hangUp(l.life.drainWanted) // the client has not called
	case !l.life.opened:
	case l.life.phase == draining && now-l.life.since > drainTimeout:
		l.endDrain()
		go c.flush()
	case l.life.phase == serving && o.MaxConnectionAge > 0 && now-l.life.began > l.life.maxAge:
		go c.drain(reasonAge)
	case l.life.pinged > l.life.lastRead:
		if now-l.life.pinged > o.KeepaliveTimeout {
			l.hangUp(reasonSilent)
		}
	case now-l.life.lastRead > o.KeepaliveTime:
		l.life.pinged = now
		l.write(l.framer.WritePing(false, [8]byte{}))
		go c.flush()
	}
	if l.life.opened && !l.life.hungUp && l.life.phase != failed && l.overdue(now) {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // in the past, so the reader wakes up
	}
}

const (
	// drainTimeout is how long a client may take to acknowledge the first GOAWAY.
	drainTimeout = 5 * time.Second
	// linger is how long a client may take to close its side after the last answer.
	linger = time.Second
)

// drainPing is the payload of the PING behind the first GOAWAY. Once the client
// acknowledges it, the client has read the GOAWAY.
var drainPing = [8]byte{'d', 'r', 'a', 'i', 'n'}

// A phase is how far the end of a connection has come.
type phase int

const (
	serving  phase = iota
	draining       // the first GOAWAY is sent; calls are still served
	leaving        // the second GOAWAY is sent; later calls are not served
	failed         // the client has broken a rule; nothing is served
)

// enter begins a phase. It reads the clock, because the last tick may be longer ago
// than the phase may take.
func (l *locked) enter(p phase) { l.life.phase, l.life.since = p, time.Since(l.conn.server.start) }

// startDrain sends the first GOAWAY, unless one was sent already.
func (l *locked) startDrain(reason string) {
	if l.life.phase != serving {
		return
	}
	l.enter(draining)
	l.conn.server.o.Meters.GoAway(reason)
	l.conn.server.o.Log.Debug("the server asks a client to close the connection", zap.String("reason", reason), zap.Stringer("peer", l.conn.peer.Addr))
	// The highest stream number: which calls the client has already begun is unknown.
	l.write(l.framer.WriteGoAway(maxWindow, http2.ErrCodeNo, []byte(reason)))
	l.write(l.framer.WritePing(false, drainPing))
}

// endDrain sends the second GOAWAY, which names the last call that is served.
func (l *locked) endDrain() {
	l.enter(leaving)
	l.write(l.framer.WriteGoAway(l.lastID, http2.ErrCodeNo, nil))
}

// hangUp closes the connection without a GOAWAY. An empty reason is neither counted nor
// logged.
func (l *locked) hangUp(reason string) {
	l.life.hungUp = true
	if reason != "" {
		l.conn.server.o.Meters.GoAway(reason)
		l.conn.server.o.Log.Debug("the service closes a connection", zap.String("reason", reason), zap.Stringer("peer", l.conn.peer.Addr))
	}
	_ = l.conn.raw.Close() // the reader returns, and ends the connection
}
