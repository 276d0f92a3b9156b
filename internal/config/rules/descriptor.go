package rules

import (
	"slices"
	"strings"
	"unicode"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier/apikey"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// trail is the way from the top of a domain down to a descriptor.
type trail struct {
	path   []descriptors.Node
	oneLog []bool // levels with share_threshold; nil: none
	value  []bool // levels with value_to_metric; nil: none
}

func (t trail) then(n descriptors.Node, e *descriptorEntry) trail {
	return trail{
		path:   append(slices.Clip(t.path), n),
		oneLog: mark(t.oneLog, len(t.path), bool(e.ShareThreshold.Value)),
		value:  mark(t.value, len(t.path), bool(e.ValueToMetric.Value)),
	}
}

// mark returns the marks of levels with that of one more.
func mark(levels []bool, level int, set bool) []bool {
	if !set && levels == nil {
		return nil
	}
	marked := make([]bool, level+1)
	copy(marked, levels)
	marked[level] = set
	return marked
}

func (r *rulesReader) entries(above trail, entries []strict.Field[descriptorEntry]) {
	for i := range entries {
		r.entry(above, &entries[i])
	}
}

func (r *rulesReader) entry(above trail, f *strict.Field[descriptorEntry]) {
	r.domain.filled = true
	e := &f.Value
	node, ok := r.node(e)
	at := above.then(node, e)
	if ok {
		id := descriptors.NewRuleID(r.domain.name, r.rules.CanonicalPath(at.path))
		if first, again := r.domain.paths[id]; again {
			r.decoder.Problem(f.Position, "a second descriptor like the one %s: put both into one", first.From(r.decoder.File))
			ok = false
		} else {
			r.domain.paths[id] = Location{r.decoder.File, f.Line}
		}
	}
	// A leaf without a limit is a rule too: it keeps its value from the rule for
	// the key alone.
	if e.RateLimit.Set && !e.RateLimit.Null || len(e.Descriptors) == 0 {
		r.rule(at, f, ok)
	}
	r.idle(e)
	r.entries(at, e.Descriptors)
}

func (r *rulesReader) idle(e *descriptorEntry) {
	if e.RateLimit.Set && !e.RateLimit.Null {
		return
	}
	if r.noFile {
		return // a server sets shadow_mode on every level
	}
	if e.RateLimit.Null {
		r.decoder.Warning(e.RateLimit.Position, "no value, so nothing is limited here: if you want that, remove the key")
	}
	for _, f := range []struct {
		name string
		*strict.Field[strict.Truth]
	}{{"shadow_mode", &e.ShadowMode}, {"quota_mode", &e.QuotaMode}} {
		if f.Value {
			r.decoder.Warning(f.Position, "no effect: %s is for a rate_limit of this descriptor, which has none", f.name)
		}
	}
}

func (r *rulesReader) node(e *descriptorEntry) (descriptors.Node, bool) {
	key, value := e.Key.Value, string(e.Value.Value)
	n := descriptors.Node{Key: key, Value: value, AnyValue: value == "", Pattern: strings.Contains(value, descriptors.Wildcard)}
	ok := e.Key.Set && !e.Key.Bad && !e.Value.Bad
	if e.Key.Set && !e.Key.Bad && key == "" {
		r.decoder.Problem(e.Key.Position, "a descriptor key cannot be empty")
		ok = false
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		r.decoder.Problem(e.Key.Position, "a descriptor key cannot hold control characters")
		ok = false
	}
	if apikey.LooksSecret(key) && !r.Identity.Secrets.Is(key) {
		r.decoder.Warning(e.Key.Position, "if its values are API keys, add %s to secrets.entries: without that, rls keeps them in plain text and finds no subject for them", strict.Quote(key))
	}
	// Envoy Gateway ends the key of a route for every host with *.
	if strings.Contains(key, descriptors.Wildcard) && !r.noFile {
		r.decoder.Warning(e.Key.Position, "* is a wildcard in values only: this is a key with that character")
	}
	secret := r.Identity.Secrets.Is(key)
	switch {
	case e.Value.Set && !e.Value.Bad && value == "":
		r.decoder.Warning(e.Value.Position, "an empty value means any value: if you want that, remove the key")
	case secret && n.Pattern:
		if strings.Trim(value, descriptors.Wildcard) != "" {
			r.decoder.Problem(e.Value.Position, "the values of %s are API keys, kept as digests: a wildcard cannot match a part of one", strict.Quoteless(key))
			ok = false
		}
	case secret && value != "":
		r.decoder.Warning(e.Value.Position, "an API key in plain text: add it to a subject of the tiers file, and give its tier a limit")
	}
	if problem := rules.AddressProblem(n); problem != "" && !secret {
		r.decoder.Warning(e.Value.Position, "%s", problem)
	}
	if bool(e.ShareThreshold.Value) && !n.Pattern && !e.Value.Bad {
		r.decoder.Problem(e.ShareThreshold.Position, "share_threshold needs a value with a wildcard (*)")
		ok = false
	}
	return n, ok
}

func (r *rulesReader) hides(key string) bool { return r.Identity.Secrets.Hides(key) }
