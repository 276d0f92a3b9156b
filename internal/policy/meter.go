package policy

// Outcome is what became of one rule, or of a descriptor without one, in one
// request.
type Outcome int

// The outcomes of decisions_total.
const (
	// OutcomeAllowed: had room and was charged.
	OutcomeAllowed Outcome = iota
	// OutcomeDenied: had no room.
	OutcomeDenied
	// OutcomeNotCharged: had room, but another rule of the request denied it.
	OutcomeNotCharged
	// OutcomeError: the store could not decide.
	OutcomeError
	// OutcomeNoRule: no rule limits the descriptor.
	OutcomeNoRule
	// OutcomeUnlimited: the rule, or its terms for the tier, say so.
	OutcomeUnlimited
	// OutcomeReplaced: another rule of the request took its place.
	OutcomeReplaced
	// OutcomeRefunded: cost was given back.
	OutcomeRefunded
	// OutcomePassedOver: a quota rule had no room, but another one had.
	OutcomePassedOver
	// OutcomeShadowAllowed: only observed, had room and was charged with the
	// request.
	OutcomeShadowAllowed
	// OutcomeShadowDenied: only observed, had no room.
	OutcomeShadowDenied
)

// Outcomes lists all outcomes by number with their metric label.
var Outcomes = [...]string{
	OutcomeAllowed:       "allowed",
	OutcomeDenied:        "denied",
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

// A Meter counts the outcomes of one rule. Safe for concurrent use.
type Meter interface {
	Count(Outcome)
	// Detail counts in a series for the values of one request, which a rule has
	// asked for. It does not keep the bytes.
	Detail(values []byte, o Outcome)
}

// Meters gives every rule its meter when a generation becomes active, so that
// counting needs no look-up. rule is empty for descriptors without a rule.
type Meters interface {
	Meter(domain, rule string) Meter
	// UnknownDomain counts a request for a domain that has no rules. The name
	// came over the wire and so is no label.
	UnknownDomain()
}
