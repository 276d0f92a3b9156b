package settings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// A URL names servers and may hold a password, which is never printed. [URL.Reveal] returns
// the whole text.
type URL string

// Reveal returns the URL with its password.
func (u URL) Reveal() string { return string(u) }

// String returns the URL with *** for a password. For a malformed URL it returns *** alone: a
// password with a "/" in it could be anywhere.
func (u URL) String() string {
	if u == "" {
		return ""
	}
	p, ok := u.split()
	if !ok {
		return strict.Hidden
	}
	var b strings.Builder
	b.WriteString(p.scheme + "://")
	if p.hasUser {
		b.WriteString(url.User(p.user).String())
		if p.hasPassword {
			b.WriteString(":" + strict.Hidden)
		}
		b.WriteString("@")
	}
	b.WriteString(strings.Join(p.hosts, ",") + p.path)
	if p.query != "" {
		b.WriteString("?" + strict.Hidden)
	}
	return b.String()
}

// Format hides the password from every verb.
func (u URL) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(u.String())) }

// MarshalText hides the password.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText takes the text as it is and never fails.
func (u *URL) UnmarshalText(text []byte) error {
	*u = URL(text)
	return nil
}

type urlParts struct {
	scheme               string
	user, password       string // decoded
	hasUser, hasPassword bool
	hosts                []string // as written; without a host one empty text
	path, query          string   // as written
}

// split takes a URL apart. Package net/url reads only one host. split is strict, so that it
// never takes a part of a password without escapes for a host or a path.
func (u URL) split() (p urlParts, ok bool) {
	scheme, rest, ok := strings.Cut(string(u), "://")
	if !ok || scheme == "" || strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz-") != "" {
		return p, false
	}
	p.scheme = strings.ToLower(scheme)
	if strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '#' }) {
		return p, false
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority = rest[:i]
		p.path, p.query, _ = strings.Cut(rest[i:], "?")
		if strings.Contains(rest[i:], "@") {
			return p, false
		}
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, password, has := strings.Cut(authority[:i], ":")
		var errs [2]error
		p.user, errs[0] = url.PathUnescape(user)
		p.password, errs[1] = url.PathUnescape(password)
		if errs[0] != nil || errs[1] != nil {
			return p, false
		}
		p.hasUser, p.hasPassword = true, has
		authority = authority[i+1:]
	}
	p.hosts = strings.Split(authority, ",")
	for _, h := range p.hosts {
		if _, _, ok := splitHost(h); !ok && h != "" {
			return p, false
		}
	}
	return p, true
}

// splitHost reads host or host:port. An IPv6 address has brackets.
func splitHost(text string) (host, port string, ok bool) {
	host, rest := text, ""
	if strings.HasPrefix(text, "[") {
		i := strings.IndexByte(text, ']')
		if i < 0 || net.ParseIP(text[1:i]) == nil {
			return "", "", false
		}
		host, rest = text[1:i], text[i+1:]
	} else if i := strings.IndexByte(text, ':'); i >= 0 {
		host, rest = text[:i], text[i:]
	}
	port, colon := strings.CutPrefix(rest, ":")
	if colon {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", false
		}
	}
	odd := func(c rune) bool { return strings.ContainsRune(`%"<>[]{}\^|`+"`", c) }
	return host, port, host != "" && (rest == "" || colon) && !strings.ContainsFunc(host, odd)
}

// A Topology is how Redis servers form a unit: one server, a master with sentinels, or a
// cluster.
type Topology int

// The topologies.
const (
	RedisSingle Topology = iota
	RedisSentinel
	RedisCluster
)

// A RedisURL is a URL with the servers that it names. [Load] fills in RedisServers; the
// error of Load says if it cannot.
type RedisURL struct {
	URL
	RedisServers
}

// RedisServers is what a URL for Redis says. It is safe to print.
type RedisServers struct {
	Topology Topology
	TLS      bool
	// Socket is the path of a unix socket. If it is set, Addresses is empty.
	Socket string
	// Addresses are host:port of the server, of sentinels, or of some nodes of a
	// cluster.
	Addresses []string
	// Master is what the sentinels call it.
	Master string
	// Database is 0 on a cluster, which has no other.
	Database int
	// Username and Password are the URL's, and empty if it has none.
	Username string
	Password Secret
}

func localRedis(keyPrefix string) Redis {
	return Redis{
		URL:       RedisURL{"redis://127.0.0.1:6379/0", RedisServers{Addresses: []string{"127.0.0.1:6379"}}},
		KeyPrefix: keyPrefix,
	}
}

const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

var schemes = map[string]struct {
	topology    Topology
	tls, socket bool
	form        string
}{
	"redis":           {form: "redis://host:port/db"},
	"rediss":          {tls: true, form: "rediss://host:port/db"},
	"unix":            {socket: true, form: "unix:///path?db=0"},
	"redis-sentinel":  {topology: RedisSentinel, form: "redis-sentinel://host:port,host:port/master/db"},
	"rediss-sentinel": {topology: RedisSentinel, tls: true, form: "rediss-sentinel://host:port,host:port/master/db"},
	"redis-cluster":   {topology: RedisCluster, form: "redis-cluster://host:port,host:port"},
	"rediss-cluster":  {topology: RedisCluster, tls: true, form: "rediss-cluster://host:port,host:port"},
}

