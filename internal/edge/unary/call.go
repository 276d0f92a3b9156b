package unary

import (
	"context"
	"encoding/base64"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/pkg/window"
)

// complete handles a request that is whole, or whose answer is known before. body is its DATA so
// far.
func (r *reader) complete(st *stream, body string) error {
	q := &st.request
	res := q.refusal
	var message string
	if res == nil {
		message, res = r.message(body)
	}
	if res != nil && res.code == codes.ResourceExhausted && r.server.o.Beyond && st.method != nil && st.method.handler != nil {
		q.exceeds, message, res = res.text, beginning(body), nil
		l := r.shared.lock()
		st.early = !q.ended
		l.unlock()
	}
	if res == nil && !q.deadline.IsZero() && r.readAt.After(q.deadline) {
		res = refusal(codes.DeadlineExceeded, "the deadline has passed")
	}
	switch {
	case res != nil:
		r.respond(st, res)
	case st.method.handler != nil:
		r.ask(st, message)
	default:
		md, deadline := q.metadata, q.deadline
		r.handOff(st)
		r.spawn(st, deadline, func(ctx context.Context) *response { return r.callStandard(ctx, st, md, message) })
	}
	return nil
}

const (
	// usualAnswer is room for most answers.
	usualAnswer = 1 << 10
	// maxAnswerKept is how much memory is kept for the next answer.
	maxAnswerKept = 64 << 10
)

// message takes the one message out of a request.
func (r *reader) message(body string) (string, *response) {
	if body == "" {
		return "", refusal(codes.Unimplemented, tooFew)
	}
	if len(body) < prefixLen {
		return "", refusal(codes.Internal, "unexpected EOF")
	}
	length := announced(body)
	message := body[prefixLen:]
	switch {
	case int64(length) > int64(r.server.o.MaxMessageBytes):
		return "", r.tooLarge(length)
	case int64(len(message)) < int64(length):
		return "", refusal(codes.Internal, "unexpected EOF")
	case int64(len(message)) > int64(length):
		return "", refusal(codes.Unimplemented, tooMany)
	case body[0] == 0:
		return message, nil
	case body[0] != 1:
		return "", refusal(codes.Internal, "received unexpected payload format "+strconv.Itoa(int(body[0])))
	}
	return "", refusal(codes.Internal, "compressed flag set with identity or empty encoding")
}

// beginning returns the beginning of a message whose request is not whole. It is empty if the
// message is compressed.
func beginning(body string) string {
	if len(body) <= prefixLen || body[0] != 0 {
		return ""
	}
	return body[prefixLen:]
}

// announced returns the length of the message that the prefix of a request announces.
// The prefix must be whole.
func announced(body string) uint32 {
	return uint32(body[1])<<24 | uint32(body[2])<<16 | uint32(body[3])<<8 | uint32(body[4])
}

// ask calls the method's Handler without waiting. If the Handler does not decide, or if the last call
// of the method has paused, the call may pause.
func (r *reader) ask(st *stream, message string) {
	handler := st.method.handler
	r.handling.call = Call{
		Request: message, Begin: time.Now(),
		Exceeds: st.request.exceeds, Metadata: st.request.named, Kept: st.request.kept,
	}
	if st.method.pauses.Load() {
		r.pause(st, &r.handling.call)
		r.handling.call = Call{}
		return
	}
	answer, decided, err := handler(r.ctx, window.NoWait, &r.handling.call, append(r.handling.memory[:0], 0, 0, 0, 0, 0))
	if err == nil && !decided {
		r.pause(st, &r.handling.call)
		r.handling.call = Call{}
		return
	}
	r.handling.call = Call{} // releases the request
	if cap(answer) <= maxAnswerKept && answer != nil {
		r.handling.memory = answer[:0]
	}
	r.respond(st, result(answer, err))
}

// waiting returns a function that calls a Handler with waiting.
func waiting(handler Handler, call *Call) func(context.Context) *response {
	return func(ctx context.Context) *response {
		answer, decided, err := handler(ctx, window.MayWait, call, make([]byte, prefixLen, usualAnswer))
		if err == nil && !decided {
			return refusal(codes.Internal, "the method did not decide the call")
		}
		return result(answer, err)
	}
}

// handOff notes that a handler runs for a stream, and has what it needs of its request.
func (r *reader) handOff(st *stream) {
	body := st.request.body.Cap()
	st.request.drop()
	l := r.shared.lock()
	defer l.unlock()
	st.handled = true
	l.buffer(st, -body)
	l.handlers.running++
}

