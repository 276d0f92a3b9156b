package compat

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

const memoryStore = "store.type is memory"

// inMemory reports whether the settings file or a SLIDEGATE_ variable chose the memory store.
func (r *reader) inMemory() bool {
	return r.origin("store.type") != "" && r.configured.Settings.Store.Type == settings.StoreMemory
}

// The values of BACKEND_TYPE.
const (
	backendRedis    = "redis"
	backendMemcache = "memcache"
)

func (r *reader) redis() {
	r.noStore()
	const backend = "BACKEND_TYPE"
	switch kind := r.text(backend); {
	case kind == backendRedis, kind == "", r.origin("store.type") != "":
		r.give("store.type", settings.StoreRedis, backend)
	case kind == backendMemcache:
		r.refuse(backend, "memcached cannot keep a log of hits: set it to redis, and REDIS_SOCKET_TYPE=tcp and REDIS_URL=host:port, or set SLIDEGATE_STORE_TYPE=memory for limits of each instance")
		return // a second problem about REDIS_URL does not help
	default:
		r.refuse(backend, "%s", strict.NotOneOf(kind, []string{backendRedis}))
		return
	}
	connection := []string{
		"REDIS_SOCKET_TYPE", "REDIS_TYPE", "REDIS_URL", "REDIS_AUTH", "REDIS_SENTINEL_AUTH", "REDIS_TLS", "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY",
		"REDIS_TLS_CACERT", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "REDIS_POOL_SIZE", "REDIS_TIMEOUT", "CACHE_KEY_PREFIX",
	}
	if r.inMemory() {
		r.noEffect(memoryStore, connection...)
		return
	}
	r.give("store.redis.pool_size", strconv.FormatInt(r.by["REDIS_POOL_SIZE"].number, 10), "REDIS_POOL_SIZE")
	r.timeout()
	if r.text("CACHE_KEY_PREFIX") == "" {
		r.note("CACHE_KEY_PREFIX", "the prefix of rls stays")
	}
	r.giveText("store.redis.key_prefix", "CACHE_KEY_PREFIX")
	if by := r.origin("store.redis.url"); by != "" {
		r.noEffect(by+" says which Redis", connection[:10]...)
		return
	}
	r.server()
}

func (r *reader) noStore() {
	if r.truth("REDIS_PERSECOND") {
		r.ignore("REDIS_PERSECOND", "limits per second are in the same store as all others, so that one request is decided at once")
	}
	r.note("REDIS_PERSECOND", "one Redis for all limits")
	if behaviour := strings.ToUpper(r.text("REDIS_POOL_ON_EMPTY_BEHAVIOR")); behaviour == "CREATE" || behaviour == "ERROR" {
		r.ignore("REDIS_POOL_ON_EMPTY_BEHAVIOR", "a call waits for a connection")
	}
	r.noEffect("a call waits for a connection", "REDIS_POOL_ON_EMPTY_BEHAVIOR")
	if r.by["REDIS_STARTUP_MAX_ELAPSED_TIME"].period > 0 {
		r.ignore("REDIS_STARTUP_MAX_ELAPSED_TIME", "rls does not end because Redis is unavailable")
	}
	r.noEffect("rls starts without Redis and connects when it answers", "REDIS_STARTUP_MAX_ELAPSED_TIME")
	// rls always remembers denials. Without a cache envoyproxy/ratelimit does not have the series, and its
	// usual mapper would add them to over_limit.
	drop(r, &r.dropIn.LocalCache, r.by["LOCAL_CACHE_SIZE_IN_BYTES"].number > 0, "dropin.local_cache", "LOCAL_CACHE_SIZE_IN_BYTES")
}

const maxTimeout = 10 * time.Second

// timeout reads how long a call of Redis may take. In envoyproxy/ratelimit 0 means no bound.
func (r *reader) timeout() {
	const name = "REDIS_TIMEOUT"
	d := r.by[name].period
	switch {
	case d < 0 && !r.overridden(r.by[name].variable):
		r.refuse(name, "%s is negative", d)
	case d == 0, d > maxTimeout:
		d = maxTimeout
		r.note(name, "at most "+maxTimeout.String())
	default:
		d = max(d, time.Millisecond)
	}
	r.give("store.timeout", d.String(), name)
}

// A login is a user and a password. Either may be empty.
type login struct{ user, password string }

// loginOf reads REDIS_AUTH or REDIS_SENTINEL_AUTH: password, or user:password.
func loginOf(auth string) login {
	if user, password, ok := strings.Cut(auth, ":"); ok {
		return login{user, password}
	}
	return login{password: auth}
}

