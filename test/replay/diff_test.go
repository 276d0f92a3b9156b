package replay

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/internal/offline/diff"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

const diffTiers = "tiers: [free]\ndefault: free\nsubjects:\n  - {id: acme, keys: [{plain: key-acme}]}\n  - {id: globex, keys: [{plain: key-globex}]}\n"

// TestDiffLive asks running services who would be denied under new rules, and then gives them the
// new rules: they deny the party that was named, and no other.
func TestDiffLive(t *testing.T) {
	t.Parallel()
	rules := func(limit string) string {
		return "domain: edge\ndescriptors: [{key: api_key, rate_limit: {name: per-key, " + limit + "}}, {key: other, rate_limit: {window: 1h, requests: 9}}]\n"
	}
	redis := servers.StartRedis(t)
	for store, env := range map[string]map[string]string{
		"memory": {},
		"redis":  {stack.EnvStoreType: "redis", stack.EnvRedisURL: "redis://" + redis.Addr(), stack.EnvStoreTimeout: "10s"},
	} {
		t.Run(store, func(t *testing.T) {
			rls := edge.RLS(t, edge.RLSOptions{Rules: rules("window: 1h, requests: 100"), Tiers: diffTiers, Env: env})
			ask := func(key string) bool {
				t.Helper()
				r, err := ratelimit.Ask(t.Context(), stack.Dial(t, rls), "edge", []descriptors.Descriptor{{{Key: "api_key", Value: key}}}, 1)
				if err != nil {
					t.Fatal(err)
				}
				return r.Denied
			}
			for range 12 {
				ask("key-acme")
			}
			ask("key-globex")
			tiers := configtest.Write(t, "tiers.yaml", diffTiers)
			old, now := configtest.Write(t, "old.yaml", rules("window: 1h, requests: 100")), configtest.Write(t, "new.yaml", rules("window: 60m, requests: 5"))
			asked := edge.RLSOptions{Env: map[string]string{"SLIDEGATE_ADMIN_TOKEN": edge.ActToken}}
			args := []string{"diff", old, now, "--tiers", tiers, "--live", "--admin", rls.Admin()}
			got := edge.Run(t, asked, "", args...)
			want := "by what the service has counted\n" +
				"  per-key: 100 per 1h → 5 per 1h: would be denied now: 1 of 2\n" +
				"    acme (used 12 of 5 new, 100 old)\n"
			if got.Code != 0 || !strings.HasSuffix(got.Stdout, want) {
				t.Fatalf("got %+v, want %s", got, want)
			}
			if strings.Contains(got.Stdout, "key-") {
				t.Errorf("the output has an API key: %s", got.Stdout)
			}
			// Another window: the limit starts empty, and nothing is said of it.
			short := configtest.Write(t, "short.yaml", rules("window: 30m, requests: 5"))
			got = edge.Run(t, asked, "", "diff", old, short, "--tiers", tiers, "--live", "--json", "--admin", rls.Admin())
			var r diff.Report
			if err := json.Unmarshal([]byte(got.Stdout), &r); err != nil || r.Live == nil || len(r.Live.Limits) != 1 {
				t.Fatalf("got %+v, %v", got, err)
			}
			if l := r.Live.Limits[0]; l.Denied != 0 || l.Logs != 2 || l.History != diff.Empty || len(l.Callers) != 0 {
				t.Errorf("got %+v", l)
			}
			gone := edge.Run(t, asked, "", append(args[:len(args)-1], rls.Admin()+",127.0.0.1:1")...)
			if gone.Code != 3 || !strings.Contains(gone.Stdout, "would be denied now: 1 of 2") || !strings.Contains(gone.Stdout, "not complete: 127.0.0.1:1") {
				t.Errorf("with an instance that is away: %+v", gone)
			}
			if err := rls.WriteRules(rules("window: 60m, requests: 5")); err != nil {
				t.Fatal(err)
			}
			process.Eventually(t, "acme to be denied", func() bool { return ask("key-acme") })
			if ask("key-globex") {
				t.Error("globex is denied too")
			}
		})
	}
}
