package policy

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// maxShownPart is the most of a value that is shown, in bytes.
const maxShownPart = 128

// hiddenValue stands for a value that must not be shown.
const hiddenValue = "***"

// Log returns the limit of a log that [Account.Searches] has found, and the number of its rule.
// It reports false if the log is not the party's, if no request gets to it by the rules, or if
// [Account.Rule] returns it. The number of a limit that came with requests is negative. Log may
// wait for the source of tiers, as long as the query allows.
func (p *Account) Log(ctx context.Context, id window.LogID) (l AccountLimit, rule int, ok bool) {
	name, err := descriptors.ParseKey(id.Key)
	if err != nil || name.Rule == "" {
		return l, 0, false
	}
	rule, ok = p.byID[name.Rule]
	if !ok {
		l, ok = p.sent(name, id)
		return l, -1, ok
	}
	r := p.rules.rules[rule]
	m, ok := p.meet(r)
	if !ok || p.ByAddress || !m.open && p.log != "" {
		return l, 0, false
	}
	known := maps.Clone(p.answers)
	values, exact, ok := p.fill(ctx, r, &m, known, name)
	if !ok || exact && m.whole && !p.taken(r, m.entries) {
		return l, 0, false
	}
	for _, l := range p.limits(p.probe(r, &m, known)) {
		switch {
		case l.Unlimited || l.Log.Window != id.Window || l.Log.Policy != id.Policy || l.Log.Scope != id.Scope:
			continue
		case exact && l.Log.Key != id.Key:
			return l, 0, false
		case !exact:
			l.Log.Key, l.Shown = id.Key, p.shown(r, id.Key)
			if !l.OwnObserve && !r.manyLogs() {
				l.Observed = p.rules.shadow || observed(r.TermsOf(l.Tier).Observe, id.Key)
			}
		}
		if determined, _ := p.Rule(rule); slices.ContainsFunc(determined, func(o AccountLimit) bool { return o.Log == id }) {
			return l, 0, false
		}
		l.Values = values
		return l, rule, true
	}
	return l, 0, false
}

// fill puts the values of a log into the entries of a meeting. It returns the values to show,
// and reports false if the log is not the party's. exact is false if digests replace some of
// the values.
func (p *Account) fill(ctx context.Context, r *Rule, m *meeting, known answers, name descriptors.Name) (values []string, exact, ok bool) {
	exact, m.whole = !name.Cut, true
	parts := name.Identity
	next := func() (part descriptors.Part, ok bool) {
		if len(parts) == 0 {
			exact = false
			return part, name.Cut
		}
		part, parts = parts[0], parts[1:]
		exact = exact && !part.Digest
		return part, true
	}
	found := false // the party's own part
	if r.hasSubject && r.subject < 0 {
		part, ok := next()
		if !ok {
			return nil, false, false
		}
		switch {
		case m.holder:
			if found = p.owns(part); !found {
				return nil, false, false
			}
			p.setAddress(m, part)
		default:
			e := p.holder(ctx, r.Subject, part, known)
			if e[0].Value == strangerKey {
				e = e[1:] // the request has no such entry
			}
			m.more = append(m.more, e...)
			values = append(values, showHolder(part))
		}
	}
	for _, level := range r.identity {
		i := level.entry
		part, ok := next()
		if !ok {
			return nil, false, false
		}
		mine := i == m.place
		switch {
		case mine && m.holder:
			found = p.owns(part)
			p.setAddress(m, part)
		case mine && i == r.subject: // of an address that is a subject
			found = p.overlaps(strings.TrimPrefix(part.Text, "id."))
			m.entries[i].Value = strings.TrimPrefix(part.Text, "id.")
		case mine:
			found = p.overlaps(part.Text)
			m.entries[i].Value = part.Text
		case level.secret || r.hasSubject && i == r.subject:
			e := p.holder(ctx, r.Path[i].Key, part, known)
			m.entries[i] = e[0]
			m.more = append(m.more, e[1:]...)
			values = append(values, showHolder(part))
		default:
			m.entries[i].Value = part.Text
			values = append(values, p.show(r.Path[i].Key, part))
		}
		if mine && !found {
			return nil, false, false
		}
	}
	for i := range r.Share {
		m.whole = m.whole && !r.Share[i]
	}
	inLog := m.holder || m.place >= 0
	return values, exact, len(parts) == 0 && (found || !inLog)
}

// owns reports whether a part of a log's name says that the log is the party's.
func (p *Account) owns(part descriptors.Part) bool {
	if p.log != "" {
		return part.String() == descriptors.EscapePart(p.log)
	}
	address, ok := strings.CutPrefix(part.Text, "addr.")
	return ok && !part.Digest && p.overlaps(address)
}

// setAddress sets the address that unknown keys count for to that of a log.
func (p *Account) setAddress(m *meeting, part descriptors.Part) {
	if address, ok := strings.CutPrefix(part.Text, "addr."); ok && p.log == "" {
		m.more = addressEntry(address)
	}
}

