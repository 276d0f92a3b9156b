package xds

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
)

// A Loader takes what the server sends. Run calls it from one goroutine.
type Loader interface {
	// Load makes rules active, or returns why it keeps the last good ones.
	Load(version string, domains []rules.Domain) error
	// Refused is called for a response that cannot be decoded.
	Refused(version string, err error)
}

// Options of a [Client]. Settings, Loader and Log are required.
type Options struct {
	Settings settings.XDS
	// NodeMetadata has name=value for the node of the requests, and Headers name=value for their
	// headers.
	NodeMetadata []string
	Headers      []settings.Secret
	// Backoff is the first wait between two connections, and MaxBackoff the longest. Zero: a
	// second, and a minute.
	Backoff, MaxBackoff time.Duration
	// MaxMessageBytes bounds a response. Zero: 64 MiB.
	MaxMessageBytes int
	Loader          Loader
	Log             *zap.Logger
}

// State is the state of the connection of a Client to its server.
type State struct {
	Connected bool
	// Reason says why there is no connection. It is empty before the first attempt.
	Reason string
	// Version is that of the last accepted response.
	Version string
	// Loaded says that a response was accepted.
	Loaded bool
}

// A Client gets rules from an xDS server. [Client.State] is safe for concurrent use.
type Client struct {
	opts    Options
	node    *corev3.Node
	headers metadata.MD
	tls     func() *tls.Config // nil: plain text
	pings   keepalive.ClientParameters

	mu    sync.Mutex
	state State
}

const section = "rules.xds"

// New returns a Client. It reads the files of certificates, and does not connect.
func New(o Options) (*Client, error) {
	o.Backoff, o.MaxBackoff = cmp.Or(o.Backoff, time.Second), cmp.Or(o.MaxBackoff, time.Minute)
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, 64<<20)
	c := &Client{opts: o, headers: make(metadata.MD), pings: keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}}
	fields := make(map[string]*structpb.Value)
	for _, pair := range o.NodeMetadata {
		name, value, _ := strings.Cut(pair, "=")
		fields[name] = structpb.NewStringValue(value)
	}
	c.node = &corev3.Node{Id: o.Settings.NodeID, UserAgentName: "slidegate", Metadata: &structpb.Struct{Fields: fields}}
	for _, pair := range o.Headers {
		name, value, _ := strings.Cut(string(pair.Reveal()), "=")
		c.headers.Append(name, value)
	}
	if t := o.Settings.TLS; t.Enabled {
		var err error
		if c.tls, err = watch.TLS(section+".tls", t.Files(), t.Config, o.Log); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// State returns the state of the connection.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *Client) setState(change func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.state)
}

// The waits between connections grow by growth. Each is up to a fifth longer or shorter, so that
// the instances of a service do not return to a server all at once.
const (
	growth = 2
	jitter = 0.2
)

// Run connects and loads what the server sends, until ctx ends. It returns nil.
func (c *Client) Run(ctx context.Context) error {
	waits := &backoff.ExponentialBackOff{
		InitialInterval:     c.opts.Backoff,
		MaxInterval:         c.opts.MaxBackoff,
		Multiplier:          growth,
		RandomizationFactor: jitter,
	}
	waits.Reset()
	for ctx.Err() == nil {
		responded, err := c.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		if responded {
			waits.Reset()
		}
		wait := min(waits.NextBackOff(), c.opts.MaxBackoff)
		reason := reasonOf(err)
		c.setState(func(s *State) { s.Connected, s.Reason = false, reason })
		c.opts.Log.Warn("no connection to the xDS server, the rules stay as they are",
			zap.String("address", string(c.opts.Settings.Address)), zap.String("error", reason), zap.Duration("retry_in", wait.Round(time.Millisecond)))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	c.setState(func(s *State) { s.Connected, s.Reason = false, "rls stops" })
	return nil
}

// maxReason bounds a text of a server in messages, in bytes.
const maxReason = 512

// reasonOf returns the text of an error. A part of it may be from the server.
func reasonOf(err error) string {
	if err == nil {
		return "the server ended the stream"
	}
	text := status.Convert(err).Message()
	if text == "" {
		text = status.Code(err).String()
	}
	text = withoutWrapping(text)
	if strings.Contains(text, "received message larger than max") {
		text += "; serve fewer rules"
	}
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// withoutWrapping returns the cause in a text of gRPC about a connection, which would otherwise
// not fit into a line of a page.
func withoutWrapping(text string) string {
	quoted, ok := strings.CutPrefix(text, "connection error: desc = ")
	if !ok {
		return text
	}
	cause, err := strconv.Unquote(quoted)
	if err != nil {
		return text
	}
	cause = strings.TrimPrefix(cause, "transport: ")
	return strings.TrimPrefix(cause, "Error while dialing: ")
}

// connect makes a connection and loads what the server sends, until that ends. responded says
// that the server has sent a response.
func (c *Client) connect(ctx context.Context) (responded bool, err error) {
	conn, err := c.dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, c.headers))
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		cancel()
		return false, err
	}
	s := newSession(c, stream)
	reader := make(chan struct{})
	go func() {
		defer close(reader)
		s.read()
	}()
	defer func() {
		cancel()
		<-reader
	}()
	c.setState(func(s *State) { s.Connected, s.Reason = true, "" })
	c.opts.Log.Info("connected to the xDS server, which sends rules for the node",
		zap.String("address", string(c.opts.Settings.Address)), zap.String("node", c.opts.Settings.NodeID))
	return s.run(ctx)
}

const (
	dialTimeout = 10 * time.Second
	// If the server disappears without closing the connection, the connection ends after tcpIdle +
	// tcpProbes * tcpInterval.
	tcpIdle     = 30 * time.Second
	tcpInterval = 10 * time.Second
	tcpProbes   = 3
	// A server of grpc-go disconnects a client that pings more often than every 5 minutes.
	pingInterval = 5*time.Minute + 10*time.Second
	pingTimeout  = 20 * time.Second
)

// dial returns a connection, which is not made yet. It uses the certificates in the files now.
func (c *Client) dial() (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if c.tls != nil {
		secure = credentials.NewTLS(c.tls())
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: tcpIdle, Interval: tcpInterval, Count: tcpProbes}}
	network, address, target := "tcp", string(c.opts.Settings.Address), string(c.opts.Settings.Address)
	if path, ok := c.opts.Settings.Address.Socket(); ok {
		network, address, target = "unix", path, "localhost"
	}
	// With passthrough the dialer resolves the name. The resolver of grpc-go would also ask DNS
	// for its own settings. The target is the name of the server to TLS.
	return grpc.NewClient("passthrough:///"+target,
		grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}),
		grpc.WithKeepaliveParams(c.pings),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(c.opts.MaxMessageBytes)),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("slidegate"),
	)
}
