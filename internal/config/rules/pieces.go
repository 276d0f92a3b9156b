package rules

import (
	"bytes"
	"fmt"
	"runtime"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// This file cuts files into pieces that are parsed one after the other or beside
// each other, since a tree of nodes takes up to a hundred times the memory of
// its text. A file whose lines leave any doubt about where an item of a list
// ends is not cut; see closedLine. Fuzz tests compare the result with that of the
// whole.

// Item is the text of one item of a list in a file.
type Item struct {
	Start, End int
	Line       int // of start
}

// Marks of documents.
var (
	documentStart = []byte("---")
	documentEnd   = []byte("...")
)

// SplitList returns the document with blank lines in place of the list below a
// key such as "subjects:" at its top, so that lines keep their numbers, and the
// items of the list. ok is false if the document is not laid out so that lines
// alone tell where an item begins.
func SplitList(data, key []byte) (head []byte, items []Item, ok bool) {
	if !utf8.Valid(data) || !readable(data) {
		return nil, nil, false
	}
	var (
		start, end = -1, len(data) // of the list
		indent     = -1            // of its items
		blank      int             // lines in the list
	)
	line := 0
	block := notInBlock
	for at := 0; at < len(data); {
		text, stop := strict.LineAt(data, at)
		line++
		inBlock, closed := block.line(text)
		if !closed {
			return nil, nil, false
		}
		trimmed := bytes.TrimLeft(text, " ")
		depth := len(text) - len(trimmed)
		isItem := len(trimmed) > 0 && trimmed[0] == '-' && (len(trimmed) == 1 || trimmed[1] == ' ')
		switch {
		case inBlock && (start < 0 || end < len(data)):
		case inBlock:
			items[len(items)-1].End = stop
			blank++
		case start < 0:
			if rest, found := bytes.CutPrefix(text, key); found && isBlankOrComment(rest) {
				start = stop
			} else if bytes.HasPrefix(text, key) || bytes.HasPrefix(text, documentEnd) {
				return nil, nil, false
			}
		case end < len(data) || depth == 0 && !isItem && len(trimmed) > 0 && trimmed[0] != '#':
			// Behind the list.
			if bytes.HasPrefix(text, key) || bytes.HasPrefix(text, documentStart) || bytes.HasPrefix(text, documentEnd) {
				return nil, nil, false
			}
			end = min(end, at)
		case len(trimmed) == 0 || trimmed[0] == '#':
			blank++
		case isItem && (indent < 0 || depth == indent):
			indent = depth
			items = append(items, Item{Start: at, End: stop, Line: line})
			blank++
		case len(items) > 0 && depth > indent:
			items[len(items)-1].End = stop
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

// readable says that lines end with a line feed alone, and that no character is
// there which YAML refuses or takes for something else: other line breaks, a byte
// order mark, controls. They would not be seen in what lies between two items.
func readable(data []byte) bool {
	return bytes.IndexFunc(data, func(r rune) bool {
		switch {
		case r == '\n', r == '\t':
			return false
		case r < ' ', r >= 0x7f && r < 0xa0:
			return true
		}
		return r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff'
	}) < 0
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

// blockText follows texts in block style, whose lines mean nothing. It is the
// column of the key that has the text.
type blockText int

const notInBlock blockText = -1

// line takes the next line. inBlock says that the line belongs to a text; closed,
// that whatever begins on the line also ends there, but for such a text.
func (b *blockText) line(text []byte) (inBlock, closed bool) {
	if *b != notInBlock {
		rest := bytes.TrimLeft(text, " ")
		if len(rest) == 0 || len(text)-len(rest) > int(*b) {
			return true, true
		}
		*b = notInBlock
	}
	if column, ok := beginsBlock(text); ok {
		*b = blockText(column)
		return false, true
	}
	return false, closedLine(text)
}

// beginsBlock recognises "key: |" and "- key: >-" and the like, and returns the
// column of the key: the lines of the text are indented deeper.
func beginsBlock(text []byte) (column int, ok bool) {
	rest := bytes.TrimLeft(text, " ")
	for bytes.HasPrefix(rest, []byte("- ")) {
		rest = bytes.TrimLeft(rest[1:], " ")
	}
	key, mark, found := bytes.Cut(rest, []byte(": "))
	if !found || len(key) == 0 || len(mark) == 0 || mark[0] != '|' && mark[0] != '>' {
		return 0, false
	}
	for _, c := range key {
		if (c < 'a' || c > 'z') && c != '_' {
			return 0, false
		}
	}
	if mark = mark[1:]; len(mark) > 0 && (mark[0] == '-' || mark[0] == '+') {
		mark = mark[1:]
	}
	return len(text) - len(rest), len(mark) == 0
}

// MaxGroup bounds how much text the library gets at once.
const MaxGroup = 32 << 10

// plainLines ends lines with a line feed alone, which YAML takes for the same.
func plainLines(data []byte) []byte {
	if !bytes.Contains(data, []byte("\r\n")) {
		return data
	}
	return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
}

// splitDocuments cuts a file where documents begin. ok is false if lines alone
// do not tell where.
func splitDocuments(data []byte) (docs []Item, ok bool) {
	if !utf8.Valid(data) || !readable(data) {
		return nil, false
	}
	block := notInBlock
	docs = []Item{{Line: 1}}
	for at, line := 0, 1; at < len(data); line++ {
		text, next := strict.LineAt(data, at)
		inBlock, closed := block.line(text)
		switch {
		case !closed, !inBlock && bytes.HasPrefix(text, documentEnd):
			return nil, false
		case !inBlock && at > 0 && bytes.HasPrefix(text, documentStart):
			docs[len(docs)-1].End = at
			docs = append(docs, Item{Start: at, Line: line})
		}
		at = next
	}
	docs[len(docs)-1].End = len(data)
	return docs, true
}

// descriptorsKey begins the line that the list follows.
var descriptorsKey = []byte("descriptors:")

// byPieces reads a file of rules document by document, and long documents some
// descriptors at a time. ok is false if the library does not see the same
// documents or items: the file must be read as a whole.
func (r *rulesReader) byPieces(src files.File, docs []Item) (ok bool) {
	empty := true
	for _, doc := range docs {
		text := src.Data[doc.Start:doc.End]
		head, items, cut := text, []Item(nil), false
		if len(text) > r.o.Group {
			head, items, cut = SplitList(text, descriptorsKey)
			if !cut {
				return false
			}
		}
		nodes, err := strict.ParseNodes(head, strict.MaxDepth)
		if err != nil || len(nodes) > 1 {
			return false
		}
		if len(nodes) == 0 || strict.Root(nodes[0]) == nil {
			continue
		}
		empty = false
		r.decoder = r.newDecoder(src.Name, doc.Line-1, r.report, r.warn)
		if !cut {
			r.document(strict.Root(nodes[0]))
			continue
		}
		var top strict.Field[rulesDoc]
		top.ReadLocated(r.decoder, strict.Root(nodes[0]), nil)
		r.head(&top.Value)
		if !r.list(src.Name, text, items, doc.Line-1) {
			return false
		}
	}
	if empty {
		r.noRules(src)
	}
	return true
}

// piece is some descriptors of a list.
type piece struct {
	ok      bool
	entries []strict.Field[descriptorEntry]
	decoder *strict.Decoder
	report  strict.Report
	warn    strict.Report
}

// list reads the descriptors at the top of a document, pieces of it beside each
// other and their rules in order.
func (r *rulesReader) list(file string, text []byte, items []Item, offset int) bool {
	// In the whole document the list is one level deeper.
	top := &strict.Path{Name: "descriptors"}
	type group struct{ first, n int }
	var groups []group
	for i := 0; i < len(items); {
		n := 1
		for i+n < len(items) && items[i+n].End-items[i].Start <= r.o.Group {
			n++
		}
		if size := items[i+n-1].End - items[i].Start; size > maxRulesTree {
			r.report.Addf(file, offset+items[i].Line, fmt.Sprintf("descriptors[%d]", i), "with those below it this descriptor is larger than %d MiB: spread them over several, or over domains", maxRulesTree>>20)
			return true
		}
		groups = append(groups, group{i, n})
		i += n
	}
	read := func(g group) *piece {
		p := new(piece)
		first, last := items[g.first], items[g.first+g.n-1]
		nodes, err := strict.ParseNodes(text[first.Start:last.End], strict.MaxDepth-1)
		if err != nil || len(nodes) != 1 {
			return p
		}
		list := strict.Root(nodes[0])
		if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) != g.n {
			return p
		}
		p.ok = true
		p.decoder = r.newDecoder(file, offset+first.Line-1, &p.report, &p.warn)
		p.entries = make([]strict.Field[descriptorEntry], g.n)
		for i, n := range list.Content {
			p.entries[i].ReadLocated(p.decoder, n, &strict.Path{Parent: top, Index: g.first + i, Item: n})
		}
		return p
	}
	ok := true
	inOrder(groups, read, func(p *piece) {
		if ok = ok && p.ok; !ok {
			return
		}
		r.report.Join(&p.report)
		r.warn.Join(&p.warn)
		r.decoder = p.decoder
		r.decoder.Report, r.decoder.Warn = r.report, r.warn
		r.entries(trail{}, p.entries)
	})
	return ok
}

// inOrder does something to every item, several at a time, and hands on the
// results in order. It keeps few results: what they take in memory is bounded.
func inOrder[T, R any](items []T, do func(T) R, use func(R)) {
	waiting := make(chan chan R, runtime.GOMAXPROCS(0))
	go func() {
		defer close(waiting)
		for _, item := range items {
			result := make(chan R, 1)
			waiting <- result
			go func() { result <- do(item) }()
		}
	}()
	for result := range waiting {
		use(<-result)
	}
}
