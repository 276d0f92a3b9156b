package test

import (
	"strconv"
	"strings"
	"testing"
)

// reported are rules that say nothing of charge, for usage that Envoy reports.
const reported = `
domain: edge
descriptors:
  - key: budget
    value: large
    rate_limit: {name: large, unit: hour, requests_per_unit: 21}
  - key: budget
    value: small
    rate_limit: {name: small, unit: hour, requests_per_unit: 2}
  - key: spend
    rate_limit: {name: spend, unit: hour, requests_per_unit: 10}
`

// TestUsageReportsThroughEnvoy has the requests that pass until usage that Envoy reports
// after the response denies the next. The numbers of the drop-in mode are those of
// envoyproxy/ratelimit.
func TestUsageReportsThroughEnvoy(t *testing.T) {
	for _, tt := range []struct {
		mode   string
		env    string
		rules  string
		passes map[string]int // by rule; 0 is not asked
	}{
		{"drop-in", "true", reported, map[string]int{"large": 3, "small": 3, "spend": 1}},
		{"native", "false", reported, map[string]int{"large": 3, "small": 2}},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			eachStore(t, func(t *testing.T, settings map[string]string) {
				settings["SLIDEGATE_REFERENCE_USAGE_REPORTS"] = tt.env
				s := setup{rules: tt.rules, env: settings, config: rulesConfig}.startMetered(t)
				c := s.from("127.0.0.1")
				for _, kind := range []struct{ rule, path, user, spends string }{
					{"large", "/budget", "large", "10"},
					{"small", "/budget", "small", "1"},
					{"spend", "/spend", "ann", "20"},
				} {
					passes := tt.passes[kind.rule]
					for range passes {
						before := s.decisions(kind.rule)
						c.want(200, 1, kind.path, "x-user", kind.user, "x-spend", kind.spends)
						// One decision before the request, and one after the response.
						eventually(t, "the usage to be reported", func() bool { return s.decisions(kind.rule) == before+2 })
					}
					if passes > 0 {
						c.want(429, 2, kind.path, "x-user", kind.user, "x-spend", kind.spends)
					}
				}
				if n := strings.Count(s.rls.Output(), "was asked with a cost of 0"); n != 2 {
					t.Errorf("%d log lines of rules that were asked with 0, want one for each of two rules:\n%s", n, s.rls.Output())
				}
			})
		})
	}
}

// decisions returns how often a rule has decided.
func (s *stack) decisions(rule string) (n int) {
	s.t.Helper()
	for line := range strings.Lines(page(s.t, s.rls.Admin()+"/metrics")) {
		if strings.HasPrefix(line, "slidegate_decisions_total{") && strings.Contains(line, `rule="`+rule+`"`) {
			count, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]))
			if err != nil {
				s.t.Fatal(err)
			}
			n += count
		}
	}
	return n
}
