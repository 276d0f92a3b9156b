package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shop = `
domain: shop
descriptors:
  - {key: api_key, rate_limit: {name: per-key, unit: minute, requests_per_unit: 2}}
  - {key: remote_address, rate_limit: {name: per-address, limits: [{window: 1s, requests: 5}, {window: 1h, requests: 9}]}}
  - key: watched
    shadow_mode: true
    rate_limit: {name: watched, window: 10s, requests: 1}
  - {key: upload, rate_limit: {name: upload, policy: in_flight, max: 3, hold: 1m}}
`

// clock is a clock that only the test moves.
type clock struct{ now time.Duration }

// start is a time in 2026.
const start = 1_790_000_000 * time.Second

// newLimiter returns a Limiter with a memory store whose clock the test moves.
func newLimiter(t testing.TB, rules *limiter.Rules) (*limiter.Limiter, *clock) {
	t.Helper()
	c := &clock{start}
	store := memstore.New(memstore.Options{Clock: func() time.Duration { return c.now }})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := limiter.New(store, rules)
	if err != nil {
		t.Fatal(err)
	}
	return l, c
}

func parse(t testing.TB, text string) *limiter.Rules {
	t.Helper()
	rules, err := limiter.ParseRules("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func allow(t testing.TB, l *limiter.Limiter, req limiter.Request) limiter.Decision {
	t.Helper()
	d, err := l.Allow(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestAllow decides requests at given times.
func TestAllow(t *testing.T) {
	l, c := newLimiter(t, parse(t, shop))
	key := limiter.One("shop", "api_key", "k1")
	ask := limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Entries: key.Descriptors[0].Entries, Ask: true}}}
	refund := limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Entries: key.Descriptors[0].Entries, Refund: true}}}
	large := limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Entries: key.Descriptors[0].Entries, Cost: 3}}}
	both := limiter.Request{Domain: "shop", Descriptors: append(limiter.One("shop", "remote_address", "192.0.2.1").Descriptors, key.Descriptors...)}
	address := limiter.One("shop", "remote_address", "192.0.2.1")
	per := func(remaining uint64, retry, reset time.Duration) limiter.LimitStatus {
		return limiter.LimitStatus{Rule: "per-key", Name: "per-key", Policy: "sliding", Hits: 2, Window: time.Minute, Remaining: remaining, RetryAfter: retry, ResetAfter: reset, Denies: retry > 0}
	}
	never := per(0, 0, 0)
	never.Never, never.Denies = true, true
	later := never
	later.Remaining = 2
	for i, step := range []struct {
		at      time.Duration
		req     limiter.Request
		allowed bool
		want    limiter.LimitStatus
	}{
		{0, key, true, per(1, 0, time.Minute)},
		{10 * time.Second, limiter.One("shop", "api_key", "Bearer k1"), true, per(0, 0, 50*time.Second)},
		{20 * time.Second, key, false, per(0, 40*time.Second, 40*time.Second)},
		{20 * time.Second, both, false, per(0, 40*time.Second, 40*time.Second)},
		{20 * time.Second, large, false, never},
		{20 * time.Second, refund, true, limiter.LimitStatus{}},
		{30 * time.Second, ask, true, per(1, 0, 30*time.Second)},
		{30 * time.Second, address, true, limiter.LimitStatus{
			Rule: "per-address", Name: "per-address-1s", Policy: "sliding", Hits: 5, Window: time.Second, Remaining: 4, ResetAfter: time.Second,
		}},
		{60 * time.Second, ask, true, per(2, 0, 0)},
		{60 * time.Second, large, false, later}, // a question makes no usage updates of later costs
		{60 * time.Second, ask, true, per(2, 0, 0)},
		{60 * time.Second, limiter.One("shop", "unknown", "x"), true, limiter.LimitStatus{}},
		{60 * time.Second, limiter.One("other", "api_key", "x"), true, limiter.LimitStatus{}},
	} {
		c.now = start + step.at
		d := allow(t, l, step.req)
		if d.Allowed != step.allowed {
			t.Errorf("step %d: allowed %v, want %v", i, d.Allowed, step.allowed)
		}
		if d.Limited != (step.want.Rule != "") {
			t.Errorf("step %d: limited %v", i, d.Limited)
		}
		if diff := cmp.Diff(step.want, d.Limit()); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestAnswers: headers and bodies are those of the service.
func TestAnswers(t *testing.T) {
	l, _ := newLimiter(t, parse(t, shop))
	text := func(d limiter.Decision) (all string) {
		for _, h := range d.AppendHeaders(nil) {
			all += h.Name + ": " + h.Value + "\n"
		}
		kind, body := d.Body()
		return all + kind + string(body)
	}
	key, address := limiter.One("shop", "api_key", "secret-key"), limiter.One("shop", "remote_address", "192.0.2.1")
	first := allow(t, l, key)
	allow(t, l, key)
	for name, tt := range map[string]struct {
		d    limiter.Decision
		want string
	}{
		"allowed": {first, "ratelimit-policy: \"per-key\";q=2;w=60\nratelimit: \"per-key\";r=1;t=60\n"},
		"denied": {allow(t, l, key), "ratelimit-policy: \"per-key\";q=2;w=60\nratelimit: \"per-key\";r=0;t=60\nretry-after: 60\nretry-after-ms: 60000\napplication/problem+json" +
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"No room under rule per-key: 2 per 1m; try again in 60 s.","rule":"per-key","limit":2,"window":60,"retry_after":60,"violated-policies":["per-key"]}`},
		"two limits": {allow(t, l, address), "ratelimit-policy: \"per-address-1s\";q=5;w=1, \"per-address-1h\";q=9;w=3600\nratelimit: \"per-address-1s\";r=4;t=1\n"},
		"no limit":   {allow(t, l, limiter.One("shop", "x", "y")), ""},
		"zero":       {limiter.Decision{}, ""},
	} {
		if diff := cmp.Diff(tt.want, text(tt.d)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if strings.Contains(fmt.Sprintf("%+v", tt.d), "secret-key") {
			t.Errorf("%s: the decision has the API key", name)
		}
	}
}

func TestObserved(t *testing.T) {
	l, _ := newLimiter(t, parse(t, shop))
	req := limiter.One("shop", "watched", "x")
	allow(t, l, req)
	if d := allow(t, l, req); !d.Allowed || d.Observed != "watched" || d.Limited {
		t.Errorf("got %+v", d)
	}
}

func TestErrorsOfRequests(t *testing.T) {
	l, _ := newLimiter(t, parse(t, shop))
	for name, tt := range map[string]struct {
		req  limiter.Request
		is   error
		text string
	}{
		"no domain":      {limiter.One("", "api_key", "k"), limiter.ErrBadRequest, "no domain"},
		"no descriptors": {limiter.Request{Domain: "shop"}, limiter.ErrBadRequest, "no descriptors"},
		"descriptors":    {limiter.Request{Domain: "shop", Descriptors: make([]limiter.Descriptor, 257)}, limiter.ErrBadRequest, "257 descriptors"},
		"entries":        {limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Entries: make([]limiter.Entry, 4097)}}}, limiter.ErrBadRequest, "4097 entries"},
		"ask and cost":   {limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Ask: true, Cost: 1}}}, limiter.ErrBadRequest, "descriptor 0 asks"},
	} {
		d, err := l.Allow(t.Context(), tt.req)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) || d.Allowed {
			t.Errorf("%s: got %v, %v", name, d.Allowed, err)
		}
	}
	if _, err := limiter.New(broken{}, parse(t, shop)); !errors.Is(err, limiter.ErrInFlight) {
		t.Errorf("in flight on a store without ends: %v", err)
	}
}

// TestInFlight: a place is free after its release, which counts once, or when its hold expires.
func TestInFlight(t *testing.T) {
	l, c := newLimiter(t, parse(t, shop))
	upload := limiter.One("shop", "upload", "x")
	var held []limiter.Decision
	for range 3 {
		held = append(held, allow(t, l, upload))
	}
	full := func(when string, want bool) {
		t.Helper()
		ask := upload
		ask.Descriptors = []limiter.Descriptor{{Entries: upload.Descriptors[0].Entries, Ask: true}}
		if d := allow(t, l, ask); (d.Limit().Remaining == 0) != want {
			t.Errorf("%s: %d remaining, full is wanted: %v", when, d.Limit().Remaining, want)
		}
	}
	denied := allow(t, l, upload)
	if denied.Allowed || denied.Limit().Policy != "in_flight" || denied.Limit().Hits != 3 || denied.Limit().Window != 0 || denied.Limit().RetryAfter <= 0 {
		t.Errorf("the fourth: %+v", denied.Limit())
	}
	for _, d := range []limiter.Decision{denied, {}, allow(t, l, limiter.One("shop", "api_key", "k"))} {
		if err := d.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	full("after releases that hold nothing", true)
	copied := held[0]
	for range 2 {
		if err := errors.Join(held[0].Release(t.Context()), copied.Release(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if !allow(t, l, upload).Allowed || allow(t, l, upload).Allowed {
		t.Error("one release frees one place")
	}
	full("after one came", true)
	c.now += time.Minute
	full("after the hold", false)
	if err := held[1].Release(t.Context()); err != nil {
		t.Errorf("after the hold: %v", err)
	}
}

// TestInFlightConcurrent: never more are in flight than the limit, and none stays.
func TestInFlightConcurrent(t *testing.T) {
	l, _ := newLimiter(t, parse(t, shop))
	var now, most atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				d, err := l.Allow(t.Context(), limiter.One("shop", "upload", "x"))
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					for n := now.Add(1); n > most.Load(); {
						most.Store(n)
					}
					runtime.Gosched()
					now.Add(-1)
				}
				if err := d.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most.Load() > 3 || most.Load() == 0 {
		t.Errorf("%d were in flight at a time, want 3 at most", most.Load())
	}
	for range 3 {
		if !allow(t, l, limiter.One("shop", "upload", "x")).Allowed {
			t.Error("a place is still held")
		}
	}
}

// TestInFlightSwap: a request that begins before a Swap, and is decided by the new rules, gives its place
// back.
func TestInFlightSwap(t *testing.T) {
	upload := limiter.One("shop", "upload", "x").Descriptors
	// The digest of a large key takes so long that the Swap comes before the decision.
	slow := limiter.Request{Domain: "shop", Descriptors: append(limiter.One("", "api_key", strings.Repeat("k", 32<<20)).Descriptors, upload...)}
	before, after, _ := strings.Cut(shop, "  - {key: upload")
	for range 5 {
		l, _ := newLimiter(t, parse(t, before))
		with := parse(t, before+"  - {key: upload"+after)
		begun, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			close(begun)
			d, err := l.Allow(t.Context(), slow)
			if err := errors.Join(err, d.Release(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		<-begun
		if err := l.Swap(with); err != nil {
			t.Fatal(err)
		}
		<-done
		if d := allow(t, l, limiter.Request{Domain: "shop", Descriptors: upload}); d.Limit().Remaining != 2 {
			t.Fatalf("%d places remain, want 2: a released one is still held", d.Limit().Remaining)
		}
	}
}

// broken is a store that fails.
type broken struct{ window.Store }

var errBroken = errors.New("broken")

func (broken) Take(context.Context, bool, []window.Check, []window.Decision) (bool, error) {
	return true, errBroken
}

// withLocal is a broken store with a share beside it.
type withLocal struct {
	broken
	local window.Store
}

func (w withLocal) Local() window.Store { return w.local }

func TestStoreError(t *testing.T) {
	local := memstore.New(memstore.Options{})
	defer local.Close()
	for _, tt := range []struct {
		choice  string
		store   window.Store
		allowed bool
		err     error
		retry   time.Duration
	}{
		{"allow", broken{}, true, nil, 0},
		{"deny", broken{}, false, nil, time.Second},
		{"report", broken{}, false, errBroken, 0},
		{"local", broken{}, false, errBroken, 0},
		{"local", withLocal{local: local}, true, nil, 0},
	} {
		rules, err := limiter.MakeRules(limiter.Domain{Name: "d", Rules: []limiter.Rule{{
			Key:       "k",
			RateLimit: &limiter.RateLimit{OnStoreError: tt.choice, Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 5, Window: time.Minute}}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := limiter.New(tt.store, rules)
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.Allow(t.Context(), limiter.One("d", "k", "v"))
		if d.Allowed != tt.allowed || !errors.Is(err, tt.err) || d.Degraded != (err == nil) || d.Limit().RetryAfter != tt.retry {
			t.Errorf("%s: got %+v, %v", tt.choice, d, err)
		}
	}
}

// TestFormOfABody: a body of Go rules has the same names of forms as one in YAML.
func TestFormOfABody(t *testing.T) {
	made, err := limiter.MakeRules(limiter.Domain{Name: "d", Rules: []limiter.Rule{{
		Key:       "k",
		RateLimit: &limiter.RateLimit{Name: "r", Body: "openai", ClientRetry: "never", Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 0, Window: time.Minute}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := newLimiter(t, made)
	d := allow(t, l, limiter.One("d", "k", "v"))
	kind, body := d.Body()
	if want := `{"error":{"message":"No request passes under rule r: 0 per 1m.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`; kind != "application/json" || string(body) != want {
		t.Errorf("%s: %s", kind, body)
	}
}

// TestSwap: the history stays, and what cannot be swapped is refused.
func TestSwap(t *testing.T) {
	l, _ := newLimiter(t, parse(t, shop))
	key := limiter.One("shop", "api_key", "k")
	allow(t, l, key)
	allow(t, l, key)
	more := parse(t, strings.Replace(shop, "requests_per_unit: 2", "requests_per_unit: 10", 1))
	if err := l.Swap(more); err != nil {
		t.Fatal(err)
	}
	if d := allow(t, l, key); !d.Allowed || d.Limit().Hits != 10 || d.Limit().Remaining != 7 {
		t.Errorf("after the swap: %+v", d.Limit())
	}
	if err := l.Swap(more); err == nil || !strings.Contains(err.Error(), "in use already") {
		t.Errorf("the same rules again: %v", err)
	}
	if _, err := limiter.New(memstore.New(memstore.Options{SweepInterval: -1}), more); err == nil {
		t.Error("rules of another limiter were taken")
	}
	keyed, err := limiter.Source{Texts: []limiter.Text{{Name: "r", Data: []byte(shop)}}, Environ: []string{"SLIDEGATE_SECRETS_KEY=0123456789abcdef"}}.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Swap(keyed); err == nil || !strings.Contains(err.Error(), "digest API keys in another way") {
		t.Errorf("other secrets: %v", err)
	}
	if l.Rules() != more {
		t.Error("a refused swap changed the rules")
	}
}

// TestUnread: rules and a file system that do not exist are errors, not panics.
func TestUnread(t *testing.T) {
	l, _ := newLimiter(t, parse(t, shop))
	_, asNew := limiter.New(memstore.New(memstore.Options{SweepInterval: -1}), new(limiter.Rules))
	_, asFS := limiter.ReadFS(nil, "*.yaml")
	_, asPath := limiter.ReadRules("-")
	for want, err := range map[string]error{
		"limiter: New needs rules": asNew, "limiter: Swap needs rules": l.Swap(new(limiter.Rules)),
		"ReadFS needs a file system": asFS, "does not read standard input": asPath,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestConcurrent asks, and swaps meanwhile: no more is admitted than the limit.
func TestConcurrent(t *testing.T) {
	text := strings.Replace(shop, "requests_per_unit: 2", "requests_per_unit: 100", 1)
	l, _ := newLimiter(t, parse(t, text))
	var admitted [8]int
	var all sync.WaitGroup
	for i := range admitted {
		all.Go(func() {
			for range 100 {
				if d, err := l.Allow(t.Context(), limiter.One("shop", "api_key", "k")); err == nil && d.Allowed {
					admitted[i]++
				}
			}
		})
	}
	for range 20 {
		if err := l.Swap(parse(t, text)); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	sum := 0
	for _, n := range admitted {
		sum += n
	}
	if sum != 100 {
		t.Errorf("admitted %d, want 100", sum)
	}
}

// TestProblems: every mistake at once, with its place.
func TestProblems(t *testing.T) {
	const bad = "domain: a\ndescriptors:\n  - key: k\n    rate_limit: {unit: fortnight, requests_per_unit: 1}\n  - kye: x\n"
	wrong := limiter.Domain{Name: "go", Rules: []limiter.Rule{
		{Key: "", RateLimit: &limiter.RateLimit{Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 1, Window: time.Second}}}}},
		{Key: "b", RateLimit: &limiter.RateLimit{Terms: limiter.Terms{Limits: []limiter.Limit{{Policy: "token_bucket", Window: time.Second, Requests: 1}}}}},
	}}
	for name, tt := range map[string]struct {
		source limiter.Source
		want   []string
	}{
		"nothing": {limiter.Source{}, []string{"no rules: give"}},
		"yaml":    {limiter.Source{Texts: []limiter.Text{{Name: "r.yaml", Data: []byte(bad)}}}, []string{"r.yaml:4:", "r.yaml:5:", "fortnight", "kye"}},
		"go":      {limiter.Source{Domains: []limiter.Domain{wrong}}, []string{"domain go: descriptors[0].key: a descriptor key cannot be empty", "domain go: descriptors[b].rate_limit"}},
		"no file": {limiter.Source{Paths: []string{"/nonexistent/rules.yaml"}}, []string{"/nonexistent/rules.yaml"}},
		"setting": {limiter.Source{Texts: []limiter.Text{{Name: "r", Data: []byte(shop)}}, Environ: []string{"SLIDEGATE_STORE_TYPE=disk"}}, []string{"SLIDEGATE_STORE_TYPE"}},
		"source":  {limiter.Source{Texts: []limiter.Text{{Name: "r", Data: []byte(shop)}}, Environ: []string{"SLIDEGATE_TIERS_SOURCE=http", "SLIDEGATE_TIERS_HTTP_URL=http://127.0.0.1:1/"}}, []string{"tiers.source"}},
		"no name": {limiter.Source{Domains: []limiter.Domain{{}}}, []string{"domain without a name: domain: a domain needs a name"}},
		"UTF-8":   {limiter.Source{Domains: []limiter.Domain{{Name: "a\xff"}}}, []string{"not UTF-8"}},
		"twice":   {limiter.Source{Texts: []limiter.Text{{Name: "r", Data: []byte(shop)}, {Name: "s", Data: []byte(shop)}}}, []string{"s:2", "a second domain"}},
	} {
		_, err := tt.source.Read()
		var problems limiter.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: got %v, want problems", name, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in\n%v", name, want, err)
			}
		}
	}
}

