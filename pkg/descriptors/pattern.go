package descriptors

import "strings"

// Wildcard stands for any number of bytes in the value of a pattern node.
const Wildcard = "*"

// A pattern is a value with wildcards, split into its parts.
type pattern struct {
	prefix, suffix string
	middle         []string // the other parts in order, without empty ones
	shortest       int      // the length of the shortest value that matches
}

// compile splits a value with at least one wildcard.
func compile(value string) pattern {
	parts := strings.Split(value, Wildcard)
	p := pattern{prefix: parts[0], suffix: parts[len(parts)-1]}
	p.shortest = len(p.prefix) + len(p.suffix)
	for _, part := range parts[1 : len(parts)-1] {
		// Adjacent wildcards mean the same as one.
		if part != "" {
			p.middle = append(p.middle, part)
			p.shortest += len(part)
		}
	}
	return p
}

// match reports whether a value fits. It takes the first occurrence of each middle part,
// which leaves the most for the parts after it. So it never has to go back.
func (p *pattern) match(value string) bool {
	if len(value) < p.shortest || !strings.HasPrefix(value, p.prefix) || !strings.HasSuffix(value, p.suffix) {
		return false
	}
	rest := value[len(p.prefix) : len(value)-len(p.suffix)]
	for _, part := range p.middle {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

// Covers reports whether every value that fits the pattern narrow also fits wide. If it
// does and wide comes first, narrow never gets a request. If Covers reports false, some
// values may still fit both; see [Overlap].
func Covers(wide, narrow string) bool {
	// Match narrow as if it were a value. Only a star of wide matches a star of narrow, so
	// a match holds for every value of narrow.
	p := compile(wide)
	return p.match(narrow)
}

// Overlap reports whether some value fits both patterns. This is so if one prefix begins
// with the other, and one suffix ends with the other: the stars match everything between.
func Overlap(a, b string) bool {
	p, q := compile(a), compile(b)
	return (strings.HasPrefix(p.prefix, q.prefix) || strings.HasPrefix(q.prefix, p.prefix)) &&
		(strings.HasSuffix(p.suffix, q.suffix) || strings.HasSuffix(q.suffix, p.suffix))
}

// Fits reports whether a value fits a pattern, in which each "*" stands for any number of
// bytes.
func Fits(pattern, value string) bool {
	if !strings.Contains(pattern, Wildcard) {
		return pattern == value
	}
	p := compile(pattern)
	return p.match(value)
}
