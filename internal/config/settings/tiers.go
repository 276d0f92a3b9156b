package settings

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// The customer sources.
const (
	TiersNone       = "none"
	TiersFile       = "file"
	TiersInHeader   = "header"
	TiersInRedis    = "redis"
	TiersInPostgres = "postgres"
	TiersOverHTTP   = "http"
)

// The values of tiers.unknown_key, for API keys without a subject.
const (
	UnknownKeyShared = "shared"
	UnknownKeyEach   = "each"
)

// The values of tiers.on_error, for API keys while the customer source does not answer.
const (
	OnErrorDefaultTier = "default_tier"
	OnErrorDeny        = "deny"
)

// Tiers says where tiers and subjects come from.
type Tiers struct {
	Source       string        `yaml:"source" oneof:"none file header redis postgres http" doc:"where customers are: none (no tiers, every API key is its own customer), file (tiers.path), redis, postgres, http, or header (the tier comes with the request: tiers.trusted_entry)"`
	Path         string        `yaml:"path" doc:"the tiers file; with other sources than file it has only the names of the tiers and the default; empty: the built-in example"`
	UnknownKey   string        `yaml:"unknown_key" oneof:"shared each" doc:"unknown API keys of one client address share a counter (shared), or each has its own (each)"`
	TrustedEntry string        `yaml:"trusted_entry" doc:"key of the descriptor entry whose value is the customer's tier, from metadata or a header that only Envoy sets. Empty: no such entry. Required with source header"`
	OnError      string        `yaml:"on_error" oneof:"default_tier deny" doc:"API keys that are not cached while the source does not answer: default_tier (its limits, a counter for each key) or deny (429 with Retry-After). An authorization fails in either case"`
	Wait         time.Duration `yaml:"wait" range:"0 10s" doc:"longest time that a rate-limit request waits for the source; the look-up goes on"`
	Cache        TiersCache    `yaml:"cache"`
	Redis        TiersRedis    `yaml:"redis"`
	Postgres     TiersPostgres `yaml:"postgres"`
	HTTP         TiersHTTP     `yaml:"http"`
}

// TiersCache bounds the cache of a source's answers.
type TiersCache struct {
	TTL   time.Duration `yaml:"ttl" range:"10ms 24h" doc:"how long rls uses a cached customer before it asks again"`
	Stale time.Duration `yaml:"stale" range:"0 400d" doc:"how long after its ttl rls uses a cached answer while the source is unavailable; 0s: not at all"`
}

// TiersRedis is the Redis with the subjects.
type TiersRedis struct {
	URL       RedisURL `yaml:"url" doc:"the Redis with the customers, in the forms of store.redis.url, with user:password@ if it needs them. Empty: that of store.redis, with its credentials and certificates"`
	KeyPrefix string   `yaml:"key_prefix" doc:"the prefix of the keys of customers"`
	// ServerName is sni of the URL.
	ServerName string `yaml:"-"`
}

// TiersChannel is the channel of Redis on which changes of subjects are published.
const TiersChannel = "slidegate:tiers"

// TiersRedis returns the connection to the Redis with the subjects.
func (s *Settings) TiersRedis() Redis {
	r := s.Store.Redis
	if u := s.Tiers.Redis.URL; u.URL != "" {
		r = localRedis("")
		r.URL, r.TLS.ServerName = u, s.Tiers.Redis.ServerName
	}
	r.KeyPrefix = s.Tiers.Redis.KeyPrefix
	return r
}

// TiersPostgres is the PostgreSQL with the subjects.
type TiersPostgres struct {
	URL          PostgresURL `yaml:"url" doc:"postgres://user@host:port/database, several hosts separated by commas, or postgres:///database?host=/directory for a unix socket. The password in the URL (user:password@) or below"`
	Password     Secret      `yaml:"-"`
	PasswordFile string      `yaml:"password_file" doc:"a file with the password; new connections use a changed file"`
	Query        string      `yaml:"query" doc:"finds the customer of the digest $1, in columns named subject (required), tier, disabled, overrides, labels and limits; empty: the query of Slidegate's schema"`
	QueryByID    string      `yaml:"query_by_id" doc:"the same for the id $1 of a customer; empty: the query of Slidegate's schema. If only query is set, look-ups by id find nothing"`
	Channel      string      `yaml:"channel" doc:"the channel of NOTIFY for changes; empty: a change takes effect when cache.ttl ends"`
	PoolSize     int         `yaml:"pool_size" range:"1 1000" doc:"connections, besides one that listens to the channel"`
	TLS          PostgresTLS `yaml:"tls"`
}

