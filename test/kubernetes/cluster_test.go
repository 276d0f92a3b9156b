package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// envNode is set on the node: its value is not used.
	envNode = "NODE_DIR"
	// patience is how long a test waits for what a controller, the kubelet or a pod does.
	patience = 2 * time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(envNode) == "" {
		fmt.Println("kubernetes: the tests on a node do not run here; run make k8s-test")
		return
	}
	os.Exit(m.Run())
}

// A namespace is one of the cluster, with what a test makes in it.
type namespace struct {
	t    *testing.T
	name string
	// forwarded has the URL of the admin port of each pod that a test has asked.
	forwarded map[string]string
}

// newNamespace makes a namespace for the time of the test. If the test fails, it prints its pods.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t, name: fmt.Sprintf("test-%x", time.Now().UnixNano())}
	n.kubectl("create", "namespace", n.name)
	t.Cleanup(func() {
		if t.Failed() {
			n.describe()
		}
		if out, err := n.command(context.Background(), "delete", "namespace", n.name, "--timeout=120s").CombinedOutput(); err != nil {
			t.Errorf("removing the namespace: %v\n%s", err, out)
		}
	})
	// The controller makes the account that pods need.
	n.eventually(func() error { return n.try("get", "serviceaccount", "default") })
	return n
}

func (n *namespace) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "kubectl", append([]string{"--namespace", n.name}, args...)...)
}

// try runs kubectl and returns its output in the error.
func (n *namespace) try(args ...string) error {
	if out, err := n.command(n.t.Context(), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// kubectl runs kubectl and returns what it prints, without the spaces around.
func (n *namespace) kubectl(args ...string) string {
	n.t.Helper()
	return n.with("", args...)
}

// with runs kubectl with a standard input.
func (n *namespace) with(input string, args ...string) string {
	n.t.Helper()
	cmd := n.command(n.t.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// apply applies manifests.
func (n *namespace) apply(manifests string) {
	n.t.Helper()
	n.with(manifests, "apply", "--filename", "-")
}

// kustomize applies a folder of manifests, relative to that of the test.
func (n *namespace) kustomize(dir string) {
	n.t.Helper()
	n.kubectl("apply", "--kustomize", dir)
}

// rollout waits until a Deployment, StatefulSet or DaemonSet has all its pods: deployment/app.
func (n *namespace) rollout(name string) {
	n.t.Helper()
	n.kubectl("rollout", "status", name, "--timeout="+patience.String())
}

// pods returns the names of the pods that a selector finds and that are not being deleted.
func (n *namespace) pods(selector string) []string {
	n.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				DeletionTimestamp string
			}
		}
	}
	if err := json.Unmarshal([]byte(n.kubectl("get", "pods", "--selector", selector, "--output", "json")), &list); err != nil {
		n.t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		if item.Metadata.DeletionTimestamp == "" {
			names = append(names, item.Metadata.Name)
		}
	}
	return names
}

// eventually calls f until it returns nil.
func (n *namespace) eventually(f func() error) {
	n.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("not within %v: %v", patience, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// describe prints what an operator would look at.
func (n *namespace) describe() {
	for _, args := range [][]string{
		{"get", "pods,services,endpointslices", "--output", "wide"},
		{"get", "events", "--sort-by=.lastTimestamp"},
	} {
		out, _ := n.command(context.Background(), args...).CombinedOutput()
		n.t.Logf("kubectl %s:\n%s", strings.Join(args, " "), out)
	}
	names, _ := n.command(context.Background(), "get", "pods", "--output", "name").Output()
	for _, name := range strings.Fields(string(names)) {
		out, _ := n.command(context.Background(), "logs", name, "--all-containers", "--tail=15", "--prefix").CombinedOutput()
		n.t.Logf("kubectl logs %s:\n%s", name, out)
	}
}

// get asks for a URL with headers ("name: value") and returns the status and the headers of the
// answer. Each request has a connection of its own.
func get(ctx context.Context, url string, headers ...string) (int, http.Header, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	return getWith(ctx, client, url, headers...)
}

// getWith is get with a client of the caller.
func getWith(ctx context.Context, client *http.Client, url string, headers ...string) (int, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	return res.StatusCode, res.Header, err
}

// A load counts the answers to requests that it sends one after the other.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	counts map[string]int // by status, or by error
}

// newLoad sends requests to a URL, one every 20 ms from each of n callers, until stop.
func newLoad(t *testing.T, n int, url string, headers ...string) *load {
	t.Helper()
	return newLoadBy(t, n, url, func(status int, _ http.Header) string { return fmt.Sprint(status) }, headers...)
}

// newLoadBy is newLoad with other names for the answers.
func newLoadBy(t *testing.T, n int, url string, name func(int, http.Header) string, headers ...string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, counts: make(map[string]int)}
	t.Cleanup(func() { l.stop() })
	for range n {
		l.done.Go(func() {
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				status, answer, err := get(ctx, url, headers...)
				if ctx.Err() != nil {
					return
				}
				key := name(status, answer)
				if err != nil {
					key = err.Error()
				}
				l.mu.Lock()
				l.counts[key]++
				l.mu.Unlock()
				<-pace.C
			}
		})
	}
	return l
}

// stop ends the requests and returns the counts. A second time is harmless.
func (l *load) stop() map[string]int {
	l.cancel()
	l.done.Wait()
	return l.counts
}
