package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// schemas are those of Kubernetes and of custom resources. .ci/schemas makes the directory.
type schemas struct {
	dir string
	// versions are those of Kubernetes, such as "v1.29.0", the oldest first.
	versions []string
	// compilers are by version: the schemas of a version share their definitions.
	compilers map[string]*jsonschema.Compiler
	// compiled are by the file's path, or by kind and version of a custom resource.
	compiled map[string]*jsonschema.Schema
	// custom are the definitions of custom resources, as text: parsing all of them takes seconds.
	custom []string
}

// base is the address that the schemas of Kubernetes have in their files.
const base = "https://kubernetes.io/api/"

func newSchemas(t *testing.T, dir string) *schemas {
	t.Helper()
	s := &schemas{dir: dir, compilers: make(map[string]*jsonschema.Compiler), compiled: make(map[string]*jsonschema.Schema)}
	kubernetes, err := filepath.Glob(filepath.Join(dir, "kubernetes", "v*"))
	if err != nil || len(kubernetes) == 0 {
		t.Fatalf("%s has no schemas of Kubernetes: %v; remove the directory and run make k8s-validate", dir, err)
	}
	for _, path := range kubernetes {
		version := filepath.Base(path)
		definitions, err := readJSON(filepath.Join(path, "_definitions.json"))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(base+"_definitions.json", definitions); err != nil {
			t.Fatal(err)
		}
		s.versions, s.compilers[version] = append(s.versions, version), c
	}
	crds, err := filepath.Glob(filepath.Join(dir, "crds", "*"))
	if err != nil || len(crds) == 0 {
		t.Fatalf("%s has no custom resources: %v", dir, err)
	}
	for _, path := range crds {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.custom = append(s.custom, strings.Split(string(text), "\n---")...)
	}
	return s
}

func readJSON(path string) (any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(text))
}

var errNoSchema = errors.New("no schema of this kind")

// check returns what is wrong with o under a version of Kubernetes.
func (s *schemas) check(o *object, version string) error {
	schema, err := s.customSchema(o)
	if errors.Is(err, errNoSchema) {
		schema, err = s.kubernetesSchema(o, version)
	}
	if err != nil {
		return err
	}
	return schema.Validate(o.value)
}

// kubernetesSchema returns the schema of a kind that Kubernetes itself has.
func (s *schemas) kubernetesSchema(o *object, version string) (*jsonschema.Schema, error) {
	group, v, grouped := strings.Cut(o.APIVersion, "/")
	suffix := group
	if grouped {
		group, _, _ = strings.Cut(group, ".")
		suffix = group + "-" + v
	}
	path := filepath.Join(s.dir, "kubernetes", version, strings.ToLower(o.Kind)+"-"+suffix+".json")
	if schema, ok := s.compiled[path]; ok {
		return schema, nil
	}
	document, err := readJSON(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s %s; if it is a custom resource, add its definition to CRDS in the Makefile", errNoSchema, o.APIVersion, o.Kind)
	} else if err != nil {
		return nil, err
	}
	url := base + filepath.Base(path)
	// The files have references that begin with /api/, below the address of the definitions.
	if err := s.compilers[version].AddResource(url, document); err != nil {
		return nil, err
	}
	schema, err := s.compilers[version].Compile(url)
	s.compiled[path] = schema
	return schema, err
}

// A definition is a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string `yaml:"group"`
		Names struct {
			Kind string `yaml:"kind"`
		} `yaml:"names"`
		Versions []struct {
			Name   string `yaml:"name"`
			Served bool   `yaml:"served"`
			Schema struct {
				OpenAPI map[string]any `yaml:"openAPIV3Schema"`
			} `yaml:"schema"`
		} `yaml:"versions"`
	} `yaml:"spec"`
}

// customSchema returns the schema of a custom resource.
func (s *schemas) customSchema(o *object) (*jsonschema.Schema, error) {
	key := o.APIVersion + " " + o.Kind
	if schema, ok := s.compiled[key]; ok {
		if schema == nil {
			return nil, errNoSchema
		}
		return schema, nil
	}
	s.compiled[key] = nil
	group, version, _ := strings.Cut(o.APIVersion, "/")
	likely := regexp.MustCompile(`(?m)^ +kind: "?` + regexp.QuoteMeta(o.Kind) + `"?$`)
	for _, text := range s.custom {
		if !strings.Contains(text, "kind: CustomResourceDefinition") || !likely.MatchString(text) {
			continue
		}
		var d definition
		if err := yaml.Unmarshal([]byte(text), &d); err != nil {
			return nil, fmt.Errorf("the definition of %s: %w", o.Kind, err)
		}
		if d.Spec.Group != group || d.Spec.Names.Kind != o.Kind {
			continue
		}
		for _, v := range d.Spec.Versions {
			if v.Name == version && v.Served {
				schema, err := compileCustom(v.Schema.OpenAPI)
				s.compiled[key] = schema
				return schema, err
			}
		}
	}
	return nil, errNoSchema
}

