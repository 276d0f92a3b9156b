package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/tree"
)

const (
	sidecarFolder  = "../../deploy/kubernetes/sidecar"
	sidecarExample = sidecarFolder + "/example"
	applicationPod = "app.kubernetes.io/name=app"
	// free has a limit of 100 a minute in each pod, pro one that no test reaches.
	free = "x-api-key: demo-free"
	pro  = "x-api-key: demo-pro"
)

// TestSidecar asks the example: each pod has the limit, and its containers have no rights that they
// do not need.
func TestSidecar(t *testing.T) {
	n := newNamespace(t)
	n.kustomize(sidecarExample)
	n.rollout("deployment/app")
	pods := n.pods(applicationPod)
	if len(pods) != 2 {
		t.Fatalf("got the pods %v, want 2", pods)
	}
	for _, pod := range pods {
		if got := n.ask(n.address(pod), 130, free); got["200"] != 100 || got["429"] != 30 {
			t.Errorf("pod %s: 130 requests of one key got %v, want 100 of 200 and 30 of 429", pod, got)
		}
		n.checkSidecars(pod)
	}
	if got := n.ask("http://app."+n.name, 20, free); got["429"] != 20 {
		t.Errorf("the Service answered %v after the limit of both pods, want 20 of 429", got)
	}
	if out := n.kubectl("logs", pods[0], "--container", "rls"); !strings.Contains(out, `"rules active"`) {
		t.Errorf("the log of rls has no rules:\n%s", out)
	}
}

// ask sends requests one after the other and returns how many got which status.
func (n *namespace) ask(url string, count int, headers ...string) map[string]int {
	n.t.Helper()
	counts := make(map[string]int)
	for range count {
		status, _, err := get(n.t.Context(), url, headers...)
		if err != nil {
			n.t.Fatal(err)
		}
		counts[strconv.Itoa(status)]++
	}
	return counts
}

// address returns the URL of Envoy in a pod.
func (n *namespace) address(pod string) string {
	n.t.Helper()
	return "http://" + n.kubectl("get", "pod", pod, "--output", "jsonpath={.status.podIP}") + ":10000"
}

// A container is a running container of a pod.
type container struct {
	ready    bool
	restarts int
	reason   string // why it ended the last time: OOMKilled
	waiting  string // why it does not run: CrashLoopBackOff
	pid      int    // 0: it does not run
}

// containers returns the containers of a pod by name.
func (n *namespace) containers(pod string) map[string]container {
	n.t.Helper()
	type status struct {
		Name, ContainerID string
		Ready             bool
		RestartCount      int
		State             struct{ Waiting struct{ Reason string } }
		LastState         struct{ Terminated struct{ Reason string } }
	}
	var p struct {
		Status struct{ ContainerStatuses, InitContainerStatuses []status }
	}
	if err := json.Unmarshal([]byte(n.kubectl("get", "pod", pod, "--output", "json")), &p); err != nil {
		n.t.Fatal(err)
	}
	out, err := exec.CommandContext(n.t.Context(), "ctr", "--namespace", "k8s.io", "tasks", "list").Output()
	if err != nil {
		n.t.Fatalf("ctr: %v", err)
	}
	pids := make(map[string]int)
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "RUNNING" {
			pids[f[0]], _ = strconv.Atoi(f[1])
		}
	}
	all := make(map[string]container)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		all[s.Name] = container{
			ready: s.Ready, restarts: s.RestartCount, reason: s.LastState.Terminated.Reason,
			waiting: s.State.Waiting.Reason, pid: pids[strings.TrimPrefix(s.ContainerID, "containerd://")],
		}
	}
	return all
}

