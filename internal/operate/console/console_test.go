package console_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/test/consoletest"
	"github.com/slidegate/slidegate/test/random"
)

// pages are the pages of the console, with a state in which each part is used.
var pages = []string{
	"/", "/subject", "/subject?id=acme", "/subject?address=203.0.113.7", "/rules", "/rules?text=search", "/rules?rule=search", "/rules?only=denials",
	"/denials", "/denials?subject=acme&since=5m", "/denials?shadow=only", "/top", "/top?by=route&order=near&minutes=60", "/try", "/audit", "/login",
}

var now = time.Date(2026, 7, 1, 12, 30, 15, 0, time.UTC)

func newConsole(state string) *consoletest.Console {
	return consoletest.New(consoletest.Options{State: state, Now: func() time.Time { return now }})
}

// An answer is an answer of the console.
type answer struct {
	*httptest.ResponseRecorder
	body string
}

// ask sends a request from this machine. A form makes it a POST. Without a token it may only read.
func ask(t *testing.T, c http.Handler, target string, form url.Values, token string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if form != nil {
		r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:4711"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return answer{w, w.Body.String()}
}

// TestPages asks for every page in every state.
func TestPages(t *testing.T) {
	for _, state := range consoletest.States {
		t.Run(state, func(t *testing.T) {
			c := newConsole(state)
			for _, p := range pages {
				got := ask(t, c, p, nil, consoletest.ActToken)
				want := http.StatusOK
				if state == "empty" && strings.HasPrefix(p, "/subject?id") {
					want = http.StatusNotFound
				}
				if got.Code != want {
					t.Errorf("%s is %d, want %d:\n%s", p, got.Code, want, got.body)
				}
				checkPage(t, p, got)
			}
		})
	}
}

// TestSeveral: every page that is of all instances has what another one answers, and names the one that
// does not answer.
func TestSeveral(t *testing.T) {
	c := newConsole("several")
	for _, p := range []string{"/", "/subject?id=acme", "/rules", "/rules?rule=search", "/denials", "/top", "/audit"} {
		got := ask(t, c, p, nil, consoletest.ActToken).body
		if !strings.Contains(got, "from 2 of 3 instances") || !strings.Contains(got, "127.0.0.1:1 did not answer") {
			t.Errorf("%s does not say which instances answered:\n%s", p, got)
		}
	}
	origins := regexp.MustCompile(`The instance that denied it">(?:<[^>]*>)?([0-9.:]+)`).FindAllStringSubmatch(ask(t, c, "/subject?id=acme", nil, "").body, -1)
	names := make(map[string]bool)
	for _, o := range origins {
		names[o[1]] = true
	}
	if len(names) != 2 {
		t.Errorf("the page of a customer has denials of %v, want two instances", names)
	}
}

// TestLongWords: the rules page shows all words of a rule with several limits.
func TestLongWords(t *testing.T) {
	c := newConsole("usual")
	const end = "from the day in the label billing_day, otherwise from day 1 at 00:00, Europe/Berlin), for each API key"
	c.Active().Rules[0].Words = []string{"10 in each second on average, and up to 50 at once after 5 seconds without requests, and 1,000 in each calendar month (month " + end}
	if got := ask(t, c, "/rules", nil, ""); !strings.Contains(got.body, end+"</bdi>") {
		t.Errorf("the page has not all words:\n%s", got.body)
	}
}

// TestStateIsMadeOnce counts how often a page asks for the state, which reads all metrics of rules.
// A caller without access gets a login page, which needs no state.
func TestStateIsMadeOnce(t *testing.T) {
	c := newConsole("usual")
	for _, p := range pages {
		before := c.States()
		ask(t, c, p, nil, consoletest.ActToken)
		if got := c.States() - before; got != 1 {
			t.Errorf("%s asked %d times for the state, want once", p, got)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/login", nil)
	r.RemoteAddr = "192.0.2.1:4711"
	before := c.States()
	c.ServeHTTP(httptest.NewRecorder(), r)
	if got := c.States() - before; got != 0 {
		t.Errorf("the login page asked %d times for the state, want never", got)
	}
}

// checkDocs checks that a link to the documentation leads to a page, and to a heading of it.
func checkDocs(t *testing.T, link string) {
	t.Helper()
	page, anchor, _ := strings.Cut(link, "#")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
	r.Header.Set("Accept", "text/html")
	w := httptest.NewRecorder()
	docs.Handler("0.1.0").ServeHTTP(w, r)
	if w.Code != http.StatusOK || anchor != "" && !strings.Contains(w.Body.String(), ` id="`+anchor+`"`) {
		t.Errorf("%s: %d, want a page with this heading", link, w.Code)
	}
}

// checkPage checks what holds for each page: its headers, and markup that they allow.
func checkPage(t *testing.T, name string, got answer) {
	t.Helper()
	for header, want := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "same-origin",
	} {
		if got.Header().Get(header) != want {
			t.Errorf("%s: %s is %q, want %q", name, header, got.Header().Get(header), want)
		}
	}
	doc, err := html.Parse(strings.NewReader(got.body))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	scripts, ids, labels := 0, map[string]bool{}, map[string]bool{}
	var fields []*html.Node
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		attrs := make(map[string]string)
		for _, a := range n.Attr {
			attrs[a.Key] = a.Val
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcdoc" {
				t.Errorf("%s: <%s %s>, which the policy blocks", name, n.Data, a.Key)
			}
			if (a.Key == "href" || a.Key == "src" || a.Key == "action") && (!strings.HasPrefix(a.Val, "/") || strings.HasPrefix(a.Val, "//")) && a.Val != "#main" {
				t.Errorf("%s: <%s %s=%q> leads outside", name, n.Data, a.Key, a.Val)
			}
		}
		if strings.HasPrefix(attrs["href"], docs.Path) {
			checkDocs(t, attrs["href"])
		}
		if id := attrs["id"]; id != "" {
			if ids[id] {
				t.Errorf("%s: two elements have the id %q", name, id)
			}
			ids[id] = true
		}
		switch n.Data {
		case "script":
			if scripts++; attrs["src"] == "" || n.FirstChild != nil {
				t.Errorf("%s: a script within the page", name)
			}
		case "style", "iframe", "object", "base", "meta":
			if n.Data != "meta" || attrs["http-equiv"] != "" {
				t.Errorf("%s: <%s>", name, n.Data)
			}
		case "label":
			labels[attrs["for"]] = true
		case "input", "select", "textarea":
			if _, hidden := attrs["hidden"]; !hidden && attrs["type"] != "hidden" {
				fields = append(fields, n)
			}
		case "form":
			if attrs["method"] != "post" {
				t.Errorf("%s: a form sends its fields in the address", name)
			}
		}
	}
	for _, n := range fields {
		if id := attribute(n, "id"); !labels[id] {
			t.Errorf("%s: the field %q has no label", name, id)
		}
	}
	if scripts != 1 {
		t.Errorf("%s: %d scripts, want 1", name, scripts)
	}
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// TestFiles asks for the files of a page. Their paths have a digest, so they never change.
func TestFiles(t *testing.T) {
	c := newConsole("usual")
	found := regexp.MustCompile(`(?:href|src)="(/console/[^"]+)"`).FindAllStringSubmatch(ask(t, c, "/", nil, "").body, -1)
	if len(found) != 4 { // the icon is in the page twice
		t.Fatalf("the page has the files %v, want 4", found)
	}
	for _, f := range found {
		got := ask(t, c, f[1], nil, "")
		if got.Code != http.StatusOK || !strings.Contains(got.Header().Get("Cache-Control"), "immutable") || got.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", f[1], got.Code, got.Header())
		}
		if strings.Contains(got.body, "http://") && !strings.HasSuffix(f[1], ".svg") || strings.Contains(got.body, "https://") || strings.Contains(got.body, "@import") {
			t.Errorf("%s names another host", f[1])
		}
	}
}

