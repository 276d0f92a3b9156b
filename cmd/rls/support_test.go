package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/tree"
)

// hostile has what a terminal must not get: it clears the screen, sets a title, turns the
// direction of text, and begins a command with one C1 character.
const hostile = "\x1b[2J\x1b]0;owned\a\u202eevil\u009b31m\r\n\x00\xff"

// wide takes two columns a character.
const wide = "東京のお客様東京のお客様"

// A fakePort is an admin port that answers with what it is given.
type fakePort struct {
	*httptest.Server
	mu      sync.Mutex
	usage   []insight.Usage // its pages
	resets  []insight.ResetRequest
	reset   insight.Reset
	denials insight.Denials
	top     insight.Top
	later   [][]insight.Denial // what further questions for denials get; then the port refuses
	asked   []string
	token   string // required, unless empty
	polls   int
	lookup  *admin.TierLookup // nil: it has no source to ask
	grants  []*grant.Grant
	granted [][]byte // bodies of requests for grants
	changes []string // that were posted to make it ask its source again
}

func newPort(t *testing.T) *fakePort {
	t.Helper()
	p := new(fakePort)
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *fakePort) address() string { return strings.TrimPrefix(p.URL, "http://") }

func (p *fakePort) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.Method+" "+r.URL.RequestURI())
	if p.token != "" && r.Header.Get("Authorization") != "Bearer "+p.token {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"title":"Unauthorized","status":401,"detail":"This needs a token `+`\u001b[31m"}`)
		return
	}
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case "/v1/usage":
		n := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &n)
		answer(p.usage[n])
	case "/v1/reset":
		var request insight.ResetRequest
		_ = json.NewDecoder(r.Body).Decode(&request)
		p.resets = append(p.resets, request)
		answer(p.reset)
	case "/v1/grants":
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			p.granted = append(p.granted, body)
			answer(p.grants[0])
			return
		}
		answer(admin.Grants{Grants: p.grants})
	case "/v1/grants/0123456789ab":
		answer(p.grants[0])
	case "/v1/grants/ffffffffffff":
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"no grant has this id"}`)
	case "/v1/tiers/lookup":
		if p.lookup == nil {
			http.NotFound(w, r)
			return
		}
		answer(p.lookup)
	case "/v1/tiers/invalidate":
		body, _ := io.ReadAll(r.Body)
		p.changes = append(p.changes, string(body))
		w.WriteHeader(http.StatusNoContent)
	case "/v1/denials":
		if p.polls++; p.polls <= 1 || len(p.later) == 0 {
			answer(p.denials)
		} else if p.polls-2 < len(p.later) {
			answer(insight.Denials{Denials: p.later[p.polls-2]})
		} else {
			w.WriteHeader(http.StatusForbidden)
		}
	case "/v1/top":
		answer(p.top)
	case "/v1/reload":
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"generation":"51850eff","changed":false,"rules":3}`)
	case "/v1/rules":
		_, _ = io.WriteString(w, `{"rules":[{"name":"per-key"},{"name":"per-$(reboot)"},{"name":"burst"}]}`)
	default:
		http.NotFound(w, r)
	}
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	configtest.Golden(t, filepath.Join("testdata", name), got)
}

// safe checks that a terminal obeys nothing in a text, and that no line is too long.
func safe(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if safetext.Text(line) != line {
			t.Errorf("a line has a character that a terminal obeys: %q", line)
		}
		if n := terminal.Columns(line); width > 0 && n > width {
			t.Errorf("a line takes %d columns of %d: %s", n, width, line)
		}
	}
}

func history(n int) (all []uint64) {
	for i := range n {
		all = append(all, uint64(i%7*i%11))
	}
	return all
}

// acme is the usage of a subject that a limit denies.
func acme() insight.Usage {
	return insight.Usage{
		Query: insight.Query{Subject: "acme"}, Known: true, Subject: "acme", Tier: "pro", Labels: map[string]string{"plan": "annual"},
		Source: "memory", Origin: insight.Origin{Instance: "pod-1", At: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)},
		Limits: []insight.LimitUsage{
			{Domain: "edge", Rule: "per-key", Basis: insight.Basis{Tier: "pro"}, Terms: insight.Terms{Policy: "sliding", Limit: 500, Window: 1}, Counter: insight.Counter{Used: 500, NextFree: 0.012, Empty: 0.98, History: history(60)}},
			{Domain: "edge", Rule: "per-key", Basis: insight.Basis{Tier: "pro"}, Terms: insight.Terms{Policy: "sliding", Limit: 20000, Window: 60}, Counter: insight.Counter{Used: 17000, Remaining: 3000, NextFree: 1.2, Empty: 59.1, History: history(60)}},
			{Domain: "edge", Rule: "search", LogName: insight.LogName{Values: "route=search"}, Basis: insight.Basis{Override: true}, Shadow: true, ObserveOverride: true, Terms: insight.Terms{Limit: 10, Window: 3600}, Counter: insight.Counter{Used: 12, NextFree: 60, Empty: 3541, History: history(30)}},
			{Domain: "edge", Rule: "internal", Unlimited: true},
			{Domain: "edge", Rule: "daily", Terms: insight.Terms{Limit: 1000000, Window: 86400}, Counter: insight.Counter{Remaining: 1000000}},
		},
	}
}

func hostileUsage() insight.Usage {
	long := strings.Repeat("n", 300)
	u := acme()
	u.Query.Subject, u.Subject, u.Tier, u.Problem = hostile, hostile+"2", hostile, "the store is away "+hostile
	u.Source = "local"
	u.Labels = map[string]string{hostile: hostile}
	u.Limits = []insight.LimitUsage{
		{Rule: hostile, LogName: insight.LogName{Values: hostile}, Terms: insight.Terms{Limit: 1 << 62, Window: 1e300}, Counter: insight.Counter{Used: 1 << 62, NextFree: -1, Empty: 1e18}},
		{Rule: long, LogName: insight.LogName{Values: long}, Basis: insight.Basis{Tier: long}, Terms: insight.Terms{Limit: 5, Window: 60}, Counter: insight.Counter{Used: 5, NextFree: 59}},
		{Rule: wide, LogName: insight.LogName{Values: wide}, Terms: insight.Terms{Limit: 5, Window: 60}, Counter: insight.Counter{Used: 1, Remaining: 4, History: []uint64{1}}},
		{Rule: strings.Repeat("e\u0301\u0301", 200), Terms: insight.Terms{Limit: 5, Window: 60}, Counter: insight.Counter{Used: 1, Remaining: 4}},
	}
	return u
}

// TestUsageTables prints usages for terminals of two widths, and for a pipe.
func TestUsageTables(t *testing.T) {
	t.Setenv("TZ", "UTC")
	port := newPort(t)
	for name, u := range map[string]insight.Usage{"acme": acme(), "hostile": hostileUsage(), "nothing": {Query: insight.Query{Address: "192.0.2.1"}, Source: "redis"}} {
		port.usage = []insight.Usage{u}
		for _, width := range []int{80, 200, 0} {
			t.Setenv("COLUMNS", fmt.Sprint(width))
			code, out, _ := command(t, "", "usage", "acme", "--admin", port.address())
			if want := map[bool]int{true: 3}[u.Problem != ""]; code != want {
				t.Errorf("%s: exit code %d, want %d", name, code, want)
			}
			if name == "hostile" {
				safe(t, out, 0)
			} else {
				safe(t, out, width)
			}
			golden(t, fmt.Sprintf("usage-%s-%d.txt", name, width), strings.ReplaceAll(out, port.address(), "HOST:PORT"))
		}
	}
}

// TestUsageOfUnknownKey asks for an API key that counts for the address of its client. The output
// does not say that its requests pass.
func TestUsageOfUnknownKey(t *testing.T) {
	port := newPort(t)
	digest := strings.Repeat("ab", 32)
	port.usage = []insight.Usage{{
		Query: insight.Query{Digest: digest}, Source: "redis", ByAddress: true, Notes: []string{"a note\x1b"},
		Limits: []insight.LimitUsage{{Rule: "per-key", Terms: insight.Terms{Limit: 5, Window: 60}, Counter: insight.Counter{Remaining: 5}, NoLog: true}},
	}}
	_, out, _ := command(t, "", "usage", "--digest", digest, "--admin", port.address())
	if !strings.Contains(out, "note: a note\\x1b") || !strings.Contains(out, "Ask with --address") || strings.Contains(out, "No limit is used up") {
		t.Errorf("the usage of an unknown key is\n%s", out)
	}
}

// TestUsageOfNoCustomer: without a customer, the command says so on standard error and fails. An
// instance that knows the customer counts.
func TestUsageOfNoCustomer(t *testing.T) {
	port, other := newPort(t), newPort(t)
	port.usage = []insight.Usage{{Query: insight.Query{Subject: "***"}, Source: "memory", Unknown: "no such customer; did you mean acme?"}}
	other.usage = []insight.Usage{acme()}
	code, out, fails := command(t, "", "usage", "acm", "--admin", port.address())
	if code != 1 || out != "" || fails != "rls: no such customer; did you mean acme?\n" {
		t.Errorf("exit code %d, %s%s", code, out, fails)
	}
	code, out, fails = command(t, "", "usage", "acme", "--admin", port.address()+","+other.address())
	if code != 0 || strings.Contains(out, "***") || !strings.HasPrefix(out, "acme · ") || fails != "" {
		t.Errorf("two instances: exit code %d, %s%s", code, out, fails)
	}
	for typed, want := range map[string]string{"203.0.113.7": "address=203.0.113.7", strings.Repeat("AB", 32): "digest=" + strings.Repeat("ab", 32), "acme": "subject=acme"} {
		other.asked = nil
		command(t, "", "usage", typed, "--admin", other.address())
		if got := other.asked[0]; got != "GET /v1/usage?"+want {
			t.Errorf("%s asks %s, want %s", typed, got, want)
		}
	}
}

// TestReload asks each instance to read its files again.
func TestReload(t *testing.T) {
	port := newPort(t)
	code, out, fails := command(t, "", "reload", "--admin", port.address()+",127.0.0.1:1")
	if want := port.address() + ": 3 rules active, generation 51850eff, unchanged\n"; code != 3 || out != want || !strings.Contains(fails, "from 1 of 2 instances; 127.0.0.1:1 did not answer") {
		t.Errorf("exit code %d, %s%s, want 3 and %s", code, out, fails, want)
	}
	if code, out, _ = command(t, "", "reload", "--json", "--admin", port.address()); code != 0 || !strings.Contains(out, `"rules": 3`) {
		t.Errorf("--json: exit code %d, %s", code, out)
	}
}

// TestUsageOfTiers: usage prints what the instance holds and what the source says, and --refresh makes
// the instance ask again first.
func TestUsageOfTiers(t *testing.T) {
	port := newPort(t)
	port.usage = []insight.Usage{{Query: insight.Query{Subject: "acme"}, Known: true, Source: "redis"}}
	pro := &admin.TierRecord{Known: true, Customer: admin.Customer{Subject: "acme", Tier: "pro"}, AgeSeconds: 30}
	for _, tt := range []struct {
		lookup admin.TierLookup
		want   string
	}{
		{admin.TierLookup{Cached: pro, Source: &admin.TierRecord{Known: true, Customer: admin.Customer{Disabled: true}}}, "cached here: tier pro, 30s old · the source says: the default tier, disabled\n"},
		{admin.TierLookup{Cached: &admin.TierRecord{Known: true, Customer: admin.Customer{Tier: "pro"}}, Source: pro}, "acme · counted in Redis\nNo limit applies."},
		{admin.TierLookup{Source: new(admin.TierRecord)}, "cached here: no record · the source says: no such customer\n"},
		{admin.TierLookup{Cached: pro, Error: "away\x1b"}, "cached here: tier pro, 30s old · the source does not answer: away\\x1b\n"},
	} {
		port.lookup = &tt.lookup
		if _, out, fails := command(t, "", "usage", "acme", "--admin", port.address()); !strings.Contains(out, tt.want) {
			t.Errorf("got %s%s, want %q", out, fails, tt.want)
		}
	}
	if _, out, _ := command(t, "", "usage", "acme", "--json", "--admin", port.address()); !strings.Contains(out, `"tiers": {`) {
		t.Errorf("--json has no tiers: %s", out)
	}
	for line, want := range map[string]string{
		"acme":          `{"subject":"acme"}`,
		"--digest ab":   `{"digest":"ab"}`,
		"":              `{"all":true}`,
		"--address ::1": "",
	} {
		port.changes = nil
		code, out, fails := command(t, "", strings.Fields("usage --refresh --admin "+port.address()+" "+line)...)
		if got := strings.Join(port.changes, ""); got != want || (code == 2) != (want == "") || line == "" && !strings.HasPrefix(out, "The service asks its customer source") {
			t.Errorf("usage --refresh %s: posted %s, want %s; %d, %s%s", line, got, want, code, out, fails)
		}
	}
}

// TestUsagePages reads all pages, and prints one usage.
func TestUsagePages(t *testing.T) {
	port := newPort(t)
	first, second := acme(), acme()
	first.Next, second.Limits = "1", []insight.LimitUsage{{Rule: "last", Terms: insight.Terms{Limit: 1, Window: 60}, Counter: insight.Counter{Remaining: 1}}}
	port.usage = []insight.Usage{first, second}
	code, out, fails := command(t, "", "usage", "--json", "--admin", port.URL, "--rule", "a b", "acme")
	var got insight.Usage
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || fails != "" {
		t.Fatalf("exit code %d, %v, %s\n%s", code, err, fails, out)
	}
	want := first
	want.Limits, want.Next = append(want.Limits, second.Limits...), ""
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(insight.Query{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"GET /v1/usage?rule=a+b&subject=acme", "GET /v1/usage?cursor=1&rule=a+b&subject=acme", "GET /v1/tiers/lookup?id=acme"}, port.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestKeyFromStdin sends the digest of a key and nothing else of it.
func TestKeyFromStdin(t *testing.T) {
	port := newPort(t)
	port.usage = []insight.Usage{acme()}
	code, out, fails := command(t, "Bearer demo-free\n", "usage", "--key-stdin", "--admin", port.URL)
	const digest = "e1f4fdb94683a17c8a5d9e6dc6cca27c4a2f827dbe26ede139c17a61127b1f4f"
	if code != 0 || port.asked[0] != "GET /v1/usage?digest="+digest {
		t.Errorf("exit code %d, asked %q, %s", code, port.asked, fails)
	}
	if strings.Contains(out+fails, "demo-free") {
		t.Error("the key was printed")
	}
}

// TestSeveralInstances merges what instances answer. One that does not answer is named, and the
// exit code says so.
func TestSeveralInstances(t *testing.T) {
	a, b, gone := newPort(t), newPort(t), newPort(t)
	gone.Close()
	at := time.Now().UTC()
	for i, p := range []*fakePort{a, b} {
		u := acme()
		u.Instance, u.Source = fmt.Sprint("pod-", i), "redis"
		p.usage = []insight.Usage{u}
		p.denials = insight.Denials{Denials: []insight.Denial{
			{ID: 2, At: at.Add(time.Duration(i-5) * time.Second), Rule: fmt.Sprint("newer-", i), Terms: insight.Terms{Limit: 1, Window: 60}},
			{ID: 1, At: at.Add(time.Duration(i-10) * time.Second), Rule: fmt.Sprint("older-", i), Terms: insight.Terms{Limit: 1, Window: 60}},
		}}
		p.top = insight.Top{By: "subject", Order: "denied", Minutes: 5, Entries: []insight.TopEntry{{Name: "acme", Count: 10}, {Name: fmt.Sprint("only-", i), Count: 15}}, Error: 2}
		p.reset = insight.Reset{Query: insight.Query{Subject: "acme"}, Logs: 1}
	}
	both := a.address() + "," + b.address()
	if code, out, fails := command(t, "", "usage", "acme", "--admin", both); code != 0 || strings.Count(out, "REMAINING") != 1 {
		t.Errorf("shared usage: exit code %d\n%s%s", code, out, fails)
	}
	if code, out, fails := command(t, "", "usage", "acme", "--admin", both+","+gone.address()); code != 3 || !strings.Contains(fails, gone.address()+": the admin port does not answer") {
		t.Errorf("partial usage: exit code %d\n%s%s", code, out, fails)
	}
	if code, out, fails := command(t, "", "usage", "acme", "--admin", gone.address()); code != 1 || out != "" {
		t.Errorf("no usage: exit code %d\n%s%s", code, out, fails)
	}
	_, out, _ := command(t, "", "denials", "--admin", both)
	var order []int
	for _, rule := range []string{"older-0", "older-1", "newer-0", "newer-1"} {
		order = append(order, strings.Index(out, rule))
	}
	for i := 1; i < len(order); i++ {
		if order[i-1] < 0 || order[i] < order[i-1] {
			t.Errorf("the denials are not in their order:\n%s", out)
		}
	}
	if _, out, _ := command(t, "", "top", "--admin", both); !strings.Contains(out, "1  acme         20") || !strings.Contains(out, "up to 4 too large") {
		t.Errorf("top:\n%s", out)
	}
	// The list of the first port is full. So a name that it lacks may have 7 there.
	a.top.Entries = append(a.top.Entries, make([]insight.TopEntry, askedOfEach-2)...)
	for n := range a.top.Entries[2:] {
		a.top.Entries[n+2] = insight.TopEntry{Name: fmt.Sprint("filler-", n), Count: 7}
	}
	b.top.Entries = []insight.TopEntry{{Name: "only-1", Count: 30}, {Name: "acme", Count: 8}}
	if _, out, _ := command(t, "", "top", "--admin", both, "--limit", "2"); !strings.Contains(out, "1  only-1       37") || !strings.Contains(out, "2  acme         18") || !strings.Contains(out, "up to 9 too large") {
		t.Errorf("top of a full list:\n%s", out)
	}
	// Each instance resets. One that does not answer is named.
	if code, out, fails := command(t, "", "reset", "acme", "--reason", "they paid", "--admin", gone.address()+","+both); code != 3 || len(a.resets) != 1 || len(b.resets) != 1 || !strings.Contains(out, b.address()) {
		t.Errorf("reset: exit code %d, %d and %d resets\n%s%s", code, len(a.resets), len(b.resets), out, fails)
	}
	// What the first one removed the second one does not have.
	b.reset.Logs = 0
	if code, out, fails := command(t, "", "reset", "acme", "--reason", "they paid", "--admin", both); code != 0 || strings.Count(out, "acme") != 1 || !strings.HasPrefix(out, "Removed 1 log of acme.") {
		t.Errorf("reset of a shared store: exit code %d\n%s%s", code, out, fails)
	}
	a.usage[0].Source, b.usage[0].Source = "memory", "memory"
	if code, out, _ := command(t, "", "usage", "acme", "--json", "--admin", both+","+gone.address()); code != 3 || strings.Count(out, `"answer"`) != 2 || strings.Count(out, `"error"`) != 1 {
		t.Errorf("JSON: exit code %d\n%s", code, out)
	}
}

// TestResets prints what was removed, and sends what was asked.
func TestResets(t *testing.T) {
	port := newPort(t)
	port.usage = []insight.Usage{acme()}
	port.reset = insight.Reset{Query: insight.Query{Subject: "acme"}, Logs: 3, Removed: acme().Limits[:3]}
	t.Setenv("COLUMNS", "80")
	code, out, fails := command(t, "", "reset", "acme", "--rule", "per-key", "--reason", "they paid", "--admin", port.URL)
	if code != 0 || fails != "" {
		t.Errorf("exit code %d, %s", code, fails)
	}
	golden(t, "reset-80.txt", out)
	if diff := cmp.Diff([]insight.ResetRequest{{Query: insight.Query{Subject: "acme", Rule: "per-key"}, Reason: "they paid"}}, port.resets, cmpopts.IgnoreUnexported(insight.Query{})); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	port.reset.Removed[1].Scope = "global"
	if _, out, _ := command(t, "", "reset", "acme", "--reason", "they paid", "--admin", port.URL); strings.Count(out, "scope ") != 1 || !strings.Contains(out, "17000\n  scope global\n") {
		t.Errorf("the reset does not name the scope of the second log alone:\n%s", out)
	}
	if _, out, _ := command(t, "", "reset", "--help"); !strings.Contains(strings.Join(strings.Fields(out), " "), "name an instance of each region.") {
		t.Errorf("the help does not say that each region needs its own reset:\n%s", out)
	}
	port.reset.Problem = "one server is away"
	if code, _, fails := command(t, "", "reset", "acme", "--reason", "they paid", "--admin", port.URL); code != 3 || !strings.Contains(fails, "one server is away") {
		t.Errorf("partial reset: exit code %d, %s", code, fails)
	}
}

func someDenials(at time.Time) []insight.Denial {
	long := strings.Repeat("n", 300)
	return []insight.Denial{
		{ID: 4, At: at, Rule: hostile, Caller: insight.Caller{Subject: hostile, Route: hostile, Tier: hostile, RequestID: hostile}, Terms: insight.Terms{Limit: 1, Window: 1}, Used: 1, Cost: 1, Retry: insight.Retry{Wait: 0.5}, Position: insight.Position{Of: 1}},
		{ID: 3, At: at, Rule: long, Caller: insight.Caller{Subject: long, Route: long, Tier: long, RequestID: long}, Terms: insight.Terms{Limit: 20000, Window: 60}, Used: 20000, Cost: 5, Retry: insight.Retry{Never: true}, Position: insight.Position{Which: 2, Of: 3}, Stands: 10, Shadow: true, Degraded: true},
		{ID: 2, At: at, Rule: "per-key", Caller: insight.Caller{Digest: strings.Repeat("ab", 32), Route: "search"}, Terms: insight.Terms{Limit: 100, Window: 60}, Used: 100, Cost: 1, Retry: insight.Retry{Wait: 12.3}, Position: insight.Position{Of: 1}},
		{ID: 1, At: at, Rule: wide, Caller: insight.Caller{Subject: "acme", Tier: "pro", Address: "192.0.2.0/24", RequestID: "9c1b2f4e"}, Terms: insight.Terms{Limit: 100, Window: 60}, Used: 100, Cost: 1, Retry: insight.Retry{Wait: 60}, Position: insight.Position{Of: 1}, Stands: 1},
	}
}

// TestDenialTables prints denials for terminals of two widths, and for a pipe.
func TestDenialTables(t *testing.T) {
	port := newPort(t)
	port.denials = insight.Denials{Denials: someDenials(time.Now()), Sampled: 10}
	for _, width := range []int{80, 200, 0} {
		t.Setenv("COLUMNS", fmt.Sprint(width))
		code, out, fails := command(t, "", "denials", "--admin", port.URL, "--since", "10m", "--shadow", "no", "--rule", "a&b")
		safe(t, out, width)
		clock := time.Now().Local().Format("15:04")
		if code != 0 || !strings.Contains(fails, "one of 10 denials") || !strings.Contains(out, clock[:2]) {
			t.Errorf("exit code %d\n%s%s", code, out, fails)
		}
		golden(t, fmt.Sprintf("denials-%d.txt", width), strings.ReplaceAll(out, clockOf(port.denials.Denials[0].At), "12:00:00"))
	}
	if want := "GET /v1/denials?instances=all&limit=50&rule=a%26b&shadow=no&since=10m"; port.asked[0] != want {
		t.Errorf("asked %s, want %s", port.asked[0], want)
	}
	_, out, _ := command(t, "", "denials", "--json", "--admin", port.URL)
	safe(t, out, 0)
	var got insight.Denials
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Denials) != 4 || got.Denials[0].Rule != strings.ToValidUTF8(hostile, "\uFFFD") {
		t.Errorf("%v in\n%s", err, out)
	}
}

func clockOf(at time.Time) string { return at.Local().Format(time.TimeOnly) }

// TestFollow prints each denial once, also those of an instance that was started again, and ends
// when the port refuses.
func TestFollow(t *testing.T) {
	port := newPort(t)
	followEvery = time.Millisecond
	defer func() { followEvery = time.Second }()
	denial := func(id uint64, rule string) insight.Denial { return insight.Denial{ID: id, At: time.Now(), Rule: rule} }
	first := denial(7, "first")
	port.denials = insight.Denials{Denials: []insight.Denial{first}}
	port.later = [][]insight.Denial{{denial(9, "third\x1b[2J"), denial(8, "second"), first}, {}, {denial(2, "of another process")}}
	code, out, fails := command(t, "", "denials", "--follow", "--json", "--admin", port.URL, "--rule", "r")
	safe(t, out+fails, 0)
	var rules []string
	for line := range strings.Lines(out) {
		var d insight.Denial
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Errorf("%v in %s", err, line)
		}
		rules = append(rules, d.Rule)
	}
	slices.Sort(rules[1:])
	if diff := cmp.Diff([]string{"first", "of another process", "second", "third\x1b[2J"}, rules); diff != "" || code != 1 || !strings.Contains(fails, "answers 403 Forbidden") {
		t.Errorf("exit code %d, %s (-want +got):\n%s", code, fails, diff)
	}
}

// TestToken sends a token from each place, and never prints it.
func TestToken(t *testing.T) {
	port := newPort(t)
	port.token, port.usage = "secret-1", []insight.Usage{acme()}
	file := func(text string) string {
		return tree.Write(t, filepath.Join(t.TempDir(), "token"), text)
	}
	for _, tt := range []struct {
		file, environ string
		code          int
	}{
		{"secret-1\n", "", 0},
		{"# ours\nread other\nact secret-1 support\n", "", 0},
		{"read secret-1\n", "", 0},
		{"", "secret-1", 0},
		{"secret-1", "secret-2", 0},
		{"", "", 1},
		{"secret-2", "", 1},
		{"# nothing\n", "", 2},
		{"secret-1\x00\n", "", 2},
	} {
		t.Setenv("SLIDEGATE_ADMIN_TOKEN", tt.environ)
		args := []string{"usage", "acme", "--admin", port.URL}
		if tt.file != "" {
			args = append(args, "--token-file", file(tt.file))
		}
		code, out, fails := command(t, "", args...)
		if code != tt.code {
			t.Errorf("%+v: exit code %d\n%s", tt, code, fails)
		}
		safe(t, fails, 0)
		if strings.Contains(out+fails, "secret-") {
			t.Errorf("%+v: printed the token: %s", tt, fails)
		}
	}
}

// TestSupportCommandLines runs wrong command lines.
func TestSupportCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"usage":                         "name one of a subject",
		"usage a --digest ab":           "name one of a subject",
		"usage a b":                     "accepts at most 1 arg",
		"usage --key-stdin":             "holds no API key",
		"usage a --admin nowhere":       `"nowhere" is neither host:port nor a URL`,
		"usage a --timeout 0s":          "--timeout: expected a duration above 0",
		"usage a --token-file /missing": "--token-file: open /missing",
		"reset a":                       `required flag(s) "reason" not set`,
		"reset --reason x":              "name one of a subject",
		"denials --since yesterday":     "--since:",
		"denials --shadow maybe":        "--shadow:",
		"denials --limit 0":             "--limit:",
		"top --by color":                "--by:",
		"top --order best":              "--order:",
		"top --minutes 7":               "--minutes:",
	} {
		if code, out, fails := command(t, "", strings.Fields(line)...); code != 2 || out != "" || !strings.Contains(fails, want) {
			t.Errorf("rls %s: exit code %d, %q, %q; want %q", line, code, out, fails, want)
		}
	}
}

// TestWords completes the words of a flag.
func TestWords(t *testing.T) {
	const want = "subject\nrule\nroute\naddress\n:4\n"
	if _, out, _ := command(t, "", "__complete", "top", "--by", "r"); out != want {
		t.Errorf("rls __complete top --by r: %q, want %q", out, want)
	}
}
