package unary

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const (
	// readBuffer is how much is read at once: some dozens of calls.
	readBuffer = 8 << 10
	// streamWindow and connWindow are how much a client may send unasked.
	streamWindow = 64<<10 - 1 // the initial value of RFC 9113, so that it need not be said
	connWindow   = 1 << 20
	// maxFrame is the largest frame in either direction: the initial value of RFC 9113,
	// which everybody has to take.
	maxFrame = 16 << 10
	// tableSize bounds the table of header fields that a client has us keep, and the
	// one that we have it keep.
	tableSize = 4 << 10
	// heldBeyond is how much of unfinished messages and of metadata a connection may
	// hold, beyond one of the largest messages.
	heldBeyond = 1 << 20
	// maxSettings bounds the settings of one frame. RFC 9113 knows six.
	maxSettings = 32
)

// drainPing tells by its answer that a client has seen the first GOAWAY.
var drainPing = [8]byte{'d', 'r', 'a', 'i', 'n'}

// A conn is one connection. Its goroutine reads; see the package comment for who
// writes.
type conn struct {
	server *Server
	raw    net.Conn // the socket, to hang up without a word
	peer   *peer.Peer
	ctx    context.Context //nolint:containedctx // of all calls of the connection; it ends with it
	cancel context.CancelFunc

	// Of the goroutine that reads alone.
	framer     *http2.Framer // what it writes goes to output, under mu
	decoder    *hpack.Decoder
	head       head
	recvWindow int // what the client may send still
	owed       int // what it is not yet told that it may send
	budget     budget
	call       Call   // that a Handler answers without waiting
	memory     []byte // of the answers of such calls
	unpacked   int    // bytes of a compressed message, not paid for yet
	traffic    Traffic
	readAt     time.Time // when there was last something to read
	lastPing   time.Duration
	strikes    int

	mu          sync.Mutex
	out         output
	nc          net.Conn // where output goes: raw, or TLS on it
	began       time.Duration
	lastRead    time.Duration
	opened      bool // the client has sent preface and settings
	encoder     *hpack.Encoder
	block       bytes.Buffer // what encoder writes to
	streams     map[uint32]*stream
	free        []*stream
	peak        int    // of streams, since there were none
	held        int    // bytes of messages that are not whole, and of metadata
	running     int    // handlers
	orphans     int    // those of them whose streams are gone
	lastID      uint32 // the highest stream that was opened
	closed      closedStreams
	blocked     []*stream // those that wait for windows, the oldest first
	sendWindow  int64
	peerWindow  int64 // initial one of streams
	peerTable   uint32
	forgiven    bool // something was sent since the last PING
	phase       phase
	since       time.Duration // of phase
	drainWanted string        // why, as soon as the connection is open; empty: it is not
	idleSince   time.Duration
	pinged      time.Duration // when a keepalive PING was sent; zero: none is out
	age         time.Duration // how old it may get
	hungUp      bool
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		server: s, raw: nc, nc: nc, peer: &peer.Peer{Addr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr()},
		recvWindow: 64<<10 - 1,
		streams:    make(map[uint32]*stream),
		sendWindow: 64<<10 - 1, peerWindow: 64<<10 - 1,
		peerTable: tableSize,
		began:     s.now(), lastRead: s.now(), idleSince: s.now(),
		age: s.o.age(),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.head.reset()
	c.out.drained.L = &c.mu
	c.budget.tokens, c.budget.at = burst, s.now()
	c.encoder = hpack.NewEncoder(&c.block)
	c.decoder = hpack.NewDecoder(tableSize, c.emit)
	return c
}

// A connError ends a connection. reason is one of [Reasons].
type connError struct {
	code   http2.ErrCode
	reason string
	text   string // for the log, and for the client if it speaks HTTP/2
}

func (e connError) Error() string { return e.text }

func protocolError(code http2.ErrCode, text string) error {
	return connError{code, reasonProtocol, text}
}

// serve reads until the connection ends.
func (c *conn) serve() {
	defer c.close()
	defer c.buggy()
	err := c.handshake()
	for err == nil {
		err = c.read()
	}
	c.end(err)
}

// buggy is deferred where this package itself may panic. That costs one connection.
func (c *conn) buggy() {
	if v := recover(); v != nil {
		c.server.o.Meters.GoAway(reasonBug)
		c.server.o.Log.Error("a connection panicked; this is a bug, please report it",
			zap.String("panic", fmt.Sprint(v)), zap.ByteString("stack", debug.Stack()))
		_ = c.raw.Close()
	}
}

