package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// An apiClient asks the admin port, and holds each answer to docs/openapi.yaml.
type apiClient struct {
	*testRun
	doc    map[string]any
	schema *jsonschema.Compiler
}

func newAPIClient(r *testRun) *apiClient {
	r.t.Helper()
	text, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		r.t.Fatal(err)
	}
	c := &apiClient{testRun: r, schema: jsonschema.NewCompiler()}
	if err := yaml.Unmarshal(text, &c.doc); err != nil {
		r.t.Fatal(err)
	}
	asJSON, err := json.Marshal(c.doc)
	if err != nil {
		r.t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(asJSON)))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.schema.AddResource("openapi.json", doc); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// ask sends a request with a token, and returns the answer, which has the status and the form
// that the description has for it.
func (c *apiClient) ask(method, path, body string, status int) map[string]any {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.Admin+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer a-token-that-may-reset-all-limits")
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		c.t.Fatalf("%s %s: %d, %v, want %d\n%s", method, path, resp.StatusCode, err, status, text)
	}
	if strings.Contains(string(text), usageKey) {
		c.t.Errorf("%s %s shows the key: %s", method, path, text)
	}
	name, kind := "200", "application~1json"
	if status >= 400 {
		name, kind = "default", "application~1problem+json"
	}
	route, _, _ := strings.Cut(path, "?")
	at := fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%s/content/%s/schema", strings.ReplaceAll(route, "/", "~1"), strings.ToLower(method), name, kind)
	schema, err := c.schema.Compile(at)
	if err != nil {
		c.t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		c.t.Errorf("%s %s: %v\n%s", method, path, err, text)
	}
	return v.(map[string]any)
}

// TestAnswersOfStores asks everything over HTTP, with denials in the store, and holds the answers
// to docs/openapi.yaml.
func TestAnswersOfStores(t *testing.T) {
	for name, on := range map[string]func(*testing.T, *settings.Settings){
		"memory": func(*testing.T, *settings.Settings) {},
		"redis":  func(t *testing.T, s *settings.Settings) { onRedis(t, s, servers.StartRedis(t).Addr()) },
		"cluster": func(t *testing.T, s *settings.Settings) {
			s.Store.Type, s.Store.Redis.URL = settings.StoreRedis, redisURL(t, "redis-cluster://"+strings.Join(servers.StartCluster(t).Addrs(), ","))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := usageSettings(t)
			on(t, &s)
			checkAnswers(t, newAPIClient(start(t, s)), s)
		})
	}
}

