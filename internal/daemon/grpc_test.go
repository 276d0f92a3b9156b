package daemon

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config/settings"
)

// served are the names of the services that Envoy calls.
var served = []string{"envoy.service.auth.v3.Authorization", "envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"}

// reflect calls the reflection service of a version. All versions have the same messages.
func reflect(t *testing.T, address, version string, in *reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error) {
	t.Helper()
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := dial(t, address).NewStream(t.Context(), both, "/grpc.reflection."+version+".ServerReflection/ServerReflectionInfo")
	if err != nil {
		t.Fatal(err)
	}
	// The server may have refused the call already: RecvMsg says so.
	if err := stream.SendMsg(in); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	out := new(reflectionv1.ServerReflectionResponse)
	return out, stream.RecvMsg(out)
}

// TestReflection gets the services of the gRPC port from both ports.
func TestReflection(t *testing.T) { onEachTransport(t, testReflection) }

func testReflection(t *testing.T, s settings.Settings) {
	r := start(t, s)
	all := &reflectionv1.ServerReflectionRequest{MessageRequest: new(reflectionv1.ServerReflectionRequest_ListServices)}
	one := &reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: served[0]},
	}
	want, code := served, codes.Unimplemented
	if s.GRPC.Transport == settings.TransportStandard {
		// Transport standard has reflection on the gRPC port too.
		want, code = append(want[:3:3], "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"), codes.OK
	}
	for _, version := range []string{"v1", "v1alpha"} {
		for port, address := range map[string]string{"admin": r.Admin, "gRPC": r.GRPC[0]} {
			out, err := reflect(t, address, version, all)
			if port == "gRPC" && code != codes.OK {
				if status.Code(err) != code {
					t.Errorf("%s on the %s port: %v, want %v", version, port, err, code)
				}
				continue
			}
			var names []string
			for _, s := range out.GetListServicesResponse().GetService() {
				names = append(names, s.GetName())
			}
			if diff := cmp.Diff(want, names); err != nil || diff != "" {
				t.Errorf("%s on the %s port: %v (-want +got):\n%s", version, port, err, diff)
			}
			if out, err := reflect(t, address, version, one); err != nil || len(out.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
				t.Errorf("%s on the %s port: %v, %v, want the file of %s", version, port, out, err, served[0])
			}
		}
	}
	// The services that decide are not on the admin port.
	if _, err := askAt(t, r.Admin, demo); status.Code(err) != codes.Unimplemented {
		t.Errorf("ShouldRateLimit on the admin port: %v, want UNIMPLEMENTED", err)
	}
}

// TestHealthWatch watches the health on both ports until the process ends.
func TestHealthWatch(t *testing.T) { onEachTransport(t, testHealthWatch) }

func testHealthWatch(t *testing.T, s settings.Settings) {
	s.Drain.Delay, s.Drain.Timeout = time.Second, 0
	s.Drain.NotServing = true
	r := start(t, s)
	type watch = interface {
		Recv() (*healthv1.HealthCheckResponse, error)
	}
	begin := func(address string) watch {
		w, err := healthv1.NewHealthClient(dial(t, address)).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: served[1]})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	watches := map[string]watch{"admin": begin(r.Admin)}
	if w := begin(r.GRPC[0]); s.GRPC.Transport == settings.TransportStandard {
		watches["gRPC"] = w
	} else if got, err := w.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("on the gRPC port: %v, %v, want UNIMPLEMENTED", got, err)
	}
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING} {
		for port, w := range watches {
			if got, err := w.Recv(); err != nil || got.GetStatus() != want {
				t.Errorf("on the %s port: %v, %v, want %v", port, got.GetStatus(), err, want)
			}
		}
		r.stop()
	}
	for port, w := range watches {
		if got, err := w.Recv(); err == nil {
			t.Errorf("on the %s port: %v after the end", port, got)
		}
	}
	r.waitLog("stopped")
}

// TestAdminSpeaksBoth gets pages from the admin port and makes calls to it. Calls may have any
// authority: a browser cannot make them.
func TestAdminSpeaksBoth(t *testing.T) {
	r := start(t, testSettings(t))
	for _, authority := range []string{r.Admin, "rls.example.com:6070"} {
		out, err := healthv1.NewHealthClient(dial(t, r.Admin, grpc.WithAuthority(authority))).Check(t.Context(), new(healthv1.HealthCheckRequest))
		if err != nil || out.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health, called as %s: %v, %v, want SERVING", authority, out.GetStatus(), err)
		}
	}
	if code, body := get(t, "http://"+r.Admin+"/metrics"); code != 200 || strings.Contains(body, "grpc.health.v1.Health") {
		t.Errorf("/metrics: %d; health checks of the admin port must not be among the calls of Envoy:\n%s", code, body)
	}
}

// TestTransportIsMetered looks for the metrics of transport unary. Transport standard has none.
func TestTransportIsMetered(t *testing.T) { onEachTransport(t, testTransportIsMetered) }

func testTransportIsMetered(t *testing.T, s settings.Settings) {
	r := start(t, s)
	for range 3 {
		if _, err := r.ask(demo); err != nil {
			t.Fatal(err)
		}
	}
	page := func() string { _, body := get(t, "http://"+r.Admin+"/metrics"); return body }
	if s.GRPC.Transport == settings.TransportStandard {
		if strings.Contains(page(), "slidegate_grpc_") {
			t.Error("the page has metrics of transport unary")
		}
		return
	}
	for _, want := range []string{
		"slidegate_grpc_connections 3\n",
		`slidegate_grpc_goaways_total{reason="drain"} 0` + "\n",
	} {
		waitFor(t, want, func() bool { return strings.Contains(page(), want) })
	}
}

// TestCallsAreCounted makes calls on every path of a transport. Metrics count each under its
// method and code.
func TestCallsAreCounted(t *testing.T) { onEachTransport(t, testCallsAreCounted) }

func testCallsAreCounted(t *testing.T, s settings.Settings) {
	r := start(t, s)
	conn := dial(t, r.GRPC[0])
	for range 2 {
		if _, err := r.ask(demo); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		out, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), new(authv3.CheckRequest))
		if err != nil || out.GetStatus().GetCode() != int32(codes.Unauthenticated) {
			t.Errorf("a check without a key: %v, %v, want it answered and denied", out, err)
		}
	}
	if _, err := r.ask(`{"domain":"edge"}`); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no descriptors: %v, want INVALID_ARGUMENT", err)
	}
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), new(healthv1.HealthCheckRequest)); err != nil {
		t.Error(err)
	}
	const count = "slidegate_rpc_seconds_count"
	r.wantMetrics(
		count+`{code="OK",method="/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"} 2`,
		count+`{code="InvalidArgument",method="/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"} 1`,
		count+`{code="OK",method="/envoy.service.auth.v3.Authorization/Check"} 3`,
		count+`{code="OK",method="/grpc.health.v1.Health/Check"} 1`,
	)
}
