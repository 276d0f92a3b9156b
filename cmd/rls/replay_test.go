package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/tree"
)

// replayFiles writes rules, tiers and a log of Envoy, and returns the flags that name them, and the log.
func replayFiles(t *testing.T) (flags []string, log string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string { return configtest.Put(t, dir, name, text) }
	rules := file("rules.yaml", `domain: edge
descriptors:
  - key: remote_address
    rate_limit: {name: per-address, unit: minute, requests_per_unit: 4}
  - key: api_key
    rate_limit: {name: per-key, by_tier: {free: {unit: minute, requests_per_unit: 2}}}
`)
	tiers := file("tiers.yaml", "tiers: [free]\ndefault: free\nsubjects: [{id: acme, keys: [{plain: secret-key-of-acme}]}]\n")
	var lines strings.Builder
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 10 {
		subject, client := `null`, "192.0.2.7"
		if i%2 == 0 {
			subject, client = `"acme"`, fmt.Sprintf("198.51.100.%d", i)
		}
		fmt.Fprintf(&lines, `{"time":%q,"client":%q,"method":"GET","path":"/items","status":200,"flags":"-","details":"via_upstream","subject":%s,"duration_ms":3}`+"\n",
			start.Add(time.Duration(i)*time.Second).Format("2006-01-02T15:04:05.000Z"), client, subject)
	}
	return []string{"--rules", rules, "--tiers", tiers, "--envoy", "../../envoy/ratelimit.yaml"}, file("access.log", lines.String()+"not a request\n")
}

// TestReplay runs the command on a log of the format in envoy/ratelimit.yaml.
func TestReplay(t *testing.T) {
	flags, log := replayFiles(t)
	line := func(more ...string) []string { return append(append([]string{"replay"}, flags...), more...) }
	code, out, errs := command(t, "", line("--json", "--what-if", "all", log)...)
	var r replay.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, errs)
	}
	// acme: 2 of 5. The address of the others: 4 of 5.
	if r.Requests != 10 || r.Allowed != 6 || r.Denied != 4 || r.Logs.Broken != 1 || r.Partial {
		t.Errorf("got %d requests, %d allowed, %d denied, %d unreadable", r.Requests, r.Allowed, r.Denied, r.Logs.Broken)
	}
	for _, p := range r.Rules {
		if p.WhatIf == nil || len(p.WhatIf.Smallest) != 2 || p.WhatIf.Smallest[0].Limit != 5 || p.WhatIf.Smallest[0].Above != 4 {
			t.Errorf("%s: %+v", p.Rule, p.WhatIf)
		}
	}
	subjects := fmt.Sprint(r.Subjects[0].Subject, " ", r.Subjects[0].Denied, " ", r.Subjects[1].Subject, " ", r.Subjects[1].Denied)
	if want := "acme 3 remote_address=192.0.2.0/24 1"; subjects != want {
		t.Errorf("denied: %s, want %s", subjects, want)
	}
	for _, word := range []string{"192.0.2.7", "secret-key"} {
		if strings.Contains(out+errs, word) {
			t.Errorf("the output has %q", word)
		}
	}
	if code, out, _ := command(t, "", line(log)...); code != 0 || !strings.Contains(out, "per-key") {
		t.Errorf("text: exit %d: %s", code, out)
	}
	text := tree.Text(t, log)
	if code, out, errs := command(t, text, line("--json", "--what-if", "all", "-")...); code != 0 || !strings.Contains(out, `"above": 4`) {
		t.Errorf("standard input: exit %d: %s%s", code, out, errs)
	}
}

