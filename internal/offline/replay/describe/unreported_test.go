package describe

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
	"github.com/slidegate/slidegate/test/tree"
)

// mapped compiles a mapping file.
func mapped(t testing.TB, text string) *Describer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "map.yaml")
	tree.Write(t, file, text)
	m, err := envoyfile.ReadMap(file, false)
	if err != nil {
		t.Fatal(err)
	}
	return NewMap(m, Options{Secrets: secrets()})
}

// envoy compiles routes of one virtual host, with a ratelimit filter of the domain edge.
func envoy(t testing.TB, o Options, routes string) (*Describer, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "routes.yaml")
	tree.Write(t, file, "virtual_hosts:\n- domains: ['*']\n  routes:\n"+routes)
	c, err := envoyfile.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	o.Secrets = secrets()
	return New(c, o)
}

// usual is what a log of the shipped format has of a request.
func usual(path, subject string) values {
	return values{
		accesslog.PathOnly: path, accesslog.Client: "10.0.0.1", accesslog.Subject: subject, accesslog.Flags: absent, accesslog.Details: "via_upstream",
	}
}

// TestSubjectStandsForKeys: a log has no API keys, but subjects.
func TestSubjectStandsForKeys(t *testing.T) {
	d := shipped(t, "ratelimit.yaml")
	var first string
	for _, subject := range []string{"acme", "acme", "other"} {
		qs := d.Describe(nil, record(d, usual("/search", subject)))
		if len(qs) != 1 || qs[0].Subject != subject || len(qs[0].Descriptors) != 3 {
			t.Fatalf("got %s", write(qs))
		}
		value := qs[0].Descriptors[0].Entries[0].Value
		if len(value) != 64 || strings.Contains(value, subject) {
			t.Errorf("got %q, want a digest", value)
		}
		if first == "" {
			first = value
		}
		if (value == first) != (subject == "acme") {
			t.Errorf("subject %s has %q, and acme %q", subject, value, first)
		}
	}
	if got := write(d.Describe(nil, record(d, usual("/search", absent)))); got != "edge: [remote_address=10.0.0.1]\n" {
		t.Errorf("without a subject: got %q", got)
	}
	if got := write(d.Describe(nil, record(d, usual("/search", "ip:10.0.0.1")))); got != "edge: [remote_address=10.0.0.1]\n" {
		t.Errorf("an authorization passed a request without a key: got %q", got)
	}
	unreported := d.Unreported()
	if len(unreported) != 2 || unreported[0].Requests != 1 || unreported[0].Attribute != accesslog.KeyDigest || !strings.Contains(unreported[0].Effect, ":key_digest)% to the log format") ||
		unreported[1].Requests != 5 || unreported[1].Attribute != "REQ(x-api-key)" || strings.Contains(unreported[1].Effect, "To tell it") {
		t.Errorf("unreported: got %+v", unreported)
	}
}

// TestDigestStandsForKeys: a key without a subject is in the log by the first digits of its digest.
func TestDigestStandsForKeys(t *testing.T) {
	d := shipped(t, "ratelimit.yaml")
	digest := secrets().Digest("made-up")[:12]
	for _, c := range []struct{ text, begins string }{{digest, digest}, {digest, digest}, {"0123456789ag", ""}, {"0123456789abcd", ""}, {"-\x01", ""}, {strings.Repeat("ab", 500), ""}} {
		v := usual("/search", absent)
		v[accesslog.KeyDigest] = c.text
		qs := d.Describe(nil, record(d, v))
		if len(qs) != 1 || qs[0].Subject != "" || len(qs[0].Descriptors) != 3 {
			t.Fatalf("%q: got %s", c.text, write(qs))
		}
		value := qs[0].Descriptors[0].Entries[0].Value
		if len(value) != 64 || !strings.HasPrefix(value, c.begins) || c.begins == "" && strings.HasPrefix(value, c.text) {
			t.Errorf("%q: got %q", c.text, value)
		}
	}
	none := usual("/search", absent)
	none[accesslog.KeyDigest] = absent
	both := usual("/search", "acme")
	both[accesslog.KeyDigest] = digest
	if got := write(d.Describe(nil, record(d, none))); got != "edge: [remote_address=10.0.0.1]\n" {
		t.Errorf("without a key: got %q", got)
	}
	if got := d.Describe(nil, record(d, both)); got[0].Subject != "acme" {
		t.Errorf("a subject counts before a digest: got %+v", got)
	}
	if unreported := d.Unreported(); len(unreported) != 1 || unreported[0].Effect != "All keys of a subject counted as one." {
		t.Errorf("unreported: got %+v", unreported)
	}
}

