package authorization

import (
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/stack"
)

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
