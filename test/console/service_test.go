package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
)

// The secrets of the tests. None of them may be in a page or in the log.
const (
	knownKey   = "planted-key-of-acme-7f3a"
	otherKey   = "planted-key-of-unknown-91bc"
	pilotKey   = "planted-key-of-globex-c05e"
	readToken  = "planted-read-token-0123456789abcdef"
	actToken   = "planted-act-token-0123456789abcdef"
	wrongToken = "planted-wrong-token-0123456789"
)

const rules = `domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1h, requests: 5, by_tier: {pro: {window: 1h, requests: 50}}}
  - key: route
    value: search
    descriptors:
      - key: api_key
        rate_limit: {name: search, window: 1h, requests: 100}
  - key: route
    value: export
    descriptors:
      - key: api_key
        shadow_mode: true
        rate_limit: {name: observed-export, window: 1h, requests: 2}
  - key: remote_address
    rate_limit: {name: per-address, window: 1h, requests: 4}
`

// tiers has acme with its key and a label that looks like markup, and globex, for whom one rule
// is only observed and one is enforced.
var tiers = `tiers: [free, pro]
default: free
subjects:
  - {id: acme, tier: free, labels: {plan: "<b>trial</b>"}, keys: [{sha256: ` + sum(knownKey) + `}]}
  - {id: globex, tier: pro, keys: [{sha256: ` + sum(pilotKey) + `}], overrides: {per-key: {observe: true}, observed-export: {observe: false}}}
`

func sum(key string) string {
	s := sha256.Sum256([]byte(key))
	return hex.EncodeToString(s[:])
}

// service starts rls with tokens.
func service(t *testing.T, rules, tiers string, env map[string]string) *edge.RLSServer {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("read "+readToken+"\nact "+actToken+" alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"SLIDEGATE_ADMIN_TOKEN_FILE": tokens, "SLIDEGATE_STORE_TIMEOUT": "5s", "SLIDEGATE_TIERS_UNKNOWN_KEY": "each"}
	maps.Copy(all, env)
	s := edge.StartRLS(t, edge.RLSOptions{Rules: rules, Tiers: tiers, Env: all})
	t.Cleanup(func() {
		for _, secret := range []string{knownKey, otherKey, pilotKey, readToken, actToken, wrongToken} {
			if strings.Contains(s.Output(), secret) {
				t.Errorf("the log of rls has %q", secret)
			}
		}
	})
	return s
}

// enter opens the console with a login that may read.
func enter(t *testing.T, s *edge.RLSServer) *tab {
	t.Helper()
	b := open(t, s.Admin())
	b.page("/login")
	b.fill("#token", readToken)
	b.send(".login form button")
	return b
}

// ask sends n requests, each with a descriptor of the pairs of keys and values, and returns how many
// pass.
func ask(t *testing.T, s *edge.RLSServer, n int, pairs ...string) (passed int) {
	t.Helper()
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	var entries []entry
	for i := 0; i < len(pairs); i += 2 {
		entries = append(entries, entry{pairs[i], pairs[i+1]})
	}
	body, err := json.Marshal(map[string]any{"domain": "edge", "descriptors": []any{map[string]any{"entries": entries}}})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.HTTP()+"/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%v answers %d", pairs, answer.StatusCode)
		}
		if answer.StatusCode == http.StatusOK {
			passed++
		}
	}
	return passed
}

// traffic makes denials of a subject, of an unknown key and of an address, hits near a limit and
// denials that are only observed.
func traffic(t *testing.T, s *edge.RLSServer) {
	t.Helper()
	ask(t, s, 8, "api_key", knownKey)
	ask(t, s, 7, "api_key", otherKey)
	ask(t, s, 97, "route", "search", "api_key", knownKey)
	ask(t, s, 4, "route", "export", "api_key", knownKey)
	ask(t, s, 6, "remote_address", "203.0.113.7")
}

// hides reports planted keys that the open page shows or keeps.
func (b *tab) hides() {
	b.t.Helper()
	const everything = `[location.href, document.title, document.documentElement.outerHTML, JSON.stringify({...localStorage}),
		JSON.stringify({...sessionStorage}), document.cookie, ...[...document.querySelectorAll("input:not(:focus), textarea")].map((e) => e.value)].join("\n")`
	text := eval[string](b, everything)
	for _, secret := range []string{knownKey, otherKey, pilotKey, actToken, readToken, wrongToken} {
		if strings.Contains(text, secret) {
			b.t.Errorf("%s shows %q", b.pathOf(), secret)
		}
		for _, address := range b.addresses() {
			if strings.Contains(address, secret) {
				b.t.Errorf("the browser requested %s", address)
			}
		}
	}
}

