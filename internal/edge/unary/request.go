package unary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// A request is what the client sends on a stream. Only the reading goroutine uses it.
type request struct {
	refusal    *response // the answer, known before the request has ended; nil: a handler answers
	exceeds    string    // the bound that the call exceeds; its handler is asked, and the rest is not read
	metadata   callMetadata
	deadline   time.Time
	declared   int64 // content-length; below zero: none
	received   int64
	recvWindow int
	unreturned int             // what the client has sent and no WINDOW_UPDATE has returned
	body       strings.Builder // of a request whose DATA comes in several frames
	ended      bool            // the client has sent everything
	kept       [MaxKept]string // as in Call
	named      metadata.MD     // the fields of the header that Options.Metadata names
}

// drop releases the memory of a request that was read. The rest of a request that exceeds a bound
// may still come.
func (q *request) drop() {
	*q = request{ended: q.ended, exceeds: q.exceeds, declared: -1, recvWindow: q.recvWindow}
}

// callMetadata is what metadata for a standard handler is made of.
type callMetadata struct {
	fields    []hpack.HeaderField
	authority string
}

const (
	// maxRequest is how long a request may take until it is whole.
	maxRequest = 30 * time.Second
	// maxTimeout bounds grpc-timeout, so that calculations with it do not overflow.
	maxTimeout = 100 * 365 * 24 * time.Hour
	// prefixLen is the length of the prefix of a message: one byte that says whether the
	// message is compressed, and its length.
	prefixLen = 5
)

// The texts for a request that has not exactly one message. Their code is the one of
// gRPC's table of codes, which is not the one of grpc-go.
const (
	tooFew  = "cardinality violation: received no request message from non-client-streaming RPC"
	tooMany = "cardinality violation: received multiple request messages for non-client-streaming RPC"
)

const memoryFull = "the connection holds too much of calls that are under way"

// response is the answer to a call. The zero value is OK without a message.
type response struct {
	// http is the status of HTTP for a client that does not speak gRPC. Such an answer
	// waits for the end of the request. Zero: 200.
	http int
	code codes.Code
	text string // the message of the status
	// message begins with room for its prefix. Nil: none.
	message         []byte
	header, trailer []hpack.HeaderField
}

// refusal returns an answer that needs no handler.
func refusal(code codes.Code, text string) *response { return &response{code: code, text: text} }

// respond answers a call. What the windows of the client do not allow waits.
func (r *reader) respond(st *stream, res *response) {
	l := r.shared.lock()
	defer l.unlock()
	l.answer(st, res, st.request.ended)
	if st.waiting != nil {
		st.request.drop()
	}
	if len(l.out.buf) >= flushAt {
		l.flush()
	}
}

// onHeaders begins a call, or ends its request with trailers.
func (r *reader) onHeaders(f *http2.HeadersFrame) error {
	id, ended, dependsOnItself := f.StreamID, f.StreamEnded(), f.HasPriority() && f.Priority.StreamDep == f.StreamID
	defer r.head.reset()
	if err := r.decode(f); err != nil {
		return err
	}
	if id%2 == 0 {
		return protocolError(http2.ErrCodeProtocol, "a client has opened a stream with an even number")
	}
	st, opened, err := r.streamOf(id, ended, dependsOnItself)
	switch {
	case st == nil:
		return err
	case !opened:
		return r.onTrailers(st, ended)
	case ended || st.request.refusal != nil && st.request.refusal.http == 0:
		return r.complete(st, "")
	}
	return nil
}

// decode reads a whole header block into r.head.
func (r *reader) decode(f *http2.HeadersFrame) error {
	r.decoder.SetEmitEnabled(true)
	// Larger than the bound below: it stops a literal that announces a huge length.
	r.decoder.SetMaxStringLength(4 * int(r.server.o.MaxHeaderBytes))
	block := f.HeaderBlockFragment()
	done := f.HeadersEnded()
	if !done {
		block = slices.Clone(block) // gathered here, because the decoder would keep the memory
	}
	for !done {
		// The Framer refuses every other frame here.
		frame, err := r.framer.ReadFrame()
		if err != nil {
			return r.frameError(http2.FrameHeader{Type: http2.FrameHeaders}, err)
		}
		next := frame.(*http2.ContinuationFrame)
		block, done = append(block, next.HeaderBlockFragment()...), next.HeadersEnded()
		if err := r.spend(1); err != nil {
			return err
		}
		// An encoded block may be longer than its header list, but not without bound: also
		// a list that is too large must be read to the end.
		if len(block) > 2*int(r.server.o.MaxHeaderBytes) {
			return connError{http2.ErrCodeEnhanceYourCalm, reasonFlood, "a header block is too long"}
		}
	}
	if _, err := r.decoder.Write(block); err != nil || r.decoder.Close() != nil {
		return protocolError(http2.ErrCodeCompression, "a header block cannot be decoded")
	}
	return nil
}

