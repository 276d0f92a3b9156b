package budgets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// TestChanges changes something while streams run. make test has only a restart with a snapshot.
func TestChanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, n int){
		"snapshot": testSnapshot, "flush": testFlush, "tiers": testTiers, "grant": testGrant, "shadow": testShadow, "many keys": testManyKeys,
	} {
		n := streams()
		if os.Getenv("SLIDEGATE_TEST_LONG") != "" {
			n /= 5
		} else if name != "snapshot" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n)
		})
	}
}

// ofHeader is the file whose costs are in a header. All versions of Envoy accept it.
const ofHeader = "budgets-1.36.yaml"

// rulesWith has a budget of tokens for each key, with more settings of its rule.
func rulesWith(tokens int, more string) func(*trial) {
	return func(tr *trial) {
		tr.setup.Rules = fmt.Sprintf("domain: edge\ndescriptors:\n  - {key: budget, value: tokens, descriptors: [{key: api_key, %s rate_limit: {name: tokens, window: 1h, requests: %d, on_store_error: deny, budget: {reserve: 4096, hold: 3s}}}]}\n", more, tokens)
	}
}

// testSnapshot: a restart of rls with a snapshot of its memory keeps what is spent and what is reserved.
func testSnapshot(t *testing.T, n int) {
	t.Helper()
	tokens := n * mean * 9 / 10
	env := map[string]string{stack.EnvStoreType: "memory", stack.EnvSnapshot: filepath.Join(t.TempDir(), "snapshot"), stack.EnvDrainDelay: "0s"}
	tr := newTrial(t, ofHeader, []string{""}, tokens, "3s", env, 1)
	restart := func() {
		rls := tr.rls[0]
		if _, err := rls.Stop(); err != nil {
			t.Error(err)
		}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if err := rls.Start(); err != nil {
			t.Error(err)
		}
	}
	tr.run(n, map[int]func(){n / 4: restart, n / 2: restart})
	tr.judge(tokens)
}

// testFlush: if Redis loses everything, each budget begins from zero once more, and what comes afterwards is
// charged.
func testFlush(t *testing.T, n int) {
	t.Helper()
	tokens := n * mean * 4 / 10
	addr := servers.Redis(t)
	tr := newTrial(t, ofHeader, []string{""}, tokens, "3s", stack.OnRedis(addr), 2)
	before := 0
	tr.run(n, map[int]func(){n / 2: func() {
		before, _, _ = tr.app.ledger(key)
		if err := servers.RedisAt(t, addr).FlushAll(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}})
	spent := tokens - tr.rest("tokens", key)
	cost, _, _ := tr.app.ledger(key)
	t.Logf("the budget is %d; %d were spent before the loss, and %d after it, of which rls has charged %d", tokens, before, cost-before, spent)
	if before < tokens/2 || cost-before < tokens/2 {
		t.Error("the loss was not in the middle")
	}
	const most = 16 * 100 // of the requests during the loss, which no budget bounds
	if cost-before > tokens+most || before > tokens {
		t.Error("more was spent than two budgets")
	}
	if cost-before > spent+most {
		t.Error("not all was charged")
	}
}

// testTiers: each tier has its own budget, and two keys of a customer share one.
func testTiers(t *testing.T, n int) {
	t.Helper()
	free, pro := n*mean/6, n*mean/2
	tr := newTrial(t, "budgets-one-hop.yaml", []string{""}, 0, "3s", stack.OnRedis(servers.Redis(t)), 2, func(tr *trial) {
		tr.keys = []string{"k1", "k2", "k3"}
		tr.setup.Tiers = "tiers: [free, pro]\ndefault: free\nsubjects:\n  - {id: acme, keys: [{plain: k1}]}\n  - {id: big, tier: pro, keys: [{plain: k2}, {plain: k3}]}\n"
		const budget = "window: 1h, budget: {reserve: 4096, hold: 3s}"
		tr.setup.Rules = fmt.Sprintf("domain: edge\ndescriptors:\n  - {key: budget, value: tokens, descriptors: [{key: api_key, rate_limit: {name: tokens, on_store_error: deny, by_tier: {free: {requests: %d, %s}, pro: {requests: %d, %s}}}}]}\n", free, budget, pro, budget)
	})
	tr.run(n, nil)
	tr.compare("tokens", "k1", free)
	spent := pro - tr.rest("tokens", "k2")
	cost2, _, _ := tr.app.ledger("k2")
	cost3, _, _ := tr.app.ledger("k3")
	t.Logf("the budget of big is %d tokens; its keys have cost %d and %d; rls has charged %d", pro, cost2, cost3, spent)
	if cost := cost2 + cost3; cost > pro || cost > spent || cost < pro/2 {
		t.Errorf("the keys of big have cost %d", cost)
	}
}

// testGrant: a grant in the middle doubles a budget.
func testGrant(t *testing.T, n int) {
	t.Helper()
	tokens := n * mean * 3 / 10
	tr := newTrial(t, ofHeader, []string{""}, tokens, "3s", stack.OnRedis(servers.Redis(t)), 2, rulesWith(tokens, ""))
	tr.run(n, map[int]func(){n / 2: func() {
		cmd, err := edge.RLSOptions{Env: map[string]string{"SLIDEGATE_ADMIN_TOKEN": edge.ActToken}}.Command(t.Context(), "grant", "--key-stdin", "--rule", "tokens", "--factor", "2", "--until", "1h", "--reason", "test",
			"--admin", tr.rls[0].Admin())
		if err != nil {
			t.Error(err)
			return
		}
		cmd.Stdin = strings.NewReader(key)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}})
	if cost, _ := tr.compare("tokens", key, 2*tokens); cost < tokens {
		t.Errorf("the requests have cost %d, and the grant changed nothing", cost)
	}
}

// testShadow: a budget that is only observed denies nothing, and is spent only by requests that it would admit.
func testShadow(t *testing.T, n int) {
	t.Helper()
	tr := newTrial(t, ofHeader, []string{""}, 0, "3s", stack.OnRedis(servers.Redis(t)), 2, rulesWith(n*mean/4, "shadow_mode: true,"))
	tr.run(n, nil)
	if free := tr.rest("tokens", key); free > 150 { // what a request reserves
		t.Errorf("%d are free, and many requests had no room", free)
	}
	if denied, ok := tr.statuses.Load("as it should: 429"); ok {
		t.Errorf("%v requests were denied", denied)
	}
}

// testManyKeys: a memory store that has no room for all keys leaves nothing reserved.
func testManyKeys(t *testing.T, n int) {
	t.Helper()
	env := map[string]string{stack.EnvStoreType: "memory", "SLIDEGATE_STORE_MEMORY_MAX_BYTES": "1048576"}
	tr := newTrial(t, ofHeader, []string{""}, 0, "3s", env, 1, rulesWith(2000, ""), func(tr *trial) {
		tr.keys = nil
		for i := range n {
			tr.keys = append(tr.keys, fmt.Sprint("key-", i))
		}
	})
	tr.run(n, nil)
	for _, k := range tr.keys[:20] {
		tr.rest("tokens", k)
		if cost, _, _ := tr.app.ledger(k); cost > 2000 {
			t.Errorf("%s has cost %d, and its budget is 2000", k, cost)
		}
	}
}
