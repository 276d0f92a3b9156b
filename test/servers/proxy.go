package servers

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

const (
	proxyBuffer = 32 << 10
	// proxyQueue bounds how many pieces wait on one connection in one direction. While it
	// is full, the proxy does not read from the sender.
	proxyQueue = 1024
)

// A Proxy stands in front of one server and makes the faults of a network on its
// connections. It starts without faults, and faults can be combined. A fault applies
// to open and to new connections until it is switched off.
//
// All methods are safe for concurrent use. When a method that switches a fault has
// returned, the fault applies to everything that reaches the proxy.
//
// We do not use toxiproxy as a library. It closes connections when it stops dropping
// bytes, does not wait for its goroutines, and needs a router, a logger and metrics.
type Proxy struct {
	ctx      context.Context // ends the attempts to reach a server that hangs
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{}
	there  direction // from clients to the server
	back   direction
	flows  chan struct{} // closed while bytes may pass; see Blackhole
	drop   bool
	cut    int // negative: not
	refuse bool
}

// A direction is what the proxy does to bytes on one way, and how many have passed.
type direction struct {
	latency time.Duration
	bytes   int64
}

// A link is one connection of a client and its connection to the server.
type link struct {
	client, server net.Conn
	over           chan struct{} // closed when the link ends
	once           sync.Once

	// Guarded by the mutex of the proxy.
	lost bool // a part of a reply was dropped
	left int  // bytes of replies until the cut
}

// end closes both connections and releases goroutines that wait.
func (l *link) end() {
	l.once.Do(func() {
		close(l.over)
		l.client.Close()
		l.server.Close()
	})
}

// StartProxy starts a proxy in front of a server at host:port, for the time of
// the test. While the server does not run, connections are closed at once.
func StartProxy(t process.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("servers: starting a proxy: %v", err)
		return nil
	}
	p := &Proxy{
		ctx:      t.Context(),
		target:   target,
		listener: listener,
		links:    make(map[*link]struct{}),
		flows:    make(chan struct{}),
		cut:      -1,
	}
	close(p.flows)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		listener.Close()
		p.CloseAll()
		p.running.Wait()
	})
	return p
}

// Addr returns host:port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Latency adds d to the time that each reply takes. Replies stay in order and do
// not wait for each other. Zero switches it off for later replies.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there.latency, p.back.latency = 0, d
}

// Distance adds d to each round trip, half of it on each way, as a long line does. It replaces
// Latency. Zero switches it off for later bytes.
func (p *Proxy) Distance(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there.latency, p.back.latency = d/2, d/2
}

// Passed returns how many bytes have come from clients and from the server.
func (p *Proxy) Passed() (there, back int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.there.bytes, p.back.bytes
}

// Blackhole makes connections half-open: both sides can connect and send, and nothing
// arrives. When it is switched off, everything that was sent arrives, even if its
// sender has closed the connection since. TCP does the same by sending packets again.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flows:
		if on {
			p.flows = make(chan struct{})
		}
	default:
		if !on {
			close(p.flows)
		}
	}
}

// DropReplies drops replies: requests reach the server and are executed. When it is
// switched off, connections that lost a reply are closed, because the client would
// take the next reply for the lost one.
func (p *Proxy) DropReplies(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = on
	if on {
		return
	}
	for l := range p.links {
		if l.lost {
			l.end()
		}
	}
}

// CutAfter closes each connection after n more bytes of replies. That may be in the middle of
// a reply, or of the handshake of a new connection. A negative n switches it off.
func (p *Proxy) CutAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = n
	for l := range p.links {
		l.left = n
	}
}

// Refuse closes new connections as soon as they are made.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// CloseAll closes all connections.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end()
	}
}

// Connections returns how many connections there are.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		p.running.Go(func() { p.connect(client) })
	}
}

// connect makes a link and serves it until it ends.
func (p *Proxy) connect(client net.Conn) {
	p.mu.Lock()
	refuse := p.refuse
	p.mu.Unlock()
	if refuse {
		client.Close()
		return
	}
	server, err := new(net.Dialer).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	l := &link{client: client, server: server, over: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.end()
		return
	}
	l.left = p.cut
	p.links[l] = struct{}{}
	p.mu.Unlock()

	var serving sync.WaitGroup
	serving.Go(func() { p.carry(l, client, server, &p.there, nil) })
	serving.Go(func() { p.carry(l, server, client, &p.back, p.mangle) })
	serving.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// A piece is the bytes of one read.
type piece struct {
	data []byte
	due  time.Time
}

// carry takes bytes on one way until the sender has closed and all is sent. mangle is for
// faults; nil: none.
func (p *Proxy) carry(l *link, from, to net.Conn, d *direction, mangle func(*link, []byte) ([]byte, bool)) {
	pieces := make(chan piece, proxyQueue)
	p.running.Go(func() { p.receive(l, from, d, pieces) })
	defer l.end()
	for r := range pieces {
		if wait := time.Until(r.due); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-l.over:
				timer.Stop()
				return
			}
		}
		if !p.pass(l) {
			return
		}
		last := false
		if mangle != nil {
			r.data, last = mangle(l, r.data)
		}
		if _, err := to.Write(r.data); err != nil || last {
			return
		}
	}
	p.pass(l) // the black hole holds back the end of a connection too
}

// receive reads pieces. It notes when each is due, even while earlier ones are delayed.
func (p *Proxy) receive(l *link, from net.Conn, d *direction, pieces chan<- piece) {
	defer close(pieces)
	buffer := make([]byte, proxyBuffer)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			due := time.Now().Add(d.latency)
			d.bytes += int64(n)
			p.mu.Unlock()
			select {
			case pieces <- piece{bytes.Clone(buffer[:n]), due}:
			case <-l.over:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while there is a black hole. It returns false if the link has ended.
func (p *Proxy) pass(l *link) bool {
	p.mu.Lock()
	flows := p.flows
	p.mu.Unlock()
	select {
	case <-flows:
		return true
	case <-l.over:
		return false
	}
}

// mangle returns the part of a piece of a reply that passes, and whether the
// connection is closed after it.
func (p *Proxy) mangle(l *link, data []byte) (left []byte, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drop {
		l.lost = true
		return nil, false
	}
	if l.left < 0 {
		return data, false
	}
	if len(data) < l.left {
		l.left -= len(data)
		return data, false
	}
	return data[:l.left], true
}
