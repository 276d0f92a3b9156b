package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/stack"
)

// A sound is a setup in which every limit is in force.
type sound struct {
	what, why string
	setup
	shape string // flags of rls envoy-config, which prints the configuration; $RLS is the address of rls
	flags string // of rls check
	// denies is a path whose third request is denied.
	denies string
}

// inFlightRules are those of docs/advanced.md, and those for the other descriptors of in-flight.yaml.
const inFlightRules = `
domain: edge
descriptors:
  - {key: in_flight, value: backend, rate_limit: {name: backend, policy: in_flight, max: 20, hold: 5m}}
  - {key: in_flight, value: address, descriptors: [{key: masked_remote_address, rate_limit: {name: address, policy: in_flight, max: 5, hold: 5m}}]}
  - {key: in_flight, value: key, descriptors: [{key: api_key, rate_limit: {name: key, policy: in_flight, max: 5, hold: 5m}}]}
  - {key: api_key, rate_limit: {name: per-key, window: 1h, requests: 50000}}
  - {key: budget, value: units, descriptors: [{key: api_key, rate_limit: {name: budget, window: 1h, requests: 50000}}]}
`

// mcpRules are for mcp.yaml.
const mcpRules = `
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {window: 1h, requests: 50000}}
  - key: api_key
    rate_limit: {window: 1h, requests: 50000}
    descriptors:
      - {key: session, rate_limit: {window: 1h, requests: 50000}}
      - {key: tool, rate_limit: {window: 1h, requests: 50000}}
`

// budgetRules are for the files of budgets.
const budgetRules = `
domain: edge
descriptors:
  - {key: budget, value: tokens, descriptors: [{key: api_key, rate_limit: {window: 1h, requests: 50000, budget: {reserve: 4096, hold: 10m}}}]}
  - {key: budget, value: usd, descriptors: [{key: api_key, rate_limit: {window: 1h, requests: 50000, budget: {reserve: 60000, hold: 10m}}}]}
`

var (
	budgets   = service{rules: budgetRules}
	shopRules = service{rules: strings.Replace(usualRules, "domain: edge", "domain: shop", 1)}
	inFlight  = service{rules: inFlightRules}
)

// routes puts routes in place of those behind the first one.
func routes(more string, patches ...patch) setup {
	return setup{patches: append([]patch{{find: "              # The descriptors of a route.", until: "\n          http_filters:\n", put: more}}, patches...)}
}

// with sets the service.
func (s setup) with(rls service) setup {
	s.rls = rls
	return s
}

// listed is the text of a route with limits.
func listed(name, match, action, limits string) string {
	return "              - {name: " + name + ", match: " + match + ", route: {" + action + ", rate_limits: [" + limits + "]}}\n"
}

const (
	keyAction  = `{request_headers: {header_name: x-api-key, descriptor_key: api_key}}`
	byAddress  = `{actions: [` + addressAction + `]}`
	byKey      = `{actions: [` + keyAction + `]}`
	byLogin    = `{actions: [` + loginAction + `, ` + addressAction + `]}`
	bySearch   = `{actions: [{generic_key: {descriptor_key: route, descriptor_value: search}}, ` + keyAction + `]}`
	toUpstream = "cluster: upstream"
	everything = `{prefix: /}`
	anyHost    = `              domains: ["*"]` + "\n"
	firstChain = "    filter_chains:\n    - filters:\n"
)

var loginFirst = listed("login", "{path_separated_prefix: /login}", toUpstream, byLogin+", "+byAddress)

