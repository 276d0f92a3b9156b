package policy

import (
	"context"
	"net/netip"
	"strings"

	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A meeting is how requests of a party meet a rule.
type meeting struct {
	entries descriptors.Descriptor
	more    descriptors.Descriptor // of another descriptor of the request
	// unknown marks the levels whose value can be any that the rule takes.
	unknown []bool
	// open is true if the name of the log has a value that is not known.
	open bool
	// whole is true if all values are known, so that a rule can be found for them.
	whole bool
	// place is the level of the party in the path, whose value is in the log's name. It is -1
	// if the party is in no level.
	place int
	// holder is true if the party is the rule's subject, whose value is in the log's name.
	holder bool
}

// meet returns how requests of the party meet a rule. It reports false if they do not.
func (p *Account) meet(rule *Rule) (m meeting, ok bool) {
	m = meeting{place: -1, whole: true, unknown: make([]bool, len(rule.Path))}
	for i, n := range rule.Path {
		e := descriptors.Entry{Key: n.Key, Value: n.Value}
		switch {
		case !n.Open():
		case rule.Shares(i):
			// All values share a log, so any value that fits will do.
			e.Value = strings.ReplaceAll(n.Value, descriptors.Wildcard, "")
			m.whole = false
		default:
			e.Value, m.unknown[i] = "", true
			if n.Key == p.rules.trusted && p.Subject != nil {
				e.Value = p.Subject.Tier // the tier that it has without the entry
			}
		}
		m.entries = append(m.entries, e)
	}
	if p.log != "" || p.ByAddress {
		ok = p.meetSubject(rule, &m)
	} else {
		ok = p.meetAddress(rule, &m)
	}
	if !ok {
		return m, false
	}
	for _, unknown := range m.unknown {
		m.open = m.open || unknown
	}
	m.whole = m.whole && !m.open
	return m, true
}

// meetSubject is meet for a subject, and for an unknown API key.
func (p *Account) meetSubject(rule *Rule, m *meeting) bool {
	if !rule.hasSubject {
		return false
	}
	secret := p.rules.secrets.Is(rule.Subject)
	switch {
	case secret && p.query.Digest == "" && p.rules.tiers == nil:
		return false // no API key belongs to a subject
	case !secret && !strings.HasPrefix(p.log, "id."):
		return false
	}
	if p.ByAddress {
		m.open = true // the name of the log has the address
	}
	value := p.secret
	if !secret {
		value = p.log[len("id."):]
		if isAddressKey(rule.Subject) && !isAddress(value) {
			return false
		}
	}
	at := rule.subject
	if at < 0 {
		m.more = descriptors.Descriptor{{Key: rule.Subject, Value: value}}
		m.holder = !p.ByAddress
		return true
	}
	switch n := rule.Path[at]; {
	case rule.Shares(at):
		return false // it is not a log of the party alone
	case !n.Open() && secret:
		return p.hasFixedKey(n.Value)
	case !n.Open():
		return n.Value == value
	case n.Pattern && !secret && !descriptors.Fits(n.Value, value):
		return false
	}
	m.entries[at].Value, m.unknown[at] = value, false
	m.place, m.holder = at, !p.ByAddress
	return true
}

// hasFixedKey reports whether the API key with a fingerprint in a rule is the party's.
func (p *Account) hasFixedKey(fingerprint string) bool {
	if p.query.Digest != "" && strings.Contains(fingerprint, p.query.Digest) {
		p.answers[tier.FingerprintDigest(fingerprint)] = p.answers[p.secret]
		return true
	}
	if p.Subject == nil || p.query.Subjects == nil {
		return false
	}
	a, ok := p.rules.secrets.Resolve(context.Background(), p.query.Subjects, fingerprint, "", tier.NoWait)
	if !ok || a.Subject == nil || a.Subject.ID != p.Subject.ID {
		return false
	}
	p.answers[tier.FingerprintDigest(fingerprint)] = p.answers[p.secret]
	return true
}

// meetAddress is meet for an address or a network.
func (p *Account) meetAddress(rule *Rule, m *meeting) bool {
	inPath := false
	for i, n := range rule.Path {
		if !isAddressKey(n.Key) || rule.Shares(i) {
			continue
		}
		switch {
		case !n.Open():
			if !p.overlaps(n.Value) {
				return false
			}
		case n.Key == keyAddress && p.query.Address.IsSingleIP():
			if n.Pattern && !descriptors.Fits(n.Value, p.address()) {
				return false
			}
			m.entries[i].Value, m.unknown[i] = p.address(), false
			m.place = i
		default:
			m.place = i // of which network is not known
		}
		inPath = true
	}
	switch at := rule.subject; {
	case inPath && rule.hasSubject && at < 0:
		m.open = true
		return true
	case inPath:
		return true
	case !rule.hasSubject:
		return false
	case at >= 0 && (!p.rules.share || !p.rules.secrets.Is(rule.Subject) || !rule.Path[at].Open() || rule.Shares(at)):
		return false
	case at >= 0:
		m.entries[at].Value, m.unknown[at] = strangerKey, false
		m.place = at
	}
	m.holder = true
	key := keyAddress
	if !p.query.Address.IsSingleIP() {
		key = keyMaskedAddress
	}
	m.more = descriptors.Descriptor{{Key: key, Value: p.address()}}
	return true
}

// Searches returns what to search for to find the logs of open rules, and the logs of limits
// that came with requests. It is empty if there can be none.
func (p *Account) Searches() []window.Match {
	if !p.searched && p.query.Domain == "" {
		p.searches, p.searched = p.search(), true
	}
	return p.searches
}

func (p *Account) search() []window.Match {
	var all []window.Match
	byTag := false
	for _, d := range p.rules.domains {
		byTag = byTag || d.overridden.Load() && !p.ByAddress
	}
	for i, r := range p.rules.rules {
		m, ok := p.meet(r)
		switch {
		case !ok || p.ByAddress:
		case p.log == "" && (m.holder || m.open || !p.query.Address.IsSingleIP()):
			byTag = true // networks may be logged that contain the address
		case !m.open || p.log == "":
		case m.holder:
			byTag = true
		case len(all) < maxSearches:
			// The party is a fixed value of the path, which is not in the tag.
			all = append(all, window.Match{Contains: ":" + string(p.rules.rules[i].id) + ":"})
		}
	}
	switch {
	case !byTag:
	case p.log != "":
		all = append(all, window.Match{Tag: descriptors.EscapePart(p.log)})
	default:
		all = append(all, window.Match{Contains: p.network()})
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

func (p *Account) address() string { return addressText(p.query.Address) }

// addressText returns the text of an address, or of a network if there are several.
func addressText(a netip.Prefix) string {
	if a.IsSingleIP() {
		return a.Addr().String()
	}
	return a.String()
}

// overlaps reports whether the address or network of a log has an address of the party.
func (p *Account) overlaps(text string) bool {
	other, ok := ParseAddress(text)
	return ok && p.query.Address.Overlaps(other)
}
