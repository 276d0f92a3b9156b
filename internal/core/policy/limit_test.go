package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

const day = 24 * time.Hour

var (
	slidingLimit  = Limit{Limit: window.Limit{Hits: 100, Window: time.Minute}}
	bucketLimit   = Limit{Limit: window.Limit{Hits: 50, Rate: 10, Window: time.Second, Policy: window.TokenBucket}}
	fixedLimit    = Limit{Limit: window.Limit{Hits: 1000, Window: time.Hour, Policy: window.Fixed}}
	counterLimit  = Limit{Limit: window.Limit{Hits: 1_000_000, Window: day, Policy: window.SlidingCounter}}
	inFlightLimit = Limit{Limit: window.Limit{Hits: 20, Window: 5 * time.Minute, Policy: window.InFlight}}
)

// monthLimit is a limit of a month in Berlin that begins on day 15.
func monthLimit(t testing.TB) Limit {
	t.Helper()
	fifteenth := 15
	c, err := calendar.New(calendar.Spec{Unit: "month", TimeZone: "Europe/Berlin", Starts: calendar.Starts{Day: &fifteenth}})
	if err != nil {
		t.Fatal(err)
	}
	return Limit{Limit: window.Limit{Hits: 10_000, Window: 30 * day, Policy: window.Calendar}, Calendar: c}
}

// TestLimitTexts: every text about a limit names how it counts.
func TestLimitTexts(t *testing.T) {
	odd := bucketLimit
	odd.Rate = 7
	labelled := monthLimit(t)
	labelled.StartsLabel = "billing_day"
	for _, tt := range []struct {
		l         Limit
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
		if got := FormatLimit(tt.l.Limit); got != tt.text {
			t.Errorf("FormatLimit = %q, want %q", got, tt.text)
		}
		if got := FormatLog(tt.l.Policy, tt.l.Window); got != tt.log || !ValidName(got) {
			t.Errorf("%s: FormatLog = %q, want %q, which is a valid name", tt.text, got, tt.log)
		}
		if got := amount(&tt.l); got != tt.words {
			t.Errorf("%s: in words %q, want %q", tt.text, got, tt.words)
		}
		if got := WorstCase(tt.l.Limit); got != tt.worst {
			t.Errorf("%s: WorstCase = %d, want %d", tt.text, got, tt.worst)
		}
		if tt.l.Policy == window.TokenBucket {
			if fill, exact := fillTime(tt.l.Limit); fill != tt.fill || exact != tt.exact {
				t.Errorf("%s: fillTime = %v, exact %v; want %v, %v", tt.text, fill, exact, tt.fill, tt.exact)
			}
		}
		if got := ParsePolicy(tt.l.Policy.String()); got != tt.l.Policy {
			t.Errorf("ParsePolicy(%v) = %v", tt.l.Policy, got)
		}
	}
}

// TestNamesOfSeveralPolicies: the limits of one rule have different names in headers.
func TestNamesOfSeveralPolicies(t *testing.T) {
	rules := NewRules(Identity{Secrets: secrets})
	r := Rule{Domain: "edge", Path: []descriptors.Node{anyOf("f")}, Name: "r", Terms: Terms{Limits: []Limit{
		slidingLimit,
		{Limit: window.Limit{Hits: 9, Window: time.Minute, Policy: window.Fixed}},
		bucketLimit,
		{Limit: window.Limit{Hits: 9, Window: time.Minute, Policy: window.SlidingCounter}},
		monthLimit(t), inFlightLimit,
	}}}
	if err := rules.Add(r); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range rules.All()[0].Terms.Limits {
		got = append(got, l.Name)
	}
	if diff := cmp.Diff([]string{"r-1m", "r-fixed-1m", "r-bucket-1s", "r-counter-1m", "r-month", "r-in_flight"}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// TestOrderOfPolicies: a full limit of requests in flight is decisive only if no other wait is
// longer, and one with room only if it is alone.
func TestOrderOfPolicies(t *testing.T) {
	of := func(l Limit, d window.Decision) LimitStatus { return LimitStatus{Limit: l, Decision: d} }
	room := func(remaining uint64) window.Decision {
		return window.Decision{Allowed: true, Remaining: remaining, ResetAfter: time.Second}
	}
	full := func(wait time.Duration) window.Decision {
		return window.Decision{RetryAfter: wait, UnitAfter: wait, ResetAfter: wait}
	}
	for name, tt := range map[string]struct{ stricter, other LimitStatus }{
		"full for long before full in flight":  {of(fixedLimit, full(time.Minute)), of(inFlightLimit, full(time.Hour))},
		"full in flight before full for short": {of(inFlightLimit, full(time.Hour)), of(bucketLimit, full(100*time.Millisecond))},
		"full in flight before room":           {of(inFlightLimit, full(time.Hour)), of(bucketLimit, room(1))},
		"all room before none left in flight":  {of(bucketLimit, room(50)), of(inFlightLimit, room(1))},
		"the smaller share of two in flight":   {of(inFlightLimit, room(1)), of(inFlightLimit, room(2))},
		"the smaller share of a bucket":        {of(bucketLimit, room(5)), of(fixedLimit, room(900))},
	} {
		if !tt.stricter.stricter(&tt.other) || tt.other.stricter(&tt.stricter) {
			t.Errorf("%s: not so", name)
		}
	}
}

// TestExplainPolicies: an explanation says how a limit counts.
func TestExplainPolicies(t *testing.T) {
	month, err := calendar.New(calendar.Spec{Unit: "month", TimeZone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	ofMonth := Limit{Limit: window.Limit{Hits: 100, Window: month.Unit().Nominal(), Policy: window.Calendar}, Calendar: month, StartsLabel: "billing_day"}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().In(berlin)
	period := fmt.Sprintf("from %s to ", time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, berlin).Format(time.RFC3339)) +
		time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, berlin).Format(time.RFC3339)
	for _, tt := range []struct {
		l    Limit
		want []string
	}{
		{bucketLimit, []string{"rule r: 10 per 1s, bursts of 50", "10 in each 1s on average, up to 50 at once after 5s without requests, and so up to 60 in any 1s", "49 remain"}},
		{fixedLimit, []string{"rule r: 1000 per 1h fixed", "1,000 in each 1h of the clock, so up to 2,000 in any 1h around its end"}},
		{counterLimit, []string{"rule r: 1000000 per 1d sliding_counter", "up to 1,999,999 in the worst case"}},
		{ofMonth, []string{"rule r: 100 per month", "month from the day in the label billing_day, otherwise from day 1 at 00:00, Europe/Berlin", "the present period is " + period}},
	} {
		rules := NewRules(Identity{Secrets: secrets})
		if err := rules.Add(Rule{Domain: "edge", Path: []descriptors.Node{anyOf("f")}, Name: "r", Terms: Terms{Limits: []Limit{tt.l}}}); err != nil {
			t.Fatal(err)
		}
		store := memstore.New(memstore.Options{})
		defer store.Close()
		e, err := rules.Explain(t.Context(), Request{Domain: "edge", Descriptors: []Descriptor{
			{Entries: descriptors.Descriptor{{Key: "f", Value: "x"}}, Cost: 1},
		}}, Options{Store: store}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(e.Lines, "\n")
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v: no line %q in\n%s", tt.l.Policy, want, text)
			}
		}
	}
}