// TestMadeRules: rules made in Go mean what the same rules mean in YAML.
func TestMadeRules(t *testing.T) {
	made, err := limiter.MakeRules(limiter.Domain{Name: "shop", Rules: []limiter.Rule{
		{Key: "s", RateLimit: &limiter.RateLimit{Name: "s", Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 5, Window: 90 * time.Second}}}}},
		{Key: "b", RateLimit: &limiter.RateLimit{Name: "b", Terms: limiter.Terms{Limits: []limiter.Limit{{Policy: "token_bucket", Rate: "1/s", Burst: 7}}}}},
		{Key: "c", RateLimit: &limiter.RateLimit{Name: "c", Terms: limiter.Terms{Limits: []limiter.Limit{{Policy: "calendar", Unit: "month", Requests: 9, TimeZone: "Europe/Berlin"}}}}},
		{Key: "f", RateLimit: &limiter.RateLimit{Name: "f", Terms: limiter.Terms{Limits: []limiter.Limit{{Policy: "in_flight", Max: 4, Hold: time.Minute}}}}},
		{Key: "none", RateLimit: &limiter.RateLimit{Name: "none", Terms: limiter.Terms{Limits: []limiter.Limit{{Window: time.Second}}}}},
		{Key: "free", RateLimit: &limiter.RateLimit{Name: "free", Terms: limiter.Terms{Unlimited: true}}},
		{Key: "odd", Value: "a\u0085 \u007f\ufeff\u2028: {\U0001f600\"", RateLimit: &limiter.RateLimit{Name: "odd", Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 3, Window: time.Second}}}}},
		{Key: "remote_address", Value: "2001:DB8:0::1", RateLimit: &limiter.RateLimit{Name: "address", Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 0, Window: time.Minute}}}}},
		{Key: "up", Value: "a*", Rules: []limiter.Rule{{Key: "down", RateLimit: &limiter.RateLimit{Name: "down", Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 1, Window: time.Second, Policy: "fixed"}}}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := newLimiter(t, made)
	for _, tt := range []struct {
		entries []limiter.Entry
		want    string
	}{
		{[]limiter.Entry{{Key: "s", Value: "v"}}, "sliding 5 1m30s"},
		{[]limiter.Entry{{Key: "b", Value: "v"}}, "token_bucket 7 7s"},
		{[]limiter.Entry{{Key: "c", Value: "v"}}, "calendar 9 720h0m0s"},
		{[]limiter.Entry{{Key: "f", Value: "v"}}, "in_flight 4 0s"},
		{[]limiter.Entry{{Key: "none", Value: "v"}}, "sliding 0 1s"},
		{[]limiter.Entry{{Key: "free", Value: "v"}}, " 0 0s"},
		{[]limiter.Entry{{Key: "odd", Value: "a\u0085 \u007f\ufeff\u2028: {\U0001f600\""}}, "sliding 3 1s"},
		{[]limiter.Entry{{Key: "remote_address", Value: "2001:db8::1"}}, "sliding 0 1m0s"},
		{[]limiter.Entry{{Key: "up", Value: "abc"}, {Key: "down", Value: "v"}}, "fixed 1 1s"},
	} {
		d := allow(t, l, limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Entries: tt.entries}}})
		if got := fmt.Sprint(d.Limit().Policy, " ", d.Limit().Hits, " ", d.Limit().Window); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.entries, got, tt.want)
		}
	}
}

