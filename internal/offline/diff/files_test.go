package diff_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/diff"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/tree"
)

const tiers = "tiers: [free, pro]\ndefault: free\nsubjects:\n  - {id: acme, tier: pro, keys: [{plain: k1}]}\n  - {id: hobby, tier: free, keys: [{plain: k2}], overrides: {r0: {window: 1m, requests: 7}}}\n"

// load loads files of rules, and the tiers.
func load(t testing.TB, tiers string, files ...string) (diff.Set, error) {
	t.Helper()
	dir := t.TempDir()
	s := settings.Default()
	s.Rules.Path, s.Tiers.Path = filepath.Join(dir, "rules"), filepath.Join(dir, "tiers.yaml")
	s.Rules.MergeDomains = true
	if err := os.Mkdir(s.Rules.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		tree.Write(t, name, text)
	}
	write(s.Tiers.Path, tiers)
	for i, text := range files {
		write(filepath.Join(s.Rules.Path, fmt.Sprintf("%d.yaml", i)), text)
	}
	g, err := config.Load(s)
	if err != nil {
		return diff.Set{}, err
	}
	set := diff.Set{Path: "rules", Rules: g.Rules}
	for _, p := range g.Locations {
		set.Locations = append(set.Locations, p.String())
	}
	return set, nil
}

func mustLoad(t testing.TB, tiers string, files ...string) diff.Set {
	t.Helper()
	set, err := load(t, tiers, files...)
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(files, "\n---\n"))
	}
	return set
}

// ways are pairs of limits that mean the same.
var ways = [][2]string{
	{"window: 60s, requests: 5", "unit: minute, requests_per_unit: 5"},
	{"window: 1m, requests: 5", "limits: [{window: 60000ms, requests: 5}]"},
	{"window: 1d, requests: 9, cost: 1", "window: 24h, requests: 9"},
	{"policy: token_bucket, rate: 60/m, burst: 9", "policy: token_bucket, burst: 9, rate: 60/60s"},
	{"limits: [{window: 1s, requests: 2}, {window: 1m, requests: 50}]", "limits: [{window: 60s, requests: 50}, {window: 1000ms, requests: 2}]"},
	{"by_tier: {free: {window: 1s, requests: 2}, pro: {unlimited: true}}", "by_tier: {pro: {unlimited: true}, free: {limits: [{unit: second, requests_per_unit: 2}]}}"},
	{"unlimited: true", "unlimited: yes"},
}

// TestSameMeaning: the order of rules, the files that have them and the way in which limits are
// written are no change.
func TestSameMeaning(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 150 {
		var one, two []string
		for i := range 1 + rnd.IntN(10) {
			w := ways[rnd.IntN(len(ways))]
			value := fmt.Sprintf("v%d", i)
			if rnd.IntN(3) == 0 {
				value += "*" // these patterns fit no common value
			}
			rule := func(limit string) string {
				if strings.HasPrefix(limit, "unlimited: ") {
					return fmt.Sprintf("  - {key: route, value: %q, descriptors: [{key: api_key, rate_limit: {name: r%d, %s}}]}\n", value, i, limit)
				}
				return fmt.Sprintf("  - key: route\n    value: '%s'\n    descriptors:\n      - {key: api_key, rate_limit: {name: r%d, %s}}\n", value, i, limit)
			}
			one, two = append(one, rule(w[0])), append(two, rule(w[1]))
		}
		rnd.Shuffle(len(two), func(i, j int) { two[i], two[j] = two[j], two[i] })
		cut := rnd.IntN(len(two) + 1)
		head := "domain: edge\ndescriptors:\n"
		var files []string
		for _, rules := range [][]string{two[:cut], two[cut:]} {
			if len(rules) > 0 {
				files = append(files, head+strings.Join(rules, ""))
			}
		}
		old, now := mustLoad(t, tiers, head+strings.Join(one, "")), mustLoad(t, tiers, files...)
		if r := diff.Compare(old, now); r.Changed {
			text, _ := json.MarshalIndent(r, "", " ")
			t.Fatalf("seed %d: %s\n%s\nis told to differ from\n%s", seed, text, strings.Join(one, ""), strings.Join(files, "---\n"))
		}
	}
}

