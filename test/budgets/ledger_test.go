package budgets

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// rulesOf has two budgets for each key.
func rulesOf(tokens int, hold string) string {
	text := "domain: edge\ndescriptors:\n"
	for name, limit := range map[string]int{"tokens": tokens, "usd": dollars * tokens} {
		text += fmt.Sprintf("  - {key: budget, value: %s, descriptors: [{key: api_key, rate_limit: {name: %s, window: 1h, requests: %d, on_store_error: deny, budget: {reserve: 4096, hold: %s}}}]}\n", name, name, limit, hold)
	}
	return text
}

// dollars are the millionths of the budget in dollars for each token of the other one: so many that both
// are met at about the same time.
const dollars = 11

// A trial is Envoy with budgets before a provider, and clients that leave.
type trial struct {
	t     *testing.T
	file  string // of Envoy
	apis  []string
	keys  []string // of clients
	setup stack.Setup
	app   *provider
	rls   []*edge.RLSServer
	seed  uint64

	mu    sync.RWMutex
	envoy *edge.EnvoyServer

	statuses sync.Map // how often clients saw each
	sent     atomic.Int64
	asked    sync.Map // by x-id, an asked
}

// asked is what Envoy reserves for a request, in tokens, and how it ends.
type asked struct {
	end      string
	estimate int
}

const key = "k1"

// customer has this key.
const customer = "tiers: [free]\ndefault: free\nsubjects: [{id: acme, keys: [{plain: " + key + "}]}]\n"

// oneHop reports whether a file asks by the authorization, for which a key must have a customer.
func oneHop(file string) bool { return file == "budgets-one-hop.yaml" }

// newTrial starts instances of rls, and Envoy. change changes what they are made of.
func newTrial(t *testing.T, file string, apis []string, tokens int, hold string, env map[string]string, instances int, change ...func(*trial)) *trial {
	t.Helper()
	tr := &trial{t: t, file: file, apis: apis, app: new(provider), seed: random.Seed(t), keys: []string{key}}
	config := "../../envoy/" + file
	tr.setup = stack.Setup{Rules: rulesOf(tokens, hold), Env: env, Config: config, Change: special(t, config), Upstream: stack.ServeHTTP(t, tr.app)}
	if oneHop(file) {
		tr.setup.Tiers = customer
	}
	for _, do := range change {
		do(tr)
	}
	for range instances {
		tr.rls = append(tr.rls, tr.setup.Serve(t))
	}
	tr.restartEnvoy()
	return tr
}

// restartEnvoy kills Envoy, and starts another one. Clients wait meanwhile.
func (tr *trial) restartEnvoy() {
	tr.t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.envoy != nil {
		tr.envoy.Stop()
	}
	st := &stack.Stack{T: tr.t, App: &stack.Application{Addr: tr.setup.Upstream}, RLS: tr.rls[0], Others: tr.rls[1:]}
	tr.setup.StartEnvoy(st)
	tr.envoy = st.Envoy
}

// restartRLS kills the last instance of rls, and starts it again. New requests wait for the start.
func (tr *trial) restartRLS() {
	rls := tr.rls[len(tr.rls)-1]
	rls.Kill()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err := rls.Start(); err != nil {
		tr.t.Error(err)
	}
}

// firstRoute is that of a file, with what it says to filters.
var firstRoute = regexp.MustCompile(`(?s)              - name: (?:openai-chat|everything)\n                match: \{(?:path|prefix): \S+\}\n                route: \{cluster: upstream, timeout: 0s\}\n(.*?)(?:              - name: |\n          http_filters:)`)