// TestPages opens every page of rls with traffic, in one look after the other.
func TestPages(t *testing.T) {
	t.Parallel()
	s := service(t, rules, tiers, nil)
	traffic(t, s)
	b := enter(t, s)
	every := append(paths[:len(paths):len(paths)], "/subject?digest="+sum(otherKey), "/denials?shadow=only", "/rules?text=search")
	for _, path := range every {
		b.page(path)
		b.hides()
		b.everyLook(path)
	}
	for _, path := range []string{"/no-such-page", "/subject?id=unknown"} {
		if status := b.load(path); status != http.StatusNotFound {
			t.Errorf("%s answers %d, want 404", path, status)
		}
		b.everyLook(path)
	}
	// Wrong parameters are an answer or an error page, never an empty one.
	for _, path := range []string{"/top?by=nonsense&minutes=-3", "/denials?since=tomorrow", "/rules?page=99999999999999999999", "/subject?address=nonsense", "/subject?id=acme&cursor=%00", "/%2e%2e/%00"} {
		if status := b.load(path); status >= 500 {
			t.Errorf("%s answers %d", path, status)
		}
		b.fits(path)
		if !eval[bool](b, "document.body.innerText.trim() !== ''") {
			t.Errorf("%s is empty", path)
		}
	}
}

// TestObserveOfASubject opens the page of a subject whose overrides have observe.
func TestObserveOfASubject(t *testing.T) {
	t.Parallel()
	s := service(t, rules, tiers, nil)
	ask(t, s, 51, "api_key", pilotKey)
	ask(t, s, 3, "route", "export", "api_key", pilotKey)
	ask(t, s, 4, "route", "export", "api_key", knownKey)
	b := enter(t, s)
	for _, tt := range []struct{ subject, headline, tags string }{
		{"globex", "Denied now by observed-export", "per-key: pro, only observed for this subject\nobserved-export: pro, enforced for this subject, no room"},
		{"acme", "Passes now", "observed-export: free, only observed"},
	} {
		b.page("/subject?id=" + tt.subject)
		b.text(".headline", tt.headline)
		tags := eval[string](b, `[...document.querySelectorAll(".limit")].map((e) => e.querySelector("h3").textContent + ": " +
			[...e.querySelectorAll(".limit-head .tag")].map((e) => e.textContent).join(", ")).join("\n")`)
		for want := range strings.SplitSeq(tt.tags, "\n") {
			if !strings.Contains("\n"+tags+"\n", "\n"+want+"\n") {
				t.Errorf("%s: the tags are\n%s\nwant %s", tt.subject, tags, want)
			}
		}
		b.everyLook("the page of " + tt.subject)
		b.hides()
	}
}

// TestFind types what names a customer into the search box.
func TestFind(t *testing.T) {
	t.Parallel()
	s := service(t, rules, tiers, nil)
	traffic(t, s)
	b := enter(t, s)
	for _, tt := range []struct{ typed, name, headline string }{
		{"acme", "acme", "Denied now by per-key"},
		{knownKey, "acme", "Denied now by per-key"},
		{sum(knownKey), "acme", "Denied now by per-key"},
		{otherKey, sum(otherKey)[:12], "Denied now by per-key"},
		{sum(otherKey), sum(otherKey)[:12], "Denied now by per-key"},
		{"203.0.113.7", "203.0.113.7", "Denied now by per-address"},
	} {
		b.page("/")
		b.fill("#who", tt.typed)
		b.send(".find button")
		b.text("main h1", tt.name)
		b.text(".headline", tt.headline)
		b.hides()
	}
	// A key that sent nothing is unknown, and is not repeated.
	b.page("/")
	b.expectMissing(true)
	b.fill("#who", "planted-key-without-requests")
	b.send(".find button")
	if text := eval[string](b, "location.href + document.documentElement.outerHTML"); strings.Contains(text, "planted") {
		t.Errorf("the answer repeats what was typed: %s", text)
	}
	// While a person types, the box suggests ids. The page of a mistyped one leads to the right one.
	b.page("/")
	b.expectMissing(true)
	b.fill("#who", "aCM")
	b.until(`document.querySelector("#who-ids option")?.value === "acme"`)
	b.send(".find button")
	b.text("main .status", "Did you mean acme?")
	b.send("main .status a")
	b.text("main h1", "acme")
}

