package diff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/random"
)

var moveSecrets = tier.NewSecrets([]string{"api_key"}, nil)

// moveKeys are API keys: two of one subject with a limit of its own, one of another, and an unknown one.
var moveKeys = []string{"k1", "k2", "k3", "stranger"}

func moveTiers(t *testing.T) *tier.Directory {
	t.Helper()
	d, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	own := &tier.Extra{Overrides: map[string]tier.Override{"n0": {Limits: []window.Limit{{Hits: 2, Window: 5 * time.Second}}}}}
	digest := func(key string) string { return tier.FingerprintDigest(moveSecrets.Value("api_key", key)) }
	if err := d.Add(tier.Subject{ID: "one", Tier: "free", Extra: own}, digest("k1"), digest("k2")); err != nil {
		t.Fatal(err)
	}
	if err := d.Add(tier.Subject{ID: "two", Tier: "pro"}, digest("k3")); err != nil {
		t.Fatal(err)
	}
	return d
}

// randomLimit returns limits of which many can be compared.
func randomLimit(rnd *rand.Rand) rules.Limit {
	l := window.Limit{Hits: 1 + uint64(rnd.IntN(6)), Window: []time.Duration{2, 3, 4, 8}[rnd.IntN(4)] * time.Second}
	switch rnd.IntN(6) {
	case 0:
		l.Policy = window.Fixed
	case 1:
		l.Policy, l.Rate = window.TokenBucket, 1+uint32(rnd.IntN(2))
	case 2:
		l.Policy = window.SlidingCounter
	}
	return rules.Limit{Limit: l, Precision: window.Precision(l)}
}

func randomTerms(rnd *rand.Rand) (t rules.Terms) {
	for range rnd.IntN(7) / 2 {
		l := randomLimit(rnd)
		if !slices.ContainsFunc(t.Limits, func(o rules.Limit) bool { return o.Window == l.Window && o.Policy == l.Policy }) {
			t.Limits = append(t.Limits, l)
		}
	}
	if len(t.Limits) > 0 {
		t.Observe = []float64{0, 0, 0, 0, 0, 0, 0.5, 1}[rnd.IntN(8)]
	}
	return t
}

func randomMoveRule(rnd *rand.Rand) rules.Rule {
	r := rules.Rule{Domain: "d", Name: fmt.Sprintf("n%d", rnd.IntN(3)), Terms: randomTerms(rnd)}
	for _, key := range []string{"k", "api_key"}[rnd.IntN(4)/3:] {
		n := descriptors.Node{Key: key}
		switch {
		case key == "api_key" && rnd.IntN(6) > 0:
			n.AnyValue = true
		case key == "api_key":
			n.Value = moveSecrets.Value(key, moveKeys[rnd.IntN(len(moveKeys))])
		default:
			n.Value = []string{"", "*", "a*", "*b", "a", "ab"}[rnd.IntN(6)]
			n.AnyValue, n.Pattern = n.Value == "", len(n.Value) > 0 && (n.Value[0] == '*' || n.Value[len(n.Value)-1] == '*')
		}
		r.Path = append(r.Path, n)
		r.OneLog = append(r.OneLog, n.Open() && rnd.IntN(4) == 0)
		if key == "k" && rnd.IntN(3) == 0 {
			break
		}
	}
	if !slices.Contains(r.OneLog, true) {
		r.OneLog = nil
	}
	if rnd.IntN(8) == 0 {
		r.Charge.Factor = 2
	}
	if rnd.IntN(5) == 0 && slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return n.Key == "api_key" }) {
		r.ByTier = map[string]rules.Terms{"free": randomTerms(rnd), "pro": randomTerms(rnd)}
	}
	return r
}

