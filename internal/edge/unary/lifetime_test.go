package unary_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// certificate returns a server's settings for TLS.
func certificate(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"test"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
}

// withServer runs f with a server whose connections are pipes, in a bubble.
func withServer(t *testing.T, o unary.Options, f func(t *testing.T, s *testServer, l *meters)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		meters := newCountingMeters()
		o.Meters = meters
		s := startServer(t, ours, o, pipes())
		f(t, s, meters)
		s.openGate()
		s.Stop()
		synctest.Wait()
		if meters.opened != meters.closed || meters.opened == 0 {
			t.Errorf("%d connections were opened, and %d closed", meters.opened, meters.closed)
		}
	})
}

// checkDuration checks how long something took. It allows for a tick of the server.
func checkDuration(t *testing.T, what string, since time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(since); got < want || got > want+want/4+2*time.Second {
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}

func TestKeepalive(t *testing.T) {
	o := unary.Options{Lifetime: unary.Lifetime{KeepaliveTime: time.Minute, KeepaliveTimeout: 10 * time.Second}}
	t.Run("a client that is gone", func(t *testing.T) {
		withServer(t, o, func(t *testing.T, s *testServer, l *meters) {
			p := s.connectAs(t, onlyReading)
			s.startWaiting(t, p, "Wait") // a call does not count as activity
			begun := time.Now()
			synctest.Wait()
			p.waitClosedIn(time.Hour)
			checkDuration(t, "closed", begun, 70*time.Second)
			if n, _ := p.pings(); n != 1 {
				t.Errorf("%d PINGs were sent", n)
			}
			synctest.Wait()
			if n := s.running.Load(); n != 0 {
				t.Errorf("%d calls are still running", n)
			}
			if got := l.goAways(); got["silent"] != 1 {
				t.Errorf("counted %v", got)
			}
		})
	})
	t.Run("a client that answers", func(t *testing.T) {
		withServer(t, o, func(t *testing.T, s *testServer, _ *meters) {
			p := s.connect(t)
			time.Sleep(time.Hour)
			p.echo()
			if n, _ := p.pings(); n < 50 || n > 60 {
				t.Errorf("%d PINGs in an hour", n)
			}
		})
	})
	t.Run("a client that calls", func(t *testing.T) {
		withServer(t, o, func(t *testing.T, s *testServer, _ *meters) {
			p := s.connect(t)
			for range 100 {
				time.Sleep(30 * time.Second)
				p.echo()
			}
			if n, _ := p.pings(); n != 0 {
				t.Errorf("%d PINGs", n)
			}
		})
	})
}

func TestAge(t *testing.T) {
	const age = time.Hour
	withServer(t, unary.Options{Lifetime: unary.Lifetime{MaxConnectionAge: age}}, func(t *testing.T, s *testServer, l *meters) {
		p, begun := s.connect(t), time.Now()
		waiting := s.startWaiting(t, p, "Gate")
		for p.alive() {
			if len(p.goAways()) > 0 {
				break
			}
			if time.Since(begun) > 2*age {
				t.Fatal("it lives too long")
			}
			time.Sleep(time.Second)
		}
		if got := time.Since(begun); got < age*9/10 || got > age*11/10+2*time.Second {
			t.Errorf("the first GOAWAY came after %v", got)
		}
		// A call that has begun is finished, however long it takes.
		time.Sleep(age)
		if !p.alive() {
			t.Fatalf("closed with a call: %v", p.describe())
		}
		s.openGate()
		if a := p.answer(waiting); a.last("grpc-status") != "0" {
			t.Errorf("answered %v", a)
		}
		p.waitClosed()
		if got := l.goAways(); got["age"] != 1 {
			t.Errorf("counted %v", got)
		}
		p.checkFaults()
	})
}

// startWaiting starts a call that waits, and returns when its handler runs.
func (s *testServer) startWaiting(t *testing.T, p *testClient, method string) uint32 {
	t.Helper()
	before := s.begun.Load()
	id := p.start(method, value("x"))
	synctest.Wait()
	if s.begun.Load() != before+1 {
		t.Fatalf("the call does not run: %v", p.describe())
	}
	return id
}

func TestDrain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		m     behavior
		until time.Duration // the second GOAWAY
	}{
		{"a client that answers", acknowledging, 0},
		{"a client that does not answer", onlyReading, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withServer(t, unary.Options{}, func(t *testing.T, s *testServer, l *meters) {
				p, unused := s.connectAs(t, tt.m), s.connect(t)
				waiting := s.startWaiting(t, p, "Gate")
				begun, done := time.Now(), make(chan struct{})
				go func() { s.GracefulStop(); close(done) }()
				p.waitFor("GOAWAY", func(r *received) bool { return len(r.goAways) >= 1 })
				if got := p.goAways()[0]; got.code != http2.ErrCodeNo || got.last != 1<<31-1 {
					t.Errorf("GOAWAYs %v", got)
				}
				unused.waitClosed()
				checkDuration(t, "an unused connection closed", begun, 0)
				if tt.until > 0 {
					p.echo() // the client may not have read the GOAWAY yet
				}
				p.waitFor("GOAWAY", func(r *received) bool { return len(r.goAways) >= 2 })
				checkDuration(t, "the second GOAWAY", begun, tt.until)
				if got := p.goAways()[1]; got.code != http2.ErrCodeNo || got.last != p.next-2 {
					t.Errorf("the second GOAWAY is %v", got)
				}
				// A call that comes now is not served.
				late := p.next
				p.send(func(w *frameWriter) { w.call(late, "Echo", nil) })
				p.next += 2
				time.Sleep(time.Minute)
				if a := p.answerSoFar(late); len(a.headers) > 0 || a.over() {
					t.Errorf("a late call was answered %v", a)
				}
				select {
				case <-done:
					t.Error("GracefulStop has not waited for a call")
				default:
				}
				s.openGate()
				if a := p.answer(waiting); a.last("grpc-status") != "0" {
					t.Errorf("answered %v", a)
				}
				p.waitClosed()
				<-done
				if got := l.goAways(); got["drain"] != 2 {
					t.Errorf("counted %v", got)
				}
				p.checkFaults()
				unused.checkFaults()
			})
		})
	}
}

