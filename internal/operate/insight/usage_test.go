package insight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/fallback"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// The API keys of tests. No answer may have one.
const (
	plantedKey   = "sk_planted_acme_0123456789"
	strangersKey = "sk_planted_stranger_0123456789"
)

// A counted is an Insight with what it asks about: rules, a store with a clock, and a decider.
type counted struct {
	*Insight
	t       testing.TB
	rules   *rules.Rules
	store   *memstore.Store
	decider *decide.Decider
	clock   *time.Duration
	log     *bytes.Buffer
	removed int
}

func limitOf(hits uint64, w time.Duration) rules.Limit {
	l := window.Limit{Hits: hits, Window: w}
	return rules.Limit{Limit: l, Precision: window.Precision(l)}
}

func pathOf(texts ...string) (path []descriptors.Node) {
	for _, text := range texts {
		key, value, fixed := strings.Cut(text, "=")
		path = append(path, descriptors.Node{Key: key, Value: value, AnyValue: !fixed})
	}
	return path
}

// newCounted returns an Insight over rules of many kinds. change changes its options.
func newCounted(t testing.TB, change func(*Options)) *counted {
	t.Helper()
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	dir, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	own := tier.Override{Limits: []window.Limit{{Hits: 7, Window: time.Minute}}}
	for id, s := range map[string]struct {
		subject tier.Subject
		key     string
	}{
		"acme": {tier.Subject{Tier: "pro", Extra: &tier.Extra{Labels: map[string]string{"plan": "gold"}}}, plantedKey},
		"own":  {tier.Subject{Extra: &tier.Extra{Overrides: map[string]tier.Override{"per-key": own, "hourly": {Unlimited: true}}}}, "own-key"},
		"gone": {tier.Subject{Disabled: true}, "gone-key"},
	} {
		s.subject.ID = id
		if err := dir.Add(s.subject, secrets.Digest(s.key)); err != nil {
			t.Fatal(err)
		}
	}
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	for _, r := range []rules.Rule{
		{Name: "per-key", Path: pathOf("api_key"), Storage: rules.Storage{OnError: rules.StoreErrorLocal}, ByTier: map[string]rules.Terms{
			"free": {Limits: []rules.Limit{limitOf(3, time.Minute)}},
			"pro":  {Limits: []rules.Limit{limitOf(5, time.Minute), limitOf(20, time.Hour)}},
		}},
		{Name: "hourly", Path: pathOf("plan=hourly", "api_key"), Terms: rules.Terms{Limits: []rules.Limit{limitOf(50, time.Hour)}}},
		{Name: "routes", Path: pathOf("api_key", "route"), Terms: rules.Terms{Limits: []rules.Limit{limitOf(4, time.Minute)}, Observe: 1}},
		{Name: "sessions", Path: pathOf("session_id", "api_key"), Terms: rules.Terms{Limits: []rules.Limit{limitOf(4, time.Minute)}}},
		{Name: "address", Path: pathOf("remote_address"), Terms: rules.Terms{Limits: []rules.Limit{limitOf(9, time.Minute)}}},
		{Name: "large", Path: pathOf("large", "api_key"), Terms: rules.Terms{Limits: []rules.Limit{limitOf(1_000_000, time.Hour)}}},
		{Name: "all", Path: pathOf("generic=all"), Terms: rules.Terms{Limits: []rules.Limit{limitOf(9, time.Minute)}}},
	} {
		r.Domain = "edge"
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	a := &counted{t: t, rules: rs, clock: new(time.Duration), log: new(bytes.Buffer)}
	*a.clock = 1000 * time.Hour
	a.store = memstore.New(memstore.Options{Clock: func() time.Duration { return *a.clock }, SweepInterval: -1})
	t.Cleanup(func() { a.store.Close() })
	a.decider = decide.NewDecider(rs, decide.Options{Store: a.store})
	o := Options{
		Instance: "one", Rules: func() *rules.Rules { return a.rules }, Inspector: a.store, Store: "memory",
		Audit:   zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(a.log), zap.DebugLevel)),
		Removed: func() { a.removed++ },
	}
	if change != nil {
		change(&o)
	}
	a.Insight = New(o)
	t.Cleanup(func() { a.Close() })
	return a
}

