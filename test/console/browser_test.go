package console

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/random"
)

const (
	// envAxe names the path of axe.min.js, and envChromium another browser.
	envAxe      = "SLIDEGATE_TEST_AXE"
	envChromium = "SLIDEGATE_TEST_CHROMIUM"

	// patience is how long a condition may take to become true. It decides how long a
	// broken test takes to fail, never how long a good one takes: axe-core needs a minute for
	// the largest page if the machine does many other things.
	patience = 3 * time.Minute
	// period is the time between two looks at a page.
	period = 20 * time.Millisecond
)

// The widths of the screens.
const (
	narrow = 375
	wide   = 1280
	height = 800
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := process.Main(m)
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
}

// browser is the Chromium of all tests.
var browser struct {
	sync.Mutex
	ctx  context.Context
	stop func()
}

// chromium starts the browser with the first test that needs it.
func chromium(t *testing.T) context.Context {
	t.Helper()
	name := cmp.Or(os.Getenv(envChromium), "chromium")
	path, err := exec.LookPath(name)
	if err != nil {
		process.Missing(t, name, "install the package chromium, as make test does")
	}
	browser.Lock()
	defer browser.Unlock()
	if browser.ctx != nil {
		return browser.ctx
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		// The pages of these tests come from this process, and CI runs as root.
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.ExecPath(path), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en"),
		chromedp.Flag("font-render-hinting", "none"))
	if file := os.Getenv("FONTCONFIG_FILE"); file != "" {
		options = append(options, chromedp.Env("FONTCONFIG_FILE="+file))
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		stop()
		end()
		t.Fatalf("%s does not start: %v", path, err)
	}
	browser.ctx, browser.stop = ctx, func() { stop(); end() }
	return browser.ctx
}

// A tab is a tab of the browser with cookies of its own. It records what is wrong with the pages
// in it, and the test fails at its end if something is. One goroutine uses it.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu     sync.Mutex
	faults []string
	// missing is true if answers with a status of 400 or above are expected.
	missing bool
	visited []string
	// scripts is how many scripts a page has: the own one of the console, or none.
	scripts int
	// next is the place in allLooks of the look that everyLook takes.
	next int
}

// open opens a tab for the pages below the address base.
func open(t *testing.T, base string) *tab {
	t.Helper()
	b := &tab{t: t, base: base, scripts: 1}
	ctx, stop := chromedp.NewContext(chromium(t), chromedp.WithNewBrowserContext())
	b.ctx = ctx
	if err := chromedp.Listen(ctx, b.event); err != nil {
		t.Fatal(err)
	}
	b.do(call(network.Enable, network.EnableParams{}), chromedp.EmulateViewport(wide, height))
	t.Cleanup(func() {
		stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.faults {
			t.Error(f)
		}
	})
	return b
}

// event notes a fault that the browser reports.
func (b *tab) event(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fault := func(format string, args ...any) { b.faults = append(b.faults, fmt.Sprintf(format, args...)) }
	switch ev := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		var text []string
		for _, a := range ev.Args {
			text = append(text, string(a.Value))
		}
		fault("a page wrote to the console: %s", strings.Join(text, " "))
	case *runtime.EventExceptionThrown:
		fault("a script failed: %v", &chromedp.ExceptionError{ExceptionDetails: ev.ExceptionDetails})
	case *log.EventEntryAdded:
		e := ev.Entry
		// A test may be quicker than the focus that /login asks for.
		if focus := e.Source == "rendering" && strings.HasPrefix(e.Text, "Autofocus processing was blocked"); !focus && (!b.missing || e.Source != "network") {
			fault("the browser logged (%s, %s) %s: %s", e.Source, e.Level, e.URL, e.Text)
		}
	case *network.EventRequestWillBeSent:
		b.visited = append(b.visited, ev.Request.URL)
		if u := ev.Request.URL; !strings.HasPrefix(u, b.base+"/") && !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "about:") {
			fault("a page requests %s, which is elsewhere", u)
		}
	case *network.EventLoadingFailed:
		// A page that is left ends its requests.
		if !ev.Canceled && ev.ErrorText != "net::ERR_ABORTED" {
			fault("a request failed (%s): %s %s", ev.Type, ev.ErrorText, ev.BlockedReason)
		}
	}
}

// addresses returns the addresses of all requests so far.
func (b *tab) addresses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.visited)
}

// expectMissing says whether answers with a status of 400 and above are expected from now on.
func (b *tab) expectMissing(is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missing = is
}

// call is an action that runs a command of the browser's protocol.
func call[P, R any](cmd cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cmd, params)
		return err
	})
}

// do runs actions, and ends the test on an error.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// load opens a page and returns the status of the answer.
func (b *tab) load(path string) int {
	b.t.Helper()
	b.expectMissing(true)
	defer b.expectMissing(false)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	answer, err := chromedp.Run(ctx, chromedp.NavigateResponse(b.base+path))
	if err != nil {
		b.t.Fatalf("%s: %v", path, err)
	}
	return int(answer.Status)
}