// special adds routes that end requests, by the header x-route, and a cluster where nothing listens.
func special(t *testing.T, config string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	is := firstRoute.FindSubmatch(text)
	if is == nil {
		t.Fatalf("%s has no such route", config)
	}
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	var routes strings.Builder
	for name, action := range map[string]string{
		"timeout": "{cluster: upstream, timeout: 0.02s}",
		"tries":   `{cluster: upstream, timeout: 1s, retry_policy: {retry_on: "5xx", num_retries: 3, retry_back_off: {base_interval: 0.001s, max_interval: 0.002s}}}`,
		"idle":    "{cluster: upstream, timeout: 0s, idle_timeout: 0.02s}",
		"longest": "{cluster: upstream, timeout: 0s, max_stream_duration: {max_stream_duration: 0.02s}}",
		"refused": "{cluster: unreachable}",
	} {
		fmt.Fprintf(&routes, "              - match: {prefix: /, headers: [{name: x-route, string_match: {exact: %s}}]}\n                route: %s\n%s", name, action, strings.TrimSuffix(string(is[1]), "\n")+"\n")
	}
	first, rls := string(is[0][:strings.IndexByte(string(is[0]), '\n')+1]), "  - name: rls\n"
	return map[string]string{
		first: routes.String() + first,
		rls: `  - name: unreachable
    connect_timeout: 1s
    load_assignment: {cluster_name: unreachable, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ` + fmt.Sprint(port) + `}}}}]}]}
` + rls,
	}
}

// An end is a way in which a request does not end as it should.
type end struct {
	name, does, route string
	leaves            time.Duration // the client leaves within this time
	half              bool          // it leaves before its body is complete
}

var ends = []end{
	{name: "client leaves early", leaves: 3 * time.Millisecond},
	{name: "client leaves", leaves: 30 * time.Millisecond},
	{name: "client leaves a stream that hangs", does: "silent", leaves: 60 * time.Millisecond},
	{name: "client leaves its own body", leaves: 10 * time.Millisecond, half: true},
	{name: "the upstream resets", does: "reset"},
	{name: "the upstream resets in the body", does: "reset-in-body"},
	{name: "the upstream fails", does: "fail"},
	{name: "route timeout", does: "hang", route: "timeout"},
	{name: "route timeout in the body", does: "silent", route: "timeout"},
	{name: "retries", does: "fail-twice", route: "tries"},
	{name: "idle", does: "silent", route: "idle"},
	{name: "longest", does: "silent", route: "longest"},
	{name: "no upstream", route: "refused"},
}

// run sends n requests, of which 30 % end in one of the ways above. each runs after so many, and has
// returned before the last tenth of them.
func (tr *trial) run(n int, each map[int]func()) {
	tr.t.Helper()
	clients := []*http.Client{client(tr.t, false), client(tr.t, true)}
	var next atomic.Int64
	var under sync.WaitGroup
	var changing sync.Mutex // one change after another
	under.Add(len(each))
	process.Concurrently(tr.t, 16, func(worker int) error {
		r := rand.New(rand.NewPCG(tr.seed, uint64(worker)))
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			if do := each[i]; do != nil {
				func() {
					changing.Lock()
					defer changing.Unlock()
					defer under.Done()
					do()
				}()
			}
			if i >= n*9/10 {
				under.Wait()
			}
			is := end{name: "as it should"}
			if r.IntN(10) < 3 {
				is = ends[r.IntN(len(ends))]
			}
			status := tr.send(clients[r.IntN(2)], r, is)
			n, _ := tr.statuses.LoadOrStore(fmt.Sprint(is.name, ": ", status), new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		}
	})
}

// client returns one with HTTP/1.1, where to leave closes the connection, or with HTTP/2, where it resets
// the stream.
func client(t *testing.T, two bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: 16}
	transport.Protocols.SetHTTP1(!two)
	transport.Protocols.SetUnencryptedHTTP2(two)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send sends a request whose true cost is at most its estimate. It returns the status; 0: none.