// handshake goes as far as the client's preface.
func (c *conn) handshake() error {
	if config := c.server.o.TLS; config != nil && c.raw.LocalAddr().Network() != "unix" {
		t := tls.Server(c.raw, config)
		if err := t.HandshakeContext(c.ctx); err != nil {
			return hello("TLS", err)
		}
		state := t.ConnectionState()
		if state.NegotiatedProtocol != http2.NextProtoTLS {
			return protocolError(http2.ErrCodeInadequateSecurity, "the client has not asked for h2 by ALPN")
		}
		c.peer.AuthInfo = credentials.TLSInfo{
			State:          state,
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}
		c.mu.Lock()
		c.nc = t
		c.mu.Unlock()
	}
	in := bufio.NewReaderSize(flushing{c}, readBuffer)
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(in, preface[:]); err != nil {
		return hello("preface", err)
	}
	if string(preface[:]) != http2.ClientPreface {
		return protocolError(http2.ErrCodeProtocol, "what the client has sent is not HTTP/2")
	}
	c.framer = http2.NewFramer(&c.out, in)
	c.framer.SetReuseFrames()
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(c.framer.WriteSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: c.server.o.MaxStreams},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: c.server.o.MaxHeaderBytes},
	))
	c.write(c.framer.WriteWindowUpdate(0, connWindow-uint32(c.recvWindow)))
	c.recvWindow = connWindow
	return nil
}

// hello is what a connection ends with that has not come as far as HTTP/2.
func hello(what string, err error) error {
	if isGone(err) {
		return err
	}
	return connError{http2.ErrCodeProtocol, reasonProtocol, fmt.Sprintf("%s: %v", what, err)}
}

func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.ECONNRESET)
}

// flushing is what the connection is read from. Before anything is waited for, what
// there is to say is said.
type flushing struct{ c *conn }

func (f flushing) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = f.c.flushAndRead(p)
	}
	return n, err
}

func (c *conn) flushAndRead(p []byte) (int, error) {
	c.mu.Lock()
	c.flush()
	c.waitForRoom()
	c.traffic.Written += c.out.taken()
	err := c.out.err
	c.mu.Unlock()
	if c.traffic != (Traffic{}) {
		c.server.o.Meters.Traffic(c.traffic)
		c.traffic = Traffic{}
	}
	if err != nil {
		return 0, err
	}
	n, err := c.nc.Read(p)
	c.traffic.Read += n
	c.readAt = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
		// Nothing came: look has seen that some calls are overdue.
		return 0, c.expire()
	}
	c.lastRead = c.server.now()
	return n, err
}

// read handles one frame.
func (c *conn) read() error {
	fh, err := c.framer.ReadFrameHeader()
	if err != nil {
		return c.frameError(fh, err)
	}
	if !c.opened && (fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck)) {
		return protocolError(http2.ErrCodeProtocol, "the first frame is no SETTINGS")
	}
	frame, err := c.framer.ReadFrameForHeader(fh)
	if err != nil {
		return c.frameError(fh, err)
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		return c.onHeaders(f)
	case *http2.DataFrame:
		return c.onData(f)
	case *http2.SettingsFrame:
		return c.onSettings(f)
	case *http2.WindowUpdateFrame:
		return c.onWindowUpdate(f.StreamID, f.Increment)
	case *http2.RSTStreamFrame:
		return c.onReset(f)
	case *http2.PingFrame:
		return c.onPing(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return c.reset(f.StreamID, http2.ErrCodeProtocol)
		}
	case *http2.PushPromiseFrame:
		return protocolError(http2.ErrCodeProtocol, "a client cannot push")
	case *http2.GoAwayFrame:
		c.server.o.Log.Debug("the client goes away", zap.Stringer("code", f.ErrCode), zap.Stringer("peer", c.peer.Addr))
	}
	return c.budget.spend(c, 1)
}

// frameError handles what the Framer could not read.
func (c *conn) frameError(fh http2.FrameHeader, err error) error {
	var (
		stream http2.StreamError
		conn   http2.ConnectionError
	)
	switch {
	case errors.As(err, &stream) && fh.Type == http2.FrameHeaders:
		// Its header block was not decoded, so none that follows can be.
		return protocolError(stream.Code, "a HEADERS frame is malformed")
	case errors.As(err, &stream):
		return c.reset(stream.StreamID, stream.Code)
	case errors.As(err, &conn):
		return protocolError(http2.ErrCode(conn), "a frame is malformed")
	case errors.Is(err, http2.ErrFrameTooLarge):
		return protocolError(http2.ErrCodeFrameSize, "a frame is too large")
	default:
		return err // the connection is gone
	}
}

