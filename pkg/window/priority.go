package window

import "fmt"

// A Priority says which requests a store refuses first if more of them wait for it than it can
// decide in time. The zero value is PriorityNormal.
type Priority int8

// The priorities, the first to be refused first.
const (
	PriorityLow    Priority = -1
	PriorityNormal Priority = 0
	PriorityHigh   Priority = 1
)

// Priorities are all of them, in this order.
var Priorities = []Priority{PriorityLow, PriorityNormal, PriorityHigh}

// String returns low, normal or high.
func (p Priority) String() string {
	switch p {
	case PriorityLow:
		return "low"
	case PriorityNormal:
		return "normal"
	case PriorityHigh:
		return "high"
	default:
		return fmt.Sprintf("Priority(%d)", int8(p))
	}
}
