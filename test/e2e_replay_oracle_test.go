package test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/edge"
)

// The oracle of "rls replay": a random configuration of Envoy, random rules, random tiers and a
// random access log. It decides each line by the words of docs/limits.md and docs/advanced.md, with
// a loop over everything that was charged before. It shares no code with rls.

// logFormat is the format of the logs. The paths have no query string.
const logFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(:PATH)%" %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% "%REQ(X-API-KEY)%" "%REQ(X-TENANT)%" %DURATION%`

// A randomLimit is one limit, in milliseconds.
type randomLimit struct {
	policy string
	hits   int64 // of a bucket: the burst
	window int64 // of a bucket: the time of its rate
	rate   int64
	minute int64 // of a calendar hour: when it starts
}

// log names what tells logs of one rule apart.
func (l randomLimit) log() string { return fmt.Sprint(l.policy, l.window) }

func (l randomLimit) yaml() string {
	switch l.policy {
	case "token_bucket":
		return fmt.Sprintf("{policy: token_bucket, rate: %d/%dms, burst: %d}", l.rate, l.window, l.hits)
	case "calendar":
		return fmt.Sprintf("{policy: calendar, unit: hour, starts: {minute: %d}, requests_per_unit: %d}", l.minute, l.hits)
	default:
		return fmt.Sprintf("{policy: %s, window: %dms, requests: %d}", l.policy, l.window, l.hits)
	}
}

// A randomRule is a rule for descriptors with exactly its entries. An empty value is any.
type randomRule struct {
	name     string
	keys     []string
	values   []string
	cost     int64
	shadow   bool
	limits   []randomLimit            // nil: by tier
	byTier   map[string][]randomLimit // an empty list: unlimited
	children []*randomRule
}

// A randomRoute is a route with its actions: each action makes one entry, or none.
type randomRoute struct {
	path   string
	prefix bool
	tenant string // the header x-tenant must have this value; empty: any request
	limits [][]string
}

// A randomCase is one configuration with its log.
type randomCase struct {
	*rand.Rand
	rules  []*randomRule
	routes []randomRoute
	lines  []randomLine
}

type randomLine struct {
	at, duration        int64 // milliseconds since the start of the log
	path, address       string
	key, tenant, method string
}

var (
	randomKeys  = []string{"example-a", "example-b", "example-c", "example-d", "example-e"}
	randomTiers = map[string]string{"example-a": "free", "example-b": "pro", "example-c": "gold"} // others are unknown
	logStart    = time.Date(2026, time.March, 4, 9, 52, 0, 0, time.UTC)
)

func (c *randomCase) limit() randomLimit {
	policies := []string{"sliding", "sliding", "fixed", "token_bucket", "calendar", "sliding_counter"}
	l := randomLimit{policy: policies[c.IntN(len(policies))], hits: 1 + c.Int64N(12), window: 1000 * (1 + c.Int64N(90))}
	switch l.policy {
	case "token_bucket":
		l.rate, l.window = 1+c.Int64N(7), []int64{1000, 3000, 7000, 60_000}[c.IntN(4)]
	case "calendar":
		l.window, l.minute, l.hits = 3_600_000, c.Int64N(60), 20+c.Int64N(200)
	}
	return l
}

// several returns limits that do not share a log.
func (c *randomCase) several() []randomLimit {
	limits := []randomLimit{c.limit()}
	if next := c.limit(); c.IntN(3) == 0 && next.log() != limits[0].log() {
		limits = append(limits, next)
	}
	return limits
}

func (c *randomCase) rule(name string, keys ...string) *randomRule {
	r := &randomRule{name: name, keys: keys, cost: 1}
	if c.IntN(4) == 0 {
		r.cost = 1 + c.Int64N(3)
	}
	r.shadow = c.IntN(6) == 0
	if keys[len(keys)-1] == "api_key" && c.IntN(2) == 0 {
		r.byTier = map[string][]randomLimit{"free": c.several(), "pro": c.several(), "gold": {}}
		if c.IntN(2) == 0 {
			r.byTier["gold"] = c.several()
		}
	} else {
		r.limits = c.several()
	}
	return r
}

