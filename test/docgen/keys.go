package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// A section is the keys of one mapping of a file.
type section struct {
	title, text string
	definition  string // in the schema; empty: the whole file
	without     string // a definition whose keys are elsewhere
	// usual are the keys that come first, in this order. The others follow by name.
	usual string
}

// A schema is a part of a JSON Schema.
type schema struct {
	Definitions, Properties map[string]schema
	Description             string
	Ref                     string `json:"$ref"`
	AnyOf, AllOf            []schema
}

// keysText returns the sections of a page, from the descriptions in the schema of the file.
func keysText(file string, sections []section) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var root schema
	if err := json.Unmarshal(data, &root); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		if s.text != "" {
			b.WriteString(wrap(s.text) + "\n")
		}
		keys := maps.Clone(root.keys(s.definition))
		for name := range root.keys(s.without) {
			if s.without != "" {
				delete(keys, name)
			}
		}
		usual := strings.Fields(s.usual)
		for _, name := range usual {
			key, ok := keys[name]
			if !ok {
				return "", fmt.Errorf("%s: the usual key %s of %s does not exist", file, name, s.title)
			}
			b.WriteString(item("`" + name + "`: " + key.Description))
			delete(keys, name)
		}
		if len(usual) > 0 && len(keys) > 0 {
			b.WriteString("\nFor experts:\n\n")
		}
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			b.WriteString(item("`" + name + "`: " + keys[name].Description))
		}
	}
	return b.String(), nil
}

// keys returns the keys of a definition, or of the whole file.
func (s schema) keys(definition string) map[string]schema {
	if definition == "" {
		return s.Properties
	}
	d := s.Definitions[definition]
	for _, form := range d.AnyOf {
		if form.Properties != nil {
			return form.Properties
		}
	}
	return d.Properties
}

// rulesText returns the page of the keys of rules.
func rulesText() (string, error) {
	keys, err := keysText("docs/rules.schema.json", []section{
		{title: "The file", usual: "domain descriptors policy"},
		{
			title: "A descriptor", definition: "descriptorEntry", usual: "key value rate_limit descriptors shadow_mode",
			text: "White space at both ends of a value is ignored. Addresses are the same in each spelling. A `*` cannot match a part of an API key.",
		},
		{
			title: "`rate_limit`", definition: "rateLimit", without: "limit", usual: "name limits by_tier unlimited subject on_store_error replaces cost observe body content_type",
			text: "The keys of a limit are next to these keys, or in `limits` and `by_tier`.",
		},
		{
			title: "A limit", definition: "limit", usual: "unit requests_per_unit window requests policy rate burst time_zone starts starts_label max hold",
			text: "`policy`, `precision`, `lease`, `time_zone`, `starts`, `starts_label`, `hold`, `budget` and `currency` may also be next to `limits` or `by_tier`, for each limit without them. With `fixed`, windows begin at multiples of their length since 1970-01-01 UTC: a day at midnight, a week on Thursday.",
		},
		{title: "`starts`", definition: "starts"},
		{title: "`budget`", definition: "budget"},
		{title: "`charge_once`", definition: "chargeOnce"},
		{title: "`replaces`", definition: "replacement"},
	})
	if err != nil {
		return "", err
	}
	return fill(written("rules"), map[string]string{"KEYS": keys})
}

// testsText returns the page of the keys of tests.
func testsText() (string, error) {
	keys, err := keysText("docs/tests.schema.json", []section{
		{title: "The file", usual: "rules tiers tests domain start"},
		{title: "A test", definition: "test", usual: "name request steps"},
		{
			title: "A step", definition: "step", usual: "descriptors at times every for expect cost subject tier domain stream end",
			text: "One request, or the same request several times. Steps that overlap in time are callers at once.",
		},
		{
			title: "`expect`", definition: "expect", usual: "allowed denied rule limit remaining retry_after reset tier subject shadow headers",
			text: "Keys other than `allowed` and `denied` are about the last request of the step.",
		},
		{
			title: "A descriptor", definition: "descriptor", usual: "entries cost limit",
			text: "A text with the entries, or a mapping:",
		},
		{title: "`limit` of a descriptor", definition: "limit"},
	})
	if err != nil {
		return "", err
	}
	return fill(written("tests"), map[string]string{"KEYS": keys})
}
