package accesslog

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep values of JSON may lie in each other, as in encoding/json.
const maxDepth = 10000

// A jsonParser reads lines that are objects of JSON. It keeps the fields that it was made for and
// checks the rest. It accepts and refuses the lines that encoding/json does. Unlike encoding/json
// it keeps bytes that are not UTF-8.
type jsonParser struct {
	root    *jsonLevel
	out     []Value
	scratch []byte // texts of this line that have escapes
	fault   int    // where the line stops being JSON
}

// A jsonLevel is what is wanted of one object.
type jsonLevel struct{ fields map[string]*jsonField }

// A jsonField is what is wanted of the value of one name.
type jsonField struct {
	slots []int      // which get the value
	below *jsonLevel // if parts of the value are wanted; else nil
	all   []int      // slots, and the slots below
}

// newJSONParser returns a parser that puts the value of each name into the slot of its index. A name
// with points is the name of a field, or the names of objects in each other.
func newJSONParser(names []string) *jsonParser {
	p := &jsonParser{root: newJSONLevel()}
	for slot, name := range names {
		p.root.add([]string{name}, slot)
		if path := strings.Split(name, "."); len(path) > 1 {
			p.root.add(path, slot)
		}
	}
	return p
}

func newJSONLevel() *jsonLevel { return &jsonLevel{fields: make(map[string]*jsonField)} }

func (l *jsonLevel) add(path []string, slot int) {
	f := l.fields[path[0]]
	if f == nil {
		f = new(jsonField)
		l.fields[path[0]] = f
	}
	f.all = append(f.all, slot)
	if len(path) == 1 {
		f.slots = append(f.slots, slot)
		return
	}
	if f.below == nil {
		f.below = newJSONLevel()
	}
	f.below.add(path[1:], slot)
}

// parse implements [parser].
func (p *jsonParser) parse(line []byte, out *fields) string {
	p.out, p.scratch, p.fault = out.values, p.scratch[:0], 0
	i := skipSpace(line, 0)
	if i == len(line) || line[i] != '{' {
		out.at = i
		return "is no object of JSON"
	}
	i = p.object(line, i+1, p.root, 1)
	if i < 0 {
		out.at = p.fault
		return "is no valid JSON"
	}
	if i = skipSpace(line, i); i != len(line) {
		out.at = i
		return "goes on behind its object of JSON"
	}
	return ""
}

// skipSpace returns the first index from i on that is no white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// stop notes where the line stops being JSON.
func (p *jsonParser) stop(i int) int {
	p.fault = i
	return -1
}

// object reads an object whose brace is behind i, and returns the index behind it, or -1. level is
// nil if nothing of it is wanted.
func (p *jsonParser) object(b []byte, i int, level *jsonLevel, depth int) int {
	if depth > maxDepth {
		return p.stop(i)
	}
	for first := true; ; first = false {
		i = skipSpace(b, i)
		switch {
		case i >= len(b):
			return p.stop(i)
		case b[i] == '}':
			return i + 1
		case first:
		case b[i] != ',':
			return p.stop(i)
		default:
			i = skipSpace(b, i+1)
		}
		if i >= len(b) || b[i] != '"' {
			return p.stop(i)
		}
		name := i + 1
		end, escaped := p.text(b, name)
		if end < 0 {
			return -1
		}
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return p.stop(i)
		}
		i = skipSpace(b, i+1)
		var field *jsonField
		switch {
		case level == nil:
		case escaped:
			field = level.fields[string(p.unescape(b[name:end-1]))]
		default:
			field = level.fields[string(b[name:end-1])]
		}
		if field == nil {
			i = p.skip(b, i, depth)
		} else {
			i = p.keep(b, i, field, depth)
		}
		if i < 0 {
			return -1
		}
	}
}

// text finds the end of a string whose quote is before i. It returns the index behind the quote
// that ends it, or -1.
func (p *jsonParser) text(b []byte, i int) (end int, escaped bool) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			quote, slash := w^(ones*'"'), w^(ones*'\\')
			// The lowest bit that is set is of the first quote, backslash or control character.
			found := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & tops
			if found != 0 {
				i += bits.TrailingZeros64(found) >> 3
				break
			}
			i += 8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
			i++
		}
		if i >= len(b) || b[i] < ' ' {
			return p.stop(i), false
		}
		if b[i] == '"' {
			return i + 1, escaped
		}
		escaped = true
		if i+1 >= len(b) {
			return p.stop(i), false
		}
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if _, ok := hex4(b, i+2); !ok {
				return p.stop(i), false
			}
			i += 6
		default:
			return p.stop(i), false
		}
	}
}