// TestNeitherKeyNorSubject: a log without both says so, and never that keys counted.
func TestNeitherKeyNorSubject(t *testing.T) {
	d := shipped(t, "ratelimit.yaml")
	v := usual("/search", "")
	delete(v, accesslog.Subject)
	if got := write(d.Describe(nil, record(d, v))); got != "edge: [remote_address=10.0.0.1]\n" {
		t.Errorf("got %q", got)
	}
	const want = "The log has neither the key nor its subject: descriptors with api_key were left out, and their limits were not tried. " +
		`To record it, add %DYNAMIC_METADATA(envoy.filters.http.ratelimit:subject)% to the log format.`
	if unreported := d.Unreported(); len(unreported) != 1 || unreported[0].Attribute != accesslog.Subject || unreported[0].Requests != 1 || unreported[0].Effect != want {
		t.Errorf("unreported: got %+v", unreported)
	}
	// An entry that may be missing takes nothing else with it.
	d = mapped(t, "domain: edge\ndescriptors: [[a=1, api_key?=%REQ(x-api-key)%]]\n")
	if got := write(d.Describe(nil, record(d, v))); got != "edge: [a=1]\n" {
		t.Errorf("got %q", got)
	}
	if unreported := d.Unreported(); len(unreported) != 1 || !strings.Contains(unreported[0].Effect, "nor its subject: descriptors have no entry api_key. ") {
		t.Errorf("unreported: got %+v", unreported)
	}
}

// TestRefusedByAuthorization: a request that rls refused by its key asked for no limits.
func TestRefusedByAuthorization(t *testing.T) {
	d := mapped(t, "domain: edge\ndescriptors: [[api_key=%REQ(x-api-key)%], [remote_address=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%]]\n")
	for reason, want := range map[string]int{absent: 2, "limited": 2, "unknown": 0, "disabled": 0, "undecided": 0} {
		v := usual("/", "acme")
		v[accesslog.Reason] = reason
		got := 0
		for _, q := range d.Describe(nil, record(d, v)) {
			got += len(q.Descriptors)
		}
		if got != want {
			t.Errorf("reason %q: %d descriptors, want %d", reason, got, want)
		}
	}
}

// TestDomains: the domains of an Envoy are those of its filters and routes.
func TestDomains(t *testing.T) {
	if got := shipped(t, "ratelimit.yaml").Domains(); len(got) != 1 || got[0] != "edge" {
		t.Errorf("got %q", got)
	}
	if got := mapped(t, "domain: other\ndescriptors: [[a=b]]\n").Domains(); len(got) != 1 || got[0] != "other" {
		t.Errorf("got %q", got)
	}
}

// TestAnsweredByEnvoy: Envoy asks nothing about requests that it answers before the filter.
func TestAnsweredByEnvoy(t *testing.T) {
	for _, c := range []struct {
		file           string
		details, flags string
		asked          bool
	}{
		{"ratelimit.yaml", "via_upstream", absent, true},
		{"ratelimit.yaml", "cors_response", absent, false},
		{"authorization.yaml", "cors_response", absent, false},
		{"in-flight.yaml", "cors_response", absent, false},
		{"sidecar-uds.yaml", "cors_response", absent, false},
		{"tls.yaml", "cors_response", absent, false},
		{"ratelimit.yaml", "request_rate_limited", "RL", true},
		{"ratelimit.yaml", "rate_limiter_error", "RLSE", true},
		{"ratelimit.yaml", "upstream_reset_before_response_started{connection_failure}", "UF", true},
		{"ratelimit.yaml", "path_normalization_failed", absent, false},
		{"ratelimit.yaml", "direct_response", absent, false},
		{"ratelimit.yaml", "http1.unexpected_underscore", absent, false},
		{"ratelimit.yaml", "", "NR", false},
		{"ratelimit.yaml", "", "UF,URX", true},
		{"ratelimit.yaml", "ext_authz_denied", "UAEX", true}, // it has no such filter in front
		{"authorization.yaml", "ext_authz_denied", "UAEX", false},
		{"authorization.yaml", "ext_authz_error", "UAEX", false},
		{"authorization.yaml", "", "UAEX", false},
		{"authorization.yaml", "via_upstream", absent, true},
	} {
		d := shipped(t, c.file)
		v := usual("/", "acme")
		v[accesslog.Metadata("envoy.filters.http.ext_authz", "subject")] = "acme"
		delete(v, accesslog.Details)
		if c.details != "" {
			v[accesslog.Details] = c.details
		}
		v[accesslog.Flags] = c.flags
		if got := len(d.Describe(nil, record(d, v))) > 0; got != c.asked {
			t.Errorf("%s: %q %q: asked is %v, want %v", c.file, c.details, c.flags, got, c.asked)
		}
	}
}

