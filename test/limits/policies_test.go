package limits

import (
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// billingRules have a month that starts on the subject's own day.
const (
	billingRules = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: quota, policy: calendar, unit: month, requests_per_unit: 3, time_zone: Europe/Berlin, starts_label: billing_day}}
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
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		env := stack.With(settings, map[string]string{stack.EnvStyles: "ratelimit,x-ratelimit"})
		rls := stack.Setup{Rules: billingRules, Tiers: billingTiers, Env: env}.Serve(t)
		for key, day := range map[string]int{"acme-key": 15, "unknown-key": 1} {
			if end := nextOn(day, berlin, time.Now()); time.Until(end) < 2*process.Patience {
				process.WaitUntil(end.Add(time.Second)) // the month must not end in the test
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
			stack.EnvRulesPath: configtest.Write(t, "rules.yaml", billingRules), stack.EnvTiersPath: configtest.Write(t, "tiers.yaml", billingTiers), stack.EnvTiersSource: "file",
		}}
		explained := edge.Run(t, o, "", "explain", "--descriptor", "api_key=unknown-key")
		want := "month from the day in the label billing_day, otherwise from day 1 at 00:00, Europe/Berlin"
		if until := " to " + nextOn(1, berlin, time.Now()).Format(time.RFC3339); !strings.Contains(explained.Stdout, want) || !strings.Contains(explained.Stdout, until) {
			t.Errorf("rls explain does not say %q and %q:\n%s%s", want, until, explained.Stdout, explained.Stderr)
		}
	})
}
