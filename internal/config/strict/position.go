package strict

import (
	"reflect"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// A Path leads to a value of a document. It becomes text only for a problem.
type Path struct {
	Parent *Path
	Name   string     // of a key; empty for an item of a list
	line   int        // of the key
	Index  int        // of an item
	Item   *yaml.Node // an item, for its label; nil: Key and Value label it
	// Key and Value are those of an item that was not read from a document.
	Key, Value string
}

// A Position is the line and the path of a value.
type Position struct {
	Line int
	Path *Path
}

// Position returns the position of n. A mapping or a list below its key has the line of the key.
func (d *Decoder) Position(n *yaml.Node, p *Path) Position {
	below := (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && n.Style&yaml.FlowStyle == 0
	if below && p != nil && p.line > 0 {
		return Position{p.line, p}
	}
	return Position{n.Line, p}
}

// Render returns a path as text: keys joined by dots, and items of lists in brackets. It
// names an item by its id, or by its key and value, or by its number.
func (d *Decoder) Render(p *Path) string {
	if p == nil {
		return ""
	}
	before := d.Render(p.Parent)
	if p.Name == "" {
		return before + "[" + d.itemLabel(p) + "]"
	}
	if before != "" {
		before += "."
	}
	return before + Label(p.Name)
}

func (d *Decoder) itemLabel(p *Path) string {
	if d.HideValues {
		return strconv.Itoa(p.Index)
	}
	id, key, value := "", p.Key, p.Value
	secret := d.Hides != nil && d.Hides(key)
	if n := Target(p.Item); n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			v := Target(n.Content[i+1])
			if v == nil || v.Kind != yaml.ScalarNode || IsNull(v) {
				continue
			}
			switch n.Content[i].Value {
			case "id":
				id = v.Value
			case "key":
				key = v.Value
				secret = secret || d.Hides != nil && d.Hides(key)
			case "value":
				value = v.Value
			}
		}
	}
	switch {
	case id != "":
		return Label(id)
	case key == "":
		return strconv.Itoa(p.Index)
	case value == "":
		return Label(key)
	case secret:
		return Label(key) + "=***"
	}
	return Label(key) + "=" + Label(value)
}

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
	if target := Target(n); target != nil {
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
