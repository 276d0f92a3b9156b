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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// servicePath is what the paths of the test service begin with.
const servicePath = "/test.Play/"

// A testService is a service that does what tests need. All of its methods take and
// return a BytesValue.
type testService struct {
	running, most, begun, finished atomic.Int64  // counters of calls that wait
	gate                           chan struct{} // Gate, Slow and Stay wait until it is closed
	flusher                        flusher       // what Pause pauses for
	far                            flusher       // the same, if the message has "far"
}

func newTestService() *testService { return &testService{gate: make(chan struct{})} }

// A methodFunc is a method: it turns a message into an answer.
type methodFunc func(ctx context.Context, in []byte) ([]byte, error)

// methodFuncs returns the methods by name.
func (p *testService) methodFuncs() map[string]methodFunc {
	return map[string]methodFunc{
		"Echo":   func(_ context.Context, in []byte) ([]byte, error) { return in, nil },
		"Wait":   p.waitForContext,
		"Gate":   p.waitForGate,
		"Stay":   p.waitForGateOnly,
		"Fail":   func(_ context.Context, in []byte) ([]byte, error) { return nil, requestedError(string(in)) },
		"Tell":   describeCall,
		"Set":    setMetadata,
		"Large":  answerBytes,
		"Panic":  func(context.Context, []byte) ([]byte, error) { panic("as asked") },
		"Ready":  func(_ context.Context, in []byte) ([]byte, error) { return in, nil },                         // a Handler that never waits
		"Stop":   p.waitForGateOnly,                                                                             // a Handler that waits
		"Slow":   p.waitForGate,                                                                                 // a Handler that waits
		"Refuse": func(_ context.Context, in []byte) ([]byte, error) { return nil, requestedError(string(in)) }, // a Handler that never waits
		"Bulk":   answerBytes,                                                                                   // a Handler that never waits
		"Crash":  func(context.Context, []byte) ([]byte, error) { panic("as asked") },                           // a Handler that never waits
		"Pause":  p.waitForGate,                                                                                 // a Handler that pauses, and waits if it is asked to
		"Break":  func(context.Context, []byte) ([]byte, error) { panic("as asked") },                           // a Handler that waits
	}
}

// waitForContext runs until its context ends.
func (p *testService) waitForContext(ctx context.Context, _ []byte) ([]byte, error) {
	defer p.countCall()()
	<-ctx.Done()
	return nil, ctx.Err()
}

// waitForGate waits until the gate is open or its context ends.
func (p *testService) waitForGate(ctx context.Context, in []byte) ([]byte, error) {
	defer p.countCall()()
	select {
	case <-p.gate:
		return in, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// waitForGateOnly waits until the gate is open. It ignores its context.
func (p *testService) waitForGateOnly(_ context.Context, in []byte) ([]byte, error) {
	defer p.countCall()()
	<-p.gate
	return in, nil
}

// countCall counts a call that waits. The caller calls the returned function at its end.
func (p *testService) countCall() func() {
	p.begun.Add(1)
	n := p.running.Add(1)
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
	}
	return func() {
		p.running.Add(-1)
		p.finished.Add(1)
	}
}

// requestedError returns the error that a message asks for: "code:message", or the name
// of an error that is no status.
func requestedError(in string) error {
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

// describeCall answers with what a handler sees of its call.
func describeCall(ctx context.Context, in []byte) ([]byte, error) {
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

// setMetadata sets header and trailer. The message goes into -bin fields. If the client
// sends the field set-fail, the answer is an error.
func setMetadata(ctx context.Context, in []byte) ([]byte, error) {
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

// answerBytes answers with as many bytes as the message asks for.
func answerBytes(_ context.Context, in []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(in))
	if err != nil || n < 0 || n > 1<<20 {
		return nil, status.Error(codes.InvalidArgument, "how many bytes?")
	}
	return make([]byte, n), nil
}

// desc describes the service to either server.
func (p *testService) desc() *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: "test.Play", HandlerType: (*any)(nil)}
	for name, do := range p.methodFuncs() {
		d.Methods = append(d.Methods, grpc.MethodDesc{MethodName: name, Handler: handler(name, do)})
	}
	d.Streams = []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true,
		Handler: func(any, grpc.ServerStream) error { return status.Error(codes.OutOfRange, "streamed") },
	}}
	return d
}

func handler(name string, do methodFunc) grpc.MethodHandler {
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
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: servicePath + name}, call)
	}
}

// handle registers the Handlers of the methods that have one.
func (p *testService) handle(s *unary.Server) {
	s.Handle(servicePath+"Pause", p.pause)
	for name, waits := range map[string]bool{
		"Ready": false, "Refuse": false, "Bulk": false, "Crash": false,
		"Slow": true, "Stop": true, "Break": true,
	} {
		do := p.methodFuncs()[name]
		s.Handle(servicePath+name, func(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
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

// recovered turns a panic into INTERNAL.
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

// encoded calls a method with encoded messages.
func encoded(ctx context.Context, do methodFunc, request, answer []byte) ([]byte, error) {
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

// soon is how long a test waits for what must come. It is long, because the machine may be
// busy.
const waitTimeout = 20 * time.Second
