package stack

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
)

// Request returns a request of the domain edge. A descriptor is written as
// "key=value,key=value".
func Request(cost uint64, descriptors ...string) *rlsv3.RateLimitRequest {
	in := &rlsv3.RateLimitRequest{Domain: "edge"}
	for _, text := range descriptors {
		d := &ratelimitcommonv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(cost)}
		for entry := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		in.Descriptors = append(in.Descriptors, d)
	}
	return in
}

// Refund returns a request that gives hits back. The answer to a refund of 0 says what remains.
func Refund(cost uint64, descriptors ...string) *rlsv3.RateLimitRequest {
	in := Request(cost, descriptors...)
	for _, d := range in.GetDescriptors() {
		d.IsNegativeHits = true
	}
	return in
}

// Dial returns a connection to the gRPC port of an rls, on any way.
func Dial(t *testing.T, rls *edge.RLSServer) *grpc.ClientConn {
	t.Helper()
	conn, err := rls.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Connect returns a connection to a gRPC server.
func Connect(t *testing.T, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// PostJSON sends a request to /json.
func PostJSON(t *testing.T, url string, in *rlsv3.RateLimitRequest) (Answer, *rlsv3.RateLimitResponse) {
	t.Helper()
	body, err := protojson.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewClient(t, url, "127.0.0.1").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	out := new(rlsv3.RateLimitResponse)
	if err := protojson.Unmarshal([]byte(got.Body), out); err != nil {
		t.Fatalf("/json: %d %s: %v", got.Status, got.Body, err)
	}
	return got, out
}

// Limiter returns a function that calls an rls as Envoy does.
func Limiter(t *testing.T, rls *edge.RLSServer) func(descriptors ...string) (*rlsv3.RateLimitResponse, error) {
	t.Helper()
	client := rlsv3.NewRateLimitServiceClient(Dial(t, rls))
	return func(descriptors ...string) (*rlsv3.RateLimitResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		return client.ShouldRateLimit(ctx, Request(1, descriptors...))
	}
}

// Remaining returns what remains of the first descriptor.
func Remaining(out *rlsv3.RateLimitResponse) uint32 { return out.GetStatuses()[0].GetLimitRemaining() }