var sounds = []sound{
	{what: "ratelimit.yaml", why: "it is shipped", denies: "/login"},
	{what: "authorization.yaml", why: "it is shipped", setup: setup{base: "authorization.yaml"}, denies: "/search"},
	{what: "one-hop.yaml", why: "it is shipped", setup: setup{base: "one-hop.yaml"}, denies: "/search"},
	{what: "a limit that the tier carries", why: "it is in place of that of the rule", setup: tierLimit("limit_search")},
	{what: "in-flight.yaml", why: "it is shipped; only one of its filters tells ends, and only that one repeats calls", setup: setup{base: "in-flight.yaml", rls: inFlight}},
	{what: "budgets.yaml", why: "it is shipped; metadata has the keys, and a form limits nothing", setup: setup{since: 40, base: "budgets.yaml", rls: budgets}},
	{what: "budgets-1.38.yaml", why: "it is shipped; only the filter that reports ends repeats calls", setup: setup{since: 38, base: "budgets-1.38.yaml", rls: budgets}},
	{what: "budgets-1.36.yaml", why: "it is shipped; a client's estimate has a bound", setup: setup{base: "budgets-1.36.yaml", rls: budgets}},
	{what: "budgets-one-hop.yaml", why: "it is shipped; the authorization asks, and another filter reports ends", setup: setup{base: "budgets-one-hop.yaml", rls: budgets}},
	{what: "mcp.yaml", why: "it is shipped; tools are in the body, and a form limits nothing", setup: setup{since: 38, base: "mcp.yaml", rls: service{rules: mcpRules}}},
	{what: "tls.yaml", why: "it is shipped; both sides show certificates", setup: setup{base: "tls.yaml", rls: service{tls: true}}},
	{what: "sidecar-uds.yaml", why: "it is shipped; a socket is an address, too", setup: setup{base: "sidecar-uds.yaml", rls: service{socket: true}}},
	{what: "printed ratelimit", why: "the domain of the rules is that of the filter", shape: "--shape ratelimit --rls $RLS --domain shop", setup: setup{rls: shopRules}},
	{what: "printed with a guard", why: "the local limit in front is another filter", shape: "--shape ratelimit --guard --rls $RLS"},
	{what: "printed tls", why: "rls has a certificate for its address, too", shape: "--shape tls --rls 127.0.0.1:$PORT", setup: setup{rls: service{tls: true}}},
	{what: "printed sidecar", why: "it has another socket than the file", shape: "--shape sidecar --rls $RLS", setup: setup{rls: service{socket: true}}},
	{what: "printed one-hop", why: "its domain is hidden, and that is no error", shape: "--shape one-hop --rls $RLS --domain shop", setup: setup{rls: shopRules}},
	{what: "printed authorization", why: "the domain of the rules is that of the filter", shape: "--shape authorization --rls $RLS --domain shop", setup: setup{rls: shopRules}},
	{what: "printed in-flight", why: "both filters have the domain of the rules", shape: "--shape in-flight --rls $RLS", setup: setup{rls: inFlight}},
	{what: "routes from a file", why: "the routes are elsewhere in the dump", setup: setup{file: "routes"}},
	{what: "a listener from a file", why: "the listener is elsewhere in the dump", setup: setup{file: "listener"}},
	{what: "routes from a file, default chain", why: "the default chain serves all connections", setup: setup{file: "routes", patches: []patch{{find: firstChain, put: "    default_filter_chain:\n      filters:\n"}}}},
	{what: "a listener from a file, default chain", why: "the default chain serves all connections", setup: setup{file: "listener", patches: []patch{{find: firstChain, put: "    default_filter_chain:\n      filters:\n"}}}},
	{what: "a listener for another application", why: "limits are not asked for where no filter is", setup: before(clusters, "\n"+internalListener+strings.Replace(unlimited, "cluster: upstream", "cluster: rls", 1))},
	{what: "TCP to another cluster", why: "what it serves is no HTTP", setup: before(clusters, "\n  - name: raw\n    address: {socket_address: {address: 127.0.0.1, port_value: 0}}\n    filter_chains: [{filters: ["+strings.Replace(tcpProxy, "cluster: upstream", "cluster: rls", 1)+"]}]")},
	{what: "limits of the virtual host alone", why: "the routes have none of their own", setup: routes(
		"              - {name: all, match: {prefix: /}, route: {cluster: upstream}}\n", patch{find: anyHost, put: anyHost + "              rate_limits: [" + byAddress + ", " + byKey + "]\n"})},
	{
		what: "limits of the virtual host included", why: "include_vh_rate_limits adds them to those of the route", setup: routes(
			listed("login", "{path_separated_prefix: /login}", toUpstream+", include_vh_rate_limits: true", byLogin)+listed("all", everything, toUpstream+", include_vh_rate_limits: true", byKey),
			patch{find: anyHost, put: anyHost + "              rate_limits: [" + byAddress + "]\n"}), denies: "/login",
	},
	{what: "several virtual hosts", why: "each has its limits", setup: routes(
		listed("all", everything, toUpstream, byAddress) +
			"            - name: shop\n              domains: [shop.example]\n              rate_limits: [" + byAddress + "]\n              routes:\n" + loginFirst + listed("rest", everything, toUpstream+", include_vh_rate_limits: true", byKey))},
	{what: "weighted clusters", why: "both clusters are behind the same limits", setup: routes(
		loginFirst + listed("all", everything, "weighted_clusters: {clusters: [{name: upstream, weight: 1}, {name: rls, weight: 0}]}", byAddress))},
	{what: "answers and redirects of Envoy", why: "nothing is forwarded, so nothing is to be limited", setup: routes(
		"              - {name: robots, match: {path: /robots.txt}, direct_response: {status: 200}}\n" +
			"              - {name: old, match: {prefix: /old}, redirect: {path_redirect: /}}\n" + loginFirst + listed("all", everything, toUpstream, byAddress))},
	{what: "a narrow route first", why: "its condition on a header leaves requests for the next route", setup: routes(
		listed("canary", "{prefix: /, headers: [{name: x-canary, present_match: true}]}", toUpstream, byAddress) + loginFirst + listed("all", everything, toUpstream, byAddress))},
	{what: "a route of another path first", why: "/log is another segment than /login", setup: routes(
		listed("log", "{path_separated_prefix: /log}", toUpstream, byAddress) + loginFirst + listed("all", everything, toUpstream, byAddress))},
	{what: "a narrower regular expression first", why: "it takes only a part of the paths", setup: routes(
		listed("part", "{safe_regex: {regex: '/login/[a-z]+'}}", toUpstream, byAddress) + loginFirst + listed("all", everything, toUpstream, byAddress))},
	{what: "a prefix of another case first", why: "/Login is another path than /login", setup: routes(
		listed("upper", "{prefix: /Log}", toUpstream, byAddress) + listed("login", "{prefix: /login, case_sensitive: false}", toUpstream, byLogin+", "+byAddress) + listed("all", everything, toUpstream, byAddress))},
	{what: "a share of requests first", why: "the other requests reach the next route", setup: routes(
		listed("sample", "{prefix: /, runtime_fraction: {default_value: {numerator: 10}}}", toUpstream, byAddress) + loginFirst + listed("all", everything, toUpstream, byAddress))},
	{what: "two stages", why: "each stage has its filter", setup: setup{patches: []patch{
		loginRoute(byAddress + ", " + strings.Replace(byLogin, "{actions", "{stage: 1, actions", 1)).patches[0],
		{find: trailers, put: strings.Replace(filter, "envoy.filters.http.ratelimit", "second", 1) + `              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: edge
              stage: 1
              timeout: 0.05s
              rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: rls}}}
` + trailers},
	}}, denies: "/login"},
	{what: "another rate-limit service", why: "its filter calls another cluster, and rls has no rules for its domain", setup: before(trailers, strings.Replace(filter, "envoy.filters.http.ratelimit", "legacy", 1)+`              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: legacy
              rate_limits: [`+byAddress+`]
              rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: upstream}}}
`)},
	{what: "another authorization", why: "its filter calls another cluster, and the routes say nothing to it", setup: before(filter, strings.NewReplacer("cluster_name: rls", "cluster_name: upstream", "{exact: x-api-key}, ", "").Replace(authorization))},
	{what: "a header that Envoy writes", why: "an early mutation overwrites what the client sent", setup: setup{patches: []patch{
		{find: "              - remove: x-tier\n", put: "              - append: {header: {key: x-tier, value: free}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}\n"},
		{find: loginLimit, put: loginLimit + "                    - actions:\n" + tierHeader},
	}}},
	{what: "a limit for each method", why: "what clients choose is what is limited", setup: setup{
		rls:     service{rules: usualRules + "  - {key: method, value: POST, rate_limit: {window: 1h, requests: 100}}\n"},
		patches: []patch{{find: loginLimit, put: loginLimit + "                    - actions:\n                      - request_headers: {header_name: \":method\", descriptor_key: method}\n"}},
	}},
	{what: "limits of the filter", why: "a list of the filter is for all routes", setup: routes(
		"              - {name: all, match: {prefix: /}, route: {cluster: upstream}}\n", patch{find: "              domain: edge\n", put: "              domain: edge\n              rate_limits: [" + byAddress + ", " + byKey + "]\n"})},
	{what: "limits in a FilterConfig", why: "FilterConfig only wraps them", setup: routes(
		"              - name: all\n                match: {prefix: /}\n                route: {cluster: upstream}\n" + perFilter + "                    \"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig\n                    config: {" + strings.TrimSuffix(perRoute, "\n") + ", rate_limits: [" + byAddress + "]}\n")},
	{what: "behind a load balancer", why: "the operator says how many proxies stand in front", setup: replace("xff_num_trusted_hops: 0", "xff_num_trusted_hops: 1"), flags: "--hops 1"},
	{what: "an edge", why: "use_remote_address takes the address of the connection", flags: "--edge"},
	{what: "all rules reached", why: "each rule has a route", setup: setup{rls: service{rules: patch{find: "  - {key: subject,", until: "  - key: route\n"}.text(strings.Replace(usualRules, "      - {key: subject, rate_limit: {name: search-per-subject, subject: subject, window: 1h, requests: 2}}\n", "", 1))}}, flags: "--complete"},
	{what: "masked addresses", why: "the rule has the same name", setup: setup{
		rls:     service{rules: strings.ReplaceAll(usualRules, "remote_address", "masked_remote_address")},
		patches: []patch{{find: "              # The descriptors of a route.", until: "\n          http_filters:\n", put: strings.ReplaceAll(loginFirst+listed("all", everything, toUpstream, byAddress), "remote_address: {}", "masked_remote_address: {v6_prefix_mask_len: 64}")}},
	}},
	{what: "two instances of rls", why: "the other one is another instance of the service", setup: setup{second: true, patches: []patch{
		{find: "        - endpoint:\n            address:\n              " + rlsPort, put: "        - endpoint:\n            address:\n              " + rlsPort + "\n        - endpoint:\n            address:\n              socket_address: {address: 127.0.0.1, port_value: $OTHER}"},
	}}},
	{what: "100 at run time, of a million", why: "a number at run time is a percentage", setup: setup{patches: []patch{
		{find: "              domain: edge\n", put: "              domain: edge\n              filter_enabled: {default_value: {numerator: 1000000, denominator: MILLION}, runtime_key: limits.on}\n"},
		before(beforeAdmin, layer("limits.on: 100")).patches[0],
	}}, denies: "/login"},
	{what: "limits of the virtual host included in spite of IGNORE", why: "include_vh_rate_limits counts first", setup: routes(
		"              - {name: all, match: {prefix: /}, route: {cluster: upstream, include_vh_rate_limits: true}, typed_per_filter_config: {envoy.filters.http.ratelimit: {"+ofRoute+", vh_rate_limits: IGNORE}}}\n",
		patch{find: anyHost, put: anyHost + "              rate_limits: [" + byLogin + "]\n"}), denies: "/login"},
	{what: "the domain in the virtual host", why: "no route uses the domain of the filter", setup: setup{patches: append(hostSays(ofRoute+", domain: edge").patches, patch{find: "              domain: edge\n", put: "              domain: unused\n"})}, denies: "/login"},
	{what: "another rate-limit service on another listener", why: "its filter calls another cluster", setup: before(clusters, "\n"+internalListener+strings.NewReplacer(
		"route: {cluster: upstream}", "route: {cluster: rls, rate_limits: ["+byAddress+"]}",
		"http_filters: [", "http_filters: [{name: legacy, typed_config: {"+strings.NewReplacer("domain: edge", "domain: legacy", "cluster_name: rls", "cluster_name: upstream").Replace(limitFilter)+"}}, ",
	).Replace(unlimited))},
	{what: "weighted clusters of another listener", why: "they are other clusters", setup: routes(
		loginFirst+listed("all", everything, "weighted_clusters: {clusters: [{name: upstream, weight: 1}]}", byAddress),
		before(clusters, "\n"+internalListener+strings.Replace(unlimited, "cluster: upstream", "weighted_clusters: {clusters: [{name: rls, weight: 1}]}", 1)).patches[0])},
	{what: "a header that Envoy removes and adds", why: "clients cannot set it", setup: setup{patches: []patch{
		{find: "              - remove: x-tier\n", put: "              - remove: x-tier\n              - append: {header: {key: x-tier, value: free}}\n"},
		{find: loginLimit, put: loginLimit + "                    - actions:\n" + tierHeader},
	}}},
	{what: "a cost in bytes", why: "Envoy always has a number for it", setup: after(loginLimit, "                      hits_addend: {format: \"%BYTES_RECEIVED%\"}\n")},
	{what: "a limit for each method alone", why: "each request has a method", setup: routes(
		listed("all", everything, toUpstream, "{actions: [{request_headers: {header_name: \":method\", descriptor_key: method}}]}")).with(
		service{rules: usualRules + "  - {key: method, value: POST, rate_limit: {window: 1h, requests: 100}}\n"})},
	{what: "a filter that one route enables again", why: "a FilterConfig without a message only enables it", setup: routes(
		"              - {name: all, match: {prefix: /}, route: {cluster: upstream, rate_limits: ["+byLogin+"]}, typed_per_filter_config: {envoy.filters.http.ratelimit: {\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {}}}}\n",
		hostSays(`"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true`).patches[1]), denies: "/login"},
}

