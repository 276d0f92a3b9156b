package adapter

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/internal/edge/wire"
)

// A Call is one request and its result. The next request reuses its memory.
type Call interface {
	// Decode reads an encoded request into an empty Call.
	wire.Decoder
	// Describe gives a decoded Call the header fields [Kept] and Exceeds of the gRPC call. Each may be
	// empty. If the message exceeds a bound, Decode got its beginning at most, and may have failed.
	Describe(from *unary.Call)
	// Forget removes the request and its result, API keys included, and keeps the memory.
	Forget()
}

// A Door is the one way of requests through one method of an adapter. All fields are
// required. It is safe for concurrent use, and must not be copied or changed after its
// first use.
type Door[C Call] struct {
	// Service describes the gRPC service, and Method is the name of the method in it.
	Service *grpc.ServiceDesc
	Method  string
	// New returns an empty Call.
	New func() C
	// Decide decides a request. If wait is false, Decide must not block: it reports false
	// if it cannot decide without blocking, and is called again with wait true. An error
	// takes the place of the answer.
	Decide func(ctx context.Context, wait bool, c C) (decided bool, err error)
	// Append appends the encoded answer of a decided request.
	Append func(answer []byte, c C) []byte

	calls sync.Pool // of C
}

// Get returns an empty Call.
func (d *Door[C]) Get() C {
	if c, ok := d.calls.Get().(C); ok {
		return c
	}
	return d.New()
}

// Put forgets the request in c and keeps the memory for the next request. Do not use c
// afterwards. Do not call Put for a request that panicked.
func (d *Door[C]) Put(c C) {
	c.Forget()
	d.calls.Put(c)
}

// Handle is the unary.Handler of the method. An error is that of Decide, or the one of
// grpc-go for a request that cannot be read.
func (d *Door[C]) Handle(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
	c, begun := call.State.(C)
	if !begun {
		c = d.Get()
		if err := c.Decode(call.Request); err != nil && call.Exceeds == "" {
			d.Put(c)
			return answer, true, wire.Unreadable(err)
		}
		c.Describe(call)
	}
	if wait {
		err = d.Wait(ctx, c)
	} else if decided, err = d.Decide(ctx, false, c); !decided && err == nil {
		call.State = c
		return answer, false, nil
	}
	call.State = nil
	answer, err = d.finish(answer, c, err)
	return answer, true, err
}

// Wait decides the request in c, however long that takes. It returns the error of Decide,
// and INTERNAL if Decide reports that it has not decided.
func (d *Door[C]) Wait(ctx context.Context, c C) error {
	decided, err := d.Decide(ctx, true, c)
	if err == nil && !decided {
		return status.Error(codes.Internal, "the request is not decided")
	}
	return err
}

// finish appends the answer of a decided request and puts c back.
func (d *Door[C]) finish(answer []byte, c C, err error) ([]byte, error) {
	if err == nil {
		answer = d.Append(answer, c)
	}
	d.Put(c)
	return answer, err
}

// Register adds the method to a gRPC server, which must have been made with [Codec]. The
// generated registration would decode every answer only to encode it again.
func (d *Door[C]) Register(server grpc.ServiceRegistrar) {
	desc := *d.Service
	desc.HandlerType = (*any)(nil) // d does not implement the generated interface
	desc.Methods = []grpc.MethodDesc{{MethodName: d.Method, Handler: d.serve}}
	server.RegisterService(&desc, d)
}

// serve is the handler of grpc-go for the method.
//
//nolint:revive // gRPC gives the order of the arguments
func (d *Door[C]) serve(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	c := d.Get()
	// The interceptor recovers from a panic, also from one of decode.
	handle := func(ctx context.Context, _ any) (any, error) {
		if err := decode(c); err != nil {
			d.Put(c)
			return nil, err
		}
		var call unary.Call
		for i, field := range Kept {
			if values := metadata.ValueFromIncomingContext(ctx, field.Name); len(values) > 0 {
				call.Kept[i] = field.Value(values[0])
			}
		}
		c.Describe(&call)
		answer, err := d.finish(make([]byte, 0, usualAnswer), c, d.Wait(ctx, c))
		if err != nil {
			return nil, err
		}
		return wire.Encoded(answer), nil
	}
	if intercept == nil {
		return handle(ctx, nil)
	}
	info := &grpc.UnaryServerInfo{Server: d, FullMethod: "/" + d.Service.ServiceName + "/" + d.Method}
	return intercept(ctx, c, info, handle)
}

// usualAnswer is room for most answers, in bytes.
const usualAnswer = 512
