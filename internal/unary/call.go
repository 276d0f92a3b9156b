package unary

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// complete handles a request that is whole: body is all of its DATA.
func (c *conn) complete(st *stream, body string) error {
	r := st.refusal
	var message string
	if r == nil {
		message, r = c.message(st, body)
	}
	if c.unpacked > 0 {
		// To unpack costs more than to read, also what is refused then.
		n := c.unpacked / packedAToken
		c.unpacked = 0
		if err := c.budget.spend(c, n); err != nil {
			return err
		}
	}
	if r == nil && !st.deadline.IsZero() && c.readAt.After(st.deadline) {
		r = refusal(codes.DeadlineExceeded, "the deadline has passed")
	}
	if r != nil {
		c.respond(st, r)
		return nil
	}
	if st.method.handler == nil {
		c.spawn(st, func(ctx context.Context) *response { return c.handle(ctx, st, message) })
		return nil
	}
	c.ask(st, message)
	return nil
}

// usualAnswer is room for most answers.
const usualAnswer = 1 << 10

// maxAnswerKept is how much memory is kept for the next answer.
const maxAnswerKept = 64 << 10

// message takes the one message out of a request, and decompresses it.
func (c *conn) message(st *stream, body string) (string, *response) {
	if body == "" {
		return "", refusal(codes.Unimplemented, tooFew)
	}
	if len(body) < prefixLen {
		return "", refusal(codes.Internal, "unexpected EOF")
	}
	length := announced(body)
	message := body[prefixLen:]
	switch {
	case int64(length) > int64(c.server.o.MaxMessageBytes):
		return "", c.tooLarge(length)
	case int64(len(message)) < int64(length):
		return "", refusal(codes.Internal, "unexpected EOF")
	case int64(len(message)) > int64(length):
		return "", refusal(codes.Unimplemented, tooMany)
	case body[0] == 0:
		return message, nil
	case body[0] != 1:
		return "", refusal(codes.Internal, "received unexpected payload format "+strconv.Itoa(int(body[0])))
	case len(message) > min(c.server.o.MaxMessageBytes/2, maxPacked):
		return "", refusal(codes.ResourceExhausted, "received compressed message larger than max "+strconv.Itoa(min(c.server.o.MaxMessageBytes/2, maxPacked)))
	case st.encoding != gzipped:
		return "", refusal(codes.Internal, "compressed flag set with identity or empty encoding")
	}
	return c.decompress(message)
}

// announced returns the length of the message that a request announces in its
// prefix, which is there.
func announced(body string) uint32 {
	return uint32(body[1])<<24 | uint32(body[2])<<16 | uint32(body[3])<<8 | uint32(body[4])
}

// decompress unpacks a message, but no more of it than may be.
func (c *conn) decompress(packed string) (string, *response) {
	length := unpackedLength(packed)
	switch {
	case length < 0:
		return "", refusal(codes.Internal, "the message cannot be decompressed")
	case length > int64(c.server.o.MaxMessageBytes):
		return "", refusal(codes.ResourceExhausted, "received message after decompression larger than max "+strconv.Itoa(c.server.o.MaxMessageBytes))
	case length > int64(mayUnpackTo(len(packed))):
		return "", refusal(codes.Internal, errUnpacksToMuch.Error())
	}
	r, err := encoding.GetCompressor(gzipped).Decompress(strings.NewReader(packed))
	if err != nil {
		return "", refusal(codes.Internal, "the message cannot be decompressed")
	}
	var out strings.Builder
	out.Grow(int(length))
	_, err = io.Copy(&out, io.LimitReader(r, length+1))
	c.unpacked = out.Len()
	if err != nil || int64(out.Len()) != length {
		return "", refusal(codes.Internal, "the message cannot be decompressed")
	}
	return out.String(), nil
}

// ask calls the method's Handler without waiting. If the Handler does not decide, ask
// calls it again on a goroutine of its own.
func (c *conn) ask(st *stream, message string) {
	handler := st.method.handler
	c.call = Call{Request: message, Begin: time.Now()}
	answer, decided, err := handler(c.ctx, false, &c.call, append(c.memory[:0], 0, 0, 0, 0, 0))
	if err == nil && !decided {
		waiting := new(Call)
		*waiting, c.call = c.call, Call{}
		c.spawn(st, func(ctx context.Context) *response {
			answer, decided, err := handler(ctx, true, waiting, make([]byte, prefixLen, usualAnswer))
			if err == nil && !decided {
				return refusal(codes.Internal, "the method did not decide the call")
			}
			return c.answer(st, answer, err)
		})
		return
	}
	c.call = Call{} // lets go of the request
	if cap(answer) <= maxAnswerKept && answer != nil {
		c.memory = answer[:0]
	}
	c.respond(st, c.answer(st, answer, err))
}

