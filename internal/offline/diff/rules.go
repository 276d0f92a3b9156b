package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// A pair is the rule of one position in both sets.
type pair struct {
	*comparison
	before, after *rules.Rule
}

// A part compares one part of a rule, which is not one of its limits.
type part struct {
	what string
	// text describes the part of a rule. The part is the same if the texts are.
	text func(*comparison, *rules.Rules, *rules.Rule) string
	// verdict compares two rules whose part is different. Nil: [Neither].
	verdict func(before, after *rules.Rule) Verdict
}

// parts are all parts of a rule except its limits.
var parts = []part{
	{what: "name", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string { return cmp.Or(r.GivenName(), r.Name) }},
	{what: "subject", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string { return r.Subject }, verdict: incomparable},
	{what: "share_threshold", text: marked((*rules.Rule).HasOneLog), verdict: func(before, after *rules.Rule) Verdict {
		return moreMarked(before, after, (*rules.Rule).HasOneLog)
	}},
	{what: "quota_mode", text: flag((*rules.Rule).Alternative), verdict: ordered(func(r *rules.Rule) int { return number(!r.Alternative()) })},
	{what: "charge", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string { return charges[chargeOf(r)] }, verdict: ordered(chargeOf)},
	{what: "cost", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string { return fmt.Sprint(max(r.Charge.Factor, 1)) }, verdict: func(before, after *rules.Rule) Verdict {
		return rising(cmp.Compare(max(after.Charge.Factor, 1), max(before.Charge.Factor, 1)))
	}},
	{what: "charge_once", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string { return r.Charge.Once.String() }, verdict: chargeOnce},
	{what: "replaces", text: (*comparison).replaces, verdict: incomparable},
	{what: scopePart, text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string {
		return scopeOf(r)
	}, verdict: otherScope},
	{what: "priority", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string {
		return r.Storage.Priority.String()
	}, verdict: incomparable},
	{what: "on_store_error", text: onStoreError, verdict: ordered(func(r *rules.Rule) int { return slices.Index(byStrictness, r.StoreError()) })},
	{what: "retry_jitter", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string {
		return fmt.Sprintf("%.4g%%", 100*r.Answer.RetryJitter)
	}},
	{what: "client_retry", text: flag(func(r *rules.Rule) bool { return r.Answer.NeverRetry })},
	{what: "body", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string {
		return asJSON(r.Answer.Denial, r.Answer.Denial == rules.Denial{})
	}},
	{what: "metadata", text: func(_ *comparison, _ *rules.Rules, r *rules.Rule) string {
		return asJSON(r.Answer.Metadata, len(r.Answer.Metadata) == 0)
	}},
	{what: "detailed_metric", text: flag(func(r *rules.Rule) bool { return r.Metric.Detailed })},
	{what: "value_to_metric", text: marked((*rules.Rule).ShowsValue)},
}

// chargeOnce: what covers more retries, or covers them for longer, is looser. Without it, requests
// with an idempotency key are no requests of the rule, so what passes is not the same.
func chargeOnce(before, after *rules.Rule) Verdict {
	b, a := before.Charge.Once, after.Charge.Once
	longer, more := cmp.Compare(b.For, a.For), cmp.Compare(b.Retries, a.Retries)
	if a.Entry != b.Entry || longer*more < 0 {
		return Both
	}
	return rising(longer + more)
}

// scopePart is the part whose change [Change.Consequences] explains.
const scopePart = "scope"

func scopeOf(r *rules.Rule) string { return cmp.Or(r.Storage.Scope, rules.RegionScope) }

// otherScope: the scope region has a log in each region, so several regions together admit the limit
// several times. Any other scope has one log for all regions. What two of those admit cannot be
// compared: other instances may use them.
func otherScope(before, after *rules.Rule) Verdict {
	switch rules.RegionScope {
	case scopeOf(before):
		return Stricter
	case scopeOf(after):
		return Looser
	default:
		return Both
	}
}

func incomparable(_, _ *rules.Rule) Verdict { return Both }

// rising returns the verdict of a number that is larger or smaller than before, if a larger one
// is stricter.
func rising(by int) Verdict {
	switch {
	case by > 0:
		return Stricter
	case by < 0:
		return Looser
	default:
		return Neither
	}
}

