package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// The tests of this file look at deploy/kubernetes/shared and its components.

const sharedDir = "../../deploy/kubernetes/"

// writeOverlay writes a kustomization and its other files into a folder of its own, and returns the
// folder.
// DEPLOY stands for deploy/kubernetes.
func writeOverlay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	deploy, err := filepath.Abs(sharedDir)
	if err == nil {
		// kustomize refuses absolute paths.
		deploy, err = filepath.Rel(dir, deploy)
	}
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DEPLOY", deploy)), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSharedNeedsRedis applies the service without its Secret. Several pods without a common Redis
// would each admit the whole limit, so none starts, and the events say why.
func TestSharedNeedsRedis(t *testing.T) {
	n := newNamespace(t)
	n.kustomize(sharedDir + "shared")
	n.eventually(func() error {
		events := n.kubectl("get", "events", "--field-selector=reason=FailedMount", "--output=jsonpath={.items[*].message}")
		if !strings.Contains(events, `secret "slidegate-redis" not found`) {
			return fmt.Errorf("the events are %q", events)
		}
		return nil
	})
	if ready := n.kubectl("get", "deployment", "slidegate", "--output=jsonpath={.status.readyReplicas}"); ready != "" {
		t.Errorf("%s pods are ready without Redis, want none", ready)
	}
}