func newRandomCase(seed uint64) *randomCase {
	c := &randomCase{Rand: rand.New(rand.NewPCG(seed, 21))}
	byAddress, byKey := c.rule("per-address", "remote_address"), c.rule("per-key", "api_key")
	byTenant := c.rule("per-tenant", "tenant")
	blue := c.rule("blue", "tenant")
	blue.values = []string{"blue"}
	route := &randomRule{keys: []string{"route"}, values: []string{"search"}, children: []*randomRule{c.rule("search-per-key", "api_key"), c.rule("search-per-address", "remote_address")}}
	c.rules = []*randomRule{byAddress, byKey, blue, byTenant, route}
	c.routes = []randomRoute{
		{path: "/blue", prefix: true, tenant: "blue", limits: [][]string{{"tenant"}, {"remote_address"}}},
		{path: "/search", limits: [][]string{{"route=search", "api_key"}, {"route=search", "remote_address"}, {"api_key"}}},
		{path: "/free"},
		{path: "/", prefix: true, limits: [][]string{{"remote_address"}, {"api_key"}, {"tenant"}}},
	}
	at := int64(0)
	for range 1500 {
		at += 1 + int64(c.ExpFloat64()*float64([]int{20, 400, 2000}[c.IntN(3)]))
		l := randomLine{at: at, duration: c.Int64N(3000), method: "GET", address: fmt.Sprintf("192.0.2.%d", 1+c.IntN(3)), key: "-", tenant: "-"}
		l.path = []string{"/", "/search", "/search/more", "/free", "/freedom", "/blue/sky", "/blue"}[c.IntN(7)]
		if c.IntN(3) > 0 {
			l.key = randomKeys[c.IntN(len(randomKeys))]
		}
		if c.IntN(2) > 0 {
			l.tenant = []string{"blue", "green"}[c.IntN(2)]
		}
		c.lines = append(c.lines, l)
	}
	return c
}

// files writes what rls reads, and returns the command line.
func (c *randomCase) files(t *testing.T) (args []string, decisions string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	rules := write("rules.yaml", "domain: edge\ndescriptors:\n"+yamlOf(c.rules, "  "))
	tiers := "tiers: [free, pro, gold]\ndefault: free\nsubjects:\n"
	for _, key := range randomKeys {
		if tier := randomTiers[key]; tier != "" {
			tiers += fmt.Sprintf("  - {id: id-of-%s, tier: %s, keys: [{plain: %s}]}\n", tier, tier, key)
		}
	}
	// The lines are in the order in which the requests ended, in two files.
	ended := slices.Clone(c.lines)
	slices.SortStableFunc(ended, func(a, b randomLine) int { return cmp.Compare(a.at+a.duration, b.at+b.duration) })
	var logs [2]bytes.Buffer
	for _, l := range ended {
		start := logStart.Add(time.Duration(l.at) * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
		fmt.Fprintf(&logs[c.IntN(2)], "[%s] \"%s %s\" %s \"%s\" \"%s\" %d\n", start, l.method, l.path, l.address, l.key, l.tenant, l.duration)
	}
	decisions = filepath.Join(dir, "decisions.ndjson")
	return []string{
		"replay", "--rules", rules, "--tiers", write("tiers.yaml", tiers), "--envoy", write("envoy.yaml", c.envoy()), "--format", logFormat,
		"--decisions", decisions, "--what-if", "none", "--json", write("one.log", logs[0].String()), write("two.log", logs[1].String()),
	}, decisions
}

func yamlOf(rules []*randomRule, indent string) string {
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "%s- key: %s\n", indent, r.keys[0])
		if r.values != nil {
			fmt.Fprintf(&b, "%s  value: %s\n", indent, r.values[0])
		}
		if r.shadow {
			fmt.Fprintf(&b, "%s  shadow_mode: true\n", indent)
		}
		if r.children != nil {
			fmt.Fprintf(&b, "%s  descriptors:\n%s", indent, yamlOf(r.children, indent+"    "))
			continue
		}
		fmt.Fprintf(&b, "%s  rate_limit:\n%s    name: %s\n", indent, indent, r.name)
		if r.cost != 1 {
			fmt.Fprintf(&b, "%s    cost: %d\n", indent, r.cost)
		}
		if r.byTier == nil {
			fmt.Fprintf(&b, "%s    limits: %s\n", indent, yamlOfLimits(r.limits))
			continue
		}
		fmt.Fprintf(&b, "%s    by_tier:\n", indent)
		for _, tier := range []string{"free", "pro", "gold"} {
			limits := "{unlimited: true}"
			if l := r.byTier[tier]; len(l) > 0 {
				limits = "{limits: " + yamlOfLimits(l) + "}"
			}
			fmt.Fprintf(&b, "%s      %s: %s\n", indent, tier, limits)
		}
	}
	return b.String()
}

