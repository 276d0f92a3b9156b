package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// recordingStore is a store that records its last checks and returns fixed decisions.
type recordingStore struct {
	checks []window.Check
	calls  int
	answer func(window.Check) window.Decision
	err    error
}

func (s *recordingStore) Take(_ context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	s.calls++
	s.checks = append(s.checks[:0], checks...)
	for i, c := range checks {
		decisions[i] = window.Decision{Allowed: true, Remaining: c.Limit.Hits - 1, ResetAfter: c.Limit.Window}
		if s.answer != nil {
			decisions[i] = s.answer(c)
		}
	}
	return true, s.err
}

func (*recordingStore) Close() error { return nil }

// decideErr decides a request, if the store can pause, and otherwise with waiting.
func decideErr(ctx context.Context, d *Decider, req *Request) (Verdict, error) {
	var c Call
	d.Begin(&c, *req)
	if s, ok := d.opts.Store.(pausingStore); ok {
		decided, err := c.Decide(context.WithValue(ctx, window.PauserKey{}, window.Pauser(s)), window.NoWait)
		if decided || err != nil {
			return *c.Verdict(), err
		}
	}
	_, err := c.Decide(ctx, window.MayWait)
	return *c.Verdict(), err
}

// A pausingStore decides without waiting only what can pause, and is its Pauser. As a store with leases,
// it must wait for checks that charge unconditionally.
type pausingStore struct{ window.Store }

func (s pausingStore) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		p := window.PauserOf(ctx)
		if p == nil || slices.ContainsFunc(checks, func(c window.Check) bool { return c.Mode.Unconditional() }) {
			return false, nil
		}
		if err := p.Pause(s); err != nil {
			return true, err
		}
	}
	return s.Store.Take(ctx, window.MayWait, checks, decisions)
}

func (pausingStore) Pause(f window.Flusher) error { f.Flush(); return nil }

func (pausingStore) Flush() {}

