package window

import "fmt"

// A Mode says whether a check can deny its group, and when it is charged. The zero value
// is Enforce.
type Mode uint8

const (
	// Enforce denies the group if the check has no room. The check is charged if the
	// group is allowed.
	Enforce Mode = iota
	// Any (quota mode) denies the group if no check of this mode has room. Those that
	// have room are charged if the group is allowed.
	Any
	// Observe (shadow mode) never denies. The check is charged if the group is allowed
	// and the check has room.
	Observe
	// Always (a usage update) records its cost whatever the group decides, even over the
	// limit. It denies the group if the check has no room.
	Always
	// Refund gives its cost back whatever the group decides, newest entries first and
	// never below zero. It never denies.
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

// Unconditional reports whether checks of the mode are recorded whatever the group
// decides: those of [Always] and [Refund].
func (m Mode) Unconditional() bool { return m == Always || m == Refund }

// Charged reports whether a check of the mode is recorded. allowed is the [Verdict] on
// its group; room says whether the check has room.
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

// A Verdict says whether a group is allowed. Add all its checks, in any order.
// The zero value is the verdict on a group without checks: allowed. A Verdict is
// not safe for concurrent use.
type Verdict struct {
	denied  bool // a check that must have room has none
	anyOf   bool // there are checks of mode Any
	anyRoom bool // one of those has room
}

// Add adds a check of mode m. room says whether it has room; for Observe and Refund it
// does not matter.
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

// GroupAllowed reports whether a group that was decided is allowed. decisions[i] answers
// checks[i].
func GroupAllowed(checks []Check, decisions []Decision) bool {
	var v Verdict
	for i := range checks {
		v.Add(checks[i].Mode, decisions[i].Allowed)
	}
	return v.Allowed()
}

// WithoutLog answers a check whose answer does not depend on a log, and reports whether c
// is such a check. A limit of [Unlimited] is unlimited and records nothing in any mode. A
// limit of zero denies, but checks of [Always] and [Refund] still need the log.
func WithoutLog(c *Check) (Decision, bool) {
	switch {
	case c.Limit.Hits == Unlimited:
		return Decision{Allowed: true, Remaining: Unlimited}, true
	case c.Limit.Hits == 0 && !c.Mode.Unconditional():
		return Decision{Never: true}, true
	}
	return Decision{}, false
}
