package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/servers"
)

const ok, denied = 200, 429

// A stack is everything of a test.
type stack struct {
	*controlPlane
	pod *pod
}

// start starts Redis, the pod of the rate-limit service, and Envoy Gateway, as in a cluster.
func start(t *testing.T, rules string, prepare ...func(*controlPlane, *pod)) stack {
	t.Helper()
	// The pod reaches only what listens on the address of the node. No other network does.
	redis := servers.StartRedis(t, "--bind", "0.0.0.0", "--protected-mode", "no")
	address := "redis.redis.svc" + redis.Addr()[len("127.0.0.1"):]
	e := newControlPlane(t, address)
	p := newPod(t, address)
	mountCertificates(t, p.root+"/certs", e.certificates("envoy-rate-limit"))
	for _, do := range prepare {
		do(e, p)
	}
	p.start()
	if rules != "" {
		e.policy(rules)
	}
	e.start()
	return stack{e, p}
}

// perUser is a rule: n requests an hour for each value of a header.
func perUser(n int) string {
	return fmt.Sprintf("{clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}], limit: {requests: %d, unit: Hour}}", n)
}

var alice, bob, carol = request{user: "alice"}, request{user: "bob"}, request{user: "carol"}

// The names that Envoy Gateway gives to the route and its listener.
const (
	domain = "default/eg/http"
	route  = "httproute/default/backend/rule/0/match/0/www_example_com"
)

// TestLimit proves that a limit of Envoy Gateway holds, that a changed one counts with the hits that
// are recorded, and that no limit is left when the policy is removed.
func TestLimit(t *testing.T) {
	s := start(t, perUser(3))
	s.first(alice, 3)
	s.want(alice, ok, ok, denied, denied)
	s.want(bob, ok, ok, ok, denied)

	s.policy(perUser(5))
	s.first(alice, 5)
	s.want(alice, ok, denied) // denied requests are not counted
	s.want(carol, ok, ok, ok, ok, ok, denied)

	s.policy("")
	s.wait(func() error {
		code, headers, err := s.get(alice)
		if err == nil && (code != ok || headers.Get(limitHeader) != "") {
			err = fmt.Errorf("status %d with %v", code, headers)
		}
		return err
	})
	for range 10 {
		s.want(alice, ok)
	}
	s.pod.wait(func() error {
		if rules := s.pod.rules(); len(rules) > 0 {
			return fmt.Errorf("rules are left: %q", rules)
		}
		return nil
	})
}

// TestHeaders proves that a client gets the headers that envoyproxy/ratelimit would give, byte for
// byte, and no other.
func TestHeaders(t *testing.T) {
	s := start(t, perUser(3))
	headers := s.first(alice, 3)
	reset := headers.Get("X-Ratelimit-Reset")
	if n, err := strconv.Atoi(reset); err != nil || n < 1 || n > 3600 {
		t.Errorf("X-Ratelimit-Reset: got %q, want seconds within an hour", reset)
	}
	s.want(alice, ok, ok)
	code, denial, err := s.get(alice)
	if err != nil || code != denied {
		t.Fatalf("got %d, %v; want %d", code, err, denied)
	}
	for _, h := range []struct {
		name      string
		headers   http.Header
		remaining string
	}{{"first", headers, "2"}, {"denied", denial, "0"}} {
		for _, name := range []string{"Date", "Server", "Content-Length", "X-Ratelimit-Reset"} {
			h.headers.Del(name)
		}
		want := http.Header{limitHeader: {"3, 3;w=3600"}, "X-Ratelimit-Remaining": {h.remaining}}
		if diff := cmp.Diff(want, h.headers); diff != "" {
			t.Errorf("%s: -want +got\n%s", h.name, diff)
		}
	}
}

