package policy

import (
	"context"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/tier"
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
// subject names them. A wildcard of the rule stands for [sampleValue]. Nil: an API key that the
// tiers do not have. Sample does not ask whether requests match the rule. It charges nothing.
func (rs *Rules) Sample(rule *Rule, s *tier.Subject) []AccountLimit {
	known := make(answers)
	secret, id := strangerKey, sampleValue
	if s != nil {
		secret, id = partyKey, s.ID
		known[partyKey], known[id] = tier.Answer{Subject: s}, tier.Answer{Subject: s}
	}
	value := func(key string) string {
		if rs.secrets.Is(key) {
			return secret
		}
		return id
	}
	var m meeting
	for i, n := range rule.Path {
		e := descriptors.Entry{Key: n.Key, Value: n.Value}
		switch isSubject := rule.hasSubject && i == rule.subject; {
		case !n.Open() && isSubject && s != nil:
			known[tier.FingerprintDigest(n.Value)] = tier.Answer{Subject: s}
		case !n.Open():
		case isSubject, rs.secrets.Is(n.Key):
			e.Value = value(n.Key)
		case n.AnyValue:
			e.Value = sampleValue
		default:
			e.Value = strings.ReplaceAll(n.Value, descriptors.Wildcard, sampleValue)
		}
		m.entries = append(m.entries, e)
	}
	if rule.hasSubject && rule.subject < 0 {
		m.more = descriptors.Descriptor{{Key: rule.Subject, Value: value(rule.Subject)}}
	}
	p := Account{rules: rs}
	limits := p.limits(p.probe(rule, &m, known))
	for i := range limits {
		l := &limits[i]
		l.Observed = rs.shadow || rule.TermsOf(l.Tier).Observe >= 1
	}
	return limits
}

// Observes reports whether a log belongs to a share of logs that are only observed.
func Observes(share float64, key string) bool { return observed(share, key) }

// Holder says whose log a name of a log of the rule is.
type Holder struct {
	// Subject is the id of a subject. Empty: the log is not that of a subject.
	Subject string
	// Known is true if the tiers have the subject.
	Known bool
	// Values are the other values that the log belongs to, without those that must not be shown.
	Values []string
}

// logWait bounds how long [Rules.Log] waits for a source of tiers.
const logWait = time.Second

// Log returns the limit of a log of any party, and whose log it is. It asks subjects, or the
// directory if that is nil, and waits for it as long as ctx allows. It reports false if no rule
// has the log, or if the limit came with requests.
func (rs *Rules) Log(ctx context.Context, subjects tier.Resolver, id window.LogID) (l AccountLimit, h Holder, ok bool) {
	name, err := descriptors.ParseKey(id.Key)
	if err != nil {
		return l, h, false
	}
	place := rs.Rule(name.Rule)
	if place == nil {
		return l, h, false
	}
	if subjects == nil && rs.tiers != nil {
		subjects = rs.tiers
	}
	p := Account{rules: rs, query: AccountQuery{Subjects: subjects}, left: logWait}
	s := p.holderOfLog(ctx, place, name, &h)
	for _, l := range rs.Sample(place, s) {
		if l.Unlimited || l.Log.Window != id.Window || l.Log.Policy != id.Policy || l.Log.Scope != id.Scope {
			continue
		}
		l.Log, l.Shown = id, p.shown(place, id.Key)
		l.Observed = rs.shadow || observed(place.TermsOf(l.Tier).Observe, id.Key)
		return l, h, true
	}
	return l, h, false
}

// Rule returns the rule with an id, or nil.
func (rs *Rules) Rule(id descriptors.RuleID) *Rule {
	rs.indexed.Do(func() {
		rs.byID = make(map[descriptors.RuleID]*Rule, len(rs.rules))
		for _, r := range rs.rules {
			rs.byID[r.id] = r
		}
	})
	return rs.byID[id]
}

// holderOfLog finds out whose log a name is, and returns the subject, nil for none.
func (p *Account) holderOfLog(ctx context.Context, r *Rule, name descriptors.Name, h *Holder) (s *tier.Subject) {
	parts := name.Identity
	next := func() (part descriptors.Part, ok bool) {
		if len(parts) > 0 {
			part, parts, ok = parts[0], parts[1:], true
		}
		return part, ok
	}
	subjectIs := func(part descriptors.Part) {
		id, ok := strings.CutPrefix(part.Text, "id.")
		if !ok || part.Digest {
			h.Values = append(h.Values, showHolder(part))
			return
		}
		h.Subject = id
		if s = p.lookup(ctx, tier.Key{ID: id}).Subject; s == nil {
			s = &tier.Subject{ID: id}
		} else {
			h.Known = true
		}
	}
	if r.hasSubject && r.subject >= 0 && !r.Path[r.subject].Open() {
		s = p.fixedHolder(ctx, r.Path[r.subject])
		if h.Known = s != nil; h.Known {
			h.Subject = s.ID
		}
	}
	if r.hasSubject && r.subject < 0 {
		if part, ok := next(); ok {
			subjectIs(part)
		}
	}
	for _, level := range r.identity {
		part, ok := next()
		switch {
		case !ok:
			return s
		case r.hasSubject && level.entry == r.subject:
			subjectIs(part)
		case level.secret:
			h.Values = append(h.Values, showHolder(part))
		default:
			h.Values = append(h.Values, p.show(r.Path[level.entry].Key, part))
		}
	}
	return s
}

// fixedHolder returns the subject that a value of a rule names, nil if the tiers do not have it.
func (p *Account) fixedHolder(ctx context.Context, n descriptors.Node) *tier.Subject {
	if !p.rules.secrets.Is(n.Key) {
		return p.lookup(ctx, tier.Key{ID: n.Value}).Subject
	}
	if p.query.Subjects == nil || p.rules.tiers == nil {
		return nil
	}
	a, _ := p.rules.secrets.Resolve(ctx, p.query.Subjects, n.Value, "", p.left)
	if a.Subject == nil || a.Subject.Disabled {
		return nil // the key counts as an unknown one
	}
	return a.Subject
}
