package check

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/stack"
)

// A fault is a setup that is wrong in one way.
type fault struct {
	row  int // of the cases; a row may have several faults
	what string
	setup
	flags string // of rls check
	// read: rls check finds the same in the file.
	read bool
	// before runs before the check.
	before func(*running)
	// passes is a path. Without the fault, its third request is denied.
	passes string
	// want are the findings: a severity or any, a code, and a word of the place. There may be no other error.
	want []string
}

// leftOut are the rows without a fault, and why.
var leftOut = map[int]string{
	5:  "Envoy refuses a filter after the router",
	70: "Envoy hides the values of the context of ext_authz, so nothing shows a wrong domain",
	71: "Envoy hides the values of the context of ext_authz, so nothing shows a wrong template",
	84: "only old versions of Envoy crash at the end of a request",
}

// TestFaults breaks one thing at a time.
func TestFaults(t *testing.T) {
	rows := 0
	all := newFleet(t)
	faults := slices.Concat(listenerFaults, routeFaults, switchFaults, callFaults, endpointFaults, authorizationFaults, headerFaults, processFaults, streamFaults, variants)
	for _, f := range faults {
		t.Run(fmt.Sprintf("%02d %s", f.row, f.what), func(t *testing.T) {
			t.Parallel()
			if stack.EnvoyVersion(t)[1] < f.since {
				t.Skipf("Envoy accepts it from 1.%d on", f.since)
			}
			f.run(t, all)
		})
	}
	for row := 1; row <= 84; row++ {
		if leftOut[row] == "" && !slices.ContainsFunc(faults, func(f fault) bool { return f.row == row }) {
			t.Errorf("row %d has no fault", row)
			rows++
		}
	}
}

func (f fault) run(t *testing.T, all *fleet) {
	r := all.start(t, f.setup, strings.Contains(f.what, "time"))
	if f.before != nil {
		f.before(r)
	}
	if f.passes != "" {
		for i, status := range r.get(4, f.passes, "x-api-key", "demo-"+r.from) {
			if status != http.StatusOK {
				t.Errorf("request %d of %s: got %d, want 200: the fault has no effect", i+1, f.passes, status)
			}
		}
	}
	flags := strings.Fields(strings.ReplaceAll(f.flags, "$RULES", r.rls.RulesFile()))
	f.found(t, r.check(flags...).Findings)
	if f.read {
		f.found(t, r.check(append(flags, "--envoy-dump", filepath.Join(r.dir, "envoy.yaml"))...).Findings)
	}
}

// found compares findings with those that are wanted.
func (f fault) found(t *testing.T, got []finding) {
	t.Helper()
	for _, want := range f.want {
		severity, rest, _ := strings.Cut(want, " ")
		code, place, _ := strings.Cut(rest, " ")
		if !slices.ContainsFunc(got, func(g finding) bool {
			return (severity == "any" || g.Severity == severity) && g.Code == code && strings.Contains(g.Where, place) && g.Message != ""
		}) {
			t.Errorf("want %s; got %v", want, got)
		}
	}
	for _, g := range got {
		if g.Severity == "error" && !slices.ContainsFunc(f.want, func(want string) bool { return strings.Contains(want+" ", " "+g.Code+" ") }) {
			t.Errorf("also %v", g)
		}
	}
}

// Parts of the files.
const (
	perRoute = `"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute` + "\n"
	filter   = "          - name: envoy.filters.http.ratelimit\n            typed_config:\n"
	trailers = "          # Over HTTP/2, trailers"
	clusters = "\n  clusters:\n"

	searchMatch = "                match: {safe_regex: {regex: '(?i)/search([^a-z0-9_-].*)?'}}\n"
	loginMatch  = "                match: {safe_regex: {regex: '(?i)/login([^a-z0-9_-].*)?'}}\n"
	forward     = "                route: {cluster: upstream, timeout: 15s}\n"
	perFilter   = "                typed_per_filter_config:\n                  envoy.filters.http.ratelimit:\n"
	login       = "              - name: login\n" + loginMatch + forward
	rest        = "              - name: everything-else\n"
	loginKey    = "generic_key: {descriptor_key: route, descriptor_value: login}\n"
	loginLimit  = "                    - actions:\n                      - " + loginKey + "                      - remote_address: {}\n"

	manager = `      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
`
	router = `{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}`
	// unlimited is a connection manager without our filter.
	unlimited = manager + `          stat_prefix: other
          use_remote_address: true
          normalize_path: true
          merge_slashes: true
          path_with_escaped_slashes_action: REJECT_REQUEST
          route_config: {name: other, virtual_hosts: [{name: all, domains: ["*"], routes: [{name: all, match: {prefix: /}, route: {cluster: upstream}}]}]}
          http_filters: [` + router + `]
`
	internalListener = "  - name: internal\n    address: {socket_address: {address: 127.0.0.1, port_value: 0}}\n    filter_chains:\n    - filters:\n"
	tcpProxy         = `{name: tcp, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: raw, cluster: upstream}}`
	luaType          = `"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua`

	addressAction = `{remote_address: {}}`
	loginAction   = `{generic_key: {descriptor_key: route, descriptor_value: login}}`
)

