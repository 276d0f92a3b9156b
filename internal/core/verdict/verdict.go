package verdict

import (
	"slices"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Verdict is the decision on a request; see decide.Call.Verdict.
type Verdict struct {
	// Allowed is true if the request may pass. The modes of the limits say what was
	// charged.
	Allowed bool
	// Degraded is true if the store did not decide, and the rules' own choices did. If the stores
	// of some scopes have decided and one of their limits denies, it is false.
	Degraded bool
	// Limits has each limit that was checked, in the order of the descriptors.
	Limits []LimitStatus
	// Strictest has, for each descriptor of the request, the index in Limits of
	// its strictest limit, or -1 if nothing limits it.
	Strictest []int
	// Matches has the match of each descriptor of the request.
	Matches []Match
	// Decisive is the index in Limits of the limit that headers and metadata describe,
	// or -1 if nothing limits the request. If limits deny, it is the one with the
	// longest wait. The wait of quota rules is that of the first with room. If none
	// denies, it is the limit with the smallest remaining fraction.
	Decisive int
	// Shadowed is the index in Limits of the strictest limit that had no room but
	// is only observed, or -1.
	Shadowed int
	// Unresolved is true if a limit has SourceUnresolved.
	Unresolved bool
	// Headers are the styles of headers of the domain. Nil: those of the service.
	Headers []string
	// Subject, Tier and KeyDigest identify the caller, whichever limit is decisive. Each may be empty.
	// They are set if a rule of the request has a subject, or if a limit that came with a descriptor
	// has an API key in its log. Subject is the id, and KeyDigest the digest of an API key without a
	// subject. Tier is that of the decisive limit, if it has one.
	//
	// If the limits are for several subjects or keys, Subject is that of the decisive limit, and
	// KeyDigest is empty.
	Subject, Tier, KeyDigest string

	callers bool // the limits are for several subjects or keys
}

// A Match is what one descriptor of a request matched.
type Match struct {
	// Rule is nil if none matched.
	Rule *rules.Rule
	// Unlimited: the rule, or its terms for the tier, are unlimited. UnlimitedTier is that tier,
	// empty if the rule has no subject.
	Unlimited     bool
	UnlimitedTier string
	// UnlimitedSubject is the subject whose override says so. Empty: its tier, or the rule, does.
	UnlimitedSubject string
	// ReplacedBy is another rule of the request that replaces Rule, or nil.
	ReplacedBy *rules.Rule
	// Grant has raised a limit of Rule, or is nil.
	Grant *grant.Grant
	// Overridden: a limit that came with the descriptor replaces those of Rule.
	Overridden bool

	Attempts int // entries with idempotency keys, which are the last ones; see [Match.Limited]
}

// AddCaller adds the subject of one limit to the caller of the request.
func (v *Verdict) AddCaller(who *identity.Subject) {
	switch id := who.ID(); {
	case v.Subject == "" && v.KeyDigest == "":
		v.Subject, v.Tier, v.KeyDigest = id, who.Tier, who.Digest
	case id == "" && who.Digest == "": // the rule's subject is not in the request
	case v.Subject != id || v.KeyDigest != who.Digest:
		v.callers = true
	case v.Tier == "":
		v.Tier = who.Tier
	}
}

// settleCaller sets the caller of the request once the decisive limit is known.
func (v *Verdict) settleCaller() {
	if v.callers {
		v.Subject, v.Tier, v.KeyDigest = "", "", ""
	}
	if v.Decisive < 0 {
		return
	}
	s := &v.Limits[v.Decisive]
	if v.callers {
		v.Subject = s.Subject
	}
	if s.Tier != "" {
		v.Tier = s.Tier
	}
}

// DegradedBy returns the choice that decided a request without the store. For a denial
// it is the choice of the decisive rule, and rules.StoreErrorDeny if the limit was not checked or is
// not known. Else it is rules.StoreErrorLocal if a rule has that, and rules.StoreErrorAllow if not. The
// verdict must be degraded.
func (v *Verdict) DegradedBy() rules.OnStoreError {
	if !v.Allowed {
		if v.Decisive >= 0 && !v.Limits[v.Decisive].DeniedUndecided() {
			return v.Limits[v.Decisive].Rule.StoreError()
		}
		return rules.StoreErrorDeny
	}
	for i := range v.Limits {
		if s := &v.Limits[i]; s.DecidedBy != ByStore && s.Rule.StoreError() == rules.StoreErrorLocal {
			return rules.StoreErrorLocal
		}
	}
	return rules.StoreErrorAllow
}

// Metadata returns the merged metadata of the rules whose descriptors have room, or nil.
// It merges as envoyproxy/ratelimit does: mappings are merged, and for any other name
// the first value counts.
func (v *Verdict) Metadata() map[string]any { return v.MetadataUnless((*LimitStatus).Over) }

// MetadataUnless is Metadata, where over reports which limits have no room.
func (v *Verdict) MetadataUnless(over func(*LimitStatus) bool) map[string]any {
	var merged map[string]any
	for i := range v.Matches {
		m := &v.Matches[i]
		if m.Rule == nil || m.Rule.Answer.Metadata == nil || m.Unlimited || m.ReplacedBy != nil || m.Overridden {
			continue
		}
		if at := v.Strictest[i]; at >= 0 && over(&v.Limits[at]) {
			continue
		}
		if merged == nil {
			merged = make(map[string]any)
		}
		merge(merged, m.Rule.Answer.Metadata)
	}
	return merged
}

func merge(into, from map[string]any) {
	for k, v := range from {
		child, isMap := v.(map[string]any)
		old, exists := into[k]
		switch {
		case !exists && isMap:
			fresh := make(map[string]any, len(child))
			merge(fresh, child) // other requests read the rule's own map
			into[k] = fresh
		case !exists:
			into[k] = v
		case isMap:
			if oldMap, ok := old.(map[string]any); ok {
				merge(oldMap, child)
			}
		}
	}
}

// Begin prepares a zero verdict for a request with this number of descriptors. It is not allowed yet.
func (v *Verdict) Begin(descriptors int) {
	v.Decisive, v.Shadowed = -1, -1
	for range descriptors {
		v.Strictest = append(v.Strictest, -1)
		v.Matches = reuse.Grow(v.Matches)
	}
}

// Forget makes v the zero Verdict but keeps its memory.
func (v *Verdict) Forget() {
	limits, strictest, matches := reuse.Slice(v.Limits), reuse.Slice(v.Strictest), reuse.Slice(v.Matches)
	*v = Verdict{} // a value that has parts of v would be made elsewhere and copied
	v.Limits, v.Strictest, v.Matches = limits, strictest, matches
}

// Fold makes the verdict from the decisions, one for each limit. If shadow is true, it allows the
// request in any case.
func (v *Verdict) Fold(decisions []window.Decision, shadow bool) {
	var (
		group window.Verdict
		quota = -1 // the alternative with the most room
	)
	for i := range v.Limits {
		s := &v.Limits[i]
		s.Decision = decisions[i]
		group.Add(s.Mode, s.Decision.Allowed)
		if s.Unknown() {
			continue
		}
		if at := &v.Strictest[s.Descriptor]; *at < 0 || s.Stricter(&v.Limits[*at]) {
			*at = i
		}
		switch {
		case s.Mode == window.Refund:
		case s.Observed():
			if !s.Decision.Allowed && (v.Shadowed < 0 || s.Stricter(&v.Limits[v.Shadowed])) {
				v.Shadowed = i
			}
		case s.Quota:
			if quota < 0 || v.Limits[quota].Stricter(s) {
				quota = i
			}
		case v.Decisive < 0 || s.Stricter(&v.Limits[v.Decisive]):
			v.Decisive = i
		}
	}
	// A limit that always charges denies like the others, unless all are only observed.
	v.Allowed = group.Allowed() || shadow
	if quota >= 0 {
		// If the best alternative has no room, none has, and the group denies. After
		// SettleQuota the alternatives cannot deny and are not decisive.
		if q := &v.Limits[quota]; q.MayDeny() && (v.Decisive < 0 || q.Stricter(&v.Limits[v.Decisive])) {
			v.Decisive = quota
		}
	}
	v.settleCaller()
}

// Limited returns the entries of a descriptor without idempotency keys.
func (m *Match) Limited(entries descriptors.Descriptor) descriptors.Descriptor {
	return entries[:len(entries)-m.Attempts]
}

// Attempt returns the idempotency key in a descriptor, or an empty text.
func (m *Match) Attempt(entries descriptors.Descriptor) string {
	for _, e := range entries[len(entries)-m.Attempts:] {
		if e.Value != "" {
			return e.Value
		}
	}
	return ""
}

// AddLimit adds a limit of a descriptor and returns it in place, because a copy right after it is
// written is slow.
func (v *Verdict) AddLimit(rule *rules.Rule, descriptor int) *LimitStatus {
	v.Limits = reuse.Grow(v.Limits)
	s := &v.Limits[len(v.Limits)-1]
	s.Rule, s.Descriptor = rule, descriptor
	return s
}

// HasLimit reports whether descriptor i has a limit.
func (v *Verdict) HasLimit(i int) bool {
	return slices.ContainsFunc(v.Limits, func(s LimitStatus) bool { return s.Descriptor == i })
}

// Undecided yields the first limit of each descriptor that the store of its scope did not decide.
func (v *Verdict) Undecided(yield func(*LimitStatus) bool) {
	last := -1
	for i := range v.Limits {
		s := &v.Limits[i]
		if s.DecidedBy != ByStore && s.Descriptor != last {
			if last = s.Descriptor; !yield(s) {
				return
			}
		}
	}
}
