package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/coretest"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// TestExplainTheLargestLimit proves that the explanation describes the special limit of
// 4294967295.
func TestExplainTheLargestLimit(t *testing.T) {
	l := window.Limit{Hits: window.Unlimited, Window: time.Minute}
	rs := coretest.Build(t, rule("endless", rules.Terms{Limits: []rules.Limit{{Limit: l, Precision: window.Precision(l)}}}, anyOf("f")))
	for range 2 {
		e, err := explainWith(t, rs, *request("f=1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := `  rule endless: 4294967295 per 1m
    log   none: a limit of 4294967295 keeps no log, denies nothing, and always shows all of it remaining
    while the store cannot decide: report
    cost  1, has room, 4294967295 remain
`
		if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant\n%s", text, want)
		}
	}
}

func TestExplain(t *testing.T) {
	rs := coretest.Build(t,
		rules.Rule{Name: "per-key", Path: []descriptors.Node{anyOf("api_key")}, Terms: per(1, time.Minute), ByTier: map[string]rules.Terms{"starter": per(2, time.Minute)}},
		rule("files", rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 1, Window: time.Minute}, Precision: time.Second, Lease: window.Lease{Length: 50 * time.Millisecond}}}}, fits("f", "a*"), anyOf("u")),
		with(rule("later", per(5, time.Minute), fits("f", "b*")), func(r *rules.Rule) { r.Terms.Observe = 1 }),
	)
	req := request("api_key=acme-key", "f=b1", "f=b1 u=1", "f=a1 u=1", "f=a1", "other=1", "form=openai")
	req.Descriptors[1].Cost = 6
	e, err := explainWith(t, rs, *req, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(`
descriptor 1
  api_key=*** matches the key with any value
  rule per-key for tier starter of subject acme: 2 per 1m
    log   {id.acme}:edge|api_key:id.acme
    while the store cannot decide: report
    cost  1, has room, 1 remain
descriptor 2
  f=b1 does not fit f=a*
  f=b1 matches the wildcard f=b*
  rule later: 5 per 1m, only observed
    log   {b1}:edge|f*=b%2A:b1
    while the store cannot decide: report
    cost  6, more than the limit: it is denied however long the caller waits
descriptor 3
  f=b1 does not fit f=a*
  f=b1 matches the wildcard f=b*
  u=1: no rule here has this key with this value, or the key alone
descriptor 4
  f=a1 matches the wildcard f=a*
  u=1 matches the key with any value
  rule files: 1 per 1m
    a hit counts up to 1s longer than the window
    lease for 50ms, where a key is asked for often
    log   {1}:edge|f*=a%2A/u:a1,1
    while the store cannot decide: report
    cost  1, has room, 0 remain
descriptor 5
  f=a1 matches the wildcard f=a*
  no rule ends here: a descriptor that is longer or shorter than a rule is not limited by it
descriptor 6
  other=1: no rule here has this key with this value, or the key alone
descriptor 7
  form=openai: denied clients get an answer as this kind of client reads it, unless a rule has a body
answer: OK
  headers and metadata describe the rule files
  the rule later would have denied it if it were not only observed
`)
	if diff := cmp.Diff(want, strings.Join(e.Lines, "\n")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	req = request("api_key=made-up")
	req.Tier = "starter"
	e, err = explainWith(t, rs, *req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, "for tier starter: 2 per 1m") || strings.Contains(text, "made-up") {
		t.Errorf("with a tier that is asked for:\n%s", text)
	}
	e, err = explainWith(t, rs, *req, func(id window.LogID) string { return fmt.Sprintf("prefix:%s:%v", id.Key, id.Window) })
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, "\n    in Redis: prefix:{") || !strings.Contains(text, ":1m0s\n") {
		t.Errorf("with names in Redis:\n%s", text)
	}
	req = request("f=a1")
	req.Domain = "other"
	if e, err = explainWith(t, rs, *req, nil); err == nil || !strings.Contains(err.Error(), `no domain "other"`) {
		t.Errorf("unknown domain: %v, %v", e, err)
	}
}

// TestExplainDenials: an explanation says how denied clients are answered.
func TestExplainDenials(t *testing.T) {
	rs := coretest.Build(t, with(rule("r", per(1, time.Minute), anyOf("f")), func(r *rules.Rule) {
		r.Answer = rules.Answer{NeverRetry: true, Denial: rules.Denial{Form: rules.FormMCP}}
	}))
	e, err := explainWith(t, rs, *request("f=1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"    body    mcp: denied clients", "    client_retry never: x-should-retry"} {
		if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %s…", text, want)
		}
	}
}

// explainWith explains a request with an empty store.
func explainWith(t *testing.T, rs *rules.Rules, req decide.Request, inRedis func(window.LogID) string) (*Explanation, error) {
	t.Helper()
	store := memstore.New(memstore.Options{})
	defer func() { _ = store.Close() }()
	return Explain(t.Context(), decide.NewDecider(rs, decide.Options{Store: store}), req, inRedis)
}

// TestExplainPolicies: an explanation says how a limit counts.
func TestExplainPolicies(t *testing.T) {
	month, err := calendar.New(calendar.Spec{Unit: "month", TimeZone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	ofMonth := rules.Limit{Limit: window.Limit{Hits: 100, Window: month.Unit().Nominal(), Policy: window.Calendar}, Calendar: month, StartsLabel: "billing_day"}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().In(berlin)
	period := fmt.Sprintf("from %s to ", time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, berlin).Format(time.RFC3339)) +
		time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, berlin).Format(time.RFC3339)
	for _, tt := range []struct {
		l    rules.Limit
		want []string
	}{
		{bucketLimit, []string{"rule r: 10 per 1s, bursts of 50", "10 in each 1s on average, up to 50 at once after 5s without requests, and so up to 60 in any 1s", "49 remain"}},
		{fixedLimit, []string{"rule r: 1000 per 1h fixed", "1,000 in each 1h of the clock, so up to 2,000 in any 1h around its end"}},
		{counterLimit, []string{"rule r: 1000000 per 1d sliding_counter", "up to 1,999,999 in the worst case"}},
		{ofMonth, []string{"rule r: 100 per month", "month from the day in the label billing_day, otherwise from day 1 at 00:00, Europe/Berlin", "the present period is " + period}},
	} {
		rs := rules.NewRules(rules.Identity{Secrets: secrets})
		if err := rs.Add(rules.Rule{Domain: "edge", Path: []descriptors.Node{anyOf("f")}, Name: "r", Terms: rules.Terms{Limits: []rules.Limit{tt.l}}}); err != nil {
			t.Fatal(err)
		}
		store := memstore.New(memstore.Options{})
		defer store.Close()
		e, err := Explain(t.Context(), decide.NewDecider(rs, decide.Options{Store: store}), decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{
			{Entries: descriptors.Descriptor{{Key: "f", Value: "x"}}, Cost: 1},
		}}, nil)
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
