package descriptors

import (
	"crypto/sha256"
	"errors"
	"strings"
)

// ErrNotKey is returned by [ParseKey] for a text that [AppendKey] never makes.
var ErrNotKey = errors.New("descriptors: not the name of a log")

// A Name is what the name of a log says.
type Name struct {
	// Tag is the hash tag. The zero value means that the rule is the tag.
	Tag Part
	// Rule is empty if a digest replaced a part of it. Cut is then true.
	Rule RuleID
	// Identity are the parts of the identity. If Cut is true, the last ones are missing.
	Identity []Part
	// Cut is true if a digest replaced the tail, because the name was longer than [MaxKey].
	Cut bool
}

// A Part is a part of a name: the tag, or a part of the identity.
type Part struct {
	// Text is the part as it was given to [AppendKey], or the digest in hex that replaced it.
	Text string
	// Digest is true if Text is the digest of a part that was too long.
	Digest bool
}

// String returns the part as names of logs contain it: escaped. [EscapePart] returns the
// same for the text that the part was made of.
func (p Part) String() string {
	if p.Digest {
		return "~" + p.Text
	}
	return EscapePart(p.Text)
}

// EscapePart returns a tag or a part of an identity as [AppendKey] writes it. It is how
// names of logs are searched for a text.
func EscapePart(part string) string { return string(appendPart(nil, &Text{Value: part})) }

// ParseKey parses the name of a log. It is the inverse of [AppendKey], except for what was
// too long: digests stand in its place, and [Name] says so. For any other text, ParseKey
// returns [ErrNotKey].
func ParseKey(key string) (Name, error) {
	var n Name
	if len(key) > MaxKey {
		return n, ErrNotKey
	}
	tag, rest, ok := strings.Cut(key, "}:")
	if !ok || !strings.HasPrefix(tag, "{") {
		return n, ErrNotKey
	}
	tag = tag[1:]
	if rest, ok = n.cutTail(key, rest); !ok {
		return Name{}, ErrNotKey
	}
	rule, identity, hasIdentity := strings.Cut(rest, ":")
	if !isRule(rule) {
		return Name{}, ErrNotKey
	}
	if !n.parseTag(tag, rule, n.Cut && !hasIdentity) {
		return Name{}, ErrNotKey
	}
	if n.Cut && !hasIdentity {
		return n, nil // the rule may be cut too
	}
	n.Rule = RuleID(rule)
	if !hasIdentity {
		return n, nil
	}
	parts := strings.Split(identity, ",")
	if n.Cut {
		parts = parts[:len(parts)-1] // the last one may be cut
	}
	for _, text := range parts {
		p, ok := parsePart(text)
		if !ok {
			return Name{}, ErrNotKey
		}
		n.Identity = append(n.Identity, p)
	}
	return n, nil
}

// cutTail removes the digest that replaces the tail of a long key. rest is the end of key.
func (n *Name) cutTail(key, rest string) (kept string, ok bool) {
	kept, digest, cut := strings.Cut(rest, "!")
	if !cut {
		return rest, true
	}
	n.Cut = true
	return kept, len(key) == MaxKey && isDigest(digest)
}

// parseTag parses the tag of a key. cut is true if the rule is not complete.
func (n *Name) parseTag(tag, rule string, cut bool) (ok bool) {
	if !strings.Contains(tag, "|") {
		n.Tag, ok = parsePart(tag)
		return ok && tag != ""
	}
	digest, isDigested := strings.CutPrefix(tag, "|~")
	switch {
	case isDigested && isDigest(digest):
		return cut || len(rule) > maxTag && tag == "|"+string(appendDigest(nil, &Text{Value: rule}))
	case len(tag) > maxTag:
		return false
	case cut:
		return strings.HasPrefix(tag, rule) || strings.HasPrefix(rule, tag)
	default:
		return tag == rule
	}
}

// isRule reports whether a text may be a [RuleID], or its beginning.
func isRule(text string) bool {
	for i := range len(text) {
		if c := text[i]; !plain[c] && strings.IndexByte("%~|/*=", c) < 0 {
			return false
		}
	}
	return strings.Contains(text, "|")
}

func isDigest(text string) bool {
	return len(text) == 2*sha256.Size && strings.Trim(text, "0123456789abcdef") == ""
}

// parsePart is the inverse of appendPart. It accepts only what appendPart writes.
func parsePart(text string) (p Part, ok bool) {
	if digest, is := strings.CutPrefix(text, "~"); is {
		return Part{Text: digest, Digest: true}, isDigest(digest)
	}
	var b []byte // nil while nothing is escaped
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case plain[c]:
			if b != nil {
				b = append(b, c)
			}
			continue
		case c != '%' || i+2 >= len(text):
			return p, false
		}
		high, low := strings.IndexByte(hexDigits, text[i+1]), strings.IndexByte(hexDigits, text[i+2])
		if high < 0 || low < 0 || plain[high<<4|low] {
			return p, false
		}
		if b == nil {
			b = append(make([]byte, 0, len(text)), text[:i]...)
		}
		b = append(b, byte(high<<4|low))
		i += 2
	}
	if b != nil {
		text = string(b)
	}
	return Part{Text: text}, len(text) <= maxPart
}
