package compat

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// memoryStore is why variables of Redis have no effect.
const memoryStore = "store.type is memory"

// inMemory reports whether the settings file or a SLIDEGATE_ variable chose the memory store.
func (r *reader) inMemory() bool {
	return r.origin("store.type") != "" && r.own.Settings.Store.Type == settings.StoreMemory
}

// The values of BACKEND_TYPE.
const (
	backendRedis    = "redis"
	backendMemcache = "memcache"
)

// redis reads the store.
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

// noStore marks the variables of stores and caches that rls does not have.
func (r *reader) noStore() {
	var perSecond, memcache []string
	for i := range redisVariables {
		switch name := redisVariables[i].name; {
		case strings.HasPrefix(name, "REDIS_PERSECOND_"):
			perSecond = append(perSecond, name)
		case strings.HasPrefix(name, "MEMCACHE_"):
			memcache = append(memcache, name)
		}
	}
	if r.truth("REDIS_PERSECOND") {
		r.ignore("REDIS_PERSECOND", "limits per second are in the same store as all others, so that one request is decided at once")
	}
	r.note("REDIS_PERSECOND", "one Redis for all limits")
	r.noEffect("one Redis for all limits", perSecond...)
	r.noEffect("rls does not use memcached", memcache...)
	if behaviour := strings.ToUpper(r.text("REDIS_POOL_ON_EMPTY_BEHAVIOR")); behaviour == "CREATE" || behaviour == "ERROR" {
		r.ignore("REDIS_POOL_ON_EMPTY_BEHAVIOR", "a call waits for a connection")
	}
	r.noEffect("a call waits for a connection", "REDIS_POOL_ON_EMPTY_BEHAVIOR")
	r.noEffect("rls joins commands by itself", "REDIS_PIPELINE_WINDOW", "REDIS_PIPELINE_LIMIT", "REDIS_CLUSTER_PIPELINE_PARALLELISM")
	if r.by["REDIS_STARTUP_MAX_ELAPSED_TIME"].period > 0 {
		r.ignore("REDIS_STARTUP_MAX_ELAPSED_TIME", "rls does not end because Redis is away")
	}
	r.noEffect("rls starts without Redis and connects when it answers", "REDIS_STARTUP_INITIAL_INTERVAL", "REDIS_STARTUP_MAX_INTERVAL", "REDIS_STARTUP_MAX_ELAPSED_TIME")
	r.noEffect("rls handles READONLY by itself", "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR")
	r.noEffect("logs expire by themselves", "EXPIRATION_JITTER_MAX_SECONDS")
	// rls always remembers denials. Without a cache the reference does not have the series, and its
	// usual mapper would add them to over_limit.
	r.giveTruth("reference.local_cache", r.by["LOCAL_CACHE_SIZE_IN_BYTES"].number > 0, "LOCAL_CACHE_SIZE_IN_BYTES")
	r.noEffect("a denied request never costs anything", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
}

// maxTimeout is the longest store.timeout.
const maxTimeout = 10 * time.Second

// timeout reads how long a call of Redis may take. In the reference 0 means no bound.
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
	r.give("store.redis.dial_timeout", d.String(), name)
}

// connection is what REDIS_URL and its companions say.
type connection struct {
	url            string // without user and password
	user, password string
	sentinel, tls  bool
}

