package explain

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// maxShownPart is the most of a value that is shown, in bytes.
const maxShownPart = 128

// Log returns the limit of a log that [Account.Searches] has found, and the number of its rule.
// It reports false if the log is not the subject's, if no request gets to it by the rules, or if
// [Account.Rule] returns it. The number of a limit that came with requests is negative. Log may
// wait for the customer source, as long as the query allows.
func (p *Account) Log(ctx context.Context, id window.LogID) (l AccountLimit, rule int, ok bool) {
	name, err := descriptors.ParseKey(id.Key)
	if err != nil || name.Rule == "" {
		return l, 0, false
	}
	r := p.rules.Rule(name.Rule)
	if r == nil {
		l, ok = p.sent(name, id)
		return l, -1, ok
	}
	m, ok := p.match(r)
	if !ok || p.ByAddress || !m.open && p.log != "" {
		return l, 0, false
	}
	n, ok := p.read(ctx, r, name)
	if !ok || !p.has(&m, n) {
		return l, 0, false
	}
	l, ok = p.limitOf(r, n, id)
	if !ok || n.exact && (l.Log.Key != id.Key || !p.takes(r, n)) {
		return l, 0, false
	}
	if determined, _ := p.Rule(r.Number()); slices.ContainsFunc(determined, func(o AccountLimit) bool { return o.Log == id }) {
		return l, 0, false
	}
	l.Log, l.Values = id, p.values(r, n, m.level, m.holder)
	return l, r.Number(), true
}

// A reading is the request that counts in a log, as far as the log's name describes it.
type reading struct {
	entries descriptors.Descriptor
	more    descriptors.Descriptor // of another descriptor of the request
	known   answers
	parts   []descriptors.Part // of the name, by the levels of the rule's path
	holder  descriptors.Part   // that of the rule's subject; zero: the name has none
	subject string             // the id of the subject; empty: the log is not that of one
	exact   bool               // no digest replaces a value
}

// read reads the name of a log of a rule. It reports false for a name that the rule does not make.
func (p *Account) read(ctx context.Context, r *rules.Rule, name descriptors.Name) (n *reading, ok bool) {
	n = &reading{known: maps.Clone(p.answers), exact: !name.Cut, parts: make([]descriptors.Part, len(r.Path))}
	for _, node := range r.Path {
		if node.Pattern {
			node.Value = strings.ReplaceAll(node.Value, descriptors.Wildcard, "")
		}
		n.entries = append(n.entries, descriptors.Entry{Key: node.Key, Value: node.Value})
	}
	rest, ok := name.Identity, true
	next := func() (part descriptors.Part) {
		if len(rest) == 0 {
			n.exact, ok = false, ok && name.Cut
			return part
		}
		part, rest = rest[0], rest[1:]
		n.exact = n.exact && !part.Digest
		return part
	}
	switch at := r.SubjectAt(); {
	case !r.HasSubject():
	case at < 0:
		n.holder = next()
		n.more = p.entriesOf(ctx, r.Subject, n.holder, n.known)
		if n.more[0].Value == strangerKey {
			n.more = n.more[1:] // the request has no such entry
		}
	case !r.Path[at].Open():
		n.subject = p.readFixed(ctx, r.Path[at], n.known)
	}
	for _, level := range r.Parts() {
		i := level.Level
		n.parts[i] = next()
		if isHolder := r.IsSubject(i); !isHolder && !level.Secret {
			n.entries[i].Value = n.parts[i].Text
			continue
		} else if isHolder {
			n.holder = n.parts[i]
		}
		e := p.entriesOf(ctx, r.Path[i].Key, n.parts[i], n.known)
		n.entries[i], n.more = e[0], append(n.more, e[1:]...)
	}
	if id, is := strings.CutPrefix(n.holder.Text, "id."); is && !n.holder.Digest {
		n.subject = id
	}
	return n, ok && len(rest) == 0
}