// streamOf returns the stream of the header block in r.head, and whether the block has
// opened it. It returns nil if no stream takes the block. Then err is nil if the client is
// not at fault, or if the fault ends only the stream.
func (r *reader) streamOf(id uint32, ended, dependsOnItself bool) (st *stream, opened bool, err error) {
	h := &r.head
	l := r.shared.lock()
	defer l.unlock()
	if st := l.streams[id]; st != nil {
		return st, false, nil
	}
	if id <= l.lastID {
		switch byServer, closed := l.closed.find(id); {
		case byServer:
			return nil, false, r.spend(1) // the block has crossed with the reset
		case closed:
			return nil, false, protocolError(http2.ErrCodeStreamClosed, "HEADERS for a stream that is closed")
		}
		return nil, false, protocolError(http2.ErrCodeProtocol, "streams are not opened in ascending order")
	}
	if l.life.phase >= leaving {
		return nil, false, r.spend(1) // the second GOAWAY said that this call is not served
	}
	l.lastID = id
	if !h.long && h.malformed() || dependsOnItself || ended && h.declared > 0 {
		return nil, false, r.resetLocked(l, id, http2.ErrCodeProtocol)
	}
	if len(l.streams)+l.handlers.orphans >= int(r.server.o.MaxStreams) {
		return nil, false, r.resetLocked(l, id, http2.ErrCodeRefusedStream)
	}
	m := r.server.methods[h.pseudo.path]
	st = l.open(id)
	st.method, st.subtype = m, h.subtype()
	q, within, size := &st.request, maxRequest, 0
	q.ended, q.declared, q.recvWindow, q.kept = ended, h.declared, streamWindow, h.kept
	if h.timeout.set {
		within = min(h.timeout.after, maxRequest)
		q.deadline = r.readAt.Add(min(h.timeout.after, maxTimeout))
	}
	st.due = r.readAt.Sub(r.server.start) + within
	if m != nil && m.handler == nil {
		// Only standard handlers read metadata.
		q.metadata = callMetadata{slices.Clone(h.fields), h.pseudo.authority}
		size = int(h.size)
	} else if m != nil && r.server.o.Metadata != nil {
		q.named, size = h.named(r.server.o.Metadata)
	}
	tooMuch := l.buffer(st, size)
	if q.refusal = r.server.refuse(h, m); q.refusal == nil && tooMuch {
		q.refusal = refusal(codes.ResourceExhausted, memoryFull)
	}
	return st, true, nil
}

// onTrailers ends a request. The trailers themselves are ignored.
func (r *reader) onTrailers(st *stream, ended bool) error {
	h, q := &r.head, &st.request
	switch {
	case q.ended:
		return r.reset(st.id, http2.ErrCodeStreamClosed)
	case !ended || h.bad || h.pseudo.seen != 0 || q.declared >= 0 && q.received != q.declared:
		return r.reset(st.id, http2.ErrCodeProtocol)
	}
	q.ended = true
	if err := r.spend(1); err != nil || q.exceeds != "" {
		return err
	}
	return r.complete(st, q.body.String())
}

