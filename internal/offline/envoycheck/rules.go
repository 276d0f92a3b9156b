package envoycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/pkg/descriptors"
)

// reach finds descriptors and rules that do not find each other.
func reach(in *Input) (found []Finding) {
	reached := make(map[*Rule]map[string]bool) // by the requests of a route
	for _, site := range in.sites {
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
	observed := make(map[*Rule]bool)
	for _, r := range in.checked() {
		for i, s := range r.sends {
			for _, rule := range s.rules {
				if rule.Observed != "" && !observed[rule] {
					observed[rule] = true
					found = append(found, finding(Observed, rule.String(), "the observed part", "Enforce the rule when its numbers are right.",
						"The rule is in force for only a part, or denies nothing (%s).", rule.Observed))
				}
			}
			if len(s.rules) > 0 || len(s.limit.Override) > 0 || s.filter.Ends || s.limit.AtEnd || in.tree(s.domain) == nil {
				continue
			}
			if s.skipped {
				if whole := r.sends[slices.IndexFunc(r.sends, func(o *sent) bool { return o.limit == s.limit })]; len(whole.rules) > 0 {
					found = append(found, finding(EntrySkipped, r.where, fmt.Sprintf("requests that only %s limits", whole), "Add a rule for it, or a descriptor that each request has.",
						"Without the entries with skip_if_absent Envoy sends %s, for which there is no rule.", s))
				}
				continue
			}
			found = append(found, in.withoutRule(r.sends[i], reached))
		}
	}
	for i := range in.Service.Rules {
		if rule := &in.Service.Rules[i]; in.Options.Complete && reached[rule] == nil {
			found = append(found, finding(RuleNotReached, rule.String(), "requests that only this rule limits", "Add the descriptor to the routes that the rule is for, or remove the rule.",
				"No route of this Envoy can send %s.", pathText(rule.Path)))
		}
	}
	return found
}

// withoutRule says which rule was probably meant: one that no route reaches, or only a route of the same
// requests elsewhere. If none is alike, the finding is a note.
func (in *Input) withoutRule(s *sent, reached map[*Rule]map[string]bool) Finding {
	best := Finding{Code: DescriptorNoRule, Where: s.route.where, Message: fmt.Sprintf("Envoy sends %s, for which there is no rule.", s), Fix: "If it is to limit, add a rule."}
	rank := 0
	for i := range in.Service.Rules {
		rule := &in.Service.Rules[i]
		if rule.Domain != s.domain || reached[rule] != nil && (!reached[rule][s.route.requests()] || s.route.asksBefore(rule)) {
			continue
		}
		wanted, inside := pathText(rule.Path), s.inside(rule)
		code, n, message := Code(""), 0, ""
		switch {
		case len(rule.Path) == len(s.entries) && s.permutes(rule):
			code, n, message = OtherOrder, 5, fmt.Sprintf("Envoy sends %s; the %s wants %s. The order counts.", s, rule, wanted)
		case inside && len(rule.Path) < len(s.entries):
			code, n, message = EntryTooMany, 4, fmt.Sprintf("Envoy sends %s; the %s ends at %s, and the descriptor must have the same entries and no others.", s, rule, wanted)
		case inside && len(rule.Path) > len(s.entries) && (len(s.entries) > 1 || s.entries[0].takes(rule.Path[0])):
			code, n, message = EntryTooFew, 3, fmt.Sprintf("Envoy sends %s; the %s is deeper: %s.", s, rule, wanted)
		case len(rule.Path) == len(s.entries) && s.sameKeys(rule):
			code, n, message = OtherValue, 2, fmt.Sprintf("Envoy sends %s; the %s wants %s.", s, rule, wanted)
		case len(rule.Path) == len(s.entries) && (slices.ContainsFunc(rule.Path, s.has) || s.similar(rule)):
			code, n, message = OtherKeys, 1, fmt.Sprintf("Envoy sends %s, for which there is no rule; the %s wants %s and is not reached from here.", s, rule, wanted)
		}
		if n > rank {
			rank, best.Code, best.Message, best.Passes, best.Fix = n, code, message, "requests that only the "+rule.String()+" would limit", "Change the descriptor of the route or the path of the rule, so that they are the same."
		}
	}
	return best
}

// takes reports whether an entry can go to a node.
func (e *entry) takes(n descriptors.Node) bool {
	return e.Key == n.Key && (n.AnyValue || e.any || e.Value == n.Value || n.Pattern && descriptors.Fits(n.Value, e.Value))
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

func (s *sent) sameKeys(r *Rule) bool {
	return !slices.ContainsFunc(s.entries, func(e entry) bool {
		return !slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return n.Key == e.Key })
	})
}

// has reports whether an entry can go to a node.
func (s *sent) has(n descriptors.Node) bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.takes(n) })
}

func (s *sent) permutes(r *Rule) bool {
	return !slices.ContainsFunc(r.Path, func(n descriptors.Node) bool { return !s.has(n) })
}

func pathText(path []descriptors.Node) string {
	var text []string
	for _, n := range path {
		text = append(text, n.String())
	}
	return "[" + strings.Join(text, ", ") + "]"
}
