package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// envContour names the folder of contour and its definitions, and envKgateway that of the charts of
	// kgateway. The tests of a control plane run only with its folder. Contour needs Envoy, too.
	envContour, envKgateway, envEnvoy = "SLIDEGATE_TEST_CONTOUR", "SLIDEGATE_TEST_KGATEWAY", "SLIDEGATE_TEST_ENVOY"

	shopURL = "http://shop.example.com"
	// contourEnvoy is where Contour lets Envoy listen.
	contourEnvoy = "127.0.0.1:8080"
)

// A shop is an application behind a control plane, with Slidegate and the files of a folder of
// deploy/integrations.
type shop struct {
	*namespace // of the application
	slidegate  *namespace
	folder     string
	client     *http.Client // connects to the Envoy of the control plane
}

// newShop starts Slidegate with the rules of a folder, whose numbers are small, and an application.
func newShop(t *testing.T, folder string) *shop {
	t.Helper()
	s := &shop{namespace: &namespace{t: t, name: "shop"}, slidegate: &namespace{t: t, name: "slidegate"}, folder: folder}
	for _, n := range []*namespace{s.namespace, s.slidegate} {
		n.kubectl("create", "namespace", n.name)
		t.Cleanup(func() {
			if t.Failed() {
				n.describe()
			}
			_ = n.command(context.Background(), "delete", "namespace", n.name, "--timeout=120s").Run()
		})
	}
	s.apply(strings.Replace(application, "metadata: {name: app}\nspec: {selector", "metadata: {name: shop}\nspec: {selector", 1))
	rules := s.file("rules.yaml", "requests_per_unit: 30000", "requests_per_unit: 5", "requests_per_unit: 3000}", "requests_per_unit: 3}", "unit: minute", "unit: hour", "requests: 9500", "requests: 2")
	tiers := "tiers: [free, pro]\ndefault: free\nsubjects:\n"
	for _, kind := range []string{"key", "hop"} {
		for name, tier := range map[string]string{"free": "free", "pro": "pro", "searching": "free"} {
			tiers += fmt.Sprintf("- {id: %[1]s-%[2]s, tier: %[3]s, keys: [{plain: %[1]s-%[2]s}]}\n", kind, name, tier)
		}
	}
	s.slidegate.kustomize(writeOverlay(t, map[string]string{"rules.yaml": rules, "tiers.yaml": tiers, "kustomization.yaml": `
resources: [DEPLOY/redis, DEPLOY/shared]
configMapGenerator:
- {name: slidegate-rules, behavior: replace, files: [rules.yaml]}
- {name: slidegate-tiers, behavior: replace, files: [tiers.yaml]}
replicas: [{name: slidegate, count: 1}]
patches:
- patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: slidegate}, spec: {template: {spec: {containers: [{name: rls, env: [{name: SLIDEGATE_STORE_TIMEOUT, value: 500ms}, {name: SLIDEGATE_AUTHZ_WAIT, value: 1s}]}]}}}}'
`}))
	s.slidegate.rollout("deployment/slidegate")
	s.rollout("deployment/app")
	return s
}

// run runs a test of the installation.
func (s shop) run(t *testing.T, name string, test func(shop)) {
	t.Run(name, func(t *testing.T) {
		s.namespace, s.slidegate = &namespace{t: t, name: s.name}, &namespace{t: t, name: s.slidegate.name}
		test(s)
	})
}

// file returns a file of the folder. A busy machine is not a fault, so its times are 5 s. Further
// replacements must have something to replace.
func (s shop) file(name string, replacements ...string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join("../../deploy/integrations", s.folder, name))
	if err != nil {
		s.t.Fatal(err)
	}
	text := strings.NewReplacer(": 50ms", ": 5s", ": 200ms", ": 5s").Replace(string(b))
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(text, replacements[i]) {
			s.t.Fatalf("%s has no %q", name, replacements[i])
		}
	}
	return strings.NewReplacer(replacements...).Replace(text)
}

// applyFile applies the text of a file that names its namespaces.
func (s shop) applyFile(text string) {
	s.t.Helper()
	(&namespace{t: s.t}).apply(text)
}

// through makes the shop connect to an Envoy, whatever the URL.
func (s *shop) through(envoy string) {
	s.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, envoy)
		},
	}}
}

