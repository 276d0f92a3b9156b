package unary_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // what clients may compress with
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/unary"
)

// play is the name of the service that does what tests ask it to.
const play = "/test.Play/"

// A player is that service. All of its methods take and return a BytesValue.
type player struct {
	running, most, begun, finished atomic.Int64  // calls that wait
	gate                           chan struct{} // Gate, Slow and Stay wait until it is closed
}

func newPlayer() *player { return &player{gate: make(chan struct{})} }

// A deed is a method: what it makes of a message.
type deed func(ctx context.Context, in []byte) ([]byte, error)

// deeds are the methods by name.
func (p *player) deeds() map[string]deed {
	return map[string]deed{
		"Echo":   func(_ context.Context, in []byte) ([]byte, error) { return in, nil },
		"Wait":   p.wait,
		"Gate":   p.pass,
		"Stay":   p.stay,
		"Fail":   func(_ context.Context, in []byte) ([]byte, error) { return nil, failure(string(in)) },
		"Tell":   tell,
		"Set":    set,
		"Large":  large,
		"Panic":  func(context.Context, []byte) ([]byte, error) { panic("as asked") },
		"Ready":  func(_ context.Context, in []byte) ([]byte, error) { return in, nil },                  // a Handler that never waits
		"Stop":   p.stay,                                                                                 // a Handler that waits
		"Slow":   p.pass,                                                                                 // a Handler that waits
		"Refuse": func(_ context.Context, in []byte) ([]byte, error) { return nil, failure(string(in)) }, // a Handler that never waits
		"Bulk":   large,                                                                                  // a Handler that never waits
		"Crash":  func(context.Context, []byte) ([]byte, error) { panic("as asked") },                    // a Handler that never waits
		"Break":  func(context.Context, []byte) ([]byte, error) { panic("as asked") },                    // a Handler that waits
	}
}

// wait runs until its context ends.
func (p *player) wait(ctx context.Context, _ []byte) ([]byte, error) {
	defer p.enter()()
	<-ctx.Done()
	return nil, ctx.Err()
}

// pass waits for the gate.
func (p *player) pass(ctx context.Context, in []byte) ([]byte, error) {
	defer p.enter()()
	select {
	case <-p.gate:
		return in, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stay waits for the gate, whatever becomes of the call.
func (p *player) stay(_ context.Context, in []byte) ([]byte, error) {
	defer p.enter()()
	<-p.gate
	return in, nil
}

// enter counts a call that waits, and returns what is to be called at its end.
func (p *player) enter() func() {
	p.begun.Add(1)
	n := p.running.Add(1)
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
	}
	return func() {
		p.running.Add(-1)
		p.finished.Add(1)
	}
}

// failure is the error that is asked for: "code:message", or the name of one that
// is no status.
func failure(in string) error {
	switch in {
	case "plain":
		return errors.New("plain")
	case "deadline":
		return fmt.Errorf("wrapped: %w", context.DeadlineExceeded)
	case "canceled":
		return context.Canceled
	case "wrapped":
		return fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "inner"))
	case "details":
		s, err := status.New(codes.FailedPrecondition, "with details").WithDetails(wrapperspb.String("detail"))
		if err != nil {
			return err
		}
		return s.Err()
	}
	code, message, _ := strings.Cut(in, ":")
	n, err := strconv.ParseUint(code, 10, 32)
	if err != nil {
		return status.Error(codes.InvalidArgument, "which failure?")
	}
	return status.Error(codes.Code(n), message)
}

// tell says what a handler sees of its call.
func tell(ctx context.Context, in []byte) ([]byte, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	var lines []string
	for name, values := range md {
		for _, v := range values {
			lines = append(lines, fmt.Sprintf("%s=%q", name, v))
		}
	}
	slices.Sort(lines)
	_, timed := ctx.Deadline()
	method, _ := grpc.Method(ctx)
	lines = append(lines, fmt.Sprintf("deadline %v method %q message %d bytes", timed, method, len(in)))
	return []byte(strings.Join(lines, "\n")), nil
}

// set answers with metadata: message bytes that are no text in a -bin field, which
// the client's own field set-fail has come with an error.
func set(ctx context.Context, in []byte) ([]byte, error) {
	if err := grpc.SetHeader(ctx, metadata.Pairs("play-header", "a", "play-header", "b", "play-bin", string(in))); err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("play-trailer", "c d", "play-trailer-bin", string(in))); err != nil {
		return nil, err
	}
	if len(metadata.ValueFromIncomingContext(ctx, "set-fail")) > 0 {
		return nil, status.Error(codes.Aborted, "as asked")
	}
	return in, nil
}

// large answers with as many bytes as it is asked for.
func large(_ context.Context, in []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(in))
	if err != nil || n < 0 || n > 1<<20 {
		return nil, status.Error(codes.InvalidArgument, "how many bytes?")
	}
	return make([]byte, n), nil
}

// desc describes the service to either server.
func (p *player) desc() *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: "test.Play", HandlerType: (*any)(nil)}
	for name, do := range p.deeds() {
		d.Methods = append(d.Methods, grpc.MethodDesc{MethodName: name, Handler: handler(name, do)})
	}
	d.Streams = []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true,
		Handler: func(any, grpc.ServerStream) error { return status.Error(codes.OutOfRange, "streamed") },
	}}
	return d
}

func handler(name string, do deed) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.BytesValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, in any) (any, error) {
			out, err := do(ctx, in.(*wrapperspb.BytesValue).GetValue())
			if err != nil {
				return nil, err
			}
			return wrapperspb.Bytes(out), nil
		}
		if interceptor == nil {
			return call(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: play + name}, call)
	}
}

// handle gives the methods that have one their Handler.
func (p *player) handle(s *unary.Server) {
	for name, waits := range map[string]bool{
		"Ready": false, "Refuse": false, "Bulk": false, "Crash": false,
		"Slow": true, "Stop": true, "Break": true,
	} {
		do := p.deeds()[name]
		s.Handle(play+name, func(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
			defer func() { recovered(recover(), &err) }()
			if waits && !wait {
				call.State = name
				return nil, false, nil
			}
			if waits != (call.State == name) || call.Begin.IsZero() {
				panic("the second call does not see what the first one stored")
			}
			out, err = encoded(ctx, do, []byte(call.Request), answer)
			return out, true, err
		})
	}
}

// recovered is what interceptors and handlers make of a panic.
func recovered(panicked any, err *error) {
	if panicked != nil {
		*err = status.Error(codes.Internal, "internal error")
	}
}

// intercept recovers from panics.
func intercept(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	defer func() { recovered(recover(), &err) }()
	return next(ctx, in)
}

// encoded does a deed with messages as they are on the wire.
func encoded(ctx context.Context, do deed, request, answer []byte) ([]byte, error) {
	in := new(wrapperspb.BytesValue)
	if err := proto.Unmarshal(request, in); err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	out, err := do(ctx, in.GetValue())
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(answer, wrapperspb.Bytes(out))
}

// soon is how long a test waits for what must come, on a machine that is busy.
const soon = 20 * time.Second
