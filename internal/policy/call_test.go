package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/policy/policytest"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// moody is the embedded store, which fails, or has to wait, when a test says so.
type moody struct {
	*memstore.Store
	err   error
	waits bool
	calls int // that have decided or failed
}

func (m *moody) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait && m.waits {
		for i := range decisions {
			decisions[i] = window.Decision{Never: true, Remaining: 7} // undefined
		}
		return false, nil
	}
	m.calls++
	if m.err != nil {
		return true, m.err
	}
	return m.Store.Take(ctx, window.MayWait, checks, decisions)
}

// A side is all that a decider has to do with.
type side struct {
	*Decider
	store   *moody
	local   *pupil
	source  *asked
	counts  counts
	seconds int
	logs    *observer.ObservedLogs
	call    Call
}

// settings are what sides have in common.
type settings struct {
	shadow, quota, deny, elsewhere bool
	trusted                        string
}

func newSide(t *rapid.T, dir *tier.Directory, now *time.Duration, s settings) *side {
	clock := func() time.Duration { return *now }
	side := &side{
		store:  &moody{Store: memstore.New(memstore.Options{Clock: clock, SweepInterval: -1})},
		local:  &pupil{Store: memstore.New(memstore.Options{Clock: clock, SweepInterval: -1})},
		source: &asked{answers: answersOf(dir), held: make(map[string]bool)},
		counts: counts{},
	}
	core, logs := observer.New(zapcore.DebugLevel)
	side.logs = logs
	o := Options{
		Store: side.store, Local: side.local, Meters: side.counts, Log: zap.New(core), DenyUnresolved: s.deny,
		StoreSeconds: func(float64) { side.seconds++ },
	}
	if s.elsewhere {
		o.Subjects = side.source
	}
	side.Decider = NewDecider(allRules(t, dir, s), o)
	return side
}

func (s *side) close() {
	s.store.Close()
	s.local.Close()
}

// answersOf are the directory's, those of somebody with limits of his own, and of
// two keys that the source cannot say anything about.
func answersOf(dir *tier.Directory) map[string]tier.Answer {
	answers := make(map[string]tier.Answer)
	for _, key := range []string{"acme-key", "hobby-key", "gone-key"} {
		answers[secrets.Digest(key)] = tier.Answer{Subject: dir.ByDigest(secrets.Digest(key))}
	}
	for _, id := range []string{"acme", "hobby"} {
		answers[id] = tier.Answer{Subject: dir.ByID(id)}
	}
	own := &tier.Subject{ID: "own", Tier: "starter", Extra: &tier.Extra{Overrides: map[string]tier.Override{
		"per-key": {Limits: []window.Limit{{Hits: 2, Window: time.Minute}}}, "quota": {Unlimited: true},
	}}}
	answers[secrets.Digest("own-key")], answers["own"] = tier.Answer{Subject: own}, tier.Answer{Subject: own, Stale: true}
	answers[secrets.Digest("lost-key")] = tier.Answer{Unavailable: true}
	return answers
}

