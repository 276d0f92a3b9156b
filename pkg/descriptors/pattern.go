package descriptors

import "strings"

// Wildcard stands for any number of bytes in the value of a pattern node.
const Wildcard = "*"

// A Pattern is a value with wildcards, split into its parts. The zero value fits every value. A Pattern
// may be used concurrently.
type Pattern struct {
	text           string
	prefix, suffix string
	middle         []string // the other parts in order, without empty ones
	shortest       int      // the length of the shortest value that matches
}

// NewPattern returns the pattern of a text, which has at least one wildcard.
func NewPattern(text string) Pattern {
	parts := strings.Split(text, Wildcard)
	p := Pattern{text: text, prefix: parts[0], suffix: parts[len(parts)-1]}
	p.shortest = len(p.prefix) + len(p.suffix)
	for _, part := range parts[1:max(1, len(parts)-1)] {
		// Adjacent wildcards mean the same as one.
		if part != "" {
			p.middle = append(p.middle, part)
			p.shortest += len(part)
		}
	}
	return p
}

// ends reports whether the beginning and the end of a value fit, and whether it is long enough.
func (p *Pattern) ends(value string) bool {
	return len(value) >= p.shortest && strings.HasPrefix(value, p.prefix) && strings.HasSuffix(value, p.suffix)
}

// between reports whether the rest of a value fits whose ends do. It takes the first occurrence of
// each middle part, which leaves the most for the parts after it. So it never has to go back, and
// reads the value once.
func (p *Pattern) between(value string) bool {
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

// String returns the text of the pattern.
func (p *Pattern) String() string { return p.text }

// Covers reports whether every value that fits narrow also fits p. If it does and p comes first,
// narrow never gets a request. If Covers reports false, some values may still fit both; see Overlaps.
func (p *Pattern) Covers(narrow string) bool {
	// Match narrow as if it were a value. Only a star of p matches a star of narrow, so
	// a match holds for every value of narrow.
	return p.ends(narrow) && p.between(narrow)
}

// Overlaps reports whether some value fits both patterns. This is so if one prefix begins
// with the other, and one suffix ends with the other: the stars match everything between.
func (p *Pattern) Overlaps(q *Pattern) bool {
	return (strings.HasPrefix(p.prefix, q.prefix) || strings.HasPrefix(q.prefix, p.prefix)) &&
		(strings.HasSuffix(p.suffix, q.suffix) || strings.HasSuffix(q.suffix, p.suffix))
}

// Searches reports whether the pattern has text between two wildcards, so that Match reads a whole
// value whose ends fit.
func (p *Pattern) Searches() bool { return len(p.middle) > 0 }

// Fits reports whether a value fits a pattern, in which each "*" stands for any number of
// bytes.
func Fits(pattern, value string) bool {
	if !strings.Contains(pattern, Wildcard) {
		return pattern == value
	}
	p := NewPattern(pattern)
	return p.Covers(value)
}

// Intersect returns patterns that together fit the values which fit both a and b, without duplicates.
// A returned text without a "*" is a single value. complete is false if there are more than most.
func Intersect(a, b string, most int) (all []string, complete bool) {
	m := intersecter{a: squeeze(a), b: squeeze(b), most: most, seen: make(map[intersectAt]bool), found: make(map[string]bool)}
	m.step(0, 0, nil)
	return m.all, !m.over
}

// squeeze joins adjacent wildcards, which mean the same as one.
func squeeze(pattern string) string {
	for strings.Contains(pattern, Wildcard+Wildcard) {
		pattern = strings.ReplaceAll(pattern, Wildcard+Wildcard, Wildcard)
	}
	return pattern
}

// An intersecter finds the values that fit two patterns. It reads both from their beginnings.
type intersecter struct {
	a, b  string
	most  int
	work  int
	over  bool
	all   []string
	found map[string]bool
	seen  map[intersectAt]bool // positions from which nothing was found
}

// intersectAt is a position in both patterns.
type intersectAt struct{ a, b int }

// intersectWork bounds the steps of an intersecter.
const intersectWork = 1 << 16

// step adds what fits the rest of both patterns to text. It reports whether anything does.
func (m *intersecter) step(i, j int, text []byte) (fits bool) {
	at := intersectAt{i, j}
	if m.seen[at] {
		return false
	}
	if m.work++; m.work > intersectWork || len(m.all) >= m.most {
		m.over = true
		return true
	}
	switch starA, starB := i < len(m.a) && m.a[i] == '*', j < len(m.b) && m.b[j] == '*'; {
	case i == len(m.a) && j == len(m.b):
		fits = true
		if whole := squeeze(string(text)); !m.found[whole] {
			m.found[whole] = true
			m.all = append(m.all, whole)
		}
	case starA && starB:
		text = append(text, '*')
		fits = m.step(i+1, j, text)
		fits = m.step(i, j+1, text) || fits
	case starA:
		// The wildcard takes the next byte of b, or ends.
		fits = j < len(m.b) && m.step(i, j+1, append(text, m.b[j]))
		fits = m.step(i+1, j, text) || fits
	case starB:
		fits = i < len(m.a) && m.step(i+1, j, append(text, m.a[i]))
		fits = m.step(i, j+1, text) || fits
	case i < len(m.a) && j < len(m.b) && m.a[i] == m.b[j]:
		fits = m.step(i+1, j+1, append(text, m.a[i]))
	}
	if !fits {
		m.seen[at] = true
	}
	return fits
}
