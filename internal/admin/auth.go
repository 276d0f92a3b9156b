package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/clientaddr"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
)

// A Caller is who sends a request to the admin port, and what it may do. The zero value may
// do nothing.
type Caller struct {
	// Read allows pages that change nothing, and Act all others.
	Read, Act bool
	// Name is the name of the token, for the audit log. Empty: the request has no valid token.
	Name string
	// Address is the IP address of the request.
	Address string
	// LoggedIn is true if the token came by the cookie of [Access.LogIn].
	LoggedIn bool
}

// By names the caller for the audit log.
func (c Caller) By() string {
	if c.Name == "" {
		return c.Address
	}
	return c.Name + " from " + c.Address
}

// AccessOptions of [NewAccess].
type AccessOptions struct {
	// FreeReads lets this machine read without a token. Set it only if the listener is on loopback,
	// and neither admin.token_file nor admin.hosts is set.
	FreeReads bool
	// Tokens returns the tokens that are valid now. Nil: there are none.
	Tokens func() []settings.Token
	// Log gets a warning for each refused request. Wrap it to sample them. Nil disables the
	// warnings.
	Log *zap.Logger
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// An Access decides who may use the admin port. All requests need a token of admin.token_file, but
// for reads of this machine if [AccessOptions.FreeReads] is set. The token is in the header
// Authorization, or the cookie of [Access.LogIn] stands for it. It is safe for concurrent use.
type Access struct {
	o   AccessOptions
	key [sha256.Size]byte // of the cookies of this process

	mu     sync.Mutex
	since  time.Time          // the beginning of the minute that failed counts
	failed map[netip.Addr]int // wrong tokens, by address
	ended  map[session]struct{}
}

// NewAccess returns an Access. Without tokens no request can change anything.
func NewAccess(o AccessOptions) *Access {
	if o.Tokens == nil {
		o.Tokens = func() []settings.Token { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Access{o: o, failed: make(map[netip.Addr]int), ended: make(map[session]struct{})}
	_, _ = rand.Read(a.key[:]) // it never fails
	return a
}

// Tokens returns a function that returns the tokens of a file, which it reads again if the file
// has changed. If the file is wrong, the last tokens stay. Without a file it returns nil.
func Tokens(file string, log *zap.Logger) (func() []settings.Token, error) {
	if file == "" {
		return nil, nil
	}
	const setting = "admin.token_file"
	r, err := watch.NewReread(setting, []string{file}, func() ([]settings.Token, error) { return settings.ReadTokens(file) }, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return r.Get, nil
}

// Bounds on attempts with wrong tokens. Above maxFailed in a minute, an address is refused until
// the minute ends, even with a right token, unless the token has longToken characters: no
// attacker guesses that many, and otherwise each client behind the address of a proxy could keep an
// operator out. Above maxAddresses, all further addresses count as one.
const (
	maxFailed    = 30
	maxAddresses = 1024
	longToken    = 32
)

// The errors of [Access.LogIn].
var (
	ErrNoTokens   = errors.New("no token is valid: set admin.token_file")
	ErrWrongToken = errors.New("the token is not in admin.token_file")
	ErrTooOften   = errors.New("too many wrong tokens came from this address: wait a minute")
)

// Caller returns who sends a request, and counts a wrong token.
func (a *Access) Caller(r *http.Request) Caller {
	c, _ := a.caller(r)
	return c
}

// caller is Caller that also returns why a token is not accepted, or nil if there is none.
func (a *Access) caller(r *http.Request) (Caller, error) {
	from := peer(r)
	c := Caller{Address: from.String(), Read: a.o.FreeReads && local(r)}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		t, err := a.find(from, strings.TrimSpace(token))
		if err == nil {
			c.Read, c.Act, c.Name = true, t.Act, t.Name
		}
		return c, err
	}
	if t, ok := a.session(r); ok {
		c.Read, c.Act, c.Name, c.LoggedIn = true, t.Act, t.Name, true
	}
	return c, nil
}

// peer returns the address of the other end.
func peer(r *http.Request) netip.Addr {
	ip, ok := clientaddr.Parse(r.RemoteAddr)
	if !ok {
		return netip.IPv6Unspecified() // a test, or a listener without addresses
	}
	return ip
}

// local reports whether a program of this machine sends a request for itself. A proxy of this
// machine sends the requests of others: it adds header fields, or keeps the Host of its client.
func local(r *http.Request) bool {
	if !peer(r).IsLoopback() {
		return false
	}
	for name := range r.Header {
		switch name = strings.ToLower(strings.ReplaceAll(name, "_", "-")); {
		case name == "forwarded", name == "via", name == "x-real-ip", strings.HasPrefix(name, "x-forwarded"):
			return false
		}
	}
	host, ok := hostName(r.Host)
	ip, err := netip.ParseAddr(host)
	return ok && (host == "" || host == "localhost" || err == nil && ip.Unmap().IsLoopback())
}

// find returns the token of a text. It compares all tokens, in constant time.
func (a *Access) find(from netip.Addr, text string) (settings.Token, error) {
	blocked := a.blocked(from)
	if blocked && len(text) < longToken {
		return settings.Token{}, ErrTooOften
	}
	all := a.o.Tokens()
	if len(all) == 0 {
		return settings.Token{}, ErrNoTokens
	}
	digest := sha256.Sum256([]byte(text))
	var found settings.Token
	ok := 0
	for i := range all {
		if subtle.ConstantTimeCompare(digest[:], all[i].Digest[:]) == 1 {
			found, ok = all[i], 1
		}
	}
	switch {
	case ok == 1:
		return found, nil
	case blocked:
		return settings.Token{}, ErrTooOften
	default:
		a.fail(from)
		return settings.Token{}, ErrWrongToken
	}
}

// network returns what counts as one address: all IPv6 addresses of a network do, because a
// machine has many of them.
func network(ip netip.Addr) netip.Addr {
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

// others is the address of all that are too many to count.
var others = netip.IPv6Unspecified()

func (a *Access) blocked(from netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	n, known := a.failed[network(from)]
	if !known && len(a.failed) >= maxAddresses {
		n = a.failed[others]
	}
	return n >= maxFailed
}

func (a *Access) fail(from netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	from = network(from)
	if _, known := a.failed[from]; !known && len(a.failed) >= maxAddresses {
		from = others
	}
	a.failed[from]++
}

// turn begins a new minute if the last one is over. The caller holds a.mu.
func (a *Access) turn() {
	if now := a.o.Now(); now.Sub(a.since) >= time.Minute || now.Before(a.since) {
		a.since = now
		clear(a.failed)
	}
}

// The cookie of a login. It has the end of the session and a keyed digest, and not the token.
// The key is in memory only, so a restart ends all sessions.
const (
	cookieName    = "slidegate_session"
	sessionLength = 12 * time.Hour
)

// LogIn checks a token and sets a cookie that stands for it, for 12 hours or until the token
// leaves the file. It returns [ErrWrongToken], [ErrTooOften] or [ErrNoTokens] if the token is
// not accepted. The request must be a POST that [Guard.CheckOrigin] let pass.
func (a *Access) LogIn(w http.ResponseWriter, r *http.Request, token string) (Caller, error) {
	from := peer(r)
	t, err := a.find(from, strings.TrimSpace(token))
	if err != nil {
		a.warn(r, err.Error())
		return Caller{}, err
	}
	var s session
	binary.BigEndian.PutUint64(s[:8], uint64(a.o.Now().Add(sessionLength).Unix()))
	_, _ = rand.Read(s[8:16]) // it never fails
	copy(s[16:], a.mac(&s, t))
	http.SetCookie(w, a.cookie(r, base64.RawURLEncoding.EncodeToString(s[:]), int(sessionLength/time.Second)))
	return Caller{Read: true, Act: t.Act, Name: t.Name, Address: from.String(), LoggedIn: true}, nil
}

// LogOut removes the cookie, and ends its session here, so that a copy of it is of no use.
func (a *Access) LogOut(w http.ResponseWriter, r *http.Request) {
	for _, cookie := range r.CookiesNamed(cookieName) {
		if _, s, ok := a.open(cookie.Value); ok {
			a.end(s)
		}
	}
	http.SetCookie(w, a.cookie(r, "", -1))
}

// maxEnded bounds the sessions that are kept because they have ended before their time. Only
// the holder of a token can begin one.
const maxEnded = 10_000

// end ends a session. If there are too many, it ends none: the browser has lost the cookie.
func (a *Access) end(s session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now().Unix()
	maps.DeleteFunc(a.ended, func(s session, _ struct{}) bool { return s.end() <= now })
	if len(a.ended) < maxEnded {
		a.ended[s] = struct{}{}
	}
}

func (a *Access) cookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure is set where there is TLS
		Name: cookieName, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", // a proxy may have the TLS
	}
}

// A session is what the cookie has: its end in seconds since 1970, random bytes, so that two
// logins are two sessions, and the keyed digest of these and the token.
type session [8 + 8 + sha256.Size]byte

func (s *session) end() int64 { return int64(binary.BigEndian.Uint64(s[:8])) }

// mac returns the keyed digest of a token and the beginning of a session.
func (a *Access) mac(s *session, t settings.Token) []byte {
	h := hmac.New(sha256.New, a.key[:])
	h.Write(s[:16])
	h.Write(t.Digest[:])
	return h.Sum(nil)
}

// session returns the token of the session of a request. A page at another port of this host
// can set a cookie of the same name, which comes first, so all are tried.
func (a *Access) session(r *http.Request) (found settings.Token, ok bool) {
	for i, cookie := range r.CookiesNamed(cookieName) {
		if i == maxCookies {
			break
		}
		if found, _, ok = a.open(cookie.Value); ok {
			return found, true
		}
	}
	return found, false
}

// maxCookies bounds the cookies of one request that are tried.
const maxCookies = 8

// open returns the token and the session of a cookie, unless the session is over.
func (a *Access) open(value string) (found settings.Token, s session, ok bool) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || copy(s[:], data) != len(s) || len(data) != len(s) || a.o.Now().Unix() >= s.end() {
		return found, s, false
	}
	for _, t := range a.o.Tokens() {
		if hmac.Equal(s[16:], a.mac(&s, t)) {
			found, ok = t, true
		}
	}
	if ok {
		a.mu.Lock()
		_, over := a.ended[s]
		a.mu.Unlock()
		ok = !over
	}
	return found, s, ok
}

// Readers lets only requests pass that may read.
func (a *Access) Readers(next http.Handler) http.Handler {
	return a.only(next, func(c Caller) bool { return c.Read }, "")
}

// Actors lets only requests pass that may change something.
func (a *Access) Actors(next http.Handler) http.Handler {
	return a.only(next, func(c Caller) bool { return c.Act }, "This changes something or shows memory, so it needs a token of a line \"act TOKEN\". The token of this request is of a line \"read TOKEN\".")
}

// The answer to a request that needs a token while there are none, and what a read can do without.
const (
	withoutTokens = "This needs a token, and this service has none: write a line \"act TOKEN NAME\" into a file, name the file in admin.token_file, and restart rls."
	freeReads     = " To read without a token, ask localhost on the machine of rls, without a proxy, and leave admin.hosts empty."
)

// only lets requests pass whose caller may. denied is the answer to a token that is valid.
func (a *Access) only(next http.Handler, may func(Caller) bool, denied string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := a.caller(r)
		if may(c) {
			next.ServeHTTP(w, r)
			return
		}
		status, detail := http.StatusUnauthorized, "This needs a token of admin.token_file: send the header Authorization: Bearer TOKEN."
		switch {
		case errors.Is(err, ErrTooOften):
			status, detail = http.StatusTooManyRequests, "Too many wrong tokens came from this address. Wait a minute."
			w.Header().Set("Retry-After", "60")
		case len(a.o.Tokens()) == 0:
			status, detail = http.StatusForbidden, withoutTokens
			if denied == "" {
				detail = withoutTokens + freeReads
			}
		case c.Name != "":
			status, detail = http.StatusForbidden, denied
		case err != nil:
			detail = "The token is not in admin.token_file, or no longer."
		}
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="slidegate"`)
		}
		a.warn(r, detail)
		refuse(w, status, "%s", detail)
	})
}

// warn logs a refused request, without its token.
func (a *Access) warn(r *http.Request, why string) {
	if a.o.Log != nil {
		a.o.Log.Warn("a request to the admin port was refused", zap.String("path", r.Pattern), zap.String("address", peer(r).String()), zap.String("reason", why))
	}
}