// TestReset logs in and resets a customer.
func TestReset(t *testing.T) {
	t.Parallel()
	s := service(t, rules, tiers, nil)
	traffic(t, s)
	b := open(t, s.Admin())
	if status := b.load("/subject?id=acme"); status != http.StatusForbidden {
		t.Errorf("without a login the page answers %d", status)
	}
	b.expectMissing(true)
	b.fill("#token", wrongToken)
	b.send(".login form button")
	b.text(".login [role=alert]", "not in admin.token_file")
	b.hides()
	b.fill("#token", readToken)
	b.send(".login form button")
	b.page("/subject?id=acme")
	b.text(".headline", "Denied now")
	b.text(".reset", "Your login may only read.")

	b.page("/login")
	b.fill("#token", actToken)
	b.send(".login form button")
	b.page("/subject?id=acme")
	b.until(`document.querySelector(".choice input:checked").value === "per-key"`) // the limit that denies
	b.everyLook("a page with the form of a reset")
	b.do(press(b, ".reset form button"))
	b.until(`document.querySelector("#reason:invalid") === document.activeElement`) // the browser wants a reason
	b.fill("#reason", "Ticket 7: the import was <b>approved</b>")
	b.send(".reset form button")
	b.text(".status", "removed")
	b.text(".headline", "Passes now")
	b.hides()
	ask(t, s, 1, "api_key", knownKey)
	b.until(`[...document.querySelectorAll(".limit")].some((e) => e.querySelector("h3").textContent === "per-key" && e.querySelector(".used b").textContent === "1")`)

	b.page("/audit")
	b.text(".entry .reason", "Ticket 7: the import was <b>approved</b>")
	b.text(".entry", "alice")
	b.everyLook("/audit with an entry")
	b.send(".about form button") // logs out
	b.load("/subject?id=acme")
	b.text(".login h1", "Log in")
	b.fill("#token", readToken)
	b.send(".login form button") // leads back
	b.text("main h1", "acme")
}

// TestLive sees a denial on a page that stays open.
func TestLive(t *testing.T) {
	t.Parallel()
	s := service(t, rules, tiers, nil)
	b := enter(t, s)
	b.page("/denials")
	b.text("main", "Nothing was denied since the start")
	eval[bool](b, "window.same = true")
	ask(t, s, 6, "api_key", knownKey)
	b.text(".denials .who", "acme")
	b.do(press(b, "[data-pause]"))
	b.text("[data-pause]", "Resume")
	ask(t, s, 5, "remote_address", "203.0.113.7")
	b.do(press(b, "[data-pause]"))
	b.text(".denials .who", "203.0.113.0/24")
	if !eval[bool](b, "window.same === true") {
		t.Error("the page was loaded again")
	}
}

// TestFilters uses the forms and links of the pages.
func TestFilters(t *testing.T) {
	t.Parallel()
	s := service(t, rules, tiers, nil)
	traffic(t, s)
	b := enter(t, s)
	rows := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf(`[...document.querySelectorAll(".denials tbody tr")].length > 0 && [...document.querySelectorAll(".denials tbody tr")].every((e) => e.textContent.includes(%s))`, quote(want)))
	}
	b.page("/denials")
	b.fill("#f-subject", "acme")
	b.send(".filter button")
	rows("acme")
	b.page("/denials")
	b.do(choose(b, "#f-rule", "per-address"))
	b.send(".filter button")
	rows("203.0.113.0/24")
	b.do(choose(b, "#f-rule", ""), choose(b, "#f-shadow", "only"))
	b.send(".filter button")
	rows("observed")
	b.fill("#f-subject", otherKey) // a key in the wrong field
	b.send(".filter button")
	b.text(".status", "not repeated")
	b.hides()

	b.page("/rules")
	b.fill("#text", "search")
	b.send(".filter button")
	b.until(`[...document.querySelectorAll(".rule h3")].map((e) => e.textContent).join() === "search"`)
	b.fill("#text", knownKey)
	b.send(".filter button")
	b.text(".status", "not repeated")
	b.hides()

	b.page("/top")
	b.text(".top", "acme")
	b.send(".choices nav:first-child a:last-child")
	b.text(".top", "203.0.113.0/24")

	b.page("/try")
	b.fill("#t-descriptors", "api_key="+knownKey)
	b.send(".trial button")
	b.text(".answer", "per-key")
	b.everyLook("/try with an answer")
	if eval[bool](b, "document.documentElement.outerHTML.includes("+quote(knownKey)+")") {
		t.Error("/try repeats the API key")
	}
	b.hides()
}

