package strict

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

const (
	// maxDepth bounds how deep a file nests, with aliases followed. Usual rules nest some
	// ten levels. Without a bound, reading an anchor that holds itself would never end.
	maxDepth = 100
	// maxAliased bounds the values that one document reads through aliases and merge keys.
	// Without it ten lines could stand for a billion rules.
	maxAliased = 100_000
)

// parseNodes returns a tree of nodes for each YAML document. It refuses documents that
// nest deeper than maxDepth levels.
func parseNodes(data []byte) (docs []*yaml.Node, err error) {
	// The library recovers from its own panics for malformed input, but not from others. A
	// bug in it must not end the service on a reload.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the parser failed: %v", v)
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithV4Defaults(),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, err
	}
	for {
		doc := new(yaml.Node)
		if err := loader.Load(doc); err != nil {
			if errors.Is(err, io.EOF) {
				return docs, nil
			}
			return nil, err
		}
		docs = append(docs, doc)
	}
}

// Root returns the value of a document, or nil if the document is empty.
func Root(doc *yaml.Node) *yaml.Node {
	n := doc
	if n.Kind == yaml.DocumentNode {
		if len(n.Content) == 0 {
			return nil
		}
		n = n.Content[0]
	}
	if IsNull(n) {
		return nil
	}
	return n
}

// Document parses a file that holds one YAML document, and returns its value. what names such a file,
// and needs what it must have; empty: nothing. Document reports what is wrong. It returns nil then, and
// for an empty document.
func Document(file string, data []byte, report *Report, what, needs string) *yaml.Node {
	docs, problem := Parse(file, data)
	switch {
	case problem != nil:
		report.Add(*problem)
	case len(docs) > 1:
		report.Addf(file, docs[1].Line, "", "%s holds one YAML document, this is a second one: remove it, or put it into another file", what)
	case len(docs) == 1 && Root(docs[0]) != nil:
		return Root(docs[0])
	case needs != "":
		report.Addf(file, 0, "", "the file is empty: it needs %s", needs)
	}
	return nil
}

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
	// Problems then repeat none of them, and name places by index.
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

// Path is a place in a document. It becomes text only for a problem.
type Path struct {
	Parent *Path
	Name   string     // of a key; empty for an item of a list
	line   int        // of the key
	Index  int        // of an item
	Item   *yaml.Node // an item, for its label; nil: Key and Value label it
	// Key and Value are those of an item that was not read from a document.
	Key, Value string
}

// A Spot is the place of a value.
type Spot struct {
	Line int
	Path *Path
}

// Problem reports one problem at a spot, unless it may follow from values that were not read.
func (d *Decoder) Problem(s Spot, format string, args ...any) {
	if d.aliased > maxAliased {
		d.Report.skipped++
		return
	}
	d.Report.Addf(d.File, s.Line, d.Render(s.Path), format, args...)
}

// Warning reports a warning at a spot.
func (d *Decoder) Warning(s Spot, format string, args ...any) {
	d.Warn.Addf(d.File, s.Line, d.Render(s.Path), format, args...)
}

// Quote quotes a value of the document for a message.
func (d *Decoder) Quote(text string) string {
	if d.HideValues {
		return Hidden
	}
	return Quote(text)
}