// ordered returns a verdict for a part whose choices have an order, the loosest first.
func ordered(rank func(*rules.Rule) int) func(before, after *rules.Rule) Verdict {
	return func(before, after *rules.Rule) Verdict { return rising(rank(after) - rank(before)) }
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func flag(is func(*rules.Rule) bool) func(*comparison, *rules.Rules, *rules.Rule) string {
	return func(_ *comparison, _ *rules.Rules, r *rules.Rule) string { return fmt.Sprint(is(r)) }
}

// marked names the levels of the path that are marked.
func marked(is func(*rules.Rule, int) bool) func(*comparison, *rules.Rules, *rules.Rule) string {
	return func(_ *comparison, _ *rules.Rules, r *rules.Rule) string {
		var keys []string
		for i, n := range r.Path {
			if is(r, i) {
				keys = append(keys, fmt.Sprintf("%s (entry %d)", n.Key, i+1))
			}
		}
		return strings.Join(keys, ", ")
	}
}

// moreMarked returns the verdict of marked levels, if a marked level is stricter.
func moreMarked(before, after *rules.Rule, is func(*rules.Rule, int) bool) Verdict {
	v := Neither
	for i := range after.Path {
		v = join(v, rising(number(is(after, i))-number(is(before, i))))
	}
	return v
}

// The ways to charge, the loosest first.
var charges = []string{"allowed", "not set", "always"}

func chargeOf(r *rules.Rule) int {
	switch {
	case r.Charge.AllowedOnly:
		return 0
	case r.Charge.Always:
		return 2
	default:
		return 1
	}
}

// byStrictness are the answers while the store cannot decide, the loosest first. Envoy may deny
// what is reported to it.
var byStrictness = []rules.OnStoreError{rules.StoreErrorAllow, rules.StoreErrorLocal, rules.StoreErrorReported, rules.StoreErrorDeny}

func onStoreError(_ *comparison, _ *rules.Rules, r *rules.Rule) string {
	return r.StoreError().String()
}

// replaces names the positions of the rules that do not apply if the rule matches.
func (c *comparison) replaces(rs *rules.Rules, r *rules.Rule) string {
	var all []string
	for _, name := range r.Replaces {
		all = append(all, c.sets[rs].given[inDomain{r.Domain, name}]...)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// asJSON describes a value of a rule.
func asJSON(v any, empty bool) string {
	if empty {
		return ""
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%v", v)
	}
	return string(data)
}

// compare returns what is different in the meaning of a rule.
func (p *pair) compare() (all []Change) {
	for i := range parts {
		of := &parts[i]
		before, after := of.text(p.comparison, p.old.Rules, p.before), of.text(p.comparison, p.new.Rules, p.after)
		if before == after {
			continue
		}
		v := Neither
		if of.verdict != nil {
			v = of.verdict(p.before, p.after)
		}
		all = append(all, Change{What: of.what, Old: short(before), New: short(after), Verdict: v})
	}
	return append(all, p.limits()...)
}

// maxText bounds a text of a rule in a report, in bytes.
const maxText = 300

func short(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// sampleSubject is the id of the subject whose logs are compared.
const sampleSubject = "subject"

// contexts returns the tiers for which the limits of a rule are compared: those that both sets
// have. A tier of one set is in a [TierChange].
func (p *pair) contexts() []string {
	if len(p.before.ByTier)+len(p.after.ByTier) == 0 {
		return []string{""}
	}
	was, is := tiersOf(p.old.Rules), tiersOf(p.new.Rules)
	switch {
	case was == nil:
		return is
	case is == nil:
		return was
	default:
		return slices.DeleteFunc(slices.Clone(is), func(t string) bool { return !slices.Contains(was, t) })
	}
}

func tiersOf(rs *rules.Rules) []string {
	if rs.Tiers() == nil {
		return nil
	}
	return rs.Tiers().Tiers()
}

// limits returns how the limits are different, and the names of their logs. Tiers with the same
// change are together.
func (p *pair) limits() []Change {
	var g grouped
	all := p.contexts()
	for _, t := range all {
		before, after := sample(p.old.Rules, p.before, t), sample(p.new.Rules, p.after, t)
		was, is := p.before.TermsOf(t), p.after.TermsOf(t)
		for _, c := range changesOf(before, after) {
			if is.Observe > 0 && is.Observe < 1 && was.Observe > 0 && was.Observe < 1 && len(before) > 0 && len(after) > 0 && before[0].Log.Key != after[0].Log.Key {
				c.Verdict = Both // other logs are only observed
			}
			g.add(c, t)
		}
		if c, ok := observe(fractionOf(before, was), fractionOf(after, is)); ok {
			g.add(c, t)
		}
	}
	for i := range g.all {
		if len(g.all[i].Tiers) == len(all) && (all[0] == "" || sameTiers(p.old.Rules, p.new.Rules)) {
			g.all[i].Tiers = nil
		}
	}
	return g.all
}

func sameTiers(a, b *rules.Rules) bool {
	return slices.Equal(slices.Sorted(slices.Values(tiersOf(a))), slices.Sorted(slices.Values(tiersOf(b))))
}

// sample returns the limits of a rule for a subject of a tier, in an order that does not depend
// on the file.
func sample(rs *rules.Rules, r *rules.Rule, tierName string) []explain.AccountLimit {
	return sampleOf(rs, r, &tier.Subject{ID: sampleSubject, Tier: tierName})
}

func sampleOf(rs *rules.Rules, r *rules.Rule, s *tier.Subject) []explain.AccountLimit {
	all := explain.Sample(rs, r, s)
	slices.SortStableFunc(all, func(a, b explain.AccountLimit) int {
		return cmp.Or(cmp.Compare(a.Limit.Policy, b.Limit.Policy), cmp.Compare(a.Limit.Window, b.Limit.Window))
	})
	return all
}

// grouped joins changes that are the same for several tiers.
type grouped struct{ all []Change }

func (g *grouped) add(c Change, tierName string) {
	i := slices.IndexFunc(g.all, func(o Change) bool {
		o.Tiers = nil
		return reflect.DeepEqual(o, c)
	})
	if i < 0 {
		g.all = append(g.all, c)
		i = len(g.all) - 1
	}
	g.all[i].Tiers = append(g.all[i].Tiers, tierName)
}

// changesOf compares two sets of limits.
func changesOf(before, after []explain.AccountLimit) (all []Change) {
	history := historyOf(before, after)
	was, is := textOf(before), textOf(after)
	if was != is {
		all = append(all, Change{What: "limits", Old: was, New: is, Verdict: enforced(before, after, verdictOf(before, after)), Worst: worstOf(before, after), History: history})
	} else if history == Empty || history == Partly {
		all = append(all, Change{What: "log", Old: was, New: is, Verdict: Neither, History: history})
	}
	if !slices.EqualFunc(before, after, func(a, b explain.AccountLimit) bool {
		return a.Unlimited == b.Unlimited && a.Limit.Policy == b.Limit.Policy && a.Limit.Window == b.Limit.Window
	}) {
		return all // they are other limits
	}
	for _, of := range limitParts {
		was, is := of.join(before), of.join(after)
		if was == is {
			continue
		}
		v := Neither
		if of.matters {
			if v = verdictOf(before, after); v == Neither {
				v = Both
			}
			v = enforced(before, after, v)
		}
		all = append(all, Change{What: of.what, Old: was, New: is, Verdict: v, History: history})
	}
	return all
}

// enforced returns a verdict, or [Neither] if limits are or were only observed: then it is the
// change of that which matters.
func enforced(before, after []explain.AccountLimit, v Verdict) Verdict {
	observed := func(l explain.AccountLimit) bool { return l.Observed }
	if slices.ContainsFunc(before, observed) || slices.ContainsFunc(after, observed) {
		return Neither
	}
	return v
}

// A limitPart is a part of limits that [rules.FormatLimit] leaves out.
type limitPart struct {
	what string
	// matters is true if the part changes what a limit admits.
	matters bool
	text    func(*rules.Limit) string
}

var limitParts = []limitPart{
	{"precision", true, func(l *rules.Limit) string { return l.Precision.String() }},
	{"lease", false, func(l *rules.Limit) string {
		if l.Lease.Length == 0 {
			return "none"
		}
		return rules.FormatLease(l.Lease)
	}},
	{"starts", true, func(l *rules.Limit) string { return l.CalendarText() }},
	{"budget", true, func(l *rules.Limit) string {
		if l.Budget == nil {
			return "none"
		}
		return fmt.Sprintf("reserve %d up to %d for %s, bytes %v", l.Budget.Reserve, l.Budget.Max, rules.FormatWindow(l.Budget.Hold), l.Budget.PerByte)
	}},
}

// join describes the part of several limits.
func (p *limitPart) join(all []explain.AccountLimit) string {
	var texts []string
	for i := range all {
		if !all[i].Unlimited {
			texts = append(texts, p.text(&all[i].Limit))
		}
	}
	if len(slices.Compact(slices.Clone(texts))) == 1 {
		return texts[0]
	}
	return strings.Join(texts, ", ")
}

// shareOf returns the fraction of the logs of limits that are only observed. The service may observe all.
func fractionOf(all []explain.AccountLimit, of *rules.Terms) float64 {
	if slices.ContainsFunc(all, func(l explain.AccountLimit) bool { return l.Observed }) {
		return 1
	}
	return of.Observe
}

// observe compares the fractions of logs that are only observed.
func observe(before, after float64) (c Change, changed bool) {
	if before == after {
		return c, false
	}
	return Change{What: "observe", Old: observedText(before), New: observedText(after), Verdict: rising(cmp.Compare(before, after))}, true
}

// observedText describes a fraction of the logs that are only observed.
func observedText(fraction float64) string {
	switch fraction {
	case 0:
		return "enforced"
	case 1:
		return "only observed"
	default:
		return fmt.Sprintf("only observed for %g %% of the logs", fraction*100)
	}
}
