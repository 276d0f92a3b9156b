package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// edge is one item of replaces: a rule replaces the rules of a name.
type edge struct {
	from, to string // from is empty for a rule without a name
	at       Place
	path     string // as text, since it is needed when the nodes are gone
}

// replacement reads one item of replaces.
func (r *rulesReader) replacement(own string, f *strict.Field[replacement]) string {
	name := string(f.Value.Name.Value)
	switch {
	case f.Bad:
	case name == "":
		r.decoder.Problem(f.Value.Name.Spot, "the name of a rule is missing")
	case name == own:
		r.decoder.Problem(f.Value.Name.Spot, "a rule cannot replace itself")
	}
	return name
}

// checkName checks the name of the rule that was added last. A name that is made from a path
// may be the name of another rule, too.
func (r *rulesReader) checkName(f *strict.Field[strict.Blankable], at strict.Spot) {
	all := r.rules.All()
	name, named := all[len(all)-1].Name, string(f.Value)
	if named != "" {
		at = f.Spot
	}
	if named != "" && named != name {
		r.decoder.Warning(at, "headers and metrics call it %s: there a name has only letters, digits and \"_.-\", and at most 64 of them", name)
	}
	first, again := r.domain.names[name]
	switch {
	case !again:
		r.domain.names[name] = Place{r.decoder.File, at.Line}
	case named != "":
		r.decoder.Warning(at, "the rule %s has the same name: headers and metrics cannot tell them apart", first.from(r.decoder.File))
	case slices.ContainsFunc(all[len(all)-1].Path, func(n descriptors.Node) bool { return !n.AnyValue && r.hides(n.Key) }):
		// The name contains the value.
		r.decoder.Warning(at, "the rule %s has the same name: give one of them another", first.from(r.decoder.File))
	default:
		r.decoder.Warning(at, "the rule %s has the same name, %s: give one of them another", first.from(r.decoder.File), name)
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
			at:   Place{r.decoder.File, f.Line},
			path: r.decoder.Render(f.Path),
		})
	}
}

// MaxSuggest bounds the names that are compared with a mistyped name.
const MaxSuggest = 200

// replaced checks the items of replaces of a domain, after all of its files.
func (r *rulesReader) replaced(d *domainReader) {
	if len(d.edges) == 0 {
		return
	}
	var names []string
	if len(d.named) <= MaxSuggest {
		names = slices.Sorted(maps.Keys(d.named))
	}
	c := cycles{out: make(map[string][]int), edges: d.edges, state: make(map[string]int)}
	for i, e := range d.edges {
		if !d.named[e.to] {
			suggestion := ""
			if r.Warn.Count() < strict.MaxProblems {
				suggestion = strict.DidYouMean(e.to, names)
			}
			r.Warn.Addf(e.at.File, e.at.Line, e.path, "no rule of the domain has the name %s%s", strict.Quote(e.to), suggestion)
			continue
		}
		if e.from != "" {
			c.out[e.from] = append(c.out[e.from], i)
		}
	}
	for _, e := range d.edges {
		if e.from != "" && c.state[e.from] == 0 {
			c.visit(e.from, nil)
		}
	}
	for _, cycle := range c.found {
		last := cycle[len(cycle)-1]
		r.Report.Addf(last.at.File, last.at.Line, last.path, "%s", tellCycle(cycle))
	}
}

// cycles finds rules that replace each other in a circle. If a request matched all of them,
// none would count.
type cycles struct {
	edges []edge
	out   map[string][]int // edges by the name of their rule
	state map[string]int
	found [][]edge
}

// States of a name.
const (
	onTheWay = 1
	done     = 2
)

// visit finds the cycles that can be reached from a name and were not found before. way are the edges
// that lead to it.
func (c *cycles) visit(name string, way []int) {
	c.state[name] = onTheWay
	for _, i := range c.out[name] {
		way, e := append(way, i), c.edges[i]
		switch c.state[e.to] {
		case 0:
			c.visit(e.to, way)
		case onTheWay:
			first := len(way) - 1
			for first > 0 && c.edges[way[first]].from != e.to && len(way)-first <= strict.MaxNames {
				first--
			}
			var cycle []edge
			for _, i := range way[first:] {
				cycle = append(cycle, c.edges[i])
			}
			c.found = append(c.found, cycle)
		}
	}
	c.state[name] = done
}

// tellCycle returns a cycle as text. The message is at the place of its last edge.
func tellCycle(cycle []edge) string {
	last := cycle[len(cycle)-1]
	var steps []string
	for _, e := range cycle {
		step := fmt.Sprintf("%s replaces %s", strict.Quote(e.from), strict.Quote(e.to))
		if e != last {
			step += " " + e.at.from(last.at.File)
		}
		steps = append(steps, step)
	}
	if last.to != cycle[0].from {
		steps[0] = "..., " + steps[0]
	}
	return "a cycle: " + strings.Join(steps, ", and ") + ": if all match a request, none of them counts"
}