// TestStoreAway stops Redis below an open page.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	s := service(t, rules, tiers, map[string]string{"SLIDEGATE_STORE_TYPE": "redis", "SLIDEGATE_STORE_REDIS_URL": "redis://" + redis.Addr(), "SLIDEGATE_STORE_TIMEOUT": "500ms"})
	traffic(t, s)
	b := enter(t, s)
	b.page("/")
	b.text("main", "Nothing needs attention.")
	redis.Stop()
	for i := range 10 { // a server is away after some calls have failed
		ask(t, s, 1, "route", "search", "api_key", fmt.Sprint("visitor-", i))
	}
	b.until(`document.querySelector(".problems .error") !== null`)
	for _, path := range []string{"/", "/subject?id=acme", "/denials", "/rules", "/top", "/audit"} {
		b.page(path)
		b.everyLook(path + " without a store")
	}
	b.page("/subject?id=acme")
	b.text(".headline", "Cannot be known while the store is unavailable")
	if text := eval[string](b, "document.body.innerText"); strings.Contains(text, "dial tcp") {
		t.Errorf("the page shows an error of Go:\n%s", text)
	}
	redis.Start()
	b.page("/")
	b.text("main", "Nothing needs attention.")
}

// TestKeyboard walks through the pages with Tab alone.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := service(t, rules, tiers, nil)
	traffic(t, s)
	b := enter(t, s)
	logIn(b, actToken)
	for _, path := range []string{"/", "/subject?id=acme", "/denials", "/rules", "/top", "/try", "/audit"} {
		b.page(path)
		if button := eval[bool](b, "document.querySelector('[data-pause]') !== null"); button {
			eval[chromedp.Void](b, "document.querySelector('[data-pause]').click()") // a part that is replaced would end the walk
		}
		eval[chromedp.Void](b, "document.activeElement.blur(); window.walked = new Set()")
		want := eval[int](b, `[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter((e) => e.checkVisibility() && e.type !== "hidden" && !e.disabled && (e.type !== "radio" || e.checked)).length`) // Tab reaches one of a group
		var order []string
		for range want {
			b.do(chromedp.KeyEvent(kb.Tab))
			order = append(order, eval[string](b, `(() => { const e = document.activeElement; window.walked.add(e); return e.tagName + " " + (e.id || e.textContent.trim().slice(0, 20)); })()`))
		}
		if got := eval[int](b, "window.walked.has(document.body) ? window.walked.size - 1 : window.walked.size"); got != want {
			t.Errorf("%s: Tab reaches %d of %d controls: %s", path, got, want, strings.Join(order, ", "))
		}
		if len(order) == 0 || !strings.Contains(order[0], "Skip to the content") {
			t.Errorf("%s: Tab reaches %v first", path, order)
		}
	}
	// The link at the top leads past the menu, and "/" to the search.
	b.page("/top")
	eval[chromedp.Void](b, "document.activeElement.blur()")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.until("document.activeElement.id === 'main'")
	// As a keyboard does: the character follows only if the page leaves it to the browser.
	b.do(call(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"}))
	b.until("document.activeElement.id === 'who' && document.activeElement.value === ''")
	b.do(chromedp.KeyEvent("acme"), chromedp.KeyEvent(kb.Enter))
	b.text("main h1", "acme")
}

// TestWithoutScripts reads every page and resets a customer while no script runs.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	s := service(t, rules, tiers, nil)
	traffic(t, s)
	b := enter(t, s)
	b.withoutScripts()
	logIn(b, actToken)
	for path, part := range map[string]string{
		"/": "Decisions a second", "/subject?id=acme": "Denied now by per-key", "/denials": "acme", "/top": "acme",
		"/rules": "observed-export", "/try": "Descriptors", "/audit": "No limit was reset",
	} {
		b.page(path)
		b.text("main", part)
		b.hides()
	}
	b.page("/subject?id=acme")
	b.fill("#reason", "Ticket 8")
	b.send(".reset form button")
	b.text(".headline", "Passes now")
}

