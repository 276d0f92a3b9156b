package strict

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Truth is a truth value as envoyproxy/ratelimit reads it: YAML 1.1's words count
// too, and one without a value is false.
type Truth bool

// ReadNode reads a node.
func (f *Truth) ReadNode(d *Decoder, n *yaml.Node, p *Path) {
	*f = false
	if IsNull(n) {
		return
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	b, ok := ParseTruth(n.Value)
	switch tag := n.ShortTag(); {
	case n.Kind != yaml.ScalarNode:
		d.Problem(d.Spot(n, p), "expected true or false, got %s", kindOf(n))
	case !ok, quoted, tag != "!!bool" && tag != "!!str":
		d.Problem(d.Spot(n, p), "expected true or false, got %s", d.Quote(n.Value))
	default:
		*f = Truth(b)
	}
}

// ParseTruth reads the words for true and false that YAML 1.1 has.
func ParseTruth(text string) (value, ok bool) {
	word := strings.ToLower(text)
	if text != word && text != strings.ToUpper(word) && text != strings.ToUpper(word[:1])+word[1:] {
		return false, false
	}
	switch word {
	case "true", "yes", "on", "y":
		return true, true
	case "false", "no", "off", "n":
		return false, true
	}
	return false, false
}

// protoTruth reads the words for true and false that Envoy accepts, in any case.
func protoTruth(text, tag string) (value, ok bool) {
	switch word := strings.ToLower(text); {
	case slices.Contains([]string{"true", "t", "yes", "y", "on"}, word), word == "1" && tag == "!!str":
		return true, true
	case slices.Contains([]string{"false", "f", "no", "n", "off"}, word), word == "0" && tag == "!!str":
		return false, true
	}
	return false, false
}

// A jsonReader reads any value that JSON has, as protobuf's Struct has it.
type jsonReader struct {
	*Decoder
	mostValues, mostBytes int
	values, bytes         int
}

// JSONMapping reads a mapping of any values that JSON has. What is wrong with it is
// reported. fits is false if it holds more than mostValues values or mostBytes bytes of
// text, which is not reported.
func (d *Decoder) JSONMapping(n *yaml.Node, p *Path, mostValues, mostBytes int) (m map[string]any, fits bool) {
	if n.Kind != yaml.MappingNode {
		d.Problem(d.Spot(n, p), "expected a mapping, got %s", kindOf(n))
		return nil, true
	}
	r := jsonReader{Decoder: d, mostValues: mostValues, mostBytes: mostBytes}
	m, _ = r.value(n, p).(map[string]any)
	return m, !r.tooLarge()
}

func (r *jsonReader) tooLarge() bool { return r.values > r.mostValues || r.bytes > r.mostBytes }

// value returns the value of n: nil, a bool, a float64, a string, []any or map[string]any. It
// reports what is wrong, and returns nil for that.
func (r *jsonReader) value(n *yaml.Node, p *Path) any {
	if r.values++; r.tooLarge() {
		return nil
	}
	if r.depth >= maxDepth {
		r.Problem(r.Spot(n, p), "nested deeper than %d levels", maxDepth)
		return nil
	}
	r.depth++
	defer func() { r.depth-- }()
	if n.Kind == yaml.AliasNode {
		target := follow(n)
		if !r.enter(n, target, p) {
			return nil
		}
		defer r.leave()
		n = target
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		for _, kv := range r.pairs(n, p) {
			r.bytes += len(kv.name)
			m[r.text(kv.key, kv.name, p)] = r.value(kv.value, r.below(kv, p))
		}
		return m
	case yaml.SequenceNode:
		l := make([]any, 0, min(len(n.Content), r.mostValues))
		for i, c := range n.Content {
			if r.tooLarge() {
				return nil
			}
			l = append(l, r.value(c, &Path{Parent: p, Index: i, Item: c}))
		}
		return l
	default:
		return r.single(n, p)
	}
}

// single returns a scalar.
func (r *jsonReader) single(n *yaml.Node, p *Path) any {
	r.bytes += len(n.Value)
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool":
		b, _ := ParseTruth(n.Value)
		return b
	case "!!int", "!!float":
		return r.number(n, p)
	case "!!str", "!!timestamp", "!!merge":
		return r.text(n, n.Value, p)
	default:
		r.badTag(n, p)
		return nil
	}
}

// number returns a number that JSON can carry without loss.
func (r *jsonReader) number(n *yaml.Node, p *Path) any {
	text := strings.ReplaceAll(n.Value, "_", "")
	f, err := strconv.ParseFloat(text, 64) // which knows no .inf and .nan
	if i, intErr := strconv.ParseInt(text, 0, 64); intErr == nil && n.ShortTag() == "!!int" {
		f, err = float64(i), nil
		if i > maxExact || i < -maxExact {
			err = strconv.ErrRange
		}
	}
	if err != nil || n.ShortTag() == "!!int" && math.Abs(f) > maxExact {
		r.Problem(r.Spot(n, p), "%s is not a number that JSON keeps: quote it", Quote(n.Value))
		return nil
	}
	return f
}

func (r *jsonReader) text(n *yaml.Node, text string, p *Path) string {
	if !utf8.ValidString(text) {
		r.Problem(r.Spot(n, p), "not UTF-8")
		return ""
	}
	return text
}
