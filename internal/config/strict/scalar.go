package strict

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

func (d *Decoder) scalar(n *yaml.Node, v reflect.Value, p *Path) {
	if n.Kind != yaml.ScalarNode {
		d.Problem(d.Position(n, p), "expected %s, got %s", nameOfType(v.Type()), kindOf(n))
		return
	}
	tag := n.ShortTag()
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
	case "!!null":
		d.Problem(d.Position(n, p), "has no value: give it one, or remove the key")
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
		d.Problem(d.Position(n, p), "expected %s", nameOfType(v.Type()))
	default:
		d.Problem(d.Position(n, p), "%s", err)
	}
}

// badTag refuses a tag, without its text. A text that begins with ! and has no quotes is a tag,
// too.
func (d *Decoder) badTag(n *yaml.Node, p *Path) {
	d.Problem(d.Position(n, p), `a YAML tag is not supported here; quote a text that begins with "!"`)
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

var durationType = reflect.TypeFor[time.Duration]()

// IsText reports whether values of a type are read from a text by UnmarshalText.
func IsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isTextList reports whether values of a type are lists of texts. A text with commas is
// such a list, too.
func isTextList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && (t.Elem().Kind() == reflect.String || IsText(t.Elem()))
}

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
		d.Problem(d.Position(n, p), "expected true or false, got %s", kindOf(n))
	case !ok, quoted, tag != "!!bool" && tag != "!!str":
		d.Problem(d.Position(n, p), "expected true or false, got %s", d.Quote(n.Value))
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
