package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

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

	explained := c.ask("POST", "/v1/explain", `{"descriptors":["api_key=`+usageKey+`"],"hits":4,"tier":"free"}`, 200)
	steps := fmt.Sprint(explained["steps"])
	want("4 hits of a tier that has 2", explained["allowed"], false)
	want("the key is hidden and the tier is named", strings.Contains(steps, "api_key=***") && strings.Contains(steps, "free"), true)
	c.ask("POST", "/v1/explain", `{"descriptors":["api_key=`+usageKey+`"],"tier":"`+usageKey+`"}`, 400)

	done := c.ask("POST", "/v1/reset", `{"subject":"acme","reason":"ticket 4711"}`, 200)
	want("logs that were removed", done["logs"], 3)
	want("resets", len(c.ask("GET", "/v1/resets", "", 200)["resets"].([]any)), 1)

	write(t, s.Rules.Path, "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: fortnight}}]\n")
	refused := c.ask("POST", "/v1/reload", "", 422)
	if detail := fmt.Sprint(refused["detail"]); !strings.Contains(detail, "rules.yaml:2") || !strings.Contains(detail, "unit") {
		t.Errorf("the reason lacks the place: %s", detail)
	}
	write(t, s.Rules.Path, usageRules+"  - {key: more, rate_limit: {requests: 1, window: 1s}}\n")
	want("rules after the reload", c.ask("POST", "/v1/reload", "", 200)["rules"], 3)
}