// readFixed finds the subject that a value of a rule names, unless it is known. It returns its id, or
// an empty text.
func (p *Account) readFixed(ctx context.Context, n descriptors.Node, known answers) (id string) {
	id = n.Value
	isKey := p.rules.Secrets().Is(n.Key)
	if isKey {
		id = tier.FingerprintDigest(n.Value)
	}
	switch _, is := known[id]; {
	case is:
	case !isKey:
		known[id] = p.lookup(ctx, tier.Key{ID: id})
	case p.query.Subjects != nil && p.rules.Tiers() != nil:
		start := time.Now()
		known[id], _ = p.rules.Secrets().Resolve(ctx, p.query.Subjects, n.Value, "", p.left)
		p.left = max(0, p.left-time.Since(start))
	}
	if s := known[id].Subject; s != nil && !s.Disabled {
		return s.ID
	}
	return ""
}

// entriesOf returns an entry with this key whose subject has a part of a log's name, and further
// entries that it needs.
func (p *Account) entriesOf(ctx context.Context, key string, part descriptors.Part, known answers) descriptors.Descriptor {
	if p.log != "" && p.named(part) {
		part = descriptors.Part{Text: p.log} // it may be a digest
	}
	kind, text, _ := strings.Cut(part.Text, ".")
	switch kind {
	case "id":
		s, isKnown := p.answers[text]
		if !isKnown {
			s = p.lookup(ctx, tier.Key{ID: text})
			if s.Subject == nil || s.Subject.Disabled {
				s.Subject = &tier.Subject{ID: text} // as in ofID
			}
			p.answers[text] = s
		}
		if p.rules.Secrets().Is(key) {
			text = subjectKey + " " + strconv.Itoa(len(known))
		}
		known[text] = s
		return descriptors.Descriptor{{Key: key, Value: text}}
	case "key":
		return descriptors.Descriptor{{Key: key, Value: text}}
	default:
		entry := descriptors.Entry{Key: rules.KeyAddress, Value: text}
		if strings.Contains(text, "/") {
			entry.Key = rules.KeyMaskedAddress
		}
		return descriptors.Descriptor{{Key: key, Value: strangerKey}, entry}
	}
}

// limitOf returns the limit of a log whose name was read. Its Log is the log of a request as the
// reading describes it.
func (p *Account) limitOf(r *rules.Rule, n *reading, id window.LogID) (l AccountLimit, ok bool) {
	for _, l := range p.limits(p.probe(r, n)) {
		if l.Unlimited || l.Log.Window != id.Window || l.Log.Policy != id.Policy || l.Log.Scope != id.Scope {
			continue
		}
		if l.Log.Key != id.Key && !l.OverrideObserve && !r.ManyLogs() {
			l.Observed = p.rules.ObservesAll() || identity.Observes(r.TermsOf(l.Tier).Observe, id.Key)
		}
		l.Shown = p.shown(r, id.Key)
		return l, true
	}
	return l, false
}

// values returns the values in a log's name, except that of the level mine, and except the rule's
// subject if holder is true.
func (p *Account) values(r *rules.Rule, n *reading, mine int, holder bool) (values []string) {
	if r.HasSubject() && r.SubjectAt() < 0 && !holder && n.holder != (descriptors.Part{}) {
		values = append(values, showHolder(n.holder))
	}
	for _, level := range r.Parts() {
		i := level.Level
		part, isHolder := n.parts[i], r.IsSubject(level.Level)
		switch {
		case i == mine || isHolder && holder || part == (descriptors.Part{}):
		case isHolder || level.Secret:
			values = append(values, showHolder(part))
		default:
			values = append(values, p.show(r.Path[i].Key, part))
		}
	}
	return values
}

// has reports whether a log is the subject's. m says how the rule applies to the subject.
func (p *Account) has(m *ruleMatch, n *reading) bool {
	switch {
	case m.holder:
		return p.named(n.holder)
	case m.level >= 0:
		return p.overlaps(strings.TrimPrefix(n.parts[m.level].Text, "id."))
	default:
		return true
	}
}

// named reports whether a part of a log's name says that the log is the subject's.
func (p *Account) named(part descriptors.Part) bool {
	if p.log != "" {
		return part.String() == descriptors.EscapePart(p.log)
	}
	address, ok := strings.CutPrefix(part.Text, "addr.")
	return ok && !part.Digest && p.overlaps(address)
}

