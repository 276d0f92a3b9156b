package diff

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/test/random"
)

// A generation is what the cases of fields change.
type generation struct {
	rule    rules.Rule
	limit   *rules.Limit
	terms   *rules.Terms
	subject tier.Subject
	other   tier.Override
}

// base returns the generation that the cases change.
func base() *generation {
	g := &generation{
		rule: rules.Rule{
			Domain: "d", Path: []descriptors.Node{{Key: "route", Value: "a*", Pattern: true}, {Key: "api_key", AnyValue: true}},
			Name: "name", Terms: rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 10, Window: time.Minute}}}},
		},
		subject: tier.Subject{ID: "acme", Tier: "free", Extra: &tier.Extra{
			Overrides: map[string]tier.Override{"name": {Limits: []window.Limit{{Hits: 5, Window: time.Minute}}}}, Labels: map[string]string{"plan": "x"},
		}},
		other: tier.Override{Limits: []window.Limit{{Hits: 7, Window: time.Minute}}},
	}
	g.terms, g.limit = &g.rule.Terms, &g.rule.Terms.Limits[0]
	return g
}

func month(t *testing.T, day int) *calendar.Calendar {
	t.Helper()
	c, err := calendar.New(calendar.Spec{Unit: "month", Starts: calendar.Starts{Day: &day}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// build makes the rules of a generation.
func (g *generation) build(t *testing.T) Set {
	t.Helper()
	d, err := tier.NewDirectory([]string{"free", "pro"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Add(g.subject); err != nil {
		t.Fatal(err)
	}
	rs := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil), Tiers: d})
	rs.SetScopes([]string{rules.RegionScope, "global", "other"})
	other := rules.Rule{Domain: "d", Path: []descriptors.Node{{Key: "other", AnyValue: true}}, Name: "other", Terms: rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 1, Window: time.Minute}}}}}
	for _, r := range []rules.Rule{g.rule, other} {
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return Set{Rules: rs}
}

