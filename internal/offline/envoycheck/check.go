package envoycheck

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A Service is what is known of rls.
type Service struct {
	Rules []Rule
	// StoreTimeout is how long rls waits for its store. Zero: unknown.
	StoreTimeout time.Duration
	// Settings are those of the process that Envoy calls. Nil: unknown.
	Settings *settings.Settings
	// Denied is how many requests rls has denied since it started. Zero: none, or unknown.
	Denied uint64
}

// A Rule is a rule of the service.
type Rule struct {
	Domain, Name string
	Path         []descriptors.Node
	// At is the file and the line, and may be empty.
	At string
	// Limits is true if the rule denies, and Observed says which part of it only observes.
	Limits   bool
	Observed string
}

// String returns the name of the rule, with its file and line.
func (r *Rule) String() string {
	if r.At == "" {
		return "rule " + r.Name
	}
	return fmt.Sprintf("rule %s (%s)", r.Name, r.At)
}

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
}

// Input is what the checks look at.
type Input struct {
	*envoydump.Seen
	Service       *Service
	Options       Options
	Managers      []*Manager // those to check
	unread        []string
	broken        []string // how calls of rls have failed
	sites, chosen []*site
	domains       map[string]*descriptors.Tree[*Rule]
	matched       map[string][]*Rule // by domain and descriptor
}

// NotRead adds what a check cannot read, so that a person does not take it for right.
func (in *Input) NotRead(format string, args ...any) {
	in.unread = append(in.unread, fmt.Sprintf(format, args...))
}

// A Report is the result, and the document of --json.
type Report struct {
	Findings []Finding `json:"findings"`
	// Proven is the sentence that a report without errors stands for.
	Proven  string   `json:"proven"`
	NotRead []string `json:"not_read"`
}

// checks are all checks, in the order of the findings of one severity.
var checks = []func(*Input) []Finding{
	unlimited, oneHop, domains, asked, reach, hiddenRoutes, lists, switches, metadata, removedCredentials, headers, pathChanges, clientAddress, spellings,
	limitCalls, authorizationCalls, clusters, answered, process,
}

// Run compares what Envoy shows with what is known of rls.
func Run(seen *envoydump.Seen, service *Service, o Options) *Report {
	in := &Input{Seen: seen, Service: service, Options: o, unread: slices.Clone(seen.NotRead), matched: make(map[string][]*Rule)}
	if len(seen.Listeners) == 0 {
		in.NotRead("listeners: Envoy shows none")
	}
	in.findManagers()
	out, reported := &Report{Findings: []Finding{}, NotRead: []string{}}, make(map[Finding]bool)
	for _, check := range checks {
		for _, f := range check(in) {
			f.Severity = cmp.Or(f.Severity, severities[f.Code], Error)
			f.Where, f.Message, f.Passes, f.Fix = safetext.Text(f.Where), safetext.Text(f.Message), safetext.Text(f.Passes), safetext.Text(f.Fix)
			if !reported[f] {
				reported[f] = true
				out.Findings = append(out.Findings, f)
			}
		}
	}
	slices.SortStableFunc(out.Findings, func(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	for _, text := range in.unread {
		out.NotRead = append(out.NotRead, safetext.Text(text))
	}
	slices.Sort(out.NotRead)
	out.NotRead = slices.Compact(out.NotRead)
	out.Proven = in.proven()
	return out
}

func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Note}, s) }

// Has reports whether there is a finding as bad as a severity, or worse.
func (r *Report) Has(s Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity.rank() <= s.rank() })
}
