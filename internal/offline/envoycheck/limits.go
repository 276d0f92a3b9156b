package envoycheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
)

// domains finds filters and routes that ask for a domain without rules.
func domains(in *Input) (found []Finding) {
	for _, m := range in.Managers {
		for _, f := range m.Limits {
			other := func(s *sent) bool { return s.filter == f && s.domain != f.Domain }
			same := func(s *sent) bool { return s.filter == f && s.domain == f.Domain }
			if !f.Ends && in.tree(f.Domain) == nil && (m.sends(same) || !m.sends(other)) {
				found = append(found, finding(WrongDomain, m.Where, "every request", "Give the filter a domain of the rules, or load rules for this domain.",
					"The filter %s asks for the domain %q; rls has rules for %s.", f.Name, f.Domain, in.domainNames()))
			}
		}
	}
	for s := range in.sends() {
		if s.domain != s.filter.Domain && !s.filter.Ends && in.tree(s.domain) == nil {
			found = append(found, finding(WrongRouteDomain, s.route.where, "every request of the route", "Correct the domain of the route, or load rules for this domain.",
				"The route asks for the domain %q, for which rls has no rules; it has rules for %s.", s.domain, in.domainNames()))
		}
	}
	return found
}

func (in *Input) domainNames() string {
	var names []string
	for i := range in.Service.Rules {
		if name := in.Service.Rules[i].Domain; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "no domain"
	}
	return strings.Join(names, ", ")
}

// asked finds routes whose requests are not limited, because rls is not asked or has no rule that denies.
func asked(in *Input) (found []Finding) {
	for _, r := range in.checked() {
		if len(r.manager.Limits) == 0 {
			continue
		}
		var now []*sent
		unknown := false
		for _, s := range r.sends {
			if !s.limit.AtEnd {
				now = append(now, s)
				unknown = unknown || in.tree(s.domain) == nil
			}
		}
		f := Finding{Where: r.where, Passes: "every request of the route"}
		switch {
		case len(now) == 0 && slices.ContainsFunc(r.off, func(f *LimitFilter) bool { return !f.Ends }):
			f.Code, f.Message, f.Fix = FilterOff, "The ratelimit filter is disabled on this route.", "Remove disabled: true, or enable the filter in typed_per_filter_config of the route."
		case len(now) == 0:
			f.Code, f.Message, f.Fix = NoDescriptor, fmt.Sprintf("The route forwards to %s and sends rls no descriptor: its requests are not limited.", r.destination()), "Add rate_limits to the route. Envoy merges no lists: each one is complete."
		case !unknown && !slices.ContainsFunc(now, (*sent).limits):
			f.Code, f.Message, f.Fix = NothingLimits, "No descriptor of this route has a rule that limits.", "Add a rule for one of its descriptors, or enforce one that only observes."
		default:
			found = append(found, needsHeader(in, r, now)...)
			continue
		}
		if r.manager.ofGateway {
			f.Severity = Note
		}
		found = append(found, f)
	}
	return found
}

func (r *route) destination() string {
	if r.Action.Cluster == "" {
		return "one of several clusters"
	}
	return r.Action.Cluster
}

// needsHeader finds routes whose every limit needs something that a client may leave out.
func needsHeader(in *Input, r *route, now []*sent) []Finding {
	var names []string
	f := Finding{Code: HeaderNeeded, Where: r.where}
	unread := false
	for _, s := range now {
		if !s.limits() {
			continue
		}
		needed := ""
		for _, e := range s.entries {
			switch e.of.Kind {
			case "request_headers":
				if _, safe := r.manager.early(strings.ToLower(e.of.Header)); safe || strings.HasPrefix(e.of.Header, ":") {
					continue // each request has it
				}
				needed = "the header " + e.of.Header
			case "query_parameters":
				needed = "the parameter " + e.of.Parameter
			case "header_value_match", "query_parameter_value_match", "remote_address_match":
				unread = true
			}
		}
		if needed == "" && !unread {
			return nil
		}
		if needed != "" && !slices.Contains(names, needed) {
			names = append(names, needed)
		}
		if r.manager.ofGateway {
			f.Severity = Note
		}
	}
	if len(names) == 0 && !unread {
		return nil // no descriptor limits
	}
	if unread {
		in.NotRead("whether one of the conditions of %s always holds", r.where)
		return nil
	}
	what := strings.Join(names, " or ")
	f.Message = fmt.Sprintf("Every limit of this route needs %s: a request without it is not limited.", what)
	f.Passes, f.Fix = "requests without "+what, "Add a descriptor that each request has, such as remote_address."
	return []Finding{f}
}