// decide is decideErr for a request that must have a verdict.
func decide(t testing.TB, d *Decider, req *Request) Verdict {
	t.Helper()
	v, err := decideErr(t.Context(), d, req)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// counts is a Meters that counts by name.
type counts map[string]int

type count struct {
	c    counts
	name string
}

func (c counts) Meter(domain, rule string) Meter { return count{c, domain + "/" + rule} }
func (c counts) UnknownDomain()                  { c["unknown domain"]++ }
func (c counts) CutUpdate()                      { c["cut update"]++ }
func (c counts) Ended(inflight.EndResult)        {}
func (c counts) Misused()                        {}
func (c count) Near(uint64)                      {}
func (c count) Budget(o inflight.BudgetOutcome, _, units uint64) {
	c.c[c.name+" "+inflight.BudgetOutcomes[o]] += int(units)
}
func (c count) Denied(string, window.Policy, time.Duration) {}
func (c count) Count(o Outcome)                             { c.c[c.name+" "+o.String()]++ }
func (c count) Detail(values []byte, o Outcome)             { c.c[c.name+" "+string(values)+" "+o.String()]++ }

func newDecider(t *testing.T, rs *rules.Rules, s window.Store) (*Decider, counts) {
	t.Helper()
	c := counts{}
	return NewDecider(rs, Options{Store: s, Meters: c, Log: dropAll}), c
}

func TestWhoseLogAndWhichLimit(t *testing.T) {
	digest := secrets.Digest("made-up")
	tests := []struct {
		name string
		who  rules.Identity
		req  *Request
		want []string // "key hits/window"
		tier string   // of the last limit
	}{
		{"an address", rules.Identity{}, request("remote_address=192.0.2.7"), []string{
			"{192.0.2.7}:edge|remote_address:192.0.2.7 50/1m0s",
		}, ""},
		{"an address mapped into IPv6 is the same", rules.Identity{}, request("remote_address=::ffff:192.0.2.7"), []string{
			"{192.0.2.7}:edge|remote_address:192.0.2.7 50/1m0s",
		}, ""},
		{"a known key counts for its subject, in both windows of its tier", rules.Identity{}, request("api_key=acme-key"), []string{
			"{id.acme}:edge|api_key:id.acme 500/1s",
			"{id.acme}:edge|api_key:id.acme 3000/1m0s",
		}, "starter"},
		{"a second key of the subject shares the log", rules.Identity{}, request("api_key=acme-new-key"), []string{
			"{id.acme}:edge|api_key:id.acme 500/1s",
			"{id.acme}:edge|api_key:id.acme 3000/1m0s",
		}, "starter"},
		{"a subject without a tier has the default one", rules.Identity{}, request("api_key=hobby-key"), []string{
			"{id.hobby}:edge|api_key:id.hobby 100/1m0s",
		}, "free"},
		{"a made-up key counts for its address", rules.Identity{}, request("api_key=made-up", "remote_address=192.0.2.7"), []string{
			"{addr.192.0.2.7}:edge|api_key:addr.192.0.2.7 100/1m0s",
			"{192.0.2.7}:edge|remote_address:192.0.2.7 50/1m0s",
		}, ""},
		{"the masked address will do", rules.Identity{}, request("api_key=made-up", "masked_remote_address=2001:db8::/64"), []string{
			"{addr.2001%3Adb8%3A%3A%2F64}:edge|api_key:addr.2001%3Adb8%3A%3A%2F64 100/1m0s",
		}, "free"},
		{"without an address all made-up keys share one", rules.Identity{}, request("api_key=made-up"), []string{
			"{addr.}:edge|api_key:addr. 100/1m0s",
		}, "free"},
		{"a disabled subject is a stranger", rules.Identity{}, request("api_key=gone-key"), []string{
			"{addr.}:edge|api_key:addr. 100/1m0s",
		}, "free"},
		{"each unknown key by setting", rules.Identity{EachUnknownKey: true}, request("api_key=made-up"), []string{
			"{key." + digest + "}:edge|api_key:key." + digest + " 100/1m0s",
		}, "free"},
		{"a key below a route, without by_tier", rules.Identity{}, request("route=search api_key=acme-key"), []string{
			"{id.acme}:edge|route=search/api_key:id.acme 20/1h0m0s",
		}, "starter"},
		{"a rule without identity has one log", rules.Identity{}, request("route=global"), []string{
			"{edge|route=global}:edge|route=global 9/1h0m0s",
		}, ""},
		{"the subject may be in another descriptor", rules.Identity{}, request("route=mine", "api_key=hobby-key"), []string{
			"{id.hobby}:edge|route=mine:id.hobby 8/1h0m0s",
			"{id.hobby}:edge|api_key:id.hobby 100/1m0s",
		}, "free"},
		{"or missing", rules.Identity{}, request("route=mine"), []string{
			"{addr.}:edge|route=mine:addr. 8/1h0m0s",
		}, "free"},
		{"a rule for one key is found by its digest, and is one log", rules.Identity{}, request("api_key=vip-key", "remote_address=192.0.2.7"), []string{
			"{edge|api_key=" + secrets.Digest("vip-key") + "}:edge|api_key=" + secrets.Digest("vip-key") + " 6/1h0m0s",
			"{192.0.2.7}:edge|remote_address:192.0.2.7 50/1m0s",
		}, ""},
		{"an entry that is no secret names the subject by id", rules.Identity{}, request("consumer=acme"), []string{
			"{id.acme}:edge|consumer:id.acme 2/1m0s",
		}, "starter"},
		{"an unknown id gets the default tier", rules.Identity{}, request("consumer=stranger"), []string{
			"{id.stranger}:edge|consumer:id.stranger 1/1m0s",
		}, "free"},
		{"no rule, a rule without limits, no entries", rules.Identity{}, request("nothing=1", "open=1", ""), nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.who.Secrets, tt.who.Tiers = secrets, directory(t)
			store := new(recordingStore)
			decider, _ := newDecider(t, testRules(t, tt.who), store)
			v := decide(t, decider, tt.req)
			var got []string
			for _, c := range store.checks {
				got = append(got, fmt.Sprintf("%s %d/%v", c.Key, c.Limit.Hits, c.Limit.Window))
			}
			if g, w := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); g != w {
				t.Errorf("checks:\n%s\nwant:\n%s", g, w)
			}
			if n := len(v.Limits); n > 0 && v.Limits[n-1].Tier != tt.tier {
				t.Errorf("tier of the last limit = %q, want %q", v.Limits[n-1].Tier, tt.tier)
			}
			if wantCalls := min(1, len(tt.want)); store.calls != wantCalls {
				t.Errorf("%d store calls, want %d", store.calls, wantCalls)
			}
		})
	}
}