// ask decides a request: descriptors such as "route=search,api_key=k1".
func (a *counted) ask(cost uint64, texts ...string) bool {
	a.t.Helper()
	req := decide.Request{Domain: "edge"}
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	for _, text := range texts {
		entries, err := descriptors.Parse(text)
		if err != nil {
			a.t.Fatal(err)
		}
		for i, e := range entries {
			entries[i].Value = secrets.Value(e.Key, e.Value)
		}
		req.Descriptors = append(req.Descriptors, decide.Descriptor{Entries: entries, Cost: cost})
	}
	var c decide.Call
	a.decider.Begin(&c, req)
	if _, err := c.Decide(context.Background(), window.MayWait); err != nil {
		a.t.Fatal(err)
	}
	return c.Verdict().Allowed
}

// pages returns all pages of an answer as one.
func (a *counted) pages(q Query) *Usage {
	a.t.Helper()
	var all *Usage
	for n := 0; ; n++ {
		u, err := a.Usage(a.t.Context(), q)
		if err != nil {
			a.t.Fatal(err)
		}
		if len(u.Limits) > pageLimits || n > 500 {
			a.t.Fatalf("page %d has %d limits", n, len(u.Limits))
		}
		if all == nil {
			all = u
		} else {
			all.Limits = append(all.Limits, u.Limits...)
		}
		if q.Cursor = u.Next; q.Cursor == "" {
			all.Next = ""
			return all
		}
	}
}

func (u *Usage) of(rule string) (all []LimitUsage) {
	for _, l := range u.Limits {
		if l.Rule == rule {
			all = append(all, l)
		}
	}
	return all
}

// line describes a limit for comparison.
func (l LimitUsage) line() string {
	return fmt.Sprintf("%s %s %d of %d in %v, free in %v, empty in %v", l.Rule, l.Values, l.Used, l.Limit, l.Window, l.NextFree, l.Empty)
}

