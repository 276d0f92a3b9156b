package config

import (
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A Place is a line of a file.
type Place struct {
	File string
	Line int
}

// String returns file:line.
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// from names the place in a message about another place.
func (p Place) from(file string) string {
	if p.File == file {
		return fmt.Sprintf("on line %d", p.Line)
	}
	return "in " + quoteless(p.File) + fmt.Sprintf(":%d", p.Line)
}

// lineMark is a Place in few bytes, of which there are as many as rules.
type lineMark struct{ file, line int32 }

func (r *rulesReader) mark(s spot) lineMark {
	// A file has at most as many lines as bytes, and there are fewer files.
	return lineMark{file: int32(len(r.files) - 1), line: int32(s.line)}
}

func (r *rulesReader) place(m lineMark) Place { return Place{r.files[m.file], int(m.line)} }

// rulesReader turns rules files into rules.
type rulesReader struct {
	settings *Rules
	report   *report
	warn     *report
	secrets  *tier.Secrets
	rules    *policy.Rules
	places   []Place // of the rules
	// tiers are the names that by_tier may use. Nil with tiersKnown: there are
	// no tiers. Without tiersKnown the tiers file is broken, and what depends on
	// it is not judged.
	tiers      []string
	tiersKnown bool
	// maxLogSlots is how many slots the log of a limit may need. Zero: any number.
	maxLogSlots int

	files   []string // that were begun
	domains map[string]*domainReader
	order   []*domainReader
	keys    map[string]bool // descriptor keys that were judged: is it a suspect?

	decoder *decoder      // of what is being read
	domain  *domainReader // whose rules are being read
}

// domainReader is what is known of one domain across its files.
type domainReader struct {
	name    string
	void    bool // its rules are judged, but cannot be kept
	filled  bool // it has descriptors
	at      Place
	headers Place // zero: none were given
	paths   map[descriptors.RuleID]lineMark
	names   map[string]lineMark // by the name that headers and metrics show
	named   map[string]bool     // names that replaces can mean
	edges   []edge
}

// read reads one file and reports its problems.
func (r *rulesReader) read(src source) {
	r.report.file(src.name)
	r.warn.file(src.name)
	r.files = append(r.files, src.name)
	docs, problem := parse(src.name, src.data)
	if problem != nil {
		r.report.add(*problem)
		return
	}
	empty := true
	for _, doc := range docs {
		n := root(doc)
		if n == nil {
			// A "---" before the first or after the last domain.
			continue
		}
		empty = false
		r.decoder = &decoder{file: src.name, report: r.report, warn: r.warn, hides: r.hides}
		r.document(n)
	}
	if empty {
		r.report.addf(src.name, 0, "", "the file is empty: it needs a domain and its descriptors")
	}
}

// document reads one domain, or the part of it that a file has.
func (r *rulesReader) document(n *yaml.Node) {
	var doc field[rulesDoc]
	doc.readLocated(r.decoder, n, nil)
	r.head(&doc.value)
	r.entries(trail{}, doc.value.Descriptors)
}

// head reads what a document says of its domain, and so which one it is.
func (r *rulesReader) head(doc *rulesDoc) {
	r.domain = r.domainOf(&doc.Domain)
	r.headers(&doc.Headers)
}

func (r *rulesReader) domainOf(f *field[string]) *domainReader {
	name := f.value
	at := Place{r.decoder.file, f.line}
	other, again := r.domains[name]
	switch {
	case !f.set, f.bad:
	case name == "":
		r.decoder.problem(f.spot, "a domain needs a name")
	case strings.ContainsFunc(name, unicode.IsControl):
		r.decoder.problem(f.spot, "a domain cannot hold control characters")
	case again && r.settings.MergeDomains:
		return other
	case again:
		r.decoder.problem(f.spot, "a second domain %s, the first is %s: a domain stands in one place, unless rules.merge_domains joins them", quote(name), other.at.from(at.File))
	default:
		d := newDomain(name, at)
		r.domains[name] = d
		r.order = append(r.order, d)
		if err := r.rules.AddDomain(name); err != nil {
			r.decoder.problem(f.spot, "%s", err)
		}
		return d
	}
	// Its rules are judged all the same.
	void := newDomain(name, at)
	void.void = true
	r.order = append(r.order, void)
	return void
}

func newDomain(name string, at Place) *domainReader {
	return &domainReader{
		name: name, at: at,
		paths: make(map[descriptors.RuleID]lineMark),
		names: make(map[string]lineMark),
		named: make(map[string]bool),
	}
}

// headers reads the styles of the domain's answers.
func (r *rulesReader) headers(f *field[[]string]) {
	if !f.set || f.bad || f.null {
		return
	}
	before := r.report.count()
	for _, message := range checkStyles(f.value) {
		r.decoder.problem(f.spot, "%s", message)
	}
	d := r.domain
	if d.headers != (Place{}) {
		r.decoder.problem(f.spot, "the domain has headers already, %s", d.headers.from(r.decoder.file))
	}
	d.headers = Place{r.decoder.file, f.line}
	if r.report.count() == before && !d.void {
		r.rules.SetHeaders(d.name, f.value)
	}
}

// finish judges what only all files together tell.
func (r *rulesReader) finish() {
	for _, d := range r.order {
		if !d.filled {
			r.warn.addf(d.at.File, d.at.Line, "domain", "no descriptors, so nothing is limited in %s", quote(d.name))
		}
		r.replaced(d)
	}
}
