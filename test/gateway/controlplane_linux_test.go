package gateway

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	envoyVersion = "1.40.0"
	listener     = "127.0.0.1:8888"
	limitHeader  = "X-Ratelimit-Limit"
)

// settings is the EnvoyGateway resource. Envoy waits for its rate-limit service for as long as a
// busy machine needs, and answers with an error if it gets no answer: no call may fail.
const settings = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
provider:
  type: Custom
  custom:
    resource:
      type: File
      file: {paths: [%[1]q]}
    infrastructure:
      type: Host
      host: {configHome: %[2]q, dataHome: %[3]q, stateHome: %[4]q, runtimeDir: %[5]q}
logging: {level: {default: info}}
extensionApis: {enableBackend: true, enableLua: true, enableEnvoyPatchPolicy: true}
rateLimit:
  timeout: 20s
  failClosed: true
  backend:
    type: Redis
    redis: {url: %[6]q}
`

// resources are a Gateway with a route to the application. Envoy has one worker thread, and so one
// connection to its rate-limit service: with several, one of them may open its connection in the middle
// of a test.
const resources = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: proxy, namespace: default}
spec:
  provider: {type: Host, host: {envoyVersion: "` + envoyVersion + `"}}
  concurrency: 1
  telemetry: {accessLog: {disable: true}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: default}
spec:
  gatewayClassName: eg
  infrastructure:
    parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: proxy}
  listeners: [{name: http, protocol: HTTP, port: 8888}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: backend, namespace: default}
spec:
  parentRefs: [{name: eg}]
  hostnames: [www.example.com]
  rules:
  - backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: application}]
    matches: [{path: {type: PathPrefix, value: /}}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: application, namespace: default}
spec:
  endpoints: [{ip: {address: %[1]s, port: %[2]s}}]
`

// A controlPlane is Envoy Gateway with the Envoy that it starts.
type controlPlane struct {
	t       *testing.T
	dir     string
	process *process.Process
	client  *http.Client
}

// newControlPlane makes an Envoy Gateway that does not run yet, with certificates.
func newControlPlane(t *testing.T, redis string) *controlPlane {
	t.Helper()
	e := &controlPlane{t: t, dir: t.TempDir(), client: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: process.Timeout,
	}}
	for _, dir := range []string{"resources", "config", "data", "state", "run"} {
		e.must(os.Mkdir(e.path(dir), 0o755))
	}
	envoy, err := exec.LookPath(edge.EnvoyProgram())
	if err != nil {
		process.Missing(t, "envoy", "make eg-standalone-test gets it")
	}
	// Envoy Gateway would download it to here.
	bin := e.path("data", "envoy-versions", envoyVersion, "bin")
	e.must(os.MkdirAll(bin, 0o755))
	e.must(os.Symlink(envoy, filepath.Join(bin, "envoy")))

	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // before its end the server does not see that the client leaves
		switch cost := r.Header.Get("X-Spends"); {
		case len(r.Header["X-Api-Key"]) > 1 || r.Header.Get("X.Api.Key") != "":
			w.WriteHeader(http.StatusBadRequest)
		case cost == "unknown":
			<-r.Context().Done()
		case cost != "":
			w.Header().Set("X-Cost", cost)
		}
	}))
	t.Cleanup(application.Close)
	address := strings.Split(application.Listener.Addr().String(), ":")
	e.write("resources/gateway.yaml", fmt.Sprintf(resources, address[0], address[1]))
	e.write("settings.yaml", fmt.Sprintf(settings,
		e.path("resources"), e.path("config"), e.path("data"), e.path("state"), e.path("run"), redis))
	e.renewCertificates()
	return e
}

func (e *controlPlane) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("gateway: %v", err)
	}
}

func (e *controlPlane) path(names ...string) string {
	return filepath.Join(append([]string{e.dir}, names...)...)
}

func (e *controlPlane) write(name, text string) {
	e.t.Helper()
	e.must(servers.ReplaceFile(e.path(name), text))
}

func program(name string) string { return filepath.Join(os.Getenv(envPrograms), name) }

// renewCertificates makes a new authority and new certificates for Envoy Gateway, Envoy and the
// rate-limit service.
func (e *controlPlane) renewCertificates() {
	e.t.Helper()
	out, err := exec.Command(program("envoy-gateway"), "certgen", "--local", "--config-home", e.path("config")).CombinedOutput()
	if err != nil {
		e.t.Fatalf("gateway: envoy-gateway certgen: %v\n%s", err, out)
	}
	// Envoy finds its certificate for the rate-limit service here.
	mountCertificates(e.t, "/certs", e.certificates("envoy"))
}

