package grpclimit

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/middleware"
)

// A Call is one call, or one message of a stream, on its way to the handler.
type Call struct {
	// Context is that of the call. It has the metadata and the peer.
	Context context.Context
	// Method is the name of the method, such as /shop.Orders/Create.
	Method string
	// Message is the message of a unary call, or with [Limit.Messages] that of the stream. It is nil
	// with [Limit.Stream].
	Message any
}

// Options say what the interceptors ask: see [middleware.Options].
type Options = middleware.Options[*Call]

// A Limit has the interceptors. Make it with [New]. It is safe for concurrent use.
type Limit struct {
	limit *middleware.Limit[*Call]
}

// New returns interceptors that ask l. The error names everything that is wrong with o.
func New(l *limiter.Limiter, o Options) (*Limit, error) {
	limit, err := middleware.New("grpclimit", l, o)
	if err != nil {
		return nil, err
	}
	return &Limit{limit}, nil
}

var (
	_ grpc.UnaryServerInterceptor  = (*Limit)(nil).Unary
	_ grpc.StreamServerInterceptor = (*Limit)(nil).Stream
	_ grpc.StreamServerInterceptor = (*Limit)(nil).Messages
)

// Unary is a [grpc.UnaryServerInterceptor].
func (l *Limit) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	var d limiter.Decision
	header, trailer, err := l.ask(&Call{Context: ctx, Method: info.FullMethod, Message: req}, &d)
	defer middleware.Done(ctx, &d)
	if err != nil {
		_ = grpc.SetTrailer(ctx, trailer) // it fails without a call, as in tests of programs
		return nil, err
	}
	_ = grpc.SetHeader(ctx, header) // the same
	return handler(ctx, req)
}

// Stream is a [grpc.StreamServerInterceptor] that charges a stream once, when it begins.
func (l *Limit) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	var d limiter.Decision
	header, trailer, err := l.ask(&Call{Context: ss.Context(), Method: info.FullMethod}, &d)
	defer middleware.Done(ss.Context(), &d)
	if err != nil {
		ss.SetTrailer(trailer)
		return err
	}
	_ = ss.SetHeader(header) // no header was sent yet
	return handler(srv, ss)
}

// Messages is a [grpc.StreamServerInterceptor] that charges each message that the client sends. After
// a denial the handler gets the status from RecvMsg, without the message, and should return it. A message
// is in flight until the handler receives the next one, or ends. The
// header of the stream says how the limits stand after the first message.
func (l *Limit) Messages(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s := &stream{ServerStream: ss, limit: l, method: info.FullMethod}
	defer func() { middleware.Done(ss.Context(), &s.last) }()
	err := handler(srv, s)
	ss.SetTrailer(s.trailer)
	return err
}

// A stream asks about each message. Only one goroutine may receive.
type stream struct {
	grpc.ServerStream
	limit   *Limit
	method  string
	sent    bool // the header has what the first decision says
	last    limiter.Decision
	trailer metadata.MD // of the last denial
}

// RecvMsg implements [grpc.ServerStream].
func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	middleware.Done(s.Context(), &s.last)
	header, trailer, err := s.limit.ask(&Call{Context: s.Context(), Method: s.method, Message: m}, &s.last)
	if err != nil {
		s.trailer = trailer
		return err
	}
	if !s.sent {
		s.sent = true
		_ = s.SetHeader(header) // it fails if the handler has sent the header already
	}
	return nil
}

// ask returns what to send a client whose call passes, or the status of one that does not.
func (l *Limit) ask(c *Call, d *limiter.Decision) (header, trailer metadata.MD, err error) {
	var answer middleware.Answer
	*d, answer = l.limit.Ask(c.Context, c)
	switch answer {
	case middleware.Fail:
		// The text of the error may have addresses.
		return nil, nil, status.Error(codes.Unavailable, "the limits cannot be checked now")
	case middleware.Deny:
		trailer = fields(d)
		trailer.Set("grpc-retry-pushback-ms", pushback(trailer))
		return nil, trailer, denial(d.Limit())
	case middleware.Tell:
		return fields(d), nil, nil
	case middleware.Pass:
	}
	return nil, nil, nil
}

// pushback returns how long a retry policy of gRPC waits, in milliseconds. If it is negative, the client
// does not send the call again.
func pushback(fields metadata.MD) string {
	if wait := fields.Get("retry-after-ms"); len(wait) > 0 && len(fields.Get("x-should-retry")) == 0 {
		return wait[0]
	}
	return "-1"
}

// fields returns the fields of a decision as metadata.
func fields(d *limiter.Decision) metadata.MD {
	var room [14]limiter.Header
	all := d.AppendHeaders(room[:0])
	md := make(metadata.MD, len(all))
	for _, f := range all {
		md.Set(f.Name, f.Value)
	}
	return md
}

// denial returns the status of a denied call.
func denial(l limiter.LimitStatus) error {
	text := fmt.Sprintf("no room under limit %s", l.Name)
	switch {
	case l.Name == "":
		text = "denied by a rate limit"
	case l.Never:
		text = fmt.Sprintf("the cost is above limit %s", l.Name)
	}
	details := []protoadapt.MessageV1{&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: l.Name, Description: text}}}}
	if l.RetryAfter > 0 {
		// Whole milliseconds are enough, and are not too early.
		wait := (l.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		text = fmt.Sprintf("%s: try again in %v", text, wait)
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	s, err := status.New(codes.ResourceExhausted, text).WithDetails(details...)
	if err != nil { // a name that is not UTF-8
		return status.Error(codes.ResourceExhausted, "denied by a rate limit")
	}
	return s.Err()
}
