package envoycheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

const managerType = `"@type": "x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "normalize_path": true, "merge_slashes": true, "path_with_escaped_slashes_action": "REJECT_REQUEST"`

// hcm is a network filter with HTTP filters and routes of one virtual host.
func hcm(filters, routes string) string {
	return fmt.Sprintf(`{"name": "m", "typed_config": {%s, "http_filters": [%s], "route_config": {"virtual_hosts": [{"name": "h", "routes": [%s]}]}}}`, managerType, filters, routes)
}

// limiter is a ratelimit filter.
func limiter(name, domain string) string {
	return fmt.Sprintf(`{"name": %q, "typed_config": {"@type": "x/envoy.extensions.filters.http.ratelimit.v3.RateLimit", "domain": %q, "timeout": "0.05s", "rate_limit_service": {"grpc_service": {"envoy_grpc": {"cluster_name": "rls"}}}}}`, name, domain)
}

func limited(name, cluster, limits string) string {
	return fmt.Sprintf(`{"name": %q, "match": {"prefix": "/"}, "route": {"cluster": %q, "rate_limits": [%s]}}`, name, cluster, limits)
}

func listener(name string, port int, chains string) string {
	return fmt.Sprintf(`{"listener": {"name": "%s", "address": {"socket_address": {"address": "0.0.0.0", "port_value": %d}}, "filter_chains": [%s]}}`, name, port, chains)
}

func chain(name, filter string) string {
	return fmt.Sprintf(`{"name": %q, "filters": [%s]}`, name, filter)
}

// dump has listeners and a cluster for rls.
func dump(listeners ...string) string {
	return fmt.Sprintf(`{"configs": [{"static_listeners": [%s]}, {"static_clusters": [{"cluster": {"name": "rls", "type": "EDS", "http2_protocol_options": {},
	 "circuit_breakers": {"thresholds": [{"max_requests": 9999}]}}}, {"cluster": {"name": "through", "type": "ORIGINAL_DST"}}]}]}`, strings.Join(listeners, ", "))
}

const (
	byAddress  = `{"actions": [{"remote_address": {}}]}`
	tcp        = `{"name": "t", "typed_config": {"@type": "x/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "cluster": %q}}`
	routeKey   = `{"generic_key": {"descriptor_key": "httproute/a/rule/0", "descriptor_value": "httproute/a/rule/0"}}`
	headerRule = `{"actions": [` + routeKey + `, {"request_headers": {"header_name": "x-user-id", "descriptor_key": "rule-0-match-0"}}]}`
)

// described is a rule as a service describes it.
func described(domain, limit string, entries ...string) admin.Rule {
	return admin.Rule{Domain: domain, Name: strings.Join(entries, "."), Entries: entries, Limits: []string{limit}, File: "rules.yaml", Line: 3}
}

// authorizer is an ext_authz filter that calls rls.
const authorizer = `{"name": "a", "typed_config": {"@type": "x/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", "failure_mode_allow": false, "grpc_service": {"timeout": "0.1s", "envoy_grpc": {"cluster_name": "rls"}}}}`

// carriedAs is a rate limit of a customer, with the limit under a key of the metadata.
func carriedAs(key string) string {
	from := func(key string) string {
		return fmt.Sprintf(`"metadata_key": {"key": "envoy.filters.http.ext_authz", "path": [{"key": %q}]}`, key)
	}
	return fmt.Sprintf(`{"actions": [{"metadata": {"descriptor_key": "subject", %s}}], "limit": {"dynamic_metadata": {%s}}}`, from("subject"), from(key))
}

var perSubject = described("edge", "100 per 1m", "subject")

var perAddress = described("edge", "100 per 1m", "remote_address")