// replace is a setup with one change of ratelimit.yaml.
func replace(find, put string) setup { return setup{patches: []patch{{find: find, put: put}}} }

// before puts text in front of a part of ratelimit.yaml.
func before(find, put string) setup { return replace(find, put+find) }

// after puts text behind a part of ratelimit.yaml.
func after(find, put string) setup { return replace(find, find+put) }

// cut takes out all from one part of ratelimit.yaml up to another.
func cut(from, until string) setup { return setup{patches: []patch{{find: from, until: until}}} }

// loginRoute is a setup whose route login has this list of rate_limits below route.
func loginRoute(limits string) setup {
	return setup{patches: []patch{{
		find: login, until: rest,
		put: strings.Replace(login, "timeout: 15s}", "timeout: 15s, rate_limits: ["+limits+"]}", 1),
	}}}
}

var listenerFaults = []fault{
	{row: 1, what: "no filter", setup: cut(filter, trailers), passes: "/login", want: []string{"error no-filter ingress"}},
	{
		row: 2, what: "second listener without filter", setup: before(clusters, "\n"+internalListener+unlimited),
		want: []string{"error no-filter internal"},
	},
	{
		row: 3, what: "second chain without filter",
		setup:  after("    filter_chains:\n", "    - name: other\n      filter_chain_match: {source_prefix_ranges: [{address_prefix: 127.7.0.0, prefix_len: 16}]}\n      filters:\n"+unlimited),
		passes: "/login", want: []string{"error no-filter other"},
	},
	{
		row: 4, what: "TCP listener", setup: before(clusters, "\n  - name: raw\n    address: {socket_address: {address: 127.0.0.1, port_value: 0}}\n    filter_chains: [{filters: ["+tcpProxy+"]}]"),
		want: []string{"warning tcp-listener raw"},
	},
	{
		row: 6, what: "the path is changed before", setup: before(filter, `          - name: mut
            typed_config: {`+luaType+`, default_source_code: {inline_string: "function envoy_on_request(r) r:headers():replace(':path', '/x') end"}}
`), want: []string{"warning path-changed-before ingress"},
	},
	{row: 62, what: "paths not normalised", setup: cut("          normalize_path: true\n", "          common_http_protocol_options:"), want: []string{"warning path-not-normalised ingress"}},
	{row: 60, what: "clients write the address", setup: replace("use_remote_address: true", "use_remote_address: false"), flags: "--edge", before: forge, want: []string{"error client-address ingress"}},
	{row: 61, what: "a hop too many", setup: replace("xff_num_trusted_hops: 0", "xff_num_trusted_hops: 1"), before: forge, want: []string{"warning trusted-hops ingress"}},
	{row: 49, what: "ext_authz after the filter", setup: setup{base: "authorization.yaml", patches: []patch{
		{find: "          - name: envoy.filters.http.ext_authz\n", until: "          # This filter is after ext_authz"},
		{find: trailers, put: authorization + trailers},
	}}, want: []string{"error authorization-after search"}},
	{row: 55, what: "filter disabled on a route", setup: setup{patches: []patch{{find: login, until: rest, put: login + perFilter + `                    "@type": type.googleapis.com/envoy.config.route.v3.FilterConfig
                    disabled: true
`}}}, passes: "/login", want: []string{"error filter-off login"}},
	{
		row: 56, what: "filter disabled by default", setup: setup{patches: []patch{
			{find: filter, put: strings.Replace(filter, "            typed_config", "            disabled: true\n            typed_config", 1)},
			{find: login, until: rest, put: login},
		}}, passes: "/login", want: []string{"warning filter-off-by-default ingress", "error filter-off login"},
	},
	{row: 64, what: "only internal requests", setup: after("              domain: edge\n", "              request_type: internal\n"), passes: "/login", want: []string{"warning request-type ingress"}},
	{row: 63, what: "denied requests get 200", setup: after("              domain: edge\n", "              rate_limited_status: {code: OK}\n"), want: []string{"warning denied-status ingress"}},
}

