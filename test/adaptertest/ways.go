// Package adaptertest tests an adapter: it sends requests through the adapter as each
// transport does, measures allocations, and has stores that wait, fail or panic.
package adaptertest

import (
	"bytes"
	"context"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/internal/edge/wire"
)

// A Service is an adapter.
type Service interface {
	Register(grpc.ServiceRegistrar)
	Handle(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error)
}

// A Way sends an encoded request through a service and returns the encoded answer.
type Way func(t testing.TB, s Service, request []byte) ([]byte, error)

// Ask sends in through a service and reads the answer into out.
func Ask(t testing.TB, way Way, s Service, in, out proto.Message) error {
	t.Helper()
	request, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := way(t, s, request)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(answer, out); err != nil {
		t.Fatalf("the answer cannot be read: %v", err)
	}
	return nil
}

// registered is the one method that a service registers.
type registered struct{ grpc.MethodDesc }

func (r *registered) RegisterService(desc *grpc.ServiceDesc, _ any) { r.MethodDesc = desc.Methods[0] }

// handler returns the handler of grpc-go for the one method that s registers.
func handler(s Service) grpc.MethodHandler {
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
	out, err := handler(s)(nil, t.Context(), decode, intercept)
	if err != nil {
		return nil, err
	}
	return out.(wire.Encoded), nil
}

// Unary is the way of package unary: first without waiting, and if the request is not
// decided, again with waiting. Unary overwrites the memory that the adapter must not keep.
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
			t.Fatalf("Handle = %q, %v, although it has not decided", answer, err)
		}
		_ = append(answer, "overwritten by others"...)
		if answer, decided, err = s.Handle(t.Context(), true, &call, []byte(before)); !decided {
			t.Fatal("Handle may wait, but has not decided")
		}
	}
	if !bytes.HasPrefix(answer, []byte(before)) {
		t.Fatalf("the answer overwrites what it is appended to: %q", answer)
	}
	if answer = answer[len(before):]; err != nil && len(answer) > 0 {
		t.Errorf("Handle returned an answer of %d bytes and %v", len(answer), err)
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

// Panics sends a request that panics through a service, several times in every way.
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
						t.Errorf("%s: the request did not panic", name)
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

// Serve serves s with grpc-go and returns a connection to the server. service is what the
// generated code registers; Serve compares the descriptions of both services.
func Serve(t testing.TB, s Service, service func(grpc.ServiceRegistrar), options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	server, generated := grpc.NewServer(grpc.ForceServerCodecV2(adapter.NewCodec())), grpc.NewServer()
	s.Register(server)
	service(generated)
	if diff := cmp.Diff(generated.GetServiceInfo(), server.GetServiceInfo()); diff != "" {
		t.Errorf("the service differs from that of the generated code (-want +got):\n%s", diff)
	}
	l := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///bufconn", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
