package accesslog

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A jsonParser reads lines that are objects of JSON. It keeps the fields that it was made for. It
// reads all lines that encoding/json does, and does not check values that it does not keep.
type jsonParser struct{ root jsonLevel }

// A jsonLevel is what is wanted of one object, by the names of its fields.
type jsonLevel map[string]*jsonField

// A jsonField is what is wanted of the value of one name.
type jsonField struct {
	slots []int     // which get the value
	below jsonLevel // parts of the value that are wanted
}

// newJSONParser returns a parser that puts the value of each name into the slot of its index. A name
// with points is the name of a field, or the names of objects in each other.
func newJSONParser(names []string) *jsonParser {
	p := &jsonParser{root: make(jsonLevel)}
	for slot, name := range names {
		p.root.add([]string{name}, slot)
		if path := strings.Split(name, "."); len(path) > 1 {
			p.root.add(path, slot)
		}
	}
	return p
}

func (l jsonLevel) add(path []string, slot int) {
	f := l[path[0]]
	if f == nil {
		f = &jsonField{below: make(jsonLevel)}
		l[path[0]] = f
	}
	if len(path) > 1 {
		f.below.add(path[1:], slot)
		return
	}
	f.slots = append(f.slots, slot)
}

// parse implements [parser].
func (p *jsonParser) parse(line []byte, out *fields) string {
	i := skipSpace(line, 0)
	if i == len(line) || line[i] != '{' {
		return "is no object of JSON"
	}
	i = p.root.object(line, i+1, out.values)
	if i < 0 {
		return "is no valid JSON"
	}
	if skipSpace(line, i) != len(line) {
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

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// object reads an object whose brace is before i, and returns the index behind it, or -1. Of values
// with the same name the last one counts.
func (l jsonLevel) object(b []byte, i int, out []Value) int {
	for {
		if i = skipSpace(b, i); i >= len(b) {
			return -1
		}
		if b[i] == '}' {
			return i + 1
		}
		name := i
		if i = skipValue(b, i); i < 0 || b[name] != '"' {
			return -1
		}
		field := l[string(textOf(b[name:i]))]
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return -1
		}
		value := skipSpace(b, i+1)
		if i = skipValue(b, value); i < 0 {
			return -1
		}
		if field != nil {
			field.keep(b[value:i], out)
		}
		if i = skipSpace(b, i); i < len(b) && b[i] == ',' {
			i++
		} else if i >= len(b) || b[i] != '}' {
			return -1
		}
	}
}

// skipValue returns the index behind the value at i, or -1.
func skipValue(b []byte, i int) int {
	if i < len(b) && b[i] != '"' && b[i] != '{' && b[i] != '[' {
		begin := i
		for i < len(b) && b[i] > ' ' && b[i] != ',' && b[i] != '}' && b[i] != ']' {
			i++
		}
		if i == begin {
			return -1
		}
		return i
	}
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i = skipText(b, i+1); i < 0 {
				return -1
			}
			i-- // its quote
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if i++; depth == 0 {
			return i
		}
	}
	return -1
}

// skipText returns the index behind the quote that ends the string which begins at i, or -1.
func skipText(b []byte, i int) int {
	for at := i; ; {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return -1
		}
		slash := at + n
		for at = slash + 1; slash > i && b[slash-1] == '\\'; {
			slash--
		}
		if (at-1-slash)%2 == 0 {
			return at
		}
	}
}

// textOf returns the text of a string with its quotes.
func textOf(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		var text string
		if json.Unmarshal(quoted, &text) == nil {
			return []byte(text)
		}
	}
	return quoted[1 : len(quoted)-1]
}

// keep sets the slots of a value. An array of strings has commas between them, as Envoy joins the
// values of a header.
func (f *jsonField) keep(raw []byte, out []Value) {
	v := Value{Text: raw, State: Present}
	switch raw[0] {
	case '{':
		f.below.object(raw, 1, out)
	case '"':
		v = known(textOf(raw))
	case '[':
		var all []string
		if json.Unmarshal(raw, &all) == nil {
			v = known([]byte(strings.Join(all, ",")))
		}
	default:
		if string(raw) == "null" {
			v = Value{State: Absent}
		}
	}
	for _, slot := range f.slots {
		out[slot] = v
	}
}
