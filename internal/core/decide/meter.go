package decide

import (
	"time"

	"github.com/slidegate/slidegate/internal/core/inflight"
	"github.com/slidegate/slidegate/pkg/window"
)

// Outcome is what happened to one rule, or to a descriptor without one, in one request.
type Outcome int

// The outcomes of decisions_total.
const (
	// OutcomeAllowed: the rule had room and was charged.
	OutcomeAllowed Outcome = iota
	// OutcomeDenied: the rule had no room.
	OutcomeDenied
	// OutcomeNever: the cost is above the limit, so the rule never has room for it.
	OutcomeNever
	// OutcomeRepeated: the request repeats one with the same idempotency key, and was not charged.
	OutcomeRepeated
	// OutcomeNotCharged: the rule had room, but another rule denied the request.
	OutcomeNotCharged
	// OutcomeError: the store could not decide.
	OutcomeError
	// OutcomeNoRule: no rule limits the descriptor.
	OutcomeNoRule
	// OutcomeUnlimited: the rule, or its terms for the tier, are unlimited.
	OutcomeUnlimited
	// OutcomeReplaced: another rule of the request replaced the rule.
	OutcomeReplaced
	// OutcomeRefunded: the cost was given back.
	OutcomeRefunded
	// OutcomePassedOver: a quota rule had no room, but another one had.
	OutcomePassedOver
	// OutcomeShadowAllowed: the rule is only observed, had room and was charged.
	OutcomeShadowAllowed
	// OutcomeShadowDenied: the rule is only observed and had no room.
	OutcomeShadowDenied
)

// Outcomes lists all outcomes by number with their metric label.
var Outcomes = [...]string{
	OutcomeAllowed:       "allowed",
	OutcomeNever:         "never",
	OutcomeDenied:        "denied",
	OutcomeRepeated:      "repeated",
	OutcomeNotCharged:    "not_charged",
	OutcomeError:         "error",
	OutcomeNoRule:        "no_rule",
	OutcomeUnlimited:     "unlimited",
	OutcomeReplaced:      "replaced",
	OutcomeRefunded:      "refunded",
	OutcomePassedOver:    "passed_over",
	OutcomeShadowAllowed: "shadow_allowed",
	OutcomeShadowDenied:  "shadow_denied",
}

// String returns the metric label.
func (o Outcome) String() string { return Outcomes[o] }

// A Meter counts the outcomes of one rule. It is safe for concurrent use.
type Meter interface {
	Count(Outcome)
	// Near counts hits that had room above Options.NearLimit of a limit.
	Near(hits uint64)
	// Denied counts a denial by the limit of a tier, a policy and a window, besides Count. The
	// window is zero for window.InFlight. A limit that is not the rule's, but of one subject or
	// one request, has the policy window.Sliding and the window zero.
	Denied(tier string, p window.Policy, win time.Duration)
	// Budget counts what happened to the costs of streams, the number of their requests, and their units.
	Budget(o inflight.BudgetOutcome, requests, units uint64)
	// Detail counts in a series for the values of one request, for rules with
	// detailed_metric or value_to_metric. It does not keep the bytes.
	Detail(values []byte, o Outcome)
}

// Meters makes the meters of rules. It is safe for concurrent use.
type Meters interface {
	// Meter returns the meter of a rule. The Decider calls it when a generation becomes
	// active, so that counting needs no look-up. rule is empty for descriptors without
	// a rule.
	Meter(domain, rule string) Meter
	// UnknownDomain counts a request for a domain that has no rules. The name is no
	// label, because clients of the port can make names up.
	UnknownDomain()
	// CutUpdate counts a request with a usage update that was recorded only in part, because it
	// is more than one limit below zero.
	CutUpdate()
	// Ended counts the end of a stream.
	Ended(inflight.EndResult)
	// Misused counts a call that uses limits of requests in flight or budgets in a way that cannot work.
	Misused()
}

// uncounted is Meters that count nothing.
type uncounted struct{}

func (uncounted) Meter(string, string) Meter                    { return uncounted{} }
func (uncounted) UnknownDomain()                                {}
func (uncounted) CutUpdate()                                    {}
func (uncounted) Ended(inflight.EndResult)                      {}
func (uncounted) Misused()                                      {}
func (uncounted) Count(Outcome)                                 {}
func (uncounted) Budget(inflight.BudgetOutcome, uint64, uint64) {}
func (uncounted) Near(uint64)                                   {}
func (uncounted) Denied(string, window.Policy, time.Duration)   {}
func (uncounted) Detail([]byte, Outcome)                        {}