func (l login) or(other login) login {
	return login{cmp.Or(l.user, other.user), cmp.Or(l.password, other.password)}
}

// connection is what REDIS_URL and its companions say.
type connection struct {
	url   string // without user and password
	login login  // in REDIS_URL: of the sentinels if there are any, else of Redis
	tls   bool
}

func (r *reader) server() {
	const address, kind, network = "REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE"
	if v := r.by[address]; !r.isSet(address) || v.text == v.def {
		r.refuse(address, "the default of envoyproxy/ratelimit is twemproxy, which cannot run the script of rls: set %s=tcp and %s=host:port of a Redis, or SLIDEGATE_STORE_TYPE=memory for limits of each instance", network, address)
		return
	}
	c := &connection{tls: r.truth("REDIS_TLS")}
	var err error
	topology := strings.ToLower(r.text(kind))
	switch topology {
	case "single":
		switch r.text(network) {
		case "tcp":
			err = c.single(r.text(address))
		case "unix":
			err = c.socket(r.text(address))
		default:
			r.refuse(network, "%s", strict.NotOneOf(r.text(network), []string{"tcp", "unix"}))
			return
		}
	case "sentinel":
		err = c.sentinels(r.text(address))
	case "cluster":
		err = c.cluster(r.text(address))
	default:
		r.refuse(kind, "%s", strict.NotOneOf(r.text(kind), []string{"single", "sentinel", "cluster"}))
		return
	}
	if errors.Is(err, errSocketTLS) {
		r.refuse("REDIS_TLS", "%s", err)
		return
	} else if err != nil {
		r.refuse(address, "%s", err)
		return
	}
	r.give("store.redis.url", c.url, address, kind, network, "REDIS_TLS")
	r.credentials(c.login, topology == "sentinel")
	r.redisTLS(c)
}

// credentials gives the users and the passwords. As in envoyproxy/ratelimit, REDIS_AUTH counts more than
// the URL. The URL of sentinels has their credentials, not Redis's.
func (r *reader) credentials(url login, sentinel bool) {
	const forRedis, forSentinels = "REDIS_AUTH", "REDIS_SENTINEL_AUTH"
	redis, sentinels := loginOf(r.text(forRedis)), loginOf(r.text(forSentinels))
	if sentinel {
		sentinels = sentinels.or(url)
		r.credential("store.redis.sentinel_", sentinels, forSentinels)
	} else {
		redis = redis.or(url)
		r.noEffect("REDIS_TYPE is not sentinel", forSentinels)
	}
	r.credential("store.redis.", redis, forRedis)
}

// credential gives a user and a password, if there are any and no password file is set. prefix and
// username are the name of a setting.
func (r *reader) credential(prefix string, l login, auth string) {
	if r.origin(prefix+"password_file") != "" {
		return
	}
	from := "REDIS_URL"
	if r.text(auth) != "" {
		from = auth
	}
	if l.user != "" {
		r.giveSecret(prefix+"username", l.user, from)
	}
	if l.password != "" {
		r.giveSecret(prefix+"password", l.password, from)
	}
}

func (r *reader) redisTLS(c *connection) {
	const cert, key, ca, anyName = "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"
	if !c.tls {
		r.noEffect("REDIS_TLS is not true", cert, key, ca, anyName)
		return
	}
	r.clientTLS("store.redis.tls", cert, key, ca)
	drop(r, &r.dropIn.RedisAnyName, r.truth(anyName), "dropin.redis_any_name", anyName)
}

// The errors of REDIS_URL do not repeat it, because it may hold a password.
var (
	errHost        = errors.New("expected host:port, or redis://user:password@host:port/db with %2F for a / in the password, %23 for # and %40 for @")
	errSeveral     = errors.New("names several servers: set REDIS_TYPE to cluster or sentinel, or name one")
	errSocket      = errors.New("is not the path of a unix socket; for host:port set REDIS_SOCKET_TYPE=tcp")
	errSocketTLS   = errors.New("rls does not use TLS on a unix socket: set it to false")
	errDatabase    = errors.New("the database must be a number from 0 to 65535")
	errOneDatabase = errors.New("a cluster has only database 0: remove the other from the URL")
	errSentinelDB  = errors.New("sentinels have no databases, and envoyproxy/ratelimit uses database 0 behind them: remove it from the URL, or set SLIDEGATE_STORE_REDIS_URL=redis-sentinel://host:port/master/db")
	errSentinels   = errors.New("expected master,host:port,host:port: what the sentinels call the master, then the sentinels")
	errCluster     = errors.New("expected host:port,host:port: nodes of the cluster")
	errLogins      = errors.New("the servers have different users or passwords: give all of them one")
	errSecure      = errors.New("envoyproxy/ratelimit does not know rediss://: write redis:// and set REDIS_TLS=true")
)