func TestUnreported(t *testing.T) {
	const limits = "    route: {cluster: a, rate_limits: [{actions: [%s]}]}\n"
	for _, c := range []struct {
		routes    string
		attribute accesslog.Attribute
		effect    string
	}{
		{
			"  - match: {prefix: /}\n" + fmt.Sprintf(limits, "{request_headers: {header_name: X-Tenant, descriptor_key: tenant}}"), "REQ(x-tenant)",
			`Descriptors with tenant were left out, as if it were absent. To record it, add %REQ(x-tenant)% to the log format.`,
		},
		{
			"  - match: {prefix: /}\n" + fmt.Sprintf(limits, "{request_headers: {header_name: cookie, descriptor_key: who}}"), "REQ(cookie)",
			"Descriptors with who were left out, as if it were absent.",
		},
		{
			"  - match: {prefix: /}\n" + fmt.Sprintf(limits, "{query_parameters: {query_parameter_name: q, descriptor_key: q}}"), "REQ(:path)",
			"The query parameter q counted as absent: descriptors with q were left out.",
		},
		{
			"  - match: {prefix: /}\n" + fmt.Sprintf(limits, "{request_headers: {header_name: x-once, descriptor_key: once, skip_if_absent: true}}"), "REQ(x-once)",
			`Descriptors have no entry once, as if it were absent. To record it, add %REQ(x-once)% to the log format.`,
		},
		{
			"  - match: {prefix: /}\n" + fmt.Sprintf(limits, "{query_parameters: {query_parameter_name: q, descriptor_key: q, skip_if_absent: true}}"), "REQ(:path)",
			"The query parameter q counted as absent: descriptors have no entry q.",
		},
		{
			"  - match: {prefix: /}\n" + fmt.Sprintf(limits, "{metadata: {descriptor_key: plan, default_value: free, metadata_key: {key: ns, path: [{key: plan}]}}}"), "DYNAMIC_METADATA(ns:plan)",
			`Descriptors with plan had the default value. To record it, add %DYNAMIC_METADATA(ns:plan)% to the log format.`,
		},
		{"  - match: {prefix: /}\n" + fmt.Sprintf(limits, "{extension: {name: jwt, typed_config: {}}}"), "", `the extension "jwt" is not supported: descriptors with it were left out.`},
		{
			"  - match: {prefix: /}\n" + fmt.Sprintf(limits, "{source_cluster: {}}"), "",
			"The files do not have node.cluster, which is the value of source_cluster: the descriptors with it were left out. Add the bootstrap.",
		},
		{
			"  - match: {prefix: /, tls_context: {}}\n" + fmt.Sprintf(limits, "{remote_address: {}}"), "ROUTE_NAME",
			`No log says whether tls_context matches, so no request took this route. To record it, add %ROUTE_NAME% to the log format.`,
		},
		{
			"  - match: {prefix: /, headers: [{name: x-a}]}\n" + fmt.Sprintf(limits, "{remote_address: {}}"), "REQ(x-a)",
			`Where a match looks at it, it counts as absent. To record it, add %REQ(x-a)% to the log format.`,
		},
		{
			"  - match: {prefix: /}\n    request_headers_to_remove: [X-Tenant]\n" + fmt.Sprintf(limits, "{request_headers: {header_name: x-tenant, descriptor_key: tenant}}"), "REQ(x-tenant)",
			"Envoy changes this header after the rate limit, so the log has a later value. Descriptors with tenant were left out, as if it were absent.",
		},
	} {
		d, err := envoy(t, Options{Domain: "edge"}, c.routes)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			d.Describe(nil, record(d, usual("/x", absent)))
		}
		unreported := d.Unreported()
		if len(unreported) != 1 || unreported[0].Attribute != c.attribute || unreported[0].Effect != c.effect || unreported[0].Requests != 3 || !strings.Contains(unreported[0].Location, "routes.yaml:") {
			t.Errorf("%s: got %+v", c.routes, unreported)
		}
	}
}

