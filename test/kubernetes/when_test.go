package kubernetes

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/tree"
)

// The tests of this file say what happens when something changes or fails while requests go through
// the shared service: three instances of rls, a Redis and an Envoy, as deploy/kubernetes/try has
// them. Each logs one or more lines that begin with "figure:". README.md lists them.

const (
	// whenLimit and whenWindow are the limit of a key. The callers ask for several times as much.
	whenLimit  = 200
	whenWindow = 10 * time.Second
	whenPods   = "app.kubernetes.io/name=slidegate"
	whenKey    = "x-api-key: when"
)

// whenRules returns a ConfigMap of rules with one limit for each key.
func whenRules(limit string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: slidegate-rules
data:
  rules.yaml: |
    domain: edge
    descriptors:
    - key: remote_address
      rate_limit: {name: per-address, unlimited: true}
    - key: api_key
      rate_limit:
        name: per-key
        window: %v
        requests: %s
`, whenWindow, limit)
}

// whenSettings gives rls more time for Redis than its default, 15 ms, and newShared gives Envoy more
// time for rls than 50 ms. On a machine that is short of CPUs, many calls take longer. They would hide
// the calls that an event delays. And each unknown key has a log of its own.
const whenSettings = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: slidegate}
spec:
  template:
    spec:
      containers:
      - name: rls
        env: [{name: SLIDEGATE_STORE_TIMEOUT, value: 500ms}, {name: SLIDEGATE_TIERS_UNKNOWN_KEY, value: each}]
`

// newShared applies deploy/kubernetes/try with the rules of whenRules and further patches, and
// returns the URL of Envoy when every instance has reached Redis.
func newShared(t *testing.T, patches ...string) (n *namespace, url string) {
	t.Helper()
	n = newNamespace(t)
	dir := t.TempDir()
	base, err := filepath.Abs("../../deploy/kubernetes/try")
	if err == nil {
		base, err = filepath.Rel(dir, base)
	}
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := os.ReadFile("../../deploy/kubernetes/try/envoy/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"envoy.yaml": strings.Replace(string(envoy), "timeout: 0.05s", "timeout: 2s", 1)}
	overlay := "resources: [" + base + "]\nconfigMapGenerator: [{name: envoy, behavior: replace, files: [envoy.yaml]}]\npatches:\n"
	for i, patch := range append(patches, whenRules(strconv.Itoa(whenLimit)), whenSettings) {
		name := fmt.Sprintf("patch-%d.yaml", i)
		overlay += "- path: " + name + "\n"
		files[name] = patch
	}
	files["kustomization.yaml"] = overlay
	for name, text := range files {
		tree.Write(t, filepath.Join(dir, name), text)
	}
	n.kustomize(dir)
	t.Cleanup(func() {
		// Without the time that pods take to end.
		for _, args := range [][]string{{"delete", "deployments,statefulsets", "--all"}, {"delete", "pods", "--all", "--force", "--grace-period=0"}} {
			_ = n.command(context.Background(), args...).Run() // the namespace goes anyway
		}
	})
	for _, name := range []string{"statefulset/redis", "deployment/slidegate", "deployment/app", "deployment/envoy"} {
		n.rollout(name)
	}
	url = fmt.Sprintf("http://envoy.%s:10000/", n.name)
	n.eventually(n.allDecide)
	n.eventually(func() error {
		status, header, err := get(t.Context(), url)
		if err == nil && (status != http.StatusOK || header.Get("Ratelimit-Policy") != "") {
			err = fmt.Errorf("got %d, %v", status, header)
		}
		return err
	})
	return n, url
}

// allDecide returns an error if an instance cannot ask Redis.
func (n *namespace) allDecide() error {
	var list struct {
		Items []struct{ Status struct{ PodIP string } }
	}
	if err := json.Unmarshal([]byte(n.kubectl("get", "pods", "--selector", whenPods, "--output", "json")), &list); err != nil {
		return err
	}
	for _, item := range list.Items {
		text, err := body(n.t.Context(), "http://"+item.Status.PodIP+":8080/healthcheck")
		if err == nil && !strings.Contains(text, "1 of 1 nodes decide") {
			err = fmt.Errorf("%s: %s", item.Status.PodIP, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// annotate changes an annotation of the pods, so that the kubelet looks at their ConfigMaps at once.
func (n *namespace) annotate() {
	n.t.Helper()
	n.kubectl("annotate", "pods", "--selector", whenPods, "--overwrite", fmt.Sprint("reload=", time.Now().Unix()))
}

// figure logs what an event did to requests, in a form that an operator can read.
func figure(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("figure: "+format, args...)
}

// never fails the test if calls failed, passed without a decision, or exceeded the limit.
func (o outcome) never(t *testing.T) {
	t.Helper()
	if o.failed > 0 || o.undecided > 0 || o.most > whenLimit {
		t.Errorf("got %v; want no failure, no request without a decision and at most %d in a window", o, whenLimit)
	}
	if o.denied == 0 {
		t.Errorf("got %v; want some denials", o)
	}
}

func TestTry(t *testing.T) {
	n := newNamespace(t)
	started := time.Now()
	n.kustomize("../../deploy/kubernetes/try")
	n.rollout("deployment/envoy")
	n.rollout("deployment/slidegate")
	url := n.forward("service/envoy", 10000) + "/"
	n.eventually(n.allDecide)
	n.eventually(func() error { // as on the page, without the key that is counted below
		status, _, err := get(t.Context(), url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("got %d", status)
		}
		return err
	})
	admitted := 0
	for {
		status, header, err := get(t.Context(), url, "x-api-key: demo-free")
		if err != nil {
			t.Fatal(err)
		}
		if status == http.StatusTooManyRequests {
			figure(t, "try: the first 429 %.0f s after kubectl apply; %d requests before it got 200; Retry-After %s s", time.Since(started).Seconds(), admitted, header.Get("Retry-After"))
			break
		}
		admitted++
		if status != http.StatusOK || header.Get("Ratelimit") == "" || admitted > 100 {
			t.Fatalf("request %d: got %d %v, want 100 times 200, then 429", admitted, status, header)
		}
	}
	if admitted != 100 {
		t.Errorf("%d requests were admitted, want 100", admitted)
	}
}

// TestWhenRulesChange changes the ConfigMap of the rules.
func TestWhenRulesChange(t *testing.T) {
	n, url := newShared(t)
	for i, limit := range []string{"100", "50"} {
		tr := newTraffic(t, 2, url, whenKey)
		tr.during(2 * time.Second)
		n.apply(whenRules(limit))
		changed := time.Now()
		if i == 1 {
			n.annotate()
		}
		policy := `"per-key";q=` + limit + `;`
		var first, last time.Duration
		n.eventually(func() error {
			first, last = 0, 0
			answers := tr.soFar()
			for _, a := range answers {
				if since := a.received.Sub(changed); !strings.HasPrefix(a.header.Get("Ratelimit-Policy"), policy) {
					last = since
				} else if first == 0 {
					first = since
				}
			}
			if first == 0 || time.Since(changed)-last < 3*time.Second {
				return fmt.Errorf("some pod has the old rules after %v", time.Since(changed))
			}
			return nil
		})
		o := outcomeOf(tr.stop(), whenWindow)
		o.never(t)
		how := "ConfigMap changed"
		if i == 1 {
			how = "ConfigMap changed, pods annotated"
		}
		figure(t, "%s: it counted on the first pod after %.1f s, on the last after %.1f s; %v", how, first.Seconds(), last.Seconds(), o)
	}
}

// TestWhenEnvoyIsFirst sends requests while there is no pod of rls yet.
func TestWhenEnvoyIsFirst(t *testing.T) {
	n, url := newShared(t)
	n.kubectl("scale", "deployment/slidegate", "--replicas=0")
	n.kubectl("wait", "pods", "--selector", whenPods, "--for=delete", "--timeout="+patience.String())
	tr := newTraffic(t, 2, url, whenKey)
	tr.during(3 * time.Second)
	n.kubectl("scale", "deployment/slidegate", "--replicas=3")
	started := time.Now()
	var ready, decided time.Duration
	n.eventually(func() error {
		if n.kubectl("get", "deployment", "slidegate", "--output", "jsonpath={.status.readyReplicas}") == "" {
			return errors.New("no pod of rls is ready")
		}
		ready = time.Since(started)
		return nil
	})
	n.rollout("deployment/slidegate")
	tr.during(2 * whenWindow)
	answers := tr.stop()
	i := slices.IndexFunc(answers, func(a answer) bool { return !a.undecided() })
	if i < 0 {
		t.Fatal("no request was decided")
	}
	decided = answers[i].received.Sub(started)
	o := outcomeOf(answers, whenWindow)
	if o.failed > 0 || o.most > whenLimit {
		t.Errorf("got %v; want no failure", o)
	}
	end := answers[len(answers)-1].sent.Add(-whenWindow)
	outcomeOf(answers[slices.IndexFunc(answers, func(a answer) bool { return a.sent.After(end) }):], whenWindow).never(t)
	figure(t, "Envoy first: the first pod of rls was ready %.1f s after its creation, the first request was decided after %.1f s; %v", ready.Seconds(), decided.Seconds(), o)
}

// TestWhenPodsAreReplaced changes the image.
func TestWhenPodsAreReplaced(t *testing.T) {
	n, url := newShared(t)
	tr := newTraffic(t, 4, url, whenKey)
	tr.during(2 * time.Second)
	started := time.Now()
	n.kubectl("set", "image", "deployment/slidegate", "rls=docker.io/slidegate/rls:next")
	n.kubectl("rollout", "status", "deployment/slidegate", "--timeout=5m")
	took := time.Since(started)
	// The last old pod ends.
	n.eventually(func() error {
		if names := strings.Fields(n.kubectl("get", "pods", "--selector", whenPods, "--output", "name")); len(names) != 3 {
			return fmt.Errorf("there are the pods %v", names)
		}
		return nil
	})
	tr.during(5 * time.Second)
	o := outcomeOf(tr.stop(), whenWindow)
	o.never(t)
	figure(t, "rolling update in %.0f s: %v", took.Seconds(), o)
}

// TestWhenAProcessIsKilled kills rls in one of three pods, and TestWhenAPodIsRemoved removes a pod
// without a warning. The limit holds for all requests that rls decides.
func TestWhenAProcessIsKilled(t *testing.T) {
	n, url := newShared(t)
	pod := n.pods(whenPods)[0]
	tr := newTraffic(t, 4, url, whenKey)
	tr.during(3 * time.Second)
	started := time.Now()
	n.kill(pod, "/rls")
	n.eventually(func() error {
		status := n.kubectl("get", "pod", pod, "--output", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
		if status != "1 true" {
			return fmt.Errorf("restarts and readiness of the pod: %s", status)
		}
		return nil
	})
	took := time.Since(started)
	tr.during(15 * time.Second)
	checkKilled(t, fmt.Sprintf("process killed, ready again after %.1f s", took.Seconds()), tr.stop())
}

func TestWhenAPodIsRemoved(t *testing.T) {
	n, url := newShared(t)
	pod := n.pods(whenPods)[0]
	tr := newTraffic(t, 4, url, whenKey)
	tr.during(3 * time.Second)
	started := time.Now()
	n.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
	n.rollout("deployment/slidegate")
	took := time.Since(started)
	tr.during(15 * time.Second)
	checkKilled(t, fmt.Sprintf("pod removed by force, another one in %.1f s", took.Seconds()), tr.stop())
}

func checkKilled(t *testing.T, what string, answers []answer) {
	t.Helper()
	o := outcomeOf(answers, whenWindow)
	if o.failed > 0 || o.most > whenLimit || o.denied == 0 {
		t.Errorf("got %v; want no failure, and at most %d of the decided requests admitted in a window", o, whenLimit)
	}
	figure(t, "%s: %v", what, o)
}

// kill sends SIGKILL to a program in a pod.
func (n *namespace) kill(pod, program string) {
	n.t.Helper()
	if err := syscall.Kill(n.process(pod, program), syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
}

// process returns the id of the process of a program in a pod. The processes of the pods are in this
// namespace of processes.
func (n *namespace) process(pod, program string) int {
	n.t.Helper()
	uid := n.kubectl("get", "pod", pod, "--output", "jsonpath={.metadata.uid}")
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, path := range paths {
		cmdline, _ := os.ReadFile(path)
		groups, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup"))
		if !bytes.HasPrefix(cmdline, []byte(program)) || !bytes.Contains(groups, []byte(uid)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			n.t.Fatal(err)
		}
		return pid
	}
	n.t.Fatalf("no process %s of the pod %s", program, pod)
	return 0
}

// TestWhenTheNodeIsDrained drains the only node. The budget lets one pod go, and it has no place to
// start again, so the other two stay until the node is back.
func TestWhenTheNodeIsDrained(t *testing.T) {
	n, url := newShared(t)
	t.Cleanup(func() { _ = exec.Command("kubectl", "uncordon", "node").Run() })
	tr := newTraffic(t, 4, url, whenKey)
	tr.during(2 * time.Second)
	err := n.try("drain", "node", "--pod-selector="+whenPods, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=60s")
	if err == nil || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("kubectl drain: got %v, want a refusal because of the disruption budget", err)
	}
	ready := n.kubectl("get", "deployment", "slidegate", "--output", "jsonpath={.status.readyReplicas}")
	if ready != "2" {
		t.Errorf("%s pods are ready on a drained node, want 2", ready)
	}
	n.kubectl("uncordon", "node")
	started := time.Now()
	n.rollout("deployment/slidegate")
	took := time.Since(started)
	tr.during(3 * time.Second)
	o := outcomeOf(tr.stop(), whenWindow)
	o.never(t)
	figure(t, "node drained: %s of 3 pods were left after 60 s, 3 were ready %.0f s after kubectl uncordon; %v", ready, took.Seconds(), o)
}

// logged returns when each instance logged a message for the last time. A missing instance has not.
func (n *namespace) logged(message string) map[string]time.Time {
	n.t.Helper()
	times := make(map[string]time.Time)
	for _, pod := range n.pods(whenPods) {
		for line := range strings.Lines(n.kubectl("logs", pod)) {
			var entry struct {
				TS  time.Time
				Msg string
			}
			if json.Unmarshal([]byte(line), &entry) == nil && strings.HasPrefix(entry.Msg, message) {
				times[pod] = entry.TS
			}
		}
	}
	return times
}

// TestWhenRedisIsDeleted deletes the pod of Redis, and with it all counts.
func TestWhenRedisIsDeleted(t *testing.T) {
	n, url := newShared(t)
	tr := newTraffic(t, 4, url, whenKey)
	tr.during(2*whenWindow + whenWindow/4)
	deleted := time.Now()
	n.kubectl("delete", "pod", "redis-0", "--wait=false")
	n.backToExact(deleted, tr, "Redis's pod deleted", 2*whenLimit)
}

// TestWhenRedisCrashes kills Redis in its container. The container starts again with its file.
func TestWhenRedisCrashes(t *testing.T) {
	n, url := newShared(t)
	tr := newTraffic(t, 4, url, whenKey)
	tr.during(2*whenWindow + whenWindow/4)
	crashed := time.Now()
	n.kill("redis-0", "redis-server")
	n.backToExact(crashed, tr, "Redis killed", 2*whenLimit)
	if size := n.kubectl("exec", "redis-0", "--", "redis-cli", "dbsize"); size == "0" {
		t.Errorf("Redis has lost its data")
	}
}

// backToExact waits until all instances decide with Redis again, and checks that every request was
// decided, that at most so many were admitted within a window, and then no more than the limit.
func (n *namespace) backToExact(since time.Time, tr *traffic, what string, most int) {
	n.t.Helper()
	var back time.Time
	n.eventually(func() error {
		times := n.logged("a server of the store decides again")
		back = time.Time{}
		for _, at := range times {
			if at.After(back) {
				back = at
			}
		}
		if len(times) < 3 {
			return fmt.Errorf("%d instances have logged that Redis decides again", len(times))
		}
		return nil
	})
	tr.during(2 * whenWindow)
	answers := tr.stop()
	o := outcomeOf(answers, whenWindow)
	var outage, after []answer
	for _, a := range answers {
		switch {
		case a.sent.After(back):
			after = append(after, a)
		case a.sent.After(since):
			outage = append(outage, a)
		}
	}
	if o.failed > 0 || o.undecided > 0 || o.most > most {
		n.t.Errorf("got %v; want a decision for each, and at most %d in a window", o, most)
	}
	outcomeOf(after, whenWindow).never(n.t)
	figure(n.t, "%s: all instances decided with it again after %.1f s; %v", what, back.Sub(since).Seconds(), o)
	figure(n.t, "%s: meanwhile %v", what, outcomeOf(outage, whenWindow))
}

// TestWhenRulesAreBroken breaks the ConfigMap of the rules, restarts pods with it, and repairs it.
func TestWhenRulesAreBroken(t *testing.T) {
	n, url := newShared(t)
	tr := newTraffic(t, 2, url, whenKey)
	tr.during(2 * time.Second)
	pods := n.pods(whenPods)
	n.apply(whenRules("many"))
	started := time.Now()
	n.annotate()
	for _, pod := range pods {
		n.eventually(func() error { return n.broken(pod, "1") })
		n.eventually(func() error {
			for line := range strings.Lines(n.kubectl("logs", pod)) {
				if strings.Contains(line, "configuration refused") && strings.Contains(line, "rules.yaml:9") {
					return nil
				}
			}
			return fmt.Errorf("the log of %s does not name the file and the line", pod)
		})
	}
	told := time.Since(started)
	n.kubectl("rollout", "restart", "deployment/slidegate")
	var line string
	n.eventually(func() error {
		for _, pod := range n.pods(whenPods) {
			out, err := n.command(t.Context(), "logs", pod, "--previous").CombinedOutput()
			if line = strings.TrimSpace(string(out)); err == nil && strings.Contains(line, "rules.yaml:9") {
				return nil
			}
		}
		return fmt.Errorf("no new pod has failed: %s", line)
	})
	if ready := n.kubectl("get", "deployment", "slidegate", "--output", "jsonpath={.status.readyReplicas}"); ready != "3" {
		t.Errorf("%s pods are ready beside a broken one, want the 3 old ones", ready)
	}
	tr.during(whenWindow)
	for _, a := range tr.soFar() {
		if p := a.header.Get("Ratelimit-Policy"); !strings.HasPrefix(p, fmt.Sprintf(`"per-key";q=%d;`, whenLimit)) {
			t.Errorf("the rules were not the old ones: %q", p)
			break
		}
	}
	n.apply(whenRules(strconv.Itoa(whenLimit)))
	n.kubectl("rollout", "status", "deployment/slidegate", "--timeout=6m")
	tr.during(5 * time.Second)
	o := outcomeOf(tr.stop(), whenWindow)
	o.never(t)
	figure(t, "rules broken: metric and log of all pods told after %.1f s; a rolling update stopped at its first pod; %v", told.Seconds(), o)
	figure(t, "rules broken: the new pod printed: %s", line)
}

// broken returns an error if the metric of broken rules has another value.
func (n *namespace) broken(pod, want string) error {
	text, err := n.metrics(pod)
	if err == nil && !strings.Contains(text, "\nslidegate_config_broken "+want+"\n") {
		err = fmt.Errorf("slidegate_config_broken of %s is not %s", pod, want)
	}
	return err
}

// metrics returns the metrics of a pod.
func (n *namespace) metrics(pod string) (string, error) {
	n.t.Helper()
	if n.forwarded == nil {
		n.forwarded = make(map[string]string)
	}
	if n.forwarded[pod] == "" {
		n.forwarded[pod] = n.forward("pod/"+pod, 6070)
	}
	return body(n.t.Context(), n.forwarded[pod]+"/metrics")
}

// degraded returns how many requests the instances have decided without Redis.
func (n *namespace) degraded() int {
	n.t.Helper()
	sum := 0
	for _, pod := range n.pods(whenPods) {
		text, err := n.metrics(pod)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^slidegate_degraded_answers_total.* (\d+)$`).FindAllStringSubmatch(text, -1) {
			count, err := strconv.Atoi(m[1])
			if err != nil {
				n.t.Fatal(err)
			}
			sum += count
		}
	}
	return sum
}

// TestWhenTheClockChanges sets the clock of Redis back and forward by an hour. It is the clock that
// decides. To the instances of rls it is the same as if their own clocks were set the other way.
func TestWhenTheClockChanges(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler")
	}
	dir := t.TempDir()
	// The user of Redis reads the folder.
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", filepath.Join(dir, "clock.so"), "testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	setClock := func(offset time.Duration) {
		f, err := os.OpenFile(filepath.Join(dir, "offset"), os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(int64(offset.Seconds()))))
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	setClock(0)
	n, url := newShared(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: redis}
spec:
  template:
    spec:
      containers:
      - name: redis
        env: [{name: LD_PRELOAD, value: /clock/clock.so}]
        volumeMounts: [{name: clock, mountPath: /clock, readOnly: true}]
      volumes:
      - {name: clock, hostPath: {path: %s, type: Directory}}
`, dir))
	step := func(what, key string, offset time.Duration, most int) {
		clock := n.kubectl("exec", "redis-0", "--", "redis-cli", "time")
		tr := newTraffic(t, 4, url, "x-api-key: "+key)
		tr.during(whenWindow + whenWindow/4)
		degraded := n.degraded()
		setClock(offset)
		if now := n.kubectl("exec", "redis-0", "--", "redis-cli", "time"); now[:7] == clock[:7] {
			t.Errorf("the clock of Redis is %s, and was %s: it was not set", now, clock)
		}
		tr.during(2 * whenWindow)
		// A key that has no log yet.
		fresh := newTraffic(t, 2, url, "x-api-key: fresh-"+key)
		tr.during(2 * whenWindow)
		o, f := outcomeOf(tr.stop(), whenWindow), outcomeOf(fresh.stop(), whenWindow)
		if o.failed > 0 || o.undecided > 0 || o.most > most {
			t.Errorf("%s: got %v; want a decision for each, and at most %d in a window", what, o, most)
		}
		f.never(t)
		wait := 0
		for _, a := range tr.answers {
			seconds, _ := strconv.Atoi(a.header.Get("Retry-After"))
			wait = max(wait, seconds)
		}
		figure(t, "%s: longest Retry-After %d s; %d requests decided without Redis; %v", what, wait, n.degraded()-degraded, o)
		figure(t, "%s: a key without a log: %v", what, f)
	}
	// What was charged before counts until the clock has caught up.
	step("clock set back by an hour", "back", -time.Hour, whenLimit)
	// What was charged before expires at once: the window has passed by this clock.
	step("clock set forward by an hour", "forward", 0, 2*whenLimit)
}