// allRules has a rule of every kind.
func allRules(t *rapid.T, dir *tier.Directory, s settings) *Rules {
	rs := NewRules(Identity{Secrets: secrets, Tiers: dir, TrustedEntry: s.trusted, Elsewhere: s.elsewhere})
	if s.quota {
		rs.QuotaAll()
	}
	if s.shadow {
		rs.ObserveAll()
	}
	for _, r := range []Rule{
		rule("per-address", per(3, time.Minute), anyOf("remote_address")),
		{Name: "per-key", Path: []descriptors.Node{anyOf("api_key")}, ByTier: map[string]Terms{"free": per(2, time.Minute), "starter": per(4, time.Minute)}},
		{Name: "per-consumer", Path: []descriptors.Node{anyOf("consumer")}, ByTier: map[string]Terms{"free": {Unlimited: true}, "starter": per(2, time.Second)}},
		with(rule("route", per(2, time.Minute), anyOf("route"), anyOf("api_key")), func(r *Rule) { r.OnStoreError, r.Detailed = StoreErrorLocal, true }),
		with(rule("quota", per(2, time.Minute), anyOf("quota"), anyOf("api_key")), func(r *Rule) { r.Quota = true }),
		with(rule("tokens", per(5, time.Minute), anyOf("tokens")), func(r *Rule) { r.Always, r.OnStoreError = true, StoreErrorAllow }),
		with(rule("watched", per(1, time.Minute), anyOf("watched")), func(r *Rule) { r.Terms.Observe, r.OnStoreError = 1, StoreErrorDeny }),
		with(rule("instead", per(3, time.Minute), anyOf("instead")), func(r *Rule) { r.Replaces, r.OnStoreError = []string{"per-address"}, StoreErrorDeny }),
		rule("free", Terms{Unlimited: true}, anyOf("free")),
		rule("open", Terms{}, anyOf("open")),
	} {
		r.Domain = "edge"
		if s.quota && (r.Always || r.Quota) {
			r.Always, r.Quota = false, false
		}
		if err := rs.Add(r); err != nil {
			t.Fatalf("Add(%s): %v", r.Name, err)
		}
	}
	return rs
}

// drawRequest draws a request for which most kinds of rules are met.
func drawRequest(r *rand.Rand) *Request {
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	req := &Request{Domain: "edge"}
	if r.IntN(20) == 0 {
		req.Domain = "unheard"
	}
	for range 1 + r.IntN(4) {
		key := "api_key=" + pick("acme-key", "hobby-key", "gone-key", "own-key", "lost-key", "made-up")
		desc := d(pick(
			"remote_address=192.0.2.1", "remote_address=::ffff:192.0.2.1", "remote_address=2001:db8::1", key, key, key,
			"route=a "+key, "route=b "+key, "quota=x "+key, "quota=y "+key, "consumer="+pick("acme", "hobby", "own", "nobody"),
			"tokens=t", "watched=w", "instead=i", "free=f", "open=o", "plan=starter "+key, "nothing=here",
		))
		desc.Cost = []uint64{1, 1, 1, 0, 2, 6}[r.IntN(6)]
		switch r.IntN(15) {
		case 0:
			desc.Refund = true
		case 1:
			desc.Override = &window.Limit{Hits: 2, Window: time.Minute}
		}
		req.Descriptors = append(req.Descriptors, desc)
	}
	switch r.IntN(12) {
	case 0:
		req.Tier = "starter"
	case 1:
		req.Caller = &Caller{Fingerprint: secrets.Fingerprint("made-up"), Answer: tier.Answer{Subject: &tier.Subject{ID: "told", Tier: "free"}}}
	case 2:
		req.Plain = []PlainKey{{secrets.Fingerprint("acme-key"), "acme-key"}}
	}
	return req
}

// TestTryAndDecide holds a decider that is asked by Try first, and by Decide where
// that does not decide, to one that is asked by Decide alone. Whatever has to be
// waited for, the verdicts, the logs in the stores, what is counted and what is told
// are the same; and of what Try has found out nothing is asked for again.
func TestTryAndDecide(t *testing.T) {
	met := make(map[string]int)
	rapid.Check(t, func(t *rapid.T) {
		s := settings{
			shadow: rapid.IntRange(0, 4).Draw(t, "shadow") == 0, quota: rapid.IntRange(0, 4).Draw(t, "quota") == 0,
			deny: rapid.Bool().Draw(t, "deny"), elsewhere: rapid.Bool().Draw(t, "elsewhere"),
		}
		if rapid.Bool().Draw(t, "trusted") {
			s.trusted = "plan"
		}
		compareSides(t, s, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), met)
	})
	for _, what := range []string{"allowed", "denied", "degraded", "reported", "unresolved", "shadowed", "by Try", "waits for the store", "waits for a key", "new rules"} {
		if met[what] == 0 {
			t.Errorf("never met: %s", what)
		}
	}
	t.Log(met)
}