// The modes of TLS with PostgreSQL.
const (
	TLSDisable    = "disable"
	TLSRequire    = "require"
	TLSVerifyFull = "verify-full"
)

// PostgresTLS says whether connections to PostgreSQL have TLS, and which servers they trust.
type PostgresTLS struct {
	Mode string `yaml:"mode" doc:"disable, require (encrypted, but any server is accepted) or verify-full; empty: disable for a unix socket and for this machine, otherwise verify-full"`
	TLS
}

// TLSMode returns tls.mode, or the mode that an empty one stands for.
func (p TiersPostgres) TLSMode() string {
	switch {
	case p.TLS.Mode != "":
		return p.TLS.Mode
	case p.URL.Local:
		return TLSDisable
	}
	return TLSVerifyFull
}

// TLSConfig is [TLS.Config] for the mode. It returns nil if there is no TLS. Without
// sni in the URL the client has to set the name of the host.
func (p TiersPostgres) TLSConfig(setting string) (*tls.Config, error) {
	mode := p.TLSMode()
	if mode == TLSDisable {
		return nil, nil
	}
	c, err := p.TLS.Config(setting)
	if err != nil {
		return nil, err
	}
	if mode == TLSRequire {
		c.InsecureSkipVerify, c.VerifyConnection = true, nil
	}
	return c, nil
}

// The values of tiers.http.send.
const (
	SendDigest = "digest"
	SendKey    = "key"
)

// TiersHTTP is the service over HTTP that knows subjects.
type TiersHTTP struct {
	URL       HTTPURL `yaml:"url" doc:"http://host/path or https://host/path; rls adds ?digest= or ?id="`
	Send      string  `yaml:"send" oneof:"digest key" doc:"digest, or key for the API key itself: by POST, and only over https"`
	Token     Secret  `yaml:"-"`
	TokenFile string  `yaml:"token_file" doc:"a file with the token; rls reads a changed file again"`
	TLS       TLS     `yaml:"tls"`
}

func defaultTiers() Tiers {
	return Tiers{
		Source:     TiersFile,
		UnknownKey: UnknownKeyShared,
		OnError:    OnErrorDefaultTier,
		Wait:       5 * time.Millisecond,
		Cache:      TiersCache{TTL: time.Minute, Stale: strict.Day},
		Redis:      TiersRedis{KeyPrefix: "slidegate:tier:"},
		Postgres: TiersPostgres{
			URL:      PostgresURL{URL: "postgres://slidegate@127.0.0.1:5432/slidegate", Local: true},
			Channel:  "slidegate_tiers",
			PoolSize: 4,
		},
		HTTP: TiersHTTP{Send: SendDigest},
	}
}

// Asks reports whether this process asks a source outside of it for subjects.
func (t Tiers) Asks() bool {
	return t.Source == TiersInRedis || t.Source == TiersInPostgres || t.Source == TiersOverHTTP
}

// TiersTimeout is the time limit of one look-up in the customer source: a second, or as long as
// requests wait for it.
func (s *Settings) TiersTimeout() time.Duration {
	return max(time.Second, s.Tiers.Wait, s.Authz.Wait)
}

// Bounds of texts, in bytes.
const (
	maxPostgresName = 63 // NAMEDATALEN of PostgreSQL, less the byte that ends it
	maxQuery        = 64 << 10
	maxEntryKey     = 256
)

func (l *settingsLoader) tiers() {
	t := &l.settings.Tiers
	l.trustedEntry(t)

	if t.Redis.URL.URL != "" {
		r := Redis{URL: t.Redis.URL, KeyPrefix: t.Redis.KeyPrefix}
		l.redisConnection("tiers.redis", &r)
		t.Redis.URL, t.Redis.ServerName = r.URL, r.TLS.ServerName
	}
	l.keyPrefix("tiers.redis", t.Redis.KeyPrefix)
	l.postgres(&t.Postgres)
	l.overHTTP(&t.HTTP)
	if t.Source == TiersOverHTTP && t.HTTP.URL.URL == "" {
		l.problem("tiers.source", "http needs tiers.http.url")
	}
}

