package explain

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/core/coretest"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// accountRules are rules of every kind that can apply to a subject.
func accountRules(t tester, who rules.Identity) *rules.Rules {
	if who.Secrets == nil {
		who.Secrets = tier.NewSecrets([]string{"api_key", "second_key"}, nil)
	}
	rs := rules.NewRules(who)
	tiers := map[string]rules.Terms{"starter": {Limits: append(per(500, time.Second).Limits, per(3000, time.Minute).Limits...)}}
	some := per(30, time.Minute)
	some.Observe = 0.5
	// Two limits of one window, which have logs of one name.
	both := per(5, time.Hour)
	both.Limits = append(both.Limits, rules.Limit{Limit: window.Limit{Hits: 6, Window: time.Hour, Policy: window.Fixed}})
	for _, r := range []rules.Rule{
		rule("per-key", per(100, time.Minute), anyOf("api_key")),
		rule("vip", per(6, time.Hour), one("api_key", "vip-key")),
		rule("acme-key", per(7, time.Hour), one("api_key", "acme-new-key"), anyOf("route")),
		rule("route-key", per(20, time.Hour), one("route", "search"), anyOf("api_key")),
		rule("each-route", some, fits("route", "s*"), anyOf("api_key")),
		rule("key-route", some, anyOf("api_key"), anyOf("route")),
		rule("keys", both, anyOf("api_key"), anyOf("second_key")),
		with(rule("mine", per(8, time.Hour), one("route", "mine")), func(r *rules.Rule) { r.Subject = "api_key" }),
		with(rule("mine-open", per(9, time.Hour), one("generic", "mine"), anyOf("route")), func(r *rules.Rule) { r.Subject = "api_key" }),
		with(rule("consumer", per(4, time.Hour), anyOf("consumer")), func(r *rules.Rule) { r.ByTier = map[string]rules.Terms{"starter": per(40, time.Hour)} }),
		with(rule("consumer-a", per(3, time.Hour), fits("consumer", "a*")), func(r *rules.Rule) { r.Subject = "consumer" }),
		with(rule("shared", per(2, time.Hour), fits("route", "z*"), anyOf("api_key")), func(r *rules.Rule) { r.OneLog = []bool{true} }),
		rule("address", per(50, time.Minute), anyOf("remote_address")),
		rule("network", per(51, time.Minute), anyOf("masked_remote_address")),
		rule("one-address", per(52, time.Minute), one("remote_address", "192.0.2.9")),
		rule("address-key", per(53, time.Minute), anyOf("remote_address"), anyOf("api_key")),
		rule("address-route", both, anyOf("route"), anyOf("remote_address")),
		with(rule("address-mine", per(55, time.Minute), one("generic", "address"), anyOf("remote_address")), func(r *rules.Rule) { r.Subject = "api_key" }),
		rule("session", per(56, time.Minute), anyOf("session_id"), anyOf("api_key")),
		rule("nobody", per(57, time.Minute), anyOf("route")),
	} {
		r.Domain = "edge"
		if r.Name == "per-key" {
			if who.Tiers != nil {
				r.ByTier = tiers
			}
			r.Replaces = []string{"mine"}
		}
		if who.Tiers == nil {
			r.ByTier = nil
			if r.Name == "consumer" {
				r.Subject = "consumer"
			}
		}
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return rs
}

// asker is a tester with a context.
type asker interface {
	tester
	Context() context.Context
}

// A hit is a log that a request was checked on, as the decision had it.
type hit struct {
	log      window.LogID
	rule     string
	hits     uint64
	tier     string
	own      bool
	observed bool
}

// TestAccountIsWhatAppliesToRequests sends random requests, and compares the logs that they are
// checked on with those that each party has: all of them, with the same limits, and no other.
func TestAccountIsWhatAppliesToRequests(t *testing.T) {
	for name, who := range map[string]rules.Identity{
		"an address for unknown keys": {}, "each unknown key": {EachUnknownKey: true}, "no tiers": {},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "no tiers" {
				who.Tiers = directory(t)
			}
			rapid.Check(t, func(t *rapid.T) { testAccount(t, accountRules(t, who)) })
		})
	}
}

