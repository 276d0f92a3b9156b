package pgsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/tier"
)

// Options say whom to ask, and what. URL and Overrides are required.
type Options struct {
	// URL is postgres://user@host:port/database?parameters, with several hosts
	// separated by commas, or with a folder as the parameter host for a socket in
	// it. A password may stand in it. Parameters are those of a session
	// (application_name, search_path, statement_timeout and so on),
	// connect_timeout, target_session_attrs and default_query_exec_mode.
	URL string
	// Password is asked for each new connection. Nil or empty: what URL says.
	Password func() string
	// TLS is asked for each new connection over TCP. Nil, or if it returns nil: no
	// TLS. Without a ServerName the host's is verified.
	TLS func() *tls.Config
	// Query has the digest as its only parameter. Empty: that of [Schema].
	Query string
	// QueryByID has the id of a subject as its only parameter. Empty: that of
	// Schema, or with a Query of its own none, and nobody is known by id.
	QueryByID string
	// Channel is what NOTIFY sends changes on. Empty: no changes are told.
	Channel string
	// PoolSize is how many connections there are, beside the one that listens.
	// Zero: 4.
	PoolSize int
	// Timeout is how long the callers of Lookup have for one question. The server
	// works at it for nine tenths of that, in whole milliseconds. Zero: one second.
	Timeout time.Duration
	// Overrides reads what the column overrides holds.
	Overrides func([]byte) (map[string]tier.Override, error)
	// Log is told of notifications that are none. Nil: nobody is.
	Log *zap.Logger
}

const (
	defaultPoolSize = 4
	defaultTimeout  = time.Second
	// connectTimeout is for one host, in the background: who waits for the
	// connection may give up before.
	connectTimeout = 5 * time.Second
	// maxAnswer bounds what a connection holds for one message. A row has two
	// parts of at most tier.MaxPart, and its texts.
	maxAnswer = 4 * tier.MaxPart
	// maxChannel is the length of a name in PostgreSQL.
	maxChannel = 63
)

// urlHint says what to write instead, and nothing of what was written.
const urlHint = "want postgres://user@host:5432/database, and in its password %40 for @, %2F for /, %3F for ? and so on"

// poolConfig turns the options into the library's, but for what is done to new
// connections. Its errors name the setting.
func (o *Options) poolConfig() (*pgxpool.Config, error) {
	text, password, err := cutPassword(o.URL)
	if err != nil {
		return nil, fmt.Errorf("tiers.postgres.url: %w", err)
	}
	c, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("tiers.postgres.url: %w", err)
	}
	c.ConnConfig.Password = password
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = connectTimeout
	}
	c.MaxConns = int32(min(o.PoolSize, math.MaxInt32))
	// A request waits a few milliseconds: neither for a connection to be made nor
	// for one to be tried. A dead one is asked only once.
	c.MinConns = c.MaxConns
	c.HealthCheckPeriod = time.Second
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	// They do not all end at once.
	c.MaxConnLifetime, c.MaxConnLifetimeJitter = 50*time.Minute, 10*time.Minute

	session := c.ConnConfig.RuntimeParams
	session["client_encoding"] = "UTF8"
	for name, value := range map[string]string{
		"application_name": "slidegate",
		// The server ends what takes too long, before the caller does: then the
		// connection lives on.
		"statement_timeout": strconv.FormatInt(max(1, (o.Timeout-o.Timeout/10).Milliseconds()), 10),
	} {
		if _, ok := session[name]; !ok {
			session[name] = value
		}
	}
	c.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {} // ours raise none
	c.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(r, w)
		f.SetMaxBodyLen(maxAnswer)
		return f
	}
	c.BeforeClose = hangUp
	return c, nil
}

// cutPassword takes the password out of the URL, so that no text of the library
// can hold it, and refuses parameters that a setting of ours is for.
func cutPassword(text string) (without, password string, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return "", "", errors.New(urlHint)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	if strings.ContainsAny(rest, "@#") {
		return "", "", errors.New("a character that must be escaped is not: " + urlHint)
	}
	host := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		var user string
		user, password, _ = strings.Cut(authority[:at], ":")
		host = user + authority[at:]
		if password, err = url.PathUnescape(password); err != nil {
			return "", "", errors.New("its password is not escaped: " + urlHint)
		}
	}
	_, query, _ := strings.Cut(rest, "?")
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return "", "", errors.New("its parameters are not escaped: " + urlHint)
	}
	for name := range parameters {
		switch {
		case name == "host" && host != "" && !strings.HasSuffix(host, "@"):
			return "", "", errors.New("host: the URL has one already, before the database")
		case strings.HasPrefix(name, "ssl"):
			return "", "", fmt.Errorf("%s: remove it, and set tiers.postgres.tls", name)
		case strings.HasPrefix(name, "pool_"):
			return "", "", fmt.Errorf("%s: remove it, and set tiers.postgres.pool_size", name)
		case strings.HasPrefix(name, "pass"):
			return "", "", fmt.Errorf("%s: remove it, and set tiers.postgres.password_file", name)
		}
	}
	separator := "?"
	if strings.Contains(rest, "?") {
		separator = "&"
	}
	// Whatever PGSSLMODE says: TLS is ours.
	return scheme + "://" + host + rest + separator + "sslmode=disable", password, nil
}

// tlsFor returns the configuration for one host.
func tlsFor(c *tls.Config, host string, port uint16) *tls.Config {
	if network, _ := pgconn.NetworkAddress(host, port); c == nil || network == "unix" {
		return nil
	}
	if c.ServerName == "" {
		c = c.Clone()
		c.ServerName = host
	}
	return c
}