// spawn runs a handler for a stream, after handOff, on a separate goroutine. Its context ends at the deadline,
// when the stream is reset, or when the connection ends.
func (c *conn) spawn(st *stream, deadline time.Time, handle func(context.Context) *response) {
	var (
		ctx    context.Context
		cancel context.CancelFunc
	)
	if deadline.IsZero() {
		ctx, cancel = context.WithCancel(c.ctx)
	} else {
		ctx, cancel = context.WithDeadline(c.ctx, deadline)
	}
	l := c.shared.lock()
	if st.cancel = cancel; l.streams[st.id] != st {
		cancel() // it was reset while the call paused
	}
	l.unlock()
	c.server.gone.Add(1) // the connection itself still counts, so this is never the first
	go c.run(ctx, st, handle)
}

// run calls a handler and sends its answer.
func (c *conn) run(ctx context.Context, st *stream, handle func(context.Context) *response) {
	defer c.server.gone.Done()
	defer c.recovered()
	growStack()
	if c.handled(st, handle(ctx), nil) {
		// Other handlers may be about to return too, as when a store has decided many
		// calls at once. Then one write sends all answers.
		runtime.Gosched()
	}
	c.flush()
}

// growStack grows the stack of a new goroutine once, while it is nearly empty. A handler that
// waits needs more than the stack that a goroutine begins with. To grow it under the frames of the
// whole call takes several times as long.
//
//go:noinline
func growStack() {
	var room [4 << 10]byte
	runtime.KeepAlive(&room)
}

// handled answers a call whose handler has returned. b is its burst. Nil: the handler had a goroutine of
// its own. It reports whether other handlers run.
func (c *conn) handled(st *stream, res *response, b *burst) (busy bool) {
	l := c.shared.lock()
	defer l.unlock() // also if a bug panics, so that the connection can be closed
	l.handlers.running--
	st.shared = b == nil || b.state.Load() == handedOver
	if l.streams[st.id] != st {
		l.handlers.orphans--
	}
	l.buffer(st, -st.buffered)
	if st.cancel != nil {
		st.cancel()
	}
	st.handled = false
	l.answer(st, res, true)
	return l.handlers.running > 0
}

// result returns the answer for what a handler has returned. message begins with room
// for its prefix.
func result(message []byte, err error) *response {
	switch {
	case err != nil:
		return failure(err)
	case len(message) < prefixLen:
		return refusal(codes.Internal, "the method has left no room in front of its answer")
	}
	return &response{message: message}
}

// failure returns the answer for an error of a handler.
func failure(err error) *response {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	res := refusal(s.Code(), s.Message())
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if b, err := proto.Marshal(p); err == nil {
			res.trailer = append(res.trailer, hpack.HeaderField{Name: "grpc-status-details-bin", Value: base64.RawStdEncoding.EncodeToString(b)})
		}
	}
	return res
}

// callStandard calls the method's standard handler of grpc-go.
func (c *conn) callStandard(ctx context.Context, st *stream, md callMetadata, message string) *response {
	call := &serverCall{method: st.method.name}
	ctx = peer.NewContext(ctx, c.peer)
	ctx = metadata.NewIncomingContext(ctx, readMetadata(md.fields, md.authority))
	ctx = grpc.NewContextWithServerTransportStream(ctx, call)
	codec := c.server.o.Codec
	decode := func(into any) error {
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer([]byte(message))}, into); err != nil {
			return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
		}
		return nil
	}
	answer, err := st.method.standard(st.method.service, ctx, decode, c.server.o.Interceptor)
	var out []byte
	if err == nil {
		var encoded mem.BufferSlice
		if encoded, err = codec.Marshal(answer); err != nil {
			err = status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
		} else {
			out = make([]byte, prefixLen+encoded.Len())
			encoded.CopyTo(out[prefixLen:])
			encoded.Free()
		}
	}
	res := result(out, err)
	call.take(res)
	return res
}

// serverCall implements grpc.SetHeader, grpc.SendHeader and grpc.SetTrailer for one
// call.
type serverCall struct {
	method string

	mu              sync.Mutex
	header, trailer metadata.MD
	sent            bool
}

var _ grpc.ServerTransportStream = (*serverCall)(nil)

// Method implements grpc.ServerTransportStream.
func (s *serverCall) Method() string { return s.method }

// SetHeader implements grpc.ServerTransportStream.
func (s *serverCall) SetHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent {
		return status.Error(codes.Internal, "the header is sent already")
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader implements grpc.ServerTransportStream. The header is sent with the answer.
func (s *serverCall) SendHeader(md metadata.MD) error {
	err := s.SetHeader(md)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = true
	return err
}

// SetTrailer implements grpc.ServerTransportStream.
func (s *serverCall) SetTrailer(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// take adds to an answer what the handler has set.
func (s *serverCall) take(res *response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = true
	res.header = appendMetadata(nil, s.header)
	res.trailer = append(res.trailer, appendMetadata(nil, s.trailer)...)
}
