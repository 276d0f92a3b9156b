package insight

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// open returns an Insight that keeps 1000 denials, unless change says otherwise.
func open(t testing.TB, c *clock, change func(*Options)) *Insight {
	t.Helper()
	o := Options{Instance: "here", Record: Record{Denials: 1000, PerSecond: 100}, Now: c.now}
	if change != nil {
		change(&o)
	}
	i := New(o)
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// rules returns a generation with the default names of API keys, one rule for subject and one
// without a subject.
func testRules(t testing.TB) *rules.Rules {
	t.Helper()
	s := settings.Default()
	rs := rules.NewRules(rules.Identity{Secrets: s.NewSecrets(""), EachUnknownKey: true})
	limit := rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 10, Window: time.Minute}}}}
	for name, path := range map[string][]descriptors.Node{
		"per-key":   {{Key: "api_key", AnyValue: true}},
		"per-user":  {{Key: "user", AnyValue: true}},
		"per-route": {{Key: "route", AnyValue: true}},
		"per-path":  {{Key: "path", AnyValue: true}},
	} {
		r := rules.Rule{Domain: "edge", Path: path, Name: name, Terms: limit}
		if name == "per-user" {
			r.Subject = "user"
		}
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return rs
}

// asked is a request that a limit denies.
type asked struct {
	req decide.Request
	v   decide.Verdict
}

// ask makes a denied request for a rule from entries: key, value, key, value.
func ask(t testing.TB, rs *rules.Rules, rule string, entries ...string) *asked {
	t.Helper()
	a := &asked{req: decide.Request{Domain: "edge"}}
	for i := 0; i < len(entries); i += 2 {
		a.req.Descriptors = append(a.req.Descriptors, decide.Descriptor{
			Entries: descriptors.Descriptor{{Key: entries[i], Value: entries[i+1]}}, Cost: 1,
		})
	}
	for _, r := range rs.All() {
		if r.Name == rule {
			a.v = decide.Verdict{Decisive: 0, Shadowed: -1, Limits: []decide.LimitStatus{{
				Rule: r, Limit: r.Terms.Limits[0], Cost: 1,
				Decision: window.Decision{RetryAfter: 20 * time.Second},
			}}}
			return a
		}
	}
	t.Fatalf("no rule %s", rule)
	return nil
}

func (a *asked) deny(i *Insight) { i.Denied(&a.req, &a.v, &a.v.Limits[0]) }

func (a *asked) near(i *Insight, used uint64) {
	a.v.Limits[0].Decision = window.Decision{Allowed: true, Remaining: a.v.Limits[0].Limit.Hits - used}
	i.Near(&a.req, &a.v, &a.v.Limits[0])
}

func TestDenials(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	a := ask(t, rs, "per-user", "user", "acme", "remote_address", "192.0.2.77", "method", "GET", "path", "/search?q=1")
	a.req.ID = "3f1c6d0e-8a52-9c1b-b7a4-0d5e2f7a9b10"
	a.v.Limits[0].Tier = "gold"
	a.deny(i)
	got := i.Denials(Filter{})
	want := Denial{
		ID: 1, At: c.now(), Domain: "edge", Rule: "per-user", Caller: Caller{Subject: "acme", Address: "192.0.2.0/24", Tier: "gold", Route: "/search", RequestID: "3f1c6d0e-8a52-9c1b-b7a4-0d5e2f7a9b10"},
		Terms: Terms{Limit: 10, Window: 60}, Used: 10, Cost: 1, Retry: Retry{Wait: 20, Reset: c.now().Add(20 * time.Second)}, Position: Position{1, 1}, Stands: 1,
	}
	if len(got.Denials) != 1 || got.Denials[0] != want {
		t.Fatalf("got  %+v\nwant %+v", got.Denials, want)
	}
	if got.Seen != 1 || got.Recorded != 1 || got.Sampled != 1 || got.Kept != 1000 || got.Instance != "here" {
		t.Errorf("got %+v", got)
	}
}

