package describe

import (
	"bytes"
	"slices"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
)

// question is one call of a filter for the requests of a route.
type question struct {
	domain   string
	atEnd    bool
	limits   []limit
	before   []string // the types of the filters in front
	requests envoyfile.RequestType
	internal lookup // if the filter asks about one type of requests
}

// questions compiles the calls for a route.
func (d *Describer) questions(m *envoyfile.Manager, v *envoyfile.VirtualHost, in *envoyfile.Route) []question {
	var asks, ends []question
	changed := slices.Concat(m.Routes.Changed, v.Changed, in.Changed)
	for _, f := range m.Filters {
		limits, domain := applicable(m, v, in, f)
		ask := question{domain: domain, before: f.Before, requests: f.Requests}
		if f.Requests != envoyfile.AnyRequest {
			ask.internal = d.look(accesslog.Header("x-envoy-internal"), f.Location, "Every request counted as external.")
		}
		ask, end := d.split(ask, limits, in, changed)
		if len(ask.limits) > 0 {
			asks = append(asks, ask)
		}
		if len(end.limits) > 0 {
			ends = append(ends, end)
		}
		if len(limits) > 0 && !slices.Contains(d.domains, domain) {
			d.domains = append(d.domains, domain)
		}
	}
	return append(asks, ends...)
}

// split compiles limits: those that the question asks for, and those of the same at the end of a request.
func (d *Describer) split(ask question, limits []*envoyfile.RateLimit, in *envoyfile.Route, changed []string) (asked, end question) {
	end = ask
	end.atEnd = true
	for _, l := range limits {
		if l.AtEnd {
			end.limits = append(end.limits, d.limit(l, in, nil))
		} else {
			ask.limits = append(ask.limits, d.limit(l, in, changed))
		}
	}
	return ask, end
}

// applicable returns the limits of a filter for a route, as Envoy chooses them.
func applicable(m *envoyfile.Manager, v *envoyfile.VirtualHost, in *envoyfile.Route, f *envoyfile.Filter) (limits []*envoyfile.RateLimit, domain string) {
	domain = f.Domain
	var perRoute *envoyfile.PerRoute
	for _, settings := range []map[string]*envoyfile.PerRoute{in.PerFilter, v.PerFilter, m.Routes.PerFilter} {
		if p := settings[f.Name]; p != nil {
			perRoute = p
			break
		}
	}
	off := f.Off
	if perRoute != nil {
		off = perRoute.Off
	}
	if off {
		return nil, domain
	}
	if perRoute == nil || perRoute.Empty {
		perRoute = new(envoyfile.PerRoute)
	}
	if perRoute.Domain != "" {
		domain = perRoute.Domain
	}
	switch {
	case len(perRoute.Limits) > 0:
		return perRoute.Limits, domain
	case len(f.Limits) > 0:
		return f.Limits, domain
	}
	ofStage := func(list []*envoyfile.RateLimit) {
		for _, l := range list {
			if l.Stage == f.Stage {
				limits = append(limits, l)
			}
		}
	}
	ofStage(in.Limits)
	if in.IncludeVH || perRoute.VH == envoyfile.Include || perRoute.VH == envoyfile.Override && len(in.Limits) == 0 {
		ofStage(v.Limits)
	}
	return limits, domain
}

// An answer is a local reply of Envoy: by the beginnings of its details, and by its response flags.
type answer struct {
	filter         string // that gives it; empty: Envoy itself, before any filter
	details, flags []string
}

var answers = []answer{
	{"", []string{
		"path_normalization_failed", "missing_host_header", "missing_path_rejected", "absolute_path_rejected", "low_version", "http1.", "http2.", "http3.",
		"request_headers_failed_strict_check", "unexpected_underscore", "invalid_envoy_request_headers", "filter_chain_not_found", "overload",
		"route_not_found", "cluster_not_found", "direct_response", "request_header_timeout", "uhv.",
	}, []string{"NR", "NC", "IH", "OM", "NFCF", "RFCF"}},
	{"ext_authz", []string{"ext_authz"}, []string{"UAEX"}},
	{"rbac", []string{"rbac_access_denied"}, nil},
	{"jwt_authn", []string{"jwt_authn"}, nil},
	{"local_ratelimit", []string{"local_rate_limited"}, nil},
	{"cors", []string{"cors"}, nil},
	{"csrf", []string{"csrf"}, nil},
	{"fault", []string{"fault_filter"}, []string{"FI"}},
	{"health_check", []string{"health_check"}, nil},
	{"lua", []string{"lua_response"}, nil},
	{"oauth2", []string{"oauth"}, nil},
	{"basic_auth", []string{"basic_auth", "invalid_credential_for_basic", "no_credential_found_for_basic"}, nil},
	{"api_key_auth", []string{"api_key_auth"}, nil},
	{"admission_control", []string{"admission_control"}, nil},
	{"grpc_json_transcoder", []string{"grpc_transcode"}, nil},
	{"buffer", []string{"request_payload_too_large"}, nil},
}

// unasked reports whether Envoy did not get as far as this call.
func (q *question) unasked(d *Describer, r *accesslog.Record) bool {
	if q.requests != envoyfile.AnyRequest {
		v := q.internal.of(d, r)
		if internal := string(v.Text) == "true"; internal != (q.requests == envoyfile.InternalRequest) {
			return true
		}
	}
	if v := &r.Values[d.at.details]; v.State == accesslog.Present {
		return string(v.Text) != "via_upstream" && q.answered(func(a *answer) bool {
			return slices.ContainsFunc(a.details, func(begin string) bool { return bytes.HasPrefix(v.Text, []byte(begin)) })
		})
	}
	if v := &r.Values[d.at.flags]; v.State == accesslog.Present {
		for flag := range bytes.SplitSeq(v.Text, []byte(",")) {
			if q.answered(func(a *answer) bool { return slices.Contains(a.flags, string(flag)) }) {
				return true
			}
		}
	}
	return false
}

// refused reports whether an authorization by rls refused the request, so that it asked for no
// limits. One that is over a limit was not refused.
func (d *Describer) refused(r *accesslog.Record) bool {
	v := &r.Values[d.at.reason]
	return v.State == accesslog.Present && string(v.Text) != "limited"
}

// answered reports whether the first answer of the table that fits was given before this call.
func (q *question) answered(fits func(*answer) bool) bool {
	for i := range answers {
		if a := &answers[i]; fits(a) {
			return a.filter == "" || slices.Contains(q.before, a.filter)
		}
	}
	return false
}