// TestOrderOfPatternsThatMeet: where two patterns fit the same value, their order is a change.
func TestOrderOfPatternsThatMeet(t *testing.T) {
	a, b := "  - {key: k, value: \"a*\", rate_limit: {name: a, unit: day, requests_per_unit: 1}}\n", "  - {key: k, value: \"*b\", rate_limit: {name: b, unit: day, requests_per_unit: 2}}\n"
	head := "domain: d\ndescriptors:\n"
	r := diff.Compare(mustLoad(t, tiers, head+a+b), mustLoad(t, tiers, head+b+a))
	if len(r.Matches) != 1 || len(r.Rules) != 0 {
		t.Fatalf("%+v", r)
	}
	m := r.Matches[0]
	if m.Descriptor != "k=a*b" || m.OldRule != "a" || m.NewRule != "b" || m.History != diff.Empty {
		t.Errorf("%+v", m)
	}
	want := "d: [k=a*b] matched a, now b; starts empty"
	if got := m.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestVerdictsAndHistory: what one change of a limit is told to be.
func TestVerdictsAndHistory(t *testing.T) {
	for _, c := range []struct {
		name, old, now string
		verdict        diff.Verdict
		history, worst string
	}{
		{"fewer hits", "window: 1m, requests: 9", "window: 1m, requests: 5", diff.Stricter, diff.Kept, "9 in any 1m → 5 in any 1m"},
		{"more hits", "window: 1m, requests: 5", "window: 1m, requests: 9", diff.Looser, diff.Kept, "5 in any 1m → 9 in any 1m"},
		{"a longer window", "window: 1m, requests: 5", "window: 1h, requests: 5", diff.Stricter, diff.Empty, "5 in any 1m → 5 in any 1h"},
		{"more in a longer window", "window: 1m, requests: 5", "window: 1h, requests: 50", diff.Both, diff.Empty, "5 in any 1m → 50 in any 1h"},
		{"another policy", "window: 1m, requests: 5", "policy: fixed, window: 1m, requests: 5", diff.Looser, diff.Empty, "5 in any 1m → 10 in any 1m"},
		{"another kind", "window: 1m, requests: 60", "policy: token_bucket, rate: 1/s, burst: 60", diff.Both, diff.Empty, "60 in any 1m → 61 in any 1s"},
		{"a shorter window, with reports", "window: 1m, requests: 10, charge: always", "window: 30s, requests: 5, charge: always", diff.Both, diff.Empty, "10 in any 1m → 5 in any 30s"},
		{"a shorter fixed window, with reports", "policy: fixed, window: 1m, requests: 10, charge: always", "policy: fixed, window: 30s, requests: 5, charge: always", diff.Both, diff.Empty, "20 in any 1m → 10 in any 30s"},
		{"a longer window, with reports", "window: 1m, requests: 10, charge: always", "window: 1h, requests: 10, charge: always", diff.Stricter, diff.Empty, "10 in any 1m → 10 in any 1h"},
		{"halves of a window", "window: 1m, requests: 10", "window: 30s, requests: 5", diff.Stricter, diff.Empty, "10 in any 1m → 5 in any 30s"},
		{"halves of a window whose log has milliseconds", "window: 168h, requests: 10", "window: 84h, requests: 5", diff.Both, diff.Empty, "10 in any 1w → 5 in any 84h"},
		{"a precision", "window: 1m, requests: 10, precision: 5s", "window: 1m, requests: 10, precision: 10s", diff.Both, diff.Kept, ""},
		{"a larger bucket", "policy: token_bucket, rate: 1/s, burst: 5", "policy: token_bucket, rate: 1/s, burst: 9", diff.Looser, diff.Kept, "6 in any 1s → 10 in any 1s"},
		{"a slower bucket", "policy: token_bucket, rate: 1/s, burst: 5", "policy: token_bucket, rate: 1/m, burst: 5", diff.Stricter, diff.Empty, "6 in any 1s → 6 in any 1m"},
		{"one more limit", "window: 1m, requests: 5", "limits: [{window: 1m, requests: 5}, {window: 1h, requests: 9}]", diff.Stricter, diff.Partly, "5 in any 1m → 5 in any 1m and 9 in any 1h"},
		{"no limit", "window: 1m, requests: 5", "unlimited: true", diff.Looser, "", "5 in any 1m → any number"},
		{"in flight", "policy: in_flight, max: 5, hold: 1m", "policy: in_flight, max: 3, hold: 2m", diff.Stricter, diff.Kept, "5 at the same time → 3 at the same time"},
		{"only observed", "window: 1m, requests: 9, observe: 100%", "window: 1m, requests: 5, observe: 100%", diff.Neither, diff.Kept, "9 in any 1m → 5 in any 1m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule := func(limit string) string {
				return "domain: d\ndescriptors:\n  - {key: api_key, rate_limit: {name: r, " + limit + "}}\n"
			}
			r := diff.Compare(mustLoad(t, tiers, rule(c.old)), mustLoad(t, tiers, rule(c.now)))
			if len(r.Rules) != 1 || len(r.Rules[0].Changes) != 1 {
				t.Fatalf("%+v", r)
			}
			if got := r.Rules[0].Changes[0]; got.Verdict != c.verdict || got.History != c.history || got.Worst != c.worst || r.Verdict != c.verdict {
				t.Errorf("%+v, want %s, history %q, worst %q", got, c.verdict, c.history, c.worst)
			}
		})
	}
}

