package insight

import (
	"context"
	"iter"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/tier"
)

const (
	// maxSuggestions is the most names of [Insight.Suggest].
	maxSuggestions = 10
	// maxCompared is how many known ids are compared with a typed text.
	maxCompared = 100_000
)

// Typed returns the query for a text that a person typed: for a digest, an address, or the id of a
// subject.
func Typed(text string) Query {
	text = strings.TrimSpace(text)
	if digest, err := tier.ReadDigest(text); err == nil {
		return Query{Digest: digest}
	}
	if a := Address(text); a != "" {
		return Query{Address: a}
	}
	return Query{Subject: text}
}

// A Found is what a typed text names. At most one field is set.
type Found struct {
	// Query is for a subject, an address or an API key.
	Query Query
	// RequestID is the id of a request that was denied, and Rule the name of a rule.
	RequestID, Rule string
}

// Search finds what a typed text names. An unknown API key is found if it has used something or was
// denied.
func (i *Insight) Search(ctx context.Context, text string) Found {
	text = strings.TrimSpace(text)
	if q, ok := i.Find(ctx, Typed(text), text); ok {
		return Found{Query: q}
	}
	key := Query{Digest: i.opts.Secrets.Digest(text)}
	if q, ok := i.Find(ctx, key, key.Digest); ok {
		return Found{Query: q}
	}
	if all := i.Denials(Filter{Request: text, Limit: 1}).Denials; len(all) > 0 {
		return Found{RequestID: all[0].RequestID}
	}
	if hasRule(i.opts.Rules(), text) {
		return Found{Rule: text}
	}
	return Found{}
}

// Suggest returns at most 10 ids of known subjects that a typed text may mean: those that begin with
// it, then those that are spelled alike.
func (i *Insight) Suggest(text string) []string {
	return strict.Suggest(strings.TrimSpace(text), i.ids(), maxSuggestions)
}

// ids iterates over known ids of subjects: of denied ones, and of those in the tiers. One may come twice.
func (i *Insight) ids() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, d := range i.Denials(Filter{Limit: maxCompared}).Denials {
			if d.Subject != "" && !yield(d.Subject) {
				return
			}
		}
		if i.opts.Tiers == nil {
			return
		}
		n := 0
		for s := range i.opts.Tiers.Known() {
			if n++; n > maxCompared || !yield(s.ID) {
				return
			}
		}
	}
}

// unrecognized says that an id is not recognized. It does not repeat the id.
func (i *Insight) unrecognized(s *subject) string {
	text := "no such customer: the tiers do not have it, it has used nothing, and it was not denied"
	if hasRule(s.rules, s.query.Subject) {
		text += "; a rule has this name"
	}
	if all := i.Suggest(s.query.Subject); len(all) > 0 {
		text += "; did you mean " + strict.SomeNames(all) + "?"
	}
	return text
}