func addressEntry(text string) descriptors.Descriptor {
	key := keyAddress
	if strings.Contains(text, "/") {
		key = keyMaskedAddress
	}
	return descriptors.Descriptor{{Key: key, Value: text}}
}

// holder returns an entry with this key whose subject has a part of a log's name, and further
// entries that it needs.
func (p *Account) holder(ctx context.Context, key string, part descriptors.Part, known answers) descriptors.Descriptor {
	kind, text, _ := strings.Cut(part.Text, ".")
	secret := p.rules.secrets.Is(key)
	switch {
	case kind == "id" && !secret:
		known[text] = p.lookup(ctx, tier.Key{ID: text})
		return descriptors.Descriptor{{Key: key, Value: text}}
	case kind == "id":
		a := p.lookup(ctx, tier.Key{ID: text})
		if a.Subject == nil {
			a.Subject = &tier.Subject{ID: text}
		}
		value := partyKey + " " + strconv.Itoa(len(known))
		known[tier.FingerprintDigest(value)] = a
		return descriptors.Descriptor{{Key: key, Value: value}}
	case kind == "key":
		return descriptors.Descriptor{{Key: key, Value: text}}
	default:
		return append(descriptors.Descriptor{{Key: key, Value: strangerKey}}, addressEntry(text)...)
	}
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
		return "key=" + hiddenValue
	}
}

// show returns an entry with a value of a log's name.
func (p *Account) show(key string, part descriptors.Part) string {
	switch {
	case p.rules.secrets.Hides(key):
		return node(key, hiddenValue)
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

// sent returns the limit of a log whose limit came with requests, if that is the party's.
func (p *Account) sent(name descriptors.Name, id window.LogID) (l AccountLimit, ok bool) {
	for n, d := range p.rules.domains {
		if descriptors.NewRuleID(n, nil) != name.Rule {
			continue
		}
		l = AccountLimit{Rule: d.override, Limit: Limit{Limit: window.Limit{Window: id.Window, Policy: id.Policy}, Name: d.override.Name}, Observed: p.rules.shadow, Sent: true, Log: id}
		found := false
		for i := 0; i+1 < len(name.Identity); i += 2 {
			key, value := name.Identity[i].Text, name.Identity[i+1]
			secret := p.rules.secrets.Is(key)
			switch {
			case secret && p.owns(value), p.log == "" && isAddressKey(key) && p.overlaps(value.Text):
				found = true
			case secret:
				l.Values = append(l.Values, showHolder(value))
			default:
				l.Values = append(l.Values, p.show(key, value))
			}
		}
		l.Shown = p.shown(d.override, id.Key)
		return l, found
	}
	return l, false
}

// shown returns the name of a log without values that must not be shown.
func (p *Account) shown(r *Rule, key string) string {
	name, err := descriptors.ParseKey(key)
	if err != nil {
		return ""
	}
	hidden := p.hiddenParts(r, name)
	fixed := false
	for i, n := range r.Path {
		fixed = fixed || !n.Open() && r.hidden[i] && !p.rules.secrets.Is(n.Key)
	}
	if !fixed && !slices.Contains(hidden, true) && (!name.Cut || !p.hidesMore(r)) {
		return key
	}
	var b strings.Builder
	tag := name.Tag.String()
	for i, part := range name.Identity {
		if i < len(hidden) && hidden[i] && part == name.Tag {
			tag = hiddenValue
		}
	}
	rule := string(r.id)
	if fixed {
		rule = r.label
	}
	if name.Tag == (descriptors.Part{}) {
		tag = rule
	} else if name.Cut && p.hidesMore(r) {
		tag = hiddenValue // it may be a value that was cut off
	}
	b.WriteString("{" + tag + "}:" + rule)
	for i, part := range name.Identity {
		b.WriteByte(":,"[min(i, 1)])
		if i < len(hidden) && hidden[i] {
			b.WriteString(hiddenValue)
		} else {
			b.WriteString(part.String())
		}
	}
	if name.Cut {
		b.WriteByte('!')
	}
	return b.String()
}

// hiddenParts marks the parts of a log's name that must not be shown. Digests of API keys may
// be.
func (p *Account) hiddenParts(r *Rule, name descriptors.Name) (hidden []bool) {
	hide := func(key string) bool { return p.rules.secrets.Hides(key) && !p.rules.secrets.Is(key) }
	if len(r.Path) == 0 { // of limits that came with requests
		for i := range name.Identity {
			hidden = append(hidden, i%2 == 1 && hide(name.Identity[i-1].Text))
		}
		return hidden
	}
	if r.hasSubject && r.subject < 0 {
		hidden = append(hidden, hide(r.Subject))
	}
	for _, level := range r.identity {
		hidden = append(hidden, hide(r.Path[level.entry].Key))
	}
	return hidden
}

// hidesMore reports whether a name of a log of a rule may have parts that must not be shown.
func (p *Account) hidesMore(r *Rule) bool {
	return len(r.Path) == 0 || slices.Contains(p.hiddenParts(r, descriptors.Name{}), true)
}
