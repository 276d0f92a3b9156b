package unary

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is used where none is set
	"google.golang.org/grpc/metadata"

	"github.com/slidegate/slidegate/internal/edge/coroutine"
)

// A Call is one request on its way through a [Handler].
type Call struct {
	// Request is the encoded message.
	Request string
	// Begin is when the handler was called first.
	Begin time.Time
	// State belongs to the handler. It is nil at the first call of the handler, and
	// the second call finds what the first one stored.
	State any
	// Exceeds says which bound the call exceeds. Request is then the beginning of the message, if
	// that is known. It is empty unless [Options.Beyond] is set.
	Exceeds string
	// Metadata has the header fields that Options.Metadata names. Nil: the call has none.
	Metadata metadata.MD
	// Kept has a value for each of Options.Keep, in that order. It is empty if there is none.
	Kept [MaxKept]string
}

// A KeptField names a header field whose value a call keeps.
type KeptField struct {
	Name string // in lower case
	// Value returns what a call keeps of a value. If it returns an empty text, the next field with
	// this name counts. It must not block, and must bound what it returns.
	Value func(string) string
}

// MaxKept is how many header fields a call keeps at most.
const MaxKept = 9

// A Handler answers one call. It appends the encoded answer to answer and returns the
// result.
//
// The server first calls it with wait false, on the goroutine that reads the
// connection. It must not block then, except on short locks: other calls of the
// connection wait for it. If it cannot answer without blocking, it stores what it
// needs in call.State and returns decided false. Then the server calls it again, with a
// [window.Pauser] in ctx: the Handler may pause. If it does not decide then, the server calls it once
// more, with wait true, on a separate goroutine. While calls of the method pause, their first call has
// a Pauser already. It may block until ctx ends: at the
// call's deadline, when the client resets the call, or when the connection ends.
//
// An error is a gRPC status and decides the call. The handler must not keep call or
// answer, and must recover from its own panics. No interceptor runs around it.
type Handler func(ctx context.Context, wait bool, call *Call, answer []byte) (out []byte, decided bool, err error)

// Options of a [Server]. The zero value of each is usable.
type Options struct {
	// Codec reads and writes the messages of methods without a Handler. Nil: protobuf.
	Codec encoding.CodecV2
	// Interceptor runs around every method without a Handler. It must recover from
	// panics of the method. Nil: none.
	Interceptor grpc.UnaryServerInterceptor

	// MaxMessageBytes bounds a message. Zero: 1 MiB.
	MaxMessageBytes int
	// MaxStreams bounds the calls in flight on one connection. Zero: 4096.
	MaxStreams uint32
	// MaxHeaderBytes bounds the header list of one call, counted as in RFC 9113,
	// section 6.5.2. Zero: 64 KiB.
	MaxHeaderBytes uint32

	// TLS encrypts every connection except over unix sockets. Clients must offer the
	// application protocol h2. Nil: plain text.
	TLS *tls.Config
	// TLSOnSockets encrypts connections over unix sockets too.
	TLSOnSockets bool

	Lifetime Lifetime

	// Keep lists header fields for Call.Kept, at most MaxKept.
	Keep []KeptField
	// Metadata names header fields, in lower case, for Call.Metadata. Nil: none.
	Metadata []string

	// Beyond makes a Handler also decide calls that exceed a bound of the server. Otherwise, and
	// without a Handler, they are answered RESOURCE_EXHAUSTED.
	Beyond bool

	// Meters counts connections. Nil: nothing is counted.
	Meters Meters
	// Log gets connections at debug level, and errors of Accept. Nil: nothing is logged.
	Log *zap.Logger
}

// Lifetime bounds how long a connection lives, and how long its client may take.
type Lifetime struct {
	// OpenTimeout is how long a client may take for TLS, preface and settings. Zero: 10 s.
	OpenTimeout time.Duration
	// WriteTimeout is how long a client may leave answers unread before the server closes
	// its connection. Zero: 20 s.
	WriteTimeout time.Duration
	// KeepaliveTime is how long a connection may be silent before the server sends a
	// PING. KeepaliveTimeout is how long the client may take to answer it. Zero: 2 h and
	// 20 s.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// MinPingInterval is the shortest time between two PINGs of a client that the server
	// accepts. Zero: 5 minutes, as in grpc-go.
	MinPingInterval time.Duration
	// MaxConnectionAge is how long a connection lives before the server asks the client
	// to open another one, give or take a tenth. Zero: without bound.
	MaxConnectionAge time.Duration
}

// withDefaults returns the options with defaults instead of zero values.
func (o Options) withDefaults() Options {
	if o.Codec == nil {
		o.Codec = encoding.GetCodecV2("proto")
	}
	if o.Meters == nil {
		o.Meters = unmetered{}
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, 1<<20)
	o.MaxStreams = cmp.Or(o.MaxStreams, 4096)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, 64<<10)
	l := &o.Lifetime
	l.OpenTimeout = cmp.Or(l.OpenTimeout, 10*time.Second)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 20*time.Second)
	l.KeepaliveTime = cmp.Or(l.KeepaliveTime, 2*time.Hour)
	l.KeepaliveTimeout = cmp.Or(l.KeepaliveTimeout, 20*time.Second)
	l.MinPingInterval = cmp.Or(l.MinPingInterval, 5*time.Minute)
	return o
}

// A method is a registered method.
type method struct {
	name     string // /package.Service/Method
	service  any
	standard grpc.MethodHandler
	handler  Handler     // nil: standard answers, always on a separate goroutine
	pauses   atomic.Bool // the last call in a coroutine has paused
}

