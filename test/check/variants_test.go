package check

import "strings"

// hostLimits are limits of the virtual host, in place of those of all routes.
func hostLimits(limits string) setup {
	return routes("              - {name: all, match: {prefix: /}, route: {cluster: upstream}}\n", patch{find: anyHost, put: anyHost + "              rate_limits: [" + limits + "]\n"})
}

const (
	signIn      = `{generic_key: {descriptor_key: route, descriptor_value: signin}}`
	metadata    = `metadata: {descriptor_key: subject, source: DYNAMIC, metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: sub}]}}`
	ofRoute     = `"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute`
	limitFilter = `"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: edge, timeout: 0.05s, rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: rls}}}`
	secondVH    = "            - name: shop\n              domains: [shop.example]\n              routes:\n"
)

// hostSays has routes with limits of their own, and what the virtual host says to the ratelimit filter.
func hostSays(text string) setup {
	return routes(loginFirst+listed("all", everything, toUpstream, byAddress), patch{
		find: "              typed_per_filter_config:\n                envoy.filters.http.cors:\n", put: "              typed_per_filter_config:\n                envoy.filters.http.ratelimit: {" + text + "}\n                envoy.filters.http.cors:\n",
	})
}

// in moves a part of the configuration to a file.
func (s setup) in(file string) setup {
	s.file = file
	return s
}

