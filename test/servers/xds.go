package servers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/test/process"
)

// A XDSServer has rules for nodes: go-control-plane's server with a cache of snapshots,
// made as Envoy Gateway makes it. It runs in this process. Its methods are safe for concurrent
// use.
type XDSServer struct {
	t       process.TB
	address string
	secure  func() (*tls.Config, error) // nil: plain text

	mu       sync.Mutex
	version  int // of the last snapshot since Start
	cache    cachev3.SnapshotCache
	server   *grpc.Server
	stop     context.CancelFunc
	done     chan struct{}
	requests []*discoveryv3.DiscoveryRequest
	headers  []metadata.MD // of streams
	open     int           // streams
}

// StartXDS starts one that speaks plain text.
func StartXDS(t process.TB) *XDSServer { return startXDS(t, nil) }

// StartXDSTLS starts one that speaks only TLS 1.3, and requires a certificate of the
// authority. Each handshake uses the authority's files as they are then.
func StartXDSTLS(t process.TB, a *Authority) *XDSServer {
	return startXDS(t, func() (*tls.Config, error) {
		caFile, certFile, keyFile := a.ServerFiles()
		ca, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, err
		}
		clients := x509.NewCertPool()
		clients.AppendCertsFromPEM(ca)
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		}, nil
	})
}

func startXDS(t process.TB, secure func() (*tls.Config, error)) *XDSServer {
	t.Helper()
	m := &XDSServer{t: t, secure: secure}
	// The port is outside the range of outgoing connections, so that none takes it between Stop and Start.
	err := process.Launch(func(port int) error {
		m.address = process.Address(port)
		return m.start()
	})
	if err != nil {
		t.Fatalf("servers: %v", err)
	}
	t.Cleanup(m.Stop)
	return m
}

// Address returns host:port.
func (m *XDSServer) Address() string { return m.address }

// Start starts the server again, at the same address and without snapshots. Versions begin at 1
// again.
func (m *XDSServer) Start() {
	m.t.Helper()
	if err := m.start(); err != nil {
		m.t.Fatalf("servers: %v", err)
	}
}

func (m *XDSServer) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var options []grpc.ServerOption
	if m.secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion:         tls.VersionTLS13,
			NextProtos:         []string{"h2"},
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return m.secure() },
		})))
	}
	l, err := new(net.ListenConfig).Listen(m.t.Context(), "tcp", m.address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	m.version, m.stop, m.done, m.requests = 0, cancel, make(chan struct{}), nil
	m.cache = cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil)
	m.server = grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(m.server, serverv3.NewServer(ctx, m.cache, serverv3.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			headers, _ := metadata.FromIncomingContext(ctx)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.open++
			m.headers = append(m.headers, headers)
			return nil
		},
		StreamClosedFunc: func(int64, *corev3.Node) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.open--
		},
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.requests = append(m.requests, proto.Clone(r).(*discoveryv3.DiscoveryRequest))
			return nil
		},
	}))
	server, done := m.server, m.done
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Stop
	}()
	return nil
}

// Stop ends the server and its connections at once. Start starts it again.
func (m *XDSServer) Stop() {
	m.mu.Lock()
	server, stop, done := m.server, m.stop, m.done
	m.mu.Unlock()
	stop()
	server.Stop()
	<-done
}

// Set makes rules the next snapshot of a node, and returns its version.
func (m *XDSServer) Set(node string, configs ...*ratelimitv3.RateLimitConfig) string {
	m.t.Helper()
	m.mu.Lock()
	m.version++
	version, cache := strconv.Itoa(m.version), m.cache
	m.mu.Unlock()
	resources := make([]types.Resource, len(configs))
	for i, c := range configs {
		resources[i] = c
	}
	snapshot, err := cachev3.NewSnapshot(version, map[resourcev3.Type][]types.Resource{resourcev3.RateLimitConfigType: resources})
	if err == nil {
		err = cache.SetSnapshot(m.t.Context(), node, snapshot)
	}
	if err != nil {
		m.t.Fatalf("servers: a snapshot: %v", err)
	}
	return version
}

// Requests returns what clients have sent since Start, in order.
func (m *XDSServer) Requests() []*discoveryv3.DiscoveryRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Headers returns the metadata of every stream, in order.
func (m *XDSServer) Headers() []metadata.MD {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.headers)
}

// Streams returns how many streams are open.
func (m *XDSServer) Streams() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

// WaitAccepted waits until a client has accepted a version.
func (m *XDSServer) WaitAccepted(version string) {
	m.t.Helper()
	m.waitFor("an ACK of version "+version, func(r *discoveryv3.DiscoveryRequest) bool {
		return r.GetVersionInfo() == version && r.GetErrorDetail() == nil && r.GetResponseNonce() != ""
	})
}

// WaitRefused waits until a client has refused a response after the first n requests, and returns
// its reason.
func (m *XDSServer) WaitRefused(n int) (reason string) {
	m.t.Helper()
	m.waitFor("a NACK", func(r *discoveryv3.DiscoveryRequest) bool {
		if n--; n >= 0 {
			return false
		}
		reason = r.GetErrorDetail().GetMessage()
		return reason != ""
	})
	return reason
}

func (m *XDSServer) waitFor(what string, is func(*discoveryv3.DiscoveryRequest) bool) {
	m.t.Helper()
	seen := 0
	if !process.Poll(managementTimeout, func() bool {
		for _, r := range m.Requests()[seen:] {
			seen++
			if is(r) {
				return true
			}
		}
		return false
	}) {
		m.t.Fatalf("servers: the xDS server waited for %s in vain; it got %s", what, describeRequests(m.Requests()))
	}
}

const managementTimeout = 30 * time.Second

func describeRequests(all []*discoveryv3.DiscoveryRequest) (text string) {
	for _, r := range all[max(0, len(all)-5):] {
		text += fmt.Sprintf("\n  node %q version %q nonce %q error %q", r.GetNode().GetId(), r.GetVersionInfo(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
	}
	return text
}
