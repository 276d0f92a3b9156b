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

// A Handler answers the requests of one method of an adapter. All fields are
// required. It is safe for concurrent use, and must not be copied or changed after its
// first use.
type Handler[C Call] struct {
	// Service describes the gRPC service, and Method is the name of the method in it.
	Service *grpc.ServiceDesc
	Method  string
	// New returns an empty Call.
	New func() C
	// Decide decides a request. If wait is false, Decide must not block: it reports false
	// if it cannot decide without blocking, and is called again with wait true. An error
	// is returned instead of an answer.
	Decide func(ctx context.Context, wait bool, c C) (decided bool, err error)
	// Append appends the encoded answer of a decided request.
	Append func(answer []byte, c C) []byte

	calls sync.Pool // of C
}

// Get returns an empty Call.
func (h *Handler[C]) Get() C {
	if c, ok := h.calls.Get().(C); ok {
		return c
	}
	return h.New()
}

// Put forgets the request in c and keeps the memory for the next request. Do not use c
// afterwards. Do not call Put for a request that panicked.
func (h *Handler[C]) Put(c C) {
	c.Forget()
	h.calls.Put(c)
}

// Handle is the unary.Handler of the method. An error is that of Decide, or the one of
// grpc-go for a request that cannot be read.
func (h *Handler[C]) Handle(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
	c, begun := call.State.(C)
	if !begun {
		c = h.Get()
		if err := c.Decode(call.Request); err != nil && call.Exceeds == "" {
			h.Put(c)
			return answer, true, wire.Unreadable(err)
		}
		c.Describe(call)
	}
	if wait {
		err = h.Wait(ctx, c)
	} else if decided, err = h.Decide(ctx, false, c); !decided && err == nil {
		call.State = c
		return answer, false, nil
	}
	call.State = nil
	answer, err = h.finish(answer, c, err)
	return answer, true, err
}

// Wait decides the request in c, however long that takes. It returns the error of Decide,
// and INTERNAL if Decide reports that it has not decided.
func (h *Handler[C]) Wait(ctx context.Context, c C) error {
	decided, err := h.Decide(ctx, true, c)
	if err == nil && !decided {
		return status.Error(codes.Internal, "the request is not decided")
	}
	return err
}

// finish appends the answer of a decided request and puts c back.
func (h *Handler[C]) finish(answer []byte, c C, err error) ([]byte, error) {
	if err == nil {
		answer = h.Append(answer, c)
	}
	h.Put(c)
	return answer, err
}

// Register adds the method to a gRPC server, which must have been made with [Codec]. The
// generated registration would decode every answer only to encode it again.
func (h *Handler[C]) Register(server grpc.ServiceRegistrar) {
	desc := *h.Service
	desc.HandlerType = (*any)(nil) // h does not implement the generated interface
	desc.Methods = []grpc.MethodDesc{{MethodName: h.Method, Handler: h.serve}}
	server.RegisterService(&desc, h)
}

// serve is the handler of grpc-go for the method.
//
//nolint:revive // gRPC gives the order of the arguments
func (h *Handler[C]) serve(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	c := h.Get()
	// The interceptor recovers from a panic, also from one of decode.
	handle := func(ctx context.Context, _ any) (any, error) {
		if err := decode(c); err != nil {
			h.Put(c)
			return nil, err
		}
		var call unary.Call
		for i, field := range Kept {
			if values := metadata.ValueFromIncomingContext(ctx, field.Name); len(values) > 0 {
				call.Kept[i] = field.Value(values[0])
			}
		}
		c.Describe(&call)
		answer, err := h.finish(make([]byte, 0, usualAnswer), c, h.Wait(ctx, c))
		if err != nil {
			return nil, err
		}
		return wire.Encoded(answer), nil
	}
	if intercept == nil {
		return handle(ctx, nil)
	}
	info := &grpc.UnaryServerInfo{Server: h, FullMethod: "/" + h.Service.ServiceName + "/" + h.Method}
	return intercept(ctx, c, info, handle)
}

const usualAnswer = 512
