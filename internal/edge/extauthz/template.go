package extauthz

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// defaultTemplate is the template of a route that has none.
const defaultTemplate = "api_key;remote_address"

const (
	// maxTemplate bounds the length of a template in bytes.
	maxTemplate = 4 << 10
	// maxTemplates bounds how many parsed templates are kept. Operators write few. Further
	// templates are parsed for each request.
	maxTemplates = 256
)

// template is a list of descriptors. Each request fills in their values.
type template [][]entry

// entry is one entry of a descriptor.
type entry struct {
	key      string
	secret   bool // a fingerprint replaces the value
	optional bool // without a value, the descriptor loses only the entry
	value    source
	text     string // the text of fromText, or the name in parentheses
}

type source int

const (
	fromText source = iota
	fromKey
	fromSubject
	fromTier
	fromAddress
	fromMaskedAddress
	fromMethod
	fromPath
	fromHost
	fromHeader
	fromContext
	fromLabel
)

// substitutions are the sources by their names in templates. A name in parentheses follows
// those that end in a parenthesis.
var substitutions = map[string]source{
	"KEY":            fromKey,
	"SUBJECT":        fromSubject,
	"TIER":           fromTier,
	"ADDRESS":        fromAddress,
	"MASKED_ADDRESS": fromMaskedAddress,
	"METHOD":         fromMethod,
	"PATH":           fromPath,
	"HOST":           fromHost,
	"REQ(":           fromHeader,
	"CONTEXT(":       fromContext,
	"LABEL(":         fromLabel,
}

// shorthands are the entries that have a default value. An entry NAME that is not listed
// gets its value from the context.
var shorthands = map[string]source{
	"api_key":               fromKey,
	"subject":               fromSubject,
	"tier":                  fromTier,
	"remote_address":        fromAddress,
	"masked_remote_address": fromMaskedAddress,
	"method":                fromMethod,
	"path":                  fromPath,
	"host":                  fromHost,
}

var errTemplate = errors.New("descriptors")

// parseTemplate parses a template; [Service] describes the syntax. An error names the
// position. It repeats no literal value, which may be an API key.
func parseTemplate(text string, secrets *tier.Secrets) (template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("%w: longer than %d bytes", errTemplate, maxTemplate)
	}
	var t template
	for i, descriptor := range strings.Split(text, ";") {
		var entries []entry
		for j, one := range strings.Split(descriptor, ",") {
			e, err := parseEntry(strings.TrimSpace(one))
			if err != nil {
				return nil, fmt.Errorf("%w: descriptor %d, entry %d: %w", errTemplate, i+1, j+1, err)
			}
			e.secret = secrets.Is(e.key)
			entries = append(entries, e)
		}
		t = append(t, entries)
	}
	return t, nil
}

func parseEntry(text string) (e entry, err error) {
	name, value, ok := strings.Cut(text, "=")
	name, e.optional = strings.CutSuffix(name, "?")
	switch {
	case name == "":
		return e, errors.New("there is no name")
	case strings.Contains(name, "%"):
		return e, errors.New("a % in a name; was a = meant before it?")
	}
	e.key = name
	if !ok {
		if e.value, ok = shorthands[name]; !ok {
			e.value, e.text = fromContext, name
		}
		return e, nil
	}
	inner, isSubstitution := substitution(value)
	if !isSubstitution {
		if strings.Contains(value, "=") {
			return e, errors.New("a second =; write %3D in a value")
		}
		if e.text, err = url.PathUnescape(value); err != nil {
			return e, errors.New("a value is a text, in which % is written %25, or one substitution such as %SUBJECT%")
		}
		return e, nil
	}
	if i := strings.IndexByte(inner, '('); i >= 0 && strings.HasSuffix(inner, ")") {
		inner, e.text = inner[:i+1], inner[i+1:len(inner)-1]
	}
	if e.value, ok = substitutions[inner]; !ok {
		return e, fmt.Errorf("unknown substitution %.40q", inner)
	}
	if strings.HasSuffix(inner, "(") && e.text == "" {
		return e, fmt.Errorf("%%%s)%% needs a name", inner)
	}
	if e.value == fromHeader {
		e.text = strings.ToLower(e.text)
	}
	return e, nil
}

// substitution returns the text between the percent signs of a substitution, which begins
// with a capital. A text that ends in % is not a valid escape, so both cannot be confused.
func substitution(value string) (inner string, ok bool) {
	n := len(value)
	if n < 3 || value[0] != '%' || value[n-1] != '%' || value[1] < 'A' || value[1] > 'Z' {
		return "", false
	}
	return value[1 : n-1], true
}

// templates keeps parsed templates. The zero value is ready. It is safe for concurrent use.
type templates struct {
	mu   sync.RWMutex
	read map[string]template
}

func (ts *templates) get(text string, secrets *tier.Secrets) (template, error) {
	ts.mu.RLock()
	t, ok := ts.read[text]
	ts.mu.RUnlock()
	if ok {
		return t, nil
	}
	t, err := parseTemplate(text, secrets)
	if err != nil {
		return nil, err
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.read == nil {
		ts.read = make(map[string]template)
	}
	if len(ts.read) < maxTemplates {
		ts.read[strings.Clone(text)] = t
	}
	return t, nil
}
