package policy

import (
	"time"

	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/pkg/window"
)

// A LimitStatus is one limit that a request was checked against.
type LimitStatus struct {
	Rule       *Rule
	Limit      Limit
	Descriptor int    // index into Request.Descriptors
	Tier       string // empty if the rule has no subject
	Subject    string // the subject's id; empty if it is unknown
	Cost       uint64
	Mode       window.Mode
	Quota      bool // one of several alternatives, of which one must have room
	Observed   bool // never denies
	ShadowAll  bool // Observed only because rules.shadow_mode observes all rules
	Own        bool // the subject's own limit, in place of its tier's
	OwnObserve bool // the subject's override says whether Observed is true
	Unresolved bool // the source of tiers did not answer, so the limits of unknown keys apply
	Unknown    bool // the store did not decide, and the limit does not deny; what remains is unknown
	Blind      bool // the limit denies because the store or the source of tiers did not answer

	undecided bool // the store of the limit's scope did not decide
	ownDay    bool // Limit.Calendar starts on the day of the subject's label
	records   bool // a cost that is denied while something remains is recorded
	recorded  bool // recordDenied has recorded the cost

	Decision window.Decision
	// Period is the period of a calendar in which this process's clock is; zero for any other
	// policy.
	Period window.Period

	jitter float64 // the share of Wait by which RetryAfter is longer
	room   uint64  // what remained before recordDenied has recorded the cost
}

// Over reports whether the limit had no room and is not only observed.
func (s *LimitStatus) Over() bool { return !s.Decision.Allowed && !s.Observed }

// OverByRule is Over without rules.shadow_mode: envoyproxy/ratelimit applies that setting to
// the request, and not to its limits.
func (s *LimitStatus) OverByRule() bool { return !s.Decision.Allowed && (!s.Observed || s.ShadowAll) }

// MayDeny reports whether the limit could have denied the request: it is neither
// a refund nor only observed, nor an alternative of one that passes anyway.
func (s *LimitStatus) MayDeny() bool {
	return !s.Observed && s.Mode != window.Observe && s.Mode != window.Refund
}

// Wait returns the wait until this cost has room, if it was denied; the wait until one
// more unit can be spent, if nothing remains; else the wait until the limit is unused: the
// window is empty, the bucket full, the period over. It is zero for a cost above the limit,
// because no wait helps. While something remains it is at most Span. Otherwise it may be longer,
// by what times are rounded up and by what is reserved ahead, and for a bucket with debt.
//
// When requests in flight end is not known. So if they fill the limit, Wait returns
// [inFlightRetry], and otherwise zero.
func (s *LimitStatus) Wait() time.Duration {
	d := &s.Decision
	if s.Limit.Policy == window.InFlight && !s.Blind {
		if d.Allowed && d.Remaining > 0 || d.Never {
			return 0
		}
		return inFlightRetry
	}
	switch {
	case !d.Allowed:
		return d.RetryAfter // zero if Never
	case d.Remaining == 0:
		return d.UnitAfter
	default:
		span, _ := s.Span()
		return min(d.ResetAfter, span)
	}
}

// RetryAfter returns the wait that answers give to clients: Wait, and with [Rule.RetryJitter] a
// longer one for a client that has to wait. Operators, and Envoy in duration_until_reset, get Wait.
func (s *LimitStatus) RetryAfter() time.Duration {
	wait := s.Wait()
	if s.Decision.Allowed && s.Decision.Remaining > 0 {
		return wait
	}
	return wait + time.Duration(s.jitter*float64(wait))
}

// stricter orders limits by how much they constrain the caller: denied before
// allowed, then the longer wait, then the smaller share that remains. If both are allowed, a
// limit in flight is the least strict: the client's own request will have ended by its next one,
// so what remains says little.
func (s *LimitStatus) stricter(than *LimitStatus) bool {
	a, b := &s.Decision, &than.Decision
	if a.Allowed != b.Allowed {
		return b.Allowed
	}
	if !a.Allowed {
		if a.Never != b.Never {
			return a.Never
		}
		return s.Wait() > than.Wait()
	}
	if one, two := s.Limit.Policy == window.InFlight, than.Limit.Policy == window.InFlight; one != two {
		return two
	}
	// Both at most 2^32-1 by window.MaxHits, so the products fit.
	return a.Remaining*than.Limit.Hits < b.Remaining*s.Limit.Hits
}

// A Verdict is the decision on a request; see [Call.Verdict].
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
	// denies, it is the limit with the smallest share remaining.
	Decisive int
	// Shadowed is the index in Limits of the strictest limit that had no room but
	// is only observed, or -1.
	Shadowed int
	// Unresolved is true if a limit is Unresolved.
	Unresolved bool
	// Headers are the styles of headers of the domain. Nil: those of the service.
	Headers []string
	// Subject, Tier and KeyDigest say who calls, whatever limit is decisive. Each may be empty. They
	// are known as far as a rule of the request has a subject, or a limit that came with a
	// descriptor has an API key in its log. Subject is the id, and KeyDigest the digest of an API key
	// without a subject. Tier is that of the decisive limit, if it has one.
	//
	// If the limits are for several subjects or keys, Subject is that of the decisive limit, and
	// KeyDigest is empty.
	Subject, Tier, KeyDigest string

	callers bool // the limits are for several subjects or keys
}

