package unary

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// A stream is one call. What it receives belongs to the goroutine that reads, what it
// sends is guarded by mu of the connection.
type stream struct {
	id     uint32
	method *method
	// Of the request.
	refusal    *response // how it is answered without a handler; nil: a handler is asked
	fields     []hpack.HeaderField
	authority  string
	subtype    string // what follows application/grpc
	encoding   string // of messages
	deadline   time.Time
	declared   int64 // content-length; below zero: none
	received   int64
	recvWindow int
	owed       int             // what the client is not yet told that it may send
	body       strings.Builder // of a request whose DATA comes in several frames
	held       int             // bytes of fields
	ended      bool            // the client has sent everything

	// Of the answer.
	cancel     context.CancelFunc // of the handler; nil: none runs
	handled    bool               // a handler has it, and may still when the stream is gone
	waiting    *response          // for windows, with what is left of its message; nil: it does not
	listed     bool               // it is, or was, among those that wait
	due        time.Duration      // when the request has to be whole, and then, if the answer waits, that; guarded by mu too
	sendWindow int64
}

// closedStreams are the last ones that were closed. Frames for them mean something
// else than those for streams that never were, and may have crossed with what has
// reset them.
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

// reset notes that a stream was reset after it was closed.
func (s *closedStreams) reset(id uint32) {
	for i := range s.last {
		if s.last[i].id == id {
			s.last[i].byServer = true
			return
		}
	}
	s.add(id, true)
}

func (s *closedStreams) find(id uint32) (byServer, ok bool) {
	for i := range s.last {
		if s.last[i].id == id {
			return s.last[i].byServer, true
		}
	}
	return false, false
}

// maxRequest is how long a request may take until it is whole.
const maxRequest = 30 * time.Second

// overdue reports whether there is a request that is not whole in its time, or an
// answer that the client leaves no window for. mu is held.
func (c *conn) overdue(now time.Duration) bool {
	for _, st := range c.streams {
		if st.late(now) {
			return true
		}
	}
	return false
}

func (st *stream) late(now time.Duration) bool {
	return now > st.due && (!st.handled || st.waiting != nil)
}

// expire ends the calls that are overdue. The reader does it, with mu held.
func (c *conn) expire() error {
	if err := c.raw.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	now := c.server.now()
	for id, st := range c.streams {
		switch {
		case !st.late(now):
		case st.refusal != nil:
			c.answerStream(st, st.refusal)
		case st.waiting == nil:
			c.answerStream(st, refusal(codes.DeadlineExceeded, "the request is not whole in time"))
		default:
			c.server.o.Meters.Reset(true, http2.ErrCodeCancel)
			c.write(c.framer.WriteRSTStream(id, http2.ErrCodeCancel))
			c.remove(st, true)
		}
	}
	return nil
}

// maxFree is how many streams a connection keeps for the next calls.
const maxFree = 64

// remove forgets a stream. mu is held; a stream that has a body still is removed by
// the reader alone.
func (c *conn) remove(st *stream, byServer bool) {
	delete(c.streams, st.id)
	c.closed.add(st.id, byServer)
	if st.cancel != nil {
		st.cancel()
	}
	st.waiting = nil
	if st.handled {
		c.orphans++
	} else {
		c.release(st) // it may be among those that wait for a while still
	}
	if len(c.streams) == 0 {
		c.idleSince = c.server.now()
		if c.peak > maxFree {
			c.streams, c.peak = make(map[uint32]*stream), 0 // a map does not shrink
		}
	}
	// One that a handler had may end on its goroutine, while the reader has it in hand.
	if st.cancel == nil && !st.listed && len(c.free) < maxFree {
		*st = stream{}
		c.free = append(c.free, st)
	}
}

// release lets go of the request. mu is held.
func (c *conn) release(st *stream) {
	c.held -= st.body.Cap() + st.held
	st.body, st.fields, st.held = strings.Builder{}, nil, 0
}

// newStream opens a stream, whose request has to be whole within some time. mu is
// held.
func (c *conn) newStream(id uint32, within time.Duration) *stream {
	var st *stream
	if n := len(c.free); n > 0 {
		st = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		st = new(stream)
	}
	st.id, st.recvWindow, st.sendWindow = id, streamWindow, c.peerWindow
	st.due = c.readAt.Sub(c.server.start) + min(within, maxRequest)
	c.streams[id] = st
	c.peak = max(c.peak, len(c.streams))
	return st
}