// forge sends requests whose X-Forwarded-For is new in each.
func forge(r *running) {
	client := r.client()
	for i := range 4 {
		if got := client.Get("/login", "X-Forwarded-For", fmt.Sprintf("192.0.2.%d, 192.0.2.%d", i+1, i+101)).Status; got != http.StatusOK {
			r.t.Errorf("request %d: got %d, want 200: the fault has no effect", i+1, got)
		}
	}
}

const wide = "              - name: wide\n                match: {prefix: /}\n" + forward + perFilter + "                    " + perRoute + "                    rate_limits: [{actions: [" + addressAction + "]}]\n"

var routeFaults = []fault{
	{row: 7, what: "another domain", setup: replace("              domain: edge\n", "              domain: edge2\n"), passes: "/login", want: []string{"error wrong-domain ingress"}},
	{row: 8, what: "another domain of a route", setup: after(login+perFilter+"                    "+perRoute, "                    domain: logins\n"), passes: "/login", want: []string{"error wrong-route-domain login"}},
	{row: 9, what: "a route without descriptors", setup: setup{patches: []patch{{find: login, until: rest, put: login}}}, passes: "/login", want: []string{"error no-descriptor login"}},
	{row: 10, what: "another key", setup: replace(loginKey, "generic_key: {descriptor_key: path, descriptor_value: login}\n"), passes: "/login", want: []string{"error other-keys login"}},
	{row: 11, what: "another value", setup: replace(loginKey, "generic_key: {descriptor_key: route, descriptor_value: signin}\n"), passes: "/login", want: []string{"error other-value login"}},
	{row: 12, what: "another order", setup: replace(loginLimit, "                    - actions: ["+addressAction+", "+loginAction+"]\n"), passes: "/login", want: []string{"error other-order login"}},
	{row: 13, what: "an entry too many", setup: after(loginLimit, "                      - generic_key: {descriptor_key: method, descriptor_value: any}\n"), passes: "/login", want: []string{"error entry-too-many login"}},
	{row: 14, what: "an entry too few", setup: replace(loginLimit, "                    - actions:\n                      - "+loginKey), passes: "/login", want: []string{"error entry-too-few login"}},
	{row: 15, what: "each descriptor needs a header", setup: setup{patches: []patch{{
		find: "                    # An IPv6 client has a whole /64 or more", until: "              - name: login\n",
	}}}, want: []string{"warning header-needed search"}},
	{row: 16, what: "an entry that may be absent", setup: replace(
		"generic_key: {descriptor_key: route, descriptor_value: search}\n                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}",
		"generic_key: {descriptor_key: route, descriptor_value: search}\n                      - request_headers: {header_name: x-api-key, descriptor_key: api_key, skip_if_absent: true}",
	), want: []string{"warning entry-skipped search"}},
	{row: 17, what: "a rule that no route reaches", flags: "--complete", want: []string{"error rule-not-reached per-subject"}},
	{row: 18, what: "a wide route first", setup: before("              - name: login\n", wide), passes: "/login", want: []string{"error route-hidden login"}},
	{row: 19, what: "rules that do not limit", setup: setup{rls: service{rules: strings.NewReplacer(
		"name: login-per-address, window: 1h, requests: 2", "name: login-per-address, window: 1h, requests: 2, observe: true",
		"name: per-address, window: 1h, requests: 50000", "name: per-address, unlimited: true",
		"name: per-key, window: 1h, requests: 50000", "name: per-key, unlimited: true",
	).Replace(usualRules)}}, passes: "/login", want: []string{"error nothing-limits login"}},
	{row: 20, what: "a rule that observes", setup: setup{rls: service{rules: strings.Replace(usualRules,
		"name: login-per-address, window: 1h, requests: 2", "name: login-per-address, window: 1h, requests: 2, observe: true", 1)}}, passes: "/login", want: []string{"warning observed login"}},
	{row: 20, what: "a rule that observes in part", setup: setup{rls: service{rules: strings.Replace(usualRules,
		"name: login-per-address, window: 1h, requests: 2", "name: login-per-address, window: 1h, requests: 2, observe: 40%", 1)}}, want: []string{"warning observed login"}},
	{row: 21, what: "limits of the virtual host hidden", setup: setup{patches: []patch{
		{find: `              domains: ["*"]` + "\n", put: `              domains: ["*"]` + "\n              rate_limits: [{actions: [" + loginAction + ", " + addressAction + "]}]\n"},
		{find: loginLimit, put: ""},
	}}, passes: "/login", want: []string{"warning host-limits-hidden login"}},
	{row: 22, what: "limits of the virtual host ignored", setup: setup{patches: []patch{
		{find: `              domains: ["*"]` + "\n", put: `              domains: ["*"]` + "\n              rate_limits: [{actions: [" + loginAction + ", " + addressAction + "]}]\n"},
		{find: login, until: rest, put: strings.Replace(login, "timeout: 15s}", "timeout: 15s, rate_limits: [{actions: ["+addressAction+"]}]}", 1) + perFilter + "                    " + perRoute + "                    vh_rate_limits: IGNORE\n"},
	}}, passes: "/login", want: []string{"warning host-limits-ignored login"}},
	{row: 23, what: "no filter of the stage", setup: loginRoute("{actions: [" + addressAction + "]}, {stage: 1, actions: [" + loginAction + ", " + addressAction + "]}"), passes: "/login", want: []string{"error no-filter-of-stage login"}},
	{row: 66, what: "only at the end", setup: replace(loginLimit, strings.TrimSuffix(loginLimit, "\n")+"\n                      apply_on_stream_done: true\n"), passes: "/login", want: []string{"error only-at-end login"}},
	{row: 67, what: "a cost that Envoy does not send", setup: loginRoute("{hits_addend: {number: 5}, actions: [" + loginAction + ", " + addressAction + "]}, {actions: [" + addressAction + "]}"), want: []string{"error cost-not-sent login"}},
	{row: 68, what: "clients choose the cost", setup: after(loginLimit, "                      hits_addend: {format: \"%REQ(x-cost)%\"}\n"), passes: "/login", want: []string{"warning client-cost login"}},
}