func yamlOfLimits(limits []randomLimit) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.yaml()
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// envoy returns a configuration with the routes.
func (c *randomCase) envoy() string {
	actions := map[string]string{
		"remote_address": "remote_address: {}",
		"api_key":        "request_headers: {header_name: x-api-key, descriptor_key: api_key}",
		"tenant":         "request_headers: {header_name: X-Tenant, descriptor_key: tenant}",
		"route=search":   "generic_key: {descriptor_key: route, descriptor_value: search}",
	}
	var b strings.Builder
	b.WriteString(`static_resources:
  listeners:
  - name: ingress
    address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: edge
              rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: rls}}}
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
`)
	for _, r := range c.routes {
		kind := "path"
		if r.prefix {
			kind = "prefix"
		}
		fmt.Fprintf(&b, "              - match:\n                  %s: %s\n", kind, r.path)
		if r.tenant != "" {
			fmt.Fprintf(&b, "                  headers: [{name: x-tenant, string_match: {exact: %s}}]\n", r.tenant)
		}
		b.WriteString("                route:\n                  cluster: app\n")
		if len(r.limits) > 0 {
			b.WriteString("                  rate_limits:\n")
		}
		for _, l := range r.limits {
			b.WriteString("                  - actions:\n")
			for _, a := range l {
				fmt.Fprintf(&b, "                    - %s\n", actions[a])
			}
		}
	}
	return b.String()
}

// entries returns what an action makes of a line, with its value; false if it makes nothing.
func (l randomLine) entry(action string) (key, value string, ok bool) {
	switch action {
	case "remote_address":
		return action, l.address, true
	case "api_key":
		return action, l.key, l.key != "-"
	case "tenant":
		return action, l.tenant, l.tenant != "-"
	default:
		key, value, _ = strings.Cut(action, "=")
		return key, value, true
	}
}

// descriptors returns what Envoy sends for a line.
func (c *randomCase) descriptors(l randomLine) (all [][][2]string) {
	for _, r := range c.routes {
		if r.prefix && !strings.HasPrefix(l.path, r.path) || !r.prefix && l.path != r.path || r.tenant != "" && l.tenant != r.tenant {
			continue
		}
	limits:
		for _, actions := range r.limits {
			var d [][2]string
			for _, a := range actions {
				key, value, ok := l.entry(a)
				if !ok {
					continue limits
				}
				d = append(d, [2]string{key, value})
			}
			all = append(all, d)
		}
		return all
	}
	return nil
}

// find returns the rule of a descriptor, or nil: the rule with the value first.
func find(rules []*randomRule, d [][2]string) *randomRule {
	for _, exact := range []bool{true, false} {
		for _, r := range rules {
			if r.keys[0] != d[0][0] || exact != (r.values != nil) || exact && r.values[0] != d[0][1] {
				continue
			}
			if len(d) > 1 {
				return find(r.children, d[1:])
			}
			if r.children != nil {
				return nil
			}
			return r
		}
	}
	return nil
}

// A charge is what was charged on a log.
type charge struct{ at, cost int64 }

// used returns the cost that counts at a time, as a fraction: of sliding_counter it is one.
func (l randomLimit) used(log []charge, at int64) (used, of int64) {
	sum := func(counts func(c charge) bool) (n int64) {
		for _, c := range log {
			if counts(c) {
				n += c.cost
			}
		}
		return n
	}
	switch l.policy {
	case "sliding":
		return sum(func(c charge) bool { return c.at+l.window > at }), 1
	case "fixed":
		return sum(func(c charge) bool { return c.at/l.window == at/l.window }), 1
	case "calendar":
		hour := func(t int64) int64 { return (t - l.minute*60_000) / l.window }
		return sum(func(c charge) bool { return hour(c.at) == hour(at) }), 1
	case "sliding_counter":
		present := sum(func(c charge) bool { return c.at/l.window == at/l.window })
		last := sum(func(c charge) bool { return c.at/l.window == at/l.window-1 })
		return present*l.window + last*(l.window-at%l.window), l.window
	default: // token_bucket: what is missing of a full bucket
		missing, then := int64(0), int64(0)
		for _, c := range log {
			missing = max(0, missing-(c.at-then)*l.rate) + c.cost*l.window
			then = c.at
		}
		return max(0, missing-(at-then)*l.rate), l.window
	}
}

