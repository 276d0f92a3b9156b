package strict

import (
	"reflect"

	"go.yaml.in/yaml/v4"
)

// A Field is a value with its position. [Decoder] fills it from YAML, and [FieldOf] from anything else.
type Field[T any] struct {
	Position
	Set   bool // the file sets it
	Null  bool // the file sets it without a value
	Bad   bool // its value has a problem, which was reported
	Value T
}

// ReadLocated reads a node and keeps its position.
func (f *Field[T]) ReadLocated(d *Decoder, n *yaml.Node, p *Path) {
	f.Position, f.Set = d.Position(n, p), true
	if target := follow(n); target != nil {
		f.Null = IsNull(target)
	}
	before := d.Report.Count()
	d.Decode(n, reflect.ValueOf(&f.Value).Elem(), p)
	f.Bad = d.Report.Count() > before
}

// FieldOf returns a field with a value that was not read from a document.
func FieldOf[T any](at Position, value T) Field[T] {
	return Field[T]{Position: at, Set: true, Value: value}
}

// Given reports whether a field has a value that could be read.
func Given[T any](f *Field[T]) bool { return f.Set && !f.Bad }

// OrElse returns the position of the field, or other if the file does not set it.
func (f *Field[T]) OrElse(other Position) Position {
	if f.Set {
		return f.Position
	}
	return other
}

// Blankable is a text that may be blank: null is the empty text.
type Blankable string

// ReadNode reads a node.
func (b *Blankable) ReadNode(d *Decoder, n *yaml.Node, p *Path) {
	if IsNull(n) {
		*b = ""
		return
	}
	d.Decode(n, reflect.ValueOf((*string)(b)).Elem(), p)
}

// Ordered is a mapping with any keys, in the order of the file.
type Ordered[T any] []Entry[T]

// An Entry is one pair of an [Ordered].
type Entry[T any] struct {
	Position
	Key   string
	Value T
}

// ReadNode reads a node.
func (o *Ordered[T]) ReadNode(d *Decoder, n *yaml.Node, p *Path) {
	if IsNull(n) {
		return
	}
	for i, kv := range d.Pairs(n, p) {
		at := kv.Below(p)
		if d.HideValues {
			at.Name, at.Index = "", i
		}
		*o = append(*o, Entry[T]{Position: d.Position(kv.Key, at), Key: kv.Name})
		d.pair(kv, reflect.ValueOf(&(*o)[len(*o)-1].Value).Elem(), at)
	}
}

// List is a list whose items the caller reads later, one by one.
type List struct {
	Position
	Node *yaml.Node // nil: no list
}

// ReadNode reads a node.
func (l *List) ReadNode(d *Decoder, n *yaml.Node, p *Path) {
	if IsNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.Problem(d.Position(n, p), "expected a list, got %s", kindOf(n))
		return
	}
	l.Position, l.Node = d.Position(n, p), n
}
