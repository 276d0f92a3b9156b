package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	// envGateway names the folder of egctl and of the chart of Envoy Gateway. Its tests run only with
	// it and with envHelm.
	envGateway = "SLIDEGATE_TEST_GATEWAY"

	gatewayFiles   = "../../deploy/integrations/envoy-gateway/"
	referenceImage = "docker.io/envoyproxy/ratelimit:reference"
	slidegateImage = "docker.io/slidegate/ratelimit:0.1.0"
	limitHeader    = "X-Ratelimit-Limit"
	gatewayRedis   = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: redis}
spec:
  selector: {matchLabels: {app: redis}}
  template:
    metadata: {labels: {app: redis}}
    spec:
      containers:
      - name: redis
        image: docker.io/library/redis:7
        imagePullPolicy: IfNotPresent
        args: [redis-server, --save, "", --protected-mode, "no"]
        workingDir: /data
        readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: redis}
spec: {selector: {app: redis}, ports: [{port: 6379}]}
`
)

// An envoyGateway is the installation that the tests of it share, with the Gateway, the route and the
// policy of example.yaml.
type envoyGateway struct {
	*namespace // that of Envoy Gateway
	routes     *namespace
	url        string // of the Gateway, without a path
}

// run runs a test of the installation. If it fails, it prints the pods of Envoy Gateway.
func (g envoyGateway) run(t *testing.T, name string, test func(envoyGateway)) {
	t.Run(name, func(t *testing.T) {
		g.namespace = &namespace{t: t, name: g.name}
		g.routes = &namespace{t: t, name: g.routes.name}
		t.Cleanup(func() {
			if t.Failed() {
				g.describe()
				out, _ := g.command(context.Background(), "logs", "deployment/envoy-ratelimit", "--tail=100").CombinedOutput()
				t.Logf("the rate-limit service:\n%s", out)
			}
		})
		test(g)
	})
}

// installGateway installs Envoy Gateway from its chart, with envoyproxy/ratelimit.
func installGateway(t *testing.T) envoyGateway {
	t.Helper()
	if os.Getenv(envGateway) == "" {
		t.Skip("Envoy Gateway is not on this node; make eg-test runs it")
	}
	started := time.Now()
	g := envoyGateway{namespace: &namespace{t: t, name: "envoy-gateway-system"}, routes: &namespace{t: t, name: "default"}}
	installed := false
	t.Cleanup(func() {
		if !installed {
			g.describe()
		}
	})
	g.routes.kubectl("create", "namespace", "redis-system")
	(&namespace{t: t, name: "redis-system"}).apply(gatewayRedis)
	g.routes.apply(application)
	g.helm("install", "eg", gatewayChart(), "--create-namespace", "--timeout", patience.String(),
		"--values", gatewayFiles+"redis-values.yaml", "--values", "testdata/envoy-gateway.yaml",
		"--set", "global.images.ratelimit.image="+referenceImage)
	g.rollout("deployment/envoy-gateway")
	g.routes.kubectl("apply", "--filename", gatewayFiles+"example.yaml")
	g.eventually(func() error {
		address := g.kubectl("get", "services", "--selector", "gateway.envoyproxy.io/owning-gateway-name=eg",
			"--output", "jsonpath={.items[*].spec.clusterIP}")
		if g.url = "http://" + address; address == "" {
			return errors.New("the Gateway has no Service")
		}
		return nil
	})
	g.image(referenceImage)
	g.first("/", "x-user-id: nobody", 3)
	installed = true
	t.Logf("Envoy Gateway limits requests %.0f s after the start of its installation", time.Since(started).Seconds())
	return g
}

func gatewayChart() string { return filepath.Join(os.Getenv(envGateway), "gateway-helm.tgz") }

// image waits until the pod of the rate-limit service, and no other one, has the image and is ready.
func (g envoyGateway) image(want string) {
	g.t.Helper()
	g.eventually(func() error {
		got := g.kubectl("get", "pods", "--selector", "app.kubernetes.io/name=envoy-ratelimit", "--output",
			`jsonpath={range .items[*]}{.spec.containers[0].image} {.status.containerStatuses[0].ready} {end}`)
		if got = strings.TrimSpace(got); got != want+" true" {
			return fmt.Errorf("got the pods %q, want one with %s", got, want)
		}
		return nil
	})
}

// limit makes a route for the path /name, with a policy of these rules, for the time of the test.
func (g envoyGateway) limit(name, rules string) {
	g.t.Helper()
	g.routes.apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{name: eg}]
  rules: [{matches: [{path: {type: PathPrefix, value: /%[1]s}}], backendRefs: [{name: app, port: 80}]}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: %[1]s}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: %[1]s}]
  rateLimit: {type: Global, global: {rules: [%[2]s]}}
`, name, rules))
	g.t.Cleanup(func() {
		for _, kind := range []string{"backendtrafficpolicy", "httproute"} {
			_ = g.routes.command(context.Background(), "delete", kind, name, "--ignore-not-found").Run()
		}
	})
}

