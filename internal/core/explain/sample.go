package explain

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// sampleValue stands for the wildcards of a rule in the names of the logs of [Sample].
const sampleValue = "x"

// Sample returns the limits that a rule has for a subject, with their logs as a request of the
// subject names them. [sampleValue] replaces a wildcard of the rule. Sample does not check whether
// requests match the rule. It charges nothing.
func Sample(rs *rules.Rules, rule *rules.Rule, s *tier.Subject) []AccountLimit {
	p := newAccount(rs, AccountQuery{})
	p.query.Subjects, p.answers = nil, answers{s.ID: {Subject: s}}
	holder := descriptors.Part{Text: "id." + s.ID}
	var name descriptors.Name
	switch at := rule.SubjectAt(); {
	case !rule.HasSubject():
	case at < 0:
		name.Identity = append(name.Identity, holder)
	case !rule.Path[at].Open():
		p.answers[tier.FingerprintDigest(rule.Path[at].Value)] = tier.Answer{Subject: s}
	}
	for _, level := range rule.Parts() {
		part := descriptors.Part{Text: cmp.Or(strings.ReplaceAll(rule.Path[level.Level].Value, descriptors.Wildcard, sampleValue), sampleValue)}
		if level.Secret || rule.IsSubject(level.Level) {
			part = holder
		}
		name.Identity = append(name.Identity, part)
	}
	n, _ := p.read(context.Background(), rule, name)
	if at := rule.SubjectAt(); rule.HasSubject() && at >= 0 && rule.HasOneLog(at) { // the name does not say it
		n.entries[at] = p.entriesOf(context.Background(), rule.Path[at].Key, holder, n.known)[0]
	}
	limits := p.limits(p.probe(rule, n))
	for i := range limits {
		l := &limits[i]
		l.Observed = rs.ObservesAll() || rule.TermsOf(l.Tier).Observe >= 1
	}
	return limits
}

// logWait bounds how long [Log] waits for a customer source.
const logWait = time.Second

// Log returns the limit of a log of any subject, with its subject and its other values. It asks
// q.Subjects, or the directory if that is nil, and waits for it as long as ctx allows. It reports false
// if no rule has the log, or if the limit came with requests. Of q it uses Subjects, Grants and Now.
func Log(ctx context.Context, rs *rules.Rules, q AccountQuery, id window.LogID) (l AccountLimit, ok bool) {
	name, err := descriptors.ParseKey(id.Key)
	if err != nil {
		return l, false
	}
	r := rs.Rule(name.Rule)
	if r == nil {
		return l, false
	}
	p := newAccount(rs, q)
	p.left = logWait
	n, ok := p.read(ctx, r, name)
	if !ok {
		return l, false
	}
	l, ok = p.limitOf(r, n, id)
	l.Log, l.Subject, l.Values = id, n.subject, p.values(r, n, -1, n.subject != "")
	return l, ok
}
