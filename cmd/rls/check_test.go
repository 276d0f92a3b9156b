package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/configtest"
)

// envoyDump has a route whose only descriptor is [remote_address].
const envoyDump = `{"configs": [{"static_listeners": [{"listener": {"name": "in", "filter_chains": [{"filters": [{"name": "m", "typed_config": {
 "@type": "x/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
 "http_filters": [{"name": "limits", "typed_config": {"@type": "x/envoy.extensions.filters.http.ratelimit.v3.RateLimit", "domain": "edge", "timeout": "0.05s",
  "rate_limit_service": {"grpc_service": {"envoy_grpc": {"cluster_name": "rls"}}}}}],
 "route_config": {"virtual_hosts": [{"name": "h", "routes": [{"name": "all", "match": {"prefix": "/"}, "route": {"cluster": "app", "rate_limits": [{"actions": [{"remote_address": {}}]}]}}]}]}}}]}]}}]},
 {"static_clusters": [{"cluster": {"name": "rls", "type": "EDS", "http2_protocol_options": {}}}]}]}`

// TestCheck: the exit code says whether limits are in force, or what could not be asked.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string { return configtest.Put(t, dir, name, text) }
	dump := put("dump.json", envoyDump)
	rules := put("rules.yaml", "domain: edge\ndescriptors: [{key: remote_address, rate_limit: {name: r, window: 1m, requests: 5}}]\n")
	other := put("other.yaml", "domain: shop\ndescriptors: [{key: remote_address, rate_limit: {name: r, window: 1m, requests: 5}}]\n")
	set := put("settings.yaml", "grpc: {address: 127.0.0.1:0}\nstore: {timeout: 70ms}\n")
	mux := http.NewServeMux()
	for path, text := range map[string]string{
		"/config_dump": envoyDump,
		"/v1/rules":    `{"found": 1, "rules": [{"domain": "edge", "name": "r", "entries": ["remote_address"], "limits": ["5 per 1m"]}]}`,
		"/v1/state":    `{"latency": {"deadline": 0.07}}`,
		"/v1/denials":  `{"denials": []}`,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	server := httptest.NewServer(mux) // is Envoy and rls
	defer server.Close()
	second := http.NewServeMux() // another rls
	second.HandleFunc("/v1/rules", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"found": 0, "rules": []}`)) })
	second.Handle("/", mux)
	others := httptest.NewServer(second)
	defer others.Close()
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		out    string
		stderr string
	}{
		{name: "all is in force", args: []string{"--envoy-dump", dump, "--rules", rules}, out: "1 route of 1 listener send"},
		{name: "warnings", args: []string{"--envoy-dump", dump, "--rules", rules, "--fail-on", "warning"}, code: 1, out: "warning breaker-default: cluster rls\n  At most 1024", stderr: errFound.Error()},
		{name: "an error", args: []string{"--envoy-dump", dump, "--rules", other}, code: 1, out: "error wrong-domain: "},
		{name: "JSON", args: []string{"--envoy-dump", dump, "--rules", other, "--json"}, code: 1, out: `"not_read": [`},
		{name: "settings", args: []string{"--envoy-dump", dump, "--rules", rules, "--config", set}, code: 1, out: "error timeout-short: "},
		{name: "a live Envoy and a service", args: []string{"--envoy", server.URL, "--admin", server.URL}, code: 1, out: "error timeout-short: "},
		{name: "a page that is missing", args: []string{"--envoy", server.URL, "--rules", rules}, out: "not read: /certs: "},
		{name: "no Envoy", args: []string{"--envoy", "127.0.0.1:1", "--rules", rules}, code: 3, stderr: "does not answer"},
		{name: "no service", args: []string{"--envoy-dump", dump, "--admin", "127.0.0.1:1"}, code: 3, stderr: "the admin port does not answer"},
		{name: "no dump", args: []string{"--envoy-dump", dump + ".none", "--rules", rules}, code: 2, stderr: "dump.json.none"},
		{name: "another file", args: []string{"--envoy-dump", rules, "--rules", rules}, code: 2, stderr: "the dump has no \"configs\""},
		{name: "an unknown listener", args: []string{"--envoy-dump", dump, "--rules", rules, "--listener", "out"}, code: 2, stderr: `Envoy has no listener "out"`},
		{name: "an unknown severity", args: []string{"--envoy-dump", dump, "--fail-on", "note"}, code: 2, stderr: "--fail-on: expected error or warning"},
		{name: "instances with other rules", args: []string{"--envoy-dump", dump, "--admin", server.URL + "," + others.URL}, code: 3, stderr: "have other rules: check them one by one"},
		{name: "one of two instances", args: []string{"--envoy-dump", dump, "--admin", server.URL + ",127.0.0.1:1"}, code: 3, stderr: "127.0.0.1:1: the admin port does not answer"},
		{name: "a probe without a service", args: []string{"--probe", "http://a", "--rules", rules}, code: 2, stderr: "--probe asks the running service"},
		{name: "a probe of a path", args: []string{"--envoy-dump", dump, "--admin", server.URL, "--probe", "http://a/b"}, code: 2, stderr: "--probe: expected the URL of a listener"},
		{name: "a probe without a key", args: []string{"--envoy-dump", dump, "--admin", server.URL, "--probe", "http://a"}, code: 1, out: "not read: route h/all of listener in by the probe: no descriptor has the header x-api-key"},
		{name: "two kinds of rules", args: []string{"--admin", "a:1", "--rules", rules}, code: 2, stderr: "--rules and --admin: give one"},
		{name: "settings as rules", args: []string{"--envoy-dump", dump, "--rules", set}, code: 2, stderr: "settings go into --config"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, fails := command(t, "", append([]string{"check"}, tt.args...)...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(fails, tt.stderr) {
				t.Errorf("exit %d, want %d\n%s\n%s\nwant %q and %q", code, tt.code, out, fails, tt.out, tt.stderr)
			}
		})
	}
}
