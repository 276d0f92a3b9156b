package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/pkg/descriptors"
)

// TestProbe sends a request for each route, and stops at the first that no limit denies.
func TestProbe(t *testing.T) {
	const everyPath = "--probe-path /search,/login"
	all := newFleet(t)
	for _, tt := range []struct {
		what string
		setup
		flags    string
		probed   []string // a part of the name of the route, the status, and what arrived
		want     string   // a finding; empty: none
		notRead  string
		received int
	}{
		{
			what: "ratelimit.yaml", flags: everyPath,
			probed: []string{"search of * 429 ratelimit edge [api_key=* route=search,api_key=* remote_address=*]", "login of * 429 ratelimit edge [api_key=* remote_address=* route=login,remote_address=*]", "everything-else of * 429 ratelimit edge [api_key=* remote_address=*]"},
		},
		{what: "no paths", probed: []string{"everything-else of * 429 ratelimit edge [api_key=* remote_address=*]"}, notRead: "route api/search of listener ingress by the probe: name one of its paths in --probe-path"},
		{what: "another header", flags: "--probe-header x-other", want: "not-probed", notRead: "route api/everything-else of listener ingress by the probe: no descriptor has the header x-other"},
		{
			what: "authorization.yaml", setup: setup{base: "authorization.yaml"}, flags: "--probe-path /search --probe-header Authorization",
			probed: []string{"search of * 429 ext_authz  []", "login of * 429 ext_authz  []", "everything-else of * 429 ext_authz  []"}, notRead: "route api/login-spelled-otherwise of",
		},
		{
			what: "one-hop.yaml", setup: setup{base: "one-hop.yaml"}, flags: "--probe-path /search",
			probed: []string{"search of * 429 ext_authz edge [api_key=* route=search,api_key=* remote_address=*]", "login of * 429 ext_authz edge [*route=login,remote_address=*]", "everything-else of * 429 ext_authz edge [api_key=* remote_address=*]"},
		},
		{
			what: "a domain that Envoy hides", setup: setup{base: "one-hop.yaml", patches: []patch{{find: "domain: edge\n", put: "domain: shop\n"}}},
			probed: []string{"login of * 429 ext_authz shop [*]", "everything-else of * 429 ext_authz shop [*]"}, want: "wrong-route-domain",
		},
		{
			what: "a value that Envoy hides", setup: setup{base: "one-hop.yaml", patches: []patch{{find: "api_key;route=search,api_key;remote_address", put: "route=find,api_key"}}}, flags: "--probe-path /search",
			probed: []string{"search of * 429 ext_authz edge [route=find,api_key=*]", "login of * 429 *", "everything-else of * 429 *"}, want: "nothing-limits",
		},
		{
			what: "descriptors that Envoy hides", setup: setup{base: "one-hop.yaml", patches: []patch{{find: "api_key;route=search,api_key;remote_address", put: "api_key;plan=%NO_SUCH%"}}}, flags: "--probe-path /search",
			probed: []string{"search of * 429 ext_authz *", "login of * 429 *", "everything-else of * 429 *"}, want: "context-wrong",
		},
		{
			what: "two virtual hosts", probed: []string{"all of * 429 ratelimit edge [api_key=*]", "shop of * 429 ratelimit edge [api_key=* remote_address=*]"},
			setup: routes(listed("all", everything, toUpstream, byKey) +
				"            - name: shop\n              domains: [\"*.shop.example\"]\n              routes:\n" + listed("shop", everything, toUpstream, byKey+", "+byAddress)),
		},
		{what: "the filter asks about no request", setup: after("              domain: edge\n", "              filter_enabled: {default_value: {numerator: 0}}\n"), flags: everyPath, probed: []string{"search of * 200"}, want: "probe-passed", received: 1},
		{what: "rls is at another address", setup: setup{calls: "$FREE"}, flags: "--probe-path /login", probed: []string{"login of * 200"}, want: "probe-passed", received: 1},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			tt.own = true
			r := all.start(t, tt.setup, false)
			if r.check(); len(r.app.Received()) > 0 {
				t.Error("the application got a request without --probe")
			}
			got := r.check(append(strings.Fields(tt.flags), "--probe", r.envoy.URL())...)
			if n := len(r.app.Received()); n != tt.received {
				t.Errorf("the application got %d requests, want %d", n, tt.received)
			}
			for i, one := range got.Probed {
				text := fmt.Sprint(one.Where, " ", one.Status)
				for _, c := range one.Calls {
					text += fmt.Sprint(" ", c.Service, " ", c.Domain, " ", c.Descriptors)
					if c.Deadline == 0 {
						t.Errorf("%s: the call has no deadline", one.Where)
					}
				}
				if i >= len(tt.probed) || !descriptors.Fits("route *"+tt.probed[i]+"*", text) {
					t.Errorf("probed: %s", text)
				}
			}
			if len(got.Probed) != len(tt.probed) || !strings.Contains(strings.Join(got.NotRead, "\n"), tt.notRead) {
				t.Errorf("probed %d, want %d; not read %q, want %q", len(got.Probed), len(tt.probed), got.NotRead, tt.notRead)
			}
			if found := slices.ContainsFunc(got.Findings, func(f finding) bool { return f.Code == tt.want || tt.want == "" && f.Severity == "error" }); found != (tt.want != "") {
				t.Errorf("want %q; got %v", tt.want, got.Findings)
			}
		})
	}
}