// fieldCases change one field each, from base or from a base that before has changed. They say
// where the report tells of it.
var fieldCases = map[string]struct {
	before, change func(*testing.T, *generation)
	what           string
}{
	"Rule.Name":           {nil, func(_ *testing.T, g *generation) { g.rule.Name = "n" }, "name"},
	"Storage.Scope":       {nil, func(_ *testing.T, g *generation) { g.rule.Storage.Scope = "global" }, "scope"},
	"Storage.Priority":    {nil, func(_ *testing.T, g *generation) { g.rule.Storage.Priority = window.PriorityHigh }, "priority"},
	"Rule.Subject":        {nil, func(_ *testing.T, g *generation) { g.rule.Subject = "route" }, "subject"},
	"Rule.ByTier":         {nil, func(_ *testing.T, g *generation) { g.rule.ByTier = map[string]rules.Terms{"pro": {Unlimited: true}} }, "limits"},
	"Rule.Terms":          {nil, func(_ *testing.T, g *generation) { g.rule.Terms = rules.Terms{} }, "limits"},
	"Rule.OneLog":         {nil, func(_ *testing.T, g *generation) { g.rule.OneLog = []bool{true} }, "share_threshold"},
	"Rule.Quota":          {nil, func(_ *testing.T, g *generation) { g.rule.Quota = true }, "quota_mode"},
	"Charge.Always":       {nil, func(_ *testing.T, g *generation) { g.rule.Charge.Always = true }, "charge"},
	"Charge.AllowedOnly":  {nil, func(_ *testing.T, g *generation) { g.rule.Charge.AllowedOnly = true }, "charge"},
	"Charge.Factor":       {nil, func(_ *testing.T, g *generation) { g.rule.Charge.Factor = 2 }, "cost"},
	"Charge.Once":         {nil, func(_ *testing.T, g *generation) { g.rule.Charge.Once = once("key", time.Minute, 1) }, "charge_once"},
	"ChargeOnce.Entry":    {once1, func(_ *testing.T, g *generation) { g.rule.Charge.Once.Entry = "attempt" }, "charge_once"},
	"ChargeOnce.For":      {once1, func(_ *testing.T, g *generation) { g.rule.Charge.Once.For = time.Hour }, "charge_once"},
	"ChargeOnce.Retries":  {once1, func(_ *testing.T, g *generation) { g.rule.Charge.Once.Retries = 2 }, "charge_once"},
	"Rule.Replaces":       {nil, func(_ *testing.T, g *generation) { g.rule.Replaces = []string{"other"} }, "replaces"},
	"Storage.OnError":     {nil, func(_ *testing.T, g *generation) { g.rule.Storage.OnError = rules.StoreErrorLocal }, "on_store_error"},
	"Answer.RetryJitter":  {nil, func(_ *testing.T, g *generation) { g.rule.Answer.RetryJitter = 0.5 }, "retry_jitter"},
	"Answer.NeverRetry":   {nil, func(_ *testing.T, g *generation) { g.rule.Answer.NeverRetry = true }, "client_retry"},
	"Answer.Denial":       {nil, func(_ *testing.T, g *generation) { g.rule.Answer.Denial.Body = "no" }, "body"},
	"Answer.Metadata":     {nil, func(_ *testing.T, g *generation) { g.rule.Answer.Metadata = map[string]any{"a": 1.0} }, "metadata"},
	"Metric.Detailed":     {nil, func(_ *testing.T, g *generation) { g.rule.Metric.Detailed = true }, "detailed_metric"},
	"Metric.Values":       {nil, func(_ *testing.T, g *generation) { g.rule.Metric.Values = []bool{true} }, "value_to_metric"},
	"Denial.Form":         {nil, func(_ *testing.T, g *generation) { g.rule.Answer.Denial.Form = rules.FormMCP }, "body"},
	"Denial.Body":         {nil, func(_ *testing.T, g *generation) { g.rule.Answer.Denial.Body = "no" }, "body"},
	"Denial.ContentType":  {nil, func(_ *testing.T, g *generation) { g.rule.Answer.Denial.ContentType = "text/plain" }, "body"},
	"Terms.Limits":        {nil, func(_ *testing.T, g *generation) { g.terms.Limits = nil }, "limits"},
	"Terms.Unlimited":     {func(_ *testing.T, g *generation) { g.terms.Limits = nil }, func(_ *testing.T, g *generation) { g.terms.Unlimited = true }, "limits"},
	"Terms.Observe":       {nil, func(_ *testing.T, g *generation) { g.terms.Observe = 0.5 }, "observe"},
	"Limit.Limit":         {nil, func(_ *testing.T, g *generation) { g.limit.Hits++ }, "limits"},
	"Limit.Precision":     {nil, func(_ *testing.T, g *generation) { g.limit.Precision = time.Second }, "precision"},
	"Limit.Lease":         {nil, func(_ *testing.T, g *generation) { g.limit.Lease.Length = time.Second }, "lease"},
	"Limit.Calendar":      {inMonth, func(t *testing.T, g *generation) { g.limit.Calendar = month(t, 5) }, "starts"},
	"Limit.StartsLabel":   {inMonth, func(_ *testing.T, g *generation) { g.limit.StartsLabel = "day" }, "starts"},
	"Limit.Budget":        {nil, budgeted, "budget"},
	"Limit.Currency":      {nil, func(_ *testing.T, g *generation) { g.limit.Currency = "usd" }, "limits"},
	"Budget.Reserve":      {budgeted, func(_ *testing.T, g *generation) { g.limit.Budget.Reserve = 2 }, "budget"},
	"Budget.Max":          {budgeted, func(_ *testing.T, g *generation) { g.limit.Budget.Max = 4 }, "budget"},
	"Budget.Hold":         {budgeted, func(_ *testing.T, g *generation) { g.limit.Budget.Hold = time.Hour }, "budget"},
	"Budget.PerByte":      {budgeted, func(_ *testing.T, g *generation) { g.limit.Budget.PerByte = 0.5 }, "budget"},
	"Lease.Length":        {nil, func(_ *testing.T, g *generation) { g.limit.Lease.Length = time.Second }, "lease"},
	"Lease.Hits":          {leased, func(_ *testing.T, g *generation) { g.limit.Lease.Hits = 3 }, "lease"},
	"window.Limit.Hits":   {nil, func(_ *testing.T, g *generation) { g.limit.Hits++ }, "limits"},
	"window.Limit.Window": {nil, func(_ *testing.T, g *generation) { g.limit.Window = time.Hour }, "limits"},
	"window.Limit.Policy": {nil, func(_ *testing.T, g *generation) { g.limit.Policy = window.Fixed }, "limits"},
	"window.Limit.Rate": {func(_ *testing.T, g *generation) { g.limit.Policy, g.limit.Rate = window.TokenBucket, 1 }, func(_ *testing.T, g *generation) {
		g.limit.Rate = 2
	}, "limits"},
	"Subject.ID":       {nil, func(_ *testing.T, g *generation) { g.subject.ID = "globex" }, "removed"},
	"Subject.Tier":     {nil, func(_ *testing.T, g *generation) { g.subject.Tier = "pro" }, "tier"},
	"Subject.Disabled": {nil, func(_ *testing.T, g *generation) { g.subject.Disabled = true }, "disabled"},
	"Subject.Extra":    {nil, func(_ *testing.T, g *generation) { g.subject.Extra = nil }, "limits"},
	"Extra.Overrides":  {nil, func(_ *testing.T, g *generation) { g.subject.Extra.Overrides["name"] = g.other }, "limits"},
	"Extra.Labels":     {nil, func(_ *testing.T, g *generation) { g.subject.Extra.Labels = nil }, "labels"},
	"Override.Limits":  {nil, func(_ *testing.T, g *generation) { g.subject.Extra.Overrides["name"] = g.other }, "limits"},
	"Override.Observe": {nil, func(_ *testing.T, g *generation) {
		o := g.subject.Extra.Overrides["name"]
		o.Observe = tier.ObserveOnly
		g.subject.Extra.Overrides["name"] = o
	}, "limits"},
	"Override.Until": {nil, func(_ *testing.T, g *generation) {
		o := g.subject.Extra.Overrides["name"]
		o.Until = time.Unix(1_900_000_000, 0)
		g.subject.Extra.Overrides["name"] = o
	}, "limits"},
	"Override.Unlimited": {nil, func(_ *testing.T, g *generation) { g.subject.Extra.Overrides["name"] = tier.Override{Unlimited: true} }, "limits"},
}