// TestScriptIsSmall holds the script to its bound.
func TestScriptIsSmall(t *testing.T) {
	script, err := os.ReadFile("console.js")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(script, []byte("\n")); n > 300 {
		t.Errorf("console.js has %d lines, want at most 300", n)
	}
	for _, never := range []string{"innerHTML = ", "outerHTML", "document.write", "eval(", "insertAdjacentHTML", "localStorage", "document.cookie"} {
		if bytes.Contains(script, []byte(never)) {
			t.Errorf("console.js has %q", never)
		}
	}
}

// TestHostile looks for markup of clients and files in every page, and for characters that a
// reader cannot see.
func TestHostile(t *testing.T) {
	c := newConsole("hostile")
	for _, p := range append(pages, "/subject?digest=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08") {
		got := ask(t, c, p, nil, consoletest.ActToken)
		for _, never := range []string{"<script>", "<img src=x", "</title></style>"} {
			if strings.Contains(got.body, never) {
				t.Errorf("%s has %q", p, never)
			}
		}
		doc, err := html.Parse(strings.NewReader(got.body))
		if err != nil {
			t.Fatal(err)
		}
		for n := range doc.Descendants() {
			shown := attribute(n, "title") + attribute(n, "aria-label")
			if n.Type == html.TextNode {
				if shown = n.Data; len(shown) > 700 {
					t.Errorf("%s shows a text of %d bytes: %.100q", p, len(shown), shown)
				}
			}
			if strings.ContainsAny(shown, "\u202A\u202C\u202E\x00\x1b\uFFFD") {
				t.Errorf("%s shows %q", p, shown)
			}
		}
	}
}

