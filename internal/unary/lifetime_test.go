package unary_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/slidegate/slidegate/internal/unary"
)

// certificate makes a server's settings for TLS.
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

// inTime plays f to a server whose connections are pipes, in a bubble.
func inTime(t *testing.T, o unary.Options, f func(t *testing.T, s *stage, l *ledger)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger()
		o.Meters = ledger
		s := newStage(t, lean, o, pipes())
		f(t, s, ledger)
		s.open()
		s.Stop()
		synctest.Wait()
		if ledger.opened != ledger.closed || ledger.opened == 0 {
			t.Errorf("%d connections were opened, and %d closed", ledger.opened, ledger.closed)
		}
	})
}

// about makes sure that something took as long as it should, give or take a tick of
// the server's clock.
func about(t *testing.T, what string, since time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(since); got < want || got > want+want/4+2*time.Second {
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}

func TestKeepalive(t *testing.T) {
	o := unary.Options{KeepaliveTime: time.Minute, KeepaliveTimeout: 10 * time.Second}
	t.Run("a client that is gone", func(t *testing.T) {
		inTime(t, o, func(t *testing.T, s *stage, l *ledger) {
			p := s.visit(t, rude)
			s.call(t, p, "Wait") // calls do not keep it alive
			begun := time.Now()
			synctest.Wait()
			p.endedIn(time.Hour)
			about(t, "closed", begun, 70*time.Second)
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
		inTime(t, o, func(t *testing.T, s *stage, _ *ledger) {
			p := s.connect(t)
			time.Sleep(time.Hour)
			p.echo()
			if n, _ := p.pings(); n < 50 || n > 60 {
				t.Errorf("%d PINGs in an hour", n)
			}
		})
	})
	t.Run("a client that calls", func(t *testing.T) {
		inTime(t, o, func(t *testing.T, s *stage, _ *ledger) {
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

func TestIdle(t *testing.T) {
	inTime(t, unary.Options{MaxConnectionIdle: time.Minute}, func(t *testing.T, s *stage, l *ledger) {
		p, busy := s.connect(t), s.connect(t)
		waiting := s.call(t, busy, "Gate")
		time.Sleep(50 * time.Second)
		p.echo()
		begun := time.Now()
		p.endedIn(time.Hour)
		about(t, "closed", begun, time.Minute)
		if got := p.farewells(); len(got) != 2 || got[0].code != http2.ErrCodeNo || got[1].last != 1 {
			t.Errorf("told to go by %v", got)
		}
		time.Sleep(10 * time.Minute)
		if !busy.alive() || len(busy.farewells()) > 0 {
			t.Errorf("a connection with a call counts as idle: %v", busy.told())
		}
		s.open()
		busy.answer(waiting)
		begun = time.Now()
		busy.endedIn(time.Hour)
		about(t, "closed", begun, time.Minute)
		if got := l.goAways(); got["idle"] != 2 {
			t.Errorf("counted %v", got)
		}
		p.sound()
		busy.sound()
	})
}

func TestAge(t *testing.T) {
	const age = time.Hour
	inTime(t, unary.Options{MaxConnectionAge: age}, func(t *testing.T, s *stage, l *ledger) {
		p, begun := s.connect(t), time.Now()
		waiting := s.call(t, p, "Gate")
		for p.alive() {
			if len(p.farewells()) > 0 {
				break
			}
			if time.Since(begun) > 2*age {
				t.Fatal("it lives too long")
			}
			time.Sleep(time.Second)
		}
		if got := time.Since(begun); got < age*9/10 || got > age*11/10+2*time.Second {
			t.Errorf("told to go after %v", got)
		}
		// What was begun is finished, however long it takes.
		time.Sleep(age)
		if !p.alive() {
			t.Fatalf("closed with a call: %v", p.told())
		}
		s.open()
		if a := p.answer(waiting); a.last("grpc-status") != "0" {
			t.Errorf("answered %v", a)
		}
		p.ended()
		if got := l.goAways(); got["age"] != 1 {
			t.Errorf("counted %v", got)
		}
		p.sound()
	})
}

// call begins a call that waits, and returns when it does.
func (s *stage) call(t *testing.T, p *peer, method string) uint32 {
	t.Helper()
	before := s.begun.Load()
	id := p.start(method, value("x"))
	synctest.Wait()
	if s.begun.Load() != before+1 {
		t.Fatalf("the call does not run: %v", p.told())
	}
	return id
}

func TestDrain(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    manner
		told time.Duration // until the second GOAWAY
	}{
		{"a client that answers", polite, 0},
		{"a client that does not", rude, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inTime(t, unary.Options{}, func(t *testing.T, s *stage, l *ledger) {
				p, unused := s.visit(t, tt.m), s.connect(t)
				waiting := s.call(t, p, "Gate")
				begun, done := time.Now(), make(chan struct{})
				go func() { s.GracefulStop(); close(done) }()
				p.await("GOAWAY", func(r *reading) bool { return len(r.farewells) >= 1 })
				if got := p.farewells()[0]; got.code != http2.ErrCodeNo || got.last != 1<<31-1 {
					t.Errorf("told to go by %v", got)
				}
				unused.ended()
				about(t, "an unused connection closed", begun, 0)
				if tt.told > 0 {
					p.echo() // it may not have heard yet
				}
				p.await("GOAWAY", func(r *reading) bool { return len(r.farewells) >= 2 })
				about(t, "told what is served", begun, tt.told)
				if got := p.farewells()[1]; got.code != http2.ErrCodeNo || got.last != p.next-2 {
					t.Errorf("told what is served by %v", got)
				}
				// What comes now is not.
				late := p.next
				p.send(func(w *wire) { w.call(late, "Echo", nil) })
				p.next += 2
				time.Sleep(time.Minute)
				if a := p.sofar(late); len(a.headers) > 0 || a.over() {
					t.Errorf("a late call was answered %v", a)
				}
				select {
				case <-done:
					t.Error("GracefulStop has not waited for a call")
				default:
				}
				s.open()
				if a := p.answer(waiting); a.last("grpc-status") != "0" {
					t.Errorf("answered %v", a)
				}
				p.ended()
				<-done
				if got := l.goAways(); got["drain"] != 2 {
					t.Errorf("counted %v", got)
				}
				p.sound()
				unused.sound()
			})
		})
	}
}

// TestDrainOfBadClients makes sure that nobody can keep a server from stopping.
func TestDrainOfBadClients(t *testing.T) {
	o := unary.Options{OpenTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	for _, tt := range []struct {
		name string
		make func(t *testing.T, s *stage) *peer
	}{
		{"one that says nothing", func(t *testing.T, s *stage) *peer { return newPeer(t, s.l.dial(t), rude) }},
		{"one that does not read", func(t *testing.T, s *stage) *peer {
			p := newPeer(t, s.l.dial(t), deaf)
			go func() { _ = p.try(func(w *wire) { w.preface(); w.call(1, "Bulk", value("1000000")) }) }()
			return p
		}},
		{"one that does not close", func(t *testing.T, s *stage) *peer { return s.visit(t, rude) }},
		{"one in the middle of a header", func(t *testing.T, s *stage) *peer {
			p := s.visit(t, rude)
			p.send(func(w *wire) {
				must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.fields(request("Echo"))}))
			})
			return p
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inTime(t, o, func(t *testing.T, s *stage, _ *ledger) {
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

// TestStop makes sure that Stop ends everything, and returns when it has ended.
func TestStop(t *testing.T) {
	inTime(t, unary.Options{}, func(t *testing.T, s *stage, _ *ledger) {
		p := s.connect(t)
		s.call(t, p, "Wait")
		s.call(t, p, "Slow")
		s.Stop()
		if n := s.running.Load(); n != 0 {
			t.Errorf("%d calls run when Stop has returned", n)
		}
		p.ended()
	})
}

func TestDeadline(t *testing.T) {
	for _, method := range []string{"Wait", "Slow"} {
		t.Run(method, func(t *testing.T) {
			inTime(t, unary.Options{}, func(t *testing.T, s *stage, _ *ledger) {
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
