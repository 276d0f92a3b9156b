package xds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// TestConversation: each answer has the nonce of its response, the last version that was
// accepted on this stream, and the reason of a refusal.
func TestConversation(t *testing.T) {
	type answer struct{ version, nonce, reason string }
	var got []answer
	done := make(chan struct{})
	f := startFake(t, func(s stream) error {
		receive := func() {
			r, err := s.Recv()
			if err != nil {
				t.Errorf("Recv: %v", err)
				return
			}
			if r.GetTypeUrl() != typeURL || r.GetNode().GetId() != "slidegate" {
				t.Errorf("a request of type %q for the node %q", r.GetTypeUrl(), r.GetNode().GetId())
			}
			got = append(got, answer{r.GetVersionInfo(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage()})
		}
		receive()
		for _, r := range []*discoveryv3.DiscoveryResponse{
			response(t, "7", domain("a")),
			{VersionInfo: "8", Nonce: "nonce-8", TypeUrl: typeURL, Resources: []*anypb.Any{{TypeUrl: typeURL, Value: []byte{1}}, {TypeUrl: "other"}}},
			response(t, "9", domain("bad")),
			response(t, "1"),
		} {
			if err := s.Send(r); err != nil {
				return err
			}
			receive()
		}
		select {
		case <-done:
		default:
			close(done)
		}
		<-s.Context().Done()
		return nil
	})
	l := &recorder{load: func(_ string, domains []rules.Domain) error {
		if len(domains) > 0 && domains[0].Name == "bad" {
			return errors.New("xds bad: no")
		}
		return nil
	}}
	c, _, stop := run(t, f.address, l)
	<-done
	stop()
	want := []answer{
		{"", "", ""},
		{"7", "nonce-7", ""},
		{"7", "nonce-8", "resource 0: " + errMalformed.Error() + "\n" + `resource 1: the type is "other", expected ` + typeURL},
		{"7", "nonce-9", "xds bad: no"},
		{"1", "nonce-1", ""},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if got := fmt.Sprint(l.loads()); got != "[7 9 1]" {
		t.Errorf("loaded %s", got)
	}
	if len(l.refused) != 1 {
		t.Errorf("refused %q", l.refused)
	}
	if s := c.State(); s.Version != "1" || !s.Loaded || s.Connected {
		t.Errorf("state %+v", s)
	}
}

// TestRefusedAgain: a server such as go-control-plane's sends a refused response again at once.
// It is loaded once, and the answers wait longer and longer. Another response counts at once.
func TestRefusedAgain(t *testing.T) {
	var answers atomic.Int64
	other := make(chan struct{})
	accepted := make(chan struct{})
	f := startFake(t, func(s stream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		next := response(t, "1", domain("bad"), domain("a"))
		for n := 0; ; n++ {
			if n%2 == 1 { // a map has no order
				next.Resources[0], next.Resources[1] = next.Resources[1], next.Resources[0]
			}
			if err := s.Send(next); err != nil {
				return err
			}
			answered := make(chan error, 1)
			go func() {
				r, err := s.Recv()
				answers.Add(1)
				if r.GetVersionInfo() == "2" {
					close(accepted)
				}
				answered <- err
			}()
			select {
			case err := <-answered:
				if err != nil {
					return err
				}
			case <-other:
				other = nil
				if err := s.Send(response(t, "2", domain("a"))); err != nil {
					return err
				}
				if err := <-answered; err != nil {
					return err
				}
				<-s.Context().Done()
				return nil
			}
		}
	})
	l := &recorder{load: func(_ string, domains []rules.Domain) error {
		if len(domains) == 2 {
			return errors.New("refused")
		}
		return nil
	}}
	_, _, _ = run(t, f.address, l, func(o *Options) { o.Backoff, o.MaxBackoff = 20*time.Millisecond, time.Hour })
	waitFor(t, "four answers", func() bool { return answers.Load() >= 4 })
	if got := l.loads(); len(got) != 1 {
		t.Errorf("loaded %d times", len(got))
	}
	close(other) // while the client waits
	<-accepted
}

// TestNewestResponse: responses that arrive while one is loaded replace each other. The load of the
// first ends when the client has received 49 more, so the second load is that of the last.
func TestNewestResponse(t *testing.T) {
	loading, started := make(chan struct{}), make(chan struct{})
	last := make(chan string, 1)
	f := startFake(t, func(s stream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		for i := range 50 {
			if i == 1 {
				<-loading
			}
			if err := s.Send(response(t, fmt.Sprint(i), domain("a"))); err != nil {
				return err
			}
		}
		// The client reports that it has received this one, and so all before it.
		if err := s.Send(&discoveryv3.DiscoveryResponse{TypeUrl: "other"}); err != nil {
			return err
		}
		for {
			r, err := s.Recv()
			if err != nil {
				return nil
			}
			if r.GetVersionInfo() == "49" {
				last <- r.GetResponseNonce()
			}
		}
	})
	var logs *observer.ObservedLogs
	first := true
	l := &recorder{load: func(string, []rules.Domain) error {
		if first {
			first = false
			close(loading)
			<-started
			waitFor(t, "the last response", func() bool {
				return logs.FilterMessage("the xDS server sent a type of resources that rls did not ask for").Len() == 1
			})
		}
		return nil
	}}
	_, logs, _ = run(t, f.address, l)
	close(started)
	if got := <-last; got != "nonce-49" {
		t.Errorf("the last nonce is %s", got)
	}
	if got := l.loads(); fmt.Sprint(got) != "[0 49]" {
		t.Errorf("loaded %v, want the first and the last", got)
	}
}

// TestWaits: the waits between connections grow up to the longest, and are reset after a stream
// that had a response.
func TestWaits(t *testing.T) {
	streams := 0
	f := startFake(t, func(s stream) error {
		streams++
		if _, err := s.Recv(); err != nil {
			return err
		}
		if streams == 8 {
			if err := s.Send(response(t, "1")); err != nil {
				return err
			}
			_, _ = s.Recv()
			return nil
		}
		return status.Error(codes.PermissionDenied, "not you")
	})
	_, logs, _ := run(t, f.address, new(recorder), func(o *Options) { o.Backoff, o.MaxBackoff = 4*time.Millisecond, 40*time.Millisecond })
	lost := logs.FilterMessage("no connection to the xDS server, the rules stay as they are")
	waitFor(t, "ten failures", func() bool {
		lost = logs.FilterMessage("no connection to the xDS server, the rules stay as they are")
		return lost.Len() >= 10
	})
	for i, line := range lost.All()[:10] {
		wait, text := line.ContextMap()["retry_in"].(time.Duration), line.ContextMap()["error"].(string)
		least, most := 4*time.Millisecond<<i, 4*time.Millisecond<<i
		switch {
		case i == 7:
			least, most = 4*time.Millisecond, 4*time.Millisecond
			if text != "the server ended the stream" {
				t.Errorf("stream %d: %s", i+1, text)
			}
		case i > 7:
			least, most = 8*time.Millisecond<<(i-8), 8*time.Millisecond<<(i-8)
		case text != "not you":
			t.Errorf("stream %d: %s", i+1, text)
		}
		least, most = min(least, 40*time.Millisecond), min(most, 40*time.Millisecond)
		if wait < least*7/10 || wait > min(most*13/10, 40*time.Millisecond) {
			t.Errorf("wait %d is %v, want about %v", i+1, wait, least)
		}
	}
}

// TestMessageTooLarge: a message above the bound ends the stream with advice.
func TestMessageTooLarge(t *testing.T) {
	f := startFake(t, func(s stream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		_ = s.Send(response(t, "1", domain(strings.Repeat("x", 70_000))))
		<-s.Context().Done()
		return nil
	})
	l := new(recorder)
	c, _, _ := run(t, f.address, l, func(o *Options) { o.MaxMessageBytes = 65_536 })
	waitFor(t, "the reason", func() bool { return strings.HasSuffix(c.State().Reason, "serve fewer rules") })
	if len(l.loads()) > 0 {
		t.Error("the message was loaded")
	}
}

// TestReasons: a reason is the cause alone, without what gRPC writes around it.
func TestReasons(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "dial tcp 127.0.0.1:1: connect: connection refused",
		`connection error: desc = "transport: authentication handshake failed: tls: bad \"name\""`:                     `authentication handshake failed: tls: bad "name"`,
		`connection error: desc = "unfinished`: `connection error: desc = "unfinished`,
		"error reading from server: EOF":       "error reading from server: EOF",
	} {
		if got := reasonOf(status.Error(codes.Unavailable, text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestFrozenServer: a server that does not answer pings is given up.
func TestFrozenServer(t *testing.T) {
	if testing.Short() {
		t.Skip("grpc-go pings at most every ten seconds")
	}
	t.Parallel()
	f := startFake(t, func(s stream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	proxy := servers.StartProxy(t, f.address)
	s := settings.Default().Rules.XDS
	s.Address = settings.Address(proxy.Addr())
	c, err := New(Options{Settings: s, Loader: new(recorder), Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	c.pings = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 100 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	waitFor(t, "a stream", func() bool { return c.State().Connected })
	proxy.Blackhole(true)
	waitFor(t, "the end of the stream", func() bool { return !c.State().Connected })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	proxy.Blackhole(false)
}