// Server serves unary methods of gRPC. It is safe for concurrent use once the services
// are registered.
type Server struct {
	o        Options
	methods  map[string]*method
	services map[string]grpc.ServiceInfo
	start    time.Time
	coarse   atomic.Int64 // the time since start, at the last tick

	waiting   atomic.Int64 // bytes of answers that wait for windows
	relieving atomic.Bool  // relieve runs

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	ticking   bool
	stopping  bool
	halt      chan struct{}  // closed when the server stops to accept
	gone      sync.WaitGroup // connections and handlers
	routines  coroutine.Pool
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer returns a server without services. It panics if Options.Keep has more than MaxKept fields.
func NewServer(o Options) *Server {
	if len(o.Keep) > MaxKept {
		panic(fmt.Sprintf("unary: a call keeps at most %d header fields", MaxKept))
	}
	return &Server{
		o: o.withDefaults(), start: time.Now(),
		methods: make(map[string]*method), services: make(map[string]grpc.ServiceInfo),
		listeners: make(map[net.Listener]struct{}), conns: make(map[*conn]struct{}), halt: make(chan struct{}),
	}
}

// RegisterService implements grpc.ServiceRegistrar. Methods that stream are answered
// UNIMPLEMENTED. It must be called before Serve.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, service any) {
	info := grpc.ServiceInfo{Metadata: desc.Metadata}
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		s.methods[name] = &method{name: name, service: service, standard: m.Handler}
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.MethodName})
	}
	s.services[desc.ServiceName] = info
}

// Handle makes h answer a registered method, such as /package.Service/Method. It replaces
// the method's handler. Call it before Serve. It panics if the method is not registered.
func (s *Server) Handle(name string, h Handler) {
	m, ok := s.methods[name]
	if !ok {
		panic(fmt.Sprintf("unary: %s is not registered", name))
	}
	m.handler = h
}

// GetServiceInfo returns the registered services, for reflection.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo { return maps.Clone(s.services) }

// Serve accepts connections until l fails, or until the server is stopped and the
// last connection is gone, when it returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	defer func() { _ = l.Close() }() // to close twice is harmless
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		s.gone.Wait()
		return nil
	}
	s.listeners[l] = struct{}{}
	if !s.ticking {
		s.ticking = true
		s.coarse.Store(int64(time.Since(s.start)))
		go s.tick()
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	for {
		nc, err := l.Accept()
		if err == nil {
			s.open(nc)
			continue
		}
		select {
		case <-s.halt:
			s.gone.Wait()
			return nil
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// Such as too many open files, which may pass.
		s.o.Log.Warn("a connection cannot be accepted", zap.Error(err), zap.Duration("again_in", acceptPause))
		select {
		case <-time.After(acceptPause):
		case <-s.halt: // the next Accept fails
		}
	}
}

// acceptPause is how long Serve waits after a connection could not be accepted.
const acceptPause = 100 * time.Millisecond

// open serves a connection.
func (s *Server) open(nc net.Conn) {
	r := newConn(s, nc)
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = nc.Close() // nothing was read from it
		return
	}
	s.conns[r.conn] = struct{}{}
	s.gone.Add(1)
	s.mu.Unlock()
	s.o.Meters.Opened()
	go r.serve(r.handshake)
}

// closed notes that a connection has ended.
func (s *Server) closed(c *conn) {
	s.mu.Lock()
	_, open := s.conns[c]
	delete(s.conns, c)
	s.mu.Unlock()
	if open {
		s.o.Meters.Closed()
	}
}

// stop stops accepting connections, and returns the open ones.
func (s *Server) stop() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.stopping = true
		close(s.halt)
	}
	for l := range s.listeners {
		_ = l.Close() // Accept fails
	}
	return slices.Collect(maps.Keys(s.conns))
}

// GracefulStop stops accepting connections and asks clients to close theirs. It returns when all
// calls are answered and all connections are closed.
func (s *Server) GracefulStop() {
	for _, c := range s.stop() {
		go c.drain(reasonDrain) // on its own goroutine, because a client may not read
	}
	s.gone.Wait()
	s.routines.Close()
}

// Stop closes all connections at once. It returns when all handlers have returned.
func (s *Server) Stop() {
	for _, c := range s.stop() {
		_ = c.raw.Close()
	}
	s.gone.Wait()
	s.routines.Close()
}

// now returns the time from the start of the server to its last tick.
func (s *Server) now() time.Duration { return time.Duration(s.coarse.Load()) }

// The shortest timeout decides how often the server ticks, within bounds.
const (
	ticksATimeout = 8
	minTick       = 10 * time.Millisecond
	maxTick       = time.Second
)

// tick checks the timeouts of all connections at each tick. It returns when the server
// is stopped and the last connection is gone.
func (s *Server) tick() {
	every, l := maxTick, &s.o.Lifetime
	for _, d := range []time.Duration{l.OpenTimeout, l.WriteTimeout, l.KeepaliveTime, l.KeepaliveTimeout, l.MaxConnectionAge} {
		if d > 0 {
			every = min(every, max(d/ticksATimeout, minTick))
		}
	}
	done := make(chan struct{})
	go func() {
		<-s.halt
		s.gone.Wait()
		close(done)
	}()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		s.coarse.Store(int64(time.Since(s.start)))
		s.routines.Trim()
		s.mu.Lock()
		all := slices.Collect(maps.Keys(s.conns))
		s.mu.Unlock()
		for _, c := range all {
			c.check(s.now())
		}
	}
}

// age returns how long a connection may live. It is different for each connection, so
// that they do not all end at once.
func (l *Lifetime) age() time.Duration {
	spread := (rand.Float64() - 0.5) / 5 //nolint:gosec // not for security
	return l.MaxConnectionAge + time.Duration(spread*float64(l.MaxConnectionAge))
}
