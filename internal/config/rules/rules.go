package rules

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A Location is a line of a file, where a rule stands.
type Location struct {
	File string // or the Source of a [Domain]
	Line int    // zero: the file has no lines
}

// String returns file:line, or file without a line.
func (p Location) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// From returns the location for a message about another line of file.
func (p Location) From(file string) string {
	switch {
	case p.File != file:
		return "in " + strict.Quoteless(p.String())
	case p.Line == 0:
		return "before it"
	default:
		return fmt.Sprintf("on line %d", p.Line)
	}
}

// Options say how [Read] reads rules.
type Options struct {
	Settings settings.Rules
	// Identity says how the rules find the subject of a request. Its Secrets are required.
	Identity rules.Identity
	// OnStoreError is the choice of rules that make none. Zero: that of package rules of the core.
	OnStoreError rules.OnStoreError
	// Tiers are the names that by_tier may use. Nil with TiersKnown: there are no
	// tiers. Without TiersKnown the tiers file is broken, and by_tier is not checked
	// against it.
	Tiers      []string
	TiersKnown bool
	// UsageReports is [rules.Rules.ReportUsage], and QuotaMode [rules.Rules.QuotaAll].
	UsageReports, QuotaMode bool
	// Scopes are the stores that rules can name. The first is that of the region. Nil: there is no
	// other one.
	Scopes []Scope
	// TiersOf is the file rules.tiers_of. Nil: none.
	TiersOf *files.File
	// Report takes the problems, and Warn the warnings.
	Report, Warn *strict.Report
}

// A Scope is a store that rules can name.
type Scope struct {
	Name string
	// MaxLogSlots is how many slots the log of a limit may need. Zero: any number.
	MaxLogSlots int
	// Timeout is how long a reservation may take. A shorter lease gets a warning. Zero: no warning.
	Timeout time.Duration
	// Section is the section of the settings that sets it.
	Section string
	// Cluster is true for a Redis Cluster, on which the logs of two rules are on two slots.
	Cluster bool
}

// Read reads files into one set of rules, and returns the location of each rule in the
// order of [rules.Rules.All]. If it reports a problem, the rules are not complete.
func Read(o Options, sources []files.File) (*rules.Rules, []Location) {
	r := newReader(o)
	for _, src := range sources {
		r.read(src)
	}
	r.finish()
	return r.rules, r.locations
}

func newReader(o Options) *rulesReader {
	if len(o.Scopes) == 0 {
		o.Scopes = []Scope{{Name: settings.ScopeRegion}}
	}
	r := &rulesReader{
		Options: o,
		rules:   rules.NewRules(o.Identity),
		domains: make(map[string]*domainReader),
		budgets: make(map[*budget]*rules.Budget),
	}
	names := make([]string, len(o.Scopes))
	for i := range o.Scopes {
		names[i] = o.Scopes[i].Name
	}
	r.rules.SetScopes(names)
	if o.OnStoreError != rules.StoreErrorUnset {
		r.rules.SetOnStoreError(o.OnStoreError)
	}
	if o.Settings.ShadowMode {
		r.rules.ObserveAll()
	}
	if o.QuotaMode {
		r.rules.QuotaAll()
	}
	if o.UsageReports {
		r.rules.ReportUsage()
	}
	r.readTiersOf()
	return r
}

type rulesReader struct {
	Options
	rules     *rules.Rules
	locations []Location // of the rules

	domains map[string]*domainReader
	order   []*domainReader

	decoder  *strict.Decoder // of what is being read
	domain   *domainReader   // whose rules are being read
	noFile   bool            // it is a Domain
	fallback policyChoice    // of limits that name no policy
	offers   offers          // of the rule that is being read
	scope    Scope           // of the rule that is being read

	givenTiers []givenTiers              // of rules.tiers_of
	budgets    map[*budget]*rules.Budget // those that were read; nil: it has a problem
}

