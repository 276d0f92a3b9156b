package unary

import (
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
)

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
func (l *locked) enter(p phase) { l.phase, l.since = p, time.Since(l.conn.server.start) }

// startDrain sends the first GOAWAY, unless one was sent already.
func (l *locked) startDrain(reason string) {
	if l.phase != serving {
		return
	}
	l.enter(draining)
	l.conn.server.o.Meters.GoAway(reason)
	l.conn.server.o.Log.Debug("a client is told to go", zap.String("reason", reason), zap.Stringer("peer", l.conn.peer.Addr))
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
	l.hungUp = true
	if reason != "" {
		l.conn.server.o.Meters.GoAway(reason)
		l.conn.server.o.Log.Debug("the service closes a connection", zap.String("reason", reason), zap.Stringer("peer", l.conn.peer.Addr))
	}
	_ = l.conn.raw.Close() // the reader returns, and ends the connection
}