func TestFilter(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	digest := settingsDigest("k-12345678")
	ask(t, rs, "per-user", "user", "acme", "remote_address", "192.0.2.77").deny(i)
	c.add(time.Second)
	ask(t, rs, "per-route", "route", "search", "remote_address", "2001:db8:1:2::3").deny(i)
	c.add(time.Second)
	since := c.now()
	shadow := ask(t, rs, "per-key", "api_key", digest)
	shadow.v.Limits[0].Enforcement = verdict.Observed
	shadow.deny(i)
	for _, tc := range []struct {
		f    Filter
		want string
	}{
		{Filter{}, "3 2 1"},
		{Filter{Limit: 2}, "3 2"},
		{Filter{Rule: "per-user"}, "1"},
		{Filter{Subject: "acme"}, "1"},
		{Filter{Subject: digest}, "3"},
		{Filter{Subject: "key " + digest[:12]}, "3"},
		{Filter{Route: "search"}, "2"},
		{Filter{Address: "192.0.2.1"}, "1"},
		{Filter{Address: "192.0.2.0/24"}, "1"},
		{Filter{Address: "2001:db8:1::/48"}, "2"},
		{Filter{Since: since}, "3"},
		{Filter{Shadow: "only"}, "3"},
		{Filter{Shadow: "no"}, "2 1"},
		{Filter{Rule: "none"}, ""},
	} {
		var ids []string
		for _, d := range i.Denials(tc.f).Denials {
			ids = append(ids, fmt.Sprint(d.ID))
		}
		if got := strings.Join(ids, " "); got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.f, got, tc.want)
		}
	}
}

// settingsDigest returns the digest of an API key without a secret.
func settingsDigest(key string) string {
	s := settings.Default()
	return s.NewSecrets("").Digest(key)
}

func TestRingKeepsTheLast(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, func(o *Options) { o.Record.Denials = 5 })
	for n := range 12 {
		ask(t, rs, "per-user", "user", fmt.Sprint("u", n)).deny(i)
		if n%3 == 0 {
			i.Denials(Filter{})
		}
	}
	got := i.Denials(Filter{})
	if len(got.Denials) != 5 || got.Denials[0].Subject != "u11" || got.Denials[4].Subject != "u7" || got.Kept != 5 {
		t.Errorf("got %+v", got)
	}
}

// TestSample checks that up to PerSecond denials a second are all recorded, that no second has
// more than twice as many, and that what is recorded stands for all.
func TestSample(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, func(o *Options) { o.Record.Denials = 100_000 })
	r := i.recorder
	a := ask(t, rs, "per-user", "user", "acme")
	second := func(n int) (recorded, stands uint64) {
		before := r.ring.recorded.Load()
		for k := range n {
			a.deny(i)
			if k%64 == 0 {
				r.drain()
			}
		}
		r.drain()
		c.add(time.Second)
		r.tick()
		recorded = r.ring.recorded.Load() - before
		for _, d := range i.Denials(Filter{Limit: int(recorded)}).Denials {
			stands += d.Stands
		}
		if recorded == 0 {
			stands = 0
		}
		return recorded, stands
	}
	if recorded, stands := second(100); recorded != 100 || stands != 100 {
		t.Errorf("below the bound: got %d recorded for %d, want 100 for 100", recorded, stands)
	}
	if recorded, _ := second(50_000); recorded < 100 || recorded > 200 {
		t.Errorf("while the rate rises: got %d recorded, want 100 to 200", recorded)
	}
	var sum uint64
	for range 20 {
		recorded, stands := second(50_000)
		if recorded > 150 {
			t.Errorf("at a steady rate: got %d recorded, want about 80", recorded)
		}
		sum += stands
	}
	if sum < 800_000 || sum > 1_200_000 {
		t.Errorf("the recorded ones stand for %d, want about 1,000,000", sum)
	}
	if n := i.Denials(Filter{}).Sampled; n < 500 {
		t.Errorf("Sampled: got %d, want about 625", n)
	}
	second(10)
	if recorded, stands := second(100); recorded != 100 || stands != 100 {
		t.Errorf("after the burst: got %d recorded for %d, want 100 for 100", recorded, stands)
	}
}

func TestShown(t *testing.T) {
	long := strings.Repeat("é", 100)
	for in, want := range map[string]string{
		"":                           "",
		"plain text":                 "plain text",
		"a\x00b\nc\u202ed\u2028":     `a\x00b\nc\u202ed\u2028`,
		"\xff\xfe":                   `\xff\xfe`,
		long:                         strings.Repeat("é", 64) + cut,
		strings.Repeat("x", 128):     strings.Repeat("x", 128),
		strings.Repeat("\xc3", 1000): strings.Repeat(`\xc3`, 32) + cut,
	} {
		got := shown(in)
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		if !utf8.ValidString(got) || len(got) > maxText+len(cut) {
			t.Errorf("%q: got %d bytes, %q", in, len(got), got)
		}
	}
}

