package decide

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/reuse/reusetest"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// tableResolver is a tier.Resolver that answers from a table. It records the questions
// that may wait.
type tableResolver struct {
	answers   map[string]tier.Answer // by digest or id
	held      map[string]bool        // the keys that have an answer without waiting
	questions []tier.Key
	found     int // answers without waiting
	waits     []time.Duration
	takes     time.Duration
}

func (a *tableResolver) Resolve(_ context.Context, k tier.Key, wait time.Duration) (answer tier.Answer, ok bool) {
	if name := k.Digest + k.ID; wait < 0 {
		if !a.held[name] {
			return tier.Answer{}, false
		}
		a.found++
		return a.answers[name], true
	}
	a.questions, a.waits = append(a.questions, k), append(a.waits, wait)
	time.Sleep(min(a.takes, wait))
	return a.answers[k.Digest+k.ID], true
}

func known(s tier.Subject) tier.Answer { return tier.Answer{Subject: &s} }

// TestSourcesOutside decides requests with subjects from a source outside of the process.
func TestSourcesOutside(t *testing.T) {
	key := func(k string) string { return secrets.Digest(k) }
	own := func(o tier.Override) *tier.Extra {
		return &tier.Extra{Overrides: map[string]tier.Override{"per-key": o, "route-quota": o}}
	}
	unavailable := tier.Answer{Unavailable: true}
	for _, tt := range []struct {
		name    string
		answers map[string]tier.Answer
		who     rules.Identity
		deny    bool
		caller  *identity.Caller
		req     *Request
		checks  string // "key hits/window", separated by spaces
		tier    string // of the last limit
		asked   int
		denied  bool
	}{
		{
			name:    "known",
			answers: map[string]tier.Answer{key("k"): known(tier.Subject{ID: "zeta", Tier: "starter"})},
			req:     request("api_key=k"),
			checks:  "{id.zeta}:edge|api_key:id.zeta 500/1s {id.zeta}:edge|api_key:id.zeta 3000/1m0s", tier: "starter", asked: 1,
		},
		{
			name:    "asked once for all descriptors",
			answers: map[string]tier.Answer{key("k"): known(tier.Subject{ID: "zeta"})},
			req:     request("api_key=k", "route=search api_key=k", "route=mine"),
			checks:  "{id.zeta}:edge|api_key:id.zeta 100/1m0s {id.zeta}:edge|route=search/api_key:id.zeta 20/1h0m0s {id.zeta}:edge|route=mine:id.zeta 8/1h0m0s",
			tier:    "free", asked: 1,
		},
		{
			name:    "a tier that the rules do not know counts as the default one",
			answers: map[string]tier.Answer{key("k"): known(tier.Subject{ID: "zeta", Tier: "platinum"})},
			req:     request("api_key=k"), checks: "{id.zeta}:edge|api_key:id.zeta 100/1m0s", tier: "free", asked: 1,
		},
		{
			name:    "disabled",
			answers: map[string]tier.Answer{key("k"): known(tier.Subject{ID: "zeta", Tier: "starter", Disabled: true})},
			req:     request("api_key=k", "remote_address=192.0.2.7"),
			checks:  "{addr.192.0.2.7}:edge|api_key:addr.192.0.2.7 100/1m0s {192.0.2.7}:edge|remote_address:192.0.2.7 50/1m0s", asked: 1,
		},
		{
			name: "the source is away: the key has a log by itself, with the limits of the default tier", answers: map[string]tier.Answer{key("k"): unavailable},
			req:    request("api_key=k", "remote_address=192.0.2.7"),
			checks: "{key." + key("k") + "}:edge|api_key:key." + key("k") + " 100/1m0s {192.0.2.7}:edge|remote_address:192.0.2.7 50/1m0s", asked: 1,
		},
		{
			name: "the source is away: denied", answers: map[string]tier.Answer{key("k"): unavailable}, deny: true,
			req: request("remote_address=192.0.2.7", "api_key=k"), tier: "free", asked: 1, denied: true,
		},
		{
			name: "a request without a subject is not denied", answers: map[string]tier.Answer{key("k"): unavailable}, deny: true,
			req: request("remote_address=192.0.2.7"), checks: "{192.0.2.7}:edge|remote_address:192.0.2.7 50/1m0s",
		},
		{
			name:    "an own limit",
			answers: map[string]tier.Answer{key("k"): known(tier.Subject{ID: "zeta", Tier: "starter", Extra: own(tier.Override{Limits: []window.Limit{{Hits: 77, Window: time.Minute}}})})},
			req:     request("api_key=k", "route=search api_key=k"),
			checks:  "{id.zeta}:edge|api_key:id.zeta 77/1m0s {id.zeta}:edge|route=search/api_key:id.zeta 20/1h0m0s", tier: "starter", asked: 1,
		},
		{
			name:    "an invalid limit of the subject",
			answers: map[string]tier.Answer{key("k"): known(tier.Subject{ID: "zeta", Tier: "starter", Extra: own(tier.Override{Unlimited: true})})},
			req:     request("api_key=k"), asked: 1,
		},
		{
			name:    "several own limits, of which a quota rule can have none",
			answers: map[string]tier.Answer{key("k"): known(tier.Subject{ID: "zeta", Extra: own(tier.Override{Limits: []window.Limit{{Hits: 1, Window: time.Minute}, {Hits: 2, Window: time.Hour}}})})},
			req:     request("api_key=k", "quota=a api_key=k"),
			checks:  "{id.zeta}:edge|api_key:id.zeta 1/1m0s {id.zeta}:edge|api_key:id.zeta 2/1h0m0s {id.zeta}:edge|quota/api_key:a,id.zeta 5/1m0s", tier: "free", asked: 1,
		},
		{
			name:    "by id",
			answers: map[string]tier.Answer{"zeta": known(tier.Subject{ID: "zeta", Tier: "starter"})},
			req:     request("consumer=zeta"), checks: "{id.zeta}:edge|consumer:id.zeta 2/1m0s", tier: "starter", asked: 1,
		},
		{
			name: "a trusted entry says the tier", who: rules.Identity{TrustedEntry: "tier"},
			req: request("consumer=zeta", "tier=starter"), checks: "{id.zeta}:edge|consumer:id.zeta 2/1m0s", tier: "starter", asked: 1,
		},
		{
			name: "an entry that is not trusted says nothing",
			req:  request("consumer=zeta", "tier=starter"), checks: "{id.zeta}:edge|consumer:id.zeta 1/1m0s", tier: "free", asked: 1,
		},
		{
			name: "a trusted entry with a tier that the rules do not know", who: rules.Identity{TrustedEntry: "tier"},
			req: request("consumer=zeta", "tier=platinum"), checks: "{id.zeta}:edge|consumer:id.zeta 1/1m0s", tier: "free", asked: 1,
		},
		{
			name: "a trusted entry is enough while the source is away", who: rules.Identity{TrustedEntry: "tier"}, deny: true,
			answers: map[string]tier.Answer{"zeta": unavailable},
			req:     request("consumer=zeta", "tier=starter"), checks: "{id.zeta}:edge|consumer:id.zeta 2/1m0s", tier: "starter", asked: 1,
		},
		{
			name:   "the adapter has asked already",
			caller: &identity.Caller{Fingerprint: key("k"), Answer: known(tier.Subject{ID: "zeta", Tier: "starter"})},
			req:    request("route=search api_key=k"), checks: "{id.zeta}:edge|route=search/api_key:id.zeta 20/1h0m0s", tier: "starter",
		},
		{
			name:   "the adapter has asked already, and the id is its subject's",
			caller: &identity.Caller{Fingerprint: key("k"), Answer: known(tier.Subject{ID: "zeta", Tier: "starter"})},
			req:    request("consumer=zeta"), checks: "{id.zeta}:edge|consumer:id.zeta 2/1m0s", tier: "starter",
		},
		{
			name:   "the adapter has asked for another key",
			caller: &identity.Caller{Fingerprint: key("other"), Answer: known(tier.Subject{ID: "zeta", Tier: "starter"})},
			req:    request("route=search api_key=k"), checks: "{addr.}:edge|route=search/api_key:addr. 20/1h0m0s", tier: "free", asked: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.who.Secrets, tt.who.Tiers = secrets, directory(t)
			rs := testRules(t, tt.who)
			if err := rs.Add(rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("quota"), anyOf("api_key")}, Name: "route-quota", Quota: true, Terms: per(5, time.Minute)}); err != nil {
				t.Fatal(err)
			}
			store, source := new(recordingStore), &tableResolver{answers: tt.answers}
			decider := NewDecider(rs, Options{Store: store, Meters: counts{}, Log: dropAll, Subjects: source, Wait: time.Second, DenyUnresolved: tt.deny})
			tt.req.Caller = tt.caller
			v := decide(t, decider, tt.req)
			var got []string
			for _, c := range store.checks {
				got = append(got, fmt.Sprintf("%s %d/%v", c.Key, c.Limit.Hits, c.Limit.Window))
			}
			if got := strings.Join(got, " "); got != tt.checks {
				t.Errorf("checks:\n%s\nwant:\n%s", got, tt.checks)
			}
			if n := len(v.Limits); n > 0 && v.Limits[n-1].Tier != tt.tier {
				t.Errorf("tier of the last limit = %q, want %q", v.Limits[n-1].Tier, tt.tier)
			}
			if len(source.questions) != tt.asked {
				t.Errorf("asked for %v, want %d questions", source.questions, tt.asked)
			}
			if v.Allowed == tt.denied || v.Degraded != tt.denied {
				t.Errorf("allowed %v degraded %v, want a denial: %v", v.Allowed, v.Degraded, tt.denied)
			}
			if tt.denied {
				if s := v.Limits[v.Decisive]; !s.DeniedUndecided() || s.Rule.Name != "per-key" || s.Decision.RetryAfter != rules.StoreErrorRetry || v.DegradedBy() != rules.StoreErrorDeny {
					t.Errorf("it is denied by %+v", s)
				}
			}
			if want := tt.answers[key("k")].Unavailable && tt.asked > 0; v.Unresolved != want {
				t.Errorf("Unresolved = %v, want %v", v.Unresolved, want)
			}
		})
	}
}