func checkAnswers(t *testing.T, c *apiClient, s settings.Settings) {
	entries := `{"entries":[{"key":"api_key","value":"` + usageKey + `"}]},{"entries":[{"key":"route","value":"search"},{"key":"api_key","value":"` + usageKey + `"}]}`
	waitFor(t, "a denial", func() bool {
		out, err := c.testRun.ask(`{"domain":"edge","descriptors":[` + entries + `]}`)
		return err == nil && out.GetOverallCode().String() == "OVER_LIMIT"
	})
	want := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	usage := c.ask("GET", "/v1/usage?subject=acme", "", 200)
	want("the store", usage["source"], s.Store.Type)
	want("limits", len(usage["limits"].([]any)) >= 3, true)
	want("denials", len(c.ask("GET", "/v1/denials?subject=acme&since=5m", "", 200)["denials"].([]any)) > 0, true)
	for _, by := range []string{"subject", "rule"} {
		want("top by "+by, len(c.ask("GET", "/v1/top?by="+by+"&minutes=1", "", 200)["entries"].([]any)) > 0, true)
	}
	c.ask("GET", "/v1/state", "", 200)

	first := c.ask("GET", "/v1/rules?limit=1", "", 200)
	want("the first rule", fmt.Sprint(first["rules"].([]any)[0].(map[string]any)["name"], " of ", first["found"]), "api_key of 2")
	want("a rule by its name", c.ask("GET", "/v1/rules?q=route.api_key", "", 200)["found"], 1.0)

	denied := `{"descriptors":["api_key=` + usageKey + `","route=search,api_key=` + usageKey + `"]}`
	now := c.ask("POST", "/v1/explain", denied, 200)
	want("a customer who is denied now", fmt.Sprint(now["allowed"], " ", now["source"]), "false "+s.Store.Type)
	want("the first step", strings.HasPrefix(fmt.Sprint(now["steps"].([]any)[0]), "with what is used now, in the "+s.Store.Type), true)
	used := func() (all []any) {
		for _, l := range c.ask("GET", "/v1/usage?subject=acme", "", 200)["limits"].([]any) {
			all = append(all, l.(map[string]any)["used"])
		}
		return all
	}
	before := used()
	c.ask("POST", "/v1/explain", `{"descriptors":["api_key=`+usageKey+`"]}`, 200)
	want("usage after explanations", used(), before)
	explained := c.ask("POST", "/v1/explain", `{"descriptors":["api_key=`+usageKey+`"],"hits":4,"tier":"free"}`, 200)
	steps := fmt.Sprint(explained["steps"])
	want("4 hits of a tier that has 2", explained["allowed"], false)
	want("the key is hidden and the tier is named", strings.Contains(steps, "api_key=***") && strings.Contains(steps, "free"), true)
	c.ask("POST", "/v1/explain", `{"descriptors":["api_key=`+usageKey+`"],"tier":"`+usageKey+`"}`, 400)

	done := c.ask("POST", "/v1/reset", `{"subject":"acme","reason":"ticket 4711"}`, 200)
	want("logs that were removed", done["logs"], 3)
	want("after the reset", c.ask("POST", "/v1/explain", denied, 200)["allowed"], true)
	want("resets", len(c.ask("GET", "/v1/resets", "", 200)["resets"].([]any)), 1)

	write(t, s.Rules.Path, "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: fortnight}}]\n")
	refused := c.ask("POST", "/v1/reload", "", 422)
	if detail := fmt.Sprint(refused["detail"]); !strings.Contains(detail, "rules.yaml:2") || !strings.Contains(detail, "unit") {
		t.Errorf("the reason lacks the place: %s", detail)
	}
	write(t, s.Rules.Path, usageRules+"  - {key: more, rate_limit: {requests: 1, window: 1s}}\n")
	want("rules after the reload", c.ask("POST", "/v1/reload", "", 200)["rules"], 3)
}

// TestAQuotaCheckChangesNothing asks every rule with a cost of 0, and proves that its requests get
// the same answers after that as before: a denied cost is free, and no update is guessed.
func TestAQuotaCheckChangesNothing(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 1000, policy: calendar}}
  - {key: fixed, rate_limit: {unit: hour, requests_per_unit: 3, policy: fixed}}
  - {key: counter, rate_limit: {unit: hour, requests_per_unit: 3, policy: sliding_counter}}
  - {key: bucket, rate_limit: {policy: token_bucket, rate: 3/1h, burst: 3}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: q, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: r, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: update, rate_limit: {unit: hour, requests_per_unit: 3, charge: always}}
