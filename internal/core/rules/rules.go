package rules

import (
	"cmp"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/internal/text/httpfield"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// Identity configures how subjects are found and how logs of unknown keys are named.
type Identity struct {
	// Secrets knows the entries that contain API keys. Required.
	Secrets *tier.Secrets
	// Tiers has the subjects. Nil: all are unknown (tiers.source none).
	Tiers *tier.Directory
	// EachUnknownKey gives each unknown key its own log. Otherwise unknown keys
	// share one log per client address, so that a client gains nothing with invalid
	// keys. Without Tiers each key is unknown and has its own log.
	EachUnknownKey bool
	// TrustedEntry is the key of a descriptor entry whose value is the tier of the
	// subject, from a JWT claim or another authorizer. It replaces the tier in Tiers. A
	// client that can write the entry chooses its tier. Empty: no entry is trusted.
	TrustedEntry string
	// Elsewhere means that subjects are in a source outside of the process. Tiers then
	// has tiers and no subjects.
	Elsewhere bool
}

// Rules is one generation of the configuration: the rules of all domains with their tiers and
// subjects. Once it is built, nothing changes it, and any number of goroutines may use it.
type Rules struct {
	who     Identity
	all     everywhere
	missing bool      // no rules were loaded yet
	domains []*Domain // in the order in which they were added
	byName  map[string]*Domain
	named   map[string]bool // keys of entries in rules
	scopes  []string        // the names of the stores that rules can name, by their numbers
	jitters bool            // a rule has a retry jitter
	rules   []*Rule
	byID    map[descriptors.RuleID]*Rule
	sum     hash.Hash64
}

// everywhere has the settings of all rules.
type everywhere struct {
	observed   bool         // all rules are only observed
	quota      bool         // all rules are quota rules
	reports    bool         // usage updates count as in envoyproxy/ratelimit
	storeError OnStoreError // the choice of rules that have none
}

// A Domain has the rules of one domain. Nothing changes it once its Rules are built.
type Domain struct {
	Name string
	// Number is the index of the domain in the order in which domains were added.
	Number int
	// Tree has the rules.
	Tree descriptors.Tree[*Rule]
	// Headers are the styles of headers. Nil: those of the service.
	Headers []string
	// Replaces is true if a rule has Replaces.
	Replaces bool
	// MayDeny is true if a rule may deny while the store cannot decide.
	MayDeny bool
	// Once is the first rule with Once, whose entry is that of all of them. Nil: there are none.
	Once *Rule
	// Override is the rule of limits that come with a descriptor that no rule matches.
	Override *Rule
}

// RegionScope is the name of the store of the region.
const RegionScope = "region"

// NewRules returns a generation without rules.
func NewRules(who Identity) *Rules {
	return &Rules{
		who:    who,
		all:    everywhere{storeError: StoreErrorReported},
		byName: make(map[string]*Domain),
		named:  make(map[string]bool),
		scopes: []string{RegionScope},
		byID:   make(map[descriptors.RuleID]*Rule),
		sum:    fnv.New64a(),
	}
}

// SetScopes sets the names of the stores that rules can name, by their numbers. The first is that
// of the region, and the only one if SetScopes is not called. It must be called before rules are
// added.
func (rs *Rules) SetScopes(names []string) { rs.scopes = names }

// Scopes returns the names of the stores that rules can name, by their numbers.
func (rs *Rules) Scopes() []string { return rs.scopes }

// ScopeNumber returns the number of a store by its name.
func (rs *Rules) ScopeNumber(name string) (window.Scope, error) {
	if in := slices.Index(rs.scopes, name); in >= 0 {
		return window.Scope(in), nil
	}
	return 0, fmt.Errorf("the settings have no scope %.64q, but %s: set its redis.url in store.scopes of the settings file (rls: --config), or remove scope", name, strings.Join(rs.scopes, ", "))
}

// HoldScopes returns the numbers of the scopes in which streams hold something: those with limits of
// requests in flight, or with budgets.
func (rs *Rules) HoldScopes() (all []window.Scope) {
	for _, r := range rs.rules {
		holds := r.Terms.holds()
		for _, t := range r.is.byTier {
			holds = holds || t.holds()
		}
		if holds && !slices.Contains(all, r.is.scope) {
			all = append(all, r.is.scope)
		}
	}
	return all
}

// SetOnStoreError sets the choice of rules that have none, and of limits that come with
// a request (store.on_error). The default is StoreErrorReported. It must be called
// before domains and rules are added.
func (rs *Rules) SetOnStoreError(o OnStoreError) { rs.all.storeError = o }

// ObserveAll makes all rules observed only (SHADOW_MODE of envoyproxy/ratelimit).
func (rs *Rules) ObserveAll() { rs.all.observed = true }

// QuotaAll makes all rules quota rules (QUOTA_MODE of envoyproxy/ratelimit). It must be
// called before rules are added.
func (rs *Rules) QuotaAll() { rs.all.quota = true }

// ReportUsage makes rules without a choice of charge take usage updates as
// envoyproxy/ratelimit does. A cost above 1 that does not fit while something remains is
// recorded and denied. It must be called before domains and rules are added.
func (rs *Rules) ReportUsage() { rs.all.reports = true }

// ErrMissing is the error of every request while the rules are [Rules.Missing].
var ErrMissing = errors.New("no rate limit configuration loaded")

// SetMissing marks the rules as not loaded yet. Every request then fails with [ErrMissing]. The rules
// must have no domain.
func (rs *Rules) SetMissing() { rs.missing = true }

// Missing reports whether no rules were loaded yet.
func (rs *Rules) Missing() bool { return rs.missing }

// SetHeaders sets the styles of headers of a domain, which must exist.
func (rs *Rules) SetHeaders(domain string, styles []string) { rs.byName[domain].Headers = styles }

// AddDomain adds a domain, even without rules, so that requests for it do not count as
// requests for an unknown domain.
func (rs *Rules) AddDomain(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a domain needs a name")
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("a domain cannot hold control characters")
	}
	if rs.byName[name] == nil {
		d := &Domain{Name: name, Number: len(rs.domains), Override: &Rule{Domain: name, Name: OverrideName, is: derived{
			owner: rs, number: -1, id: descriptors.NewRuleID(name, nil), subject: -1, storeError: rs.all.storeError, reports: rs.all.reports,
		}}}
		rs.byName[name], rs.domains = d, append(rs.domains, d)
	}
	return nil
}