// TestMadeRulesOfRegions: rules that are made in Go say in which store they count and which requests are
// charged once.
func TestMadeRulesOfRegions(t *testing.T) {
	terms := limiter.Terms{Limits: []limiter.Limit{{Requests: 10, Window: time.Hour, Lease: "10%"}}}
	rules := []limiter.Rule{
		{Key: "first", RateLimit: &limiter.RateLimit{Name: "first", Terms: terms, Priority: "high"}},
		{Key: "once", RateLimit: &limiter.RateLimit{Name: "once", Terms: terms, ChargeOnce: &limiter.ChargeOnce{Entry: "idempotency_key", For: time.Minute, Retries: 1}}},
		{Key: "default", RateLimit: &limiter.RateLimit{Name: "default", Terms: terms, ChargeOnce: &limiter.ChargeOnce{Entry: "idempotency_key"}}},
	}
	made, err := limiter.MakeRules(limiter.Domain{Name: "shop", Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := newLimiter(t, made)
	for _, tt := range []struct {
		key       string
		remaining []uint64
	}{{"once", []uint64{9, 9, 8}}, {"default", []uint64{9, 9, 9, 9, 8}}} {
		for i, want := range tt.remaining {
			r := limiter.Request{Domain: "shop", Descriptors: []limiter.Descriptor{{Entries: []limiter.Entry{{Key: tt.key, Value: "v"}, {Key: "idempotency_key", Value: "a"}}}}}
			if d := allow(t, l, r); d.Limit().Remaining != want {
				t.Errorf("%s, attempt %d: %d remain, want %d", tt.key, i+1, d.Limit().Remaining, want)
			}
		}
	}
	regions := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(regions, []byte("store: {type: redis, scopes: {global: {redis: {url: redis://127.0.0.1:1}}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	global := limiter.Domain{Name: "shop", Rules: []limiter.Rule{{Key: "k", RateLimit: &limiter.RateLimit{Scope: "global", Terms: terms}}}}
	shared, err := limiter.Source{Paths: []string{regions}, Domains: []limiter.Domain{global}}.Read()
	if err != nil {
		t.Fatal(err)
	}
	l, _ = newLimiter(t, shared)
	if d := allow(t, l, limiter.One("shop", "k", "v")); d.Limit().Remaining != 9 {
		t.Errorf("the scope global: %d remain, want 9", d.Limit().Remaining)
	}
	two := limiter.Terms{Limits: slices.Repeat(terms.Limits, 2)}
	for name, wrong := range map[string]limiter.RateLimit{
		"charge always cannot be combined with a lease":              {Charge: "always", Terms: terms},
		"a second limit for the same window, the first is before it": {Terms: two},
		"rate_limit.scope":                    {Scope: "global", Terms: terms},
		"rate_limit.priority":                 {Priority: "urgent", Terms: terms},
		"rate_limit.charge_once.entry":        {ChargeOnce: &limiter.ChargeOnce{}, Terms: terms},
		"rate_limit.charge_once.for":          {ChargeOnce: &limiter.ChargeOnce{Entry: "e", For: time.Millisecond}, Terms: terms},
		"rate_limit.charge_once.retries":      {ChargeOnce: &limiter.ChargeOnce{Entry: "e", Retries: 101}, Terms: terms},
		"descriptors[k].rate_limit.limits[0]": {Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 1, Window: time.Second, Lease: "much"}}}},
	} {
		if _, err := limiter.MakeRules(limiter.Domain{Name: "shop", Rules: []limiter.Rule{{Key: "k", RateLimit: &wrong}}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want a problem there", name, err)
		}
	}
}

func TestReadFS(t *testing.T) {
	fsys := fstest.MapFS{"rules/a.yaml": {Data: []byte(shop)}, "rules/b.yaml": {Data: []byte("domain: b\ndescriptors: []\n")}}
	rules, err := limiter.ReadFS(fsys, "rules/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !rules.HasDomain("shop") || !rules.HasDomain("b") || rules.HasDomain("edge") {
		t.Error("the domains are not those of the files")
	}
	for _, pattern := range []string{"none/*", "["} {
		if _, err := limiter.ReadFS(fsys, pattern); err == nil {
			t.Errorf("%s: no error", pattern)
		}
	}
}

// FuzzMakeRules: whatever the texts are, there are rules or problems, and the rules are those of the
// texts.
func FuzzMakeRules(f *testing.F) {
	f.Add("shop", "api_key", "v", "sliding", "10/s", "month", "per-key", uint64(1), int64(time.Minute))
	f.Add("a: b\n---\n", "{", "*a*", "token_bucket", "1/s", "", "\"", uint64(0), int64(-1))
	f.Add("\xff", "\u2028", "~", "in_flight", "null", "0", "&a *a", uint64(1<<63), int64(1<<62))
	f.Fuzz(func(t *testing.T, domain, key, value, policy, rate, unit, name string, n uint64, win int64) {
		rules, err := limiter.MakeRules(limiter.Domain{Name: domain, Rules: []limiter.Rule{{
			Key: key, Value: value, RateLimit: &limiter.RateLimit{Name: name, Terms: limiter.Terms{Limits: []limiter.Limit{
				{Policy: policy, Rate: rate, Burst: n, Unit: unit, Requests: n, Window: time.Duration(win)},
			}}},
		}, {Key: key + "2", Value: value, RateLimit: &limiter.RateLimit{Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: n, Window: time.Duration(win)}}}}}}})
		var problems limiter.Problems
		switch {
		case err == nil && !rules.HasDomain(domain):
			t.Errorf("no domain %q", domain)
		case err != nil && (!errors.As(err, &problems) || len(problems) == 0 || strings.TrimSpace(err.Error()) == ""):
			t.Errorf("the error is %q, want problems", err)
		}
	})
}

