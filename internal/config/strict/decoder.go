package strict

import (
	"reflect"

	"go.yaml.in/yaml/v4"
)

const (
	// maxDepth bounds how deep a file nests, with aliases followed. Usual rules nest some
	// ten levels. Without a bound, reading an anchor that holds itself would never end.
	maxDepth = 100
	// maxAliased bounds the values that one document reads through aliases and merge keys.
	// Without it ten lines could stand for a billion rules.
	maxAliased = 100_000
)

// A Decoder reads nodes into Go values and reports everything that does not fit. One decoder
// reads one document.
type Decoder struct {
	File   string
	Report *Report
	// Warn takes warnings about keys that are ignored on purpose. Nil: they are problems.
	Warn *Report
	// Hides reports whether values of items with this key may be secret, so that paths must
	// not show them. Nil: no value is secret.
	Hides func(key string) bool
	// HideValues says that any value and any unknown key of the document may be secret.
	// Problems then repeat none of them, and their paths have numbers.
	HideValues bool
	// Gone returns what to do instead of a key of an earlier version, by its path. Nil: there is none.
	Gone func(path string) (advice string, ok bool)
	// Lines gets the line of every scalar and list by its path. Nil: no lines are kept.
	Lines map[string]int

	depth     int
	aliased   int          // the number of values read through aliases
	inAlias   int          // above zero: the decoder reads through an alias
	expanding []*yaml.Node // the alias targets in use, to find one that holds itself
}

// Problem reports one problem at a position, unless it may follow from values that were not read.
func (d *Decoder) Problem(s Position, format string, args ...any) {
	if d.aliased > maxAliased {
		d.Report.skipped++
		return
	}
	d.Report.Addf(d.File, s.Line, d.Render(s.Path), format, args...)
}

// Warning reports a warning at a position.
func (d *Decoder) Warning(s Position, format string, args ...any) {
	d.Warn.Addf(d.File, s.Line, d.Render(s.Path), format, args...)
}

// Quote quotes a value of the document for a message.
func (d *Decoder) Quote(text string) string {
	if d.HideValues {
		return Hidden
	}
	return Quote(text)
}

// follow returns the target of an alias.
func follow(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

// IsNull reports whether a node has no value.
func IsNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// Node is a part of a document, for packages that only hand it on.
type Node = yaml.Node

// located is a value that keeps its position. It reads the node before an alias is followed.
type located interface {
	ReadLocated(d *Decoder, n *yaml.Node, p *Path)
}

// nodeReader is a value that reads its node itself, with aliases followed.
type nodeReader interface {
	ReadNode(d *Decoder, n *yaml.Node, p *Path)
}

// Decode reads n into v. v must be settable, and of a type in the switch below.
func (d *Decoder) Decode(n *yaml.Node, v reflect.Value, p *Path) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if l, ok := v.Addr().Interface().(located); ok {
		l.ReadLocated(d, n, p)
		return
	}
	if d.depth >= maxDepth {
		d.Problem(d.Position(n, p), "nested deeper than %d levels", maxDepth)
		return
	}
	d.depth++
	defer func() { d.depth-- }()
	if n.Kind == yaml.AliasNode {
		target := follow(n)
		if !d.enter(n, target, p) {
			return
		}
		defer d.leave()
		n = target
	}
	if d.inAlias > 0 && !d.spend(n, p, 1) {
		return
	}
	if r, ok := v.Addr().Interface().(nodeReader); ok {
		r.ReadNode(d, n, p)
		return
	}
	if n.Kind == yaml.ScalarNode || v.Kind() == reflect.Slice {
		d.keepLine(n, p)
	}
	switch {
	case IsText(v.Type()):
		d.scalar(n, v, p)
	case v.Kind() == reflect.Struct:
		d.Object(n, v, p)
	case v.Kind() == reflect.Slice:
		d.items(n, v, p)
	default:
		d.scalar(n, v, p)
	}
}

func (d *Decoder) keepLine(n *yaml.Node, p *Path) {
	if d.Lines != nil {
		d.Lines[d.Render(p)] = d.Position(n, p).Line
	}
}

// enter begins to read the target of an alias. If it returns true, the caller calls leave.
func (d *Decoder) enter(n, target *yaml.Node, p *Path) bool {
	if target == nil {
		d.Problem(d.Position(n, p), "the alias has no value: remove it")
		return false
	}
	for _, e := range d.expanding {
		if e == target {
			d.Problem(d.Position(n, p), "the anchor contains itself: write the values out")
			return false
		}
	}
	d.expanding = append(d.expanding, target)
	d.inAlias++
	return true
}

func (d *Decoder) leave() {
	d.expanding = d.expanding[:len(d.expanding)-1]
	d.inAlias--
}

// spend counts values that are read through aliases.
func (d *Decoder) spend(n *yaml.Node, p *Path, values int) bool {
	if d.aliased+values > maxAliased {
		d.Problem(d.Position(n, p), "aliases stand for more than %d values: write the values out", maxAliased)
		d.aliased = maxAliased + 1
		return false
	}
	d.aliased += values
	return true
}

// items reads a list. A list of texts may also be one text with commas.
func (d *Decoder) items(n *yaml.Node, v reflect.Value, p *Path) {
	switch {
	case IsNull(n):
		v.SetZero()
	case n.Kind == yaml.SequenceNode:
		items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, c := range n.Content {
			d.Decode(c, items.Index(i), &Path{Parent: p, Index: i, Item: c})
		}
		v.Set(items)
	case n.Kind == yaml.ScalarNode && isTextList(v.Type()):
		d.scalar(n, v, p)
	default:
		d.Problem(d.Position(n, p), "expected a list, got %s", kindOf(n))
	}
}

// kindOf names the kind of a node for a message, without its content, which may be secret.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "nothing"
		case "!!int", "!!float":
			return "a number"
		case "!!bool":
			return "true or false"
		}
		return "a text"
	default:
		return "something else"
	}
}