// TestDrainOfBadClients checks that a bad client cannot keep a server from stopping.
func TestDrainOfBadClients(t *testing.T) {
	o := unary.Options{Lifetime: unary.Lifetime{OpenTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}}
	for _, tt := range []struct {
		name string
		make func(t *testing.T, s *testServer) *testClient
	}{
		{"a client that sends nothing", func(t *testing.T, s *testServer) *testClient { return newClient(t, s.l.dial(t), onlyReading) }},
		{"a client that does not read", func(t *testing.T, s *testServer) *testClient {
			p := newClient(t, s.l.dial(t), notReading)
			go func() { _ = p.tryToSend(func(w *frameWriter) { w.preface(); w.call(1, "Bulk", value("1000000")) }) }()
			return p
		}},
		{"a client that does not close", func(t *testing.T, s *testServer) *testClient { return s.connectAs(t, onlyReading) }},
		{"a client in the middle of a header block", func(t *testing.T, s *testServer) *testClient {
			p := s.connectAs(t, onlyReading)
			p.send(func(w *frameWriter) {
				must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.fields(request("Echo"))}))
			})
			return p
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withServer(t, o, func(t *testing.T, s *testServer, _ *meters) {
				p := tt.make(t, s)
				synctest.Wait()
				begun := time.Now()
				s.GracefulStop()
				if took := time.Since(begun); took > 20*time.Second {
					t.Errorf("it took %v", took)
				}
				p.close()
			})
		})
	}
}

// TestStop checks that Stop ends all connections and handlers before it returns.
func TestStop(t *testing.T) {
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connect(t)
		s.startWaiting(t, p, "Wait")
		s.startWaiting(t, p, "Slow")
		s.Stop()
		if n := s.running.Load(); n != 0 {
			t.Errorf("%d calls run when Stop has returned", n)
		}
		p.waitClosed()
	})
}