// TestWait: a request waits until it has room, and no longer than its context allows.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules, err := limiter.MakeRules(limiter.Domain{Name: "d", Rules: []limiter.Rule{{
			Key: "k", RateLimit: &limiter.RateLimit{Name: "r", Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: 2, Window: 10 * time.Second}}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := limiter.New(memstore.New(memstore.Options{SweepInterval: -1}), rules)
		if err != nil {
			t.Fatal(err)
		}
		ask := limiter.One("d", "k", "v")
		start := time.Now()
		for range 4 {
			if d, err := l.Wait(t.Context(), ask); err != nil || !d.Allowed {
				t.Fatalf("got %+v, %v", d, err)
			}
		}
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("four requests under 2 in 10s took %v", took)
		}
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start = time.Now()
		if _, err := l.Wait(short, ask); !errors.Is(err, limiter.ErrDeadline) || time.Since(start) > time.Second {
			t.Errorf("a wait of 10s with 5s left: %v after %v", err, time.Since(start))
		}
		large := ask
		large.Descriptors = []limiter.Descriptor{{Entries: ask.Descriptors[0].Entries, Cost: 3}}
		if _, err := l.Wait(t.Context(), large); !errors.Is(err, limiter.ErrNever) {
			t.Errorf("a cost of 3 under 2: %v", err)
		}
		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, leave)
		if _, err := l.Wait(leaving, ask); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that leaves: %v", err)
		}
	})
}