// TestTheWaitIsThatOfTheRequest proves that the keys of one request share its wait.
func TestTheWaitIsThatOfTheRequest(t *testing.T) { synctest.Test(t, testWait) }

func testWait(t *testing.T) {
	source := &tableResolver{takes: 20 * time.Millisecond}
	rs := testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)})
	decider := NewDecider(rs, Options{Store: new(recordingStore), Meters: counts{}, Log: dropAll, Subjects: source, Wait: 25 * time.Millisecond})
	decide(t, decider, request("api_key=a", "api_key=b", "api_key=c", "api_key=a"))
	if len(source.waits) != 3 || source.waits[0] != 25*time.Millisecond || source.waits[1] != 5*time.Millisecond || source.waits[2] != 0 {
		t.Errorf("waits = %v, want 25ms, what the first leaves of it, and 0s", source.waits)
	}
}

// TestPlainKeys proves that a source gets the key itself if the adapter kept it, and
// that the verdict does not.
func TestPlainKeys(t *testing.T) {
	source := new(tableResolver)
	rs := testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t)})
	decider := NewDecider(rs, Options{Store: new(recordingStore), Meters: counts{}, Log: dropAll, Subjects: source})
	req := request("api_key=a", "api_key=b")
	req.Plain = []identity.PlainKey{{Fingerprint: secrets.Fingerprint("b"), Key: "b"}}
	var c Call
	decider.Begin(&c, *req)
	if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
		t.Fatal(err)
	}
	if q := source.questions; len(q) != 2 || q[0].Plain != "" || q[1].Plain != "b" {
		t.Errorf("asked for %+v, want the key b itself alone", q)
	}
	reusetest.NothingIn(t, "context", reflect.ValueOf(&c.who).Elem().FieldByName("ctx"))
	c.Forget()
	reusetest.NothingIn(t, "call", reflect.ValueOf(&c).Elem())
}

