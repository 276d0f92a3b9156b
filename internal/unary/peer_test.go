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

	"github.com/slidegate/slidegate/internal/unary"
)

// A transport is either server.
type transport interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
	GracefulStop()
	Stop()
}

// A kind makes servers that serve the player.
type kind struct {
	name string
	make func(*player, unary.Options) transport
}

var (
	lean     = kind{"unary", newUnary}
	standard = kind{"standard", newStandard}
)

func newUnary(p *player, o unary.Options) transport {
	o.Interceptor = intercept
	s := unary.NewServer(o)
	s.RegisterService(p.desc(), p)
	p.handle(s)
	return s
}

// newStandard has grpc-go do what Options say, as far as it can.
func newStandard(p *player, o unary.Options) transport {
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(intercept),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.MinPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: o.KeepaliveTime, Timeout: o.KeepaliveTimeout,
			MaxConnectionIdle: o.MaxConnectionIdle, MaxConnectionAge: o.MaxConnectionAge,
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

// A stage is a server that is running, with what it serves.
type stage struct {
	*player
	transport
	l      *hall
	opened sync.Once // the gate
}

// newStage serves on l until the test ends.
func newStage(t testing.TB, k kind, o unary.Options, l *hall) *stage {
	t.Helper()
	p := newPlayer()
	s := &stage{player: p, transport: k.make(p, o), l: l}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.open()
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve returned %v", err)
		}
		for _, c := range l.conns() {
			c.abandon()
		}
	})
	return s
}

// A hall is a listener that remembers its connections and what was read of each.
type hall struct {
	net.Listener // nil: connections are pipes
	calls        chan [2]net.Conn
	closed       chan struct{}
	close        sync.Once
	mu           sync.Mutex
	accepted     []*visitor
}

// pipes returns a listener whose connections are pipes, which a bubble of synctest
// can wait for. They buffer nothing.
func pipes() *hall { return &hall{calls: make(chan [2]net.Conn), closed: make(chan struct{})} }

// loopback returns a listener for TCP.
func loopback(t testing.TB) *hall {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &hall{Listener: l}
}

// A visitor is the server's end of a connection.
type visitor struct {
	net.Conn
	other  net.Conn // the client's end, of a pipe
	read   atomic.Int64
	wrote  atomic.Int64
	ended  atomic.Bool // the server has closed its side
	closed atomic.Bool // and both
}

func (v *visitor) Read(b []byte) (int, error) {
	n, err := v.Conn.Read(b)
	v.read.Add(int64(n))
	return n, err
}

func (v *visitor) Write(b []byte) (int, error) {
	n, err := v.Conn.Write(b)
	v.wrote.Add(int64(n))
	return n, err
}

// CloseWrite closes the server's side alone, where connections have sides. Of pipes
// the server is told that it has to close them.
func (v *visitor) CloseWrite() error {
	half, ok := v.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	err := half.CloseWrite()
	v.ended.Store(true)
	return err
}

// Close notes that it was.
func (v *visitor) Close() error {
	v.closed.Store(true)
	return v.Conn.Close()
}

// abandon closes the client's end, if the test has not.
func (v *visitor) abandon() {
	if v.other != nil {
		v.other.Close()
	}
}

// Accept implements net.Listener.
func (l *hall) Accept() (net.Conn, error) {
	v := new(visitor)
	if l.Listener != nil {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v.Conn = c
	} else {
		select {
		case ends := <-l.calls:
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
func (l *hall) Close() error {
	if l.Listener != nil {
		return l.Listener.Close()
	}
	l.close.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *hall) Addr() net.Addr {
	if l.Listener != nil {
		return l.Listener.Addr()
	}
	return &net.UnixAddr{Name: "pipe", Net: "unix"}
}

func (l *hall) conns() []*visitor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.accepted)
}

// dial returns a connection to the server, and the server's end of it once it has
// been accepted, if connections are made one at a time.
func (l *hall) dial(t testing.TB) net.Conn {
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
	case l.calls <- [2]net.Conn{near, far}:
	case <-l.closed:
		t.Fatal("dialled a listener that is closed")
	}
	return near
}

// A wire writes frames into a buffer, in whatever order and however broken.
type wire struct {
	bytes.Buffer
	fr    *http2.Framer
	enc   *hpack.Encoder
	block bytes.Buffer
}

func newWire() *wire {
	w := new(wire)
	w.fr = http2.NewFramer(&w.Buffer, nil)
	w.fr.AllowIllegalWrites = true
	w.enc = hpack.NewEncoder(&w.block)
	return w
}

