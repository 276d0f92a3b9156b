package envoyfile

import (
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// A value is a value of Envoy's configuration, with aliases followed. The zero value is that of a
// key that is not in the file.
type value struct {
	strict.Position
	node    *yaml.Node // nil: the key is not in the file, or has null
	aliased bool       // it was found through an alias
}

func (v value) set() bool { return v.node != nil }

// value returns the value of a node. aliased: it is below an alias.
func (r *reader) value(n *yaml.Node, p *strict.Path, aliased bool) value {
	v := value{Position: r.d.Position(n, p), aliased: aliased || n.Kind == yaml.AliasNode}
	if v.aliased {
		if r.aliased++; r.aliased == maxAliased {
			r.d.Problem(v.Position, "aliases stand for more than %d values: write them out", maxAliased)
		}
	}
	if n = strict.Target(n); n != nil && !strict.IsNull(n) && r.aliased < maxAliased {
		v.node = n
	}
	return v
}

// list returns the items of a list. Any other value is its own only item.
func (r *reader) list(v value) (items []value) {
	switch {
	case !v.set():
		return nil
	case v.node.Kind != yaml.SequenceNode:
		return []value{v}
	}
	for i, n := range v.node.Content {
		items = append(items, r.value(n, &strict.Path{Parent: v.Path, Index: i, Item: n}, v.aliased))
	}
	return items
}

// entry is a pair of a mapping with any keys.
type entry struct {
	key string
	value
}

func (r *reader) entries(v value) (all []entry) {
	if !v.set() {
		return nil
	}
	for _, kv := range r.d.Pairs(v.node, v.Path) {
		all = append(all, entry{kv.Name, r.value(kv.Value, kv.Below(v.Path), v.aliased || kv.Merged)})
	}
	return all
}

// An object is a message of protobuf.
type object struct {
	value
	r     *reader
	pairs []strict.Pair
	names []string // the keys that were asked for
}

// object reads a message. If the value is not set, the object has no keys.
func (r *reader) object(v value) *object {
	o := &object{value: v, r: r}
	if v.set() {
		o.pairs = r.d.Pairs(v.node, v.Path)
	}
	for i := range o.pairs {
		o.pairs[i].Name = snake(o.pairs[i].Name)
	}
	return o
}

// get returns the value of a key.
func (o *object) get(name string) value {
	o.names = append(o.names, name)
	for _, kv := range o.pairs {
		if kv.Name == name {
			return o.r.value(kv.Value, kv.Below(o.Path), o.aliased || kv.Merged)
		}
	}
	return value{}
}

// need is get for a key that a message must have.
func (o *object) need(name string) value {
	v := o.get(name)
	if v.set() {
		return v
	}
	if o.isMessage() {
		o.r.d.Problem(o.Position, "%q is missing", name)
	}
	return value{}
}

// isMessage reports whether the object is in the file, and is a message.
func (o *object) isMessage() bool { return o.Line > 0 && (!o.set() || o.node.Kind == yaml.MappingNode) }

// has reports whether one of some keys is set.
func (o *object) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return o.get(name).set() })
}

// one returns the name and the value of that key which is set among some, of which a message may
// have one. It reports several, and also fewer than least. Call it after all other keys were read.
func (o *object) one(least int, names ...string) (name string, v value) {
	n := 0
	for _, key := range names {
		if one := o.get(key); one.set() {
			name, v = key, one
			n++
		}
	}
	switch {
	case n > 1:
		o.r.d.Problem(o.Position, "expected one of %s, got %d of them", strings.Join(names, ", "), n)
		return "", value{}
	case n < least && o.isMessage() && len(o.unknown()) == 0:
		o.r.d.Problem(o.Position, "expected one of %s", strings.Join(names, ", "))
	}
	return name, v
}

// unknown returns the pairs with keys that were not asked for.
func (o *object) unknown() []strict.Pair {
	return slices.DeleteFunc(slices.Clone(o.pairs), func(kv strict.Pair) bool { return slices.Contains(o.names, kv.Name) })
}

// done reports the keys that were not asked for. Only what decides a descriptor calls it.
func (o *object) done() {
	for _, kv := range o.unknown() {
		o.r.d.Problem(o.r.d.Position(kv.Key, o.Path), "unknown key %s%s", strict.Quote(kv.Name), strict.DidYouMean(kv.Name, o.names))
	}
}

const aText = "a text"

// scalar returns the text of a value. A number or a truth value may be wrapped: {value: 1}. Wrapped,
// nothing is 0.
func (r *reader) scalar(v value, expected string) (text string, ok bool) {
	n := v.node
	if n != nil && n.Kind == yaml.MappingNode && expected != aText && (len(n.Content) == 0 || lookup(n, "value") != nil) {
		if n = strict.Target(lookup(n, "value")); n == nil || strict.IsNull(n) {
			return "0", true
		}
	}
	switch {
	case n == nil:
		return "", false
	case n.Kind != yaml.ScalarNode:
		r.d.Problem(v.Position, "expected %s", expected)
		return "", false
	}
	return n.Value, true
}

