package config

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
	// maxDepth is how deep a file may nest, with aliases followed. Real rules
	// nest some ten levels; without a bound an anchor that holds itself would
	// never end.
	maxDepth = 100
	// maxAliased is how many values may be read through aliases and merge keys
	// in one document, so that ten lines cannot stand for a billion rules.
	maxAliased = 100_000
)

// parseNodes returns a tree of nodes for each YAML document. It refuses documents that
// nest deeper than maxDepth levels.
func parseNodes(data []byte) (docs []*yaml.Node, err error) {
	// The library reports malformed input by its own panics and passes on all
	// others; a bug in it must not take the service down on a reload.
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

// root returns the value of a document, or nil if it holds nothing.
func root(doc *yaml.Node) *yaml.Node {
	n := doc
	if n.Kind == yaml.DocumentNode {
		if len(n.Content) == 0 {
			return nil
		}
		n = n.Content[0]
	}
	if isNull(n) {
		return nil
	}
	return n
}

// decoder reads nodes into Go values and reports everything that does not fit.
// One decoder reads one document.
type decoder struct {
	file   string
	report *report
	// warn takes what is ignored on purpose. Nil: it is a problem.
	warn *report
	// hides says that values of descriptor entries with this key are or may be
	// secret and must not stand in a path. Nil: none is.
	hides func(key string) bool
	// hideValues says that any value and any unknown key of the document may be an API
	// key in the wrong place: problems repeat none of them, and name places by index.
	hideValues bool
	// lines gets the line of every scalar and list by its path. Nil: not kept.
	lines map[string]int

	depth     int
	aliased   int          // how many values were read through aliases
	inAlias   int          // above zero: reading through an alias
	expanding []*yaml.Node // alias targets being read, to find one that holds itself
}

// path is a place in a document. It is rendered only when there is a problem.
type path struct {
	parent *path
	name   string     // of a key; empty for an item of a list
	line   int        // of the key
	index  int        // of an item
	item   *yaml.Node // an item, for its label
}

// spot is where a value stands.
type spot struct {
	line int
	path *path
}

// problem reports one problem at a spot.
func (d *decoder) problem(s spot, format string, args ...any) {
	d.report.addf(d.file, s.line, d.render(s.path), format, args...)
}

// warning reports what is right but unwise at a spot.
func (d *decoder) warning(s spot, format string, args ...any) {
	d.warn.addf(d.file, s.line, d.render(s.path), format, args...)
}

// quote quotes a value of the document for a message.
func (d *decoder) quote(text string) string {
	if d.hideValues {
		return hidden
	}
	return quote(text)
}

// shown is quote without the quotes.
func (d *decoder) shown(text string) string {
	if d.hideValues {
		return hidden
	}
	return quoteless(text)
}

// spot is where n stands. A mapping or a list below its key stands where the key
// does: that is the line that names it.
func (d *decoder) spot(n *yaml.Node, p *path) spot {
	below := (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && n.Style&yaml.FlowStyle == 0
	if below && p != nil && p.line > 0 {
		return spot{p.line, p}
	}
	return spot{n.Line, p}
}

// render writes a path: keys joined by dots, items of lists in brackets, by
// what names them where something does and else by number.
func (d *decoder) render(p *path) string {
	if p == nil {
		return ""
	}
	before := d.render(p.parent)
	if p.name == "" {
		return before + "[" + d.itemLabel(p) + "]"
	}
	if before != "" {
		before += "."
	}
	return before + label(p.name)
}

func (d *decoder) itemLabel(p *path) string {
	if d.hideValues {
		return strconv.Itoa(p.index)
	}
	id, key, value, secret := "", "", "", false
	if n := follow(p.item); n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			v := follow(n.Content[i+1])
			if v == nil || v.Kind != yaml.ScalarNode || isNull(v) {
				continue
			}
			switch n.Content[i].Value {
			case "id":
				id = v.Value
			case "key":
				key = v.Value
				secret = secret || d.hides != nil && d.hides(key)
			case "value":
				value = v.Value
			}
		}
	}
	switch {
	case id != "":
		return label(id)
	case key == "":
		return strconv.Itoa(p.index)
	case value == "":
		return label(key)
	case secret:
		return label(key) + "=***"
	}
	return label(key) + "=" + label(value)
}

