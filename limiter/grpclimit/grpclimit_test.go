package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testv1 "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/grpclimit"
	"github.com/slidegate/slidegate/limiter/middleware/middlewaretest"
	"github.com/slidegate/slidegate/pkg/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shop = `
domain: shop
descriptors:
  - {key: api_key, rate_limit: {name: per-key, unit: minute, requests_per_unit: 2}}
  - {key: remote_address, rate_limit: {name: per-address, unit: minute, requests_per_unit: 1}}
  - {key: masked_remote_address, rate_limit: {name: per-network, unit: minute, requests_per_unit: 1}}
  - {key: method, rate_limit: {name: per-method, unit: minute, requests_per_unit: 1}}
  - {key: all, rate_limit: {name: all, policy: in_flight, max: 1, hold: 1h}}
  - {key: never, rate_limit: {name: never, unit: minute, requests_per_unit: 0}}
`

func newLimit(t *testing.T, store window.Store, o grpclimit.Options) *grpclimit.Limit {
	t.Helper()
	o.Domain = "shop"
	limit, err := grpclimit.New(middlewaretest.NewLimiter(t, shop, store), o)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// service answers every message of a stream with another one.
type service struct {
	testv1.UnimplementedTestServiceServer
	served chan string // what reached the handlers
}

func (s *service) EmptyCall(context.Context, *testv1.Empty) (*testv1.Empty, error) {
	s.served <- "call"
	return new(testv1.Empty), nil
}

func (s *service) FullDuplexCall(stream testv1.TestService_FullDuplexCallServer) error {
	s.served <- "stream"
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.served <- "message"
		if err := stream.Send(&testv1.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
			return err
		}
	}
}

// dial serves with options on a port of its own, and returns a client and what is served.
func dial(t *testing.T, o ...grpc.ServerOption) (testv1.TestServiceClient, chan string) {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{served: make(chan string, 100)}
	server := grpc.NewServer(o...)
	testv1.RegisterTestServiceServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(at) }()
	conn, err := grpc.NewClient(at.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return testv1.NewTestServiceClient(conn), s.served
}

var byKey = [][]grpclimit.Key{{grpclimit.Metadata("api_key", "X-API-Key")}}

func withKey(t *testing.T, keys ...string) context.Context {
	t.Helper()
	ctx := t.Context()
	for _, k := range keys {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", k)
	}
	return ctx
}

// limitFields returns the fields of md about limits.
func limitFields(md metadata.MD) map[string]string {
	fields := make(map[string]string)
	for name, values := range md {
		if strings.HasPrefix(name, "ratelimit") || name == "retry-after" || name == "grpc-retry-pushback-ms" {
			fields[name] = strings.Join(values, "|")
		}
	}
	return fields
}

// wantDenial fails the test unless err is the denial with this text and wait.
func wantDenial(t *testing.T, err error, text string, wait time.Duration) {
	t.Helper()
	s := status.Convert(err)
	var waits time.Duration
	var violated string
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			waits = d.RetryDelay.AsDuration()
		case *errdetails.QuotaFailure:
			violated = d.Violations[0].Subject
		}
	}
	if s.Code() != codes.ResourceExhausted || s.Message() != text || waits != wait || !strings.Contains(text, violated) {
		t.Errorf("got %v %q, %q violated, wait %v; want %q, %v", s.Code(), s.Message(), violated, waits, text, wait)
	}
}

const noRoom = "no room under limit per-key: try again in 1m0s"

// TestUnary calls a real server.
func TestUnary(t *testing.T) {
	client, served := dial(t, grpc.UnaryInterceptor(newLimit(t, nil, grpclimit.Options{Descriptors: byKey}).Unary))
	call := func(ctx context.Context) (header, trailer metadata.MD, err error) {
		_, err = client.EmptyCall(ctx, new(testv1.Empty), grpc.Header(&header), grpc.Trailer(&trailer))
		return header, trailer, err
	}
	header, trailer, err := call(withKey(t, "k"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"ratelimit": `"per-key";r=1;t=60`, "ratelimit-policy": `"per-key";q=2;w=60`}, limitFields(header)); diff != "" || len(limitFields(trailer)) > 0 {
		t.Errorf("header (-want +got):\n%s\ntrailer %v", diff, trailer)
	}
	// A second value and another spelling are the same key.
	if _, _, err := call(withKey(t, "Bearer k", "other")); err != nil {
		t.Error(err)
	}
	_, trailer, err = call(withKey(t, "k", "another"))
	wantDenial(t, err, noRoom, time.Minute)
	if diff := cmp.Diff(map[string]string{"ratelimit": `"per-key";r=0;t=60`, "ratelimit-policy": `"per-key";q=2;w=60`, "retry-after": "60", "grpc-retry-pushback-ms": "60000"}, limitFields(trailer)); diff != "" {
		t.Errorf("trailer (-want +got):\n%s", diff)
	}
	if header, _, err := call(t.Context()); err != nil || len(limitFields(header)) > 0 {
		t.Errorf("without a key: %v, %v", header, err)
	}
	if len(served) != 3 {
		t.Errorf("%d calls were served, want 3", len(served))
	}
}

// exchange opens a stream, sends messages until one fails, and returns how many answers came.
func exchange(ctx context.Context, client testv1.TestServiceClient, messages int) (answers int, header, trailer metadata.MD, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	for range messages {
		if err := stream.Send(new(testv1.StreamingOutputCallRequest)); err != nil {
			break // Recv has the status
		}
		if _, err = stream.Recv(); err != nil {
			break
		}
		answers++
	}
	if err == nil {
		if err = stream.CloseSend(); err == nil {
			_, err = stream.Recv()
		}
	}
	header, _ = stream.Header() // Recv has the error
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return answers, header, stream.Trailer(), err
}

// TestStream: a stream is charged once.
func TestStream(t *testing.T) {
	client, served := dial(t, grpc.StreamInterceptor(newLimit(t, nil, grpclimit.Options{Descriptors: byKey}).Stream))
	for i := range 2 {
		answers, header, _, err := exchange(withKey(t, "k"), client, 5)
		if want := []string{`"per-key";r=1;t=60`, `"per-key";r=0;t=60`}[i]; answers != 5 || err != nil || limitFields(header)["ratelimit"] != want {
			t.Errorf("stream %d: %d answers, %v, %v", i, answers, header, err)
		}
	}
	answers, _, trailer, err := exchange(withKey(t, "k"), client, 5)
	wantDenial(t, err, noRoom, time.Minute)
	if answers != 0 || limitFields(trailer)["retry-after"] != "60" || len(served) != 2*6 {
		t.Errorf("%d answers, trailer %v, %d served", answers, trailer, len(served))
	}
}

// TestMessages: each message is charged.
func TestMessages(t *testing.T) {
	var methods []string
	limit := newLimit(t, nil, grpclimit.Options{
		Descriptors: byKey,
		Cost: func(c *grpclimit.Call) uint64 {
			methods = append(methods, c.Method)
			if c.Message.(*testv1.StreamingOutputCallRequest) == nil {
				t.Error("no message")
			}
			return 1
		},
	})
	client, served := dial(t, grpc.StreamInterceptor(limit.Messages))
	answers, header, trailer, err := exchange(withKey(t, "k"), client, 5)
	wantDenial(t, err, noRoom, time.Minute)
	if answers != 2 || limitFields(header)["ratelimit"] != `"per-key";r=1;t=60` || limitFields(trailer)["retry-after"] != "60" || len(served) != 3 {
		t.Errorf("%d answers, header %v, trailer %v, %d served", answers, header, trailer, len(served))
	}
	if diff := cmp.Diff([]string{testv1.TestService_FullDuplexCall_FullMethodName, testv1.TestService_FullDuplexCall_FullMethodName, testv1.TestService_FullDuplexCall_FullMethodName}, methods); diff != "" {
		t.Errorf("methods (-want +got):\n%s", diff)
	}
	if answers, _, trailer, err := exchange(withKey(t, "other"), client, 2); answers != 2 || err != nil || len(limitFields(trailer)) > 0 {
		t.Errorf("another key: %d answers, trailer %v, %v", answers, trailer, err)
	}
}

// TestInFlight: calls, streams and messages end in the store.
func TestInFlight(t *testing.T) {
	all := [][]grpclimit.Key{{grpclimit.Value("all", "x")}}
	once, each := newLimit(t, nil, grpclimit.Options{Descriptors: all}), newLimit(t, nil, grpclimit.Options{Descriptors: all})
	client, _ := dial(t, grpc.UnaryInterceptor(once.Unary), grpc.StreamInterceptor(once.Stream))
	messages, _ := dial(t, grpc.StreamInterceptor(each.Messages))
	for range 3 {
		if _, err := client.EmptyCall(t.Context(), new(testv1.Empty)); err != nil {
			t.Error(err)
		}
		if answers, _, _, err := exchange(t.Context(), client, 2); answers != 2 || err != nil {
			t.Errorf("a stream: %d answers, %v", answers, err)
		}
		if answers, _, _, err := exchange(t.Context(), messages, 3); answers != 3 || err != nil {
			t.Errorf("messages: %d answers, %v", answers, err)
		}
	}
	// While a stream is open, it is in flight.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open, err := client.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := open.Send(new(testv1.StreamingOutputCallRequest)); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.EmptyCall(t.Context(), new(testv1.Empty)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beside an open stream: %v", err)
	}
	// A client that goes away in the middle gives it back.
	cancel()
	for {
		_, err := client.EmptyCall(t.Context(), new(testv1.Empty))
		if err == nil {
			break
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	// So does a handler that panics.
	for range 2 {
		func() {
			defer func() { _ = recover() }()
			_, err := once.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, func(context.Context, any) (any, error) { panic("handler") })
			t.Errorf("a handler that panics returned %v", err)
		}()
	}
}

// TestTwo: of two interceptors around each other, a client reads both limits.
func TestTwo(t *testing.T) {
	outer := newLimit(t, nil, grpclimit.Options{Descriptors: [][]grpclimit.Key{{grpclimit.Method("method")}}})
	inner := newLimit(t, nil, grpclimit.Options{Descriptors: byKey})
	client, _ := dial(t, grpc.ChainUnaryInterceptor(outer.Unary, inner.Unary))
	var header metadata.MD
	if _, err := client.EmptyCall(withKey(t, "k"), new(testv1.Empty), grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`"per-method";r=0;t=60`, `"per-key";r=1;t=60`}, header.Get("ratelimit")); diff != "" {
		t.Errorf("ratelimit (-want +got):\n%s", diff)
	}
}

// TestObserve: nothing is denied or shown.
func TestObserve(t *testing.T) {
	denied := 0
	limit := newLimit(t, nil, grpclimit.Options{Descriptors: byKey, Observe: true, Decided: func(_ *grpclimit.Call, d limiter.Decision, _ error) {
		if !d.Allowed {
			denied++
		}
	}})
	client, _ := dial(t, grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Messages))
	var header metadata.MD
	for range 3 {
		if _, err := client.EmptyCall(withKey(t, "k"), new(testv1.Empty), grpc.Header(&header)); err != nil || len(limitFields(header)) > 0 {
			t.Errorf("got %v, %v", header, err)
		}
	}
	if answers, _, _, err := exchange(withKey(t, "k"), client, 4); answers != 4 || err != nil {
		t.Errorf("%d answers, %v", answers, err)
	}
	if denied != 5 {
		t.Errorf("%d denials, want 5", denied)
	}
}

// failing is a store that fails.
type failing struct{ window.Store }

func (failing) Take(context.Context, bool, []window.Check, []window.Decision) (bool, error) {
	return true, errors.New("no route to 10.1.2.3")
}

func (failing) End(context.Context, window.Ending) (window.Settled, error) {
	return window.Settled{}, errors.New("no route to 10.1.2.3")
}

func TestStoreFails(t *testing.T) {
	for deny, want := range map[bool]codes.Code{false: codes.OK, true: codes.Unavailable} {
		limit := newLimit(t, failing{}, grpclimit.Options{Descriptors: byKey, DenyOnError: deny})
		client, _ := dial(t, grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
		_, err := client.EmptyCall(withKey(t, "k"), new(testv1.Empty))
		_, _, _, streamErr := exchange(withKey(t, "k"), client, 1)
		for _, err := range []error{err, streamErr} {
			if status.Code(err) != want || strings.Contains(status.Convert(err).Message(), "10.1.2.3") {
				t.Errorf("DenyOnError %v: %v", deny, err)
			}
		}
	}
}

// TestKeys tells which rule a call meets, and for which log.
func TestKeys(t *testing.T) {
	from := func(address string, pairs ...string) context.Context {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
		if address == "" {
			return ctx
		}
		return peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))})
	}
	for name, tt := range map[string]struct {
		key  grpclimit.Key
		ctx  context.Context
		want string // the rule, empty: the call is not limited
	}{
		"method":             {grpclimit.Method("method"), from(""), "per-method"},
		"value":              {grpclimit.Value("method", "x"), from(""), "per-method"},
		"function":           {grpclimit.Func("method", func(c *grpclimit.Call) (string, bool) { return c.Method, c.Message != nil }), from(""), "per-method"},
		"nothing":            {grpclimit.Func("method", func(*grpclimit.Call) (string, bool) { return "", false }), from(""), ""},
		"address":            {grpclimit.Address("remote_address"), from("192.0.2.1:1"), "per-address"},
		"no peer":            {grpclimit.Address("remote_address"), from(""), ""},
		"network":            {grpclimit.Network("masked_remote_address", 24, 64), from("[2001:db8::1]:1"), "per-network"},
		"behind a proxy":     {grpclimit.Address("remote_address", "10.0.0.0/8"), from("10.0.0.1:1", "x-forwarded-for", "203.0.113.9"), "per-address"},
		"no metadata at all": {grpclimit.Metadata("api_key", "x"), t.Context(), ""},
	} {
		var got limiter.Decision
		limit := newLimit(t, nil, grpclimit.Options{Descriptors: [][]grpclimit.Key{{tt.key}}, Decided: func(_ *grpclimit.Call, d limiter.Decision, _ error) { got = d }})
		_, err := limit.Unary(tt.ctx, new(testv1.Empty), &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { return "served", nil })
		if err != nil || got.Limit().Rule != tt.want {
			t.Errorf("%s: met %q, want %q, %v", name, got.Limit().Rule, tt.want, err)
		}
	}
}

// TestNever: a cost that never fits has no wait.
func TestNever(t *testing.T) {
	limit := newLimit(t, nil, grpclimit.Options{Descriptors: [][]grpclimit.Key{{grpclimit.Value("never", "x")}}})
	client, _ := dial(t, grpc.UnaryInterceptor(limit.Unary))
	var trailer metadata.MD
	_, err := client.EmptyCall(t.Context(), new(testv1.Empty), grpc.Trailer(&trailer))
	wantDenial(t, err, "the cost is above limit never", 0)
	if limitFields(trailer)["retry-after"] != "" {
		t.Errorf("trailer %v", trailer)
	}
}

// TestProblems: the mistakes in keys of calls. The others are those of httplimit.
func TestProblems(t *testing.T) {
	_, err := grpclimit.New(nil, grpclimit.Options{Descriptors: [][]grpclimit.Key{{grpclimit.Metadata("a", ""), grpclimit.Func("b", nil), grpclimit.Address("c", "localhost")}}})
	for _, want := range []string{"grpclimit: New needs a Limiter", "key 0 of descriptor 0: the field has no name", "key 1 of descriptor 0: the function", "localhost"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