// hex4 reads four hexadecimal digits at i.
func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape returns the text of a string that text has checked.
func (p *jsonParser) unescape(raw []byte) []byte {
	start := len(p.scratch)
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			p.scratch = append(p.scratch, raw[i])
			i++
			continue
		}
		c := raw[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(raw, i)
			i += 4
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					low, ok = hex4(raw, i+2)
				}
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					i += 6
				}
			}
			p.scratch = utf8.AppendRune(p.scratch, r)
			continue
		}
		p.scratch = append(p.scratch, c)
	}
	return slices.Clip(p.scratch[start:])
}

// skip checks a value at i and returns the index behind it, or -1.
func (p *jsonParser) skip(b []byte, i, depth int) int {
	if i >= len(b) {
		return p.stop(i)
	}
	switch b[i] {
	case '"':
		i, _ = p.text(b, i+1)
		return i
	case '{':
		return p.object(b, i+1, nil, depth+1)
	case '[':
		return p.array(b, i+1, depth+1)
	case 't':
		return p.word(b, i, "true")
	case 'f':
		return p.word(b, i, "false")
	case 'n':
		return p.word(b, i, "null")
	default:
		return p.number(b, i)
	}
}

func (p *jsonParser) word(b []byte, i int, word string) int {
	if end := i + len(word); end <= len(b) && string(b[i:end]) == word {
		return end
	}
	return p.stop(i)
}

func (p *jsonParser) array(b []byte, i, depth int) int {
	if depth > maxDepth {
		return p.stop(i)
	}
	if i = skipSpace(b, i); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = p.skip(b, skipSpace(b, i), depth); i < 0 {
			return -1
		}
		i = skipSpace(b, i)
		switch {
		case i >= len(b):
			return p.stop(i)
		case b[i] == ',':
			i++
		case b[i] == ']':
			return i + 1
		default:
			return p.stop(i)
		}
	}
}

func (p *jsonParser) number(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i] >= '1' && b[i] <= '9':
		i = skipDigits(b, i)
	default:
		return p.stop(i)
	}
	if i < len(b) && b[i] == '.' {
		end := skipDigits(b, i+1)
		if end == i+1 {
			return p.stop(end)
		}
		i = end
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end := skipDigits(b, i)
		if end == i {
			return p.stop(end)
		}
		i = end
	}
	return i
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// keep reads a value of which something is wanted. Of values with the same name the last one
// counts.
func (p *jsonParser) keep(b []byte, i int, field *jsonField, depth int) int {
	if field.below != nil {
		for _, slot := range field.all {
			p.out[slot] = Value{}
		}
		if i < len(b) && b[i] == '{' {
			end := p.object(b, i+1, field.below, depth+1)
			if end > 0 {
				p.set(field, Value{Text: b[i:end], State: Present})
			}
			return end
		}
	}
	if i < len(b) && b[i] == '"' {
		end, escaped := p.text(b, i+1)
		if end < 0 {
			return -1
		}
		raw := b[i+1 : end-1]
		if escaped {
			raw = p.unescape(raw)
		}
		p.set(field, told(raw))
		return end
	}
	end := p.skip(b, i, depth)
	if end < 0 {
		return -1
	}
	raw := b[i:end]
	switch raw[0] {
	case '[':
		raw = p.joined(raw)
	case 'n':
		raw = nil
	}
	p.set(field, told(raw))
	return end
}

func (p *jsonParser) set(field *jsonField, v Value) {
	for _, slot := range field.slots {
		p.out[slot] = v
	}
}

// joined returns the texts of an array of strings with commas between them, as Envoy joins the
// values of a header, and another array as it is.
func (p *jsonParser) joined(raw []byte) []byte {
	var parts [][]byte
	for i := skipSpace(raw, 1); raw[i] != ']'; {
		if raw[i] != '"' {
			return raw
		}
		end, escaped := p.text(raw, i+1)
		part := raw[i+1 : end-1]
		if escaped {
			part = p.unescape(part)
		}
		parts = append(parts, part)
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	switch len(parts) {
	case 0:
		return nil
	case 1:
		return parts[0]
	}
	start := len(p.scratch)
	for i, part := range parts {
		if i > 0 {
			p.scratch = append(p.scratch, ',')
		}
		p.scratch = append(p.scratch, part...)
	}
	return slices.Clip(p.scratch[start:])
}
