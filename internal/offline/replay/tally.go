package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/window"
)

// A part is one limit of a rule for one tier, with what it did.
type part struct {
	partKey
	limit    rules.Limit
	observed bool
	order    int // of the rule in its file
	index    uint32

	total                  *total
	requests, denied, near uint64
	sim                    *variants // nil: no what-if yet
	fixed                  bool      // there will be none
}

// A partKey names a part.
type partKey struct {
	rule     *rules.Rule
	tier     string
	hits     window.Limit
	override bool // of subjects, or of requests, in place of the rule's
	nothing  bool // the rule does not limit the tier
}

// A total is what all limits of the rules of one name did together. It counts each request once.
type total struct{ requests, denied, near counter }

// A totalKey names a total. A rule can be enforced for one request and only observed for another.
type totalKey struct {
	rule     string
	observed bool
}

// A counter counts requests.
type counter struct{ n, last uint64 }

// once counts a request by its number, which is not zero, unless it was the last one.
func (c *counter) once(number uint64) {
	if c.last != number {
		c.n, c.last = c.n+1, number
	}
}

// maxOverrides bounds the parts of limits that are not in the rules. All others of a rule share one part.
const maxOverrides = 1024

// A tally counts what the rules of one generation did.
type tally struct {
	rules     *rules.Rules
	parts     []*part
	byKey     map[partKey]*part
	overrides int
	totals    map[totalKey]*total
	near      counter // of limits that are enforced
	order     map[*rules.Rule]int
	logs      map[uint64]logUse // by the hash of the log
	sample    *sample
	top       *tops
}

// A logUse is what is known of a log.
type logUse struct {
	caller uint64 // see [match]
	part   uint32 // index
	denied bool
}

// useBytes are about the bytes of a log in a tally.
const useBytes = 64

func newTally(rs *rules.Rules, s *sample) *tally {
	t := &tally{
		rules: rs, byKey: make(map[partKey]*part), totals: make(map[totalKey]*total), order: make(map[*rules.Rule]int),
		logs: make(map[uint64]logUse), sample: s, top: newTops(),
	}
	s.holders = append(s.holders, func(int64) {
		before := len(t.logs)
		maps.DeleteFunc(t.logs, func(hash uint64, _ logUse) bool { return !s.keeps(hash) })
		s.bytes -= useBytes * (before - len(t.logs))
	})
	for i, r := range rs.All() {
		t.order[r] = i
	}
	return t
}

// partOf returns the part of a limit.
func (t *tally) partOf(s *decide.LimitStatus, override bool) *part {
	key := partKey{rule: s.Rule, tier: s.Tier, hits: s.Limit.Limit, override: override}
	if p := t.byKey[key]; p != nil {
		return p
	}
	limit := s.Limit
	if override {
		if t.overrides++; t.overrides > maxOverrides {
			key.hits, limit = window.Limit{}, rules.Limit{}
		}
	}
	return t.part(key, limit, s.Observed())
}

// unlimited returns the part of a tier that a rule does not limit.
func (t *tally) unlimited(r *rules.Rule, tier string) *part {
	return t.part(partKey{rule: r, tier: tier, nothing: true}, rules.Limit{}, false)
}

// part returns the part of a key, which may be a new one.
func (t *tally) part(key partKey, limit rules.Limit, observed bool) *part {
	if p := t.byKey[key]; p != nil {
		return p
	}
	key.tier = strings.Clone(key.tier) // it can be a text of a log
	p := &part{partKey: key, limit: limit, observed: observed, order: math.MaxInt, index: uint32(len(t.parts))}
	if at, known := t.order[p.rule]; known { // else the limit came with a descriptor that no rule matches
		p.order = at
	}
	of := totalKey{p.rule.Name, p.observed}
	if p.total = t.totals[of]; p.total == nil {
		p.total = new(total)
		t.totals[of] = p.total
	}
	t.parts, t.byKey[key] = append(t.parts, p), p
	return p
}

// A match is one limit that applies to a request.
type match struct {
	*part
	hash   uint64 // of the log
	caller uint64 // a hash of the rule and the caller, who has a log for each limit of the rule
}

// match returns the part and the log of a limit of a verdict.
func (t *tally) match(req *identity.Request, s *decide.LimitStatus, c *window.Check) match {
	p := t.partOf(s, s.Source == verdict.SourceOverride || req.Descriptors[s.Descriptor].Override != nil)
	caller := xxhash.Sum64String(c.Key)
	return match{p, mix(caller + mix(uint64(p.index))), caller}
}

// mix spreads a number over all bits.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// count counts a limit of a verdict on a request, by the request's number. If atEnd is true, the
// request was counted when it began.
func (t *tally) count(m match, v *decide.Verdict, s *decide.LimitStatus, number uint64, atEnd bool) {
	p, d := m.part, &s.Decision
	denied := s.Mode != window.Refund && !d.Allowed && (s.Observed() || !v.Allowed)
	hits := s.Limit.Hits
	if !atEnd {
		p.requests++
		p.total.requests.once(number)
		if denied {
			p.denied++
			p.total.denied.once(number)
		} else if v.Allowed && d.Allowed && s.Cost > 0 && hits != window.Unlimited && d.Remaining <= hits/10 {
			p.near++
			p.total.near.once(number)
			if !p.observed {
				t.near.once(number)
			}
		}
	}
	if t.sample.keeps(m.hash) {
		use, known := t.logs[m.hash]
		t.logs[m.hash] = logUse{m.caller, p.index, use.denied || denied && !atEnd}
		if !known {
			t.sample.bytes += useBytes
		}
	}
}