// changed returns rules with one or two of them changed a little.
func changed(rnd *rand.Rand, all []rules.Rule) []rules.Rule {
	all = slices.Clone(all)
	for range 1 + rnd.IntN(2) {
		if len(all) == 0 || rnd.IntN(4) == 0 {
			all = append(all, randomMoveRule(rnd))
			continue
		}
		i := rnd.IntN(len(all))
		other := randomMoveRule(rnd)
		switch rnd.IntN(5) {
		case 0, 1:
			all[i].Path, all[i].OneLog = other.Path, other.OneLog
		case 2:
			all[i].Terms = other.Terms
		case 3:
			all[i].Charge.Factor, all[i].Name = other.Charge.Factor, other.Name
		default:
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}

func build(t *testing.T, directory *tier.Directory, all []rules.Rule) *rules.Rules {
	t.Helper()
	rs := rules.NewRules(rules.Identity{Secrets: moveSecrets, Tiers: directory})
	if err := rs.AddDomain("d"); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		_ = rs.Add(r) // a second rule for a path is refused, and some changes make no valid rule
	}
	return rs
}

// A hit is one request at a time.
type hit struct {
	at time.Duration
	d  descriptors.Descriptor
}

func randomHits(rnd *rand.Rand) (all []hit) {
	at := 1_700_000_000 * time.Second
	for range 60 {
		at += time.Duration(rnd.IntN(1200)) * time.Millisecond
		h := hit{at: at}
		if rnd.IntN(4) > 0 {
			h.d = append(h.d, descriptors.Entry{Key: "k", Value: []string{"a", "ab", "b", "ac"}[rnd.IntN(4)]})
		}
		if len(h.d) == 0 || rnd.IntN(4) > 0 {
			h.d = append(h.d, descriptors.Entry{Key: "api_key", Value: moveSecrets.Value("api_key", moveKeys[rnd.IntN(len(moveKeys))])})
		}
		all = append(all, h)
	}
	return all
}

// passing returns the hits that rules admit.
func passing(t *testing.T, rs *rules.Rules, all []hit) (passed []hit) {
	t.Helper()
	timeline := replay.NewTimeline(rs, 0)
	defer timeline.Close()
	for _, h := range all {
		v, err := timeline.Decide(t.Context(), h.at, decide.Request{Domain: "d", Descriptors: []decide.Descriptor{{Entries: h.d, Cost: 1}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v.Allowed {
			passed = append(passed, h)
		}
	}
	return passed
}

// TestImplies: if one limit implies another of any policy, dense hits that pass it pass the other.
func TestImplies(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	implied := make(map[[2]window.Policy]int)
	for range random.Steps(t, 5000, 20_000) {
		a, b := randomLimit(rnd), randomLimit(rnd)
		if !implies(&a, &b, false) {
			continue
		}
		implied[[2]window.Policy{a.Policy, b.Policy}]++
		rule := func(l rules.Limit) *rules.Rules {
			path := []descriptors.Node{{Key: "k", AnyValue: true}}
			return build(t, nil, []rules.Rule{{Domain: "d", Path: path, Terms: rules.Terms{Limits: []rules.Limit{l}}}})
		}
		var hits []hit
		for at := 1_700_000_000 * time.Second; len(hits) < 150; {
			switch rnd.IntN(9) {
			case 0:
				at += time.Duration(rnd.IntN(41)) * 100 * time.Millisecond
			case 1:
				at += a.Window // its hits expire
			case 2:
				at += max(b.Window-a.Window, 0)
			case 3:
				at += time.Duration(rnd.IntN(1000)) * time.Microsecond
			}
			hits = append(hits, hit{at, descriptors.Descriptor{{Key: "k", Value: "v"}}})
		}
		hits = passing(t, rule(a), hits)
		if again := passing(t, rule(b), hits); len(again) != len(hits) {
			t.Fatalf("seed %d: of %d hits that pass %+v only %d pass %+v", seed, len(hits), a, len(again), b)
		}
	}
	for _, both := range [][2]window.Policy{{window.Sliding, window.Sliding}, {window.Fixed, window.Fixed}, {window.TokenBucket, window.TokenBucket}, {window.Sliding, window.Fixed}} {
		if implied[both] == 0 {
			t.Errorf("%v implied %v never", both[0], both[1])
		}
	}
}

// TestVerdictsAreCertain: if a report says that nothing becomes looser, every pattern of hits that
// passes the new rules passes the old ones; and the reverse.
func TestVerdictsAreCertain(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	directory := moveTiers(t)
	verdicts := make(map[Verdict]int)
	for range 2000 {
		var rs []rules.Rule
		for range rnd.IntN(4) {
			rs = append(rs, randomMoveRule(rnd))
		}
		others := changed(rnd, rs)
		old, now := build(t, directory, rs), build(t, directory, others)
		r := Compare(Set{Rules: old}, Set{Rules: now})
		if !r.Changed {
			continue
		}
		verdicts[r.Verdict]++
		check := func(first, then *rules.Rules) {
			hits := passing(t, first, randomHits(rnd))
			if again := passing(t, then, hits); len(again) != len(hits) {
				t.Fatalf("seed %d: the verdict is %s, but of %d hits that pass one set only %d pass the other\nold %v\nnew %v\n%+v", seed, r.Verdict, len(hits), len(again), rs, others, r)
			}
		}
		if r.Verdict == Stricter || r.Verdict == Neither {
			check(now, old)
		}
		if r.Verdict == Looser || r.Verdict == Neither {
			check(old, now)
		}
	}
	for _, v := range []Verdict{Stricter, Looser, Neither, Both} {
		if verdicts[v] < 50 {
			t.Errorf("seed %d: only %d reports are %s", seed, verdicts[v], v)
		}
	}
}

// TestScopeVerdict: a log in each region admits more than one log for all regions. The other
// changes of the rule are joined with that.
func TestScopeVerdict(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		was, is             uint64 // limits
		scope, rule         Verdict
		words               string
	}{
		{"to all regions", "", "global", 10, 10, Stricter, Stricter, "the limit is now for all regions together, no longer for each"},
		{"the same, named", "region", "global", 10, 10, Stricter, Stricter, "the limit is now for all regions together, no longer for each"},
		{"to each region", "global", "", 10, 10, Looser, Looser, "each region now admits the limit, no longer all regions together"},
		{"between shared scopes", "global", "other", 10, 10, Both, Both, "another log for all regions"},
		{"to all regions, lower", "", "global", 10, 5, Stricter, Stricter, "the limit is now for all regions together, no longer for each"},
		{"to all regions, higher", "", "global", 10, 20, Stricter, Both, "the limit is now for all regions together, no longer for each"},
		{"to each region, lower", "global", "region", 10, 5, Looser, Both, "each region now admits the limit, no longer all regions together"},
		{"to each region, higher", "global", "region", 10, 20, Looser, Looser, "each region now admits the limit, no longer all regions together"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := base(), base()
			before.rule.Storage.Scope, after.rule.Storage.Scope = c.before, c.after
			before.limit.Hits, after.limit.Hits = c.was, c.is
			r := Compare(before.build(t), after.build(t))
			if len(r.Rules) != 1 || r.Rules[0].Verdict != c.rule || r.Verdict != c.rule {
				t.Fatalf("got %+v, want one rule, %s", r, c.rule)
			}
			changes := r.Rules[0].Changes
			i := slices.IndexFunc(changes, func(c Change) bool { return c.What == "scope" })
			if i < 0 || changes[i].Verdict != c.scope || changes[i].Consequences() != c.words {
				t.Errorf("got %+v, want a scope that is %s: %s", changes, c.scope, c.words)
			}
		})
	}
}
