package decide_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// explainWith explains a request by the active rules of a decider, with an empty store.
func explainWith(t *testing.T, d *decide.Decider, req decide.Request) (*explain.Explanation, error) {
	t.Helper()
	store := memstore.New(memstore.Options{})
	defer func() { _ = store.Close() }()
	return explain.Explain(t.Context(), d.Rules(), req, decide.Options{Store: store}, nil)
}

// TestWhatLooksSecretIsNotShown has a rule for one value of an entry that looks like a
// secret but is not configured as one. The name of the log contains the value, which is
// why validate warns.
func TestWhatLooksSecretIsNotShown(t *testing.T) {
	var now time.Duration
	d, got := decide.NewModes(t, nil, &now,
		with(rule("", per(9, time.Minute), one("my_password", "hunter2"), anyOf("bearer-token")), func(r *rules.Rule) { r.Detailed = true }),
	)
	e, err := explainWith(t, d, *request("my_password=hunter2 bearer-token=t0ps3cret"))
	if err != nil {
		t.Fatal(err)
	}
	r := d.Rules().All()[0]
	var lines []string
	for _, line := range e.Lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "log ") {
			lines = append(lines, line)
		}
	}
	review := explain.NewReview(d.Rules()).Domains[0].Rules[0]
	text := fmt.Sprintln(r.Name, r, got, lines, review.Path, review.Name)
	for _, secret := range []string{"hunter2", "t0ps3cret"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is shown in\n%s", secret, text)
		}
	}
	if want := "my_password.bearer-token"; r.Name != want {
		t.Errorf("name = %s, want %s", r.Name, want)
	}
}

// TestOnceInAccounts: usage and resets by a descriptor find the log of its other entries.
func TestOnceInAccounts(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	decide.AddOnce(t, rs, with(rule("orders", per(5, time.Hour), anyOf("user")), decide.Once))
	decide.AddOnce(t, rs, rule("search", per(5, time.Hour), one("route", "search"), anyOf("user")))
	logs := func(text string) (all []window.LogID) {
		p := explain.AccountOf(t.Context(), rs, explain.AccountQuery{Domain: "edge", Entries: d(text).Entries})
		limits, _ := p.Rule(0)
		for i := range limits {
			all = append(all, limits[i].Log)
		}
		return all
	}
	for sent, without := range map[string]string{"attempt=1 user=k": "user=k", "route=search attempt=1 user=k": "route=search user=k"} {
		if got, want := logs(sent), logs(without); len(want) != 1 || !slices.Equal(got, want) {
			t.Errorf("%s has the logs %v, want %v", sent, got, want)
		}
	}
}

// TestOnceIsReported: validate and explain tell of charge_once, and not of the key.
func TestOnceIsReported(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	r := with(rule("keys", per(10, time.Second), anyOf("api_key")), decide.Once)
	decide.AddOnce(t, rs, with(r, func(r *rules.Rule) { r.Once.For = 10 * time.Minute }))
	var text strings.Builder
	fmt.Fprint(&text, explain.NewReview(rs))
	store := memstore.New(memstore.Options{})
	defer store.Close()
	got, err := explain.Explain(t.Context(), rs, decide.Request{Domain: "edge", Descriptors: []decide.Descriptor{d("api_key=k attempt=my-secret-key")}}, decide.Options{Store: store}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text.WriteString(strings.Join(got.Lines, "\n"))
	for _, want := range []string{
		`charge_once="attempt for 10m, 2 retries"`, "a caller can save up the free retries of all requests that the limit admits",
		"attempt=*** names the attempt, and not the log: attempt for 10m, 2 retries",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "my-secret-key") {
		t.Errorf("the key is in\n%s", text.String())
	}
}

// TestExplainBillingDay: an explanation has the day on which the periods of a subject start.
func TestExplainBillingDay(t *testing.T) {
	const rule = "month from the day in the label billing_day, otherwise from day 1 at 00:00, Europe/Berlin), so up to 20 around its end\n    the present period is from"
	for _, tt := range []struct{ key, day, want string }{
		{"acme-key", "15", "month from day 15 at 00:00, Europe/Berlin), so up to 20 around its end; the day is in the label billing_day"},
		{"acme-key", "1", "month from day 1 at 00:00, Europe/Berlin), so up to 20 around its end; the day is in the label billing_day"},
		{"acme-key", "first", rule},
		{"x", "15", rule},
	} {
		m := decide.NewMonthly(t, 10, map[string]string{"billing_day": tt.day})
		e, err := explainWith(t, m.Decider(), *request("api_key=" + tt.key))
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(e.Lines, "\n"); !strings.Contains(text, tt.want) {
			t.Errorf("%s, day %s: no %q in\n%s", tt.key, tt.day, tt.want, text)
		}
	}
}

// TestExplainChangesNothing explains by rules that are active, and compares what the decider
// counts and has learned.
func TestExplainChangesNothing(t *testing.T) {
	var now time.Duration
	d, got := decide.NewModes(t, nil, &now, rule("a", per(5, time.Minute), anyOf("f")))
	before := maps.Clone(got)
	req := request("f=1", "f=2", "none=1")
	req.Descriptors[0].Cost = 0
	for range 3 {
		if _, err := explainWith(t, d, *req); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if d.Asked(0) {
		t.Error("an explanation counts as a quota check")
	}
	if _, err := explain.Explain(t.Context(), rules.NewRules(rules.Identity{Secrets: new(tier.Secrets)}), decide.Request{Domain: "x", Descriptors: []decide.Descriptor{{Entries: descriptors.Descriptor{{Key: "f"}}}}}, decide.Options{}, nil); err == nil {
		t.Error("an unknown domain was explained")
	}
}