// escaped returns a text with each byte as % and two digits.
func escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, "%%%02x", text[i])
	}
	return b.String()
}

// TestKeysAreNotRepeated types an API key into every field of every page and address. No answer
// may have it: not its body, not its header, and not the address that it redirects to.
func TestKeysAreNotRepeated(t *testing.T) {
	unknown := "unknown-key-0123456789abcdefXYZ"
	hexKey := strings.Repeat("0123456789abcdef", 4)
	for _, key := range []string{consoletest.Key, unknown, hexKey} {
		check := func(what string, got answer) {
			t.Helper()
			var header bytes.Buffer
			_ = got.Header().Write(&header)
			for _, text := range []string{got.body, header.String()} {
				if strings.Contains(text, key) || strings.Contains(text, url.QueryEscape(key)) || strings.Contains(html.UnescapeString(text), escaped(key)) {
					t.Errorf("%s repeats the API key: %d %s\n%s", what, got.Code, header.String(), got.body)
				}
			}
		}
		for _, state := range []string{"usual", "empty", "degraded"} {
			if state != "usual" && key != consoletest.Key && !random.Long() {
				continue // the page is the one of an unknown key
			}
			c := newConsole(state)
			for _, line := range []string{"api_key=" + key, "route=search,api_key=" + key, "route=fail,api_key=" + key, "api_key=Bearer " + key} {
				check("try "+line, ask(t, c, "/try", url.Values{"descriptors": {line}, "cost": {"1"}}, consoletest.ActToken))
			}
			for _, target := range []string{"/find", "/suggest", "/subject", "/grants", "/rules", "/denials", "/try", "/login", "/logout"} {
				fields := []string{"who", "id", "address", "digest", "rule", "reason", "text", "only", "subject", "route", "request", "shadow", "since", "domain", "tier", "cost", "descriptors", "token", "cursor"}
				for _, f := range fields {
					if f == "digest" && key == hexKey || f == "reason" {
						continue // a digest is no key, and a reason is kept as it is written
					}
					form := url.Values{f: {key}}
					// Further fields, so that the form is complete but for this one.
					for name, value := range map[string]string{"reason": "a ticket", "amount": "2", "cost": "1", "descriptors": "route=search", "id": "acme"} {
						if f != name && (name != "id" || f != "digest" && f != "address") {
							form.Set(name, value)
						}
					}
					got := ask(t, c, target, form, consoletest.ActToken)
					check("POST "+target+" with "+f+" in "+state, got)
					if to := got.Header().Get("Location"); to != "" {
						check("GET "+to, ask(t, c, to, nil, consoletest.ActToken))
					}
				}
				if key == consoletest.Key && state != "empty" {
					for _, form := range []url.Values{
						{"descriptors": {"x=" + key}, "cost": {"1"}},
						{"descriptors": {key}, "cost": {"1"}},
						{"descriptors": {key + "=x"}, "cost": {"1"}},
						{"descriptors": {escaped(key) + "=" + escaped(key)}, "cost": {"1"}},
					} {
						check("POST "+target, ask(t, c, target, form, consoletest.ActToken))
					}
				}
			}
			for _, p := range []string{"/", "/subject", "/rules", "/denials", "/top", "/try", "/audit", "/login", "/no-such-page"} {
				q := url.Values{}
				for _, f := range []string{"id", "address", "digest", "rule", "cursor", "reset", "text", "only", "from", "subject", "route", "shadow", "since", "by", "order", "minutes"} {
					if f == "digest" && key == hexKey {
						continue
					}
					check("GET "+p+" with "+f, ask(t, c, p+"?"+f+"="+url.QueryEscape(key), nil, ""))
					q.Set(f, key)
				}
				check("GET "+p, ask(t, c, p+"?"+q.Encode(), nil, ""))
				check("GET a page named so", ask(t, c, "/"+url.PathEscape(key), nil, ""))
			}
			if len(c.Resets()) > 0 && strings.Contains(c.Resets()[0].Reason, key) {
				t.Error("the audit log has the API key")
			}
		}
	}
}

