package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/servers"
)

const (
	// envHelm names the program helm.
	envHelm = "SLIDEGATE_TEST_HELM"
	charts  = "../../deploy/helm"
)

// helmRules denies the 21st request of a key.
const helmRules = `
rules:
  files:
    edge.yaml: |
      domain: edge
      descriptors:
        - key: remote_address
          rate_limit: {name: per-address, unlimited: true}
        - key: api_key
          rate_limit: {name: per-key, unit: hour, requests_per_unit: 20}
`

// helmPatience gives calls more time than an operator would, because all pods share the CPUs of the tests.
const helmPatience = `
settings:
  store: {timeout: 1s}
`

// helmPods is Envoy with the application behind it. Envoy's configuration is the ConfigMap envoy.
const helmPods = application + `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: envoy}
spec:
  selector: {matchLabels: {app: envoy}}
  template:
    metadata: {labels: {app: envoy}}
    spec:
      containers:
      - name: envoy
        image: docker.io/envoyproxy/envoy:v1.40.0
        imagePullPolicy: Never
        command: [envoy, --config-path, /etc/envoy/envoy.yaml, --disable-hot-restart, --log-level, error, --concurrency, "1"]
        readinessProbe: {tcpSocket: {port: 10000}, periodSeconds: 1}
        volumeMounts: [{name: envoy, mountPath: /etc/envoy}]
      volumes:
      - {name: envoy, configMap: {name: envoy}}
---
apiVersion: v1
kind: Service
metadata: {name: envoy}
spec: {selector: {app: envoy}, ports: [{port: 80, targetPort: 10000}]}
`

// helmRedis is a Redis that is there before the chart is installed.
const helmRedis = `
apiVersion: v1
kind: Secret
metadata: {name: my-redis}
stringData: {url: "redis://my-redis:6379/0", password: not-in-the-release}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: my-redis}
spec:
  selector: {matchLabels: {app: my-redis}}
  template:
    metadata: {labels: {app: my-redis}}
    spec:
      containers:
      - name: redis
        image: docker.io/library/redis:7
        imagePullPolicy: Never
        args: [redis-server, --save, "", --requirepass, not-in-the-release]
        readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: my-redis}
spec: {selector: {app: my-redis}, ports: [{port: 6379}]}
`

