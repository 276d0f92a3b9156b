package config

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/tier"
)

// This file reads a long list of subjects without a tree of nodes for all of it:
// splitSubjects cuts the text of the list into items, readPlain reads those of
// the usual shape from their lines, and the YAML library reads the others, some
// at a time. A file whose lines leave any doubt about where an item ends is not
// cut; see closedLine. The result never differs from that of the whole tree,
// which FuzzTiers checks.

// item is the text of one subject in a file.
type item struct {
	start, end int
	line       int // of start
}

// The line that the list follows, and marks of documents.
var (
	subjectsKey   = []byte("subjects:")
	documentStart = []byte("---")
	documentEnd   = []byte("...")
)

// splitSubjects returns the file with blank lines in place of its subjects, so
// that lines keep their numbers, and the subjects. ok is false if the file is
// not laid out so that lines alone tell where an item begins.
func splitSubjects(data []byte) (head []byte, items []item, ok bool) {
	if !utf8.Valid(data) || !plainBreaks(data) {
		return nil, nil, false
	}
	var (
		start, end = -1, len(data) // of the list
		indent     = -1            // of its items
		blank      int             // lines in the list
	)
	line := 0
	for at := 0; at < len(data); {
		text, stop := lineAt(data, at)
		line++
		if !closedLine(text) {
			return nil, nil, false
		}
		trimmed := bytes.TrimLeft(text, " ")
		depth := len(text) - len(trimmed)
		isItem := len(trimmed) > 0 && trimmed[0] == '-' && (len(trimmed) == 1 || trimmed[1] == ' ')
		switch {
		case start < 0:
			if rest, found := bytes.CutPrefix(text, subjectsKey); found && isBlankOrComment(rest) {
				start = stop
			} else if bytes.HasPrefix(text, subjectsKey) || bytes.HasPrefix(text, documentEnd) {
				return nil, nil, false
			}
		case end < len(data) || depth == 0 && !isItem && len(trimmed) > 0 && trimmed[0] != '#':
			// Behind the list.
			if bytes.HasPrefix(text, subjectsKey) || bytes.HasPrefix(text, documentStart) || bytes.HasPrefix(text, documentEnd) {
				return nil, nil, false
			}
			end = min(end, at)
		case len(trimmed) == 0 || trimmed[0] == '#':
			blank++
		case isItem && (indent < 0 || depth == indent):
			indent = depth
			items = append(items, item{start: at, end: stop, line: line})
			blank++
		case len(items) > 0 && depth > indent:
			items[len(items)-1].end = stop
			blank++
		default:
			return nil, nil, false
		}
		at = stop
	}
	if len(items) == 0 {
		return nil, nil, false
	}
	head = make([]byte, 0, start+blank+len(data)-end)
	head = append(head, data[:start]...)
	head = append(head, bytes.Repeat([]byte("\n"), blank)...)
	head = append(head, data[end:]...)
	return head, items, true
}

// lineAt returns the line that begins at at, without its end, and where the next
// one begins.
func lineAt(data []byte, at int) (line []byte, next int) {
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		return data[at : at+i], at + i + 1
	}
	return data[at:], len(data)
}

// plainBreaks says that lines end with a line feed alone. YAML knows more line
// breaks, and a byte order mark.
func plainBreaks(data []byte) bool {
	for _, other := range []string{"\r", "\u0085", "\u2028", "\u2029", "\ufeff"} {
		if bytes.Contains(data, []byte(other)) {
			return false
		}
	}
	return true
}

func isBlankOrComment(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " ")
	return len(trimmed) == 0 || trimmed[0] == '#' && len(trimmed) < len(text)
}

// indicators mean something in YAML where a value begins: anchors, aliases,
// tags, block texts, directives, complex keys, and two that are reserved.
var indicators = []byte("&*!|>%?@`")

// closedLine reports whether what begins on a line also ends there, so that the
// next line is read the same whatever stands on this one: quotes and brackets
// are closed, and there are no block texts, anchors, aliases, tags and
// directives. It may say no where the answer is yes.
func closedLine(text []byte) bool {
	depth := 0
	start := true // a value or a key may begin here
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == ' ':
		case c == '#' && (i == 0 || text[i-1] == ' '):
			return depth == 0
		case c < ' ' || c == 0x7f:
			return false
		case c == '"' || c == '\'':
			if !start {
				return false
			}
			if i = closing(text, i); i < 0 {
				return false
			}
			start = false
		case c == '{' || c == '[':
			depth++
			start = true
		case c == '}' || c == ']':
			depth--
			if depth < 0 {
				return false
			}
			start = false
		case c == ',':
			start = true
		case (c == '-' || c == ':') && (i+1 == len(text) || text[i+1] == ' '):
			start = true
		case start && bytes.IndexByte(indicators, c) >= 0:
			return false
		default:
			start = false
		}
	}
	return depth == 0
}

// closing returns where the quote that opens at i closes, or -1.
func closing(text []byte, i int) int {
	quote := text[i]
	for j := i + 1; j < len(text); j++ {
		switch {
		case quote == '"' && text[j] == '\\':
			j++
		case text[j] != quote:
		case quote == '\'' && j+1 < len(text) && text[j+1] == quote:
			j++
		default:
			return j
		}
	}
	return -1
}

