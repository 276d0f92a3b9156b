package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/probelist"
	"github.com/slidegate/slidegate/internal/operate/sharedlist"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/configtest"
)

type object = map[string]any

// documented has the body and the answer of each route.
var documented = map[string]struct{ body, answer any }{
	"GET /v1/openapi.yaml": {}, "POST /v1/tiers/invalidate": {},
	"GET /v1/history":        {answer: history.History{}},
	"GET /v1/usage":          {answer: insight.Usage{}},
	"GET /v1/logs":           {answer: insight.Logs{}},
	"POST /v1/reset":         {body: insight.ResetRequest{}, answer: insight.Reset{}},
	"GET /v1/resets":         {answer: insight.Resets{}},
	"GET /v1/grants":         {answer: Grants{}},
	"POST /v1/grants":        {body: insight.GrantRequest{}, answer: grant.Grant{}},
	"DELETE /v1/grants/{id}": {answer: grant.Grant{}},
	"GET /v1/denials":        {answer: insight.Denials{}},
	"GET /v1/top":            {answer: insight.Top{}},
	"GET /v1/rules":          {answer: Rules{}},
	"GET /v1/state":          {answer: glance.State{}},
	"POST /v1/explain":       {body: ExplainRequest{}, answer: Explained{}},
	"POST /v1/probe":         {body: probelist.Request{}, answer: probe.Probe{}},
	"GET /v1/probe":          {answer: probe.Probe{}},
	"POST /v1/reload":        {answer: Reloaded{}},
	"GET /v1/tiers/lookup":   {answer: TierLookup{}},
}

// paramSchemas has the schemas of parameters. One without a type is any text.
var paramSchemas = map[string]object{
	"address":    {},
	"by":         {"description": "what to rank", "enum": insight.TopBys[:]},
	"cursor":     {"description": "next of the page before"},
	"descriptor": {"description": "such as edge/route=search; for an API key write digest, since proxies log URLs"},
	"digest":     {"description": "the digest of an API key, as rls digest prints it"},
	"domain":     {},
	"from":       {"description": "5m, or a time such as 2026-01-31T09:30:00Z"},
	"id":         {},
	"instances":  {"description": "all: of all instances that admin.peers_key_file joins", "enum": []string{"all"}},
	"limit":      {"type": "integer", "minimum": 1},
	"minutes":    {"description": "the time to rank", "enum": []int{1, 5, 60}},
	"order":      {"description": "what to count", "enum": insight.TopOrders[:]},
	"q":          {"description": "a text in the rule"},
	"route":      {},
	"rule":       {"description": "the name of a rule; in /v1/logs names, separated by commas"},
	"shadow":     {"description": "the denials in shadow mode only, or without them", "enum": shadows},
	"since":      {"description": "5m, or a time such as 2026-01-31T09:30:00Z"},
	"subject":    {"description": "the id of a customer"},
	"to":         {"description": "5m, or a time such as 2026-01-31T09:30:00Z"},
}

// describeAPI makes the description of the API from the routes and the types.
func describeAPI(t *testing.T, all []route) object {
	t.Helper()
	s := &configtest.Answers{Refs: "#/components/schemas/", Named: object{}}
	problem := object{"description": "what is wrong, and what to do", "content": object{"application/problem+json": object{"schema": s.Of(reflect.TypeFor[Problem]())}}}
	paths := object{}
	for _, r := range all {
		d, ok := documented[r.method+" "+r.path]
		if !ok {
			t.Errorf("%s %s is not documented", r.method, r.path)
			continue
		}
		success := object{"description": "the answer"}
		if d.answer != nil {
			success["content"] = object{"application/json": object{"schema": s.Of(reflect.TypeOf(d.answer))}}
		}
		status := "200"
		if r.path == "/v1/tiers/invalidate" {
			status = "204"
		}
		operation := object{"summary": r.summary, "responses": object{status: success, "default": problem}}
		if !r.writes {
			operation["security"] = []any{object{}, object{"token": []any{}}} // free on loopback
		}
		var params []any
		for _, name := range r.params {
			schema := maps.Clone(paramSchemas[name])
			description := schema["description"]
			if delete(schema, "description"); len(schema) == 0 {
				schema = object{"type": "string"}
			}
			param := object{"name": name, "in": "query", "schema": schema}
			if description != nil {
				param["description"] = description
			}
			params = append(params, param)
		}
		if strings.Contains(r.path, "{id}") {
			params = append(params, object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		if params != nil {
			operation["parameters"] = params
		}
		if d.body != nil {
			operation["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": s.Of(reflect.TypeOf(d.body))}}}
		} else if r.path == "/v1/tiers/invalidate" {
			operation["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": object{"type": "object"}}}}
		}
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		paths[r.path].(object)[strings.ToLower(r.method)] = operation
	}
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "Slidegate admin API", "version": "1", "description": "https://github.com/slidegate/slidegate/blob/main/docs/operate.md#the-admin-port-and-its-tokens explains access."},
		"paths":   paths, "security": []any{object{"token": []any{}}},
		"components": object{"schemas": s.Named, "securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "a token of admin.token_file"}}},
	}
}