func (l *settingsLoader) trustedEntry(t *Tiers) {
	const path = "tiers.trusted_entry"
	e := t.TrustedEntry
	switch {
	case e == "" && t.Source == TiersInHeader:
		l.problem("tiers.source", "header needs tiers.trusted_entry, the key of the descriptor entry that has the tier")
	case e == "":
	case t.Source == TiersNone:
		l.problem(path, "there are no tiers, because tiers.source is \"none\"")
	case len(e) > maxEntryKey || !isPrintable(e):
		l.problem(path, "%s: at most %d bytes of UTF-8 without control characters", strict.Quote(e), maxEntryKey)
	case slices.ContainsFunc(l.settings.Secrets.Entries, func(s string) bool { return strings.EqualFold(s, e) }):
		l.problem(path, "%s is one of secrets.entries: its value is an API key, and cannot be a tier", strict.Quote(e))
	}
}

var hasParameter = regexp.MustCompile(`\$0*1(\D|$)`)

func (l *settingsLoader) postgres(p *TiersPostgres) {
	p.TLS.ServerName = l.serverName("tiers.postgres.url", &p.URL.URL)
	err := p.URL.read()
	if err != nil {
		l.problem("tiers.postgres.url", "%s", err)
	}
	if p.URL.HasPassword && (p.Password != "" || p.PasswordFile != "") {
		l.problem(l.given("tiers.postgres.password_file", "tiers.postgres.password"), "tiers.postgres.url also has a password: set it only once")
	}
	l.password("", "", "tiers.postgres.password", p.Password, p.PasswordFile)
	for _, q := range []struct{ path, text string }{
		{"tiers.postgres.query", p.Query}, {"tiers.postgres.query_by_id", p.QueryByID},
	} {
		switch {
		case q.text == "":
		case len(q.text) > maxQuery:
			l.problem(q.path, "longer than %d KiB: shorten it", maxQuery>>10)
		case !hasParameter.MatchString(q.text):
			l.problem(q.path, "has no parameter $1 for the digest or the id")
		}
	}
	if len(p.Channel) > maxPostgresName || strings.ContainsFunc(p.Channel, func(c rune) bool { return c <= ' ' || c > '~' }) {
		l.problem("tiers.postgres.channel", "%s: at most %d printable ASCII characters, without spaces", strict.Quote(p.Channel), maxPostgresName)
	}
	if p.TLS.Mode != "" {
		l.oneOf("tiers.postgres.tls.mode", p.TLS.Mode, []string{TLSDisable, TLSRequire, TLSVerifyFull})
	}
	l.tls("tiers.postgres.tls", p.TLS.TLS)
	switch {
	case err != nil:
	case p.TLSMode() == TLSDisable && p.TLS.Mode == "":
		l.noTLS("tiers.postgres.tls", "tiers.postgres.url is on this machine: set tiers.postgres.tls.mode to verify-full")
	case p.TLSMode() == TLSDisable:
		l.noTLS("tiers.postgres.tls", "tiers.postgres.tls.mode is disable")
	case p.TLSMode() == TLSRequire:
		l.refuse("tiers.postgres.tls", []string{"ca_file"}, "tiers.postgres.tls.mode require verifies nothing: set it to verify-full")
	}
}

// A PostgresURL is a URL for PostgreSQL. [Load] sets the other fields, or returns an error. The
// client of PostgreSQL reads the text itself.
type PostgresURL struct {
	URL
	Local       bool // a unix socket, or hosts that are this machine
	HasPassword bool
}

const postgresForm = "postgres://user@host:port/database"