// preface is what a client begins with.
func (w *wire) preface(settings ...http2.Setting) {
	w.WriteString(http2.ClientPreface)
	w.settings(settings...)
}

func (w *wire) settings(s ...http2.Setting) { must(w.fr.WriteSettings(s...)) }

// fields encodes a header block, which is valid until the next.
func (w *wire) fields(fields []hpack.HeaderField) []byte {
	w.block.Reset()
	for _, f := range fields {
		must(w.enc.WriteField(f))
	}
	return w.block.Bytes()
}

func (w *wire) headers(id uint32, end bool, fields []hpack.HeaderField) {
	must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.fields(fields), EndStream: end, EndHeaders: true}))
}

func (w *wire) data(id uint32, end bool, b []byte) { must(w.fr.WriteData(id, end, b)) }

func (w *wire) update(id, n uint32) { must(w.fr.WriteWindowUpdate(id, n)) }

func (w *wire) reset(id uint32, code http2.ErrCode) { must(w.fr.WriteRSTStream(id, code)) }

// call is a whole call.
func (w *wire) call(id uint32, method string, message []byte, more ...string) {
	w.headers(id, false, request(method, more...))
	w.data(id, true, framed(0, message))
}

// raw is a frame of any type and flags, whose payload is what it is.
func (w *wire) raw(typ http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	must(w.fr.WriteRawFrame(typ, flags, id, payload))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// request is the header fields of a call. more are fields as "name: value", which
// take the place of those of the same name; "-name" takes one away.
func request(method string, more ...string) []hpack.HeaderField {
	path := method
	if !strings.HasPrefix(method, "/") {
		path = play + method
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

// framed is a message with its prefix.
func framed(flag byte, message []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(message)))
	return append(b, message...)
}

// value is an encoded BytesValue.
func value(s string) []byte {
	if s == "" {
		return nil
	}
	return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), s)
}

// content is what is in an encoded BytesValue that came as one whole message.
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

// A peer is a client that may do anything. It reads all the time, unless it is made
// deaf; acknowledges SETTINGS and PINGs and gives windows back, unless it is rude.
type peer struct {
	t    testing.TB
	conn net.Conn
	next uint32

	// turn is held to write. A channel, which a bubble can see waiting.
	turn chan struct{}
	w    *wire

	mu      sync.Mutex
	read    *reading
	changed chan struct{} // closed at each change
	due     *wire         // what courtesy asks for, to be written
	owed    chan struct{}
	over    chan struct{} // closed when reading has ended
	begun   chan struct{} // closed when something was sent: courtesy comes behind the preface
	begin   sync.Once
}

// A manner is how a peer behaves.
type manner int

const (
	polite manner = iota
	rude          // answers nothing by itself, but reads
	deaf          // does not even read
)

// newPeer connects, without sending anything.
func newPeer(t testing.TB, conn net.Conn, m manner) *peer {
	t.Helper()
	p := &peer{
		t: t, conn: conn, next: 1, turn: make(chan struct{}, 1), w: newWire(),
		read: newReading(), changed: make(chan struct{}), due: newWire(), owed: make(chan struct{}, 1), over: make(chan struct{}), begun: make(chan struct{}),
	}
	t.Cleanup(func() { p.close() })
	switch m {
	case polite:
		go p.courtesy()
		go p.listen(true)
	case rude:
		go p.listen(false)
	case deaf:
	}
	return p
}

// open has calls that wait answered.
func (s *stage) open() { s.opened.Do(func() { close(s.gate) }) }

// connect connects and begins, politely.
func (s *stage) connect(t testing.TB, settings ...http2.Setting) *peer {
	t.Helper()
	return s.visit(t, polite, settings...)
}

// visit connects and begins.
func (s *stage) visit(t testing.TB, m manner, settings ...http2.Setting) *peer {
	t.Helper()
	p := newPeer(t, s.l.dial(t), m)
	p.send(func(w *wire) { w.preface(settings...) })
	return p
}

func (p *peer) close() { p.conn.Close() }

// try writes what f makes, in one Write.
func (p *peer) try(f func(*wire)) error {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	f(p.w)
	_, err := p.w.WriteTo(p.conn)
	p.begin.Do(func() { close(p.begun) })
	p.w.Reset()
	return err
}

// send is try, of what must be possible.
func (p *peer) send(f func(*wire)) {
	p.t.Helper()
	if err := p.try(f); err != nil {
		p.t.Fatalf("write: %v; read so far: %v", err, p.told())
	}
}

