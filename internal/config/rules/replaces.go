package rules

import (
	"maps"
	"slices"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// edge is one item of replaces: a rule replaces the rules of a name.
type edge struct {
	from, to string // from is empty for a rule without a name
	at       Location
	path     string // as text, since it is needed when the nodes are gone
}

func (r *rulesReader) replacement(rule string, f *strict.Field[replacement]) string {
	name := string(f.Value.Name.Value)
	switch {
	case f.Bad:
	case name == "":
		r.decoder.Problem(f.Value.Name.Position, "the name of a rule is missing")
	case name == rule:
		r.decoder.Problem(f.Value.Name.Position, "a rule cannot replace itself")
	}
	return name
}

// checkName checks the name of the rule that was added last. A name that is made from a path
// may be the name of another rule, too.
func (r *rulesReader) checkName(f *strict.Field[strict.Blankable], at strict.Position) {
	all := r.rules.All()
	name, named := all[len(all)-1].Name, string(f.Value)
	if named != "" {
		at = f.Position
	}
	if named != "" && named != name {
		r.decoder.Warning(at, "headers and metrics call it %s: there a name has only letters, digits and \"_.-\", and at most 64 of them", name)
	}
	first, again := r.domain.names[name]
	switch {
	case !again:
		r.domain.names[name] = Location{r.decoder.File, at.Line}
	case named != "":
		r.decoder.Warning(at, "the rule %s has the same name: headers and metrics cannot distinguish them", first.From(r.decoder.File))
	case slices.ContainsFunc(all[len(all)-1].Path, func(n descriptors.Node) bool { return !n.AnyValue && r.hides(n.Key) }):
		// The name contains the value.
		r.decoder.Warning(at, "the rule %s has the same name: give one of them another", first.From(r.decoder.File))
	default:
		r.decoder.Warning(at, "the rule %s has the same name, %s: give one of them another", first.From(r.decoder.File), name)
	}
}

// replaces keeps the name of a rule and the names that it replaces. A rule that replaces
// itself or an empty name is reported elsewhere.
func (r *rulesReader) replaces(v *rateLimit) {
	if v.Name.Value != "" {
		r.domain.named[string(v.Name.Value)] = true
	}
	for i := range v.Replaces.Value {
		f := &v.Replaces.Value[i].Value.Name
		if f.Value == "" || f.Value == v.Name.Value {
			continue
		}
		r.domain.edges = append(r.domain.edges, edge{
			from: string(v.Name.Value),
			to:   string(f.Value),
			at:   Location{r.decoder.File, f.Line},
			path: r.decoder.Render(f.Path),
		})
	}
}

// MaxSuggest bounds the names that are compared with a mistyped name.
const MaxSuggest = 200

func (r *rulesReader) replaced(d *domainReader) {
	if len(d.edges) == 0 {
		return
	}
	var names []string
	if len(d.named) <= MaxSuggest {
		names = slices.Sorted(maps.Keys(d.named))
	}
	var known []edge
	for _, e := range d.edges {
		if !d.named[e.to] {
			suggestion := ""
			if r.Warn.Count() < strict.MaxProblems {
				suggestion = strict.DidYouMean(e.to, names)
			}
			r.Warn.Addf(e.at.File, e.at.Line, e.path, "no rule of the domain has the name %s%s", strict.Quote(e.to), suggestion)
		} else if e.from != "" {
			known = append(known, e)
		}
	}
	from, to := func(e edge) string { return e.from }, func(e edge) string { return e.to }
	for _, e := range leadingOn(leadingOn(known, from, to), to, from) {
		r.Report.Addf(e.at.File, e.at.Line, e.path, "a cycle: %s replaces %s in a cycle, or between two: if all rules of a cycle match a request, none of them counts",
			strict.Quote(e.from), strict.Quote(e.to))
	}
}

// leadingOn returns the edges after which others follow without end: those of cycles, and those that
// lead to one.
func leadingOn(edges []edge, from, to func(edge) string) (left []edge) {
	out, into := make(map[string]int), make(map[string][]int)
	for i, e := range edges {
		out[from(e)]++
		into[to(e)] = append(into[to(e)], i)
	}
	var ends []string // names that replace none
	for name := range into {
		if out[name] == 0 {
			ends = append(ends, name)
		}
	}
	gone := make(map[int]bool)
	for len(ends) > 0 {
		name := ends[len(ends)-1]
		ends = ends[:len(ends)-1]
		for _, i := range into[name] {
			gone[i] = true
			before := from(edges[i])
			if out[before]--; out[before] == 0 {
				ends = append(ends, before)
			}
		}
	}
	for i, e := range edges {
		if !gone[i] {
			left = append(left, e)
		}
	}
	return left
}
