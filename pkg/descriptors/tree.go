package descriptors

import "fmt"

// An Entry is one key and value of a descriptor. Both may hold any bytes; they
// compare byte by byte.
type Entry struct{ Key, Value string }

// A Descriptor is an ordered list of entries.
type Descriptor []Entry

// A Node of a rule's path: a key, and a value unless AnyValue.
type Node struct {
	Key      string
	Value    string
	AnyValue bool // the key alone: Value is empty and not compared
}

// String returns key or key=value.
func (n Node) String() string {
	if n.AnyValue {
		return n.Key
	}
	return n.Key + "=" + n.Value
}

// Tree holds the rules of one domain. The zero value is empty and ready. Add
// must not run beside anything else; Match may run concurrently with itself.
type Tree[R any] struct{ root level[R] }

// level holds the nodes of one depth below one parent. Lookups are by hash, so
// their cost does not depend on the number of siblings.
type level[R any] struct {
	values map[Entry]*node[R]
	keys   map[string]*node[R]
}

type node[R any] struct {
	children level[R]
	rule     R
	hasRule  bool
}

// Add puts rule where path ends, creating the nodes on the way. It refuses an
// empty path, a node without a key, and a second rule at the same place.
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
		n = at.child(p)
		at = &n.children
	}
	if n.hasRule {
		return fmt.Errorf("a second rule for the same descriptor %v", path)
	}
	n.rule, n.hasRule = rule, true
	return nil
}

// child returns the node for p below l and makes it if there is none.
func (l *level[R]) child(p Node) *node[R] {
	if p.AnyValue {
		n := l.keys[p.Key]
		if n == nil {
			n = new(node[R])
			if l.keys == nil {
				l.keys = make(map[string]*node[R])
			}
			l.keys[p.Key] = n
		}
		return n
	}
	e := Entry{p.Key, p.Value}
	n := l.values[e]
	if n == nil {
		n = new(node[R])
		if l.values == nil {
			l.values = make(map[Entry]*node[R])
		}
		l.values[e] = n
	}
	return n
}

// Match returns the rule that d ends on. A descriptor without entries matches
// none. It does not allocate.
func (t *Tree[R]) Match(d Descriptor) (rule R, ok bool) {
	at := &t.root
	var n *node[R]
	for i := range d {
		if n = at.values[d[i]]; n == nil {
			if n = at.keys[d[i].Key]; n == nil {
				return rule, false
			}
		}
		at = &n.children
	}
	if n == nil || !n.hasRule {
		return rule, false
	}
	return n.rule, true
}
