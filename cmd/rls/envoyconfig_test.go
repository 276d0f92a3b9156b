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