// layer is a runtime layer with values.
func layer(values string) string {
	return "\nlayered_runtime:\n  layers:\n  - {name: fixed, static_layer: {" + values + "}}\n  - {name: admin, admin_layer: {}}\n"
}

// beforeAdmin is a part of ratelimit.yaml.
const beforeAdmin = "\nadmin:\n"

var switchFaults = []fault{
	{row: 24, what: "a rate limit switched off", setup: setup{patches: []patch{
		loginRoute("{actions: [" + addressAction + "]}, {disable_key: logins, actions: [" + loginAction + ", " + addressAction + "]}").patches[0],
		before(beforeAdmin, layer("ratelimit.logins.http_filter_enabled: 0")).patches[0],
	}}, passes: "/login", want: []string{"error rate-limit-disabled login"}},
	{row: 25, what: "filter_enabled 0", setup: after("              domain: edge\n", "              filter_enabled: {default_value: {numerator: 0, denominator: HUNDRED}}\n"), passes: "/login", want: []string{"error not-enabled ingress"}},
	{row: 26, what: "filter_enforced 0", setup: after("              domain: edge\n", "              filter_enforced: {default_value: {numerator: 0, denominator: HUNDRED}}\n"), passes: "/login", want: []string{"error not-enforced ingress"}},
	{row: 27, what: "runtime enabled 0", setup: before(beforeAdmin, layer("ratelimit.http_filter_enabled: 0")), passes: "/login", want: []string{"error not-enabled ingress"}},
	{
		row: 28, what: "runtime enforcing 0 by POST", setup: before(beforeAdmin, layer("")),
		before: func(r *running) { r.post("/runtime_modify?ratelimit.http_filter_enforcing=0") },
		passes: "/login", want: []string{"error not-enforced ingress"},
	},
}