// frames says how large frames may become.
func (p *peer) frames(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read.frame = max(p.read.frame, n)
}

// listen reads until the connection ends.
func (p *peer) listen(polite bool) {
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
			p.read.take(f)
			if polite {
				p.owe(f)
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

// gone says whether a connection was closed or reset, as opposed to broken.
func gone(err error) bool {
	var op *net.OpError
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// owe notes what a frame is to be answered with. It never waits: a server that
// waits for its own answers to be read is read on.
func (p *peer) owe(f http2.Frame) {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return
		}
		must(p.due.fr.WriteSettingsAck())
	case *http2.PingFrame:
		if f.IsAck() {
			return
		}
		must(p.due.fr.WritePing(true, f.Data))
	case *http2.DataFrame:
		if f.Length == 0 {
			return
		}
		p.due.update(0, f.Length)
		if !f.StreamEnded() {
			p.due.update(f.StreamID, f.Length)
		}
	default:
		return
	}
	select {
	case p.owed <- struct{}{}:
	default:
	}
}

// courtesy writes what is owed.
func (p *peer) courtesy() {
	select {
	case <-p.begun:
	case <-p.over:
		return
	}
	for {
		select {
		case <-p.owed:
		case <-p.over:
			return
		}
		p.turn <- struct{}{}
		p.mu.Lock()
		b := slices.Clone(p.due.Bytes())
		p.due.Reset()
		p.mu.Unlock()
		_, _ = p.conn.Write(b)
		<-p.turn
	}
}

// until waits until something is true of what was read, or nothing more will be.
func (p *peer) until(ok func(*reading) bool) bool {
	late := time.NewTimer(soon)
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

// await is until, of what must come.
func (p *peer) await(what string, ok func(*reading) bool) {
	p.t.Helper()
	if !p.until(ok) {
		p.t.Fatalf("no %s; read so far: %v", what, p.told())
	}
}

// told says what was read, for errors.
func (p *peer) told() string {
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
	for _, g := range p.read.farewells {
		b.WriteString("GOAWAY " + g.code.String() + " " + g.debug + " last " + strconv.Itoa(int(g.last)) + "; ")
	}
	if p.read.err != nil {
		b.WriteString("then " + p.read.err.Error())
	}
	return b.String()
}

// farewells returns the GOAWAYs so far.
func (p *peer) farewells() []farewell {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.read.farewells)
}

// pings returns how many PINGs have come, and how many answers to PINGs.
func (p *peer) pings() (asked, answered int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.read.pings), len(p.read.pongs)
}

// sofar returns what has come on a stream.
func (p *peer) sofar(id uint32) *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := *p.read.of(id)
	return &a
}

// start begins a call whose message has ended.
func (p *peer) start(method string, message []byte, more ...string) uint32 {
	p.t.Helper()
	id := p.next
	p.next += 2
	p.send(func(w *wire) { w.call(id, method, message, more...) })
	return id
}

// answer waits for the end of a call.
func (p *peer) answer(id uint32) *answer {
	p.t.Helper()
	p.await("answer on stream "+strconv.Itoa(int(id)), func(r *reading) bool { return r.of(id).over() })
	return p.sofar(id)
}

// call calls and waits for the answer.
func (p *peer) call(method string, message []byte, more ...string) *answer {
	p.t.Helper()
	return p.answer(p.start(method, message, more...))
}

// echo makes sure that calls are answered.
func (p *peer) echo() {
	p.t.Helper()
	p.mustEcho("Echo")
}

func (p *peer) mustEcho(method string) {
	p.t.Helper()
	a := p.call(method, value("hello"))
	if a.last("grpc-status") != "0" || content(p.t, a) != "hello" {
		p.t.Fatalf("%s was answered %v", method, a)
	}
}

// farewell waits for a GOAWAY.
func (p *peer) farewell() farewell {
	p.t.Helper()
	p.await("GOAWAY", func(r *reading) bool { return len(r.farewells) > 0 })
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read.farewells[len(p.read.farewells)-1]
}

// ended waits until the server has closed the connection.
func (p *peer) ended() {
	p.t.Helper()
	p.endedIn(soon)
}

func (p *peer) endedIn(d time.Duration) {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(d):
		p.t.Fatalf("the connection is still open; read so far: %v", p.told())
	}
}

// alive says whether nothing has ended the connection yet.
func (p *peer) alive() bool {
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// sound makes sure that the server has sent nothing that it must not.
func (p *peer) sound() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.read.faults {
		p.t.Errorf("the server sent %s", f)
	}
}
