package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// pathText returns key=value/key for messages.
func pathText(secrets *tier.Secrets, path []descriptors.Node) string {
	parts := make([]string, len(path))
	for i, n := range path {
		if !n.Open() && secrets.Hides(n.Key) {
			n.Value = "***"
		}
		parts[i] = n.String()
	}
	return strings.Join(parts, "/")
}

// OverrideName is the name of a limit that came with a descriptor for which there is no rule.
const OverrideName = "override"

// maxName is the maximum length of a rule's name in bytes.
const maxName = tier.MaxLabelName

// ValidName reports whether a name can be used unchanged. Envoy writes it unescaped into
// a header.
func ValidName(name string) bool { return tier.ValidLabelName(name) }

// maxShownName is the maximum length of [Rule.GivenName] in bytes.
const maxShownName = 1 << 10

// nameOf makes a name from a path: its keys and fixed values joined by dots, without
// values of API keys. If they are too long, the name ends with a digest of the whole
// path as text. Otherwise many rules of one long path would have one name.
func nameOf(secrets *tier.Secrets, path []descriptors.Node) string {
	var parts []string
	for _, n := range path {
		parts = append(parts, n.Key)
		if !n.AnyValue && !secrets.Hides(n.Key) {
			parts = append(parts, n.Value)
		}
	}
	text := strings.Join(parts, ".")
	if len(text) <= maxName {
		return plainName(text)
	}
	digest := sha256.Sum256([]byte(pathText(secrets, path)))
	end := "-" + hex.EncodeToString(digest[:nameDigest])
	return plainName(text[:maxName-len(end)]) + end
}

// nameDigest is the length of the digest in a name, in bytes. Of 100,000 long names, two are
// the same with a probability of 1 to 50,000.
const nameDigest = 6

// plainName makes a [ValidName] from a text.
func plainName(text string) string {
	if ValidName(text) {
		return text
	}
	name := []byte(text[:min(len(text), maxName)])
	for i, c := range name {
		if !ValidName(string(c)) {
			name[i] = '-'
		}
	}
	return string(name)
}

// named returns a copy of limits with their names in headers.
func named(rule string, limits []Limit) []Limit { return NameLimits(rule, slices.Clone(limits)) }

// NameLimits sets the name of each limit in headers, and returns limits.
func NameLimits(rule string, limits []Limit) []Limit {
	for i := range limits {
		limits[i].Name = rule
		if len(limits) > 1 {
			limits[i].Name += "-" + FormatLog(limits[i].Policy, limits[i].Window)
		}
	}
	return limits
}

// HiddenValue stands for a value that must not be shown.
const HiddenValue = "***"

// HidesEntry reports whether the values of entries with this key must not be shown.
func (rs *Rules) HidesEntry(key string) bool { return rs.who.Secrets.Hides(key) }

// Names reports whether a rule names the key of an entry.
func (rs *Rules) Names(key string) bool { return rs.named[key] }

// Shows reports whether values of entries with this key may be shown: a rule names the key, and it is
// not the key of a secret.
func (rs *Rules) Shows(key string) bool { return rs.named[key] && !rs.who.Secrets.Hides(key) }

// Shown returns an operator's entry in a form that may be shown. It removes a key that no rule names,
// and a value that [Rules.Shows] does not allow.
func (rs *Rules) Shown(e descriptors.Entry) descriptors.Entry {
	if !rs.Shows(e.Key) {
		e.Value = HiddenValue
	}
	if !rs.named[e.Key] {
		e.Key = HiddenValue
	}
	return e
}
