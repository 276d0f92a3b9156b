package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

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

// noLease is the value of lease for a limit that must not inherit the rule's lease.
const noLease = "none"

// Bounds on leases. Hits that one instance reserves are not available to others, so leases
// are small and short.
const (
	minLeaseLength  = time.Millisecond
	maxLeaseLength  = time.Second
	maxLeasePercent = 50 // per cent of the limit
	leasesAWindow   = 10 // at least
)

// lease is the value of a key lease. The zero value is no lease.
type lease struct {
	length  time.Duration // zero: the usual length
	percent float64       // of the limit; zero: length decides
}

func parseLease(f *strict.Field[string]) (lease, error) {
	text := f.Value
	if text == noLease {
		return lease{}, nil
	}
	if strings.HasSuffix(text, "%") {
		percent, err := parsePercentage(text, "")
		switch {
		case err != nil:
			return lease{}, err
		case percent == 0 || percent > maxLeasePercent:
			return lease{}, fmt.Errorf("%s is not above 0%% and up to %d%%", strict.Quote(text), maxLeasePercent)
		}
		return lease{percent: percent}, nil
	}
	length, err := strict.ParseDuration(text)
	switch {
	case err != nil:
		return lease{}, fmt.Errorf("%w; or a percentage of the limit such as 5%%, or none", err)
	case length < minLeaseLength || length > maxLeaseLength:
		return lease{}, fmt.Errorf("%s is not between %v and %v", strict.Quote(text), minLeaseLength, maxLeaseLength)
	}
	return lease{length: length}, nil
}

// leaseOf returns the lease of a limit at a position. f is in force for it.
func (r *rulesReader) leaseOf(l window.Limit, written *limit, f *strict.Field[string], at strict.Position) window.Lease {
	given, most := read(nil, f, parseLease), l.Window/leasesAWindow
	out, part, hits := window.Lease{Length: given.length}, "a tenth", l.Hits/window.LeasePart
	switch {
	case given == lease{}:
		return window.Lease{}
	case given.percent > 0:
		part, hits = strict.Quoteless(f.Value), uint64(float64(l.Hits)*given.percent/100)
		out = window.Lease{Length: min(rules.LeaseLength, most), Hits: hits}
	case given.length > most:
		r.tooLong("lease", f, !written.Lease.Set, "a tenth of the window", written.length(l.Window), at)
		return window.Lease{}
	}
	if hits < window.MinLeaseHits {
		if written.Lease.Set { // an inherited one may help other limits
			r.decoder.Warning(f.Position, "%s of %d is less than %d hits, so the lease has no effect", part, l.Hits, uint64(window.MinLeaseHits))
		}
		return window.Lease{}
	}
	r.shortLease(f, out.Length)
	return out
}

// shortLease warns of a lease in a scope whose store may answer after the lease has ended. Limits
// with the lease of their rule have one warning together.
func (r *rulesReader) shortLease(f *strict.Field[string], length time.Duration) {
	if length >= r.scope.Timeout {
		return
	}
	warning := strict.Problem{
		File: r.decoder.File, Line: f.Line, Path: r.decoder.Render(f.Path),
		Message: fmt.Sprintf("the lease lasts %s, and a reservation in the scope %s may take %s (store.scopes.%s.timeout): a lease that has ended before it arrives has no effect; write a lease much longer than the round trip, such as 1s, or none",
			strict.FormatDuration(length), r.scope.Name, strict.FormatDuration(r.scope.Timeout), r.scope.Name),
	}
	if !r.Warn.Has(func(p strict.Problem) bool { return p == warning }) {
		r.Warn.Add(warning)
	}
}

// slides reports a limit that is too large for the policy sliding.
func (r *rulesReader) slides(hits uint64, l *limit) bool {
	if hits <= window.Unlimited {
		return true
	}
	at := l.RequestsPerUnit.Position
	if l.Requests.Set {
		at = l.Requests.Position
	}
	r.decoder.Problem(at, "%s is above %d, the largest limit of the policy sliding: write policy: sliding_counter, fixed or calendar", r.decoder.Quote(strconv.FormatUint(hits, 10)), uint64(window.MaxSliding))
	return false
}
