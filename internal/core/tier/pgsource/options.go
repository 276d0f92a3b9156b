package pgsource

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// Options of a [Source]. URL and Overrides are required.
type Options struct {
	// URL is postgres://user@host:port/database?parameters, with several hosts
	// separated by commas, or with a folder as the parameter host for a socket in
	// it. It may contain a password. Its parameters are those of a session
	// (application_name, search_path, statement_timeout and so on),
	// connect_timeout, target_session_attrs and default_query_exec_mode. The caller
	// checks that no parameter has the password, sets TLS or sets the pool.
	URL string
	// Password returns the password of each new connection. If it is nil or returns an empty text, the
	// password in URL counts.
	Password func() string
	// TLS returns the configuration of each new connection over TCP. If it is nil or
	// returns nil, there is no TLS. Without a ServerName the host's name is verified.
	TLS func() *tls.Config
	// Query has the digest as its only parameter, $1. Empty: the query for
	// deploy/postgres/schema.sql.
	Query string
	// QueryByID has the id of a subject as its only parameter, $1. Empty: the query for
	// deploy/postgres/schema.sql if Query is empty too. Otherwise no subject is known by id.
	QueryByID string
	// Channel is the channel of NOTIFY for changes. Empty: the source reports none.
	Channel string
	// PoolSize is the number of connections, without the connection that listens. Zero: 4.
	PoolSize int
	// Timeout is the longest wait of callers of Lookup. The server has nine tenths of
	// it, in whole milliseconds. Zero: one second.
	Timeout time.Duration
	// Overrides reads the column overrides.
	Overrides func([]byte) (map[string]tier.Override, error)
	// Log gets invalid notifications. Nil disables it.
	Log *zap.Logger
}

const (
	defaultPoolSize = 4
	defaultTimeout  = time.Second
	// connectTimeout bounds one attempt to connect to one host, in the background.
	connectTimeout = 5 * time.Second
	// maxAnswer bounds the memory for one message of the server. A row has three parts of
	// at most tier.MaxPart, and its texts.
	maxAnswer = 4 * tier.MaxPart
)

// queryMode is the parameter of the URL that says how to ask. All modes but
// cache_statement ask without the name of a statement.
const queryMode = "default_query_exec_mode"

var unnamedModes = []string{"cache_describe", "describe_exec", "exec", "simple_protocol"}

// urlHint says what to write. It repeats nothing of the invalid URL.
const urlHint = "want postgres://user@host:5432/database, and in its password %40 for @, %2F for /, %3F for ? and so on"

// parse returns the library's configuration, and whether statements have names. A pooler
// may forget a statement with a name. Its errors name the setting.
func (o *Options) parse() (c *pgconn.Config, named bool, err error) {
	text, password, err := cutPassword(o.URL)
	if err != nil {
		return nil, false, fmt.Errorf("tiers.postgres.url: %w", err)
	}
	if c, err = pgconn.ParseConfig(text); err != nil {
		return nil, false, fmt.Errorf("tiers.postgres.url: %w", err)
	}
	c.Password = password
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}

	session := c.RuntimeParams
	switch mode, ok := session[queryMode]; {
	case !ok || mode == "cache_statement":
		named = true
	case !slices.Contains(unnamedModes, mode):
		return nil, false, fmt.Errorf("tiers.postgres.url: invalid %s: unknown value %q", queryMode, mode)
	}
	for _, p := range []string{queryMode, "statement_cache_capacity", "description_cache_capacity"} {
		delete(session, p) // not for the server
	}
	session["client_encoding"] = "UTF8"
	for name, value := range map[string]string{
		"application_name": "slidegate",
		// The server ends a slow query before its caller does, so that the connection
		// stays usable.
		"statement_timeout": strconv.FormatInt(max(1, (o.Timeout-o.Timeout/10).Milliseconds()), 10),
	} {
		if _, ok := session[name]; !ok {
			session[name] = value
		}
	}
	c.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {} // the queries raise none
	c.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(r, w)
		f.SetMaxBodyLen(maxAnswer)
		return f
	}
	return c, named, nil
}

// cutPassword removes the password from the URL, so that no text of the library can
// contain it.
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
	separator := "?"
	if strings.Contains(rest, "?") {
		separator = "&"
	}
	// It replaces PGSSLMODE: Options.TLS decides.
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