// TestVerdictsOfOverrides: if limits that subjects have of their own make it uncertain what passes, the
// verdict is Both.
func TestVerdictsOfOverrides(t *testing.T) {
	rule := func(value, rest string) string {
		return fmt.Sprintf("domain: d\ndescriptors:\n  - key: k\n    value: %q\n    descriptors:\n      - {key: api_key, %s}\n", value, rest)
	}
	const (
		enforced = "rate_limit: {name: r0, window: 1m, requests: 5}"
		observed = "rate_limit: {name: r0, window: 1m, requests: 5, observe: 100%}"
		none     = "rate_limit: {name: r0, unlimited: true}"
		shared   = `value: "*", share_threshold: true, ` + enforced
	)
	higher := strings.Replace(tiers, "requests: 7", "requests: 9", 1)
	for name, c := range map[string]struct {
		old, now, tiers string
		want            diff.Verdict
	}{
		"a higher override": {rule("a*", enforced), rule("a*", enforced), higher, diff.Looser},
		"a higher override, on a counter that others share": {rule("a*", shared), rule("a*", shared), higher, diff.Both},
		"another rule": {rule("a*", observed), rule("*", none), tiers, diff.Both},
	} {
		r := diff.Compare(mustLoad(t, tiers, c.old), mustLoad(t, c.tiers, c.now))
		var got []diff.Verdict
		for i := range r.Subjects {
			got = append(got, r.Subjects[i].Verdict)
		}
		for i := range r.Matches {
			if m := &r.Matches[i]; m.OldRule != "" && m.NewRule != "" {
				got = append(got, m.Verdict)
			}
		}
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestLimitsOfTiers: the limits that a tier carries for Envoy are compared by their names.
func TestLimitsOfTiers(t *testing.T) {
	rules := "domain: d\ndescriptors:\n  - {key: api_key, rate_limit: {name: r0, window: 1m, requests: 5}}\n"
	carrying := func(limits string) diff.Set {
		return mustLoad(t, "default: free\ntiers: {free: {"+limits+"}, pro: {}}\n", rules)
	}
	for _, c := range []struct {
		old, now, want string
		verdict        diff.Verdict
	}{
		{"limit: {unit: minute, requests_per_unit: 9}", "limit: {unit: MINUTE, requests_per_unit: 9}", "", diff.Neither},
		{"limit: {unit: minute, requests_per_unit: 9}", "limit: {unit: minute, requests_per_unit: 8}", "limit: 9 per minute → 8 per minute", diff.Stricter},
		{"limit: {unit: minute, requests_per_unit: 9}", "limit: {unit: minute, requests_per_unit: 10}", "limit: 9 per minute → 10 per minute", diff.Looser},
		{"limit: {unit: minute, requests_per_unit: 9}", "limit: {unit: hour, requests_per_unit: 9}", "limit: 9 per minute → 9 per hour", diff.Both},
		{"", "limits: {tokens: {unit: hour, requests_per_unit: 9}}", "limit_tokens: 9 per hour", diff.Both},
	} {
		r := diff.Compare(carrying(c.old), carrying(c.now))
		var got []string
		for i := range r.Tiers {
			for n := range r.Tiers[i].Changes {
				got = append(got, r.Tiers[i].Changes[n].String())
			}
		}
		if strings.Join(got, "; ") != c.want || r.Verdict != c.verdict || r.Changed != (c.want != "") {
			t.Errorf("%s, then %s: got %q, %s, want %q, %s", c.old, c.now, got, r.Verdict, c.want, c.verdict)
		}
	}
}

// TestSubjectsWithoutKeys: a report names subjects, counts keys, and has no digest of one.
func TestSubjectsWithoutKeys(t *testing.T) {
	rules := "domain: d\ndescriptors:\n  - {key: api_key, rate_limit: {name: r0, by_tier: {free: {window: 1m, requests: 5}, pro: {window: 1m, requests: 50}}}}\n  - {key: api_key, value: k3, rate_limit: {name: fixed, window: 1m, requests: 1}}\n"
	now := strings.NewReplacer("id: acme, tier: pro", "id: acme, tier: free", "plain: k2}", "plain: k5}, {plain: k6}", "requests: 7", "requests: 8").Replace(tiers)
	r := diff.Compare(mustLoad(t, tiers, rules), mustLoad(t, now, strings.Replace(rules, "value: k3", "value: k4", 1)))
	var got []string
	for i := range r.Subjects {
		got = append(got, r.Subjects[i].String())
	}
	want := "other tier: pro → free: acme\noverrides: hobby\nAPI keys: 1 removed, 2 added: hobby"
	if strings.Join(got, "\n") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, "\n"), want)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	set := mustLoad(t, tiers, rules)
	for _, r := range set.Rules.All() {
		for _, n := range r.Path {
			if n.Value != "" && bytes.Contains(text, []byte(n.Value)) {
				t.Errorf("the report has the digest of a key: %s", text)
			}
		}
	}
}

