package manifests

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// These are the parts of a pod that the policies read.
type (
	pod struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec podSpec `json:"spec"`
	}
	podSpec struct {
		AutomountToken     *bool       `json:"automountServiceAccountToken"`
		ServiceAccountName string      `json:"serviceAccountName"`
		HostNetwork        bool        `json:"hostNetwork"`
		HostPID            bool        `json:"hostPID"`
		HostIPC            bool        `json:"hostIPC"`
		RestartPolicy      string      `json:"restartPolicy"`
		SecurityContext    security    `json:"securityContext"`
		Containers         []container `json:"containers"`
		InitContainers     []container `json:"initContainers"`
		Volumes            []volume    `json:"volumes"`
	}
	security struct {
		RunAsNonRoot             *bool  `json:"runAsNonRoot"`
		RunAsUser                *int64 `json:"runAsUser"`
		ReadOnlyRootFilesystem   bool   `json:"readOnlyRootFilesystem"`
		AllowPrivilegeEscalation *bool  `json:"allowPrivilegeEscalation"`
		Privileged               bool   `json:"privileged"`
		Capabilities             struct {
			Add  []string `json:"add"`
			Drop []string `json:"drop"`
		} `json:"capabilities"`
		SeccompProfile *struct {
			Type string `json:"type"`
		} `json:"seccompProfile"`
	}
	container struct {
		Name            string   `json:"name"`
		Image           string   `json:"image"`
		RestartPolicy   string   `json:"restartPolicy"`
		SecurityContext security `json:"securityContext"`
		Resources       struct {
			Requests map[string]any `json:"requests"`
			Limits   map[string]any `json:"limits"`
		} `json:"resources"`
		Ports []struct {
			Name     string `json:"name"`
			HostPort int    `json:"hostPort"`
		} `json:"ports"`
		Env []struct {
			ValueFrom struct {
				ConfigMapKeyRef *reference `json:"configMapKeyRef"`
			} `json:"valueFrom"`
		} `json:"env"`
		LivenessProbe  any `json:"livenessProbe"`
		ReadinessProbe any `json:"readinessProbe"`
		VolumeMounts   []struct {
			Name        string `json:"name"`
			MountPath   string `json:"mountPath"`
			SubPath     string `json:"subPath"`
			SubPathExpr string `json:"subPathExpr"`
		} `json:"volumeMounts"`
	}
	reference struct {
		Name     string `json:"name"`
		Optional bool   `json:"optional"`
	}
	volume struct {
		Name      string     `json:"name"`
		ConfigMap *reference `json:"configMap"`
		Secret    any        `json:"secret"`
		Projected any        `json:"projected"`
		HostPath  any        `json:"hostPath"`
	}
)

// podOf returns the pod that an object is or makes, or nil.
func podOf(t *testing.T, o *object) *pod {
	t.Helper()
	var holder struct {
		Spec struct {
			Template    *pod `json:"template"`
			JobTemplate struct {
				Spec struct {
					Template *pod `json:"template"`
				} `json:"spec"`
			} `json:"jobTemplate"`
		} `json:"spec"`
	}
	var into any = &holder
	alone := new(pod)
	group, _, _ := strings.Cut(o.APIVersion, "/")
	if o.Kind == "Pod" {
		into = alone
	} else if group != "apps" && group != "batch" {
		return nil
	}
	if err := json.Unmarshal(o.text, into); err != nil {
		t.Fatalf("%s: %v", o, err)
	}
	switch o.Kind {
	case "Pod":
		return alone
	case "CronJob":
		return holder.Spec.JobTemplate.Spec.Template
	default:
		return holder.Spec.Template
	}
}

// A podPolicy is what every pod, or every container of one, must keep.
type podPolicy struct {
	name string
	// Either of them returns what is wrong, or "".
	pod       func(p *podSpec) string
	container func(p *podSpec, c *container, long bool) string
}

var tag = regexp.MustCompile(`(:[^/:@]+|@sha256:[0-9a-f]{64})$`)

