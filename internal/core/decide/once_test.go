package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// once lets a rule charge once, with two retries.
func once(r *rules.Rule) {
	r.Charge.Once = rules.ChargeOnce{Entry: "attempt", For: time.Minute, Retries: 2}
}

// addOnce adds a rule to the domain edge.
func addOnce(t *testing.T, rs *rules.Rules, r rules.Rule) {
	t.Helper()
	r.Domain = "edge"
	if err := rs.Add(r); err != nil {
		t.Fatal(err)
	}
}

// TestOnceChecks: the store gets the digest of the log and the key, and the name of the log does not
// depend on it.
func TestOnceChecks(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for _, r := range []rules.Rule{
		with(rule("keys", per(5, time.Hour), anyOf("api_key")), once),
		with(rule("users", per(5, time.Hour), one("route", "a"), anyOf("user")), once),
		rule("plain", per(5, time.Hour), anyOf("plain")),
		with(rule("shadow", rules.Terms{Limits: per(5, time.Hour).Limits, Observe: 1}, anyOf("shadow")), once),
	} {
		addOnce(t, rs, r)
	}
	store := &recordingStore{}
	decider, _ := newDecider(t, rs, store)
	check := func(d Descriptor, mode window.Mode) window.Check {
		t.Helper()
		decide(t, decider, &Request{Domain: "edge", Descriptors: []Descriptor{d}})
		if len(store.checks) != 1 || store.checks[0].Mode != mode {
			t.Fatalf("%v: got the checks %+v, want one of mode %v", d.Entries, store.checks, mode)
		}
		if got := make([]window.Decision, 1); window.Validate(store.checks, got) != nil {
			t.Fatalf("%v: a store refuses %+v", d.Entries, store.checks[0])
		}
		c := store.checks[0]
		store.checks = store.checks[:0]
		return c
	}
	none, want := check(d("api_key=k"), window.Enforce), window.Once{For: time.Minute, Repeats: 2}
	if none.Once != (window.Once{}) {
		t.Errorf("without the entry: got %+v", none.Once)
	}
	seen := make(map[uint64]string)
	for _, text := range []string{"api_key=k attempt=1", "api_key=k attempt=2", "api_key=other attempt=1", "route=a user=k attempt=1", "route=a user=k1 attempt=", "shadow=k attempt=1"} {
		mode := window.Enforce
		if strings.HasPrefix(text, "shadow") {
			mode = window.Observe
		}
		got := check(d(text), mode)
		if text == "route=a user=k1 attempt=" {
			if got.Once != (window.Once{}) {
				t.Errorf("an empty key: got %+v", got.Once)
			}
			continue
		}
		if other, ok := seen[got.Once.ID]; ok || got.Once.ID == 0 {
			t.Errorf("%s has the digest %d, as %q", text, got.Once.ID, other)
		}
		seen[got.Once.ID] = text
		if got.Once.ID = 0; got.Once != want {
			t.Errorf("%s: got %+v, want %+v", text, got.Once, want)
		}
		if strings.HasPrefix(text, "api_key=k ") && got.Key != none.Key {
			t.Errorf("%s has the log %q, want %q", text, got.Key, none.Key)
		}
	}
	spaced := d("api_key=k attempt=1")
	spaced.Entries[1].Value = " 1\t"
	same, padded := check(d("api_key=k attempt=1"), window.Enforce), check(spaced, window.Enforce)
	if same.Once != padded.Once {
		t.Errorf("spaces around a key make another one: %+v and %+v", same.Once, padded.Once)
	}

	// What is reported or given back is so each time.
	refund := d("api_key=k attempt=1")
	refund.Refund = true
	if got := check(refund, window.Refund); got.Cost != 0 || got.Once != (window.Once{}) {
		t.Errorf("a refund with a key gives back %d, once %+v; want nothing", got.Cost, got.Once)
	}
	refund = d("api_key=k")
	refund.Refund = true
	if got := check(refund, window.Refund); got.Cost != 1 {
		t.Errorf("a refund without a key gives back %d, want 1", got.Cost)
	}
	limited := d("api_key=k attempt=1")
	limited.Override = &window.Limit{Hits: 9, Window: time.Minute}
	other := d("api_key=k attempt=2")
	other.Override = limited.Override
	one, two := check(limited, window.Enforce), check(other, window.Enforce)
	if one.Key != two.Key || one.Once.ID == two.Once.ID || one.Once.ID == 0 {
		t.Errorf("with limits of their own: %+v and %+v, want one log and two attempts", one, two)
	}
	decide(t, decider, &Request{Domain: "edge", Descriptors: []Descriptor{d("api_key=k other=1")}})
	if len(store.checks) != 0 {
		t.Errorf("another entry is limited: %+v", store.checks)
	}
}