// A Match is what one descriptor of a request matched.
type Match struct {
	// Rule is nil if none matched.
	Rule *Rule
	// Unlimited: the rule, or its terms for the tier, are unlimited. UnlimitedTier is that tier,
	// empty if the rule has no subject.
	Unlimited     bool
	UnlimitedTier string
	// UnlimitedSubject is the subject whose override says so. Empty: its tier, or the rule, does.
	UnlimitedSubject string
	// ReplacedBy is another rule of the request that replaces Rule, or nil.
	ReplacedBy *Rule
	// Overridden: a limit that came with the descriptor replaces those of Rule.
	Overridden bool

	attempts int // entries with idempotency keys, which are the last ones; see [Match.Limited]
}

// meet notes whom a limit of the request is for.
func (v *Verdict) meet(who *subject) {
	switch id := who.id(); {
	case v.Subject == "" && v.KeyDigest == "":
		v.Subject, v.Tier, v.KeyDigest = id, who.tier, who.key
	case id == "" && who.key == "": // the rule's subject is not in the request
	case v.Subject != id || v.KeyDigest != who.key:
		v.callers = true
	case v.Tier == "":
		v.Tier = who.tier
	}
}

// settleCaller sets who calls once the decisive limit is known.
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
// it is the choice of the decisive rule, and StoreErrorDeny if the limit was not checked or is
// not known. Else it is StoreErrorLocal if a rule has that, and StoreErrorAllow if not. The
// verdict must be degraded.
func (v *Verdict) DegradedBy() OnStoreError {
	if !v.Allowed {
		if v.Decisive >= 0 && !v.Limits[v.Decisive].Blind {
			return v.Limits[v.Decisive].Rule.storeError
		}
		return StoreErrorDeny
	}
	for i := range v.Limits {
		if s := &v.Limits[i]; s.undecided && s.Rule.storeError == StoreErrorLocal {
			return StoreErrorLocal
		}
	}
	return StoreErrorAllow
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
		if m.Rule == nil || m.Rule.Metadata == nil || m.Unlimited || m.ReplacedBy != nil || m.Overridden {
			continue
		}
		if at := v.Strictest[i]; at >= 0 && over(&v.Limits[at]) {
			continue
		}
		if merged == nil {
			merged = make(map[string]any)
		}
		merge(merged, m.Rule.Metadata)
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

// begin makes the zero verdict that of a request. The request is not allowed until it is decided.
func (v *Verdict) begin(descriptors int) {
	v.Decisive, v.Shadowed = -1, -1
	for range descriptors {
		v.Strictest = append(v.Strictest, -1)
		v.Matches = reuse.Grow(v.Matches)
	}
}

// forget makes v the zero Verdict but keeps its memory.
func (v *Verdict) forget() {
	limits, strictest, matches := reuse.Slice(v.Limits), reuse.Slice(v.Strictest), reuse.Slice(v.Matches)
	*v = Verdict{} // a value that has parts of v would be made elsewhere and copied
	v.Limits, v.Strictest, v.Matches = limits, strictest, matches
}

// fold makes the verdict of one decision for each limit. With shadow it allows the
// request in any case.
func (v *Verdict) fold(decisions []window.Decision, shadow bool) {
	var (
		group window.Verdict
		quota = -1 // the alternative with the most room
	)
	for i := range v.Limits {
		s := &v.Limits[i]
		s.Decision = decisions[i]
		group.Add(s.Mode, s.Decision.Allowed)
		if s.Unknown {
			continue
		}
		if at := &v.Strictest[s.Descriptor]; *at < 0 || s.stricter(&v.Limits[*at]) {
			*at = i
		}
		switch {
		case s.Mode == window.Refund:
		case s.Observed:
			if !s.Decision.Allowed && (v.Shadowed < 0 || s.stricter(&v.Limits[v.Shadowed])) {
				v.Shadowed = i
			}
		case s.Quota:
			if quota < 0 || v.Limits[quota].stricter(s) {
				quota = i
			}
		case v.Decisive < 0 || s.stricter(&v.Limits[v.Decisive]):
			v.Decisive = i
		}
	}
	// A limit that always charges denies like the others, unless all are only observed.
	v.Allowed = group.Allowed() || shadow
	if quota >= 0 {
		// If the best alternative has no room, none has, and the group denies. After
		// settleQuota the alternatives cannot deny and are not decisive.
		if q := &v.Limits[quota]; q.MayDeny() && (v.Decisive < 0 || q.stricter(&v.Limits[v.Decisive])) {
			v.Decisive = quota
		}
	}
	v.settleCaller()
}

// outcome returns what happened to the limit. allowed is that of the request.
func (s *LimitStatus) outcome(allowed bool) Outcome {
	switch {
	case s.Mode == window.Refund:
		return OutcomeRefunded
	case s.Observed && s.Decision.Allowed:
		return OutcomeShadowAllowed
	case s.Observed:
		return OutcomeShadowDenied
	case !s.Decision.Allowed && allowed:
		return OutcomePassedOver
	case s.Decision.Never:
		return OutcomeNever
	case !s.Decision.Allowed:
		return OutcomeDenied
	case !allowed && s.Mode != window.Always:
		return OutcomeNotCharged
	case s.Decision.Repeated:
		return OutcomeRepeated
	default:
		return OutcomeAllowed
	}
}
