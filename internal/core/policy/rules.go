package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

// A Limit of a rule, with the name it has in headers.
type Limit struct {
	window.Limit
	// Precision is the unit that times are rounded up to; see [window.Check]. Zero is
	// exact. The default of rules files is [window.Precision].
	Precision time.Duration
	// Lease bounds what a process may reserve ahead; see [window.Check]. Zero reserves
	// nothing.
	Lease window.Lease
	// Name is the name of this limit in the RateLimit and RateLimit-Policy headers: the
	// rule's name, and what FormatLog returns too if the rule has several. [Rules.Add] sets it.
	Name string
	// Calendar computes the periods of a limit with [window.Calendar]; nil for others.
	Calendar *calendar.Calendar
	// StartsLabel is the label of a subject that says on which day the periods of Calendar
	// start; see [calendar.Calendar.Starting]. A subject without it has those of Calendar.
	StartsLabel string
}

// log names the log of the limit, without a key.
func (l *Limit) log() window.LogID { return window.Check{Limit: l.Limit}.Log() }

// LeaseLength is the length of a lease if the rule sets only its size.
const LeaseLength = 50 * time.Millisecond

// Terms are the limits of a tier, and whether they deny. The zero value limits nothing.
type Terms struct {
	// Limits must all have room.
	Limits []Limit
	// Unlimited means that the rule does not limit the tier. Limits is empty then.
	Unlimited bool
	// Observe is the share of logs, from 0 to 1, whose limits are only observed (shadow
	// mode): they are decided and reported, but never deny. The name of a log decides
	// whether it belongs to the share, so all processes agree.
	Observe float64
}

func (t *Terms) inFlight() bool {
	return slices.ContainsFunc(t.Limits, func(l Limit) bool { return l.Policy == window.InFlight })
}

func (t *Terms) empty() bool { return len(t.Limits) == 0 && !t.Unlimited }

// OnStoreError is the answer to a request while the store cannot decide.
type OnStoreError uint8

const (
	// StoreErrorUnset leaves the choice to the default of the rules; see
	// [Rules.SetOnStoreError].
	StoreErrorUnset OnStoreError = iota
	// StoreErrorAllow lets the request pass.
	StoreErrorAllow
	// StoreErrorDeny refuses the request.
	StoreErrorDeny
	// StoreErrorLocal decides by logs in the memory of this process.
	StoreErrorLocal
	// StoreErrorReported makes the adapter report an error to Envoy, whose own setting
	// failure_mode_deny decides.
	StoreErrorReported
)

var storeErrors = [...]string{
	StoreErrorUnset: "", StoreErrorAllow: "allow", StoreErrorDeny: "deny", StoreErrorLocal: "local", StoreErrorReported: "report",
}

// String returns the choice as rules files and settings write it. It returns an empty
// text for StoreErrorUnset.
func (o OnStoreError) String() string { return storeErrors[o] }

// ParseOnStoreError parses what String returns. ok is false for any other text, and for
// an empty one.
func ParseOnStoreError(text string) (o OnStoreError, ok bool) {
	i := slices.Index(storeErrors[:], text)
	return OnStoreError(max(i, 0)), i > 0
}

// StoreErrorRetry is the Retry-After of StoreErrorDeny. It is a guess, because the end of an
// outage is unknown.
const StoreErrorRetry = time.Second

// Denial is a rule's own body of a denial. The zero value is the service's problem
// document.
type Denial struct {
	// Body replaces the problem document, with ContentType. Package rules has checked both.
	Body        string
	ContentType string
}