// follow returns what an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// located is a value that keeps where it stands. It is asked before an alias is
// followed.
type located interface {
	readLocated(d *decoder, n *yaml.Node, p *path)
}

// nodeReader is a value that reads a node by itself, with aliases followed.
type nodeReader interface {
	readNode(d *decoder, n *yaml.Node, p *path)
}

// keyJudge is a struct that has something to say about keys that it lacks.
type keyJudge interface {
	judgeKey(key string) keyAdvice
}

// keyAdvice is what to say about a key; the zero value, the usual.
type keyAdvice struct {
	message string
	ignored bool // the message is a warning
}

// field is a value with the place where it stands.
type field[T any] struct {
	spot
	set   bool // it stands in the file
	null  bool // without a value
	bad   bool // and something is wrong with it, which was reported
	value T
}

func (f *field[T]) readLocated(d *decoder, n *yaml.Node, p *path) {
	f.spot, f.set = d.spot(n, p), true
	if target := follow(n); target != nil {
		f.null = isNull(target)
	}
	before := d.report.count()
	d.decode(n, reflect.ValueOf(&f.value).Elem(), p)
	f.bad = d.report.count() > before
}

// blankable is a text that may be left blank: null is the empty text.
type blankable string

func (b *blankable) readNode(d *decoder, n *yaml.Node, p *path) {
	if isNull(n) {
		*b = ""
		return
	}
	d.decode(n, reflect.ValueOf((*string)(b)).Elem(), p)
}

// ordered is a mapping with keys of the operator's choice, in the order of the
// file.
type ordered[T any] []entry[T]

type entry[T any] struct {
	spot
	key   string
	value T
}

func (o *ordered[T]) readNode(d *decoder, n *yaml.Node, p *path) {
	if isNull(n) {
		return
	}
	for i, kv := range d.pairs(n, p) {
		at := d.below(kv, p)
		if d.hideValues {
			at.name, at.index = "", i
		}
		*o = append(*o, entry[T]{spot: d.spot(kv.key, at), key: kv.name})
		d.pair(kv, reflect.ValueOf(&(*o)[len(*o)-1].value).Elem(), at)
	}
}

// list is a list whose items are read later, one by one.
type list struct {
	spot
	node *yaml.Node // nil: no list
}

func (l *list) readNode(d *decoder, n *yaml.Node, p *path) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.problem(d.spot(n, p), "expected a list, got %s", kindOf(n))
		return
	}
	l.spot, l.node = d.spot(n, p), n
}

// decode reads n into v, which must be settable and of a type that the switch
// below knows.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, p *path) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if l, ok := v.Addr().Interface().(located); ok {
		l.readLocated(d, n, p)
		return
	}
	if d.depth >= maxDepth {
		d.problem(d.spot(n, p), "nested deeper than %d levels", maxDepth)
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
		r.readNode(d, n, p)
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
		d.object(n, v, p)
	case reflect.Slice:
		d.items(n, v, p)
	default:
		d.scalar(n, v, p)
	}
}

func (d *decoder) keepLine(n *yaml.Node, p *path) {
	if d.lines != nil {
		d.lines[d.render(p)] = d.spot(n, p).line
	}
}

// enter follows an alias; leave must be called if it returns true.
func (d *decoder) enter(n, target *yaml.Node, p *path) bool {
	if target == nil {
		d.problem(d.spot(n, p), "an alias that stands for nothing")
		return false
	}
	for _, e := range d.expanding {
		if e == target {
			d.problem(d.spot(n, p), "the anchor holds itself")
			return false
		}
	}
	d.expanding = append(d.expanding, target)
	d.inAlias++
	return true
}

func (d *decoder) leave() {
	d.expanding = d.expanding[:len(d.expanding)-1]
	d.inAlias--
}

// spend counts values that are read through aliases.
func (d *decoder) spend(n *yaml.Node, p *path, values int) bool {
	if d.aliased > maxAliased {
		return false
	}
	d.aliased += values
	if d.aliased > maxAliased {
		d.problem(d.spot(n, p), "aliases stand for more than %d values", maxAliased)
		return false
	}
	return true
}