// maxGroup bounds how much text the library gets at once. It needs some 15 times
// that in memory, and some microseconds for each call.
const maxGroup = 64 << 10

// items adds the subjects that splitSubjects found. ok is false if the library
// does not see the same items, which includes that it sees no YAML: then the
// whole file tells better what is wrong, and what was added is void.
func (t *tiersReader) items(d *decoder, data []byte, items []item) (ok bool) {
	top := &path{name: "subjects"}
	for i := 0; i < len(items); {
		first := items[i]
		if s, ok := readPlain(data[first.start:first.end]); ok {
			t.plainSubject(d, &s, first.line, &path{parent: top, index: i, label: s.id})
			i++
			continue
		}
		n, end := 1, first.end
		for ; i+n < len(items) && items[i+n].end-first.start <= maxGroup; n++ {
			next := items[i+n]
			if _, ok := readPlain(data[next.start:next.end]); ok {
				break
			}
			end = next.end
		}
		// In the whole file the list is one level deeper.
		docs, err := parseNodes(data[first.start:end], maxDepth-1)
		if err != nil || len(docs) != 1 {
			return false
		}
		list := root(docs[0])
		if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) != n {
			return false
		}
		d.offset = first.line - 1
		for j, node := range list.Content {
			var s field[subject]
			s.readLocated(d, node, &path{parent: top, index: i + j, item: node})
			t.subject(d, &s)
		}
		d.offset = 0
		i += n
	}
	return true
}

// plainSubject is a subject of the plain shape, with the lines of its parts
// counted from that of the item.
type plainSubject struct {
	id, tier         string
	idLine, tierLine int
	disabled         bool
	digests          []string
	digestLines      []int
}

// The parts of the plain shape.
var (
	plainItem   = []byte("- ")
	plainDigest = []byte("- sha256: ")
	plainColon  = []byte(": ")
)

// readPlain reads an item of the shape that programs write: one key to a line in
// any order, plain values, no comments and no blank lines:
//
//   - id: acme
//     tier: starter
//     disabled: false
//     keys:
//   - sha256: 2c70...
//
// ok is false for any other shape, right or wrong.
func readPlain(text []byte) (s plainSubject, ok bool) {
	var seenTier, seenDisabled, seenKeys bool
	indent := -1     // of the keys of the item
	keysIndent := -1 // of the items of keys
	inKeys := false
	for at, number := 0, 0; at < len(text); number++ {
		line, next := lineAt(text, at)
		at = next
		rest := bytes.TrimLeft(line, " ")
		depth := len(line) - len(rest)
		if number == 0 {
			rest = bytes.TrimPrefix(rest, plainItem)
			depth += len(plainItem)
			indent = depth
		}
		if digest, found := bytes.CutPrefix(rest, plainDigest); found {
			if !inKeys || depth < indent || keysIndent >= 0 && depth != keysIndent || !isPlainDigest(digest) {
				return s, false
			}
			keysIndent = depth
			s.digests = append(s.digests, strings.ToLower(string(digest)))
			s.digestLines = append(s.digestLines, number)
			continue
		}
		if depth != indent || inKeys && keysIndent < 0 {
			return s, false
		}
		inKeys = false
		key, value, _ := bytes.Cut(rest, plainColon)
		switch {
		case string(rest) == "keys:" && !seenKeys:
			seenKeys, inKeys = true, true
		case string(key) == "id" && s.id == "" && isPlainText(value):
			s.id, s.idLine = string(value), number
		case string(key) == "tier" && !seenTier && isPlainText(value):
			s.tier, s.tierLine, seenTier = string(value), number, true
		case string(key) == "disabled" && !seenDisabled && (string(value) == "true" || string(value) == "false"):
			s.disabled, seenDisabled = string(value) == "true", true
		default:
			return s, false
		}
	}
	return s, s.id != "" && (!inKeys || keysIndent >= 0)
}

// isPlainText says that YAML reads a text as just that text, or as a number or
// truth value, which count as the text.
func isPlainText(text []byte) bool {
	if len(text) == 0 || bytes.EqualFold(text, []byte("null")) {
		return false
	}
	for i, c := range text {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case i > 0 && (c == '-' || c == '.'):
		default:
			return false
		}
	}
	return true
}

func isPlainDigest(text []byte) bool {
	if len(text) != tier.DigestLen {
		return false
	}
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// plainSubject adds a subject of the plain shape that begins on a line.
func (t *tiersReader) plainSubject(d *decoder, s *plainSubject, line int, at *path) {
	spots := subjectSpots{
		id:   spot{line + s.idLine, &path{parent: at, name: "id"}},
		tier: spot{line + s.tierLine, &path{parent: at, name: "tier"}},
		keys: make([]spot, 0, len(s.digestLines)),
	}
	keys := &path{parent: at, name: "keys"}
	for i, n := range s.digestLines {
		spots.keys = append(spots.keys, spot{line + n, &path{parent: keys, index: i}})
	}
	t.add(d, tier.Subject{ID: s.id, Tier: s.tier, Disabled: s.disabled}, s.digests, spots)
}
