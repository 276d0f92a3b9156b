package istio

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/pkg/config/kube/crd"
	apiserver "istio.io/istio/pkg/config/crd"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/config/schema/gvk"
	"istio.io/istio/pkg/config/validation/agent"
	"istio.io/istio/pkg/config/validation/envoyfilter"
	"istio.io/istio/pkg/util/protomarshal"
	"sigs.k8s.io/yaml"
)

const integrations = "../../deploy/integrations"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// istiod checks the objects of Istio in a text as istiod does, and returns their number and the problems.
func istiod(t *testing.T, text string) (int, []string) {
	t.Helper()
	objects, _, err := crd.ParseInputs(text)
	if err != nil {
		return 0, []string{err.Error()}
	}
	var problems []string
	for _, o := range objects {
		schema, ok := collections.Pilot.FindByGroupVersionAliasesKind(o.GroupVersionKind)
		if !ok {
			t.Fatalf("%s: istiod does not know this kind", o.GroupVersionKind)
		}
		validate := schema.ValidateConfig
		if o.GroupVersionKind == gvk.EnvoyFilter {
			validate = envoyfilter.ValidateEnvoyFilter
		}
		warning, err := validate(o)
		for _, e := range []error{warning, err} {
			// istiod says this of every EnvoyFilter.
			if e != nil && !strings.HasPrefix(e.Error(), "EnvoyFilter exposes internal implementation details") {
				problems = append(problems, o.Name+": "+e.Error())
			}
		}
	}
	return len(objects), problems
}

// meshConfig checks the mesh configuration in values of the chart istiod.
func meshConfig(t *testing.T, text string) error {
	t.Helper()
	var values struct {
		MeshConfig map[string]any `json:"meshConfig"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		return err
	}
	own, err := yaml.Marshal(values.MeshConfig)
	if err != nil {
		return err
	}
	// istiod ignores unknown fields, and leaves out an invalid provider with a line in its log.
	if err := protomarshal.ApplyYAMLStrict(string(own), new(meshconfig.MeshConfig)); err != nil {
		return err
	}
	m, err := mesh.ApplyMeshConfigDefaults(string(own))
	if err != nil {
		return err
	}
	for _, p := range m.ExtensionProviders {
		if g := p.GetEnvoyExtAuthzGrpc(); g != nil {
			if err := agent.ValidateExtensionProviderEnvoyExtAuthzGRPC(g); err != nil {
				return err
			}
		}
	}
	_, err = agent.ValidateMeshConfig(m)
	return err
}

// TestIstiod proves that istiod accepts the snippets for Istio, without a warning.
func TestIstiod(t *testing.T) {
	files, err := filepath.Glob(integrations + "/istio/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, file := range files {
		switch filepath.Base(file) {
		case "rules.yaml", "service.yaml":
			continue // not Istio's
		case "meshconfig.yaml":
			if err := meshConfig(t, read(t, file)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			continue
		}
		n, problems := istiod(t, read(t, file))
		if n == 0 || len(problems) > 0 {
			t.Errorf("%s: %d objects, %q", file, n, problems)
		}
		total += n
	}
	t.Logf("%d objects and the mesh configuration", total)
}

// TestIstiodRefuses proves that istiod's code finds mistakes that the schema of an EnvoyFilter cannot.
func TestIstiodRefuses(t *testing.T) {
	gateway := read(t, integrations+"/istio/ratelimit-gateway.yaml")
	for _, tt := range []struct{ old, mistake, want string }{
		{" failure_mode_deny: false\n", " failure_mode_denny: false\n", "failure_mode_denny"},
		{"timeout: 0.05s", "timeout: fast", "fast"},
		{"envoy_grpc:", "envoy_rpc:", "envoy_rpc"},
		{"domain: edge", "domain: [edge]", "cannot unmarshal array"},
		{"ratelimit.v3.RateLimit", "ratelimit.v3.RateLimits", "RateLimits"},
		{"{header_name: x-api-key, descriptor_key", "{header: x-api-key, descriptor_key", "header"},
		{"- remote_address", "- remote_addr", "remote_addr"},
		{"applyTo: VIRTUAL_HOST", "applyTo: VHOST", "VHOST"},
	} {
		bad := strings.Replace(gateway, tt.old, tt.mistake, 1)
		if bad == gateway {
			t.Errorf("%q is not in the file", tt.old)
			continue
		}
		if _, problems := istiod(t, bad); !strings.Contains(strings.Join(problems, "\n"), tt.want) {
			t.Errorf("%q instead of %q: %q, want %q", tt.mistake, tt.old, problems, tt.want)
		}
	}
	config := read(t, integrations+"/istio/meshconfig.yaml")
	for _, tt := range []struct{ old, mistake, want string }{
		{"failOpen", "failOpn", "failOpn"},
		{"port: 8081", "port: 808100", "port"},
		{"statusOnError: \"503\"", "statusOnError: \"5030\"", "5030"},
	} {
		if err := meshConfig(t, strings.Replace(config, tt.old, tt.mistake, 1)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q instead of %q: %v, want %q", tt.mistake, tt.old, err, tt.want)
		}
	}
}

// definitions returns a validator for the custom resources whose definitions .ci/schemas has collected.
func definitions(t *testing.T) *apiserver.Validator {
	t.Helper()
	dir := os.Getenv("SLIDEGATE_TEST_SCHEMAS")
	files, err := filepath.Glob(dir + "/crds/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("SLIDEGATE_TEST_SCHEMAS=%s has no definitions: run make istio-validate", dir)
	}
	v, err := apiserver.NewValidatorFromFilesWithOptions(files, apiserver.WithoutCRDValidation())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAPIServer proves that the API server accepts every custom resource of deploy/integrations: its fields, and the rules
// in CEL of its definition.
func TestAPIServer(t *testing.T) {
	v := definitions(t)
	files, err := filepath.Glob(integrations + "/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, file := range files {
		for _, object := range custom(t, read(t, file)) {
			if err := v.ValidateCustomResourceYAML(object, nil); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			total++
		}
	}
	t.Logf("%d custom resources", total)

	bad := strings.Replace(read(t, integrations+"/kgateway/ratelimit.yaml"), "timeout: 50ms", "timeout: 50us", 1)
	found := func(object string) bool { return v.ValidateCustomResourceYAML(object, nil) != nil }
	if !slices.ContainsFunc(custom(t, bad), found) {
		t.Error("a time of 50us is accepted, which a rule in CEL of kgateway refuses")
	}
}

// custom returns the custom resources of a file: not those of Kubernetes itself.
func custom(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	for _, part := range strings.Split(text, "\n---\n") {
		var o struct {
			APIVersion string `json:"apiVersion"`
		}
		if err := yaml.Unmarshal(bytes.TrimSpace([]byte(part)), &o); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(o.APIVersion, ".") {
			out = append(out, part)
		}
	}
	return out
}