// object reads a mapping into a struct.
func (d *decoder) object(n *yaml.Node, v reflect.Value, p *path) {
	shape := shapeOf(v.Type())
	if isNull(n) {
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

// below is the path of a pair's value.
func (d *decoder) below(kv pair, p *path) *path {
	return &path{parent: p, name: kv.name, line: kv.key.Line}
}

func (d *decoder) pair(kv pair, v reflect.Value, p *path) {
	if kv.merged {
		d.inAlias++
		defer func() { d.inAlias-- }()
	}
	d.decode(kv.value, v, p)
}

func (d *decoder) unknown(kv pair, v reflect.Value, shape *shape, p *path) {
	var advice keyAdvice
	if j, ok := v.Addr().Interface().(keyJudge); ok {
		advice = j.judgeKey(kv.name)
	}
	if advice.ignored && d.warn != nil {
		d.warning(d.spot(kv.key, p), "%s", advice.message)
		return
	}
	message := advice.message
	switch {
	case message != "":
	case d.hideValues:
		message = "unknown key" + didYouMean(kv.name, shape.names)
		if nearest(kv.name, shape.names) == "" {
			message += ", expected one of " + strings.Join(shape.names, ", ")
		}
	default:
		message = fmt.Sprintf("unknown key %s%s", quote(kv.name), didYouMean(kv.name, shape.names))
	}
	d.keyProblem(kv.key, p, message)
}

// keyProblem reports what is wrong with a key of a mapping. Where problems do not
// repeat the key, its column says which it is.
func (d *decoder) keyProblem(key *yaml.Node, p *path, message string) {
	at := d.spot(key, p)
	column := 0
	if d.hideValues {
		column = key.Column
	}
	d.report.add(Problem{File: d.file, Line: at.line, Column: column, Path: d.render(at.path), Message: message})
}

func (d *decoder) missing(n *yaml.Node, shape *shape, seen uint64, p *path) {
	for _, name := range shape.names {
		if f := shape.fields[name]; f.required && seen&(1<<f.number) == 0 {
			d.problem(d.spot(n, p), "%q is missing", name)
		}
	}
}

// items reads a list, or for a list of texts one text with commas.
func (d *decoder) items(n *yaml.Node, v reflect.Value, p *path) {
	switch {
	case isNull(n):
		v.SetZero()
	case n.Kind == yaml.SequenceNode:
		items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, c := range n.Content {
			d.decode(c, items.Index(i), &path{parent: p, index: i, item: c})
		}
		v.Set(items)
	case n.Kind == yaml.ScalarNode && v.Type() == stringsType:
		d.scalar(n, v, p)
	default:
		d.problem(d.spot(n, p), "expected a list, got %s", kindOf(n))
	}
}

// pair is one key of a mapping with its value.
type pair struct {
	name       string
	key, value *yaml.Node
	merged     bool // from a merge key
}

// pairs returns what a mapping holds, in order, with merge keys resolved: a key
// of the mapping itself wins, then the first merged mapping that has it.
func (d *decoder) pairs(n *yaml.Node, p *path) []pair {
	if n.Kind != yaml.MappingNode {
		d.problem(d.spot(n, p), "expected a mapping, got %s", kindOf(n))
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
			d.problem(d.spot(key, p), "a key must be a text")
			continue
		}
		if other := first.find(name.Value); other != nil {
			message := "duplicate key "
			if !d.hideValues {
				message += quote(name.Value)
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

// firstKeys finds the first of two equal keys. Mappings are small mostly, and
// then looking at every pair is faster than a map.
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

// mergedPairs returns what the value of a merge key holds: a mapping, or a list
// of mappings.
func (d *decoder) mergedPairs(n *yaml.Node, p *path) []pair {
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
				d.problem(d.spot(c, p), "a merge key takes mappings")
				continue
			}
			all = append(all, d.mergedPairs(c, p)...)
		}
		return all
	default:
		d.problem(d.spot(n, p), "a merge key takes a mapping, got %s", kindOf(target))
		return nil
	}
}

// scalar reads a single value.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, p *path) {
	if n.Kind != yaml.ScalarNode {
		d.problem(d.spot(n, p), "expected %s, got %s", nameOfType(v.Type()), kindOf(n))
		return
	}
	tag := n.ShortTag()
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
	case "!!null":
		d.problem(d.spot(n, p), "has no value: give it one, or leave the key out")
		return
	default:
		d.badTag(n, p)
		return
	}
	err := fits(n, tag, v)
	if err == nil {
		err = setText(v, n.Value)
	}
	switch {
	case err == nil:
	case d.hideValues: // the error may quote the value
		d.problem(d.spot(n, p), "expected %s", nameOfType(v.Type()))
	default:
		d.problem(d.spot(n, p), "%s", err)
	}
}

