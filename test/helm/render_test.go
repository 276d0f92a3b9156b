package helm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	envHelm = "SLIDEGATE_TEST_HELM"

	root    = "../.."
	chart   = root + "/deploy/helm/slidegate"
	library = root + "/deploy/helm/slidegate-sidecar"
	// application is a chart that uses the library.
	application = root + "/test/kubernetes/testdata/application"
	// version is the oldest Kubernetes that both charts support.
	version = "1.30.0"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(envHelm) == "" {
		fmt.Println("helm: tests that render a chart do not run here; run make k8s-validate")
		if err := flag.Set("test.skip", "^TestRender"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// helm runs helm and returns what it prints, or its message as an error.
func helm(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	program, err := filepath.Abs(os.Getenv(envHelm))
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New(strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// render renders a chart with values, given as YAML.
func render(t *testing.T, chart, values string) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	tree.Write(t, file, values)
	return helm(t, "template", "slidegate", chart, "--namespace", "limits", "--kube-version", version, "--values", file)
}

// An object is one of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     map[string]any
		}
	}
}

// objects renders a chart and returns its objects by kind and name: Deployment/slidegate.
func objects(t *testing.T, chart, values string) map[string]object {
	t.Helper()
	out, err := render(t, chart, values)
	if err != nil {
		t.Fatalf("with the values\n%s\n%v", values, err)
	}
	all := make(map[string]object)
	for d := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if o.Kind != "" {
			all[o.Kind+"/"+o.Metadata.Name] = o
		}
	}
}

// withLibrary returns a copy of the chart of the application with the library in it.
func withLibrary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{application: "", library: "charts/slidegate-sidecar"} {
		if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRenderSettings reads the settings that the chart writes as rls does.
func TestRenderSettings(t *testing.T) {
	read := func(values string) settings.Settings {
		t.Helper()
		text := objects(t, chart, values)["ConfigMap/slidegate-settings"].Data["settings.yaml"]
		s, _, err := settings.Parse("settings.yaml", []byte(text), nil)
		for _, problem := range strings.Split(fmt.Sprint(err), "\n") {
			// The certificates and passwords are only in the pod.
			if err != nil && !strings.HasSuffix(problem, "no such file or directory") {
				t.Errorf("with the values\n%s\nrls refuses the settings\n%s\n%s", values, text, problem)
			}
		}
		return s
	}
	for _, file := range []string{"redis", "everything", "memory", "drop-in"} {
		values := tree.Text(t, filepath.Join(chart, "ci", file+".yaml"))
		read(values)
	}
	if s := read("{}"); s.Store.Type != settings.StoreMemory || s.Drain.NotServing {
		t.Errorf("without values: got store %s and drain.not_serving %t, want memory and false, because there is only one pod", s.Store.Type, s.Drain.NotServing)
	}
	if s := read("redis: {enabled: true}"); s.Store.Type != settings.StoreRedis || !s.Drain.NotServing {
		t.Errorf("with Redis: got store %s, drain.not_serving %t, want redis and true", s.Store.Type, s.Drain.NotServing)
	}
	// Helm reads numbers as floating point.
	if s := read("settings: {store: {memory: {max_bytes: 1234567890}}}"); s.Store.Memory.MaxBytes != 1234567890 {
		t.Errorf("a large number: got store.memory.max_bytes %d, want 1234567890", s.Store.Memory.MaxBytes)
	}
}

// TestRenderPeers lets pods ask each other: on an address that they reach, with tokens, and with a
// NetworkPolicy that opens the port to them alone.
func TestRenderPeers(t *testing.T) {
	const without = "{redis: {enabled: true}, networkPolicy: {enabled: true, clients: [{podSelector: {matchLabels: {app: envoy}}}], egress: [{to: [{ipBlock: {cidr: 10.0.0.5/32}}]}]}"
	const peer = "podSelector:map[matchLabels:map[app.kubernetes.io/component:ratelimit app.kubernetes.io/instance:slidegate app.kubernetes.io/name:slidegate]]"
	for values, want := range map[string]bool{without + "}": false, without + ", admin: {peers: {existingSecret: p, key: a}, tokens: {existingSecret: t, key: b}}}": true} {
		rendered, err := render(t, chart, values)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, chart, values)
		got, pod := all["ConfigMap/slidegate-settings"].Data["settings.yaml"], fmt.Sprint(all["Deployment/slidegate"].Spec.Template.Spec)
		for text, in := range map[string]string{
			"address: :6070": got, "peers_key_file: /etc/slidegate/peers/key": got, "token_file: /etc/slidegate/admin/tokens": got,
			"mountPath:/etc/slidegate/peers name:peers": pod, "items:[map[key:a path:key]] secretName:p": pod,
			"mountPath:/etc/slidegate/admin name:admin": pod, "items:[map[key:b path:tokens]] secretName:t": pod, "containerPort:6070 name:admin": pod,
		} {
			if strings.Contains(in, text) != want {
				t.Errorf("%s: %q: want %t in\n%s", values, text, want, in)
			}
		}
		var policy struct {
			Spec struct{ Ingress, Egress []map[string]any }
		}
		for _, document := range bytes.Split(rendered, []byte("\n---\n")) {
			if bytes.Contains(document, []byte("kind: NetworkPolicy\nmetadata:\n  name: slidegate\n")) {
				if err := yaml.Unmarshal(document, &policy); err != nil {
					t.Fatal(err)
				}
			}
		}
		for direction, rules := range map[string][]map[string]any{"from": policy.Spec.Ingress, "to": policy.Spec.Egress} {
			open := []string{}
			for _, rule := range rules {
				if strings.Contains(fmt.Sprint(rule["ports"]), "port:admin") {
					open = append(open, fmt.Sprint(rule[direction]))
				}
			}
			if wanted := map[bool]string{true: "[[map[" + peer + "]]]", false: "[]"}[want]; fmt.Sprint(open) != wanted {
				t.Errorf("%s: the admin port is open %s %s, want %s", values, direction, open, wanted)
			}
		}
	}
}

