package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testv1 "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/test/servers"
)

// interopTimeout ends a case that would hang.
const interopTimeout = 30 * time.Second

// A failedCase is what a case of the suite panics with, instead of ending the
// process.
type failedCase string

// fatalPanics is a logger for grpc-go. Its cases fail by logging at level fatal.
type fatalPanics struct{ grpclog.LoggerV2 }

func (fatalPanics) Fatal(args ...any)   { panic(failedCase(fmt.Sprint(args...))) }
func (fatalPanics) Fatalln(args ...any) { panic(failedCase(fmt.Sprintln(args...))) }
func (fatalPanics) Fatalf(format string, args ...any) {
	panic(failedCase(fmt.Sprintf(format, args...)))
}

func init() {
	grpclog.SetLoggerV2(fatalPanics{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
}

// waitKey is the metadata of a call for which the server waits until the client cancels
// it.
const waitKey = "x-wait"

// A testService is that of grpc-go's suite, which also waits and has a name.
type testService struct {
	testv1.TestServiceServer
	waits sync.Map // string, *wait: calls that are to wait, by what their metadata say
}

// A wait is one call that waits in the server.
type wait struct {
	begun chan struct{} // closed
	ended chan error    // what the context ended with
}

// reason waits until the call has ended in the server, and returns its error. ctx ends
// the case.
func (w *wait) reason(ctx context.Context) error {
	select {
	case err := <-w.ended:
		return err
	case <-ctx.Done():
		return errors.New("the call never ended")
	}
}

// wait returns a context for a call that waits.
func (s *testService) wait(ctx context.Context) (context.Context, *wait) {
	w := &wait{begun: make(chan struct{}), ended: make(chan error, 1)}
	id := fmt.Sprintf("%p", w)
	s.waits.Store(id, w)
	return metadata.AppendToOutgoingContext(ctx, waitKey, id), w
}

func (s *testService) EmptyCall(ctx context.Context, in *testv1.Empty) (*testv1.Empty, error) {
	id := metadata.ValueFromIncomingContext(ctx, waitKey)
	if len(id) == 0 {
		return s.TestServiceServer.EmptyCall(ctx, in)
	}
	w, ok := s.waits.LoadAndDelete(id[0])
	if !ok {
		return nil, status.Error(codes.Internal, "a call was made twice")
	}
	close(w.(*wait).begun)
	<-ctx.Done()
	w.(*wait).ended <- ctx.Err()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (s *testService) UnaryCall(ctx context.Context, in *testv1.SimpleRequest) (*testv1.SimpleResponse, error) {
	out, err := s.TestServiceServer.UnaryCall(ctx, in)
	if in.GetFillServerId() && err == nil {
		out.ServerId = "the only one"
	}
	return out, err
}

// A caller is a client of a server, with what a case may want of both.
type caller struct {
	testv1.TestServiceClient
	conn    *grpc.ClientConn
	dial    func() *grpc.ClientConn
	service *testService
}

// interopCases are the cases of the suite that are unary, by its names for them. Of
// those that are unary and then stream, the unary half is here. Missing are those
// of compression, which unary does not have, of Google's credentials, and ORCA, which is an
// option of grpc-go's server.
var interopCases = []struct {
	name string
	run  func(context.Context, *testing.T, *caller)
}{
	{"empty_unary", func(ctx context.Context, _ *testing.T, c *caller) { interop.DoEmptyUnaryCall(ctx, c) }},
	{"large_unary", func(ctx context.Context, _ *testing.T, c *caller) { interop.DoLargeUnaryCall(ctx, c) }},
	{"timeout_on_sleeping_server", timeoutOnSleepingServer},
	{"cancel_after_begin", cancelAfterBegin},
	{"custom_metadata", customMetadata},
	{"status_code_and_message", statusCodeAndMessage},
	{"special_status_message", func(ctx context.Context, _ *testing.T, c *caller) { interop.DoSpecialStatusMessage(ctx, c) }},
	{"unimplemented_method", func(ctx context.Context, _ *testing.T, c *caller) { interop.DoUnimplementedMethod(ctx, c.conn) }},
	{"unimplemented_service", func(ctx context.Context, _ *testing.T, c *caller) {
		interop.DoUnimplementedService(ctx, testv1.NewUnimplementedServiceClient(c.conn))
	}},
	{"pick_first_unary", func(ctx context.Context, _ *testing.T, c *caller) { interop.DoPickFirstUnary(ctx, c) }},
	{"rpc_soak", func(ctx context.Context, _ *testing.T, c *caller) {
		soak(ctx, c, func() (*grpc.ClientConn, func()) { return c.conn, func() {} })
	}},
	{"channel_soak", func(ctx context.Context, _ *testing.T, c *caller) {
		soak(ctx, c, func() (*grpc.ClientConn, func()) {
			conn := c.dial()
			return conn, func() { _ = conn.Close() }
		})
	}},
}

// timeoutOnSleepingServer gives up on a call at its deadline. Server and client do
// so by their own clocks; both must.
func timeoutOnSleepingServer(ctx context.Context, t *testing.T, c *caller) {
	for timeout := 50 * time.Millisecond; ; timeout *= 2 {
		waiting, w := c.service.wait(ctx)
		waiting, cancel := context.WithTimeout(waiting, timeout)
		_, err := c.EmptyCall(waiting, new(testv1.Empty))
		cancel()
		if got := status.Code(err); got != codes.DeadlineExceeded {
			t.Fatalf("got %v, want DEADLINE_EXCEEDED", err)
		}
		select {
		case <-w.begun:
		default:
			continue // it was over before it got there
		}
		// Canceled means that the client has reset the call.
		if err := w.reason(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Errorf("in the server: got %v", err)
		}
		return
	}
}

// cancelAfterBegin gives up on a call that the server has begun.
func cancelAfterBegin(ctx context.Context, t *testing.T, c *caller) {
	waiting, w := c.service.wait(ctx)
	waiting, cancel := context.WithCancel(waiting)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := c.EmptyCall(waiting, new(testv1.Empty))
		answered <- err
	}()
	select {
	case <-w.begun:
	case err := <-answered:
		t.Fatalf("it ended before it began: %v", err)
	}
	cancel()
	if err := <-answered; status.Code(err) != codes.Canceled {
		t.Errorf("got %v, want CANCELLED", err)
	}
	if err := w.reason(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("in the server: got %v, want %v", err, context.Canceled)
	}
}

// customMetadata sends metadata that come back, in the header and in the trailer.
func customMetadata(ctx context.Context, t *testing.T, c *caller) {
	const initial, trailing = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
	const text, binary = "test_initial_metadata_value", "\x0a\x0b\x0a\x0b\x0a\x0b"
	var header, trailer metadata.MD
	_, err := c.UnaryCall(metadata.AppendToOutgoingContext(ctx, initial, text, trailing, binary),
		&testv1.SimpleRequest{ResponseSize: 1, Payload: &testv1.Payload{Body: []byte{0}}}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	if got := header.Get(initial); len(got) != 1 || got[0] != text {
		t.Errorf("header %s: got %q, want %q", initial, got, text)
	}
	if got := trailer.Get(trailing); len(got) != 1 || got[0] != binary {
		t.Errorf("trailer %s: got %q, want %q", trailing, got, binary)
	}
}

// statusCodeAndMessage asks for an error and gets that one.
func statusCodeAndMessage(ctx context.Context, t *testing.T, c *caller) {
	const message = "test status message"
	_, err := c.UnaryCall(ctx, &testv1.SimpleRequest{ResponseStatus: &testv1.EchoStatus{Code: int32(codes.Unknown), Message: message}})
	if s := status.Convert(err); s.Code() != codes.Unknown || s.Message() != message {
		t.Errorf("got %v, want UNKNOWN, %q", err, message)
	}
}

// soak calls many times, with large messages, over connections that it is given.
func soak(ctx context.Context, c *caller, conn func() (*grpc.ClientConn, func())) {
	interop.DoSoakTest(ctx, interop.SoakTestConfig{
		RequestSize: 271828, ResponseSize: 314159,
		// How long a call takes is no criterion here.
		PerIterationMaxAcceptableLatency: interopTimeout, OverallTimeout: interopTimeout,
		ServerAddr: c.conn.Target(), NumWorkers: 2, Iterations: 10, ChannelForTest: conn,
	})
}

// TestInteroperability runs the unary cases of grpc-go's suite with its client, over
// TCP, a unix socket and TLS with certificates of both.
func TestInteroperability(t *testing.T) {
	server, client := mutualTLS(t)
	for _, name := range names {
		for _, network := range []struct {
			name    string
			network string
			server  *tls.Config
			client  credentials.TransportCredentials
		}{
			{"tcp", "tcp", nil, insecure.NewCredentials()},
			{"unix", "unix", nil, insecure.NewCredentials()},
			{"tls", "tcp", server, credentials.NewTLS(client)},
		} {
			t.Run(name+"/"+network.name, func(t *testing.T) {
				t.Parallel()
				address := "127.0.0.1:0"
				if network.network == "unix" {
					address = filepath.Join(t.TempDir(), "s")
				}
				l, err := net.Listen(network.network, address)
				if err != nil {
					t.Fatal(err)
				}
				service := &testService{TestServiceServer: interop.NewTestServer()}
				start(t, l, name, options{tls: network.server}, func(s grpc.ServiceRegistrar) { testv1.RegisterTestServiceServer(s, service) })

				target := l.Addr().String()
				if network.network == "unix" {
					target = "unix://" + target
				}
				c := &caller{service: service}
				c.dial = func() *grpc.ClientConn {
					conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(network.client))
					if err != nil {
						panic(failedCase(err.Error()))
					}
					return conn
				}
				c.conn = c.dial()
				defer c.conn.Close()
				c.TestServiceClient = testv1.NewTestServiceClient(c.conn)
				for _, interopCase := range interopCases {
					t.Run(interopCase.name, func(t *testing.T) {
						ctx, cancel := context.WithTimeout(t.Context(), interopTimeout)
						defer cancel()
						defer func() {
							switch r := recover().(type) {
							case nil:
							case failedCase:
								t.Error(string(r))
							default:
								panic(r)
							}
						}()
						interopCase.run(ctx, t, c)
					})
				}
			})
		}
	}
}

// mutualTLS returns what a server and a client need that ask each other for
// certificates.
func mutualTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	authority := servers.NewAuthority(t)
	client, err := authority.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	var files [3][]byte
	ca, cert, key := authority.ServerFiles()
	for i, path := range []string{cert, key, ca} {
		if files[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if server, err = tlsConfig(files[0], files[1], files[2]); err != nil {
		t.Fatal(err)
	}
	return server, client
}
