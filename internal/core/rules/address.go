package rules

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/text/clientaddr"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// The keys of the entries that Envoy fills with addresses of clients.
const (
	KeyAddress       = "remote_address"
	KeyMaskedAddress = "masked_remote_address"
)

// IsAddressKey reports whether entries with this key have addresses of clients.
func IsAddressKey(key string) bool { return key == KeyAddress || key == KeyMaskedAddress }

// Canonical returns the value of an entry in the form that rules and logs use: trimmed, and each
// address in one spelling: lower case, no zone, IPv4 not mapped into IPv6. Envoy forwards other
// spellings from a trusted X-Forwarded-For. With them, a client would have one log for each spelling.
func Canonical(e descriptors.Entry) string {
	e.Value = descriptors.Trim(e.Value)
	if !IsAddressKey(e.Key) || strings.IndexByte(e.Value, ':') < 0 {
		return e.Value // IPv4 has one spelling
	}
	var memory [64]byte
	text := memory[:0]
	if e.Key == KeyMaskedAddress {
		p, err := netip.ParsePrefix(e.Value)
		if err != nil {
			return e.Value
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		text = p.AppendTo(text)
	} else {
		a, err := netip.ParseAddr(e.Value)
		if err != nil {
			return e.Value
		}
		text = a.Unmap().WithZone("").AppendTo(text)
	}
	if string(text) == e.Value {
		return e.Value
	}
	return string(text)
}

// CanonicalNode returns the value of a node of a rule's path in the form that requests have; see
// [Canonical].
func CanonicalNode(n descriptors.Node) string {
	value := Canonical(descriptors.Entry{Key: n.Key, Value: n.Value})
	if n.Pattern && IsAddressKey(n.Key) {
		return strings.ToLower(value)
	}
	return value
}

// CanonicalPath returns a rule's path with the values that requests have: digests in place of API
// keys, and what [CanonicalNode] returns. It does not change path.
func (rs *Rules) CanonicalPath(path []descriptors.Node) []descriptors.Node {
	cloned := false
	for i, n := range path {
		value := CanonicalNode(n)
		if !n.Open() {
			value = rs.who.Secrets.Value(n.Key, value)
		}
		if value == n.Value {
			continue
		}
		if !cloned {
			path, cloned = slices.Clone(path), true
		}
		path[i].Value = value
	}
	return path
}

// AddressProblem says why no request has a value that fits a node whose values are addresses of
// clients, and what to write. It returns an empty text if requests may have one.
func AddressProblem(n descriptors.Node) string {
	if n.AnyValue || !IsAddressKey(n.Key) || strings.HasPrefix(n.Value, "invert:") {
		return "" // Envoy Gateway writes "invert:" and a network for the clients outside of it
	}
	value := CanonicalNode(n)
	if n.Pattern {
		if strings.Trim(value, "0123456789abcdef.:/*") != "" || spelledOut.MatchString(value) || n.Key == KeyAddress && strings.Contains(value, "/") {
			return fmt.Sprintf("no request has a value of %s that fits: write the wildcard as Envoy writes addresses, such as 192.0.2.* or 2001:db8:*", n.Key)
		}
		return ""
	}
	a, bits, ok := looseAddress(value)
	if !ok {
		return fmt.Sprintf("no request has this value of %s, which is no address", n.Key)
	}
	network := Canonical(descriptors.Entry{Key: KeyMaskedAddress, Value: netip.PrefixFrom(a, bits).Masked().String()})
	want := network
	if n.Key == KeyAddress {
		if bits < a.BitLen() {
			return fmt.Sprintf("no request has a network as its %s: write the key %s with the value %s", KeyAddress, KeyMaskedAddress, network)
		}
		want = Canonical(descriptors.Entry{Key: KeyAddress, Value: a.String()})
	}
	if value != want || strings.Contains(n.Value, "%") {
		return fmt.Sprintf("no request has this value of %s: write %s", n.Key, want)
	}
	return ""
}

// spelledOut matches leading zeros and IPv4 mapped into IPv6, which canonical addresses do not have.
var spelledOut = regexp.MustCompile(`(^|[.:])0[0-9a-f]|^::ffff:[0-9]*\.`)

// looseAddress parses an address or a network, which may also be in brackets, or have a port or a
// zone. bits is the length of the prefix; for an address, all bits.
func looseAddress(text string) (a netip.Addr, bits int, ok bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr(), p.Bits(), true
	}
	a, ok = clientaddr.Parse(text)
	return a, a.BitLen(), ok
}

// ParseAddress parses an address or a network, in the form that [Canonical] gives it.
func ParseAddress(text string) (netip.Prefix, bool) {
	if strings.Contains(text, "/") {
		a, err := netip.ParsePrefix(Canonical(descriptors.Entry{Key: KeyMaskedAddress, Value: text}))
		return a.Masked(), err == nil
	}
	a, err := netip.ParseAddr(Canonical(descriptors.Entry{Key: KeyAddress, Value: text}))
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// CanonicalAddress returns an address or a network in the form of [Canonical], and any other text
// unchanged.
func CanonicalAddress(text string) string {
	if !IsAddress(text) {
		return text
	}
	key := KeyAddress
	if strings.Contains(text, "/") {
		key = KeyMaskedAddress
	}
	return Canonical(descriptors.Entry{Key: key, Value: text})
}

// IsAddress reports whether a text is an address or a network.
func IsAddress(text string) bool {
	_, ok := ParseAddress(text)
	return ok
}
