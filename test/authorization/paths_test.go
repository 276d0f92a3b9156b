package authorization

import (
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	// usedUp has small limits for /login, by address, and /search, by key or by subject.
	usedUp = `
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per-address, window: 1h, requests: 50000}}
  - {key: route, value: login, descriptors: [{key: remote_address, rate_limit: {name: login-per-address, window: 1h, requests: 2}}]}
  - key: route
    value: search
    descriptors:
      - {key: api_key, rate_limit: {name: search-per-key, window: 1h, requests: 2}}
      - {key: subject, rate_limit: {name: search-per-subject, subject: subject, window: 1h, requests: 2}}
`
	// upstreamRequests is Envoy's counter of requests sent to the application.
	upstreamRequests = "cluster.upstream.upstream_rq_total"
)

// spellings are paths that some applications read as /login. Envoy must refuse each of
// them or count it as the route /login.
var spellings = []string{
	// Paths that Envoy itself normalizes.
	"/login", "//login", "///login//x", "/./login", "/%2e/login", "/x/../login", "/x/%2e%2e/login", "/x/.%2E/login", "/../../login", "/login/", "/login//", "/login/.",
	"/login/x/..", "/login/../login", "/login?", "/login?next=/", "/login?;", "/login?/../..;/", "/login\\", "/\\login", "/x\\..\\login",
	"http://host/login", "http://host//login", "HTTP://HOST/login", "http://host:80/login", "http://user@host/login", "http://host/LOGIN;",
	// Valid and invalid escapes.
	"/%6cogin", "/%6Cogin", "/%6C%6f%67%69%6E", "/login%2f", "/login%2Fx", "/x%2f..%2flogin", "/.%2flogin", "/login%5c", "/x%5c..%5clogin",
	"/login%", "/login%2", "/login%zz", "/login%u002f", "/%u006cogin", "/login%u",
	// Double escapes.
	"/%256cogin", "/%%36cogin", "/%25%36cogin", "/%6%63ogin", "/login%252f", "/login%253b", "/x/%252e%252e/login", "/%25252flogin",
	// Capitals.
	"/LOGIN", "/%4cOGIN", "/lOgIn", "/x/../LOGIN/", "/LOGIN.JSON",
	// Parameters.
	"/login;", "/login;x=1", "/login;jsessionid=1/x", "/;x/login", "/;/login", "/x;y/../login", "/x/..;/login", "/x/..;y=1/login", "/.;/login", "/x/%2e%2e;/login", "/x/..%3b/login",
	"/login%3b", "/login%3Bx=1", "/%3bx/login", "/lo;x=1/gin", "/login;?x=1", "//;/login",
	// Control characters and spaces.
	"/login%00", "/login%00.png", "/login%09", "/login%0a", "/login%0d%0a", "/login%1f", "/login%7f", "/login%20", "/login%20/", "/login\t", "/login\x00", "/%00/login", "/%0alogin", "/x/..%20/login",
	"/x/..%00/login", "/.%20/login", "/%20/login", "/%20%20/login", "/ /login", "/.../login", "/login%c2%a0", "/login%c2%85", "/login%e3%80%80",
	// Overlong or invalid UTF-8.
	"/login%c0%af", "/x%c0%af..%c0%aflogin", "/x/%c0%ae%c0%ae/login", "/%c1%9clogin", "/%e0%80%aflogin", "/%f0%80%80%aflogin", "/login\xff", "/login;\xff", "/login\xff;", "/\xff;/login", "/login\xc3\xa9",
	// Characters behind the name.
	"/login.", "/login..", "/login.json", "/login.json/", "/login.do", "/login+", "/login!", "/login~", "/login,", "/login:", "/login:80", "/login@x", "/login&x=1", "/login=", "/login$", "/login*", "/login'", "/login\"",
	"/login(x)", "/login[0]", "/login{x}", "/login|", "/login^", "/login`", "/login<", "/login%3f", "/login%3fx=1", "/login%23", "/login%23x", "/login#", "/login#x", "/login%26", "/login%3d", "/login%40",
	// Texts that are no path.
	"login", "?/login", "#/login",
}

