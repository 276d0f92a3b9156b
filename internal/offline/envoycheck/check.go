package envoycheck

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Options say what the operator knows of Envoy.
type Options struct {
	// Listeners are the names of the listeners to check. Empty: those that ask rls, and others that
	// serve the same.
	Listeners []string
	// Edge is true if clients connect to this Envoy without a proxy in between that is trusted.
	Edge bool
	// Complete is true if this is the only Envoy of the rules.
	Complete bool
	// Hops is how many trusted proxies stand in front of Envoy. Negative: unknown.
	Hops int
	// Probe sends requests to Envoy.
	Probe Prober
}

// input is what the checks look at, and what they find.
type input struct {
	*envoydump.Seen
	chosen
	service  *Service
	options  Options
	findings []Finding
	unread   []string
	broken   []string // how calls of rls have failed
	probed   []*Probed
	all      []*site
	domains  map[string]*descriptors.Tree[*Rule]
	matched  map[string][]*Rule // by domain and descriptor
}

// chosen is what is to be checked.
type chosen struct {
	sites    []*site
	managers []*manager // of sites, and so on
	limits   []*limitFilter
	routes   []*route
	sends    []*sent
}

// notRead adds what a check cannot read, so that a person does not take it for right.
func (in *input) notRead(format string, args ...any) {
	in.unread = append(in.unread, fmt.Sprintf(format, args...))
}

// report adds a finding with a message. The caller may change it until the next one.
func (in *input) report(k kind, where, format string, args ...any) *Finding {
	in.findings = append(in.findings, Finding{k.severity, k.code, where, fmt.Sprintf(format, args...), k.passes, k.fix})
	return &in.findings[len(in.findings)-1]
}

// reportSent is report for a descriptor. Unless the kind says otherwise, the requests pass that only this
// descriptor limits.
func (in *input) reportSent(k kind, s *sent, format string, args ...any) *Finding {
	f := in.report(k, s.route.where, format, args...)
	f.Passes = cmp.Or(f.Passes, "requests that only "+s.text+" limits")
	return f
}

// A Report is the result, and the document of --json.
type Report struct {
	Findings []Finding `json:"findings"`
	// Proven is the sentence that a report without errors stands for.
	Proven  string    `json:"proven"`
	NotRead []string  `json:"not_read"`
	Probed  []*Probed `json:"probed,omitempty"`
}

// Run compares what Envoy shows with what is known of rls. Its error says that a probe got no answer; the report has
// the rest.
func Run(ctx context.Context, seen *envoydump.Seen, service *Service, o Options) (*Report, error) {
	in := &input{Seen: seen, service: service, options: o, unread: slices.Clone(seen.NotRead), matched: make(map[string][]*Rule)}
	if len(seen.Listeners) == 0 {
		in.notRead("listeners: Envoy shows none")
	}
	in.findManagers()
	// The order is that of the findings of one severity.
	for _, check := range []func(){
		in.unlimited, in.oneHop, in.wrongDomains, in.asked, in.reach, in.hiddenRoutes, in.lists, in.switches, in.metadata, in.removedCredentials,
		in.headers, in.pathChanges, in.clientAddresses, in.spellings, in.streams, in.limitCalls, in.authorizationCalls, in.clusters, in.answered, in.process,
	} {
		check()
	}
	var err error
	if o.Probe.URL != "" {
		err = in.probe(ctx, &o.Probe)
	}
	out, reported := &Report{Findings: []Finding{}, NotRead: []string{}, Proven: in.proven(), Probed: in.probed}, make(map[Finding]bool)
	for _, f := range in.findings {
		f.Where, f.Message, f.Passes, f.Fix = safetext.Text(f.Where), safetext.Text(f.Message), safetext.Text(f.Passes), safetext.Text(f.Fix)
		if !reported[f] {
			reported[f] = true
			out.Findings = append(out.Findings, f)
		}
	}
	slices.SortStableFunc(out.Findings, func(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	for _, text := range in.unread {
		out.NotRead = append(out.NotRead, safetext.Text(text))
	}
	slices.Sort(out.NotRead)
	out.NotRead = slices.Compact(out.NotRead)
	return out, err
}

func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Note}, s) }

// Has reports whether there is a finding as bad as a severity, or worse.
func (r *Report) Has(s Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity.rank() <= s.rank() })
}

// maxOfCode bounds the findings of one code that people read.
const maxOfCode = 20

// WriteText writes the report for people: each finding, what was not read, and what is proven if there
// is no error. width is that of the terminal.
func (r *Report) WriteText(w io.Writer, width int, paint terminal.Colours) {
	colours := map[Severity]func(string) string{Error: paint.Red, Warning: paint.Yellow, Note: paint.Bold}
	const indent = "  "
	if width != terminal.Unbounded {
		width -= len(indent)
	}
	printed := make(map[Code]int)
	for _, f := range r.Findings {
		if printed[f.Code]++; printed[f.Code] > maxOfCode {
			continue
		}
		fmt.Fprintf(w, "%s %s: %s\n", colours[f.Severity](string(f.Severity)), f.Code, paint.Bold(f.Where))
		text := f.Message
		if f.Passes != "" {
			text += "\npasses: " + f.Passes
		}
		text = terminal.Wrap(text+"\ndo: "+f.Fix, width)
		fmt.Fprintln(w, indent+strings.ReplaceAll(text, "\n", "\n"+indent))
	}
	for _, code := range slices.Sorted(maps.Keys(printed)) {
		if more := printed[code] - maxOfCode; more > 0 {
			fmt.Fprintf(w, "%d more of %s: --json has all\n", more, code)
		}
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(w)
	}
	for _, one := range r.Probed {
		fmt.Fprintln(w, one.text())
	}
	for _, text := range r.NotRead {
		fmt.Fprintf(w, "not read: %s\n", text)
	}
	if !r.Has(Error) {
		fmt.Fprintln(w, r.Proven)
	}
}
