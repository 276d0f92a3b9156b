package tiers

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/tier"
)

// This file reads a long list of subjects without a tree of nodes for all of it:
// splitList cuts the text of the list into items, readPlain reads those of the
// usual shape from their lines, and the YAML library reads the others, some at a
// time. The result never differs from that of the whole tree, which FuzzTiers
// checks.

// subjectsKey begins the line that the list follows.
var subjectsKey = []byte("subjects:")

// items adds the subjects that splitList found. ok is false if the library
// does not see the same items, which includes that it sees no YAML: then the
// whole file tells better what is wrong, and what was added is void.
func (t *tiersReader) items(d *strict.Decoder, data []byte, items []rules.Item) (ok bool) {
	top := &strict.Path{Name: "subjects"}
	for i := 0; i < len(items); {
		first := items[i]
		if s, ok := readPlain(data[first.Start:first.End]); ok {
			t.plainSubject(d, &s, first.Line, &strict.Path{Parent: top, Index: i})
			i++
			continue
		}
		n, end := 1, first.End
		for ; i+n < len(items) && items[i+n].End-first.Start <= rules.MaxGroup; n++ {
			next := items[i+n]
			if _, ok := readPlain(data[next.Start:next.End]); ok {
				break
			}
			end = next.End
		}
		// In the whole file the list is one level deeper.
		docs, err := strict.ParseNodes(data[first.Start:end], strict.MaxDepth-1)
		if err != nil || len(docs) != 1 {
			return false
		}
		list := strict.Root(docs[0])
		if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) != n {
			return false
		}
		d.Offset = first.Line - 1
		for j, node := range list.Content {
			var s strict.Field[subject]
			s.ReadLocated(d, node, &strict.Path{Parent: top, Index: i + j, Item: node})
			t.subject(d, &s)
		}
		d.Offset = 0
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
		line, next := strict.LineAt(text, at)
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
func (t *tiersReader) plainSubject(d *strict.Decoder, s *plainSubject, line int, at *strict.Path) {
	spots := subjectSpots{
		id:   strict.Spot{Line: line + s.idLine, Path: &strict.Path{Parent: at, Name: "id"}},
		tier: strict.Spot{Line: line + s.tierLine, Path: &strict.Path{Parent: at, Name: "tier"}},
		keys: make([]strict.Spot, 0, len(s.digestLines)),
	}
	keys := &strict.Path{Parent: at, Name: "keys"}
	for i, n := range s.digestLines {
		spots.keys = append(spots.keys, strict.Spot{Line: line + n, Path: &strict.Path{Parent: keys, Index: i}})
	}
	t.add(d, tier.Subject{ID: s.id, Tier: s.tier, Disabled: s.disabled}, s.digests, spots)
}
