package strict

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
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
	Item   *yaml.Node // an item, for its label
}

// A Spot is the place of a value.
type Spot struct {
	Line int
	Path *Path
}

// Problem reports one problem at a spot.
func (d *Decoder) Problem(s Spot, format string, args ...any) {
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

// Shown is quote without the quotes.
func (d *Decoder) Shown(text string) string {
	if d.HideValues {
		return Hidden
	}
	return Quoteless(text)
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
	id, key, value, secret := "", "", "", false
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
	for i, kv := range d.pairs(n, p) {
		at := d.below(kv, p)
		if d.HideValues {
			at.Name, at.Index = "", i
		}
		*o = append(*o, Entry[T]{Spot: d.Spot(kv.key, at), Key: kv.name})
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
	if _, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.scalar(n, v, p)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.Object(n, v, p)
	case reflect.Slice:
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
		d.Problem(d.Spot(n, p), "an alias that stands for nothing")
		return false
	}
	for _, e := range d.expanding {
		if e == target {
			d.Problem(d.Spot(n, p), "the anchor holds itself")
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
	if d.aliased > maxAliased {
		return false
	}
	d.aliased += values
	if d.aliased > maxAliased {
		d.Problem(d.Spot(n, p), "aliases stand for more than %d values", maxAliased)
		return false
	}
	return true
}

// Object reads a mapping into a struct.
func (d *Decoder) Object(n *yaml.Node, v reflect.Value, p *Path) {
	shape := shapeOf(v.Type())
	if IsNull(n) {
		// A section whose keys are all commented out.
		d.missing(n, shape, 0, p)
		return
	}
	var seen uint64 // by number
	for _, kv := range d.pairs(n, p) {
		f, ok := shape.fields[kv.name]
		if !ok {
			d.unknown(kv, v, shape, p)
			continue
		}
		seen |= 1 << f.number
		d.pair(kv, v.FieldByIndex(f.index), d.below(kv, p))
	}
	if n.Kind == yaml.MappingNode {
		d.missing(n, shape, seen, p)
	}
}

// below returns the path of a pair's value.
func (d *Decoder) below(kv pair, p *Path) *Path {
	return &Path{Parent: p, Name: kv.name, line: kv.key.Line}
}

func (d *Decoder) pair(kv pair, v reflect.Value, p *Path) {
	if kv.merged {
		d.inAlias++
		defer func() { d.inAlias-- }()
	}
	d.Decode(kv.value, v, p)
}

func (d *Decoder) unknown(kv pair, v reflect.Value, shape *shape, p *Path) {
	var advice KeyAdvice
	if j, ok := v.Addr().Interface().(KeyAdviser); ok {
		advice = j.AdviseKey(kv.name)
	}
	if advice.Ignored && d.Warn != nil {
		d.Warning(d.Spot(kv.key, p), "%s", advice.Message)
		return
	}
	message := advice.Message
	switch {
	case message != "":
	case d.HideValues:
		message = "unknown key" + DidYouMean(kv.name, shape.names)
		if nearest(kv.name, shape.names) == "" {
			message += ", expected one of " + strings.Join(shape.names, ", ")
		}
	default:
		message = fmt.Sprintf("unknown key %s%s", Quote(kv.name), DidYouMean(kv.name, shape.names))
	}
	d.keyProblem(kv.key, p, message)
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

func (d *Decoder) missing(n *yaml.Node, shape *shape, seen uint64, p *Path) {
	for _, name := range shape.names {
		if f := shape.fields[name]; f.required && seen&(1<<f.number) == 0 {
			d.Problem(d.Spot(n, p), "%q is missing", name)
		}
	}
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

// pair is one key of a mapping with its value.
type pair struct {
	name       string
	key, value *yaml.Node
	merged     bool // from a merge key
}

// pairs returns the pairs of a mapping, in order, with merge keys resolved. A key of the
// mapping itself wins over merged ones, and the first merged mapping wins over later ones.
func (d *Decoder) pairs(n *yaml.Node, p *Path) []pair {
	if n.Kind != yaml.MappingNode {
		d.Problem(d.Spot(n, p), "expected a mapping, got %s", kindOf(n))
		return nil
	}
	pairs := make([]pair, 0, len(n.Content)/2)
	first := firstKeys{pairs: &pairs}
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
		if other := first.find(name.Value); other != nil {
			message := "duplicate key "
			if !d.HideValues {
				message += Quote(name.Value)
			}
			d.keyProblem(key, p, fmt.Sprintf("%s, first on line %d", strings.TrimSpace(message), other.Line))
			continue
		}
		pairs = append(pairs, pair{name: name.Value, key: key, value: value})
	}
	for _, m := range merges {
		for _, kv := range d.mergedPairs(m, p) {
			if first.find(kv.name) == nil {
				kv.merged = true
				pairs = append(pairs, kv)
			}
		}
	}
	return pairs
}

// firstKeys finds the first of two equal keys. Most mappings are small: for those, comparing
// every pair is faster than a map.
type firstKeys struct {
	pairs *[]pair
	index map[string]int
}

const fewPairs = 24

func (f *firstKeys) find(name string) *yaml.Node {
	pairs := *f.pairs
	if len(pairs) <= fewPairs {
		for i := range pairs {
			if pairs[i].name == name {
				return pairs[i].key
			}
		}
		return nil
	}
	if f.index == nil {
		f.index = make(map[string]int)
	}
	for i := len(f.index); i < len(pairs); i++ {
		f.index[pairs[i].name] = i
	}
	if i, ok := f.index[name]; ok {
		return pairs[i].key
	}
	return nil
}

// mergedPairs returns the pairs of the value of a merge key: a mapping or a list of mappings.
func (d *Decoder) mergedPairs(n *yaml.Node, p *Path) []pair {
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
		return d.pairs(target, p)
	case yaml.SequenceNode:
		var all []pair
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
		d.Problem(d.Spot(n, p), "has no value: give it one, or leave the key out")
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
	if v.Type() == durationType || implementsText(v) {
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

func implementsText(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

// isTextList reports whether values of a type are lists of texts. A text with commas is
// such a list, too.
func isTextList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && (t.Elem().Kind() == reflect.String || reflect.PointerTo(t.Elem()).Implements(textType))
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

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
	digits := span(t, func(c byte) bool { return c >= '0' && c <= '9' })
	switch {
	case t == "":
		return 0, fmt.Errorf("expected a whole number, got %s", Quote(text))
	case digits == len(t) && len(t) > 1 && t[0] == '0':
		plain := strings.TrimLeft(t, "0")
		if plain == "" {
			plain = "0"
		}
		return 0, fmt.Errorf("%s begins with 0, which some YAML parsers read as octal: write %s", Quote(text), Quoteless(plain))
	case digits == len(t):
		return wholeError(text)(strconv.ParseUint(t, 10, 64))
	case len(t) > 2 && t[0] == '0' && strings.ContainsAny(t[1:2], "xXoObB"):
		return wholeError(text)(strconv.ParseUint(t, 0, 64))
	}
	f, err := strconv.ParseFloat(t, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), math.IsNaN(f), strings.ContainsAny(t, "xXpP"):
		return 0, fmt.Errorf("expected a whole number, got %s", Quote(text))
	case f < 0:
		return 0, fmt.Errorf("%s is negative", Quote(text))
	case f > maxExact:
		return 0, fmt.Errorf("%s is too large", Quote(text))
	case f != math.Trunc(f):
		return 0, fmt.Errorf("%s is not a whole number", Quote(text))
	}
	return uint64(f), nil
}

func wholeError(text string) func(uint64, error) (uint64, error) {
	return func(u uint64, err error) (uint64, error) {
		switch {
		case errors.Is(err, strconv.ErrRange):
			return 0, fmt.Errorf("%s is too large", Quote(text))
		case err != nil:
			return 0, fmt.Errorf("expected a whole number, got %s", Quote(text))
		}
		return u, nil
	}
}

// shape is the keys that a struct takes: its fields by the name in their yaml tag, which
// ",required" may follow. Fields of embedded structs count as its own.
type shape struct {
	fields map[string]shapeField
	names  []string // in the order of the struct
}

type shapeField struct {
	index    []int
	number   int // in the order of the struct, below 64
	required bool
}

var shapes sync.Map // reflect.Type → *shape

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := &shape{fields: make(map[string]shapeField)}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		s.fields[name] = shapeField{index: f.Index, number: len(s.names), required: options == "required"}
		s.names = append(s.names, name)
	}
	shapes.Store(t, s)
	return s
}

// A Key is a key that a struct takes in a mapping.
type Key struct {
	Name     string
	Field    reflect.StructField
	Required bool
}

// KeysOf returns the keys that a struct takes, in its order.
func KeysOf(t reflect.Type) []Key {
	s := shapeOf(t)
	keys := make([]Key, len(s.names))
	for i, name := range s.names {
		f := s.fields[name]
		keys[i] = Key{name, t.FieldByIndex(f.index), f.required}
	}
	return keys
}
