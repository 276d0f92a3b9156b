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
)

// Outcomes lists all outcomes by number with their metric label.
var Outcomes = [...]string{
	OutcomeAllowed:    "allowed",
	OutcomeDenied:     "denied",
	OutcomeNotCharged: "not_charged",
	OutcomeError:      "error",
	OutcomeNoRule:     "no_rule",
}

// String returns the metric label.
func (o Outcome) String() string { return Outcomes[o] }

// A Meter counts the outcomes of one rule. Safe for concurrent use.
type Meter interface {
	Count(Outcome)
}

// Meters gives every rule its meter when a generation becomes active, so that
// counting needs no look-up. rule is empty for descriptors without a rule.
type Meters interface {
	Meter(domain, rule string) Meter
	// UnknownDomain counts a request for a domain that has no rules. The name
	// came over the wire and so is no label.
	UnknownDomain()
}
