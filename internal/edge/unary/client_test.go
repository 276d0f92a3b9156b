package unary_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// A transport is one of the two servers.
type transport interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
	GracefulStop()
	Stop()
}

// A serverKind makes servers with the test service.
type serverKind struct {
	name string
	make func(*testService, unary.Options) transport
}

var (
	ours   = serverKind{"unary", newUnaryServer}
	grpcGo = serverKind{"grpc-go", newGRPCGoServer}
)

func newUnaryServer(p *testService, o unary.Options) transport {
	o.Interceptor = intercept
	s := unary.NewServer(o)
	s.RegisterService(p.desc(), p)
	p.handle(s)
	return s
}

// newGRPCGoServer configures grpc-go like the options, as far as it can.
func newGRPCGoServer(p *testService, o unary.Options) transport {
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(intercept),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.Lifetime.MinPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: o.Lifetime.KeepaliveTime, Timeout: o.Lifetime.KeepaliveTimeout,
			MaxConnectionAge: o.Lifetime.MaxConnectionAge,
		}),
	}
	if o.MaxMessageBytes > 0 {
		options = append(options, grpc.MaxRecvMsgSize(o.MaxMessageBytes))
	}
	if o.MaxStreams > 0 {
		options = append(options, grpc.MaxConcurrentStreams(o.MaxStreams))
	}
	if o.MaxHeaderBytes > 0 {
		options = append(options, grpc.MaxHeaderListSize(o.MaxHeaderBytes))
	}
	s := grpc.NewServer(options...)
	s.RegisterService(p.desc(), p)
	return s
}

// A testServer is a running server with its test service.
type testServer struct {
	*testService
	transport
	l      *testListener
	opened sync.Once // opens the gate
}

// startServer serves on l until the test ends.
func startServer(t testing.TB, k serverKind, o unary.Options, l *testListener) *testServer {
	t.Helper()
	p := newTestService()
	s := &testServer{testService: p, transport: k.make(p, o), l: l}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.openGate()
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve returned %v", err)
		}
		for _, c := range l.conns() {
			c.closeClient()
		}
	})
	return s
}

// A testListener is a listener that keeps its connections.
type testListener struct {
	net.Listener // nil: connections are pipes
	dialed       chan [2]net.Conn
	closed       chan struct{}
	close        sync.Once
	mu           sync.Mutex
	accepted     []*serverConn
}

// pipes returns a listener whose connections are pipes, for bubbles of synctest. Pipes
// have no buffer.
func pipes() *testListener {
	return &testListener{dialed: make(chan [2]net.Conn), closed: make(chan struct{})}
}

// loopback returns a listener for TCP.
func loopback(t testing.TB) *testListener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &testListener{Listener: l}
}

// A serverConn is the server's end of a connection.
type serverConn struct {
	net.Conn
	other  net.Conn // the client's end of a pipe; nil for TCP
	read   atomic.Int64
	wrote  atomic.Int64
	ended  atomic.Bool // the server has closed its side
	closed atomic.Bool // the server has closed both sides
}