// TestStoreOfAScopeUnavailable: the page names the limits whose store is unavailable.
func TestStoreOfAScopeUnavailable(t *testing.T) {
	got := ask(t, newConsole("degraded"), "/subject?id=acme", nil, "").body
	for _, want := range []string{"A store is away.", ">scope <", ">counted by this process</span>"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is there %d times, want once, at the limit per-key", want, strings.Count(got, want))
		}
	}
	if !strings.Contains(got, "Cannot be known while the store is unavailable") || strings.Contains(got, "dial tcp") {
		t.Errorf("the page says whether requests pass, or shows an error of Go:\n%s", got)
	}
	if usual := ask(t, newConsole("usual"), "/subject?id=acme", nil, "").body; !strings.Contains(usual, "exact, from redis at") || strings.Contains(usual, "counted by this process") {
		t.Error("with all stores, the numbers are not told to be exact")
	}
}

// TestFind types into the search box.
func TestFind(t *testing.T) {
	c := newConsole("usual")
	digest := c.Secrets.Digest(consoletest.Key)
	for typed, want := range map[string]string{
		"acme": "/subject?id=acme", " acme ": "/subject?id=acme", "203.0.113.7": "/subject?address=203.0.113.7",
		"::ffff:203.0.113.7": "/subject?address=203.0.113.7", "203.0.113.0/24": "/subject?address=203.0.113.0%2F24",
		consoletest.Key: "/subject?digest=" + digest, "Bearer " + consoletest.Key: "/subject?digest=" + digest,
		digest: "/subject?digest=" + digest, strings.ToUpper(digest): "/subject?digest=" + digest,
		"": "/subject", "7C1F9E2A-2D51-4b52-a2aa-0c8e7d1b4f63": "/denials?request=7c1f9e2a-2d51-4b52-a2aa-0c8e7d1b4f63",
	} {
		got := ask(t, c, "/find", url.Values{"who": {typed}}, "")
		if to := got.Header().Get("Location"); got.Code != http.StatusSeeOther || to != want {
			t.Errorf("%q leads to %d %q, want %q", typed, got.Code, to, want)
		}
	}
	if got := ask(t, c, "/subject?digest="+digest, nil, ""); !strings.Contains(got.body, "Denied now by per-key") || !strings.Contains(got.body, ">acme<") {
		t.Errorf("the page of the key does not say who it is:\n%s", got.body)
	}
}