// searchSpellings are such paths for /search.
var searchSpellings = []string{"/search", "/SEARCH", "/%53earch", "/search;", "/;/search", "/search.json", "/search%20", "//search/"}

// otherPaths are other resources. Only the application knows whether it serves /login
// under them.
var otherPaths = []string{"/loginx", "/LOGINX", "/login-x", "/login_x", "/xlogin", "/x/login", "/index.php/login", "/100%25", "/50%25off", "/.well-known/login", "/a.b/c..d", "/x%20y", "/%C3%A9", "/?x=;&y=%3b..;%2525"}

// shipped returns a setup for each file in envoy/ but those for MCP and for language models, which
// refuse everything else.
func shipped(t *testing.T) map[string]stack.Setup {
	t.Helper()
	files, err := filepath.Glob("../../envoy/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("files in envoy/: got %q, %v, want at least 5", files, err)
	}
	all := make(map[string]stack.Setup)
	for _, file := range files {
		if file == stack.MCPConfig || strings.Contains(file, "budgets") {
			continue
		}
		all[filepath.Base(file)] = stack.FileSetup(t, file, usedUp, stack.CustomersWith("starter"), nil)
	}
	return all
}

// withRoutes returns the shipped files that limit /login and /search. in-flight.yaml limits the
// whole application.
func withRoutes(t *testing.T) map[string]stack.Setup {
	t.Helper()
	all := shipped(t)
	delete(all, "in-flight.yaml")
	return all
}

// eachVersion sends a GET request over HTTP/1.1 and over HTTP/2 without changing a
// byte of the path, and calls f with the status. It leaves out HTTP/2 for texts that
// are no path, because Envoy takes a second to close such a connection; see
// TestHTTP2TakesPathsAlone.
func eachVersion(s *stack.Stack, path, key string, f func(version string, status int)) {
	s.T.Helper()
	var lines, fields []string
	if key != "" {
		lines, fields = []string{"x-api-key: " + key}, []string{"x-api-key", key}
	}
	got, _ := stack.Send(s.T, s.Envoy.Addr(), stack.Get11(path, lines...))
	f("HTTP/1.1", got.Status)
	if isPath(path) {
		f("HTTP/2", stack.Send2(s.T, s.Envoy.Addr(), stack.Get2(path, fields...)).Status)
	}
}

// isPath reports whether Envoy accepts the text as :path.
func isPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.ContainsAny(path, "\x00\t ")
}

// TestHTTP2TakesPathsAlone sends texts that are no path. Envoy must close the
// connection.
func TestHTTP2TakesPathsAlone(t *testing.T) {
	t.Parallel()
	s := stack.Setup{Rules: usedUp}.Start(t)
	opened := make(map[string]*http2.Framer)
	for _, path := range slices.Concat(spellings, escapingPaths, []string{"", "*", "\\login"}) {
		if !isPath(path) {
			conn, framer := stack.Open2(t, s.Envoy.Addr(), stack.Get2(path))
			defer conn.Close()
			opened[path] = framer
		}
	}
	for path, framer := range opened {
		if got := stack.Read2(t, framer); got.Status != 0 {
			t.Errorf("%q: got %d, want no answer", path, got.Status)
		}
	}
	if n := len(s.App.Received()); n != 0 {
		t.Errorf("the application got %d requests without a path, want none", n)
	}
}

