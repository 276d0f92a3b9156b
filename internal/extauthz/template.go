package extauthz

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/slidegate/slidegate/internal/tier"
)

// defaultTemplate are the descriptors of a route that has no template.
const defaultTemplate = "api_key;remote_address"

// Bounds of templates: how long one is, and how many are kept. They come from
// the proxy's configuration, so there are few; more are read anew each time.
const (
	maxTemplate  = 4 << 10
	maxTemplates = 256
)

// template is a list of descriptors whose values are filled in for each request.
type template [][]entry

// entry is one entry of a descriptor.
type entry struct {
	key    string
	secret bool // the value is fingerprinted
	value  source
	text   string // of a literal the value, else the name in parentheses
}

// source is where a value comes from.
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

// substitutions are the names of sources in templates. Those that end in a
// parenthesis need a name.
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

// shorthands are names of entries that need no value. Any other is that of a
// value in the context.
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

// parseTemplate reads a template: descriptors separated by semicolons, entries by
// commas, an entry as NAME or NAME=VALUE. An error says where, and repeats no
// literal value: that may be a key.
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

// substitution returns what stands between the percent signs. It begins with a
// capital: two hex digits would be an escape only without the sign at the end.
func substitution(value string) (inner string, ok bool) {
	n := len(value)
	if n < 3 || value[0] != '%' || value[n-1] != '%' || value[1] < 'A' || value[1] > 'Z' {
		return "", false
	}
	return value[1 : n-1], true
}

// templates keeps what was read. The zero value is ready, and safe for concurrent
// use.
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