// TestNamesOfSubjectsAndStrangersDiffer decides a request for a consumer whose id looks
// like an address.
func TestNamesOfSubjectsAndStrangersDiffer(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t)})
	if err := rs.Add(rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("route")}, Subject: "consumer", Terms: per(1, time.Hour)}); err != nil {
		t.Fatal(err)
	}
	store := new(recordingStore)
	decider, _ := newDecider(t, rs, store)
	seen := make(map[string]string)
	for _, consumer := range []string{"", "consumer=addr.192.0.2.7", "consumer=192.0.2.7", "consumer=id.acme", "consumer=acme"} {
		decide(t, decider, request("route=a", "remote_address=192.0.2.7", consumer))
		key := store.checks[0].Key
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q share the log %s", consumer, other, key)
		}
		seen[key] = consumer
	}
}

func TestAddressesAreMatchedInTheirOneForm(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for i, path := range [][]descriptors.Node{
		{one("remote_address", "::ffff:10.0.0.9")}, {one("masked_remote_address", "10.0.0.0/24")}, {anyOf("remote_address")},
	} {
		if err := rs.Add(rules.Rule{Domain: "edge", Path: path, Terms: per(uint64(i+1), time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	store := new(recordingStore)
	decider, _ := newDecider(t, rs, store)
	for text, want := range map[string]uint64{
		"remote_address=10.0.0.9": 1, "remote_address=::ffff:10.0.0.9": 1, "masked_remote_address=::ffff:10.0.0.0/120": 2, "remote_address=10.0.0.8": 3,
	} {
		v := decide(t, decider, request(text))
		if got := v.Limits[0].Limit.Hits; got != want {
			t.Errorf("%s has the limit %d, want %d", text, got, want)
		}
	}
}

func TestWithoutTiersEveryKeyIsItsOwn(t *testing.T) {
	store := new(recordingStore)
	decider, _ := newDecider(t, testRules(t, rules.Identity{Secrets: secrets}), store)
	v := decide(t, decider, request("api_key=acme-key"))
	want := "{key." + secrets.Digest("acme-key") + "}:edge|api_key:key." + secrets.Digest("acme-key")
	if got := store.checks[0].Key; got != want {
		t.Errorf("key = %q, want %q", got, want)
	}
	if v.Limits[0].Tier != "" || v.Limits[0].Limit.Hits != 7 {
		t.Errorf("limit = %+v, want the rule's own and no tier", v.Limits[0])
	}
}

func TestAPIKeysReachNothing(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	store := &recordingStore{answer: func(window.Check) window.Decision { return window.Decision{RetryAfter: time.Second} }}
	rs := testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)})
	var callers callers
	decider := NewDecider(rs, Options{Store: store, Meters: counts{}, Log: logTo(core), Recorder: &callers})
	for _, key := range []string{"acme-key", "made-up", "vip-key"} {
		req := request("api_key="+key, "route=search api_key="+key, "path=/v1/"+key+"/x?k="+key)
		req.ID = "Bearer " + key
		v := decide(t, decider, req)
		// Limits have their rule, and with it all rules.
		limits := slices.Clone(v.Limits)
		for i := range limits {
			limits[i].Rule = nil
		}
		everything := fmt.Sprintf("%v %+v %+v %+v", logs.All(), store.checks, limits, callers)
		for _, r := range rs.All() {
			everything += fmt.Sprintf("%s %s %v", r.Name, r.ID(), r.Path)
		}
		if strings.Contains(everything, key) {
			t.Errorf("the key %s shows in %s", key, everything)
		}
	}
	if len(callers) != 3 {
		t.Errorf("%d denials are recorded, want 3", len(callers))
	}
}

// parties is a Recorder that keeps whom denials are of.
type callers []identity.CallerInfo

func (p *callers) Denied(req *Request, _ *Verdict, s *LimitStatus) { *p = append(*p, s.Caller(req)) }

func (*callers) Near(*Request, *Verdict, *LimitStatus) {}
func (*callers) Budget(*Request, *LimitStatus, string) {}

func TestVerdict(t *testing.T) {
	allowed := func(remaining uint64) window.Decision {
		return window.Decision{Allowed: true, Remaining: remaining, ResetAfter: time.Second}
	}
	denied := func(retry time.Duration) window.Decision { return window.Decision{RetryAfter: retry} }
	tests := []struct {
		name      string
		decisions map[uint64]window.Decision // by limit
		req       *Request
		allowed   bool
		strictest []int
		decisive  int
		counts    counts
	}{
		{
			"the smallest share speaks",
			map[uint64]window.Decision{50: allowed(20), 100: allowed(30)},
			request("remote_address=a", "api_key=hobby-key"),
			true,
			[]int{0, 1},
			1,
			counts{"edge/per-address allowed": 1, "edge/per-key allowed": 1},
		},
		{
			"one denies, the other is not charged",
			map[uint64]window.Decision{50: allowed(1), 100: denied(time.Second)},
			request("remote_address=a", "api_key=hobby-key"),
			false,
			[]int{0, 1},
			1,
			counts{"edge/per-address not_charged": 1, "edge/per-key denied": 1},
		},
		{
			"of two that deny the longer wait speaks",
			map[uint64]window.Decision{50: denied(3 * time.Second), 100: denied(2 * time.Second)},
			request("remote_address=a", "api_key=hobby-key"),
			false,
			[]int{0, 1},
			0,
			counts{"edge/per-address denied": 1, "edge/per-key denied": 1},
		},
		{
			"what can never pass outwaits everything",
			map[uint64]window.Decision{50: denied(time.Hour), 100: {Never: true}},
			request("remote_address=a", "api_key=hobby-key"),
			false,
			[]int{0, 1},
			1,
			counts{"edge/per-address denied": 1, "edge/per-key never": 1},
		},
		{
			"of two windows of one rule the denying one is its status",
			map[uint64]window.Decision{500: allowed(1), 3000: denied(time.Second)},
			request("api_key=acme-key", "nothing=1"),
			false,
			[]int{1, -1},
			1,
			counts{"edge/per-key denied": 1, "edge/ no_rule": 1},
		},
		{
			"nothing limits the request",
			nil, request("nothing=1"), true,
			[]int{-1},
			-1,
			counts{"edge/ no_rule": 1},
		},
		{
			"a domain without rules",
			nil, &Request{Domain: "other", Descriptors: []Descriptor{d("api_key=x"), d("a=b")}}, true,
			[]int{-1, -1},
			-1,
			counts{"unknown domain": 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := &recordingStore{answer: func(c window.Check) window.Decision { return tt.decisions[c.Limit.Hits] }}
			decider, got := newDecider(t, testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)}), store)
			v := decide(t, decider, tt.req)
			if v.Allowed != tt.allowed || v.Decisive != tt.decisive || fmt.Sprint(v.Strictest) != fmt.Sprint(tt.strictest) {
				t.Errorf("verdict allowed %v decisive %d strictest %v, want %v %d %v",
					v.Allowed, v.Decisive, v.Strictest, tt.allowed, tt.decisive, tt.strictest)
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.counts) {
				t.Errorf("counts = %v, want %v", got, tt.counts)
			}
		})
	}
}