// TestReplayMap makes descriptors by a mapping file, of a log with other names of fields.
func TestReplayMap(t *testing.T) {
	flags, _ := replayFiles(t)
	dir := t.TempDir()
	file := func(name, text string) string { return configtest.Put(t, dir, name, text) }
	mapping := file("map.yaml", `domain: edge
fields: {ts: "%START_TIME%", ip: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", uri: "%REQ(:path)%", verb: "%REQ(:method)%", who.key: "%REQ(x-api-key)%"}
descriptors:
- [api_key=%REQ(x-api-key)%]
- {entries: [remote_address=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%], when: {path: /items}}
`)
	log := file("log", strings.Repeat(`{"ts":"2026-03-01T12:00:00Z","ip":"192.0.2.7","uri":"/items?x","verb":"GET","who":{"key":null}}`+"\n", 6)+
		strings.Repeat(`{"ts":"2026-03-01T12:00:01Z","ip":"192.0.2.8","uri":"/other","verb":"GET","who":{"key":"secret-key-of-acme"}}`+"\n", 3))
	code, out, errs := command(t, "", append(append([]string{"replay"}, flags[:4]...), "--map", mapping, "--json", log)...)
	var r replay.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, errs)
	}
	if r.Requests != 9 || r.Denied != 3 || len(r.Unreported) != 0 || strings.Contains(out+errs, "secret-key") {
		t.Errorf("got %d requests, %d denied, unreported %v: %s", r.Requests, r.Denied, r.Unreported, out)
	}
	if code, _, errs := command(t, "", append(append([]string{"replay"}, flags...), "--map", mapping, log)...); code != 1 || !strings.Contains(errs, `map.yaml:3: "descriptors" does not go with --envoy`) {
		t.Errorf("--map with descriptors beside --envoy: exit %d: %s", code, errs)
	}
	for _, wrong := range [][]string{{"--map", mapping, "--envoy", "x"}, {"--map", mapping, "--domain", "x"}, {"--map", filepath.Join(dir, "none")}, {"--map", log}} {
		if code, _, errs := command(t, "", append(append([]string{"replay"}, flags[:4]...), append(wrong, log)...)...); code == 0 || !strings.Contains(errs, "map") && !strings.Contains(errs, "none") && !strings.Contains(errs, log) {
			t.Errorf("%v: exit %d: %s", wrong, code, errs)
		}
	}
}

// TestReplayMisleading: a report that would mislead says so first, and --fail-if sees it.
func TestReplayMisleading(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string { return configtest.Put(t, dir, name, text) }
	flags := []string{
		"replay", "--what-if", "none",
		"--rules", write("rules.yaml", "domain: edge\ndescriptors:\n- {key: remote_address, rate_limit: {name: per-address, unit: minute, requests_per_unit: 3}}\n"),
		"--map", write("map.yaml", "domain: edge\ndescriptors: [[remote_address=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%]]\n"),
	}
	const timed = `$remote_addr - - [$time_local] "$request" $status $body_bytes_sent "-" "curl" $request_time`
	for _, c := range []struct {
		name, before, behind, format, figure string
		denied                               bool
	}{
		{name: "plain", denied: true},
		{name: "a known prefix", before: "2026-05-26T01:50:01.00000791%dZ stdout F ", denied: true},
		{name: "an unknown prefix", before: "a %d b ", figure: "no_address"},
		{name: "Apache's microseconds", behind: " %d00000", denied: true},
		{name: "microseconds as seconds", behind: " %d00000", format: timed, figure: "span"},
		{name: "another program", behind: "\nstarted worker %d", denied: true, figure: "unreadable"},
	} {
		var log strings.Builder
		for i := range 9 {
			line := fmt.Sprintf(`192.0.2.7 - - [23/Nov/2026:12:00:0%d +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`, i)
			if c.before != "" {
				line = fmt.Sprintf(c.before, i) + line
			}
			if c.behind != "" {
				line += fmt.Sprintf(c.behind, i+1)
			}
			log.WriteString(line + "\n")
		}
		page := filepath.Join(dir, "report.html")
		args := append(append([]string{}, flags...), write("log", log.String()), "--html", page)
		if c.format != "" {
			args = append(args, "--format", c.format)
		}
		_, text, errs := command(t, "", args...)
		_, object, _ := command(t, "", append(args, "--json")...)
		first, _, _ := strings.Cut(text, "\n")
		if misleads := c.figure != ""; strings.HasPrefix(first, "Misleading: ") != misleads || strings.HasPrefix(object, "{\n  \"misleading\": ") != misleads ||
			strings.Contains(tree.Text(t, page), ">Misleading: ") != misleads || strings.Contains(text, "denied 66.7 %") != c.denied {
			t.Errorf("%s: %s%s", c.name, text, errs)
		}
		for _, figure := range []string{"unreadable", "no_address", "span"} {
			code, _, errs := command(t, "", append(args, "--fail-if", figure)...)
			if want := map[bool]int{true: 1}[figure == c.figure]; code != want {
				t.Errorf("%s, --fail-if %s: exit %d: %s", c.name, figure, code, errs)
			}
		}
	}
}

