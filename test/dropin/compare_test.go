package dropin

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// comparedRules are read by both services.
const comparedRules = `
domain: edge
descriptors:
  - key: client
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: api_key
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: path
    value: /slow
    rate_limit: {unit: day, requests_per_unit: 1}
    descriptors:
      - key: client
        rate_limit: {unit: day, requests_per_unit: 2}
`

// comparison is rls that compares with a real envoyproxy/ratelimit.
type comparison struct {
	t    *testing.T
	rls  *edge.RLSServer
	old  *servers.ReferenceServer
	call func(descriptor string) rlsv3.RateLimitResponse_Code
	sent int
}

func startComparison(t *testing.T) *comparison {
	t.Helper()
	c := &comparison{t: t, old: servers.StartReference(t, servers.ReferenceOptions{Rules: comparedRules, Redis: servers.Redis(t)})}
	settings := map[string]string{"SLIDEGATE_COMPARE_ADDRESS": c.old.GRPC(), stack.EnvLogLevel: "debug"}
	c.rls = stack.Setup{Rules: comparedRules, Env: settings}.Serve(t)
	client := rlsv3.NewRateLimitServiceClient(stack.Dial(t, c.rls))
	c.call = func(descriptor string) rlsv3.RateLimitResponse_Code {
		t.Helper()
		out, err := client.ShouldRateLimit(t.Context(), stack.Request(1, descriptor))
		if err != nil {
			t.Fatal(err)
		}
		c.sent++
		return out.GetOverallCode()
	}
	return c
}

var comparedLine = regexp.MustCompile(`(?m)^slidegate_compare_total\{(.*)\} (\d+)$`)

// counts returns the calls that slidegate_compare_total counts, by both answers and by the reasons.
func (c *comparison) counts() map[string]int {
	c.t.Helper()
	metrics := stack.Page(c.t, c.rls.Admin()+"/metrics")
	counts := make(map[string]int)
	label := regexp.MustCompile(`(ours|theirs|reason)="([^"]+)"`)
	for _, m := range comparedLine.FindAllStringSubmatch(metrics, -1) {
		labels := make(map[string]string)
		for _, l := range label.FindAllStringSubmatch(m[1], -1) {
			labels[l[1]] = l[2]
		}
		var n int
		_, _ = fmt.Sscan(m[2], &n)
		counts[labels["ours"]+" "+labels["theirs"]] += n
		if reason := labels["reason"]; reason != "" {
			counts[reason] += n
		}
	}
	return counts
}

// settle waits until every call is compared, and returns the counts.
func (c *comparison) settle() map[string]int {
	c.t.Helper()
	for deadline := time.Now().Add(process.Patience); ; {
		counts, all := c.counts(), 0
		for name, n := range counts {
			if strings.Contains(name, " ") {
				all += n
			}
		}
		if all == c.sent {
			return counts
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%d calls, compared: %v", c.sent, counts)
		}
	}
}

// TestCompareWithTheReference: the same answers are equal pairs, and an edge of a fixed window
// makes both kinds of difference, each with its reason.
func TestCompareWithTheReference(t *testing.T) {
	t.Parallel()
	c := startComparison(t)
	for range 5 {
		c.call("api_key=k3y-of-the-caller")
		c.settle()
		c.call("path=/slow,client=ada")
		c.settle()
		c.call("nothing=limits this")
	}
	counts := c.settle()
	// A busy machine may miss the time limit of a comparison.
	if n := counts["ok timeout"] + counts["over_limit timeout"]; counts["ok ok"]+counts["over_limit over_limit"]+n != 15 || n > 5 {
		t.Fatalf("the same answers: got %v, want 10 times ok and 5 times over_limit", counts)
	}
	// Within a second, but on both sides of a clock's second.
	for n := 0; counts["window_edge"] == 0 || counts["free_denial"] == 0; n++ {
		if n == 20 {
			t.Fatalf("no edge was seen: %v", counts)
		}
		client := fmt.Sprint("client ", n)
		burst := func(at time.Duration) {
			now := time.Now()
			time.Sleep(now.Truncate(time.Second).Add(time.Second + at).Sub(now))
			for range 6 {
				c.call("client=" + client)
				c.settle()
			}
		}
		burst(600 * time.Millisecond) // both allow 5
		burst(100 * time.Millisecond) // Slidegate still counts them: only it denies
		for until := time.Now().Truncate(time.Second).Add(time.Second); time.Now().Before(until); {
			// From 600 ms on Slidegate allows. The reference has charged the denied calls.
			c.call("client=" + client)
			if counts = c.settle(); counts["free_denial"] > 0 {
				break
			}
		}
	}
	if counts["other"] > 0 {
		t.Errorf("%d differences without a reason\n%s", counts["other"], c.rls.Output())
	}
	out := c.rls.Output()
	if strings.Contains(out, "k3y-of") {
		t.Error("the log has an API key")
	}
	for _, reason := range []string{"window_edge", "free_denial"} {
		if !strings.Contains(out, `"reason":"`+reason+`"`) {
			t.Errorf("no log line has the reason %s", reason)
		}
	}
}

// TestCompareWithAReferenceThatHangs: nothing of the old service reaches the callers.
func TestCompareWithAReferenceThatHangs(t *testing.T) {
	t.Parallel()
	c := startComparison(t)
	c.old.Pause()
	for i := range 500 {
		if code := c.call("path=" + fmt.Sprint(i)); code != rlsv3.RateLimitResponse_OK {
			t.Fatalf("call %d: %v", i, code)
		}
	}
	counts := c.settle()
	// A process that is stopped may answer a call or two that it has already read.
	if counts["ok timeout"]+counts["ok skipped"]+counts["ok ok"] != 500 || counts["ok timeout"] < 5 || counts["ok ok"] > 5 {
		t.Errorf("got %v", counts)
	}
	c.old.Resume()
	c.old.Stop() // dies
	for range 20 {
		c.call("path=after")
	}
	if counts := c.settle(); counts["ok error"] == 0 {
		t.Errorf("after the end of the old service: %v", counts)
	}
	c.old.Start()
	for deadline := time.Now().Add(process.Patience); c.settle()["ok ok"] == 0; {
		if time.Now().After(deadline) {
			t.Fatal("it does not compare again")
		}
		c.call("path=again")
	}
}
