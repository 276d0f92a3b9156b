package pgsource

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// connect makes one connection, with the present password and certificates. notified
// gets its notifications and may be nil.
func (s *Source) connect(ctx context.Context, notified func(*pgconn.PgConn, *pgconn.Notification)) (*pgconn.PgConn, error) {
	c := s.config.Copy()
	c.OnNotification = notified
	if s.o.Password != nil {
		if password := s.o.Password(); password != "" {
			c.Password = password
		}
	}
	var config *tls.Config
	if s.o.TLS != nil {
		config = s.o.TLS()
	}
	c.TLSConfig = tlsFor(config, c.Host, c.Port)
	for _, f := range c.Fallbacks {
		f.TLSConfig = tlsFor(config, f.Host, f.Port)
	}

	// After a question is given up, the library asks the server to cancel it, for up to
	// 15 seconds, and only then closes the connection. Its slot in the pool would be
	// unusable meanwhile. statement_timeout cancels the question anyway.
	var connected atomic.Bool
	// Close does not wait for the library's attempts to connect.
	var stop func() bool
	lookup, dial := c.LookupFunc, c.DialFunc
	c.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		ctx, stop := s.until(ctx)
		defer stop()
		return lookup(ctx, host)
	}
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancel
		}
		ctx, done := s.until(ctx)
		defer done()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		stop = context.AfterFunc(s.closed, func() { _ = conn.Close() })
		return &dialled{conn, stop}, nil
	}
	c.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		connected.Store(true)
		stop()
		return nil
	}
	return pgconn.ConnectConfig(ctx, c)
}

var errNoCancel = errors.New("the server cancels questions by itself")

// A dialled connection is closed with the source while it is not ready yet.
type dialled struct {
	net.Conn
	stop func() bool
}

func (d *dialled) Close() error {
	d.stop()
	return d.Conn.Close()
}

// hangUp closes a connection without waiting for a server that does not answer.
func hangUp(c *pgconn.PgConn) {
	if c.IsClosed() {
		_ = c.Conn().Close() // there is nothing left to write
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	_ = c.Close(ctx)
	select {
	case <-c.CleanupDone():
	case <-ctx.Done():
	}
}