// TestCallIsReused decides a large request and then small ones with the same Call.
// Nothing of the first may show.
func TestCallIsReused(t *testing.T) {
	store := new(recordingStore)
	decider, _ := newDecider(t, testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)}), store)
	var c Call
	for _, req := range []*Request{
		request("api_key=acme-key", "remote_address=a", "route=global"),
		request("remote_address=b"),
		request("nothing=1"),
		{Domain: "other"},
	} {
		fresh := decide(t, decider, req)
		decider.Begin(&c, *req)
		if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
			t.Fatal(err)
		}
		v := c.Verdict()
		if got, want := fmt.Sprintf("%v %+v %v %v", v.Allowed, v.Limits, v.Strictest, v.Decisive),
			fmt.Sprintf("%v %+v %v %v", fresh.Allowed, fresh.Limits, fresh.Strictest, fresh.Decisive); got != want {
			t.Errorf("reused call: %s, want %s", got, want)
		}
	}
}

func TestOverride(t *testing.T) {
	store := new(recordingStore)
	decider, got := newDecider(t, testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)}), store)
	limit := &window.Limit{Hits: 600, Window: time.Minute}
	req := request("api_key=acme-key", "plan=x region=eu")
	req.Descriptors[0].Override, req.Descriptors[1].Override = limit, limit
	decide(t, decider, req)
	want := []string{"{id.acme}:edge|:api_key,id.acme", "{eu}:edge|:plan,x,region,eu"}
	for i, c := range store.checks {
		if c.Key != want[i] || c.Limit != *limit {
			t.Errorf("check %d = %+v, want the key %s and the limit that was sent", i, c, want[i])
		}
	}
	if want := (counts{"edge/per-key allowed": 1, "edge/override allowed": 1}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counts = %v, want %v", got, want)
	}
}

