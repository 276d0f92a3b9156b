package pgsource

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// beforeConnect completes the configuration of one new connection.
func (s *Source) beforeConnect(_ context.Context, c *pgx.ConnConfig) error {
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

	// Before the library closes a connection whose question was given up it asks
	// the server to cancel that, for up to 15 seconds, in which nobody has this
	// place in the pool. statement_timeout does it without us.
	var connected atomic.Bool
	// The library's own attempts end with nothing but their time. Closing the source
	// does not wait for that.
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
	return nil
}

var errNoCancel = errors.New("nothing is cancelled")

// A dialled connection is closed with the source until it is ready.
type dialled struct {
	net.Conn
	stop func() bool
}

func (d *dialled) Close() error {
	d.stop()
	return d.Conn.Close()
}

// afterConnect has the server read the queries before anybody waits for it. What
// is wrong with them is told to who asks.
func (s *Source) afterConnect(ctx context.Context, conn *pgx.Conn) error {
	ctx, stop := s.until(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for _, q := range []question{s.byDigest(""), s.byID("")} {
		if q.sql == "" {
			continue
		}
		if err := prepare(ctx, conn, q); err != nil && conn.IsClosed() {
			return err
		}
	}
	return nil
}

// hangUp does not wait for the good-bye of a server that has not answered.
func hangUp(c *pgx.Conn) {
	if c.IsClosed() {
		_ = c.PgConn().Conn().Close() // nothing was written that anybody wants
	}
}