func testAccount(t *rapid.T, rs *rules.Rules) {
	decider := decide.NewDecider(rs, decide.Options{Store: memstore.New(memstore.Options{SweepInterval: -1})})
	all := make(map[window.LogID]bool)
	subjects, digests, addresses := make(map[string][]hit), make(map[string][]hit), make(map[string][]hit)
	value := func(key string, values ...string) descriptors.Entry {
		return descriptors.Entry{Key: key, Value: rs.Secrets().Value(key, rapid.SampledFrom(values).Draw(t, key))}
	}
	for range rapid.IntRange(1, 12).Draw(t, "requests") {
		key := value("api_key", "acme-key", "acme-new-key", "hobby-key", "gone-key", "vip-key", "made-up")
		address := value("remote_address", "192.0.2.7", "192.0.2.9", "198.51.100.7", "2001:db8::7")
		network := value("masked_remote_address", "192.0.2.0/24", "192.0.0.0/16", "2001:db8::/64")
		route := value("route", "search", "sell", "mine", "zoo", strings.Repeat("x", 200), "a,b:c\n")
		consumer := value("consumer", "acme", "nobody", strings.Repeat("a", 140))
		generic := value("generic", "mine", "address")
		session := value("session_id", "planted")
		second := value("second_key", "acme-key", "made-up")
		shapes := []descriptors.Descriptor{
			{key},
			{route, key},
			{key, route},
			{route},
			{generic, route},
			{consumer},
			{address},
			{network},
			{address, key},
			{route, address},
			{generic, address},
			{session, key},
			{key, second},
		}
		req := decide.Request{Domain: "edge"}
		for range rapid.IntRange(1, 4).Draw(t, "descriptors") {
			entries := slices.Clone(rapid.SampledFrom(shapes).Draw(t, "shape"))
			req.Descriptors = append(req.Descriptors, decide.Descriptor{Entries: entries, Cost: 1})
		}
		var c decide.Call
		decider.Begin(&c, req)
		if decided, err := c.Decide(t.Context(), window.MayWait); err != nil || !decided {
			t.Fatal(decided, err)
		}
		for i, s := range c.Verdict().Limits {
			h := hit{c.Checks()[i].Log(), s.Rule.Name, s.Limit.Hits, s.Tier, s.Source == verdict.SourceOverride, s.Observed()}
			all[h.log] = true
			name, err := descriptors.ParseKey(h.log.Key)
			if err != nil {
				t.Fatal(err)
			}
			if s.Rule.HasSubject() {
				own := ""
				switch at := s.Rule.SubjectAt(); {
				case at < 0 || s.Rule.Path[at].Open():
					i := slices.IndexFunc(s.Rule.Parts(), func(p rules.Part) bool { return p.Level == at })
					own = name.Identity[max(i, 0)].Text
					if at >= 0 && i < 0 {
						t.Fatal(h)
					}
					if name.Identity[max(i, 0)].Digest {
						own = "id." + strings.Repeat("a", 140)
					}
				case s.Subject != "":
					own = "id." + s.Subject
				case !rs.UnknownByAddress():
					own = "key." + tier.FingerprintDigest(req.Descriptors[s.Descriptor].Entries[at].Value)
				}
				if id, ok := strings.CutPrefix(own, "id."); ok {
					subjects[id] = append(subjects[id], h)
				}
				if digest, ok := strings.CutPrefix(own, "key."); ok {
					digests[digest] = append(digests[digest], h)
				}
				if text, ok := strings.CutPrefix(own, "addr."); ok && text != "" && !slices.ContainsFunc(s.Rule.Path, func(n descriptors.Node) bool { return rules.IsAddressKey(n.Key) }) {
					addresses[text] = append(addresses[text], h)
				}
			}
			for _, e := range req.Descriptors[s.Descriptor].Entries {
				if rules.IsAddressKey(e.Key) {
					addresses[e.Value] = append(addresses[e.Value], h)
				}
			}
		}
	}
	for _, id := range []string{"acme", "hobby", "gone", "nobody", strings.Repeat("a", 140)} {
		compareAccount(t, rs, "subject "+id, AccountQuery{Subject: id}, all, subjects[id])
	}
	for _, key := range []string{"vip-key", "made-up"} {
		digest := rs.Secrets().Digest(key)
		if !rs.UnknownByAddress() {
			compareAccount(t, rs, "digest of "+key, AccountQuery{Digest: digest}, all, digests[digest])
		}
	}
	for _, text := range []string{"192.0.2.7", "192.0.2.9", "192.0.2.0/24", "2001:db8::7", "198.51.100.8"} {
		a, _ := rules.ParseAddress(text)
		var want []hit
		for other, hits := range addresses {
			if o, _ := rules.ParseAddress(other); o.Overlaps(a) {
				want = append(want, hits...)
			}
		}
		compareAccount(t, rs, "address "+text, AccountQuery{Address: a}, all, want)
	}
}

