package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// parseNodes returns a tree of nodes for each YAML document. It refuses documents that
// nest deeper than maxDepth levels.
func parseNodes(data []byte) (docs []*yaml.Node, err error) {
	// The library recovers from its own panics for malformed input, but not from others. A
	// bug in it must not end the service on a reload.
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

// Root returns the value of a document, or nil if the document is empty.
func Root(doc *yaml.Node) *yaml.Node {
	n := doc
	if n.Kind == yaml.DocumentNode {
		if len(n.Content) == 0 {
			return nil
		}
		n = n.Content[0]
	}
	if IsNull(n) {
		return nil
	}
	return n
}

// Document parses a file that holds one YAML document, and returns its value. what names such a file,
// and needs what it must have; empty: nothing. Document reports what is wrong. It returns nil then, and
// for an empty document.
func Document(file string, data []byte, report *Report, what, needs string) *yaml.Node {
	docs, problem := Parse(file, data)
	switch {
	case problem != nil:
		report.Add(*problem)
	case len(docs) > 1:
		report.Addf(file, docs[1].Line, "", "%s holds one YAML document, this is a second one: remove it, or put it into another file", what)
	case len(docs) == 1 && Root(docs[0]) != nil:
		return Root(docs[0])
	case needs != "":
		report.Addf(file, 0, "", "the file is empty: it needs %s", needs)
	}
	return nil
}

// Parse parses a file into one document node for each YAML document. A file
// that is not YAML is one problem.
func Parse(file string, data []byte) ([]*yaml.Node, *Problem) {
	docs, err := parseNodes(data)
	if err == nil {
		return docs, nil
	}
	p := notYAML(data, err)
	p.File = file
	return nil, &p
}

// Parts returns an upper bound of the keys and items of lists in a YAML text. The text has at most
// three values for each, and three more. Counting takes a hundredth of the time of [Parse], and no
// memory.
func Parts(data []byte) (parts int) {
	for i, c := range data {
		switch c {
		case ':', ',', '[', '{':
			parts++
		case '-', '?', '.': // of an item, a key, or the end of a document
			// The next byte may begin a line break of Unicode, or be half a character of UTF-16.
			if i+1 == len(data) || data[i+1] <= ' ' || data[i+1] >= utf8.RuneSelf {
				parts++
			}
		}
	}
	return parts
}

var topKey = regexp.MustCompile(`(?m)^["']?([a-z_]+)["']?[ \t]*:`)

// TopKeys returns the keys at the top of the first document, and those of them whose
// value is a mapping. If the text is not valid YAML, it returns the words that look like
// such keys, and no mappings.
func TopKeys(data []byte) (keys, mappings []string) {
	docs, err := parseNodes(data)
	if err != nil || len(docs) == 0 {
		for _, m := range topKey.FindAllSubmatch(data, -1) {
			keys = append(keys, string(m[1]))
		}
		return keys, nil
	}
	n := Root(docs[0])
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		keys = append(keys, n.Content[i].Value)
		if n.Content[i+1].Kind == yaml.MappingNode {
			mappings = append(mappings, n.Content[i].Value)
		}
	}
	return keys, mappings
}

// WithoutLines removes the lines and columns from what [Parse] returned.
func WithoutLines(docs []*yaml.Node, problem *Problem) {
	if problem != nil {
		problem.Line = 0
	}
	for _, n := range docs {
		n.Line, n.Column = 0, 0
		WithoutLines(n.Content, nil)
	}
}

// notYAML turns an error of the YAML library into advice. It repeats neither the file nor the
// library's message, which may quote the file: any text of it may be secret.
func notYAML(data []byte, err error) Problem {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		return Problem{Message: "not YAML: the parser failed on this file"}
	}
	line := e.Mark.Line
	if line == 0 {
		return notText(data)
	}
	if indentedByTab(data, line) {
		return Problem{Line: line, Message: "not YAML: a tab indents this line; indent it with spaces"}
	}
	for _, a := range syntaxAdvice {
		if !strings.Contains(e.Message, a.message) || !strings.Contains(e.ContextMsg, a.context) {
			continue
		}
		if a.opens {
			line = e.ContextMark.Line
		}
		return Problem{Line: line, Message: "not YAML: " + a.advice}
	}
	return Problem{Line: line, Message: "not YAML: check the indentation, the quotes and the brackets of this line and of the line above"}
}

