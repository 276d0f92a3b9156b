package insight

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// logPages returns all pages of the logs of rules, by rule, subject and values.
func (a *counted) logPages(rules ...string) map[string]LimitUsage {
	a.t.Helper()
	all := make(map[string]LimitUsage)
	for q, n := (LogsQuery{Rules: rules}), 0; ; n++ {
		l, err := a.Logs(a.t.Context(), q)
		if err != nil {
			a.t.Fatal(err)
		}
		if len(l.Logs) > pageLimits || n > 500 {
			a.t.Fatalf("page %d has %d logs", n, len(l.Logs))
		}
		for _, one := range l.Logs {
			all[fmt.Sprintf("%s|%s|%s|%s", one.Rule, one.Subject, one.Values, one.Amount())] = one
		}
		if q.Cursor = l.Next; q.Cursor == "" {
			return all
		}
	}
}

// TestLogs: the list has the logs of all subjects, with the numbers that a query for each subject
// gets, on as many pages as it takes, and no key and no hidden value.
func TestLogs(t *testing.T) {
	a := newCounted(t, nil)
	for range 3 {
		a.ask(1, "api_key="+plantedKey)
		a.ask(1, "api_key=own-key")
		*a.clock += 10 * time.Second
	}
	a.ask(1, "session_id=private,api_key="+plantedKey)
	a.ask(1, "api_key="+strangersKey, "remote_address=192.0.2.7")
	a.ask(1, "generic=all")
	for i := range 350 {
		a.ask(1, fmt.Sprintf("api_key=%s,route=r%d", plantedKey, i))
	}
	before := dump(t, a.store)
	all := a.logPages()
	if got := dump(t, a.store); !reflect.DeepEqual(got, before) {
		t.Error("the list has changed the store")
	}
	for _, id := range []string{"acme", "own"} {
		for _, want := range a.pages(Query{Subject: id}).Limits {
			if want.Used == 0 {
				continue
			}
			found := false
			for _, got := range all {
				if got.Subject == id && got.Log == want.Log && got.Policy == want.Policy && got.Window == want.Window {
					found = true
					if got.Used != want.Used || got.Limit != want.Limit || got.Tier != want.Tier || got.Override != want.Override || !slices.Equal(got.History, want.History) || got.Shadow != want.Shadow {
						t.Errorf("%s: %+v, want %+v", id, got, want)
					}
				}
			}
			if !found {
				t.Errorf("%s: %s is not in the list", id, want.line())
			}
		}
	}
	for _, key := range []string{
		"per-key|acme||5 per 1m", "per-key|acme||20 per 1h", "per-key|own||7 per 1m", "per-key||address=192.0.2.7|3 per 1m",
		"address||remote_address=192.0.2.7|9 per 1m", "sessions|acme|session_id=***|4 per 1m", "all|||9 per 1m", "routes|acme|route=r349|4 per 1m",
	} {
		if all[key].Used == 0 {
			t.Errorf("the list lacks %s", key)
		}
	}
	if len(all) != 350+7 {
		t.Errorf("%d logs, want %d", len(all), 350+7)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{plantedKey, strangersKey, "own-key", "private"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the list has %s", secret)
		}
	}
	if one, two := a.logPages("all"), a.logPages("per-key", "all"); len(one) != 1 || len(two) != 5 {
		t.Errorf("%d logs of one rule and %d of two, want 1 and 5", len(one), len(two))
	}
}

// TestLogsRefused: what is not a rule or a cursor is refused, and a store that does not answer is told.
func TestLogsRefused(t *testing.T) {
	a := newCounted(t, func(o *Options) { o.Inspector = &brokenInspector{Inspector: o.Inspector, list: errors.New("down")} })
	for _, q := range []LogsQuery{{Rules: []string{"nothing"}}, {Rules: []string{""}}, {Cursor: "x"}, {Cursor: "!"}, {Cursor: strings.Repeat("A", maxCursor+1)}} {
		var invalid *InvalidError
		if _, err := a.Logs(t.Context(), q); !errors.As(err, &invalid) {
			t.Errorf("%+v: got %v", q, err)
		}
	}
	if _, err := a.Logs(t.Context(), LogsQuery{}); err == nil || !strings.Contains(err.Error(), "the memory store cannot list its logs") {
		t.Errorf("got %v", err)
	}
}

// TestLogsWithoutTiers: the key of an entry says whether its values may be API keys.
func TestLogsWithoutTiers(t *testing.T) {
	a := newCounted(t, nil)
	rs := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key", "x-customer"}, nil)})
	for _, key := range []string{"path", "api_key", "x-my-token"} {
		if err := rs.Add(rules.Rule{Domain: "edge", Name: key, Path: pathOf(key), Terms: rules.Terms{Limits: []rules.Limit{limitOf(5, time.Minute)}}}); err != nil {
			t.Fatal(err)
		}
	}
	a.rules = rs
	a.decider = decide.NewDecider(rs, decide.Options{Store: a.store})
	for _, request := range []string{"path=/x", "api_key=" + strangersKey, "x-my-token=" + strangersKey} {
		a.ask(1, request)
	}
	page, err := a.Logs(t.Context(), LogsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range page.Logs {
		got = append(got, l.Values)
	}
	slices.Sort(got)
	if want := []string{"key=***", "path=/x", "x-my-token=***"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if text := fmt.Sprintf("%+v", page); strings.Contains(text, strangersKey) {
		t.Errorf("the key is in %s", text)
	}
}
