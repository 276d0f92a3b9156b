package decide

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/reuse/reusetest"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// waitingStore is the embedded store. It fails with err, and decides nothing without waiting if
// waits is set.
type waitingStore struct {
	*memstore.Store
	err   error
	waits bool
	calls int // that have decided or failed
}

func (m *waitingStore) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
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

// answersOf returns the answers of a directory for its keys and ids, one for a subject
// with limits of its own, and one for a key whose source does not answer.
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

// TestContinue proves that an undecided call continues from where it stopped: what it
// has found is not asked again.
func TestContinue(t *testing.T) {
	acme, hobby := secrets.Digest("acme-key"), secrets.Digest("hobby-key")
	for _, tt := range []struct {
		name     string
		held     []string // keys that are found without waiting
		withWait []string // keys that are resolved with waiting
	}{
		{"no key is held", nil, []string{acme, hobby}},
		{"the first key is held", []string{acme}, []string{hobby}},
		{"the second key is held", []string{hobby}, []string{acme, hobby}},
		{"both keys are held, and the store has to wait", []string{acme, hobby}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := &waitingStore{Store: memstore.New(memstore.Options{}), waits: true}
			defer store.Close()
			source := &tableResolver{answers: answersOf(directory(t)), held: make(map[string]bool)}
			for _, key := range tt.held {
				source.held[key] = true
			}
			got := counts{}
			decider := NewDecider(testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)}),
				Options{Store: store, Meters: got, Log: dropAll, Subjects: source, Wait: time.Second})
			req := request("api_key=acme-key", "api_key=hobby-key", "remote_address=192.0.2.1")
			want := decide(t, decider, req)
			clear(got)
			source.questions, store.calls = nil, 0
			var c Call
			decider.Begin(&c, *req)
			for range 2 {
				if decided, err := c.Decide(t.Context(), window.NoWait); decided || err != nil || len(got) != 0 || store.calls != 0 || len(source.questions) != 0 {
					t.Fatalf("Decide = %v, %v without waiting, counted %v, %d store calls, asked for %v", decided, err, got, store.calls, source.questions)
				}
			}
			clear(source.held) // only keys that were not found may be resolved again
			if decided, err := c.Decide(t.Context(), window.MayWait); !decided || err != nil {
				t.Fatalf("Decide = %v, %v with waiting", decided, err)
			}
			var resolved []string
			for _, k := range source.questions {
				resolved = append(resolved, k.Digest)
			}
			if diff := cmp.Diff(tt.withWait, resolved); diff != "" || store.calls != 1 {
				t.Errorf("%d store calls, want 1; resolved with waiting: (-want +got)\n%s", store.calls, diff)
			}
			v := c.Verdict()
			if v.Allowed != want.Allowed || len(v.Limits) != len(want.Limits) || !cmp.Equal(v.Strictest, want.Strictest) || !cmp.Equal(counts{"edge/per-key allowed": 2, "edge/per-address allowed": 1}, got) {
				t.Errorf("verdict %+v, counted %v; want %+v", v, got, want)
			}
		})
	}
}

// TestCountsOnce proves that each descriptor is counted once, and only when the request is
// decided.
func TestCountsOnce(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for _, r := range []rules.Rule{
		rule("a", per(9, time.Minute), anyOf("a")), rule("b", per(9, time.Minute), anyOf("b")), rule("free", rules.Terms{Unlimited: true}, anyOf("free")),
		rule("open", rules.Terms{}, anyOf("open")), with(rule("c", per(9, time.Minute), anyOf("c")), func(r *rules.Rule) { r.Replaces = []string{"b"} }),
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
		{request("form=x"), counts{"edge/ no_rule": 1}},
		{request("form=openai"), counts{}},
		{request("open=x"), counts{"edge/ no_rule": 1}},
		{request("free=x"), counts{"edge/free unlimited": 1}},
		{request("a=x", "nothing=x", "open=x", "free=x", "b=x", "c=x"), counts{
			"edge/a allowed": 1, "edge/ no_rule": 2, "edge/free unlimited": 1, "edge/b replaced": 1, "edge/c allowed": 1,
		}},
		{elsewhere, counts{"unknown domain": 1}},
	} {
		for _, waits := range []bool{false, true} {
			store := &waitingStore{Store: memstore.New(memstore.Options{}), waits: waits}
			got := counts{}
			decider := NewDecider(rs, Options{Store: store, Meters: got, Log: dropAll})
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
	rs := testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)})
	for _, storeErr := range []error{nil, errors.New("boom")} {
		store := &waitingStore{Store: memstore.New(memstore.Options{}), waits: true, err: storeErr}
		got := counts{}
		decider := NewDecider(rs, Options{Store: store, Meters: got, Log: dropAll})
		var c Call
		decider.Begin(&c, *request("api_key=acme-key"))
		if decided, err := c.Decide(t.Context(), window.NoWait); decided || err != nil || len(got) != 0 {
			t.Errorf("Decide = %v, %v without waiting, counted %v, want it undecided", decided, err, got)
		}
		decider.Swap(rules.NewRules(rules.Identity{Secrets: secrets}))
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
	store := &waitingStore{Store: memstore.New(memstore.Options{}), waits: true}
	defer store.Close()
	source := &tableResolver{answers: answersOf(directory(t)), held: map[string]bool{secrets.Digest("acme-key"): true}}
	rs := testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)})
	decider := NewDecider(rs, Options{Store: store, Meters: counts{}, Log: dropAll, Subjects: source})
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
		reusetest.NothingIn(t, "call", reflect.ValueOf(&c).Elem())
	}
}

// TestDecideAllocates counts the allocations of a decision without waiting: the name of each log.
func TestDecideAllocates(t *testing.T) {
	all, d := benchRequests(t)
	want := map[string]float64{"one": 1, "one-denied": 1, "key": 1, "three": 3, "three-denied": 3}
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

// TestUndecidedIsNotAllowed proves that a verdict never allows a request before the
// request is decided, nor after an error.
func TestUndecidedIsNotAllowed(t *testing.T) {
	store := &waitingStore{Store: memstore.New(memstore.Options{}), waits: true}
	defer store.Close()
	decider, _ := newDecider(t, testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)}), store)
	var c Call
	decider.Begin(&c, *request("api_key=acme-key"))
	if decided, err := c.Decide(t.Context(), window.NoWait); decided || err != nil || c.Verdict().Allowed {
		t.Errorf("without waiting: %t, %v, allowed %t, want it undecided and not allowed", decided, err, c.Verdict().Allowed)
	}
	store.err = errors.New("gone")
	if _, err := c.Decide(t.Context(), window.MayWait); err == nil || c.Verdict().Allowed {
		t.Errorf("after an error: %v, allowed %t, want an error and not allowed", err, c.Verdict().Allowed)
	}
}
