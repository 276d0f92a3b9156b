package policy

import (
	"net/netip"

	"github.com/slidegate/slidegate/pkg/descriptors"
)

// subject is who a rule limits in one request.
type subject struct {
	id   string // empty if not known
	tier string
	log  string // what names the log
}

// subjectOf finds who a rule limits. The rule has a subject.
func (rs *Rules) subjectOf(rule *Rule, req *Request, entries descriptors.Descriptor) subject {
	if rule.subject >= 0 {
		return rs.identify(entries[rule.subject], req)
	}
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if e.Key == rule.Subject {
				return rs.identify(e, req)
			}
		}
	}
	// A request without the entry is one without a key: nobody in particular.
	return rs.stranger(req)
}

// identify looks up the subject that an entry names: by the digest of an API
// key, or by id where the entry is no secret.
func (rs *Rules) identify(e descriptors.Entry, req *Request) subject {
	if !rs.secrets.Is(e.Key) {
		s := subject{log: "id." + e.Value}
		if rs.tiers != nil {
			s.tier = rs.tiers.DefaultTier()
			if known := rs.tiers.ByID(e.Value); known != nil && !known.Disabled {
				s.id, s.tier = known.ID, known.Tier
			}
		}
		return s
	}
	if rs.tiers != nil {
		if known := rs.tiers.ByDigest(e.Value); known != nil && !known.Disabled {
			return subject{id: known.ID, tier: known.Tier, log: "id." + known.ID}
		}
	}
	if rs.share {
		return rs.stranger(req)
	}
	s := subject{log: "key." + e.Value}
	if rs.tiers != nil {
		s.tier = rs.tiers.DefaultTier()
	}
	return s
}

// stranger is whoever calls from this address without a key that is known.
func (rs *Rules) stranger(req *Request) subject {
	s := subject{log: "addr." + clientAddress(req)}
	if rs.tiers != nil {
		s.tier = rs.tiers.DefaultTier()
	}
	return s
}

// ruleKey names the log of a rule. The tag is the subject if the log is told
// apart by one, else the last open value, else the rule.
func (rs *Rules) ruleKey(rule *Rule, req *Request, entries descriptors.Descriptor, who subject, v *Verdict) string {
	v.identity = v.identity[:0]
	tag := ""
	if rule.hasSubject && rule.subject < 0 {
		tag = who.log
		v.identity = append(v.identity, who.log)
	}
	for _, part := range rule.identity {
		var value string
		switch {
		case rule.hasSubject && part.entry == rule.subject:
			value = who.log
			tag = who.log
		case part.secret:
			value = rs.identify(entries[part.entry], req).log
		default:
			value = entries[part.entry].Value
		}
		v.identity = append(v.identity, value)
	}
	if tag == "" && len(v.identity) > 0 {
		tag = v.identity[len(v.identity)-1]
	}
	v.key = descriptors.AppendKey(v.key[:0], tag, rule.id, v.identity...)
	return string(v.key)
}

// overrideKey names the log of a limit that came with the descriptor: the domain
// and all entries, so that it does not matter which rule matched.
func (rs *Rules) overrideKey(dom *domain, req *Request, entries descriptors.Descriptor, v *Verdict) string {
	v.identity = v.identity[:0]
	tag := ""
	for _, e := range entries {
		value := e.Value
		if rs.secrets.Is(e.Key) {
			value = rs.identify(e, req).log
			tag = value
		}
		v.identity = append(v.identity, e.Key, value)
	}
	if tag == "" && len(v.identity) > 0 {
		tag = v.identity[len(v.identity)-1]
	}
	v.key = descriptors.AppendKey(v.key[:0], tag, dom.override.id, v.identity...)
	return string(v.key)
}

const (
	keyAddress       = "remote_address"
	keyMaskedAddress = "masked_remote_address"
)

// clientAddress returns the client's address as any descriptor of the request
// says it, or "" where none does.
func clientAddress(req *Request) string {
	masked := ""
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			switch e.Key {
			case keyAddress:
				return e.Value
			case keyMaskedAddress:
				masked = e.Value
			}
		}
	}
	return masked
}

// canonical returns the value of an entry in its one form. IPv4 addresses mapped
// into IPv6 are unmapped and zones dropped: Envoy passes on such text from a
// trusted X-Forwarded-For, and one client must not have two logs.
func canonical(e descriptors.Entry) string {
	switch e.Key {
	case keyAddress:
		if a, err := netip.ParseAddr(e.Value); err == nil && (a.Is4In6() || a.Zone() != "") {
			return a.Unmap().WithZone("").String()
		}
	case keyMaskedAddress:
		if p, err := netip.ParsePrefix(e.Value); err == nil && p.Addr().Is4In6() && p.Bits() >= 96 {
			return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).String()
		}
	}
	return e.Value
}

// Canonical returns the value of an entry in the one form that rules and requests
// are compared in: of a client address, IPv4 as such and without a zone. Other
// values are as they are.
func Canonical(e descriptors.Entry) string { return canonical(e) }
