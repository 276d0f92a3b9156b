package main

import (
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/servers"
)

// TestEnvoyConfig: the shape, the address of rls and the domain are those of the settings and rules,
// unless a flag says otherwise.
func TestEnvoyConfig(t *testing.T) {
	const shop = "domain: shop\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, requests_per_unit: 1}\n"
	one, two := write(t, shop), write(t, shop+"---\n"+strings.Replace(shop, "shop", "forum", 1))
	guards := func(limit string) string {
		return write(t, "domain: shop\ndescriptors:\n  - key: remote_address\n    rate_limit: {name: per-address, "+limit+"}\n  - {key: api_key, rate_limit: {unit: day, requests_per_unit: 7}}\n")
	}
	_, cert, key := servers.NewAuthority(t).ServerFiles()
	files := strings.NewReplacer("CERT", cert, "KEY", key)
	for _, tt := range []struct {
		settings string // of grpc
		rules    string
		flags    string
		code     int
		want     string // on standard output, or on standard error
	}{
		{"", one, "", 0, "domain: \"shop\"\n"},
		{"", one, "", 0, "{address: rls, port_value: 8081}"},
		{"", one, "--shape mesh", 2, "--shape: expected one of ratelimit, sidecar"},
		{"", one, "--domain edge", 2, `no rule has the domain "edge", only shop`},
		{"", two, "", 2, "the rules have the domains forum, shop: choose one with --domain"},
		{"", two, "--domain forum", 0, "domain: \"forum\"\n"},
		{"address: [unix:///srv/rls.sock, ':9091']", one, "", 0, `{address: "rls", port_value: 9091}`},
		{"address: [unix:///srv/rls.sock, ':9091']", one, "--shape sidecar", 0, `pipe: {path: "/srv/rls.sock"}`},
		{"address: [unix:///srv/rls.sock]", one, "", 0, "# Envoy as the sidecar"},
		{"tls: {cert_file: CERT, key_file: KEY}", one, "", 0, "trusted_ca"},
		{"tls: {cert_file: CERT, key_file: KEY}", one, "--shape one-hop", 0, "take the transport_socket of --shape tls"},
		{"", guards("window: 90s, requests: 51"), "--guard", 0, "# per-address\n              - entries: [{key: remote_address}]\n                token_bucket: {max_tokens: 51, tokens_per_fill: 57, fill_interval: 90s}\n          - name: envoy.filters.http.ratelimit\n"},
		{"", guards("policy: token_bucket, burst: 30, rate: 10/s"), "--guard --shape authorization", 0, "token_bucket: {max_tokens: 30, tokens_per_fill: 11, fill_interval: 1s}\n          # This filter is after ext_authz"},
		{"", guards("limits: [{window: 1s, requests: 5}, {window: 1m, requests: 200}]"), "--guard", 0, "{max_tokens: 200, tokens_per_fill: 220, fill_interval: 60s}\n          - name"},
		{"", guards("window: 1m, requests: 50"), "--guard --shape in-flight", 2, "--guard: this shape cannot have it"},
		{"", guards("window: 1m, requests: 50"), "--guard --shape one-hop", 2, "--guard: this shape cannot have it"},
		// Each of these could refuse more than rls does.
		{"", guards("window: 1m, requests: 50, observe: 1%"), "--guard", 2, "--guard: no rule fits"},
		{"", guards("window: 1m, requests: 50, policy: fixed"), "--guard", 2, "--guard: no rule fits"},
		{"", guards("by_tier: {default: {window: 1m, requests: 50}}"), "--guard", 2, "--guard: no rule fits"},
		{"", guards("policy: in_flight, max: 5, hold: 1m"), "--guard", 2, "--guard: no rule fits"},
	} {
		args := []string{"envoy-config"}
		if tt.settings != "" {
			args = append(args, "--config", write(t, "grpc: {"+files.Replace(tt.settings)+"}\n"))
		}
		t.Setenv("SLIDEGATE_RULES_PATH", tt.rules)
		code, stdout, stderr := command(t, "", append(args, strings.Fields(tt.flags)...)...)
		if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("grpc {%s}, %s %s: %d, %q; want %d, %q", tt.settings, tt.rules, tt.flags, code, stderr, tt.code, tt.want)
		}
	}
}
