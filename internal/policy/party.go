package policy

import (
	"context"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/slidegate/slidegate/internal/tier"
)

// A Party is whom a limit counts, as people see it. Its texts are those of the request, so
// they are valid as long as that, and they can be of any length. No text is an API key, or
// has one as a part of it: see [LimitStatus.Party].
type Party struct {
	// Subject is the id of the subject, or of the caller that the adapter has found. If an
	// entry that is no API key names a subject that the tiers do not have, it is that value.
	Subject string
	// Digest is the digest of an unknown API key that has a log of its own.
	Digest string
	// Address is the client's address, masked to /24 or /48.
	Address string
	// Route is the route of the request: Request.Route, or else the value of the first entry
	// with a key in this order: route, route_name, path, :path, generic_key. The descriptor of
	// the limit goes before the others. The method goes before a path, if the same descriptor
	// has one. A query is cut off.
	Route string
	// RequestID is the id of the request: Request.ID, or else the value of the entry
	// request_id or x-request-id.
	RequestID string
}

// Party returns whom the limit counts. It leaves a text out if the key of its entry may hold a
// secret, if the text has an API key of the request as a part, or one that the directory of
// tiers knows. It takes some microseconds, because it digests the texts.
func (s *LimitStatus) Party(req *Request) Party {
	rs := s.Rule.owner
	if rs == nil {
		return Party{Subject: s.Subject} // a rule of a test, without rules
	}
	own := req.Descriptors[s.Descriptor : s.Descriptor+1]
	p := Party{Subject: s.Subject, Address: maskedAddress(clientAddress(req))}
	if p.Subject == "" && req.Caller != nil && req.Caller.Answer.Subject != nil {
		p.Subject = req.Caller.Answer.Subject.ID
	}
	if s.Rule.hasSubject && p.Subject == "" {
		rs.name(&p, s.Rule, req, s.Unresolved)
	}
	p.Route = strings.TrimSpace(req.Route)
	if p.Route == "" {
		p.Route = rs.routeOf(own)
	}
	if p.Route == "" {
		p.Route = rs.routeOf(req.Descriptors)
	}
	p.RequestID = req.ID
	for _, key := range requestIDKeys {
		if p.RequestID == "" {
			p.RequestID = rs.entryOf(req.Descriptors, key)
		}
	}
	for _, text := range []*string{&p.Route, &p.RequestID} {
		if rs.holdsKey(req, *text) {
			*text = ""
		}
	}
	return p
}

// Values returns the values of the entries that name the log of the limit: "tenant=acme". It masks
// addresses, and leaves out what [LimitStatus.Party] leaves out.
func (s *LimitStatus) Values(req *Request) string {
	rs := s.Rule.owner
	if rs == nil {
		return ""
	}
	var b strings.Builder
	entries := req.Descriptors[s.Descriptor].Entries
	for _, part := range s.Rule.identity {
		if part.entry >= len(entries) {
			break // the limit came with a descriptor that no rule matches
		}
		e := entries[part.entry]
		if rs.secrets.Hides(e.Key) || rs.holdsKey(req, e.Value) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(e.Key + "=" + MaskAddress(strings.TrimPrefix(e.Value, tier.AnonymousPrefix)))
	}
	return b.String()
}