// Domain returns a domain by its name, or nil.
func (rs *Rules) Domain(name string) *Domain {
	if len(rs.domains) > 0 && rs.domains[0].Name == name {
		return rs.domains[0] // most configurations have one domain: this saves a look-up
	}
	return rs.byName[name]
}

// Add adds a rule to its domain. The reader of the rule has checked its limits ([window.Limit.Valid]).
// Add refuses what AddDomain, ScopeNumber and CheckOnce refuse, an entry of charge_once that another
// rule uses, and a second rule on the same path.
func (rs *Rules) Add(r Rule) error {
	if err := rs.AddDomain(r.Domain); err != nil {
		return err
	}
	if err := r.derive(rs); err != nil {
		return err
	}
	if err := rs.CheckOnce(&r); err != nil {
		return err
	}
	r.nameTerms()
	dom := rs.byName[r.Domain]
	if err := dom.takeOnce(&r, rs.rules); err != nil {
		return err
	}
	if err := dom.Tree.Add(r.Path, &r); err != nil {
		return err
	}
	for _, n := range r.Path {
		rs.named[n.Key] = true
	}
	rs.named[r.Subject], rs.named[r.Charge.Once.Entry] = true, true
	rs.jitters = rs.jitters || r.Answer.RetryJitter > 0
	dom.Replaces, dom.MayDeny = dom.Replaces || len(r.Replaces) > 0, dom.MayDeny || r.closed()
	r.is.number, rs.byID[r.is.id] = len(rs.rules), &r
	rs.rules = append(rs.rules, &r)
	_, _ = rs.sum.Write([]byte(r.is.id))
	return nil
}

// derive sets the canonical path, the name, and all derived fields except the limits.
func (r *Rule) derive(rs *Rules) error {
	secrets := rs.who.Secrets
	r.is = derived{owner: rs, given: r.Name, shown: r.Name, storeError: cmp.Or(r.Storage.OnError, rs.all.storeError)}
	if r.Storage.Scope != "" {
		in, err := rs.ScopeNumber(r.Storage.Scope)
		if err != nil {
			return err
		}
		if r.is.scope = in; in == window.Region {
			r.Storage.Scope = ""
		}
	}
	r.Path = rs.CanonicalPath(r.Path)
	for i, n := range r.Path {
		r.is.hidden = append(r.is.hidden, secrets.Hides(n.Key))
		if n.Open() && !r.HasOneLog(i) {
			r.is.parts = append(r.is.parts, Part{Level: i, Secret: secrets.Is(n.Key)})
		}
	}
	r.is.id = descriptors.NewRuleID(r.Domain, r.Path)
	if len(r.is.given) > maxShownName || !httpfield.ValidValue(r.is.given) || !utf8.ValidString(r.is.given) {
		r.is.shown = plainName(r.is.given)
	}
	if r.Name = plainName(r.Name); r.Name == "" {
		r.Name = nameOf(secrets, r.Path)
	}
	if r.is.subject = r.SubjectLevel(secrets); r.is.subject >= 0 {
		r.Subject = r.Path[r.is.subject].Key
	}
	if !r.Charge.Always && !r.Charge.AllowedOnly && r.Charge.Once.Entry == "" {
		r.is.reports = rs.all.reports
		r.is.unsaid = !r.is.reports && !r.Terms.holds()
	}
	r.is.seriesByKey = r.Metric.Detailed || slices.Contains(r.Metric.Values, true)
	return nil
}