func (c *serverConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func (c *serverConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.wrote.Add(int64(n))
	return n, err
}

// CloseWrite closes the server's side alone. Pipes do not support that, and the server
// closes them.
func (c *serverConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	err := half.CloseWrite()
	c.ended.Store(true)
	return err
}

// Close notes that the connection was closed.
func (c *serverConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// closeClient closes the client's end of a pipe.
func (c *serverConn) closeClient() {
	if c.other != nil {
		c.other.Close()
	}
}

// Accept implements net.Listener.
func (l *testListener) Accept() (net.Conn, error) {
	v := new(serverConn)
	if l.Listener != nil {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v.Conn = c
	} else {
		select {
		case ends := <-l.dialed:
			v.other, v.Conn = ends[0], ends[1]
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = append(l.accepted, v)
	return v, nil
}

// Close implements net.Listener.
func (l *testListener) Close() error {
	if l.Listener != nil {
		return l.Listener.Close()
	}
	l.close.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *testListener) Addr() net.Addr {
	if l.Listener != nil {
		return l.Listener.Addr()
	}
	return &net.UnixAddr{Name: "pipe", Net: "unix"}
}

func (l *testListener) conns() []*serverConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.accepted)
}

// dial returns the client's end of a new connection.
func (l *testListener) dial(t testing.TB) net.Conn {
	t.Helper()
	if l.Listener != nil {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	near, far := net.Pipe()
	select {
	case l.dialed <- [2]net.Conn{near, far}:
	case <-l.closed:
		t.Fatal("dialled a listener that is closed")
	}
	return near
}

// A frameWriter writes frames into a buffer. It does not check them.
type frameWriter struct {
	bytes.Buffer
	fr    *http2.Framer
	enc   *hpack.Encoder
	block bytes.Buffer
}

func newFrameWriter() *frameWriter {
	w := new(frameWriter)
	w.fr = http2.NewFramer(&w.Buffer, nil)
	w.fr.AllowIllegalWrites = true
	w.enc = hpack.NewEncoder(&w.block)
	return w
}

// preface writes the preface and the first SETTINGS of a client.
func (w *frameWriter) preface(settings ...http2.Setting) {
	w.WriteString(http2.ClientPreface)
	w.settings(settings...)
}

func (w *frameWriter) settings(s ...http2.Setting) { must(w.fr.WriteSettings(s...)) }

// fields encodes a header block, which is valid until the next call.
func (w *frameWriter) fields(fields []hpack.HeaderField) []byte {
	w.block.Reset()
	for _, f := range fields {
		must(w.enc.WriteField(f))
	}
	return w.block.Bytes()
}

func (w *frameWriter) headers(id uint32, end bool, fields []hpack.HeaderField) {
	must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.fields(fields), EndStream: end, EndHeaders: true}))
}

func (w *frameWriter) data(id uint32, end bool, b []byte) { must(w.fr.WriteData(id, end, b)) }

func (w *frameWriter) update(id, n uint32) { must(w.fr.WriteWindowUpdate(id, n)) }

func (w *frameWriter) reset(id uint32, code http2.ErrCode) { must(w.fr.WriteRSTStream(id, code)) }

// call writes all frames of a call.
func (w *frameWriter) call(id uint32, method string, message []byte, more ...string) {
	w.headers(id, false, request(method, more...))
	w.data(id, true, framed(0, message))
}

// raw writes a frame of any type, flags and payload.
func (w *frameWriter) raw(typ http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	must(w.fr.WriteRawFrame(typ, flags, id, payload))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// request returns the header fields of a call. more are fields as "name: value", which
// replace those of the same name; "-name" removes one.
func request(method string, more ...string) []hpack.HeaderField {
	path := method
	if !strings.HasPrefix(method, "/") {
		path = servicePath + method
	}
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "test"},
		{Name: "te", Value: "trailers"},
		{Name: "content-type", Value: "application/grpc"},
	}
	base := len(fields)
	for _, m := range more {
		if name, ok := strings.CutPrefix(m, "-"); ok {
			fields = slices.DeleteFunc(fields, func(f hpack.HeaderField) bool { return f.Name == name })
			base = min(base, len(fields))
			continue
		}
		colon := strings.Index(m[1:], ":") + 1
		f := hpack.HeaderField{Name: m[:colon], Value: strings.TrimPrefix(m[colon+1:], " ")}
		if i := slices.IndexFunc(fields[:base], func(o hpack.HeaderField) bool { return o.Name == f.Name }); i >= 0 {
			fields[i] = f
			continue
		}
		fields = append(fields, f)
	}
	return fields
}

// framed returns a message with its prefix.
func framed(flag byte, message []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(message)))
	return append(b, message...)
}

// value returns an encoded BytesValue.
func value(s string) []byte {
	if s == "" {
		return nil
	}
	return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), s)
}

// content returns the value of an answer that is one BytesValue.
func content(t testing.TB, a *answer) string {
	t.Helper()
	if len(a.data) < 5 || a.data[0] != 0 || int(binary.BigEndian.Uint32(a.data[1:])) != len(a.data)-5 {
		t.Fatalf("not one message: %v", a)
	}
	if len(a.data) == 5 {
		return ""
	}
	_, _, n := protowire.ConsumeField(a.data[5:])
	v, m := protowire.ConsumeString(a.data[6:])
	if n != len(a.data)-5 || m != n-1 {
		t.Fatalf("not a BytesValue: %x", a.data[5:])
	}
	return v
}