// checkSidecars reads from the kernel what the containers of a pod may do.
func (n *namespace) checkSidecars(pod string) {
	n.t.Helper()
	t, all := n.t, n.containers(pod)
	for name, want := range map[string]string{"rls": "65532:65532", "envoy": "101:65532", "app": "65532:65532"} {
		pid := all[name].pid
		status := procFields(t, pid, "status")
		got := strings.Fields(status["Uid"])[0] + ":" + strings.Fields(status["Gid"])[0]
		if got != want {
			t.Errorf("%s runs as %s, want %s", name, got, want)
		}
		for field, want := range map[string]string{"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"} {
			if status[field] != want {
				t.Errorf("%s: %s is %s, want %s", name, field, status[field], want)
			}
		}
		if options := mountOptions(t, pid, "/"); !strings.HasPrefix(options, "ro,") {
			t.Errorf("%s: the root is mounted %s, want read-only", name, options)
		}
	}
	socket, err := os.Lstat(fmt.Sprintf("/proc/%d/root/run/rls/grpc.sock", all["envoy"].pid))
	if err != nil {
		t.Fatal(err)
	}
	owner := socket.Sys().(*syscall.Stat_t)
	if got, want := fmt.Sprintf("%v %d:%d", socket.Mode(), owner.Uid, owner.Gid), "Srw-rw---- 65532:65532"; got != want {
		t.Errorf("the socket is %s, want %s", got, want)
	}
	if options := mountOptions(t, all["envoy"].pid, "/run/rls"); !strings.HasPrefix(options, "ro,") {
		t.Errorf("envoy: /run/rls is mounted %s, want read-only", options)
	}
	if _, err := os.Lstat(fmt.Sprintf("/proc/%d/root/run/rls", all["app"].pid)); err == nil {
		t.Error("the application has /run/rls")
	}
	environ := tree.Text(t, fmt.Sprintf("/proc/%d/environ", all["rls"].pid))
	// Of a limit of 201,326,592 bytes and 1 CPU, and a request of 64 MiB.
	for _, want := range []string{"GOMEMLIMIT=192000000", "GOMAXPROCS=1", "SLIDEGATE_STORE_MEMORY_MAX_BYTES=67108864", "SLIDEGATE_HTTP_ADDRESS="} {
		if !slices.Contains(strings.Split(environ, "\x00"), want) {
			t.Errorf("the environment of rls has no %s:\n%s", want, strings.ReplaceAll(environ, "\x00", "\n"))
		}
	}
}

