package daemon

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
)

const (
	// connectionsPerCPU is the pool of one server if store.redis.pool_size is 0.
	connectionsPerCPU = 10
	// idleTimeout is less than the shortest time after which load balancers and
	// NAT forget a connection without a word (some 4 minutes), so that no call
	// meets one that is dead.
	idleTimeout = 3 * time.Minute
	// maxRedirects is enough for a slot that has moved (one) and is being moved on
	// (another), with one to spare.
	maxRedirects = 3
	// reloadInterval is how long a failover of a cluster may go unnoticed: who
	// asks a dead master gets no redirection, and the library looks for its
	// successor only when the state it knows is this old. It costs each server a
	// look at a small table twice a second.
	reloadInterval = 500 * time.Millisecond
	// failoverDials is how often connecting through sentinels may wait: for the
	// sentinel it knows, for a new connection to that, for one to another, for
	// that one's answer, and for the master itself.
	failoverDials = 5
)

// A redisServer is how the settings at a path name servers, and how long a call to
// them may take.
type redisServer struct {
	settings.Redis
	at        string
	timeout   time.Duration
	connected func() // called while a connection is made
}

// storeServer is the Redis of the store.
func storeServer(s settings.Store) redisServer {
	return redisServer{Redis: s.Redis, at: "store.redis", timeout: s.Timeout, connected: func() {}}
}

// redisClient makes a client for the servers of the settings. It connects to
// nothing yet, but reads the files with credentials; they are read again when
// they change, which log is told.
func redisClient(r redisServer, log *zap.Logger) (redis.UniversalClient, error) {
	servers, err := r.URL.Servers()
	if err != nil {
		return nil, fmt.Errorf("%s.url: %w", r.at, err)
	}
	own, err := newLogin(r.at+".password_file", r.Username, r.Password, r.PasswordFile, log)
	if err != nil {
		return nil, err
	}
	if servers.Password != "" {
		own = &login{user: servers.Username, password: servers.Password}
	}
	d := &dialer{timeout: r.DialTimeout}
	if servers.TLS {
		d.tls, err = newReread(r.at+".tls", r.TLS.Files(), func() (*tls.Config, error) {
			return r.TLS.Config(r.at + ".tls")
		}, log)
		if err != nil {
			return nil, err
		}
	}
	o := redisOptions(r, &servers)
	o.Dialer, o.CredentialsProviderContext = d.dial, own.credentials
	o.OnConnect = func(context.Context, *redis.Conn) error {
		r.connected()
		return nil
	}

	switch servers.Topology {
	case settings.RedisCluster:
		c := o.Cluster()
		// The policies ask the server for COMMAND, some 100 kB which our user need
		// not be allowed to see, in the middle of a call, to learn where commands go
		// that have no key; ours have.
		c.DisableRoutingPolicies = true
		c.ClusterStateReloadInterval = reloadInterval
		return redis.NewClusterClient(c), nil
	case settings.RedisSentinel:
		sentinel, err := newLogin(r.at+".sentinel_password_file", r.SentinelUsername, r.SentinelPassword, r.SentinelPasswordFile, log)
		if err != nil {
			return nil, err
		}
		if r.SentinelPassword != "" || r.SentinelPasswordFile != "" {
			o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
				r.connected()
				return sentinel.onConnect(ctx, conn)
			}
		}
		return redis.NewFailoverClient(o.Failover()), nil
	default:
		c := o.Simple()
		c.MaintNotificationsConfig = o.MaintNotificationsConfig
		return redis.NewClient(c), nil
	}
}

// redisOptions are the options of every topology.
func redisOptions(r redisServer, servers *settings.RedisServers) *redis.UniversalOptions {
	o := &redis.UniversalOptions{
		Addrs:      servers.Addresses,
		MasterName: servers.Master,
		DB:         servers.Database,
		// Nothing is ever pushed to us, and with RESP3 each call would look for it.
		Protocol: 2,

		// A write that was sent may have been charged: a second try would charge
		// again. On a cluster this is for the nodes; the tries of the cluster client
		// itself are redirections, by servers which have run nothing.
		MaxRetries:   -1,
		MaxRedirects: maxRedirects,
		// Between redirections that are no MOVED or ASK (READONLY while a failover
		// is under way), within the time of a call.
		MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: 4 * time.Millisecond,

		// The caller's deadline ends a call, wherever it waits.
		ContextTimeoutEnabled: true,
		// These bound what has no caller: asking sentinels, and nodes for the state of
		// their cluster, which a slow moment should not fail.
		ReadTimeout:  max(r.DialTimeout, r.timeout),
		WriteTimeout: max(r.DialTimeout, r.timeout),

		// Our dialer bounds each connection by dial_timeout itself. A connection is
		// made in the background and may take longer than the request that asked
		// for it waits: given up each time, a slow moment would never get one. The
		// next requests have it then. One try: the next request is the retry.
		DialTimeout:   r.DialTimeout,
		DialerRetries: 1,

		PoolSize: r.PoolSize,
		// Who finds all connections busy waits for one as long as for a decision.
		PoolTimeout: r.timeout,
		// No other bound of connections: that one would be an error at once instead
		// of a wait. Commands in a pipeline take theirs from the same pool.
		MaxActiveConns:   0,
		PipelinePoolSize: -1,
		// None ahead: the greeting, which is most of the time, comes with the first
		// use anyway, and replicas of a cluster would hold some for nobody.
		MinIdleConns:    0,
		ConnMaxIdleTime: idleTimeout,

		// Replicas are behind, and cannot charge.
		ReadOnly:       false,
		RouteByLatency: false,
		RouteRandomly:  false,

		// Connecting costs a round trip less without CLIENT SETINFO, and without the
		// hand-over protocol of a managed service, which plain servers refuse.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if servers.Socket != "" {
		o.Addrs = []string{servers.Socket} // the slash makes it a unix socket
	}
	if servers.Topology == settings.RedisSentinel {
		o.DialTimeout *= failoverDials
	}
	if o.PoolSize == 0 {
		o.PoolSize = connectionsPerCPU * runtime.GOMAXPROCS(0)
	}
	return o
}