func (c *connection) scheme(kind string) string {
	if c.tls {
		return "rediss" + kind + "://"
	}
	return "redis" + kind + "://"
}

func (c *connection) single(given string) error {
	n, err := nodeOf(given, "6379")
	if errors.Is(err, errHost) && strings.Contains(given, ",") {
		return errSeveral
	} else if err != nil {
		return err
	}
	c.url, c.login = c.scheme("")+n.host, n.login
	if n.database != "" {
		c.url += "/" + n.database
	}
	return nil
}

func (c *connection) socket(given string) error {
	path, err := filepath.Abs(given)
	switch {
	case err != nil, isAddress(given), strings.Contains(given, "://"), strings.HasPrefix(given, "@"), strings.HasSuffix(given, "/"):
		return errSocket
	case c.tls:
		return errSocketTLS
	}
	c.url = "unix://" + strings.ReplaceAll((&url.URL{Path: path}).EscapedPath(), "@", "%40")
	return nil
}

func (c *connection) sentinels(given string) error {
	master, rest, ok := strings.Cut(given, ",")
	if master == "" || !ok || isAddress(master) || strings.Contains(master, "://") {
		return errSentinels
	}
	hosts, err := c.nodes(rest, "26379", errSentinels, errSentinelDB)
	c.url = c.scheme("-sentinel") + hosts + "/" + strings.ReplaceAll(url.PathEscape(master), "@", "%40")
	return err
}

func (c *connection) cluster(given string) error {
	hosts, err := c.nodes(given, "6379", errCluster, errOneDatabase)
	c.url = c.scheme("-cluster") + hosts
	return err
}

// nodes reads servers with commas between them, each in a form of [nodeOf], and their login. As in
// envoyproxy/ratelimit, an extra comma and a server that is listed twice change nothing. It returns
// malformed if it cannot read a server or finds none, and database if one has another than 0.
func (c *connection) nodes(given, port string, malformed, database error) (string, error) {
	var hosts []string
	for text := range strings.SplitSeq(given, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		n, err := nodeOf(text, port)
		switch {
		case errors.Is(err, errHost):
			return "", malformed
		case err != nil:
			return "", err
		case n.database != "" && n.database != "0":
			return "", database
		case n.login != login{} && c.login != login{} && n.login != c.login:
			return "", errLogins
		}
		c.login = c.login.or(n.login)
		if !slices.Contains(hosts, n.host) {
			hosts = append(hosts, n.host)
		}
	}
	if len(hosts) == 0 {
		return "", malformed
	}
	return strings.Join(hosts, ","), nil
}

type node struct {
	host     string // host:port
	database string // a number; empty: none is named
	login    login
}

// nodeOf reads host:port, or a URL, in which a part before the ? counts more than an option behind
// it. A URL without a port has the usual one. Without a host it is this machine.
func nodeOf(given, port string) (n node, err error) {
	switch {
	case strings.HasPrefix(given, "rediss://"):
		return n, errSecure
	case !strings.HasPrefix(given, "redis://"):
		n.host = local(given)
	default:
		u, err := url.Parse(given)
		if err != nil {
			return n, errHost
		}
		query := u.Query()
		n.login.user = cmp.Or(u.User.Username(), query.Get("username"))
		n.login.password = query.Get("password")
		if password, ok := u.User.Password(); ok {
			n.login.password = password
		}
		n.database = query.Get("db")
		if u.Path != "" && u.Path != "/" {
			n.database = u.Path[1:]
		}
		n.host = local(u.Host)
		if u.Port() == "" && u.Hostname() != "" {
			n.host = net.JoinHostPort(u.Hostname(), port)
		}
	}
	if !isAddress(n.host) {
		return n, errHost
	}
	if n.database != "" {
		number, err := strconv.ParseUint(n.database, 10, 16)
		if err != nil {
			return n, errDatabase
		}
		n.database = strconv.FormatUint(number, 10)
	}
	return n, nil
}

// local names this machine in an address that has only a port.
func local(address string) string {
	if strings.HasPrefix(address, ":") {
		return "localhost" + address
	}
	return address
}

// isAddress reports whether a text is host:port, so that a URL with it has no other parts.
func isAddress(given string) bool {
	host, port, err := net.SplitHostPort(given)
	if err != nil || host == "" || strings.ContainsFunc(host, func(c rune) bool { return c <= ' ' || strings.ContainsRune("/?#@,%\"<>[]{}\\^|`", c) }) {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}