func compareSides(t *rapid.T, s settings, r *rand.Rand, met map[string]int) {
	now := time.Duration(0)
	dir := directory(t)
	patient, prompt := newSide(t, dir, &now, s), newSide(t, dir, &now, s)
	defer patient.close()
	defer prompt.close()
	for range 60 {
		now += []time.Duration{0, 0, time.Second, 31 * time.Second}[r.IntN(4)]
		req := drawRequest(r)
		same := *req // addresses are brought into their one form
		same.Descriptors = nil
		for _, desc := range req.Descriptors {
			desc.Entries = append(descriptors.Descriptor(nil), desc.Entries...)
			same.Descriptors = append(same.Descriptors, desc)
		}
		var err error
		if r.IntN(8) == 0 {
			err = errors.New("boom")
			if r.IntN(4) == 0 {
				err = window.ErrBadCheck
			}
		}
		patient.store.err, prompt.store.err = err, err
		prompt.store.waits = r.IntN(2) == 0
		clear(prompt.source.held)
		for name := range prompt.source.answers {
			prompt.source.held[name] = r.IntN(4) != 0
		}
		prompt.source.held[secrets.Digest("made-up")], prompt.source.held["nobody"] = r.IntN(4) != 0, true

		asks := -len(patient.source.questions)
		patient.Begin(&patient.call, *req)
		_, wantErr := patient.call.Decide(t.Context(), window.MayWait)
		asks += len(patient.source.questions)
		questions, found, calls := len(prompt.source.questions), prompt.source.found, prompt.store.calls
		prompt.Begin(&prompt.call, same)
		decided, gotErr := prompt.call.Decide(t.Context(), window.NoWait)
		switch {
		case len(prompt.source.questions) > questions:
			t.Fatal("Try has asked the source")
		case decided:
			met["by Try"]++
		case prompt.store.calls > calls:
			t.Fatal("Try has asked the store, and not decided")
		case prompt.call.step == isPrepared:
			met["waits for the store"]++
		default:
			met["waits for a key"]++
		}
		if !decided {
			if r.IntN(10) == 0 {
				met["new rules"]++
				prompt.Swap(NewRules(Identity{Secrets: secrets}))
			}
			clear(prompt.source.held) // only what Try has not found out may be asked for
			complete, known := prompt.call.step == isPrepared, prompt.source.found-found
			_, gotErr = prompt.call.Decide(t.Context(), window.MayWait)
			if again := len(prompt.source.questions) - questions; complete && again > 0 || s.elsewhere && again+known > asks {
				t.Fatalf("%d questions where Decide alone has %d, and Try knew %d", again, asks, known)
			}
			prompt.Swap(allRules(t, dir, s))
		}
		compareVerdicts(t, patient, prompt, wantErr, gotErr)
		switch v := patient.call.Verdict(); {
		case wantErr != nil:
			met["reported"]++
		case v.Degraded:
			met["degraded"]++
		case v.Allowed:
			met["allowed"]++
		default:
			met["denied"]++
		}
		if v := patient.call.Verdict(); wantErr == nil {
			met["unresolved"] += map[bool]int{true: 1}[v.Unresolved]
			met["shadowed"] += map[bool]int{true: 1}[v.Shadowed >= 0]
		}
		if r.IntN(3) == 0 {
			prompt.call.Forget()
			policytest.NothingIn(t, "call", reflect.ValueOf(&prompt.call).Elem())
		}
	}
}