// TestReplayOwnLog: a JSON log with names of its own is read by the format in Envoy's configuration.
func TestReplayOwnLog(t *testing.T) {
	flags, _ := replayFiles(t)
	dir := t.TempDir()
	before, behind, _ := strings.Cut(tree.Text(t, "../../envoy/ratelimit.yaml"), "json_format:\n")
	own := configtest.Put(t, dir, "envoy.yaml", before+`json_format: {"@timestamp": "%START_TIME%", http: {url: "%PATH(NQ)%"}, from: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", customer: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:subject)%"}
                x_json_format:
`+behind)
	var lines strings.Builder
	for i := range 7 {
		fmt.Fprintf(&lines, `{"@timestamp":"2026-03-01T12:00:00.%03dZ","http":{"url":"/items"},"from":"192.0.2.7","customer":"acme"}`+"\n", i)
	}
	code, out, errs := command(t, "", append(append([]string{"replay"}, flags[:4]...), "--envoy", own, "--json", configtest.Put(t, dir, "log", lines.String()))...)
	var r replay.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, errs)
	}
	// 2 of 7 by the limit of the subject.
	if r.Requests != 7 || r.Denied != 5 || r.Subjects[0].Subject != "acme" {
		t.Errorf("got %d requests, %d denied: %s", r.Requests, r.Denied, out)
	}
}

