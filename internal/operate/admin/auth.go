package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/text/clientaddr"
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
// Authorization, or the cookie of [Access.LogIn] stands for it. Wrong tokens are not counted: a token
// is too long to be guessed. It is safe for concurrent use.
type Access struct {
	o AccessOptions

	mu       sync.Mutex
	sessions map[string]session // by the value of their cookie
}

// NewAccess returns an Access. Without tokens no request can change anything.
func NewAccess(o AccessOptions) *Access {
	if o.Tokens == nil {
		o.Tokens = func() []settings.Token { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Access{o: o, sessions: make(map[string]session)}
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

// The errors of [Access.LogIn].
var (
	ErrNoTokens   = errors.New("no token is valid: set admin.token_file")
	ErrWrongToken = errors.New("the token is not in admin.token_file")
)

// Caller returns who sends a request.
func (a *Access) Caller(r *http.Request) Caller {
	c, _ := a.caller(r)
	return c
}

// caller is Caller that also returns why a token is not accepted, or nil if there is none.
func (a *Access) caller(r *http.Request) (Caller, error) {
	c := Caller{Address: peer(r).String(), Read: a.o.FreeReads && local(r)}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		t, err := a.find(token)
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

// find returns the token of a text.
func (a *Access) find(text string) (settings.Token, error) {
	if len(a.o.Tokens()) == 0 {
		return settings.Token{}, ErrNoTokens
	}
	t, ok := a.withDigest(sha256.Sum256([]byte(strings.TrimSpace(text))))
	if !ok {
		return settings.Token{}, ErrWrongToken
	}
	return t, nil
}

// withDigest returns the token with a digest. It compares all tokens, in constant time.
func (a *Access) withDigest(digest [sha256.Size]byte) (found settings.Token, ok bool) {
	for _, t := range a.o.Tokens() {
		if subtle.ConstantTimeCompare(digest[:], t.Digest[:]) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}

// A session is a login. Sessions are in memory only, so a restart ends all of them.
type session struct {
	token [sha256.Size]byte // its digest
	end   time.Time
}

const (
	cookieName    = "slidegate_session"
	sessionLength = 12 * time.Hour
	// maxSessions bounds the sessions of a token: one more ends its others.
	maxSessions = 1000
)

// LogIn checks a token and sets a cookie that stands for it, for 12 hours or until the token
// leaves the file. It returns [ErrWrongToken] or [ErrNoTokens] if the token is not accepted. The
// request must be a POST that [Guard.CheckOrigin] let pass.
func (a *Access) LogIn(w http.ResponseWriter, r *http.Request, token string) error {
	t, err := a.find(token)
	if err != nil {
		a.warn(r, err.Error())
		return err
	}
	now, value := a.o.Now(), rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.sessions, func(_ string, s session) bool { return !now.Before(s.end) })
	same := func(_ string, s session) bool { return s.token == t.Digest }
	count := 0
	for value, s := range a.sessions {
		if same(value, s) {
			count++
		}
	}
	if count >= maxSessions {
		maps.DeleteFunc(a.sessions, same)
	}
	a.sessions[value] = session{t.Digest, now.Add(sessionLength)}
	http.SetCookie(w, a.cookie(r, value, int(sessionLength/time.Second)))
	return nil
}

// LogOut removes the cookie, and ends its session here, so that a copy of it is of no use.
func (a *Access) LogOut(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cookie := range r.CookiesNamed(cookieName) {
		delete(a.sessions, cookie.Value)
	}
	http.SetCookie(w, a.cookie(r, "", -1))
}

func (a *Access) cookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure is set where there is TLS
		Name: cookieName, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", // a proxy may have the TLS
	}
}

// session returns the token of the session of a request. A page at another port of this host
// can set a cookie of the same name, which comes first, so all are tried.
func (a *Access) session(r *http.Request) (settings.Token, bool) {
	for _, cookie := range r.CookiesNamed(cookieName) {
		a.mu.Lock()
		s, ok := a.sessions[cookie.Value]
		a.mu.Unlock()
		if ok && a.o.Now().Before(s.end) {
			return a.withDigest(s.token)
		}
	}
	return settings.Token{}, false
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
		writeProblem(w, refuse(status, "%s", detail))
	})
}

// warn logs a refused request, without its token.
func (a *Access) warn(r *http.Request, why string) {
	if a.o.Log != nil {
		a.o.Log.Warn("a request to the admin port was refused", zap.String("path", r.Pattern), zap.String("address", peer(r).String()), zap.String("reason", why))
	}
}