func TestDeadline(t *testing.T) {
	for _, method := range []string{"Wait", "Slow"} {
		t.Run(method, func(t *testing.T) {
			withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
				p := s.connect(t)
				begun := time.Now()
				a := p.call(method, nil, "grpc-timeout: 1500m")
				if got := time.Since(begun); got != 1500*time.Millisecond || a.last("grpc-status") != "4" {
					t.Errorf("after %v: %v", got, a)
				}
				p.echo()
			})
		})
	}
}

// TestADeadlineIsNotEarly starts calls just before a tick of the server, with requests that
// are not whole at the tick.
func TestADeadlineIsNotEarly(t *testing.T) {
	const timeout = 500 * time.Millisecond
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connect(t)
		p.echo()
		time.Sleep(990 * time.Millisecond)
		begun := time.Now()
		p.send(func(w *frameWriter) {
			w.headers(3, false, request("Echo", "grpc-timeout: 500m"))
			w.headers(5, false, request("Echo", "grpc-timeout: 500m"))
		})
		p.next = 7
		time.Sleep(timeout - 10*time.Millisecond)
		p.send(func(w *frameWriter) { w.data(3, true, framed(0, value("hello"))) })
		if a := p.answer(3); a.last("grpc-status") != "0" {
			t.Errorf("in time, and answered %v", a)
		}
		synctest.Wait()
		if a := p.answerSoFar(5); a.over() {
			t.Errorf("answered %v after %v, want it after %v", a, time.Since(begun), timeout)
		}
		if a := p.answer(5); a.last("grpc-status") != "4" {
			t.Errorf("never whole, and answered %v", a)
		}
		checkDuration(t, "answered", begun, timeout)
		p.echo()
	})
}

// TestLateCallsDelayNothing has a client that always has a late call. The other timeouts
// of its connection still work.
func TestLateCallsDelayNothing(t *testing.T) {
	// waitUntil starts calls that are late at once until there are n GOAWAYs.
	waitUntil := func(t *testing.T, p *testClient, n int) {
		t.Helper()
		for range 200 {
			p.send(func(w *frameWriter) { w.headers(p.next, false, request("Echo", "grpc-timeout: 1n")) })
			p.next += 2
			time.Sleep(500 * time.Millisecond)
			synctest.Wait() // the server's clock may tick at the same instant
			if len(p.goAways()) >= n {
				return
			}
		}
		t.Errorf("no GOAWAY after %d calls: %v", p.next/2, p.goAways())
	}
	t.Run("age", func(t *testing.T) {
		const age = 30 * time.Second
		withServer(t, unary.Options{Lifetime: unary.Lifetime{MaxConnectionAge: age}}, func(t *testing.T, s *testServer, _ *meters) {
			p, begun := s.connect(t), time.Now()
			waitUntil(t, p, 1)
			checkDuration(t, "the first GOAWAY", begun, age*9/10)
			p.close()
		})
	})
	t.Run("drain", func(t *testing.T) {
		withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
			p := s.connectAs(t, onlyReading)
			p.echo()
			begun, done := time.Now(), make(chan struct{})
			go func() { s.GracefulStop(); close(done) }()
			waitUntil(t, p, 2)
			checkDuration(t, "the second GOAWAY", begun, 5*time.Second)
			p.close()
			<-done
		})
	})
}

// TestServingLater has a server that serves an hour after it was made.
func TestServingLater(t *testing.T) {
	late := serverKind{"late", func(p *testService, o unary.Options) transport {
		s := newUnaryServer(p, o)
		time.Sleep(time.Hour)
		return s
	}}
	synctest.Test(t, func(t *testing.T) {
		meters := newCountingMeters()
		o := unary.Options{Meters: meters, Lifetime: unary.Lifetime{OpenTimeout: 10 * time.Second, MaxConnectionAge: time.Minute, KeepaliveTime: time.Minute}}
		s := startServer(t, late, o, pipes())
		silent, p := newClient(t, s.l.dial(t), onlyReading), s.connect(t)
		p.echo()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if asked, _ := p.pings(); asked > 0 || len(p.goAways()) > 0 || !silent.alive() {
			t.Errorf("after 9 s: %d PINGs; one client has read %v, the other %v; counted %v", asked, p.describe(), silent.describe(), meters.goAways())
		}
		p.echo()
		p.checkFaults()
		p.close()
		silent.close()
	})
}

