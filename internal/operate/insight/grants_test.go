package insight

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/sharedlist"
)

// newGranting returns an Insight with grants, on the clock of its store.
func newGranting(t *testing.T) *counted {
	t.Helper()
	var clock *time.Duration
	now := func() time.Time {
		if clock == nil {
			return time.Unix(0, int64(1000*time.Hour)) // not made yet
		}
		return time.Unix(0, int64(*clock))
	}
	grants := NewGrants(new(sharedlist.Memory), now, zap.NewNop())
	a := newCounted(t, func(o *Options) { o.Grants, o.Now = grants, now })
	clock = a.clock
	a.decider = decide.NewDecider(a.rules, decide.Options{Store: a.store, Clock: a.store.Now, Grants: grants.Active})
	return a
}

// raise returns a request to double a rule for an hour.
func raise(subject, rule string) GrantRequest {
	return GrantRequest{Caller: grant.Caller{Subject: subject}, Rule: rule, Amount: grant.Amount{Factor: 2}, Until: "1h", Reason: "a launch", By: "kim\n"}
}

// TestGrant: a grant is in force at once, usage says so, the audit log has it, and a second one of the
// same rule replaces it. It ends by itself or is revoked.
func TestGrant(t *testing.T) {
	a := newGranting(t)
	passes := func(n int) (passed int) {
		for range n {
			if a.ask(1, "api_key="+plantedKey) {
				passed++
			}
		}
		return passed
	}
	if n := passes(10); n != 5 {
		t.Fatalf("%d pass", n)
	}
	first, err := a.Grant(t.Context(), raise("acme", "per-key"))
	if err != nil {
		t.Fatal(err)
	}
	if n := passes(10); n != 5 {
		t.Errorf("%d more pass", n)
	}
	limits := a.pages(Query{Subject: "acme", Rule: "per-key"}).of("per-key")
	if len(limits) != 2 || limits[0].Grant != first || limits[0].Limit != 10 || limits[0].Used != 10 || limits[1].Limit != 40 {
		t.Errorf("got %+v", limits)
	}
	r := raise("acme", "per-key")
	r.Factor, r.Limit, r.Until, r.Reason = 0, "15/minute", a.opts.Now().Add(30*time.Second).Format(time.RFC3339), "more"
	second, err := a.Grant(t.Context(), r)
	if all := a.Grants(); err != nil || len(all) != 1 || all[0] != second || second.Limit != "15/minute" || second.By != `kim\n` {
		t.Fatalf("got %+v, %v", all, err)
	}
	if n := passes(10); n != 5 {
		t.Errorf("%d pass under the second grant", n)
	}
	*a.clock += 30 * time.Second
	if len(a.Grants()) != 0 || a.opts.Grants.Active.Load() != nil {
		t.Error("the grant has not ended")
	}
	if l := a.pages(Query{Subject: "acme", Rule: "per-key"}).of("per-key")[0]; l.Grant != nil || l.Limit != 5 || l.Used != 15 {
		t.Errorf("after its end: %+v", l)
	}
	third, err := a.Grant(t.Context(), raise("acme", "per-key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Revoke(t.Context(), third.ID, "lee"); err != nil || len(a.Grants()) > 0 {
		t.Errorf("Revoke: %v", err)
	}
	if _, err := a.Revoke(t.Context(), third.ID, "lee"); !errors.Is(err, ErrNoGrant) {
		t.Errorf("Revoke again: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(a.log.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("the audit log has %s", a.log)
	}
	for n, want := range map[int]map[string]any{
		0: {"msg": "an operator has granted more of a limit", "id": first.ID, "by": `kim\n`, "subject": "acme", "rule": "per-key", "amount": "×2", "reason": "a launch"},
		3: {"msg": "an operator has revoked a grant", "id": third.ID, "by": "lee", "subject": "acme"},
	} {
		var line map[string]any
		if err := json.Unmarshal([]byte(lines[n]), &line); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if line[name] != text {
				t.Errorf("line %d has %s %v, want %v", n, name, line[name], text)
			}
		}
	}
}

// TestUntil reads the forms of a time.
func TestUntil(t *testing.T) {
	now := time.Date(2026, 10, 24, 17, 30, 0, 0, time.FixedZone("", 2*60*60))
	for text, want := range map[string]string{
		"18:00": "2026-10-24T18:00:00Z", "15:30": "2026-10-25T15:30:00Z", "9:05": "2026-10-25T09:05:00Z",
		"2h": "2026-10-24T17:30:00Z", "+2h": "2026-10-24T17:30:00Z", "1d": "2026-10-25T15:30:00Z",
		"2026-10-24T18:00:00+02:00": "2026-10-24T16:00:00Z", "": "", "tomorrow": "", "25:00": "", "18": "",
	} {
		until, err := Until(text, now)
		if want == "" {
			if err == nil {
				t.Errorf("%q: %v, %v", text, until, err)
			}
		} else if got := until.UTC().Format(time.RFC3339); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
}

// TestGrantsThatAreRefused: each mistake has an error that says what to do, and leaves no trace.
func TestGrantsThatAreRefused(t *testing.T) {
	a := newGranting(t)
	a.ask(1, "remote_address=192.0.2.7")
	for name, tt := range map[string]struct {
		change func(*GrantRequest)
		want   string
	}{
		"a mistyped rule":      {func(r *GrantRequest) { r.Rule = "per-kye" }, `no rule "per-kye", did you mean "per-key"?`},
		"a key for a rule":     {func(r *GrantRequest) { r.Rule = plantedKey }, "no rule has this name"},
		"no rule":              {func(r *GrantRequest) { r.Rule = "" }, "rule: name the rule"},
		"an unknown customer":  {func(r *GrantRequest) { r.Subject = "acm" }, "no such customer"},
		"a key for a customer": {func(r *GrantRequest) { r.Subject = plantedKey }, "no such customer"},
		"a disabled customer":  {func(r *GrantRequest) { r.Subject = "gone" }, "disabled"},
		"an unknown key":       {func(r *GrantRequest) { r.Subject, r.Digest = "", a.rules.Secrets().Digest(strangersKey) }, "ask with the address"},
		"an observed rule":     {func(r *GrantRequest) { r.Rule = "routes" }, "only observed"},
		"an unlimited rule":    {func(r *GrantRequest) { r.Subject, r.Rule = "own", "hourly" }, "does not limit it"},
		"a rule of others":     {func(r *GrantRequest) { r.Rule = "address" }, "does not apply to it"},
		"another window":       {func(r *GrantRequest) { r.Factor, r.Limit = 0, "500/day" }, "a larger number for the same window"},
		"a smaller number":     {func(r *GrantRequest) { r.Factor, r.Limit = 0, "5/minute" }, "a larger number"},
		"a network":            {func(r *GrantRequest) { r.Subject, r.Address, r.Rule = "", "192.0.2.0/24", "address" }, "nothing to grant"},
		"two amounts":          {func(r *GrantRequest) { r.Limit = "5/minute" }, "a factor or a limit"},
		"a factor below 1":     {func(r *GrantRequest) { r.Factor = 0.5 }, "above 1"},
		"no reason":            {func(r *GrantRequest) { r.Reason = "" }, "reason: it is missing"},
		"no time":              {func(r *GrantRequest) { r.Until = "" }, "until: write a time"},
		"the past":             {func(r *GrantRequest) { r.Until = "2000-01-01T00:00:00Z" }, "in the next 31 days"},
		"a year":               {func(r *GrantRequest) { r.Until = "365d" }, "in the next 31 days"},
		"two callers":          {func(r *GrantRequest) { r.Address = "192.0.2.7" }, "exactly one"},
	} {
		r := raise("acme", "per-key")
		tt.change(&r)
		_, err := a.Grant(t.Context(), r)
		invalid := new(InvalidError)
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if a.log.Len() > 0 || len(a.Grants()) > 0 {
		t.Errorf("refused requests left traces: %s", a.log)
	}
	r := raise("", "address")
	r.Address = "192.0.2.7:443"
	if g, err := a.Grant(t.Context(), r); err != nil || g.Address != "192.0.2.7" {
		t.Errorf("an address: %+v, %v", g, err)
	}
}
