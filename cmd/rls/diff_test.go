package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/diff"
	"github.com/slidegate/slidegate/test/configtest"
)

const (
	exampleRules    = "../../docs/examples/rules.yaml"
	exampleNewRules = "../../docs/examples/rules-new.yaml"
	exampleTiers    = "../../docs/examples/tiers.yaml"
)

// TestDiffText compares the text of a report with a file. The change adds, removes and changes rules, and
// descriptors get another one.
func TestDiffText(t *testing.T) {
	want, err := os.ReadFile("testdata/diff.txt")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	code, out, fails := command(t, "", "diff", "docs/examples/rules.yaml", "docs/examples/rules-new.yaml", "--tiers", "docs/examples/tiers.yaml")
	if code != 0 || out != string(want) || fails != "" {
		t.Errorf("exit %d %s, printed\n%s\nwant\n%s", code, fails, out, want)
	}
}

func TestDiffExitCodes(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string { return configtest.Put(t, dir, name, text) }
	old := put("old.yaml", "domain: d\ndescriptors: [{key: api_key, rate_limit: {name: r, window: 1m, requests: 5}}]\n")
	now := put("new.yaml", "domain: d\ndescriptors: [{key: api_key, rate_limit: {name: r, window: 1m, requests: 6}}]\n")
	same := put("same.yaml", "domain: d\ndescriptors:\n  - key: api_key\n    rate_limit: {unit: minute, requests_per_unit: 5, name: r}\n")
	broken := put("broken.yaml", "domain: d\ndescriptors: [{key: api_key, rate_limit: {window: 1m}}]\n")
	worse := put("worse.yaml", "domain: d\ndescriptors: [{kei: api_key}]\n")
	set := put("settings.yaml", "grpc: {address: 127.0.0.1:0}\n")
	tests := put("tests.yaml", "rules: new.yaml\ntests: [{name: a, request: {descriptors: [\"api_key=k\"]}, steps: [{expect: {allowed: true}}]}]\n")
	strict := put("strict.yaml", "rules: {policy: fixed}\nstore: {on_error: deny}\n")
	observed := put("observed.yaml", "rules: {shadow_mode: true}\n")
	digests := put("digests.yaml", "secrets: {entries: [token]}\n")
	for _, tt := range []struct {
		name   string
		args   []string
		stdin  string
		code   int
		out    string
		stderr string
	}{
		{name: "the same", args: []string{old, same, "--exit-code"}, out: old + " → " + same + ": no change in meaning\n"},
		{name: "a change", args: []string{old, now}, out: "limits: 5 per 1m → 6 per 1m"},
		{name: "a change with --exit-code", args: []string{old, now, "--exit-code"}, code: 1, out: "looser", stderr: "the sets differ in meaning"},
		{name: "standard input", args: []string{"-", now}, stdin: "domain: d\ndescriptors: [{key: api_key, rate_limit: {name: r, window: 1m, requests: 6}}]\n", out: "- → " + now + ": no change in meaning\n"},
		{name: "both broken", args: []string{broken, worse}, code: 1, stderr: "broken.yaml:2: "},
		{name: "all problems", args: []string{broken, worse}, code: 1, stderr: "worse.yaml:2: "},
		{name: "a missing file", args: []string{old, filepath.Join(dir, "none.yaml")}, code: 1, stderr: "none.yaml"},
		{name: "one argument", args: []string{old}, code: 2, stderr: "rls diff OLD NEW"},
		{name: "standard input twice", args: []string{"-", "-"}, code: 2, stderr: "both standard input"},
		{name: "settings", args: []string{set, now}, code: 2, stderr: "is a settings file"},
		{name: "a file of tests", args: []string{tests, now}, code: 2, stderr: "tests.yaml is a file of tests: name rules or tiers"},
		{name: "an address without --live", args: []string{old, now, "--admin", "localhost:1"}, code: 2, stderr: "are for --live"},
		{name: "tiers twice", args: []string{exampleTiers, exampleTiers, "--tiers", exampleTiers}, code: 2, stderr: "are both tiers files"},
		{name: "tiers alone", args: []string{exampleTiers, exampleTiers}, out: "no change in meaning"},
		{name: "other settings", args: []string{old, old, "--old-config", set, "--config", strict}, out: "limits: 5 per 1m → 5 per 1m fixed"},
		{name: "all is observed", args: []string{old, old, "--old-config", set, "--config", observed}, out: "observe: enforced → only observed"},
		{name: "failures", args: []string{old, old, "--old-config", set, "--config", strict}, out: "on_store_error: local → deny"},
		{name: "other digests", args: []string{old, old, "--old-config", set, "--config", digests}, code: 2, stderr: "--old-config: secrets is other than"},
		{name: "broken settings of both", args: []string{old, old, "--old-config", broken, "--config", worse}, code: 1, stderr: "broken.yaml:1: "},
		{name: "no service", args: []string{old, now, "--live", "--admin", "127.0.0.1:1"}, code: 1, stderr: "the admin port does not answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, fails := command(t, tt.stdin, append([]string{"diff"}, tt.args...)...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(fails, tt.stderr) {
				t.Errorf("exit %d, want %d\n%s\n%s\nwant %q and %q", code, tt.code, out, fails, tt.out, tt.stderr)
			}
		})
	}
}

// TestDiffJSON: the JSON has what the text has.
func TestDiffJSON(t *testing.T) {
	args := []string{"diff", exampleRules, exampleNewRules, "--tiers", exampleTiers}
	_, out, _ := command(t, "", append(args, "--json")...)
	var r diff.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Changed || r.Verdict != diff.Both || len(r.Rules) != 4 || len(r.Matches) == 0 || r.Rules[0].NewLocation != exampleNewRules+":6" {
		t.Errorf("%+v", r)
	}
}

// TestDiffIsStable: two runs print the same bytes.
func TestDiffIsStable(t *testing.T) {
	for _, format := range [][]string{nil, {"--json"}} {
		args := append([]string{"diff", exampleRules, exampleNewRules, "--tiers", exampleTiers}, format...)
		_, first, _ := command(t, "", args...)
		for range 5 {
			if _, again, _ := command(t, "", args...); again != first {
				t.Fatalf("%v prints\n%s\nand then\n%s", args, first, again)
			}
		}
	}
}