func TestUsage(t *testing.T) {
	a := newCounted(t, nil)
	for range 3 {
		a.ask(2, "api_key="+plantedKey)
		*a.clock += 10 * time.Second
	}
	a.ask(1, "api_key="+plantedKey+",route=search")
	a.ask(1, "session_id=private,api_key="+plantedKey)
	a.ask(1, "api_key="+strangersKey, "remote_address=192.0.2.7")
	before := dump(t, a.store)

	u := a.pages(Query{Subject: "acme"})
	want := []string{
		"per-key  4 of 5 in 60, free in 30, empty in 40",
		"per-key  4 of 20 in 3600, free in 3570, empty in 3580",
		"hourly  0 of 50 in 3600, free in 0, empty in 0",
		"routes route=search 1 of 4 in 60, free in 60, empty in 60",
		"sessions session_id=*** 1 of 4 in 60, free in 60, empty in 60",
		"large  0 of 1000000 in 3600, free in 0, empty in 0",
	}
	var got []string
	for _, l := range u.Limits {
		got = append(got, l.line())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !u.Known || u.Tier != "pro" || u.Labels["plan"] != "gold" || u.Source != "memory" || u.Instance != "one" || u.Problem != "" {
		t.Errorf("got %+v", u)
	}
	if l := u.of("routes")[0]; !l.Shadow || l.Log != "{id.acme}:edge|api_key/route:id.acme,search" || len(l.History) != 60 || l.History[59] != 1 || l.Path != "edge|api_key/route" {
		t.Errorf("routes: %+v", l)
	}
	if l := u.of("large")[0]; !l.NoLog || l.Log != "" || l.Remaining != 1_000_000 {
		t.Errorf("large: %+v", l)
	}
	if u := a.pages(Query{Digest: a.digest(plantedKey)}); u.Subject != "acme" || len(u.Limits) != len(want) {
		t.Errorf("by digest: %+v", u)
	}
	if l := a.pages(Query{Address: "192.0.2.7"}).of("per-key"); len(l) != 1 || l[0].Used != 1 || l[0].Limit != 3 {
		t.Errorf("by address: %+v", l)
	}
	if l := a.pages(Query{Descriptor: "edge/api_key=Bearer " + plantedKey}).Limits; len(l) != 2 || l[0].Used != 4 {
		t.Errorf("by descriptor: %+v", l)
	}
	if u := a.pages(Query{Subject: "own"}); !u.of("hourly")[0].Unlimited || !u.of("per-key")[0].Override || u.of("per-key")[0].Limit != 7 {
		t.Errorf("own limits: %+v", u)
	}
	if u := a.pages(Query{Subject: "newcomer"}); u.Known || u.Tier != "free" || u.of("per-key")[0].Limit != 3 {
		t.Errorf("an unknown subject: %+v", u)
	}
	if u := a.pages(Query{Subject: "acme", Rule: "routes"}); len(u.Limits) != 1 {
		t.Errorf("one rule: %+v", u.Limits)
	}
	if u := a.pages(Query{Digest: a.digest(strangersKey)}); u.Known || len(u.Notes) != 1 || !strings.Contains(u.Notes[0], "ask with the address") {
		t.Errorf("an unknown key: %+v", u)
	}
	if u := a.pages(Query{Subject: "gone"}); !u.Disabled || len(u.Notes) != 1 {
		t.Errorf("a disabled subject: %+v", u)
	}
	if after := dump(t, a.store); !reflect.DeepEqual(after, before) {
		t.Errorf("the logs have changed:\n%v\n%v", before, after)
	}
}

func (a *counted) digest(key string) string {
	return tier.NewSecrets([]string{"api_key"}, nil).Digest(key)
}

// dump returns what is in a store.
func dump(t testing.TB, k inspect.Inspector) map[window.LogID]packed.Contents {
	t.Helper()
	all := make(map[window.LogID]packed.Contents)
	for cursor := ""; ; {
		ids, next, err := k.List(t.Context(), inspect.Match{}, cursor)
		if err != nil {
			t.Fatal(err)
		}
		readings, err := k.Read(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range readings {
			all[r.ID] = r.Contents
		}
		if cursor = next; cursor == "" {
			return all
		}
	}
}

// TestUsageIsWhatTheStoreAnswers asks for usage after random requests, and compares each limit
// with the answer of the store to a question of cost 0.
func TestUsageIsWhatTheStoreAnswers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := newCounted(t, nil)
		for range rapid.IntRange(0, 30).Draw(rt, "requests") {
			*a.clock += time.Duration(rapid.Int64Range(-2e9, 20e9).Draw(rt, "passed"))
			a.ask(rapid.Uint64Range(0, 4).Draw(rt, "cost"), rapid.SampledFrom([]string{
				"api_key=" + plantedKey, "api_key=" + plantedKey + ",route=a", "plan=hourly,api_key=" + plantedKey, "large=x,api_key=" + plantedKey, "api_key=own-key",
			}).Draw(rt, "request"))
		}
		*a.clock += time.Duration(rapid.Int64Range(-2e9, 20e9).Draw(rt, "passed in the end"))
		for _, subject := range []string{"acme", "own"} {
			for _, l := range a.pages(Query{Subject: subject}).Limits {
				if l.NoLog || l.Unlimited {
					continue
				}
				check := window.Check{Key: l.Log, Limit: window.Limit{Hits: l.Limit, Window: time.Duration(l.Window * float64(time.Second))}}
				var d [1]window.Decision
				if _, err := a.store.Take(context.Background(), window.MayWait, []window.Check{check}, d[:]); err != nil {
					rt.Fatal(err)
				}
				if l.Remaining != d[0].Remaining || l.NextFree != d[0].UnitAfter.Seconds() || l.Empty != d[0].ResetAfter.Seconds() {
					rt.Fatalf("%+v, but the store answers %+v", l, d[0])
				}
				var sum uint64
				for _, n := range l.History {
					sum += n
				}
				if sum != l.Used {
					rt.Fatalf("the history %d has the sum %d, want %d", l.History, sum, l.Used)
				}
			}
		}
	})
}

