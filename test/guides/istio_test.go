package guides

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// A patch is one of an EnvoyFilter.
type patch struct {
	ApplyTo string `yaml:"applyTo"`
	Patch   struct {
		Value map[string]any `yaml:"value"`
	} `yaml:"patch"`
}

// envoyWith writes a configuration of Envoy with what an EnvoyFilter of deploy/integrations/istio adds to one, and returns
// its path. The rest, where istiod would have its own, is from envoy/ratelimit.yaml. filters come before.
func envoyWith(t *testing.T, file string, filters ...any) string {
	t.Helper()
	var filter struct {
		Spec struct {
			Patches []patch `yaml:"configPatches"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal([]byte(tree.Read(t, "deploy/integrations/istio/"+file)), &filter); err != nil {
		t.Fatal(err)
	}
	// Two routes: search, and the others.
	host := map[string]any{"name": "app", "domains": []string{"*"}}
	search, others := map[string]any{"cluster": "upstream"}, map[string]any{"cluster": "upstream"}
	for _, p := range filter.Spec.Patches {
		switch value := p.Patch.Value; p.ApplyTo {
		case "HTTP_FILTER":
			filters = append(filters, value)
		case "VIRTUAL_HOST":
			host["rate_limits"] = value["rate_limits"]
		case "HTTP_ROUTE":
			search["rate_limits"] = value["route"].(map[string]any)["rate_limits"]
		default:
			t.Fatalf("%s: a patch for %s, which this test does not know", file, p.ApplyTo)
		}
	}
	router := map[string]string{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
	filters = append(filters, map[string]any{"name": "envoy.filters.http.router", "typed_config": router})
	host["routes"] = []any{
		map[string]any{"name": "search", "match": map[string]string{"prefix": "/search"}, "route": search},
		map[string]any{"match": map[string]string{"prefix": "/"}, "route": others},
	}
	routes, err := json.Marshal(map[string]any{"name": "app", "virtual_hosts": []any{host}})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := json.Marshal(filters)
	if err != nil {
		t.Fatal(err)
	}
	// The cluster that istiod makes of the Service, and much time, as stack.PatientEnvoy gives.
	chain = []byte(strings.NewReplacer("outbound|8081||slidegate-mesh.slidegate.svc.cluster.local", "rls", `"0.05s"`, `"10s"`).Replace(string(chain)))

	before, rest, ok := strings.Cut(tree.Read(t, "envoy/ratelimit.yaml"), "          route_config:\n")
	_, clusters, ok2 := strings.Cut(rest, "\n  clusters:\n")
	if !ok || !ok2 {
		t.Fatal("envoy/ratelimit.yaml has no routes or no clusters")
	}
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	text := before + "          route_config: " + string(routes) + "\n          http_filters: " + string(chain) + "\n\n  clusters:\n" + clusters
	tree.Write(t, path, text)
	return path
}

// TestIstioSnippets proves that an Envoy with what the EnvoyFilters for Istio add to it limits by each of their
// descriptors.
func TestIstioSnippets(t *testing.T) {
	t.Parallel()
	deniedBy := func(t *testing.T, c *stack.Client, rule, path string, header ...string) {
		t.Helper()
		got := c.Get(path, header...)
		if p := stack.ProblemOf(t, got); got.Status != http.StatusTooManyRequests || p.Rule != rule {
			t.Errorf("%s %q: got %d by rule %q, want 429 by %s", path, header, got.Status, p.Rule, rule)
		}
	}
	t.Run("gateway", func(t *testing.T) {
		t.Parallel()
		s := stack.Setup{Rules: stack.ThreeKinds, Config: envoyWith(t, "ratelimit-gateway.yaml")}.Start(t)
		c := s.From("127.0.0.2")
		c.Want(200, 2, "/search", "x-api-key", "a")
		deniedBy(t, c, "search-per-key", "/search", "x-api-key", "a")
		c.Want(200, 1, "/", "x-api-key", "a")
		deniedBy(t, c, "per-key", "/", "x-api-key", "a")
		c.Want(200, 5, "/")
		deniedBy(t, c, "per-address", "/")
		deniedBy(t, c, "per-address", "/search", "x-api-key", "b")
		s.WantAllDecided()
	})
	t.Run("tiers", func(t *testing.T) {
		t.Parallel()
		keys := map[string]any{"name": "envoy.filters.http.ext_authz", "typed_config": map[string]any{
			"@type":                 "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
			"transport_api_version": "V3", "allowed_headers": map[string]any{"patterns": []any{map[string]string{"exact": "x-api-key"}}},
			"grpc_service": map[string]any{"envoy_grpc": map[string]string{"cluster_name": "rls"}, "timeout": "10s"},
		}}
		s := stack.Setup{
			Rules: tree.Read(t, "deploy/integrations/istio/rules.yaml"), Config: envoyWith(t, "tiers.yaml", keys),
			Tiers: strings.Replace(stack.TiersOf("pro"), "[free, starter]", "{free: {limit: {unit: hour, requests_per_unit: 2}}, pro: {limit: {unit: hour, requests_per_unit: 3}}}", 1),
		}.Start(t)
		c := s.From("127.0.0.2")
		c.Want(200, 3, "/", "x-api-key", "acme-old-key")
		deniedBy(t, c, "per-customer", "/", "x-api-key", "acme-new-key")
		c.Want(200, 2, "/", "x-api-key", "other-key")
		deniedBy(t, c, "per-customer", "/", "x-api-key", "other-key")
		c.Want(401, 1, "/", "x-api-key", "planted-unknown")
		s.WantAllDecided()
	})
	t.Run("sidecar", func(t *testing.T) {
		t.Parallel()
		const rules = `
domain: edge
descriptors:
  - key: service
    value: shop
    rate_limit: {name: shop, window: 1h, requests: 4}
    descriptors:
      - {key: api_key, rate_limit: {name: shop-per-key, window: 1h, requests: 2}}
`
		s := stack.Setup{Rules: rules, Config: envoyWith(t, "ratelimit-sidecar.yaml")}.Start(t)
		c := s.From("127.0.0.2")
		c.Want(200, 2, "/", "x-api-key", "a")
		deniedBy(t, c, "shop-per-key", "/", "x-api-key", "a")
		c.Want(200, 2, "/")
		deniedBy(t, c, "shop", "/")
		s.WantAllDecided()
	})
}
