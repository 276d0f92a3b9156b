package limits

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// TestSupportInOneCommand: acme is denied. One command says why, and one lets it through again,
// with the embedded store and on two instances that share a Redis Cluster.
func TestSupportInOneCommand(t *testing.T) {
	t.Run("memory", func(t *testing.T) { supportInOneCommand(t, 1, nil) })
	t.Run("cluster", func(t *testing.T) {
		cluster := servers.StartCluster(t)
		supportInOneCommand(t, 2, map[string]string{
			stack.EnvStoreType: "redis", stack.EnvStoreTimeout: "5s",
			stack.EnvRedisURL: "redis-cluster://" + strings.Join(cluster.Addrs(), ","),
		})
	})
}

func supportInOneCommand(t *testing.T, instances int, env map[string]string) {
	const (
		rules = "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: 1h, requests: 3}\n"
		tiers = "tiers: [free]\ndefault: free\nsubjects:\n  - {id: acme, tier: free, keys: [{sha256: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881}]}\n"
		token = "act 0123456789abcdef0123456789abcdef"
	)
	tokens := filepath.Join(t.TempDir(), "tokens")
	tree.Write(t, tokens, token+"\n")
	settings := map[string]string{"SLIDEGATE_ADMIN_TOKEN_FILE": tokens}
	for name, value := range env {
		settings[name] = value
	}
	var all []*edge.RLSServer
	var admins []string
	for range instances {
		rls := edge.RLS(t, edge.RLSOptions{Rules: rules, Tiers: tiers, Env: settings})
		all, admins = append(all, rls), append(admins, rls.Admin())
	}
	run := func(args ...string) string {
		t.Helper()
		cmd, err := edge.RLSOptions{Env: map[string]string{"COLUMNS": "100"}}.Command(t.Context(), append(args, "--admin", strings.Join(admins, ","), "--token-file", tokens)...)
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("rls %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	ask := func(i int) bool {
		t.Helper()
		r, err := ratelimit.Ask(t.Context(), stack.Dial(t, all[i]), "edge", []descriptors.Descriptor{{{Key: "api_key", Value: "x"}}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return r.Denied
	}
	for range 3 {
		ask(0)
	}
	for i := range all {
		for range 2 { // the second denial is remembered
			if !ask(i) {
				t.Fatalf("instance %d does not deny acme", i)
			}
		}
	}
	if out := run("usage", "acme"); !strings.Contains(out, "Used up, so requests are denied:\n  per-key: 3 used of 3 per 1h. A request of cost 1 passes in ") {
		t.Errorf("rls usage acme:\n%s", out)
	}
	if out := run("denials", "--subject", "acme"); !strings.Contains(out, "per-key") {
		t.Errorf("rls denials:\n%s", out)
	}
	if out := run("reset", "acme", "--reason", "they paid"); !strings.Contains(out, "Removed 1 log of acme") {
		t.Errorf("rls reset acme:\n%s", out)
	}
	for i := range all {
		process.Eventually(t, "acme passes everywhere", func() bool { return !ask(i) })
	}
}

// TestAnAuditLineIsNeverLost resets a subject while the log has only errors.
func TestAnAuditLineIsNeverLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	rules := filepath.Join(dir, "rules.yaml")
	for name, text := range map[string]string{tokens: "act " + edge.ActToken + "\n", rules: stack.PerKey} {
		tree.Write(t, name, text)
	}
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := edge.RLSOptions{Env: map[string]string{
		stack.EnvLogLevel: "error", stack.EnvTiersSource: "none", stack.EnvRulesPath: rules, "SLIDEGATE_ADMIN_TOKEN_FILE": tokens,
		stack.EnvGRPCAddress: "127.0.0.1:0", stack.EnvHTTPAddress: "127.0.0.1:0", stack.EnvAdminAddress: process.Address(port),
	}}.Command(t.Context(), "serve")
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start("rls", cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Until(func() error { return process.Reach(process.Address(port)) }); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"wrong-0123456789abcdef", edge.ActToken} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+process.Address(port)+"/v1/reset", strings.NewReader(`{"subject": "acme", "reason": "ticket 4711"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		if _, err := stack.NewClient(t, "", "127.0.0.1").Do(req); err != nil {
			t.Fatal(err)
		}
	}
	p.Kill()
	if out := p.Output(); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"msg":"an operator has reset limits"`) || !strings.Contains(out, "ticket 4711") {
		t.Errorf("log.level error: want the audit line alone:\n%s", out)
	}
}