func allPages(t testing.TB) Pages {
	t.Helper()
	store := memstore.New(memstore.Options{SweepInterval: -1})
	t.Cleanup(func() { _ = store.Close() })
	rs := rules.NewRules(rules.Identity{Secrets: new(tier.Secrets)})
	if err := rs.Add(rules.Rule{Domain: "edge", Name: "per-address", Path: []descriptors.Node{{Key: "remote_address", AnyValue: true}}, Terms: rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 3, Window: time.Minute}}}}}); err != nil {
		t.Fatal(err)
	}
	in := insight.New(insight.Options{
		Instance: "test", Record: insight.Record{Denials: 10, PerSecond: 10, Log: zap.NewNop()}, Rules: func() *rules.Rules { return rs }, Inspector: store, Store: "memory",
		Audit: zap.NewNop(), Grants: insight.NewGrants(new(sharedlist.Memory), time.Now, zap.NewNop()),
	})
	t.Cleanup(func() { _ = in.Close() })
	return Pages{
		Metrics: prometheus.NewRegistry(), Active: func() Active { return hostile }, Tiers: new(fakeTiers), Access: testAccess(true), Insight: in, History: noHistory,
		State: func() glance.State {
			return glance.State{Problems: []glance.Problem{}, Rates: glance.Rates{Decisions: []float64{}, Denials: []float64{}, Degraded: []float64{}, Rules: []glance.RuleRate{}}, Config: glance.Config{Files: []string{}}}
		},
		Explain: fakeExplain, Reload: fakeReload, Shared: Shared{Probes: probelist.New(probelist.Options{Document: new(sharedlist.Memory), Secrets: tier.NewSecrets(nil, nil), Instance: "test", Now: time.Now, Log: zap.NewNop(), Audit: zap.NewNop()})},
	}
}

