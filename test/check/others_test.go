package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/servers"
)

// Parts of authorization.yaml and one-hop.yaml.
const (
	authorization = `          - name: envoy.filters.http.ext_authz
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
              transport_api_version: V3
              grpc_service: {envoy_grpc: {cluster_name: rls}, timeout: 0.2s}
              allowed_headers: {patterns: [{exact: x-api-key}, {exact: authorization}]}
              encode_raw_headers: true
              validate_mutations: true
`
	loginContext   = "                  envoy.filters.http.ext_authz:\n                    \"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute\n                    check_settings:\n                      context_extensions: {anonymous: \"true\"}\n"
	searchPerKey   = "generic_key: {descriptor_key: route, descriptor_value: search}\n                      - metadata: {descriptor_key: subject, source: DYNAMIC, metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: subject}]}}"
	searchByHeader = "generic_key: {descriptor_key: route, descriptor_value: search}\n                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}"
)

// tierLimit takes the limit of a descriptor from a key of the metadata.
func tierLimit(key string) setup {
	limit := "\n                      limit: {dynamic_metadata: {metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: " + key + "}]}}}"
	s := authorizing(searchPerKey, searchPerKey+limit)
	s.since = 39 // in typed_per_filter_config
	s.rls.tiers = "tiers: {free: {limits: {search: {unit: minute, requests_per_unit: 7}}}}\ndefault: free\n"
	return s
}

func authorizing(find, put string) setup {
	return setup{base: "authorization.yaml", patches: []patch{{find: find, put: put}}}
}

var authorizationFaults = []fault{
	{row: 50, what: "a misspelt key of the metadata", setup: authorizing(searchPerKey, strings.Replace(searchPerKey, "path: [{key: subject}]", "path: [{key: sub}]", 1)), want: []string{"error other-metadata search"}},
	{row: 50, what: "a misspelt key of the limit", setup: tierLimit("limits"), want: []string{"error other-metadata search"}},
	{row: 51, what: "ext_authz off on a route", setup: authorizing(
		searchMatch+forward+"                typed_per_filter_config:\n",
		searchMatch+forward+"                typed_per_filter_config:\n                  envoy.filters.http.ext_authz: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute, disabled: true}\n",
	), passes: "/search", want: []string{"error authorization-off search"}},
	{row: 52, what: "ext_authz fails open", setup: authorizing("failure_mode_allow: false", "failure_mode_allow: true"), want: []string{"warning authorization-open ingress"}},
	{row: 53, what: "ext_authz does not send the key", setup: setup{base: "authorization.yaml", patches: []patch{
		{find: "                - exact: x-api-key\n                - exact: authorization\n", put: "                - exact: x-forwarded-for\n"},
	}}, want: []string{"error credential-not-sent ingress"}},
	{row: 54, what: "the credential is removed before the descriptor", setup: setup{
		base: "authorization.yaml", rls: service{env: "SLIDEGATE_AUTHZ_REMOVE_CREDENTIAL=true"}, patches: []patch{{find: searchPerKey, put: searchByHeader}},
	}, want: []string{"error credential-removed search"}},
	{row: 69, what: "one hop without a domain", setup: setup{base: "one-hop.yaml", patches: []patch{{find: "                      domain: edge\n"}}}, want: []string{"error authorization-no-domain ingress"}},
}

const adminAddress = "socket_address: {address: 127.0.0.1, port_value: 9901}"

const tierHeader = "                      - request_headers: {header_name: x-tier, descriptor_key: tier}\n"

var headerFaults = []fault{
	{row: 57, what: "clients choose the tier", setup: setup{patches: []patch{
		{find: "              - remove: x-tier\n"}, {find: loginLimit, put: loginLimit + "                    - actions:\n" + tierHeader},
	}}, want: []string{"error client-header login"}},
	{row: 58, what: "the route removes the header too late", setup: setup{patches: []patch{
		{find: "              - remove: x-tier\n"},
		{find: loginLimit, put: loginLimit + "                    - actions:\n" + tierHeader},
		{find: login, put: login + "                request_headers_to_remove: [x-tier]\n"},
	}}, want: []string{"error client-header login"}},
	{row: 59, what: "the header is removed before", setup: after(loginLimit, "                    - actions:\n"+tierHeader), want: []string{"error header-removed login"}},
}

var processFaults = []fault{
	{row: 73, what: "the admin port for all", setup: replace("    "+adminAddress, "    socket_address: {address: 0.0.0.0, port_value: 0} # "+adminAddress), want: []string{"warning admin-exposed"}},
	{row: 74, what: "a rejected listener", setup: setup{file: "listener"}, before: func(r *running) {
		r.replace("listener.yaml", "domain: edge", `domain: ""`)
		r.stat("listener_manager.lds.update_rejected")
	}, want: []string{"error listener-rejected ingress"}},
	{row: 75, what: "rejected routes", setup: setup{file: "routes"}, before: func(r *running) {
		r.replace("routes.yaml", "(?i)/login", "(/login")
		r.stat("http.ingress.rds.edge.update_rejected")
	}, want: []string{"error routes-rejected edge"}},
}

// replace changes a file that Envoy watches.
func (r *running) replace(file, find, put string) {
	r.t.Helper()
	file = filepath.Join(r.dir, file)
	data, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := servers.ReplaceFile(file, patch{find: find, put: put}.apply(r.t, string(data))); err != nil {
		r.t.Fatal(err)
	}
}

func TestPatch(t *testing.T) {
	if got := (patch{find: "b", until: "d", put: "x"}).apply(t, "abcde"); got != "axde" {
		t.Errorf("got %q, want axde", got)
	}
}