// authorized reports whether an entry is the id of the subject, as Envoy sends it after an
// authorization.
func (p *Account) authorized(key string, value descriptors.Part) bool {
	return key == subjectEntry && !value.Digest && p.log == "id."+value.Text
}

// showHolder returns the subject in a log's name, without API keys.
func showHolder(part descriptors.Part) string {
	kind, text, _ := strings.Cut(part.Text, ".")
	switch {
	case part.Digest:
		return "subject=" + shortDigest(part)
	case kind == "id":
		return node("subject", text)
	case kind == "addr":
		return node("address", text)
	default:
		return "key=" + rules.HiddenValue
	}
}

// show returns an entry with a value of a log's name.
func (p *Account) show(key string, part descriptors.Part) string {
	switch {
	case p.rules.HidesEntry(key):
		return node(key, rules.HiddenValue)
	case part.Digest:
		return node(key, shortDigest(part))
	default:
		return node(key, part.Text)
	}
}

// shortDigest stands for a value that was too long for a log's name.
func shortDigest(part descriptors.Part) string { return "~" + part.Text[:8] }

// node returns key=value on one line, cut to a bound.
func node(key, value string) string {
	if len(value) > maxShownPart {
		value = strings.ToValidUTF8(value[:maxShownPart], "") + "..." // the cut may be within a character
	}
	return descriptors.Node{Key: key, Value: value}.String()
}

// sent returns the limit of a log whose limit came with requests, if that is the subject's.
func (p *Account) sent(name descriptors.Name, id window.LogID) (l AccountLimit, ok bool) {
	for _, domain := range p.rules.Domains() {
		if descriptors.NewRuleID(domain, nil) != name.Rule {
			continue
		}
		rule := p.rules.Domain(domain).Override
		l = AccountLimit{Rule: rule, Limit: rules.Limit{Limit: window.Limit{Window: id.Window, Policy: id.Policy}, Name: rule.Name}, Observed: p.rules.ObservesAll(), Sent: true, Log: id}
		found := false
		for i := 0; i+1 < len(name.Identity); i += 2 {
			key, value := name.Identity[i].Text, name.Identity[i+1]
			secret := p.rules.Secrets().Is(key)
			switch {
			case p.authorized(key, value):
				found = true
				p.setCarried(&l)
			case secret && p.named(value), p.log == "" && rules.IsAddressKey(key) && p.overlaps(value.Text):
				found = true
			case secret:
				l.Values = append(l.Values, showHolder(value))
			default:
				l.Values = append(l.Values, p.show(key, value))
			}
		}
		l.Shown = p.shown(rule, id.Key)
		return l, found
	}
	return l, false
}

// setCarried sets the number of a limit that came with requests, if the tier of the subject carries one limit
// with its window.
func (p *Account) setCarried(l *AccountLimit) {
	if p.Subject == nil || p.Subject.Disabled {
		return
	}
	for _, c := range p.rules.LimitsOf(p.Subject).All() {
		switch {
		case c.Window() != l.Limit.Window:
		case l.Carried != "": // which of them came is not known
			l.Limit.Hits, l.Sent, l.Tier, l.Carried = 0, true, "", ""
			return
		default:
			l.Limit.Hits, l.Sent, l.Tier, l.Carried = uint64(c.Requests), false, p.rules.TierOf(p.Subject), c.Key()
		}
	}
}

// shown returns the name of a log, or an empty text if it may have values that must not be shown.
// Digests of API keys may be.
func (p *Account) shown(r *rules.Rule, key string) string {
	hides := func(key string) bool { return p.rules.HidesEntry(key) && !p.rules.Secrets().Is(key) }
	hidden := hides(r.Subject)
	for _, n := range r.Path {
		hidden = hidden || hides(n.Key)
	}
	if len(r.Path) == 0 { // of limits that came with requests: each second part is a key
		name, err := descriptors.ParseKey(key)
		hidden = err != nil || name.Cut
		for i := 0; i < len(name.Identity); i += 2 {
			hidden = hidden || hides(name.Identity[i].Text)
		}
	}
	if hidden {
		return ""
	}
	return key
}