// perUser is a rule: n requests an hour for each value of a header. more is added to it. n is not 3,
// because Envoy takes the route of example.yaml until it has the other one.
func perUser(n int, more string) string {
	return fmt.Sprintf("{clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}], limit: {requests: %d, unit: Hour}%s}", n, more)
}

// ask asks the application through Envoy.
func (g envoyGateway) ask(path string, headers ...string) (int, http.Header) {
	g.t.Helper()
	status, answer, err := get(g.t.Context(), g.url+path, headers...)
	if err != nil {
		g.t.Fatalf("%s with %v: %v", path, headers, err)
	}
	return status, answer
}

// want asks once for each status.
func (g envoyGateway) want(path, header string, statuses ...int) {
	g.t.Helper()
	for i, want := range statuses {
		if got, headers := g.ask(path, header); got != want {
			g.t.Errorf("request %d of %s with %q: got %d, want %d; headers: %v", i+1, path, header, got, want, headers)
		}
	}
}

// first asks until the answer shows that Envoy and its rate-limit service have a limit of n an hour.
// Only the last of these requests is counted. It returns the headers of the answer.
func (g envoyGateway) first(path, header string, n int) http.Header {
	g.t.Helper()
	var last http.Header
	want := fmt.Sprintf("%d, %d;w=3600", n, n)
	g.eventually(func() error {
		status, headers, err := get(g.t.Context(), g.url+path, header)
		last = headers
		if err == nil && (status != http.StatusOK || headers.Get(limitHeader) != want) {
			err = fmt.Errorf("%s: got status %d with %q, want 200 with %q", path, status, headers.Get(limitHeader), want)
		}
		return err
	})
	return last
}

// pod returns the address of the pod of the rate-limit service.
func (g envoyGateway) pod() string {
	g.t.Helper()
	names := g.pods("app.kubernetes.io/name=envoy-ratelimit")
	if len(names) != 1 {
		g.t.Fatalf("got the pods %v, want one", names)
	}
	return g.kubectl("get", "pod", names[0], "--output", "jsonpath={.status.podIP}")
}

