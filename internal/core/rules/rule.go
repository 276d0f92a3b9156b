package rules

import (
	"math"
	"math/bits"
	"slices"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

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
	// OneLog marks the levels of Path whose pattern has one log for all values that
	// match. Nil: none.
	OneLog []bool
	// Quota makes the rule one of several alternatives: at least one of the quota rules
	// that a request matches must have room. A quota rule has one limit.
	Quota  bool
	Charge Charge
	// Replaces are names of rules, as the file writes them, that do not apply if this
	// rule matches in the same request.
	Replaces []string
	Storage  Storage
	Answer   Answer
	Metric   Metric

	is derived
}

// derived is what [Rules.Add] makes of the fields of a rule.
type derived struct {
	owner       *Rules // the generation of the rule
	number      int    // in All; -1 for limits that come with descriptors
	id          descriptors.RuleID
	given       string       // the name in the file
	shown       string       // given, or Name if given is no text for a header
	storeError  OnStoreError // never StoreErrorUnset
	scope       window.Scope // the number of Scope
	reports     bool         // Rules.ReportUsage, if the file does not say how the rule charges
	unsaid      bool         // see Rule.ChargeUnsaid
	seriesByKey bool         // Rule.SeriesByValue
	parts       []Part
	subject     int    // index of the subject's entry in the path; -1: not in the path
	hidden      []bool // levels whose values must not be shown
	byTier      map[string]*Terms
}

// Charge says how much a request is charged, and when. The zero value charges the cost of each
// request that is allowed; see also [Rules.ReportUsage].
type Charge struct {
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
}

// Cost returns the cost of a request times Factor. If that overflows, it returns the largest
// number.
func (c *Charge) Cost(cost uint64) uint64 {
	if c.Factor <= 1 {
		return cost
	}
	high, low := bits.Mul64(cost, c.Factor)
	if high != 0 {
		return math.MaxUint64
	}
	return low
}

// Storage says which store has the logs, and what happens if it is slow or cannot decide. The zero
// value is the store of the region with the defaults.
type Storage struct {
	// Scope is the name of the store in which the limits count; see [Rules.SetScopes]. Empty: that
	// of the region.
	Scope string
	// Priority says whether the store decides requests of the rule before others that wait.
	Priority window.Priority
	// OnError is the choice in the rules file. [Rule.StoreError] returns the choice that applies.
	OnError OnStoreError
}

// Answer is what the rule changes in answers. The zero value changes nothing.
type Answer struct {
	Denial Denial
	// RetryJitter is the largest fraction, from 0 to 1, by which clients are asked to wait
	// longer than they must; see decide.LimitStatus.RetryAfter.
	RetryJitter float64
	// NeverRetry asks clients not to send a denied request again, however short the wait is. Otherwise
	// only clients with a long wait are asked so.
	NeverRetry bool
	// Metadata is returned as dynamic metadata for descriptors that have room:
	// nil, booleans, float64, strings, []any and map[string]any.
	Metadata map[string]any
}

// Denial is a rule's own body of a denial: a form or a text. The zero value leaves it to the route.
type Denial struct {
	Form Form
	// Body is the text, with ContentType. The readers of rules have checked both.
	Body        string
	ContentType string
}

// Metric says which values of requests have series of their own. The zero value: none.
type Metric struct {
	// Detailed gives each value of each entry its own series (detailed_metric).
	Detailed bool
	// Values does the same for the marked levels of Path (value_to_metric).
	Values []bool
}

// A Part is one entry of a rule's path whose value is part of the names of its logs.
type Part struct {
	Level  int  // in Path
	Secret bool // the value is an API key
}

// ID names the rule; see [descriptors.RuleID].
func (r *Rule) ID() descriptors.RuleID { return r.is.id }

// String returns the rule's domain and path for messages: like its id, but without the
// digests of API keys. It is empty for [Domain.Override], and before [Rules.Add].
func (r *Rule) String() string {
	if r.is.owner == nil || len(r.Path) == 0 {
		return ""
	}
	return r.Domain + "|" + pathText(r.is.owner.who.Secrets, r.Path)
}

// Hides reports whether the values of a level of Path must not be shown.
func (r *Rule) Hides(level int) bool { return r.is.hidden[level] }

// HasOneLog reports whether all values that match a level of Path share one log.
func (r *Rule) HasOneLog(level int) bool { return level < len(r.OneLog) && r.OneLog[level] }

