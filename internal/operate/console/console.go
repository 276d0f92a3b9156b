package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/peers"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/words"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// An Insight answers questions about usage and denials: an [insight.Insight].
type Insight interface {
	Find(ctx context.Context, q insight.Query, typed string) (insight.Query, bool)
	Search(ctx context.Context, typed string) insight.Found
	Suggest(typed string) []string
	IsKey(ctx context.Context, text string) bool
	Usage(context.Context, insight.Query) (*insight.Usage, error)
	Reset(context.Context, insight.ResetRequest) (*insight.Reset, error)
	Audit() []insight.Reset
	Grants() []*grant.Grant
	Grant(context.Context, insight.GrantRequest) (*grant.Grant, error)
	Revoke(ctx context.Context, id, by string) (*grant.Grant, error)
	Denials(insight.Filter) insight.Denials
	Top(insight.TopQuery) insight.Top
}

// Options of the console. All but History, Log and Now are required. All functions are safe for
// concurrent use.
type Options struct {
	Insight Insight
	// History answers what was counted in the last 30 days. Nil: pages have no charts of it.
	History func(context.Context, history.Query) (*history.History, error)
	// State returns what a glance at the process shows.
	State func() glance.State
	// Peers are the other instances. Nil: the pages show this one alone.
	Peers *peers.Peers
	// Active returns the active rules. It is called several times a page.
	Active func() admin.Active
	// Secrets digests API keys.
	Secrets *tier.Secrets
	// Shown returns a typed entry as a page may repeat it, with *** for what it must not.
	Shown func(descriptors.Entry) descriptors.Entry
	// TierNames returns the names of the tiers.
	TierNames func() []string
	// Explain explains a request without a charge.
	Explain func(context.Context, admin.ExplainRequest) (*admin.Explained, error)
	// Access decides who may read and act.
	Access *admin.Access
	// Log gets errors of templates. Nil disables it.
	Log *zap.Logger
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// askTimeout bounds the questions of one page to the store and to the customer source.
const askTimeout = 5 * time.Second

// maxForm bounds the body of a form, in bytes.
const maxForm = 64 << 10

var (
	//go:embed pages/*.html
	pageFiles embed.FS
	//go:embed console.css
	styleFile []byte
	//go:embed console.js
	scriptFile []byte
	//go:embed icon.svg
	iconFile []byte
)

// An asset is a file that pages load. Its path has a digest of its content, so a browser may
// keep it for ever.
type asset struct {
	path, kind string
	content    []byte
}

var (
	style  = newAsset("console", "css", "text/css; charset=utf-8", styleFile)
	script = newAsset("console", "js", "text/javascript; charset=utf-8", scriptFile)
	icon   = newAsset("icon", "svg", "image/svg+xml", iconFile)
)

func newAsset(name, ending, kind string, content []byte) asset {
	sum := sha256.Sum256(content)
	return asset{fmt.Sprintf("/console/%s-%s.%s", name, hex.EncodeToString(sum[:6]), ending), kind, content}
}

func (a asset) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	_, _ = w.Write(a.content) // on an error the client has gone
}

// contentSecurity allows a page the files of the console and requests to this port.
var contentSecurity = strings.Join([]string{
	"default-src 'none'", "style-src 'self'", "script-src 'self'", "img-src 'self'", "connect-src 'self'",
	"form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
}, "; ")

// A Console serves the pages. It is safe for concurrent use.
type Console struct {
	opts  Options
	mux   *http.ServeMux
	pages map[string]*template.Template
}

// New returns a Console.
func New(o Options) *Console {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	c := &Console{opts: o, mux: http.NewServeMux(), pages: parsePages()}
	for _, a := range []asset{style, script, icon} {
		c.mux.Handle("GET "+a.path, a)
	}
	c.mux.HandleFunc("GET /{$}", c.reads(c.overview))
	c.mux.HandleFunc("POST /find", c.reads(c.find))
	c.mux.HandleFunc("POST /suggest", c.reads(c.suggest))
	c.mux.HandleFunc("GET /subject", c.reads(c.subject))
	c.mux.HandleFunc("POST /subject", c.acts(c.reset))
	c.mux.HandleFunc("POST /grants", c.acts(c.grant))
	c.mux.HandleFunc("GET /rules", c.reads(c.rules))
	c.mux.HandleFunc("POST /rules", c.reads(c.filterRules))
	c.mux.HandleFunc("GET /denials", c.reads(c.denials))
	c.mux.HandleFunc("POST /denials", c.reads(c.filterDenials))
	c.mux.HandleFunc("GET /top", c.reads(c.top))
	c.mux.HandleFunc("GET /try", c.reads(c.try))
	c.mux.HandleFunc("POST /try", c.reads(c.try))
	c.mux.HandleFunc("GET /audit", c.reads(c.audit))
	c.mux.HandleFunc("GET /login", c.login)
	c.mux.HandleFunc("POST /login", c.logIn)
	c.mux.HandleFunc("POST /logout", c.logOut)
	c.mux.HandleFunc("/", c.reads(func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, http.StatusNotFound, "There is no such page", "The address may be mistyped, or from another version of rls.")
	}))
	return c
}

// ServeHTTP serves a page.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	if r.Method != http.MethodPost || c.form(w, r) {
		c.mux.ServeHTTP(w, r)
	}
}

