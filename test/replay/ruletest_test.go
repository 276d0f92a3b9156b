package replay

import (
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	testedRules = "domain: edge\ndescriptors: [{key: api_key, rate_limit: {name: per-key, window: 1s, requests: 3}}]\n"
	limitsTest  = `rules: rules.yaml
tests:
  - name: three in any second
    request: {descriptors: [api_key=a]}
    steps:
      - {times: 4, expect: {allowed: 3, denied: 1, retry_after: 1s}}
      - {at: 1100ms, times: 3, expect: {allowed: 3}}
  - name: each test starts with empty logs
    request: {descriptors: [api_key=a]}
    steps: [{times: 3, expect: {allowed: 3}}]
`
)

// testsIn writes rules and tests of them, and returns their directory.
func testsIn(t *testing.T) string {
	t.Helper()
	dir := filepath.Dir(configtest.Write(t, "limits_test.yaml", limitsTest))
	tree.Write(t, filepath.Join(dir, "rules.yaml"), testedRules)
	return dir
}

// TestLimitsOnRedis runs "rls test" on a real Redis, and nothing remains there.
func TestLimitsOnRedis(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	got := edge.Run(t, edge.RLSOptions{}, "", "test", "--redis", "redis://"+redis.Addr(), testsIn(t))
	if got.Code != 0 || got.Stdout != "2 passed, 0 failed, 10 requests; 1 of 1 rules and tiers tested\n" {
		t.Errorf("got %+v", got)
	}
	if keys, err := redis.Do("DBSIZE"); keys != "0" {
		t.Errorf("%s keys are left in Redis, %v", keys, err)
	}
}

// TestLimitsOnCluster runs requests with several limits on a Redis Cluster, and on one node of it.
func TestLimitsOnCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartCluster(t)
	dir := filepath.Dir(configtest.Write(t, "limits_test.yaml", `rules: rules.yaml
tests:
  - name: several limits
    steps: [{times: 4, descriptors: [a=1, b=2, c=3], expect: {allowed: 3, rule: a}}]
`))
	tree.Write(t, filepath.Join(dir, "rules.yaml"), `domain: edge
descriptors:
  - {key: a, rate_limit: {name: a, window: 10s, requests: 3}}
  - {key: b, rate_limit: {name: b, window: 10s, requests: 4}}
  - {key: c, rate_limit: {name: c, window: 10s, requests: 5}}
`)
	address := cluster.Masters()[0].Addr()
	if got := edge.Run(t, edge.RLSOptions{}, "", "test", "--redis", "redis-cluster://"+address, dir); got.Code != 0 || got.Stdout != "1 passed, 0 failed, 4 requests; 3 of 3 rules and tiers tested\n" {
		t.Errorf("got %+v", got)
	}
	got := edge.Run(t, edge.RLSOptions{}, "", "test", "--redis", "redis://"+address, dir)
	if got.Code != 1 || !strings.HasPrefix(got.Stderr, "rls: --redis: ") {
		t.Errorf("one node: got %+v", got)
	}
}

// TestLimitsWithPassword runs "rls test" with a right, a wrong and no password, which is not printed.
func TestLimitsWithPassword(t *testing.T) {
	t.Parallel()
	address := servers.StartRedis(t, "--requirepass", "hush-right", "--user", "rls", "on", ">hush-acl", "~slidegate:*", "+@all").Addr()
	dir := testsIn(t)
	const before = "rls: --redis: looking for logs of other tests: redisstore: "
	for login, want := range map[string]struct {
		code           int
		begins, advice string
	}{
		":hush-right@":  {},
		":hush-wrong@":  {1, before + "auth: WRONGPASS ", ""},
		"":              {1, before + "auth: NOAUTH ", ""},
		"rls:hush-acl@": {1, "rls: --redis: ", "; the user needs these rights, for the keys rls-test:*: https://github.com/slidegate/slidegate/blob/main/docs/operate.md#set-up-redis\n"},
	} {
		got := edge.Run(t, edge.RLSOptions{}, "", "test", "--redis", "redis://"+login+address, dir)
		if got.Code != want.code || !strings.HasPrefix(got.Stderr, want.begins) || !strings.HasSuffix(got.Stderr, want.advice) || strings.Contains(got.Stdout+got.Stderr, "hush") {
			t.Errorf("%s: got %+v", login, got)
		}
	}
}

// runsIn matches the line before each run of --watch.
var runsIn = regexp.MustCompile(`(?m)^---- \d\d:\d\d:\d\d -+$`)

// TestLimitsAgain runs "rls test --watch" and changes the rules, and then the tests.
func TestLimitsAgain(t *testing.T) {
	t.Parallel()
	dir := testsIn(t)
	cmd, err := edge.RLSOptions{}.Command(t.Context(), "test", "--watch", dir)
	if err != nil {
		t.Fatal(err)
	}
	var out process.Output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := func(what string) func() bool {
		return func() bool { return strings.HasSuffix(out.String(), what) }
	}
	process.Eventually(t, "the tests to pass", last("2 passed, 0 failed, 10 requests; 1 of 1 rules and tiers tested\n"))
	tree.Write(t, filepath.Join(dir, "rules.yaml"), strings.Replace(testedRules, "requests: 3", "requests: 2", 1))
	process.Eventually(t, "the tests to fail", last("0 passed, 2 failed, 10 requests; 1 of 1 rules and tiers tested\n"))
	tree.Write(t, filepath.Join(dir, "limits_test.yaml"), "tests: 5\n")
	process.Eventually(t, "the problem of the file", last("limits_test.yaml:1: tests: expected a list, got a number\n0 passed, 1 failed, 0 requests; 0 of 0 rules and tiers tested\n"))
	tree.Write(t, filepath.Join(dir, "rules.yaml"), testedRules)
	tree.Write(t, filepath.Join(dir, "limits_test.yaml"), limitsTest)
	process.Eventually(t, "the tests to pass again", last("2 passed, 0 failed, 10 requests; 1 of 1 rules and tiers tested\n"))
	if runs := runsIn.FindAllString(out.String(), -1); len(runs) < 4 {
		t.Errorf("got %d lines with the time of a run in\n%s", len(runs), out.String())
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("rls test ended with %v after SIGINT", err)
	}
}