// Alternative reports whether the rule is a quota rule: by its field Quota, or because all rules of
// its generation are. Before [Rules.Add] only the field counts.
func (r *Rule) Alternative() bool { return r.Quota || r.is.owner != nil && r.is.owner.all.quota }

// ShowsValue reports whether metrics show the value of a request at a level of Path.
func (r *Rule) ShowsValue(level int) bool {
	return level < len(r.Metric.Values) && r.Metric.Values[level]
}

// GivenName returns the name that the rules file gives the rule, as written. It is empty if
// the file gives none. A text that no header can carry becomes a [ValidName].
func (r *Rule) GivenName() string { return r.is.shown }

// WrittenName returns the name exactly as the rules file has it. It may be no text for a header.
func (r *Rule) WrittenName() string { return r.is.given }

// maxDetail bounds how much of a value AppendSeries copies, in bytes. A longer value has no series.
const maxDetail = 512

// AppendSeries appends the name of a series for Metric: the path with the values of
// the entries, as envoyproxy/ratelimit names its metrics, but without API keys. If the values of a
// pattern share a log, the pattern replaces them.
func (r *Rule) AppendSeries(b []byte, entries descriptors.Descriptor) []byte {
	for i, n := range r.Path {
		if i > 0 {
			b = append(b, '.')
		}
		b = append(b, n.Key...)
		value := n.Value
		if n.Open() && (r.Metric.Detailed || r.ShowsValue(i)) && !r.HasOneLog(i) {
			value = entries[i].Value
		}
		if value != "" && !r.Hides(i) {
			b = append(b, '_')
			b = append(b, value[:min(len(value), maxDetail)]...)
		}
	}
	return b
}

// Rules returns the generation of the rule, or nil for a rule that was not added to one.
func (r *Rule) Rules() *Rules { return r.is.owner }

// Number returns the index of the rule in [Rules.All]. It is -1 for [Domain.Override].
func (r *Rule) Number() int { return r.is.number }

// Store returns the number of the store in which the limits count; see [Rules.SetScopes].
func (r *Rule) Store() window.Scope { return r.is.scope }

// Parts returns the entries of Path whose values are parts of the names of logs, in their order.
// Fixed values are not among them: they are in the rule's id.
func (r *Rule) Parts() []Part { return r.is.parts }

// HasSubject reports whether an entry of Path or of the request names the subject.
func (r *Rule) HasSubject() bool { return r.Subject != "" }

// SubjectAt returns the level of Path whose entry names the subject, or -1 if none does.
func (r *Rule) SubjectAt() int { return r.is.subject }

// IsSubject reports whether the entry at a level of Path names the subject.
func (r *Rule) IsSubject(level int) bool { return r.HasSubject() && level == r.is.subject }

// ManyLogs reports whether a subject can have several logs under the rule.
func (r *Rule) ManyLogs() bool {
	return r.HasSubject() && (len(r.is.parts) > 1 || len(r.is.parts) == 1 && r.is.subject < 0)
}

// RecordsDenied reports whether a denied cost is recorded if something remained; see
// [Rules.ReportUsage].
func (r *Rule) RecordsDenied() bool { return r.is.reports }

// ChargeUnsaid reports whether the file leaves open how the rule charges. This matters if clients
// send both quota checks and usage updates.
func (r *Rule) ChargeUnsaid() bool { return r.is.unsaid }

// SeriesByValue reports whether a metric has a series for values of requests; see [Metric].
func (r *Rule) SeriesByValue() bool { return r.is.seriesByKey }

// TermsOf returns the terms of a tier. The caller must not change them.
func (r *Rule) TermsOf(tierName string) *Terms {
	if t, ok := r.is.byTier[tierName]; ok {
		return t
	}
	return &r.Terms
}

// StoreError returns the choice for the rule's requests while the store cannot decide:
// the rule's own, or else the default of its generation.
func (r *Rule) StoreError() OnStoreError { return r.is.storeError }

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

// closed reports whether the rule may deny while the store cannot decide.
func (r *Rule) closed() bool {
	denies := r.is.storeError != StoreErrorAllow && len(r.Terms.Limits) > 0 && r.Terms.Observe < 1
	for _, t := range r.is.byTier {
		denies = denies || r.is.storeError != StoreErrorAllow && len(t.Limits) > 0 && t.Observe < 1
	}
	return denies
}