// FuzzCompare: no two valid sets make Compare panic, and a set is like itself.
func FuzzCompare(f *testing.F) {
	head := "domain: d\ndescriptors:\n"
	f.Add(head+"  - {key: k, value: \"a*\", rate_limit: {unit: day, requests_per_unit: 1}}\n", head+"  - {key: k, value: \"*a\", rate_limit: {unit: day, requests_per_unit: 1}}\n")
	f.Add(head+"  - {key: api_key, rate_limit: {name: r, by_tier: {free: {window: 1m, requests: 5}, pro: {unlimited: true}}}}\n", head+"  - {key: api_key, rate_limit: {name: r, policy: calendar, unit: month, requests: 5}}\n")
	f.Add(head+"  - {key: a, descriptors: [{key: b, value: \"*\", share_threshold: true, rate_limit: {policy: in_flight, max: 1, hold: 1s, replaces: [{name: x}]}}]}\n", "domain: e\n")
	f.Add("", "")
	s := settings.Default()
	s.Tiers.Path = filepath.Join(f.TempDir(), "tiers.yaml")
	if err := os.WriteFile(s.Tiers.Path, []byte(tiers), 0o600); err != nil {
		f.Fatal(err)
	}
	read := func(text string) (set diff.Set, err error) {
		in, err := config.NewInput([]string{files.Stdin}, strings.NewReader(text))
		if err != nil || in.Rules == nil {
			return set, cmp.Or(err, errors.New("no rules"))
		}
		g, err := in.Load(s)
		if err != nil {
			return set, err
		}
		return diff.Set{Path: "rules", Rules: g.Rules}, nil
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		old, err := read(one)
		if err != nil {
			return
		}
		if r := diff.Compare(old, old); r.Changed && r.Incomplete == "" {
			t.Errorf("a set differs from itself: %+v", r)
		}
		now, err := read(two)
		if err != nil {
			return
		}
		r := diff.Compare(old, now)
		r.WriteText(io.Discard, false)
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// A service is what a running service has: rules, a store with a clock, and an Insight.
type service struct {
	t     *testing.T
	set   diff.Set
	store *memstore.Store
	clock time.Duration
}

func newService(t *testing.T, set diff.Set) *service {
	t.Helper()
	s := &service{t: t, set: set, clock: 1000 * time.Hour}
	s.store = memstore.New(memstore.Options{Clock: func() time.Duration { return s.clock }, SweepInterval: -1})
	t.Cleanup(func() { s.store.Close() })
	return s
}

// ask decides a request of an API key by rules, and reports whether it passes.
func (s *service) ask(rs *rules.Rules, key string) bool {
	s.t.Helper()
	d := decide.NewDecider(rs, decide.Options{Store: s.store, Clock: func() time.Duration { return s.clock }})
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	var c decide.Call
	d.Begin(&c, decide.Request{Domain: "d", Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{{Key: "api_key", Value: secrets.Value("api_key", key)}}, Cost: 1}}})
	if _, err := c.Decide(context.Background(), window.MayWait); err != nil {
		s.t.Fatal(err)
	}
	return c.Verdict().Allowed
}

// logs returns what the admin port lists.
func (s *service) logs() (all []insight.LimitUsage) {
	s.t.Helper()
	in := insight.New(insight.Options{Rules: func() *rules.Rules { return s.set.Rules }, Inspector: s.store, Store: "memory"})
	defer in.Close()
	for q := (insight.LogsQuery{}); ; {
		l, err := in.Logs(s.t.Context(), q)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, l.Logs...)
		if q.Cursor = l.Next; q.Cursor == "" {
			return all
		}
	}
}

