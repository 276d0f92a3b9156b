package verdict

import (
	"math/bits"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// A LimitStatus is one limit that a request was checked against.
type LimitStatus struct {
	Rule       *rules.Rule
	Limit      rules.Limit
	Descriptor int    // index into Request.Descriptors
	Tier       string // empty if the rule has no subject
	Subject    string // the subject's id; empty if it is unknown
	Cost       uint64
	Mode       window.Mode
	Quota      bool // one of several alternatives, of which one must have room

	Source      Source
	Enforcement Enforcement
	DecidedBy   DecidedBy
	Decision    window.Decision
	// Period is the period of a calendar in which this process's clock is; zero for any other
	// policy.
	Period Period
	// Jitter is the fraction of Wait by which RetryAfter is longer.
	Jitter float64

	Update UsageUpdate
}

// A Period is a period of a calendar.
type Period struct {
	window.Period
	// SubjectDay is true if it starts on the day of the subject's label.
	SubjectDay bool
}

// A UsageUpdate says whether a limit records a usage update that it denies.
type UsageUpdate struct {
	Records  bool   // a cost that is denied while something remains is recorded
	Recorded bool   // the cost was recorded
	Room     uint64 // what remained before that
}

// A Source says where a limit comes from.
type Source uint8

// The sources.
const (
	SourceRule       Source = iota // the rule has it for all tiers
	SourceTier                     // the rule has it for the tier of the subject
	SourceOverride                 // the subject has it, instead of its tier
	SourceRequest                  // it came with the descriptor
	SourceGrant                    // an operator has raised it for a time; see Match.Grant
	SourceUnresolved               // that of unknown keys, because the customer source did not answer
)

// Enforcement says whether a limit denies.
type Enforcement uint8

// The enforcements. The zero value denies.
const (
	Enforced           Enforcement = iota
	EnforcedForSubject             // the subject's override says so
	Observed                       // never denies
	ObservedForSubject             // never denies, because the subject's override says so
	ObservedForAll                 // never denies, because rules.shadow_mode observes all rules
)

// DecidedBy says what has decided a limit.
type DecidedBy uint8

// What decides.
const (
	ByStore     DecidedBy = iota // the store of the limit's scope
	ByLocal                      // the local store, because of StoreErrorLocal
	ByRuleAllow                  // nothing: the limit does not deny, and what remains is unknown
	ByRuleDeny                   // StoreErrorDeny, or the bound that the request exceeds
	ByNoTier                     // decide.Options.DenyUnresolved, because the customer source did not answer
)

// Observed reports whether the limit never denies.
func (s *LimitStatus) Observed() bool { return s.Enforcement >= Observed }

// Overridden reports whether the subject's override says whether the limit denies.
func (e Enforcement) Overridden() bool { return e == EnforcedForSubject || e == ObservedForSubject }

// Unknown reports whether the limit was not decided and does not deny, so that what remains is
// unknown.
func (s *LimitStatus) Unknown() bool { return s.DecidedBy == ByRuleAllow }

// DeniedUndecided reports whether the limit denies because the store or the customer source did not
// answer.
func (s *LimitStatus) DeniedUndecided() bool { return s.DecidedBy >= ByRuleDeny }

// Over reports whether the limit had no room and is not only observed.
func (s *LimitStatus) Over() bool { return !s.Decision.Allowed && !s.Observed() }

// OverByRule is Over without rules.shadow_mode: envoyproxy/ratelimit applies that setting to
// the request, and not to its limits.
func (s *LimitStatus) OverByRule() bool {
	return !s.Decision.Allowed && (!s.Observed() || s.Enforcement == ObservedForAll)
}

// MayDeny reports whether the limit could have denied the request. A refund, an observed limit, and a
// quota rule with an alternative that passes cannot.
func (s *LimitStatus) MayDeny() bool {
	return !s.Observed() && s.Mode != window.Observe && s.Mode != window.Refund
}

// Spent returns how much of a budget is spent, without what streams have reserved.
func (s *LimitStatus) Spent() uint64 {
	left := s.Decision.Remaining + s.Decision.Reserved
	return s.Limit.Hits - min(left, s.Limit.Hits)
}

// Wait returns the wait until this cost has room, if it was denied; the wait until one
// more unit can be spent, if nothing remains; else the wait until the limit is unused: the
// window is empty, the bucket full, the period over. It is zero for a cost above the limit,
// because no wait helps. While something remains it is at most Span. Otherwise it may be longer,
// by what times are rounded up and by what is reserved ahead, and for a bucket below zero.
//
// When requests in flight end is not known. So if they fill the limit, Wait returns
// [inflight.Retry], and otherwise zero. If a cost has no room in a budget only because of what they
// have reserved, or nothing remains because of it, Wait is [inflight.Retry] at most.
func (s *LimitStatus) Wait() time.Duration {
	d := &s.Decision
	if s.Limit.Policy == window.InFlight && !s.DeniedUndecided() {
		if d.Allowed && d.Remaining > 0 || d.Never {
			return 0
		}
		return inflight.Retry
	}
	switch {
	case !d.Allowed && d.Reserved > 0 && s.Cost <= d.Remaining+d.Reserved:
		return min(d.RetryAfter, inflight.Retry)
	case !d.Allowed:
		return d.RetryAfter // zero if Never
	case d.Remaining == 0 && d.Reserved > 0:
		return min(d.UnitAfter, inflight.Retry)
	case d.Remaining == 0:
		return d.UnitAfter
	default:
		span, _ := s.Span()
		return min(d.ResetAfter, span)
	}
}

// RetryAfter returns the wait that answers give to clients: Wait, and with [rules.Answer.RetryJitter] a
// longer one for a client that has to wait. Operators, and Envoy in duration_until_reset, get Wait.
func (s *LimitStatus) RetryAfter() time.Duration {
	wait := s.Wait()
	if s.Decision.Allowed && s.Decision.Remaining > 0 {
		return wait
	}
	return wait + time.Duration(s.Jitter*float64(wait))
}

// Stricter orders limits by how much they constrain the caller: denied before
// allowed, then the longer wait, then the smaller remaining fraction. If both are allowed, a
// limit in flight is the least strict: the client's own request will have ended by its next one,
// so what remains says little.
func (s *LimitStatus) Stricter(than *LimitStatus) bool {
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
	return s.HasLess(than)
}

// HasLess reports whether a smaller fraction of the limit remains than of another.
func (s *LimitStatus) HasLess(than *LimitStatus) bool {
	high, low := bits.Mul64(s.Decision.Remaining, than.Limit.Hits)
	high2, low2 := bits.Mul64(than.Decision.Remaining, s.Limit.Hits)
	return high < high2 || high == high2 && low < low2
}

// Span returns the time that the hits of the limit are for, which answers report as its window:
//
//   - sliding, fixed and sliding_counter: the window
//   - token_bucket: how long an empty bucket takes to fill
//   - calendar: the length of the present period. After a change of the calendar the old period
//     may be longer; Span is then the wait until it ends.
//   - in_flight: zero, because hits are for no time
//
// exact is false if the time is rounded up.
func (s *LimitStatus) Span() (span time.Duration, exact bool) {
	l := &s.Limit.Limit
	switch l.Policy {
	case window.TokenBucket:
		return rules.FillTime(*l)
	case window.InFlight:
		return 0, true
	case window.Calendar:
		if span = time.Duration(s.Period.End-s.Period.Start) * time.Second; span <= 0 {
			return l.Window, false // not asked
		}
		if wait := s.Decision.ResetAfter; wait > span {
			return wait, false
		}
	default:
		return l.Window, true
	}
	return span, true
}

// Caller returns the caller that the limit counts.
func (s *LimitStatus) Caller(req *identity.Request) identity.CallerInfo {
	return identity.CallerOf(req, s.Rule, s.Descriptor, s.Subject, s.Source == SourceUnresolved)
}
