package unary

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

const (
	// readBuffer is how much is read at once: some dozens of calls.
	readBuffer = 8 << 10
	// firstWindow is the initial window of RFC 9113, which needs no setting.
	firstWindow = 64<<10 - 1
	// streamWindow and connWindow are how much a client may send before it is given more.
	streamWindow = firstWindow
	connWindow   = 1 << 20
	// maxFrame is the largest frame in either direction: the initial value of RFC 9113,
	// which every client must accept.
	maxFrame = 16 << 10
	// tableSize bounds the header tables of either side.
	tableSize = 4 << 10
	// bufferedBeyond is how many bytes of unfinished messages and of metadata a connection
	// may hold, beyond one of the largest messages.
	bufferedBeyond = 1 << 20
	// maxSettings bounds the settings of one frame. RFC 9113 knows six.
	maxSettings = 32
	maxWindow   = 1<<31 - 1
	// maxStrikes is how many PINGs may come too early, as in grpc-go.
	maxStrikes = 2
)

// A reader reads a connection and handles its frames. Only the reading goroutine uses
// it.
type reader struct {
	*conn
	in         net.Conn      // the socket, or TLS on it
	buffer     *bufio.Reader // in front of in
	framer     *http2.Framer // nil until the client has sent its preface
	decoder    *hpack.Decoder
	head       head
	recvWindow int // what the client may still send
	unreturned int // what the client has sent and no WINDOW_UPDATE has returned
	peerTable  uint32
	tokens     int           // what other frames than calls may still cost
	filled     time.Duration // when tokens was filled last
	handling   handling
	readAt     time.Time     // when something was read last
	lastPing   time.Duration // when the client has sent its last PING
	strikes    int           // the PINGs that came too early
}

// handling is the calls that the reading goroutine handles.
type handling struct {
	call   Call   // is answered without waiting
	memory []byte // of the answers of such calls
	burst  *burst // has the calls that have paused; nil: none has
	watch  watch
}

// serve reads until the connection ends, or until another goroutine reads on. begin, unless it is nil, reads
// what comes before the first frame.
func (r *reader) serve(begin func() error) {
	defer r.server.gone.Done()
	handed := false
	defer func() {
		if !handed {
			r.close()
		}
	}()
	defer r.recovered()
	var err error
	first := begin != nil
	if first {
		err = begin()
	}
	for ; err == nil; first = false {
		if r.handling.burst != nil && len(r.handling.burst.paused) > 0 && !r.whole() {
			if handed = r.settle(); handed {
				return
			}
		}
		err = r.read(first)
	}
	r.settleApart()
	r.end(err)
}

// whole reports whether the next frame was read from the socket already.
func (r *reader) whole() bool {
	const frameHeader = 9
	n := r.buffer.Buffered()
	if n < frameHeader {
		return false
	}
	h, _ := r.buffer.Peek(frameHeader)
	return n-frameHeader >= int(h[0])<<16|int(h[1])<<8|int(h[2])
}

// handshake reads up to the end of the client's preface.
func (r *reader) handshake() error {
	if config := r.server.o.TLS; config != nil && (r.server.o.TLSOnSockets || r.raw.LocalAddr().Network() != "unix") {
		t := tls.Server(r.raw, config)
		if err := t.HandshakeContext(r.ctx); err != nil {
			return handshakeError("TLS", err)
		}
		state := t.ConnectionState()
		if state.NegotiatedProtocol != http2.NextProtoTLS {
			return protocolError(http2.ErrCodeInadequateSecurity, "the client has not asked for h2 by ALPN")
		}
		r.peer.AuthInfo = credentials.TLSInfo{
			State:          state,
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}
		r.in = t
		l := r.shared.lock()
		l.out.to = t
		l.unlock()
	}
	r.buffer = bufio.NewReaderSize(r, readBuffer)
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(r.buffer, preface[:]); err != nil {
		return handshakeError("preface", err)
	}
	if string(preface[:]) != http2.ClientPreface {
		return protocolError(http2.ErrCodeProtocol, "what the client has sent is not HTTP/2")
	}
	r.framer = http2.NewFramer(nil, r.buffer)
	r.framer.SetReuseFrames()
	r.framer.SetMaxReadFrameSize(maxFrame)
	l := r.shared.lock()
	defer l.unlock()
	l.write(l.framer.WriteSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: r.server.o.MaxStreams},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: r.server.o.MaxHeaderBytes},
	))
	l.write(l.framer.WriteWindowUpdate(0, connWindow-uint32(r.recvWindow)))
	r.recvWindow = connWindow
	return nil
}

// handshakeError returns the error that ends a connection before its preface.
func handshakeError(what string, err error) error {
	if isGone(err) {
		return err
	}
	return connError{http2.ErrCodeProtocol, reasonProtocol, fmt.Sprintf("%s: %v", what, err)}
}

// isGone reports whether err says that the connection was closed.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.ECONNRESET)
}

