package envoycheck

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// wrongDomains finds filters and routes that ask for a domain without rules.
func (in *input) wrongDomains() {
	var names []string
	for _, rule := range in.service.Rules {
		names = append(names, rule.Domain)
	}
	slices.Sort(names)
	has := strings.Join(slices.Compact(names), ", ")
	if has == "" {
		has = "no domain"
	}
	for _, f := range in.limits {
		other := func(s *sent) bool { return s.filter == f && s.domain != f.Domain }
		same := func(s *sent) bool { return s.filter == f && s.domain == f.Domain }
		if !f.ends && in.tree(f.Domain) == nil && (f.manager.sends(same) || !f.manager.sends(other)) {
			in.report(wrongDomain, f.manager.where, "The filter %s asks for the domain %q; rls has rules for %s.", f.Name, f.Domain, has)
		}
	}
	for _, s := range in.sends {
		if s.domain != s.filter.Domain && !s.filter.ends && in.tree(s.domain) == nil {
			in.report(wrongRouteDomain, s.route.where, "The route asks for the domain %q, for which rls has no rules; it has rules for %s.", s.domain, has)
		}
	}
}

// asked finds routes whose requests are not limited, because rls is not asked or has no rule that denies.
func (in *input) asked() {
	for _, r := range in.routes {
		if len(r.manager.limits) == 0 || r.manager.oneHop() {
			continue
		}
		now := slices.DeleteFunc(slices.Clone(r.sends), func(s *sent) bool { return s.limit.AtEnd })
		var f *Finding
		switch {
		case len(now) == 0 && slices.ContainsFunc(r.off, func(f *limitFilter) bool { return !f.ends }):
			f = in.report(filterOff, r.where, "The ratelimit filter is disabled on this route.")
		case len(now) == 0:
			f = in.report(noDescriptor, r.where, "The route forwards to %s and sends rls no descriptor: its requests are not limited.", cmp.Or(r.Action.Cluster, "one of several clusters"))
		case slices.ContainsFunc(now, (*sent).limits):
			f = in.needsHeader(r, now)
		case !slices.ContainsFunc(now, func(s *sent) bool { return in.tree(s.domain) == nil }):
			f = in.report(nothingLimits, r.where, "No descriptor of this route has a rule that limits.")
		}
		if f != nil && r.manager.ofGateway {
			f.Severity = Note
		}
	}
}

// needsHeader reports a route whose every limit needs something that a client may leave out.
func (in *input) needsHeader(r *route, now []*sent) *Finding {
	var names []string
	unread := false
	for _, s := range now {
		if !s.limits() {
			continue
		}
		needed := ""
		for _, e := range s.entries {
			switch e.of.Kind {
			case "request_headers":
				if _, safe := r.manager.early(strings.ToLower(e.of.Header)); !safe && !strings.HasPrefix(e.of.Header, ":") { // not in each request
					needed = "the header " + e.of.Header
				}
			case "query_parameters":
				needed = "the parameter " + e.of.Parameter
			case "header_value_match", "query_parameter_value_match", "remote_address_match":
				unread = true
			}
		}
		switch {
		case needed == "" && !unread:
			return nil
		case needed != "" && !slices.Contains(names, needed):
			names = append(names, needed)
		}
	}
	if unread {
		in.notRead("whether one of the conditions of %s always holds", r.where)
		return nil
	}
	what := strings.Join(names, " or ")
	f := in.report(headerNeeded, r.where, "Every limit of this route needs %s: a request without it is not limited.", what)
	f.Passes = "requests without " + what
	return f
}

// clientCostFormat is a format with what a client sends.
var clientCostFormat = regexp.MustCompile(`%(REQ|REQUEST_HEADER|QUERY_PARAM)\(`)

// lists finds rate limits of routes that Envoy does not take, or does not send in time.
func (in *input) lists() {
	for _, r := range in.routes {
		for _, s := range r.hidden {
			switch {
			case !s.limits() || r.repeats(s):
			case r.ignored:
				in.reportSent(hostLimitsIgnored, s, "vh_rate_limits is IGNORE, so the rate_limits of its virtual host do not apply.")
			default:
				in.reportSent(hostLimitsHidden, s, "The route has rate_limits of its own, so those of its virtual host do not apply.")
			}
		}
		for _, s := range r.unused {
			if s.limits() && !r.repeats(s) {
				in.reportSent(routeLimitsHidden, s, "Envoy takes rate_limits of typed_per_filter_config or of the filter in place of those below route, so %s is never sent.", s)
			}
		}
		limits := r.Action.Limits
		if len(limits) == 0 || r.Action.IncludeVH {
			limits = slices.Concat(limits, r.host.Limits)
		}
		for _, limit := range limits {
			if len(r.manager.limits) > 0 && !slices.ContainsFunc(r.manager.limits, func(f *limitFilter) bool { return f.Stage == limit.Stage }) {
				in.report(noFilterOfStage, r.where, "A rate limit has stage %d and no filter of this listener has it.", limit.Stage)
			}
		}
		for _, s := range r.sends {
			in.list(s)
		}
	}
}

// list checks the rate limit of one descriptor.
func (in *input) list(s *sent) {
	key := "ratelimit." + s.limit.DisableKey + ".http_filter_enabled"
	if n, ok := in.runtime(key); ok && n < 100 && s.ofRoute && s.limit.DisableKey != "" {
		f := in.reportSent(rateLimitDisabled, s, "The runtime key %s is %d: that percentage of requests has the rate limit %s.", key, n, s)
		if n > 0 {
			f.Severity = Warning
		}
	}
	if s.limit.AtEnd && !s.route.manager.oneHop() && slices.ContainsFunc(s.rules, func(rule *Rule) bool { return rule.Limits && !s.route.asksBefore(rule) }) {
		in.reportSent(onlyAtEnd, s, "%s is sent only after the response (apply_on_stream_done): rls is informed afterwards, and no request is denied.", s)
	}
	if s.limit.Cost != nil && s.ofRoute {
		in.report(costNotSent, s.route.where, "Envoy accepts hits_addend here and never sends it.")
	}
	if s.limit.Cost != nil && clientCostFormat.MatchString(s.limit.Cost.Format) {
		in.report(clientCost, s.route.where, "The cost %s of %s comes from a header of the client. Without the header Envoy drops the descriptor, and nothing is charged.", s.limit.Cost.Format, s)
	}
}

// repeats reports whether the route sends the same descriptor.
func (r *route) repeats(s *sent) bool {
	return slices.ContainsFunc(r.sends, func(o *sent) bool { return o.text == s.text })
}

// asksBefore reports whether the route asks for a rule before the response.
func (r *route) asksBefore(rule *Rule) bool {
	return slices.ContainsFunc(r.sends, func(s *sent) bool { return !s.limit.AtEnd && slices.Contains(s.rules, rule) })
}