// A login is a user and a password, which may come from a file that changes.
type login struct {
	user     string
	password settings.Secret
	file     *reread[settings.Secret] // nil: password
}

func newLogin(setting, user string, password settings.Secret, file string, log *zap.Logger) (*login, error) {
	l := &login{user: user, password: password}
	if file == "" {
		return l, nil
	}
	var err error
	l.file, err = newReread(setting, []string{file}, func() (settings.Secret, error) {
		password, err := settings.ReadPassword(file)
		if err != nil {
			return "", fmt.Errorf("%s: %s: %w", setting, file, err)
		}
		return password, nil
	}, log)
	return l, err
}

// credentials is asked for at each new connection.
func (l *login) credentials(context.Context) (user, password string, err error) {
	if l.file != nil {
		return l.user, string(l.file.get().Reveal()), nil
	}
	return l.user, string(l.password.Reveal()), nil
}

// onConnect logs in to a sentinel. The library has no more than a fixed password
// for sentinels, but calls this for every connection, of which those to Redis are
// logged in already. They are told apart by the name that the library gives the
// client of a master, whose address it does not know beforehand.
func (l *login) onConnect(ctx context.Context, conn *redis.Conn) error {
	if strings.HasPrefix(conn.String(), "Redis<FailoverClient ") {
		return nil
	}
	user, password, err := l.credentials(ctx)
	if err != nil {
		return err
	}
	if user == "" {
		err = conn.Auth(ctx, password).Err()
	} else {
		err = conn.AuthACL(ctx, user, password).Err()
	}
	if err != nil {
		return fmt.Errorf("logging in to a sentinel: %w", err)
	}
	return nil
}

// A dialer makes connections for the library.
type dialer struct {
	timeout time.Duration
	tls     *reread[*tls.Config] // nil: no TLS
}

// keepAlive finds a peer that is gone on a connection that only listens (to a
// sentinel) in some 45 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// dial never returns an error: a connection that could not be made is returned as
// one that fails. The pool of the library counts errors of dialing, and from a
// number of them on (for as long as it lives) it tries to connect once a second
// only, so that a server which is back would not be asked for that long.
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
	conn, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, network, address)
	if err != nil || d.tls == nil {
		return conn, err
	}
	secured, err := d.handshake(ctx, conn, address)
	if err != nil {
		_ = conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: err}
	}
	return secured, nil
}

// handshake speaks TLS with what the files hold now.
func (d *dialer) handshake(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	c := d.tls.get()
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

// failedConn is a connection that could not be made.
type failedConn struct {
	err  error
	addr failedAddr
}

type failedAddr struct{ network, address string }

func (a failedAddr) Network() string { return a.network }
func (a failedAddr) String() string  { return a.address }

// fail wraps the error, since the library takes one layer off what fails while it
// greets a server.
func (c failedConn) fail() (int, error) { return 0, fmt.Errorf("connecting: %w", c.err) }

func (c failedConn) Read([]byte) (int, error)         { return c.fail() }
func (c failedConn) Write([]byte) (int, error)        { return c.fail() }
func (c failedConn) Close() error                     { return nil }
func (c failedConn) LocalAddr() net.Addr              { return c.addr }
func (c failedConn) RemoteAddr() net.Addr             { return c.addr }
func (c failedConn) SetDeadline(time.Time) error      { return nil }
func (c failedConn) SetReadDeadline(time.Time) error  { return nil }
func (c failedConn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn is how the pool looks whether an idle connection is still good: one
// that failed after its caller had gone is thrown away then.
func (c failedConn) SyscallConn() (syscall.RawConn, error) { return nil, errors.ErrUnsupported }
