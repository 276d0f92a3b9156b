package unary

import (
	"errors"
	"io"
	"net"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
)

const (
	// tellTimeout is how long a client may take to hear that it is to go, and linger
	// how long one may take to close its side after the last answer.
	tellTimeout = 5 * time.Second
	linger      = time.Second
)

// A phase is how far the end of a connection has come.
type phase int

const (
	serving phase = iota
	told          // that the client is to go; what it has sent meanwhile is served
	leaving       // what it begins now is not served
	failed        // nothing is served any more
)

// drain tells the client to go. Calls that it has begun, or begins until it has
// heard, are answered.
func (c *conn) drain(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.opened {
		c.drainWanted, c.since = reason, time.Since(c.server.start)
		return
	}
	c.tell(reason)
	c.flush()
}

// tell is drain for an open connection. mu is held.
func (c *conn) tell(reason string) {
	if c.phase != serving {
		return
	}
	c.enter(told)
	c.server.o.Meters.GoAway(reason)
	c.server.o.Log.Debug("a client is told to go", zap.String("reason", reason), zap.Stringer("peer", c.peer.Addr))
	// First the highest number that there is: which calls are under way nobody knows.
	c.write(c.framer.WriteGoAway(maxWindow, http2.ErrCodeNo, []byte(reason)))
	c.write(c.framer.WritePing(false, drainPing))
}

// leave says which calls were the last that are served. mu is held.
func (c *conn) leave() {
	c.enter(leaving)
	c.write(c.framer.WriteGoAway(c.lastID, http2.ErrCodeNo, nil))
}

// enter begins a phase. mu is held. What ends it soon after is timed by the clock:
// the last tick may be as long ago.
func (c *conn) enter(p phase) { c.phase, c.since = p, time.Since(c.server.start) }

// end ends the connection with err: what a client has done wrong it is told.
func (c *conn) end(err error) {
	var e connError
	if !errors.As(err, &e) {
		c.server.o.Log.Debug("a connection is gone", zap.Error(err), zap.Stringer("peer", c.peer.Addr))
		return
	}
	c.server.o.Meters.GoAway(e.reason)
	c.server.o.Log.Debug("the service ends a connection", zap.String("reason", e.reason), zap.String("detail", e.text), zap.Stringer("peer", c.peer.Addr))
	if c.framer == nil {
		return // the client does not speak HTTP/2 yet
	}
	c.mu.Lock()
	c.enter(failed)
	c.write(c.framer.WriteGoAway(c.lastID, e.code, []byte(e.text)))
	for id := range c.streams {
		delete(c.streams, id) // so that nothing follows
	}
	c.flush()
	c.mu.Unlock()
	c.cancel()
	// To close now, with something unread, would take what was written from the
	// client. How long this goes on look sees to.
	_, _ = io.CopyN(io.Discard, c.nc, connWindow)
}

// close lets go of everything. Handlers that still run see their context end.
func (c *conn) close() {
	c.cancel()
	_ = c.raw.Close() // twice is harmless
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hungUp = true
	clear(c.streams)
	c.blocked = nil
	c.out.fail(net.ErrClosed)
	c.traffic.Written += c.out.taken()
	c.server.o.Meters.Traffic(c.traffic)
}

// look sees to the times of a connection, now and then.
func (c *conn) look(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := &c.server.o
	idle := len(c.streams) == 0 && c.running == 0
	switch {
	case c.hungUp:
	case c.out.writing && now-c.out.since > o.WriteTimeout:
		c.hangUp(reasonSlow)
	case c.phase == failed && now-c.since > linger, c.out.ended && now-c.out.since > linger:
		c.hangUp("") // it was told why
	case !c.opened && now-c.began > o.OpenTimeout:
		c.hangUp(reasonTimeout)
	case !c.opened && c.drainWanted != "" && now-c.since > linger:
		c.hangUp(c.drainWanted) // nobody has called
	case !c.opened:
	case c.phase == told && now-c.since > tellTimeout:
		c.leave()
		go c.flushAlone()
	case c.phase == serving && o.MaxConnectionAge > 0 && now-c.began > c.age:
		go c.drain(reasonAge)
	case c.phase == serving && o.MaxConnectionIdle > 0 && idle && now-c.idleSince > o.MaxConnectionIdle:
		go c.drain(reasonIdle)
	case c.pinged > c.lastRead:
		if now-c.pinged > o.KeepaliveTimeout {
			c.hangUp(reasonSilent)
		}
	case now-c.lastRead > o.KeepaliveTime:
		c.pinged = now
		c.write(c.framer.WritePing(false, [8]byte{}))
		go c.flushAlone()
	}
	if c.opened && !c.hungUp && c.phase != failed && c.overdue(now) {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // long ago: the reader wakes up
	}
}

// hangUp closes the connection without a word. mu is held.
func (c *conn) hangUp(reason string) {
	c.hungUp = true
	if reason != "" {
		c.server.o.Meters.GoAway(reason)
		c.server.o.Log.Debug("the service closes a connection", zap.String("reason", reason), zap.Stringer("peer", c.peer.Addr))
	}
	_ = c.raw.Close() // the reader returns, and says goodbye to everybody
}

func (c *conn) flushAlone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flush()
}