// reads lets a request pass if its sender may read, and answers with the login otherwise.
func (c *Console) reads(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case c.opts.Access.Caller(r).Read:
			next(w, r)
		case r.Method == http.MethodGet:
			c.showLogin(w, r, http.StatusForbidden, "") // at the address of the page, which the login returns to
		default:
			seeOther(w, "/login")
		}
	}
}

// acts lets a request pass if its sender may change something.
func (c *Console) acts(next http.HandlerFunc) http.HandlerFunc {
	return c.reads(func(w http.ResponseWriter, r *http.Request) {
		if !c.opts.Access.Caller(r).Act {
			c.fail(w, r, http.StatusForbidden, "This needs a token that may act",
				"Log in with a token whose line in admin.token_file begins with act.")
			return
		}
		next(w, r)
	})
}

// seeOther redirects to a page of the console.
func seeOther(w http.ResponseWriter, target string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", target)
	w.WriteHeader(http.StatusSeeOther) // http.Redirect would repeat the target in a body
}

// address returns the address of a page with the fields that are not empty.
func address(page string, fields ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] != "" {
			q.Set(fields[i], fields[i+1])
		}
	}
	if len(q) == 0 {
		return page
	}
	return page + "?" + q.Encode()
}

// A view is what the frame of every page needs.
type view struct {
	// Page is the name of the template, and the entry of the menu that is open.
	Page, Title string
	// Refresh is the time between two requests of the live parts, in seconds. Zero: none.
	Refresh int
	Now     time.Time
	// State is what a glance at the process shows. Nil: show asks for it.
	State  *glance.State
	Caller admin.Caller
	// Worst is the level of the worst problem: error, warning or empty.
	Worst string
	// Past is the denials of the rule or the customer of the page by the day. Nil: not known.
	Past *past
	Data any
	// Instances are those that the page is from. Empty: this one. Alone is true if no setting adds
	// others.
	Instances insight.Instances
	Alone     bool
}

// Style, Script and Icon are the addresses of the files of a page.
func (view) Style() string  { return style.path }
func (view) Script() string { return script.path }
func (view) Icon() string   { return icon.path }

// Problems returns the number of problems.
func (v view) Problems() int { return len(v.State.Problems) }

func (c *Console) show(w http.ResponseWriter, r *http.Request, code int, v view) {
	v.Now, v.Caller = c.opts.Now(), c.opts.Access.Caller(r)
	switch {
	case !v.Caller.Read:
		v.State = new(glance.State) // the login shows nothing of the process
	case v.State == nil:
		s := c.opts.State()
		v.State = &s
	}
	v.Alone = c.opts.Peers == nil
	for _, p := range v.State.Problems {
		if v.Worst != "error" {
			v.Worst = p.Level
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", contentSecurity)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// A stricter policy would make browsers send "Origin: null" with forms, which the guard
	// of the port refuses.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	var b bytes.Buffer
	if err := c.pages[v.Page].ExecuteTemplate(&b, "frame", v); err != nil {
		c.opts.Log.Error("a page of the console failed", zap.String("page", v.Page), zap.Error(err))
		http.Error(w, "This page failed. The log of rls says why.", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // on an error the client has gone
}

// A failure is the content of a page that says why there is no other one.
type failure struct{ Title, Text string }

// fail answers with a page that says what is wrong and what to do.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, code int, title, text string) {
	c.show(w, r, code, view{Page: "failure", Title: title, Data: failure{title, text}})
}

// form parses the form of a request, and answers if it is malformed or too large.
func (c *Console) form(w http.ResponseWriter, r *http.Request) bool {
	err := r.ParseForm()
	if err == nil {
		return true
	}
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		c.fail(w, r, http.StatusRequestEntityTooLarge, "The form is too large", fmt.Sprintf("A form may have %s. Shorten the text.", words.Bytes(maxForm)))
	} else {
		c.fail(w, r, http.StatusBadRequest, "The form cannot be read", "Open the page again and fill in the form once more.")
	}
	return false
}

// parsePages parses the template of each page together with the frame.
func parsePages() map[string]*template.Template {
	funcs := template.FuncMap{
		"text": userText, "prose": prose, "count": words.Count, "short": words.Short, "length": words.Seconds, "size": words.Bytes,
		"clock": clock, "ago": ago, "percent": words.PercentOf, "digest": tier.ShortDigest, "address": address,
		"spark": spark, "last": last, "usedBar": usedBar, "timeline": timeline, "partBar": partBar,
		"documented": func(path string) bool { return strings.HasPrefix(path, docs.Path) },
		"visible":    func(s string) string { return safetext.Runes(s, maxShown) }, "add": func(a, b int) int { return a + b }, "minus": func(a, b uint64) uint64 { return a - b },
		"count64": func(n int) string { return words.Count(uint64(max(n, 0))) }, "float": func(n uint64) float64 { return float64(n) },
		"lines": lines,
		"dict": func(pairs ...any) map[string]any {
			m := make(map[string]any, len(pairs)/2)
			for i := 0; i+1 < len(pairs); i += 2 {
				m[pairs[i].(string)] = pairs[i+1]
			}
			return m
		},
	}
	frame := template.Must(template.New("").Funcs(funcs).ParseFS(pageFiles, "pages/frame.html", "pages/grants.html"))
	pages := make(map[string]*template.Template)
	for _, name := range []string{"overview", "subject", "rules", "denials", "top", "try", "audit", "login", "failure"} {
		pages[name] = template.Must(template.Must(frame.Clone()).ParseFS(pageFiles, "pages/"+name+".html"))
	}
	return pages
}
