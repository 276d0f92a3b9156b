package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/test/servers"
)

// problems returns the problems that the instance names, by their help.
func (r *testRun) problems() map[string]insight.Problem {
	r.t.Helper()
	var s insight.State
	code, body := get(r.t, "http://"+r.Admin+"/v1/state")
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
		r.t.Fatalf("state: %d, %v\n%s", code, err, body)
	}
	all := make(map[string]insight.Problem)
	for _, p := range s.Problems {
		all[p.Help] = p
	}
	return all
}

// A fault is something that breaks, what names it in the state, and its repair.
type fault struct {
	name          string
	help          []string // sections of pages in docs
	text          string   // a part of the first one's text
	breaks, heals func()
}

// TestStateNamesProblems breaks real things one by one. The state names each with a section of
// the documentation, and names nothing after the repair.
func TestStateNamesProblems(t *testing.T) {
	server, customers := servers.StartRedis(t), servers.StartCustomers(t)
	s := usageSettings(t)
	onRedis(t, &s, server.Addr())
	s.Store.Timeout = 2 * time.Second // on a busy machine too the store decides
	u, _, err := settings.Load("", []string{"SLIDEGATE_TIERS_SOURCE=http", "SLIDEGATE_TIERS_HTTP_URL=http://" + customers.Addr() + "/lookup"})
	if err != nil {
		t.Fatal(err)
	}
	s.Tiers.Source, s.Tiers.HTTP.URL = u.Tiers.Source, u.Tiers.HTTP.URL
	write(t, s.Tiers.Path, "tiers: [free, pro]\ndefault: free\n")
	r := start(t, s)
	client, n := rlsv3.NewRateLimitServiceClient(dial(t, r.GRPC[0])), 0
	ask := func() {
		n++
		_, _ = client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{{
			Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "api_key", Value: fmt.Sprint("k-", n)}},
		}}}) // with a fault it may fail
	}
	for _, f := range []fault{
		{
			"Redis is stopped", []string{"operate.md#redis-is-slow-or-unavailable", "operate.md#fallback-answers"}, "The store does not decide: no node of the store decides", server.Stop, server.Start,
		},
		{
			"Redis evicts logs",
			[]string{"operate.md#set-up-redis"},
			"The server " + server.Addr() + " has the maxmemory-policy allkeys-lru",
			func() { set(t, "allkeys-lru", server) }, func() { set(t, "noeviction", server) },
		},
		{
			"the rules are broken",
			[]string{"operate.md#change-rules"},
			"A newer configuration was refused, and the last good one stays active: " + s.Rules.Path,
			func() {
				write(t, s.Rules.Path, "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: fortnight}}]\n")
			},
			func() { write(t, s.Rules.Path, usageRules) },
		},
		{
			"the rules are empty",
			[]string{"operate.md#no-client-is-denied"},
			"The rules are empty, so nothing is limited",
			func() { write(t, s.Rules.Path, "domain: edge\n") }, func() { write(t, s.Rules.Path, usageRules) },
		},
		{
			"the customer source fails",
			[]string{"reference/alerts.md#slidegatetierssourcefails"},
			"The customer source http fails and is not asked",
			customers.Stop, customers.Start,
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("problems: %+v", r.problems())
				}
			}()
			quiet := func() bool { ask(); return len(r.problems()) == 0 }
			waitFor(t, "no problem before", quiet)
			f.breaks()
			waitFor(t, "the problem", func() bool {
				ask()
				all := r.problems()
				return !slices.ContainsFunc(f.help, func(help string) bool {
					p, ok := all[docs.Path+help]
					return !ok || help == f.help[0] && !strings.Contains(p.Text, f.text)
				})
			})
			for _, help := range f.help {
				page, _, _ := strings.Cut(help, "#")
				if code, body := get(t, "http://"+r.Admin+docs.Path+page); code != http.StatusOK || !strings.Contains(body, "# ") {
					t.Errorf("%s: %d, want the page", page, code)
				}
			}
			f.heals()
			waitFor(t, "no problem after", quiet)
		})
	}
}

// TestStateWithoutRules has an xDS server that has sent no rules.
func TestStateWithoutRules(t *testing.T) {
	s := testSettings(t)
	s.Rules.Source, s.Rules.XDS.Address, s.DropIn.WithoutRules = settings.RulesXDS, "127.0.0.1:1", true
	r := start(t, s)
	if p := r.problems()[docs.Path+"operate.md#rules-from-an-xds-server"]; p.Level != levelError || !strings.Contains(p.Text, "No rules are loaded") {
		t.Errorf("got %+v", r.problems())
	}
}