// A testClient is a client that can send anything. Its behavior says what it does on its
// own.
type testClient struct {
	t    testing.TB
	conn net.Conn
	next uint32

	// writing holds a value while a goroutine writes. It is a channel, because bubbles of
	// synctest do not wait for a mutex.
	writing chan struct{}
	w       *frameWriter

	mu      sync.Mutex
	read    *received
	changed chan struct{} // closed when something was read
	acks    *frameWriter  // acknowledgements to be written
	acksDue chan struct{}
	over    chan struct{} // closed when reading has ended
	begun   chan struct{} // closed when something was sent: acknowledgements follow the preface
	begin   sync.Once
}

// A behavior is what a testClient does on its own.
type behavior int

const (
	acknowledging behavior = iota
	onlyReading            // reads, but acknowledges nothing
	notReading             // does not read
)

// newClient returns a client that has sent nothing yet.
func newClient(t testing.TB, conn net.Conn, m behavior) *testClient {
	t.Helper()
	p := &testClient{
		t: t, conn: conn, next: 1, writing: make(chan struct{}, 1), w: newFrameWriter(),
		read: newReceived(), changed: make(chan struct{}), acks: newFrameWriter(), acksDue: make(chan struct{}, 1), over: make(chan struct{}), begun: make(chan struct{}),
	}
	t.Cleanup(func() { p.close() })
	switch m {
	case acknowledging:
		go p.writeAcknowledgements()
		go p.readFrames(true)
	case onlyReading:
		go p.readFrames(false)
	case notReading:
	}
	return p
}

// openGate lets the calls that wait for the gate go on.
func (s *testServer) openGate() { s.opened.Do(func() { close(s.gate) }) }

// connect returns an acknowledging client that has sent its preface.
func (s *testServer) connect(t testing.TB, settings ...http2.Setting) *testClient {
	t.Helper()
	return s.connectAs(t, acknowledging, settings...)
}

// connectAs returns a client that has sent its preface.
func (s *testServer) connectAs(t testing.TB, m behavior, settings ...http2.Setting) *testClient {
	t.Helper()
	p := newClient(t, s.l.dial(t), m)
	p.send(func(w *frameWriter) { w.preface(settings...) })
	return p
}

func (p *testClient) close() { p.conn.Close() }

// tryToSend sends what f writes, in one Write.
func (p *testClient) tryToSend(f func(*frameWriter)) error {
	p.writing <- struct{}{}
	defer func() { <-p.writing }()
	f(p.w)
	_, err := p.w.WriteTo(p.conn)
	p.begin.Do(func() { close(p.begun) })
	p.w.Reset()
	return err
}

// send sends what f writes. The test fails if that is not possible.
func (p *testClient) send(f func(*frameWriter)) {
	p.t.Helper()
	if err := p.tryToSend(f); err != nil {
		p.t.Fatalf("write: %v; read so far: %v", err, p.describe())
	}
}

// frames allows the server to send frames of n bytes.
func (p *testClient) frames(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read.frame = max(p.read.frame, n)
}

