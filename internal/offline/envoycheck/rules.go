package envoycheck

import (
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// reach finds descriptors and rules that do not find each other.
func (in *input) reach() {
	reached := make(map[*Rule]map[string]bool) // by the requests of a route
	for _, site := range in.all {
		for _, m := range site.managers {
			m.sends(func(s *sent) bool {
				for _, rule := range s.rules {
					if reached[rule] == nil {
						reached[rule] = make(map[string]bool)
					}
					reached[rule][s.route.requests()] = true
				}
				return false
			})
		}
	}
	for _, s := range in.sends {
		for _, rule := range s.rules {
			if rule.Observed != "" {
				in.report(observedRule, rule.String(), "The rule is in force for only a part, or denies nothing (%s).", rule.Observed)
			}
		}
		whole := s.route.sends[slices.IndexFunc(s.route.sends, func(o *sent) bool { return o.limit == s.limit })]
		switch e := s.entries; {
		case len(e) == 1 && rules.NamesForm(e[0].Key, e[0].Value):
		case len(s.rules) > 0 || s.limit.Override != nil || s.filter.ends || s.limit.AtEnd || in.tree(s.domain) == nil:
		case !s.skipped:
			in.withoutRule(s, reached)
		case len(whole.rules) > 0:
			in.reportSent(entrySkipped, whole, "Without the entries with skip_if_absent Envoy sends %s, for which there is no rule.", s)
		}
	}
	for i := range in.service.Rules {
		if rule := &in.service.Rules[i]; in.options.Complete && reached[rule] == nil {
			in.report(ruleNotReached, rule.String(), "No route of this Envoy can send %s.", pathText(rule.Path))
		}
	}
}

// withoutRule says which rule was probably meant: one that no route reaches, or only a route of the same
// requests elsewhere. If none is alike, the finding is a note.
func (in *input) withoutRule(s *sent, reached map[*Rule]map[string]bool) {
	var best struct {
		kind
		rule   *Rule
		rank   int
		reason string
	}
	for i := range in.service.Rules {
		rule := &in.service.Rules[i]
		if rule.Domain != s.domain || reached[rule] != nil && (!reached[rule][s.route.requests()] || s.route.asksBefore(rule)) {
			continue
		}
		k, rank, reason := s.differs(rule)
		if rank > best.rank {
			best.kind, best.rule, best.rank, best.reason = k, rule, rank, reason
		}
	}
	if best.rank == 0 {
		in.report(descriptorNoRule, s.route.where, "Envoy sends %s, for which there is no rule.", s)
		return
	}
	in.report(best.kind, s.route.where, "Envoy sends %s; the %s wants %s. %s", s, best.rule, pathText(best.rule.Path), best.reason).Passes = "requests that only the " + best.rule.String() + " would limit"
}

// differs says how a descriptor differs from a rule that is alike. The higher the rank, the more alike they
// are. Zero: not at all.
func (s *sent) differs(r *Rule) (k kind, rank int, reason string) {
	longer, same := len(s.entries)-len(r.Path), len(s.entries) == len(r.Path)
	switch {
	case same && !slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return !s.has(n) }):
		return otherOrder, 5, "The order counts."
	case longer > 0 && s.inside(r):
		return entryTooMany, 4, "The rule ends earlier, and the descriptor must have the same entries and no others."
	case longer < 0 && s.inside(r) && (len(s.entries) > 1 || s.entries[0].takes(r.Path[0])):
		return entryTooFew, 3, "The rule is deeper."
	case same && !slices.ContainsFunc(s.entries, func(e entry) bool {
		return !slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return n.Key == e.Key })
	}):
		return otherValue, 2, "The values differ."
	case same && (slices.ContainsFunc(r.Path, s.has) || s.similar(r)):
		return otherKeys, 1, "The keys differ."
	}
	return kind{}, 0, ""
}

// takes reports whether an entry can go to a node.
func (e *entry) takes(n descriptors.Node) bool {
	return e.Key == n.Key && (n.AnyValue || e.AnyValue || e.Value == n.Value || n.Pattern && descriptors.Fits(n.Value, e.Value))
}

// inside reports whether the entries and the path of a rule are the same, but for some that only one of
// them has.
func (s *sent) inside(r *Rule) bool {
	i, j, same := 0, 0, 0
	for i < len(s.entries) && j < len(r.Path) {
		switch longer := len(s.entries) > len(r.Path); {
		case s.entries[i].takes(r.Path[j]):
			i, j, same = i+1, j+1, same+1
		case longer:
			i++
		default:
			j++
		}
	}
	return same > 0 && same == min(len(s.entries), len(r.Path))
}

// similar reports whether the keys are the same but for their spelling, or for masked_.
func (s *sent) similar(r *Rule) bool {
	plain := strings.NewReplacer("masked_", "", "_", "", "-", "")
	for i, e := range s.entries {
		if !strings.EqualFold(plain.Replace(e.Key), plain.Replace(r.Path[i].Key)) {
			return false
		}
	}
	return true
}

// has reports whether an entry can go to a node.
func (s *sent) has(n descriptors.Node) bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.takes(n) })
}
