package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/history"
)

// rulesPerPage bounds the rules of one page.
const rulesPerPage = 100

// maxLinked bounds the text in an address of a page, in bytes.
const maxLinked = 256

// rulePage is the content of the page of rules.
type rulePage struct {
	Active admin.Active
	// Text, Rule and Only choose rules: those that contain a text, those with a name, and those
	// with denials, with hits near the limit, or with observed denials.
	Text, Rule, Only string
	// Unmatched is true if no rule has the typed text, which is then not shown.
	Unmatched bool
	Domains   []ruleDomain
	// Chosen is the number of rules that are chosen, and First the number of the first shown.
	Chosen, First, Last int
	Previous, Next      string
}

// A ruleDomain has the shown rules of one domain.
type ruleDomain struct {
	Name  string
	Rules []ruleLine
}

// A ruleLine is one rule.
type ruleLine struct {
	admin.Rule
	// Depth is the number of rules before this one whose path is the beginning of its path, up to
	// 4.
	Depth int
	Rate  *glance.RuleRate
}

func (p rulePage) address(from int) string {
	first := ""
	if from > 0 {
		first = strconv.Itoa(from)
	}
	return address("/rules", "text", p.Text, "rule", p.Rule, "only", p.Only, "from", first)
}

// With returns the address of the page with another choice.
func (p rulePage) With(only string) string { p.Only = only; return p.address(0) }

func (c *Console) rules(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p := rulePage{Active: c.opts.Active(), Unmatched: q.Has("unmatched")}
	p.choose(q.Get)
	if p.Text != "" && (len(p.Text) > maxLinked || !p.has(p.Text)) {
		p.Text, p.Unmatched = "", true
	}
	if p.Rule != "" && c.ruleName(p.Rule) == "" {
		p.Rule, p.Unmatched = "", true
	}
	from, _ := strconv.Atoi(q.Get("from")) // a malformed number means the first page
	s := c.stateOfAll(r.Context())
	p.fill(s.Rates.Rules, from)
	v := view{Page: "rules", Title: "Rules", Refresh: 5, State: &s, Instances: s.Instances, Data: p}
	if p.Rule != "" {
		v.Past = c.past(r.Context(), history.Query{Rule: p.Rule})
	}
	c.show(w, r, http.StatusOK, v)
}

// filterRules redirects to the page of the rules that a form chooses.
func (c *Console) filterRules(w http.ResponseWriter, r *http.Request) {
	p := rulePage{Active: c.opts.Active()}
	p.choose(r.PostForm.Get)
	p.Rule = ""
	target := p.address(0)
	if p.Text != "" && (len(p.Text) > maxLinked || !p.has(p.Text)) {
		target = "/rules?unmatched"
	}
	seeOther(w, target)
}

func (p *rulePage) choose(get func(string) string) {
	p.Text, p.Rule = strings.TrimSpace(get("text")), get("rule")
	if only := get("only"); slices.Contains([]string{"denials", "near", "observed"}, only) {
		p.Only = only
	}
}

func (p *rulePage) has(text string) bool {
	return slices.ContainsFunc(p.Active.Rules, func(r admin.Rule) bool { return r.Has(text) })
}

// fill finds the rules of the page that begins with the rule from.
func (p *rulePage) fill(rates []glance.RuleRate, from int) {
	byName := make(map[[2]string]*glance.RuleRate, len(rates))
	for i := range rates {
		byName[[2]string{rates[i].Domain, rates[i].Rule}] = &rates[i]
	}
	var chosen []ruleLine
	for _, r := range p.Active.Rules {
		rate := byName[[2]string{r.Domain, r.Name}]
		if p.Text != "" && !r.Has(p.Text) || p.Rule != "" && r.Name != p.Rule || !p.chosen(rate) {
			continue
		}
		chosen = append(chosen, ruleLine{Rule: r, Rate: rate})
	}
	p.Chosen = len(chosen)
	if from < 0 || from >= len(chosen) {
		from = 0
	}
	end := min(from+rulesPerPage, len(chosen))
	p.First, p.Last = from+1, end
	if from > 0 {
		p.Previous = p.address(max(from-rulesPerPage, 0))
	}
	if end < len(chosen) {
		p.Next = p.address(end)
	}
	var above [][]string // the paths that the path of the next rule may continue
	for _, line := range chosen[from:end] {
		if len(p.Domains) == 0 || p.Domains[len(p.Domains)-1].Name != line.Domain {
			p.Domains = append(p.Domains, ruleDomain{Name: line.Domain})
			above = nil
		}
		for len(above) > 0 && !begins(line.Entries, above[len(above)-1]) {
			above = above[:len(above)-1]
		}
		line.Depth = min(len(above), 4)
		above = append(above, line.Entries)
		d := &p.Domains[len(p.Domains)-1]
		d.Rules = append(d.Rules, line)
	}
}

// begins reports whether a path begins with another one and is longer.
func begins(path, with []string) bool {
	return len(path) > len(with) && slices.Equal(path[:len(with)], with)
}

func (p *rulePage) chosen(rate *glance.RuleRate) bool {
	switch p.Only {
	case "denials":
		return rate != nil && slices.ContainsFunc(rate.Denials, func(v float64) bool { return v > 0 })
	case "near":
		return rate != nil && rate.Near > 0
	case "observed":
		return rate != nil && rate.Shadow > 0
	}
	return true
}
