package pgsource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/puddle/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/internal/core/tier"
)

var (
	_ tier.Watcher = (*Source)(nil)
	_ tier.Batcher = (*Source)(nil)
)

// A Source looks subjects up in a PostgreSQL server. Make one with [New]. It is safe for
// concurrent use.
type Source struct {
	o      Options
	config *pgconn.Config
	named  bool // statements have names
	pool   *puddle.Pool[*connection]
	kept   sync.WaitGroup
	log    *zap.Logger
	closed context.Context
	close  context.CancelFunc

	// silence is how long Watch waits for a notification before it pings the server, and
	// answer how long the server then has to answer.
	silence, answer time.Duration
}

// New returns a source that connects in the background. Its errors are about the options
// and name the setting.
func New(o Options) (*Source, error) {
	if o.PoolSize <= 0 {
		o.PoolSize = defaultPoolSize
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Query == "" {
		o.Query = queryByDigest
		if o.QueryByID == "" {
			o.QueryByID = queryByID
		}
	}
	s := &Source{o: o, silence: 10 * time.Second, answer: 5 * time.Second, log: zap.NewNop()}
	if o.Log != nil {
		s.log = o.Log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
			return zapcore.NewSamplerWithOptions(c, time.Minute, 1, 0)
		}))
	}
	var err error
	if s.config, s.named, err = s.o.parse(); err != nil {
		return nil, err
	}
	if s.pool, err = s.newPool(); err != nil {
		return nil, fmt.Errorf("tiers.postgres: %w", err)
	}
	s.closed, s.close = context.WithCancel(context.Background())
	s.kept.Go(s.keep)
	return s, nil
}

// Close ends all lookups that are under way and closes all connections.
func (s *Source) Close() error {
	s.close()
	s.kept.Wait()
	s.pool.Close()
	return nil
}

// until returns a context that ends with ctx or when the source is closed.
func (s *Source) until(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closed, cancel)
	return ctx, func() { stop(); cancel() }
}

// batch is the most keys of one question. With 100 rows of ordinary size the answer takes
// PostgreSQL about a millisecond.
const batch = 100

// Batch implements [tier.Batcher]. A query of the settings is for one key.
func (s *Source) Batch() int {
	if s.o.Query != queryByDigest || s.o.QueryByID != queryByID {
		return 1
	}
	return batch
}

// Lookup implements [tier.Source]. If its connection is dead, as all are after a restart
// of the server, Lookup asks again at once on a new one.
func (s *Source) Lookup(ctx context.Context, k tier.Key) (*tier.Record, error) {
	q := s.byDigest(k.Digest)
	if k.Digest == "" {
		q = s.byID(k.ID)
		// An invalid id is in no table, and the server could refuse its bytes.
		if q.sql == "" || tier.ValidID(k.ID) != nil {
			return &tier.Record{}, nil
		}
	}
	found, err := s.find(ctx, q)
	if err != nil {
		return nil, err
	}
	if r, ok := found[""]; ok {
		return r.Record, nil
	}
	return &tier.Record{}, nil
}

// LookupAll implements [tier.Batcher] as Lookup does. It asks for digests and for ids
// apart.
func (s *Source) LookupAll(ctx context.Context, keys []tier.Key) []tier.Result {
	var digests, ids []string
	for _, k := range keys {
		switch {
		case k.Digest != "":
			digests = append(digests, k.Digest)
		case tier.ValidID(k.ID) == nil:
			ids = append(ids, k.ID)
		}
	}
	byDigest, digestErr := s.findAll(ctx, manyDigests(digests), digests)
	byID, idErr := s.findAll(ctx, manyIDs(ids), ids)
	results := make([]tier.Result, len(keys))
	for i, k := range keys {
		found, err, name := byDigest, digestErr, k.Digest
		if k.Digest == "" {
			found, err, name = byID, idErr, k.ID
		}
		r, ok := found[name]
		switch {
		case err != nil && badRecord(err): // of one row, but it is not known of which
			r.Record, r.Err = s.Lookup(ctx, k)
		case err != nil:
			r.Err = err
		case !ok:
			r.Record = &tier.Record{}
		case r.Err != nil:
			r = tier.Result{Err: s.explain(manyDigests(nil), r.Err)}
		}
		results[i] = r
	}
	return results
}

