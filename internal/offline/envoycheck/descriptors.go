package envoycheck

import (
	"cmp"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// maxSkips bounds the entries with skip_if_absent of one descriptor: each doubles what it can be.
const maxSkips = 6

// sent returns the descriptors that a list can make. ofRoute is true for lists in which stages count.
func (in *Input) sent(r *route, f *LimitFilter, domain string, list []envoydump.RateLimit, ofRoute bool) (all []*sent) {
	for i := range list {
		limit := &list[i]
		if ofRoute && limit.Stage != f.Stage {
			continue
		}
		entries, skips, known := in.entries(limit, r)
		if !known || skips > maxSkips {
			in.NotRead("a descriptor of %s", r.where)
			continue
		}
		for missing := range 1 << skips {
			s := &sent{route: r, filter: f, limit: limit, domain: domain, skipped: missing > 0, ofRoute: ofRoute}
			at := 0
			for _, e := range entries {
				if e.of.SkipIfAbsent {
					if at++; missing&(1<<(at-1)) != 0 {
						continue
					}
				}
				s.entries = append(s.entries, e)
			}
			s.rules = in.match(domain, s)
			all = append(all, s)
		}
	}
	return all
}

// entries returns the entries of a descriptor, and how many of them may be missing. known is false if
// an action is not read.
func (in *Input) entries(limit *envoydump.RateLimit, r *route) (all []entry, skips int, known bool) {
	for i := range limit.Actions {
		a := &limit.Actions[i]
		e := entry{of: a, any: true}
		e.Key = cmp.Or(a.Key, a.Kind)
		switch a.Kind {
		case "source_cluster":
			e.Value, e.any = in.Cluster, in.Cluster == ""
		case "destination_cluster":
			e.Value, e.any = r.Action.Cluster, r.Action.Cluster == ""
		case "generic_key", "header_value_match", "query_parameter_value_match":
			e.Key = cmp.Or(a.Key, map[string]string{"header_value_match": "header_match", "query_parameter_value_match": "query_match"}[a.Kind], a.Kind)
			e.Value = cmp.Or(a.Value, a.Default)
			e.any = strings.Contains(e.Value, "%")
		case "request_headers", "query_parameters", "remote_address", "masked_remote_address", "remote_address_match", "metadata", "dynamic_metadata":
		default:
			return nil, 0, false
		}
		if e.any {
			e.Value = ""
		}
		if a.SkipIfAbsent {
			skips++
		}
		all = append(all, e)
	}
	return all, skips, true
}

// tree returns the rules of a domain, or nil.
func (in *Input) tree(domain string) *descriptors.Tree[*Rule] {
	if in.domains == nil {
		in.domains = make(map[string]*descriptors.Tree[*Rule])
		for i := range in.Service.Rules {
			r := &in.Service.Rules[i]
			if in.domains[r.Domain] == nil {
				in.domains[r.Domain] = new(descriptors.Tree[*Rule])
			}
			_ = in.domains[r.Domain].Add(r.Path, r) // of two with hidden values, one is enough
		}
	}
	return in.domains[domain]
}

// match returns the rules that a descriptor may match. Many routes send the same ones.
func (in *Input) match(domain string, s *sent) []*Rule {
	key := domain + "\x00" + s.String()
	rules, ok := in.matched[key]
	if !ok {
		rules = in.find(domain, s.entries)
		in.matched[key] = rules
	}
	return rules
}

// find walks the tree. An unknown value may be any that leads on.
func (in *Input) find(domain string, entries []entry) (rules []*Rule) {
	tree := in.tree(domain)
	if tree == nil {
		return nil
	}
	at := []descriptors.Position[*Rule]{tree.Top()}
	for _, e := range entries {
		var next []descriptors.Position[*Rule]
		seen := map[descriptors.Position[*Rule]]bool{{}: true}
		for _, p := range at {
			values := []string{e.Value}
			if e.any {
				values = nil
				for _, n := range p.Below()[e.Key] {
					values = append(values, cmp.Or(strings.ReplaceAll(n.Value, "*", ""), "\x00"))
				}
			}
			for _, value := range values {
				if q := p.Next(descriptors.Entry{Key: e.Key, Value: value}); !seen[q] {
					seen[q] = true
					next = append(next, q)
				}
			}
		}
		at = next
	}
	for _, p := range at {
		if r, ok := p.Rule(); ok {
			rules = append(rules, r)
		}
	}
	return rules
}
