package limits

import (
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// reported are rules without charge, for usage that Envoy reports.
const reported = `
domain: edge
descriptors:
  - {key: budget, value: large, rate_limit: {name: large, unit: hour, requests_per_unit: 21}}
  - {key: budget, value: small, rate_limit: {name: small, unit: hour, requests_per_unit: 2}}
  - {key: spend, rate_limit: {name: spend, unit: hour, requests_per_unit: 10}}
`

// TestUsageReportsThroughEnvoy has the requests that pass until usage that Envoy reports
// after the response denies the next.
func TestUsageReportsThroughEnvoy(t *testing.T) {
	for _, tt := range []struct {
		mode   string
		dropIn bool
		rules  string
		free   bool           // a response without a cost comes first
		passes map[string]int // by rule
		open   string         // a rule that denies nothing after these
		advice int            // rules that rls gives advice about
	}{
		// envoyproxy/ratelimit lets one request more of small pass, when nothing remains.
		{"drop-in", true, reported, false, map[string]int{"large": 3, "small": 2, "spend": 1}, "", 0},
		{"charge always", false, strings.ReplaceAll(reported, "unit: hour", "charge: always, unit: hour"), false, map[string]int{"large": 3, "small": 2, "spend": 1}, "", 0},
		// A report of 10 does not fit into 1, and is lost. That a response has cost 0 changes nothing.
		{"native", false, reported, true, map[string]int{"large": 5, "small": 2, "spend": 9}, "large", 3},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			stack.EachStore(t, func(t *testing.T, settings map[string]string) {
				if tt.dropIn {
					stack.AsDropIn(settings)
				}
				s := startMetered(t, stack.Setup{Rules: tt.rules, Env: settings, Config: rulesConfig})
				c := s.From("127.0.0.1")
				for _, kind := range []struct{ rule, path, user, spends string }{
					{"large", "/budget", "large", "10"},
					{"small", "/budget", "small", "1"},
					{"spend", "/spend", "ann", "20"},
				} {
					spend := func(cost string) {
						t.Helper()
						before := decisions(s, kind.rule)
						c.Want(200, 1, kind.path, "x-user", kind.user, "x-spend", cost)
						// One decision before the request, and one after the response.
						process.Eventually(t, "the usage to be reported", func() bool { return decisions(s, kind.rule) == before+2 })
					}
					if tt.free {
						spend("0")
					}
					for range tt.passes[kind.rule] {
						spend(kind.spends)
					}
					if kind.rule != tt.open {
						c.Want(429, 2, kind.path, "x-user", kind.user, "x-spend", kind.spends)
					}
				}
				if n := strings.Count(s.RLS.Output(), "does not say how it charges"); n != tt.advice {
					t.Errorf("%d log lines of rules that do not say how they charge, want %d:\n%s", n, tt.advice, s.RLS.Output())
				}
			})
		})
	}
}

// decisions returns how often a rule has decided.
func decisions(s *stack.Stack, rule string) (n int) {
	s.T.Helper()
	for line := range strings.Lines(stack.Page(s.T, s.RLS.Metrics())) {
		if strings.HasPrefix(line, "slidegate_decisions_total{") && strings.Contains(line, `rule="`+rule+`"`) {
			count, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]))
			if err != nil {
				s.T.Fatal(err)
			}
			n += count
		}
	}
	return n
}
