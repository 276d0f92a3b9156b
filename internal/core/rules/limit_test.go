package rules_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestLimitTexts: every text about a limit names how it counts.
func TestLimitTexts(t *testing.T) {
	odd := bucketLimit
	odd.Rate = 7
	labelled := monthLimit(t)
	labelled.StartsLabel = "billing_day"
	for _, tt := range []struct {
		l         rules.Limit
		text, log string
		words     string
		worst     uint64
		fill      time.Duration
		exact     bool
	}{
		{l: slidingLimit, text: "100 per 1m", log: "1m", words: "100 in any 1m", worst: 100},
		{
			l: bucketLimit, text: "10 per 1s, bursts of 50", log: "bucket-1s",
			words: "10 in each 1s on average, up to 50 at once after 5s without requests, and so up to 60 in any 1s", worst: 60, fill: 5 * time.Second, exact: true,
		},
		{
			l: odd, text: "7 per 1s, bursts of 50", log: "bucket-1s",
			words: "7 in each 1s on average, up to 50 at once after 7.2s without requests, and so up to 57 in any 1s", worst: 57, fill: 7_142_857_143,
		},
		{
			l: fixedLimit, text: "1000 per 1h fixed", log: "fixed-1h",
			words: "1,000 in each 1h of the clock, so up to 2,000 in any 1h around its end", worst: 2000,
		},
		{
			l: counterLimit, text: "1000000 per 1d sliding_counter", log: "counter-1d",
			words: "about 1,000,000 in any 1d, and up to 1,999,999 in the worst case", worst: 1_999_999,
		},
		{
			l: monthLimit(t), text: "10000 per month", log: "month",
			words: "10,000 in each calendar month (month from day 15 at 00:00, Europe/Berlin), so up to 20,000 around its end", worst: 20_000,
		},
		{
			l: labelled, text: "10000 per month", log: "month",
			words: "10,000 in each calendar month (month from the day in the label billing_day, otherwise from day 15 at 00:00, Europe/Berlin), so up to 20,000 around its end", worst: 20_000,
		},
		{
			l: inFlightLimit, text: "20 requests in flight", log: "in_flight",
			words: "20 at the same time, each for 5m at most", worst: 20,
		},
	} {
		if got := rules.FormatLimit(tt.l.Limit); got != tt.text {
			t.Errorf("FormatLimit = %q, want %q", got, tt.text)
		}
		if got := rules.FormatLog(tt.l.Policy, tt.l.Window); got != tt.log || !rules.ValidName(got) {
			t.Errorf("%s: FormatLog = %q, want %q, which is a valid name", tt.text, got, tt.log)
		}
		if got := tt.l.Words(); got != tt.words {
			t.Errorf("%s: in words %q, want %q", tt.text, got, tt.words)
		}
		if got := rules.WorstCase(tt.l.Limit); got != tt.worst {
			t.Errorf("%s: WorstCase = %d, want %d", tt.text, got, tt.worst)
		}
		if tt.l.Policy == window.TokenBucket {
			if fill, exact := rules.FillTime(tt.l.Limit); fill != tt.fill || exact != tt.exact {
				t.Errorf("%s: fillTime = %v, exact %v; want %v, %v", tt.text, fill, exact, tt.fill, tt.exact)
			}
		}
		if got := rules.ParsePolicy(tt.l.Policy.String()); got != tt.l.Policy {
			t.Errorf("ParsePolicy(%v) = %v", tt.l.Policy, got)
		}
	}
}

// TestNamesOfSeveralPolicies: the limits of one rule have different names in headers.
func TestNamesOfSeveralPolicies(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	r := rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("f")}, Name: "r", Terms: rules.Terms{Limits: []rules.Limit{
		slidingLimit,
		{Limit: window.Limit{Hits: 9, Window: time.Minute, Policy: window.Fixed}},
		bucketLimit,
		{Limit: window.Limit{Hits: 9, Window: time.Minute, Policy: window.SlidingCounter}},
		monthLimit(t), inFlightLimit,
	}}}
	if err := rs.Add(r); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range rs.All()[0].Terms.Limits {
		got = append(got, l.Name)
	}
	if diff := cmp.Diff([]string{"r-1m", "r-fixed-1m", "r-bucket-1s", "r-counter-1m", "r-month", "r-in_flight"}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
