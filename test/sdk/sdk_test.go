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

// rules limit each key of the test to one request of its window, and for MCP to one call of a tool.
func rules() string {
	text := "domain: edge\ndescriptors:\n"
	for _, language := range []string{"Python", "Node.js"} {
		for wait, limit := range map[string]string{"short": "window: 4s, requests: 1", "long": "window: 1h, requests: 1", "never": "window: 1h, requests: 0"} {
			limit = "rate_limit: {name: " + wait + ", " + limit + "}"
			text += "  - {key: api_key, value: " + wait + "-" + language + ", " + limit + "}\n" +
				"  - {key: api_key, value: tool-" + wait + "-" + language + ", descriptors: [{key: tool, " + limit + "}]}\n"
		}
	}
	return text
}

// An sdk is one client.
type sdk struct {
	name, language, form string
	waits                bool   // it sends a denied request again by itself
	told                 string // what its program gets on a denial, before the message
}

var all = []sdk{
	{"openai", "Python", "openai", true, "RateLimitError, rate_limit_exceeded"},
	{"openai", "Node.js", "openai", true, "RateLimitError, rate_limit_exceeded"},
	{"anthropic", "Python", "anthropic", true, "RateLimitError, rate_limit_error"},
	{"@anthropic-ai/sdk", "Node.js", "anthropic", true, "RateLimitError, rate_limit_error"},
	{"google-genai", "Python", "problem", false, "ClientError, 429"},
	{"grpcio", "Python", "grpc", true, "RESOURCE_EXHAUSTED"},
	{"@modelcontextprotocol/sdk", "Node.js", "mcp", false, "McpError, -32029, data"},
}

// TestSDKs sends two requests with each SDK. Under a limit with a short wait, an SDK that waits is denied
// once, and then passes. If the wait is long, or no wait helps, each denial is the last request.
func TestSDKs(t *testing.T) {
	stacks := make(map[string]*stack.Stack)
	rows, missing := "", false
	for _, c := range all {
		if c.form == "mcp" && stack.EnvoyVersion(t)[1] < 38 {
			missing = true // Envoy has no MCP filter
			continue
		}
		s := stacks[c.form]
		if s == nil {
			s = start(t, c.form)
			stacks[c.form] = s
		}
		version := ""
		for _, wait := range []string{"short", "long", "never"} {
			before, begin := s.Stat("cluster.upstream.ratelimit.over_limit"), time.Now()
			got := c.run(t, s.Envoy.Addr(), wait)
			denials := int(s.Stat("cluster.upstream.ratelimit.over_limit") - before)
			t.Logf("%s %s, %s: %q, %d denials, %v", c.name, got.Version, wait, got.Answers, denials, time.Since(begin))
			wanted := 1
			for i, told := range got.Answers {
				passes := wait != "never" && (i == 0 || c.waits && wait == "short")
				named := strings.HasPrefix(told, c.told+": ") && strings.Contains(told, wait)
				if passes != (told == "") || !passes && !named {
					t.Errorf("%s %s, %s: request %d: %q, want passes %v, or %s and the rule", c.language, c.name, wait, i+1, told, passes, c.told)
				}
				if wait == "never" && i > 0 {
					wanted++
				}
			}
			if denials != wanted {
				t.Errorf("%s %s, %s: %d denials, want %d", c.language, c.name, wait, denials, wanted)
			}
			version = got.Version
		}
		short := "waits, and passes"
		if !c.waits {
			short = "gives up"
		}
		rows += fmt.Sprintf("| `%s` %s, %s | `%s` | %s | gives up | `%s` |\n", c.name, version, c.language, c.form, short, c.told)
	}
	if missing {
		return
	}
	compare(t, "| SDK | form | wait of 4 s | wait of 1 h, or no wait helps | the program gets |\n|---|---|---|---|---|\n"+rows)
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
	cmd := exec.CommandContext(t.Context(), program, script, c.name, address, key)
	cmd.Dir = filepath.Join(dir, "node")
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || len(got.Answers) != 2 {
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