// certificate returns the certificate that the rate-limit service presents.
func (g envoyGateway) certificate() (*x509.Certificate, error) {
	// The test compares the certificate itself.
	conn, err := tls.Dial("tcp", net.JoinHostPort(g.pod(), "8081"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

// rules returns what egctl prints.
func (g envoyGateway) rules() string {
	g.t.Helper()
	out, err := exec.CommandContext(g.t.Context(), filepath.Join(os.Getenv(envGateway), "egctl"), "config", "envoy-ratelimit").CombinedOutput()
	if err != nil {
		g.t.Fatalf("egctl: %v\n%s", err, out)
	}
	return string(out)
}

// remaining asks, without using any of it, what remains of the limit that a user has on a route.
func (g envoyGateway) remaining(name, user string) (int, error) {
	body := fmt.Sprintf(`{"domain": "default/eg/http", "descriptors": [{"hitsAddend": "0", "entries": [{"key": %q, "value": %[1]q}, {"key": "rule-0-match-0", "value": %q}]}]}`,
		"httproute/default/"+name+"/rule/0/match/0/*", user)
	resp, err := http.Post("http://"+net.JoinHostPort(g.pod(), "8080")+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Statuses []struct {
			CurrentLimit   *struct{}
			LimitRemaining int
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", resp.Status, err, text)
	}
	if len(answer.Statuses) != 1 || answer.Statuses[0].CurrentLimit == nil {
		return 0, fmt.Errorf("no limit: %s", text)
	}
	return answer.Statuses[0].LimitRemaining, nil
}

// TestEnvoyGateway runs Envoy Gateway from its own chart and changes one image: the limits of its users
// hold with Slidegate as they do with envoyproxy/ratelimit, and the way back is open. The tests share
// the installation, and run in this order.
func TestEnvoyGateway(t *testing.T) {
	g := installGateway(t)
	run := func(name string, test func(envoyGateway)) { g.run(t, name, test) }
	run("Reference", envoyGateway.testExample)
	run("Switch", func(g envoyGateway) {
		g.change(slidegateImage, "upgrade", "eg", gatewayChart(), "--reuse-values", "--values", gatewayFiles+"values.yaml")
	})
	run("Example", envoyGateway.testExample)
	run("Policy", envoyGateway.testPolicy)
	run("Headers", envoyGateway.testHeaders)
	run("Selectors", envoyGateway.testSelectors)
	run("Cost", envoyGateway.testCost)
	run("Usage", envoyGateway.testUsage)
	run("Restart", envoyGateway.testRestart)
	run("Certificates", envoyGateway.testCertificates)
	run("Tiers", envoyGateway.testTiers)
	run("Customers", envoyGateway.testCustomers)
	run("Back", func(g envoyGateway) { g.change(referenceImage, "rollback", "eg", "1") })
	run("ReferenceAgain", envoyGateway.testExample)
}

// change runs helm under load, and waits until the rate-limit service has another image.
func (g envoyGateway) change(image string, args ...string) {
	g.t.Helper()
	calls := g.underLoad()
	started := time.Now()
	g.helm(args...)
	g.image(image)
	g.t.Logf("%s is the only one %.0f s after the start of helm %s; %s", image, time.Since(started).Seconds(), args[0], unanswered(calls.stop()))
}

// testExample asks what the head of example.yaml says.
func (g envoyGateway) testExample() {
	// Each time another user: the services do not know the counters of each other, but their own.
	user := fmt.Sprintf("x-user-id: alice-%d", time.Now().UnixNano())
	g.first("/", user, 3)
	g.want("/", user, 200, 200, 429, 429)
}

// testPolicy proves that a limit holds for each value of a header, that a changed policy counts with the
// hits that are recorded, and that no limit is left when the policy is removed.
func (g envoyGateway) testPolicy() {
	const alice, bob, carol = "x-user-id: alice", "x-user-id: bob", "x-user-id: carol"
	g.limit("policy", perUser(4, ""))
	g.first("/policy", alice, 4)
	g.want("/policy", alice, 200, 200, 200, 429, 429)
	g.want("/policy", bob, 200, 200, 200, 200, 429)
	if got, want := g.rules(), "rule-0-match-0: unit=HOUR requests_per_unit=4"; !strings.Contains(got, "httproute/default/policy/") || !strings.Contains(got, want) {
		g.t.Errorf("egctl: got %q, want a rule of the route with %q", got, want)
	}

	g.limit("policy", perUser(6, ""))
	g.first("/policy", alice, 6)
	g.want("/policy", alice, 200, 429) // denied requests are not counted
	g.want("/policy", carol, 200, 200, 200, 200, 200, 200, 429)

	g.routes.kubectl("delete", "backendtrafficpolicy", "policy")
	g.eventually(func() error {
		status, headers := g.ask("/policy", alice)
		if status != http.StatusOK || headers.Get(limitHeader) != "" {
			return fmt.Errorf("got status %d with %v, want no limit", status, headers)
		}
		return nil
	})
	g.want("/policy", alice, 200, 200, 200, 200, 200, 200, 200)
	g.eventually(func() error {
		if rules := g.rules(); strings.Contains(rules, "httproute/default/policy/") {
			return fmt.Errorf("egctl: a rule is left: %q", rules)
		}
		return nil
	})
}

// testHeaders compares the headers as Envoy Gateway's own tests do, and all of them.
func (g envoyGateway) testHeaders() {
	const alice = "x-user-id: alice"
	g.limit("headers", perUser(4, ""))
	check := func(headers http.Header, remaining string) {
		g.t.Helper()
		if n, err := strconv.Atoi(headers.Get("X-Ratelimit-Reset")); err != nil || n < 1 || n > 3600 {
			g.t.Errorf("X-Ratelimit-Reset: got %q, want seconds within an hour", headers.Get("X-Ratelimit-Reset"))
		}
		want := map[string]string{limitHeader: "4, 4;w=3600", "X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": headers.Get("X-Ratelimit-Reset")}
		got := make(map[string]string)
		for name := range headers {
			if name = http.CanonicalHeaderKey(name); strings.Contains(name, "Ratelimit") || strings.Contains(name, "Slidegate") || name == "Retry-After" {
				got[name] = strings.Join(headers.Values(name), " | ")
			}
		}
		if !maps.Equal(got, want) {
			g.t.Errorf("got the headers %v, want %v", got, want)
		}
	}
	check(g.first("/headers", alice, 4), "3")
	for _, want := range []struct {
		status    int
		remaining string
	}{{200, "2"}, {200, "1"}, {200, "0"}, {429, "0"}} {
		status, headers := g.ask("/headers", alice)
		if status != want.status {
			g.t.Errorf("got status %d, want %d", status, want.status)
		}
		check(headers, want.remaining)
	}
}

// testSelectors proves that each range of addresses, and each address of it, has its own limit.
func (g envoyGateway) testSelectors() {
	g.routes.apply(`
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: ClientTrafficPolicy
metadata: {name: forwarded}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: eg}]
  clientIPDetection: {xForwardedFor: {numTrustedHops: 1}}
`)
	defer g.routes.kubectl("delete", "clienttrafficpolicy", "forwarded")
	from := func(address string) string { return "x-forwarded-for: " + address }

	g.limit("range", `{clientSelectors: [{sourceCIDR: {value: 192.0.2.0/24}}], limit: {requests: 3, unit: Hour}}`)
	g.first("/range", from("192.0.2.1"), 3)
	g.want("/range", from("192.0.2.2"), 200)
	g.want("/range", from("192.0.2.3"), 200, 429)
	g.want("/range", from("192.0.2.1"), 429)
	g.want("/range", from("198.51.100.1"), 200, 200, 200, 200)

	g.limit("each", `{clientSelectors: [{sourceCIDR: {value: 192.0.2.0/24, type: Distinct}}], limit: {requests: 3, unit: Hour}}`)
	g.first("/each", from("192.0.2.1"), 3)
	g.want("/each", from("192.0.2.1"), 200, 200, 429)
	g.want("/each", from("192.0.2.2"), 200, 200, 200, 429)
	g.want("/each", from("198.51.100.1"), 200, 200, 200, 200)

	g.limit("others", `{clientSelectors: [{sourceCIDR: {value: 192.0.2.0/24, invert: true}}], limit: {requests: 3, unit: Hour}}`)
	g.first("/others", from("198.51.100.1"), 3)
	g.want("/others", from("203.0.113.1"), 200, 200, 429)
	g.want("/others", from("192.0.2.1"), 200, 200, 200, 200)

	g.limit("exact", `{clientSelectors: [{headers: [{name: x-org, value: free}], methods: [{value: GET}]}], limit: {requests: 3, unit: Hour}}`)
	g.first("/exact", "x-org: free", 3)
	g.want("/exact", "x-org: free", 200, 200, 429)
	g.want("/exact", "x-org: paid", 200, 200, 200, 200)
}

// testCost proves that a request costs what the policy says.
func (g envoyGateway) testCost() {
	g.limit("cost", perUser(7, ", cost: {request: {from: Number, number: 3}}"))
	for i, want := range []string{"4", "1"} {
		headers := g.first("/cost", "x-user-id: alice", 7)
		if got := headers.Get("X-Ratelimit-Remaining"); got != want {
			g.t.Errorf("request %d: got %q remaining, want %q", i+1, got, want)
		}
	}
	g.want("/cost", "x-user-id: alice", 429, 429)
	g.want("/cost", "x-user-id: bob", 200, 200, 429)
}

// testUsage is UsageRateLimit of Envoy Gateway's own tests: a limit of 21, a request that costs 0, and a
// response that costs 10.
func (g envoyGateway) testUsage() {
	g.limit("usage", perUser(21, ", cost: {request: {from: Number, number: 0}, response: {from: Number, number: 10}}"))
	g.first("/usage", "x-user-id: alice", 21)
	// Envoy reports after it has answered. 21 - 3 * 10 is less than 0.
	for _, want := range []int{11, 1, 0} {
		g.eventually(func() error {
			got, err := g.remaining("usage", "alice")
			if err == nil && got != want {
				err = fmt.Errorf("got %d remaining, want %d", got, want)
			}
			return err
		})
		if want > 0 {
			g.want("/usage", "x-user-id: alice", 200)
		}
	}
	g.want("/usage", "x-user-id: alice", 429, 429)
	g.want("/usage", "x-user-id: bob", 200)
}

// testRestart proves that a rolling restart of rls fails no call and forgets no hit. Then it deletes
// the pod: as it is the only one, it prints how many calls failed.
func (g envoyGateway) testRestart() {
	g.limit("restart", perUser(4, ""))
	g.first("/restart", "x-user-id: alice", 4)
	g.want("/restart", "x-user-id: alice", 200, 200, 200, 429)
	calls := g.underLoad()
	g.kubectl("rollout", "restart", "deployment/envoy-ratelimit")
	g.rollout("deployment/envoy-ratelimit")
	g.image(slidegateImage)
	g.want("/restart", "x-user-id: alice", 429)
	counts := calls.stop()
	g.t.Logf("rolling restart: %s", unanswered(counts))
	if len(counts) != 1 {
		g.t.Errorf("rolling restart: got %v, want only answers with a limit", counts)
	}

	calls = g.underLoad()
	g.kubectl("delete", "pod", "--selector", "app.kubernetes.io/name=envoy-ratelimit")
	g.rollout("deployment/envoy-ratelimit")
	g.image(slidegateImage)
	g.eventually(func() error {
		if status, headers := g.ask("/restart", "x-user-id: alice"); status != http.StatusTooManyRequests {
			return fmt.Errorf("got status %d with %v, want 429", status, headers)
		}
		return nil
	})
	g.t.Logf("deletion of the only pod: %s", unanswered(calls.stop()))
}

// tiers applies a text of tiers.yaml, for the time of the test, and tiers-values.yaml with further values.
func (g envoyGateway) tiers(text string, values ...string) {
	g.t.Helper()
	named := &namespace{t: g.t} // the file names the namespaces
	named.apply(text)
	g.t.Cleanup(func() {
		if g.t.Failed() {
			out, _ := named.command(context.Background(), "get", "--filename", gatewayFiles+"tiers.yaml", "--output", `jsonpath={range .items[*]}{.kind}: {.status}{"\n"}{end}`).CombinedOutput()
			g.t.Logf("the policies:\n%s", out)
		}
		_ = named.command(context.Background(), "delete", "--filename", gatewayFiles+"tiers.yaml").Run()
		_ = named.command(context.Background(), "apply", "--filename", gatewayFiles+"example.yaml").Run()
	})
	// The certificates stay: testCertificates has renewed them with an argument that helm keeps.
	g.helm(append([]string{"upgrade", "eg", gatewayChart(), "--reuse-values", "--set-json", "certgen.job.args=[]", "--values", gatewayFiles + "tiers-values.yaml"}, values...)...)
	g.rollout("deployment/envoy-gateway")
	g.rollout("deployment/envoy-ratelimit")
	g.image(slidegateImage)
}

// testCustomers gives each of 10,000 customers in PostgreSQL the limit of its tier exactly. A change of a
// plan counts at once, and what was spent lasts, also when the pod has moved.
func (g envoyGateway) testCustomers() {
	const customers, env = 10_000, "config.envoyGateway.provider.kubernetes.rateLimitDeployment.container.env"
	pg := servers.StartTiers(g.t, customers)
	file, err := os.ReadFile(gatewayFiles + "tiers.yaml")
	if err != nil {
		g.t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(file), "    tiers:\n")
	_, rest, _ = strings.Cut(rest, "\n---\n")
	node := g.kubectl("get", "node", "node", "--output", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	values := []string{}
	for i, v := range []string{
		"TIERS_PATH=/etc/slidegate/tiers.yaml", "TIERS_SOURCE=postgres", "TIERS_POSTGRES_TLS_MODE=disable", "TIERS_WAIT=10s", "AUTHZ_WAIT=10s",
		"TIERS_POSTGRES_URL=" + strings.Replace(pg.URL(), "127.0.0.1", node, 1),
	} {
		name, value, _ := strings.Cut(v, "=")
		values = append(values, "--set", fmt.Sprintf("%s[%d].name=SLIDEGATE_%s,%[1]s[%[2]d].value=%[4]s", env, i, name, value))
	}
	indented := "    " + strings.ReplaceAll(strings.TrimSpace(servers.TiersFile), "\n", "\n    ")
	g.tiers(head+indented+"\n---\n"+strings.Replace(rest, "timeout: 200ms", "timeout: 20s", 1), values...)
	exec := func(sql string) {
		if err := pg.Exec(sql); err != nil {
			g.t.Fatal(err)
		}
	}

	const c0 = "x-api-key: key-c0"
	g.first("/", "x-api-key: key-probe", 2)
	started := time.Now()
	passed := servers.SpendTiers(g.t, customers, func(client *http.Client, key string) (int, error) {
		status, _, err := getWith(g.t.Context(), client, g.url+"/", "x-api-key: "+key)
		return status, err
	})
	g.t.Logf("%d customers in %.0f s: %v requests passed", customers, time.Since(started).Seconds(), passed)
	g.want("/", "x-api-key: key-nobodys", 401)

	exec(`UPDATE slidegate.subjects SET tier = 'three' WHERE id = 'c0'`)
	g.first("/", c0, 3)
	g.want("/", c0, 429)
	exec(`UPDATE slidegate.tiers SET limits = '{"limit": {"unit": "hour", "requests_per_unit": 7}}' WHERE name = 'five'`)
	g.first("/", "x-api-key: key-c3", 7)
	g.kubectl("delete", "pod", "--selector", "app.kubernetes.io/name=envoy-ratelimit")
	g.rollout("deployment/envoy-ratelimit")
	g.image(slidegateImage)
	g.eventually(func() error {
		if status, headers := g.ask("/", c0); status != http.StatusTooManyRequests {
			return fmt.Errorf("after the pod has moved: got status %d with %v, want 429", status, headers)
		}
		return nil
	})
	g.want("/", "x-api-key: key-c3", 200, 429)
}

// testTiers lets rls check API keys too. One rule gives each customer the limit of its tier, also after
// the pod has moved. A changed plan keeps what was spent.
func (g envoyGateway) testTiers() {
	file, err := os.ReadFile(gatewayFiles + "tiers.yaml")
	if err != nil {
		g.t.Fatal(err)
	}
	customers, _, _ := strings.Cut(string(file), "\n---\n")
	g.tiers(string(file))

	const free, pro = "x-api-key: demo-free", "x-api-key: demo-pro"
	g.first("/", free, 2)
	g.want("/", free, 200, 429)
	g.first("/", pro, 1000)
	g.want("/", "x-api-key: unknown", 401)
	g.want("/", "x-subject-id: acme", 401)
	if status, _ := g.ask("/", free, "x-subject-id: acme"); status != http.StatusTooManyRequests {
		g.t.Errorf("with the header of another customer: got %d, want 429", status)
	}

	g.kubectl("delete", "pod", "--selector", "app.kubernetes.io/name=envoy-ratelimit")
	g.rollout("deployment/envoy-ratelimit")
	g.image(slidegateImage)
	g.eventually(func() error {
		if status, headers := g.ask("/", free); status != http.StatusTooManyRequests {
			return fmt.Errorf("after the pod has moved: got status %d with %v, want 429", status, headers)
		}
		return nil
	})

	// The kubelet writes the file after up to a minute.
	g.apply(strings.Replace(customers, "tier: free, keys", "tier: pro, keys", 1))
	if got := g.first("/", free, 1000).Get("X-Ratelimit-Remaining"); got != "997" {
		g.t.Errorf("after the upgrade: got %q remaining, want 997, because 2 were spent before", got)
	}
}

// testCertificates renews the authority and all certificates with Envoy Gateway's own job, under load.
// Envoy Gateway v1.9.1 lets Envoy read the authority of the rate-limit service only when it starts. So
// Envoy is restarted once rls has the new certificate.
func (g envoyGateway) testCertificates() {
	old, err := g.certificate()
	if err != nil {
		g.t.Fatal(err)
	}
	calls := g.underLoad()
	started := time.Now()
	g.helm("upgrade", "eg", gatewayChart(), "--reuse-values", "--set", "certgen.job.args={--overwrite}")
	g.eventually(func() error {
		now, err := g.certificate()
		if err == nil && now.Equal(old) {
			err = errors.New("rls presents the old certificate")
		}
		return err
	})
	g.t.Logf("rls presents the new certificate %.0f s after helm's start", time.Since(started).Seconds())
	envoy := g.kubectl("get", "deployments", "--selector", "gateway.envoyproxy.io/owning-gateway-name=eg", "--output", "name")
	for _, deployment := range []string{envoy, "deployment/envoy-ratelimit"} {
		g.kubectl("rollout", "restart", deployment)
		g.rollout(deployment)
	}
	g.image(slidegateImage)
	g.limit("certificates", perUser(4, ""))
	g.first("/certificates", "x-user-id: alice", 4)
	g.want("/certificates", "x-user-id: alice", 200, 200, 200, 429)
	counts := calls.stop()
	g.t.Logf("new certificates for all: %s", unanswered(counts))
	if len(counts) != 1 {
		g.t.Errorf("new certificates for all: got %v, want only answers with a limit", counts)
	}
}

// underLoad asks all the time for a route whose limit is not reached. Each answer of the rate-limit
// service counts as "limited". It removes the route with the test.
func (g envoyGateway) underLoad() *load {
	g.t.Helper()
	g.limit("load", perUser(1000000, ""))
	g.first("/load", "x-user-id: probe", 1000000)
	return newLoadBy(g.t, 2, g.url+"/load", func(status int, headers http.Header) string {
		if headers.Get(limitHeader) != "" {
			return "limited"
		}
		return fmt.Sprint(status, " without a limit")
	}, "x-user-id: load")
}

// unanswered says how many calls the rate-limit service did not answer.
func unanswered(counts map[string]int) string {
	total := 0
	for _, n := range counts {
		total += n
	}
	return fmt.Sprintf("%d of %d calls failed: %v", total-counts["limited"], total, counts)
}

// TestPage types the commands of docs/kubernetes.md, section by section, in a copy of the folders
// that they name. Those of Envoy Gateway need its own images: TestEnvoyGateway installs it.
func TestPage(t *testing.T) {
	page := tree.Text(t, "../../docs/kubernetes.md")
	dir := t.TempDir()
	for _, name := range []string{"deploy", "envoy"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS("../../"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"helm": os.Getenv(envHelm), "rls": filepath.Join(os.Getenv("NODE_IMAGES"), "programs", "rls")} {
		if err := os.Symlink(program, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	mine := regexp.MustCompile("(?s)```yaml\n# my/slidegate/kustomization.yaml.*?```").FindString(page)
	rules, err := os.ReadFile("../../deploy/kubernetes/shared/rules/rules.yaml")
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "my", "slidegate"), 0o755)
	}
	for name, text := range map[string]string{"kustomization.yaml": strings.Trim(mine, "`yaml"), "rules.yaml": string(rules)} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "my", "slidegate", name), []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	const start = "kubectl create namespace slidegate; kubectl apply -n slidegate -k deploy/kubernetes/try\n" +
		"kubectl wait -n slidegate --for=condition=Available deployment --all --timeout=3m\n"
	// Each pod gets requests, so that there is something to see.
	const ask = "kubectl port-forward -n slidegate service/envoy 10000\nfor i in $(seq 30); do curl -s localhost:10000/; done\n"
	const counts = "    100 200\n      1 429\n"
	for _, tc := range []struct{ section, before, after, want string }{
		{section: "# Kubernetes", want: counts},
		{section: "## Shared service"},
		{section: "## Redis"},
		{section: "## Sidecar", want: counts},
		{section: "## Helm", after: loop(page), want: counts},
		{section: "## What do I watch?", before: start + ask, want: "nodes decide"},
		{section: "## How do I change rules, upgrade and go back?", before: start},
	} {
		t.Run(strings.Trim(tc.section, "# ?"), func(t *testing.T) {
			script := background(tc.before + commands(page, tc.section) + tc.after)
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+script)
			// rls refuses variables that it does not know.
			cmd.Dir, cmd.Env = dir, append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLIDEGATE_") }),
				"PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			t.Logf("%s\n%s", script, out)
			if err != nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v; want %q", err, tc.want)
			}
			for _, name := range []string{"slidegate", "app", "limits"} {
				if out, err := exec.Command("kubectl", "delete", "namespace", name, "--ignore-not-found", "--timeout=180s").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}

// commands returns the commands of a section.
func commands(page, section string) string {
	_, text, _ := strings.Cut(page, section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var all strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all.WriteString(block[1])
	}
	return strings.ReplaceAll(all.String(), "rls:VERSION", "rls:next")
}

// background returns a script whose forwarded ports are in the background, because on the page each has
// a terminal of its own. The script goes on when the last port of the line is open.
func background(script string) string {
	const open = `timeout 60 bash -c 'until (exec 3<>/dev/tcp/127.0.0.1/$2) 2>/dev/null; do sleep 0.1; done'`
	return regexp.MustCompile(`(?m)^(kubectl port-forward .* (\d+))$`).ReplaceAllString(script, "$1 >/dev/null &\n"+open)
}

// loop returns the lines that wait for the application and ask until a request is denied.
func loop(page string) string {
	return regexp.MustCompile(`(?m)^curl .*--retry .*\nfor i in .*\n`).FindString(page)
}