// TestGoAwaysDoNotGoBack checks that later GOAWAYs never name a higher stream as served,
// not even a call whose header had begun before.
func TestGoAwaysDoNotGoBack(t *testing.T) {
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connectAs(t, onlyReading)
		last := s.startWaiting(t, p, "Gate")
		done := make(chan struct{})
		go func() { s.GracefulStop(); close(done) }()
		p.goAway()
		var rest []byte
		p.send(func(w *frameWriter) {
			block := w.fields(request("Echo"))
			must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: last + 2, BlockFragment: block[:3]}))
			rest = slices.Clone(block[3:])
		})
		p.waitFor("second GOAWAY", func(r *received) bool { return len(r.goAways) == 2 })
		p.send(func(w *frameWriter) {
			must(w.fr.WriteContinuation(last+2, true, rest))
			w.data(last+2, true, framed(0, nil))
			w.call(last+4, "Echo", nil)
			w.data(0, false, nil) // a fault that ends the connection
		})
		p.waitClosed()
		<-done
		for _, g := range p.goAways()[1:] {
			if g.last != last {
				t.Errorf("GOAWAY %v, want %d to be the last", g, last)
			}
		}
		for _, id := range []uint32{last + 2, last + 4} {
			if a := p.answerSoFar(id); a.over() {
				t.Errorf("a late call was answered %v", a)
			}
		}
		if n := len(p.goAways()); n != 3 {
			t.Errorf("%d GOAWAYs, want 3", n)
		}
		p.checkFaults()
	})
}

// A halfPipe is a pipe that accepts CloseWrite. The other end does not see it.
type halfPipe struct{ net.Conn }

func (halfPipe) CloseWrite() error { return nil }

// TestLingering checks that a client has at least a second to read the last frames, however
// long ago the last tick of the server was.
func TestLingering(t *testing.T) {
	const tick = 510 * time.Millisecond
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, s *testServer, p *testClient)
	}{
		{"after a mistake", func(_ *testing.T, _ *testServer, p *testClient) {
			p.send(func(w *frameWriter) { w.data(0, false, nil) })
		}},
		{"after the last answer", func(_ *testing.T, s *testServer, p *testClient) {
			go s.GracefulStop()
			p.goAway()
			p.send(func(w *frameWriter) { must(w.fr.WritePing(true, [8]byte{'d', 'r', 'a', 'i', 'n'})) })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withServer(t, unary.Options{Lifetime: unary.Lifetime{WriteTimeout: 8 * tick}}, func(t *testing.T, s *testServer, _ *meters) {
				near, far := net.Pipe()
				s.l.dialed <- [2]net.Conn{near, halfPipe{far}}
				p := newClient(t, near, onlyReading)
				p.send(func(w *frameWriter) { w.preface() })
				p.echo()
				time.Sleep(3*tick - 10*time.Millisecond)
				begun := time.Now()
				tt.end(t, s, p)
				synctest.Wait()
				if !p.alive() {
					t.Fatalf("closed at once: %v", p.describe())
				}
				p.waitClosed()
				checkDuration(t, "closed", begun, time.Second)
				p.checkFaults()
			})
		})
	}
}