// clientCost is a format with what a client sends.
var clientCost = regexp.MustCompile(`%(REQ|REQUEST_HEADER|QUERY_PARAM)\(`)

// lists finds rate limits of routes that Envoy does not take, or does not send in time.
func lists(in *Input) (found []Finding) {
	for _, r := range in.checked() {
		add := func(code Code, passes, fix, format string, args ...any) {
			found = append(found, finding(code, r.where, passes, fix, format, args...))
		}
		for _, s := range r.hidden {
			if !s.limits() || r.repeats(s) {
				continue
			}
			if r.ignored {
				add(HostLimitsIgnored, "requests that only "+s.String()+" limits", "Set vh_rate_limits: INCLUDE.", "vh_rate_limits is IGNORE, so the rate_limits of its virtual host do not apply.")
			} else {
				add(HostLimitsHidden, "requests that only "+s.String()+" limits", "Repeat them on the route, or set vh_rate_limits: INCLUDE.", "The route has rate_limits of its own, so those of its virtual host do not apply.")
			}
		}
		for _, s := range r.unused {
			if s.limits() && !r.repeats(s) {
				add(RouteLimitsHidden, "requests that only "+s.String()+" limits", "Move the list to typed_per_filter_config of the route.", "Envoy takes rate_limits of typed_per_filter_config or of the filter in place of those below route, so %s is never sent.", s)
			}
		}
		for _, limit := range slices.Concat(r.Action.Limits, r.hostLimits()) {
			stage := limit.Stage
			if len(r.manager.Limits) > 0 && !slices.ContainsFunc(r.manager.Limits, func(f *LimitFilter) bool { return f.Stage == stage }) {
				add(NoFilterOfStage, "requests that only this rate limit limits", "Remove the stage, or add a filter with it.", "A rate limit has stage %d and no filter of this listener has it.", stage)
			}
		}
		for _, s := range r.sends {
			passes := "requests that only " + s.String() + " limits"
			if key := s.limit.DisableKey; s.ofRoute && key != "" {
				if n, ok := in.runtime("ratelimit." + key + ".http_filter_enabled"); ok && n < 100 {
					add(RateLimitDisabled, passes, "Set the key to 100.", "The runtime key ratelimit.%s.http_filter_enabled is %d: that percentage of requests has the rate limit %s.", key, n, s)
					if n > 0 {
						found[len(found)-1].Severity = Warning
					}
				}
			}
			if s.limit.AtEnd && slices.ContainsFunc(s.rules, func(rule *Rule) bool { return rule.Limits && !r.asksBefore(rule) }) {
				add(OnlyAtEnd, passes, "Add the same descriptor without apply_on_stream_done, with hits_addend {number: 0} if it is to cost nothing.", "%s is sent only after the response (apply_on_stream_done): rls is informed afterwards, and no request is denied.", s)
			}
			if s.limit.Cost != nil && s.ofRoute {
				add(CostNotSent, "the cost is 1", "Move the list to typed_per_filter_config of the route.", "Envoy accepts hits_addend here and never sends it.")
			}
			if s.limit.Cost != nil && clientCost.MatchString(s.limit.Cost.Format) {
				add(ClientCost, "requests without the header", "Take the cost from what your application says, or from a number.", "The cost %s of %s comes from a header of the client. Without the header Envoy drops the descriptor, and nothing is charged.", s.limit.Cost.Format, s)
			}
		}
	}
	return found
}

// repeats reports whether the route sends the same descriptor.
func (r *route) repeats(s *sent) bool {
	return slices.ContainsFunc(r.sends, func(o *sent) bool { return o.String() == s.String() })
}

// hostLimits returns the limits of the virtual host if the route has none of its own.
func (r *route) hostLimits() []envoydump.RateLimit {
	if len(r.Action.Limits) > 0 && !r.Action.IncludeVH {
		return nil
	}
	return r.host.Limits
}

// asksBefore reports whether the route asks for a rule before the response.
func (r *route) asksBefore(rule *Rule) bool {
	return slices.ContainsFunc(r.sends, func(s *sent) bool { return !s.limit.AtEnd && slices.Contains(s.rules, rule) })
}