// TestSettle: a request reserves its estimate, and pays what it has cost.
func TestSettle(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	rules, err := limiter.MakeRules(limiter.Domain{Name: "shop", Rules: []limiter.Rule{{
		Key: "tokens",
		RateLimit: &limiter.RateLimit{Terms: limiter.Terms{Limits: []limiter.Limit{{
			Requests: 1000, Window: time.Hour, Budget: &limiter.Budget{Reserve: 100, Max: 600, Hold: time.Minute},
		}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(store, rules)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(cost uint64) (limiter.Request, limiter.Decision) {
		t.Helper()
		req := limiter.One("shop", "tokens", "x")
		req.Descriptors[0].Cost = cost
		d, err := l.Allow(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return req, d
	}
	first, one := ask(600)
	_, two := ask(0)
	_, three := ask(301)
	if !one.Allowed || !two.Allowed || three.Allowed || two.Limit().Remaining != 300 {
		t.Fatalf("%v %v %v, %d remain, want 300", one.Allowed, two.Allowed, three.Allowed, two.Limit().Remaining)
	}
	first.Descriptors[0].Cost = 50
	for _, err := range []error{one.Settle(t.Context(), first), one.Release(t.Context()), two.Release(t.Context()), three.Settle(t.Context(), first)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, d := ask(600); d.Limit().Remaining != 250 { // 50 and the estimate of 100 are spent
		t.Errorf("%d remain, want 250", d.Limit().Remaining)
	}
	if err := one.Settle(t.Context(), limiter.Request{Domain: "shop"}); !errors.Is(err, limiter.ErrBadRequest) {
		t.Errorf("a settlement without descriptors: %v", err)
	}
}