// TestCopies checks that a denial keeps nothing of the request's memory.
func TestCopies(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	memory := []byte("edge-acme-search-3f1c6d0e-8a52-9c1b-b7a4-0d5e2f7a9b10")
	text := func(from, to int) string { return unsafeString(memory[from:to]) }
	a := ask(t, rs, "per-user", "user", text(5, 9), "route", text(10, 16))
	a.req.ID, a.v.Limits[0].Tier = text(17, 53), text(0, 4)
	a.deny(i)
	for k := range memory {
		memory[k] = '#'
	}
	if d := i.Denials(Filter{}).Denials[0]; d.Subject != "acme" || d.Route != "search" || d.RequestID != "3f1c6d0e-8a52-9c1b-b7a4-0d5e2f7a9b10" || d.Tier != "edge" {
		t.Errorf("got %+v", d)
	}
}

// TestMemoryIsBounded fills the ring, the queue, all tops and the list of resets with
// unique names of the largest length, as hostile clients can, and checks how much the heap grows.
func TestMemoryIsBounded(t *testing.T) {
	c, rs := newClock(), testRules(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	i := open(t, c, func(o *Options) { o.Record.Denials, o.Record.PerSecond = 1000, 100 })
	r := i.recorder
	near := ask(t, rs, "per-user", "user", "x")
	longest := func(n int) string { return fmt.Sprintf("%0*d", maxText, n) }
	events := random.Steps(t, 60_000, 200_000)
	for n := range events {
		d := r.copyOf(&near.req, &near.v, &near.v.Limits[0], 1)
		d.Subject, d.Rule, d.Route, d.Tier = longest(n), longest(n+1), longest(n+2), longest(n+3)
		d.RequestID, d.Domain, d.Address = longest(n+4), longest(n+5), longest(n+6)
		d.Shadow, d.Used, d.Limit = n%3 == 1, uint64(n%10), 10
		r.mu.Lock()
		r.move(event{Denial: d, near: n%3 == 2})
		r.mu.Unlock()
		if n%(events/100) == 0 {
			c.add(36 * time.Second) // an hour in all, so that every bucket is in use
		}
	}
	for n := range KeptResets + 5 {
		text := func(k int) string { return strings.Repeat(longest(n+k), 80) }
		one := Reset{By: text(0)[:maxBy], Query: Query{Subject: text(1), Descriptor: text(2), Rule: text(3)}, Reason: text(4)[:maxReason], Problem: text(5)}
		for k := range maxRemoved {
			one.Removed = append(one.Removed, LimitUsage{
				Domain: text(k), Rule: text(k + 1), Path: text(k + 2), LogName: LogName{Values: text(k + 3), Log: text(k + 5)}, Basis: Basis{Tier: text(k + 4)},
				ReplacedBy: []string{text(k + 6)}, Counter: Counter{History: make([]uint64, historyParts)},
			})
		}
		i.keep(&one)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	const most = 32 << 20
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("the heap has grown by %d bytes", grown)
	if grown > most || grown < most/4 {
		t.Errorf("the heap has grown by %d bytes, want at most %d, and a quarter of it at least", grown, most)
	}
	runtime.KeepAlive(i)
}

// unsafeString returns a text in memory that changes, as adapters have it.
func unsafeString(b []byte) string { return unsafe.String(&b[0], len(b)) }

// names returns the names and counts of a list.
func names(t Top) (list []string) {
	for _, e := range t.Entries {
		list = append(list, fmt.Sprint(e.Name, "=", e.Count))
	}
	return list
}

func TestTop(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	digest := settingsDigest("k-12345678")
	for range 3 {
		ask(t, rs, "per-user", "user", "acme", "remote_address", "192.0.2.7", "path", "/a").deny(i)
	}
	ask(t, rs, "per-key", "api_key", digest, "remote_address", "192.0.2.8").deny(i)
	ask(t, rs, "per-route", "route", "/b", "remote_address", "198.51.100.1").deny(i)
	shadow := ask(t, rs, "per-user", "user", "seen")
	shadow.v.Limits[0].Enforcement = verdict.Observed
	shadow.deny(i)
	ask(t, rs, "per-user", "user", "full").near(i, 9)
	ask(t, rs, "per-user", "user", "full").near(i, 10)
	ask(t, rs, "per-user", "user", "half").near(i, 5)
	for _, tc := range []struct {
		q    TopQuery
		want string
	}{
		{TopQuery{Minutes: 1}, "acme=3 198.51.100.0/24=1 key " + digest[:12] + "=1"},
		{TopQuery{By: "rule", Minutes: 5}, "per-user=3 per-key=1 per-route=1"},
		{TopQuery{By: "route", Minutes: 60}, "/a=3 /b=1"},
		{TopQuery{By: "address", Minutes: 1}, "192.0.2.0/24=4 198.51.100.0/24=1"},
		{TopQuery{By: "address", Minutes: 1, Limit: 1}, "192.0.2.0/24=4"},
		{TopQuery{Order: "shadow"}, "seen=1"},
		{TopQuery{Order: "near"}, "full=2 half=1"},
		{TopQuery{Order: "none"}, ""},
		{TopQuery{By: "none"}, ""},
	} {
		got := i.Top(tc.q)
		if list := strings.Join(names(got), " "); list != tc.want || got.Error != 0 || got.Sampled || got.Instance != "here" {
			t.Errorf("%+v: got %+v, want %s", tc.q, got, tc.want)
		}
	}
	if top := i.Top(TopQuery{Order: "near"}).Entries; top[0].Peak != 1 || top[1].Peak != 0.5 {
		t.Errorf("peaks: got %+v", top)
	}
	top := i.Top(TopQuery{}).Entries
	if top[1].Address != "198.51.100.0/24" || top[2].Digest != digest || top[0].Digest != "" {
		t.Errorf("kinds of names: got %+v", top)
	}
}

// TestTopTime checks what the lists of 1, 5 and 60 minutes still have after a while.
func TestTopTime(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	a := ask(t, rs, "per-user", "user", "acme")
	for range 90 { // one denial a minute
		a.deny(i)
		c.add(time.Minute)
	}
	c.add(-time.Second)
	for minutes, want := range map[int][2]uint64{1: {1, 2}, 5: {5, 6}, 60: {60, 65}} {
		top := i.Top(TopQuery{Minutes: minutes})
		if len(top.Entries) != 1 || top.Entries[0].Count < want[0] || top.Entries[0].Count > want[1] {
			t.Errorf("%d minutes: got %+v, want %v", minutes, top.Entries, want)
		}
	}
	c.add(2 * time.Hour)
	for _, minutes := range []int{1, 5, 60} {
		if top := i.Top(TopQuery{Minutes: minutes}); len(top.Entries) != 0 {
			t.Errorf("%d minutes, two hours later: got %+v", minutes, top.Entries)
		}
	}
}

// TestTopOfEachOrder: a sample of one order leaves the others exact, and each list says the truth once.
func TestTopOfEachOrder(t *testing.T) {
	c := newClock()
	i := open(t, c, nil)
	for order, stands := range []uint64{1, 5, 1} {
		i.recorder.put(event{Denial: &Denial{At: c.now(), Rule: "per-key", Caller: Caller{Subject: "acme"}, Stands: stands, Shadow: order == 2}, near: order == 1})
	}
	for order, want := range map[string]string{"denied": "The counts are exact.", "near": "The counts are estimates from a sample.", "shadow": "The counts are exact."} {
		if top := i.Top(TopQuery{Order: order}); len(top.Entries) != 1 || top.Accuracy() != want || top.Exact != (order != "near") {
			t.Errorf("%s: got %+v, %q, want %q", order, top, top.Accuracy(), want)
		}
	}
	for want, top := range map[string]Top{
		"Each count may be up to 3 too large.":                                  {Error: 3},
		"The counts are estimates from a sample, and may be up to 3 too large.": {Error: 3, Sampled: true},
	} {
		if got := top.Accuracy(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTopReportsWhatItMissed records more events than the queue has room for, while nothing is taken out.
// The list tells how many it has not counted, as long as it is of their time. So does a list of a
// second in which the sample was full.
func TestTopReportsWhatItMissed(t *testing.T) {
	c, rs := newClock(), testRules(t)
	i := open(t, c, func(o *Options) { o.Record.PerSecond = 2 * maxQueue })
	r := i.recorder
	acme, seen := ask(t, rs, "per-user", "user", "acme"), ask(t, rs, "per-user", "user", "seen")
	seen.v.Limits[0].Enforcement = verdict.Observed
	const near, shadow, denials = 100, 7, maxQueue + 50
	r.mu.Lock() // the goroutine moves nothing meanwhile
	for range near {
		acme.near(i, 9)
	}
	for range shadow {
		seen.deny(i)
	}
	for range denials {
		acme.deny(i)
	}
	r.mu.Unlock()
	for _, tc := range []struct {
		order      string
		count, err uint64
	}{{"near", near, 0}, {"shadow", shadow, 0}, {"denied", denials, near + shadow + denials - maxQueue}} {
		top := i.Top(TopQuery{Order: tc.order, Minutes: 1})
		if len(top.Entries) != 1 || top.Entries[0].Count != tc.count || top.Error != tc.err || top.Sampled || top.Exact != (tc.err == 0) {
			t.Errorf("got %+v, want %d with an error of %d", top, tc.count, tc.err)
		}
	}
	c.add(10 * time.Minute)
	for minutes, want := range map[int]bool{5: false, 60: true} {
		if top := i.Top(TopQuery{Minutes: minutes}); (top.Error > 0) != want {
			t.Errorf("ten minutes later, %d minutes: got %+v", minutes, top)
		}
	}
	c.add(2 * time.Hour)
	if top := i.Top(TopQuery{Minutes: 60}); top.Error != 0 {
		t.Errorf("two hours later: got %+v", top)
	}

	r.denials.oneOf.Store(none)
	acme.deny(i)
	acme.deny(i)
	if top := i.Top(TopQuery{}); top.Error != 2 {
		t.Errorf("with a full sample: got %+v, want an error of 2", top)
	}
	r.denials.oneOf.Store(1)
	r.denials.chosen.Store(10 * maxQueue)
	acme.deny(i)
	if top := i.Top(TopQuery{}); top.Error != 3 || r.denials.oneOf.Load() != none {
		t.Errorf("while the sample becomes full: got %+v, want an error of 3", top)
	}
}

// TestTopError compares the lists with exact counts, while clients invent 50,000 names of which
// few are frequent. The error is what it is told to be, and the memory has its bound.
func TestTopError(t *testing.T) {
	const events = 50_000
	c, rs := newClock(), testRules(t)
	i := open(t, c, nil)
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.2, 1, events)
	exact := make(map[string]uint64)
	r := i.recorder
	a := ask(t, rs, "per-user", "user", "x")
	long := strings.Repeat("n", 100)
	for n := range events {
		name := fmt.Sprint(long, zipf.Uint64())
		exact[name]++
		a.v.Limits[0].Subject = name
		r.mu.Lock()
		r.move(event{Denial: r.copyOf(&a.req, &a.v, &a.v.Limits[0], 1)})
		r.mu.Unlock()
		if n%(events/50) == 0 {
			c.add(time.Second)
		}
	}
	for _, minutes := range []int{1, 5, 60} {
		top := i.Top(TopQuery{Minutes: minutes})
		if top.Error == 0 || top.Error > events*35/1000/2 {
			t.Errorf("%d minutes: Error %d of %d", minutes, top.Error, events)
		}
		for _, e := range top.Entries {
			if n := exact[e.Name]; e.Count < n || e.Count > n+top.Error {
				t.Errorf("%d minutes: %s has %d, told as %d with an error of %d", minutes, e.Name[100:], n, e.Count, top.Error)
			}
		}
		var most []string
		for name, n := range exact {
			if n > top.Error {
				most = append(most, name)
			}
		}
		for _, name := range most {
			if len(top.Entries) < 20 && !slices.ContainsFunc(top.Entries, func(e TopEntry) bool { return e.Name == name }) {
				t.Errorf("%d minutes: %s has %d, more than the error, and is missing", minutes, name[100:], exact[name])
			}
		}
		if top.Entries[0].Name != long+"0" {
			t.Errorf("%d minutes: the first is %s", minutes, top.Entries[0].Name)
		}
	}
}