// onHeaders begins a call, or ends its request by trailers.
func (c *conn) onHeaders(f *http2.HeadersFrame) error {
	id, ended, dependsOnItself := f.StreamID, f.StreamEnded(), f.HasPriority() && f.Priority.StreamDep == f.StreamID
	defer c.head.reset()
	if err := c.decode(f); err != nil {
		return err
	}
	if id%2 == 0 {
		return protocolError(http2.ErrCodeProtocol, "a client has opened a stream with an even number")
	}
	c.mu.Lock()
	st, last := c.streams[id], c.lastID
	byServer, closed := false, false
	if st == nil && id <= last {
		byServer, closed = c.closed.find(id)
	}
	c.mu.Unlock()
	switch {
	case st != nil:
		return c.onTrailers(st, ended)
	case byServer:
		return c.budget.spend(c, 1) // they have crossed
	case closed:
		return protocolError(http2.ErrCodeStreamClosed, "HEADERS for a stream that is closed")
	case id <= last:
		return protocolError(http2.ErrCodeProtocol, "streams are not opened in ascending order")
	}
	return c.begin(id, ended, dependsOnItself)
}

// decode reads a whole header block into c.head.
func (c *conn) decode(f *http2.HeadersFrame) error {
	c.decoder.SetEmitEnabled(true)
	// More than the bound below lets through; it is for who claims a length.
	c.decoder.SetMaxStringLength(4 * int(c.server.o.MaxHeaderBytes))
	block := f.HeaderBlockFragment()
	done := f.HeadersEnded()
	if !done {
		block = slices.Clone(block) // gathered here and not by the decoder, which would keep the memory
	}
	for !done {
		// The Framer sees to it that nothing else comes here.
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return c.frameError(http2.FrameHeader{Type: http2.FrameHeaders}, err)
		}
		next := frame.(*http2.ContinuationFrame)
		block, done = append(block, next.HeaderBlockFragment()...), next.HeadersEnded()
		if err := c.budget.spend(c, 1); err != nil {
			return err
		}
		// Compressed it may be longer than what it says, but not for ever: what is not
		// looked at has to be read all the same.
		if len(block) > 2*int(c.server.o.MaxHeaderBytes) {
			return connError{http2.ErrCodeEnhanceYourCalm, reasonFlood, "a header block is too long"}
		}
	}
	if _, err := c.decoder.Write(block); err != nil || c.decoder.Close() != nil {
		return protocolError(http2.ErrCodeCompression, "a header block cannot be decoded")
	}
	return nil
}

// begin opens a stream with the header in c.head.
func (c *conn) begin(id uint32, ended, dependsOnItself bool) error {
	h := &c.head
	c.traffic.Streams++
	bad := h.malformed()
	m := c.server.methods[h.path]
	timeout := time.Duration(math.MaxInt64)
	if h.timed {
		timeout = h.timeout
	}
	c.mu.Lock()
	if c.phase >= leaving {
		defer c.mu.Unlock()
		return c.budget.spendLocked(c, 1) // it was told that this one is not served
	}
	c.lastID = id
	if bad != "" && !h.long || dependsOnItself || ended && h.declared > 0 {
		defer c.mu.Unlock()
		return c.resetLocked(id, http2.ErrCodeProtocol)
	}
	if most := int(c.server.o.MaxStreams); len(c.streams)+c.orphans >= most {
		defer c.mu.Unlock()
		return c.resetLocked(id, http2.ErrCodeRefusedStream)
	}
	st := c.newStream(id, timeout)
	if m != nil && m.handler == nil {
		// Only standard handlers read metadata.
		st.fields, st.authority, st.held = slices.Clone(h.fields), h.authority, int(h.size)
		c.held += st.held
	}
	crowded := c.held > c.mayHold()
	c.mu.Unlock()
	st.method, st.ended, st.declared, st.encoding = m, ended, h.declared, h.encoding
	if isGRPC(h.contentType) && len(h.contentType) > len(contentType)+1 && h.contentType[len(contentType)] == '+' {
		st.subtype = h.contentType[len(contentType):]
	}
	if h.timed {
		st.deadline = c.readAt.Add(min(timeout, maxTimeout))
	}
	if r := c.server.refuse(h, m); r != nil {
		st.refusal = r
		if ended || r.http == 0 {
			c.respond(st, r)
		}
		return nil
	}
	if crowded {
		c.respond(st, refusal(codes.ResourceExhausted, tooMuch))
		return nil
	}
	if ended {
		return c.complete(st, "")
	}
	return nil
}

// maxTimeout is as good as none, and leaves times that can be calculated with.
const maxTimeout = 100 * 365 * 24 * time.Hour

// onTrailers ends a request. What trailers say nobody asks.
func (c *conn) onTrailers(st *stream, ended bool) error {
	h := &c.head
	switch {
	case st.ended:
		return c.reset(st.id, http2.ErrCodeStreamClosed)
	case !ended || h.bad != "" || h.pseudo != 0 || st.declared >= 0 && st.received != st.declared:
		return c.reset(st.id, http2.ErrCodeProtocol)
	}
	st.ended = true
	if err := c.budget.spend(c, 1); err != nil {
		return err
	}
	return c.complete(st, st.body.String())
}

