package window

import "fmt"

// A Mode says what a check means to its group: whether it can deny the request,
// and when it is charged. The zero value is Enforce.
type Mode uint8

const (
	// Enforce denies the request if it has no room, and is charged if the request
	// is allowed.
	Enforce Mode = iota
	// Any is one of several (quota mode): of all checks of the group with this
	// mode at least one must have room, or the request is denied. If it is
	// allowed, those that have room are charged.
	Any
	// Observe never denies (shadow mode). It is charged if the request is allowed
	// and it has room itself.
	Observe
	// Always records its cost even over the limit and whatever the others say: a
	// usage report. Without room it denies the request like Enforce.
	Always
	// Refund gives its cost back, newest first and never below zero, whatever the
	// others say. It never denies.
	Refund
)

var modeNames = [...]string{Enforce: "enforce", Any: "any", Observe: "observe", Always: "always", Refund: "refund"}

// String returns the mode's name in lower case.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Unconditional reports whether checks of the mode are recorded whatever the
// group decides, so that a store need not wait for that.
func (m Mode) Unconditional() bool { return m == Always || m == Refund }

// Charged reports whether a check of the mode is recorded. allowed is the
// [Verdict] on its group, room whether the check has room itself.
func (m Mode) Charged(allowed, room bool) bool {
	switch m {
	case Always, Refund:
		return true
	case Any, Observe:
		return allowed && room
	default:
		return allowed
	}
}

// A Verdict says whether a group is allowed. Add every check of it in any order.
// The zero value is the verdict on a group without checks: allowed. A Verdict is
// not safe for concurrent use.
type Verdict struct {
	denied  bool // by a check that must have room
	anyOf   bool // there are Any checks
	anyRoom bool // and one of them has room
}

// Add tells whether a check of a mode has room. Of a Refund it does not matter.
func (v *Verdict) Add(m Mode, room bool) {
	switch m {
	case Observe, Refund:
	case Any:
		v.anyOf = true
		v.anyRoom = v.anyRoom || room
	default:
		v.denied = v.denied || !room
	}
}

// Allowed reports whether the group is allowed.
func (v *Verdict) Allowed() bool { return !v.denied && (v.anyRoom || !v.anyOf) }

// GroupAllowed returns the verdict on a group that was decided: the decisions
// answer the checks one to one.
func GroupAllowed(checks []Check, decisions []Decision) bool {
	var v Verdict
	for i := range checks {
		v.Add(checks[i].Mode, decisions[i].Allowed)
	}
	return v.Allowed()
}

// WithoutLog answers a check for which no log is needed, because whatever the
// log holds would not matter, and reports whether it is such a check: a limit of
// [MaxHits] is unlimited and records nothing in any mode, and a limit of zero
// denies. A limit of zero does not keep [Always] and [Refund] from the log.
func WithoutLog(c *Check) (Decision, bool) {
	switch {
	case c.Limit.Hits == MaxHits:
		return Decision{Allowed: true, Remaining: MaxHits}, true
	case c.Limit.Hits == 0 && !c.Mode.Unconditional():
		return Decision{Never: true}, true
	}
	return Decision{}, false
}