// TestAccountOfATrustedTier: a subject whose request names another tier than its own has the log of
// that tier too.
func TestAccountOfATrustedTier(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t), TrustedEntry: "tier"})
	r := rule("r", per(5, time.Hour), anyOf("tier"), anyOf("api_key"))
	r.Domain, r.Subject = "edge", "api_key"
	if err := rs.Add(r); err != nil {
		t.Fatal(err)
	}
	d := decide.NewDecider(rs, decide.Options{Store: memstore.New(memstore.Options{SweepInterval: -1})})
	var c decide.Call
	d.Begin(&c, decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{{Cost: 1, Entries: descriptors.Descriptor{
		{Key: "tier", Value: "free"}, {Key: "api_key", Value: rs.Secrets().Value("api_key", "acme-key")},
	}}}})
	if decided, err := c.Decide(t.Context(), window.MayWait); err != nil || !decided || len(c.Checks()) != 1 {
		t.Fatal(decided, err, len(c.Checks()))
	}
	id := c.Checks()[0].Log()
	found := logsOf(t, rs, AccountQuery{Subject: "acme"}, map[window.LogID]bool{id: true})
	if !slices.ContainsFunc(found, func(l AccountLimit) bool { return l.Log == id }) {
		t.Errorf("acme has %+v, and not %v", found, id)
	}
}

// compareAccount compares the logs of a subject with those that its requests were checked on.
func compareAccount(t *rapid.T, rs *rules.Rules, name string, q AccountQuery, all map[window.LogID]bool, want []hit) {
	got := make(map[hit]bool)
	for _, l := range logsOf(t, rs, q, all) {
		h := hit{l.Log, l.Rule.Name, l.Limit.Hits, l.Tier, l.Override, l.Observed}
		if got[h] {
			t.Fatalf("%s: %+v twice", name, h)
		}
		got[h] = true
		for _, text := range append(slices.Clone(l.Values), l.Shown) {
			if strings.Contains(text, "planted") || strings.Contains(text, "\n") {
				t.Fatalf("%s: %q is shown", name, text)
			}
		}
		if !slices.Contains(want, h) && all[l.Log] {
			t.Fatalf("%s has %+v, which none of its requests met", name, h)
		}
	}
	for _, h := range want {
		if !got[h] {
			t.Fatalf("%s lacks %+v, has\n%s", name, h, lines(slices.Collect(maps.Keys(got))))
		}
	}
}

func lines(all []hit) string {
	var b strings.Builder
	for _, h := range all {
		fmt.Fprintf(&b, "%+v\n", h)
	}
	return b.String()
}

// logsOf returns the limits of a party that have logs: those of known names, and those that a
// search finds among all.
func logsOf(t asker, rs *rules.Rules, q AccountQuery, all map[window.LogID]bool) (limits []AccountLimit) {
	p := AccountOf(t.Context(), rs, q)
	for i := range p.Len() {
		l, _ := p.Rule(i)
		for _, l := range l {
			if !l.Unlimited {
				limits = append(limits, l)
			}
		}
	}
	seen := make(map[window.LogID]bool)
	for _, m := range p.Searches() {
		for id := range all {
			if seen[id] || m.Tag != "" && !strings.HasPrefix(id.Key, "{"+m.Tag+"}") || !strings.Contains(id.Key, m.Contains) {
				continue
			}
			if l, _, ok := p.Log(t.Context(), id); ok {
				limits, seen[id] = append(limits, l), true
			}
		}
	}
	return limits
}