// TestEverySpellingOfAPathIsLimited uses up the limits of two routes of each shipped
// file. Then it sends every path that an application may read as one of these routes.
func TestEverySpellingOfAPathIsLimited(t *testing.T) {
	t.Parallel()
	for file, o := range withRoutes(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s := o.Start(t)
			const key = "acme-old-key"
			s.From("127.0.0.1").Want(http.StatusOK, 2, "/login", "x-api-key", key)
			s.From("127.0.0.1").Want(http.StatusOK, 2, "/search", "x-api-key", key)
			sent := s.Stat(upstreamRequests)
			for _, path := range slices.Concat(spellings, searchSpellings) {
				eachVersion(s, path, key, func(version string, status int) {
					if status != http.StatusTooManyRequests && status != http.StatusBadRequest {
						t.Errorf("%s: %q after the limit is used up: got %d, want 429 or 400", version, path, status)
					}
				})
			}
			if n := s.Stat(upstreamRequests) - sent; n != 0 {
				t.Errorf("the application got %d requests of paths that spell /login or /search, want none", n)
			}
			for _, path := range otherPaths {
				eachVersion(s, path, key, func(version string, status int) {
					if status != http.StatusOK {
						t.Errorf("%s: %q, which is not /login: got %d, want 200", version, path, status)
					}
				})
			}
			wantRefusalCost(s, key, o.Config)
			wantPathHeadersRemoved(s, key)
			s.WantAllDecided()
		})
	}
}

// wantRefusalCost sends a refused path with a key and without. Authorization requires
// a key. One hop charges the limits of any request.
func wantRefusalCost(s *stack.Stack, key, config string) {
	s.T.Helper()
	authorizes := config == stack.AuthorizationConfig || config == stack.OneHopConfig
	for _, key := range []string{"", key} {
		status, cost := http.StatusBadRequest, uint32(0)
		var lines []string
		if key != "" {
			lines = []string{"x-api-key: " + key}
		} else if authorizes {
			status = http.StatusUnauthorized
		}
		if key != "" && config == stack.OneHopConfig {
			cost = 1
		}
		before := s.Peek("remote_address=127.0.0.1")
		got, _ := stack.Send(s.T, s.Envoy.Addr(), stack.Get11("/login;", lines...))
		after := s.Peek("remote_address=127.0.0.1")
		if charged := before[0] - after[0]; got.Status != status || charged != cost {
			s.T.Errorf("/login; with key %q: got %d and a charge of %d, want %d and %d", key, got.Status, charged, status, cost)
		}
	}
	if _, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool {
		return e["path"] == "/login;" && e["details"] == "direct_response"
	}); err != nil {
		s.T.Errorf("the access log has no direct_response for /login;: %v", err)
	}
}

// wantPathHeadersRemoved sends the headers from which some frameworks read the path.
func wantPathHeadersRemoved(s *stack.Stack, key string) {
	s.T.Helper()
	names := []string{"X-Original-Url", "X-Rewrite-Url"}
	header := []string{"x-api-key", key}
	for _, name := range names {
		header = append(header, name, "/login")
	}
	s.From("127.0.0.1").Want(http.StatusOK, 1, "/elsewhere", header...)
	for _, name := range names {
		if got := s.App.Last(s.T).Header.Values(name); len(got) > 0 {
			s.T.Errorf("the application got %s: %q from a client, want it removed", name, got)
		}
	}
}