// addUnused adds the parts of rules that applied to no request.
func (t *tally) addUnused() {
	for _, r := range t.rules.All() {
		if slices.ContainsFunc(t.parts, func(p *part) bool { return p.rule == r }) {
			continue
		}
		add := func(tier string, terms *rules.Terms) {
			if terms.Unlimited || len(terms.Limits) == 0 {
				t.unlimited(r, tier)
			}
			for i := range terms.Limits {
				s := decide.LimitStatus{Rule: r, Tier: tier, Limit: terms.Limits[i]}
				if terms.Observe >= 1 {
					s.Enforcement = verdict.Observed
				}
				t.partOf(&s, false)
			}
		}
		if len(r.ByTier) == 0 || len(r.Terms.Limits) > 0 || r.Terms.Unlimited {
			add("", &r.Terms)
		}
		for _, name := range slices.Sorted(maps.Keys(r.ByTier)) {
			terms := r.ByTier[name]
			add(name, &terms)
		}
	}
}

// report returns what each part did, in the order of the rules, and what each rule did. locations are
// those of the rules.
func (t *tally) report(locations []string) (reports []RuleReport, totals []RuleTotal) {
	t.addUnused()
	logs, denied := make([]uint64, len(t.parts)), make([]uint64, len(t.parts))
	callers, deniedCallers := make(map[*total][]uint64), make(map[*total][]uint64)
	for _, use := range t.logs {
		of := t.parts[use.part].total
		logs[use.part]++
		callers[of] = append(callers[of], use.caller)
		if use.denied {
			denied[use.part]++
			deniedCallers[of] = append(deniedCallers[of], use.caller)
		}
	}
	parts := slices.Clone(t.parts)
	slices.SortStableFunc(parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.tier, b.tier), cmp.Compare(strconv.FormatBool(a.override), strconv.FormatBool(b.override)), cmp.Compare(strconv.FormatBool(a.nothing), strconv.FormatBool(b.nothing)),
			cmp.Compare(a.limit.Window, b.limit.Window), cmp.Compare(a.limit.Policy, b.limit.Policy), cmp.Compare(a.limit.Hits, b.limit.Hits), cmp.Compare(a.index, b.index))
	})
	reports, totals = make([]RuleReport, 0, len(parts)), make([]RuleTotal, 0, len(t.totals))
	seen := make(map[*total]bool)
	for _, p := range parts {
		if all := p.total; !seen[all] {
			seen[all] = true
			totals = append(totals, RuleTotal{
				Rule: p.rule.Name, Observed: p.observed, Requests: all.requests.n, Denied: all.denied.n, Near: all.near.n,
				Logs: different(callers[all]) * t.sample.times(), DeniedLogs: different(deniedCallers[all]) * t.sample.times(),
			})
		}
		r := RuleReport{
			Rule: p.rule.Name, Tier: p.tier, Limit: p.words(), Observed: p.observed, Override: p.override,
			Requests: p.requests, Denied: p.denied, Near: p.near,
			Logs: logs[p.index] * t.sample.times(), DeniedLogs: denied[p.index] * t.sample.times(),
		}
		if p.order < len(locations) {
			r.Location = locations[p.order]
		}
		if p.sim != nil {
			r.WhatIf = p.sim.report(&p.limit, r.Logs)
		}
		reports = append(reports, r)
	}
	return reports, totals
}

// different returns how many different numbers there are. It sorts them.
func different(numbers []uint64) uint64 {
	slices.Sort(numbers)
	return uint64(len(slices.Compact(numbers)))
}

// words describes the limit of a part.
func (p *part) words() string {
	switch {
	case p.nothing:
		return "unlimited"
	case p.limit.Limit == (window.Limit{}):
		return "other overrides"
	default:
		return p.limit.Text()
	}
}

// whose returns whom a limit counts, as a report names it, without an API key or a whole address.
func whose(s *decide.LimitStatus, req *identity.Request) string {
	if s.Subject != "" {
		return strings.Clone(s.Subject)
	}
	p := s.Caller(req)
	switch {
	case p.Subject != "":
		return strings.Clone(p.Subject)
	case p.Digest != "":
		return "key " + tier.ShortDigest(p.Digest)
	}
	if values := identity.LogValues(req, s.Rule, s.Descriptor); values != "" {
		return values
	}
	if s.Rule.Subject != "" && p.Address != "" {
		return strings.Clone(p.Address) // unknown keys of an address share a log
	}
	return "all callers"
}

// at returns the time of a request in a report.
func at(t time.Duration) time.Time { return time.Unix(0, int64(t)).UTC() }