// findAll is find, unless there are no keys.
func (s *Source) findAll(ctx context.Context, q question, keys []string) (answers, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return s.find(ctx, q)
}

// find asks, once more if the connection was dead.
func (s *Source) find(ctx context.Context, q question) (answers, error) {
	ctx, stop := s.until(ctx)
	defer stop()
	found, again, err := s.ask(ctx, q)
	if again && ctx.Err() == nil {
		found, _, err = s.ask(ctx, q)
	}
	if err != nil {
		return nil, s.explain(q, err)
	}
	return found, nil
}

// ask asks once. again is true if the connection was dead, so that a second attempt may
// succeed.
func (s *Source) ask(ctx context.Context, q question) (found answers, again bool, err error) {
	r, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, false, err
	}
	defer release(r)
	conn := r.Value()
	found, err = s.query(ctx, conn, q)
	switch state := sqlState(err); state[:min(2, len(state))] {
	case "0A", "26", "42":
		// The prepared statement may be outdated: a column has changed its type, or a
		// pooler has forgotten the statement. Or the server still has it (42P05).
		s.forget(ctx, conn, q)
		if state == "0A000" || state == "26000" || state == "42P05" {
			found, err = s.query(ctx, conn, q)
		}
	}
	if err == nil || badRecord(err) || !conn.IsClosed() {
		return found, false, err
	}
	if ctx.Err() == nil {
		s.pool.Reset() // the other connections are probably dead too
	}
	return nil, true, err
}

// badRecord reports whether an error is about the content of one row.
func badRecord(err error) bool {
	_, tooLong := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err)
	return tooLong || errors.Is(err, tier.ErrBadRecord)
}

// sqlState returns PostgreSQL's code of an error, or an empty text if the error is not
// from the server.
func sqlState(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.Code
	}
	return ""
}

// explain returns an error that names the setting and says what to do.
func (s *Source) explain(q question, err error) error {
	if s.closed.Err() != nil {
		return fmt.Errorf("tiers.postgres: the source is closed: %w", err)
	}
	if errors.Is(err, tier.ErrBadRecord) || errors.Is(err, errColumns) || errors.Is(err, errParameters) {
		return fmt.Errorf("%s: %w", q.setting, err)
	}
	var tooLong *pgproto3.ExceededMaxBodyLenErr
	if errors.As(err, &tooLong) {
		return fmt.Errorf("%s: %w: the row is longer than %d bytes", q.setting, tier.ErrBadRecord, maxAnswer)
	}
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) {
		return fmt.Errorf("%s: %w", explainConnect(err), err)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("tiers.postgres: no answer in time: %w", err)
	}
	state := sqlState(err)
	switch state {
	case "":
		return fmt.Errorf("tiers.postgres: %w", err)
	case "57014": // query_canceled
		return fmt.Errorf("%s: it took too long, is there an index? %w: %w", q.setting, context.DeadlineExceeded, err)
	case "3F000", "42P01", "42703": // no such schema, table, column
		if q.many || q.sql == queryByDigest || q.sql == queryByID {
			return fmt.Errorf("tiers.postgres: the schema is missing from the database; apply deploy/postgres/schema.sql, or set %s: %w", q.setting, err)
		}
	case "42501": // insufficient_privilege
		return fmt.Errorf("%s: the user of tiers.postgres.url may not read this; GRANT it, as deploy/postgres/schema.sql shows: %w", q.setting, err)
	case "25006": // read_only_sql_transaction
		return fmt.Errorf("%s: a standby cannot be listened to; set the channel to \"\", or target_session_attrs=read-write in tiers.postgres.url: %w", q.setting, err)
	}
	switch state[:min(2, len(state))] {
	case "42": // syntax error or access rule violation
		return fmt.Errorf("%s: %w", q.setting, err)
	case "08", "53", "57", "58": // connection, resources, operator, system
		return fmt.Errorf("tiers.postgres: %w", err)
	case "22": // data exception. The server's message may quote the data.
		return fmt.Errorf("%s: %w: SQLSTATE %s", q.setting, tier.ErrBadRecord, state)
	default:
		return fmt.Errorf("%s: SQLSTATE %s", q.setting, state)
	}
}

