package explain

import (
	"context"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

// A ruleMatch says how a rule applies to a subject: the names of the subject's logs, with the parts
// that are known.
type ruleMatch struct {
	// parts are the parts of the log's name, by the levels of the path. subject is the part of a
	// subject outside of the path. Zero: any value that the rule takes.
	parts   []descriptors.Part
	subject descriptors.Part
	// open is true if the name of the log has an unknown value.
	open bool
	// level is the subject's level in the path, whose value is in the log's name. It is -1
	// if the subject is in no level.
	level int
	// holder is true if it is the rule's subject, whose value is in the log's name.
	holder bool
}

// match returns how a rule applies to the subject. It reports false if it does not.
func (p *Account) match(rule *rules.Rule) (m ruleMatch, ok bool) {
	m = ruleMatch{level: -1, parts: make([]descriptors.Part, len(rule.Path))}
	if p.log != "" || p.ByAddress {
		ok = p.matchSubject(rule, &m)
	} else {
		ok = p.matchAddress(rule, &m)
	}
	for _, level := range rule.Parts() {
		part := &m.parts[level.Level]
		if p.Subject != nil && rule.Path[level.Level].Key == p.rules.TrustedEntry() {
			part.Text = p.Subject.Tier // the tier that it has without the entry
		}
		// A request of it can have another tier in this entry.
		m.open = m.open || *part == (descriptors.Part{}) || rule.Path[level.Level].Key == p.rules.TrustedEntry()
	}
	return m, ok
}

// name returns the name of the log, in which unknown parts are empty.
func (m *ruleMatch) name(rule *rules.Rule) (name descriptors.Name) {
	if rule.HasSubject() && rule.SubjectAt() < 0 {
		name.Identity = append(name.Identity, m.subject)
	}
	for _, level := range rule.Parts() {
		name.Identity = append(name.Identity, m.parts[level.Level])
	}
	return name
}

// matchSubject is match for a subject, and for an unknown API key.
func (p *Account) matchSubject(rule *rules.Rule, m *ruleMatch) bool {
	if !rule.HasSubject() {
		return false
	}
	secret := p.rules.Secrets().Is(rule.Subject)
	switch {
	case secret && p.query.Digest == "" && p.rules.Tiers() == nil:
		return false // no API key belongs to a subject
	case !secret && !strings.HasPrefix(p.log, "id."):
		return false
	}
	if p.ByAddress {
		m.open = true // the name of the log has the address
	}
	value := strings.TrimPrefix(p.log, "id.")
	if !secret && rules.IsAddressKey(rule.Subject) && !rules.IsAddress(value) {
		return false
	}
	at := rule.SubjectAt()
	if at < 0 {
		m.subject, m.holder = descriptors.Part{Text: p.log}, !p.ByAddress
		return true
	}
	switch n := rule.Path[at]; {
	case rule.HasOneLog(at):
		return false // it is not a log of the subject alone
	case !n.Open() && secret:
		return p.hasFixedKey(n.Value)
	case !n.Open():
		return n.Value == value
	case n.Pattern && !secret && !descriptors.Fits(n.Value, value):
		return false
	}
	m.parts[at].Text, m.level, m.holder = p.log, at, !p.ByAddress
	return true
}

// hasFixedKey reports whether the API key with a fingerprint in a rule is the subject's.
func (p *Account) hasFixedKey(fingerprint string) bool {
	if p.query.Digest != "" && strings.Contains(fingerprint, p.query.Digest) {
		p.answers[tier.FingerprintDigest(fingerprint)] = p.answers[p.secret]
		return true
	}
	if p.Subject == nil || p.query.Subjects == nil {
		return false
	}
	a, ok := p.rules.Secrets().Resolve(context.Background(), p.query.Subjects, fingerprint, "", tier.NoWait)
	if !ok || a.Subject == nil || a.Subject.ID != p.Subject.ID {
		return false
	}
	p.answers[tier.FingerprintDigest(fingerprint)] = p.answers[p.secret]
	return true
}

// matchAddress is match for an address or a network.
func (p *Account) matchAddress(rule *rules.Rule, m *ruleMatch) bool {
	inPath := false
	for i, n := range rule.Path {
		if !rules.IsAddressKey(n.Key) || rule.HasOneLog(i) {
			continue
		}
		switch {
		case !n.Open():
			if !p.overlaps(n.Value) {
				return false
			}
		case n.Key == rules.KeyAddress && p.query.Address.IsSingleIP():
			if n.Pattern && !descriptors.Fits(n.Value, p.address()) {
				return false
			}
			m.parts[i].Text, m.level = p.address(), i
			if rule.IsSubject(i) {
				m.parts[i].Text = "id." + p.address()
			}
		default:
			m.level = i // of which network is not known
		}
		inPath = true
	}
	switch at := rule.SubjectAt(); {
	case inPath && rule.HasSubject() && at < 0:
		m.open = true
		return true
	case inPath:
		return true
	case !rule.HasSubject():
		return false
	case at >= 0 && (!p.rules.UnknownByAddress() || !p.rules.Secrets().Is(rule.Subject) || !rule.Path[at].Open() || rule.HasOneLog(at)):
		return false
	case at >= 0:
		m.parts[at].Text, m.level = "addr."+p.address(), at
	}
	m.subject.Text, m.holder = "addr."+p.address(), true
	return true
}

// Searches returns the searches that find the logs of open rules, and the logs of limits that came
// with requests. It is empty if there can be no such log.
func (p *Account) Searches() []inspect.Match {
	if !p.searched && p.query.Domain == "" {
		p.searches, p.searched = p.search(), true
	}
	return p.searches
}

func (p *Account) search() []inspect.Match {
	var all []inspect.Match
	sent := !p.ByAddress && p.query.Overridden != nil && slices.ContainsFunc(p.rules.Domains(), p.query.Overridden)
	byTag := sent
	for _, r := range p.rules.All() {
		m, ok := p.match(r)
		switch {
		case !ok || p.ByAddress:
		case p.log == "" && (m.holder || m.open || !p.query.Address.IsSingleIP()):
			byTag = true // networks may be logged that contain the address
		case !m.open || p.log == "":
		case m.holder:
			byTag = true
		case len(all) < maxSearches:
			// The subject is a fixed value of the path, which is not in the tag.
			all = append(all, inspect.Match{Contains: ":" + string(r.ID()) + ":"})
		}
	}
	switch {
	case !byTag:
	case p.log != "":
		all = append(all, inspect.Match{Tag: descriptors.EscapePart(p.log)})
		if id, is := strings.CutPrefix(p.log, "id."); is && sent {
			all = append(all, inspect.Match{Tag: descriptors.EscapePart(id)}) // see authorized
		}
	default:
		all = append(all, inspect.Match{Contains: p.network()})
	}
	return all
}

// maxSearches bounds how many rules are searched for on their own.
const maxSearches = 16

// network returns a text that is in the name of each log of an address, and of the networks
// that contain it, up to /16 or its first group.
func (p *Account) network() string {
	text := p.query.Address.Addr().String()
	if p.query.Address.Addr().Is4() {
		parts := strings.SplitAfterN(text, ".", 3)
		return descriptors.EscapePart(parts[0] + parts[1])
	}
	first, _, _ := strings.Cut(text, ":")
	if first == "" {
		first = ":"
	}
	return descriptors.EscapePart(first + ":")
}

// address returns the text of the address, or of the network if there are several.
func (p *Account) address() string {
	if p.query.Address.IsSingleIP() {
		return p.query.Address.Addr().String()
	}
	return p.query.Address.String()
}

// overlaps reports whether the address or network of a log has an address of the subject.
func (p *Account) overlaps(text string) bool {
	other, ok := rules.ParseAddress(text)
	return ok && p.query.Address.Overlaps(other)
}