// TestAPingBehindTheEnd has a client that sends PINGs after the server has sent its last
// answer. The client still gets the whole answer.
func TestAPingBehindTheEnd(t *testing.T) {
	const size = 200_000
	l := newCountingMeters()
	s := startServer(t, ours, unary.Options{Meters: l, Lifetime: unary.Lifetime{MinPingInterval: time.Nanosecond}}, loopback(t))
	c := s.l.dial(t)
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(32 << 10); err != nil {
		t.Fatal(err)
	}
	w := newFrameWriter()
	sent := int64(0)
	write := func() {
		t.Helper()
		n, err := w.WriteTo(c)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	w.update(0, 1<<30)
	write()
	waitFor(t, "connection", func() bool { return len(s.l.conns()) == 1 })
	v := s.l.conns()[0]
	if err := v.Conn.(*net.TCPConn).SetWriteBuffer(2 * size); err != nil {
		t.Fatal(err)
	}
	w.call(1, "Bulk", value(strconv.Itoa(size)))
	write()
	waitFor(t, "answer", func() bool { return v.wrote.Load() > size })
	go s.GracefulStop()
	waitFor(t, "GOAWAY", func() bool { return l.goAways()["drain"] == 1 })
	must(w.fr.WritePing(true, [8]byte{'d', 'r', 'a', 'i', 'n'}))
	write()
	waitFor(t, "end", v.ended.Load)
	for range 3 {
		must(w.fr.WritePing(false, [8]byte{7}))
		if _, err := w.WriteTo(c); err != nil {
			break // a reset connection would lose the rest of the answer
		}
		sent += 17
		waitFor(t, "reading", func() bool { return v.read.Load() == sent || v.closed.Load() })
	}
	if err := c.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, c); err != nil || n < size {
		t.Errorf("%d bytes of %d have arrived, then %v", n, size, err)
	}
}

// waitFor polls until ok is true.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > waitTimeout {
			t.Fatalf("no %s", what)
		}
	}
}

// TestCloseOverTLS has a client that does not read the last alert of TLS. The server still
// checks the timeouts of other connections.
func TestCloseOverTLS(t *testing.T) {
	// A goroutine that waits for a mutex stops the clock of a bubble, so this uses real time.
	const timeout = 500 * time.Millisecond
	s := startServer(t, ours, unary.Options{TLS: certificate(t), Lifetime: unary.Lifetime{MaxConnectionAge: 100 * time.Millisecond, OpenTimeout: timeout}}, pipes())
	near := s.l.dial(t)
	c := tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	w := newFrameWriter()
	w.preface()
	if _, err := w.WriteTo(c); err != nil {
		t.Fatal(err)
	}
	for fr, goAways := http2.NewFramer(w, c), 0; goAways < 2; {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			goAways++
		case *http2.PingFrame:
			must(fr.WritePing(true, f.Data))
			go func() { _, _ = w.WriteTo(c) }()
		}
	}
	// The client reads no more.
	other, begun := s.l.dial(t), time.Now()
	if err := other.SetReadDeadline(begun.Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	_, err := other.Read(make([]byte, 1))
	if took := time.Since(begun); !errors.Is(err, io.EOF) || took > 5*timeout {
		t.Errorf("a silent connection has ended after %v with %v, want it after %v", took, err, timeout)
	}
	near.Close()
}

// TestConnectionsThatAreReset checks that a client that resets its connection, as a probe
// of the port does, does not count as a fault.
func TestConnectionsThatAreReset(t *testing.T) {
	preface := newFrameWriter()
	preface.preface()
	for _, tt := range []struct {
		name  string
		tls   bool
		bytes []byte
	}{
		{"at once", false, nil},
		{"in the preface", false, preface.Bytes()[:10]},
		{"behind the preface", false, preface.Bytes()},
		{"in TLS", true, []byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newCountingMeters()
			o := unary.Options{Meters: l}
			if tt.tls {
				o.TLS = certificate(t)
			}
			s := startServer(t, ours, o, loopback(t))
			c := s.l.dial(t).(*net.TCPConn)
			if _, err := c.Write(tt.bytes); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "reading", func() bool {
				conns := s.l.conns()
				return len(conns) == 1 && conns[0].read.Load() == int64(len(tt.bytes))
			})
			if err := c.SetLinger(0); err != nil {
				t.Fatal(err)
			}
			c.Close()
			waitFor(t, "end", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.closed == 1
			})
			if got := l.goAways(); len(got) > 0 {
				t.Errorf("counted %v", got)
			}
		})
	}
}