// spawn runs a handler on a goroutine of its own. Its context ends with the call's
// deadline, with a reset, and with the connection.
func (c *conn) spawn(st *stream, handle func(context.Context) *response) {
	var (
		ctx    context.Context
		cancel context.CancelFunc
	)
	if st.deadline.IsZero() {
		ctx, cancel = context.WithCancel(c.ctx)
	} else {
		ctx, cancel = context.WithDeadline(c.ctx, st.deadline)
	}
	c.mu.Lock()
	st.cancel, st.handled = cancel, true
	c.held -= st.body.Cap()
	st.body = strings.Builder{} // the handler has it
	c.running++
	c.mu.Unlock()
	c.server.gone.Add(1) // of the connection there is one still
	go func() {
		defer c.server.gone.Done()
		defer cancel()
		defer c.buggy()
		if c.handled(st, handle(ctx)) {
			// Others may be about to answer too, as when a store has decided many calls
			// at once: one write takes them all.
			runtime.Gosched()
		}
		c.flushAlone()
	}()
}

// handled answers a call whose handler has returned, and reports whether others run.
func (c *conn) handled(st *stream, r *response) (busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.streams[st.id] != st {
		c.orphans--
	}
	c.release(st)
	st.handled = false
	c.answerStream(st, r)
	return c.running > 0
}

// answer is how a call is answered whose handler has returned message and err.
func (c *conn) answer(st *stream, message []byte, err error) *response {
	if err != nil {
		return failure(err)
	}
	return c.success(st, message)
}

// success is an answer with a message that has room for its prefix.
func (c *conn) success(st *stream, message []byte) *response {
	if len(message) < prefixLen {
		return refusal(codes.Internal, "the method has left no room in front of its answer")
	}
	r := &response{message: message}
	// Who compresses gets it compressed, as grpc-go does.
	if st.encoding == gzipped && len(message) > prefixLen {
		var packed bytes.Buffer
		packed.Write(message[:prefixLen])
		w, err := encoding.GetCompressor(gzipped).Compress(&packed)
		if err == nil {
			_, err = w.Write(message[prefixLen:])
			err = errors.Join(err, w.Close())
		}
		if err != nil {
			return failure(status.Error(codes.Internal, "the answer cannot be compressed"))
		}
		r.message, r.compressed = packed.Bytes(), true
	}
	return r
}

// failure is an answer without a message.
func failure(err error) *response {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	r := refusal(s.Code(), s.Message())
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if b, err := proto.Marshal(p); err == nil {
			r.trailer = append(r.trailer, hpack.HeaderField{Name: "grpc-status-details-bin", Value: base64.RawStdEncoding.EncodeToString(b)})
		}
	}
	return r
}

// handle calls the method's standard handler of grpc-go.
func (c *conn) handle(ctx context.Context, st *stream, message string) *response {
	call := &serverCall{method: st.method.name}
	ctx = peer.NewContext(ctx, c.peer)
	ctx = metadata.NewIncomingContext(ctx, readMetadata(st.fields, st.authority))
	ctx = grpc.NewContextWithServerTransportStream(ctx, call)
	codec := c.server.o.Codec
	decode := func(into any) error {
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer([]byte(message))}, into); err != nil {
			return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
		}
		return nil
	}
	answer, err := st.method.standard(st.method.service, ctx, decode, c.server.o.Interceptor)
	var r *response
	if err != nil {
		r = failure(err)
	} else if encoded, err := codec.Marshal(answer); err != nil {
		r = failure(status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err))
	} else {
		out := make([]byte, prefixLen+encoded.Len())
		encoded.CopyTo(out[prefixLen:])
		encoded.Free()
		r = c.success(st, out)
	}
	call.take(r)
	return r
}

// serverCall is what handlers set header and trailer through: grpc.SetHeader,
// grpc.SendHeader and grpc.SetTrailer.
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

// SendHeader implements grpc.ServerTransportStream. The header leaves with the
// answer, before which there is nothing to use it for.
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

// take adds what the handler has set.
func (s *serverCall) take(r *response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = true // too late for more
	r.header = appendMetadata(nil, s.header)
	r.trailer = append(r.trailer, appendMetadata(nil, s.trailer)...)
}