// compareVerdicts compares all that two sides know and have told.
func compareVerdicts(t *rapid.T, patient, prompt *side, wantErr, gotErr error) {
	if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
		t.Fatalf("error %v, want %v", gotErr, wantErr)
	}
	names := cmp.Comparer(func(a, b *Rule) bool { return (a == nil) == (b == nil) && (a == nil || a.Name == b.Name) })
	if diff := cmp.Diff(patient.call.Verdict(), prompt.call.Verdict(), names, cmpopts.EquateEmpty()); wantErr == nil && diff != "" {
		t.Fatalf("verdict: (-Decide +Try)\n%s", diff)
	}
	if diff := cmp.Diff(patient.counts, prompt.counts); diff != "" {
		t.Fatalf("counts: (-Decide +Try)\n%s", diff)
	}
	if c := &patient.call; wantErr == nil && len(c.decisions) == len(c.checks) && !window.GroupAllowed(c.checks, c.decisions) {
		// Try does not tell of groups that the store denies at once: the store does that
		// only if it has told before what makes the denial.
		n := min(len(patient.local.told), len(prompt.local.told))
		patient.local.told, prompt.local.told = patient.local.told[:n], prompt.local.told[:n]
	}
	if diff := cmp.Diff(patient.local.told, prompt.local.told, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("told to the local store: (-Decide +Try)\n%s", diff)
	}
	if patient.seconds != prompt.seconds || patient.store.calls != prompt.store.calls || patient.store.Len() != prompt.store.Len() {
		t.Fatalf("%d calls were timed of %d, and %d logs; want %d of %d, and %d",
			prompt.seconds, prompt.store.calls, prompt.store.Len(), patient.seconds, patient.store.calls, patient.store.Len())
	}
	entries := func(o *observer.ObservedLogs) (text []string) {
		for _, e := range o.TakeAll() {
			text = append(text, fmt.Sprint(e.Message, e.ContextMap()))
		}
		return text
	}
	if diff := cmp.Diff(entries(patient.logs), entries(prompt.logs)); diff != "" {
		t.Fatalf("log: (-Decide +Try)\n%s", diff)
	}
}