func inMonth(t *testing.T, g *generation) {
	t.Helper()
	g.limit.Policy, g.limit.Window, g.limit.Calendar = window.Calendar, calendar.Month.Nominal(), month(t, 1)
	g.subject.Extra = nil
}

func once(entry string, d time.Duration, retries uint8) rules.ChargeOnce {
	return rules.ChargeOnce{Entry: entry, For: d, Retries: retries}
}

func once1(_ *testing.T, g *generation) { g.rule.Charge.Once = once("key", time.Minute, 1) }

func budgeted(_ *testing.T, g *generation) {
	g.limit.Budget = &rules.Budget{Budget: window.Budget{Hold: time.Minute}, Reserve: 1, Max: 3}
}

func leased(_ *testing.T, g *generation) { g.limit.Lease.Length = time.Second }

// meaningless are fields that mean nothing to requests, with the reason.
var meaningless = map[string]string{
	"Rule.Domain":  "it and the path say which rules are compared; matches tell of others",
	"Rule.Path":    "it and the domain say which rules are compared; matches tell of others",
	"Rule.is":      "Rules.Add makes it of the other fields",
	"Extra.Limits": "only customer sources have it, and no tiers file",
	"Limit.Name":   "it is made of the rule's name and the limit",
}

// TestEveryFieldIsCompared: each field of what a set holds is compared, or says here why it is not.
func TestEveryFieldIsCompared(t *testing.T) {
	have := make(map[string]bool)
	types := []reflect.Type{
		reflect.TypeFor[rules.Rule](), reflect.TypeFor[rules.Charge](), reflect.TypeFor[rules.ChargeOnce](), reflect.TypeFor[rules.Storage](), reflect.TypeFor[rules.Answer](),
		reflect.TypeFor[rules.Denial](), reflect.TypeFor[rules.Metric](), reflect.TypeFor[rules.Terms](), reflect.TypeFor[rules.Limit](), reflect.TypeFor[window.Lease](),
		reflect.TypeFor[rules.Budget](), reflect.TypeFor[window.Budget](), reflect.TypeFor[window.Limit](), reflect.TypeFor[tier.Subject](), reflect.TypeFor[tier.Extra](), reflect.TypeFor[tier.Override](),
	}
	for _, of := range types {
		name := of.Name()
		if of == reflect.TypeFor[window.Limit]() {
			name = "window.Limit"
		}
		for i := range of.NumField() {
			f := of.Field(i)
			field := name + "." + f.Name
			have[field] = true
			if _, ok := fieldCases[field]; !ok && meaningless[field] == "" && !slices.Contains(types, f.Type) {
				t.Errorf("%s is not compared: add it to a part of diff and to fieldCases, or to meaningless", field)
			}
		}
	}
	for field, c := range fieldCases {
		if !have[field] {
			t.Errorf("%s is no field", field)
		}
		t.Run(field, func(t *testing.T) {
			before, after := base(), base()
			for _, g := range []*generation{before, after} {
				if c.before != nil {
					c.before(t, g)
				}
			}
			if r := Compare(before.build(t), before.build(t)); r.Changed {
				t.Fatalf("the same twice: %+v", r)
			}
			c.change(t, after)
			r := Compare(before.build(t), after.build(t))
			var whats []string
			for i := range r.Rules {
				for n := range r.Rules[i].Changes {
					whats = append(whats, r.Rules[i].Changes[n].What)
				}
			}
			for i := range r.Subjects {
				whats = append(whats, r.Subjects[i].What)
			}
			if !r.Changed || !slices.Contains(whats, c.what) {
				t.Errorf("the report tells of %q, want %q", strings.Join(whats, " "), c.what)
			}
		})
	}
}

