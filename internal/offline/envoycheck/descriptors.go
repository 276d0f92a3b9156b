package envoycheck

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// sent is a descriptor that a route can send.
type sent struct {
	route   *route
	filter  *limitFilter
	limit   *envoydump.RateLimit
	domain  string
	entries []entry
	text    string
	// skipped is true if an entry with skip_if_absent is missing.
	skipped bool
	// ofRoute is true if the rate limit is under route or the virtual host.
	ofRoute bool
	// rules are those that it may match.
	rules []*Rule
}

// An entry has a value, or one that differs by request.
type entry struct {
	descriptors.Node
	of *envoydump.Action
}

func (s *sent) String() string { return s.text }

// limits reports whether rls may deny because of the descriptor.
func (s *sent) limits() bool {
	return s.limit.Override != nil || slices.ContainsFunc(s.rules, func(r *Rule) bool { return r.Limits })
}

// maxSkips bounds the entries with skip_if_absent of one descriptor: each doubles what it can be.
const maxSkips = 6

// sent returns the descriptors that a list can make. ofRoute is true for lists in which stages count.
func (in *input) sent(r *route, f *limitFilter, domain string, list []envoydump.RateLimit, ofRoute bool) (all []*sent) {
	for i := range list {
		limit := &list[i]
		if ofRoute && limit.Stage != f.Stage {
			continue
		}
		entries, skips, known := in.entries(limit, r)
		if !known || skips > maxSkips {
			in.notRead("a descriptor of %s", r.where)
			continue
		}
		for missing := range 1 << skips {
			s := &sent{route: r, filter: f, limit: limit, domain: domain, skipped: missing > 0, ofRoute: ofRoute}
			var path []descriptors.Node
			at := 0
			for _, e := range entries {
				if e.of.SkipIfAbsent {
					if at++; missing&(1<<(at-1)) != 0 {
						continue
					}
				}
				s.entries, path = append(s.entries, e), append(path, e.Node)
			}
			s.text = pathText(path)
			s.rules = in.match(domain, s)
			all = append(all, s)
		}
	}
	return all
}

func pathText(path []descriptors.Node) string {
	var text []string
	for _, n := range path {
		text = append(text, n.String())
	}
	return "[" + strings.Join(text, ", ") + "]"
}

// entries returns the entries of a descriptor, and how many of them may be missing. known is false if
// an action is not read.
func (in *input) entries(limit *envoydump.RateLimit, r *route) (all []entry, skips int, known bool) {
	for i := range limit.Actions {
		a := &limit.Actions[i]
		key, value := cmp.Or(a.Key, a.Kind), ""
		switch a.Kind {
		case "source_cluster":
			value = in.Cluster
		case "destination_cluster":
			value = r.Action.Cluster
		case "header_value_match", "query_parameter_value_match":
			key = cmp.Or(a.Key, map[string]string{"header_value_match": "header_match", "query_parameter_value_match": "query_match"}[a.Kind])
			fallthrough
		case "generic_key":
			value = cmp.Or(a.Value, a.Default)
		case "request_headers", "query_parameters", "remote_address", "masked_remote_address", "remote_address_match", "metadata", "dynamic_metadata":
		default:
			return nil, 0, false
		}
		if strings.Contains(value, "%") {
			value = "" // a format
		}
		if a.SkipIfAbsent {
			skips++
		}
		all = append(all, entry{descriptors.Node{Key: key, Value: value, AnyValue: value == ""}, a})
	}
	return all, skips, true
}

// tree returns the rules of a domain, or nil.
func (in *input) tree(domain string) *descriptors.Tree[*Rule] {
	if in.domains == nil {
		in.domains = make(map[string]*descriptors.Tree[*Rule])
		for i := range in.service.Rules {
			r := &in.service.Rules[i]
			if in.domains[r.Domain] == nil {
				in.domains[r.Domain] = new(descriptors.Tree[*Rule])
			}
			_ = in.domains[r.Domain].Add(r.Path, r) // of two with hidden values, one is enough
		}
	}
	return in.domains[domain]
}

// match returns the rules that a descriptor may match. Many routes send the same ones.
func (in *input) match(domain string, s *sent) []*Rule {
	key := domain + "\x00" + s.text
	rules, ok := in.matched[key]
	if !ok {
		rules = in.find(domain, s.entries)
		in.matched[key] = rules
	}
	return rules
}

// find walks the tree. An unknown value may be any that leads on.
func (in *input) find(domain string, entries []entry) (rules []*Rule) {
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
			if e.AnyValue {
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
