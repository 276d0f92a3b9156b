package ratelimit

import (
	"net"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestStreams holds places and gives them back, by the metadata of calls over each transport.
func TestStreams(t *testing.T) {
	for name, server := range map[string]interface {
		grpc.ServiceRegistrar
		Serve(l net.Listener) error
		Stop()
	}{
		"standard": grpc.NewServer(grpc.ForceServerCodecV2(adapter.NewCodec())),
		"unary":    unary.NewServer(unary.Options{Codec: adapter.NewCodec(), Keep: adapter.Kept}),
	} {
		t.Run(name, func(t *testing.T) {
			one := rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 1, Window: time.Minute, Policy: window.InFlight}}}}
			s, _ := setup{rules: []rules.Rule{
				{Domain: "edge", Name: "backend", Path: []descriptors.Node{{Key: "in_flight", Value: "backend"}}, Terms: one},
				perMinute("budget", 100),
			}}.serve(t)
			s.Register(server)
			if u, ok := server.(*unary.Server); ok {
				u.Handle(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, s.Handle)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = server.Serve(l) }() // ends with Stop
			t.Cleanup(server.Stop)
			conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			call := func(stream, ending string, in *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
				t.Helper()
				ctx := t.Context()
				if stream != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, adapter.Kept[adapter.StreamID].Name, stream)
				}
				if ending != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, adapter.Kept[adapter.StreamEnd].Name, ending)
				}
				out, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, in)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			charge := func(stream, ending string) bool {
				t.Helper()
				return call(stream, ending, ask(descriptor("in_flight=backend"))).GetOverallCode() == rlsv3.RateLimitResponse_OK
			}
			end := ask(descriptor("slidegate=end"), descriptor("budget=x", costs(7)))
			for _, step := range []struct {
				what    string
				allowed bool
				want    bool
			}{
				{"the first stream", charge("a", ""), true},
				{"the second stream", charge("b", "-"), false},
				{"the first stream again", charge("a", "-"), true},
			} {
				if step.allowed != step.want {
					t.Errorf("%s: allowed is %v, want %v", step.what, step.allowed, step.want)
				}
			}
			for range 2 {
				if n := len(call("a", "via_upstream", end).GetStatuses()); n != 2 {
					t.Errorf("%d statuses for 2 descriptors", n)
				}
			}
			if !charge("c", "") {
				t.Error("the end of a stream gives nothing back")
			}
			if n := call("", "", ask(descriptor("budget=x"))).GetStatuses()[0].GetLimitRemaining(); n != 92 {
				t.Errorf("%d are left of the budget after two ends and a charge of 1, want 92", n)
			}
			if call("", "via_upstream", ask(descriptor("budget=x", costs(200)))); call("", "", ask(descriptor("budget=x", costs(0)))).GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
				t.Error("a report is not recorded")
			}
		})
	}
}

// TestStreamFields reads what a call keeps of its metadata.
func TestStreamFields(t *testing.T) {
	long := string(make([]byte, 129))
	stream, end := adapter.Kept[adapter.StreamID].Value, adapter.Kept[adapter.StreamEnd].Value
	if stream(long) != "" || stream("-") != "" || stream("a") != "a" {
		t.Error("a stream that is too long or absent has an id")
	}
	if len(end(long)) != 128 || end("-") != "" || end("via_upstream") != "via_upstream" {
		t.Error("an ending is not cut, or absent")
	}
}
