package helm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/test/tree"
)

// TestFiles compares the files of the chart with those of deploy/kubernetes/shared, so that both have
// the same rules, tiers and alerts.
func TestFiles(t *testing.T) {
	const shared = root + "/deploy/kubernetes/shared/"
	for file, original := range map[string]string{"rules.yaml": "rules/rules.yaml", "tiers.yaml": "tiers/tiers.yaml"} {
		if got, want := tree.Text(t, chart+"/files/"+file), tree.Text(t, shared+original); got != want {
			t.Errorf("files/%s differs from %s:\n%s", file, original, cmp.Diff(want, got))
		}
	}
	var got any
	var want struct{ Spec any }
	parse(t, chart+"/files/alerts.yaml", &got)
	parse(t, shared+"components/monitoring/prometheusrule.yaml", &want)
	if diff := cmp.Diff(want.Spec, got); diff != "" {
		t.Errorf("files/alerts.yaml differs from the spec of components/monitoring/prometheusrule.yaml:\n%s", diff)
	}
}

// TestValuesSchema compares the keys of values.yaml with those of values.schema.json.
func TestValuesSchema(t *testing.T) {
	for _, dir := range []string{chart, library} {
		var s schema
		if err := json.Unmarshal([]byte(tree.Text(t, dir+"/values.schema.json")), &s); err != nil {
			t.Fatal(err)
		}
		got := s.paths("")
		// Helm adds global to the values of a dependency.
		got = slices.DeleteFunc(got, func(path string) bool { return path == "global" })
		want := values(t, dir)
		slices.Sort(got)
		slices.Sort(want)
		// The lists in requests and limits are those of Kubernetes.
		got = slices.DeleteFunc(got, func(path string) bool { return strings.Contains(path, "resources.") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: values.schema.json (+) has not the values of values.yaml (-):\n%s", dir, diff)
		}
	}
}

// A schema is what TestValuesSchema reads of one.
type schema struct {
	Type                 any
	AdditionalProperties any
	Properties           map[string]schema
}

// paths returns the paths of the values that have no named values below them.
func (s schema) paths(prefix string) (paths []string) {
	if len(s.Properties) == 0 {
		return []string{prefix}
	}
	for name, below := range s.Properties {
		paths = append(paths, below.paths(strings.TrimPrefix(prefix+"."+name, "."))...)
	}
	if strings.HasSuffix(prefix, "resources") {
		return []string{prefix}
	}
	return paths
}

// values returns the paths of the values of a chart. helm show values prints values.yaml, so every value
// without named values below it must have a comment that says what it is for.
func values(t *testing.T, dir string) []string {
	t.Helper()
	var document yaml.Node
	parse(t, dir+"/values.yaml", &document)
	var all []string
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i < len(n.Content); i += 2 {
			key, below := n.Content[i], n.Content[i+1]
			path := strings.TrimPrefix(prefix+"."+key.Value, ".")
			switch {
			case strings.Contains(key.HeadComment, "# -- "):
				all = append(all, path)
			case below.Kind == yaml.MappingNode && len(below.Content) > 0:
				walk(path, below)
			default:
				t.Errorf("%s/values.yaml: %s has no comment that begins with \"# -- \"", dir, path)
			}
		}
	}
	walk("", document.Content[0])
	return all
}

func parse(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.NewDecoder(bytes.NewReader([]byte(tree.Text(t, path)))).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
