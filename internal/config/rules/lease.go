package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

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