// Read implements io.Reader. It writes what is to be sent before it waits for the client.
func (r *reader) Read(p []byte) (n int, err error) {
	r.settleApart() // a frame is not whole, so the reader cannot be handed over
	for n == 0 && err == nil {
		n, err = r.flushAndRead(p)
	}
	return n, err
}

func (r *reader) flushAndRead(p []byte) (int, error) {
	l := r.shared.lock()
	l.flush()
	l.waitForRoom()
	err := l.out.err
	l.unlock()
	if err != nil {
		return 0, err
	}
	n, err := r.in.Read(p)
	r.readAt = time.Now()
	l = r.shared.lock()
	defer l.unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
		return 0, r.expire(l) // check has seen that some calls are late
	}
	l.life.lastRead = r.server.now()
	return n, err
}

// expire ends the calls that are late.
func (r *reader) expire(l *locked) error {
	if err := r.raw.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	now := r.server.now()
	for id, st := range l.streams {
		switch q := &st.request; {
		case !st.late(now):
		case q.refusal != nil:
			l.answer(st, q.refusal, q.ended)
		case st.waiting == nil:
			l.answer(st, refusal(codes.DeadlineExceeded, "the request is not whole in time"), q.ended)
		default:
			r.server.o.Meters.Reset(true, http2.ErrCodeCancel)
			l.write(l.framer.WriteRSTStream(id, http2.ErrCodeCancel))
			l.remove(st, true)
		}
	}
	return nil
}

// read handles one frame. The first frame of a connection must be SETTINGS.
func (r *reader) read(first bool) error {
	fh, err := r.framer.ReadFrameHeader()
	if err != nil {
		return r.frameError(fh, err)
	}
	if first && (fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck)) {
		return protocolError(http2.ErrCodeProtocol, "the first frame is not a SETTINGS frame")
	}
	frame, err := r.framer.ReadFrameForHeader(fh)
	if err != nil {
		return r.frameError(fh, err)
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		return r.onHeaders(f)
	case *http2.DataFrame:
		return r.onData(f)
	case *http2.SettingsFrame:
		return r.onSettings(f)
	case *http2.WindowUpdateFrame:
		return r.onWindowUpdate(f.StreamID, f.Increment)
	case *http2.RSTStreamFrame:
		return r.onReset(f)
	case *http2.PingFrame:
		return r.onPing(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return r.reset(f.StreamID, http2.ErrCodeProtocol)
		}
	case *http2.PushPromiseFrame:
		return protocolError(http2.ErrCodeProtocol, "a client cannot push")
	case *http2.GoAwayFrame:
		r.server.o.Log.Debug("the client closes the connection", zap.Stringer("code", f.ErrCode), zap.Stringer("peer", r.peer.Addr))
	}
	return r.spend(1)
}

// frameError handles an error of the Framer.
func (r *reader) frameError(fh http2.FrameHeader, err error) error {
	var (
		stream http2.StreamError
		conn   http2.ConnectionError
	)
	switch {
	case errors.As(err, &stream) && fh.Type == http2.FrameHeaders:
		// The header block was not decoded, so no later block can be decoded.
		return protocolError(stream.Code, "a HEADERS frame is malformed")
	case errors.As(err, &stream):
		return r.reset(stream.StreamID, stream.Code)
	case errors.As(err, &conn):
		return protocolError(http2.ErrCode(conn), "a frame is malformed")
	case errors.Is(err, http2.ErrFrameTooLarge):
		return protocolError(http2.ErrCodeFrameSize, "a frame is too large")
	default:
		return err // the connection is gone
	}
}

