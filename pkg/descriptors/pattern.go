package descriptors

import "strings"

// Wildcard stands for any number of bytes in the value of a pattern node.
const Wildcard = "*"

// A pattern is a value with wildcards, taken apart once.
type pattern struct {
	prefix, suffix string
	middle         []string // in this order, none empty
	shortest       int      // no shorter value matches
}

// compile takes a value with at least one wildcard apart.
func compile(value string) pattern {
	parts := strings.Split(value, Wildcard)
	p := pattern{prefix: parts[0], suffix: parts[len(parts)-1]}
	p.shortest = len(p.prefix) + len(p.suffix)
	for _, part := range parts[1 : len(parts)-1] {
		// Two wildcards beside each other are one.
		if part != "" {
			p.middle = append(p.middle, part)
			p.shortest += len(part)
		}
	}
	return p
}

// match reports whether a value fits. Taking each middle part as early as it
// occurs leaves the most for those after it, so it never has to go back.
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

// Covers reports whether every value that fits the pattern narrow also fits wide,
// so that narrow never gets a request if wide comes first. Where it reports false
// they may still have values in common; see [Overlap].
func Covers(wide, narrow string) bool {
	// A star of narrow can only be matched by one of wide, since nothing else of
	// wide holds a star: read as a value, narrow stands for all of its values.
	p := compile(wide)
	return p.match(narrow)
}

// Overlap reports whether some value fits both patterns: their beginnings and
// their ends must agree as far as both have them, and between them the stars
// have room for everything else.
func Overlap(a, b string) bool {
	p, q := compile(a), compile(b)
	return (strings.HasPrefix(p.prefix, q.prefix) || strings.HasPrefix(q.prefix, p.prefix)) &&
		(strings.HasSuffix(p.suffix, q.suffix) || strings.HasSuffix(q.suffix, p.suffix))
}