// readFrames reads until the connection ends.
func (p *testClient) readFrames(acknowledging bool) {
	defer close(p.over)
	fr := http2.NewFramer(nil, p.conn)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := fr.ReadFrame()
		p.mu.Lock()
		if err != nil {
			p.read.err = err
			if !errors.Is(err, io.EOF) && !gone(err) {
				p.read.fault("what cannot be read: %v (%v)", err, fr.ErrorDetail())
			}
		} else {
			p.read.record(f)
			if acknowledging {
				p.acknowledge(f)
			}
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// gone reports whether err says that the connection was closed or reset.
func gone(err error) bool {
	var op *net.OpError
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// acknowledge prepares the acknowledgement of a frame. It does not wait, so that the
// client reads on.
func (p *testClient) acknowledge(f http2.Frame) {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return
		}
		must(p.acks.fr.WriteSettingsAck())
	case *http2.PingFrame:
		if f.IsAck() {
			return
		}
		must(p.acks.fr.WritePing(true, f.Data))
	case *http2.DataFrame:
		if f.Length == 0 {
			return
		}
		p.acks.update(0, f.Length)
		if !f.StreamEnded() {
			p.acks.update(f.StreamID, f.Length)
		}
	default:
		return
	}
	select {
	case p.acksDue <- struct{}{}:
	default:
	}
}

// writeAcknowledgements writes the acknowledgements that are prepared.
func (p *testClient) writeAcknowledgements() {
	select {
	case <-p.begun:
	case <-p.over:
		return
	}
	for {
		select {
		case <-p.acksDue:
		case <-p.over:
			return
		}
		p.writing <- struct{}{}
		p.mu.Lock()
		b := slices.Clone(p.acks.Bytes())
		p.acks.Reset()
		p.mu.Unlock()
		_, _ = p.conn.Write(b)
		<-p.writing
	}
}

// waitUntil waits until ok is true or the connection ends, for at most waitTimeout. It
// reports whether ok is true.
func (p *testClient) waitUntil(ok func(*received) bool) bool {
	late := time.NewTimer(waitTimeout)
	defer late.Stop()
	for {
		p.mu.Lock()
		yes, over, changed := ok(p.read), p.read.err != nil, p.changed
		p.mu.Unlock()
		if yes || over {
			return yes
		}
		select {
		case <-changed:
		case <-late.C:
			return false
		}
	}
}

// waitFor is waitUntil for a condition that must become true.
func (p *testClient) waitFor(what string, ok func(*received) bool) {
	p.t.Helper()
	if !p.waitUntil(ok) {
		p.t.Fatalf("no %s; read so far: %v", what, p.describe())
	}
}

// describe returns what was read, for errors.
func (p *testClient) describe() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	n := 0
	for id, a := range p.read.answers {
		if n++; n > 8 {
			b.WriteString("...; ")
			break
		}
		b.WriteString(strings.Join([]string{"stream", strconv.Itoa(int(id)), a.String()}, " ") + "; ")
	}
	for _, g := range p.read.goAways {
		b.WriteString("GOAWAY " + g.code.String() + " " + g.debug + " last " + strconv.Itoa(int(g.last)) + "; ")
	}
	if p.read.err != nil {
		b.WriteString("then " + p.read.err.Error())
	}
	return b.String()
}

// goAways returns the GOAWAYs so far.
func (p *testClient) goAways() []goAway {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.read.goAways)
}

// pings returns how many PINGs were received, and how many answers to PINGs.
func (p *testClient) pings() (asked, answered int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.read.pings), len(p.read.pongs)
}

// answerSoFar returns what was received on a stream.
func (p *testClient) answerSoFar(id uint32) *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := *p.read.of(id)
	return &a
}

// start sends a call and returns its stream.
func (p *testClient) start(method string, message []byte, more ...string) uint32 {
	p.t.Helper()
	id := p.next
	p.next += 2
	p.send(func(w *frameWriter) { w.call(id, method, message, more...) })
	return id
}

// answer waits for the end of a call and returns its answer.
func (p *testClient) answer(id uint32) *answer {
	p.t.Helper()
	p.waitFor("answer on stream "+strconv.Itoa(int(id)), func(r *received) bool { return r.of(id).over() })
	return p.answerSoFar(id)
}

// call sends a call and returns its answer.
func (p *testClient) call(method string, message []byte, more ...string) *answer {
	p.t.Helper()
	return p.answer(p.start(method, message, more...))
}

// echo checks that calls are answered.
func (p *testClient) echo() {
	p.t.Helper()
	p.mustEcho("Echo")
}

func (p *testClient) mustEcho(method string) {
	p.t.Helper()
	a := p.call(method, value("hello"))
	if a.last("grpc-status") != "0" || content(p.t, a) != "hello" {
		p.t.Fatalf("%s was answered %v", method, a)
	}
}

// goAway waits for a GOAWAY and returns the last one.
func (p *testClient) goAway() goAway {
	p.t.Helper()
	p.waitFor("GOAWAY", func(r *received) bool { return len(r.goAways) > 0 })
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read.goAways[len(p.read.goAways)-1]
}

// waitClosed waits until the server has closed the connection.
func (p *testClient) waitClosed() {
	p.t.Helper()
	p.waitClosedIn(waitTimeout)
}

func (p *testClient) waitClosedIn(d time.Duration) {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(d):
		p.t.Fatalf("the connection is still open; read so far: %v", p.describe())
	}
}

// alive reports whether the connection is open.
func (p *testClient) alive() bool {
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// checkFaults fails the test if the server has sent what it must not send.
func (p *testClient) checkFaults() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.read.faults {
		p.t.Errorf("the server sent %s", f)
	}
}