// badTag refuses a tag. It is not repeated: a text that begins with ! and is not
// quoted is a tag, too.
func (d *decoder) badTag(n *yaml.Node, p *path) {
	d.problem(d.spot(n, p), `a YAML tag is not supported here; quote a text that begins with "!"`)
}

// fits refuses a quoted number or truth value where the plain one is meant, as
// YAML does.
func fits(n *yaml.Node, tag string, v reflect.Value) error {
	if v.Type() == durationType || implementsText(v) {
		return nil
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	switch v.Kind() {
	case reflect.Bool:
		if tag != "!!bool" {
			return fmt.Errorf("expected true or false, got %s", quote(n.Value))
		}
	case reflect.Int, reflect.Uint64:
		if tag == "!!str" && quoted {
			return fmt.Errorf("expected a whole number, got the text %s: remove the quotes", quote(n.Value))
		}
	}
	return nil
}

func implementsText(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	stringsType  = reflect.TypeFor[[]string]()
)

// nameOfType says what is expected.
func nameOfType(t reflect.Type) string {
	switch t {
	case durationType:
		return "a time"
	case stringsType:
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

// kindOf says what was found, never its content: it may be a secret.
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

// setText sets v from text, as a file or the environment has it. Its errors may
// quote the text, so types that hold secrets have an UnmarshalText of their own.
func setText(v reflect.Value, text string) error {
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
			return fmt.Errorf("expected true or false, got %s", quote(text))
		}
		v.SetBool(b)
	case reflect.Int:
		u, err := parseWhole(text)
		if err != nil {
			return err
		}
		if u > math.MaxInt32 {
			return fmt.Errorf("%s is too large", quote(text))
		}
		v.SetInt(int64(u))
	case reflect.Uint64:
		u, err := parseWhole(text)
		if err != nil {
			return err
		}
		v.SetUint(u)
	case reflect.Slice:
		items := []string{}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		v.Set(reflect.ValueOf(items))
	default:
		return fmt.Errorf("a %s cannot be configured", v.Type())
	}
	return nil
}

// maxExact is the largest number up to which a float64 holds every whole one.
const maxExact = 1 << 53

// parseWhole reads a whole number that is not negative. It takes what YAML
// takes (1000, 1_000, 0x3E8, 0o1750, 1e3), but for octal numbers that look like
// decimal ones.
func parseWhole(text string) (uint64, error) {
	t := strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	digits := span(t, func(c byte) bool { return c >= '0' && c <= '9' })
	switch {
	case t == "":
		return 0, fmt.Errorf("expected a whole number, got %s", quote(text))
	case digits == len(t) && len(t) > 1 && t[0] == '0':
		plain := strings.TrimLeft(t, "0")
		if plain == "" {
			plain = "0"
		}
		return 0, fmt.Errorf("%s begins with 0, which some YAML parsers read as octal: write %s", quote(text), quoteless(plain))
	case digits == len(t):
		return wholeError(text)(strconv.ParseUint(t, 10, 64))
	case len(t) > 2 && t[0] == '0' && strings.ContainsAny(t[1:2], "xXoObB"):
		return wholeError(text)(strconv.ParseUint(t, 0, 64))
	}
	f, err := strconv.ParseFloat(t, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), math.IsNaN(f), strings.ContainsAny(t, "xXpP"):
		return 0, fmt.Errorf("expected a whole number, got %s", quote(text))
	case f < 0:
		return 0, fmt.Errorf("%s is negative", quote(text))
	case f > maxExact:
		return 0, fmt.Errorf("%s is too large", quote(text))
	case f != math.Trunc(f):
		return 0, fmt.Errorf("%s is not a whole number", quote(text))
	}
	return uint64(f), nil
}

func wholeError(text string) func(uint64, error) (uint64, error) {
	return func(u uint64, err error) (uint64, error) {
		switch {
		case errors.Is(err, strconv.ErrRange):
			return 0, fmt.Errorf("%s is too large", quote(text))
		case err != nil:
			return 0, fmt.Errorf("expected a whole number, got %s", quote(text))
		}
		return u, nil
	}
}

// shape is what a struct takes: its fields by the name in their yaml tag. The
// tag may go on with ",required". Fields of embedded structs count as its own.
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