// TestResetChoices: the limit that denies is preselected, every rule is a choice with what it removes, and
// every rule at once is the last choice.
func TestResetChoices(t *testing.T) {
	got := ask(t, newConsole("usual"), "/subject?id=acme", nil, consoletest.ActToken).body
	var all []string
	for _, m := range regexp.MustCompile(`name="rule" value="([^"]*)"( checked)?>.*?<small>([^<]*)</small>`).FindAllStringSubmatch(got, -1) {
		all = append(all, m[1]+m[2]+": "+m[3])
	}
	want := []string{"per-key checked: 100 used of 100 per 1m", "search: 36 used of 40 per 10s", "export: 3 used of 20 per 1d", "dollars: 312.40 USD used of 500.00 USD per month", "export-format: 2 used of 2 per 1m", ": all of these: 5 counters"}
	if !slices.Equal(all, want) {
		t.Errorf("the choices are %q, want %q", all, want)
	}
	if got := ask(t, newConsole("usual"), "/subject?id=acme&rule=search", nil, consoletest.ActToken).body; !strings.Contains(got, `value="search" checked>`) {
		t.Error("the rule of the page is not chosen")
	}
}

// TestTryWithoutStore: if the store does not answer, the page does not say what would happen now.
func TestTryWithoutStore(t *testing.T) {
	for state, want := range map[string]string{"usual": "The request would pass now.", "degraded": "what would happen now cannot be known."} {
		got := ask(t, newConsole(state), "/try", url.Values{"descriptors": {"route=search"}, "cost": {"1"}}, "").body
		if !strings.Contains(got, want) {
			t.Errorf("%s: the page does not say %q:\n%s", state, want, got)
		}
	}
}

// TestUnrecognized: what names nothing is not taken for an API key and not repeated, and the page lists
// ids that are spelled alike.
func TestUnrecognized(t *testing.T) {
	c := newConsole("usual")
	for typed, want := range map[string]string{
		"acm": `Did you mean <a href="/subject?id=acme">`, "GLOBX": `Did you mean <a href="/subject?id=globex">`,
		"planted-2d51-4b52": "No such customer.", "11111111-2d51-4b52-a2aa-0c8e7d1b4f63": "No such customer.",
	} {
		for what, got := range map[string]answer{"search": ask(t, c, "/find", url.Values{"who": {typed}}, ""), "address": ask(t, c, "/subject?id="+typed, nil, "")} {
			if got.Code != http.StatusNotFound || !strings.Contains(got.body, want) || strings.Contains(got.body, typed) && typed != "acm" {
				t.Errorf("%s for %q: %d, want 404 and %q:\n%s", what, typed, got.Code, want, got.body)
			}
		}
	}
	got := ask(t, c, "/suggest", url.Values{"who": {"aCm"}}, "")
	if got.Code != http.StatusOK || got.body != `["acme","acme-labs"]`+"\n" || got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("suggestions: %d %s", got.Code, got.body)
	}
}