// TestTheRefusalOfPathsCanBeTakenOut removes the line that refuses paths from each
// shipped file, as the comment in the file allows. Routes must still match paths with
// something behind their name.
func TestTheRefusalOfPathsCanBeTakenOut(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^ *- \{name: ambiguous-path, .*\n`)
	for file, o := range withRoutes(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			text := tree.Text(t, o.Config)
			lines := line.FindAllString(text, -1)
			if len(lines) != 1 {
				t.Fatalf("lines that refuse paths: got %q, want one", lines)
			}
			o.Change = stack.With(o.Change, map[string]string{lines[0]: ""})
			s := o.Start(t)
			const key, shop = "acme-old-key", "/shop;jsessionid=1/a%253b"
			s.From("127.0.0.1").Want(http.StatusOK, 2, "/login", "x-api-key", key)
			s.From("127.0.0.1").Want(http.StatusTooManyRequests, 1, "/LOGIN;x=1", "x-api-key", key)
			s.From("127.0.0.1").Want(http.StatusOK, 1, shop, "x-api-key", key)
			if got := s.App.Last(t).RequestURI; got != shop {
				t.Errorf("path at the application: got %q, want %q", got, shop)
			}
			s.WantAllDecided()
		})
	}
}

// escapingPaths are paths that begin with /login, which needs no key, and that some
// applications read as /admin or as another path outside of /login.
var escapingPaths = []string{
	"/login/../admin", "/login/%2e%2e/admin", "/login/.%2e/admin", "/login/%2E./admin", "/login/x/../../admin", "/login//../admin", "/login///../..//admin", "/login/.//../admin", "/login/%2e/%2e%2e/admin",
	"/login/..", "/login/../", "/login/..?x=1", "/login/..#", "/login/../../admin", "/login/../LOGIN/../admin",
	"/login/..;/admin", "/login/%2e%2e;/admin", "/login/..%3b/admin", "/login/%2e%2e%3B/admin", "/login/..;x=1/admin", "/login/.;/..;/admin", "/login/;/../../admin", "/login/x;/..;/..;/admin", "/login;/../admin",
	"/login;/..;/admin", "/login;x=/../admin", "/login/.;x/.;y/..;z/admin", "/login/..;%2fadmin", "/login/;..;/admin",
	"/login/%252e%252e/admin", "/login/..%252fadmin", "/login/%25%32%65%25%32%65/admin", "/login/%%32%65%%32%65/admin", "/login/..%253b/admin", "/login/%25252e%25252e/admin", "/login/%2%65%2%65/admin", "/login/..%255cadmin",
	"/login/..%2fadmin", "/login/%2e%2e%2Fadmin", "/login%2f..%2fadmin", "/login%2f%2e%2e/admin", "/login/..%5cadmin", "/login\\..\\admin", "/login/..\\admin", "/login%5c..%5cadmin", "/login/\\../admin",
	"/login/..%00/admin", "/login/..%0a/admin", "/login/..%09/admin", "/login/..%20/admin", "/login/%2e%2e%20/admin", "/login/..%20;/admin", "/login/..%7f/admin", "/login/.../admin", "/login/..../admin", "/login/..\x00/admin", "/login/..\t/admin",
	"/login/..\xff/admin", "/login/\xff;/..;/admin", "/login/..;\xff/admin", "/login/\xff/%2e%2e;/admin",
	"/login/..%c0%afadmin", "/login/%c0%ae%c0%ae/admin", "/login/..%c1%9cadmin", "/login/..%e0%80%afadmin", "/login/%e0%80%ae%e0%80%ae/admin", "/login/..%f0%80%80%afadmin",
	"/login/%u002e%u002e/admin", "/login/..%u002fadmin", "/login/..%u003b/admin", "/login/%zz/..;/admin", "/login%/..;/admin",
	"/login/x%3f/../../admin", "/login/..%3f/admin", "/login/..%23/admin", "/login?/../admin", "/login?/..;/admin", "/login/..+/admin",
	"/LOGIN/../admin", "/LOGIN/..;/admin", "/LOGIN/%2e%2e;/ADMIN", "/lOgIn/..%3B/admin", "/%6cogin/..;/admin", "//login/..;/admin", "/x/../login/..;/admin", "http://host/login/..;/admin", "http://host/login/%2e%2e%3b/admin",
	"/login.json", "/login.json/..;/admin", "/login.;/../admin", "/login%20/..;/admin", "/login;.json", "/login:admin", "/loginadmin", "/login-admin", "/login%2fadmin/..;/..;/admin",
}

// TestNoSpellingLeadsOutOfAnExemptPath sends requests without a key. If a file lets
// one pass, every reading of its path at the application must be below /login.
func TestNoSpellingLeadsOutOfAnExemptPath(t *testing.T) {
	eachWay(t, func(t *testing.T, config string) {
		app := newRawApplication(t)
		s := stack.Setup{
			// The limit is never used up.
			Rules: strings.ReplaceAll(usedUp, "requests: 2", "requests: 100000"), Tiers: stack.CustomersWith("starter"),
			Env: stack.TrustOwnTier, Config: config, Upstream: app.addr,
			Change: map[string]string{
				// The application takes HTTP/1.1 alone.
				"use_downstream_protocol_config:\n          http2_protocol_options: {}": "explicit_http_config: {http_protocol_options: {}}",
			},
		}.Start(t)
		for _, path := range slices.Concat(escapingPaths, spellings, []string{"/login", "/LOGIN", "/login/x", "/login/a%20b?x=/../admin"}) {
			before := len(app.received())
			eachVersion(s, path, "", func(version string, status int) {
				if !slices.Contains([]int{http.StatusOK, http.StatusBadRequest, http.StatusUnauthorized}, status) {
					t.Errorf("%s: %q without a key: got %d, want 200, 400 or 401", version, path, status)
				}
			})
			for _, got := range app.received()[before:] {
				for _, read := range readings(got) {
					if read != "/login" && !strings.HasPrefix(read, "/login/") {
						t.Errorf("%q without a key: the application got %q and may read it as %q, which needs a key", path, got, read)
					}
				}
			}
		}
		if len(app.received()) < 20 {
			t.Errorf("the application got %d requests, want those for /login", len(app.received()))
		}
		s.WantAllDecided()
	})
}

var (
	parameters = regexp.MustCompile(`;[^/]*`)
	escapes    = regexp.MustCompile(`%[0-9a-fA-F]{2}|%u00[0-9a-fA-F]{2}`)
	// overlong are forms of a slash, a backslash and a dot.
	overlong = strings.NewReplacer(
		"\xc0\xaf", "/", "\xe0\x80\xaf", "/", "\xf0\x80\x80\xaf", "/", "\xc1\x9c", `\`, "\xe0\x81\x9c", `\`, "\xc0\xae", ".", "\xe0\x80\xae", ".", "\xf0\x80\x80\xae", ".",
	)
	// blanks are what some applications cut off at the end of a segment.
	blanks = regexp.MustCompile(`[\x00-\x20\x7f]+(/|$)`)
)

// steps are the changes that applications make to a path, in any order.
var steps = []func(string) string{
	func(p string) string {
		return escapes.ReplaceAllStringFunc(p, func(e string) string {
			n, _ := strconv.ParseUint(e[len(e)-2:], 16, 8)
			return string([]byte{byte(n)})
		})
	},
	func(p string) string { return parameters.ReplaceAllString(p, "") },
	func(p string) string { return strings.ReplaceAll(p, `\`, "/") },
	func(p string) string { return blanks.ReplaceAllString(p, "$1") },
	func(p string) string { before, _, _ := strings.Cut(p, "\x00"); return before },
	func(p string) string { return p[:strings.IndexAny(p+"?", "?#")] },
	func(p string) string { return path.Clean("/" + p) },
	overlong.Replace,
	strings.ToLower,
}

// readings returns all readings of a path: the results of any steps in any order, each
// without dot segments and in lower case.
func readings(target string) []string {
	target, _, _ = strings.Cut(target, "?")
	seen := map[string]bool{target: true}
	results := make(map[string]bool)
	for next := []string{target}; len(next) > 0; {
		p := next[0]
		next = next[1:]
		results[strings.ToLower(path.Clean("/"+p))] = true
		for _, step := range steps {
			if q := step(p); !seen[q] {
				seen[q] = true
				next = append(next, q)
			}
		}
	}
	return slices.Sorted(maps.Keys(results))
}

// TestReadings checks readings on paths with known results.
func TestReadings(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		"/login/..;/admin":              "/admin",
		"/login/..%3b/admin":            "/admin",
		"/login/%2e%2e;x=1/admin":       "/admin",
		"/login/%252e%252e/admin":       "/admin",
		"/login/..%c0%afadmin":          "/admin",
		"/login/..%5Cadmin":             "/admin",
		"/LOGIN/%u002e%u002e%20/ADMIN":  "/admin",
		"/login/x%00/..;/..;/admin?a=b": "/admin",
	} {
		if all := readings(got); !slices.Contains(all, want) {
			t.Errorf("readings of %q: got %q, want %q among them", got, all, want)
		}
	}
	if all := readings("/login/a%20b?x=/../admin"); !slices.Equal(all, []string{"/login/a b", "/login/a%20b"}) {
		t.Errorf("readings of a plain path: got %q", all)
	}
}