// servers reads a URL for Redis. The error says what is wrong with it, without a part of
// the URL that may be secret.
func (u URL) servers() (RedisServers, error) {
	none := RedisServers{}
	p, ok := u.split()
	if !ok {
		return none, errors.New("not a URL of the form redis://host:port/db, redis-sentinel://hosts/master/db or redis-cluster://hosts (characters such as / # @ in a password are written as %2F %23 %40, ports are numbers)")
	}
	scheme, ok := schemes[p.scheme]
	if !ok {
		return none, errors.New("unknown scheme: expected redis://, redis-sentinel://, redis-cluster://, each with rediss for TLS, or unix://")
	}
	expected := ": expected " + scheme.form
	s := RedisServers{Topology: scheme.topology, TLS: scheme.tls, Username: p.user, Password: Secret(p.password)}
	if p.hasUser && p.password == "" {
		return none, errors.New("the URL has a user without a password: write user:password@, or give both as settings")
	}
	if err := checkURLOptions(p.query, scheme.socket); err != nil {
		return none, err
	}
	if scheme.socket {
		return u.socket(s, &p, expected)
	}
	if err := s.hosts(p.hosts, expected); err != nil {
		return none, err
	}
	database := strings.Trim(p.path, "/")
	if s.Topology == RedisSentinel {
		name, rest, _ := strings.Cut(database, "/")
		master, err := url.PathUnescape(name)
		if err != nil || master == "" {
			return none, errors.New("the URL does not say what the sentinels call the master" + expected)
		}
		s.Master, database = master, rest
	}
	if err := s.database(database, expected); err != nil {
		return none, err
	}
	return s, nil
}

func (s *RedisServers) database(text, expected string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil && s.Topology == RedisSentinel:
		return errors.New("the part after the name of the master must be the number of a database" + expected)
	case err != nil:
		return errors.New("the part after the host must be the number of a database" + expected)
	case n != 0 && s.Topology == RedisCluster:
		return errors.New("a cluster has only database 0" + expected)
	}
	s.Database = int(n)
	return nil
}

func (s *RedisServers) hosts(hosts []string, expected string) error {
	if len(hosts) > 1 && s.Topology == RedisSingle {
		return errors.New("the URL has several hosts: redis-sentinel:// and redis-cluster:// take them, redis:// takes one")
	}
	usual := redisPort
	if s.Topology == RedisSentinel {
		usual = sentinelPort
	}
	for _, h := range hosts {
		host, port, _ := splitHost(h)
		if host == "" {
			return errors.New("the URL has no host, or an extra comma" + expected)
		}
		if port == "" {
			port = usual
		}
		address := net.JoinHostPort(host, port)
		if slices.Contains(s.Addresses, address) {
			return fmt.Errorf("the URL lists %s twice", strict.Quote(address))
		}
		s.Addresses = append(s.Addresses, address)
	}
	return nil
}

func (u URL) socket(s RedisServers, p *urlParts, expected string) (RedisServers, error) {
	path, err := url.PathUnescape(p.path)
	if err != nil || !filepath.IsAbs(path) || path == "/" || p.hosts[0] != "" || len(p.hosts) > 1 {
		return RedisServers{}, errors.New("the path of a unix socket must be absolute, with three slashes" + expected)
	}
	s.Socket = path
	query, _ := url.ParseQuery(p.query) // checked already
	if err := s.database(query.Get("db"), expected); err != nil {
		return RedisServers{}, errors.New("db must be the number of a database" + expected)
	}
	return s, nil
}

// checkURLOptions refuses query options, so that every setting has one home. The database of a
// unix socket is the exception. The error does not repeat a name, which may be a part of a password.
func checkURLOptions(query string, socket bool) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errBadQuery
	}
	if socket && len(values["db"]) == 1 {
		delete(values, "db")
	}
	if len(values) > 0 {
		return errors.New("the URL has a query option: remove it, and use a setting in its place")
	}
	return nil
}

var errBadQuery = errors.New("the part after ? is not of the form name=value")

// TLS says which servers a connection trusts and which certificate it shows. The scheme of the
// URL says whether there is TLS.
type TLS struct {
	CAFile   string `yaml:"ca_file" doc:"CA certificates (PEM) to trust, besides those of the system"`
	CertFile string `yaml:"cert_file" doc:"the client certificate (PEM), then the intermediate ones, if the server asks for one"`
	KeyFile  string `yaml:"key_file" doc:"the key (PEM, not encrypted) of cert_file"`
	// ServerName is what sni in the URL says: the name that the server's certificate must have.
	// Empty: the host of the address.
	ServerName string `yaml:"-"`
	// AnyName accepts a trusted certificate of any name. Only a drop-in sets it.
	AnyName bool `yaml:"-"`
}

// Files are the files that are set.
func (t TLS) Files() []string { return notEmpty(t.CAFile, t.CertFile, t.KeyFile) }

