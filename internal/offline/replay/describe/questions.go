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
		end := ask
		end.atEnd = true
		for _, l := range limits {
			if l.AtEnd {
				end.limits = append(end.limits, d.limit(l, in, nil))
			} else {
				ask.limits = append(ask.limits, d.limit(l, in, changed))
			}
		}
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

// The local replies of Envoy before any filter, and of filters, by the beginning of their details.
var (
	early = [][]byte{
		[]byte("path_normalization_failed"), []byte("missing_host_header"), []byte("missing_path_rejected"), []byte("absolute_path_rejected"),
		[]byte("low_version"), []byte("http1."), []byte("http2."), []byte("http3."), []byte("request_headers_failed_strict_check"),
		[]byte("unexpected_underscore"), []byte("invalid_envoy_request_headers"), []byte("filter_chain_not_found"), []byte("overload"),
		[]byte("route_not_found"), []byte("cluster_not_found"), []byte("direct_response"), []byte("request_header_timeout"), []byte("uhv."),
	}
	byFilter = []struct {
		details []byte
		filter  string
	}{
		{[]byte("ext_authz"), "ext_authz"},
		{[]byte("rbac_access_denied"), "rbac"},
		{[]byte("jwt_authn"), "jwt_authn"},
		{[]byte("local_rate_limited"), "local_ratelimit"},
		{[]byte("cors"), "cors"},
		{[]byte("csrf"), "csrf"},
		{[]byte("fault_filter"), "fault"},
		{[]byte("health_check"), "health_check"},
		{[]byte("lua_response"), "lua"},
		{[]byte("oauth"), "oauth2"},
		{[]byte("basic_auth"), "basic_auth"},
		{[]byte("api_key_auth"), "api_key_auth"},
		{[]byte("admission_control"), "admission_control"},
		{[]byte("grpc_transcode"), "grpc_json_transcoder"},
		{[]byte("request_payload_too_large"), "buffer"},
		{[]byte("invalid_credential_for_basic"), "basic_auth"},
		{[]byte("no_credential_found_for_basic"), "basic_auth"},
	}
	// flags are response flags of requests that no filter saw, or that one filter answered.
	earlyFlags = [][]byte{[]byte("NR"), []byte("NC"), []byte("IH"), []byte("OM"), []byte("NFCF"), []byte("RFCF")}
	flagOf     = []struct {
		flag   []byte
		filter string
	}{{[]byte("UAEX"), "ext_authz"}, {[]byte("FI"), "fault"}}
)

var viaUpstream = []byte("via_upstream")

// unasked reports whether Envoy did not get as far as this call.
func (q *question) unasked(d *Describer, r *accesslog.Record) bool {
	if q.requests != envoyfile.AnyRequest {
		v := q.internal.of(d, r)
		if internal := string(v.Text) == "true"; internal != (q.requests == envoyfile.InternalRequest) {
			return true
		}
	}
	if v := &r.Values[d.at.details]; v.State == accesslog.Present {
		return !bytes.Equal(v.Text, viaUpstream) && q.answeredByDetails(v.Text)
	}
	if v := &r.Values[d.at.flags]; v.State == accesslog.Present && len(v.Text) > 1 {
		return q.answeredByFlags(v.Text)
	}
	return false
}

// refused reports whether an authorization by rls refused the request, so that it asked for no
// limits. One that is over a limit was not refused.
func (d *Describer) refused(r *accesslog.Record) bool {
	v := &r.Values[d.at.reason]
	return v.State == accesslog.Present && string(v.Text) != "limited"
}

func (q *question) answeredByDetails(details []byte) bool {
	for _, e := range early {
		if bytes.HasPrefix(details, e) {
			return true
		}
	}
	for _, f := range byFilter {
		if bytes.HasPrefix(details, f.details) {
			return slices.Contains(q.before, f.filter)
		}
	}
	return false
}

func (q *question) answeredByFlags(flags []byte) bool {
	for len(flags) > 0 {
		var one []byte
		one, flags, _ = bytes.Cut(flags, []byte(","))
		for _, e := range earlyFlags {
			if bytes.Equal(one, e) {
				return true
			}
		}
		for _, f := range flagOf {
			if bytes.Equal(one, f.flag) && slices.Contains(q.before, f.filter) {
				return true
			}
		}
	}
	return false
}