// server reads where Redis is, and gives the URL, its credentials and TLS.
func (r *reader) server() {
	const address, kind, network = "REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE"
	if v := r.by[address]; !r.isSet(address) || v.text == v.def {
		r.refuse(address, "the default of envoyproxy/ratelimit is twemproxy, which cannot run the script of rls: set %s=tcp and %s=host:port of a Redis, or SLIDEGATE_STORE_TYPE=memory for limits of each instance", network, address)
		return
	}
	c := &connection{tls: r.truth("REDIS_TLS")}
	var err error
	switch strings.ToLower(r.text(kind)) {
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
	r.credentials(c)
	r.redisTLS(c)
}

// credentials gives the users and the passwords. Those of REDIS_AUTH count more than those of
// the URL, as in the reference.
func (r *reader) credentials(c *connection) {
	from := "REDIS_URL"
	if auth := r.text("REDIS_AUTH"); auth != "" {
		from = "REDIS_AUTH"
		if user, password, ok := strings.Cut(auth, ":"); ok {
			c.user, c.password = user, password
		} else {
			c.password = auth
		}
	}
	if r.origin("store.redis.password_file") == "" {
		r.credential("store.redis", c.user, c.password, from)
	}
	const sentinel = "REDIS_SENTINEL_AUTH"
	auth := r.text(sentinel)
	switch {
	case auth == "":
	case !c.sentinel:
		r.noEffect("REDIS_TYPE is not sentinel", sentinel)
	case r.origin("store.redis.sentinel_password_file") == "":
		user, password, ok := strings.Cut(auth, ":")
		if !ok {
			user, password = "", auth
		}
		r.credential("store.redis.sentinel", user, password, sentinel)
	}
}

// credential gives a user and a password, if there are any. section ends at the name of the
// setting: store.redis or store.redis.sentinel.
func (r *reader) credential(section, user, password, from string) {
	separator := "."
	if strings.HasSuffix(section, "sentinel") {
		separator = "_"
	}
	if user != "" {
		r.giveSecret(section+separator+"username", user, from)
	}
	if password != "" {
		r.giveSecret(section+separator+"password", password, from)
	}
}

func (r *reader) redisTLS(c *connection) {
	const cert, key, ca, anyName = "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"
	if !c.tls {
		r.noEffect("REDIS_TLS is not true", cert, key, ca, anyName)
		return
	}
	r.clientTLS("store.redis.tls", cert, key, ca)
	r.giveTruth("store.redis.tls.any_name", r.truth(anyName), anyName)
}

// The errors of REDIS_URL do not repeat it, because it may hold a password.
var (
	errHost      = errors.New("expected host:port, or redis://user:password@host:port/db")
	errSocket    = errors.New("is not the absolute path of a unix socket; for host:port set REDIS_SOCKET_TYPE=tcp")
	errSocketTLS = errors.New("rls does not use TLS on a unix socket: set it to false")
	errDatabase  = errors.New("the database must be a number from 0 to 65535")
	errSentinels = errors.New("expected master,host:port,host:port: what the sentinels call the master, then the sentinels")
	errCluster   = errors.New("expected host:port,host:port: nodes of the cluster")
	errSecure    = errors.New("envoyproxy/ratelimit does not know rediss://: write redis:// and set REDIS_TLS=true")
)

// scheme returns the scheme of a URL for rls.
func (c *connection) scheme(kind string) string {
	if c.tls {
		return "rediss" + kind + "://"
	}
	return "redis" + kind + "://"
}

// single reads the address of one server. In the URL of the reference a part before the ?
// counts more than an option behind it.
func (c *connection) single(given string) error {
	if strings.HasPrefix(given, "rediss://") {
		return errSecure
	}
	if !strings.HasPrefix(given, "redis://") {
		if !isAddress(given) {
			return errHost
		}
		c.url = c.scheme("") + given
		return nil
	}
	u, err := url.Parse(given)
	if err != nil {
		return errHost
	}
	query := u.Query()
	c.user, c.password = query.Get("username"), query.Get("password")
	if name := u.User.Username(); name != "" {
		c.user = name
	}
	if password, ok := u.User.Password(); ok {
		c.password = password
	}
	database := query.Get("db")
	if u.Path != "" && u.Path != "/" {
		database = u.Path[1:]
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "6379")
	}
	if !isAddress(host) {
		return errHost
	}
	c.url = c.scheme("") + host
	if database != "" {
		n, err := strconv.ParseUint(database, 10, 16)
		if err != nil {
			return errDatabase
		}
		c.url += fmt.Sprintf("/%d", n)
	}
	return nil
}

func (c *connection) socket(given string) error {
	switch {
	case !filepath.IsAbs(given):
		return errSocket
	case c.tls:
		return errSocketTLS
	}
	c.url = "unix://" + strings.ReplaceAll((&url.URL{Path: given}).EscapedPath(), "@", "%40")
	return nil
}

func (c *connection) sentinels(given string) error {
	master, rest, ok := strings.Cut(given, ",")
	hosts, err := hostsOf(rest)
	if master == "" || !ok || err != nil || isAddress(master) {
		return errSentinels
	}
	c.sentinel = true
	c.url = c.scheme("-sentinel") + hosts + "/" + strings.ReplaceAll(url.PathEscape(master), "@", "%40")
	return nil
}

func (c *connection) cluster(given string) error {
	hosts, err := hostsOf(given)
	if err != nil {
		return errCluster
	}
	c.url = c.scheme("-cluster") + hosts
	return nil
}

// hostsOf reads host:port,host:port, each also as redis://host:port.
func hostsOf(given string) (string, error) {
	var hosts []string
	for host := range strings.SplitSeq(given, ",") {
		host = strings.TrimPrefix(strings.TrimSpace(host), "redis://")
		if !isAddress(host) {
			return "", errHost
		}
		hosts = append(hosts, host)
	}
	return strings.Join(hosts, ","), nil
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