// TestCountsOnce: whatever becomes of a descriptor is counted once, and only when the
// request is decided.
func TestCountsOnce(t *testing.T) {
	rs := NewRules(Identity{Secrets: secrets})
	for _, r := range []Rule{
		rule("a", per(9, time.Minute), anyOf("a")), rule("b", per(9, time.Minute), anyOf("b")), rule("free", Terms{Unlimited: true}, anyOf("free")),
		rule("open", Terms{}, anyOf("open")), with(rule("c", per(9, time.Minute), anyOf("c")), func(r *Rule) { r.Replaces = []string{"b"} }),
	} {
		r.Domain = "edge"
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := request("a=x")
	elsewhere.Domain = "elsewhere"
	for _, tt := range []struct {
		req  *Request
		want counts
	}{
		{request("a=x"), counts{"edge/a allowed": 1}},
		{request("nothing=x"), counts{"edge/ no_rule": 1}},
		{request("open=x"), counts{"edge/ no_rule": 1}},
		{request("free=x"), counts{"edge/free unlimited": 1}},
		{request("a=x", "nothing=x", "open=x", "free=x", "b=x", "c=x"), counts{
			"edge/a allowed": 1, "edge/ no_rule": 2, "edge/free unlimited": 1, "edge/b replaced": 1, "edge/c allowed": 1,
		}},
		{elsewhere, counts{"unknown domain": 1}},
	} {
		for _, waits := range []bool{false, true} {
			store := &moody{Store: memstore.New(memstore.Options{}), waits: waits}
			got := counts{}
			decider := NewDecider(rs, Options{Store: store, Meters: got, Log: zap.NewNop()})
			var c Call
			decider.Begin(&c, *tt.req)
			decided, err := c.Decide(t.Context(), window.NoWait)
			if !decided {
				if len(got) != 0 {
					t.Errorf("%v: counted %v before it was decided", tt.req.Descriptors, got)
				}
				_, err = c.Decide(t.Context(), window.MayWait)
			}
			if err != nil || !cmp.Equal(tt.want, got) {
				t.Errorf("%v: error %v, counted %v, want %v", tt.req.Descriptors, err, got, tt.want)
			}
			store.Close()
		}
	}
}

// TestDecideAgain proves that a decided call returns the same result again, and that
// nothing is charged or counted a second time. An undecided call keeps its rules.
func TestDecideAgain(t *testing.T) {
	rs := testRules(t, Identity{Secrets: secrets, Tiers: directory(t)})
	for _, storeErr := range []error{nil, errors.New("boom")} {
		store := &moody{Store: memstore.New(memstore.Options{}), waits: true, err: storeErr}
		got := counts{}
		decider := NewDecider(rs, Options{Store: store, Meters: got, Log: zap.NewNop()})
		var c Call
		decider.Begin(&c, *request("api_key=acme-key"))
		if decided, err := c.Decide(t.Context(), window.NoWait); decided || err != nil || len(got) != 0 {
			t.Errorf("Decide = %v, %v without waiting, counted %v, want it undecided", decided, err, got)
		}
		decider.Swap(NewRules(Identity{Secrets: secrets}))
		_, wantErr := c.Decide(t.Context(), window.MayWait)
		want, counted := fmt.Sprintf("%+v", *c.Verdict()), maps.Clone(got)
		for _, wait := range []bool{window.NoWait, window.MayWait} {
			decided, err := c.Decide(t.Context(), wait)
			if verdict := fmt.Sprintf("%+v", *c.Verdict()); !decided || err != wantErr || verdict != want { //nolint:errorlint // the same error
				t.Errorf("Decide again = %v, %v with %s, want %v with %s", decided, err, verdict, wantErr, want)
			}
		}
		if store.calls != 1 || !cmp.Equal(counted, got) || len(got) == 0 || !errors.Is(wantErr, storeErr) {
			t.Errorf("%d store calls, counted %v, then %v, error %v; want one call, counted once, error %v", store.calls, counted, got, wantErr, storeErr)
		}
		store.Close()
	}
}

// TestUndecidedIsForgotten proves that an undecided request leaves nothing to the next
// one, nor after Forget.
func TestUndecidedIsForgotten(t *testing.T) {
	store := &moody{Store: memstore.New(memstore.Options{}), waits: true}
	defer store.Close()
	source := &asked{answers: answersOf(directory(t)), held: map[string]bool{secrets.Digest("acme-key"): true}}
	rs := testRules(t, Identity{Secrets: secrets, Tiers: directory(t)})
	decider := NewDecider(rs, Options{Store: store, Meters: counts{}, Log: zap.NewNop(), Subjects: source})
	for _, left := range []*Request{request("api_key=acme-key"), request("api_key=acme-key", "api_key=hobby-key")} {
		var c Call
		decider.Begin(&c, *left)
		if decided, err := c.Decide(t.Context(), window.NoWait); decided || err != nil {
			t.Fatalf("Decide = %v, %v without waiting, want it undecided", decided, err)
		}
		source.questions = nil
		decider.Begin(&c, *request("api_key=acme-key"))
		if _, err := c.Decide(t.Context(), window.MayWait); err != nil || len(c.Verdict().Limits) != 2 {
			t.Errorf("Decide = %v with %d limits, want two", err, len(c.Verdict().Limits))
		}
		if len(source.questions) != 1 {
			t.Errorf("%d questions, want the one of this request", len(source.questions))
		}
		decider.Begin(&c, *left)
		if _, err := c.Decide(t.Context(), window.NoWait); err != nil {
			t.Fatal(err)
		}
		c.Forget()
		policytest.NothingIn(t, "call", reflect.ValueOf(&c).Elem())
	}
}

// TestDecideAllocates counts the allocations of a decision without waiting: the name of
// each log, and that of the subject in it.
func TestDecideAllocates(t *testing.T) {
	all, d := scenes(t)
	want := map[string]float64{"one": 1, "one-denied": 1, "key": 2, "three": 5, "three-denied": 4}
	for _, s := range all {
		var c Call
		n := testing.AllocsPerRun(100, func() {
			d.Begin(&c, *s.req)
			if decided, err := c.Decide(t.Context(), window.NoWait); !decided || err != nil {
				t.Fatal(decided, err)
			}
			c.Forget()
		})
		if n > want[s.name] {
			t.Errorf("%s: %v allocations, want %v at most", s.name, n, want[s.name])
		}
	}
}
