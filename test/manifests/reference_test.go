package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// refers are the parts of an object that name other objects.
type refers struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		// Of a Service this is the map itself, of other kinds matchLabels has it.
		Selector    json.RawMessage `json:"selector"`
		PodSelector json.RawMessage `json:"podSelector"`
		Ports       []struct {
			Name       string `json:"name"`
			TargetPort any    `json:"targetPort"`
		} `json:"ports"`
		ScaleTargetRef *struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		Endpoints []endpoint `json:"endpoints"`
		// Of a PodMonitor.
		PodMetricsEndpoints []endpoint `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type endpoint struct {
	Port string `json:"port"`
}

// A maker is an object that makes pods.
type maker struct {
	*object
	pod    *pod
	labels map[string]string
	ports  map[string]bool
}

// dangling returns the references of a rendering to what it does not have: selectors of no pod, ports without a name in
// the pod, ConfigMaps, accounts. Secrets are not among them, because operators bring those, and ConfigMaps that the values
// of a chart name.
func dangling(t *testing.T, objects []*object, values string) []string {
	t.Helper()
	var makers []maker
	have := make(map[string]bool)
	for _, o := range objects {
		have[o.String()] = true
		if p := podOf(t, o); p != nil {
			m := maker{object: o, pod: p, labels: p.Metadata.Labels, ports: make(map[string]bool)}
			for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
				for _, port := range c.Ports {
					m.ports[port.Name] = true
				}
			}
			makers = append(makers, m)
		}
	}
	var out []string
	for _, m := range makers {
		for _, name := range m.pod.names() {
			given, isMap := strings.CutPrefix(name, "ConfigMap/")
			if !have[name] && !(isMap && strings.Contains(values, ": "+given)) {
				out = append(out, fmt.Sprintf("%s needs %s", m, name))
			}
		}
	}
	for _, o := range objects {
		var r refers
		// Of other kinds a field with such a name may be something else.
		switch o.Kind {
		case "Service", "PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler", "PodMonitor", "ServiceMonitor":
		default:
			continue
		}
		if err := json.Unmarshal(o.text, &r); err != nil {
			t.Fatalf("%s: %v", o, err)
		}
		if ref := r.Spec.ScaleTargetRef; ref != nil && !have[ref.Kind+"/"+ref.Name] {
			out = append(out, fmt.Sprintf("%s scales %s/%s", o, ref.Kind, ref.Name))
		}
		out = append(out, selected(o, &r, makers, objects)...)
	}
	return out
}

// selected returns what is wrong with the selector of an object and the ports that it names.
func selected(o *object, r *refers, makers []maker, objects []*object) []string {
	selector := r.Spec.Selector
	if o.Kind == "NetworkPolicy" {
		selector = r.Spec.PodSelector
	}
	want := labelsOf(selector)
	if len(want) == 0 {
		return nil // no pod, or all
	}
	ports := make(map[string]bool)
	found := false
	if o.Kind == "ServiceMonitor" {
		for _, s := range objects {
			var service refers
			if s.Kind == "Service" && json.Unmarshal(s.text, &service) == nil && within(want, service.Metadata.Labels) {
				found = true
				for _, p := range service.Spec.Ports {
					ports[p.Name] = true
				}
			}
		}
	} else {
		for _, m := range makers {
			if within(want, m.labels) {
				found = true
				maps.Copy(ports, m.ports)
			}
		}
	}
	if !found {
		return []string{fmt.Sprintf("%s selects nothing by %v", o, want)}
	}
	var out []string
	for _, p := range r.Spec.Ports {
		if name, ok := p.TargetPort.(string); ok && o.Kind == "Service" && !ports[name] {
			out = append(out, fmt.Sprintf("%s has a port of the name %q, and its pods have none", o, name))
		}
	}
	for _, e := range slices.Concat(r.Spec.Endpoints, r.Spec.PodMetricsEndpoints) {
		if e.Port != "" && !ports[e.Port] {
			out = append(out, fmt.Sprintf("%s asks a port of the name %q, which is not there", o, e.Port))
		}
	}
	return out
}

// labelsOf returns the labels of a selector, in either form.
func labelsOf(selector json.RawMessage) map[string]string {
	var wrapped struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
	if json.Unmarshal(selector, &wrapped) == nil && wrapped.MatchLabels != nil {
		return wrapped.MatchLabels
	}
	var plain map[string]string
	if json.Unmarshal(selector, &plain) != nil {
		return nil
	}
	return plain
}

// within reports whether labels have all of want.
func within(want, labels map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// names returns the ConfigMaps and the account that the pod cannot start without.
func (p *pod) names() []string {
	var out []string
	if account := p.Spec.ServiceAccountName; account != "" && account != "default" {
		out = append(out, "ServiceAccount/"+account)
	}
	for _, v := range p.Spec.Volumes {
		if v.ConfigMap != nil && !v.ConfigMap.Optional {
			out = append(out, "ConfigMap/"+v.ConfigMap.Name)
		}
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, e := range c.Env {
			if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil && !ref.Optional {
				out = append(out, "ConfigMap/"+ref.Name)
			}
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(p.Spec.Volumes, func(v volume) bool { return v.Name == m.Name }) {
				out = append(out, "the volume "+m.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// whole is a rendering without a dangling reference.
const whole = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  template:
    metadata: {labels: {app: a, part: b}}
    spec:
      serviceAccountName: a
      containers:
      - name: a
        ports: [{name: http, containerPort: 80}]
        env: [{name: A, valueFrom: {configMapKeyRef: {name: env, key: a}}}]
        volumeMounts: [{name: rules, mountPath: /rules}]
      volumes: [{name: rules, configMap: {name: rules}}]
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: rules}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: env}}
---
apiVersion: v1
kind: Service
metadata: {name: a, labels: {service: a}}
spec: {selector: {app: a}, ports: [{name: web, port: 80, targetPort: http}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: a}
spec: {selector: {matchLabels: {part: b}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a}
spec: {podSelector: {matchLabels: {app: a, part: b}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a}
spec: {scaleTargetRef: {kind: Deployment, name: a}}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: a}
spec: {selector: {matchLabels: {service: a}}, endpoints: [{port: web}]}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: a}
spec: {selector: {matchLabels: {app: a}}, podMetricsEndpoints: [{port: http, interval: 5s}]}
`