// TestOnceNeverHides: whatever a client does with its idempotency key, each descriptor has the rule
// and the log that it has without the entry.
func TestOnceNeverHides(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for _, r := range []rules.Rule{
		with(rule("orders", per(5, time.Hour), one("route", "orders"), anyOf("user")), once),
		rule("search", per(5, time.Hour), one("route", "search"), anyOf("user")),
		rule("all", per(5, time.Hour), anyOf("user")),
		with(rule("usage", per(5, time.Hour), anyOf("usage")), func(r *rules.Rule) { r.Charge.Always = true }),
		rule("places", rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 5, Window: time.Minute, Policy: window.InFlight}}}}, anyOf("place")),
	} {
		addOnce(t, rs, r)
	}
	store := &recordingStore{}
	decider, _ := newDecider(t, rs, store)
	limit := &window.Limit{Hits: 2, Window: time.Minute}
	checks := func(text string, override *window.Limit) []window.Check {
		t.Helper()
		req := &Request{Domain: "edge", Stream: 1}
		for one := range strings.SplitSeq(text, " ; ") {
			desc := d(one)
			desc.Override = override
			for i := range desc.Entries {
				desc.Entries[i].Value = strings.ReplaceAll(desc.Entries[i].Value, "HUGE", strings.Repeat("x", 60_000))
			}
			req.Descriptors = append(req.Descriptors, desc)
		}
		store.checks = nil
		decide(t, decider, req)
		return store.checks
	}
	for _, tt := range []struct{ sent, without, attempts string }{
		{"route=orders user=k attempt=1", "route=orders user=k", "1"},
		{"attempt=1 route=orders user=k", "route=orders user=k", "1"},
		{"route=orders attempt=1 user=k", "route=orders user=k", "1"},
		{"attempt=1 route=orders attempt=2 user=k", "route=orders user=k", "1"},
		{"route=orders user=k attempt=", "route=orders user=k", ""},
		{"attempt= route=orders user=k attempt=2", "route=orders user=k", "1"},
		{"route=orders user=k attempt=HUGE", "route=orders user=k", "1"},
		{"route=orders user=k attempt=1,2,3", "route=orders user=k", "1"},
		{"route=search user=k attempt=1", "route=search user=k", ""},
		{"attempt=1 user=k", "user=k", ""},
		{"user=k attempt=1 attempt=2", "user=k", ""},
		{"usage=k attempt=1", "usage=k", ""},
		{"place=k attempt=1", "place=k", ""},
		{"route=orders user=k attempt=1 ; user=k attempt=1", "route=orders user=k ; user=k", "10"},
		{"route=orders user=k attempt=1 ; user=k", "route=orders user=k ; user=k", "10"},
		{"attempt=1 ; user=k attempt=2", "user=k", ""},
	} {
		for name, override := range map[string]*window.Limit{"": nil, "with a limit of its own: ": limit} {
			if override != nil && strings.HasPrefix(tt.sent, "attempt=1 ;") {
				continue // a limit of a descriptor without entries
			}
			want := checks(tt.without, override)
			got := checks(tt.sent, override)
			for i := range want {
				attempt := i < len(tt.attempts) && tt.attempts[i] == '1'
				switch {
				case len(got) != len(want) || got[i].Key != want[i].Key || got[i].Mode != want[i].Mode:
					t.Errorf("%s%s: got the checks %+v, want those of %s: %+v", name, tt.sent, got, tt.without, want)
				case (got[i].Once.ID != 0) != attempt:
					t.Errorf("%s%s: check %d has the attempt %+v, want one: %v", name, tt.sent, i, got[i].Once, attempt)
				default:
					continue
				}
				break
			}
			if len(want) == 0 {
				t.Errorf("%s%s has no limit", name, tt.without)
			}
		}
	}
	// A limit that comes with a descriptor that no rule matches.
	for _, others := range []string{"other=k ", ""} {
		one, two := checks(others+"attempt=1", limit), checks(others+"attempt=2", limit)
		if len(one) != 1 || len(two) != 1 || one[0].Key != two[0].Key {
			t.Errorf("two attempts have the checks %+v and %+v, want one log", one, two)
		}
	}
}

