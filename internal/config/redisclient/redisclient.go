package redisclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/socket"
)

const (
	// connectionsPerCPU is the size of the pool for one server if pool_size is 0.
	connectionsPerCPU = 10
	// idleTimeout is shorter than the time after which load balancers and NAT drop an idle
	// connection without a word (some 4 minutes). So no call uses a dead connection.
	idleTimeout = 3 * time.Minute
	// maxRedirects is enough for a slot that has moved (one) and is being moved on
	// (another), with one to spare.
	maxRedirects = 3
	// reloadInterval is how long a failover of a cluster may go unnoticed. A dead master
	// sends no redirection, and the library looks for its successor only when the state
	// that it knows is this old. Each server then reads a small table twice a second.
	reloadInterval = 500 * time.Millisecond
	// failoverDials is how often connecting through sentinels may wait. It may wait for the
	// known sentinel, and for a new connection to it. It may also wait for a connection to
	// another sentinel, for its answer, and for the master.
	failoverDials = 5
)

// Options say which servers a client connects to.
type Options struct {
	settings.Redis
	// Section is the section of the settings that Redis is from, such as "store.redis".
	// Errors and log lines name it.
	Section string
	// Timeout bounds one call.
	Timeout time.Duration
	// Connected is called while a connection is made. Nil: no call.
	Connected func()
	// Log is required.
	Log *zap.Logger
}

// DialTimeout is the time limit for making a connection to a server whose calls have a time limit.
// Requests stop waiting for it at that limit.
func DialTimeout(call time.Duration) time.Duration { return max(250*time.Millisecond, call) }

// New returns a client. It reads the files with credentials, and reads them again when
// they change. It does not connect yet: the first command does.
func New(o Options) (redis.UniversalClient, error) {
	at := &o.URL
	main := &login{user: o.Username}
	var err error
	if at.Password != "" {
		main.user = at.Username
		main.password, err = watch.Secret("", at.Password, "", o.Log)
	} else {
		main.password, err = watch.Secret(o.Section+".password_file", o.Password, o.PasswordFile, o.Log)
	}
	if err != nil {
		return nil, err
	}
	d := &dialer{timeout: DialTimeout(o.Timeout)}
	if at.TLS {
		if d.tls, err = watch.TLS(o.Section+".tls", o.TLS.Files(), o.TLS.Config, o.Log); err != nil {
			return nil, err
		}
	}
	options := clientOptions(&o)
	options.Dialer, options.CredentialsProviderContext = d.dial, main.credentials
	connected := o.Connected
	if connected == nil {
		connected = func() {}
	}
	options.OnConnect = func(context.Context, *redis.Conn) error {
		connected()
		return nil
	}

	switch at.Topology {
	case settings.RedisCluster:
		c := options.Cluster()
		// Routing policies ask the server for COMMAND in the middle of a call: some 100 kB,
		// which the user may not be allowed to see. They route commands without a key, and
		// our commands have one.
		c.DisableRoutingPolicies = true
		c.ClusterStateReloadInterval = reloadInterval
		return redis.NewClusterClient(c), nil
	case settings.RedisSentinel:
		if o.SentinelPassword == "" && o.SentinelPasswordFile == "" {
			return redis.NewFailoverClient(options.Failover()), nil
		}
		sentinel := &login{user: o.SentinelUsername}
		sentinel.password, err = watch.Secret(o.Section+".sentinel_password_file", o.SentinelPassword, o.SentinelPasswordFile, o.Log)
		if err != nil {
			return nil, err
		}
		options.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
			connected()
			return sentinel.onConnect(ctx, conn)
		}
		return redis.NewFailoverClient(options.Failover()), nil
	default:
		c := options.Simple()
		c.MaintNotificationsConfig = options.MaintNotificationsConfig
		return redis.NewClient(c), nil
	}
}

func clientOptions(s *Options) *redis.UniversalOptions {
	at := &s.URL
	o := &redis.UniversalOptions{
		Addrs:      at.Addresses,
		MasterName: at.Master,
		DB:         at.Database,
		// Servers push nothing to this client. With RESP3 each call would look for it.
		Protocol: 2,

		// The server may have run a write that was sent. A second try would charge again.
		// On a cluster this is for the nodes. The cluster client itself follows
		// redirections, whose servers have run nothing.
		MaxRetries:   -1,
		MaxRedirects: maxRedirects,
		// The wait before a redirection that is neither MOVED nor ASK (READONLY during a
		// failover). It fits into the time of a call.
		MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: 4 * time.Millisecond,

		// The caller's deadline ends a call, wherever it waits.
		ContextTimeoutEnabled: true,
		// These bound commands without a caller: those that ask sentinels, and nodes for
		// the state of their cluster. A slow moment should not fail them.
		ReadTimeout:  DialTimeout(s.Timeout),
		WriteTimeout: DialTimeout(s.Timeout),

		// The dialer below bounds each connection itself. The library makes
		// a connection in the background, so it may take longer than the request that
		// asked for it waits. Later requests use it. One try: the next request is the
		// retry.
		DialTimeout:   DialTimeout(s.Timeout),
		DialerRetries: 1,

		PoolSize: s.PoolSize,
		// A request that finds all connections busy waits as long as for a decision.
		PoolTimeout: s.Timeout,
		// There is no other bound on connections: it would fail at once instead of waiting.
		// Commands in a pipeline use the same pool.
		MaxActiveConns:   0,
		PipelinePoolSize: -1,
		// No connection is made ahead. Most of its time is the greeting, which comes with
		// the first use anyway. Replicas of a cluster would have unused ones.
		MinIdleConns:    0,
		ConnMaxIdleTime: idleTimeout,

		// Replicas lag behind, and cannot charge.
		ReadOnly:       false,
		RouteByLatency: false,
		RouteRandomly:  false,

		// Connecting saves a round trip without CLIENT SETINFO, and without the hand-over
		// protocol of a managed service, which plain servers refuse.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if at.Socket != "" {
		o.Addrs = []string{at.Socket} // the library takes a path with a slash for a unix socket
	}
	if at.Topology == settings.RedisSentinel {
		o.DialTimeout *= failoverDials
	}
	if o.PoolSize == 0 {
		o.PoolSize = connectionsPerCPU * runtime.GOMAXPROCS(0)
	}
	return o
}