// TestNoDomain: a file with routes alone has no domain.
func TestNoDomain(t *testing.T) {
	if _, err := envoy(t, Options{}, "  - {match: {prefix: /}, route: {cluster: a}}\n"); err == nil || !strings.Contains(err.Error(), "name the domain") {
		t.Errorf("got %v", err)
	}
	if _, err := envoy(t, Options{Domain: "edge", Listener: "none"}, "  - {match: {prefix: /}, route: {cluster: a}}\n"); err == nil || !strings.Contains(err.Error(), `no listener "none"`) {
		t.Errorf("got %v", err)
	}
}

// TestListeners: the port of a request chooses the listener, or the caller names it.
func TestListeners(t *testing.T) {
	var text strings.Builder
	for i, name := range []string{"plain", "one", "two"} {
		filter := ""
		if i > 0 {
			filter = fmt.Sprintf(`http_filters: [{name: rl, typed_config: {"@type": x/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: %s}}],`, name)
		}
		fmt.Fprintf(&text, `- {name: %s, address: {socket_address: {port_value: %d}}, filter_chains: [{filters: [{typed_config: {"@type": x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, %s
    route_config: {virtual_hosts: [{domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: a, rate_limits: [{actions: [{remote_address: {}}]}]}}]}]}}}]}]}`+"\n", name, 8000+i, filter)
	}
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	tree.Write(t, file, text.String())
	for _, c := range []struct{ listener, port, want string }{
		{"", "8002", "two: [remote_address=10.0.0.1]\n"},
		{"", "8001", "one: [remote_address=10.0.0.1]\n"},
		{"", "8000", ""},
		{"", "", "one: [remote_address=10.0.0.1]\n"},
		{"two", "", "two: [remote_address=10.0.0.1]\n"},
	} {
		config, err := envoyfile.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(config, Options{Secrets: secrets(), Listener: c.listener})
		if err != nil {
			t.Fatal(err)
		}
		v := usual("/", absent)
		if c.port != "" {
			v["DOWNSTREAM_LOCAL_PORT"] = c.port
		}
		if got := write(d.Describe(nil, record(d, v))); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
		if told := len(d.Unreported()) == 0; told != (c.port != "" || c.listener != "") {
			t.Errorf("%+v: unreported %+v", c, d.Unreported())
		}
	}
}

// TestStreamEnds: in-flight.yaml asks at the end of a request, too.
func TestStreamEnds(t *testing.T) {
	d := shipped(t, "in-flight.yaml")
	v := usual("/x", absent)
	v[accesslog.Header("x-api-key")] = "demo"
	for _, a := range d.Wants() {
		if strings.HasPrefix(string(a), "CEL(") {
			v[a] = "7"
		}
	}
	key := secrets().Digest("demo")
	want := "edge: [in_flight=backend] [in_flight=address,masked_remote_address=10.0.0.1/32] [in_flight=key,api_key=" + key + "] [api_key=" + key + "] [budget=units,api_key=" + key + "]x0\nedge end: [slidegate=end] [budget=units,api_key=" + key + "]x7\n"
	qs := d.Describe(nil, record(d, v))
	if got := write(qs); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, q := range qs {
		for _, one := range q.Descriptors {
			if one.Ends != (one.Entries[0].Key == "slidegate") {
				t.Errorf("%v: Ends is %v", one.Entries, one.Ends)
			}
		}
	}
}