// helm runs helm and returns what it prints.
func (n *namespace) helm(args ...string) string {
	n.t.Helper()
	program := os.Getenv(envHelm)
	if program == "" {
		n.t.Fatalf("%s must name a helm: run make k8s-test", envHelm)
	}
	cmd := exec.CommandContext(n.t.Context(), program, append([]string{"--namespace", n.name}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// values writes values to a file and returns its name.
func (n *namespace) values(text string) string {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return file
}

// envoyFor starts Envoy with envoy/ratelimit.yaml, and the application behind it, and returns Envoy's URL.
// Envoy answers 500 if rls does not decide.
func (n *namespace) envoyFor(service string) string {
	n.t.Helper()
	text, err := os.ReadFile("../../envoy/ratelimit.yaml")
	if err != nil {
		n.t.Fatal(err)
	}
	config := strings.NewReplacer(
		"address: rls, port_value: 8081", "address: "+service+", port_value: 8081",
		"address: app, port_value: 8080", "address: app, port_value: 80",
		"failure_mode_deny: false", "failure_mode_deny: true",
		"timeout: 0.05s", "timeout: 2s",
	).Replace(string(text))
	file := filepath.Join(n.t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.kubectl("create", "configmap", "envoy", "--from-file", file)
	n.apply(helmPods)
	n.rollout("deployment/app")
	n.rollout("deployment/envoy")
	return fmt.Sprintf("http://envoy.%s/", n.name)
}

// wantExactly sends requests with a key until one is denied, and checks that all others passed.
func (n *namespace) wantExactly(want int, url, key string) {
	n.t.Helper()
	n.eventually(func() error { // Envoy has its endpoints
		status, _, err := get(n.t.Context(), url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("got status %d", status)
		}
		return err
	})
	for passed := 0; ; passed++ {
		status, header, err := get(n.t.Context(), url, "x-api-key: "+key)
		switch {
		case err != nil || status != http.StatusOK && status != http.StatusTooManyRequests:
			n.t.Fatalf("request %d: got status %d and error %v", passed+1, status, err)
		case status == http.StatusTooManyRequests && passed != want:
			n.t.Fatalf("got the first 429 after %d requests, want %d", passed, want)
		case status == http.StatusTooManyRequests:
			n.t.Logf("%d × 200, then 429: %s", passed, header.Get("Ratelimit"))
			return
		case passed > want:
			n.t.Fatalf("got no 429 in %d requests, want %d to pass", passed, want)
		}
	}
}

// wantHelmTest runs helm test and checks that its pod was denied.
func (n *namespace) wantHelmTest(release string) {
	n.t.Helper()
	if out := n.helm("test", release, "--logs", "--timeout", patience.String()); !strings.Contains(out, "OVER_LIMIT") {
		n.t.Errorf("helm test: got no denial:\n%s", out)
	}
}

// upgradeUnderLoad changes the image of rls to the next one and back while callers send requests. No
// request may fail.
func (n *namespace) upgradeUnderLoad(release, chart, deployment, setting, url string) {
	n.t.Helper()
	images := func() string {
		return n.kubectl("get", "pods", "--output=jsonpath={.items[*].spec['containers','initContainers'][?(@.name=='rls')].image}")
	}
	settled := func(tag string) {
		n.t.Helper()
		n.rollout(deployment)
		n.eventually(func() error { // the old pods are gone
			for image := range strings.FieldsSeq(images()) {
				if !strings.HasSuffix(image, tag) {
					return fmt.Errorf("there is a pod with %s", image)
				}
			}
			return nil
		})
	}
	for _, step := range []struct {
		what, tag string
		args      []string
	}{
		{"upgrade", ":next", []string{"upgrade", release, chart, "--reuse-values", "--set", setting + "=next", "--wait", "--timeout", "5m"}},
		{"rollback", ":0.1.0", []string{"rollback", release, "1", "--wait", "--timeout", "5m"}},
	} {
		l := newLoad(n.t, 2, url, "x-api-key: load")
		n.helm(step.args...)
		settled(step.tag)
		counts := l.stop()
		total, failed := 0, 0
		for status, count := range counts {
			total += count
			if status != "200" && status != "429" {
				failed += count
			}
		}
		n.t.Logf("helm %s under load: %d of %d requests failed: %v", step.what, failed, total, counts)
		if failed > 0 || counts["429"] == 0 {
			n.t.Errorf("helm %s: %d of %d requests failed, want 0, and denials: %v", step.what, failed, total, counts)
		}
	}
}

// TestHelmShared installs the chart for a Redis that is there already, and upgrades and rolls back under load.
func TestHelmShared(t *testing.T) {
	n := newNamespace(t)
	n.apply(helmRedis)
	n.rollout("deployment/my-redis")
	chart := filepath.Join(charts, "slidegate")
	notes := n.helm("install", "limits", chart, "--wait", "--timeout", "5m", "--values", n.values(helmRules+helmPatience),
		"--set", "replicas=2,redis.existingSecret=my-redis")
	for _, want := range []string{"helm -n " + n.name + " test limits", "limits-slidegate." + n.name + ".svc.cluster.local"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	if out := n.helm("get", "all", "limits"); strings.Contains(out, "not-in-the-release") {
		t.Error("the release has the password of Redis")
	}
	n.wantHelmTest("limits")
	url := n.envoyFor("limits-slidegate")
	n.wantExactly(20, url, "shared")
	n.upgradeUnderLoad("limits", chart, "deployment/limits-slidegate", "image.tag", url)
	n.wantHelmTest("limits")
}

// TestHelmRedis installs the chart with the small Redis, and changes the rules without new pods.
func TestHelmRedis(t *testing.T) {
	n := newNamespace(t)
	chart := filepath.Join(charts, "slidegate")
	n.helm("install", "slidegate", chart, "--wait", "--timeout", "5m", "--values", n.values(helmRules+helmPatience), "--set", "replicas=2,redis.enabled=true")
	n.wantHelmTest("slidegate")
	url := n.envoyFor("slidegate")
	n.wantExactly(20, url, "first")

	const selector = "app.kubernetes.io/component=ratelimit"
	before := n.pods(selector)
	n.helm("upgrade", "slidegate", chart, "--wait", "--timeout", "5m", "--reuse-values", "--values", n.values(strings.ReplaceAll(helmRules, ": 20}", ": 30}")))
	passed := func() error {
		status, _, err := get(t.Context(), url, "x-api-key: first")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("the new limit does not count: got status %d", status)
		}
		return err
	}
	n.eventually(passed)
	if after := n.pods(selector); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("changed rules replaced the pods %v by %v", before, after)
	}
}

// TestHelmTLS installs the chart with certificates. helm test calls the service with that of a client.
func TestHelmTLS(t *testing.T) {
	n := newNamespace(t)
	a := servers.NewAuthority(t)
	n.issue(a, party{"slidegate-tls", "slidegate." + n.name + ".svc"})
	n.issue(a, client)
	n.helm("install", "slidegate", filepath.Join(charts, "slidegate"), "--wait", "--timeout", "5m", "--values", n.values(helmRules),
		"--set", "tls.enabled=true,tls.existingSecret=slidegate-tls,tls.clientSAN=slidegate-client,helmTest.clientSecret=slidegate-client-tls")
	n.wantHelmTest("slidegate")
	pod := n.pods("app.kubernetes.io/component=ratelimit")[0]
	address := n.kubectl("get", "pod", pod, "--output", "jsonpath={.status.podIP}")
	if _, _, err := get(t.Context(), "http://"+address+":8080/healthcheck"); err == nil {
		t.Error("the HTTP port is open, where every pod could spend quotas")
	}
}

// TestHelmSidecar installs the chart of an application that has Envoy and rls from the library.
func TestHelmSidecar(t *testing.T) {
	n := newNamespace(t)
	chart := t.TempDir()
	for from, to := range map[string]string{"testdata/application": "", filepath.Join(charts, "slidegate-sidecar"): "charts/slidegate-sidecar"} {
		if err := os.CopyFS(filepath.Join(chart, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	n.helm("install", "app", chart, "--wait", "--timeout", "5m")
	// Each pod counts in its own memory, so the exact limit is that of one pod.
	pod := n.pods("app.kubernetes.io/name=app")[0]
	address := n.kubectl("get", "pod", pod, "--output", "jsonpath={.status.podIP}")
	n.wantExactly(20, "http://"+address+":10000/", "sidecar")
	if _, _, err := get(context.Background(), "http://"+address+":8000/"); err == nil {
		t.Error("the application answers beside Envoy")
	}
	n.upgradeUnderLoad("app", chart, "deployment/app", "slidegate-sidecar.image.tag", fmt.Sprintf("http://app.%s/", n.name))
}