func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if err := c.budget.spend(c, 1+f.NumSettings()); err != nil || f.IsAck() {
		return err
	}
	if f.NumSettings() > maxSettings {
		return protocolError(http2.ErrCodeEnhanceYourCalm, "a SETTINGS frame has too many settings")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	window := c.peerWindow
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			code := http2.ErrCodeProtocol
			if s.ID == http2.SettingInitialWindowSize {
				code = http2.ErrCodeFlowControl
			}
			return protocolError(code, "a setting is invalid: "+s.ID.String())
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			// Never larger again: two changes at once, which that can make, Go's own decoder
			// refuses.
			if s.Val < c.peerTable {
				c.peerTable = s.Val
				c.encoder.SetMaxDynamicTableSize(s.Val)
			}
		case http2.SettingInitialWindowSize:
			window = int64(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Once a frame, not once a setting.
	larger := window > c.peerWindow
	if err := c.setPeerWindow(window); err != nil {
		return err
	}
	c.write(c.framer.WriteSettingsAck())
	if larger {
		c.sendBlocked() // behind the ACK, because it follows from the setting
	}
	if !c.opened {
		c.opened = true
		if c.drainWanted != "" {
			c.tell(c.drainWanted)
		}
	}
	return nil
}

const maxWindow = 1<<31 - 1

// setPeerWindow changes the initial window of streams, and with it the window of each
// open stream. It goes through the streams, and after it the caller goes through those
// that wait, only if the window changes; the client pays for both here. mu is held.
func (c *conn) setPeerWindow(window int64) error {
	by := window - c.peerWindow
	if by == 0 {
		return nil
	}
	if err := c.budget.spendLocked(c, (len(c.streams)+len(c.blocked))/streamsAToken); err != nil {
		return err
	}
	c.peerWindow = window
	for _, st := range c.streams {
		if st.sendWindow += by; st.sendWindow > maxWindow {
			return protocolError(http2.ErrCodeFlowControl, "a window is too large")
		}
	}
	return nil
}

func (c *conn) onWindowUpdate(id, by uint32) error {
	if err := c.budget.spend(c, 1); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 {
		if c.sendWindow += int64(by); c.sendWindow > maxWindow {
			return protocolError(http2.ErrCodeFlowControl, "the connection's window is too large")
		}
		before := c.sendWindow
		c.sendBlocked()
		// What went out pays for those that were looked at.
		return c.budget.spendLocked(c, max(0, len(c.blocked)/streamsAToken-int(before-c.sendWindow)/bytesAToken))
	}
	st := c.streams[id]
	if st == nil {
		return c.unopened(id)
	}
	if st.sendWindow += int64(by); st.sendWindow > maxWindow {
		return c.resetLocked(id, http2.ErrCodeFlowControl)
	}
	c.sendWaiting(st)
	return nil
}

// unopened returns an error if a stream was never opened, where that matters. mu is
// held.
func (c *conn) unopened(id uint32) error {
	if (id%2 == 0 || id > c.lastID) && c.phase < leaving {
		return protocolError(http2.ErrCodeProtocol, "a frame is for a stream that was never opened")
	}
	return nil
}

func (c *conn) onReset(f *http2.RSTStreamFrame) error {
	if err := c.budget.spend(c, 1); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[f.StreamID]
	if st == nil {
		return c.unopened(f.StreamID)
	}
	c.server.o.Meters.Reset(false, f.ErrCode)
	c.remove(st, false)
	return nil
}

func (c *conn) onPing(f *http2.PingFrame) error {
	if err := c.budget.spend(c, 1); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.IsAck() {
		if f.Data == drainPing && c.phase == told {
			c.leave()
		}
		return nil // what was read counts, not what it was
	}
	c.write(c.framer.WritePing(true, f.Data))
	// By the clock and not by ticks: those may be further apart than PINGs.
	now := time.Since(c.server.start)
	last := c.lastPing
	c.lastPing = now
	switch {
	case c.forgiven:
		c.forgiven, c.strikes = false, 0
	case last > 0 && now-last < c.server.o.MinPingInterval:
		c.strikes++
	}
	if c.strikes > maxStrikes {
		return connError{http2.ErrCodeEnhanceYourCalm, reasonPings, "too_many_pings"} // what gRPC clients know it by
	}
	return nil
}

// maxStrikes is how many PINGs may come too early, as grpc-go has it.
const maxStrikes = 2

// reset resets a stream, whether there is one or not. It costs the client more than
// a frame: whoever makes a server reset streams may leave it with their calls.
func (c *conn) reset(id uint32, code http2.ErrCode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resetLocked(id, code)
}

func (c *conn) resetLocked(id uint32, code http2.ErrCode) error {
	if err := c.unopened(id); err != nil {
		return err // what never was cannot be reset
	}
	if err := c.budget.spendLocked(c, resetCost); err != nil {
		return err
	}
	c.server.o.Meters.Reset(true, code)
	c.write(c.framer.WriteRSTStream(id, code))
	if st := c.streams[id]; st != nil {
		c.remove(st, true)
	} else if id <= c.lastID {
		c.closed.reset(id)
	}
	return nil
}
