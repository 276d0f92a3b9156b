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