func (tr *trial) send(client *http.Client, r *rand.Rand, is end) int {
	ctx, cancel := context.WithTimeout(tr.t.Context(), process.Patience)
	defer cancel()
	if is.leaves > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Int64N(int64(is.leaves))))
		defer cancel()
	}
	q := request{api: tr.apis[r.IntN(len(tr.apis))], key: tr.keys[r.IntN(len(tr.keys))], in: cached + 1 + r.IntN(5), max: 30 + r.IntN(60), stream: r.IntN(2) == 0}
	if is.route != "" {
		q.api = tr.apis[0]
	}
	q.out = 1 + r.IntN(q.max-q.in)
	q.stream = q.stream || is.does == "silent" || is.does == "reset-in-body"
	q.header = []string{"x-pace", fmt.Sprint(time.Duration(r.IntN(1000)) * time.Microsecond), "x-does", is.does, "x-route", is.route, "x-id", fmt.Sprint(tr.sent.Add(1))}
	tr.mu.RLock()
	url := tr.envoy.URL()
	tr.mu.RUnlock()
	req, body := q.new(ctx, tr.t, url)
	if q.api == "" {
		body = 0 // its file does not count the input
	}
	tr.asked.Store(q.header[len(q.header)-1], asked{is.name, q.max + (body+3)/4})
	if is.half {
		req.Body, req.ContentLength = io.NopCloser(stalled{ctx}), -1
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// stalled is a body that does not come.
type stalled struct{ context.Context } //nolint:containedctx // it ends the body

func (s stalled) Read([]byte) (int, error) {
	<-s.Done()
	return 0, s.Err()
}

// state asks rls what of a budget of a key is free, and what is reserved. A question charges nothing.
func (tr *trial) state(budget, key string) (free, reserved int) {
	_, out := stack.PostJSON(tr.t, tr.rls[0].HTTP(), stack.Request(0, "budget="+budget+",api_key="+key))
	is := out.GetDynamicMetadata().GetFields()
	if len(out.GetStatuses()) == 0 || is["degraded"].GetBoolValue() {
		return -1, -1 // rls or its store has not answered
	}
	return int(out.GetStatuses()[0].GetLimitRemaining()), int(is["reserved"].GetNumberValue())
}

// judge compares what rls has charged with the ledger.
func (tr *trial) judge(tokens int) {
	tr.t.Helper()
	var seen []string
	tr.statuses.Range(func(what, n any) bool {
		seen = append(seen, fmt.Sprintf("%s: %d", what, n.(*atomic.Int64).Load()))
		return true
	})
	seen = append(seen, tr.unknown()...)
	slices.Sort(seen)
	tr.t.Logf("seed %d\n%s", tr.seed, strings.Join(seen, "\n"))
	tr.compare("tokens", key, tokens)
	if tr.file == "budgets.yaml" {
		tr.compare("usd", key, dollars*tokens)
	}
	if tr.app.gotForged() {
		tr.t.Error("the application got headers that only calls of Envoy have")
	}
}

// unknown says by the end of requests that reached the provider how many tokens they have cost, and how many
// Envoy has reserved for them. Where the end names no cost, the second number is charged, or that of
// on_unknown.
func (tr *trial) unknown() (lines []string) {
	type sums struct{ requests, cost, estimate int }
	of := make(map[string]sums)
	tr.app.mu.Lock()
	defer tr.app.mu.Unlock()
	for id := range tr.app.tries {
		if is, ok := tr.asked.Load(id); ok {
			a := is.(asked)
			was := of[a.end]
			of[a.end] = sums{was.requests + 1, was.cost + tr.app.costs[id], was.estimate + a.estimate}
		}
	}
	for end, s := range of {
		lines = append(lines, fmt.Sprintf("%s: %d reached the provider and cost %d of %d reserved", end, s.requests, s.cost, s.estimate))
	}
	return lines
}

// most returns how many tokens rls has charged at most: what requests have cost, or the estimate if their end may not
// name the cost.
func (tr *trial) most() (tokens int) {
	tr.app.mu.Lock()
	defer tr.app.mu.Unlock()
	tr.asked.Range(func(id, is any) bool {
		cost, a := tr.app.costs[id.(string)], is.(asked)
		switch a.end {
		case "as it should", "retries", "the upstream fails": // each has a response with its cost
		case "client leaves early", "client leaves": // it may have reached a server that had not yet called the provider
			cost = max(cost, a.estimate)
		default:
			if tr.app.tries[id.(string)] > 0 {
				cost = max(cost, a.estimate)
			}
		}
		tokens += cost
		return true
	})
	return tokens
}

// compare waits until nothing of a budget is reserved, and compares what is spent with the ledger. It returns
// both.
func (tr *trial) compare(budget, key string, limit int) (cost, spent int) {
	tr.t.Helper()
	free := tr.rest(budget, key)
	cost, money, requests := tr.app.ledger(key)
	if budget == "usd" {
		cost = money
	}
	spent = limit - free
	tr.t.Logf("the budget of %s is %d %s; %d requests have cost %d; rls has charged %d, which is %.1f %% more", key, limit, budget, requests, cost, spent, 100*float64(spent-cost)/float64(max(1, cost)))
	if cost > limit {
		tr.t.Errorf("the requests have cost %d %s, and the budget is %d", cost, budget, limit)
	}
	if cost > spent {
		tr.t.Errorf("the requests have cost %d %s, and rls has charged %d", cost, budget, spent)
	}
	return cost, spent
}

// rest waits until nothing of a budget is reserved, and returns what is free.
func (tr *trial) rest(budget, key string) (free int) {
	tr.t.Helper()
	var reserved int
	defer func() {
		if reserved != 0 {
			tr.t.Errorf("%s: at rest %d are reserved and %d are free", budget, reserved, free)
		}
	}()
	process.Eventually(tr.t, "nothing to be reserved at rest", func() bool {
		free, reserved = tr.state(budget, key)
		return reserved == 0
	})
	return free
}

// streams is how many requests a test sends: long has ten thousand for all of them.
func streams() int {
	if os.Getenv("SLIDEGATE_TEST_LONG") != "" {
		return 10_000
	}
	return 200
}

// mean is what a request costs in the mean, about.
const mean = 30

// TestLedger has clients leave in every way: the ledger of the provider stays below the budget, and rls
// has charged all that is in it. It has charged more only where an end names no cost.
func TestLedger(t *testing.T) {
	for file, names := range files(t) {
		t.Run(file, func(t *testing.T) {
			stack.EachStore(t, func(t *testing.T, settings map[string]string) {
				n := streams()
				tokens := n * mean * 9 / 10
				tr := newTrial(t, file, names, tokens, "10m", settings, 1)
				tr.run(n, nil)
				tr.judge(tokens)
				if n, _ := tr.statuses.Load("as it should: 429"); n == nil {
					t.Error("no request was denied")
				}
				if spent, most := tokens-tr.rest("tokens", key), tr.most(); spent > most {
					t.Errorf("rls has charged %d, and costs and estimates are %d", spent, most)
				}
				const retried = `slidegate_budget_requests_total{domain="edge",outcome="retried",rule="tokens"}`
				if got, want := cmp.Or(stack.Metric(t, tr.rls[0], retried), "0"), fmt.Sprint(tr.app.retried()); got != want {
					t.Errorf("%s: got %s, and %s requests were tried more than once", retried, got, want)
				}
			})
		})
	}
}

// TestKills kills Envoy in the middle, and one of two instances of rls on one Redis. What Envoy has not
// settled is spent after hold.
func TestKills(t *testing.T) {
	for file, names := range files(t) {
		t.Run(file, func(t *testing.T) {
			stack.EachStore(t, func(t *testing.T, settings map[string]string) {
				n, instances := streams(), 1
				if settings[stack.EnvStoreType] == "redis" {
					instances = 2
				}
				tokens := n * mean * 9 / 10
				tr := newTrial(t, file, names, tokens, "3s", settings, instances)
				kills := map[int]func(){n / 5: tr.restartEnvoy, n / 2: tr.restartEnvoy}
				if instances > 1 {
					kills[n/3] = tr.restartRLS
				}
				tr.run(n, kills)
				tr.judge(tokens)
			})
		})
	}
}

// TestFailover has a replica take the place of Redis in the middle. It has all writes: what a failover loses,
// no client of Redis can charge.
func TestFailover(t *testing.T) {
	t.Parallel()
	for file, names := range files(t) {
		if file != "budgets-1.36.yaml" && os.Getenv("SLIDEGATE_TEST_LONG") == "" {
			continue
		}
		t.Run(file, func(t *testing.T) {
			n := streams()
			tokens := n * mean * 9 / 10
			set := servers.StartSentinel(t, servers.SentinelOptions{})
			env := stack.OnRedis("")
			env[stack.EnvStoreTimeout] = "50ms" // so rls denies meanwhile, and Envoy sends ends again
			env[stack.EnvRedisURL] = "redis-sentinel://" + strings.Join(set.Sentinels(), ",") + "/" + set.MasterName()
			tr := newTrial(t, file, names, tokens, "3s", env, 2)
			master := set.Master()
			tr.run(n, map[int]func(){n / 2: func() {
				set.HandOver()
				set.WaitMaster(master.Addr())
			}})
			tr.judge(tokens)
		})
	}
}