// TestPages asks for a subject with many logs and many rules.
func TestPages(t *testing.T) {
	a := newCounted(t, nil)
	for n := range 300 {
		r := rules.Rule{Domain: "edge", Name: fmt.Sprintf("many-%d", n), Path: pathOf(fmt.Sprintf("many%d", n), "api_key"), Terms: rules.Terms{Limits: []rules.Limit{limitOf(4, time.Minute), limitOf(4, time.Hour)}}}
		if n%2 == 0 {
			r.Path = pathOf(fmt.Sprintf("many%d=x", n), "api_key")
		}
		if err := a.rules.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 1234 {
		a.ask(1, fmt.Sprintf("api_key=%s,route=r%d", plantedKey, n))
		a.ask(1, fmt.Sprintf("api_key=own-key,route=r%d", n))
	}
	u := a.pages(Query{Subject: "acme"})
	logs, missing := make(map[string]int), make(map[string]int)
	for _, l := range u.Limits {
		if l.NoLog {
			missing[l.Rule+fmt.Sprint(l.Window)]++
		} else {
			logs[l.Log+fmt.Sprint(l.Window)]++
		}
	}
	if len(logs) != 2+1+300+1234 || len(missing) != 1+1+300 {
		t.Errorf("%d logs and %d missing, want 1537 and 302", len(logs), len(missing))
	}
	for name, n := range missing {
		if n != 1 {
			t.Errorf("%s is missing %d times", name, n)
		}
	}
	first, err := a.Usage(t.Context(), Query{Subject: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []Query{{Subject: "own", Cursor: first.Next}, {Subject: "acme", Cursor: "nonsense"}, {Subject: "acme", Rule: "routes", Cursor: first.Next}} {
		if _, err := a.Usage(t.Context(), q); !isBad(err) {
			t.Errorf("a cursor of another list: %v", err)
		}
	}
}

func isBad(err error) bool {
	var bad *InvalidError
	return errors.As(err, &bad)
}

func TestBadQueries(t *testing.T) {
	a := newCounted(t, nil)
	for _, q := range []Query{
		{},
		{Subject: "acme", Address: "192.0.2.7"},
		{Subject: " "},
		{Subject: "a\xff"},
		{Subject: strings.Repeat("a", maxQuery+1)},
		{Subject: "acme", Rule: plantedKey},
		{Digest: plantedKey},
		{Digest: strings.Repeat("g", 64)},
		{Address: plantedKey},
		{Address: "10.0.0.0/8"},
		{Address: "2001::/16"},
		{Address: "fe80::1%eth0/64"},
		{Descriptor: plantedKey},
		{Descriptor: "nowhere/api_key=" + plantedKey},
		{Descriptor: "edge/" + plantedKey},
		{Descriptor: "edge/"},
	} {
		_, err := a.Usage(t.Context(), q)
		if !isBad(err) {
			t.Errorf("Usage(%+v) = %v, want an InvalidError", q, err)
		} else if strings.Contains(err.Error(), "planted") {
			t.Errorf("the key is in the error %q", err)
		}
		_, err = a.Reset(t.Context(), ResetRequest{Query: Query{Subject: q.Subject, Address: q.Address, Digest: q.Digest, Descriptor: q.Descriptor, Rule: q.Rule}, Reason: "r"})
		if !isBad(err) {
			t.Errorf("Reset(%+v) = %v, want an InvalidError", q, err)
		}
	}
	for _, reason := range []string{"", " ", strings.Repeat("r", maxReason+1), "two\nlines", "\x1b[31m", "\xff"} {
		if _, err := a.Reset(t.Context(), ResetRequest{Query: Query{Subject: "acme"}, Reason: reason}); !isBad(err) || strings.Contains(err.Error(), "planted") {
			t.Errorf("reason %q: %v, want an InvalidError", reason, err)
		}
	}
	if a.log.Len() > 0 || len(a.Audit()) > 0 || a.removed > 0 {
		t.Errorf("refused requests left traces: %s", a.log)
	}
}

// A brokenInspector fails where its errors say so.
type brokenInspector struct {
	inspect.Inspector
	read, list, remove error
	most               int // logs that Read and Remove return before they fail
}

func (k *brokenInspector) Read(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	if k.read == nil {
		return k.Inspector.Read(ctx, ids)
	}
	all, _ := k.Inspector.Read(ctx, ids[:min(k.most, len(ids))])
	return all, k.read
}

func (k *brokenInspector) List(ctx context.Context, m inspect.Match, cursor string) ([]window.LogID, string, error) {
	if k.list == nil {
		return k.Inspector.List(ctx, m, cursor)
	}
	return nil, "", k.list
}

func (k *brokenInspector) Remove(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	if k.remove == nil {
		return k.Inspector.Remove(ctx, ids)
	}
	all, _ := k.Inspector.Remove(ctx, ids[:min(k.most, len(ids))])
	return all, k.remove
}

// TestSharesInAnOutage shows what the share of this process has left, and only of the logs that the
// store did not return. It charges nothing.
func TestSharesInAnOutage(t *testing.T) {
	clock := 1000 * time.Hour
	shares, err := fallback.New(fallback.Options{Instances: func(window.Scope) int { return 2 }, Memory: memstore.Options{Clock: func() time.Duration { return clock }, SweepInterval: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer shares.Close()
	broken := &brokenInspector{read: errors.New("connection refused")}
	a := newCounted(t, func(o *Options) {
		broken.Inspector = o.Inspector
		o.Inspector, o.Local, o.FallbackQuotas, o.Store = broken, shares, shares, "redis"
	})
	a.ask(1, "api_key="+plantedKey) // per-key has 5 in a minute and 20 in an hour
	a.decider = decide.NewDecider(a.rules, decide.Options{Store: shares})
	a.ask(1, "api_key="+plantedKey)
	for range 2 { // the first answer has charged nothing
		u := a.pages(Query{Subject: "acme", Rule: "per-key"})
		all := u.of("per-key")
		if len(all) != 2 || !all[0].Local || !all[1].Local || all[0].Used != 1 || all[0].Remaining != 1 || all[1].Remaining != 9 {
			t.Errorf("got %+v", all)
		}
	}
	// The store has told a use of 18 of 20, so each process has one of the two hits that remain.
	id := a.pages(Query{Subject: "acme", Rule: "per-key"}).of("per-key")[1]
	c := window.Check{Key: id.Log, Limit: window.Limit{Hits: 20, Window: time.Hour}, Cost: 1}
	shares.Learn(&c, &window.Decision{Allowed: true, Remaining: 2, ResetAfter: time.Hour})
	if l := a.pages(Query{Subject: "acme", Rule: "per-key"}).of("per-key")[1]; l.Remaining != 0 || l.NextFree <= 0 {
		t.Errorf("after a use that the store has told: %+v", l)
	}
	broken.most = 1
	all := a.pages(Query{Subject: "acme", Rule: "per-key"}).of("per-key")
	if all[0].Local || all[0].Used != 1 || all[0].Remaining != 4 || !all[1].Local {
		t.Errorf("with the first log of the store: %+v", all)
	}
}

func TestStoreUnavailable(t *testing.T) {
	down := errors.New("dial tcp 127.0.0.1:6379: connection refused")
	local := memstore.New(memstore.Options{SweepInterval: -1})
	defer local.Close()
	broken := &brokenInspector{read: down, list: down, remove: down}
	a := newCounted(t, func(o *Options) {
		broken.Inspector = o.Inspector
		o.Inspector, o.Local, o.Store = broken, local, "redis"
	})
	a.ask(1, "api_key="+plantedKey)
	a.decider = decide.NewDecider(a.rules, decide.Options{Store: local})
	a.ask(2, "api_key="+plantedKey)
	a.ask(2, "api_key="+plantedKey+",route=x")
	u := a.pages(Query{Subject: "acme"})
	if u.Source != "local" || !strings.HasPrefix(u.Problem, "what is used cannot be known while Redis is unavailable: ") || strings.Contains(u.Problem, "connection refused") || len(u.Denying()) > 0 || !u.Uncertain() || u.of("per-key")[0].Used != 2 || u.of("routes")[0].Used != 2 {
		t.Errorf("got %+v", u)
	}
	r, err := a.Reset(t.Context(), ResetRequest{Query: Query{Subject: "acme"}, Reason: "let it through"})
	if err != nil || r.Logs != 3 || !strings.Contains(r.Problem, "Redis is unavailable; reset again once it answers") {
		t.Errorf("Reset = %+v, %v", r, err)
	}
	if n := local.Len(); n != 0 {
		t.Errorf("%d logs of this instance are left", n)
	}

	broken.list, broken.most = nil, 1
	if u = a.pages(Query{Subject: "acme"}); u.Source != "local" || !strings.Contains(u.Problem, "cannot be known while a part of Redis is unavailable") || u.of("per-key")[0].Used != 1 {
		t.Errorf("a part: %+v", u)
	}
	a.opts.Local = nil
	broken.most = 0
	if u = a.pages(Query{Subject: "acme"}); u.Source != "none" || !strings.Contains(u.Problem, "cannot be known") || len(u.Limits) == 0 {
		t.Errorf("without logs of its own: %+v", u)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Usage(ctx, Query{Subject: "acme"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left: %v", err)
	}
}

func TestReset(t *testing.T) {
	a := newCounted(t, nil)
	for range 6 {
		a.ask(1, "api_key="+plantedKey)
		a.ask(1, "api_key="+plantedKey+",route=x")
		a.ask(1, "api_key=own-key")
		a.ask(1, "api_key="+plantedKey+",route=other")
	}
	if a.ask(1, "api_key="+plantedKey) {
		t.Fatal("acme is not denied")
	}
	r, err := a.Reset(t.Context(), ResetRequest{Query: Query{Subject: "acme", Rule: "routes"}, Reason: "only routes", By: "a\ntoken"})
	if err != nil || r.Logs != 2 || r.Problem != "" {
		t.Fatalf("Reset = %+v, %v", r, err)
	}
	if a.ask(1, "api_key="+plantedKey) {
		t.Error("acme passes, but another rule was reset")
	}
	r, err = a.Reset(t.Context(), ResetRequest{Query: Query{Subject: "acme"}, Reason: "a launch", By: "127.0.0.1"})
	if err != nil || r.Logs != 2 || r.ID != 2 || len(r.Removed) != 2 || r.Removed[0].Used != 5 || r.Query.Subject != "acme" {
		t.Fatalf("Reset = %+v, %v", r, err)
	}
	if !a.ask(1, "api_key="+plantedKey) {
		t.Error("acme is denied after the reset")
	}
	if u := a.pages(Query{Subject: "own"}); u.of("per-key")[0].Used != 6 {
		t.Errorf("another subject was reset: %+v", u.of("per-key"))
	}
	if got := a.Audit(); len(got) != 2 || got[0].Reason != "a launch" || got[1].By != `a\ntoken` || got[0].Removed[0].History != nil {
		t.Errorf("Audit = %+v", got)
	}
	if a.removed != 2 {
		t.Errorf("counted %d", a.removed)
	}
	lines := strings.Split(strings.TrimSpace(a.log.String()), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &line); err != nil || len(lines) != 2 {
		t.Fatal(err, lines)
	}
	for name, want := range map[string]any{"level": "info", "msg": "an operator has reset limits", "by": "127.0.0.1", "subject": "acme", "reason": "a launch", "logs": 2.0, "id": 2.0} {
		if line[name] != want {
			t.Errorf("the line has %s %v, want %v", name, line[name], want)
		}
	}
}

func TestResetInPart(t *testing.T) {
	broken := &brokenInspector{remove: errors.New("timeout"), most: 2}
	a := newCounted(t, func(o *Options) {
		broken.Inspector = o.Inspector
		o.Inspector = broken
	})
	for n := range 3 {
		a.ask(1, fmt.Sprintf("api_key=%s,route=%d", plantedKey, n))
	}
	r, err := a.Reset(t.Context(), ResetRequest{Query: Query{Subject: "acme", Rule: "routes"}, Reason: "r"})
	if err != nil || r.Logs != 2 || !strings.Contains(r.Problem, "1 of 3 logs") || strings.Contains(r.Problem, "timeout") {
		t.Errorf("Reset = %+v, %v", r, err)
	}
	if got := a.Audit()[0].Problem; got != r.Problem {
		t.Errorf("the audit has the problem %q", got)
	}
}

func TestAuditIsBounded(t *testing.T) {
	a := newCounted(t, nil)
	for n := range KeptResets + 5 {
		if _, err := a.Reset(t.Context(), ResetRequest{Query: Query{Subject: "acme"}, Reason: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.Audit(); len(got) != KeptResets || got[0].Reason != fmt.Sprint(KeptResets+4) || got[0].ID != KeptResets+5 {
		t.Errorf("%d resets are kept, the newest %+v", len(got), got[0])
	}
}

// A page makes no limits of rules that are on other pages, or that have another name than the query.
func TestUsageOfManyRules(t *testing.T) {
	allocs := func(count int, q Query) float64 {
		a := newCounted(t, nil)
		for i := range count {
			if err := a.rules.Add(rules.Rule{
				Domain: "edge", Path: pathOf(fmt.Sprintf("route=r%d", i), "api_key"), Terms: rules.Terms{Limits: []rules.Limit{limitOf(10, time.Minute)}},
			}); err != nil {
				t.Fatal(err)
			}
		}
		page := func() *Usage {
			u, err := a.Usage(t.Context(), q)
			if err != nil || len(u.Limits) == 0 {
				t.Fatalf("%v, %v", u, err)
			}
			return u
		}
		q.Cursor = page().Next // the second page, if there is one
		return testing.AllocsPerRun(3, func() { page() })
	}
	for q, most := range map[Query]float64{
		{Subject: "acme"}:                  0.1, // for each further rule
		{Subject: "acme", Rule: "per-key"}: 1.5,
	} {
		if more := allocs(2000, q) - allocs(200, q); more > most*1800 {
			t.Errorf("%+v: 1800 rules on other pages cost %v allocations", q, more)
		}
	}
}