// syntaxAdvice is advice by parts of a message of the YAML library and of its context. The
// first match counts. opens: the problem is where the context begins.
var syntaxAdvice = []struct {
	message, context string
	opens            bool
	advice           string
}{
	{message: "unexpected end of stream", context: "quoted", opens: true, advice: "the quote that opens on this line is never closed; close it"},
	{message: "unexpected document indicator", context: "quoted", opens: true, advice: "the quote that opens on this line is never closed; close it"},
	{message: "unknown escape", advice: `a backslash in double quotes begins an escape that YAML does not know; use single quotes, or write \\`},
	{message: "hexadecimal number", advice: `a backslash in double quotes begins an escape that YAML does not know; use single quotes, or write \\`},
	{message: "',' or ']'", opens: true, advice: "the [ that opens on this line is not closed, or a comma is missing after it"},
	{message: "',' or '}'", opens: true, advice: "the { that opens on this line is not closed, or a comma is missing after it"},
	{message: "tab character", advice: "a tab indents this line; indent it with spaces"},
	{message: "mapping values are not allowed", advice: `": " is where no key can be; indent the line like its neighbours, or quote a value that holds ": "`},
	{message: "could not find expected ':'", advice: `a key without ": "; write "key: value", and indent the line like its neighbours`},
	{message: "block sequence entries", advice: `"- " begins an item of a list, which cannot follow a key on the same line; put it on the next line`},
	{message: "expected '-'", advice: `expected "- ", for the next item of the list; indent the line like its neighbours`},
	{message: "expected key", advice: "expected a key; indent the line like its neighbours, and write nothing after a closing quote"},
	{message: "expected node content", advice: "a value is missing, or a closing bracket has no opening one; quote a text that begins with a bracket"},
	{message: "cannot start any token", advice: "a text cannot begin with @, % or a backtick; quote it"},
	{message: "directive", advice: "a line that begins with % is a directive of YAML; quote the text"},
	{context: "directive", advice: "a line that begins with % is a directive of YAML; quote the text"},
	{message: "unknown anchor", advice: `unknown anchor; quote a text that begins with "*"`},
	{message: "alphabetic or numeric", advice: `an anchor without a name; quote a text that begins with "&" or "*"`},
	{message: "tag", advice: `quote a text that begins with "!"`},
	{context: "tag", advice: `quote a text that begins with "!"`},
	{message: "comment or line break", advice: `the text of a "|" or ">" begins on the next line`},
	{message: "max depth", advice: "nested too deeply; a file has some ten levels"},
}

// indentedByTab reports whether the indentation of a line, counted from 1, has a
// tab.
func indentedByTab(data []byte, line int) bool {
	lines := bytes.SplitN(data, []byte("\n"), line+1)
	if len(lines) < line {
		return false
	}
	text := lines[line-1]
	return bytes.IndexByte(text[:len(text)-len(bytes.TrimLeft(text, " \t"))], '\t') >= 0
}

// notText finds the first character of a file that YAML does not allow.
func notText(data []byte) Problem {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		switch {
		case r == utf8.RuneError && size <= 1:
			return Problem{Line: lineOf(data, at), Message: "not YAML: not UTF-8; save the file as UTF-8"}
		case unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' && r != '\u0085':
			return Problem{Line: lineOf(data, at), Message: "not YAML: a control character; remove it, or write an escape such as \\u0007 in double quotes"}
		}
		at += size
	}
	return Problem{Message: "not YAML: a character that YAML does not allow; save the file as UTF-8"}
}

func lineOf(data []byte, at int) int { return 1 + bytes.Count(data[:at], []byte("\n")) }