// TestAccountLimits shows what single parties are told.
func TestAccountLimits(t *testing.T) {
	rs := accountRules(t, rules.Identity{Tiers: directory(t)})
	for _, tt := range []struct {
		name  string
		query AccountQuery
		rule  string
		want  string
	}{
		{"both windows of the tier", AccountQuery{Subject: "acme"}, "per-key", "starter 500/1s {id.acme}:edge|api_key:id.acme; starter 3000/1m {id.acme}:edge|api_key:id.acme"},
		{"an unknown subject gets the default tier", AccountQuery{Subject: "newcomer"}, "per-key", "free 100/1m {id.newcomer}:edge|api_key:id.newcomer"},
		{"by the digest of its key", AccountQuery{Digest: secrets.Digest("acme-key")}, "per-key", "starter 500/1s {id.acme}:edge|api_key:id.acme; starter 3000/1m {id.acme}:edge|api_key:id.acme"},
		{"an unknown key counts for its address", AccountQuery{Digest: secrets.Digest("made-up")}, "per-key", "free 100/1m"},
		{"an address", AccountQuery{Address: netip.MustParsePrefix("192.0.2.7/32")}, "per-key", "free 100/1m {addr.192.0.2.7}:edge|api_key:addr.192.0.2.7"},
		{"a rule that another replaces", AccountQuery{Subject: "acme"}, "mine", "starter 8/1h {id.acme}:edge|route=mine:id.acme replaced by [per-key]"},
		{"no log yet", AccountQuery{Subject: "acme"}, "key-route", "starter 30/1m"},
		{"a key in a rule", AccountQuery{Subject: "acme"}, "acme-key", "starter 7/1h"},
		{"not its key", AccountQuery{Subject: "hobby"}, "acme-key", ""},
		{"a rule without subject", AccountQuery{Subject: "acme"}, "nobody", ""},
		{
			"a descriptor",
			AccountQuery{Domain: "edge", Entries: descriptors.Descriptor{{Key: "route", Value: " search"}, {Key: "api_key", Value: "acme-key"}}},
			"route-key", "starter 20/1h {id.acme}:edge|route=search/api_key:id.acme",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := AccountOf(t.Context(), rs, tt.query)
			var got []string
			for i := range p.Len() {
				limits, open := p.Rule(i)
				if open {
					limits = p.NoLog(i)
				}
				for _, l := range limits {
					if l.Rule.Name != tt.rule {
						continue
					}
					text := strings.TrimSpace(fmt.Sprintf("%s %d/%s %s", l.Tier, l.Limit.Hits, rules.FormatWindow(l.Limit.Window), l.Shown))
					if l.ReplacedBy != nil {
						text += fmt.Sprintf(" replaced by %v", l.ReplacedBy)
					}
					got = append(got, text)
				}
			}
			if got := strings.Join(got, "; "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestAccountOfSentLimits finds the logs of limits that came with requests.
func TestAccountOfSentLimits(t *testing.T) {
	rs := accountRules(t, rules.Identity{Tiers: directory(t)})
	decider := decide.NewDecider(rs, decide.Options{Store: memstore.New(memstore.Options{SweepInterval: -1})})
	if got := AccountOf(t.Context(), rs, AccountQuery{Subject: "hobby", Overridden: decider.Overridden}).Searches(); len(got) != 1 {
		t.Fatalf("searches %v, want one for the open rules", got)
	}
	req := request("api_key=hobby-key session_id=planted route=search")
	req.Descriptors[0].Override = &window.Limit{Hits: 3, Window: time.Minute}
	var c decide.Call
	decider.Begin(&c, *req)
	if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
		t.Fatal(err)
	}
	log := c.Checks()[0].Log()
	p := AccountOf(t.Context(), rs, AccountQuery{Subject: "hobby", Overridden: decider.Overridden})
	l, _, ok := p.Log(t.Context(), log)
	if !ok || !l.Sent || strings.Join(l.Values, " ") != "session_id=*** route=search" || strings.Contains(l.Shown, "planted") {
		t.Errorf("got %+v, %v", l, ok)
	}
	if l, _, ok := AccountOf(t.Context(), rs, AccountQuery{Subject: "acme"}).Log(t.Context(), log); ok {
		t.Errorf("acme has the log of hobby: %+v", l)
	}

	// After an authorization Envoy sends the id of the subject.
	authorized := request("subject=hobby")
	authorized.Descriptors[0].Override = &window.Limit{Hits: 3, Window: time.Minute}
	decider.Begin(&c, *authorized)
	if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
		t.Fatal(err)
	}
	log = c.Checks()[0].Log()
	for id, want := range map[string]bool{"hobby": true, "acme": false} {
		p := AccountOf(t.Context(), rs, AccountQuery{Subject: id, Overridden: decider.Overridden})
		if l, _, ok := p.Log(t.Context(), log); ok != want || ok && !l.Sent {
			t.Errorf("%s: got %+v, %v", id, l, ok)
		}
		if got := slices.ContainsFunc(p.Searches(), func(m inspect.Match) bool { return strings.HasPrefix(log.Key, "{"+m.Tag+"}") }); got != want {
			t.Errorf("%s: the searches %v find %s: %v, want %v", id, p.Searches(), log.Key, got, want)
		}
	}
}

// TestAccountOfCarriedLimits: if Envoy sends limits in place of those of rules, a subject has the limits that
// its tier carries, and with them the log in which its requests count.
func TestAccountOfCarriedLimits(t *testing.T) {
	tiers := directory(t)
	carried := func(list ...limits.Limit) *limits.Set {
		set, err := limits.New(list)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	tiers.SetLimits(map[string]*limits.Set{
		"free":    carried(limits.Limit{Requests: 9, Unit: "minute"}, limits.Limit{Name: "tokens", Requests: 90, Unit: "day"}),
		"starter": carried(limits.Limit{Requests: 5, Unit: "minute"}, limits.Limit{Name: "tokens", Requests: 50, Unit: "minute"}),
	})
	rs := accountRules(t, rules.Identity{Tiers: tiers})
	decider := decide.NewDecider(rs, decide.Options{Store: memstore.New(memstore.Options{SweepInterval: -1})})
	entries := func(subject string) descriptors.Descriptor {
		return descriptors.Descriptor{{Key: "subject", Value: subject}}
	}
	of := func(subject string) (all []string) {
		limits, _ := AccountOf(t.Context(), rs, AccountQuery{Domain: "edge", Entries: entries(subject), Overridden: decider.Overridden}).Rule(0)
		for _, l := range limits {
			all = append(all, fmt.Sprintf("%s %s %s", l.Tier, rules.FormatLimit(l.Limit.Limit), l.Carried))
		}
		return all
	}
	if got := of("hobby"); got != nil {
		t.Errorf("before a limit came: got %q, want none", got)
	}
	req := &decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{{Entries: entries("hobby"), Cost: 1, Override: &window.Limit{Hits: 9, Window: time.Minute}}}}
	var c decide.Call
	decider.Begin(&c, *req)
	if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
		t.Fatal(err)
	}
	log := c.Checks()[0].Log()
	for subject, want := range map[string][]string{
		"hobby":    {"free 9 per 1m limit", "free 90 per 1d limit_tokens"},
		"acme":     {"starter 5 per 1m limit", "starter 50 per 1m limit_tokens"},
		"newcomer": nil,
	} {
		if got := of(subject); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", subject, got, want)
		}
	}
	all, _ := AccountOf(t.Context(), rs, AccountQuery{Domain: "edge", Entries: entries("hobby"), Overridden: decider.Overridden}).Rule(0)
	if len(all) != 2 || all[0].Log != log || all[0].Sent {
		t.Errorf("got the log %+v, want that of the request: %+v", all, log)
	}

	// The log of the request says how long the window is, and so which of the limits it is.
	for subject, want := range map[string]string{"hobby": "9 limit free false", "acme": "0   true"} {
		id := log
		id.Key = strings.ReplaceAll(log.Key, "hobby", subject)
		l, _, ok := AccountOf(t.Context(), rs, AccountQuery{Subject: subject, Overridden: decider.Overridden}).Log(t.Context(), id)
		if got := fmt.Sprintf("%d %s %s %v", l.Limit.Hits, l.Carried, l.Tier, l.Sent); !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", subject, got, ok, want)
		}
	}
}

