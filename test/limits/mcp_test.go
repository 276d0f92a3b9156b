package limits

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/test/stack"
)

// mcpRules are for envoy/mcp.yaml.
const mcpRules = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1h, requests: 100}
    descriptors:
      - key: session
        rate_limit: {name: per-session, window: 1h, requests: 50}
      - key: tool
        rate_limit: {name: per-tool, window: 1m, requests: 20}
      - key: tool
        value: search
        rate_limit: {name: search, window: 1m, requests: 2}
`

// An mcp is a client of an MCP server behind envoy/mcp.yaml.
type mcp struct {
	*stack.Stack
	client *stack.Client
}

func startMCP(t *testing.T) mcp {
	t.Helper()
	if v := stack.EnvoyVersion(t); v[1] < 38 {
		t.Skip("Envoy reads MCP from 1.38 on")
	}
	setup := stack.Setup{Rules: mcpRules, Config: stack.MCPConfig}
	if refusesDuplicates(t) {
		setup.Change = map[string]string{"# reject_duplicate_keys": "reject_duplicate_keys"}
	}
	s := setup.Start(t)
	return mcp{s, s.From("127.0.0.1")}
}

// refusesDuplicates reports whether Envoy can refuse two names. An earlier one counts the last name.
func refusesDuplicates(t *testing.T) bool {
	t.Helper()
	return stack.EnvoyVersion(t)[1] >= 40
}

// post sends a body with header fields given as name, value, name, value.
func (m mcp) post(body string, header ...string) stack.Answer {
	m.T.Helper()
	req, err := http.NewRequestWithContext(m.T.Context(), http.MethodPost, "http://"+m.Envoy.Addr()+"/mcp", strings.NewReader(body))
	if err != nil {
		m.T.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "X-Api-Key": {"k"}}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	got, err := m.client.Do(req)
	if err != nil {
		m.T.Fatal(err)
	}
	return got
}

// call is a call of a tool. more are members of params before the name.
func call(id, tool, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{` + more + `"name":"` + tool + `","arguments":{}}}`
}

// served is how many requests have reached the MCP server.
func (m mcp) served() int { return len(m.App.Received()) }

