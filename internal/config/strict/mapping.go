package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"
)

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
	if d.Gone != nil {
		if advice, gone := d.Gone(d.Render(kv.Below(p))); gone {
			d.keyProblem(kv.Key, p, Quote(kv.Name)+" is "+advice)
			return
		}
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
		name := follow(key)
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

// mergedPairs returns the pairs of the value of a merge key: a mapping or a list of mappings.
func (d *Decoder) mergedPairs(n *yaml.Node, p *Path) []Pair {
	target := follow(n)
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
			if m := follow(c); m == nil || m.Kind != yaml.MappingNode {
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
