package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// envSDKs names the directory with the SDKs. The tests run only with it.
const envSDKs = "SLIDEGATE_TEST_SDKS"

var update = flag.Bool("update", false, "write the table of docs/clients.md")

// page has the table between these lines.
const (
	page       = "docs/clients.md"
	tableBegin = "<!-- make sdk-test writes this table. -->\n"
	tableEnd   = "\n## "
)

// waits are the limits of the test, in the order in which each SDK meets them.
var waits = []struct{ name, limit, outcome string }{
	{"short", "window: 4s, requests: 1", "denied"},
	{"long", "window: 1h, requests: 1", "denied"},
	{"never", "window: 1h, requests: 0", "never"},
	{"minutes", "window: 10m, requests: 1", "denied"},
}

// rules limit each key of the test, and for MCP each call of a tool with it.
func rules() string {
	text := "domain: edge\ndescriptors:\n"
	for _, language := range []string{"Python", "Node.js"} {
		for _, w := range waits {
			name := w.name + "-" + language
			limit := "rate_limit: {name: " + name + ", " + w.limit + "}"
			text += "  - {key: api_key, value: " + name + ", " + limit + "}\n" +
				"  - {key: api_key, value: tool-" + name + ", descriptors: [{key: tool, " + limit + "}]}\n"
		}
	}
	return text
}

// An sdk is one client.
type sdk struct {
	name, language, form string
	waits                bool   // it sends a denied request again by itself
	told                 string // what its program gets on a denial, before the message
	wait                 string // where its program finds how long to wait
	row                  string // of the table
}

var all = []sdk{
	{name: "openai", language: "Python", form: "openai", waits: true, told: "RateLimitError, rate_limit_exceeded", wait: "response.headers"},
	{name: "openai", language: "Node.js", form: "openai", waits: true, told: "RateLimitError, rate_limit_exceeded", wait: "headers"},
	{name: "anthropic", language: "Python", form: "anthropic", waits: true, told: "RateLimitError, rate_limit_error", wait: "response.headers"},
	{name: "@anthropic-ai/sdk", language: "Node.js", form: "anthropic", waits: true, told: "RateLimitError, rate_limit_error", wait: "headers"},
	{name: "google-genai", language: "Python", form: "problem", told: "ClientError, 429", wait: "response.headers"},
	{name: "grpcio", language: "Python", form: "grpc", waits: true, told: "RESOURCE_EXHAUSTED", wait: "RetryInfo"},
	{name: "mcp", language: "Python", form: "mcp", told: "MCPError, -32029, data", wait: "data"},
	{name: "@modelcontextprotocol/sdk", language: "Node.js", form: "mcp", told: "McpError, -32029, data", wait: "data"},
}

// TestSDKs sends two requests with each SDK. Under a limit with a short wait, an SDK that waits is denied
// once, and then passes. If the wait is long, or no wait helps, each denial is the last request. A program
// that waits for ten minutes, as long as its error says, passes then.
func TestSDKs(t *testing.T) {
	stacks := make(map[string]*stack.Stack)
	for _, c := range all {
		if stacks[c.form] == nil && (c.form != "mcp" || stack.EnvoyVersion(t)[1] >= 38) { // earlier ones cannot read MCP
			stacks[c.form] = start(t, c.form)
		}
	}
	t.Run("at once", func(t *testing.T) {
		for i := range all {
			if c := &all[i]; stacks[c.form] != nil {
				t.Run(c.language+" "+c.name, func(t *testing.T) {
					t.Parallel()
					c.test(t, stacks[c.form])
				})
			}
		}
	})
	rows := ""
	for _, c := range all {
		if c.row == "" {
			return
		}
		rows += c.row
	}
	compare(t, "| SDK | form | wait of 4 s | the program gets | the wait is in |\n|---|---|---|---|---|\n"+rows)
}

