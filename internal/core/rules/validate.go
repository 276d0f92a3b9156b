package rules

import (
	"slices"

	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// OpenToOneCaller returns the indexes in [Rules.All] of the rules whose requests in flight one
// caller without an API key can fill: all callers share one log, and the domain has no rule with a
// smaller limit in flight for each address or each subject.
func (rs *Rules) OpenToOneCaller() (all []int) {
	least := make(map[string]uint64) // of one caller, by the domain
	for _, r := range rs.rules {
		if most, ok := rs.inFlightOf(r); ok && rs.countsEachCaller(r) {
			if before, ok := least[r.Domain]; !ok || most < before {
				least[r.Domain] = most
			}
		}
	}
	for i, r := range rs.rules {
		most, ok := rs.inFlightOf(r)
		ofOne := len(r.is.parts) > 0 || r.HasSubject() || slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return IsAddressKey(n.Key) })
		if smallest, bounded := least[r.Domain]; ok && !ofOne && most > 0 && (!bounded || smallest >= most) {
			all = append(all, i)
		}
	}
	return all
}

// inFlightOf returns the rule's limit in flight for a caller without an API key.
func (rs *Rules) inFlightOf(r *Rule) (most uint64, ok bool) {
	l := limitWith(r.TermsOf(rs.TierOf(nil)).Limits, window.InFlight)
	if l == nil {
		return 0, false
	}
	return l.Hits, true
}

// countsEachCaller reports whether callers without an API key have separate logs under the rule: by
// their address, or by another subject than an API key in the descriptor.
func (rs *Rules) countsEachCaller(r *Rule) bool {
	for i, n := range r.Path {
		if n.Open() && !r.HasOneLog(i) && IsAddressKey(n.Key) {
			return true
		}
	}
	return r.HasSubject() && (r.is.subject < 0 || r.Path[r.is.subject].Open() && !rs.who.Secrets.Is(r.Subject))
}
