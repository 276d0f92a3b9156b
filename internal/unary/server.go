package unary

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// A Prompt answers a method on the goroutine that reads the connection, which
// serves nobody else meanwhile: it must not wait for anything but short locks. It
// appends the encoded answer to answer and returns that. request is the encoded
// message; neither may be kept. Where it would have to wait it returns a [Rest].
// Interceptors do not see it. An error is a gRPC status, as that of a handler.
type Prompt func(request, answer []byte) ([]byte, Rest, error)

// A Rest is what is left of a call that has to wait: it runs on a goroutine of its
// own. ctx ends with the call's deadline, or when the caller gives up.
type Rest func(ctx context.Context, answer []byte) ([]byte, error)

// Options of a [Server]. The zero value of each is usable, unless it says otherwise.
type Options struct {
	// Codec reads and writes messages. Nil: that of protobuf.
	Codec encoding.CodecV2
	// Interceptor is called for every call but those that a Prompt answers. Nil: none.
	Interceptor grpc.UnaryServerInterceptor
	// Panicked is told of panics in handlers, which are answered INTERNAL, while the
	// stack is still there. Nil: nobody is.
	Panicked func(method string)

	// MaxMessageBytes bounds a message, as it is sent and without compression.
	// Zero: 4 MiB.
	MaxMessageBytes int
	// MaxStreams bounds the calls in flight on one connection. Zero: 4096.
	MaxStreams uint32
	// MaxHeaderBytes bounds the header list of one call, counted as RFC 9113,
	// section 6.5.2 does. Zero: 64 KiB.
	MaxHeaderBytes uint32

	// TLS makes every connection one of TLS, whose application protocol must be h2.
	// Nil: plain text.
	TLS *tls.Config

	// OpenTimeout is how long a connection may take to say what it is: TLS, preface
	// and settings. Zero: 10 s.
	OpenTimeout time.Duration
	// WriteTimeout is how long a client may leave answers unread until its connection
	// is closed. Zero: 20 s.
	WriteTimeout time.Duration
	// KeepaliveTime is how long a connection may be silent until it is asked with a
	// PING whether it is there, KeepaliveTimeout how long it may take to answer. Zero:
	// 2 h and 20 s.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// MinPingInterval is the shortest time between two PINGs of a client that is
	// tolerated. Zero: 5 minutes, as grpc-go has it.
	MinPingInterval time.Duration
	// MaxConnectionIdle is how long a connection without calls lives. Zero: for ever.
	MaxConnectionIdle time.Duration
	// MaxConnectionAge is how long a connection lives until its client is asked for
	// another one, give or take a tenth. Zero: for ever.
	MaxConnectionAge time.Duration

	// Meters count what happens. Nil: nobody does.
	Meters Meters
	// Log is told of connections at debug level, and of what Accept fails with. Nil:
	// nobody is.
	Log *zap.Logger
}

// Meters count what connections do. Safe for concurrent use.
type Meters interface {
	// Opened and Closed count connections.
	Opened()
	Closed()
	// Traffic counts what one connection has done since the last time.
	Traffic(Traffic)
	// Reset counts a stream that was reset, by the server or by the client.
	Reset(byServer bool, code http2.ErrCode)
	// GoAway counts connections that the server has told to go, or closed, by why:
	// one of [Reasons].
	GoAway(reason string)
}

// Traffic is what a connection has done.
type Traffic struct {
	Streams       int // opened
	Read, Written int // bytes, those of TLS not counted
}

// Server serves unary methods of gRPC. It is safe for concurrent use once its
// services are registered.
type Server struct {
	o Options
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer returns a server without services.
func NewServer(o Options) *Server { return &Server{o: o} }

// RegisterService implements grpc.ServiceRegistrar. Methods that stream are answered
// UNIMPLEMENTED.
func (*Server) RegisterService(*grpc.ServiceDesc, any) {}

// Prompt has f answer a registered method, such as /package.Service/Method.
func (*Server) Prompt(method string, f Prompt) { _, _ = method, f }

// GetServiceInfo says what is registered, for reflection.
func (*Server) GetServiceInfo() map[string]grpc.ServiceInfo { return nil }

// Serve accepts connections until l fails or the server is stopped, when it
// returns nil.
func (*Server) Serve(net.Listener) error { return errors.New("not built yet") }

// GracefulStop accepts nothing more, tells clients to go, and returns when all calls
// are answered and all connections closed.
func (*Server) GracefulStop() {}

// Stop closes everything at once and returns when no handler runs any more.
func (*Server) Stop() {}