// TestShared sends more requests than a limit has, at the same time, to three pods.
func TestShared(t *testing.T) {
	n, url := newShared(t)
	admin := n.forward("deployment/envoy", 9901)
	n.eventually(func() error { return n.known(admin) })
	const requests = whenLimit + 60
	var (
		mu      sync.Mutex
		answers []answer
		callers sync.WaitGroup
	)
	started := time.Now()
	for range 10 {
		callers.Go(func() {
			for range requests / 10 {
				a := answer{sent: time.Now()}
				a.status, a.header, a.err = get(t.Context(), url, whenKey)
				a.received = time.Now()
				mu.Lock()
				answers = append(answers, a)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	o := outcomeOf(answers, whenWindow)
	if took := time.Since(started); took > whenWindow {
		t.Fatalf("%d requests took %v, longer than the window: the machine is too slow for this test", requests, took)
	}
	if o.failed > 0 || o.undecided > 0 || o.admitted != whenLimit || o.denied != requests-whenLimit {
		t.Errorf("got %v; want %d admitted and %d denied", o, whenLimit, requests-whenLimit)
	}
	var shares []string
	for _, pod := range n.pods(whenPods) {
		decided := n.value(pod, `slidegate_decisions_total\{.*\}`)
		if decided == 0 {
			t.Errorf("the pod %s has decided nothing", pod)
		}
		shares = append(shares, fmt.Sprint(decided))
		n.checkServer(pod)
	}
	t.Logf("figure: shared: %d of %d requests admitted; decisions of the pods: %s", o.admitted, len(answers), strings.Join(shares, ", "))
}

// known returns an error if Envoy, which has an admin URL, has not found all pods of rls. It asks DNS
// every few seconds.
func (n *namespace) known(admin string) error {
	n.t.Helper()
	clusters, err := body(n.t.Context(), admin+"/clusters")
	if err != nil {
		return err
	}
	for _, pod := range n.pods(whenPods) {
		if address := n.ip(pod) + ":8081"; !strings.Contains(clusters, "rls::"+address+"::") {
			return fmt.Errorf("Envoy does not know %s: %s", address, clusters)
		}
	}
	return nil
}

// value returns the sum of the metrics of a pod whose name and labels match a regular expression.
func (n *namespace) value(pod, name string) int {
	n.t.Helper()
	text, err := n.metrics(pod)
	if err != nil {
		n.t.Fatal(err)
	}
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^`+name+` (\d+)$`).FindAllStringSubmatch(text, -1) {
		v, err := strconv.Atoi(m[1])
		if err != nil {
			n.t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// checkServer looks at the process of rls and at its ports.
func (n *namespace) checkServer(pod string) {
	n.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", n.process(pod, "/rls"))
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65532\t65532\t", "Gid:\t65532\t65532\t", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !bytes.Contains(status, []byte(want)) {
			n.t.Errorf("the process of %s has no %q:\n%s", pod, want, status)
		}
	}
	mounts, err := os.ReadFile(proc + "mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	if root := regexp.MustCompile(`(?m)^\d+ \d+ \S+ / / (\S+) `).FindSubmatch(mounts); root == nil || !strings.HasPrefix(string(root[1])+",", "ro,") {
		n.t.Errorf("the root of %s is not read-only: %q", pod, root)
	}
	environ, err := os.ReadFile(proc + "environ")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, want := range []string{"GOMEMLIMIT=256000000", "GOMAXPROCS=2"} { // of 256 MiB, and of 2 CPUs
		if !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+want+"\x00")) {
			n.t.Errorf("the environment of %s has no %s", pod, want)
		}
	}
	ip := n.ip(pod)
	if status, _, err := get(n.t.Context(), "http://"+ip+":8080/readyz"); err != nil || status != http.StatusOK {
		n.t.Errorf("/readyz of %s: got %d, %v, want 200", pod, status, err)
	}
	n.closed(ip + ":6070")
}

func (n *namespace) ip(pod string) string {
	n.t.Helper()
	return n.kubectl("get", "pod", pod, "--output=jsonpath={.status.podIP}")
}

// closed checks that no process listens on an address.
func (n *namespace) closed(address string) {
	n.t.Helper()
	if c, err := net.DialTimeout("tcp", address, 5*time.Second); err == nil {
		n.t.Errorf("%s accepts connections", address)
		_ = c.Close() // the test has failed
	}
}

// TestSharedScales changes the number of pods under load. No call is lost, and the pods learn how many
// they are.
func TestSharedScales(t *testing.T) {
	n, url := newShared(t)
	tr := newTraffic(t, 4, url, whenKey)
	tr.during(2 * time.Second)
	for _, replicas := range []int{5, 2, 3} {
		started := time.Now()
		n.kubectl("scale", "deployment/slidegate", fmt.Sprint("--replicas=", replicas))
		n.rollout("deployment/slidegate")
		rolled := time.Since(started)
		n.eventually(func() error {
			pods := n.pods(whenPods)
			if len(pods) != replicas {
				return fmt.Errorf("there are the pods %v", pods)
			}
			for _, pod := range pods {
				if v := n.value(pod, "slidegate_store_replicas"); v != replicas {
					return fmt.Errorf("the pod %s counts %d instances, want %d", pod, v, replicas)
				}
			}
			return nil
		})
		t.Logf("figure: scaled to %d pods: ready after %.0f s, every pod counts %d after %.0f s", replicas, rolled.Seconds(), replicas, time.Since(started).Seconds())
	}
	tr.during(2 * time.Second)
	o := outcomeOf(tr.stop(), whenWindow)
	o.never(t)
	t.Logf("figure: scaled from 3 to 5, 2 and 3 pods: %v", o)
}

// TestSharedComponents applies the components that need no other program in the cluster, and
// components/monitoring without the objects of the Prometheus operator. This node does not enforce
// policies and has no metrics, so it shows only that the API server accepts them, and what the
// autoscaler does without metrics.
func TestSharedComponents(t *testing.T) {
	n := newNamespace(t)
	n.kustomize(writeOverlay(t, map[string]string{"kustomization.yaml": `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [DEPLOY/redis, DEPLOY/shared]
components: [DEPLOY/shared/components/autoscaling, DEPLOY/shared/components/network-policy, DEPLOY/shared/components/monitoring]
patches:
- patch: '{apiVersion: monitoring.coreos.com/v1, kind: PodMonitor, metadata: {name: slidegate}, $patch: delete}'
- patch: '{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {name: slidegate}, $patch: delete}'
`}))
	// The Deployment has no number of pods, so it begins with one. The autoscaler makes it the least number.
	started := time.Now()
	n.eventually(func() error {
		if ready := n.kubectl("get", "deployment", "slidegate", "--output=jsonpath={.status.readyReplicas}"); ready != "3" {
			return fmt.Errorf("%q pods are ready, want 3", ready)
		}
		return nil
	})
	t.Logf("figure: autoscaler: 3 pods are ready after %.0f s", time.Since(started).Seconds())
	pod := n.pods(whenPods)[0]
	ip := n.ip(pod)
	if text, err := body(t.Context(), "http://"+ip+":9102/metrics"); err != nil || !strings.Contains(text, "\nslidegate_build_info{") {
		t.Errorf("/metrics of %s: got %.200q, %v", pod, text, err)
	}
	for _, path := range []string{"/", "/rlconfig", "/debug/pprof/", "/v1/tiers/lookup"} {
		if status, _, err := get(t.Context(), "http://"+ip+":9102"+path); err != nil || status != http.StatusNotFound {
			t.Errorf("%s of the port of metrics: got %d, %v, want 404", path, status, err)
		}
	}
	n.closed(ip + ":6070")
	if policies := n.kubectl("get", "networkpolicy", "slidegate", "--output=jsonpath={.spec.policyTypes}"); policies != `["Ingress","Egress"]` {
		t.Errorf("the policy has the types %s", policies)
	}
}

// A party is one of the two sides of TLS, with its Secret.
type party struct{ secret, name string }

var (
	service = party{"slidegate-tls", "slidegate"}
	client  = party{"slidegate-client-tls", "slidegate-client"}
)

// issue makes a certificate of a party, and the Secret with it in the shape of cert-manager.
func (n *namespace) issue(a *servers.Authority, p party) (tls.Certificate, string) {
	n.t.Helper()
	cert, key, err := a.Issue(p.name)
	if err != nil {
		n.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		n.t.Fatal(err)
	}
	caFile, _, _ := a.ServerFiles()
	ca, err := os.ReadFile(caFile)
	if err != nil {
		n.t.Fatal(err)
	}
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": p.secret},
		"stringData": map[string]string{"tls.crt": string(cert), "tls.key": string(key), "ca.crt": string(ca)},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.apply(string(secret))
	return pair, pair.Leaf.SerialNumber.Text(16)
}

// tlsOverlay returns the files of an overlay with components/tls, and an Envoy as its files say.
func tlsOverlay(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for name, path := range map[string]string{
		"envoy.yaml": "try/envoy/envoy.yaml", "cluster": "shared/components/tls/envoy-cluster.yaml",
		"envoy-certificate.yaml": "shared/components/tls/envoy-certificate.yaml",
		"envoy-authority.yaml":   "shared/components/tls/envoy-authority.yaml",
	} {
		text := tree.Text(t, sharedDir+path)
		files[name] = text
	}
	const cluster = "  - name: rls\n"
	indented := strings.ReplaceAll("\n"+strings.TrimSpace(files["cluster"]), "\n", "\n    ")
	files["envoy.yaml"] = strings.Replace(files["envoy.yaml"], cluster, cluster+indented[1:]+"\n", 1)
	files["envoy.yaml"] = strings.Replace(files["envoy.yaml"], "timeout: 0.05s", "timeout: 2s", 1)
	delete(files, "cluster")
	files["envoy-deployment.yaml"] = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: envoy}
spec:
  template:
    spec:
      securityContext: {fsGroup: 101}
      containers:
      - name: envoy
        volumeMounts: [{name: tls, mountPath: /etc/envoy-tls, readOnly: true}]
      volumes: [{name: tls, secret: {secretName: slidegate-client-tls, defaultMode: 0440}}]
`
	files["rules.yaml"], files["settings.yaml"] = whenRules(strconv.Itoa(whenLimit)), whenSettings
	files["kustomization.yaml"] = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [DEPLOY/try]
components: [DEPLOY/shared/components/tls]
configMapGenerator: [{name: envoy, behavior: replace, files: [envoy.yaml, envoy-certificate.yaml, envoy-authority.yaml]}]
patches: [{path: envoy-deployment.yaml}, {path: rules.yaml}, {path: settings.yaml}]
`
	return files
}

// TestSharedTLS replaces the certificates of rls and Envoy while requests go through both.
func TestSharedTLS(t *testing.T) {
	n := newNamespace(t)
	authority := servers.NewAuthority(t)
	n.issue(authority, service)
	envoys, _ := n.issue(authority, client)
	n.kustomize(writeOverlay(t, tlsOverlay(t)))
	for _, name := range []string{"statefulset/redis", "deployment/slidegate", "deployment/app", "deployment/envoy"} {
		n.rollout(name)
	}
	url := fmt.Sprintf("http://envoy.%s:10000/", n.name)
	n.eventually(func() error {
		status, header, err := get(t.Context(), url, whenKey)
		if err == nil && (status != http.StatusOK || header.Get("Ratelimit") == "") {
			err = fmt.Errorf("got %d, %v", status, header)
		}
		return err
	})
	n.checkClients(authority, envoys)

	tr := newTraffic(t, 4, url, whenKey)
	tr.during(5 * time.Second)
	started := time.Now()
	_, serial := n.issue(authority, service)
	n.eventually(func() error { return n.present(authority, envoys, serial) })
	t.Logf("figure: certificate of rls replaced: every pod presents it after %.0f s", time.Since(started).Seconds())

	started = time.Now()
	_, serial = n.issue(authority, client)
	admin := n.forward("deployment/envoy", 9901)
	n.eventually(func() error {
		certs, err := body(t.Context(), admin+"/certs")
		if err == nil && !strings.Contains(certs, serial) {
			err = fmt.Errorf("Envoy has not the certificate %s: %s", serial, certs)
		}
		return err
	})
	t.Logf("figure: certificate of Envoy replaced: Envoy has it after %.0f s", time.Since(started).Seconds())

	// New connections between the new certificates.
	n.kubectl("rollout", "restart", "deployment/slidegate")
	n.kubectl("rollout", "status", "deployment/slidegate", "--timeout=5m")
	n.eventually(func() error { return n.present(authority, envoys, "") })
	tr.during(25 * time.Second) // the drain of the last old pod
	o := outcomeOf(tr.stop(), whenWindow)
	o.never(t)
	t.Logf("figure: both certificates replaced, then all pods of rls: %v", o)
}

// checkClients calls a pod with several certificates. Only that of Envoy may call. The port without TLS
// is off.
func (n *namespace) checkClients(a *servers.Authority, envoys tls.Certificate) {
	n.t.Helper()
	others, _ := n.issue(a, party{"other-tls", "other"})
	ip := n.ip(n.pods(whenPods)[0])
	for _, tc := range []struct {
		name         string
		certificates []tls.Certificate
		accepted     bool
	}{
		{"with the certificate of Envoy", []tls.Certificate{envoys}, true},
		{"without a certificate", nil, false},
		{"with another certificate of the authority", []tls.Certificate{others}, false},
	} {
		_, err := n.call(a, ip, tc.certificates...)
		if (err == nil) != tc.accepted {
			n.t.Errorf("a client %s: got %v, want it accepted: %v", tc.name, err, tc.accepted)
		}
		n.t.Logf("figure: a client %s: %v", tc.name, err)
	}
	n.closed(ip + ":8080")
}

// call opens a connection of gRPC to a pod, and returns the serial number of the pod's certificate. The
// pod refuses a client only after the client's part of the handshake, so call waits for its first frame.
func (n *namespace) call(a *servers.Authority, ip string, certificates ...tls.Certificate) (serial string, err error) {
	config, err := a.ClientConfig()
	if err != nil {
		return "", err
	}
	config.Certificates, config.ServerName, config.NextProtos = certificates, service.name, []string{"h2"}
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", ip+":8081")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return "", err
	}
	if _, err := conn.Read(make([]byte, 9)); err != nil {
		return "", err
	}
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Text(16), nil
}

// present returns an error if a pod presents another certificate than that with a serial number; any if
// it is empty.
func (n *namespace) present(a *servers.Authority, certificate tls.Certificate, serial string) error {
	for _, pod := range n.pods(whenPods) {
		got, err := n.call(a, n.ip(pod), certificate)
		if err == nil && serial != "" && got != serial {
			err = fmt.Errorf("the pod %s presents the certificate %s, want %s", pod, got, serial)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