// A login is a user and a password, which may change.
type login struct {
	user     string
	password func() string
}

// credentials is called for each new connection.
func (l *login) credentials(context.Context) (user, password string, err error) {
	return l.user, l.password(), nil
}

// onConnect logs in to a sentinel. The library supports only a fixed password for
// sentinels, but calls this for every connection. Connections to Redis are logged in
// already: the library gives their client another name.
func (l *login) onConnect(ctx context.Context, conn *redis.Conn) error {
	if strings.HasPrefix(conn.String(), "Redis<FailoverClient ") {
		return nil
	}
	var err error
	if l.user == "" {
		err = conn.Auth(ctx, l.password()).Err()
	} else {
		err = conn.AuthACL(ctx, l.user, l.password()).Err()
	}
	if err != nil {
		return fmt.Errorf("logging in to a sentinel: %w", err)
	}
	return nil
}

type dialer struct {
	timeout time.Duration
	tls     func() *tls.Config // nil: no TLS
}

// keepAlive detects in some 45 s that the peer of a connection that only listens (to a
// sentinel) is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// dial never returns an error. If connecting fails, it returns a connection whose reads
// and writes fail. The pool of the library counts dial errors. After some of them it connects
// only once a second, so it would notice too late that a server is back.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.connect(ctx, network, address)
	if err != nil {
		return failedConn{err, failedAddr{network, address}}, nil
	}
	return conn, nil
}

func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	plain, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := socket.Direct(plain)
	if d.tls == nil {
		return pooledConn(conn), nil
	}
	secured, err := d.handshake(ctx, conn, address)
	if err != nil {
		_ = conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: err}
	}
	return secured, nil
}

// handshake makes a TLS connection with the files as they are now.
func (d *dialer) handshake(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	c := d.tls()
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		c = c.Clone()
		c.ServerName = host
	}
	secured := tls.Client(conn, c)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secured, nil
}

// pooledConn lets the pool of the library check a connection with one system call that never blocks.
func pooledConn(c net.Conn) net.Conn {
	s, ok := c.(silencer)
	if !ok {
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	return &pooled{c, look{raw, s}}
}

// A silencer knows whether its socket is open and has nothing to read.
type silencer interface {
	syscall.Conn
	Silent() bool
}

type pooled struct {
	net.Conn
	look look
}

// SyscallConn is what the pool checks an idle connection with.
func (c *pooled) SyscallConn() (syscall.RawConn, error) { return &c.look, nil }

// look is a RawConn whose Read looks only at a socket that may have ended.
type look struct {
	syscall.RawConn
	at silencer
}

func (l *look) Read(f func(uintptr) bool) error {
	if l.at.Silent() {
		return nil
	}
	return l.RawConn.Read(f)
}

type failedConn struct {
	err  error
	addr failedAddr
}

type failedAddr struct{ network, address string }

func (a failedAddr) Network() string { return a.network }
func (a failedAddr) String() string  { return a.address }

// fail wraps the error, since the library unwraps an error of the greeting once.
func (c failedConn) fail() (int, error) { return 0, fmt.Errorf("connecting: %w", c.err) }

func (c failedConn) Read([]byte) (int, error)         { return c.fail() }
func (c failedConn) Write([]byte) (int, error)        { return c.fail() }
func (c failedConn) Close() error                     { return nil }
func (c failedConn) LocalAddr() net.Addr              { return c.addr }
func (c failedConn) RemoteAddr() net.Addr             { return c.addr }
func (c failedConn) SetDeadline(time.Time) error      { return nil }
func (c failedConn) SetReadDeadline(time.Time) error  { return nil }
func (c failedConn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn is what the pool checks an idle connection with. The error makes it drop a
// connection that failed after its caller had gone.
func (c failedConn) SyscallConn() (syscall.RawConn, error) { return nil, errors.ErrUnsupported }
