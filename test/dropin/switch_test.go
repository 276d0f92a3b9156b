package dropin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	// switchedLimit is the limit of each key. No clock window ends while the test runs,
	// because a year is one.
	switchedLimit = 20
	switchedRules = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {unit: year, requests_per_unit: 20}
`
)

// TestSwitchForwardAndBack replaces a real envoyproxy/ratelimit by rls under load, and then rls
// by envoyproxy/ratelimit, as a rolling update of Kubernetes does. Both have the same rules,
// environment and Redis. No call fails, and no key gets more than one extra limit.
func TestSwitchForwardAndBack(t *testing.T) {
	t.Parallel()
	checkPortable(t, switchedRules)
	redis := servers.Redis(t)
	pod := func(program string) *servers.ReferenceServer {
		return servers.StartReference(t, servers.ReferenceOptions{Binary: program, Rules: switchedRules, Redis: redis})
	}
	ratelimit := stack.AsRatelimit(t)

	old := pod("")
	s := startSwitched(t, old)
	s.join("first")
	s.until("first", switchedLimit)

	// Forward. Both serve for a while: the logs of rls are empty.
	ours := pod(ratelimit)
	s.route(old, ours)
	s.until("first", 2*switchedLimit)
	s.join("between")
	s.until("between", 2*switchedLimit)
	s.route(ours)
	old.Terminate()
	s.join("last")
	s.until("last", switchedLimit)

	// Back. The counters of the first keys are still in Redis, those of the last begin at 0.
	back := pod("")
	s.route(ours, back)
	s.until("last", 2*switchedLimit)
	s.route(back)
	ours.Terminate()
	s.settle()
	s.stop()

	if len(s.failed) > 0 {
		t.Errorf("%d requests failed: %v", len(s.failed), s.failed)
	}
	for key, n := range s.allowed {
		if n != 2*switchedLimit {
			t.Errorf("%s: %d requests passed, want %d, the limit of each service once", key, n, 2*switchedLimit)
		}
	}
	for _, name := range []string{"error", "failure_mode_allowed"} {
		if n := s.Stat("cluster.upstream.ratelimit." + name); n != 0 {
			t.Errorf("Envoy's counter %s: %d, want 0", name, n)
		}
	}
}

// checkPortable fails the test if rules are not for both services.
func checkPortable(t *testing.T, rules string) {
	t.Helper()
	rls, err := process.Build("cmd/rls")
	if err != nil {
		t.Fatal(err)
	}
	file := configtest.Write(t, "rules.yaml", rules)
	cmd := exec.CommandContext(t.Context(), rls, "validate", "--portable", file)
	cmd.Env = []string{stack.EnvTiersSource + "=none"} // not the variables of this test
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("rls validate --portable: %v\n%s", err, out)
	}
	if out, err := servers.CheckWithReference(t, filepath.Dir(file)); err != nil {
		t.Fatalf("envoyproxy/ratelimit refuses the rules: %v\n%s", err, out)
	}
}

// switched is an Envoy under load, whose rate-limit services change.
type switched struct {
	*stack.Stack
	endpoints string // the file that names them
	versions  int
	stop      func()

	mu      sync.Mutex
	keys    []string
	allowed map[string]int    // by key
	denied  map[string]uint64 // by key: denied in a row
	failed  []string
}

// startSwitched starts Envoy with one service, and the load. There is no key yet.
func startSwitched(t *testing.T, first *servers.ReferenceServer) *switched {
	t.Helper()
	s := &switched{Stack: &stack.Stack{T: t, App: stack.NewApplication(t)}, allowed: make(map[string]int), denied: make(map[string]uint64)}
	s.endpoints = filepath.Join(t.TempDir(), "endpoints.json")
	s.writeEndpoints(first)
	text := tree.Read(t, strings.TrimPrefix(stack.EdgeConfig, "../../"))
	_, assignment, ok := strings.Cut(text, "    load_assignment:\n      cluster_name: rls\n")
	if !ok {
		t.Fatalf("%s has no endpoints of rls", stack.EdgeConfig)
	}
	changes := stack.PatientEnvoy(t, stack.EdgeConfig)
	delete(changes, "timeout: 0.25s") // is in a text below
	maps.Copy(changes, map[string]string{
		"failure_mode_deny: false": "failure_mode_deny: true",
		// Kubernetes removes the endpoint before the pod gets its SIGTERM.
		"    type: STRICT_DNS\n    connect_timeout: 0.25s\n":           "    type: EDS\n    connect_timeout: 10s\n    ignore_health_on_host_removal: true\n",
		"    load_assignment:\n      cluster_name: rls\n" + assignment: fmt.Sprintf("    eds_cluster_config: {eds_config: {resource_api_version: V3, path_config_source: {path: %q}}}\n", s.endpoints),
	})
	s.Envoy = edge.Envoy(t, edge.EnvoyOptions{Config: stack.EdgeConfig, Upstream: s.App.Addr, Replace: changes})
	s.wait("the first service to be healthy", func() bool { return s.Stat("cluster.rls.membership_healthy") == 1 })

	clients := s.Clients(8)
	s.stop = process.Workers(t, len(clients), 5*time.Millisecond, func(worker, call int) bool {
		key := s.key(worker + call*len(clients))
		if key == "" {
			return true
		}
		got, err := clients[worker].Try(t.Context(), "/", "x-api-key", key)
		s.count(key, got, err)
		return true
	})
	return s
}

// key returns one of the keys, or nothing if there is none.
func (s *switched) key(call int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return ""
	}
	return s.keys[call%len(s.keys)]
}

func (s *switched) count(key string, got stack.Answer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.failed = append(s.failed, err.Error())
	case got.Status == http.StatusOK:
		s.allowed[key]++
		s.denied[key] = 0
	case got.Status == http.StatusTooManyRequests:
		s.denied[key]++
	default:
		s.failed = append(s.failed, fmt.Sprintf("%d %s", got.Status, got.Body))
	}
}

// join adds three keys to the load, which stay.
func (s *switched) join(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range 3 {
		s.keys = append(s.keys, name+"-"+strconv.Itoa(i))
	}
}

// until waits until all keys of a name had n requests, and requests after them were denied.
func (s *switched) until(name string, n int) {
	s.T.Helper()
	s.wait(fmt.Sprintf("%d requests of %s", n, name), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range s.keys {
			if strings.HasPrefix(key, name) && (s.allowed[key] < n || s.denied[key] < 10) {
				return false
			}
		}
		return true
	})
}

// settle waits until every key was denied 50 times in a row.
func (s *switched) settle() {
	s.T.Helper()
	s.mu.Lock()
	clear(s.denied)
	s.mu.Unlock()
	s.wait("denials of all keys", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range s.keys {
			if s.denied[key] < 50 {
				return false
			}
		}
		return true
	})
}

// wait is process.Eventually for a switched service: a request that fails ends the test at once.
func (s *switched) wait(what string, ok func() bool) {
	s.T.Helper()
	process.Eventually(s.T, what, func() bool {
		s.mu.Lock()
		failed := len(s.failed) > 0
		s.mu.Unlock()
		return failed || ok()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failed) > 0 {
		s.T.Fatalf("waiting for %s, requests failed: %q", what, s.failed)
	}
}

// route tells Envoy which services there are. It returns when Envoy calls all of them, and has no
// connection to any other.
func (s *switched) route(to ...*servers.ReferenceServer) {
	s.T.Helper()
	s.writeEndpoints(to...)
	s.wait("Envoy to use the new endpoints", func() bool {
		for _, name := range []string{"membership_total", "membership_healthy", "upstream_cx_active"} {
			if s.Stat("cluster.rls."+name) != uint64(len(to)) {
				return false
			}
		}
		return true
	})
}

// writeEndpoints replaces the file that Envoy watches.
func (s *switched) writeEndpoints(to ...*servers.ReferenceServer) {
	s.T.Helper()
	var endpoints []any
	for _, server := range to {
		host, port, _ := strings.Cut(server.GRPC(), ":")
		number, err := strconv.Atoi(port)
		if err != nil {
			s.T.Fatal(err)
		}
		endpoints = append(endpoints, map[string]any{"endpoint": map[string]any{"address": map[string]any{
			"socket_address": map[string]any{"address": host, "port_value": number},
		}}})
	}
	s.versions++
	text, err := json.Marshal(map[string]any{
		"version_info": strconv.Itoa(s.versions),
		"resources": []any{map[string]any{
			"@type":        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
			"cluster_name": "rls",
			"endpoints":    []any{map[string]any{"lb_endpoints": endpoints}},
		}},
	})
	if err != nil {
		s.T.Fatal(err)
	}
	// Envoy reads a file that is moved to its place.
	fresh := s.endpoints + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		s.T.Fatal(err)
	}
	if err := os.Rename(fresh, s.endpoints); err != nil {
		s.T.Fatal(err)
	}
}
