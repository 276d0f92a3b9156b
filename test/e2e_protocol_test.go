package test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/slidegate/slidegate/test/edge"
)

// TestServicesAndTheirHealth lists the services on the admin port and checks their
// health on both ports, as a user of grpcurl would.
func TestServicesAndTheirHealth(t *testing.T) {
	t.Parallel()
	rls := setup{rules: perKey}.serve(t)
	admin := connect(t, strings.TrimPrefix(rls.Admin(), "http://"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	stream, err := reflectionv1.NewServerReflectionClient(admin).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	out, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range out.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{rlsv3.RateLimitService_ServiceDesc.ServiceName, healthv1.Health_ServiceDesc.ServiceName} {
		if !slices.Contains(names, want) {
			t.Errorf("reflection: got %v, want %s among them", names, want)
		}
	}

	for port, conn := range map[string]*grpc.ClientConn{"gRPC": dial(t, rls), "admin": admin} {
		health := healthv1.NewHealthClient(conn)
		for _, name := range []string{"", "ratelimit", rlsv3.RateLimitService_ServiceDesc.ServiceName} {
			got, err := health.Check(ctx, &healthv1.HealthCheckRequest{Service: name})
			if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("health of %q on the %s port: got %v, %v, want SERVING", name, port, got.GetStatus(), err)
			}
		}
	}
}

// TestPings pings an idle connection more often than every ten seconds. grpc-go's own client
// would wait. So this test writes the frames itself.
func TestPings(t *testing.T) {
	t.Parallel()
	rls := setup{rules: perKey}.serve(t)
	if got := pings(t, rls, 10, 20*time.Millisecond); got == "" {
		t.Error("ten pings: got no GOAWAY, want one")
	}
}

// pings sends n pings, each a gap after the answer to the one before. It returns the
// debug data of a GOAWAY, if there is one.
func pings(t *testing.T, rls *edge.RLSServer, n int, gap time.Duration) string {
	t.Helper()
	conn, err := rls.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := framer.WritePing(false, [8]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatalf("ping %d: %v", i+1, err)
			}
			switch frame := frame.(type) {
			case *http2.PingFrame:
				answered = frame.IsAck()
			case *http2.GoAwayFrame:
				return string(frame.DebugData())
			}
		}
		// The gap is what the test is about.
		waitUntil(time.Now().Add(gap))
	}
	return ""
}

// TestJSON sends the requests of Envoy over HTTP.
func TestJSON(t *testing.T) {
	eachStore(t, func(t *testing.T, settings map[string]string) {
		rls := setup{rules: strings.ReplaceAll(perKey, "100", "2"), env: settings}.serve(t)
		for i, want := range []struct {
			status int
			code   rlsv3.RateLimitResponse_Code
			left   uint32
		}{
			{http.StatusOK, rlsv3.RateLimitResponse_OK, 1},
			{http.StatusOK, rlsv3.RateLimitResponse_OK, 0},
			{http.StatusTooManyRequests, rlsv3.RateLimitResponse_OVER_LIMIT, 0},
		} {
			got, out := postJSON(t, rls.HTTP(), question(1, "api_key=k"))
			if got.status != want.status || out.GetOverallCode() != want.code || remaining(out) != want.left {
				t.Errorf("request %d: got %d, %v, %d remaining, want %v", i+1, got.status, out.GetOverallCode(), remaining(out), want)
			}
			if ct := got.header.Get("Content-Type"); ct != "application/json" {
				t.Errorf("request %d: Content-Type: got %s, want application/json", i+1, ct)
			}
			if r := got.header.Get("RateLimit"); !strings.HasPrefix(r, `"per-key";r=`+strconv.Itoa(int(want.left))) {
				t.Errorf("request %d: RateLimit: got %s, want %d to remain", i+1, r, want.left)
			}
			if denied := want.status == http.StatusTooManyRequests; denied != (got.header.Get("Retry-After") != "") {
				t.Errorf("request %d: Retry-After: got %q, want one on a denial alone", i+1, got.header.Get("Retry-After"))
			}
		}
	})
}
