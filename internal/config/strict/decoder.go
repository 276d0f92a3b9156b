package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

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

// Target returns what an alias stands for, and any other node as it is. It returns nil for
// aliases that lead to each other.
func Target(n *yaml.Node) *yaml.Node {
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

// IsMapping reports whether a node is a mapping.
func IsMapping(n *yaml.Node) bool { return n.Kind == yaml.MappingNode }

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
		target := Target(n)
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

// A Key is a key that a struct takes in a mapping.
type Key struct {
	Name     string
	Field    reflect.StructField // its Index counts from the outermost struct
	Required bool
}

var keys sync.Map // reflect.Type → []Key

// KeysOf returns the keys that a struct takes, in its order: the names in yaml tags, which
// ",required" may follow. The keys of embedded structs are among them.
func KeysOf(t reflect.Type) []Key {
	if known, ok := keys.Load(t); ok {
		return known.([]Key)
	}
	var all []Key
	for _, f := range reflect.VisibleFields(t) {
		if name, options, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && name != "-" {
			all = append(all, Key{name, f, options == "required"})
		}
	}
	keys.Store(t, all)
	return all
}

// A KeyAdviser is a struct with advice about keys that it does not have.
type KeyAdviser interface {
	AdviseKey(key string) KeyAdvice
}

// KeyAdvice is the advice about an unknown key. The zero value stands for the usual message.
type KeyAdvice struct {
	Message string
	Ignored bool // the message is a warning
}

// Object reads a mapping into a struct.
func (d *Decoder) Object(n *yaml.Node, v reflect.Value, p *Path) {
	keys := KeysOf(v.Type())
	var pairs []Pair
	if !IsNull(n) { // null: a section whose keys are all commented out
		pairs = d.Pairs(n, p)
	}
	var seen uint64 // a bit for each key
	for _, kv := range pairs {
		i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == kv.Name })
		if i < 0 {
			d.unknown(kv, v, keys, p)
			continue
		}
		seen |= 1 << i
		d.pair(kv, v.FieldByIndex(keys[i].Field.Index), kv.Below(p))
	}
	for i, k := range keys {
		if k.Required && seen&(1<<i) == 0 && (n.Kind == yaml.MappingNode || IsNull(n)) {
			d.Problem(d.Position(n, p), "%q is missing", k.Name)
		}
	}
}

func (d *Decoder) pair(kv Pair, v reflect.Value, p *Path) {
	if kv.Merged {
		d.inAlias++
		defer func() { d.inAlias-- }()
	}
	d.Decode(kv.Value, v, p)
}

func (d *Decoder) unknown(kv Pair, v reflect.Value, keys []Key, p *Path) {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	var advice KeyAdvice
	if j, ok := v.Addr().Interface().(KeyAdviser); ok {
		advice = j.AdviseKey(kv.Name)
	}
	if advice.Ignored && d.Warn != nil {
		d.Warning(d.Position(kv.Key, p), "%s", advice.Message)
		return
	}
	message := advice.Message
	switch {
	case message != "":
	case d.HideValues:
		message = "unknown key" + DidYouMean(kv.Name, names)
		if nearest(kv.Name, names) == "" {
			message += ", expected one of " + strings.Join(names, ", ")
		}
	default:
		message = fmt.Sprintf("unknown key %s%s", Quote(kv.Name), DidYouMean(kv.Name, names))
	}
	d.keyProblem(kv.Key, p, message)
}

// keyProblem reports a problem with a key of a mapping. If problems must not repeat the key,
// its column names it.
func (d *Decoder) keyProblem(key *yaml.Node, p *Path, message string) {
	at := d.Position(key, p)
	column := 0
	if d.HideValues {
		column = key.Column
	}
	d.Report.Add(Problem{File: d.File, Line: at.Line, Column: column, Path: d.Render(at.Path), Message: message})
}

// A Pair is one key of a mapping with its value.
type Pair struct {
	Name       string
	Key, Value *yaml.Node
	Merged     bool // from a merge key
}

// Below returns the path of the value in a mapping at p.
func (kv *Pair) Below(p *Path) *Path { return &Path{Parent: p, Name: kv.Name, line: kv.Key.Line} }

// Pairs returns the pairs of a mapping, in order, with merge keys resolved. A key of the
// mapping itself wins over merged ones, and the first merged mapping wins over later ones. Pairs
// reports what is no mapping, and duplicate keys.
func (d *Decoder) Pairs(n *yaml.Node, p *Path) []Pair {
	if n.Kind != yaml.MappingNode {
		d.Problem(d.Position(n, p), "expected a mapping, got %s", kindOf(n))
		return nil
	}
	pairs := make([]Pair, 0, len(n.Content)/2)
	first := make(map[string]*yaml.Node, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		name := Target(key)
		if name == nil || name.Kind != yaml.ScalarNode {
			d.Problem(d.Position(key, p), "a key must be a text")
			continue
		}
		if other := first[name.Value]; other != nil {
			message := "duplicate key "
			if !d.HideValues {
				message += Quote(name.Value)
			}
			d.keyProblem(key, p, fmt.Sprintf("%s, first on line %d", strings.TrimSpace(message), other.Line))
			continue
		}
		first[name.Value] = key
		pairs = append(pairs, Pair{Name: name.Value, Key: key, Value: value})
	}
	for _, m := range merges {
		for _, kv := range d.mergedPairs(m, p) {
			if first[kv.Name] == nil {
				first[kv.Name] = kv.Key
				kv.Merged = true
				pairs = append(pairs, kv)
			}
		}
	}
	return pairs
}

func (d *Decoder) mergedPairs(n *yaml.Node, p *Path) []Pair {
	target := Target(n)
	if !d.enter(n, target, p) {
		return nil
	}
	defer d.leave()
	switch target.Kind {
	case yaml.MappingNode:
		if !d.spend(n, p, 1+len(target.Content)/2) {
			return nil
		}
		return d.Pairs(target, p)
	case yaml.SequenceNode:
		var all []Pair
		for _, c := range target.Content {
			if m := Target(c); m == nil || m.Kind != yaml.MappingNode {
				d.Problem(d.Position(c, p), "a merge key takes mappings")
				continue
			}
			all = append(all, d.mergedPairs(c, p)...)
		}
		return all
	default:
		d.Problem(d.Position(n, p), "a merge key takes a mapping, got %s", kindOf(target))
		return nil
	}
}