// TestSound checks set-ups in which nothing is wrong.
func TestSound(t *testing.T) {
	all := newFleet(t)
	for _, s := range sounds {
		t.Run(s.what, func(t *testing.T) {
			t.Parallel()
			if s.why == "" {
				t.Error("nothing says why it is sound")
			}
			if stack.EnvoyVersion(t)[1] < s.since {
				t.Skipf("Envoy accepts it from 1.%d on", s.since)
			}
			if s.shape != "" {
				s.printed = func(rls *edge.RLSServer) string {
					address := rls.GRPC()
					port := address[strings.LastIndexByte(address, ':')+1:]
					return rls.Run(t, append([]string{"envoy-config"}, strings.Fields(strings.NewReplacer("$RLS", address, "$PORT", port).Replace(s.shape))...)...).Stdout
				}
			}
			r := all.start(t, s.setup, s.denies == "")
			if s.denies != "" {
				if got := r.get(3, s.denies, "x-api-key", "demo-starter"); !slices.Equal(got, []int{200, 200, 429}) {
					t.Errorf("three requests of %s: got %v, want 200, 200, 429", s.denies, got)
				}
			}
			for _, f := range r.check(strings.Fields(s.flags)...).Findings {
				if f.Severity != "note" || f.Code == "descriptor-without-rule" && s.base == "mcp.yaml" {
					t.Errorf("sound, because %s: %v", s.why, f)
				}
			}
		})
	}
}
