package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/peer"
)

const (
	// steadyConnections stay, half of them at each address.
	steadyConnections = 8
	// callsOfConnection is how many calls one that comes and goes makes, in the mean.
	callsOfConnection = 15
	// patience is how long an answer may take. Only a missing answer takes longer.
	patience = 20 * time.Second
	// maxWaiting bounds what is under way, should the service hang.
	maxWaiting = 2000
	// narrowWindow is the window of clients that read little at a time.
	narrowWindow = 16
)

// load is all clients.
type load struct {
	ends  []end
	tally *tally
	open  atomic.Int64 // connections, ours and those of clients
}

// run makes calls until ctx ends, and returns when all connections are closed.
func (l *load) run(ctx context.Context, rate int) error {
	steady := make([]*grpc.ClientConn, steadyConnections)
	for i := range steady {
		var err error
		if steady[i], err = l.client(l.ends[i%len(l.ends)], "steady"); err != nil {
			return err
		}
		defer steady[i].Close()
	}
	var running sync.WaitGroup
	half := float64(rate) / 2
	running.Go(func() {
		traffic.Every(ctx, seconds(1/half), maxWaiting, func(n int) { l.call(steady[n%len(steady)], anyCall(), "steady") })
	})
	running.Go(func() {
		traffic.Every(ctx, seconds(callsOfConnection/half), maxWaiting, func(n int) { l.visit(n) })
	})
	for i := range l.ends {
		running.Go(func() {
			traffic.Every(ctx, time.Second, maxWaiting, func(int) { l.call(steady[i], healthCheck(), "steady") })
		})
	}
	for _, e := range l.ends {
		running.Go(func() {
			for ctx.Err() == nil {
				l.visited("old", l.old(ctx, e, "old"))
			}
		})
	}
	running.Wait()
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// counted is a connection that is counted as long as it is open.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// cut closes the connection so that the other end sees an error, where the network
// has such a thing.
func (c *counted) cut() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // if it fails, the connection is closed without a reset
	}
	_ = c.Close() // with a reset
}

// dial connects. The second result is the connection below TLS.
func (l *load) dial(e end, kind string) (net.Conn, *counted, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, e.network, e.address)
	if err != nil {
		return nil, nil, err
	}
	l.open.Add(1)
	l.tally.connected(kind)
	c := &counted{Conn: conn, open: &l.open}
	// Reads end after patience too.
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	if e.tls == nil {
		return c, c, nil
	}
	secure := tls.Client(c, e.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return secure, c, nil
}

// client returns a client of grpc-go. Its connections are counted.
func (l *load) client(e end, kind string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///soak",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // TLS is below, where it is used
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			conn, _, err := l.dial(e, kind)
			if err != nil {
				return nil, err
			}
			return conn, conn.SetDeadline(time.Time{})
		}))
}

// call makes a call that must be answered.
func (l *load) call(conn grpc.ClientConnInterface, q *call, how string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.tally.called(q, how, q.ask(ctx, conn))
}

// visit opens one connection, makes calls and closes it. Kinds and addresses take turns.
func (l *load) visit(n int) {
	kinds := []struct {
		name  string
		visit func(e end, kind string, calls int) error
	}{
		{"proper", l.proper},
		{"hasty", l.hasty},
		{"reset", l.reset},
		{"narrow", l.narrow},
		{"cut", l.cut},
		{"silent", l.silent},
	}
	k, e := kinds[n%len(kinds)], l.ends[n/len(kinds)%len(l.ends)]
	l.visited(k.name, k.visit(e, k.name, 1+rand.IntN(2*callsOfConnection)))
}

// visited counts a failed connection as a failed call, because no more calls could be
// made on it.
func (l *load) visited(kind string, err error) {
	if err != nil {
		l.tally.called(&call{kind: limitCall}, kind, status.Error(codes.Unavailable, err.Error()))
	}
}

// upTo waits for a random time.
func upTo(d time.Duration) { time.Sleep(rand.N(d)) }

func (l *load) proper(e end, kind string, n int) error {
	conn, err := l.client(e, kind)
	if err != nil {
		return err
	}
	defer conn.Close()
	var together sync.WaitGroup
	defer together.Wait()
	for range n {
		if rand.IntN(2) == 0 {
			together.Go(func() { l.call(conn, anyCall(), kind) })
			continue
		}
		l.call(conn, anyCall(), kind)
		upTo(200 * time.Millisecond)
	}
	return nil
}

func (l *load) hasty(e end, kind string, n int) error {
	conn, err := l.client(e, kind)
	if err != nil {
		return err
	}
	defer conn.Close()
	l.call(conn, anyCall(), kind) // connected from here on
	for range n {
		q := anyCall()
		if rand.IntN(2) == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), rand.N(2*time.Millisecond))
			l.tally.excused(q, kind, q.ask(ctx, conn), codes.DeadlineExceeded)
			cancel()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(rand.N(time.Millisecond), cancel)
		l.tally.excused(q, kind, q.ask(ctx, conn), codes.Canceled)
		timer.Stop()
		cancel()
		upTo(50 * time.Millisecond)
	}
	l.call(conn, anyCall(), kind)
	return nil
}