// A check is one limit that a line meets.
type check struct {
	rule  *randomRule
	limit randomLimit
	log   string
}

// decide decides all lines in the order of their times. denied has the rule that denies a line, if it
// is the only one, and "several" otherwise.
func (c *randomCase) decide() (allowed []bool, denied []string) {
	logs := make(map[string][]charge)
	for _, l := range c.lines {
		at := logStart.UnixMilli() + l.at
		var checks []check
		for _, d := range c.descriptors(l) {
			r := find(c.rules, d)
			if r == nil {
				continue
			}
			limits, values := r.limits, fmt.Sprint(d)
			if tier := randomTiers[l.key]; d[len(d)-1][0] == "api_key" {
				if tier == "" { // unknown keys share a log for each address, if a descriptor has it
					tier, values = "free", fmt.Sprint(d[:len(d)-1], "unknown", c.addressOf(l))
				}
				if r.byTier != nil {
					limits = r.byTier[tier]
				}
			}
			for _, limit := range limits {
				checks = append(checks, check{r, limit, r.name + values + limit.log()})
			}
		}
		var without []string
		room := make([]bool, len(checks))
		for i, k := range checks {
			used, of := k.limit.used(logs[k.log], at)
			room[i] = used+k.rule.cost*of <= k.limit.hits*of
			if !room[i] && !k.rule.shadow && !slices.Contains(without, k.rule.name) {
				without = append(without, k.rule.name)
			}
		}
		for i, k := range checks {
			if len(without) == 0 && room[i] {
				logs[k.log] = append(logs[k.log], charge{at, k.rule.cost})
			}
		}
		rule := ""
		switch len(without) {
		case 0:
		case 1:
			rule = without[0]
		default:
			rule = "several"
		}
		allowed, denied = append(allowed, len(without) == 0), append(denied, rule)
	}
	return allowed, denied
}

// addressOf returns the address that the descriptors of a line have, if one has it.
func (c *randomCase) addressOf(l randomLine) string {
	for _, d := range c.descriptors(l) {
		for _, e := range d {
			if e[0] == "remote_address" {
				return e[1]
			}
		}
	}
	return ""
}

// TestReplayAgreesWithAnOracle replays 20 random logs under random rules. Every decision must be that
// of the oracle.
func TestReplayAgreesWithAnOracle(t *testing.T) {
	t.Parallel()
	var denials int
	for seed := range uint64(20) {
		c := newRandomCase(seed)
		allowed, rules := c.decide()
		args, name := c.files(t)
		got := run(t, edge.RLSOptions{}, "", args...)
		if got.code != 0 {
			t.Fatalf("seed %d: %+v", seed, got)
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		n := 0
		for ; lines.Scan(); n++ {
			var d struct {
				Allowed bool
				Rule    string
				Time    time.Time
			}
			if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
				t.Fatalf("seed %d: %s: %v", seed, lines.Text(), err)
			}
			if n >= len(c.lines) {
				t.Fatalf("seed %d: a decision too many: %s", seed, lines.Text())
			}
			if want := logStart.Add(time.Duration(c.lines[n].at) * time.Millisecond); !d.Time.Equal(want) {
				t.Fatalf("seed %d, request %d: decided at %v, started at %v", seed, n, d.Time, want)
			}
			if d.Allowed != allowed[n] || !d.Allowed && rules[n] != "several" && d.Rule != rules[n] {
				t.Fatalf("seed %d, request %d %+v:\ngot  %s\nwant allowed %v, rule %q\n%s", seed, n, c.lines[n], lines.Text(), allowed[n], rules[n], yamlOf(c.rules, ""))
			}
			if !d.Allowed {
				denials++
			}
		}
		if file.Close(); n != len(c.lines) {
			t.Fatalf("seed %d: %d decisions, want %d", seed, n, len(c.lines))
		}
	}
	if denials < 1000 {
		t.Errorf("only %d of 30,000 requests were denied: the cases test little", denials)
	}
}
