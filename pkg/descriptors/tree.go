package descriptors

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// An Entry is one key and value of a descriptor. Both may contain any bytes, and are
// compared byte by byte.
type Entry struct{ Key, Value string }

// Trim returns a value without the spaces and tabs at its ends. They do not belong to the
// value of a header field (RFC 9110, section 5.5). Envoy passes them on, but applications
// may not see them. Trim removes no other white space.
func Trim(value string) string {
	for value != "" && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for n := len(value) - 1; n >= 0 && (value[n] == ' ' || value[n] == '\t'); n-- {
		value = value[:n]
	}
	return value
}

// A Descriptor is an ordered list of entries.
type Descriptor []Entry

// A Node of a rule's path: a key with one value, a key with a pattern of values,
// or a key alone.
type Node struct {
	Key   string
	Value string
	// AnyValue means the key alone. Value is empty then.
	AnyValue bool
	// Pattern means that each "*" in Value stands for zero or more bytes. Value has at
	// least one "*" then.
	Pattern bool
}

// String returns key or key=value on one line. If the text has characters that cannot be
// printed, it is quoted.
func (n Node) String() string {
	text := n.Key
	if !n.AnyValue {
		text += "=" + n.Value
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// Open reports whether the node takes more than one value. Each value has its own log then.
func (n Node) Open() bool { return n.AnyValue || n.Pattern }

// Tree holds the rules of one domain. The zero value is empty and ready. Several Match may
// run concurrently, but not with Add.
type Tree[R any] struct{ root level[R] }

// level holds the child nodes of one node. It finds keys and values by hash, so the time
// does not depend on their number. It tries a few patterns of a key one after the other, and of many
// those that have one end in common with the value.
type level[R any] struct {
	keys   []*keyNode[R]
	byName map[string]*keyNode[R] // the keys; nil if they are few: comparing takes less time than a hash
}

// fewKeys is the most keys of a level without level.byName, and fewPatterns the most patterns of a key without an index.
const fewKeys, fewPatterns = 4, 16

// keyNode holds the child nodes with one key.
type keyNode[R any] struct {
	key      string
	values   map[string]*node[R]
	patterns []patternNode[R]    // in the order in which they were added
	known    map[string]*node[R] // the nodes of patterns by their text
	index    *index              // of the patterns; nil if they are few
	alone    *node[R]            // the key alone; nil if there is none
}

type patternNode[R any] struct {
	Pattern
	*node[R]
}

type node[R any] struct {
	children level[R]
	rule     R
	hasRule  bool
}

// Add adds rule at the end of path and creates missing nodes. It refuses an empty path, a
// node without a key, a pattern without a wildcard, and a second rule for the same path.
func (t *Tree[R]) Add(path []Node, rule R) error {
	if len(path) == 0 {
		return fmt.Errorf("a rule needs at least one descriptor key")
	}
	at := &t.root
	var n *node[R]
	for _, p := range path {
		if p.Key == "" {
			return fmt.Errorf("a descriptor needs a key")
		}
		if p.Pattern && (p.AnyValue || !strings.Contains(p.Value, Wildcard)) {
			return fmt.Errorf("the pattern %v has no wildcard", p)
		}
		n = at.child(p)
		at = &n.children
	}
	if n.hasRule {
		return fmt.Errorf("a second rule for the same descriptor %v", path)
	}
	n.rule, n.hasRule = rule, true
	return nil
}

// child returns the node for p in l. It creates a missing node.
func (l *level[R]) child(p Node) *node[R] {
	k := l.key(p.Key)
	if k == nil {
		k = &keyNode[R]{key: p.Key}
		l.keys = append(l.keys, k)
		switch {
		case l.byName != nil:
			l.byName[k.key] = k
		case len(l.keys) > fewKeys:
			l.byName = make(map[string]*keyNode[R])
			for _, k := range l.keys {
				l.byName[k.key] = k
			}
		}
	}
	if p.AnyValue {
		if k.alone == nil {
			k.alone = new(node[R])
		}
		return k.alone
	}
	among := &k.values
	if p.Pattern {
		among = &k.known
	}
	n := (*among)[p.Value]
	if n == nil {
		n = new(node[R])
		if *among == nil {
			*among = make(map[string]*node[R])
		}
		(*among)[p.Value] = n
		if p.Pattern {
			k.patterns = append(k.patterns, patternNode[R]{NewPattern(p.Value), n})
			k.reindex()
		}
	}
	return n
}

// key returns the child nodes with a key, or nil.
func (l *level[R]) key(name string) *keyNode[R] {
	if l.byName != nil {
		return l.byName[name]
	}
	for _, k := range l.keys {
		if k.key == name {
			return k
		}
	}
	return nil
}

// find returns the node that an entry takes, or nil. It takes the cost of trying patterns from steps.
// If that is negative afterwards, it has not tried all, and the result means nothing.
func (l *level[R]) find(e *Entry, steps *int) *node[R] {
	k := l.key(e.Key)
	if k == nil {
		return nil
	}
	if len(k.values) > 0 {
		if n := k.values[e.Value]; n != nil {
			return n
		}
	}
	at := 0
	if k.index != nil && k.index.steps() < len(k.patterns) {
		at = k.search(e.Value, steps)
	} else {
		for at < len(k.patterns) && *steps >= 0 && !k.patterns[at].try(e.Value, steps) {
			at++
		}
	}
	switch {
	case *steps < 0:
		return nil
	case at < len(k.patterns):
		return k.patterns[at].node
	}
	return k.alone
}

// try reports whether a value fits. It takes its cost from steps, and reports false if that is
// negative afterwards.
func (p *Pattern) try(value string, steps *int) bool {
	fits := p.ends(value)
	if *steps--; fits && len(p.middle) > 0 {
		*steps -= len(value)
		return *steps >= 0 && p.between(value)
	}
	return fits && *steps >= 0
}

// Match returns the rule that d ends on. A descriptor without entries matches no rule.
// Match does not allocate.
func (t *Tree[R]) Match(d Descriptor) (rule R, ok bool) {
	rule, ok, _ = t.MatchWithin(d, math.MaxInt)
	return rule, ok
}

// MatchWithin is Match with a bound on its work. Each pattern that is tried takes a step. A pattern
// with text between two wildcards takes a step for each byte of the value too, if its beginning and
// its end fit. A step takes about a nanosecond. left is what remains of steps. If it is negative, the
// bound was reached, and nothing is known of the rule.
func (t *Tree[R]) MatchWithin(d Descriptor, steps int) (rule R, ok bool, left int) {
	at := &t.root
	var n *node[R]
	for i := range d {
		if n = at.find(&d[i], &steps); n == nil {
			return rule, false, steps
		}
		at = &n.children
	}
	if n == nil || !n.hasRule {
		return rule, false, steps
	}
	return n.rule, true, steps
}

// A Step describes how Match handles one entry of a descriptor.
type Step struct {
	Entry Entry
	// Taken is the node that the entry took. Its key is empty if no node fits.
	Taken Node
	// Tried are the patterns that were tried first and did not fit.
	Tried []Node
}

// Trace returns the steps of Match, one for each entry up to the first that no node fits.
// It allocates.
func (t *Tree[R]) Trace(d Descriptor) (steps []Step) {
	at := t.Top()
	for _, e := range d {
		step := Step{Entry: e}
		for _, n := range at.Below()[e.Key] {
			if n.AnyValue || n.Pattern && Fits(n.Value, e.Value) || !n.Open() && n.Value == e.Value {
				step.Taken = n
				break
			}
			if n.Pattern {
				step.Tried = append(step.Tried, n)
			}
		}
		steps = append(steps, step)
		if at = at.Next(e); at.below == nil {
			break
		}
	}
	return steps
}

// A Position is a node of a [Tree], or its top. Programs that compare trees walk them by positions.
// The zero value is no position: no entry leads on from it. Positions of one tree are equal if they
// are the same node.
type Position[R any] struct {
	below *level[R]
	node  *node[R] // nil: the top
}

// Top returns the position where Match begins.
func (t *Tree[R]) Top() Position[R] { return Position[R]{below: &t.root} }

// Next returns the position that Match goes to with an entry. It returns the zero value if no node
// takes the entry.
func (p Position[R]) Next(e Entry) Position[R] {
	if p.below == nil {
		return p
	}
	steps := math.MaxInt
	n := p.below.find(&e, &steps)
	if n == nil {
		return Position[R]{}
	}
	return Position[R]{&n.children, n}
}

// Rule returns the rule that a descriptor gets if it ends here.
func (p Position[R]) Rule() (rule R, ok bool) {
	if p.node == nil {
		return rule, false
	}
	return p.node.rule, p.node.hasRule
}

// Below returns the nodes below the position, by their key. Values are in no order, and then
// patterns follow in the order in which Match tries them. It allocates.
func (p Position[R]) Below() map[string][]Node {
	if p.below == nil {
		return nil
	}
	all := make(map[string][]Node, len(p.below.keys))
	for _, k := range p.below.keys {
		nodes := make([]Node, 0, len(k.values)+len(k.patterns)+1)
		for value := range k.values {
			nodes = append(nodes, Node{Key: k.key, Value: value})
		}
		for i := range k.patterns {
			nodes = append(nodes, Node{Key: k.key, Value: k.patterns[i].text, Pattern: true})
		}
		if k.alone != nil {
			nodes = append(nodes, Node{Key: k.key, AnyValue: true})
		}
		all[k.key] = nodes
	}
	return all
}
