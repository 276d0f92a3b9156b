package helm

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRenderManifests compares the pods of the charts with those of deploy/kubernetes, which are
// written by hand too. Both must have the same probes, limits, rights and times. Settings of rls,
// volumes and labels differ, because values decide them.
func TestRenderManifests(t *testing.T) {
	const kubernetes = root + "/deploy/kubernetes/"
	for _, tt := range []struct {
		manifest, chart, values, deployment string
	}{
		{"shared/deployment.yaml", chart, "redis: {existingSecret: slidegate-redis}", "Deployment/slidegate"},
		{"sidecar/component/sidecars.yaml", withLibrary(t), "{}", "Deployment/slidegate"},
	} {
		var manifest object
		parse(t, kubernetes+tt.manifest, &manifest)
		rendered, ok := objects(t, tt.chart, tt.values)[tt.deployment]
		if !ok {
			t.Errorf("%s: the chart has no %s", tt.manifest, tt.deployment)
			continue
		}
		want, got := compared(manifest.Spec.Template.Spec), compared(rendered.Spec.Template.Spec)
		// The rest of the application's pod is its own.
		for name := range got {
			if _, ok := want[name]; !ok && tt.manifest != "shared/deployment.yaml" {
				delete(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the chart (+) differs from deploy/kubernetes/%s (-):\n%s", tt.manifest, diff)
		}
	}
}

// compared returns what the pods of a chart and of a manifest have in common: fields of the pod, and
// containers by their names.
func compared(pod map[string]any) map[string]any {
	out := maps.Clone(pod)
	for _, name := range []string{"volumes", "topologySpreadConstraints"} {
		delete(out, name)
	}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := out[list].([]any)
		delete(out, list)
		for _, c := range containers {
			c := maps.Clone(c.(map[string]any))
			for _, name := range []string{"command", "env", "imagePullPolicy", "volumeMounts"} {
				delete(c, name)
			}
			out[list+": "+c["name"].(string)] = c
		}
	}
	return out
}
