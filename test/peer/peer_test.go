package peer_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/test/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const method = healthv1.Health_Check_FullMethodName

// healthService answers by the name that is asked for.
type healthService struct {
	healthv1.UnimplementedHealthServer
	began chan struct{} // gets one when a call for "wait" has come
	ended chan struct{} // gets one when a call for "wait" has been given up
}

func (s healthService) Check(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	switch in.GetService() {
	case "wait":
		s.began <- struct{}{}
		<-ctx.Done()
		s.ended <- struct{}{}
		return nil, ctx.Err()
	case "error":
		return nil, status.Error(codes.NotFound, "not here")
	default:
		return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
	}
}

// serve starts a server and returns a connection to it.
func serve(t *testing.T) (healthService, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := healthService{began: make(chan struct{}, 10), ended: make(chan struct{}, 10)}
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return s, conn
}

func message(t *testing.T, service string) []byte {
	t.Helper()
	m, err := proto.Marshal(&healthv1.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPeer(t *testing.T) {
	for _, window := range []uint32{0, 1, 16} {
		s, conn := serve(t)
		p, err := peer.New(conn, window)
		if err != nil {
			t.Fatal(err)
		}
		// Streams of all kinds at once, answers in any order.
		var streams []uint32
		for _, name := range []string{"", "wait", "error", "", strings.Repeat("long", 3000)} {
			stream, err := p.Call(method, message(t, name))
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
		}
		half, err := p.Open(method)
		if err != nil {
			t.Fatal(err)
		}
		frame := peer.Frame(message(t, "half"))
		if err := p.Send(half, frame[:7], false); err != nil {
			t.Fatal(err)
		}
		for i, want := range map[int]string{4: "0", 0: "0", 2: "5", 3: "0"} {
			a, err := p.Answer(streams[i])
			if err != nil {
				t.Fatal(err)
			}
			if a.Status != want || a.WasReset || (len(a.Message) > 0) != (want == "0") {
				t.Errorf("window %d, call %d: got %+v, want status %s", window, i, a, want)
			}
		}
		<-s.began // grpc-go does not begin a call that was given up before
		if err := p.Reset(streams[1]); err != nil {
			t.Fatal(err)
		}
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		<-s.ended
		if err := p.Send(half, frame[7:], true); err != nil {
			t.Fatal(err)
		}
		if a, err := p.Answer(half); err != nil || a.Status != "0" {
			t.Errorf("window %d, a call in two halves: got %+v, %v", window, a, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPeerIsToldOfResets(t *testing.T) {
	_, conn := serve(t)
	p, err := peer.New(conn, 0)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := p.Call(method, message(t, "wait"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send(stream, []byte("more than all"), true); err != nil { // the stream was closed
		t.Fatal(err)
	}
	a, err := p.Answer(stream)
	if err != nil || !a.WasReset || a.Reset != http2.ErrCodeStreamClosed {
		t.Errorf("got %+v, %v, want STREAM_CLOSED", a, err)
	}
	if _, err := p.Answer(stream); err == nil {
		t.Error("an answer came twice")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestCaller(t *testing.T) {
	_, conn := serve(t)
	c, err := peer.NewCaller(conn, method, message(t, ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	// Far more than the window of a connection holds.
	for range 200 {
		if err := c.Do(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestCallerNoticesErrors(t *testing.T) {
	_, conn := serve(t)
	if _, err := peer.NewCaller(conn, method, message(t, "error"), 16); err == nil || !strings.Contains(err.Error(), "not here") {
		t.Errorf("a call that fails: got %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