// TestPages proves that egctl shows the rules, and that Envoy Gateway's dashboard finds its metrics.
func TestPages(t *testing.T) {
	s := start(t, perUser(3))
	s.first(alice, 3)
	s.want(alice, ok, ok, denied, denied)
	want := []string{domain + "." + route + "_" + route + ".rule-0-match-0: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false"}
	if got := s.pod.rules(); !slices.Equal(got, want) {
		t.Errorf("/rlconfig: got %q, want %q", got, want)
	}
	labels := fmt.Sprintf("{domain=%q,key1=%q,key2=%q}", domain, route+"_"+route, "rule-0-match-0")
	for series, want := range map[string]string{
		"ratelimit_service_rate_limit_total_hits" + labels:                             "5",
		"ratelimit_service_rate_limit_over_limit" + labels:                             "2",
		"ratelimit_service_rate_limit_near_limit" + labels:                             "1",
		"ratelimit_service_rate_limit_within_limit" + labels:                           "3",
		`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}`:              "5",
		`ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"}`: "5",
		"ratelimit_service_config_load_success":                                        "1",
	} {
		s.pod.wait(func() error {
			if got := s.pod.metric(series); got != want {
				return fmt.Errorf("%s: got %q, want %q", series, got, want)
			}
			return nil
		})
	}
	for _, series := range []string{"process_resident_memory_bytes", "go_memstats_heap_inuse_bytes"} {
		if s.pod.metric(series) == "" {
			t.Errorf("no metric %s", series)
		}
	}
}

// costs returns the rule with costs: a name of a metadata entry for the request, the response, or both.
// Envoy Gateway v1.9.1 ends with a panic if a cost is a number and its resources come from files. So
// the costs come from metadata, which a script sets.
func costs(rule string, of ...string) string {
	var all []string
	for _, name := range of {
		all = append(all, fmt.Sprintf("%s: {from: Metadata, metadata: {namespace: usage, key: %[1]s}}", name))
	}
	return strings.Replace(rule, "limit:", "cost: {"+strings.Join(all, ", ")+"}, limit:", 1)
}

// setCosts makes each request cost request, and its answer response.
func (s stack) setCosts(request, response int) {
	s.t.Helper()
	s.write("resources/usage.yaml", fmt.Sprintf(`apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {name: usage, namespace: default}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: backend}]
  lua:
  - type: Inline
    inline: |
      function envoy_on_request(request)
        request:streamInfo():dynamicMetadata():set("usage", "request", %d)
        request:streamInfo():dynamicMetadata():set("usage", "response", %d)
      end
`, request, response))
}

// TestCost proves that a request costs what the policy says.
func TestCost(t *testing.T) {
	s := start(t, costs(perUser(7), "request"))
	s.setCosts(3, 0)
	var q request
	n := 0
	s.wait(func() error {
		n++
		q = request{user: fmt.Sprint("user-", n)} // until Envoy has the script, a request costs 1
		_, headers, err := s.get(q)
		if got := headers.Get("X-Ratelimit-Remaining"); err == nil && got != "4" {
			err = fmt.Errorf("got %q remaining, want 4", got)
		}
		return err
	})
	s.want(q, ok, denied, denied)
	s.want(request{user: "bob"}, ok, ok, denied)
}

// TestUsage proves that a limit on what requests have used denies once it is used up.
func TestUsage(t *testing.T) {
	s := start(t, costs(perUser(21), "request", "response"))
	s.setCosts(0, 10)
	s.first(alice, 21)
	// Envoy reports after it has answered. 21 - 3 * 10 is less than 0.
	for _, remaining := range []int{11, 1, 0} {
		s.pod.wait(func() error {
			got, err := s.pod.remaining("alice")
			if err == nil && got != remaining {
				err = fmt.Errorf("remaining: got %d, want %d", got, remaining)
			}
			return err
		})
		if remaining > 0 {
			s.want(alice, ok)
		}
	}
	s.want(alice, denied, denied)
	s.want(bob, ok)
}