// TestOpenAPI compares openapi.yaml with the routes and the types.
func TestOpenAPI(t *testing.T) {
	p := allPages(t)
	all := (&api{Pages: p}).routes()
	want, err := json.Marshal(describeAPI(t, all))
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(want, &doc); err != nil {
		t.Fatal(err)
	}
	if len(all) != len(documented) {
		t.Errorf("%d routes, and %d are documented", len(all), len(documented))
	}
	if *configtest.Update {
		var text bytes.Buffer
		text.WriteString("# Made from the routes and the types: go test ./internal/operate/admin -run TestOpenAPI -update\n")
		e := yaml.NewEncoder(&text)
		e.SetIndent(2)
		if err := e.Encode(doc); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("openapi.yaml", text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	var got any
	if err := yaml.Unmarshal([]byte(openAPI), &got); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var file any
	if err := json.Unmarshal(back, &file); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(doc, file); diff != "" {
		t.Errorf("openapi.yaml is not up to date, run with -update (-want +got):\n%s", diff)
	}
}

// TestAnswersFitOpenAPI validates answers against the schemas, and tries every parameter, an unknown
// one, a doubled one, and every wrong method.
func TestAnswersFitOpenAPI(t *testing.T) {
	p := allPages(t)
	h := Handler(p)
	data, err := json.Marshal(describeAPI(t, (&api{Pages: p}).routes()))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	fits := func(what, schema string, body []byte) {
		t.Helper()
		s, err := c.Compile("openapi.json#/components/schemas/" + schema)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			t.Errorf("%s: %v in %s", what, err, body)
			return
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v in %s", what, err, body)
		}
	}
	for _, r := range (&api{Pages: p}).routes() {
		if strings.HasSuffix(r.path, "stream") {
			continue
		}
		for _, bad := range []string{"?nonsense=1", "?a=%zz"} {
			got := call{method: r.method, path: r.path + bad, token: actToken, body: "{}"}.send(t, h)
			if got.Code != 400 {
				t.Errorf("%s %s%s: %d, want 400", r.method, r.path, bad, got.Code)
			}
			fits(r.path+bad, "Problem", got.Body.Bytes())
		}
		for _, name := range r.params {
			got := call{method: r.method, path: r.path + "?" + name + "=1&" + name + "=1", token: actToken}.send(t, h)
			if got.Code != 400 || !strings.Contains(got.Body.String(), "is there 2 times") {
				t.Errorf("%s with %s twice: %d %s", r.path, name, got.Code, got.Body)
			}
			got = call{method: r.method, path: r.path + "?" + name + "=1", token: actToken}.send(t, h)
			if strings.Contains(got.Body.String(), "unknown parameter") {
				t.Errorf("%s does not take %s: %s", r.path, name, got.Body)
			}
		}
		got := call{method: "PATCH", path: r.path, token: actToken}.send(t, h)
		if got.Code != 405 || got.Header().Get("Allow") == "" {
			t.Errorf("PATCH %s: %d", r.path, got.Code)
		}
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
		schema             string
	}{
		{"GET", "/v1/resets", "", 200, "Resets"},
		{"POST", "/v1/grants", `{"address": "192.0.2.7", "rule": "per-address", "factor": 2, "until": "2h", "reason": "ticket 4711"}`, 200, "Grant"},
		{"GET", "/v1/grants", "", 200, "Grants"},
		{"POST", "/v1/grants", `{"address": "192.0.2.7", "rule": "per-addr", "factor": 2, "until": "2h", "reason": "ticket 4711"}`, 400, "Problem"},
		{"POST", "/v1/grants", `{"address": "192.0.2.7", "rule": "per-address", "factor": 2, "until": "2h"}`, 400, "Problem"},
		{"DELETE", "/v1/grants/0123456789ab", "", 404, "Problem"},
		{"GET", "/v1/denials?since=5m&shadow=no&limit=3", "", 200, "Denials"},
		{"GET", "/v1/denials?since=2026-01-31T09:30:00Z", "", 200, "Denials"},
		{"GET", "/v1/denials?since=yesterday", "", 400, "Problem"},
		{"GET", "/v1/denials?limit=0", "", 400, "Problem"},
		{"GET", "/v1/denials?address=nonsense", "", 400, "Problem"},
		{"GET", "/v1/denials?shadow=yes", "", 400, "Problem"},
		{"GET", "/v1/top?by=rule&order=near&minutes=60", "", 200, "Top"},
		{"GET", "/v1/top?by=colour", "", 400, "Problem"},
		{"GET", "/v1/top?minutes=7", "", 400, "Problem"},
		{"GET", "/v1/history?rule=r&from=720h&to=2026-01-31T09:30:00Z", "", 200, "History"},
		{"GET", "/v1/history?subject=acme", "", 200, "History"},
		{"GET", "/v1/history?subject=acme&rule=r", "", 400, "Problem"},
		{"GET", "/v1/history?from=yesterday", "", 400, "Problem"},
		{"GET", "/v1/history?to=", "", 400, "Problem"},
		{"GET", "/v1/rules?limit=1", "", 200, "Rules"},
		{"GET", "/v1/rules?limit=x", "", 400, "Problem"},
		{"GET", "/v1/state", "", 200, "State"},
		{"GET", "/v1/usage", "", 400, "Problem"},
		{"GET", "/v1/usage?subject=acme", "", 200, "Usage"},
		{"GET", "/v1/usage?digest=short", "", 400, "Problem"},
		{"GET", "/v1/logs", "", 200, "Logs"},
		{"GET", "/v1/logs?rule=nothing", "", 400, "Problem"},
		{"GET", "/v1/logs?cursor=x", "", 400, "Problem"},
		{"POST", "/v1/reset", `{"subject": "acme", "reason": "ticket 4711"}`, 200, "Reset"},
		{"GET", "/v1/usage?subject=a&address=1", "", 400, "Problem"},
		{"GET", "/v1/nothing", "", 404, "Problem"},
		{"POST", "/v1/reset", `{"subject": "acme"}`, 400, "Problem"},
		{"POST", "/v1/reset", `{"subject": "acme", "reason": "x", "force": true}`, 400, "Problem"},
		{"POST", "/v1/reset", `{"subject": 1, "reason": "x"}`, 400, "Problem"},
		{"POST", "/v1/reset", `{"subject": "a"} {}`, 400, "Problem"},
		{"POST", "/v1/reset", strings.Repeat(" ", maxBody+1), 413, "Problem"},
		{"POST", "/v1/explain", `{"descriptors": ["a=b"]}`, 200, "Explained"},
		{"POST", "/v1/explain", `{"descriptors": ["a=b"], "hits": 1, "hits": 2}`, 400, "Problem"},
		{"POST", "/v1/reset", `{"SUBJECT": "acme", "reason": "x"}`, 400, "Problem"},
		{"POST", "/v1/reset", `{"subject": "acme", "reason": "x", "subject": "globex"}`, 400, "Problem"},
		{"POST", "/v1/reset", `{"subject": "acme", "reason": "x", "Subject": "globex"}`, 400, "Problem"},
		{"POST", "/v1/reset", `{"subject": "acme", "reason": "x", "by": "me"}`, 400, "Problem"},
		{"POST", "/v1/explain", `{"descriptors": [{"entries": []}]}`, 400, "Problem"},
		{"POST", "/v1/explain", `{"descriptors": []}`, 400, "Problem"},
		{"POST", "/v1/probe", `{"key": "0123456789abcdef", "seconds": 10}`, 200, "Probe"},
		{"POST", "/v1/probe", `{"key": "0123456789abcdef", "seconds": 10}`, 400, "Problem"},
		{"POST", "/v1/probe", `{"key": "0123456789abcde", "seconds": 10}`, 400, "Problem"},
		{"POST", "/v1/probe", `{"key": "0123456789abcdefg", "seconds": 61}`, 400, "Problem"},
		{"POST", "/v1/probe", `{"key": "0123456789abcdefg"}`, 400, "Problem"},
		{"GET", "/v1/probe?id=0123456789ab", "", 404, "Problem"},
		{"POST", "/v1/reload", "", 200, "Reloaded"},
	} {
		got := call{method: tt.method, path: tt.path, token: actToken, body: tt.body}.send(t, h)
		if got.Code != tt.status {
			t.Errorf("%s %s %.60s: %d %s, want %d", tt.method, tt.path, tt.body, got.Code, got.Body, tt.status)
		}
		fits(tt.path+" "+tt.body[:min(len(tt.body), 60)], tt.schema, got.Body.Bytes())
		if want := "application/problem+json"; tt.schema == "Problem" && got.Header().Get("Content-Type") != want {
			t.Errorf("%s is %s, want %s", tt.path, got.Header().Get("Content-Type"), want)
		}
	}
	index := call{method: http.MethodGet, path: "/"}.send(t, h)
	for _, r := range (&api{Pages: p}).routes() {
		if !strings.Contains(index.Body.String(), "\n"+r.path) {
			t.Errorf("the index lacks %s: %s", r.path, index.Body)
		}
	}
	if got := (call{method: http.MethodGet, path: "/v1/openapi.yaml"}).send(t, h); got.Code != 200 || !bytes.Equal(got.Body.Bytes(), []byte(openAPI)) {
		t.Errorf("/v1/openapi.yaml: %d", got.Code)
	}
}

// noHistory answers as a process that has counted nothing.
func noHistory(ctx context.Context, q history.Query) (*history.History, error) {
	c := history.New(history.Options{Now: time.Now, Log: zap.NewNop()})
	return c.Read(ctx, q)
}
