package dropin

import (
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// windowRules have a limit for each unit of a clock's window.
const windowRules = `
domain: edge
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 3}}
`

// fillsAlike sends four requests of one unit to each program. It returns false if one of the
// windows may have ended meanwhile.
func fillsAlike(t *testing.T, unit string, length time.Duration, programs ...*servers.ReferenceServer) bool {
	t.Helper()
	begin := time.Now()
	end := begin.Truncate(length).Add(length)
	var codes [][]rlsv3.RateLimitResponse_Code
	var resets []time.Duration
	for _, p := range programs {
		var seen []rlsv3.RateLimitResponse_Code
		for i := range 4 {
			got, out := stack.PostJSON(t, p.HTTP(), stack.Request(1, unit+"=k"))
			seen = append(seen, out.GetOverallCode())
			if i == 3 {
				// The reference counts whole seconds from the second it is in.
				resets = append(resets, out.GetStatuses()[0].GetDurationUntilReset().AsDuration(), end.Sub(got.Sent))
			}
		}
		codes = append(codes, seen)
	}
	if !time.Now().Before(end) {
		return false
	}
	const ok, over = rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT
	for n, seen := range codes {
		for i, want := range []rlsv3.RateLimitResponse_Code{ok, ok, ok, over} {
			if seen[i] != want {
				t.Errorf("%s, request %d of program %d: got %v, want %v", unit, i, n, seen[i], want)
			}
		}
		if reset, left := resets[2*n], resets[2*n+1]; length > time.Second && (reset > left+time.Second || reset < left-2*time.Second) {
			t.Errorf("%s, program %d: the reset is in %v, want the end of the clock's %s, in %v", unit, n, reset, unit, left)
		}
	}
	return true
}

// TestFixedWindowsAreThoseOfTheReference fills windows of each unit in envoyproxy/ratelimit and in
// rls in its place with rules.policy fixed. Both admit and deny the same requests of every second
// of the clock, and their minutes, hours and days end at the same time.
func TestFixedWindowsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	servers.ReferenceBinary(t)
	options := servers.ReferenceOptions{Rules: windowRules, Redis: servers.Redis(t)}
	reference := servers.StartReference(t, options)
	options.Binary, options.Env = stack.AsRatelimit(t), map[string]string{"SLIDEGATE_RULES_POLICY": "fixed"}
	ours := servers.StartReference(t, options)

	for unit, length := range map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour} {
		if left := time.Until(time.Now().Truncate(length).Add(length)); left < 5*time.Second {
			process.WaitUntil(time.Now().Add(left))
		}
		if !fillsAlike(t, unit, length, reference, ours) {
			t.Errorf("%s: four requests took longer than 5 s", unit)
		}
	}
	rounds := 0
	for give := time.Now().Add(process.Patience); rounds < 4 && time.Now().Before(give); {
		process.WaitUntil(time.Now().Truncate(time.Second).Add(time.Second))
		if fillsAlike(t, "second", time.Second, reference, ours) {
			rounds++
		}
	}
	if rounds < 4 {
		t.Errorf("only %d rounds fit into a second of the clock", rounds)
	}
}