// TestReplayHTML writes the page beside the report. It never overwrites a log or another output, and
// it does not begin a replay whose page cannot be written.
func TestReplayHTML(t *testing.T) {
	flags, log := replayFiles(t)
	before := tree.Text(t, log)
	page := filepath.Join(t.TempDir(), "report.html")
	line := func(more ...string) []string { return append(append([]string{"replay"}, flags...), more...) }
	code, out, errs := command(t, "", line("--html", page, log)...)
	if code != 0 || !strings.Contains(out, "per-key") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	text := tree.Text(t, page)
	for _, want := range []string{"These limits would have denied 40&nbsp;% of the requests", "acme", "per-key", "</html>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	dir := t.TempDir()
	set, below := filepath.Join(dir, "rls.yaml"), filepath.Join(dir, "rules", "below", "rules.yaml")
	if err := os.MkdirAll(filepath.Dir(below), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{set: "{}\n", below: tree.Text(t, flags[1])} {
		tree.Write(t, path, content)
	}
	for more, want := range map[string]string{
		"--config " + set + " --html " + set:                          "is one of the files that are read",
		"--rules " + filepath.Join(dir, "rules") + " --html " + below: "is one of the files that are read",
		"--html -":           "--html: name a file; standard output has the report",
		"--html " + log:      "is one of the files that are read, and would be overwritten",
		"--html " + flags[1]: "is one of the files that are read",
		"--html " + flags[3]: "is one of the files that are read",
		"--html " + page + " --decisions " + page:                                  "--html and --decisions name the same file",
		"--html " + page + " --decisions " + filepath.Dir(page) + "/./report.html": "--html and --decisions name the same file",
		"--html " + filepath.Join(page, "x"):                                       "--html: open",
	} {
		exit := 2
		if strings.Contains(want, "open") {
			exit = 1 // the command line is right, and the file cannot be written
		}
		if code, out, errs := command(t, "", line(append(strings.Fields(more), log)...)...); code != exit || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s%s, want %s", more, code, out, errs, want)
		}
	}
	if tree.Text(t, log) != before {
		t.Error("the log has changed")
	}
	// A replay that fails at its start leaves the last report as it is, and no new file.
	fresh := filepath.Join(filepath.Dir(page), "fresh")
	if code, _, errs := command(t, "", append(line("--html", page, "--decisions", fresh), "/nowhere/access.log")...); code != 1 || tree.Text(t, page) != text {
		t.Errorf("exit %d: %s; the last report has changed", code, errs)
	}
	if _, err := os.Stat(fresh); err == nil {
		t.Error("there is a file without decisions")
	}
	// What is shorter than before has nothing of before behind it.
	tree.Write(t, page, strings.Repeat("x", 1<<20))
	if code, _, errs := command(t, "", line("--html", page, log)...); code != 0 || tree.Text(t, page) != text {
		t.Errorf("exit %d: %s; the page differs", code, errs)
	}
}

// TestReplaySameLog refuses a log that is named twice: its requests would count twice.
func TestReplaySameLog(t *testing.T) {
	flags, log := replayFiles(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(log, link); err != nil {
		t.Fatal(err)
	}
	for _, logs := range [][]string{{log, log}, {log, link}, {"-", "-"}} {
		if code, _, errs := command(t, tree.Text(t, log), append(append([]string{"replay"}, flags...), logs...)...); code != 2 || !strings.Contains(errs, "are one log") {
			t.Errorf("%v: exit %d: %s", logs, code, errs)
		}
	}
}

// TestReplayDecisions holds each line to the schema, and to the report.
func TestReplayDecisions(t *testing.T) {
	flags, log := replayFiles(t)
	dir := t.TempDir()
	old := filepath.Join(dir, "old.yaml")
	tree.Write(t, old, "domain: edge\ndescriptors: [{key: remote_address, rate_limit: {name: old, unit: minute, requests_per_unit: 1}}]\n")
	file := filepath.Join(dir, "decisions")
	code, out, errs := command(t, "", append(append([]string{"replay"}, flags...), "--against", old, "--decisions", file, "--json", log)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var r replay.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../docs/replay-decisions.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var newly, freed, denied uint64
	lines := strings.Split(strings.TrimSpace(tree.Text(t, file)), "\n")
	for _, line := range lines {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		var d struct {
			Allowed bool
			Against struct{ Allowed bool }
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatal(err)
		}
		switch {
		case !d.Allowed && d.Against.Allowed:
			newly++
		case d.Allowed && !d.Against.Allowed:
			freed++
		}
		if !d.Allowed {
			denied++
		}
	}
	if len(lines) != 10 || denied != r.Denied || newly != r.Against.NewlyDenied || freed != r.Against.Freed || newly == 0 || freed == 0 {
		t.Errorf("%d lines with %d denied, %d newly denied and %d freed, and the report has %d, %d and %d", len(lines), denied, newly, freed, r.Denied, r.Against.NewlyDenied, r.Against.Freed)
	}
}

// TestReplayExitCodes tells a condition that holds from everything else.
func TestReplayExitCodes(t *testing.T) {
	flags, log := replayFiles(t)
	with := func(more ...string) []string {
		return append(append(append([]string{"replay"}, flags...), more...), log)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no log":            {[]string{"replay"}, 2, "name an access log"},
		"unknown flag":      {with("--nope"), 2, "unknown flag"},
		"no rules":          {[]string{"replay", log}, 2, "no rules are named"},
		"no Envoy":          {[]string{"replay", "--rules", flags[1], "--tiers", flags[3], log}, 2, "name Envoy's configuration with --envoy FILE"},
		"no file":           {append(with(), "/nowhere/access.log"), 1, "/nowhere/access.log"},
		"holds":             {with("--fail-if", "denied>0.1%"), 1, "--fail-if denied>0.1%: it is 40% (4 of 10)"},
		"one of two holds":  {with("--fail-if", "denied>99%", "--fail-if", "rule:per-key.denied>=3"), 1, "rule:per-key.denied>=3: it is 3"},
		"does not hold":     {with("--fail-if", "denied>50%"), 0, ""},
		"bad condition":     {with("--fail-if", "denied"), 2, "expected a comparison"},
		"unknown rule":      {with("--fail-if", "rule:per-kei.denied>1"), 2, `there is no rule "per-kei", only per-address, per-key`},
		"without --against": {with("--fail-if", "newly_denied>0"), 2, "--against"},
		"what-if":           {with("--what-if", "per-kei"), 2, `--what-if: there is no rule "per-kei"`},
		"reorder":           {with("--reorder", "-1s"), 2, "--reorder: expected a time"},
		"decisions":         {with("--decisions", "-"), 2, "--decisions: name a file"},
		"overwrite":         {with("--decisions", log), 2, "is one of the files that are read"},
		"against-tiers":     {with("--against-tiers", flags[3]), 2, "name the rules of these tiers"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errs := command(t, "", c.args...)
			if code != c.code || !strings.Contains(errs, c.says) {
				t.Errorf("exit %d, want %d; it says %q, want %q", code, c.code, errs, c.says)
			}
		})
	}
}