// TestRun checks configurations that control planes write, and what cannot be read.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		what    string
		dump    string
		rules   []admin.Rule
		options Options
		carried []string
		want    []string
		notRead string // a part of it
		proven  string
	}{
		{
			what:  "Envoy Gateway: a rule of a header is a note, and a route without a policy too",
			dump:  dump(listener("gw", 80, chain("", hcm(limiter("envoy.filters.http.ratelimit", "gw"), limited("a", "app", headerRule)+`, `+limited("b", "app", ""))))),
			rules: []admin.Rule{described("gw", "3 per 1h", "httproute/a/rule/0=httproute/a/rule/0", "rule-0-match-0")},
			want:  []string{"note header-needed route h/a", "note no-descriptor route h/b", "note client-header route h/a"}, proven: "1 route of 1 listener send",
		},
		{
			what: "Istio: passthrough chains and outbound listeners are no findings",
			dump: dump(
				listener("virtualInbound", 15006, chain("", fmt.Sprintf(tcp, "through"))+", "+chain("8080", hcm(limiter("r", "edge"), limited("in", "inbound|8080", byAddress)))),
				listener("virtualOutbound", 15001, chain("", fmt.Sprintf(tcp, "through"))),
				listener("10.0.0.1_80", 80, chain("", hcm("", limited("out", "outbound|80", "")))),
			),
			rules: []admin.Rule{perAddress}, proven: "1 route of 1 listener send",
		},
		{
			what:  "another listener for the same application is one",
			dump:  dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", byAddress)))), listener("back", 81, chain("", hcm("", limited("b", "app", "")))), listener("raw", 82, chain("", fmt.Sprintf(tcp, "app")))),
			rules: []admin.Rule{perAddress}, want: []string{"error no-filter listener back", "warning tcp-listener listener raw"},
		},
		{
			what: "a limit that a tier carries, and one that none does", carried: []string{"limit"},
			dump:  dump(listener("in", 80, chain("", hcm(authorizer+`, `+limiter("r", "edge"), limited("a", "app", carriedAs("limit"))+`, `+limited("b", "app", carriedAs("limit_tokens")))))),
			rules: []admin.Rule{perSubject}, want: []string{"warning limit-not-carried route h/b"},
		},
		{
			what: "what tiers carry is not known",
			dump: dump(listener("in", 80, chain("", hcm(authorizer+`, `+limiter("r", "edge"), limited("a", "app", carriedAs("limit_tokens")))))), rules: []admin.Rule{perSubject},
		},
		{
			what: "the operator names the listeners", options: Options{Listeners: []string{"in"}},
			dump:  dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", byAddress)))), listener("back", 81, chain("", hcm("", limited("b", "app", ""))))),
			rules: []admin.Rule{perAddress},
		},
		{
			what: "no rules at all", dump: dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", byAddress))))),
			want: []string{"error wrong-domain listener in"}, proven: "0 routes of 0 listeners",
		},
		{
			what: "a hidden value takes any value", dump: dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", byAddress+`, {"actions": [{"generic_key": {"descriptor_key": "api_key", "descriptor_value": "k"}}]}`))))),
			rules: []admin.Rule{perAddress, described("edge", "1 per 1s", "api_key=***")},
		},
		{
			what: "patterns of values", dump: dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", `{"actions": [{"generic_key": {"descriptor_value": "search"}}]}`))))),
			rules: []admin.Rule{described("edge", "1 per 1s", "generic_key=se*")}, proven: "1 route",
		},
		{
			what: "a filter within another one", notRead: "filter c of listener in",
			dump: dump(listener("in", 80, chain("", hcm(`{"name": "c", "typed_config": {"@type": "x/envoy.extensions.common.matching.v3.ExtensionWithMatcher", "a": "envoy.extensions.filters.http.ratelimit.v3.RateLimit"}}`, limited("a", "app", ""))))),
			want: []string{"error no-filter listener in"},
		},
		{
			what: "a filter from elsewhere", notRead: "filter e of listener in: a discovery service has its configuration",
			dump: dump(listener("in", 80, chain("", hcm(`{"name": "e", "config_discovery": {}}, `+limiter("r", "edge"), limited("a", "app", byAddress))))), rules: []admin.Rule{perAddress},
		},
		{
			what: "actions that are new", notRead: "a descriptor of route h/a of listener in",
			dump: dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", byAddress+`, {"actions": [{"extension": {"name": "x"}}]}, {"actions": [7]}`))))), rules: []admin.Rule{perAddress},
		},
		{
			what: "a matcher tree, and filters of weighted clusters", notRead: "matcher tree of virtual host h of listener in; typed_per_filter_config of the weighted clusters of route h/prefix /",
			dump: dump(listener("in", 80, chain("", fmt.Sprintf(`{"name": "m", "typed_config": {%s, "http_filters": [%s], "route_config": {"virtual_hosts": [{"name": "h", "matcher": {}, "routes": [
			 {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [{"name": "a", "typed_per_filter_config": {"r": {}}}]}, "rate_limits": [%s]}}]}]}}}`, managerType, limiter("r", "edge"), byAddress)))),
			rules: []admin.Rule{perAddress},
		},
		{
			what: "an aggregate cluster has no endpoints of its own", notRead: "the clusters of the aggregate cluster rls",
			dump: strings.Replace(dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", byAddress))))), `"name": "rls", "type": "EDS"`,
				`"name": "rls", "cluster_type": {"name": "c", "typed_config": {"@type": "x/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["a"]}}`, 1), rules: []admin.Rule{perAddress},
		},
		{
			what: "a dump with the endpoints of EDS", want: []string{"error no-endpoint cluster rls"},
			dump:  strings.TrimSuffix(dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", byAddress))))), "]}") + `, {"dynamic_endpoint_configs": [{"endpoint_config": {"cluster_name": "rls", "endpoints": [{}]}}]}]}`,
			rules: []admin.Rule{perAddress},
		},
		{
			what: "routes that are missing", notRead: "routes of listener in",
			dump:  dump(listener("in", 80, chain("", fmt.Sprintf(`{"name": "m", "typed_config": {%s, "rds": {"route_config_name": "gone"}, "http_filters": [%s]}}`, managerType, limiter("r", "edge"))))),
			rules: []admin.Rule{perAddress}, proven: "0 routes",
		},
		{
			what:  "hostile names",
			dump:  dump(listener("in\\u001b[31m", 80, chain("", hcm("", limited("a\u202e", "app", ""))))),
			rules: []admin.Rule{perAddress}, want: []string{`error no-filter listener in\x1b[31m`},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			report := runWith(t, c.dump, c.options, &Service{Rules: rulesFrom(c.rules), Carried: c.carried})
			var got []string
			for _, f := range report.Findings {
				got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Where))
			}
			for _, want := range c.want {
				at := slices.IndexFunc(got, func(g string) bool { return strings.HasPrefix(g, want) })
				if at < 0 {
					t.Errorf("want %s", want)
					continue
				}
				got = slices.Delete(got, at, at+1)
			}
			if len(got) > 0 {
				t.Errorf("also %q", got)
			}
			for part := range strings.SplitSeq(c.notRead, "; ") {
				if all := strings.Join(report.NotRead, "; "); !strings.Contains(all, part) {
					t.Errorf("not read: %s; want %s", all, part)
				}
			}
			if !strings.HasPrefix(report.Proven, c.proven) {
				t.Errorf("proven: %s; want %s", report.Proven, c.proven)
			}
		})
	}
}