// explainConnect returns the setting because of which a connection fails, and what to do.
func explainConnect(err error) string {
	state := sqlState(err)
	switch state {
	case "28P01": // invalid_password
		return "tiers.postgres.password: the server refuses it, look at password_file or the user of tiers.postgres.url"
	case "28000": // invalid_authorization_specification
		return "tiers.postgres.url: the server has no such user, or its pg_hba.conf has no line for the user; a line may require TLS (tiers.postgres.tls.mode) or a certificate (tiers.postgres.tls.cert_file)"
	case "53300": // too_many_connections
		return "tiers.postgres.pool_size: lower it, or raise the server's max_connections"
	case "":
	default:
		switch state[:min(2, len(state))] {
		case "22", "42": // data exception, access rule violation
			return "tiers.postgres.url: the server refuses a parameter in it, or its user"
		case "08", "53", "57", "58": // connection, resources, operator, system
			return "tiers.postgres"
		}
		return "tiers.postgres.url"
	}

	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	switch text := err.Error(); {
	case errors.As(err, &authority):
		return "tiers.postgres.tls.ca_file: the file does not have the CA that signed the server's certificate"
	case errors.As(err, &name):
		return "tiers.postgres.url: the server's certificate is for another name"
	case errors.As(err, &invalid):
		return "tiers.postgres.tls.ca_file: the server's certificate is not valid"
	case errors.As(err, &alert):
		return "tiers.postgres.tls.cert_file: the server refuses it, or wants one"
	case strings.Contains(text, "server refused TLS connection"):
		return "tiers.postgres.tls.mode: the server has no TLS"
	case strings.Contains(text, "tls error"):
		return "tiers.postgres.tls.mode"
	case errors.Is(err, context.DeadlineExceeded):
		return "tiers.postgres.url: no answer in time"
	}
	return "tiers.postgres.url: no server answers there"
}

// Watch implements [tier.Watcher], by LISTEN on a separate connection. Without a channel
// it only waits until ctx ends.
func (s *Source) Watch(ctx context.Context, ready func(), changed func(tier.Change)) error {
	ctx, stop := s.until(ctx)
	defer stop()
	if s.o.Channel == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	q := question{setting: "tiers.postgres.channel"}
	var received []string
	conn, err := s.connect(ctx, func(_ *pgconn.PgConn, n *pgconn.Notification) { received = append(received, n.Payload) })
	if err != nil {
		return s.explain(q, err)
	}
	defer hangUp(conn)
	if err := conn.Exec(ctx, "LISTEN "+quote(s.o.Channel)).Close(); err != nil {
		return s.explain(q, err)
	}
	ready()
	for {
		for _, payload := range received {
			changed(s.change(payload))
		}
		received = received[:0]
		err := s.wait(ctx, conn)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			// The other connections are probably dead too. The pool makes new ones.
			s.pool.Reset()
			return fmt.Errorf("tiers.postgres: the connection that listens is lost: %w", err)
		}
	}
}

// quote returns a name as an identifier of SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// wait waits for a notification. It returns nil too if there was none for a while and the
// server answers a ping.
func (s *Source) wait(ctx context.Context, conn *pgconn.PgConn) error {
	quiet, cancel := context.WithTimeout(ctx, s.silence)
	defer cancel()
	err := conn.WaitForNotification(quiet)
	if err == nil || quiet.Err() == nil || conn.IsClosed() {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, s.answer)
	defer cancel()
	return conn.Ping(soon)
}

// change reads the payload of a notification. An empty or invalid payload names all records.
func (s *Source) change(payload string) tier.Change {
	if payload == "" {
		return tier.Change{}
	}
	c, err := tier.ReadChange([]byte(payload))
	if err != nil {
		s.log.Warn("a notification is malformed, so all subjects are asked for again", zap.String("setting", "tiers.postgres.channel"), zap.Error(err))
		return tier.Change{}
	}
	return c
}