// TestMCP: a denied call of a tool gets an error of JSON-RPC with its id, in an answer that SDKs read.
// Other tools, and other methods, have their own limits.
func TestMCP(t *testing.T) {
	t.Parallel()
	m := startMCP(t)
	for _, id := range []string{"1", "2"} {
		if got := m.post(call(id, "search", "")); got.Status != 200 || got.Body != stack.AppBody {
			t.Fatalf("call %s: %d, %s", id, got.Status, got.Body)
		}
	}
	for _, id := range []string{"7", `"a-1"`, "1.5", `"</script>"`} {
		got := m.post(call(id, "search", ""))
		var body struct {
			JSONRPC string
			ID      any
			Error   struct {
				Code    int
				Message string
				Data    struct {
					Rule         string
					RetryAfterMs int
					Retry        bool
				}
			}
		}
		var want any
		if err := json.Unmarshal([]byte(id), &want); err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(strings.NewReader(got.Body))
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil {
			t.Fatalf("%s: %d, %v: %s", id, got.Status, err, got.Body)
		}
		if got.Status != 200 || got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d with %v", id, got.Status, got.Header)
		}
		e := body.Error
		if body.JSONRPC != "2.0" || e.Code != -32029 || !strings.HasPrefix(e.Message, "No room under rule search: 2 per 1m; try again in ") ||
			e.Data.Rule != "search" || e.Data.RetryAfterMs < 1 || e.Data.RetryAfterMs > 60_000 || !e.Data.Retry {
			t.Errorf("%s: %s", id, got.Body)
		}
		if diff := cmp.Diff(want, body.ID); diff != "" {
			t.Errorf("the id %s (-want +got):\n%s", id, diff)
		}
		if strings.Contains(got.Body, "<") {
			t.Errorf("the id is not escaped: %s", got.Body)
		}
	}
	for what, body := range map[string]string{
		"another tool": call("3", "fetch", ""), "a list of tools": `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`,
		"a notification": `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		if got := m.post(body); got.Body != stack.AppBody {
			t.Errorf("%s: %d, %s", what, got.Status, got.Body)
		}
	}
	if got := m.post(call("1", "search", ""), "X-Api-Key", "another"); got.Body != stack.AppBody {
		t.Errorf("another key: %d, %s", got.Status, got.Body)
	}
	// A name so long that the call of its limits exceeds a bound.
	const tooLarge = `{"jsonrpc":"2.0","id":null,"error":{"code":-32029,"message":"The request is too large for its limits to be checked.","data":{"rule":"per-key","retry":false}}}`
	if got := m.post(call("5", strings.Repeat("x", 1<<20-100), ""), "X-Api-Key", strings.Repeat("k", 1<<10)); got.Body != tooLarge {
		t.Errorf("a long name: %d, %.200s", got.Status, got.Body)
	}
	m.WantAllDecided()
}

// TestMCPSession: a session has a limit of its own under its key.
func TestMCPSession(t *testing.T) {
	t.Parallel()
	m := startMCP(t)
	const list = `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`
	for range 50 {
		if got := m.post(list, "Mcp-Session-Id", "s1"); got.Body != stack.AppBody {
			t.Fatalf("%d, %s", got.Status, got.Body)
		}
	}
	got := m.post(list, "Mcp-Session-Id", "s1")
	if !strings.Contains(got.Body, `"data":{"rule":"per-session","retryAfterMs":`) || !strings.Contains(got.Body, `"retry":false`) || !strings.Contains(got.Body, "is used up until") {
		t.Errorf("the session has no limit: %d, %s", got.Status, got.Body)
	}
	if got := m.post(list, "Mcp-Session-Id", "s2"); got.Body != stack.AppBody {
		t.Errorf("another session: %d, %s", got.Status, got.Body)
	}
}

// TestMCPEvasion: no spelling of a tool's call passes without the limit of the tool, which is used up.
func TestMCPEvasion(t *testing.T) {
	t.Parallel()
	m := startMCP(t)
	for range 2 {
		m.post(call("1", "search", ""))
	}
	search := call("1", "search", "")
	big := func(n int) string { return `"arguments":{"q":"` + strings.Repeat("x", n) + `"},` }
	for what, got := range map[string]func() stack.Answer{
		"the call itself":          func() stack.Answer { return m.post(search) },
		"a batch":                  func() stack.Answer { return m.post("[" + search + "]") },
		"a batch of two":           func() stack.Answer { return m.post("[" + call("1", "fetch", "") + "," + search + "]") },
		"text/plain":               func() stack.Answer { return m.post(search, "Content-Type", "text/plain") },
		"no content type":          func() stack.Answer { return m.post(search, "Content-Type", "") },
		"another spelling of JSON": func() stack.Answer { return m.post(search, "Content-Type", "application/json; charset=utf-8") },
		"a longer type":            func() stack.Answer { return m.post(search, "Content-Type", "application/jsonx") },
		"no JSON":                  func() stack.Answer { return m.post(search[1:]) },
		"white space before it":    func() stack.Answer { return m.post(" \n\t" + search) },
		"two documents":            func() stack.Answer { return m.post(search + "\n" + call("1", "fetch", "")) },
		"9 kB before the name":     func() stack.Answer { return m.post(call("1", "search", big(9<<10))) },
		"900 kB before the name":   func() stack.Answer { return m.post(call("1", "search", big(900<<10))) },
		"2 MiB before the name":    func() stack.Answer { return m.post(call("1", "search", big(2<<20))) },
		"a false Mcp-Name":         func() stack.Answer { return m.post(search, "Mcp-Name", "fetch", "Mcp-Method", "tools/call") },
		"a false Mcp-Method":       func() stack.Answer { return m.post(search, "Mcp-Method", "tools/list") },
		"an escaped name":          func() stack.Answer { return m.post(strings.Replace(search, "search", `s\u0065arch`, 1)) },
		"an escaped member":        func() stack.Answer { return m.post(strings.Replace(search, `"name"`, `"n\u0061me"`, 1)) },
		"an id of 100 kB":          func() stack.Answer { return m.post(call(`"`+strings.Repeat("x", 100<<10)+`"`, "search", "")) },
		"an id of 900 kB":          func() stack.Answer { return m.post(call(`"`+strings.Repeat("x", 900<<10)+`"`, "search", "")) },
		"no id":                    func() stack.Answer { return m.post(strings.Replace(search, `"id":1,`, "", 1)) },
		"no jsonrpc":               func() stack.Answer { return m.post(strings.Replace(search, `"jsonrpc":"2.0",`, "", 1)) },
		"no Accept":                func() stack.Answer { return m.post(search, "Accept", "") },
		"the last name counts":     func() stack.Answer { return m.post(strings.Replace(search, `"name"`, `"name":"fetch","name"`, 1)) },
		"the first name counts": func() stack.Answer {
			return m.post(strings.Replace(search, `"arguments"`, `"name":"fetch","arguments"`, 1))
		},
		"PUT": func() stack.Answer {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+m.Envoy.Addr()+"/mcp", strings.NewReader(search))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {"k"}}
			got, err := m.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			return got
		},
	} {
		if what == "the first name counts" && !refusesDuplicates(t) {
			continue
		}
		before := m.served()
		got := got()
		t.Logf("%s: %d %.80s", what, got.Status, got.Body)
		if m.served() > before {
			t.Errorf("%s: it has reached the server", what)
		} else if got.Status == 200 && !strings.HasPrefix(got.Body, `{"jsonrpc":"2.0","id":`) {
			t.Errorf("%s: the body is no error of JSON-RPC", what)
		}
	}
}