// page opens a page that must be there.
func (b *tab) page(path string) {
	b.t.Helper()
	if status := b.load(path); status != 200 {
		b.t.Fatalf("%s answers %d, want 200", path, status)
	}
}

// eval returns the value of an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true in the page, or in the page that follows it.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("still false after %v: %s (%v)\n%s", patience, expression, err, eval[string](b, "location.href + '\\n' + document.body.innerText"))
		case <-time.After(period):
		}
	}
}

// text waits until the element has the text.
func (b *tab) text(selector, part string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.readyState !== 'loading' && [...document.querySelectorAll(%s)].some((e) => e.textContent.includes(%s))", quote(selector), quote(part)))
}

// fill types text into a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf("((e) => { e.focus(); e.select(); return true; })(document.querySelector(%s))", quote(selector)))
	b.do(call(input.InsertText, input.InsertTextParams{Text: text}))
}

// send presses a button of a form, and waits until the answer is loaded.
func (b *tab) send(selector string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		b.t.Fatalf("%s: %v", selector, err)
	}
}

// look sets the theme and the width of the screen.
func (b *tab) look(theme string, width int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}))
}

// withoutScripts says that no script of a page runs.
func (b *tab) withoutScripts() {
	b.t.Helper()
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
}

var axe = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile(os.Getenv(envAxe))
	return string(text), err
})

// audit reports what axe-core finds that is serious, with the place. It leaves out the insides of
// charts, which have thousands of elements and a text in place of them. Where axe-core cannot tell
// the contrast because of a picture in the background, that is a finding, too.
func (b *tab) audit(where string) {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		process.Missing(b.t, "axe-core", "set "+envAxe+" to axe.min.js, as make test does")
	}
	if eval[bool](b, "typeof axe === 'undefined'") {
		eval[chromedp.Void](b, script)
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`axe.run({exclude: [["[role=img] svg"]]}, {resultTypes: ["violations", "incomplete"]}).then((r) => r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.concat(r.incomplete.filter((v) => v.id === "color-contrast" && v.nodes.some((n) => /gradient|image/.test(n.failureSummary))))
		.flatMap((v) => v.nodes.slice(0, 5).map((n) => v.id + " (" + v.impact + "): " + n.html.slice(0, 200) + "\n" + n.failureSummary)))`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: axe: %v", where, err)
	}
	for _, f := range found {
		b.t.Errorf("%s: %s", where, f)
	}
}

// fits reports what reaches beyond the width of the screen, and text that became markup.
func (b *tab) fits(where string) {
	b.t.Helper()
	const beyond = `(() => {
		const width = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= width) return [];
		return ["the page is " + document.documentElement.scrollWidth + " px wide"].concat([...document.querySelectorAll("body *")]
			.filter((e) => e.getBoundingClientRect().right > width + 1 && !e.closest(".wide, nav")).slice(0, 5).map((e) => e.outerHTML.slice(0, 150)));
	})()`
	for _, e := range eval[[]string](b, beyond) {
		b.t.Errorf("%s: scrolls sideways: %s", where, e)
	}
	const foreign = `window.pwned !== undefined || document.scripts.length !== %d ||
		document.querySelector("iframe, object, embed, base, [srcdoc], [onerror], [onload], [onclick], [onfocus], a[href^='javascript:' i]") !== null`
	if eval[bool](b, fmt.Sprintf(foreign, b.scripts)) {
		b.t.Errorf("%s: text became markup or a script", where)
	}
}

// everyLook checks the open page in one look after the other: each call takes the next. make
// test-long checks it in both themes and widths.
func (b *tab) everyLook(path string) {
	b.t.Helper()
	looks := allLooks
	if !random.Long() {
		looks = looks[b.next%len(looks):][:1]
		b.next++
	}
	b.looks(path, looks...)
}

// allLooks are the looks that the tests know.
var allLooks = []look{{"light", wide}, {"dark", narrow}, {"light", narrow}, {"dark", wide}}

// A look is a theme and the width of a screen.
type look struct {
	theme string
	width int64
}

func (b *tab) looks(path string, looks ...look) {
	b.t.Helper()
	for _, l := range looks {
		b.look(l.theme, l.width)
		where := fmt.Sprintf("%s, %s, %d px", path, l.theme, l.width)
		b.fits(where)
		b.audit(where)
	}
	b.look("light", wide)
}

// quote returns text as a literal of JavaScript.
func quote(text string) string {
	q, err := json.Marshal(text)
	if err != nil {
		panic(err) // text can be written
	}
	return string(q)
}

// pathOf returns the path and the query of the open page.
func (b *tab) pathOf() string {
	b.t.Helper()
	u, err := url.Parse(eval[string](b, "location.href"))
	if err != nil {
		b.t.Fatal(err)
	}
	return u.RequestURI()
}
