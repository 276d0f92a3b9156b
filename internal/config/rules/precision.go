package rules

import (
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// autoPrecision leaves the precision to the service.
const autoPrecision = "auto"

func parsePrecision(f *strict.Field[string]) (time.Duration, error) {
	if f.Value == autoPrecision {
		return 0, nil
	}
	exact, err := strict.ParseDuration(f.Value)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w, or auto", err)
	case exact < 0:
		return 0, fmt.Errorf("%s is negative", strict.Quote(f.Value))
	}
	return exact, nil
}

// precisionOf returns the precision of a limit at a position. f is in force for it.
func (r *rulesReader) precisionOf(l window.Limit, written *limit, f *strict.Field[string], at strict.Position) time.Duration {
	exact, err := parsePrecision(f)
	switch {
	case !strict.Given(f), f.Value == autoPrecision, err != nil: // which is reported already
		return window.Precision(l)
	case exact <= l.Window:
		r.boundLog(l, written, exact, f, at)
		return exact
	default:
		r.tooLong("precision", f, !written.Precision.Set, "the window", written.length(l.Window), at)
	}
	return 0
}

// slotsAMillisecond is how many slots of a log Redis moves in about a millisecond, by
// the topic "longest" of bench/window.
const slotsAMillisecond = 12_500

// boundLog refuses a limit whose log needs more slots than the bound of its scope: Redis
// does nothing else while it moves them. Only a chosen precision can need so many.
func (r *rulesReader) boundLog(l window.Limit, written *limit, exact time.Duration, f *strict.Field[string], at strict.Position) {
	check := window.Check{Limit: l, Precision: exact}
	slots := packed.LogSlots(&check)
	most := r.scope.MaxLogSlots
	if most == 0 || slots <= most {
		return
	}
	if written.Precision.Set {
		at = f.Position
	}
	parts := time.Duration(most - 2)
	finest := ((l.Window+parts-1)/parts + time.Microsecond - 1).Truncate(time.Microsecond)
	r.decoder.Problem(at, "precision %s for %d per %s needs a log of up to %d slots (%d kB), and Redis stops for about %d ms each time such a log grows: "+
		"give precision auto or at least %v, so that it has at most %d",
		strict.Quoteless(f.Value), l.Hits, written.length(l.Window), slots, packed.LogBytes(&check)/1000, max(slots/slotsAMillisecond, 1), finest, most)
}

// tooLong reports a precision or a lease that is longer than a part of the window of a limit at a
// position. inherited: the limit does not set it.
func (r *rulesReader) tooLong(what string, f *strict.Field[string], inherited bool, part, length string, at strict.Position) {
	if !inherited {
		r.decoder.Problem(f.Position, "%s is longer than %s of %s", strict.Quote(f.Value), part, length)
		return
	}
	r.decoder.Problem(at, "the %s %s%s is longer than %s of %s: give this limit its own", what, strict.Quote(f.Value), onLine(f.Line), part, length)
}
