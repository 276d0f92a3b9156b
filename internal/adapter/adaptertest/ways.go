// Package adaptertest sends encoded requests through an adapter as each transport does.
package adaptertest

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/internal/unary"
	"github.com/slidegate/slidegate/internal/wire"
)

// A Service is an adapter.
type Service interface {
	Register(grpc.ServiceRegistrar)
	Handle(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error)
}

// A Way takes an encoded request to its encoded answer.
type Way func(t testing.TB, s Service, request []byte) ([]byte, error)

// registered is the one method that a service registers.
type registered struct{ grpc.MethodDesc }

func (r *registered) RegisterService(desc *grpc.ServiceDesc, _ any) { r.MethodDesc = desc.Methods[0] }

// Handler returns the handler of grpc-go for the one method that s registers.
func Handler(s Service) grpc.MethodHandler {
	var method registered
	s.Register(&method)
	return method.Handler
}

// Standard is the way through the handler of grpc-go.
func Standard(t testing.TB, s Service, request []byte) ([]byte, error) {
	t.Helper()
	return standard(t, s, request, nil)
}

func standard(t testing.TB, s Service, request []byte, intercept grpc.UnaryServerInterceptor) ([]byte, error) {
	t.Helper()
	codec := adapter.NewCodec()
	decode := func(m any) error {
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(request)}, m); err != nil {
			return wire.Unreadable(err)
		}
		return nil
	}
	out, err := Handler(s)(nil, t.Context(), decode, intercept)
	if err != nil {
		return nil, err
	}
	return out.(wire.Encoded), nil
}

// Unary is the way of package unary: without waiting, and then with it if the request is
// not decided. It overwrites the memory that the adapter must not keep.
func Unary(t testing.TB, s Service, request []byte) ([]byte, error) {
	t.Helper()
	const before = "what is there already"
	request = bytes.Clone(request)
	call := unary.Call{Request: string(request)}
	answer, decided, err := s.Handle(t.Context(), false, &call, []byte(before))
	for i := range request {
		request[i] = 0xff
	}
	if !decided {
		if err != nil || string(answer) != before {
			t.Fatalf("Handle = %q, %v, and it has not decided", answer, err)
		}
		_ = append(answer, "overwritten by others"...)
		if answer, decided, err = s.Handle(t.Context(), true, &call, []byte(before)); !decided {
			t.Fatal("Handle may wait, and has not decided")
		}
	}
	if !bytes.HasPrefix(answer, []byte(before)) {
		t.Fatalf("the answer overwrites what it is appended to: %q", answer)
	}
	if answer = answer[len(before):]; err != nil && len(answer) > 0 {
		t.Errorf("an answer of %d bytes and %v", len(answer), err)
	}
	return answer, err
}

// WithoutWaiting is the way of package unary for a service that never has to wait.
func WithoutWaiting(t testing.TB, s Service, request []byte) ([]byte, error) {
	t.Helper()
	answer, decided, err := s.Handle(t.Context(), false, &unary.Call{Request: string(request)}, nil)
	if !decided {
		t.Fatal("the request is not decided, although nothing has to wait")
	}
	return answer, err
}

// Panics sends a request that panics through a service in every way, several times.
func Panics(t *testing.T, s Service, request []byte) {
	t.Helper()
	recovered := func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "internal error")
			}
		}()
		return handler(ctx, in)
	}
	for name, way := range map[string]Way{"standard": Standard, "unary": Unary} {
		for range 20 {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: there was no panic: this test shows nothing", name)
					}
				}()
				_, _ = way(t, s, request)
			}()
		}
	}
	for range 20 {
		if out, err := standard(t, s, request, recovered); status.Code(err) != codes.Internal {
			t.Fatalf("intercepted: answer %q, %v, want INTERNAL", out, err)
		}
	}
}