var policies = []podPolicy{
	{name: "no root", container: func(p *podSpec, c *container, _ bool) string {
		user, nonRoot := p.SecurityContext.RunAsUser, p.SecurityContext.RunAsNonRoot
		if c.SecurityContext.RunAsUser != nil {
			user = c.SecurityContext.RunAsUser
		}
		if c.SecurityContext.RunAsNonRoot != nil {
			nonRoot = c.SecurityContext.RunAsNonRoot
		}
		switch {
		case user == nil || *user == 0:
			return "runAsUser must be a number other than 0: the kubelet cannot tell from a name whether the user is root"
		case nonRoot == nil || !*nonRoot:
			return "runAsNonRoot must be true"
		}
		return ""
	}},
	{name: "read-only root", container: func(_ *podSpec, c *container, _ bool) string {
		return unless(c.SecurityContext.ReadOnlyRootFilesystem, "readOnlyRootFilesystem must be true")
	}},
	{name: "no privileges", container: func(_ *podSpec, c *container, _ bool) string {
		allow := c.SecurityContext.AllowPrivilegeEscalation
		return unless(allow != nil && !*allow && !c.SecurityContext.Privileged, "allowPrivilegeEscalation must be false, privileged must not be set")
	}},
	{name: "no capabilities", container: func(_ *podSpec, c *container, _ bool) string {
		caps := c.SecurityContext.Capabilities
		return unless(len(caps.Drop) == 1 && caps.Drop[0] == "ALL" && len(caps.Add) == 0, "capabilities must be {drop: [ALL]}")
	}},
	{name: "seccomp", container: func(p *podSpec, c *container, _ bool) string {
		profile := p.SecurityContext.SeccompProfile
		if c.SecurityContext.SeccompProfile != nil {
			profile = c.SecurityContext.SeccompProfile
		}
		return unless(profile != nil && profile.Type == "RuntimeDefault", "seccompProfile.type must be RuntimeDefault")
	}},
	{name: "resources", container: func(_ *podSpec, c *container, _ bool) string {
		var missing []string
		for _, name := range []string{"cpu", "memory"} {
			if c.Resources.Requests[name] == nil {
				missing = append(missing, "requests."+name)
			}
		}
		// A limit of CPU is up to the operator: it delays answers.
		if c.Resources.Limits["memory"] == nil {
			missing = append(missing, "limits.memory")
		}
		return unless(missing == nil, "resources must have "+strings.Join(missing, ", "))
	}},
	{name: "no token", pod: func(p *podSpec) string {
		return unless(p.AutomountToken != nil && !*p.AutomountToken, "automountServiceAccountToken must be false in the pod: nothing in it calls the API server")
	}},
	{name: "tag", container: func(_ *podSpec, c *container, _ bool) string {
		return unless(tag.MatchString(c.Image) && !strings.HasSuffix(c.Image, ":latest"), fmt.Sprintf("image %q must have a tag other than latest", c.Image))
	}},
	{name: "probes", container: func(_ *podSpec, c *container, long bool) string {
		// Which of them is up to the manifest: without Slidegate a pod can serve, so a sidecar is not asked whether it is ready.
		return unless(!long || c.LivenessProbe != nil || c.ReadinessProbe != nil, "a container that runs on must have a livenessProbe or a readinessProbe")
	}},
	{name: "no subPath", container: func(p *podSpec, c *container, _ bool) string {
		for _, m := range c.VolumeMounts {
			for _, v := range p.Volumes {
				if v.Name == m.Name && m.SubPath+m.SubPathExpr != "" && (v.ConfigMap != nil || v.Secret != nil || v.Projected != nil) {
					return m.MountPath + " has a subPath: the kubelet never updates such a file, so no change would be seen"
				}
			}
		}
		return ""
	}},
	{name: "nothing of the host", pod: func(p *podSpec) string {
		for _, v := range p.Volumes {
			if v.HostPath != nil {
				return "volume " + v.Name + " is a hostPath"
			}
		}
		return unless(!p.HostNetwork && !p.HostPID && !p.HostIPC, "hostNetwork, hostPID and hostIPC must not be set")
	}, container: func(_ *podSpec, c *container, _ bool) string {
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				return "port " + port.Name + " has a hostPort"
			}
		}
		return ""
	}},
}

func unless(kept bool, problem string) string {
	if kept {
		return ""
	}
	return problem
}

// violations returns each policy that the pod of an object does not keep.
func violations(t *testing.T, o *object) []string {
	t.Helper()
	p := podOf(t, o)
	if p == nil {
		return nil
	}
	var out []string
	note := func(where string, rule podPolicy, problem string) {
		if problem != "" {
			out = append(out, fmt.Sprintf("%s%s: %s", where, rule.name, problem))
		}
	}
	for _, rule := range policies {
		if rule.pod != nil {
			note("", rule, rule.pod(&p.Spec))
		}
		if rule.container == nil {
			continue
		}
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			note("container "+c.Name+": ", rule, rule.container(&p.Spec, c, c.RestartPolicy == "Always"))
		}
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			ends := p.Spec.RestartPolicy == "Never" || p.Spec.RestartPolicy == "OnFailure"
			note("container "+c.Name+": ", rule, rule.container(&p.Spec, c, !ends))
		}
	}
	return out
}

// good is a Deployment that keeps all policies.
const good = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: good}
spec:
  template:
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsUser: 65532, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      initContainers:
      - name: rls
        restartPolicy: Always
        image: docker.io/slidegate/rls:0.1.0
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
        resources: {requests: {cpu: 1, memory: 1Mi}, limits: {memory: 1Mi}}
        livenessProbe: {exec: {command: [a]}}
      containers:
      - name: app
        image: app@sha256:0123456789012345678901234567890123456789012345678901234567890123
        ports: [{name: http, containerPort: 80}]
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
        resources: {requests: {cpu: 1, memory: 1Mi}, limits: {memory: 1Mi}}
        readinessProbe: {exec: {command: [b]}}
        volumeMounts: [{name: rules, mountPath: /rules}]
      volumes: [{name: rules, configMap: {name: rules}}]