// TestOnceOutcomes decides with a store, and counts.
func TestOnceOutcomes(t *testing.T) {
	now := time.Hour
	decider, counted := newModes(t, nil, &now,
		with(rule("keys", per(2, time.Hour), anyOf("api_key")), once),
		rule("all", per(4, time.Hour), anyOf("all")),
		with(rule("q1", per(1, time.Hour), anyOf("q1")), func(r *rules.Rule) { r.Quota = true; once(r) }),
		with(rule("q2", per(1, time.Hour), anyOf("q2")), func(r *rules.Rule) { r.Quota = true; once(r) }),
	)
	for i, step := range []struct {
		ask     []string
		allowed bool
		remains uint64
	}{
		{[]string{"api_key=k attempt=1"}, true, 1},
		{[]string{"api_key=k attempt=1", "all=x"}, true, 1},
		{[]string{"api_key=k attempt=2", "all=x"}, true, 0},
		{[]string{"api_key=k attempt=3", "all=x"}, false, 0}, // all=x is not charged
		{[]string{"api_key=k attempt=2", "all=x"}, true, 0},
		{[]string{"all=x", "api_key=k attempt=2"}, true, 0},
		{[]string{"api_key=k attempt=1", "all=x"}, false, 0}, // all=x is used up
		{[]string{"api_key=k attempt=1"}, true, 0},           // so that was no retry
		{[]string{"api_key=k attempt=1"}, false, 0},
		{[]string{"q1=x attempt=1", "q2=x attempt=1"}, true, 0},
		{[]string{"q1=x attempt=1", "q2=x attempt=1"}, true, 0},
		{[]string{"q1=x attempt=2", "q2=x attempt=2"}, false, 0},
	} {
		req := request(step.ask...)
		v := decide(t, decider, req)
		if v.Allowed != step.allowed {
			t.Fatalf("step %d: %v: allowed %v, want %v", i, step.ask, v.Allowed, step.allowed)
		}
		for j := range v.Limits {
			if s := &v.Limits[j]; s.Rule.Name == "keys" && s.Decision.Remaining != step.remains {
				t.Errorf("step %d: %v: %d remain, want %d", i, step.ask, s.Decision.Remaining, step.remains)
			}
		}
	}
	for name, want := range map[string]int{"edge/keys allowed": 2, "edge/keys repeated": 4, "edge/keys denied": 2, "edge/keys not_charged": 1, "edge/q1 repeated": 1} {
		if counted[name] != want {
			t.Errorf("%s: counted %d, want %d: %v", name, counted[name], want, counted)
		}
	}
}

// TestOnceRefused has rules that contradict charge_once, in both orders.
func TestOnceRefused(t *testing.T) {
	keys := with(rule("keys", per(5, time.Hour), anyOf("api_key")), once)
	for _, tt := range []struct {
		rules []rules.Rule
		want  string
	}{
		{[]rules.Rule{keys, rule("below", per(1, time.Hour), anyOf("api_key"), anyOf("attempt"))}, "has the idempotency keys of charge_once of the rule edge|api_key"},
		{[]rules.Rule{rule("below", per(1, time.Hour), anyOf("api_key"), one("attempt", "1")), keys}, "the rule edge|api_key/attempt=1 uses it too"},
		{[]rules.Rule{rule("elsewhere", per(1, time.Hour), anyOf("attempt"), anyOf("x")), keys}, "the rule edge|attempt/x uses it too"},
		{[]rules.Rule{keys, with(rule("subject", per(1, time.Hour), anyOf("x")), func(r *rules.Rule) { r.Subject = "attempt" })}, "has the idempotency keys of charge_once"},
		{[]rules.Rule{with(keys, func(r *rules.Rule) { r.Charge.Once.Entry = "masked_remote_address" })}, "who is limited"},
		{[]rules.Rule{with(keys, func(r *rules.Rule) { r.Charge.Once.Entry = "api_key" })}, "holds API keys"},
		{[]rules.Rule{with(rule("r", per(1, time.Hour), anyOf("user")), func(r *rules.Rule) { once(r); r.Charge.Once.Entry = "user" })}, "which log is charged"},
		{[]rules.Rule{with(rule("r", per(1, time.Hour), anyOf("user")), func(r *rules.Rule) { once(r); r.Subject = "attempt" })}, "which log is charged"},
	} {
		rs := rules.NewRules(rules.Identity{Secrets: secrets})
		var err error
		for _, r := range tt.rules {
			if r.Domain = "edge"; err == nil {
				err = rs.Add(r)
			}
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want one with %q", tt.rules[len(tt.rules)-1].Name, err, tt.want)
		}
	}
	// Rules of another domain may use the entry, or another one.
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	for _, r := range []rules.Rule{
		keys, with(rule("below", per(1, time.Hour), anyOf("api_key"), anyOf("route")), once), with(rule("all", per(1, time.Hour), anyOf("user")), once),
	} {
		addOnce(t, rs, r)
	}
	for _, r := range []rules.Rule{rule("attempts", per(1, time.Hour), anyOf("attempt")), with(rule("other", per(1, time.Hour), anyOf("user")), func(r *rules.Rule) { once(r); r.Charge.Once.Entry = "other" })} {
		r.Domain = "other"
		if err := rs.Add(r); err != nil {
			t.Error(err)
		}
	}
}
