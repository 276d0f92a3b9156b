package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
)

// maxPart is the longest part that a key contains unchanged, in bytes. A digest replaces a
// longer part, so a client cannot make keys of any length.
const maxPart = 128

const (
	// MaxKey is the longest key that [AppendKey] makes, in bytes. A digest replaces the
	// tail of a longer key.
	MaxKey = 512
	// keptKey is the length of the part that such a key keeps. "!" and the digest follow.
	keptKey = MaxKey - 1 - 2*sha256.Size
	// maxTag is the longest rule that is a hash tag unchanged. Other tags are single parts,
	// which are not longer when they are escaped.
	maxTag = 3 * maxPart
)

const hexDigits = "0123456789ABCDEF"

// A RuleID names a rule in the configuration of a process by its domain and the path of its
// descriptor. It stays the same when rules are reordered or get other limits. [NewRuleID]
// makes it. The zero value names no rule.
type RuleID string

// NewRuleID returns domain|key=value/key*=pattern/key/..., with every part escaped.
func NewRuleID(domain string, path []Node) RuleID {
	id := append(appendPart(nil, &Text{Value: domain}), '|')
	for i, n := range path {
		if i > 0 {
			id = append(id, '/')
		}
		id = appendPart(id, &Text{Value: n.Key})
		if n.Pattern {
			id = append(id, '*')
		}
		if !n.AnyValue {
			id = appendPart(append(id, '='), &Text{Value: n.Value})
		}
	}
	return RuleID(id)
}

// A Text is a part of the name of a log: Prefix and Value, as one text. The caller need not join
// them in memory of their own.
type Text struct{ Prefix, Value string }

// AppendKey appends the name of a log to dst and returns it:
//
//	{tag}:rule:identity[,identity...]
//
// The braces make tag the hash tag of Redis Cluster, so keys with one tag share a slot. If
// tag is nil or empty, the rule is the tag, so rules without identity spread over the slots. A rule
// contains a "|", so it differs from every other tag. A tag that points into identity is escaped
// once.
//
// Two different inputs never give the same key, whatever bytes they contain:
//
//   - Letters, digits and "-_.@" stay. Every other byte becomes %XX.
//   - A part longer than 128 bytes becomes "~" and its SHA-256 in hex.
//   - A key longer than [MaxKey] bytes keeps its beginning, including the whole hash tag.
//     "!" and the SHA-256 of the rest in hex follow. No part contains a "!", so no shorter
//     key is the same.
//   - A rule longer than 384 bytes becomes "|~" and its SHA-256 in hex as a tag.
func AppendKey(dst []byte, tag *Text, rule RuleID, identity ...Text) []byte {
	start := len(dst)
	dst = append(dst, '{')
	switch {
	case tag != nil && *tag != Text{}:
		dst = appendPart(dst, tag)
	case len(rule) <= maxTag:
		dst = append(dst, rule...)
	default:
		dst = appendDigest(append(dst, '|'), &Text{Value: string(rule)})
	}
	tagEnd := len(dst)
	dst = append(dst, '}', ':')
	dst = append(dst, rule...)
	var tail hash.Hash // digests what is cut off; nil if nothing is
	for i := range identity {
		if len(dst)-start > MaxKey {
			dst, tail = cut(dst, start, tail) // keep dst short: a client may have sent thousands of parts
		}
		if i == 0 {
			dst = append(dst, ':')
		} else {
			dst = append(dst, ',')
		}
		if part := &identity[i]; part != tag {
			dst = appendPart(dst, part)
		} else if *tag != (Text{}) {
			dst = append(dst, dst[start+1:tagEnd]...) // it is escaped already
		}
	}
	if tail == nil && len(dst)-start <= MaxKey {
		return dst
	}
	dst, tail = cut(dst, start, tail)
	return hex.AppendEncode(append(dst, '!'), tail.Sum(nil))
}

// RuleOfKey returns the rule in a key of [AppendKey], as it is there. Of another key it returns
// any part.
func RuleOfKey(key string) string {
	_, rule, _ := strings.Cut(key, "}:")
	rule, _, _ = strings.Cut(rule, ":")
	return rule
}

// cut removes the end of a key that begins at dst[start:], and digests it. tail is nil at first.
func cut(dst []byte, start int, tail hash.Hash) ([]byte, hash.Hash) {
	if tail == nil {
		tail = sha256.New()
	}
	tail.Write(dst[start+keptKey:])
	return dst[:start+keptKey], tail
}

// appendPart appends one escaped part.
func appendPart(dst []byte, part *Text) []byte {
	if len(part.Prefix)+len(part.Value) > maxPart {
		return appendDigest(dst, part)
	}
	if part.Prefix != "" {
		dst = appendEscaped(dst, part.Prefix)
	}
	return appendEscaped(dst, part.Value)
}

// appendEscaped is appendPart for a chunk of a part that is short enough.
func appendEscaped(dst []byte, part string) []byte {
	for {
		n := 0
		for n < len(part) && plain[part[n]] {
			n++
		}
		dst = append(dst, part[:n]...)
		if n == len(part) {
			return dst
		}
		dst = append(dst, '%', hexDigits[part[n]>>4], hexDigits[part[n]&0xf])
		part = part[n+1:]
	}
}

// appendDigest appends the digest of a part.
func appendDigest(dst []byte, part *Text) []byte {
	dst = append(dst, '~')
	var memory [1024]byte
	if len(part.Prefix)+len(part.Value) <= len(memory) {
		sum := sha256.Sum256(append(append(memory[:0], part.Prefix...), part.Value...))
		return hex.AppendEncode(dst, sum[:])
	}
	// Digest in chunks: a long part as a whole would be copied.
	h, chunk := sha256.New(), make([]byte, 4<<10)
	for _, rest := range []string{part.Prefix, part.Value} {
		for rest != "" {
			n := copy(chunk, rest)
			h.Write(chunk[:n])
			rest = rest[n:]
		}
	}
	return hex.AppendEncode(dst, h.Sum(nil))
}

// plain marks the bytes that appendPart writes unchanged.
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