// TestReset resets a subject, and looks for it on the pages that tell.
func TestReset(t *testing.T) {
	c := newConsole("usual")
	form := url.Values{"id": {"acme"}, "reason": {"ticket 4711"}, "rule": {""}}
	if got := ask(t, c, "/subject", form, ""); got.Code != http.StatusForbidden || len(c.Resets()) != 1 {
		t.Errorf("a reset without a token is %d", got.Code)
	}
	if got := ask(t, c, "/subject", form, consoletest.ReadToken); got.Code != http.StatusForbidden || len(c.Resets()) != 1 {
		t.Errorf("a reset with a token that may only read is %d", got.Code)
	}
	for _, wrong := range []url.Values{
		{"id": {"acme"}, "reason": {"  "}},
		{"id": {"acme"}, "reason": {strings.Repeat("x", 501)}},
		{"id": {"acme"}, "reason": {strings.Repeat("ü", 251)}},
		{"id": {"acme"}, "reason": {"one line\r\nand another"}},
		{"id": {"acme"}, "reason": {"\x1b[31m"}},
		{"id": {"acme"}, "reason": {"why"}, "rule": {"no-such-rule"}},
		{"id": {"nobody"}, "reason": {"why"}},
	} {
		if got := ask(t, c, "/subject", wrong, consoletest.ActToken); got.Code < 400 || got.Code > 499 || len(c.Resets()) != 1 {
			t.Errorf("%v is %d", wrong, got.Code)
		}
	}
	got := ask(t, c, "/subject", form, consoletest.ActToken)
	if to := got.Header().Get("Location"); got.Code != http.StatusSeeOther || to != "/subject?id=acme&reset=2" {
		t.Fatalf("a reset is %d %q", got.Code, to)
	}
	if r := c.Resets()[0]; r.Reason != "ticket 4711" || r.By != "act-1 from 127.0.0.1" || r.Query.Subject != "acme" {
		t.Errorf("the reset is %+v", r)
	}
	if got := ask(t, c, "/subject?id=acme&reset=2", nil, ""); !strings.Contains(got.body, "3 logs removed.") || !strings.Contains(got.body, "Passes now") {
		t.Errorf("the page does not show the reset:\n%s", got.body)
	}
	if got := ask(t, c, "/audit", nil, ""); !strings.Contains(got.body, "ticket 4711") {
		t.Errorf("the audit does not show the reset:\n%s", got.body)
	}
	if got := ask(t, newConsole("degraded"), "/subject", form, consoletest.ActToken); got.Code != http.StatusBadGateway || strings.Contains(got.body, "dial tcp") && !strings.Contains(got.body, "Nothing was changed") {
		t.Errorf("a reset while the store is away is %d", got.Code)
	}
}

// TestGrants grants, shows and revokes on the page of a customer.
func TestGrants(t *testing.T) {
	c := newConsole("usual")
	page := func(token string) string { return ask(t, c, "/subject?id=acme", nil, token).body }
	form := url.Values{"id": {"acme"}, "rule": {"per-key"}, "amount": {"2"}, "until": {"4h"}, "reason": {"ticket <4711>"}}
	for _, token := range []string{"", consoletest.ReadToken} {
		if got := ask(t, c, "/grants", form, token); got.Code != http.StatusForbidden {
			t.Errorf("a grant without a token that may act is %d", got.Code)
		}
	}
	for name, wrong := range map[string]string{"amount": "much", "reason": "  "} {
		bad := maps.Clone(form)
		bad[name] = []string{wrong}
		if got := ask(t, c, "/grants", bad, consoletest.ActToken); got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.body, "Nothing was changed") {
			t.Errorf("%s %q is %d", name, wrong, got.Code)
		}
	}
	if got := ask(t, c, "/grants", form, consoletest.ActToken); got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/subject?id=acme" {
		t.Fatalf("a grant is %d %s", got.Code, got.body)
	}
	body := page(consoletest.ActToken)
	at := strings.Index(body, `name="revoke" value="`)
	if at < 0 || !strings.Contains(body, "×2 until") || !strings.Contains(body, "ticket &lt;4711&gt;") || !strings.Contains(body, "act-1 from 127.0.0.1") {
		t.Fatalf("the page does not show the grant:\n%s", body)
	}
	if read := page(""); !strings.Contains(read, "×2 until") || strings.Contains(read, "Revoke") {
		t.Errorf("without a token the page is\n%s", read)
	}
	id := body[at+len(`name="revoke" value="`):][:12]
	if audit := ask(t, c, "/audit", nil, consoletest.ActToken).body; !strings.Contains(audit, `name="revoke" value="`+id) || !strings.Contains(audit, `href="/subject?id=acme"`) {
		t.Errorf("the audit does not show the grant:\n%s", audit)
	}
	for want := range 2 {
		got := ask(t, c, "/grants", url.Values{"id": {"acme"}, "revoke": {id}}, consoletest.ActToken)
		if ok := got.Code == http.StatusSeeOther; ok != (want == 0) {
			t.Errorf("revoking is %d", got.Code)
		}
	}
	if strings.Contains(page(consoletest.ActToken), "×2 until") {
		t.Error("the page shows the revoked grant")
	}
	if got := ask(t, newConsole("degraded"), "/grants", form, consoletest.ActToken); got.Code != http.StatusBadGateway || !strings.Contains(got.body, "The store does not answer") {
		t.Errorf("a grant while the store is unavailable is %d", got.Code)
	}
}