`

// TestPolicies changes the good Deployment in one way at a time, and names the policy that must notice.
func TestPolicies(t *testing.T) {
	check := func(text string) []string {
		objects, err := parse([]byte(text))
		if err != nil || len(objects) != 1 {
			t.Fatalf("%d objects, %v, of\n%s", len(objects), err, text)
		}
		return violations(t, objects[0])
	}
	if got := check(good); got != nil {
		t.Fatalf("the good one: %q", got)
	}
	tested := make(map[string]bool)
	for _, tt := range []struct{ policy, old, new string }{
		{"no root", "runAsUser: 65532", "runAsUser: 0"},
		{"no root", "runAsUser: 65532, ", ""},
		{"no root", "runAsNonRoot: true", "runAsNonRoot: false"},
		{"no root", "{allowPrivilegeEscalation", "{runAsUser: 0, allowPrivilegeEscalation"},
		{"no root", "{allowPrivilegeEscalation", "{runAsNonRoot: false, allowPrivilegeEscalation"},
		{"read-only root", ", readOnlyRootFilesystem: true", ""},
		{"no privileges", "allowPrivilegeEscalation: false, ", ""},
		{"no privileges", "allowPrivilegeEscalation: false, ", "allowPrivilegeEscalation: true, "},
		{"no privileges", "{allowPrivilegeEscalation", "{privileged: true, allowPrivilegeEscalation"},
		{"no capabilities", ", capabilities: {drop: [ALL]}", ""},
		{"no capabilities", "drop: [ALL]", "drop: [NET_RAW]"},
		{"no capabilities", "drop: [ALL]", "drop: [ALL], add: [NET_BIND_SERVICE]"},
		{"seccomp", "seccompProfile: {type: RuntimeDefault}", "fsGroup: 1"},
		{"seccomp", "{allowPrivilegeEscalation", "{seccompProfile: {type: Unconfined}, allowPrivilegeEscalation"},
		{"resources", "requests: {cpu: 1, memory: 1Mi}", "requests: {cpu: 1}"},
		{"resources", "limits: {memory: 1Mi}", "limits: {cpu: 1}"},
		{"resources", "requests: {cpu: 1, memory: 1Mi}, ", ""},
		{"no token", "automountServiceAccountToken: false", "enableServiceLinks: false"},
		{"no token", "automountServiceAccountToken: false", "automountServiceAccountToken: true"},
		{"tag", ":0.1.0", ":latest"},
		{"tag", ":0.1.0", ""},
		{"tag", "docker.io/slidegate/rls:0.1.0", "localhost:5000/rls"},
		{"probes", "livenessProbe: {exec: {command: [a]}}", ""},
		{"probes", "readinessProbe: {exec: {command: [b]}}", ""},
		{"no subPath", "mountPath: /rules", "mountPath: /rules, subPath: a"},
		{"no subPath", "mountPath: /rules", "mountPath: /rules, subPathExpr: $(A)"},
		{"no subPath", "mountPath: /rules}]\n      volumes: [{name: rules, configMap: {name: rules}", "mountPath: /rules, subPath: a}]\n      volumes: [{name: rules, secret: {secretName: a}"},
		{"nothing of the host", "automount", "hostNetwork: true\n      automount"},
		{"nothing of the host", "automount", "hostPID: true\n      automount"},
		{"nothing of the host", "containerPort: 80", "containerPort: 80, hostPort: 80"},
		{"nothing of the host", "configMap: {name: rules}", "hostPath: {path: /}"},
	} {
		tested[tt.policy] = true
		bad := strings.Replace(good, tt.old, tt.new, 1)
		if bad == good {
			t.Errorf("%q is not in the good one", tt.old)
			continue
		}
		got := check(bad)
		other := func(problem string) bool { return !strings.Contains(problem, tt.policy+": ") }
		if len(got) == 0 || slices.ContainsFunc(got, other) {
			t.Errorf("%q instead of %q: %q, want problems of %q only", tt.new, tt.old, got, tt.policy)
		}
	}
	for _, p := range policies {
		if !tested[p.name] {
			t.Errorf("the policy %q has no test with a pod that breaks it", p.name)
		}
	}
}

// TestPodOf finds the pod in every kind of object that makes one.
func TestPodOf(t *testing.T) {
	const spec = "{containers: [{name: a, image: b}]}"
	for _, text := range []string{
		"apiVersion: v1\nkind: Pod\nspec: " + spec,
		"apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: " + spec + "}}",
		"apiVersion: batch/v1\nkind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: " + spec + "}}}}",
		"apiVersion: apps/v1\nkind: StatefulSet\nspec: {template: {spec: " + spec + "}}",
		"apiVersion: apps/v1\nkind: DaemonSet\nspec: {template: {spec: " + spec + "}}",
	} {
		objects, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := violations(t, objects[0]); len(got) < 8 {
			t.Errorf("%s: %q, want a problem of nearly every policy", text, got)
		}
	}
}