// procFields reads "name: value" lines of a file of a process.
func procFields(t *testing.T, pid int, file string) map[string]string {
	t.Helper()
	data := tree.Text(t, fmt.Sprintf("/proc/%d/%s", pid, file))
	fields := make(map[string]string)
	for line := range strings.Lines(data) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

// mountOptions returns the options of a mount that a process sees.
func mountOptions(t *testing.T, pid int, path string) string {
	t.Helper()
	data := tree.Text(t, fmt.Sprintf("/proc/%d/mountinfo", pid))
	for line := range strings.Lines(data) {
		if f := strings.Fields(line); len(f) > 5 && f[4] == path {
			return f[5]
		}
	}
	t.Fatalf("process %d has no mount at %s", pid, path)
	return ""
}

// overlay applies the example with more lines in its kustomization.
func (n *namespace) overlay(lines string) {
	n.t.Helper()
	n.kustomize(kustomization(n.t, "resources: [SIDECAR/example]\n"+lines))
}

// kustomization makes a folder with a kustomization. SIDECAR stands for the folder of the sidecar.
func kustomization(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	base, err := filepath.Abs(sidecarFolder)
	if err == nil {
		// Kustomize refuses absolute paths.
		base, err = filepath.Rel(dir, base)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(strings.ReplaceAll(text, "SIDECAR", base)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSidecarHook gives the component an application that has hooks: they are never lost.
func TestSidecarHook(t *testing.T) {
	n := newNamespace(t)
	build := func(labels string) (string, error) {
		dir := kustomization(t, "resources: [app.yaml]\ncomponents: [SIDECAR/component]\n")
		app := `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: app, labels: {slidegate-sidecar: "true"` + labels + `}}, spec: {
			template: {spec: {containers: [{name: app, lifecycle: {preStop: {exec: {command: [/wait]}}}}]}}}}`
		if err := os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(app), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := n.command(t.Context(), "kustomize", dir).CombinedOutput()
		return string(out), err
	}
	if out, err := build(""); err == nil || !strings.Contains(out, "testing value /spec/template/spec/containers/0/lifecycle failed") {
		t.Errorf("got %v and %s, want the error that the component explains", err, out)
	}
	out, err := build(", slidegate-pre-stop: own")
	if err != nil || strings.Contains(out, "sleep:") || !strings.Contains(out, "- /wait") || !strings.Contains(out, "name: rls") {
		t.Errorf("got %v and %s, want the sidecars, and the hook as it was", err, out)
	}
}

// TestSidecarRedis has one limit for all pods, with the credentials of a Secret. The subjects are in a
// Secret too.
func TestSidecarRedis(t *testing.T) {
	n := newNamespace(t)
	n.kustomize(sidecarFolder + "/../redis")
	n.rollout("statefulset/redis")
	n.overlay(`components: [SIDECAR/redis]
patches: [{target: {kind: ConfigMap, name: slidegate-tiers}, patch: '{"$patch": "delete", "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "slidegate-tiers"}}'}]
secretGenerator:
- name: slidegate-tiers
  literals: ["tiers.yaml={tiers: [free, pro], default: free, subjects: [{id: a, keys: [{plain: demo-free}]}]}"]
`)
	n.rollout("deployment/app")
	total := make(map[string]int)
	for _, pod := range n.pods(applicationPod) {
		for status, count := range n.ask(n.address(pod), 65, free) {
			total[status] += count
		}
	}
	if total["200"] != 100 || total["429"] != 30 {
		t.Errorf("130 requests to two pods got %v, want 100 of 200 and 30 of 429", total)
	}
	for _, pod := range n.pods(applicationPod) {
		n.eventually(func() error {
			if got := n.value(pod, "slidegate_store_replicas"); got != 2 {
				return fmt.Errorf("pod %s counts %d instances, want 2", pod, got)
			}
			return nil
		})
	}
}

// TestSidecarRestart replaces all pods under load. Nothing fails, and the log says what would without
// the hooks.
func TestSidecarRestart(t *testing.T) {
	remove := func(path string) string {
		return `patches: [{target: {kind: Deployment}, patch: '[{"op": "remove", "path": "/spec/template/spec/` + path + `"}]'}]` + "\n"
	}
	for _, tc := range []struct{ name, overlay string }{
		{"as shipped", ""},
		{"without the hook of Envoy", remove("initContainers/1/lifecycle")},
		{"without the hook of the application", remove("containers/0/lifecycle")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNamespace(t)
			n.overlay(tc.overlay)
			n.rollout("deployment/app")
			url := "http://app." + n.name
			n.eventually(func() error { _, _, err := get(t.Context(), url, pro); return err })
			before := n.pods(applicationPod)
			fresh, kept := newLoad(t, 3, url, pro), newKeptLoad(t, 3, url, pro)
			time.Sleep(time.Second)
			n.kubectl("rollout", "restart", "deployment/app")
			n.rollout("deployment/app")
			for _, pod := range before {
				n.kubectl("wait", "--for=delete", "pod/"+pod, "--timeout="+patience.String())
			}
			for kind, counts := range map[string]map[string]int{"new": fresh.stop(), "kept": kept.stop()} {
				failed, all := failures(counts)
				t.Logf("figure: rolling restart, %s: %d of %d requests on %s connections failed: %v", tc.name, failed, all, kind, counts)
				if tc.overlay == "" && failed > 0 {
					t.Errorf("%d requests failed, want 0", failed)
				}
			}
		})
	}
}

// failures returns how many requests of a load had another answer than 200, and how many there were.
func failures(counts map[string]int) (failed, all int) {
	for answer, count := range counts {
		all += count
		if answer != "200" {
			failed += count
		}
	}
	return failed, all
}

// newKeptLoad is like newLoad, but each caller keeps its connection, as a gateway does, and sends
// requests that a client does not repeat by itself.
func newKeptLoad(t *testing.T, n int, url string, header string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, counts: make(map[string]int)}
	t.Cleanup(func() { l.stop() })
	name, value, _ := strings.Cut(header, ": ")
	for range n {
		l.done.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
			defer client.CloseIdleConnections()
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				// Without GetBody, it cannot be sent a second time.
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, io.MultiReader(strings.NewReader("body")))
				if err != nil {
					panic(err)
				}
				req.Header.Set(name, value)
				key := ""
				if res, err := client.Do(req); err != nil {
					key = err.Error()
				} else {
					key = strconv.Itoa(res.StatusCode)
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				if ctx.Err() != nil {
					return
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

// A watch remembers the answers to requests of a key whose limit is used up.
type watch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	seen   []seen
}

type seen struct {
	at time.Time
	// limited: by rls. counted: by an rls with an empty log. open: by Envoy alone.
	// failed: no answer, or one of Envoy that nothing serves.
	what string
}

func newWatch(t *testing.T, url string) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{cancel: cancel}
	t.Cleanup(func() { w.stop() })
	w.done.Go(func() {
		for ctx.Err() == nil {
			at := time.Now()
			status, header, err := get(ctx, url, free)
			if ctx.Err() != nil {
				return
			}
			what := "failed"
			switch {
			case err == nil && status == http.StatusTooManyRequests:
				what = "limited"
			case err == nil && status == http.StatusOK && header.Get("RateLimit") != "":
				what = "counted"
			case err == nil && status == http.StatusOK:
				what = "open"
			}
			w.mu.Lock()
			w.seen = append(w.seen, seen{at, what})
			w.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
	})
	return w
}

func (w *watch) stop() {
	w.cancel()
	w.done.Wait()
}

// since describes the answers from a time on: how many of each, and from when to when.
func (w *watch) since(start time.Time) (map[string]int, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := make(map[string]int)
	first, last := make(map[string]time.Time), make(map[string]time.Time)
	for _, s := range w.seen {
		if s.at.Before(start) {
			continue
		}
		if counts[s.what]++; counts[s.what] == 1 {
			first[s.what] = s.at
		}
		last[s.what] = s.at
	}
	var text []string
	for _, what := range []string{"limited", "open", "counted", "failed"} {
		if counts[what] > 0 {
			text = append(text, fmt.Sprintf("%d %s from %.2f s to %.2f s", counts[what], what,
				first[what].Sub(start).Seconds(), last[what].Sub(start).Seconds()))
		}
	}
	return counts, strings.Join(text, ", ")
}

// TestSidecarKilled kills rls: Envoy lets requests pass until it is back, with empty logs. The Service
// does not send to the pod meanwhile.
func TestSidecarKilled(t *testing.T) {
	n := newNamespace(t)
	n.overlay("replicas: [{name: app, count: 1}]\n")
	n.rollout("deployment/app")
	pod := n.pods(applicationPod)[0]
	url := n.address(pod)
	n.ask(url, 101, free)
	direct, service := newWatch(t, url), newWatch(t, "http://app."+n.name)
	time.Sleep(2 * time.Second)
	for i := 1; i <= 2; i++ {
		start := time.Now()
		if err := syscall.Kill(n.containers(pod)["rls"].pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.back(pod, i, direct, start)
		counts, text := direct.since(start)
		t.Logf("figure: kill %d, the pod: %s", i, text)
		if counts["failed"] > 0 || counts["limited"] == 0 {
			t.Errorf("got %v, want no failed request, and the limit again", counts)
		}
		_, text = service.since(start)
		t.Logf("figure: kill %d, the Service: %s", i, text)
	}
}

// back waits until rls has been restarted, the pod is ready, and the limit holds again.
func (n *namespace) back(pod string, restarts int, w *watch, start time.Time) {
	n.t.Helper()
	n.eventually(func() error {
		if c := n.containers(pod)["rls"]; c.restarts < restarts || !c.ready {
			return fmt.Errorf("rls has had %d restarts; ready: %v; waiting: %s", c.restarts, c.ready, c.waiting)
		}
		return nil
	})
	back := time.Now()
	n.t.Logf("figure: rls was back after %.1f s", back.Sub(start).Seconds())
	n.rollout("deployment/app")
	n.eventually(func() error {
		if counts, text := w.since(back); counts["limited"] < 20 {
			return fmt.Errorf("got %s", text)
		}
		return nil
	})
}

// TestSidecarOutOfMemory takes the bounds of rls away and invents keys, until it uses more memory than
// its limit. The kernel kills it alone.
func TestSidecarOutOfMemory(t *testing.T) {
	n := newNamespace(t)
	n.overlay(`replicas: [{name: app, count: 1}]
patches:
- target: {kind: Deployment}
  patch: |-
    kind: Deployment
    apiVersion: apps/v1
    metadata: {name: any}
    spec:
      template:
        spec:
          initContainers:
          - name: rls
            env:
            - {name: GOGC, value: "off"}
            - {name: GOMEMLIMIT, value: "off"}
            - {name: SLIDEGATE_TIERS_UNKNOWN_KEY, value: each}
            - {name: SLIDEGATE_STORE_MEMORY_MAX_BYTES, value: "0", valueFrom: null}
            resources: {requests: {memory: 32Mi}, limits: {memory: 40Mi}}
`)
	n.rollout("deployment/app")
	pod := n.pods(applicationPod)[0]
	url := n.address(pod)
	n.ask(url, 101, free)
	direct, service := newWatch(t, url), newWatch(t, "http://app."+n.name)
	busy, began, pid := newBusy(t, url), time.Now(), n.containers(pod)["rls"].pid
	for syscall.Kill(pid, 0) == nil {
		if time.Since(began) > 3*patience {
			t.Fatal("rls has not been killed")
		}
		time.Sleep(5 * time.Millisecond)
	}
	start := time.Now()
	busy()
	t.Logf("rls was killed by the kernel after %.1f s", start.Sub(began).Seconds())
	n.back(pod, 1, direct, start)
	counts, text := direct.since(start)
	t.Logf("figure: out of memory, the pod: %s", text)
	if counts["failed"] > 0 || counts["open"] == 0 {
		t.Errorf("got %v, want no failed request, and some that Envoy let pass", counts)
	}
	_, text = service.since(start)
	t.Logf("figure: out of memory, the Service: %s", text)
	for name, c := range n.containers(pod) {
		if name == "rls" && c.reason != "OOMKilled" {
			t.Errorf("rls ended because of %q, want OOMKilled", c.reason)
		}
		if name != "rls" && c.restarts > 0 {
			t.Errorf("%s was restarted %d times, want never", name, c.restarts)
		}
	}
}

// newBusy sends requests as fast as it can, each with a key of its own, until the returned function is
// called.
func newBusy(t *testing.T, url string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	for caller := range 8 {
		done.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
			defer client.CloseIdleConnections()
			for i := 0; ctx.Err() == nil; i++ {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					panic(err)
				}
				req.Header.Set("x-api-key", fmt.Sprintf("unknown-%d-%d", caller, i))
				req.Header.Set("x-forwarded-for", fmt.Sprintf("10.%d.%d.%d", caller, i>>8&255, i&255))
				if res, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
			}
		})
	}
	return stop
}

// TestSidecarOrder starts and ends a pod: rls is there before Envoy and after it.
func TestSidecarOrder(t *testing.T) {
	n := newNamespace(t)
	n.overlay("replicas: [{name: app, count: 1}]\n")
	n.rollout("deployment/app")
	pod := n.pods(applicationPod)[0]
	order := []string{"rls", "envoy", "app"}
	all := n.containers(pod)
	var starts, ends []time.Duration
	for _, name := range order {
		starts = append(starts, started(t, all[name].pid))
	}
	t.Logf("figure: %s started %v after rls, %s %v", order[1], starts[1]-starts[0], order[2], starts[2]-starts[0])
	if !slices.IsSorted(starts) {
		t.Errorf("the starts of %v are %v, want this order", order, starts)
	}

	begin := time.Now()
	n.kubectl("delete", "pod", pod, "--wait=false")
	gone := make(map[string]time.Duration)
	for deadline := begin.Add(patience); len(gone) < len(order) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, name := range order {
			if _, ok := gone[name]; !ok && syscall.Kill(all[name].pid, 0) != nil {
				gone[name] = time.Since(begin)
			}
		}
	}
	slices.Reverse(order)
	for _, name := range order {
		ends = append(ends, gone[name])
	}
	t.Logf("figure: after the deletion of the pod %v ended at %v", order, ends)
	if len(gone) < len(order) || !slices.IsSorted(ends) {
		t.Errorf("the ends of %v are %v, want this order", order, ends)
	}
}

// started returns when a process was started, since the start of the machine.
func started(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The name in parentheses may have spaces. The 22nd field is in hundredths of a second.
	fields := strings.Fields(string(data[strings.LastIndex(string(data), ")")+2:]))
	ticks, err := strconv.Atoi(fields[19])
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestSidecarSlowStart rolls out an rls that does not get ready, because it waits for rules of a
// xDS server: its Envoy never starts, and the old pods serve on.
func TestSidecarSlowStart(t *testing.T) {
	n := newNamespace(t)
	n.kustomize(sidecarExample)
	n.rollout("deployment/app")
	url := "http://app." + n.name
	n.eventually(func() error { _, _, err := get(t.Context(), url, pro); return err })
	l := newLoad(t, 2, url, pro)
	old := n.pods(applicationPod)
	n.overlay(`patches:
- target: {kind: Deployment}
  patch: |-
    kind: Deployment
    apiVersion: apps/v1
    metadata: {name: any}
    spec:
      template:
        spec:
          initContainers:
          - name: rls
            env:
            - {name: SLIDEGATE_RULES_PATH, $patch: delete}
            - {name: SLIDEGATE_RULES_SOURCE, value: xds}
            - {name: SLIDEGATE_RULES_XDS_ADDRESS, value: "127.0.0.1:1"}
`)
	fresh := ""
	n.eventually(func() error {
		for _, pod := range n.pods(applicationPod) {
			if c := n.containers(pod); !slices.Contains(old, pod) && c["rls"].pid != 0 {
				fresh = pod
				return nil
			}
		}
		return fmt.Errorf("no new pod runs rls")
	})
	time.Sleep(10 * time.Second)
	c := n.containers(fresh)
	t.Logf("figure: 10 s after the start of rls, Envoy: %+v", c["envoy"])
	if c["envoy"].pid != 0 || c["app"].pid != 0 || c["rls"].ready {
		t.Errorf("got %+v, want rls alone, not ready", c)
	}
	if status, _, err := get(t.Context(), n.address(fresh), pro); err == nil {
		t.Errorf("the pod answered %d, want no answer", status)
	}
	failed, count := failures(l.stop())
	t.Logf("figure: %d of %d requests failed", failed, count)
	if failed > 0 {
		t.Errorf("%d requests failed, want 0", failed)
	}
}

// TestSidecarRules changes the rules of running pods: the change counts without a lost call. Broken
// rules change nothing.
func TestSidecarRules(t *testing.T) {
	n := newNamespace(t)
	n.overlay("replicas: [{name: app, count: 1}]\n")
	n.rollout("deployment/app")
	pod := n.pods(applicationPod)[0]
	url := n.address(pod)
	data, err := os.ReadFile(filepath.Join(sidecarExample, "rules/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	change := func(rules string) time.Time {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"rules.yaml": rules}})
		if err != nil {
			t.Fatal(err)
		}
		n.kubectl("patch", "configmap", "slidegate-rules", "--type=merge", "--patch", string(patch))
		return time.Now()
	}
	log := func() string { return n.kubectl("logs", pod, "--container", "rls") }
	l := newLoad(t, 2, url, pro)

	// A pod that has just started is looked at more often.
	time.Sleep(30 * time.Second)
	for i, limit := range []int{8, 7} {
		start := change(strings.Replace(good, "requests_per_unit: 100}", fmt.Sprintf("requests_per_unit: %d}", limit), 1))
		n.eventually(func() error {
			if got := strings.Count(log(), `"rules reloaded"`); got <= i {
				return fmt.Errorf("the log has %d new rules", got)
			}
			return nil
		})
		t.Logf("figure: change %d of the rules counts after %.1f s", i+1, time.Since(start).Seconds())
	}
	if got := n.ask(url, 10, free); got["200"] != 7 || got["429"] != 3 {
		t.Errorf("10 requests got %v, want 7 of 200 and 3 of 429", got)
	}

	start := change(strings.Replace(good, "unit: minute", "unit: minuet", 1))
	// An annotation lets the kubelet look at the pod now.
	n.kubectl("annotate", "pod", pod, "changed=rules")
	n.eventually(func() error {
		if !strings.Contains(log(), "configuration refused") {
			return fmt.Errorf("the log has no refusal")
		}
		return nil
	})
	t.Logf("figure: with an annotation of the pod, the broken rules were refused after %.1f s", time.Since(start).Seconds())
	refusal := log()
	refusal = refusal[strings.LastIndex(refusal[:strings.LastIndex(refusal, "configuration refused")], "\n")+1:]
	t.Logf("the log: %s", refusal)
	if !strings.Contains(refusal, "/etc/slidegate/rules/rules.yaml:7:") {
		t.Error("the log does not say which line is wrong")
	}
	if got := n.ask(url, 3, free); got["429"] != 3 {
		t.Errorf("with broken rules 3 requests got %v, want 3 of 429 by the rules before", got)
	}
	if c := n.containers(pod)["rls"]; !c.ready || c.restarts > 0 {
		t.Errorf("with broken rules, rls is %+v, want it ready and never restarted", c)
	}
	failed, count := failures(l.stop())
	t.Logf("figure: %d of %d requests failed", failed, count)
	if failed > 0 {
		t.Errorf("%d requests failed, want 0", failed)
	}

	n.checkNewPod(pod, func() { change(good) })
}

// checkNewPod adds a pod while the rules are broken. Its Envoy does not start before the rules are
// repaired.
func (n *namespace) checkNewPod(old string, repair func()) {
	n.t.Helper()
	n.kubectl("scale", "deployment/app", "--replicas=2")
	n.eventually(func() error {
		for _, pod := range n.pods(applicationPod) {
			if pod == old {
				continue
			}
			c := n.containers(pod)
			if c["rls"].waiting != "CrashLoopBackOff" {
				return fmt.Errorf("rls is %+v", c["rls"])
			}
			if c["envoy"].pid != 0 {
				n.t.Errorf("Envoy runs beside an rls without rules")
			}
			n.t.Logf("a new pod with broken rules: %+v; its log: %s", c["rls"], n.kubectl("logs", pod, "--container", "rls", "--tail", "2"))
			return nil
		}
		return fmt.Errorf("no new pod")
	})
	repair()
	start := time.Now()
	n.rollout("deployment/app")
	n.t.Logf("figure: the new pod was ready %.1f s after the rules were repaired", time.Since(start).Seconds())
}