// liveTiers are customers c0 to c9 with the keys k0 to k9.
func liveTiers() string {
	var b strings.Builder
	b.WriteString("tiers: [free]\ndefault: free\nsubjects:\n")
	for i := range 10 {
		fmt.Fprintf(&b, "  - {id: c%d, keys: [{plain: k%d}]}\n", i, i)
	}
	return b.String()
}

func liveRule(limit string) string {
	return "domain: d\ndescriptors:\n  - {key: api_key, rate_limit: {name: r, " + limit + "}}\n"
}

// TestLiveIsWhatTheNewRulesDecide: where the log is kept, the new rules deny the next request of each
// caller that is named, on the same store, and of no other caller.
func TestLiveIsWhatTheNewRulesDecide(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	denied := 0
	for n := range 60 {
		hits := 1 + rnd.IntN(30)
		old, now := "window: 1m, requests: 40", fmt.Sprintf("window: 1m, requests: %d", hits)
		switch n % 4 {
		case 1:
			old, now = "policy: token_bucket, rate: 10/m, burst: 20", fmt.Sprintf("policy: token_bucket, rate: 10/m, burst: %d", hits)
		case 2:
			old, now = "policy: fixed, window: 1m, requests: 40", fmt.Sprintf("policy: fixed, window: 1m, requests: %d", hits)
		case 3:
			now += ", cost: 3"
		}
		was, is := mustLoad(t, liveTiers(), liveRule(old)), mustLoad(t, liveTiers(), liveRule(now))
		s := newService(t, was)
		for range 150 {
			s.ask(was.Rules, fmt.Sprintf("k%d", rnd.IntN(10)))
			s.clock += time.Duration(rnd.IntN(700)) * time.Millisecond
		}
		r := diff.Compare(was, is)
		logs := s.logs()
		r.AddLive(was, is, [][]insight.LimitUsage{logs}, nil)
		if !r.Changed {
			continue
		}
		named := make(map[string]diff.LiveCaller)
		for _, l := range r.Live.Limits {
			if l.Logs != len(logs) || l.Unknown != 0 || l.Denied != len(l.Callers)+l.LeftOut || l.History != diff.Kept {
				t.Fatalf("seed %d, %s: %+v of %d logs", seed, now, l, len(logs))
			}
			for _, p := range l.Callers {
				named[p.Who] = p
			}
		}
		for i := range 10 {
			p, ok := named[fmt.Sprintf("c%d", i)]
			passes := s.ask(is.Rules, fmt.Sprintf("k%d", i))
			if passes == ok {
				t.Errorf("seed %d, %s → %s: c%d passes: %v, but the report says %v %+v", seed, old, now, i, passes, ok, p)
			}
			if !passes {
				denied++
			}
		}
	}
	if denied < 10 {
		t.Errorf("seed %d: only %d were denied", seed, denied)
	}
}

// TestLiveTexts: what an operator reads.
func TestLiveTexts(t *testing.T) {
	was := mustLoad(t, liveTiers(), liveRule("window: 1m, requests: 100"))
	s := newService(t, was)
	for range 87 {
		s.ask(was.Rules, "k0")
	}
	s.ask(was.Rules, "k1")
	logs := s.logs()
	for _, c := range []struct{ now, want string }{
		{"window: 1m, requests: 50", "would be denied now: 1 of 2; c0 (used 87 of 50 new, 100 old)"},
		{"window: 1m, requests: 50, observe: 100%", "would be denied now if it were not only observed: 1 of 2; c0 (used 87 of 50 new, 100 old)"},
		{"window: 1h, requests: 50", "starts empty: not comparable"},
		{"policy: fixed, window: 1m, requests: 50", "starts empty: not comparable"},
		{"policy: token_bucket, rate: 60/m, burst: 50", "starts empty: not comparable"},
		{"policy: in_flight, max: 50, hold: 1m", "starts empty: not comparable"},
		{"limits: [{window: 1m, requests: 50}, {window: 1h, requests: 99}]", "would be denied now: 1 of 2; c0 (used 87 of 50 new, 100 old); starts empty: not comparable"},
		{"window: 1m, requests: 200", "would be denied now: 0 of 2"},
		{"unlimited: true", ""},
	} {
		is := mustLoad(t, liveTiers(), liveRule(c.now))
		r := diff.Compare(was, is)
		r.AddLive(was, is, [][]insight.LimitUsage{logs}, nil)
		var parts []string
		for i := range r.Live.Limits {
			l := &r.Live.Limits[i]
			parts = append(parts, l.String())
			for n := range l.Callers {
				parts = append(parts, l.Callers[n].String())
			}
		}
		if got := strings.Join(parts, "; "); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.now, got, c.want)
		}
	}
}