// certificates returns the files of one of the three.
func (e *controlPlane) certificates(of string) map[string][]byte {
	e.t.Helper()
	files := make(map[string][]byte)
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		data, err := os.ReadFile(e.path("config", "certs", of, name))
		e.must(err)
		files[name] = data
	}
	return files
}

// start starts Envoy Gateway, and waits until its Envoy forwards requests.
func (e *controlPlane) start() {
	e.t.Helper()
	cmd := exec.Command(program("envoy-gateway"), "server", "--config-path", e.path("settings.yaml"))
	cmd.Env = append(os.Environ(), "ENVOY_GATEWAY_NAMESPACE=envoy-gateway-system")
	var err error
	e.process, err = process.Start("envoy-gateway", cmd)
	e.must(err)
	e.t.Cleanup(e.stop)
	e.wait(func() error {
		code, _, err := e.get(request{})
		if err == nil && code != http.StatusOK && code != http.StatusTooManyRequests && code != http.StatusUnauthorized {
			err = fmt.Errorf("got status %d", code)
		}
		return err
	})
}

// stop ends Envoy Gateway and its Envoy. A second time is harmless.
func (e *controlPlane) stop() {
	_ = e.process.Signal(syscall.SIGTERM) // an error means that it has ended
	if _, err := e.process.Wait(); err != nil {
		e.t.Logf("gateway: stopping Envoy Gateway: %v", err)
		e.process.Kill()
	}
}

// wait waits until ready returns nil.
func (e *controlPlane) wait(ready func() error) {
	e.t.Helper()
	wait(e.t, e.process, ready)
}

// wait waits until ready returns nil. If a test fails it shows the end of what p has printed.
func wait(t *testing.T, p *process.Process, ready func() error) {
	t.Helper()
	deadline := time.NewTimer(process.Timeout)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-p.Exited():
			t.Fatalf("gateway: it has ended by itself:\n%s", p.Output())
		case <-deadline.C:
			out := p.Output()
			t.Fatalf("gateway: not within %v: %v\n%s", process.Timeout, err, out[max(0, len(out)-4000):])
		case <-poll.C:
		}
	}
}

// policy sets the global limits of the route: a list of rules in YAML, or none.
func (e *controlPlane) policy(rules string) {
	e.t.Helper()
	if rules == "" {
		e.must(os.Remove(e.path("resources", "policy.yaml")))
		return
	}
	e.write("resources/policy.yaml", `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: limit, namespace: default}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: backend}]
  rateLimit: {type: Global, global: {rules: [`+rules+`]}}
`)
}

// A request is what a client asks for. The zero value is GET / without headers.
type request struct {
	method, path, user string
	from               string       // the client's address; empty: any
	key, subject       string       // x-api-key and x-subject-id; empty: none
	client             *http.Client // nil: one without idle connections
}

// get asks the application through Envoy, and returns the status and the headers.
func (e *controlPlane) get(q request) (int, http.Header, error) {
	r, err := http.NewRequest(cmp.Or(q.method, http.MethodGet), "http://"+listener+cmp.Or(q.path, "/"), nil)
	if err != nil {
		return 0, nil, err
	}
	r.Host = "www.example.com"
	if q.user != "" {
		r.Header.Set("X-User-Id", q.user)
	}
	if q.key != "" {
		r.Header.Set("X-Api-Key", q.key)
	}
	if q.subject != "" {
		r.Header.Set("X-Subject-Id", q.subject)
	}
	client := cmp.Or(q.client, e.client)
	if q.from != "" {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(q.from)}}
		client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}, Timeout: process.Timeout}
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header, err
}

// want asks once for each status, and fails the test if Envoy answers with another one.
func (e *controlPlane) want(q request, statuses ...int) {
	e.t.Helper()
	for i, want := range statuses {
		got, headers, err := e.get(q)
		e.must(err)
		if got != want {
			e.t.Errorf("request %d of %v: got %d, want %d; headers: %v", i+1, q, got, want, headers)
		}
	}
}

// first asks until the answer shows that Envoy and rls have a limit of n an hour. Only the last of
// these requests is counted. It returns the headers of the answer.
func (e *controlPlane) first(q request, n int) http.Header {
	e.t.Helper()
	var last http.Header
	e.wait(func() error {
		code, headers, err := e.get(q)
		if err != nil {
			return err
		}
		last = headers
		want := fmt.Sprintf("%d, %d;w=3600", n, n)
		if got := headers.Get(limitHeader); code != http.StatusOK || got != want {
			return fmt.Errorf("got status %d with %s %q, want 200 with %q", code, limitHeader, got, want)
		}
		return nil
	})
	return last
}