// read fills in what the URL says. The error says what is wrong without repeating it.
func (p *PostgresURL) read() error {
	u, ok := p.split()
	if !ok {
		return errors.New("not a URL of the form " + postgresForm + " (characters such as / # @ in a password are written as %2F %23 %40, ports are numbers)")
	}
	if u.scheme != "postgres" && u.scheme != "postgresql" {
		return errors.New("unknown scheme: expected " + postgresForm)
	}
	if strings.Count(u.path, "/") > 1 {
		return errors.New("the part after the host must be the name of a database: expected " + postgresForm)
	}
	query, err := url.ParseQuery(u.query)
	if err != nil {
		return errBadQuery
	}
	for _, o := range postgresOptions {
		for name := range query {
			if strings.HasPrefix(name, o.prefix) {
				return fmt.Errorf("the URL cannot have query options that begin with %s: set %s", o.prefix, o.setting)
			}
		}
	}
	local := true
	hosts := u.hosts
	if len(hosts) == 1 && hosts[0] == "" {
		if hosts = strings.Split(query.Get("host"), ","); hosts[0] == "" {
			return errors.New("the URL has no host: expected " + postgresForm + ", or postgres:///database?host=/directory")
		}
	} else if query.Has("host") {
		return errors.New("the URL has hosts twice: remove the query option host")
	}
	for _, h := range hosts {
		if strings.HasPrefix(h, "/") {
			continue // the directory of a unix socket
		}
		host, _, ok := splitHost(h)
		if !ok {
			return errors.New("the URL has an extra comma, or an invalid host: expected " + postgresForm)
		}
		local = local && isLoopback(host)
	}
	p.Local, p.HasPassword = local, u.hasPassword
	return nil
}

// postgresOptions are options of URLs that have a setting. The client reads all others.
var postgresOptions = []struct{ prefix, setting string }{
	{"pass", "tiers.postgres.password_file"},
	{"pool_", "tiers.postgres.pool_size"},
	{"ssl", "tiers.postgres.tls"},
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

func (l *settingsLoader) overHTTP(h *TiersHTTP) {
	const path = "tiers.http.url"
	if h.URL.URL != "" {
		h.TLS.ServerName = l.serverName(path, &h.URL.URL)
	}
	if l.httpURL(path, &h.URL, "set tiers.http.token_file") {
		u := h.URL.Parsed
		if query := u.Query(); query.Has("digest") || query.Has("id") {
			l.problem(path, "rls adds the query options digest and id itself: remove them from the URL")
		}
		if h.Send == SendKey && u.Scheme == "http" && !isLoopback(u.Hostname()) {
			l.problem("tiers.http.send", "key needs https, or a host on this machine: API keys must not cross a network in plain text")
		}
		if u.Scheme == "http" {
			l.noTLS("tiers.http.tls", path+" does not begin with https")
			if h.TLS.ServerName != "" {
				l.problem(path, "sni is the name in a certificate, and there is no TLS: begin the URL with https")
			}
		}
	}
	l.password("", "", "tiers.http.token", h.Token, h.TokenFile)
	if strings.ContainsFunc(string(h.Token), func(c rune) bool { return c <= ' ' || c > '~' }) {
		l.problem("tiers.http.token", "has characters that a header cannot hold")
	}
	l.tls("tiers.http.tls", h.TLS)
}

// An HTTPURL is a URL for HTTP. [Load] fills in Parsed, which is nil without a URL; the
// error of Load says if it cannot.
type HTTPURL struct {
	URL
	Parsed *url.URL
}

// httpURL checks a URL, and fills in its Parsed. It reports false without a valid one. credentials says
// what to set in place of a user and a password.
func (l *settingsLoader) httpURL(path string, at *HTTPURL, credentials string) (ok bool) {
	const form = "http://host/path or https://host/path"
	if at.URL == "" {
		return false
	}
	u, ok := at.split()
	parsed, err := url.Parse(at.Reveal())
	switch {
	case !ok, err != nil, len(u.hosts) > 1, u.hosts[0] == "":
		l.problem(path, "not a URL of the form %s", form)
	case u.scheme != "http" && u.scheme != "https":
		l.problem(path, "unknown scheme: expected %s", form)
	case u.hasUser:
		l.problem(path, "the URL cannot have a user or a password: %s", credentials)
	default:
		if _, err := url.ParseQuery(u.query); err != nil {
			l.problem(path, "%s", errBadQuery)
		}
		at.Parsed = parsed
		return true
	}
	return false
}