// TestReferences breaks one reference at a time.
func TestReferences(t *testing.T) {
	check := func(text string) []string {
		objects, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return dangling(t, objects, "")
	}
	if got := check(whole); got != nil {
		t.Fatalf("the whole one: %q", got)
	}
	for _, tt := range []struct{ old, mistake, want string }{
		{"serviceAccountName: a", "serviceAccountName: b", "needs ServiceAccount/b"},
		{"configMap: {name: rules}", "configMap: {name: rule}", "needs ConfigMap/rule"},
		{"{name: env, key", "{name: en, key", "needs ConfigMap/en"},
		{"volumeMounts: [{name: rules", "volumeMounts: [{name: tiers", "needs the volume tiers"},
		{"spec: {selector: {app: a}", "spec: {selector: {app: b}", "Service/a selects nothing"},
		{"targetPort: http", "targetPort: htpp", `Service/a has a port of the name "htpp"`},
		{"spec: {selector: {matchLabels: {part: b}}}", "spec: {selector: {matchLabels: {part: c}}}", "PodDisruptionBudget/a selects nothing"},
		{"{app: a, part: b}}}\n---", "{app: a, part: c}}}\n---", "NetworkPolicy/a selects nothing"},
		{"kind: Deployment, name: a", "kind: Deployment, name: b", "scales Deployment/b"},
		{"{service: a}}, endpoints", "{service: b}}, endpoints", "ServiceMonitor/a selects nothing"},
		{"endpoints: [{port: web}", "endpoints: [{port: http}", `ServiceMonitor/a asks a port of the name "http"`},
		{"{port: http, interval", "{port: web, interval", `PodMonitor/a asks a port of the name "web"`},
	} {
		bad := strings.Replace(whole, tt.old, tt.mistake, 1)
		if bad == whole {
			t.Errorf("%q is not in the whole one", tt.old)
		}
		if got := check(bad); len(got) != 1 || !strings.Contains(got[0], tt.want) {
			t.Errorf("%q instead of %q: %q, want %q", tt.mistake, tt.old, got, tt.want)
		}
	}
}
