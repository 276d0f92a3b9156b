package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/test/process"
)

const (
	// The user of the pod, as Envoy Gateway says.
	podUser = 65534

	grpcPort    = "8081"
	httpPort    = "8080"
	debugPort   = "6070"
	metricsPort = "19001"
)

// environment returns the variables that Envoy Gateway sets in the pod of its rate-limit service. They
// are in Envoy Gateway's own test of the Deployment. Only the port of Redis is another one.
func environment(t *testing.T, redis string) []string {
	t.Helper()
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Command []string
						Env     []struct{ Name, Value string }
					}
				}
			}
		}
	}
	text, err := os.ReadFile(program("default.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &deployment)
	}
	if err != nil {
		t.Fatalf("gateway: %v", err)
	}
	containers := deployment.Spec.Template.Spec.Containers
	if len(containers) != 1 || !slices.Equal(containers[0].Command, []string{"/bin/ratelimit"}) {
		t.Fatalf("gateway: the Deployment has changed: %v", containers)
	}
	var env []string
	for _, v := range containers[0].Env {
		if v.Name == "REDIS_URL" {
			v.Value = redis
		}
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

// A pod is the pod of the rate-limit service: rls in its own root folder and its own network.
type pod struct {
	t       *testing.T
	network *network
	root    string // as the test sees it, with write access
	env     []string
	process *process.Process
	client  *http.Client
}

// newPod makes a pod that does not run yet. redis is host:port.
func newPod(t *testing.T, redis string) *pod {
	t.Helper()
	// Envoy Gateway mounts this file from a ConfigMap.
	mapper, err := os.ReadFile(program("statsd_conf.yaml"))
	if err != nil {
		t.Fatalf("gateway: %v", err)
	}
	p := &pod{t: t, network: newNetwork(t), root: t.TempDir(), env: environment(t, redis)}
	for path, text := range map[string][]byte{
		"etc/hosts":                     []byte(hosts),
		"etc/statsd-exporter/conf.yaml": mapper,
	} {
		p.write(path, text, 0o644)
	}
	binary, err := os.ReadFile(os.Getenv(envService))
	if err != nil {
		t.Fatalf("gateway: %v", err)
	}
	p.write("bin/ratelimit", binary, 0o755)
	for _, dir := range []string{"certs", "proc"} {
		if err := os.MkdirAll(filepath.Join(p.root, dir), 0o755); err != nil {
			t.Fatalf("gateway: %v", err)
		}
	}
	p.client = &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}, Timeout: process.Timeout}
	return p
}

func (p *pod) write(path string, data []byte, mode os.FileMode) {
	p.t.Helper()
	path = filepath.Join(p.root, path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, data, mode)
	}
	if err != nil {
		p.t.Fatalf("gateway: %v", err)
	}
}

// start starts /bin/ratelimit and waits until the probe of Envoy Gateway succeeds.
func (p *pod) start() {
	p.t.Helper()
	view := p.readOnly()
	cmd := &exec.Cmd{
		Path: "/bin/ratelimit", Args: []string{"/bin/ratelimit"}, Dir: "/", Env: p.env,
		SysProcAttr: &syscall.SysProcAttr{
			Chroot:     view,
			Credential: &syscall.Credential{Uid: podUser, Gid: podUser, NoSetGroups: false},
		},
	}
	var err error
	p.network.do(func() { p.process, err = process.Start("ratelimit", cmd) })
	if err != nil {
		p.t.Fatalf("gateway: %v", err)
	}
	p.t.Cleanup(p.process.Kill)
	p.wait(p.healthy)
}