func TestStoreError(t *testing.T) {
	boom := errors.New("boom")
	decider, got := newDecider(t, testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)}), &recordingStore{err: boom})
	var failed error
	decider.opts.Observer.Failed = func(err error) { failed = err }
	if _, err := decideErr(t.Context(), decider, request("api_key=acme-key", "remote_address=a")); !errors.Is(err, boom) || !errors.Is(failed, boom) {
		t.Errorf("Decide = %v, and Failed got %v, want the store's error", err, failed)
	}
	if want := (counts{"edge/per-key error": 1, "edge/per-address error": 1}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counts = %v, want %v", got, want)
	}
}

// stuckStore waits until its context ends.
type stuckStore struct{ recordingStore }

func (*stuckStore) Take(ctx context.Context, wait bool, _ []window.Check, _ []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	<-ctx.Done()
	return true, ctx.Err()
}

func TestTheCallerGivesUp(t *testing.T) {
	rs := testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)})
	decider := NewDecider(rs, Options{Store: new(stuckStore), Meters: counts{}, Log: dropAll})
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := decideErr(late, decider, request("api_key=acme-key")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Decide = %v, want the deadline", err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := decideErr(impatient, decider, request("api_key=acme-key")); !errors.Is(err, context.Canceled) {
		t.Errorf("Decide = %v, want that the caller gave up", err)
	}
}

// TestStoreSeconds counts the times that reach the histogram of store calls.
func TestStoreSeconds(t *testing.T) {
	rs := testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)})
	for _, tt := range []struct {
		name   string
		answer window.Decision
		err    error
		want   int
	}{
		{"allowed", window.Decision{Allowed: true}, nil, 1},
		{"denied by the store", window.Decision{}, nil, 1},
		{"denied from memory", window.Decision{Remembered: true}, nil, 0},
		{"an error", window.Decision{Remembered: true}, errors.New("no answer"), 1},
	} {
		observed := 0
		decider := NewDecider(rs, Options{
			Store:    &recordingStore{answer: func(window.Check) window.Decision { return tt.answer }, err: tt.err},
			Meters:   counts{},
			Observer: Observer{Seconds: func(float64) { observed++ }},
		})
		if _, err := decideErr(t.Context(), decider, request("api_key=acme-key")); !errors.Is(err, tt.err) {
			t.Errorf("%s: Decide = %v, want %v", tt.name, err, tt.err)
		}
		if observed != tt.want {
			t.Errorf("%s: %d times observed, want %d", tt.name, observed, tt.want)
		}
	}
}

