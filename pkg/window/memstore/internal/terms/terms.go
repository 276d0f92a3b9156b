// Package terms packs what charges a log with a budget.
package terms

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// Bytes is the length of what Append appends.
const Bytes = 8 + 8 + 4 + 8 + 3*8 + 4 + 8

// Append appends what charges the log of a check with a budget: its limit, precision, period and budget.
func Append(b []byte, c *window.Check) []byte {
	order := binary.BigEndian
	b = order.AppendUint64(b, uint64(c.Limit.Window))
	b = order.AppendUint64(b, c.Limit.Hits)
	b = order.AppendUint32(b, c.Limit.Rate)
	b = order.AppendUint64(b, uint64(c.Precision))
	b = order.AppendUint64(b, uint64(c.Period.Start))
	b = order.AppendUint64(b, uint64(c.Period.End))
	b = order.AppendUint64(b, uint64(c.Period.Next))
	b = order.AppendUint32(b, uint32(c.Budget.Hold/time.Millisecond))
	return order.AppendUint64(b, math.Float64bits(c.Budget.PerByte))
}

// Read returns the check that charges a log, without what names the log. Its budget is written to budget.
func Read(b []byte, budget *window.Budget) window.Check {
	order := binary.BigEndian
	*budget = window.Budget{Hold: time.Duration(order.Uint32(b[52:])) * time.Millisecond, PerByte: math.Float64frombits(order.Uint64(b[56:]))}
	return window.Check{
		Mode: window.Always, Budget: budget,
		Limit:     window.Limit{Window: time.Duration(order.Uint64(b)), Hits: order.Uint64(b[8:]), Rate: order.Uint32(b[16:])},
		Precision: time.Duration(order.Uint64(b[20:])),
		Period:    window.Period{Start: int64(order.Uint64(b[28:])), End: int64(order.Uint64(b[36:])), Next: int64(order.Uint64(b[44:]))},
	}
}
