package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
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

// topKey matches a key at the top of a document in block style.
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
