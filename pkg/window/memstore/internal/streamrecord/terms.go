package streamrecord

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// The length of what appendTerms appends, and where the end of the hold is in it.
const (
	atEnds     = 8 + 8 + 4 + 8 + 3*8 + 4 + 8
	termsBytes = atEnds + 8
)

// appendTerms appends what charges the log of a check with a budget: its limit, precision, period and budget, and
// when its hold ends.
func appendTerms(b []byte, c *window.Check, ends int64) []byte {
	order := binary.BigEndian
	b = order.AppendUint64(b, uint64(c.Limit.Window))
	b = order.AppendUint64(b, c.Limit.Hits)
	b = order.AppendUint32(b, c.Limit.Rate)
	b = order.AppendUint64(b, uint64(c.Precision))
	b = order.AppendUint64(b, uint64(c.Period.Start))
	b = order.AppendUint64(b, uint64(c.Period.End))
	b = order.AppendUint64(b, uint64(c.Period.Next))
	b = order.AppendUint32(b, uint32(c.Budget.Hold/time.Millisecond))
	b = order.AppendUint64(b, math.Float64bits(c.Budget.PerByte))
	return order.AppendUint64(b, uint64(ends))
}

// Terms fills c in with what charges the log of a budget, without its key. Its budget is written to budget.
func (e *Entry) Terms(c *window.Check, budget *window.Budget) {
	b, order := e.terms, binary.BigEndian
	*budget = window.Budget{Hold: time.Duration(order.Uint32(b[52:])) * time.Millisecond, PerByte: math.Float64frombits(order.Uint64(b[56:]))}
	*c = window.Check{
		Mode: window.Always, Budget: budget, Scope: e.Scope,
		Limit:     window.Limit{Window: time.Duration(order.Uint64(b)), Hits: order.Uint64(b[8:]), Rate: order.Uint32(b[16:]), Policy: e.Policy},
		Precision: time.Duration(order.Uint64(b[20:])),
		Period:    window.Period{Start: int64(order.Uint64(b[28:])), End: int64(order.Uint64(b[36:])), Next: int64(order.Uint64(b[44:]))},
	}
}