// variants are the faults of the other tables in other places.
var variants = []fault{
	{
		row: 63, what: "a form for gRPC with another code", setup: routes(
			listed("all", everything, toUpstream, byAddress+", {actions: [{generic_key: {descriptor_key: form, descriptor_value: grpc}}]}"),
			patch{find: "rate_limited_as_resource_exhausted: true", put: "rate_limited_as_resource_exhausted: false"}),
		want: []string{"warning grpc-form"},
	},
	{row: 1, what: "no filter, listener from a file", setup: cut(filter, trailers).in("listener"), passes: "/login", want: []string{"error no-filter ingress"}},
	{row: 3, what: "default chain without filter", setup: setup{file: "listener", patches: []patch{{
		find: firstChain, put: "    default_filter_chain:\n      filters:\n" + unlimited + "    filter_chains:\n    - filter_chain_match: {source_prefix_ranges: [{address_prefix: 192.0.2.0, prefix_len: 24}]}\n      filters:\n",
	}}}, passes: "/login", want: []string{"error no-filter ingress"}},
	{row: 7, what: "another domain, listener from a file", setup: replace("              domain: edge\n", "              domain: edge.\n").in("listener"), passes: "/login", want: []string{"error wrong-domain ingress"}},
	{row: 9, what: "a virtual host without descriptors, routes from a file", setup: routes(loginFirst + listed("all", everything, toUpstream, byAddress) +
		secondVH + "              - {name: shop, match: {prefix: /}, route: {cluster: upstream}}\n").in("routes"), want: []string{"error no-descriptor shop"}},
	{row: 9, what: "an empty list", setup: setup{patches: []patch{{find: login, until: rest, put: login + perFilter + "                    " + perRoute + "                    vh_rate_limits: INCLUDE\n"}}}, passes: "/login", want: []string{"error no-descriptor login"}},
	{row: 11, what: "another value below route", setup: loginRoute("{actions: [" + signIn + ", " + addressAction + "]}, " + byAddress), passes: "/login", want: []string{"error other-value login"}},
	{row: 12, what: "another order in the virtual host", setup: hostLimits("{actions: [" + addressAction + ", " + loginAction + "]}"), passes: "/login", want: []string{"error other-order all", "error nothing-limits all"}},
	{row: 13, what: "an entry too many in the filter", setup: routes("              - {name: all, match: {prefix: /}, route: {cluster: upstream}}\n",
		patch{find: "              domain: edge\n", put: "              domain: edge\n              rate_limits: [{actions: [" + loginAction + ", " + addressAction + ", {generic_key: {descriptor_value: x}}]}]\n"}), passes: "/login", want: []string{"error entry-too-many all", "error nothing-limits all"}},
	{row: 14, what: "an entry too few in a FilterConfig", setup: setup{patches: []patch{{find: login, until: rest, put: login + perFilter +
		"                    \"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig\n                    config: {" + strings.TrimSuffix(perRoute, "\n") + ", rate_limits: [{actions: [" + loginAction + "]}]}\n"}}}, passes: "/login", want: []string{"error entry-too-few login", "error nothing-limits login"}},
	{row: 18, what: "a wide regular expression first", setup: before("              - name: login\n", strings.Replace(wide, "{prefix: /}", "{safe_regex: {regex: '.*'}}", 1)), passes: "/login", want: []string{"error route-hidden login"}},
	{row: 18, what: "a wider prefix first", setup: routes(listed("l", "{prefix: /l}", toUpstream, byAddress) + loginFirst + listed("all", everything, toUpstream, byAddress)), passes: "/login", want: []string{"error route-hidden login"}},
	{row: 18, what: "a prefix of segments first", setup: routes(listed("l", "{path_separated_prefix: /login}", toUpstream, byAddress) + listed("login", "{path: /login/x}", toUpstream, byLogin) + listed("all", everything, toUpstream, byAddress)), passes: "/login/x", want: []string{"error route-hidden login"}},
	{row: 18, what: "a prefix before a regular expression", setup: routes(listed("l", "{prefix: /log, case_sensitive: false}", toUpstream, byAddress) + listed("login", "{safe_regex: {regex: '/login(/.*)?'}}", toUpstream, byLogin) + listed("all", everything, toUpstream, byAddress)), passes: "/login", want: []string{"error route-hidden login"}},
	{
		row: 24, what: "a rate limit switched off by POST", setup: setup{patches: []patch{
			loginRoute("{actions: [" + addressAction + "]}, {disable_key: logins, actions: [" + loginAction + ", " + addressAction + "]}").patches[0],
			before(beforeAdmin, layer("")).patches[0],
		}}, before: func(r *running) { r.post("/runtime_modify?ratelimit.logins.http_filter_enabled=0") }, passes: "/login", want: []string{"error rate-limit-disabled login"},
	},
	{row: 25, what: "filter_enabled 0 by its runtime key", setup: setup{patches: []patch{
		{find: "              domain: edge\n", put: "              domain: edge\n              filter_enabled: {default_value: {numerator: 100, denominator: HUNDRED}, runtime_key: limits.on}\n"},
		before(beforeAdmin, layer("limits.on: 0")).patches[0],
	}}, passes: "/login", want: []string{"error not-enabled ingress"}},
	{row: 50, what: "a misspelt key of the metadata in the virtual host", setup: setup{base: "authorization.yaml", patches: []patch{
		{find: "              # Each list of descriptors is complete", until: "\n          http_filters:\n", put: "              - {name: all, match: {prefix: /}, route: {cluster: upstream, rate_limits: [{actions: [{" + metadata + "}]}]}}\n"},
	}}, want: []string{"error other-metadata all"}},
	{row: 37, what: "any certificate of rls is accepted", setup: setup{base: "tls.yaml", rls: service{tls: true}, patches: []patch{
		{find: "            trusted_ca:", until: breakers, put: "            trust_chain_verification: ACCEPT_UNTRUSTED\n"},
	}}, want: []string{"warning tls-not-verified rls"}},
	{row: 41, what: "a circuit breaker of few calls", setup: replace(maxCalls, "max_requests: 50"), want: []string{"warning breaker-default rls"}},
	{row: 53, what: "the key is disallowed", setup: setup{base: "authorization.yaml", patches: []patch{
		{find: "              allowed_headers:\n", until: "              # Envoy sends each line", put: "              disallowed_headers: {patterns: [{prefix: x-}, {exact: authorization}]}\n"},
	}}, want: []string{"error credential-not-sent ingress"}},
	{row: 40, what: "a name that does not resolve", setup: setup{calls: "rls.invalid:8081", patches: []patch{noHealthChecks}}, passes: "/login", want: []string{"error no-endpoint rls", "error no-answers"}},
	{row: 4, what: "TCP to weighted clusters", setup: before(clusters, "\n  - name: raw\n    address: {socket_address: {address: 127.0.0.1, port_value: 0}}\n    filter_chains: [{filters: ["+strings.Replace(tcpProxy, "cluster: upstream", "weighted_clusters: {clusters: [{name: upstream, weight: 1}]}", 1)+"]}]"), want: []string{"warning tcp-listener raw"}},
	{row: 8, what: "another domain in the virtual host", setup: hostSays(ofRoute + ", domain: edges"), passes: "/login", want: []string{"error wrong-route-domain login"}},
	{row: 10, what: "a masked address in place of an address", setup: routes(loginFirst + listed("all", everything, toUpstream, bySearch+", {actions: [{masked_remote_address: {}}]}, {actions: [{request_headers: {header_name: x-api-key, descriptor_key: api-key}}]}")), want: []string{"error other-keys all"}},
	{row: 11, what: "another value in one of two listeners", setup: before(clusters, "\n"+internalListener+strings.NewReplacer(
		"match: {prefix: /}, route: {cluster: upstream}", "match: {safe_regex: {regex: '(?i)/login([^a-z0-9_-].*)?'}}, route: {cluster: upstream, rate_limits: ["+byAddress+", {actions: ["+signIn+", "+addressAction+"]}]}",
		"http_filters: [", "http_filters: [{name: limits, typed_config: {"+limitFilter+"}}, ",
	).Replace(unlimited)), want: []string{"error other-value internal"}},
	{row: 13, what: "an entry too many in front", setup: loginRoute("{actions: [{generic_key: {descriptor_value: x}}, " + loginAction + ", " + addressAction + "]}, " + byAddress), passes: "/login", want: []string{"error entry-too-many login"}},
	{row: 21, what: "limits of the route hidden by those of the filter", setup: routes(loginFirst, patch{find: "              domain: edge\n", put: "              domain: edge\n              rate_limits: [" + byAddress + "]\n"}), passes: "/login", want: []string{"warning route-limits-hidden login"}},
	{row: 23, what: "a stage in the virtual host", setup: hostLimits("{stage: 2, actions: [" + addressAction + "]}"), want: []string{"error no-filter-of-stage all", "error no-descriptor all"}},
	{row: 24, what: "a rate limit of half of the requests", setup: setup{patches: []patch{
		loginRoute("{disable_key: logins, actions: [" + loginAction + ", " + addressAction + "]}").patches[0], before(beforeAdmin, layer("ratelimit.logins.http_filter_enabled: 50")).patches[0],
	}}, want: []string{"warning rate-limit-disabled login"}},
	{row: 25, what: "100 of a million", setup: replace("              domain: edge\n", "              domain: edge\n              filter_enabled: {default_value: {numerator: 100, denominator: MILLION}}\n"), passes: "/login", want: []string{"error not-enabled ingress"}},
	{row: 25, what: "filter_enabled 0 by a fraction at run time", setup: setup{patches: []patch{
		{find: "              domain: edge\n", put: "              domain: edge\n              filter_enabled: {default_value: {numerator: 100}, runtime_key: limits.on}\n"},
		before(beforeAdmin, layer("limits.on: {numerator: 0, denominator: TEN_THOUSAND}")).patches[0],
	}}, passes: "/login", want: []string{"error not-enabled ingress"}},
	{row: 51, what: "ext_authz off on a route, one hop", setup: setup{base: "one-hop.yaml", patches: []patch{{
		find: "              - name: search\n", put: "              - name: export\n                match: {prefix: /export}\n                route: {cluster: upstream}\n                typed_per_filter_config: {envoy.filters.http.ext_authz: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute, disabled: true}}\n              - name: search\n",
	}}}, passes: "/export", want: []string{"error authorization-off export"}},
	{row: 55, what: "the filter is off in the virtual host", setup: hostSays("\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true"), passes: "/login", want: []string{"error filter-off login"}},
	{row: 59, what: "the header is removed by a pattern", setup: setup{patches: []patch{
		{find: "              - remove: x-tier\n", put: "              - remove_on_match: {key_matcher: {prefix: x-ti}}\n"}, {find: loginLimit, put: loginLimit + "                    - actions:\n" + tierHeader},
	}}, want: []string{"error header-removed login"}},
	{row: 50, what: "a misspelt namespace of the metadata", setup: authorizing(searchPerKey, strings.Replace(searchPerKey, "http.ext_authz", "http.ext-authz", 1)), want: []string{"error other-metadata search"}},
}