// A Rule limits the descriptors that end on its path. The exported fields come from a
// rules file. A rule is immutable after [Rules.Add].
type Rule struct {
	Domain string
	Path   []descriptors.Node
	// Name appears in statuses, headers, metadata and metrics. Characters other than
	// letters, digits and "_.-" become "-" there. Empty: the name is made from the path.
	Name string
	// Subject is the key of the entry that names the subject, and with it the tier: an
	// entry of the descriptor itself, else of any descriptor of the request. Empty: the
	// descriptor's last entry if the rule has ByTier, else the first entry that contains
	// an API key.
	Subject string
	// Terms apply to every subject whose tier is not in ByTier. Without limits and
	// without ByTier the rule matches and limits nothing.
	Terms  Terms
	ByTier map[string]Terms
	// Share marks the levels of Path whose pattern has one log for all values that
	// match. Nil: none.
	Share []bool
	// Quota makes the rule one of several alternatives: at least one of the quota rules
	// that a request matches must have room. A quota rule has one limit.
	Quota bool
	// Always records the cost even over the limit and even if the request is denied: a
	// usage update.
	Always bool
	// AllowedOnly says that the file has "charge: allowed", which is the default but for
	// [Rules.ReportUsage].
	AllowedOnly bool
	// Factor multiplies the cost of every request. Zero means 1.
	Factor uint64
	// Once makes requests with one idempotency key charge once.
	Once ChargeOnce
	// Replaces are names of rules, as the file writes them, that do not apply if this
	// rule matches in the same request.
	Replaces []string
	// Scope is the name of the store in which the limits count; see [Rules.SetScopes]. Empty: that
	// of the region.
	Scope string
	// Priority says whether the store decides requests of the rule before others that wait.
	Priority window.Priority
	// OnStoreError is the rule's own choice. [Rule.StoreError] returns the one that
	// applies.
	OnStoreError OnStoreError
	// RetryJitter is the largest share, from 0 to 1, by which clients are asked to wait
	// longer than they must; see [LimitStatus.RetryAfter].
	RetryJitter float64
	Denial      Denial
	// Metadata is returned as dynamic metadata for descriptors that have room:
	// nil, booleans, float64, strings, []any and map[string]any.
	Metadata map[string]any
	// Detailed gives each value of each entry a series of its own (detailed_metric).
	// ValueInMetric does so for the levels that it marks (value_to_metric).
	Detailed      bool
	ValueInMetric []bool

	owner      *Rules // the generation of the rule
	number     int    // in All
	id         descriptors.RuleID
	label      string
	given      string       // the name in the file
	shown      string       // given, or Name if given is no text for a header
	storeError OnStoreError // never StoreErrorUnset
	in         window.Scope // the number of Scope
	identity   []identityPart
	subject    int    // index of the subject's entry in the path; -1: not in the path
	hasSubject bool   // an entry of the path or of the request names the subject
	detail     bool   // Detailed or ValueInMetric
	hidden     []bool // levels whose values must not be shown
	byTier     map[string]*Terms
	meter      Meter
	hits       HitMeter // nil: hits are not counted

	reports bool           // Rules.ReportUsage, if the file does not say how the rule charges
	asked   *atomic.Uint32 // see Call.noteAsked; nil: no advice about charge is needed
}

// identityPart is one entry whose value is part of the name of the log.
type identityPart struct {
	entry  int
	secret bool
}

// ID names the rule; see [descriptors.RuleID].
func (r *Rule) ID() descriptors.RuleID { return r.id }

// String returns the rule's domain and path for messages: like its id, but without the
// digests of API keys.
func (r *Rule) String() string { return r.label }

// Hides reports whether the values of a level of Path must not be shown.
func (r *Rule) Hides(level int) bool { return r.hidden[level] }

// Shares reports whether all values that match a level of Path share one log.
func (r *Rule) Shares(level int) bool { return level < len(r.Share) && r.Share[level] }

// Alternative reports whether the rule is one of several alternatives: by itself, or because all
// rules are. Only rules that were added know the latter.
func (r *Rule) Alternative() bool { return r.Quota || r.owner != nil && r.owner.quota }

// ShowsValue reports whether metrics show the value of a request at a level of Path.
func (r *Rule) ShowsValue(level int) bool {
	return level < len(r.ValueInMetric) && r.ValueInMetric[level]
}

// GivenName returns the name that the rules file gives the rule, as written. It is empty if
// the file gives none. A text that no header can carry becomes a [ValidName].
func (r *Rule) GivenName() string { return r.shown }