// TestPreviousSecret proves that keys are known under the current and the previous secret,
// and that the current one names the logs of unknown keys.
func TestPreviousSecret(t *testing.T) {
	old, now := tier.NewSecrets([]string{"api_key"}, []byte("an older pepper")), tier.NewSecrets([]string{"api_key"}, []byte("a newer pepper"))
	now.Previous([]byte("an older pepper"))
	dir, err := tier.NewDirectory([]string{"free", "starter"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	for id, digest := range map[string]string{"early": old.Digest("early-key"), "late": now.Digest("late-key")} {
		if err := dir.Add(tier.Subject{ID: id, Tier: "starter"}, digest); err != nil {
			t.Fatal(err)
		}
	}
	rs := testRules(t, rules.Identity{Secrets: now, Tiers: dir, EachUnknownKey: true})
	store := new(recordingStore)
	decider, _ := newDecider(t, rs, store)
	for key, want := range map[string]string{
		"early-key": "{id.early}:edge|api_key:id.early", "late-key": "{id.late}:edge|api_key:id.late",
		"no-key": fmt.Sprintf("{key.%[1]s}:edge|api_key:key.%[1]s", now.Digest("no-key")),
	} {
		req := &Request{Domain: "edge", Descriptors: []Descriptor{{Cost: 1, Entries: descriptors.Descriptor{{Key: "api_key", Value: now.Value("api_key", key)}}}}}
		decide(t, decider, req)
		if got := store.checks[0].Key; got != want {
			t.Errorf("the log of %s is %s, want %s", key, got, want)
		}
	}
	if n := now.FoundByPrevious(); n != 1 {
		t.Errorf("%d keys were found under the previous secret, want 1", n)
	}
}

// TestWhiteSpaceAroundValues proves that spaces and tabs around a value in requests and
// rules change neither its log nor its rule.
func TestWhiteSpaceAroundValues(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t), TrustedEntry: "tier"})
	for i, path := range [][]descriptors.Node{
		{one("route", "\tsearch ")},
		{{Key: "path", Value: " /files/* ", Pattern: true}},
		{anyOf("path")},
		{one("api_key", " vip-key\t")},
		{anyOf("remote_address")},
		{anyOf("consumer")},
	} {
		r := rules.Rule{Domain: "edge", Path: path, Terms: per(uint64(i+1), time.Hour)}
		if path[0].Key == "consumer" {
			r.Subject = "consumer"
			r.ByTier = map[string]rules.Terms{"starter": per(7, time.Hour)}
		}
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	store := new(recordingStore)
	decider, _ := newDecider(t, rs, store)
	vip := secrets.Digest("vip-key")
	for _, tt := range []struct {
		key, value string
		want       uint64
		log        string // "": not looked at
	}{
		{"route", "search", 1, "{edge|route=search}:edge|route=search"},
		{"path", "/files/a", 2, ""},
		{"path", "/files/a b", 2, ""},
		{"path", "/other", 3, ""},
		{"path", "", 3, ""},
		{"api_key", "vip-key", 4, "{edge|api_key=" + vip + "}:edge|api_key=" + vip},
		{"remote_address", "::ffff:192.0.2.7", 5, "{192.0.2.7}:edge|remote_address:192.0.2.7"},
		{"consumer", "acme", 7, "{id.acme}:edge|consumer:id.acme"},
	} {
		first := ""
		for _, padding := range []string{"", " ", "\t", " \t "} {
			for _, value := range []string{tt.value + padding, padding + tt.value, padding + tt.value + padding} {
				req := &Request{Domain: "edge", Descriptors: []Descriptor{
					{Cost: 1, Entries: descriptors.Descriptor{{Key: tt.key, Value: secrets.Value(tt.key, value)}}},
					{Cost: 1, Entries: descriptors.Descriptor{{Key: "tier", Value: padding + "starter" + padding}}},
				}}
				v := decide(t, decider, req)
				log := store.checks[0].Key
				if first == "" {
					first = log
				}
				if v.Limits[0].Limit.Hits != tt.want || log != first || tt.log != "" && log != tt.log {
					t.Errorf("%s=%q: the limit %d and the log %s, want %d and %s", tt.key, value, v.Limits[0].Limit.Hits, log, tt.want, first)
				}
			}
		}
		// Other white space is a part of the value.
		for _, padding := range []string{"\u00a0", "\u0085", "\v", "\n"} {
			req := &Request{Domain: "edge", Descriptors: []Descriptor{{Cost: 1, Entries: descriptors.Descriptor{{Key: tt.key, Value: secrets.Value(tt.key, tt.value+padding)}}}}}
			v := decide(t, decider, req)
			if len(v.Limits) > 0 && store.checks[0].Key == first {
				t.Errorf("%s=%q has the log of %q", tt.key, tt.value+padding, tt.value)
			}
		}
	}
}