type domainReader struct {
	name    string
	void    bool // its rules are checked, but not kept
	filled  bool // it has descriptors
	at      Location
	headers Location // zero: none were given
	once    Location // of the first charge_once; zero: there is none
	attempt string
	paths   map[descriptors.RuleID]Location
	names   map[string]Location // by the name that headers and metrics show
	named   map[string]bool     // names that replaces can mean
	edges   []edge
}

func (r *rulesReader) read(src files.File) {
	r.Report.File(src.Name)
	r.Warn.File(src.Name)
	docs, problem := strict.Parse(src.Name, src.Data)
	if src.Made {
		strict.WithoutLines(docs, problem)
	}
	if problem != nil {
		r.Report.Add(*problem)
		return
	}
	empty := true
	for _, doc := range docs {
		n := strict.Root(doc)
		if n == nil {
			// A "---" before the first or after the last domain.
			continue
		}
		empty = false
		r.decoder = &strict.Decoder{File: src.Name, Report: r.Report, Warn: r.Warn, Hides: r.hides}
		r.document(n)
	}
	if empty {
		r.Report.Addf(src.Name, 0, "", "the file is empty: it needs a domain and its descriptors")
	}
}

// document reads one domain, or the part of it that a file has.
func (r *rulesReader) document(n *yaml.Node) {
	var doc strict.Field[rulesDoc]
	doc.ReadLocated(r.decoder, n, nil)
	r.begin(&doc.Value)
	r.entries(trail{}, doc.Value.Descriptors)
}

// begin reads all that a domain has except its descriptors.
func (r *rulesReader) begin(doc *rulesDoc) {
	r.domain = r.domainOf(&doc.Domain)
	r.headers(&doc.Headers)
	r.fallback = r.documentPolicy(&doc.Policy)
}

func (r *rulesReader) domainOf(f *strict.Field[string]) *domainReader {
	name := f.Value
	at := Location{r.decoder.File, f.Line}
	other, again := r.domains[name]
	switch {
	case !f.Set, f.Bad:
	case again && r.Settings.MergeDomains:
		return other
	case again:
		r.decoder.Problem(f.Position, "a second domain %s, the first is %s: join them, or set rules.merge_domains", strict.Quote(name), other.at.From(at.File))
	default:
		if err := r.rules.AddDomain(name); err != nil {
			r.decoder.Problem(f.Position, "%s", err)
			break
		}
		d := newDomain(name, at)
		r.domains[name] = d
		r.order = append(r.order, d)
		return d
	}
	// Its rules are checked, so that their problems are reported, too.
	void := newDomain(name, at)
	void.void = true
	r.order = append(r.order, void)
	return void
}

func newDomain(name string, at Location) *domainReader {
	return &domainReader{
		name: name, at: at,
		paths: make(map[descriptors.RuleID]Location),
		names: make(map[string]Location),
		named: make(map[string]bool),
	}
}

func (r *rulesReader) headers(f *strict.Field[[]string]) {
	if !f.Set || f.Bad || f.Null {
		return
	}
	before := r.Report.Count()
	for _, message := range settings.CheckStyles(f.Value) {
		r.decoder.Problem(f.Position, "%s", message)
	}
	d := r.domain
	if d.headers != (Location{}) {
		r.decoder.Problem(f.Position, "the domain already has headers, %s: give them once", d.headers.From(r.decoder.File))
	}
	d.headers = Location{r.decoder.File, f.Line}
	if r.Report.Count() == before && !d.void {
		r.rules.SetHeaders(d.name, f.Value)
	}
}

func (r *rulesReader) finish() {
	r.unusedTiers()
	for _, d := range r.order {
		if !d.filled {
			r.Warn.Addf(d.at.File, d.at.Line, "domain", "no descriptors, so nothing is limited in %s", strict.Quote(d.name))
		}
		r.replaced(d)
		r.together(d)
	}
	for _, i := range r.rules.OpenToOneCaller() {
		at := r.locations[i]
		r.Warn.Addf(at.File, at.Line, "", "one client without an API key can use up %s: add a rule with in_flight and a smaller max for its address, such as [in_flight=address, masked_remote_address]", strict.Quote(r.rules.All()[i].Name))
	}
}