// TermsOf returns the terms of a tier. They must not be changed.
func (r *Rule) TermsOf(tierName string) *Terms {
	if t, ok := r.byTier[tierName]; ok {
		return t
	}
	return &r.Terms
}

// StoreError returns the choice for the rule's requests while the store cannot decide:
// the rule's own, or else the default of its generation.
func (r *Rule) StoreError() OnStoreError { return r.storeError }

// cost returns the cost of a request times the rule's factor. If that overflows, it
// returns the largest number.
func (r *Rule) cost(cost uint64) uint64 {
	if r.Factor <= 1 {
		return cost
	}
	high, low := bits.Mul64(cost, r.Factor)
	if high != 0 {
		return math.MaxUint64
	}
	return low
}

// Rules is one generation of the configuration: the rules of all domains with their tiers
// and subjects. It is read-only once a [Decider] has it.
type Rules struct {
	secrets *tier.Secrets
	tiers   *tier.Directory // nil: all subjects are unknown
	away    bool            // Identity.Elsewhere
	trusted string          // Identity.TrustedEntry
	share   bool            // unknown keys share one log per client address
	shadow  bool            // all rules are only observed
	quota   bool            // all rules are quota rules
	reports bool            // usage reports count as in envoyproxy/ratelimit
	missing bool            // no rules were loaded yet
	domains map[string]*domain
	named   map[string]bool // keys of entries in rules
	first   *domain         // that was added; most rules have only one, which is found sooner so
	// storeError is the choice of rules that have none.
	storeError OnStoreError
	beyond     atomic.Int64 // see logBeyond, for requests without a domain
	// scopes are the names of the stores that rules can name, by their numbers.
	scopes  []string
	jitters bool // a rule has a retry jitter
	rules   []*Rule
	byID    map[descriptors.RuleID]*Rule
}

// domain is the rules of one domain.
type domain struct {
	name string
	tree descriptors.Tree[*Rule]
	// headers are the styles of headers. Nil: those of the service.
	headers []string
	// replaces is true if a rule has Replaces.
	replaces bool
	// closed is true if a rule may deny while the store cannot decide.
	closed bool
	// once is the first rule with Once, whose entry is that of all of them. Nil: there are none.
	once *Rule
	// unruled counts descriptors that no rule of the domain limits.
	unruled Meter
	// override is the rule of limits that come with a descriptor.
	override *Rule
	// overridden is true once a limit came with a descriptor.
	overridden atomic.Bool
	beyond     atomic.Int64 // when logBeyond has logged a request of the domain, in Unix nanoseconds
	// overrideHits counts the hits of these limits. Nil: they are not counted.
	overrideHits HitMeter
}