// Config reads the files. Errors name the setting, of which setting is the section,
// and the file.
func (t TLS) Config(setting string) (*tls.Config, error) {
	var base *x509.CertPool
	if t.CAFile != "" {
		var err error
		if base, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("%s.ca_file: the CA certificates of the system: %w", setting, err)
		}
	}
	roots, err := readAuthorities(t.CAFile, base)
	if err != nil {
		return nil, fmt.Errorf("%s.ca_file: %w", setting, err)
	}
	cert, err := readPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s.cert_file: %w", setting, err)
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		RootCAs:      roots,
		Certificates: cert,
		ServerName:   t.ServerName,
	}
	if t.AnyName {
		// It turns off only the verification of crypto/tls. VerifyConnection takes its place, for
		// resumed sessions too.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, roots) }
	}
	return c, nil
}

// verifyChain returns an error if the peer's certificate was not signed for servers by one of
// the roots, or of the system's if roots is nil. It accepts every name.
func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// Config is [TLS.Config], and returns nil if there is no TLS.
func (t ClientTLS) Config(setting string) (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	return t.TLS.Config(setting)
}

// ReadPassword returns the password that a file holds, without the newline that
// editors end a file with. The error does not name the file.
func ReadPassword(file string) (Secret, error) {
	text, err := readLine(file)
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", errors.New("is empty")
	case strings.ContainsAny(text, "\r\n"):
		return "", errors.New("has more than one line")
	}
	return Secret(text), nil
}

func (l *settingsLoader) redisConnection(path string, r *Redis) {
	r.TLS.ServerName = l.serverName(path+".url", &r.URL.URL)
	servers, err := r.URL.servers()
	if err != nil {
		l.problem(path+".url", "%s", err)
	} else {
		r.URL.RedisServers = servers
		l.redisWithURL(path, r)
	}
	l.password(path+".username", r.Username, path+".password", r.Password, r.PasswordFile)
	l.password(path+".sentinel_username", r.SentinelUsername, path+".sentinel_password", r.SentinelPassword, r.SentinelPasswordFile)
	l.tls(path+".tls", r.TLS)
	l.keyPrefix(path, r.KeyPrefix)
}

func (l *settingsLoader) keyPrefix(path, p string) {
	// Braces would move the hash tag of Redis Cluster. The others make keys hard to find with SCAN.
	bad := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("{}*?[]\\", c) }
	if len(p) > maxKeyPrefix || strings.ContainsFunc(p, bad) {
		l.problem(path+".key_prefix", "%s: at most %d printable ASCII characters, without spaces, braces and *?[]", strict.Quote(p), maxKeyPrefix)
	}
}

func (l *settingsLoader) tls(path string, t TLS) {
	if _, err := readAuthorities(t.CAFile, nil); err != nil {
		l.problem(path+".ca_file", "%s", err)
	}
	l.pair(path, t.CertFile, t.KeyFile)
}

func (l *settingsLoader) clientTLS(path string, t ClientTLS) {
	l.tls(path, t.TLS)
	if !t.Enabled {
		l.noTLS(path, strings.TrimSuffix(path, ".tls")+".address does not begin with grpcs://")
	}
}

// refuse reports settings of a section that are set. Empty is the default of each.
func (l *settingsLoader) refuse(section string, names []string, why string) {
	for _, name := range names {
		path := section + "." + name
		if v, ok := l.values[path]; ok && !v.IsZero() {
			l.problem(path, "%s", why)
		}
	}
}

// noTLS refuses the settings of a section about TLS if connections have no TLS.
func (l *settingsLoader) noTLS(section, why string) {
	l.refuse(section, []string{"ca_file", "cert_file", "key_file"}, "there is no TLS: "+why)
}

func (l *settingsLoader) redisWithURL(path string, r *Redis) {
	if r.URL.Password != "" {
		l.refuse(path, []string{"username", "password_file", "password"}, path+".url also has a user or a password: set them only once")
	}
	if r.URL.Topology != RedisSentinel {
		l.refuse(path, []string{"sentinel_username", "sentinel_password_file", "sentinel_password"},
			"there are no sentinels: "+path+".url does not begin with redis-sentinel:// or rediss-sentinel://")
	}
	if !r.URL.TLS {
		l.noTLS(path+".tls", path+".url does not begin with rediss")
		if r.TLS.ServerName != "" {
			l.problem(path+".url", "sni is the name in a certificate, and there is no TLS: begin the URL with rediss")
		}
	}
}

func (l *settingsLoader) password(userPath, user, path string, password Secret, file string) {
	switch {
	case password != "" && file != "":
		l.problem(path+"_file", "%s is also set: set only one of the two", path)
	case user != "" && password == "" && file == "":
		l.problem(userPath, "a user needs a password: set %s_file, or the variable %s", path, envName(path))
	case file != "":
		if _, err := ReadPassword(file); err != nil {
			l.problem(path+"_file", "%s: %s", strict.Quoteless(file), err)
		}
	}
}

// maxKeyPrefix bounds a key prefix in bytes. Redis stores it with every key.
const maxKeyPrefix = 64