func (r *reader) text(v value) string {
	text, _ := r.scalar(v, aText)
	return text
}

func (o *object) text(name string) string { return o.r.text(o.get(name)) }

// truths are the words that Envoy accepts, in any case.
var truths = map[string]bool{
	"true": true, "t": true, "yes": true, "y": true, "on": true, "1": true,
	"false": false, "f": false, "no": false, "n": false, "off": false, "0": false,
}

// flag returns a truth value.
func (o *object) flag(name string, unset bool) bool {
	v := o.get(name)
	text, ok := o.r.scalar(v, "true or false")
	is, known := truths[strings.ToLower(text)]
	if ok && !known {
		o.r.d.Problem(v.Position, "expected true or false, got %s", strict.Quote(text))
	}
	return is || !known && unset
}

// number returns a whole number from 0 to most.
func (o *object) number(name string, most, unset uint64) (number uint64) {
	v := o.get(name)
	text, ok := o.r.scalar(v, "a whole number")
	if !ok {
		return unset
	}
	if err := strict.SetText(reflect.ValueOf(&number).Elem(), text); err != nil {
		o.r.d.Problem(v.Position, "%s", err)
		return unset
	}
	if number > most {
		o.r.d.Problem(v.Position, "expected a number from 0 to %d", most)
		return unset
	}
	return number
}

// signed returns a whole number that may be negative, such as -5 or 5.0.
func (o *object) signed(name string) int64 {
	v := o.get(name)
	text, ok := o.r.scalar(v, "a whole number")
	n, err := strconv.ParseInt(text, 10, 64)
	if f, inexact := strconv.ParseFloat(text, 64); err != nil && inexact == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		n, err = int64(f), nil
	}
	if ok && err != nil {
		o.r.d.Problem(v.Position, "expected a whole number, got %s", strict.Quote(text))
	}
	return n
}

// enum returns the number of an enum's value, 0 if it is not set or wrong. Envoy reads the number, and
// the name in any case.
func (o *object) enum(name string, names ...string) int {
	v := o.get(name)
	text, ok := o.r.scalar(v, aText)
	n := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, text) })
	if number, err := strconv.Atoi(text); err == nil && number >= 0 && number < len(names) {
		n = number
	}
	if ok && text != "" && n < 0 {
		o.r.d.Problem(v.Position, "%s", strict.NotOneOf(text, names))
	}
	return max(n, 0)
}

// The types that are read.
const (
	typeManager      = "http_connection_manager.HttpConnectionManager"
	typeFilter       = "ratelimit.RateLimit"
	typePerRoute     = "ratelimit.RateLimitPerRoute"
	typeFilterConfig = "route.FilterConfig"
	typeCheckRoute   = "ext_authz.ExtAuthzPerRoute"
	typeExpression   = "expr.Descriptor"
	typeDump         = "admin.BootstrapConfigDump"
)

// typed returns a message and its type. A TypedStruct stands for the message in it. What is wrong is
// reported when the message is read.
func (r *reader) typed(v value) (message value, typ string) {
	o := quiet().object(v)
	typ = envoydump.ShortType(o.text("@type"))
	if strings.HasSuffix(typ, ".TypedStruct") {
		return o.get("value"), envoydump.ShortType(o.text("type_url"))
	}
	return v, typ
}

// quiet returns a reader whose problems are lost.
func quiet() *reader { return &reader{d: &strict.Decoder{Report: new(strict.Report)}} }

var filterURL = regexp.MustCompile(`\.ratelimit\.v\d+\.RateLimit\b`)

// mentionsFilter reports whether a message has the type of a ratelimit filter anywhere in it. It follows no alias.
func (v value) mentionsFilter() bool {
	text, err := yaml.Marshal(v.node)
	return err == nil && filterURL.Match(text)
}

// lookup returns the value of a key of a mapping, or nil.
func lookup(n *yaml.Node, key string) *yaml.Node {
	if n = strict.Target(n); n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if snake(n.Content[i].Value) == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// snake returns a key as Envoy's documentation has it: other programs write routeConfig for
// route_config.
func snake(camel string) string {
	var b strings.Builder
	for i, c := range []byte(camel) {
		if 'A' <= c && c <= 'Z' {
			if b.Len() == 0 {
				b.WriteString(camel[:i])
			}
			b.WriteByte('_')
			b.WriteByte(c + 'a' - 'A')
		} else if b.Len() > 0 {
			b.WriteByte(c)
		}
	}
	if b.Len() == 0 {
		return camel
	}
	return b.String()
}
