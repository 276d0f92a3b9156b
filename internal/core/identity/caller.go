package identity

import (
	"net/netip"
	"regexp"
	"strings"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// A CallerInfo describes the caller that a limit counts, for people. Its texts belong to the request
// and are valid as long as the request. They can be of any length.
type CallerInfo struct {
	// Subject is the id of the subject, or of the caller that the adapter has found. If another entry
	// than an API key names a subject that the tiers do not have, it is the entry's value.
	Subject string
	// Digest is the digest of an unknown API key that has its own log.
	Digest string
	// Address is the client's address, masked to /24 or /48.
	Address string
	// Route is the route of the request: Request.Route, or else the value of the first entry
	// with a key in this order: route, route_name, path, :path, generic_key. The descriptor of
	// the limit goes before the others. The method goes before a path, if the same descriptor
	// has one. A query is cut off.
	Route string
	// RequestID is the id of the request, if it is a UUID: Request.ID, or else the value of the
	// entry request_id or x-request-id.
	RequestID string
}

// CallerOf returns the caller that a rule's limit of a descriptor counts. subject is the id of the
// subject, empty if unknown. unresolved says that the customer source did not answer. The texts are
// ids of subjects, Request.Route, and values of entries whose key a rule names and that hold no
// secret.
func CallerOf(req *Request, rule *rules.Rule, descriptor int, subject string, unresolved bool) CallerInfo {
	rs := rule.Rules()
	if rs == nil {
		return CallerInfo{Subject: subject} // a rule of a test, without rules
	}
	single := req.Descriptors[descriptor : descriptor+1]
	p := CallerInfo{Subject: subject, Address: maskedAddress(ClientAddress(req))}
	if p.Subject == "" && req.Caller != nil && req.Caller.Answer.Subject != nil {
		p.Subject = req.Caller.Answer.Subject.ID
	}
	if rule.HasSubject() && p.Subject == "" {
		p.nameUnknown(rs, rule, req, unresolved)
	}
	p.Route = strings.TrimSpace(req.Route)
	if p.Route == "" {
		p.Route = routeOf(rs, single)
	}
	if p.Route == "" {
		p.Route = routeOf(rs, req.Descriptors)
	}
	p.RequestID = req.ID
	for _, key := range requestIDKeys {
		if p.RequestID == "" {
			p.RequestID = entryOf(req.Descriptors, key)
		}
	}
	if !uuid.MatchString(p.RequestID) {
		p.RequestID = ""
	}
	return p
}

// LogValues returns the values of the entries that name the log of a limit: "tenant=acme". It masks
// addresses, and leaves out what [CallerOf] leaves out.
func LogValues(req *Request, rule *rules.Rule, descriptor int) string {
	rs := rule.Rules()
	if rs == nil {
		return ""
	}
	var b strings.Builder
	entries := req.Descriptors[descriptor].Entries
	for _, part := range rule.Parts() {
		if part.Level >= len(entries) {
			break // the limit came with a descriptor that no rule matches
		}
		e := entries[part.Level]
		if rs.HidesEntry(e.Key) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(e.Key + "=" + MaskAddress(strings.TrimPrefix(e.Value, tier.AnonymousPrefix)))
	}
	return b.String()
}

// nameUnknown sets the Subject, Digest or Address of a caller that the tiers do not know. If the
// source did not answer (unresolved), each API key is a caller.
func (p *CallerInfo) nameUnknown(rs *rules.Rules, rule *rules.Rule, req *Request, unresolved bool) {
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if e.Key != rule.Subject {
				continue
			}
			switch {
			case rs.Secrets().Is(e.Key) && (!rs.UnknownByAddress() || unresolved):
				p.Digest = tier.FingerprintDigest(e.Value)
			case rs.HidesEntry(e.Key):
			case strings.HasPrefix(e.Value, tier.AnonymousPrefix):
				p.Address = maskedAddress(strings.TrimPrefix(e.Value, tier.AnonymousPrefix))
			default:
				p.Subject = e.Value
			}
			return
		}
	}
}

var (
	routeKeys     = [...]string{"route", "route_name", "path", ":path", "generic_key"}
	methodKeys    = [...]string{"method", ":method"}
	requestIDKeys = [...]string{"request_id", "x-request-id"}
)

// routeOf returns the route in descriptors, or an empty text.
func routeOf(rs *rules.Rules, in []Descriptor) string {
	for _, key := range routeKeys {
		for i := range in {
			value := shownEntry(rs, in[i:i+1], key)
			if value == "" {
				continue
			}
			if at := strings.IndexAny(value, "?#"); at >= 0 {
				value = value[:at]
			}
			for _, method := range methodKeys {
				if m := shownEntry(rs, in[i:i+1], method); m != "" && strings.HasPrefix(value, "/") {
					return m + " " + value
				}
			}
			return value
		}
	}
	return ""
}

// shownEntry returns what entryOf does, or an empty text if values of the key must not be shown.
func shownEntry(rs *rules.Rules, in []Descriptor, key string) string {
	if !rs.Shows(key) {
		return ""
	}
	return entryOf(in, key)
}

// uuid matches a UUID: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// entryOf returns the value of the first entry with a key, or an empty text.
func entryOf(in []Descriptor, key string) string {
	for i := range in {
		for _, e := range in[i].Entries {
			if e.Key == key {
				return e.Value
			}
		}
	}
	return ""
}

// maskedAddress returns an address or prefix with 24 bits of IPv4 or 48 bits of IPv6, or an
// empty text if it is neither.
func maskedAddress(text string) string {
	p, ok := rules.ParseAddress(text)
	if !ok {
		return ""
	}
	most := 48
	if p.Addr().Is4() {
		most = 24
	}
	p = netip.PrefixFrom(p.Addr(), min(p.Bits(), most))
	return p.Masked().String()
}

// MaskAddress returns an address as [CallerInfo.Address] has it: 192.0.2.0/24 for 192.0.2.7. It
// returns a text that is no address unchanged.
func MaskAddress(text string) string {
	if masked := maskedAddress(text); masked != "" {
		return masked
	}
	return text
}
