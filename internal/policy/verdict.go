package policy

import (
	"time"

	"github.com/slidegate/slidegate/internal/reuse"
	"github.com/slidegate/slidegate/pkg/window"
)

// A LimitStatus is one limit that a request was checked against.
type LimitStatus struct {
	Rule       *Rule
	Limit      Limit
	Descriptor int    // index into Request.Descriptors
	Tier       string // empty where the rule knows no subject
	Subject    string // the subject's id; empty where it is not known
	Cost       uint64
	Mode       window.Mode
	Quota      bool // one of several alternatives, of which one must have room
	Observed   bool // never denies
	Own        bool // the subject's own limits take the place of its tier's
	Unresolved bool // nobody could say whose limits count; those of somebody unknown do
	Unknown    bool // the store could not say, and the rule allows then: nobody knows what remains
	Blind      bool // nobody could say whether there is room, and it denies then
	Decision   window.Decision
}

// Over reports whether the limit had no room and was meant to have it.
func (s *LimitStatus) Over() bool { return !s.Decision.Allowed && !s.Observed }

// MayDeny reports whether the limit could have denied the request: it is neither
// a refund nor only observed, nor an alternative of one that passes anyway.
func (s *LimitStatus) MayDeny() bool {
	return !s.Observed && s.Mode != window.Observe && s.Mode != window.Refund
}

// Wait returns the wait until this cost has room, if it was denied; the wait until one
// more unit can be spent, if nothing remains; else the wait until the window is empty.
// A cost that can never have room gets the length of the window: asking again sooner is
// certainly in vain. Retry-After tells it. It may be longer than the window, by what
// times are rounded up and by what is reserved ahead.
func (s *LimitStatus) Wait() time.Duration {
	switch d := &s.Decision; {
	case d.Never:
		return s.Limit.Window
	case !d.Allowed:
		return d.RetryAfter
	case d.Remaining == 0:
		return d.UnitAfter
	default:
		return d.ResetAfter
	}
}

// Reset returns Wait, or the length of the window if Wait is longer. Every answer that
// tells the window beside the reset tells this, so that no reset exceeds its window.
func (s *LimitStatus) Reset() time.Duration { return min(s.Wait(), s.Limit.Window) }

// stricter orders limits by how much they constrain the caller: denied before
// allowed, then the longer wait, then the smaller share that remains.
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
	// Both at most 2^32-1 by window.MaxHits, so the products fit.
	return a.Remaining*than.Limit.Hits < b.Remaining*s.Limit.Hits
}

// A Verdict is the answer to a request; see [Call.Verdict].
type Verdict struct {
	// Allowed says whether the request may pass. What was charged follows from
	// the modes of the limits.
	Allowed bool
	// Degraded says that the store could not decide and that the rules' own
	// choice for that did.
	Degraded bool
	// Limits holds every limit that was checked, in the order of the descriptors.
	Limits []LimitStatus
	// Strictest has, for each descriptor of the request, the index in Limits of
	// its strictest limit, or -1 if nothing limits it.
	Strictest []int
	// Matches has what each descriptor of the request matched.
	Matches []Match
	// Decisive is the index in Limits of the limit that speaks for the request:
	// of those that deny, the one with the longest wait, where quota rules wait
	// for the first of them that has room; if none denies, the one with the
	// smallest share remaining. -1 if nothing limits the request.
	Decisive int
	// Shadowed is the index in Limits of the strictest limit that had no room but
	// is only observed, or -1.
	Shadowed int
	// Unresolved says that a limit is, because the source of tiers could not say who
	// calls.
	Unresolved bool
	// Headers are the styles of headers of the domain. Nil: the service's.
	Headers []string
}

// A Match is what one descriptor of a request met.
type Match struct {
	// Rule is nil if none matched.
	Rule *Rule
	// Unlimited: by the rule, or its terms for the tier.
	Unlimited bool
	// ReplacedBy is another rule that the request matched, which takes its place.
	ReplacedBy *Rule
	// Overridden: a limit that came with the descriptor takes its place.
	Overridden bool
}

// DegradedBy returns the choice that decided a request without the store: of a
// denial that of the rule that speaks for it, else the local logs if there was one
// to ask. The verdict must be degraded.
func (v *Verdict) DegradedBy() OnStoreError {
	if !v.Allowed && v.Decisive >= 0 {
		if s := &v.Limits[v.Decisive]; !s.Blind {
			return s.Rule.storeError
		}
		return StoreErrorDeny
	}
	for i := range v.Limits {
		if v.Limits[i].Rule.storeError == StoreErrorLocal {
			return StoreErrorLocal
		}
	}
	return StoreErrorAllow
}

// Metadata returns the merged metadata of the rules whose descriptors have room,
// nil if there is none. Of two values for one name the first one counts;
// mappings are merged, as envoyproxy/ratelimit does.
func (v *Verdict) Metadata() map[string]any {
	var merged map[string]any
	for i := range v.Matches {
		m := &v.Matches[i]
		if m.Rule == nil || m.Rule.Metadata == nil || m.Unlimited || m.ReplacedBy != nil || m.Overridden {
			continue
		}
		if at := v.Strictest[i]; at >= 0 && v.Limits[at].Over() {
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
			merge(fresh, child) // the rule's own is read by others
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

// reset clears the verdict but keeps its memory.
func (v *Verdict) reset(descriptors int) {
	*v = Verdict{
		Allowed: true, Decisive: -1, Shadowed: -1,
		Limits: reuse.Slice(v.Limits), Strictest: reuse.Slice(v.Strictest), Matches: reuse.Slice(v.Matches),
	}
	for range descriptors {
		v.Strictest = append(v.Strictest, -1)
		v.Matches = append(v.Matches, Match{})
	}
}

// fold makes the verdict of one decision for each limit. With shadow it allows the
// request in any case.
func (v *Verdict) fold(decisions []window.Decision, shadow bool) {
	var (
		group window.Verdict
		quota = -1 // the alternative that speaks for all
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
	// What always charges vetoes like the others, but not where all is observed.
	v.Allowed = group.Allowed() || shadow
	if quota < 0 {
		return
	}
	// If the best alternative has no room none has, and the group denies. Where it
	// was settled otherwise none of them has anything to say.
	if q := &v.Limits[quota]; q.MayDeny() && (v.Decisive < 0 || q.stricter(&v.Limits[v.Decisive])) {
		v.Decisive = quota
	}
}

// outcome is what became of the limit in a request that was allowed or not.
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
	case !s.Decision.Allowed:
		return OutcomeDenied
	case !allowed && s.Mode != window.Always:
		return OutcomeNotCharged
	default:
		return OutcomeAllowed
	}
}