// TestSampleIsWhatARequestGets: a sample has the limits and the logs of a request of the subject
// with the same values.
func TestSampleIsWhatARequestGets(t *testing.T) {
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	d, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	own := tier.Override{Limits: []window.Limit{{Hits: 7, Window: time.Minute}}}
	for _, s := range []tier.Subject{{ID: "acme", Tier: "pro"}, {ID: "own", Extra: &tier.Extra{Overrides: map[string]tier.Override{"per-key": own}}}, {ID: "hobby"}} {
		if err := d.Add(s, secrets.Digest("key-"+s.ID)); err != nil {
			t.Fatal(err)
		}
	}
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: d})
	limits := func(hits uint64) rules.Terms {
		return rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: hits, Window: time.Minute}}, {Limit: window.Limit{Hits: 2 * hits, Window: time.Hour}}}}
	}
	key, route := descriptors.Node{Key: "api_key", AnyValue: true}, descriptors.Node{Key: "route", Value: "a*b", Pattern: true}
	for _, r := range []rules.Rule{
		{Name: "per-key", Path: []descriptors.Node{key}, ByTier: map[string]rules.Terms{"free": limits(3), "pro": limits(5)}},
		{Name: "pattern", Path: []descriptors.Node{route, key}, Terms: limits(4)},
		{Name: "shared", Path: []descriptors.Node{key, route}, OneLog: []bool{false, true}, Terms: limits(4)},
		{Name: "fixed", Path: []descriptors.Node{{Key: "g", AnyValue: true}, {Key: "api_key", Value: "key-acme"}, route}, Terms: rules.Terms{Limits: limits(4).Limits, Observe: 1}},
		{Name: "customer", Subject: "customer", Path: []descriptors.Node{{Key: "customer", AnyValue: true}, {Key: "k", AnyValue: true}}, Terms: limits(4)},
		{Name: "shared-key", Path: []descriptors.Node{{Key: "h", AnyValue: true}, {Key: "api_key", Value: "*", Pattern: true}}, OneLog: []bool{false, true}, ByTier: map[string]rules.Terms{"free": limits(3), "pro": limits(5)}},
		{Name: "unlimited", Path: []descriptors.Node{{Key: "free", AnyValue: true}}, Terms: rules.Terms{Unlimited: true}},
	} {
		r.Domain = "d"
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range rs.All() {
		for s := range d.All() {
			var entries descriptors.Descriptor
			for _, n := range r.Path {
				e := descriptors.Entry{Key: n.Key, Value: sampleValue}
				switch {
				case n.Key == "api_key" && !n.Open() && s.ID != "acme":
					continue
				case n.Key == "api_key":
					e.Value = "key-" + s.ID
				case n.Key == "customer":
					e.Value = s.ID
				case n.Pattern:
					e.Value = "a" + sampleValue + "b"
				}
				entries = append(entries, e)
			}
			if len(entries) != len(r.Path) {
				continue // the rule is for the key of another subject
			}
			want, _ := AccountOf(t.Context(), rs, AccountQuery{Domain: "d", Entries: entries}).Rule(0)
			got := Sample(rs, r, s)
			if len(got) != len(want) || len(got) == 0 {
				t.Fatalf("%s of %s: %+v, want %+v", r.Name, s.ID, got, want)
			}
			for i := range got {
				g, w := &got[i], &want[i]
				if g.Log != w.Log || g.Limit.Limit != w.Limit.Limit || g.Tier != w.Tier || g.Override != w.Override || g.Observed != w.Observed || g.Unlimited != w.Unlimited || g.Rule != w.Rule {
					t.Errorf("%s of %s: %+v, want %+v", r.Name, s.ID, *g, *w)
				}
				if g.Unlimited || r.Name == "shared-key" {
					continue // a log that all share does not say whose limit it has
				}
				l, ok := Log(t.Context(), rs, AccountQuery{}, w.Log)
				if !ok || l.Limit.Limit != w.Limit.Limit || l.Override != w.Override || l.Observed != w.Observed || l.Subject != s.ID {
					t.Errorf("the log %v is %+v, want %+v of %s", w.Log, l, *w, s.ID)
				}
			}
		}
	}
	for _, id := range []window.LogID{{Key: "nonsense"}, {Key: "{a}:d|gone:a", Window: time.Minute}, {Key: "{id.acme}:d|api_key:id.acme", Window: time.Second}} {
		if l, ok := Log(t.Context(), rs, AccountQuery{}, id); ok {
			t.Errorf("%v is a log of %+v", id, l)
		}
	}
}

var secrets, anyOf, one, per, fits, rule, with, directory, request, bucketLimit, fixedLimit, counterLimit = coretest.Secrets, coretest.Any, coretest.One, coretest.Per, coretest.Fits, coretest.Rule, coretest.With, coretest.Directory, coretest.Request, coretest.BucketLimit, coretest.FixedLimit, coretest.CounterLimit

type tester = coretest.T