// TestSelectors proves that each way of selecting clients reaches the right limit.
func TestSelectors(t *testing.T) {
	s := start(t, "")
	post := request{method: http.MethodPost}
	for i, c := range []struct {
		name, selectors, more string
		limited               []request // they share one limit
		free                  request
	}{
		{"exact header", `headers: [{name: x-user-id, value: alice}]`, "", []request{alice}, bob},
		{"inverted header", `headers: [{name: x-user-id, value: alice, invert: true}]`, "", []request{bob, carol}, alice},
		{"method", `methods: [{value: POST}, {value: DELETE}]`, "", []request{post, {method: http.MethodDelete}}, request{}},
		{"path", `path: {type: PathPrefix, value: /a}`, "", []request{{path: "/a"}, {path: "/a/b"}}, request{path: "/ab"}},
		{"query", `queryParams: [{name: q, type: Exact, value: x}]`, "", []request{{path: "/?q=x"}, {path: "/?a=b&q=x"}}, request{path: "/?q=y"}},
		{"all addresses", `sourceCIDR: {value: 0.0.0.0/0, type: Exact}, methods: [{value: POST}]`, "", []request{post}, request{}},
		{"a range", `sourceCIDR: {value: 127.0.1.0/24}`, "", []request{{from: "127.0.1.1"}, {from: "127.0.1.2"}}, request{}},
		{"each address", `sourceCIDR: {value: 127.0.1.0/24, type: Distinct}`, "", []request{{from: "127.0.1.1"}}, request{}},
		{"other addresses", `sourceCIDR: {value: 10.0.0.0/8, invert: true}, methods: [{value: POST}]`, "", []request{post}, request{}},
		{
			"several", `headers: [{name: x-user-id, type: Distinct}], methods: [{value: POST}], path: {value: /p}`, "",
			[]request{{method: http.MethodPost, path: "/p", user: "alice"}},
			request{path: "/p", user: "alice"},
		},
		{"shared", `headers: [{name: x-user-id, type: Distinct}]`, ", shared: true", []request{alice}, request{}},
	} {
		// The names of the descriptors have the number of the rule. So each case has its own log.
		const unused = "{clientSelectors: [{headers: [{name: x-unused, value: never}]}], limit: {requests: 1, unit: Hour}}, "
		n := 3 + i
		s.policy(strings.Repeat(unused, i) + fmt.Sprintf("{clientSelectors: [{%s}], limit: {requests: %d, unit: Hour}%s}", c.selectors, n, c.more))
		s.first(c.limited[0], n)
		for i := 1; i < n; i++ {
			s.want(c.limited[i%len(c.limited)], ok)
		}
		for _, q := range c.limited {
			s.want(q, denied)
		}
		for range n + 1 {
			s.want(c.free, ok)
		}
		if c.name == "each address" {
			s.want(request{from: "127.0.1.2"}, slices.Repeat([]int{ok}, n)...)
			s.want(request{from: "127.0.1.2"}, denied)
		}
		if t.Failed() {
			t.Fatalf("%s: %q", c.name, s.pod.rules())
		}
	}
}

// TestShadow proves that a rule in shadow mode counts and denies nothing.
func TestShadow(t *testing.T) {
	s := start(t, strings.Replace(perUser(3), "limit:", "shadowMode: true, limit:", 1))
	s.first(alice, 3)
	s.want(alice, ok, ok, ok, ok)
	labels := fmt.Sprintf("{domain=%q,key1=%q,key2=%q}", domain, route+"_"+route, "rule-0-match-0")
	s.pod.wait(func() error {
		if got := s.pod.metric("ratelimit_service_rate_limit_shadow_mode" + labels); got != "2" {
			return fmt.Errorf("shadow_mode: got %q, want 2", got)
		}
		return nil
	})
}

// TestRestart proves that the rules stay while Envoy Gateway is away, and that rls takes the rules of
// the next Envoy Gateway, which counts its versions from 1 again.
func TestRestart(t *testing.T) {
	s := start(t, perUser(3))
	s.first(alice, 3)
	s.want(alice, ok, ok, denied)
	for n := 4; n <= 5; n++ {
		before := s.pod.rules()
		s.stop()
		if err := s.pod.healthy(); err != nil {
			t.Errorf("without Envoy Gateway: %v", err)
		}
		if got := s.pod.rules(); !slices.Equal(got, before) {
			t.Errorf("without Envoy Gateway: got %q, want %q", got, before)
		}
		s.policy(perUser(n))
		s.start()
		s.first(alice, n)
		s.want(alice, denied)
	}
}

// TestRotation proves that rls uses renewed certificates, for Envoy and for Envoy Gateway, and that no
// call fails meanwhile.
func TestRotation(t *testing.T) {
	s := start(t, perUser(3))
	s.first(alice, 3)
	old, err := s.pod.certificate()
	if err != nil {
		t.Fatal(err)
	}
	s.renewCertificates()
	mountCertificates(t, s.pod.root+"/certs", s.certificates("envoy-rate-limit"))
	user := 0
	s.pod.wait(func() error {
		s.want(request{user: fmt.Sprint("user-", user)}, ok)
		user++
		now, err := s.pod.certificate()
		if err == nil && now.Equal(old) {
			err = errors.New("the old certificate")
		}
		return err
	})
	s.want(alice, ok, ok, denied)

	// The next Envoy Gateway and its Envoy accept only the new authority.
	s.stop()
	s.policy(perUser(4))
	s.start()
	s.first(alice, 4)
	s.want(alice, denied)
}