// randomRules adds random rules of few keys and values to a set, so that many of them meet.
func randomRules(t *testing.T, rnd *rand.Rand) *rules.Rules {
	t.Helper()
	rs := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	for range rnd.IntN(12) {
		r := rules.Rule{Domain: []string{"d", "e"}[rnd.IntN(8)/7]}
		for range 1 + rnd.IntN(3) {
			r.Path = append(r.Path, randomNode(rnd))
		}
		if rnd.IntN(4) > 0 {
			r.Terms.Limits = []rules.Limit{{Limit: window.Limit{Hits: 1 + uint64(rnd.IntN(3)), Window: window.MaxWindow / 1000}}}
		}
		_ = rs.Add(r) // a second rule for a path is refused
	}
	return rs
}

func randomNode(rnd *rand.Rand) descriptors.Node {
	n := descriptors.Node{Key: []string{"k", "l", "api_key"}[rnd.IntN(7)/3], AnyValue: true}
	if n.Key == "api_key" || rnd.IntN(4) == 0 {
		return n
	}
	n.AnyValue = false
	for range rnd.IntN(4) {
		n.Value += []string{"a", "b", "*"}[rnd.IntN(3)]
	}
	if n.Value == "" {
		n.Value = "a"
	}
	n.Pattern = strings.Contains(n.Value, "*")
	return n
}

