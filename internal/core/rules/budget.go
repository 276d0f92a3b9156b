package rules

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Budget says how a limit reserves costs. It is immutable.
type Budget struct {
	window.Budget
	// Reserve is the estimate for a request that has none, or one that is 0 or no number. Max bounds the others.
	Reserve, Max uint64
}

const (
	// DefaultMaxEstimate is the default of Budget.Max: the most that Envoy can send in hits_addend.
	DefaultMaxEstimate = 1_000_000_000
	// MaxCost is the largest cost of a request under a budget. Every number up to it is exact in JSON.
	MaxCost = 1 << 53
)

// Estimate returns the cost that a request reserves, and whether it is a valid estimate. sent is false if
// the request has none. One above Max is Max, so that no client reserves less by asking for more.
func (b *Budget) Estimate(cost uint64, sent bool) (estimate uint64, valid bool) {
	if sent && cost >= 1 && cost <= MaxCost {
		return min(cost, b.Max), cost <= b.Max
	}
	return b.Reserve, !sent
}

// Amount returns a number of units as people read it: 950, or 12.40 USD for millionths of a currency. An
// empty currency has no name.
func Amount(units uint64, currency string) string {
	return string(appendAmount(nil, units, currency, true))
}

func appendAmount(b []byte, units uint64, currency string, named bool) []byte {
	if currency == "" {
		return strconv.AppendUint(b, units, 10)
	}
	b = fmt.Appendf(b, "%d.%06d", units/1_000_000, units%1_000_000)
	for range 4 { // cents stay
		b = bytes.TrimSuffix(b, []byte("0"))
	}
	if named {
		b = append(append(b, ' '), strings.ToUpper(currency)...)
	}
	return b
}

// AppendUse appends how much of a budget is used: "12.40 of 500.00 USD used, 3.10 reserved".
func (l *Limit) AppendUse(b []byte, spent, reserved uint64) []byte {
	b = append(appendAmount(b, spent, l.Currency, false), " of "...)
	b = append(appendAmount(b, l.Hits, l.Currency, true), " used, "...)
	return append(appendAmount(b, reserved, l.Currency, false), " reserved"...)
}
