package test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
)

// billingRules have a month that starts on the subject's own day.
const (
	billingRules = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: quota, policy: calendar, unit: month, requests_per_unit: 3, time_zone: Europe/Berlin, starts_label: billing_day}
`
	billingTiers = `
tiers: [free]
default: free
subjects:
  - {id: acme, tier: free, labels: {billing_day: "15"}, keys: [{plain: acme-key}]}
`
)

// nextOn returns the next midnight in the time zone that begins this day of a month. It counts
// day by day, unlike the calendar of rls.
func nextOn(day int, zone *time.Location, now time.Time) time.Time {
	y, m, d := now.In(zone).Date()
	for ; ; d++ {
		if at := time.Date(y, m, d, 0, 0, 0, 0, zone); at.After(now) && at.Day() == day {
			return at
		}
	}
}

// TestQuotaOfABillingMonth uses up a month that starts on the customer's billing day, and another
// customer's, which starts on the rule's day. Every wait of the denial ends with the month, to the
// second. explain says which period that is.
func TestQuotaOfABillingMonth(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	eachStore(t, func(t *testing.T, settings map[string]string) {
		env := with(settings, map[string]string{envStyles: "ratelimit,x-ratelimit"})
		rls := setup{rules: billingRules, tiers: billingTiers, env: env}.serve(t)
		for key, day := range map[string]int{"acme-key": 15, "unknown-key": 1} {
			if end := nextOn(day, berlin, time.Now()); time.Until(end) < 2*patience {
				waitUntil(end.Add(time.Second)) // the month must not end in the test
			}
			end := nextOn(day, berlin, time.Now())
			for i := range 4 {
				got := spend(t, rls, 1, key)
				least, most := ceilSeconds(end.Sub(got.received)), ceilSeconds(end.Sub(got.sent))
				within := func(name, text string) {
					t.Helper()
					if n, err := strconv.Atoi(text); err != nil || n < least || n > most {
						t.Errorf("%s, request %d: %s is %q, want %d to %d", key, i, name, text, least, most)
					}
				}
				_, reset, _ := strings.Cut(got.header["ratelimit"], ";t=")
				within("t of ratelimit", reset)
				within("x-ratelimit-reset", got.header["x-ratelimit-reset"])
				within("duration_until_reset", strconv.Itoa(ceilSeconds(got.status.GetDurationUntilReset().AsDuration())))
				want, code := strconv.Itoa(2-i), rlsv3.RateLimitResponse_OK
				if i == 3 {
					want, code = "0", rlsv3.RateLimitResponse_OVER_LIMIT
					within("retry-after", got.header["retry-after"])
				}
				if got.status.GetCode() != code || got.header["x-ratelimit-remaining"] != want {
					t.Errorf("%s, request %d: got %v with %q remaining, want %v with %s", key, i, got.status.GetCode(), got.header["x-ratelimit-remaining"], code, want)
				}
			}
		}

		o := edge.RLSOptions{Rules: billingRules, Tiers: billingTiers, Env: map[string]string{
			envRulesPath: configtest.Write(t, "rules.yaml", billingRules), envTiersPath: configtest.Write(t, "tiers.yaml", billingTiers), envTiersSource: "file",
		}}
		explained := run(t, o, "", "explain", "--descriptor", "api_key=unknown-key")
		want := "month from the day in the label billing_day, otherwise from day 1 at 00:00, Europe/Berlin"
		if until := " to " + nextOn(1, berlin, time.Now()).Format(time.RFC3339); !strings.Contains(explained.stdout, want) || !strings.Contains(explained.stdout, until) {
			t.Errorf("rls explain does not say %q and %q:\n%s%s", want, until, explained.stdout, explained.stderr)
		}
	})
}

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
			got, out := postJSON(t, p.HTTP(), question(1, unit+"=k"))
			seen = append(seen, out.GetOverallCode())
			if i == 3 {
				// The reference counts whole seconds from the second it is in.
				resets = append(resets, out.GetStatuses()[0].GetDurationUntilReset().AsDuration(), end.Sub(got.sent))
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
	options.Binary, options.Env = asRatelimit(t), map[string]string{"SLIDEGATE_RULES_POLICY": "fixed"}
	ours := servers.StartReference(t, options)

	for unit, length := range map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour} {
		if left := time.Until(time.Now().Truncate(length).Add(length)); left < 5*time.Second {
			waitUntil(time.Now().Add(left))
		}
		if !fillsAlike(t, unit, length, reference, ours) {
			t.Errorf("%s: four requests took longer than 5 s", unit)
		}
	}
	rounds := 0
	for give := time.Now().Add(patience); rounds < 4 && time.Now().Before(give); {
		waitUntil(time.Now().Truncate(time.Second).Add(time.Second))
		if fillsAlike(t, "second", time.Second, reference, ours) {
			rounds++
		}
	}
	if rounds < 4 {
		t.Errorf("only %d rounds fit into a second of the clock", rounds)
	}
}