func randomDescriptor(rnd *rand.Rand) (d descriptors.Descriptor) {
	for range 1 + rnd.IntN(3) {
		e := descriptors.Entry{Key: []string{"k", "l", "api_key"}[rnd.IntN(7)/3]}
		for range rnd.IntN(5) {
			e.Value += []string{"a", "b", "c"}[rnd.IntN(5)/2]
		}
		d = append(d, e)
	}
	return d
}

// match returns the rule that a domain has for a descriptor. It does not use places.
func match(rs *rules.Rules, domain string, d descriptors.Descriptor) *rules.Rule {
	e, err := explain.Explain(context.Background(), decide.NewDecider(rs, decide.Options{Store: nothing{}}), decide.Request{Domain: domain, Descriptors: []decide.Descriptor{{Entries: d}}}, nil)
	if err != nil {
		return nil // the domain does not exist
	}
	return e.Verdict.Matches[0].Rule
}

// nothing is a store that allows everything.
type nothing struct{ window.Store }

func (nothing) Take(context.Context, bool, []window.Check, []window.Decision) (bool, error) {
	return true, nil
}

// TestEveryDescriptorWithAnotherLimitIsTold: whatever two random sets are, a random descriptor
// that gets another rule, or a rule that means something else, is told.
func TestEveryDescriptorWithAnotherLimitIsTold(t *testing.T) {
	seed := random.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	moved, changed := 0, 0
	sets := random.Steps(t, 400, 3000)
	for range sets {
		old, now := randomRules(t, rnd), randomRules(t, rnd)
		report := Compare(Set{Rules: old}, Set{Rules: now})
		if report.Incomplete != "" || report.MatchesLeftOut > 0 {
			t.Fatalf("seed %d: not complete: %+v", seed, report)
		}
		told := make(map[string]bool)
		for _, m := range report.Matches {
			told[m.Domain+" "+m.OldPath+" -> "+m.NewPath] = true
			confirm(t, old, now, &m)
		}
		for range 100 {
			domain, d := []string{"d", "e"}[rnd.IntN(8)/7], randomDescriptor(rnd)
			was, is := match(old, domain, d), match(now, domain, d)
			switch {
			case pathOf(was) != pathOf(is):
				moved++
				if !told[domain+" "+pathOf(was)+" -> "+pathOf(is)] {
					t.Fatalf("seed %d: %s %v: %s, now %s, but the report has only %v\nold %v\nnew %v", seed, domain, d, pathOf(was), pathOf(is), told, old.All(), now.All())
				}
			case was != nil && rules.FormatLimit(limitOf(was)) != rules.FormatLimit(limitOf(is)):
				changed++
				if !slices.ContainsFunc(report.Rules, func(c RuleChange) bool { return c.What == "changed" && c.Path == is.String() }) {
					t.Fatalf("seed %d: %v has another limit, and the report says nothing of it", seed, is)
				}
			}
		}
	}
	if moved < 3*sets || changed < sets/8 {
		t.Errorf("seed %d: only %d descriptors got another rule, and %d another limit", seed, moved, changed)
	}
}

func pathOf(r *rules.Rule) string {
	if r == nil {
		return ""
	}
	return r.String()
}

func limitOf(r *rules.Rule) window.Limit {
	if len(r.Terms.Limits) == 0 {
		return window.Limit{}
	}
	return r.Terms.Limits[0].Limit
}

// confirm asks both sets for the example of a match.
func confirm(t *testing.T, old, now *rules.Rules, m *MatchChange) {
	t.Helper()
	d, err := descriptors.Parse(m.Example)
	if err != nil {
		t.Fatalf("%q: %v", m.Example, err)
	}
	if was, is := pathOf(match(old, m.Domain, d)), pathOf(match(now, m.Domain, d)); was != m.OldPath || is != m.NewPath {
		t.Fatalf("%s: %q, now %q; the report says %q, now %q", m.Example, was, is, m.OldPath, m.NewPath)
	}
}