func TestWait(t *testing.T) {
	limit := rules.Limit{Limit: window.Limit{Hits: 10, Window: time.Minute}}
	const more = time.Minute + 6*time.Millisecond // times are rounded up, or hits are reserved ahead
	for _, tt := range []struct {
		name string
		d    window.Decision
		wait time.Duration
	}{
		{"something remains", window.Decision{Allowed: true, Remaining: 1, ResetAfter: 40 * time.Second}, 40 * time.Second},
		{"nothing remains", window.Decision{Allowed: true, UnitAfter: 3 * time.Second, ResetAfter: time.Minute}, 3 * time.Second},
		{"denied", window.Decision{RetryAfter: 5 * time.Second, UnitAfter: time.Second, ResetAfter: time.Minute}, 5 * time.Second},
		{"never", window.Decision{Never: true, Remaining: 10}, 0},
		{"something remains, for longer than a window", window.Decision{Allowed: true, Remaining: 1, ResetAfter: more}, time.Minute},
		{"nothing remains, for longer than a window", window.Decision{Allowed: true, UnitAfter: more, ResetAfter: more}, more},
		{"denied for longer than a window", window.Decision{RetryAfter: more, UnitAfter: more, ResetAfter: more}, more},
	} {
		s := LimitStatus{Limit: limit, Decision: tt.d}
		if wait := s.Wait(); wait != tt.wait {
			t.Errorf("%s: %v, want %v", tt.name, wait, tt.wait)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	api := []descriptors.Node{anyOf("api_key")}
	tests := []struct {
		name string
		rule rules.Rule
		want string
	}{
		{"no domain", rules.Rule{Path: api, Terms: per(1, time.Second)}, "a domain needs a name"},
		{"control characters", rules.Rule{Domain: "d\n", Path: api, Terms: per(1, time.Second)}, "a domain cannot hold control characters"},
		{"no path", rules.Rule{Domain: "d", Terms: per(1, time.Second)}, "a rule needs at least one descriptor key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t)}).Add(tt.rule)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Add = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	two := append(per(1, time.Second).Limits, per(2, 36*time.Hour).Limits...)
	for _, tt := range []struct {
		path []descriptors.Node
		want string
		hdrs []string
	}{
		{[]descriptors.Node{anyOf("remote_address")}, "remote_address", []string{"remote_address-1s", "remote_address-36h"}},
		{[]descriptors.Node{one("route", "/v1/search"), anyOf("user")}, "route.-v1-search.user", nil},
		{[]descriptors.Node{one("api_key", "k")}, "api_key", nil},
		{[]descriptors.Node{one("é", strings.Repeat("x", 100))}, "--." + strings.Repeat("x", 48) + "-dec2c2e1f697", nil},
	} {
		if err := rs.Add(rules.Rule{Domain: "d", Path: tt.path, Terms: rules.Terms{Limits: two}}); err != nil {
			t.Fatal(err)
		}
		r := rs.All()[len(rs.All())-1]
		if r.Name != tt.want || !rules.ValidName(r.Name) {
			t.Errorf("name of %v = %q, want %q", tt.path, r.Name, tt.want)
		}
		for i, want := range tt.hdrs {
			if got := r.Terms.Limits[i].Name; got != want {
				t.Errorf("limit %d of %s is called %q, want %q", i, r.Name, got, want)
			}
		}
	}
}

// TestUnknownDomainIsLogged decides requests whose domain has no rules, with waiting and
// without.
func TestUnknownDomainIsLogged(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	decider := NewDecider(testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)}), Options{Store: new(recordingStore), Meters: counts{}, Log: logTo(core)})
	req := request("remote_address=192.0.2.1")
	long := strings.Repeat("x", 10_000)
	for domain, want := range map[string]string{"egde": "egde", "": "", "a\nb\xff\u202e": `a\nb\xff\u202e`, long: long[:128]} {
		req.Domain = domain
		for _, wait := range []bool{window.MayWait, window.NoWait} {
			var c Call
			decider.Begin(&c, *req)
			if decided, err := c.Decide(t.Context(), wait); !decided || err != nil || !c.Verdict().Allowed {
				t.Fatalf("%q, wait %v: %v, %v, allowed %v", domain, wait, decided, err, c.Verdict().Allowed)
			}
		}
		lines := logs.TakeAll()
		if len(lines) != 2 {
			t.Fatalf("%q: %d lines, want one for each request", domain, len(lines))
		}
		if got := lines[0].ContextMap()["domain"]; got != want || lines[0].Level != zapcore.WarnLevel {
			t.Errorf("%v says %q, want %q", lines[0].Level, got, want)
		}
	}
	req.Domain = "edge"
	if decide(t, decider, req); logs.Len() != 0 {
		t.Errorf("a domain with rules: %v", logs.All())
	}
}

// TestHits counts a limit of 10, whose threshold is 8, by the rules of envoyproxy/ratelimit.
func TestHits(t *testing.T) {
	status := func(cost uint64, mode window.Mode, allowed bool, remaining uint64) LimitStatus {
		s := LimitStatus{
			Limit: rules.Limit{Limit: window.Limit{Hits: 10}}, Cost: cost, Mode: mode,
			Decision: window.Decision{Allowed: allowed, Remaining: remaining},
		}
		if mode == window.Observe {
			s.Enforcement = verdict.Observed
		}
		return s
	}
	usage := status(5, window.Enforce, false, 0)
	usage.Update.Recorded, usage.Update.Room = true, 3
	report := status(3, window.Enforce, true, 1)
	report.Update.Recorded, report.Update.Room = true, 4
	shadowAll := status(1, window.Observe, false, 0)
	shadowAll.Enforcement = verdict.ObservedForAll
	for _, tt := range []struct {
		name    string
		status  LimitStatus
		allowed bool // the request
		want    Hits
	}{
		{"below the threshold", status(8, window.Enforce, true, 2), true, Hits{Total: 8, Within: 8}},
		{"across the threshold", status(5, window.Enforce, true, 1), true, Hits{Total: 5, Within: 5, Near: 1}},
		{"above the threshold", status(2, window.Enforce, true, 0), true, Hits{Total: 2, Within: 2, Near: 2}},
		{"from below to the limit", status(10, window.Enforce, true, 0), true, Hits{Total: 10, Within: 10, Near: 2}},
		{"denied", status(3, window.Enforce, false, 1), false, Hits{Total: 3, Over: 3}},
		{"another limit denies, so what remains lacks the cost", status(3, window.Enforce, true, 4), false, Hits{Total: 3, Within: 3, Near: 1}},
		{"a report is charged although another limit denies", status(3, window.Always, true, 1), false, Hits{Total: 3, Within: 3, Near: 1}},
		{"a report beyond the limit", status(3, window.Always, false, 0), false, Hits{Total: 3, Over: 3}},
		{"the rule is in shadow mode", status(1, window.Observe, false, 0), true, Hits{Total: 1, Over: 1, Shadowed: 1}},
		{"all rules are in shadow mode", shadowAll, true, Hits{Total: 1, Over: 1}},
		{"usage is recorded although it does not fit", usage, false, Hits{Total: 5, Over: 2, Near: 2}},
		{"usage is recorded although another limit denies", report, false, Hits{Total: 3, Within: 3, Near: 1}},
		{"a question", status(0, window.Enforce, false, 0), false, Hits{}},
		{"a refund", status(5, window.Refund, true, 10), true, Hits{}},
	} {
		if diff := cmp.Diff(tt.want, tt.status.Hits(tt.allowed, 0.8)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
	// The reference multiplies as float32: 0.7 of 10 is 7 there, and 6.999… as float64.
	seven := status(1, window.Enforce, true, 3)
	if got := seven.Hits(true, 0.7); got.Near != 0 {
		t.Errorf("the seventh hit of ten is near 0.7: %+v", got)
	}
}