// onData takes a part of a request.
func (r *reader) onData(f *http2.DataFrame) error {
	size, data := int(f.Length), f.Data()
	if size > r.recvWindow {
		return protocolError(http2.ErrCodeFlowControl, "more DATA than the connection's window")
	}
	r.recvWindow -= size
	r.unreturned += size
	if !f.StreamEnded() && len(data) < tinyData {
		if err := r.spend(1); err != nil {
			return err
		}
	}
	st, err := r.receive(f)
	if st == nil {
		return err
	}
	q := &st.request
	if q.exceeds != "" {
		return nil
	}
	if q.ended && q.body.Len() == 0 {
		return r.complete(st, string(data)) // nearly every request is one frame
	}
	if res := r.collect(st, data); res != nil {
		q.refusal = res
		return r.complete(st, q.body.String())
	}
	if q.ended {
		return r.complete(st, q.body.String())
	}
	if q.unreturned += size; q.unreturned >= streamWindow/2 {
		if q.refusal != nil {
			r.respond(st, q.refusal) // the request had its time to end
			return nil
		}
		l := r.shared.lock()
		l.write(l.framer.WriteWindowUpdate(st.id, uint32(q.unreturned)))
		l.unlock()
		q.recvWindow, q.unreturned = q.recvWindow+q.unreturned, 0
	}
	return nil
}

// receive returns the stream of a DATA frame, once it has accounted for the frame. It
// returns nil if no stream takes the frame. Then err is nil if the client is not at
// fault, or if the fault ends only the stream.
func (r *reader) receive(f *http2.DataFrame) (*stream, error) {
	id, size, n, ended := f.StreamID, int(f.Length), int64(len(f.Data())), f.StreamEnded()
	l := r.shared.lock()
	defer l.unlock()
	if r.unreturned >= connWindow/2 {
		l.write(l.framer.WriteWindowUpdate(0, uint32(r.unreturned)))
		r.recvWindow, r.unreturned = r.recvWindow+r.unreturned, 0
	}
	st := l.streams[id]
	if st == nil {
		if err := l.unopened(id); err != nil {
			return nil, err
		}
		if byServer, _ := l.closed.find(id); l.life.phase >= leaving || byServer {
			return nil, r.spend(1) // they have crossed with the reset
		}
		return nil, r.resetLocked(l, id, http2.ErrCodeStreamClosed)
	}
	q := &st.request
	q.received += n
	switch {
	case q.ended:
		return nil, r.resetLocked(l, id, http2.ErrCodeStreamClosed)
	case size > q.recvWindow:
		return nil, r.resetLocked(l, id, http2.ErrCodeFlowControl)
	case q.declared >= 0 && (q.received > q.declared || ended && q.received != q.declared):
		return nil, r.resetLocked(l, id, http2.ErrCodeProtocol)
	}
	q.recvWindow -= size
	q.ended = ended
	return st, nil
}

// collect keeps a part of a message until the rest is there. It returns the answer if
// the request is refused.
func (r *reader) collect(st *stream, data []byte) *response {
	q := &st.request
	if q.refusal != nil {
		return nil // the message is not read
	}
	before := q.body.Cap()
	q.makeRoom(len(data), r.server.o.MaxMessageBytes)
	l := r.shared.lock()
	tooMuch := l.buffer(st, q.body.Cap()-before)
	l.unlock()
	q.body.Write(data)
	if q.body.Len() >= prefixLen {
		length := announced(q.body.String())
		switch {
		case int64(length) > int64(r.server.o.MaxMessageBytes):
			return r.tooLarge(length)
		case int64(q.body.Len()) > prefixLen+int64(length):
			return refusal(codes.Unimplemented, tooMany)
		}
	}
	if tooMuch {
		return refusal(codes.ResourceExhausted, memoryFull)
	}
	return nil
}

// believedFrom is how much of a message must be there before the server reserves the
// announced length: it costs a client nothing to announce a large one.
const believedFrom = 64 << 10

// makeRoom grows the body for n more bytes: by doubling at first, and then once to the
// announced length, so that a large message is not copied again and again.
func (q *request) makeRoom(n, most int) {
	b := &q.body
	if b.Cap()-b.Len() >= n {
		return
	}
	if b.Len() >= believedFrom {
		if whole := prefixLen + min(int64(announced(b.String())), int64(most)); whole >= int64(b.Len()+n) {
			n = int(whole) - b.Len()
		}
	}
	// Grow alone would make room for twice as much again.
	room, sofar := max(b.Len()+n, min(2*b.Cap(), believedFrom)), b.String()
	b.Reset()
	b.Grow(room)
	b.WriteString(sofar)
}

func (r *reader) tooLarge(length uint32) *response {
	return refusal(codes.ResourceExhausted, fmt.Sprintf("received message larger than max (%d vs. %d)", length, r.server.o.MaxMessageBytes))
}