// onData takes a part of a request.
func (c *conn) onData(f *http2.DataFrame) error {
	size, data, ended := int(f.Length), f.Data(), f.StreamEnded()
	if size > c.recvWindow {
		return protocolError(http2.ErrCodeFlowControl, "more DATA than the connection's window")
	}
	c.recvWindow -= size
	c.owed += size
	if !ended && len(data) < tinyData {
		if err := c.budget.spend(c, 1); err != nil {
			return err
		}
	}
	c.mu.Lock()
	if c.owed >= connWindow/2 {
		c.write(c.framer.WriteWindowUpdate(0, uint32(c.owed)))
		c.recvWindow, c.owed = c.recvWindow+c.owed, 0
	}
	st := c.streams[f.StreamID]
	if st == nil {
		defer c.mu.Unlock()
		if err := c.unopened(f.StreamID); err != nil {
			return err
		}
		if byServer, _ := c.closed.find(f.StreamID); c.phase >= leaving || byServer {
			return c.budget.spendLocked(c, 1) // they have crossed
		}
		return c.resetLocked(f.StreamID, http2.ErrCodeStreamClosed)
	}
	c.mu.Unlock()
	st.received += int64(len(data))
	switch {
	case st.ended:
		return c.reset(st.id, http2.ErrCodeStreamClosed)
	case size > st.recvWindow:
		return c.reset(st.id, http2.ErrCodeFlowControl)
	case st.declared >= 0 && (st.received > st.declared || ended && st.received != st.declared):
		return c.reset(st.id, http2.ErrCodeProtocol)
	}
	st.recvWindow -= size
	st.ended = ended
	if ended && st.body.Len() == 0 {
		return c.complete(st, string(data)) // all of it, as nearly always
	}
	if r := c.collect(st, data); r != nil {
		c.respond(st, r)
		return nil
	}
	if ended {
		return c.complete(st, st.body.String())
	}
	if st.owed += size; st.owed >= streamWindow/2 {
		if st.refusal != nil {
			c.respond(st, st.refusal) // it has had its time to end by itself
			return nil
		}
		c.mu.Lock()
		c.write(c.framer.WriteWindowUpdate(st.id, uint32(st.owed)))
		c.mu.Unlock()
		st.recvWindow, st.owed = st.recvWindow+st.owed, 0
	}
	return nil
}

// collect keeps a part of a message until the rest is there.
func (c *conn) collect(st *stream, data []byte) *response {
	if st.refusal != nil {
		return nil // the message is not read
	}
	c.mu.Lock()
	before := st.body.Cap()
	st.makeRoom(len(data), c.server.o.MaxMessageBytes)
	c.held += st.body.Cap() - before
	crowded := c.held > c.mayHold()
	c.mu.Unlock()
	st.body.Write(data)
	if st.body.Len() >= prefixLen {
		length := announced(st.body.String())
		switch {
		case int64(length) > int64(c.server.o.MaxMessageBytes):
			return c.tooLarge(length)
		case int64(st.body.Len()) > prefixLen+int64(length):
			return refusal(codes.Unimplemented, tooMany)
		}
	}
	if crowded {
		return refusal(codes.ResourceExhausted, tooMuch)
	}
	return nil
}

// believedFrom is how much of a message has to be there until there is room for all
// that it announces: to announce a lot costs a client nothing.
const believedFrom = 64 << 10

// makeRoom grows the body for n more bytes: by doubling at first, and then once to
// the announced length, so that a large message is not copied again and again.
func (st *stream) makeRoom(n, most int) {
	b := &st.body
	if b.Cap()-b.Len() >= n {
		return
	}
	if b.Len() >= believedFrom {
		if whole := prefixLen + min(int64(announced(b.String())), int64(most)); whole >= int64(b.Len()+n) {
			n = int(whole) - b.Len()
		}
	}
	// Not Grow alone, which makes room for twice as much again.
	room, sofar := max(b.Len()+n, min(2*b.Cap(), believedFrom)), b.String()
	b.Reset()
	b.Grow(room)
	b.WriteString(sofar)
}

// mayHold bounds what a connection holds of calls that are under way.
func (c *conn) mayHold() int { return c.server.o.MaxMessageBytes + heldBeyond }

const tooMuch = "the connection holds too much of calls that are under way"

// prefixLen is the length of what stands in front of a message: whether it is
// compressed, and its length.
const prefixLen = 5

// What is wrong with a request that has not one message. Their code is the one that
// gRPC's table of codes has for it, which grpc-go has not.
const (
	tooFew  = "cardinality violation: received no request message from non-client-streaming RPC"
	tooMany = "cardinality violation: received multiple request messages for non-client-streaming RPC"
)

func (c *conn) tooLarge(length uint32) *response {
	return refusal(codes.ResourceExhausted, fmt.Sprintf("received message larger than max (%d vs. %d)", length, c.server.o.MaxMessageBytes))
}

