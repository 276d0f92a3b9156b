package pgsource

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

const (
	// upkeep is the time from one look at the connections to the next.
	upkeep = time.Second
	// A connection is replaced after lifetime and up to spread more. The spread keeps
	// connections from ending together.
	lifetime, spread = 50 * time.Minute, 10 * time.Minute
)

// A connection of the pool.
type connection struct {
	*pgconn.PgConn
	prepared map[string]*pgconn.StatementDescription // by the query
	until    time.Time                               // when it is replaced
}

func (c *connection) old() bool { return time.Now().After(c.until) }

// newPool returns a pool without connections. A connection is not tested before it is
// used.
func (s *Source) newPool() (*puddle.Pool[*connection], error) {
	return puddle.NewPool(&puddle.Config[*connection]{
		Constructor: s.open,
		Destructor:  func(c *connection) { hangUp(c.PgConn) },
		MaxSize:     int32(min(s.o.PoolSize, math.MaxInt32)),
	})
}

// open makes a connection and prepares the queries before a request needs them. It ignores
// errors in a query, which each lookup returns.
func (s *Source) open(ctx context.Context) (*connection, error) {
	pg, err := s.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	c := &connection{
		PgConn:   pg,
		prepared: make(map[string]*pgconn.StatementDescription),
		until:    time.Now().Add(lifetime + rand.N(spread)), //nolint:gosec // spreads connections, hides nothing
	}
	ctx, stop := s.until(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for _, q := range s.questions() {
		if _, err := s.prepare(ctx, c, q); err != nil && c.IsClosed() {
			hangUp(pg)
			return nil, err
		}
	}
	return c, nil
}

// release returns a connection to the pool, or ends it.
func release(r *puddle.Resource[*connection]) {
	if c := r.Value(); c.IsClosed() || c.IsBusy() || c.TxStatus() != 'I' || c.old() {
		r.Destroy()
		return
	}
	r.Release()
}

// keep makes all connections at once, and again after an outage, until the source is
// closed. A request waits a few milliseconds, which is too short to make one.
func (s *Source) keep() {
	tick := time.NewTicker(upkeep)
	defer tick.Stop()
	for {
		s.fill()
		s.replace()
		select {
		case <-tick.C:
		case <-s.closed.Done():
			return
		}
	}
}

// fill makes the connections that are missing. It ignores errors, which a lookup without
// a connection returns.
func (s *Source) fill() {
	ctx, cancel := context.WithTimeout(s.closed, time.Minute)
	defer cancel()
	var made sync.WaitGroup
	stats := s.pool.Stat()
	for range stats.MaxResources() - stats.TotalResources() {
		made.Go(func() { _ = s.pool.CreateResource(ctx) })
	}
	made.Wait()
}

// replace ends one old connection that has no question, if none is missing.
func (s *Source) replace() {
	stats := s.pool.Stat()
	missing := stats.TotalResources() < stats.MaxResources()
	for _, r := range s.pool.AcquireAllIdle() {
		if !missing && r.Value().old() {
			missing = true
			r.Destroy()
			continue
		}
		r.ReleaseUnused()
	}
}