func (r *reader) onSettings(f *http2.SettingsFrame) error {
	if err := r.spend(1 + f.NumSettings()); err != nil || f.IsAck() {
		return err
	}
	if f.NumSettings() > maxSettings {
		return protocolError(http2.ErrCodeEnhanceYourCalm, "a SETTINGS frame has too many settings")
	}
	l := r.shared.lock()
	defer l.unlock()
	before := l.flow.initial
	window := before
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
			// The table never grows again: then one block could announce two changes, which
			// Go's own decoder refuses.
			if s.Val < r.peerTable {
				r.peerTable = s.Val
				l.block.encoder.SetMaxDynamicTableSize(s.Val)
			}
		case http2.SettingInitialWindowSize:
			window = int64(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Once for the frame, not once for each setting.
	if err := r.setPeerWindow(l, window); err != nil {
		return err
	}
	l.write(l.framer.WriteSettingsAck())
	if window > before {
		l.sendBlocked() // behind the ACK, because it follows from the setting
	}
	if !l.life.opened {
		l.life.opened = true
		if l.life.drainWanted != "" {
			l.startDrain(l.life.drainWanted)
		}
	}
	return nil
}

// setPeerWindow changes the initial window of streams, and with it the window of each
// open stream. If the window changes, the client pays for the open streams, and for the
// blocked ones that the caller may go through afterwards.
func (r *reader) setPeerWindow(l *locked, window int64) error {
	by := window - l.flow.initial
	if by == 0 {
		return nil
	}
	if err := r.spend((len(l.streams) + len(l.flow.blocked)) / streamsAToken); err != nil {
		return err
	}
	l.flow.initial = window
	for _, st := range l.streams {
		if st.sendWindow += by; st.sendWindow > maxWindow {
			return protocolError(http2.ErrCodeFlowControl, "a window is too large")
		}
	}
	return nil
}

func (r *reader) onWindowUpdate(id, by uint32) error {
	if err := r.spend(1); err != nil {
		return err
	}
	l := r.shared.lock()
	defer l.unlock()
	if id == 0 {
		if l.flow.window += int64(by); l.flow.window > maxWindow {
			return protocolError(http2.ErrCodeFlowControl, "the connection's window is too large")
		}
		before := l.flow.window
		l.sendBlocked()
		// What was sent pays for the streams that sendBlocked has gone through.
		return r.spend(max(0, len(l.flow.blocked)/streamsAToken-int(before-l.flow.window)/bytesAToken))
	}
	st := l.streams[id]
	if st == nil {
		return l.unopened(id)
	}
	if st.sendWindow += int64(by); st.sendWindow > maxWindow {
		return r.resetLocked(l, id, http2.ErrCodeFlowControl)
	}
	l.sendWaiting(st)
	return nil
}

func (r *reader) onReset(f *http2.RSTStreamFrame) error {
	if err := r.spend(1); err != nil {
		return err
	}
	l := r.shared.lock()
	defer l.unlock()
	st := l.streams[f.StreamID]
	if st == nil {
		return l.unopened(f.StreamID)
	}
	r.server.o.Meters.Reset(false, f.ErrCode)
	l.remove(st, false)
	return nil
}

func (r *reader) onPing(f *http2.PingFrame) error {
	if err := r.spend(1); err != nil {
		return err
	}
	l := r.shared.lock()
	defer l.unlock()
	if f.IsAck() {
		if f.Data == drainPing && l.life.phase == draining {
			l.endDrain()
		}
		return nil // for keepalive, anything that was read counts
	}
	l.write(l.framer.WritePing(true, f.Data))
	// By the clock and not by ticks, which may be further apart than PINGs.
	now := time.Since(r.server.start)
	last := r.lastPing
	r.lastPing = now
	switch {
	case l.forgiven:
		l.forgiven, r.strikes = false, 0
	case last > 0 && now-last < r.server.o.Lifetime.MinPingInterval:
		r.strikes++
	}
	if r.strikes > maxStrikes {
		return connError{http2.ErrCodeEnhanceYourCalm, reasonPings, "too_many_pings"} // the text that gRPC clients look for
	}
	return nil
}

// reset resets a stream for a fault of the client, whether the stream is open or not.
// It costs the client more than a frame, because a handler may still run for the stream.
func (r *reader) reset(id uint32, code http2.ErrCode) error {
	l := r.shared.lock()
	defer l.unlock()
	return r.resetLocked(l, id, code)
}

// resetLocked is reset for a caller that has locked the state.
func (r *reader) resetLocked(l *locked, id uint32, code http2.ErrCode) error {
	if err := l.unopened(id); err != nil {
		return err
	}
	if err := r.spend(resetCost); err != nil {
		return err
	}
	r.server.o.Meters.Reset(true, code)
	l.write(l.framer.WriteRSTStream(id, code))
	if st := l.streams[id]; st != nil {
		l.remove(st, true)
	} else if id <= l.lastID {
		l.closed.reset(id)
	}
	return nil
}

// end ends the connection with err. If the client has broken a rule, a GOAWAY says which.
func (r *reader) end(err error) {
	var e connError
	if !errors.As(err, &e) {
		r.server.o.Log.Debug("a connection is gone", zap.Error(err), zap.Stringer("peer", r.peer.Addr))
		return
	}
	r.server.o.Meters.GoAway(e.reason)
	r.server.o.Log.Debug("the service ends a connection", zap.String("reason", e.reason), zap.String("detail", e.text), zap.Stringer("peer", r.peer.Addr))
	if r.framer == nil {
		return // the client has not shown that it speaks HTTP/2
	}
	l := r.shared.lock()
	l.enter(failed)
	l.write(l.framer.WriteGoAway(l.lastID, e.code, []byte(e.text)))
	l.dropWaiting() // no answer follows the GOAWAY
	l.flush()
	l.unlock()
	r.cancel()
	// To close a socket with unread bytes would discard the GOAWAY. check limits how long
	// this takes.
	_, _ = io.CopyN(io.Discard, r.in, connWindow)
}

// close releases everything. The contexts of handlers that still run end.
func (r *reader) close() {
	r.cancel()
	_ = r.raw.Close() // to close twice is harmless
	l := r.shared.lock()
	l.life.hungUp = true
	l.dropWaiting()
	l.out.fail(net.ErrClosed)
	l.unlock()
	r.server.closed(r.conn)
}