// Identity configures how subjects are found and how logs of unknown keys are named.
type Identity struct {
	// Secrets knows the entries that contain API keys. Required.
	Secrets *tier.Secrets
	// Tiers has the subjects. Nil: all are unknown (tiers.source none).
	Tiers *tier.Directory
	// EachUnknownKey gives each unknown key a log of its own. Otherwise unknown keys
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

// RegionScope is the name of the store of the region.
const RegionScope = "region"

// NewRules returns a generation without rules.
func NewRules(who Identity) *Rules {
	return &Rules{
		secrets: who.Secrets,
		tiers:   who.Tiers,
		trusted: who.TrustedEntry,
		away:    who.Elsewhere,
		share:   who.Tiers != nil && !who.EachUnknownKey,
		domains: make(map[string]*domain),
		named:   make(map[string]bool),
		byID:    make(map[descriptors.RuleID]*Rule),

		storeError: StoreErrorReported,
		scopes:     []string{RegionScope},
	}
}

// SetScopes sets the names of the stores that rules can name, by their numbers. The first is that
// of the region, and the only one if SetScopes is not called. It must be called before rules are
// added.
func (rs *Rules) SetScopes(names []string) { rs.scopes = names }

// Scopes returns the names of the stores that rules can name, by their numbers.
func (rs *Rules) Scopes() []string { return rs.scopes }

// HoldScopes returns the numbers of the scopes in which requests in flight may hold something.
func (rs *Rules) HoldScopes() (all []window.Scope) {
	for _, r := range rs.rules {
		holds := r.Terms.inFlight()
		for _, t := range r.byTier {
			holds = holds || t.inFlight()
		}
		if holds && !slices.Contains(all, r.in) {
			all = append(all, r.in)
		}
	}
	return all
}

// SetOnStoreError sets the choice of rules that have none, and of limits that come with
// a request (store.on_error). The default is StoreErrorReported. It must be called
// before domains and rules are added.
func (rs *Rules) SetOnStoreError(o OnStoreError) { rs.storeError = o }

// ObserveAll makes all rules observed only (SHADOW_MODE of envoyproxy/ratelimit).
func (rs *Rules) ObserveAll() { rs.shadow = true }

// QuotaAll makes all rules quota rules (QUOTA_MODE of envoyproxy/ratelimit). It must be
// called before rules are added.
func (rs *Rules) QuotaAll() { rs.quota = true }

// ReportUsage makes rules without a choice of charge take usage updates as
// envoyproxy/ratelimit does. A cost above 1 that does not fit while something remains is
// recorded and denied. It must be called before domains and rules are added.
func (rs *Rules) ReportUsage() { rs.reports = true }

// ErrMissing is the error of every request while the rules are [Rules.Missing].
var ErrMissing = errors.New("no rate limit configuration loaded")

// SetMissing says that these rules stand for rules that were not loaded yet. Then no request
// can be decided. The rules must have no domain.
func (rs *Rules) SetMissing() { rs.missing = true }

// Missing reports whether no rules were loaded yet.
func (rs *Rules) Missing() bool { return rs.missing }

// SetHeaders sets the styles of headers of a domain, which must exist.
func (rs *Rules) SetHeaders(domain string, styles []string) { rs.domains[domain].headers = styles }

// AddDomain adds a domain, even without rules, so that requests for it do not count as
// requests for an unknown domain.
func (rs *Rules) AddDomain(name string) error {
	if name == "" {
		return fmt.Errorf("a domain needs a name")
	}
	if rs.domains[name] == nil {
		d := &domain{name: name, override: &Rule{
			owner: rs, Domain: name, Name: OverrideName, id: descriptors.NewRuleID(name, nil), subject: -1, storeError: rs.storeError,
			reports: rs.reports,
		}}
		rs.domains[name], rs.first = d, cmp.Or(rs.first, d)
	}
	return nil
}

// domainOf returns a domain by its name, or nil.
func (rs *Rules) domainOf(name string) *domain {
	if d := rs.first; d != nil && d.name == name {
		return d
	}
	return rs.domains[name]
}

// Add adds a rule to its domain. Package rules has checked what the rule says: Add refuses only an
// unknown scope, a limit that no store takes, an entry of charge_once that another rule uses, and a
// second rule on the same path.
func (rs *Rules) Add(r Rule) error {
	if err := rs.AddDomain(r.Domain); err != nil {
		return err
	}
	r.Path = slices.Clone(r.Path)
	r.storeError = cmp.Or(r.OnStoreError, rs.storeError)
	if r.Scope != "" {
		in := slices.Index(rs.scopes, r.Scope)
		if in < 0 {
			return fmt.Errorf("unknown scope %q, expected one of %q", r.Scope, rs.scopes)
		}
		if r.in = window.Scope(in); r.in == window.Region {
			r.Scope = ""
		}
	}
	for i, n := range r.Path {
		switch {
		case n.AnyValue:
		case !n.Pattern:
			// Requests have digests, and addresses in one form. So the tree has both too.
			r.Path[i].Value = rs.secrets.Value(n.Key, CanonicalNode(n))
		default:
			r.Path[i].Value = CanonicalNode(n)
		}
	}
	r.label = labelOf(rs.secrets, r.Domain, r.Path)
	r.id = descriptors.NewRuleID(r.Domain, r.Path)
	r.given, r.shown = r.Name, r.Name
	if len(r.given) > maxShownName || !httpguts.ValidHeaderFieldValue(r.given) || !utf8.ValidString(r.given) {
		r.shown = plainName(r.given)
	}
	if r.Name = plainName(r.Name); r.Name == "" {
		r.Name = nameOf(rs.secrets, r.Path, strings.TrimPrefix(r.label, r.Domain+"|"))
	}
	if err := rs.checkOnce(&r); err != nil {
		return err
	}
	r.Terms.Limits = named(r.Name, r.Terms.Limits)
	all := []*Terms{&r.Terms}
	if len(r.ByTier) > 0 {
		r.byTier = make(map[string]*Terms, len(r.ByTier))
	}
	for t, terms := range r.ByTier {
		terms.Limits = named(r.Name, terms.Limits)
		r.byTier[t] = &terms
		all = append(all, &terms)
	}
	for _, t := range all {
		for i := range t.Limits {
			if err := t.Limits[i].Valid(); err != nil {
				return err
			}
		}
	}
	for _, n := range r.Path {
		r.hidden = append(r.hidden, rs.secrets.Hides(n.Key))
		rs.named[n.Key] = true
	}
	rs.named[r.Subject], rs.named[r.Once.Entry] = true, true
	r.owner = rs
	if !r.Always && !r.AllowedOnly && r.Once.Entry == "" {
		if r.reports = rs.reports; !r.reports && !r.Terms.inFlight() {
			r.asked = new(atomic.Uint32)
		}
	}
	r.detail = r.Detailed || slices.Contains(r.ValueInMetric, true)
	rs.setIdentity(&r)
	rs.jitters = rs.jitters || r.RetryJitter > 0
	dom := rs.domains[r.Domain]
	if err := dom.takeOnce(&r, rs.rules); err != nil {
		return err
	}
	if err := dom.tree.Add(r.Path, &r); err != nil {
		return err
	}
	dom.replaces, dom.closed = dom.replaces || len(r.Replaces) > 0, dom.closed || r.closed()
	r.number, rs.byID[r.id] = len(rs.rules), &r
	rs.rules = append(rs.rules, &r)
	return nil
}

// setIdentity finds the entries of the path whose values are part of the log's name.
// Fixed values are not: they are in the rule's id.
func (rs *Rules) setIdentity(r *Rule) {
	for i, n := range r.Path {
		if n.Open() && !r.Shares(i) {
			r.identity = append(r.identity, identityPart{entry: i, secret: rs.secrets.Is(n.Key)})
		}
	}
	if r.subject = r.SubjectLevel(rs.secrets); r.subject >= 0 {
		r.Subject = r.Path[r.subject].Key
	}
	r.hasSubject = r.Subject != ""
}

// SubjectLevel returns the level of Path whose entry names the subject; see [Rule.Subject]. It
// returns -1 if the path has none. It may be called before [Rules.Add].
func (r *Rule) SubjectLevel(secrets *tier.Secrets) int {
	switch {
	case r.Subject != "":
		return slices.IndexFunc(r.Path, func(n descriptors.Node) bool { return n.Key == r.Subject })
	case len(r.ByTier) > 0:
		return len(r.Path) - 1
	default:
		return slices.IndexFunc(r.Path, func(n descriptors.Node) bool { return secrets.Is(n.Key) })
	}
}

// All returns the rules in the order in which they were added.
func (rs *Rules) All() []*Rule { return rs.rules }

// Domains returns the names of the domains, sorted.
func (rs *Rules) Domains() []string {
	names := make([]string, 0, len(rs.domains))
	for n := range rs.domains {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// TrustedEntry returns Identity.TrustedEntry.
func (rs *Rules) TrustedEntry() string { return rs.trusted }

// Tiers returns the directory, or nil if all subjects are unknown.
func (rs *Rules) Tiers() *tier.Directory { return rs.tiers }

// TierOf returns the tier of a subject, or the default tier if the rules do not have
// that. s is nil for an unknown subject. Without tiers TierOf returns an empty text.
func (rs *Rules) TierOf(s *tier.Subject) string {
	switch {
	case rs.tiers == nil:
		return ""
	case s == nil || !rs.tiers.HasTier(s.Tier):
		return rs.tiers.DefaultTier()
	default:
		return s.Tier
	}
}

// labelOf returns domain|key=value/key for messages.
func labelOf(secrets *tier.Secrets, domain string, path []descriptors.Node) string {
	parts := make([]string, len(path))
	for i, n := range path {
		if !n.Open() && secrets.Hides(n.Key) {
			n.Value = "***"
		}
		parts[i] = n.String()
	}
	return domain + "|" + strings.Join(parts, "/")
}

// OverrideName is the name of a limit that comes with a descriptor that no rule matches.
const OverrideName = "override"

// maxName is the maximum length of a rule's name in bytes.
const maxName = 64

// ValidName reports whether a name can be used unchanged. Envoy writes it unescaped into
// a header.
func ValidName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return true
}

// maxShownName is the maximum length of [Rule.GivenName] in bytes.
const maxShownName = 1 << 10

// nameOf makes a name from a path: its keys and fixed values joined by dots, without
// values of API keys. If they are too long, the name ends with a digest of label, the whole
// path as text. Otherwise many rules of one long path would have one name.
func nameOf(secrets *tier.Secrets, path []descriptors.Node, label string) string {
	var parts []string
	for _, n := range path {
		parts = append(parts, n.Key)
		if !n.AnyValue && !secrets.Hides(n.Key) {
			parts = append(parts, n.Value)
		}
	}
	text := strings.Join(parts, ".")
	if len(text) <= maxName {
		return plainName(text)
	}
	digest := sha256.Sum256([]byte(label))
	end := "-" + hex.EncodeToString(digest[:nameDigest])
	return plainName(text[:maxName-len(end)]) + end
}

// nameDigest is the length of the digest in a name, in bytes. Of 100,000 long names, two are
// the same with a probability of 1 to 50,000.
const nameDigest = 6

// plainName makes a [ValidName] from a text.
func plainName(text string) string {
	if ValidName(text) {
		return text
	}
	name := []byte(text[:min(len(text), maxName)])
	for i, c := range name {
		if !ValidName(string(c)) {
			name[i] = '-'
		}
	}
	return string(name)
}

// named returns a copy of limits that has their names in headers.
func named(rule string, limits []Limit) []Limit { return setNames(rule, slices.Clone(limits)) }

// setNames sets the name of each limit in headers, and returns limits.
func setNames(rule string, limits []Limit) []Limit {
	for i := range limits {
		limits[i].Name = rule
		if len(limits) > 1 {
			limits[i].Name += "-" + FormatLog(limits[i].Policy, limits[i].Window)
		}
	}
	return limits
}

// FormatLease describes a lease. It returns an empty text for the zero value.
func FormatLease(l window.Lease) string {
	switch {
	case l.Length == 0:
		return ""
	case l.Hits == 0:
		return "for " + l.Length.String()
	default:
		return fmt.Sprintf("up to %d for %v", l.Hits, l.Length)
	}
}

// FormatWindow writes a window as rules files do: 10s, 1m, 1d.
func FormatWindow(d time.Duration) string { return string(appendWindow(nil, d)) }

// appendWindow appends what [FormatWindow] writes.
func appendWindow(b []byte, d time.Duration) []byte {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{
		{7 * 24 * time.Hour, "w"},
		{24 * time.Hour, "d"},
		{time.Hour, "h"},
		{time.Minute, "m"},
		{time.Second, "s"},
		{time.Millisecond, "ms"},
	} {
		if d%u.length == 0 {
			return append(strconv.AppendInt(b, int64(d/u.length), 10), u.name...)
		}
	}
	return append(strconv.AppendInt(b, d.Microseconds(), 10), "us"...)
}
