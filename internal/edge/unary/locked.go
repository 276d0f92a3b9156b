package unary

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// shared guards the state that the goroutines of a connection share.
type shared struct{ locked locked }

// lock returns the state. The caller must call its unlock. No other code may take the
// address of the state, so its methods always run with the lock.
func (s *shared) lock() *locked {
	s.locked.mu.Lock()
	return &s.locked
}

// locked is the state of a connection that needs the lock: the open streams, the
// client's windows, and what is to be sent.
type locked struct {
	mu   sync.Mutex
	conn *conn

	out    output
	framer *http2.Framer // writes to out
	block  headerBlock

	streams  map[uint32]*stream
	free     []*stream
	peak     int // the most streams since there were none
	closed   closedStreams
	lastID   uint32 // the highest stream that was opened
	buffered int    // bytes of unfinished messages and of metadata
	handlers handlers
	flow     flow

	forgiven bool // something was sent since the last PING of the client
	life     life
}

// A headerBlock encodes the header fields of one block.
type headerBlock struct {
	encoder *hpack.Encoder
	encoded bytes.Buffer // encoder writes to it
}

// add encodes a field.
func (b *headerBlock) add(name, value string) {
	_ = b.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) // into memory
}

// handlers counts the handlers that run on goroutines of their own.
type handlers struct {
	running int
	orphans int // those whose stream is gone
}

// flow is how much DATA the client allows.
type flow struct {
	window  int64     // of the connection
	initial int64     // of a new stream
	blocked []*stream // the streams that wait for windows, the oldest first
}

// life is how far a connection has come, and the times that [conn.check] compares.
type life struct {
	opened      bool // the client has sent preface and settings
	phase       phase
	since       time.Duration // when phase began
	drainWanted string        // the reason to drain once the connection is open; empty: none
	began       time.Duration
	lastRead    time.Duration
	pinged      time.Duration // when a keepalive PING was sent; zero: never
	maxAge      time.Duration
	hungUp      bool
}

func (l *locked) init(c *conn) {
	now := c.server.now()
	l.conn = c
	l.out.to, l.out.drained.L = c.raw, &l.mu
	l.framer = http2.NewFramer(&l.out, nil)
	l.block.encoder = hpack.NewEncoder(&l.block.encoded)
	l.streams = make(map[uint32]*stream)
	l.flow.window, l.flow.initial = firstWindow, firstWindow
	l.life.began, l.life.lastRead = now, now
	l.life.maxAge = c.server.o.Lifetime.age()
}

func (l *locked) unlock() { l.mu.Unlock() }

// A stream is one call. Only the reading goroutine uses request. id, method and subtype
// do not change. Everything else needs the lock.
type stream struct {
	id      uint32
	method  *method
	subtype string // what follows application/grpc in the content type
	request request

	buffered   int                // bytes of request
	cancel     context.CancelFunc // ends the context of the handler; nil: none was started
	early      bool               // it is answered before its request has ended
	handled    bool               // a handler runs, possibly after the stream is gone
	shared     bool               // a goroutine answers it that does not read
	waits      int64              // what is counted for waiting, in bytes
	waiting    *response          // waits for windows, with what is left of its message; nil: nothing waits
	listed     bool               // the stream is or was in blocked
	due        time.Duration      // when the request must be whole; for a waiting answer, when it must be sent
	sendWindow int64
}

// late reports whether the request is not whole in time, or the client has left no
// window for the answer.
func (st *stream) late(now time.Duration) bool {
	return now > st.due && (!st.handled || st.waiting != nil)
}

// overdue reports whether a stream is late.
func (l *locked) overdue(now time.Duration) bool {
	for _, st := range l.streams {
		if st.late(now) {
			return true
		}
	}
	return false
}

// closedStreams are the streams that were closed last. A frame for one of them may have
// crossed with its reset; a frame for a stream that was never opened is a fault.
type closedStreams struct {
	last [64]struct {
		id       uint32
		byServer bool // the client may not know yet
	}
	next int
}

func (s *closedStreams) add(id uint32, byServer bool) {
	s.last[s.next].id, s.last[s.next].byServer = id, byServer
	s.next = (s.next + 1) % len(s.last)
}

// reset notes that the server has reset a stream that was closed.
func (s *closedStreams) reset(id uint32) {
	for i := range s.last {
		if s.last[i].id == id {
			s.last[i].byServer = true
			return
		}
	}
	s.add(id, true)
}

// find reports whether a stream was closed lately, and whether the server has closed it.
func (s *closedStreams) find(id uint32) (byServer, ok bool) {
	for _, c := range s.last {
		if c.id == id {
			return c.byServer, true
		}
	}
	return false, false
}

// unopened returns an error if the client has never opened the stream.
func (l *locked) unopened(id uint32) error {
	if (id%2 == 0 || id > l.lastID) && l.life.phase < leaving {
		return protocolError(http2.ErrCodeProtocol, "a frame is for a stream that was never opened")
	}
	return nil
}

// maxFree is how many streams a connection keeps for the next calls.
const maxFree = 64

// open returns a new stream.
func (l *locked) open(id uint32) *stream {
	var st *stream
	if n := len(l.free); n > 0 {
		st = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		st = new(stream)
	}
	st.id, st.sendWindow = id, l.flow.initial
	l.streams[id] = st
	l.peak = max(l.peak, len(l.streams))
	return st
}