// test proves and makes the row of the table.
func (c *sdk) test(t *testing.T, s *stack.Stack) {
	version := ""
	for _, w := range waits {
		begin := time.Now()
		got := c.run(t, s.Envoy.Addr(), w.name)
		denials := stack.Number(t, s.RLS, `slidegate_decisions_total{domain="edge",outcome="`+w.outcome+`",rule="`+w.name+"-"+c.language+`"}`)
		t.Logf("%s, %s: %q, %d denials, %v", got.Version, w.name, got.Answers, denials, time.Since(begin))
		wanted := 1
		for i, told := range got.Answers {
			passes := w.name != "never" && (i != 1 || c.waits && w.name == "short")
			named := strings.HasPrefix(told, c.told+": ") && strings.Contains(told, w.name)
			if passes != (told == "") || !passes && !named {
				t.Errorf("%s: request %d: %q, want passes %v, or %s and the rule", w.name, i+1, told, passes, c.told)
			}
			if w.name == "never" && i > 0 {
				wanted++
			}
		}
		if denials != wanted {
			t.Errorf("%s: %d denials, want %d", w.name, denials, wanted)
		}
		version = got.Version
	}
	short := "passes"
	if !c.waits {
		short = "gives up"
	}
	c.row = fmt.Sprintf("| `%s` %s, %s | `%s` | %s | `%s` | `%s` |\n", c.name, version, c.language, c.form, short, c.told, c.wait)
}

// compare compares the table with that of the page.
func compare(t *testing.T, table string) {
	t.Helper()
	text := tree.Read(t, page)
	before, rest, _ := strings.Cut(text, tableBegin)
	_, after, ok := strings.Cut(rest, tableEnd)
	if !ok {
		t.Fatalf("%s has no %q before the next section", page, tableBegin)
	}
	if want := before + tableBegin + "\n" + table + tableEnd + after; want != text && *update {
		tree.Write(t, filepath.Join("../..", page), want)
	} else if want != text {
		t.Errorf("%s has another table; make sdk-test UPDATE=-update writes it:\n%s", page, table)
	}
}

// start puts an Envoy whose route has a form before an application for all SDKs.
func start(t *testing.T, form string) *stack.Stack {
	t.Helper()
	setup := stack.Setup{Rules: rules(), Upstream: stack.ServeHTTP(t, http.HandlerFunc(answer))}
	switch form {
	case "mcp":
		setup.Config = stack.MCPConfig
		return setup.Start(t)
	case "grpc":
		setup.Upstream = stack.NewGRPCApplication(t)
	}
	setup.Change = stack.RouteForm(stack.EdgeConfig, form)
	return setup.Start(t)
}

// told is what a script prints.
type told struct {
	Version string
	Answers []string
}

func (c *sdk) run(t *testing.T, address, wait string) (got told) {
	t.Helper()
	key := wait + "-" + c.language
	if c.form == "mcp" {
		key = "tool-" + key
	}
	dir, err := filepath.Abs(os.Getenv(envSDKs))
	if err != nil {
		t.Fatal(err)
	}
	program, script := filepath.Join(dir, "py/bin/python"), "testdata/client.py"
	if c.language == "Node.js" {
		program, script = "node", "testdata/client.cjs"
	}
	if script, err = filepath.Abs(script); err != nil {
		t.Fatal(err)
	}
	args, wanted := []string{script, c.name, address, key}, 2
	if wait == "minutes" {
		args, wanted = append(args, "again"), 3
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = filepath.Join(dir, "node")
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || len(got.Answers) != wanted {
		failed := new(exec.ExitError)
		errors.As(err, &failed)
		t.Fatalf("%s %s: %v, %s\n%s", c.language, c.name, err, out, failed.Stderr)
	}
	return got
}

// answer answers what the SDKs ask.
func answer(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID     any
		Method string
	}
	_ = json.NewDecoder(r.Body).Decode(&in) // GET has none
	body := ""
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		body = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}]}`
	case strings.HasSuffix(r.URL.Path, "/messages"):
		body = `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
	case strings.HasSuffix(r.URL.Path, ":generateContent"):
		body = `{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]}}]}`
	case r.URL.Path == "/mcp" && r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case in.Method == "initialize":
		body = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"test","version":"1"}}`
	case in.Method == "tools/list":
		body = `{"tools":[]}`
	case in.Method == "tools/call":
		body = `{"content":[{"type":"text","text":"found"}]}`
	case in.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if in.Method != "" {
		id, err := json.Marshal(in.ID)
		if err != nil {
			panic(err)
		}
		body = `{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + body + `}`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = bytes.NewBufferString(body).WriteTo(w) // the client may be gone
}