// TestOverridesOfASource: a record of a source is first seen at a request, which logs an override that
// the rule ignores. For a file of tiers the configuration has warned.
func TestOverridesOfASource(t *testing.T) {
	bucket := rules.Limit{Limit: window.Limit{Policy: window.TokenBucket, Rate: 5, Window: time.Second, Hits: 50}}
	hits, burst := window.Limit{Hits: 7, Window: time.Minute}, window.Limit{Policy: window.TokenBucket, Rate: 9, Window: time.Second, Hits: 90}
	for _, tt := range []struct {
		elsewhere bool
		rule      []rules.Limit
		own       []window.Limit
		want      string // in the log
		limit     string // that counts
	}{
		{true, []rules.Limit{bucket}, []window.Limit{hits}, "", "7 per 1m, bursts of 7"},
		{true, []rules.Limit{{Limit: hits}}, []window.Limit{burst}, "these keys have no meaning under the policy sliding", "7 per 1m"},
		{true, []rules.Limit{bucket}, []window.Limit{burst}, "", "9 per 1s, bursts of 90"},
		{false, []rules.Limit{{Limit: hits}}, []window.Limit{burst}, "", "7 per 1m"},
	} {
		dir, err := tier.NewDirectory([]string{"free"}, "free")
		if err != nil {
			t.Fatal(err)
		}
		extra := &tier.Extra{Overrides: map[string]tier.Override{"r": {Limits: tt.own}}}
		if err := dir.Add(tier.Subject{ID: "acme", Extra: extra}, secrets.Digest("acme-key")); err != nil {
			t.Fatal(err)
		}
		rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir, Elsewhere: tt.elsewhere})
		if err := rs.Add(rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("api_key")}, Name: "r", Terms: rules.Terms{Limits: tt.rule}}); err != nil {
			t.Fatal(err)
		}
		store := memstore.New(memstore.Options{})
		t.Cleanup(func() { store.Close() })
		core, log := observer.New(zapcore.WarnLevel)
		d := NewDecider(rs, Options{Store: store, Subjects: dir, Log: logTo(core)})
		v := decide(t, d, request("api_key=acme-key"))
		if got := rules.FormatLimit(v.Limits[0].Limit.Limit); got != tt.limit {
			t.Errorf("%+v: the limit is %s", tt, got)
		}
		got, fields := "", map[string]any{"rule": rs.All()[0].String(), "subject": "acme"}
		for _, e := range log.FilterMessage("a subject's override does not apply to a rule; correct it in the customer source").All() {
			got = e.ContextMap()["problem"].(string)
			for k, v := range fields {
				if e.ContextMap()[k] != v {
					t.Errorf("the log has %v", e.ContextMap())
				}
			}
		}
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: the log has %q", tt, got)
		}
	}
}