// TestRenderChecksum shows what replaces the pods: changed settings. Changed rules and tiers do not,
// because rls reads them again.
func TestRenderChecksum(t *testing.T) {
	pods := func(values string) string {
		t.Helper()
		out, err := yaml.Marshal(objects(t, chart, values)["Deployment/slidegate"].Spec.Template)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := pods("{}")
	for values, want := range map[string]bool{
		"rules: {files: {edge.yaml: 'domain: edge'}}": false,
		"tiers: {file: 'tiers: [gold]'}":              false,
		"settings: {log: {level: debug}}":             true,
		"drain: {delaySeconds: 21}":                   true,
		"rules: {shadowMode: true}":                   true,
	} {
		if got := pods(values) != before; got != want {
			t.Errorf("%s: pods replaced: got %t, want %t", values, got, want)
		}
	}
}

// TestRenderSidecar compares the configuration of Envoy in the library with envoy/sidecar-uds.yaml.
func TestRenderSidecar(t *testing.T) {
	dir := withLibrary(t)
	want := tree.Text(t, root+"/envoy/sidecar-uds.yaml")
	all := objects(t, dir, "{}")
	if got := all["ConfigMap/slidegate-slidegate-envoy"].Data["envoy.yaml"]; strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("templates/_envoy.tpl is not envoy/sidecar-uds.yaml:\n%s", got)
	}
	with := strings.NewReplacer("port_value: 10000", "port_value: 15006", "port_value: 8000", "port_value: 9000").Replace(want)
	all = objects(t, dir, "slidegate-sidecar: {envoy: {port: 15006}, application: {port: 9000}}")
	if got := all["ConfigMap/slidegate-slidegate-envoy"].Data["envoy.yaml"]; strings.TrimSpace(got) != strings.TrimSpace(with) {
		t.Errorf("with other ports: got\n%s", got)
	}
	all = objects(t, dir, "slidegate-sidecar: {envoy: {config: 'node: {id: own}'}}")
	if got := all["ConfigMap/slidegate-slidegate-envoy"].Data["envoy.yaml"]; strings.TrimSpace(got) != "node: {id: own}" {
		t.Errorf("with an own configuration: got %q", got)
	}
}

// TestRenderStrings gives strings that YAML reads as something else without quotes. Each must arrive in
// the objects as it is.
func TestRenderStrings(t *testing.T) {
	const text = "  # a first line with spaces\r\ndomain: a # \u2028\n\n{{ .Release.Name }}: 'x'\n"
	values := map[string]any{
		"nameOverride":      "on",
		"priorityClassName": "1e3",
		"redis":             map[string]any{"existingSecret": "123", "secretKeys": map[string]any{"url": "0x1f", "username": "true", "password": "1.0"}},
		"rules":             map[string]any{"files": map[string]any{"a.yaml": text}},
		"tiers":             map[string]any{"file": text},
		"autoscaling":       map[string]any{"enabled": true, "maxReplicas": 1_000_000},
		"serviceAccount":    map[string]any{"name": "456"},
	}
	out, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	// Helm and kubectl refuse a document that this parser refuses.
	all := objects(t, chart, string(out))
	for name, key := range map[string]string{"ConfigMap/slidegate-on-rules": "a.yaml", "ConfigMap/slidegate-on-tiers": "tiers.yaml"} {
		if got := all[name].Data[key]; got != text {
			t.Errorf("%s: got %q, want %q", name, got, text)
		}
	}
	pod := fmt.Sprint(all["Deployment/slidegate-on"].Spec.Template.Spec)
	for _, want := range []string{"name:123", "key:0x1f", "key:true", "key:1.0", "secretName:123", "priorityClassName:1e3", "serviceAccountName:456"} {
		if !strings.Contains(pod, want) {
			t.Errorf("the pod has no %q:\n%s", want, pod)
		}
	}
	rendered, err := render(t, chart, string(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`app.kubernetes.io/name: "on"`, `key: "0x1f"`, `name: "123"`, `priorityClassName: "1e3"`, `serviceAccountName: "456"`, "maxReplicas: 1000000"} {
		if !bytes.Contains(rendered, []byte(want)) {
			t.Errorf("not rendered: %s", want)
		}
	}
}

// TestRenderNoPublicKeys gives a sidecar no tiers. The API keys of rls's built-in example are public, so
// they must not have a tier.
func TestRenderNoPublicKeys(t *testing.T) {
	dir := withLibrary(t)
	all := objects(t, dir, "{}")
	if got := all["ConfigMap/slidegate-slidegate-tiers"].Data["tiers.yaml"]; !strings.Contains(got, "subjects: []") {
		t.Errorf("the tiers of the sidecar: got %q, want no subjects", got)
	}
	if pod := fmt.Sprint(all["Deployment/slidegate"].Spec.Template.Spec); !strings.Contains(pod, "name:SLIDEGATE_TIERS_PATH value:/etc/slidegate/tiers/tiers.yaml") {
		t.Errorf("rls does not read them: %s", pod)
	}
	if all := objects(t, dir, "slidegate-sidecar: {env: {SLIDEGATE_TIERS_SOURCE: none}}"); all["ConfigMap/slidegate-slidegate-tiers"].Data != nil {
		t.Error("with tiers.source none: got a tiers file")
	}
}
