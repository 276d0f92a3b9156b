package window

import "fmt"

// A Priority says which of the requests that wait for a store it decides first. If too many wait,
// it refuses those of the lowest. The zero value is PriorityNormal.
type Priority int8

// The priorities, the lowest first.
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
