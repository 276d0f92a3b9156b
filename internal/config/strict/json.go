package strict

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// jsonBounds bound a value of JSON, and count what was read of it.
type jsonBounds struct {
	mostValues, mostBytes int
	values, bytes         int
}

func (b *jsonBounds) tooLarge() bool { return b.values > b.mostValues || b.bytes > b.mostBytes }

// JSONMapping reads a mapping of any values that JSON has. What is wrong with it is
// reported. fits is false if it holds more than mostValues values or mostBytes bytes of
// text, which is not reported.
func (d *Decoder) JSONMapping(n *yaml.Node, p *Path, mostValues, mostBytes int) (m map[string]any, fits bool) {
	if n.Kind != yaml.MappingNode {
		d.Problem(d.Position(n, p), "expected a mapping, got %s", kindOf(n))
		return nil, true
	}
	v := jsonValue{jsonBounds: &jsonBounds{mostValues: mostValues, mostBytes: mostBytes}}
	v.ReadNode(d, n, p)
	m, _ = v.value.(map[string]any)
	return m, !v.tooLarge()
}

// A jsonValue is any value that JSON has, as protobuf's Struct has it: nil, a bool, a float64, a
// string, []any or map[string]any. A wrong value is nil.
type jsonValue struct {
	*jsonBounds
	value any
}

// ReadNode reads a node.
func (v *jsonValue) ReadNode(d *Decoder, n *yaml.Node, p *Path) {
	if v.values++; v.tooLarge() {
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		for _, kv := range d.Pairs(n, p) {
			v.bytes += len(kv.Name)
			below := jsonValue{jsonBounds: v.jsonBounds}
			d.pair(kv, reflect.ValueOf(&below).Elem(), kv.Below(p))
			m[d.jsonText(kv.Key, kv.Name, p)] = below.value
		}
		v.value = m
	case yaml.SequenceNode:
		l := make([]any, 0, min(len(n.Content), v.mostValues))
		for i, c := range n.Content {
			if v.tooLarge() {
				return
			}
			below := jsonValue{jsonBounds: v.jsonBounds}
			d.Decode(c, reflect.ValueOf(&below).Elem(), &Path{Parent: p, Index: i, Item: c})
			l = append(l, below.value)
		}
		v.value = l
	default:
		v.bytes += len(n.Value)
		v.value = d.jsonScalar(n, p)
	}
}

func (d *Decoder) jsonScalar(n *yaml.Node, p *Path) any {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool":
		b, _ := ParseTruth(n.Value)
		return b
	case "!!int", "!!float":
		return d.jsonNumber(n, p)
	case "!!str", "!!timestamp", "!!merge":
		return d.jsonText(n, n.Value, p)
	default:
		d.badTag(n, p)
		return nil
	}
}

// jsonNumber returns a number that JSON can carry without loss.
func (d *Decoder) jsonNumber(n *yaml.Node, p *Path) any {
	text := strings.ReplaceAll(n.Value, "_", "")
	f, err := strconv.ParseFloat(text, 64) // which knows no .inf and .nan
	if i, intErr := strconv.ParseInt(text, 0, 64); intErr == nil && n.ShortTag() == "!!int" {
		f, err = float64(i), nil
		if i > maxExact || i < -maxExact {
			err = strconv.ErrRange
		}
	}
	if err != nil || n.ShortTag() == "!!int" && math.Abs(f) > maxExact {
		d.Problem(d.Position(n, p), "%s is not a number that JSON keeps: quote it", Quote(n.Value))
		return nil
	}
	return f
}

func (d *Decoder) jsonText(n *yaml.Node, text string, p *Path) string {
	if !utf8.ValidString(text) {
		d.Problem(d.Position(n, p), "not UTF-8")
		return ""
	}
	return text
}
