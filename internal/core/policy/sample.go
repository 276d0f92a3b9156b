package policy

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// Top returns where the descriptors of a domain begin to match. Without the domain, that is no
// place.
func (rs *Rules) Top(domain string) (top descriptors.Place[*Rule]) {
	if d := rs.domains[domain]; d != nil {
		top = d.tree.Top()
	}
	return top
}

// Headers returns the styles of headers of a domain. Nil: those of the service.
func (rs *Rules) Headers(domain string) []string {
	if d := rs.domains[domain]; d != nil {
		return d.headers
	}
	return nil
}

// sampleValue stands for the wildcards of a rule in the names of the logs of [Rules.Sample].
const sampleValue = "x"

// Sample returns the limits that a rule has for a subject, with their logs as a request of the
// subject names them. A wildcard of the rule stands for [sampleValue]. Sample does not ask whether
// requests match the rule. It charges nothing.
func (rs *Rules) Sample(rule *Rule, s *tier.Subject) []AccountLimit {
	p := Account{rules: rs, answers: answers{s.ID: {Subject: s}}}
	holder := descriptors.Part{Text: "id." + s.ID}
	var name descriptors.Name
	switch at := rule.subject; {
	case !rule.hasSubject:
	case at < 0:
		name.Identity = append(name.Identity, holder)
	case !rule.Path[at].Open():
		p.answers[tier.FingerprintDigest(rule.Path[at].Value)] = tier.Answer{Subject: s}
	}
	for _, level := range rule.identity {
		part := descriptors.Part{Text: cmp.Or(strings.ReplaceAll(rule.Path[level.entry].Value, descriptors.Wildcard, sampleValue), sampleValue)}
		if level.secret || rule.hasSubject && level.entry == rule.subject {
			part = holder
		}
		name.Identity = append(name.Identity, part)
	}
	n, _ := p.read(context.Background(), rule, name)
	if at := rule.subject; rule.hasSubject && at >= 0 && rule.Shares(at) { // the name does not say it
		n.entries[at] = p.entriesOf(context.Background(), rule.Path[at].Key, holder, n.known)[0]
	}
	limits := p.limits(p.probe(rule, n))
	for i := range limits {
		l := &limits[i]
		l.Observed = rs.shadow || rule.TermsOf(l.Tier).Observe >= 1
	}
	return limits
}

// Observes reports whether a log belongs to a share of logs that are only observed.
func Observes(share float64, key string) bool { return observed(share, key) }

// logWait bounds how long [Rules.Log] waits for a source of tiers.
const logWait = time.Second

// Log returns the limit of a log of any party, with its subject and its other values. It asks
// subjects, or the directory if that is nil, and waits for it as long as ctx allows. It reports false
// if no rule has the log, or if the limit came with requests.
func (rs *Rules) Log(ctx context.Context, subjects tier.Resolver, id window.LogID) (l AccountLimit, ok bool) {
	name, err := descriptors.ParseKey(id.Key)
	if err != nil {
		return l, false
	}
	r := rs.Rule(name.Rule)
	if r == nil {
		return l, false
	}
	if subjects == nil && rs.tiers != nil {
		subjects = rs.tiers
	}
	p := Account{rules: rs, query: AccountQuery{Subjects: subjects}, left: logWait, answers: make(answers)}
	n, ok := p.read(ctx, r, name)
	if !ok {
		return l, false
	}
	l, ok = p.limitOf(r, n, id)
	l.Log, l.Subject, l.Values = id, n.subject, p.values(r, n, -1, n.subject != "")
	return l, ok
}

// Rule returns the rule with an id, or nil.
func (rs *Rules) Rule(id descriptors.RuleID) *Rule { return rs.byID[id] }