// remove closes a stream. Afterwards only a handler that still runs may use it.
func (l *locked) remove(st *stream, byServer bool) {
	delete(l.streams, st.id)
	l.closed.add(st.id, byServer)
	if st.cancel != nil {
		st.cancel()
	}
	st.waiting = nil
	l.endWaiting(st)
	if st.handled {
		l.handlers.orphans++
	} else {
		l.buffer(st, -st.buffered)
	}
	if len(l.streams) == 0 && l.peak > maxFree {
		l.streams, l.peak = make(map[uint32]*stream), 0 // a map does not shrink
	}
	// A stream of a handler on another goroutine is not reused: that one may remove it while the
	// reader still uses it.
	if !st.handled && !st.shared && !st.listed && len(l.free) < maxFree {
		*st = stream{}
		l.free = append(l.free, st)
	}
}

// buffer counts n more bytes of memory for the request of a stream. It reports whether the
// connection's requests take too much.
func (l *locked) buffer(st *stream, n int) (tooMuch bool) {
	st.buffered += n
	l.buffered += n
	return l.buffered > l.conn.server.o.MaxMessageBytes+bufferedBeyond
}

// answer sends an answer as far as the client's windows allow. ended says whether the
// request has ended. It sends nothing if the client has given the call up.
func (l *locked) answer(st *stream, res *response, ended bool) {
	if l.streams[st.id] != st {
		return
	}
	ended = ended && !st.early
	l.forgiven = true
	l.conn.earned.Add(earned)
	l.encodeHeader(st, res)
	if res.message != nil || len(res.header) > 0 { // otherwise one block has header and trailer
		l.sendBlock(st.id, false)
	}
	if b := res.message; b != nil {
		b[0] = 0
		binary.BigEndian.PutUint32(b[1:], uint32(len(b)-prefixLen))
		if rest := l.sendData(st, b); len(rest) > 0 {
			res.message = slices.Clone(rest)
			l.buffer(st, -st.buffered)
			l.keepWaiting(st, res.message)
			st.waiting, st.listed, st.due = res, true, l.conn.server.now()+l.conn.server.o.Lifetime.WriteTimeout
			if len(l.flow.blocked) > 2*len(l.streams) {
				l.dropUnblocked()
			}
			l.flow.blocked = append(l.flow.blocked, st)
			return
		}
	}
	l.finish(st, res, ended)
}

// encodeHeader adds the first header block of an answer to l.block.
func (l *locked) encodeHeader(st *stream, res *response) {
	l.block.add(":status", strconv.Itoa(cmp.Or(res.http, http.StatusOK)))
	l.block.add("content-type", contentType+st.subtype)
	for _, f := range res.header {
		l.block.add(f.Name, f.Value)
	}
}

// finish sends l.block with the trailer of an answer, and closes its stream.
func (l *locked) finish(st *stream, res *response, ended bool) {
	l.block.add("grpc-status", strconv.Itoa(int(res.code)))
	if res.code != codes.OK {
		l.block.add("grpc-message", percentEncoded(res.text))
	}
	for _, f := range res.trailer {
		l.block.add(f.Name, f.Value)
	}
	l.sendBlock(st.id, true)
	if !ended {
		// The answer does not need the rest of the request.
		l.write(l.framer.WriteRSTStream(st.id, http2.ErrCodeNo))
	}
	l.remove(st, !ended)
}

// sendBlock sends l.block, in as many frames as it takes.
func (l *locked) sendBlock(id uint32, end bool) {
	block := l.block.encoded.Bytes()
	first := block[:min(len(block), maxFrame)]
	block = block[len(first):]
	l.write(l.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(block) == 0,
	}))
	for len(block) > 0 {
		next := block[:min(len(block), maxFrame)]
		block = block[len(next):]
		l.write(l.framer.WriteContinuation(id, len(block) == 0, next))
	}
	l.block.encoded.Reset()
}

// sendData sends as much of b as the windows allow, and returns the rest.
func (l *locked) sendData(st *stream, b []byte) (rest []byte) {
	for len(b) > 0 {
		n := int(min(int64(len(b)), st.sendWindow, l.flow.window, maxFrame))
		if n <= 0 {
			break
		}
		l.write(l.framer.WriteData(st.id, false, b[:n]))
		l.forgiven = true // grpc-go measures the bandwidth with PINGs
		st.sendWindow -= int64(n)
		l.flow.window -= int64(n)
		b = b[n:]
	}
	return b
}

// sendWaiting sends the answer that waits on a stream, if one does, as the windows
// allow.
func (l *locked) sendWaiting(st *stream) {
	res := st.waiting
	if res == nil {
		return
	}
	if res.message = l.sendData(st, res.message); len(res.message) == 0 {
		l.finish(st, res, !st.early)
	}
}

// sendBlocked sends the answers that wait, the oldest first.
func (l *locked) sendBlocked() {
	for _, st := range l.flow.blocked {
		if l.flow.window <= 0 {
			break
		}
		l.sendWaiting(st)
	}
	l.dropUnblocked()
}

// dropUnblocked drops the streams from l.flow.blocked that wait no longer.
func (l *locked) dropUnblocked() {
	l.flow.blocked = slices.DeleteFunc(l.flow.blocked, func(st *stream) bool { return st.waiting == nil })
}