// hostile is text of clients that want to run a script in the browser of an operator.
var hostile = []string{
	`<script>window.pwned = 1</script>`, `"><img src=x onerror="window.pwned = 1">`, `</title><script>window.pwned = 1</script>`,
	`javascript:window.pwned=1`, "\u202Egnp.exe", `{{.Secrets}}`, strings.Repeat("long", 256), `'-window.pwned-'`,
}

// TestHostile sends hostile text in every place that a client, an operator and a file have.
func TestHostile(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(hostile[1])
	if err != nil {
		t.Fatal(err)
	}
	many := fmt.Sprintf("domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: 1h, requests: 3}\n"+
		"  - key: route\n    descriptors:\n      - key: api_key\n        rate_limit: {name: per-route, window: 1h, requests: 1}\n"+
		"  - key: place\n    value: %s\n    rate_limit: {window: 1h, requests: 1}\n", text)
	labels := fmt.Sprintf("tiers: [free]\ndefault: free\nsubjects:\n  - {id: acme, tier: free, labels: {plan: %s}, keys: [{sha256: %s}]}\n", text, sum(knownKey))
	s := service(t, many, labels, nil)
	ask(t, s, 4, "api_key", knownKey)
	ask(t, s, 2, "place", hostile[1])
	for _, h := range hostile {
		ask(t, s, 3, "route", h, "api_key", knownKey)
	}
	b := enter(t, s)
	logIn(b, actToken)
	for _, h := range hostile[:3] {
		b.page("/subject?id=acme")
		b.fill("#reason", h[:min(len(h), 500)])
		b.send(".reset form button")
		b.text(".status", "removed")
		ask(t, s, 4, "api_key", knownKey)
	}
	for _, path := range []string{"/", "/subject?id=acme", "/denials", "/top?by=route", "/top?by=rule", "/rules", "/audit"} {
		b.page(path)
		b.fits(path) // TestStates has axe-core look at such text
	}
	for _, h := range hostile { // in the address of a page, and in each form
		b.load("/denials?route=" + url.QueryEscape(h) + "&rule=" + url.QueryEscape(h))
		b.fits("a filter")
		b.load("/subject?id=" + url.QueryEscape(h) + "&rule=" + url.QueryEscape(h))
		b.fits("a subject")
	}
	b.page("/try")
	b.fill("#t-descriptors", "route="+hostile[0]+",api_key=x")
	b.expectMissing(true)
	b.send(".trial button")
	b.fits("/try")
}

// TestHuge opens the pages of rls with 10,000 rules and many subjects.
func TestHuge(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	many.WriteString("domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: 1h, requests: 1}\n")
	for i := range 9_999 {
		fmt.Fprintf(&many, "  - {key: resource, value: r%d, rate_limit: {name: resource-%d, window: 1h, requests: 1000000}}\n", i, i)
	}
	s := service(t, many.String(), tiers, nil)
	for i := range 300 {
		ask(t, s, 2, "api_key", fmt.Sprint("visitor-", i))
	}
	ask(t, s, 2, "api_key", knownKey)
	b := enter(t, s)
	for _, path := range []string{"/", "/subject?id=acme", "/denials", "/top", "/rules", "/rules?text=resource-77", "/try"} {
		start := time.Now()
		b.page(path)
		if took := time.Since(start); took > patience/2 {
			t.Errorf("%s took %v", path, took)
		}
		if size := eval[int](b, "new Blob([document.documentElement.outerHTML]).size"); size > maxPage {
			t.Errorf("%s has %d bytes, want at most %d", path, size, maxPage)
		}
		b.fits(path)
	}
	b.page("/rules")
	b.send(".pager [rel=next]")
	b.until(`document.querySelector(".pager [rel=prev]") !== null`)
}

// press is a click on a button that loads nothing.
func press(b *tab, selector string) chromedp.Action[chromedp.Void] {
	b.t.Helper()
	b.until("document.querySelector(" + quote(selector) + ") !== null")
	return chromedp.Click(chromedp.CSS(selector))
}

// choose chooses a value of a list.
func choose(b *tab, selector, value string) chromedp.Action[chromedp.Void] {
	b.t.Helper()
	return chromedp.SetValue(chromedp.CSS(selector), value)
}
