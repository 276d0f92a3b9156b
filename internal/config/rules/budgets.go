package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

const (
	onEstimate = "estimate" // the default of on_unknown
	maxPerByte = 1_000_000  // of on_unknown
)

// budget reads how a limit reserves costs, and reports what is wrong with it once. It returns nil for no
// budget, or for one with a problem.
func (r *rulesReader) budget(f *strict.Field[*budget]) (out *rules.Budget) {
	v := f.Value
	if v == nil {
		return nil
	}
	out, again := r.budgets[v]
	if again {
		return out
	}
	before := r.Report.Count()
	out = &rules.Budget{Reserve: v.Reserve.Value, Max: rules.DefaultMaxEstimate, Budget: window.Budget{PerByte: float64(v.OnUnknown.Value)}}
	if strict.Given(&v.Max) {
		out.Max = v.Max.Value
	}
	if strict.Given(&v.Hold) {
		out.Hold, _ = r.duration(&v.Hold, window.MinHold, window.MaxBudgetHold, time.Millisecond)
	}
	switch {
	case !strict.Given(&v.Reserve) || v.Max.Bad:
	case out.Max > rules.MaxCost:
		r.decoder.Problem(v.Max.Position, "%d is above %d, the largest cost", out.Max, uint64(rules.MaxCost))
	case out.Reserve == 0:
		r.decoder.Problem(v.Reserve.Position, "an estimate of 0 reserves nothing, so any number of requests could start: write what a usual request costs")
	case out.Reserve > out.Max:
		r.decoder.Problem(v.Reserve.Position, "%d is above %d, the largest estimate (max)", out.Reserve, out.Max)
	}
	if f.Bad || r.Report.Count() > before {
		out = nil
	}
	r.budgets[v] = out
	return out
}

func parseCurrency(f *strict.Field[string]) (string, error) {
	if len(f.Value) != 3 || strings.Trim(f.Value, "abcdefghijklmnopqrstuvwxyz") != "" {
		return "", fmt.Errorf("%s is no currency: write three small letters, such as usd", strict.Quote(f.Value))
	}
	return f.Value, nil
}

// reserves gives a limit at a position the budget and the currency that are in force for it.
func (r *rulesReader) reserves(l *rules.Limit, how *manner, at strict.Position) {
	l.Currency = read(nil, &how.Currency, parseCurrency)
	switch l.Budget = r.budget(&how.Budget); {
	case l.Budget == nil:
	case l.Lease.Length > 0:
		r.decoder.Problem(at, "a budget cannot be combined with a lease: its cost is known only at the end of a request; write lease: none")
	case l.Hits > 0 && l.Budget.Reserve > l.Hits:
		r.decoder.Warning(at, "a request without an estimate reserves %d, and the limit is %d, so it is always denied: lower reserve", l.Budget.Reserve, l.Hits)
	}
}