// Spot returns the place of n. A mapping or a list below its key has the line of the key.
func (d *Decoder) Spot(n *yaml.Node, p *Path) Spot {
	below := (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && n.Style&yaml.FlowStyle == 0
	if below && p != nil && p.line > 0 {
		return Spot{p.line, p}
	}
	return Spot{n.Line, p}
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
	if n := follow(p.Item); n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			v := follow(n.Content[i+1])
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

// located is a value that keeps its place. It reads the node before an alias is followed.
type located interface {
	ReadLocated(d *Decoder, n *yaml.Node, p *Path)
}

// nodeReader is a value that reads its node itself, with aliases followed.
type nodeReader interface {
	ReadNode(d *Decoder, n *yaml.Node, p *Path)
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

// A Field is a value with its place.
type Field[T any] struct {
	Spot
	Set   bool // the file sets it
	Null  bool // the file sets it without a value
	Bad   bool // its value has a problem, which was reported
	Value T
}

// ReadLocated reads a node and keeps its place.
func (f *Field[T]) ReadLocated(d *Decoder, n *yaml.Node, p *Path) {
	f.Spot, f.Set = d.Spot(n, p), true
	if target := follow(n); target != nil {
		f.Null = IsNull(target)
	}
	before := d.Report.Count()
	d.Decode(n, reflect.ValueOf(&f.Value).Elem(), p)
	f.Bad = d.Report.Count() > before
}

// Given reports whether a field has a value that could be read.
func Given[T any](f *Field[T]) bool { return f.Set && !f.Bad }

// OrElse returns the place of the field, or other if the file does not set it.
func (f *Field[T]) OrElse(other Spot) Spot {
	if f.Set {
		return f.Spot
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
	Spot
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
		*o = append(*o, Entry[T]{Spot: d.Spot(kv.Key, at), Key: kv.Name})
		d.pair(kv, reflect.ValueOf(&(*o)[len(*o)-1].Value).Elem(), at)
	}
}

// List is a list whose items the caller reads later, one by one.
type List struct {
	Spot
	Node *yaml.Node // nil: no list
}

// ReadNode reads a node.
func (l *List) ReadNode(d *Decoder, n *yaml.Node, p *Path) {
	if IsNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.Problem(d.Spot(n, p), "expected a list, got %s", kindOf(n))
		return
	}
	l.Spot, l.Node = d.Spot(n, p), n
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
		d.Problem(d.Spot(n, p), "nested deeper than %d levels", maxDepth)
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
		d.Lines[d.Render(p)] = d.Spot(n, p).Line
	}
}

// enter begins to read the target of an alias. If it returns true, the caller calls leave.
func (d *Decoder) enter(n, target *yaml.Node, p *Path) bool {
	if target == nil {
		d.Problem(d.Spot(n, p), "the alias has no value: remove it")
		return false
	}
	for _, e := range d.expanding {
		if e == target {
			d.Problem(d.Spot(n, p), "the anchor contains itself: write the values out")
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
		d.Problem(d.Spot(n, p), "aliases stand for more than %d values: write the values out", maxAliased)
		d.aliased = maxAliased + 1
		return false
	}
	d.aliased += values
	return true
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
			d.Problem(d.Spot(n, p), "%q is missing", k.Name)
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
		d.Warning(d.Spot(kv.Key, p), "%s", advice.Message)
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
	at := d.Spot(key, p)
	column := 0
	if d.HideValues {
		column = key.Column
	}
	d.Report.Add(Problem{File: d.File, Line: at.Line, Column: column, Path: d.Render(at.Path), Message: message})
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
		d.Problem(d.Spot(n, p), "expected a list, got %s", kindOf(n))
	}
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
		d.Problem(d.Spot(n, p), "expected a mapping, got %s", kindOf(n))
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
			d.Problem(d.Spot(key, p), "a key must be a text")
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
				d.Problem(d.Spot(c, p), "a merge key takes mappings")
				continue
			}
			all = append(all, d.mergedPairs(c, p)...)
		}
		return all
	default:
		d.Problem(d.Spot(n, p), "a merge key takes a mapping, got %s", kindOf(target))
		return nil
	}
}

// scalar reads a single value.
func (d *Decoder) scalar(n *yaml.Node, v reflect.Value, p *Path) {
	if n.Kind != yaml.ScalarNode {
		d.Problem(d.Spot(n, p), "expected %s, got %s", nameOfType(v.Type()), kindOf(n))
		return
	}
	tag := n.ShortTag()
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
	case "!!null":
		d.Problem(d.Spot(n, p), "has no value: give it one, or remove the key")
		return
	default:
		d.badTag(n, p)
		return
	}
	err := fits(n, tag, v)
	if err == nil {
		err = SetText(v, n.Value)
	}
	switch {
	case err == nil:
	case d.HideValues: // the error may quote the value
		d.Problem(d.Spot(n, p), "expected %s", nameOfType(v.Type()))
	default:
		d.Problem(d.Spot(n, p), "%s", err)
	}
}