// decided waits until Envoy serves a URL with a limit. Only the last of these requests is counted.
func (s shop) decided(url string) {
	s.t.Helper()
	s.eventually(func() error {
		status, headers, err := getWith(s.t.Context(), s.client, url)
		if err == nil && (status != http.StatusOK || headers.Get("Ratelimit") == "") {
			err = errors.New("no limit")
		}
		if err != nil {
			return fmt.Errorf("%s: status %d, %v: %w", url, status, headers, err)
		}
		return nil
	})
}

// ask asks for a path with a header field, or with none.
func (s shop) ask(path, header string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, shopURL+path, nil)
	if err != nil {
		return 0, "", err
	}
	if name, value, ok := strings.Cut(header, ": "); ok {
		req.Header.Set(name, value)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// want asks once for each status.
func (s shop) want(path, header string, statuses ...int) {
	s.t.Helper()
	for i, want := range statuses {
		if got, body, err := s.ask(path, header); got != want {
			s.t.Errorf("request %d of %s with %q: got %d, %v, want %d: %s", i+1, path, header, got, err, want, body)
		}
	}
}

// wantWithout stops Slidegate, waits for a status, and starts Slidegate again.
func (s shop) wantWithout(status int) {
	s.t.Helper()
	s.slidegate.kubectl("scale", "deployment/slidegate", "--replicas=0")
	s.eventually(func() error {
		if got, _, err := s.ask("/", "x-api-key: key-free"); got != status {
			return fmt.Errorf("without Slidegate: got %d, %s, want %d", got, fmt.Sprint(err), status)
		}
		return nil
	})
	s.slidegate.kubectl("scale", "deployment/slidegate", "--replicas=1")
	s.slidegate.rollout("deployment/slidegate")
}

// TestContour runs Contour against the API of the node. Its files give each key the limit of its tier, and a
// route one of its own: with the rate-limit filter, and in one call with the authorization.
func TestContour(t *testing.T) {
	if os.Getenv(envContour) == "" {
		t.Skip("Contour is not on this node; make integrations-test runs it")
	}
	s := newShop(t, "contour")
	s.through(contourEnvoy)
	s.kubectl("apply", "--server-side", "--filename", filepath.Join(os.Getenv(envContour), "crds.yaml"))
	s.kubectl("create", "namespace", "projectcontour")
	s.applyFile(s.file("extension-service.yaml"))

	s.run(t, "RateLimit", func(s shop) {
		s.applyFile(s.file("httpproxy.yaml"))
		s.contour(s.file("configuration.yaml"))
		s.want("/", "", 200, 200, 200, 200)
		s.want("/", "x-api-key: key-free", 200, 200, 200, 429)
		s.want("/", "x-api-key: key-pro", 200, 200, 200, 200, 200, 429)
		s.want("/search", "x-api-key: key-searching", 200, 200, 429)
		s.want("/", "x-api-key: key-searching", 200, 429) // two were spent before
		if _, body, err := s.ask("/search", "x-api-key: key-searching"); err != nil || !strings.Contains(body, `"rule":"search-per-key"`) {
			s.t.Errorf("the denial of /search: %s, %v", body, err)
		}
		// The default of the configuration, for a virtual host without a policy.
		s.apply(`{apiVersion: projectcontour.io/v1, kind: HTTPProxy, metadata: {name: plain}, spec: {virtualhost: {fqdn: plain.example.com}, routes: [{services: [{name: shop, port: 80}]}]}}`)
		s.decided("http://plain.example.com/")
		s.wantWithout(http.StatusOK)
	})
	s.run(t, "OneHop", func(s shop) {
		configuration, proxy, _ := strings.Cut(s.file("onehop.yaml"), "\n---\n")
		s.applyFile(proxy)
		s.contour(configuration + "\n")
		s.want("/", "", 200)
		s.want("/", "x-api-key: unknown", 401)
		s.want("/", "x-api-key: hop-free", 200, 200, 200, 429)
		s.want("/", "x-api-key: hop-pro", 200, 200, 200, 200, 200, 429)
		s.want("/search", "x-api-key: hop-searching", 200, 200, 429)
		s.want("/", "x-api-key: hop-searching", 200, 429)
		s.wantWithout(http.StatusForbidden)
	})
}

// contour runs Contour with a ContourConfiguration, and its Envoy, for the time of the test. It waits until
// Slidegate decides.
func (s shop) contour(configuration string) {
	s.t.Helper()
	s.kubectl("delete", "contourconfiguration", "contour", "--namespace=projectcontour", "--ignore-not-found")
	s.applyFile(configuration + "  xdsServer: {address: 127.0.0.1, port: 8001, tls: {insecure: true}}\n")
	dir, program := s.t.TempDir(), filepath.Join(os.Getenv(envContour), "contour")
	bootstrap := filepath.Join(dir, "envoy.json")
	if out, err := exec.CommandContext(s.t.Context(), program, "bootstrap", bootstrap, "--xds-address=127.0.0.1", "--xds-port=8001",
		"--admin-address="+filepath.Join(dir, "admin.sock")).CombinedOutput(); err != nil {
		s.t.Fatalf("contour bootstrap: %v\n%s", err, out)
	}
	s.program(dir, program, "serve", "--kubeconfig="+os.Getenv("KUBECONFIG"), "--contour-config-name=contour", "--disable-leader-election")
	s.program(dir, os.Getenv(envEnvoy), "--config-path", bootstrap, "--service-cluster", "projectcontour", "--service-node", "envoy", "--concurrency", "1", "--log-level", "warning")
	s.decided(shopURL + "/")
}

// program runs a program until the end of the test. If the test fails, it prints what the program has
// written.
func (s shop) program(dir, name string, args ...string) {
	s.t.Helper()
	log, err := os.Create(filepath.Join(dir, filepath.Base(name)+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if s.t.Failed() {
			text, err := os.ReadFile(log.Name())
			s.t.Logf("%s: %v\n%s", log.Name(), err, text[max(0, len(text)-6000):])
		}
	})
}

// TestKgateway runs kgateway from its charts. Its files give each address of a route a limit, and each key
// that of its tier in one call with the authorization.
func TestKgateway(t *testing.T) {
	if os.Getenv(envKgateway) == "" {
		t.Skip("kgateway is not on this node; make integrations-test runs it")
	}
	s := newShop(t, "kgateway")
	s.kubectl("apply", "--server-side", "--filename", filepath.Join(os.Getenv(envKgateway), "gateway-api"))
	system := &namespace{t: t, name: "kgateway-system"}
	system.helm("install", "kgateway-crds", filepath.Join(os.Getenv(envKgateway), "helm/kgateway-crds"), "--create-namespace")
	system.helm("install", "kgateway", filepath.Join(os.Getenv(envKgateway), "helm/kgateway"), "--set", "image.tag=v2.2.0,controller.extraEnv.KGW_USE_RUST_FORMATIONS=false")
	t.Cleanup(func() {
		if t.Failed() {
			system.describe()
		}
	})
	system.rollout("deployment/kgateway")
	s.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge} # its Service has the same name
spec: {gatewayClassName: kgateway, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: shop, port: 80}]}]}
`)
	s.eventually(func() error {
		address := s.kubectl("get", "services", "--selector", "gateway.networking.k8s.io/gateway-name=edge", "--output", "jsonpath={.items[*].spec.clusterIP}")
		if address == "" {
			return errors.New("the Gateway has no Service")
		}
		s.through(net.JoinHostPort(address, "8080"))
		return nil
	})
	s.applyFile(s.file("service.yaml"))
	s.run(t, "RateLimit", func(s shop) {
		text := s.file("ratelimit.yaml")
		s.applyFile(text)
		s.decided(shopURL + "/")
		s.want("/", "", 200, 200, 429)
		s.wantWithout(http.StatusOK)
		s.kubectl("delete", "trafficpolicy", "slidegate-ratelimit")
	})
	s.run(t, "OneHop", func(s shop) {
		s.applyFile(s.file("onehop.yaml"))
		s.decided(shopURL + "/")
		s.want("/", "", 200, 200, 200)
		s.want("/", "x-api-key: unknown", 401)
		s.want("/", "x-api-key: hop-free", 200, 200, 429)
		s.wantWithout(http.StatusServiceUnavailable)
	})
}