// response is what a call is answered with. The zero value is OK without a message.
type response struct {
	// http is the status of HTTP for who does not speak gRPC, which can wait until
	// the request has ended. Zero: 200.
	http int
	code codes.Code
	text string // what follows the code
	// message has room for its prefix in front. Nil: none.
	message         []byte
	compressed      bool
	header, trailer []hpack.HeaderField
}

// refusal is an answer without a handler.
func refusal(code codes.Code, text string) *response { return &response{code: code, text: text} }

// respond answers a call and closes its stream, as soon as the windows of the client
// allow.
func (c *conn) respond(st *stream, r *response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answerStream(st, r)
	if len(c.out.buf) >= flushAt {
		c.flush()
	}
}

// answerStream is respond, but flushes nothing. mu is held.
func (c *conn) answerStream(st *stream, r *response) {
	if c.streams[st.id] != st {
		return // the client has given up, or is gone
	}
	c.forgiven = true
	c.budget.gained += earned
	c.addHeader(st, r)
	if r.message != nil || len(r.header) > 0 { // otherwise header and trailer are one
		c.sendBlock(st.id, false)
	}
	if b := r.message; b != nil {
		b[0] = 0
		if r.compressed {
			b[0] = 1
		}
		binary.BigEndian.PutUint32(b[1:], uint32(len(b)-prefixLen))
		if rest := c.sendData(st, b); len(rest) > 0 {
			r.message = slices.Clone(rest)
			c.release(st)
			st.waiting, st.listed, st.due = r, true, c.server.now()+c.server.o.WriteTimeout
			if len(c.blocked) > 2*len(c.streams) {
				c.blocked = slices.DeleteFunc(c.blocked, func(b *stream) bool { return b.waiting == nil })
			}
			c.blocked = append(c.blocked, st)
			return
		}
	}
	c.finishStream(st, r)
}

// addHeader adds the first header block of an answer to c.block.
func (c *conn) addHeader(st *stream, r *response) {
	c.field(":status", strconv.Itoa(cmp.Or(r.http, http.StatusOK)))
	c.field("content-type", contentType+st.subtype)
	if r.compressed {
		c.field("grpc-encoding", gzipped)
	}
	for _, f := range r.header {
		c.field(f.Name, f.Value)
	}
}

// finishStream ends an answer. What c.block holds goes in front.
func (c *conn) finishStream(st *stream, r *response) {
	c.field("grpc-status", strconv.Itoa(int(r.code)))
	if r.code != codes.OK {
		c.field("grpc-message", percentEncoded(r.text))
	}
	for _, f := range r.trailer {
		c.field(f.Name, f.Value)
	}
	c.sendBlock(st.id, true)
	if !st.ended {
		// The answer needs no more of the request.
		c.write(c.framer.WriteRSTStream(st.id, http2.ErrCodeNo))
	}
	c.remove(st, !st.ended)
}

// field adds a header field to c.block.
func (c *conn) field(name, value string) {
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) // into memory
}

// sendBlock sends c.block, in as many frames as it takes.
func (c *conn) sendBlock(id uint32, end bool) {
	block := c.block.Bytes()
	first := block[:min(len(block), maxFrame)]
	block = block[len(first):]
	c.write(c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(block) == 0,
	}))
	for len(block) > 0 {
		next := block[:min(len(block), maxFrame)]
		block = block[len(next):]
		c.write(c.framer.WriteContinuation(id, len(block) == 0, next))
	}
	c.block.Reset()
}

// sendData sends as much of b as the windows allow, and returns the rest.
func (c *conn) sendData(st *stream, b []byte) (rest []byte) {
	for len(b) > 0 {
		n := int(min(int64(len(b)), st.sendWindow, c.sendWindow, maxFrame))
		if n <= 0 {
			break
		}
		c.write(c.framer.WriteData(st.id, false, b[:n]))
		c.forgiven = true // grpc-go measures by PINGs how fast it flows
		st.sendWindow -= int64(n)
		c.sendWindow -= int64(n)
		b = b[n:]
	}
	return b
}

// sendWaiting sends what a stream has waited with, as the windows allow. mu is held.
func (c *conn) sendWaiting(st *stream) {
	r := st.waiting
	if r == nil {
		return
	}
	if r.message = c.sendData(st, r.message); len(r.message) == 0 {
		c.finishStream(st, r)
	}
}

// sendBlocked sends what streams have waited with, the oldest first. mu is held.
func (c *conn) sendBlocked() {
	for _, st := range c.blocked {
		if c.sendWindow <= 0 {
			break
		}
		c.sendWaiting(st)
	}
	c.blocked = slices.DeleteFunc(c.blocked, func(b *stream) bool { return b.waiting == nil })
}