// readOnly returns a view of the root folder that nothing can write to.
func (p *pod) readOnly() string {
	p.t.Helper()
	view := p.t.TempDir()
	for _, mount := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{p.root, view, "", syscall.MS_BIND},
		{"proc", filepath.Join(view, "proc"), "proc", 0},
		{"", view, "", syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY},
	} {
		if err := syscall.Mount(mount.from, mount.to, mount.kind, mount.flags, ""); err != nil {
			p.t.Fatalf("gateway: mounting %s: %v", mount.to, err)
		}
	}
	p.t.Cleanup(func() {
		for _, dir := range []string{filepath.Join(view, "proc"), view} {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				p.t.Errorf("gateway: unmounting %s: %v", dir, err)
			}
		}
	})
	return view
}

// mountCertificates replaces the files of /certs at once, as Kubernetes updates a mounted secret:
// each name is a link into a folder ..data, which is a link that a rename replaces.
func mountCertificates(t *testing.T, certs string, files map[string][]byte) {
	t.Helper()
	version := filepath.Join(certs, "..version-"+rand.Text())
	err := os.Mkdir(version, 0o755)
	for name, data := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(version, name), data, 0o644))
	}
	next := filepath.Join(certs, "..data_tmp")
	err = errors.Join(err, os.Symlink(filepath.Base(version), next))
	old, _ := os.Readlink(filepath.Join(certs, "..data")) // the first time there is none
	err = errors.Join(err, os.Rename(next, filepath.Join(certs, "..data")))
	for name := range files {
		if link := filepath.Join(certs, name); old == "" {
			err = errors.Join(err, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	if old != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Join(certs, old)))
	}
	if err != nil {
		t.Fatalf("gateway: the files of /certs: %v", err)
	}
}

// dial connects to a port of the pod from inside of it, as `kubectl port-forward` does.
func (p *pod) dial(ctx context.Context, _, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	p.network.do(func() { conn, err = new(net.Dialer).DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port)) })
	return conn, err
}

// get asks one of the HTTP ports of the pod.
func (p *pod) get(port, path string) (string, error) {
	resp, err := p.client.Get("http://localhost:" + port + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := io.Copy(&body, resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", path, resp.Status, &body)
	}
	return body.String(), nil
}

// healthy asks what the probes of the pod ask.
func (p *pod) healthy() error {
	_, err := p.get(httpPort, "/healthcheck")
	return err
}

// rules returns the rules that rls uses, as egctl prints them.
func (p *pod) rules() []string {
	p.t.Helper()
	text, err := p.get(debugPort, "/rlconfig")
	if err != nil {
		p.t.Fatalf("gateway: %v", err)
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// metric returns the value of a series that Prometheus reads from the pod, empty if there is none.
func (p *pod) metric(series string) string {
	p.t.Helper()
	text, err := p.get(metricsPort, "/metrics")
	if err != nil {
		p.t.Fatalf("gateway: %v", err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}

// remaining asks, without using any of it, what remains of the limit of a user.
func (p *pod) remaining(user string) (int, error) {
	body := fmt.Sprintf(`{"domain": %q, "descriptors": [{"hitsAddend": "0", "entries": [{"key": %q, "value": %[2]q}, {"key": "rule-0-match-0", "value": %q}]}]}`,
		domain, route, user)
	resp, err := p.client.Post("http://localhost:"+httpPort+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	var answer rlsv3.RateLimitResponse
	if err := protojson.Unmarshal(text, &answer); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", resp.Status, err, text)
	}
	if len(answer.GetStatuses()) != 1 || answer.GetStatuses()[0].GetCurrentLimit() == nil {
		return 0, fmt.Errorf("no limit: %s", text)
	}
	return int(answer.GetStatuses()[0].GetLimitRemaining()), nil
}

// wait waits until ready returns nil.
func (p *pod) wait(ready func() error) {
	p.t.Helper()
	wait(p.t, p.process, ready)
}

// certificate returns the certificate that the gRPC port presents.
func (p *pod) certificate() (*x509.Certificate, error) {
	conn, err := p.dial(p.t.Context(), "tcp", net.JoinHostPort("", grpcPort))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// The test compares the certificate itself.
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := c.HandshakeContext(p.t.Context()); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0], nil
}
