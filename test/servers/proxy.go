package servers

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	proxyBuffer = 32 << 10
	// proxyQueue is how many pieces of replies may be on their way at once, per
	// connection. When more come, the server is read no further.
	proxyQueue = 1024
)

// A Proxy stands in front of one server and does to its connections what networks
// do. It starts without faults, and faults can be combined. A fault holds for the
// connections there are and for those to come, until it is switched off.
//
// All methods are safe for concurrent use. A method that switches a fault returns
// when it holds: what reaches the proxy afterwards meets it.
//
// It is our own because toxiproxy, used as a library, closes connections when it
// stops swallowing bytes, does not wait for its goroutines, and brings the router
// of its web server, its logger and its metrics.
type Proxy struct {
	ctx      context.Context // ends the attempts to reach a server that hangs
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	links   map[*link]struct{}
	latency time.Duration
	flows   chan struct{} // closed while bytes may pass; see Blackhole
	drop    bool
	cut     int // negative: not
	refuse  bool
}

// A link is one connection of a client and the one to the server that belongs to
// it.
type link struct {
	client, server net.Conn
	over           chan struct{} // closed when the link ends
	once           sync.Once

	// Guarded by the mutex of the proxy.
	lost bool // some of a reply was thrown away
	left int  // of a reply, until it is cut
}

// end closes both connections and lets go of whoever waits.
func (l *link) end() {
	l.once.Do(func() {
		close(l.over)
		l.client.Close()
		l.server.Close()
	})
}

// StartProxy starts a proxy in front of a server at host:port, for the time of
// the test. The server need not run: then connections are closed at once.
func StartProxy(t TB, target string) *Proxy {
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
// not wait for each other. Zero switches it off, for what comes from then on.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// Blackhole makes connections half-open: they stay, new ones are made, bytes are
// accepted on both sides, and nothing arrives. What was sent meanwhile arrives
// when it is switched off, as with packets that are sent again, even if its sender
// has closed the connection since.
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

// DropReplies swallows replies: requests reach the server and are executed. When
// it is switched off, connections whose replies were swallowed are closed, because
// the next reply would be taken for the one that is missing.
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

// CutAfter closes each connection when n further bytes of replies have passed: in
// the middle of a reply if that is longer, and of the handshake of a new
// connection if n is less than that takes. A negative n switches it off.
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
	replies := make(chan reply, proxyQueue)
	serving.Go(func() { p.requests(l) })
	serving.Go(func() { p.receive(l, replies) })
	serving.Go(func() { p.replies(l, replies) })
	serving.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// requests takes bytes to the server until the client closes.
func (p *Proxy) requests(l *link) {
	defer l.end()
	buffer := make([]byte, proxyBuffer)
	for {
		n, err := l.client.Read(buffer)
		if n > 0 {
			if !p.pass(l) {
				return
			}
			if _, err := l.server.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			p.pass(l) // the end of a connection does not arrive either
			return
		}
	}
}

// reply is what was read from the server at once.
type reply struct {
	data []byte
	due  time.Time
}

// receive reads replies, so that the time of each is known however long the ones
// before it are held up.
func (p *Proxy) receive(l *link, replies chan<- reply) {
	defer close(replies)
	for {
		buffer := make([]byte, proxyBuffer)
		n, err := l.server.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			due := time.Now().Add(p.latency)
			p.mu.Unlock()
			select {
			case replies <- reply{buffer[:n], due}:
			case <-l.over:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// replies takes bytes to the client until the server has closed and all is sent.
func (p *Proxy) replies(l *link, replies <-chan reply) {
	defer l.end()
	for r := range replies {
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
		data, last := p.mangle(l, r.data)
		if _, err := l.client.Write(data); err != nil || last {
			return
		}
	}
	p.pass(l)
}

// pass waits while nothing arrives. It returns false if the link has ended.
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

// mangle returns what is left of a piece of a reply, and whether the connection
// is closed after it.
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