// nameTerms copies the terms, and gives the limits their names in headers.
func (r *Rule) nameTerms() {
	r.Terms.Limits = named(r.Name, r.Terms.Limits)
	if len(r.ByTier) > 0 {
		r.is.byTier = make(map[string]*Terms, len(r.ByTier))
	}
	for t, terms := range r.ByTier {
		terms.Limits = named(r.Name, terms.Limits)
		r.is.byTier[t] = &terms
	}
}

// All returns the rules in the order in which they were added.
func (rs *Rules) All() []*Rule { return rs.rules }

// Sum returns a number of the ids of all rules in their order. It is the same in every process.
func (rs *Rules) Sum() uint64 { return rs.sum.Sum64() }

// AllDomains returns the domains in the order in which they were added.
func (rs *Rules) AllDomains() []*Domain { return rs.domains }

// Domains returns the names of the domains, sorted.
func (rs *Rules) Domains() []string {
	return slices.Sorted(maps.Keys(rs.byName))
}

// TrustedEntry returns Identity.TrustedEntry.
func (rs *Rules) TrustedEntry() string { return rs.who.TrustedEntry }

// Tiers returns the directory, or nil if all subjects are unknown.
func (rs *Rules) Tiers() *tier.Directory { return rs.who.Tiers }

// Secrets returns the keys of entries that contain API keys.
func (rs *Rules) Secrets() *tier.Secrets { return rs.who.Secrets }

// Elsewhere returns Identity.Elsewhere.
func (rs *Rules) Elsewhere() bool { return rs.who.Elsewhere }

// UnknownByAddress reports whether unknown keys share one log for each client address; see
// Identity.EachUnknownKey.
func (rs *Rules) UnknownByAddress() bool { return rs.who.Tiers != nil && !rs.who.EachUnknownKey }

// ObservesAll reports whether all rules are only observed; see [Rules.ObserveAll].
func (rs *Rules) ObservesAll() bool { return rs.all.observed }

// AllQuota reports whether all rules are quota rules; see [Rules.QuotaAll].
func (rs *Rules) AllQuota() bool { return rs.all.quota }

// OnStoreError returns the choice of rules that have none; see [Rules.SetOnStoreError].
func (rs *Rules) OnStoreError() OnStoreError { return rs.all.storeError }

// Jitters reports whether a rule has a RetryJitter.
func (rs *Rules) Jitters() bool { return rs.jitters }

// MayDeny reports whether a rule, or a limit that comes with a request, may deny while the store
// cannot decide.
func (rs *Rules) MayDeny() bool {
	for _, d := range rs.domains {
		if d.MayDeny {
			return true
		}
	}
	return rs.all.storeError != StoreErrorAllow
}

// Rule returns the rule with an id, or nil.
func (rs *Rules) Rule(id descriptors.RuleID) *Rule { return rs.byID[id] }

// Top returns the position at which the descriptors of a domain begin to match. In an unknown domain
// nothing matches there.
func (rs *Rules) Top(domain string) (top descriptors.Position[*Rule]) {
	if d := rs.byName[domain]; d != nil {
		top = d.Tree.Top()
	}
	return top
}

// Headers returns the styles of headers of a domain. Nil: those of the service.
func (rs *Rules) Headers(domain string) []string {
	if d := rs.byName[domain]; d != nil {
		return d.Headers
	}
	return nil
}

// HasDomain reports whether the rules have a domain.
func (rs *Rules) HasDomain(name string) bool { return rs.byName[name] != nil }

// LimitsOf returns the limits that the tier of a subject carries: those that came with the subject,
// else those of the tiers file. s is nil for an unknown subject.
func (rs *Rules) LimitsOf(s *tier.Subject) *limits.Set {
	if came := s.Limits(); came != nil {
		return came
	}
	return rs.who.Tiers.Limits(rs.TierOf(s))
}

// TierOf returns the tier of a subject, or the default tier if the rules do not have the subject's
// tier. s is nil for an unknown subject. Without tiers TierOf returns an empty text.
func (rs *Rules) TierOf(s *tier.Subject) string {
	switch {
	case rs.who.Tiers == nil:
		return ""
	case s == nil || !rs.who.Tiers.HasTier(s.Tier):
		return rs.who.Tiers.DefaultTier()
	default:
		return s.Tier
	}
}