func compileCustom(openAPI map[string]any) (*jsonschema.Schema, error) {
	converted := strict(openAPI)
	properties, ok := converted["properties"].(map[string]any)
	if !ok {
		return nil, errors.New("the definition says nothing about its fields")
	}
	// The API server itself checks these, and a definition need not name them.
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		properties[name] = map[string]any{}
	}
	text, err := json.Marshal(converted)
	if err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///custom.json", document); err != nil {
		return nil, err
	}
	return c.Compile("mem:///custom.json")
}

// strict turns a schema of a custom resource into a JSON schema that refuses unknown fields. The API
// server would remove them without a word.
func strict(schema map[string]any) map[string]any {
	s := maps.Clone(schema)
	delete(s, "default")
	if s["x-kubernetes-int-or-string"] == true {
		s["type"] = []string{"integer", "string"}
	}
	// In the schemas of Kubernetes this is true or false, and minimum or maximum has the number.
	for exclusive, bound := range map[string]string{"exclusiveMaximum": "maximum", "exclusiveMinimum": "minimum"} {
		if s[exclusive] == true {
			s[exclusive] = s[bound]
			delete(s, bound)
		} else {
			delete(s, exclusive)
		}
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		s["properties"] = each(properties)
		if s["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] != true {
			s["additionalProperties"] = false
		}
	}
	for _, name := range []string{"items", "additionalProperties"} {
		if inner, ok := s[name].(map[string]any); ok {
			s[name] = strict(inner)
		}
	}
	// anyOf, allOf, oneOf and not stay as they are: they only say more about fields that the schema
	// itself lists. With additionalProperties they would refuse the other fields.
	return s
}

func each(properties map[string]any) map[string]any {
	out := make(map[string]any, len(properties))
	for name, p := range properties {
		if inner, ok := p.(map[string]any); ok {
			p = strict(inner)
		}
		out[name] = p
	}
	return out
}

// TestSchemasRefuse proves that the schemas find mistakes.
func TestSchemasRefuse(t *testing.T) {
	s := tools(t).schemas
	if first, last := s.versions[0], s.versions[len(s.versions)-1]; first != "v1.29.0" || len(s.versions) < 9 {
		t.Errorf("the versions are %s to %s, %d in all, want v1.29.0 to v1.37.0 or newer", first, last, len(s.versions))
	}
	for name, tt := range map[string]struct{ text, want string }{
		"an unknown field": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n" +
				"spec: {replica: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}",
			"'replica' not allowed",
		},
		"an unknown field of a container": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b, livenessProb: {}}]}",
			"'livenessProb' not allowed",
		},
		"an unknown field of the metadata": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, label: {a: b}}", "'label' not allowed"},
		"a wrong type":                     {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: 1}", "got number, want null or string"},
		"a missing field":                  {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{image: b}]}", "missing property 'name'"},
		"an unknown kind":                  {"apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: a}", "no schema of this kind"},
		"a version that is gone":           {"apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: a}", "no schema of this kind"},
		"an unknown custom resource":       {"apiVersion: example.com/v1\nkind: Gateway\nmetadata: {name: a}", "no schema of this kind"},
		"an unknown field of a custom resource": {
			"apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: a}\nspec: {selector: {}, endpoints: [{port: a, intervall: 5s}]}",
			"'intervall' not allowed",
		},
		"a wrong value in a custom resource": {
			"apiVersion: gateway.kgateway.dev/v1alpha1\nkind: TrafficPolicy\nmetadata: {name: a}\n" +
				"spec: {rateLimit: {global: {extensionRef: {name: a}, descriptors: [{entries: [{type: Address}]}]}}}",
			"value must be one of 'Generic', 'Header', 'RemoteAddress', 'Path'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := parse([]byte(tt.text))
			if err != nil || len(objects) != 1 {
				t.Fatal(len(objects), err)
			}
			for _, version := range []string{s.versions[0], s.versions[len(s.versions)-1]} {
				if err := s.check(objects[0], version); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: %v, want %q", version, err, tt.want)
				}
			}
		})
	}
}

// TestDocumentsRefuse proves that mistakes of YAML are found.
func TestDocumentsRefuse(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, tt := range map[string]struct{ text, want string }{
		"a key twice":       {head + "data: {a: b, a: c}", "already defined"},
		"a truth of 1.1":    {head + "data:\n  a: on\n", "Kubernetes reads this as true or false"},
		"a list of truths":  {head + "data:\n- No\n", "Kubernetes reads this as true or false"},
		"no object":         {"domain: edge", errNoObject.Error()},
		"no object of many": {head + "---\na: b", errNoObject.Error()},
	} {
		if _, err := parse([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	objects, err := parse([]byte(head + "data:\n  a: \"on\"\n  b:\n---\n# nothing\n"))
	if err != nil || len(objects) != 1 {
		t.Fatal(len(objects), err)
	}
	if got := empty(objects[0].value, ""); !slices.Equal(got, []string{".data.b"}) {
		t.Errorf("empty values: %q", got)
	}
}