func run(t *testing.T, dump string, o Options, rules ...admin.Rule) *Report {
	t.Helper()
	return runWith(t, dump, o, &Service{Rules: rulesFrom(rules)})
}

func runWith(t *testing.T, dump string, o Options, service *Service) *Report {
	t.Helper()
	seen, err := envoydump.Decode(strings.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	o.Hops = -1
	report, err := Run(t.Context(), seen, service, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestDescribedRules reads the words of a running service.
func TestDescribedRules(t *testing.T) {
	for limits, want := range map[string]string{
		"100 per 1m":                    "true ",
		"no limit":                      "false ",
		"unlimited":                     "false ",
		"100 per 1m (100% observed)":    "false 100% observed",
		"100 per 1m (40% observed)":     "true 40% observed",
		"free: 1 per 1s|pro: unlimited": "true ",
		"free: 1 per 1s (100% observed)|pro: unlimited": "false 100% observed",
	} {
		d := perAddress
		d.Limits = strings.Split(limits, "|")
		if r := rulesFrom([]admin.Rule{d})[0]; fmt.Sprint(r.Limits, " ", r.Observed) != want {
			t.Errorf("%s: got %v %s, want %s", limits, r.Limits, r.Observed, want)
		}
	}
	s := Service{Rules: rulesFrom([]admin.Rule{perAddress})}
	s.add(&glance.State{Latency: glance.Latency{Deadline: 0.015}, Config: glance.Config{Notes: []string{"rules.shadow_mode: every rule only observes"}}})
	if r := s.Rules[0]; r.Limits || r.Observed == "" || s.StoreTimeout.Milliseconds() != 15 {
		t.Errorf("in shadow mode: got %+v", s)
	}
}

// TestOldEnvoys: some versions crash if an end cannot be sent. With a filter that only reports ends it was not seen.
func TestOldEnvoys(t *testing.T) {
	const end = `{"actions": [{"generic_key": {"descriptor_key": "slidegate", "descriptor_value": "end"}}], "apply_on_stream_done": true}`
	for version, want := range map[string]Severity{
		"1 33 9": Warning, "1 34 12": Warning, "1 34 13": "", "1 35 8": "", "1 36 4": Warning, "1 36 5": "", "1 37 0": Warning, "1 37 1": "", "1 38 0": "", "0 0 0": "",
	} {
		var v [3]int
		_, _ = fmt.Sscan(version, &v[0], &v[1], &v[2])
		node := fmt.Sprintf(`{"configs": [{"bootstrap": {"node": {"user_agent_build_version": {"version": {"major_number": %d, "minor_number": %d, "patch": %d}}}}}, `, v[0], v[1], v[2])
		for limits, want := range map[string]Severity{byAddress + ", " + end: want, end: min(want, Note)} {
			var got Severity
			for _, f := range run(t, strings.Replace(dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", limits))))), `{"configs": [`, node, 1), Options{}, perAddress).Findings {
				if f.Code == envoyCrashes.code {
					got = f.Severity
				}
			}
			if got != want {
				t.Errorf("Envoy %s, %s: got %q, want %q", version, limits, got, want)
			}
		}
	}
}

// TestText fits the terminal, and says how much it leaves out.
func TestText(t *testing.T) {
	var routes []string
	for i := range 30 {
		routes = append(routes, fmt.Sprintf(`{"name": "r%d", "match": {"path": "/%d"}, "route": {"cluster": "app"}}`, i, i))
	}
	report := run(t, dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), strings.Join(routes, ", "))))), Options{}, perAddress)
	report.Probed = []*Probed{{Where: "route h/r0", Status: 429, Calls: []probe.Call{{Service: "ext_authz", Domain: "edge", Descriptors: []string{"a=9f9f", "b"}, Deadline: 9, Context: map[string]string{"domain": "edge"}}}, digest: "9f9f"}}
	var out strings.Builder
	report.WriteText(&out, 60, false)
	if want := "\nprobed: route h/r0: 429\n  ext_authz of domain edge, 9 ms left: [a=KEY] [b], domain: edge\n"; !strings.Contains(out.String(), want) {
		t.Errorf("got\n%s\nwant %s", out.String(), want)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 70 && !strings.HasPrefix(line, "not read") {
			t.Errorf("the line is too long: %s", line)
		}
	}
	if n := strings.Count(out.String(), "error no-descriptor: "); n != maxOfCode || !strings.Contains(out.String(), "\n10 more of no-descriptor: --json has all\n") || strings.Contains(out.String(), "routes of") {
		t.Errorf("got %d findings in\n%s", n, out.String())
	}
}

// FuzzRun checks that no dump ends the program, and that each text is safe to print.
func FuzzRun(f *testing.F) {
	f.Add(dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), limited("a", "app", byAddress))))))
	f.Add(dump(listener("in", 80, chain("", hcm(limiter("r", "edge"), strings.Replace(limited("a", "app", byAddress), `"prefix": "/"`, `"safe_regex": {"regex": "\\Q/a"}`, 1))))))
	f.Add(dump(listener("gw", 80, chain("", hcm(limiter("r", "gw"), limited("a", "app", headerRule))))))
	f.Fuzz(func(t *testing.T, text string) {
		seen, err := envoydump.Decode(strings.NewReader(text))
		if err != nil {
			t.Skip()
		}
		report, _ := Run(t.Context(), seen, &Service{Rules: rulesFrom([]admin.Rule{perAddress, described("edge", "1 per 1s", "route=a", "x*")})}, Options{Edge: true, Complete: true})
		for _, f := range report.Findings {
			if all := f.Where + f.Message + f.Passes + f.Fix; strings.ContainsFunc(all, safetext.Unsafe) || f.Severity.rank() < 0 {
				t.Errorf("%q: %+v", text, f)
			}
		}
	})
}
