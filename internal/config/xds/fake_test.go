package xds

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeServer does on each stream what a test says.
type fakeServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string
	serve   func(stream) error
}

type stream = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer

func (f *fakeServer) StreamAggregatedResources(s stream) error { return f.serve(s) }

func startFake(t *testing.T, serve func(stream) error) *fakeServer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{address: l.Addr().String(), serve: serve}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, f)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	return f
}

// A recorder is a Loader that remembers what it gets.
type recorder struct {
	mu       sync.Mutex
	versions []string
	domains  [][]rules.Domain
	refused  []string
	load     func(version string, domains []rules.Domain) error // nil: accepts
}

func (r *recorder) Load(version string, domains []rules.Domain) error {
	r.mu.Lock()
	r.versions, r.domains = append(r.versions, version), append(r.domains, domains)
	r.mu.Unlock()
	if r.load != nil {
		return r.load(version, domains)
	}
	return nil
}

func (r *recorder) Refused(version string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = append(r.refused, version+": "+err.Error())
}

func (r *recorder) loads() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.versions...)
}

// run runs a client until the test or stop ends it.
func run(t *testing.T, address string, l Loader, change ...func(*Options)) (c *Client, logs *observer.ObservedLogs, stop func()) {
	t.Helper()
	s := settings.Default().Rules.XDS
	s.Address = settings.Address(address)
	core, logs := observer.New(zapcore.DebugLevel)
	o := Options{Settings: s, Backoff: 10 * time.Millisecond, MaxBackoff: 40 * time.Millisecond, Loader: l, Log: zap.New(core)}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return c, logs, stop
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !process.Poll(20*time.Second, ok) {
		t.Fatalf("%s: waited in vain", what)
	}
}

// response returns a response with resources.
func response(t testing.TB, version string, configs ...*ratelimitv3.RateLimitConfig) *discoveryv3.DiscoveryResponse {
	t.Helper()
	r := &discoveryv3.DiscoveryResponse{VersionInfo: version, TypeUrl: typeURL, Nonce: "nonce-" + version}
	for _, c := range configs {
		resource, err := anypb.New(c)
		if err != nil {
			t.Fatal(err)
		}
		r.Resources = append(r.Resources, resource)
	}
	return r
}

// domain returns a resource without descriptors.
func domain(name string) *ratelimitv3.RateLimitConfig {
	return &ratelimitv3.RateLimitConfig{Name: name, Domain: name}
}