// badTag refuses a tag, without its text. A text that begins with ! and has no quotes is a tag,
// too.
func (d *Decoder) badTag(n *yaml.Node, p *Path) {
	d.Problem(d.Spot(n, p), `a YAML tag is not supported here; quote a text that begins with "!"`)
}

// fits refuses a quoted number or truth value for a number or a truth value, as YAML does.
func fits(n *yaml.Node, tag string, v reflect.Value) error {
	if v.Type() == durationType || IsText(v.Type()) {
		return nil
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	switch v.Kind() {
	case reflect.Bool:
		if tag != "!!bool" {
			return fmt.Errorf("expected true or false, got %s", Quote(n.Value))
		}
	case reflect.Int, reflect.Uint64:
		if tag == "!!str" && quoted {
			return fmt.Errorf("expected a whole number, got the text %s: remove the quotes", Quote(n.Value))
		}
	}
	return nil
}

// IsText reports whether values of a type are read from a text by UnmarshalText.
func IsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isTextList reports whether values of a type are lists of texts. A text with commas is
// such a list, too.
func isTextList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && (t.Elem().Kind() == reflect.String || IsText(t.Elem()))
}

var durationType = reflect.TypeFor[time.Duration]()

// nameOfType names a type for a message.
func nameOfType(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a time"
	case isTextList(t):
		return "a list"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Uint64:
		return "a whole number"
	default:
		return "a text"
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

// SetText sets v from a text of a file or of the environment. Its errors may quote the text,
// so types that hold secrets have their own UnmarshalText.
func SetText(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Type() == durationType {
		t, err := ParseDuration(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(t))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("expected true or false, got %s", Quote(text))
		}
		v.SetBool(b)
	case reflect.Int:
		u, err := parseWhole(text)
		if err != nil {
			return err
		}
		if u > math.MaxInt32 {
			return fmt.Errorf("%s is too large", Quote(text))
		}
		v.SetInt(int64(u))
	case reflect.Uint64:
		u, err := parseWhole(text)
		if err != nil {
			return err
		}
		v.SetUint(u)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		for text := range strings.SplitSeq(text, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			item := reflect.New(v.Type().Elem()).Elem()
			if err := SetText(item, text); err != nil {
				return err
			}
			v.Set(reflect.Append(v, item))
		}
	default:
		return fmt.Errorf("a %s cannot be configured", v.Type())
	}
	return nil
}

// maxExact is the largest number up to which a float64 holds every whole number.
const maxExact = 1 << 53

// parseWhole reads a whole number that is not negative. It accepts the forms of YAML (1000,
// 1_000, 0x3E8, 0o1750, 1e3), except octal numbers that look like decimal ones.
func parseWhole(text string) (uint64, error) {
	t := strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	decimal := span(t, func(c byte) bool { return c >= '0' && c <= '9' }) == len(t)
	if decimal && len(t) > 1 && t[0] == '0' {
		plain := cmp.Or(strings.TrimLeft(t, "0"), "0")
		return 0, fmt.Errorf("%s begins with 0, which some YAML parsers read as octal: write %s", Quote(text), Quoteless(plain))
	}
	u, err := strconv.ParseUint(t, 0, 64)
	var f float64
	if err != nil && !errors.Is(err, strconv.ErrRange) && !strings.ContainsAny(t, "xXpP") {
		f, err = strconv.ParseFloat(t, 64)
		u = uint64(max(0, min(f, maxExact)))
	}
	switch {
	case errors.Is(err, strconv.ErrRange) && f >= 0, f > maxExact:
		return 0, fmt.Errorf("%s is too large", Quote(text))
	case err != nil && f >= 0, math.IsNaN(f):
		return 0, fmt.Errorf("expected a whole number, got %s", Quote(text))
	case f < 0:
		return 0, fmt.Errorf("%s is negative", Quote(text))
	case f != math.Trunc(f):
		return 0, fmt.Errorf("%s is not a whole number", Quote(text))
	}
	return u, nil
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