// TestLogin logs in and out, from a machine that may read nothing without it.
func TestLogin(t *testing.T) {
	c := newConsole("usual")
	from := func(method, target string, form url.Values, cookies []*http.Cookie) answer {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = "192.0.2.1:4711"
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		return answer{w, w.Body.String()}
	}
	for _, p := range pages {
		if got := from("GET", p, nil, nil); p != "/login" && (got.Code != http.StatusForbidden || !strings.Contains(got.body, `class="login"`) || strings.Contains(got.body, "acme") || strings.Contains(got.body, "rls-7d9c5b8f6")) {
			t.Errorf("%s without a login is %d %q", p, got.Code, got.body)
		}
	}
	if got := from("POST", "/find", url.Values{"who": {"acme"}}, nil); got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/login" || got.body != "" {
		t.Errorf("a form without a login is %d %q", got.Code, got.body)
	}
	if got := from("GET", "/login", nil, nil); got.Code != http.StatusOK || strings.Contains(got.body, "rls-7d9c5b8f6") {
		t.Errorf("the login tells about the process: %d\n%s", got.Code, got.body)
	}
	if got := from("POST", "/login", url.Values{"token": {"a wrong token"}}, nil); got.Code != http.StatusForbidden || len(got.Result().Cookies()) != 0 || strings.Contains(got.body, "a wrong token") {
		t.Errorf("a wrong token is %d:\n%s", got.Code, got.body)
	}
	got := from("POST", "/login", url.Values{"token": {consoletest.ActToken}}, nil)
	cookies := got.Result().Cookies()
	if got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/" || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("the login is %d %v", got.Code, got.Header())
	}
	if got := from("GET", "/subject?id=acme", nil, cookies); got.Code != http.StatusOK || !strings.Contains(got.body, "Log out") || !strings.Contains(got.body, ">Reset</button>") {
		t.Errorf("with a login the page is %d:\n%s", got.Code, got.body)
	}
	out := from("POST", "/logout", nil, cookies)
	if out.Code != http.StatusSeeOther || len(out.Result().Cookies()) != 1 || out.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("the logout is %d %v", out.Code, out.Header())
	}
}

// TestLoginLeadsBack logs in at the address of a page, and from the link on the page of a customer.
func TestLoginLeadsBack(t *testing.T) {
	c := newConsole("usual")
	if got := ask(t, c, "/subject?id=acme", nil, consoletest.ReadToken); !strings.Contains(got.body, `href="/login?id=acme"`) {
		t.Errorf("the page has no link to the login that leads back:\n%s", got.body)
	}
	for referer, want := range map[string]string{
		"": "/", "http://example.com/": "/", "http://example.com/login": "/", "http://example.com/login?id=acme": "/subject?id=acme", "%": "/",
		"http://example.com/subject?id=acme": "/subject?id=acme", "http://elsewhere.example/denials": "/", "http://example.com//elsewhere.example/x": "/elsewhere.example/x", `http://example.com/\elsewhere.example`: "/%5Celsewhere.example",
		"http://example.com/login?to=//elsewhere.example": "/",
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://example.com/login", strings.NewReader("token="+consoletest.ActToken))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Referer", referer)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if got := w.Header().Get("Location"); got != want {
			t.Errorf("the login of %q leads to %q, want %q", referer, got, want)
		}
	}
}