func TestMap(t *testing.T) {
	d := mapped(t, `
domain: edge
descriptors:
- [api_key=%REQ(x-api-key)%]
- [route=search, "who=%REQ(x-a)%/%REQ(x-b):2%"]
- {entries: [a=100%%], when: {path_prefix: /search, method: [GET, POST]}, cost: "%REQ(x-cost)%"}
- {entries: [b=1], when: {path_regex: "/s.*|/t"}, cost: 0, at_end: true, refund: true}
- {entries: [c=1], when: {host: Api.example}}
- {entries: [d=1], when: {path: /search}}
- [e=1, once?=%REQ(x-once)%]
`)
	base := values{accesslog.PathOnly: "/search?x", accesslog.Method: "GET", accesslog.Authority: "api.EXAMPLE", "REQ(x-a)": "A", "REQ(x-b)": "bcd", "REQ(x-cost)": "4", "REQ(x-api-key)": "demo"}
	key := secrets().Digest("demo")
	for _, c := range []struct {
		change values
		want   string
	}{
		{nil, "edge: [api_key=" + key + "] [route=search,who=A/bc] [a=100%]x4 [c=1] [d=1] [e=1]\nedge end: [b=1]x0-\n"},
		{values{accesslog.PathOnly: "/T", "REQ(x-b)": absent, accesslog.Authority: "other", "REQ(x-once)": absent}, "edge: [api_key=" + key + "] [e=1]\n"},
		{values{accesslog.PathOnly: "/searches", accesslog.Method: "PUT", "REQ(x-api-key)": absent, "REQ(x-once)": "o"}, "edge: [route=search,who=A/bc] [c=1] [e=1,once=o]\nedge end: [b=1]x0-\n"},
	} {
		v := values{}
		for _, from := range []values{base, c.change} {
			for a, text := range from {
				v[a] = text
			}
		}
		if got := write(d.Describe(nil, record(d, v))); got != c.want {
			t.Errorf("%v: got %s, want %s", c.change, got, c.want)
		}
	}
	d.Describe(nil, record(d, values{}))
	if got := len(d.Unreported()); got != 5 {
		t.Errorf("got %d unreported, want 5: %+v", got, d.Unreported())
	}
	for _, u := range d.Unreported() {
		if u.Requests > 0 && (!strings.HasSuffix(u.Effect, "If the log has it, say where: in fields for JSON, with --format for text.") || strings.Contains(u.Effect, "To tell it")) {
			t.Errorf("got %+v", u)
		}
	}
}

// TestRewrittenHost: Envoy chooses the virtual host by the authority before it rewrites the host, and
// the log has the later one. The name of the route tells what was chosen.
func TestRewrittenHost(t *testing.T) {
	const two = `
  rate_limits: [{actions: [{generic_key: {descriptor_value: %s}}, {request_headers: {header_name: ":authority", descriptor_key: host, skip_if_absent: true}}]}]
  routes:
  - {name: %[1]s, match: {prefix: /}, route: {cluster: c%[2]s}}
  - {name: same, match: {prefix: /}, route: {cluster: c}}
`
	describer := func(rewrite string) *Describer {
		file := filepath.Join(t.TempDir(), "routes.yaml")
		text := "virtual_hosts:\n- domains: [a.example]" + fmt.Sprintf(two, "a", rewrite) + "- domains: [b.example]" + fmt.Sprintf(two, "b", "")
		tree.Write(t, file, text)
		c, err := envoyfile.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(c, Options{Secrets: secrets(), Domain: "edge"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		rewrite, route, want string
		unreported           int
	}{
		{"", absent, "edge: [generic_key=b,host=b.example]\n", 0},
		{", host_rewrite_literal: b.example", absent, "edge: [generic_key=b,host=b.example]\n", 1},
		{", host_rewrite_literal: b.example", "same", "edge: [generic_key=b,host=b.example]\n", 1},
		{", host_rewrite_literal: b.example", "a", "edge: [generic_key=a]\n", 1}, // the action reads a later value
		{", auto_host_rewrite: true", "b", "edge: [generic_key=b,host=b.example]\n", 0},
	} {
		d := describer(c.rewrite)
		v := usual("/", absent)
		v[accesslog.Authority], v[accesslog.RouteName] = "b.example", c.route
		if got := write(d.Describe(nil, record(d, v))); got != c.want || len(d.Unreported()) != c.unreported {
			t.Errorf("%+v: got %q, unreported %+v", c, got, d.Unreported())
		}
	}
}

// TestChangedHeader: a match of an action does not take the value that Envoy sets later.
func TestChangedHeader(t *testing.T) {
	d, err := envoy(t, Options{Domain: "edge"}, `
  - match: {prefix: /action}
    request_headers_to_add: [{header: {key: X-Plan, value: gold}}]
    route: {cluster: c, rate_limits: [{actions: [{header_value_match: {descriptor_value: gold, headers: [{name: x-plan, string_match: {exact: gold}}]}}]}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	v := usual("/action", absent)
	v[accesslog.Header("x-plan")] = "gold"
	if got := write(d.Describe(nil, record(d, v))); got != "" || len(d.Unreported()) != 1 {
		t.Errorf("got %q, unreported %+v", got, d.Unreported())
	}
}