// raw connects with a client that controls single frames.
func (l *load) raw(e end, kind string, window uint32) (*peer.Peer, *counted, error) {
	conn, below, err := l.dial(e, kind)
	if err != nil {
		return nil, nil, err
	}
	p, err := peer.New(conn, window)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return p, below, nil
}

// send opens a stream with the headers of a call and sends a part of it.
func send(p *peer.Peer, q *call, all bool) (stream uint32, err error) {
	message, err := proto.Marshal(q.Request)
	if err != nil {
		return 0, err
	}
	if all {
		return p.Call(q.Method, message)
	}
	if stream, err = p.Open(q.Method); err != nil {
		return 0, err
	}
	frame := peer.Frame(message)
	return stream, p.Send(stream, frame[:rand.IntN(len(frame))], false)
}

// ask makes a call that must be answered. An error is one of the connection.
func (l *load) ask(p *peer.Peer, q *call, kind string) error {
	stream, err := send(p, q, true)
	if err != nil {
		return err
	}
	return l.answered(p, stream, q, kind)
}

// answered waits for an answer that must come.
func (l *load) answered(p *peer.Peer, stream uint32, q *call, kind string) error {
	a, err := p.Answer(stream)
	if err != nil {
		return err
	}
	switch {
	case a.WasReset:
		err = status.Errorf(codes.Unavailable, "reset: %v", a.Reset)
	case a.Status != "0":
		err = fmt.Errorf("%w: status %q %s", traffic.ErrWrong, a.Status, a.Text)
	default:
		err = q.Read(a.Message)
	}
	l.tally.called(q, kind, err)
	return nil
}

func (l *load) reset(e end, kind string, n int) (err error) {
	p, _, err := l.raw(e, kind, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for range n {
		q := anyCall()
		stream, err := send(p, q, rand.IntN(2) == 0)
		if err != nil {
			return err
		}
		if rand.IntN(2) == 0 { // the server has begun with it
			if err := p.Flush(); err != nil {
				return err
			}
			upTo(time.Millisecond)
		}
		if err := p.Reset(stream); err != nil {
			return err
		}
		l.tally.excused(q, kind, status.Error(codes.Canceled, ""), codes.Canceled)
	}
	return l.ask(p, anyCall(), kind)
}

func (l *load) narrow(e end, kind string, n int) (err error) {
	p, _, err := l.raw(e, kind, narrowWindow)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for range n {
		if err := l.ask(p, anyCall(), kind); err != nil {
			return err
		}
		upTo(100 * time.Millisecond)
	}
	return nil
}

func (l *load) cut(e end, kind string, n int) error {
	p, below, err := l.raw(e, kind, 0)
	if err != nil {
		return err
	}
	defer below.cut()
	if rand.IntN(2) == 0 {
		if err := l.ask(p, anyCall(), kind); err != nil {
			return err
		}
	}
	for range n {
		q := anyCall()
		if _, err := send(p, q, rand.IntN(4) > 0); err != nil {
			return err
		}
		l.tally.excused(q, kind, status.Error(codes.Canceled, ""), codes.Canceled)
	}
	return p.Flush()
}

// old is a connection that stays until the server sends GOAWAY. At that time it has a
// call whose message is not complete.
func (l *load) old(ctx context.Context, e end, kind string) (err error) {
	p, below, err := l.raw(e, kind, 0)
	if err != nil {
		return err
	}
	defer func() {
		if closed := p.Close(); !p.Gone() { // else the server was first, maybe
			err = errors.Join(err, closed)
		}
	}()
	if err := below.SetDeadline(time.Now().Add(2*maxAge + patience)); err != nil {
		return err
	}
	for ctx.Err() == nil && !p.Gone() {
		q := anyCall()
		message, err := proto.Marshal(q.Request)
		if err != nil {
			return err
		}
		stream, err := p.Open(q.Method)
		if err != nil {
			return err
		}
		frame := peer.Frame(message)
		half := rand.IntN(len(frame))
		if err := errors.Join(p.Send(stream, frame[:half], false), p.Settle()); err != nil {
			return err
		}
		upTo(time.Second)
		if err := errors.Join(p.Settle(), p.Send(stream, frame[half:], true)); err != nil {
			return err
		}
		if err := l.answered(p, stream, q, kind); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) silent(e end, kind string, _ int) error {
	if rand.IntN(2) == 0 {
		conn, _, err := l.dial(e, kind)
		if err != nil {
			return err
		}
		upTo(3 * time.Second)
		return conn.Close()
	}
	p, _, err := l.raw(e, kind, 0)
	if err != nil {
		return err
	}
	err = p.Settle()
	upTo(3 * time.Second)
	return errors.Join(err, p.Close())
}