`
	// A step is a request, "entry=cost" for each descriptor, with the answer; a refund has a cost below zero.
	type step struct{ ask, want string }
	denials := func(entry string) []step {
		return []step{
			{entry + "=1000", "OVER 3"},
			{entry + "=1", "OK 2"},
			{entry + "=1", "OK 1"},
			{entry + "=1", "OK 0"},
			{entry + "=1", "OVER 0"},
			{entry + "=2", "OVER 0"},
			{entry + "=1", "OVER 0"},
			{entry + "=-3", "OK 3"},
		}
	}
	rows := map[string][]step{
		"a denied cost is free":        denials("a"),
		"in a fixed window":            denials("fixed"),
		"of a counter":                 denials("counter"),
		"of a bucket":                  append(denials("bucket"), step{fmt.Sprint("bucket=", uint64(math.MaxUint64)), "OVER 3"}, step{"bucket=3", "OK 0"}),
		"a large cost of a month":      {{"month=5000", "OVER 1000"}, {"month=1", "OK 999"}},
		"a denial charges no limit":    {{"a=3", "OK 0"}, {"a=1 b=1", "OVER 0 3"}, {"a=1 b=3", "OVER 0 3"}, {"b=3", "OK 0"}},
		"a limit only observed":        {{"shadow=3", "OK 0"}, {"shadow=1", "OK 0"}, {"shadow=5", "OK 0"}, {"shadow=-3", "OK 3"}},
		"alternatives in quota mode":   {{"q=1 r=1", "OK 1 2"}, {"q=1 r=1", "OK 0 1"}, {"q=1 r=1", "OK 0 0"}, {"q=1 r=1", "OVER 0 0"}, {"q=-2 r=-3", "OK 2 3"}},
		"charge: always is as it says": {{"update=2", "OK 1"}, {"update=2", "OVER 0"}, {"update=-1", "OK 0"}, {"update=-1", "OK 1"}},
	}
	redis := servers.StartRedis(t)
	for _, store := range []string{settings.StoreMemory, settings.StoreRedis} {
		t.Run(store, func(t *testing.T) {
			s := testSettings(t)
			if store == settings.StoreRedis {
				onRedis(t, &s, redis.Addr())
			}
			s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
			write(t, s.Rules.Path, rules)
			s.Tiers.Source, s.Store.Timeout = settings.TiersNone, 5*time.Second
			r := start(t, s)
			request := func(text, value string) string {
				var descriptors []string
				for _, d := range strings.Fields(text) {
					key, cost, _ := strings.Cut(d, "=")
					refund := strings.HasPrefix(cost, "-")
					descriptors = append(descriptors, fmt.Sprintf(`{"entries": [{"key": %q, "value": %q}], "hitsAddend": %q, "isNegativeHits": %t}`, key, value, strings.TrimPrefix(cost, "-"), refund))
				}
				return `{"domain": "edge", "descriptors": [` + strings.Join(descriptors, ", ") + `]}`
			}
			ask := func(name string, steps []step, value string) {
				t.Helper()
				for i, s := range steps {
					out, err := r.ask(request(s.ask, value))
					if err != nil {
						t.Fatal(name, err)
					}
					got := strings.TrimSuffix(out.GetOverallCode().String(), "_LIMIT")
					for _, status := range out.GetStatuses() {
						got += fmt.Sprint(" ", status.GetLimitRemaining())
					}
					if diff := cmp.Diff(s.want, got); diff != "" {
						t.Errorf("%s, %s, step %d, %s (-want +got):\n%s", name, value, i, s.ask, diff)
					}
				}
			}
			calls := func() int {
				_, page := get(t, "http://"+r.Admin+"/metrics")
				_, text, _ := strings.Cut(page, "\nslidegate_store_batch_calls_sum ")
				text, _, _ = strings.Cut(text, "\n")
				n, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			names := slices.Sorted(maps.Keys(rows))
			for _, name := range names {
				ask(name, rows[name], name+" before")
			}
			for _, key := range []string{"a", "b", "month", "fixed", "counter", "bucket", "shadow", "q", "r", "update"} {
				check := request(key+"=0", "another")
				if _, err := r.ask(check); err != nil {
					t.Fatal(err)
				}
				if code, _, body := exchange(t, http.MethodPost, "http://"+r.HTTP+"/json", check); code != http.StatusOK {
					t.Fatalf("/json: %d %s", code, body)
				}
			}
			for _, name := range names {
				ask(name, rows[name], name+" after")
			}
			if store != settings.StoreRedis {
				return
			}
			ask("denials from memory", []step{{"a=3", "OK 0"}, {"a=1", "OVER 0"}}, "busy")
			before := calls()
			for range 50 {
				ask("denials from memory", []step{{"a=1", "OVER 0"}}, "busy")
			}
			if n := calls() - before; n > 5 { // the first denials may not be settled yet
				t.Errorf("50 repeated denials made %d calls of Redis", n)
			}
		})
	}
}

// wildcardRules are YAML, and what a server sends as JSON. %s is share_threshold, which only files
// have.
const wildcardRules = `{"name": "d", "domain": "d", "descriptors": [
	{"key": "path", "value": "/api/exact/action", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 3}},
	{"key": "path", "value": "/api/*/action", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 2}},
	{"key": "path", "value": "/api/*", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 4}},
	{"key": "path", "value": "*.php", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 0}},
	{"key": "path", "value": "/a*b*c", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 1}},
	{"key": "path", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 5}},
	{"key": "host", "value": "*.example.com", "descriptors": [
		{"key": "path", "value": "/v*/users", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 1}}
	]},
	{"key": "remote_address", "value": "2001:DB8:0::1", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 0}},
	{"key": "remote_address", "value": "2001:DB8:F*", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 1}},
	{"key": "masked_remote_address", "value": "2001:DB8::/32", "rate_limit": {"unit": "MINUTE", "requests_per_unit": 0}},
	{"key": "file", "value": "v*.tar", %s "rate_limit": {"unit": "MINUTE", "requests_per_unit": 2}}
]}`

// TestWildcards: a * stands anywhere in a value, and an address has any spelling, for rules of files and of a server, with answers of
// rls and with those of envoyproxy/ratelimit. That service has the same meaning since its commit
// 6bcd4d2 of March 2026. The build that other tests compare with is older, so what is wanted here
// comes from the source of that commit.
func TestWildcards(t *testing.T) {
	asked := []struct {
		entries string // key=value,key=value
		allowed int    // of the first requests; -1: all
	}{
		{"path=/api/123/action", 2},
		{"path=/api//action", 2}, // another value has another log
		{"path=/api/1/2/action", 2},
		{"path=/api/exact/action", 3}, // the exact value comes first
		{"path=/api/action", 4},       // too short for the first wildcard, so the next takes it
		{"path=/api/x/action/", 4},
		{"path=/index.php", 0},
		{"path=/api/x.php", 4}, // the first that fits, in the order of the rules
		{"path=/abc", 1},
		{"path=/a-b-b-c", 1},
		{"path=/acb", 5}, // the key alone comes last
		{"host=a.example.com,path=/v1/users", 1},
		{"host=.example.com,path=/v/users", 1},
		{"host=example.com,path=/v1/users", -1},
		{"host=a.example.com,path=/v1/user", -1},
		{"file=v1.tar", 2},
		{"remote_address=2001:db8::1", 0},
		{"remote_address=2001:0DB8::0001", 0},
		{"remote_address=2001:db8::2", -1},
		{"remote_address=2001:db8:f::2", 1},
		{"remote_address=2001:DB8:F::2", 0}, // the same
		{"masked_remote_address=2001:db8::/32", 0},
	}
	for _, reference := range []bool{false, true} {
		for _, source := range []string{"files", "xds"} {
			t.Run(fmt.Sprintf("reference=%t/%s", reference, source), func(t *testing.T) {
				var s settings.Settings
				if source == "xds" {
					rules := new(ratelimitv3.RateLimitConfig)
					if err := protojson.Unmarshal(fmt.Appendf(nil, wildcardRules, ""), rules); err != nil {
						t.Fatal(err)
					}
					m := servers.StartXDS(t)
					m.Set(node, rules)
					s = fromXDS(t, m.Address())
				} else {
					s = testSettings(t)
					s.Tiers.Source = settings.TiersNone
					s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
					text := fmt.Sprintf(wildcardRules, `"share_threshold": true,`)
					write(t, s.Rules.Path, strings.Replace(text, `"name": "d", `, "", 1))
				}
				s.DropIn.Answers = reference
				r := start(t, s)
				for _, a := range asked {
					r.wantAllowed(a.entries, a.allowed)
				}
				shared := 0
				if source == "xds" {
					shared = 2
				}
				r.wantAllowed("file=v2.tar", shared)
			})
		}
	}
}

// wantAllowed asks six times. It wants the first so many to pass, or all of them if allowed is
// negative.
func (r *testRun) wantAllowed(entries string, allowed int) {
	r.t.Helper()
	var parts []string
	for part := range strings.SplitSeq(entries, ",") {
		key, value, _ := strings.Cut(part, "=")
		parts = append(parts, fmt.Sprintf(`{"key": %q, "value": %q}`, key, value))
	}
	for i := range 6 {
		out, err := r.ask(`{"domain": "d", "descriptors": [{"entries": [` + strings.Join(parts, ",") + `]}]}`)
		if err != nil {
			r.t.Fatal(err)
		}
		want := rlsv3.RateLimitResponse_OVER_LIMIT
		if allowed < 0 || i < allowed {
			want = rlsv3.RateLimitResponse_OK
		}
		if got := out.GetOverallCode(); got != want {
			r.t.Errorf("%s, request %d: %s, want %s", entries, i+1, got, want)
		}
	}
}

// TestLongValuesAndManyWildcards: a client gets past no limit with a value that is too long for the
// wildcards of the rules. The call leaves the goroutine that reads the connection, and others on it are
// decided as before.
func TestLongValuesAndManyWildcards(t *testing.T) { onEachTransport(t, testLongValuesAndManyWildcards) }

func testLongValuesAndManyWildcards(t *testing.T, s settings.Settings) {
	var rules strings.Builder
	rules.WriteString("domain: d\ndescriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&rules, "- {key: path, value: \"*x%d-*y*\", rate_limit: {unit: hour, requests_per_unit: 1000}}\n", i)
	}
	rules.WriteString("- {key: path, value: \"*/admin/*\", rate_limit: {unit: hour, requests_per_unit: 0}}\n")
	s.Tiers.Source = settings.TiersNone
	s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
	write(t, s.Rules.Path, rules.String())
	r := start(t, s)
	client := rlsv3.NewRateLimitServiceClient(dial(t, r.GRPC[0]))
	long := strings.Repeat("x9", 30_000)
	for path, want := range map[string]rlsv3.RateLimitResponse_Code{
		"/admin/":                     rlsv3.RateLimitResponse_OVER_LIMIT,
		"/" + long[:1000] + "/admin/": rlsv3.RateLimitResponse_OVER_LIMIT,
		"/" + long + "/admin/":        rlsv3.RateLimitResponse_OVER_LIMIT,
		"/" + long:                    rlsv3.RateLimitResponse_OVER_LIMIT,
		"/" + long[:1000]:             rlsv3.RateLimitResponse_OK,
		"/other":                      rlsv3.RateLimitResponse_OK,
	} {
		out, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{
			{Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "path", Value: path}}},
			{Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "form", Value: "anthropic"}}},
		}})
		if err != nil || out.GetOverallCode() != want || strings.HasPrefix(string(out.GetRawBody()), `{"type":"error"`) != (want == rlsv3.RateLimitResponse_OVER_LIMIT) {
			t.Errorf("%.20q of %d bytes: %v, %v, %s, want %v", path, len(path), out.GetOverallCode(), err, out.GetRawBody(), want)
		}
	}
	r.waitLog("a request exceeds a bound, so on_store_error has decided it; a further line for this domain comes after a minute")
}

// TestExplainDecidesAsTheService asks the service and /v1/explain for a request that exceeds a bound,
// in a domain whose rules cannot deny it. A limit that came with an earlier request may.
func TestExplainDecidesAsTheService(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("domain: edge\ndescriptors:\n")
	for i := range 2000 {
		fmt.Fprintf(&rules, "  - {key: path, value: '*x%d-*y*', rate_limit: {unit: hour, requests_per_unit: 9, on_store_error: allow}}\n", i)
	}
	s := usageSettings(t)
	write(t, s.Rules.Path, rules.String())
	c := newAPIClient(start(t, s))
	path := strings.Repeat("x9", 4000)
	for _, want := range []bool{true, false} {
		out, err := c.testRun.ask(`{"domain":"edge","descriptors":[{"entries":[{"key":"path","value":"` + path + `"}]}]}`)
		if err != nil || (out.GetOverallCode().String() == "OK") != want {
			t.Errorf("the service: %v, %v, want allowed %t", out.GetOverallCode(), err, want)
		}
		if e := c.ask("POST", "/v1/explain", `{"descriptors":["path=`+path+`"]}`, 200); e["allowed"] != want {
			t.Errorf("explain: %v, want allowed %t: %v", e["allowed"], want, e["steps"])
		}
		if _, err := c.testRun.ask(`{"domain":"edge","descriptors":[{"entries":[{"key":"other","value":"1"}],"limit":{"requestsPerUnit":9,"unit":3}}]}`); err != nil {
			t.Fatal(err)
		}
	}
}