// TestHuge asks for pages of 10,000 rules and for a filter of them.
func TestHuge(t *testing.T) {
	c := newConsole("huge")
	first := ask(t, c, "/rules", nil, "")
	if !strings.Contains(first.body, "1 to 100 of 10000") || !strings.Contains(first.body, `href="/rules?from=100"`) {
		t.Error("the first page does not say that others follow")
	}
	if n := len(first.body); n > 300_000 {
		t.Errorf("a page of rules has %d bytes", n)
	}
	got := ask(t, c, "/rules?from=9900", nil, "")
	if !strings.Contains(got.body, "9901 to 10000 of 10000") || strings.Contains(got.body, `rel="next"`) {
		t.Error("the last page is not the last")
	}
	if to := ask(t, c, "/rules", url.Values{"text": {"Resource-00042"}}, "").Header().Get("Location"); to != "/rules?text=Resource-00042" {
		t.Errorf("the filter leads to %q", to)
	}
	if got := ask(t, c, "/rules?text=Resource-00042", nil, ""); !strings.Contains(got.body, "1 to 1 of 1") {
		t.Error("the filter does not find its rule")
	}
	if got := ask(t, c, "/subject?id=acme", nil, ""); !strings.Contains(got.body, "cursor=100") {
		t.Error("the page of a subject with many limits has no next page")
	}
}

// TestDeniedElsewhere looks at a subject whose own limits have room, and whose address has none.
func TestDeniedElsewhere(t *testing.T) {
	c := newConsole("usual")
	if got := ask(t, c, "/subject?id=initech", nil, ""); !strings.Contains(got.body, "Limits of the subject have room, but login denies it") || !strings.Contains(got.body, `href="/subject?address=198.51.100.0%2F24"`) {
		t.Errorf("the page does not say which limit denies:\n%s", got.body)
	}
	for address, want := range map[string]string{"/denials": "requests in flight", "/subject?id=initech": "5 used of 5 per 1m fixed, until"} {
		if got := ask(t, c, address, nil, ""); !strings.Contains(got.body, want) {
			t.Errorf("%s does not say %q:\n%s", address, want, got.body)
		}
	}
}

// TestForms sends forms that are no forms of the console.
func TestForms(t *testing.T) {
	c := newConsole("usual")
	if got := ask(t, c, "/find", url.Values{"who": {strings.Repeat("x", 70_000)}}, ""); got.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a form of 70 kB is %d", got.Code)
	}
	for cost, want := range map[string]int{"0": 200, "-1": 422, "1e3": 422, "": 422, "4294967295": 200, "4294967296": 422} {
		if got := ask(t, c, "/try", url.Values{"descriptors": {"route=search"}, "cost": {cost}}, ""); got.Code != want {
			t.Errorf("a cost of %q is %d, want %d", cost, got.Code, want)
		}
	}
	for _, p := range []string{"/nothing", "/subject/acme", "/rules/x"} {
		if got := ask(t, c, p, nil, ""); got.Code != http.StatusNotFound {
			t.Errorf("%s is %d, want 404", p, got.Code)
		}
	}
}

// TestPast has a chart of days on the pages of a rule and of a customer, unless the store is away.
func TestPast(t *testing.T) {
	day := regexp.MustCompile(`<title>1 July: ([0-9]+) denied( of [0-9,]+ decisions)?</title>`)
	for _, tt := range []struct {
		state, target string
		chart, of     bool
		want          string
	}{
		{"usual", "/rules?rule=search", true, true, "in 30 days, most on "},
		{"usual", "/subject?id=acme", true, false, "in 30 days, most on "},
		{"huge", "/subject?id=acme", true, false, " · this process<"},
		{"empty", "/subject?address=203.0.113.7", false, false, "none in 30 days"},
		{"usual", "/rules", false, false, ""},
		{"usual", "/subject", false, false, ""},
		{"degraded", "/subject?id=acme", false, false, ""},
		{"degraded", "/rules?rule=search", false, false, ""},
	} {
		a := ask(t, newConsole(tt.state), tt.target, nil, "")
		m := day.FindStringSubmatch(a.body)
		if (m != nil) != tt.chart || tt.chart && (m[2] != "") != tt.of || strings.Contains(a.body, "Denials by day") != (tt.want != "") || !strings.Contains(a.body, tt.want) {
			t.Errorf("%s %s: %d, today %q, want a chart: %v, with %q", tt.state, tt.target, a.Code, m, tt.chart, tt.want)
		}
	}
}
