package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxPart is the longest part, in bytes, that a key holds as it is. Longer ones
// are replaced by their digest, so that what a client sends cannot make a key
// of any length.
const maxPart = 128

const hexDigits = "0123456789ABCDEF"

// A RuleID names a rule within a process's configuration: its domain and the
// path of its descriptor. It does not change when rules are reordered or get
// other limits. [NewRuleID] makes it; the zero value names no rule.
type RuleID string

// NewRuleID returns domain|key=value/key*=pattern/key/..., every part escaped.
func NewRuleID(domain string, path []Node) RuleID {
	id := append(appendPart(nil, domain), '|')
	for i, n := range path {
		if i > 0 {
			id = append(id, '/')
		}
		id = appendPart(id, n.Key)
		if n.Pattern {
			id = append(id, '*')
		}
		if !n.AnyValue {
			id = appendPart(append(id, '='), n.Value)
		}
	}
	return RuleID(id)
}

// AppendKey appends the name of a log to dst and returns it:
//
//	{tag}:rule:identity[,identity...]
//
// The braces make tag the hash tag of Redis Cluster, so that keys with one tag
// share a slot. Where tag is empty the rule takes its place, so that rules
// without identity spread over the slots; the "|" in it tells it from any tag.
//
// Whatever bytes the parts hold, two different inputs never give one key: all
// but letters, digits and "-_.@" are written as %XX, and a part longer than 128
// bytes is written as "~" and its SHA-256 in hex ("~" itself is escaped).
func AppendKey(dst []byte, tag string, rule RuleID, identity ...string) []byte {
	dst = append(dst, '{')
	if tag == "" {
		dst = append(dst, rule...)
	} else {
		dst = appendPart(dst, tag)
	}
	dst = append(dst, '}', ':')
	dst = append(dst, rule...)
	for i, part := range identity {
		if i == 0 {
			dst = append(dst, ':')
		} else {
			dst = append(dst, ',')
		}
		dst = appendPart(dst, part)
	}
	return dst
}

// appendPart appends one escaped part.
func appendPart(dst []byte, part string) []byte {
	if len(part) > maxPart {
		sum := sha256.Sum256([]byte(part))
		return hex.AppendEncode(append(dst, '~'), sum[:])
	}
	done := 0
	for i := range len(part) {
		if c := part[i]; !plain[c] {
			dst = append(dst, part[done:i]...)
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&0xf])
			done = i + 1
		}
	}
	return append(dst, part[done:]...)
}

// plain marks the bytes that appendPart writes as they are.
var plain = func() (t [256]bool) {
	for c := range 256 {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			t[c] = true
		}
	}
	for _, c := range []byte("-_.@") {
		t[c] = true
	}
	return t
}()