// name sets the Subject, Digest or Address of a party that the tiers do not know. If the
// source could not answer (unresolved), the party is an API key by itself.
func (rs *Rules) name(p *Party, rule *Rule, req *Request, unresolved bool) {
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if e.Key != rule.Subject {
				continue
			}
			switch {
			case rs.secrets.Is(e.Key) && (!rs.share || unresolved):
				p.Digest = tier.FingerprintDigest(e.Value)
			case rs.secrets.Hides(e.Key), rs.holdsKey(req, e.Value):
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
func (rs *Rules) routeOf(in []Descriptor) string {
	for _, key := range routeKeys {
		for i := range in {
			value := rs.entryOf(in[i:i+1], key)
			if value == "" {
				continue
			}
			if at := strings.IndexAny(value, "?#"); at >= 0 {
				value = value[:at]
			}
			for _, method := range methodKeys {
				if m := rs.entryOf(in[i:i+1], method); m != "" && strings.HasPrefix(value, "/") {
					return m + " " + value
				}
			}
			return value
		}
	}
	return ""
}

// entryOf returns the value of the first entry with a key, or an empty text. Values that may
// be secret count as absent.
func (rs *Rules) entryOf(in []Descriptor, key string) string {
	if rs.secrets.Hides(key) {
		return ""
	}
	for i := range in {
		for _, e := range in[i].Entries {
			if e.Key == key {
				return e.Value
			}
		}
	}
	return ""
}

const (
	// minSecret is the length of the shortest part that is taken for an API key, in bytes.
	minSecret = 6
	// maxSearched bounds the part of a text that is searched for API keys. A longer text is
	// taken for one that has a key.
	maxSearched = 512
)

// holdsKey reports whether a text is an API key or has one as a part: one of the request, or
// one that the directory of tiers knows.
func (rs *Rules) holdsKey(req *Request, text string) bool {
	if text == "" {
		return false
	}
	if len(text) > maxSearched {
		return true
	}
	return hasKey(text, func(part string) bool { return rs.isKey(req, part) }) || rs.NamesSecret(text)
}

// NamesSecret reports whether a text has a pair whose name looks like that of a secret, such as
// /search?api_key=k. The key may be one that the rules do not know.
func (rs *Rules) NamesSecret(text string) bool {
	if !strings.Contains(text, "=") {
		return false
	}
	for part := range strings.FieldsFuncSeq(unescaped(text), func(r rune) bool { return strings.ContainsRune("/?&;, \t#\"'", r) }) {
		if name, value, ok := strings.Cut(part, "="); ok && value != "" && rs.secrets.Hides(name) {
			return true
		}
	}
	return false
}

// hasKey reports whether a text or a part of it is an API key, also if it is written with escapes.
func hasKey(text string, is func(string) bool) bool {
	return hasPlainKey(text, is) || strings.Contains(text, "%") && hasPlainKey(unescaped(text), is)
}

// hasPlainKey is hasKey for a text without escapes.
func hasPlainKey(text string, is func(string) bool) bool {
	if is(text) {
		return true
	}
	for _, separators := range keySeparators {
		for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
			bare := strings.Trim(part, ".:!?=()[]{}<>")
			if len(part) >= minSecret && (is(part) || bare != part && is(bare)) {
				return true
			}
		}
	}
	return false
}

// keySeparators are what can be around an API key in a text. A key can have some of them in it,
// so the text is split by each set.
var keySeparators = [...]string{" \t?#&;,\"'", " \t?#&;,\"'/=:", " \t?#&;,\"'/=:._-~+@|()[]{}"}

// unescaped returns a text with each byte that is written as % and two hexadecimal digits.
func unescaped(text string) string {
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if b, err := hex.DecodeString(text[i+1 : i+3]); err == nil {
				plain = append(plain, b[0])
				i += 2
				continue
			}
		}
		plain = append(plain, text[i])
	}
	return string(plain)
}

// isKey reports whether a whole text is an API key, in any spelling that a credential has.
func (rs *Rules) isKey(req *Request, text string) bool {
	fingerprint := rs.secrets.Fingerprint(text)
	digest := tier.FingerprintDigest(fingerprint)
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if rs.secrets.Is(e.Key) && tier.FingerprintDigest(e.Value) == digest {
				return true
			}
		}
	}
	if req.Caller != nil && tier.FingerprintDigest(req.Caller.Fingerprint) == digest {
		return true
	}
	for i := range req.Plain {
		if strings.Contains(text, req.Plain[i].Key) {
			return true
		}
	}
	if rs.tiers == nil {
		return false
	}
	a, _ := rs.secrets.Resolve(context.Background(), rs.tiers, fingerprint, "", tier.NoWait)
	return a.Subject != nil
}

// maskedAddress returns an address or prefix with 24 bits of IPv4 or 48 bits of IPv6, or an
// empty text if it is neither.
func maskedAddress(text string) string {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return ""
		}
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
	}
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	most := 48
	if p.Addr().Is4() {
		most = 24
	}
	p = netip.PrefixFrom(p.Addr(), min(p.Bits(), most))
	return p.Masked().String()
}

// MaskAddress returns an address as [Party.Address] has it: 192.0.2.0/24 for 192.0.2.7. It
// returns a text that is no address unchanged.
func MaskAddress(text string) string {
	if masked := maskedAddress(text); masked != "" {
		return masked
	}
	return text
}
