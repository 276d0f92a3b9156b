package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/offline/check"
	"github.com/slidegate/slidegate/test/tree"
)

// command runs a command line and returns its exit code and what it prints.
func command(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return commandTo(t, nil, stdin, args...)
}

// commandTo is command with a standard output, unless it is nil.
func commandTo(t *testing.T, out *os.File, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	tree.Write(t, in, stdin)
	files := make([]*os.File, 3)
	for i, name := range []string{"in", "out", "err"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	before := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	os.Stdin, os.Stdout, os.Stderr = files[0], files[1], files[2]
	if out != nil {
		os.Stdout = out
	}
	for _, v := range os.Environ() { // settings of the tests are not settings of rls
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "SLIDEGATE_TEST_") {
			t.Setenv(name, value) // restores it
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	code = run(root(), args)
	os.Stdin, os.Stdout, os.Stderr = before[0], before[1], before[2]
	return code, tree.Text(t, files[1].Name()), tree.Text(t, files[2].Name())
}

// TestFullDisk: each command fails if its output cannot be written.
func TestFullDisk(t *testing.T) {
	reader, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close() // so that every write fails
	defer full.Close()
	flags, log := replayFiles(t)
	replay := append(append([]string{"replay"}, flags...), log)
	for _, args := range [][]string{
		{"diff", exampleRules, exampleNewRules},
		{"diff", "--json", exampleRules, exampleNewRules},
		replay,
		append(replay, "--json"),
		{"validate"},
		{"validate", "--json"},
		{"explain", "--descriptor", "api_key=a"},
		{"test", "../../docs/examples/limits_test.yaml"},
		{"digest"},
		{"env"},
		{"version"},
		{"--version"},
		{"--help"},
		{"help"},
		{"validate", "--help"},
		{"completion", "bash"},
		{"envoy-config"},
	} {
		code, _, stderr := commandTo(t, full, "key\n", args...)
		if code != 1 || !strings.Contains(stderr, "rls: write ") || !strings.HasSuffix(stderr, ": broken pipe\n") {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
}

// TestCommandOfReference proves that a compose file for envoyproxy/ratelimit needs no change of its
// command, whatever the ENTRYPOINT of the image.
func TestCommandOfReference(t *testing.T) {
	for line, want := range map[string]string{
		"/bin/ratelimit":                    "/bin/ratelimit",
		"/bin/ratelimit /bin/ratelimit":     "/bin/ratelimit",
		"/rls /bin/ratelimit":               "/bin/ratelimit",
		"/bin/ratelimit /bin/ratelimit env": "/bin/ratelimit env",
		"/bin/ratelimit env":                "/bin/ratelimit env",
		"/rls validate ratelimit":           "/rls validate ratelimit",
	} {
		if got := strings.Join(commandLine(strings.Fields(line)), " "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// TestCommandLine runs command lines, right and wrong ones, and checks exit code and output.
func TestCommandLine(t *testing.T) {
	const (
		demoFree = "e1f4fdb94683a17c8a5d9e6dc6cca27c4a2f827dbe26ede139c17a61127b1f4f\n" // as in tiers.yaml
		// Tests of a subject and a tier that do not exist, and one that expects nothing.
		strangers = "rules: ../../docs/examples/rules.yaml\ntiers: ../../docs/examples/tiers.yaml\ntests:\n" +
			"- {name: a, request: {descriptors: [api_key=1]}, steps: [{subject: x, expect: {allowed: 1}}, {tier: gold, expect: {allowed: 1}}]}\n" +
			"- {name: b, steps: [{descriptors: [api_key=1]}]}\n"
		x = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n"
	)
	t.Setenv("SLIDEGATE_ADMIN_ADDRESS", "127.0.0.1:1") // nothing listens there
	domains := write(t, "domain: a\n---\ndomain: b\n")
	redis := write(t, "store: {type: redis, redis: {key_prefix: 'own:'}}\n")
	elsewhere := write(t, "tiers: {source: redis}\n")
	missing := filepath.Join(t.TempDir(), "missing")
	tiersText := tree.Text(t, "../../internal/config/example/tiers.yaml")
	for _, tt := range []struct {
		line   string
		stdin  string
		code   int
		stdout string // a part
		stderr string // a part
	}{
		{line: "bogus", code: 2, stderr: `rls: unknown command "bogus" for "rls"`},
		{line: "validat", code: 2, stderr: "Did you mean this?\n\tvalidate"},
		{line: "--bogus", code: 2, stderr: "rls: unknown flag: --bogus"},
		{line: "validate --bogus", code: 2, stderr: "Run 'rls validate --help' for usage."},
		{line: "version x", code: 2, stderr: `unknown command "x"`},
		{line: "test", code: 2, stderr: "name a file of tests, or a directory with files named *_test.yaml"},
		{line: "test nowhere", code: 2, stderr: "rls: nowhere: no such file"},
		{line: "test testdata", code: 2, stderr: "testdata: the directory has no files named *_test.yaml"},
		{line: "test --format xml ../../docs/examples", code: 2, stderr: `--format: expected text or junit, not "xml"`},
		{line: "test --redis redis://:hush@ ../../docs/examples", code: 2, stderr: "rls: --redis: the URL has no host"},
		{line: "test --redis redis://:hush@127.0.0.1:1 ../../docs/examples", code: 1, stderr: "rls: --redis: looking for logs of other tests: redisstore: connect: dial tcp 127.0.0.1:1: connect: connection refused\n"},
		{line: "test --redis redis-cluster://:hush@127.0.0.1:1 ../../docs/examples", code: 1, stderr: "rls: --redis: looking for logs of other tests: redisstore: connect: dial tcp 127.0.0.1:1: connect: connection refused\n"},
		{line: "test --redis= ../../docs/examples", code: 2, stderr: `rls: --redis: expected the URL of a Redis`},
		{line: "test --run=( ../../docs/examples", code: 2, stderr: "rls: --run: error parsing regexp: missing closing )"},
		{line: "test --run=^nothing$ ../../docs/examples", code: 2, stderr: `rls: --run: none of the 7 tests has a name that matches "^nothing$"`},
		{line: "test --run=^nothing$ --format junit ../../docs/examples", code: 2, stderr: `rls: --run: none of the 7 tests has a name that matches "^nothing$"`},
		{line: "test --run=bursts|denial ../../docs/examples", stdout: "2 passed, 0 failed, 1352 requests; 5 not run\n"},
		{line: "test --run=. ../../docs/examples", stdout: " requests; 0 not run\n"},
		{line: "test --run=bursts --require-coverage ../../docs/examples", code: 2, stderr: "rls: --require-coverage: --run leaves tests out"},
		{line: "test --run=denial --verbose ../../docs/examples", stdout: "PASS a denial says when the client may come back\n    ../../docs/examples/limits_test.yaml:16: step 1 at 0s: expect: {allowed: 100, rule: per-key, limit: 100, remaining: 0, tier: free, subject: hobby, reset: 1m}\n"},
		{line: "test --watch --format junit ../../docs/examples", code: 2, stderr: "rls: --watch: a report in the format junit is about one run: use --format text"},
		{line: "test --require-coverage ../../docs/examples", stdout: " passed, 0 failed, "},
		{line: "test --format junit ../../docs/examples", stdout: `<testsuites tests="7" failures="0">`},
		{line: "usage --refresh --admin 127.0.0.1:1 --address ::1", code: 2, stderr: "--refresh: name a subject or a key"},
		{line: "usage --refresh --admin nowhere", code: 2, stderr: `--admin: "nowhere" is neither host:port nor a URL`},
		{line: "explain", code: 2, stderr: `"descriptor" not set`},
		{line: "usage --refresh --admin 127.0.0.1:1", code: 1, stderr: "the admin port does not answer: "},
		{line: "explain --descriptor a", code: 2, stderr: "--descriptor: entry 1 has no ="},
		{line: "explain --descriptor a=b --tier gold", code: 2, stderr: `--tier: there is no such tier, expected one of free, starter, pro`},
		{line: "explain --descriptor a=b --domain other", code: 2, stderr: `--domain: the rules have no such domain, only edge`},
		{line: "explain --descriptor a=b --rules " + domains, code: 2, stderr: "--domain: the rules have a, b: choose one"},
		{line: "explain --descriptor route=search,api_key=demo-pro --hits 5", stdout: "cost  5, has room, 9495 remain"},
		{line: "explain --descriptor api_key=unknown", stdout: "with nothing used: the admin port does not answer: dial tcp 127.0.0.1:1: connect: connection refused; check that rls runs, and --admin or admin.address\nrules: the built-in example (rules.path is not set; "},
		{line: "explain --descriptor api_key=unknown", stdout: "\nanswer: OK\n"},
		{line: "explain --descriptor a=1 --domain a --rules " + domains, stdout: "with nothing used: --rules asks no service\nrules: " + domains + "\ndescriptor 1\n"},
		{line: "explain --descriptor api_key=demo-free --config " + redis, stdout: "\n    in Redis: own:{id.hobby}:edge|api_key:id.hobby:60000000\n"},
		{line: "explain --descriptor api_key=unknown --config " + elsewhere, stdout: "\ntier: free (the default; explain does not ask tiers.source redis; give --tier)\ndescriptor 1\n"},
		{line: "explain --descriptor api_key=unknown --tier pro --config " + elsewhere, stdout: "SLIDEGATE_ variables)\ndescriptor 1\n"},
		{line: "usage --raw k", code: 1, stderr: "rls: store.type is memory in these settings, but rls usage --raw reads only Redis; give it the settings of the service with --config or SLIDEGATE_ variables\n"},
		{line: "usage --raw k acme", code: 2, stderr: "--raw reads the Redis of the settings, and takes only --scope and --entries"},
		{line: "explain --descriptor api_key=unknown --tier pro", stdout: "rule per-key for tier pro: 500 per 1s"},
		{line: "explain --live --domain a --descriptor a=b --descriptor b", code: 2, stderr: "--descriptor: entry 1 has no =: write key=value,key=value"},
		{line: "explain --live --descriptor a=b", code: 2, stderr: "--live: name the domain of the request with --domain"},
		{line: "explain --live --domain a --descriptor a=b --tier pro", code: 2, stderr: "--live takes neither"},
		{line: "explain --descriptor a=b --until-denied 5", code: 2, stderr: "are for --live: give it too"},
		{line: "explain --live --domain a --descriptor a=b --timeout 0s", code: 2, stderr: "--timeout: expected a duration above 0"},
		{line: "help", stdout: "Available Commands:"},
		{line: "--help", stdout: "Available Commands:"},
		{line: "help validate", stdout: "rls validate [PATH]..."},
		{line: "help completion bash", stdout: "rls completion bash"},
		{line: "--version", stdout: "slidegate dev\n"},
		{line: "version", stdout: "slidegate dev\ncommit unknown\ndate unknown\nbuilt with go"},
		{line: "completion bash", stdout: "__start_rls"},
		{line: "completion zsh", stdout: "#compdef rls"},
		{line: "completion fish", stdout: "complete -c rls"},
		{line: "completion", code: 2, stderr: "name a command of rls completion"},
		{line: "completion tcsh", code: 2, stderr: `unknown command "tcsh"`},
		{line: "__complete help us", stdout: "usage"},
		{line: "digest", code: 2, stderr: "standard input holds no API key"},
		{line: "digest", stdin: "\n \t\n", code: 2, stderr: "standard input holds no API key"},
		{line: "digest", stdin: "demo-free\n\nx\n", stdout: demoFree + x},
		{line: "digest", stdin: "\ufeffdemo-free\r\n\nx\r\n", stdout: demoFree + x},
		{line: "digest", stdin: "\xff\xfed\x00e\x00m\x00o\x00", code: 1, stderr: "is UTF-16; save it as UTF-8"},
		{line: "validate -", stdin: "\xff\xfed\x00o\x00", code: 2, stderr: "is UTF-16; save it as UTF-8"},
		{line: "digest", stdin: "Bearer demo-free\n x\t\n \n", stdout: demoFree + x, stderr: "rls: line 1: "},
		{line: "digest", stdin: "Bearer demo-free\n x\t\n \n", stdout: demoFree + x, stderr: "\nrls: line 2: "},
		{line: "validate", stdout: "the built-in example: valid\n"},
		{line: "validate ../../internal/config/example/rules.yaml", stdout: "rules.yaml: valid\n"},
		{line: "validate -", stdin: "domain: d\ndescriptors: [{key: a}]\n", stdout: "-: valid\nrules without on_store_error: local (store.on_error)\n\ndomain d: 1 rule\n"},
		{line: "validate -", stdin: "domain: d\ndescriptors: [{kye: a}]\n", code: 1, stderr: `-:2: descriptors[0]: unknown key "kye", did you mean "key"?`},
		{line: "validate -", stdin: "tiers: [a]\ndefault: b\n", code: 1, stderr: "-:2: default: unknown tier, expected one of a"},
		{line: "validate -", stdin: "tiers: [a]\ndefault: a\n", stdout: "-: valid\n"},
		{line: "validate ../../internal/config/example/tiers.yaml", stdout: "tiers.yaml: valid\n", stderr: "plain text"},
		{line: "validate -", stdin: "log: {level: loud}\n", code: 1, stderr: `-:1: log.level: "loud" is not one of`},
		{line: "validate -", stdin: "log: {level: loud}\ntiers: {source: postgres, postgres: {url: 'postgres://u@h/d?connect_timeout=x'}}\n", code: 1, stderr: "invalid connect_timeout"},
		{line: "validate -", stdin: "log: {level: loud}\ntiers: {source: postgres, postgres: {url: 'postgres://u@h/d?connect_timeout=x'}}\n", code: 1, stderr: "-:1: log.level"},
		{line: "validate -", stdin: "store: {memory: {snapshot: " + missing + "/logs}}\n", code: 1, stderr: "\nstore.memory.snapshot: the directory " + missing + " does not exist; create it\n"},
		{line: "validate -", stdin: "grpc: {address: 'unix://" + missing + "/s'}\nstore: {memory: {snapshot: " + missing + "/logs}}\n", code: 1, stderr: "create it\nstore.memory.snapshot: the directory"},
		{line: "validate -", stdin: "store: {type: redis, memory: {snapshot: " + missing + "/logs}}\n", stdout: "-: valid\n"},
		{line: "validate -", stdin: "grpc: {address: 'unix://" + missing + "/s'}\n", code: 1, stderr: "\ngrpc.address: cannot listen on unix://" + missing + "/s: the directory " + missing + " does not exist; create it\n"},
		{line: "validate ../../internal/config/settings/settings.full.yaml -", stdin: "tiers: [a]\ndefault: a\n", code: 1, stderr: "built-in rules.yaml"},
		{line: "validate ../../internal/config/example/rules.yaml ../../internal/config/example/tiers.yaml", stdout: "tiers.yaml: valid\n"},
		{line: "validate ../../docs/examples/limits_test.yaml", stdout: "../../docs/examples/limits_test.yaml: valid\ntests: 7\n"},
		{line: "validate ../../docs/examples/limits_test.yaml ../../docs/examples/rules.yaml ../../docs/examples/tiers.yaml", stdout: "docs/examples/tiers.yaml: valid\ntests: 7\n"},
		{line: "validate --json ../../docs/examples/limits_test.yaml", stdout: "\"valid\": true,\n  \"rules\": 0,\n  \"tests\": 7\n}"},
		{line: "validate --portable ../../docs/examples/limits_test.yaml", code: 2, stderr: "rls: --portable is about rules: name rules, too"},
		{line: "validate -", stdin: "tests: []\nrules: 5\n", code: 1, stderr: "-:1: tests: at least one test is needed"},
		{line: "validate -", stdin: "tests: [{name: a, steps: [{descriptors: [a=1], expect: {allowed: 1}}]}]\nrules: nowhere.yaml\n", code: 1, stderr: "\nnowhere.yaml: no such file or directory\n"},
		{line: "validate -", stdin: strangers, code: 1, stderr: "\n-:4: subject: the tiers file has no subject \"x\"\n-:4: tier: the tiers file has no tier \"gold\"\n-:5: no step of the test expects anything"},
		{line: "validate -", stdin: "tests: [{name: a, steps: [{descriptors: [a=1], expect: {allowed: 1}}]}]\n", code: 1, stderr: "\n-: rules: no rules are named: write rules: rules.yaml, or set rules.path\n"},
		{line: "validate --config a.yaml ../../internal/config/settings/settings.full.yaml", code: 2, stderr: "are both settings files: give one"},
		{line: "validate ../../internal/config/example/tiers.yaml -", stdin: tiersText, code: 2, stderr: "are both tiers files: give one"},
	} {
		code, stdout, stderr := command(t, tt.stdin, strings.Fields(tt.line)...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("rls %s: got exit code %d, %q, %q; want %d, %q, %q", tt.line, code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
		}
		if code != 0 && stdout != "" {
			t.Errorf("rls %s: failed, and printed %q on standard output", tt.line, stdout)
		}
		if strings.Contains(stderr, "demo-free") {
			t.Errorf("rls %s: printed an API key: %q", tt.line, stderr)
		}
		if strings.Contains(stdout+stderr, "\x1b") && !strings.HasPrefix(tt.line, "completion") {
			t.Errorf("rls %s: printed colours to a file", tt.line)
		}
	}
}

// TestValidateJSON reads problems as JSON. Each is an object with its place.
func TestValidateJSON(t *testing.T) {
	rules := write(t, "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: minuet, requests_per_unit: 1}\n")
	code, stdout, _ := command(t, "tiers: [a]\ndefault: a\nsubjects:\n  - key: x\n    id: b\n", "validate", "--json", "-", rules)
	var got check.Result
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 1 {
		t.Fatalf("got exit code %d, %v and\n%s", code, err, stdout)
	}
	want := check.Result{Paths: []string{"-", rules}, Problems: []strict.Problem{
		{File: "-", Line: 4, Column: 5, Path: "subjects[0]", Message: "unknown key, did you mean \"keys\"?"},
		{File: rules, Line: 4, Path: "descriptors[a].rate_limit.unit", Message: `unknown unit "minuet", expected one of second, minute, hour, day, week, month, year, did you mean "minute"?`},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestValidatePortable refuses rules that rls alone accepts, as text and as JSON.
func TestValidatePortable(t *testing.T) {
	ours := write(t, "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {window: 10s, requests: 1}\n")
	for line, want := range map[string]int{"validate " + ours: 0, "validate --portable " + ours: 1, "validate --portable --json " + ours: 1} {
		code, stdout, stderr := command(t, "", strings.Fields(line)...)
		if code != want {
			t.Errorf("rls %s: got exit code %d, want %d:\n%s%s", line, code, want, stdout, stderr)
		}
		if n := strings.Count(stdout+stderr, "does not know this key"); n != 2*want {
			t.Errorf("rls %s: %d problems, want %d:\n%s%s", line, n, 2*want, stdout, stderr)
		}
	}
	both := write(t, "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, requests_per_unit: 1}\n")
	if code, stdout, stderr := command(t, "", "validate", "--portable", both); code != 0 || !strings.Contains(stdout, "portable: envoyproxy/ratelimit reads these rules the same") {
		t.Errorf("got exit code %d and\n%s%s", code, stdout, stderr)
	}
}

// TestEachHelpHasAnExample: each command has an example, and help breaks its text between words.
func TestEachHelpHasAnExample(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	for _, cmd := range root().Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		code, out, _ := command(t, "", cmd.Name(), "--help")
		if code != 0 || !strings.Contains(out, "\nExamples:\n  ") || !strings.Contains(out, "rls "+cmd.Name()) {
			t.Errorf("rls %s --help has no example:\n%s", cmd.Name(), out)
		}
		for line := range strings.Lines(out) {
			if len(line) > 100 && strings.Count(strings.TrimSpace(line), " ") > 12 {
				t.Errorf("rls %s --help: a line has %d bytes: %s", cmd.Name(), len(line), line)
			}
		}
	}
}

// TestOtherName: under its second name the program names itself so.
func TestOtherName(t *testing.T) {
	before := os.Args
	defer func() { os.Args = before }()
	os.Args = []string{"/usr/bin/slidegate"}
	if _, out, _ := command(t, "", "usage", "--help"); !strings.Contains(out, "\n  slidegate usage [CUSTOMER]") {
		t.Errorf("the help is\n%s", out)
	}
}

// TestEffective prints each setting with its origin, and no secret.
func TestEffective(t *testing.T) {
	file := write(t, "store: {type: redis}\n")
	t.Setenv("SLIDEGATE_STORE_REDIS_PASSWORD", "hush")
	t.Setenv("SLIDEGATE_ADMIN_ADDRESS", "127.0.0.1:1")
	code, out, fails := command(t, "", "env", "--effective", "--config", file)
	lines := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"admin.address 127.0.0.1:1 SLIDEGATE_ADMIN_ADDRESS", "store.type redis " + file + ":1", "log.format json default"} {
		if !strings.Contains(lines, want) {
			t.Errorf("the settings have no %q:\n%s", want, out)
		}
	}
	if code != 0 || fails != "" || strings.Contains(out, "hush") {
		t.Errorf("exit code %d, %s\n%s", code, fails, out)
	}
	if code, out, _ = command(t, "", "env", "--effective", "--json"); code != 0 || !strings.Contains(out, `"setting": "admin.address"`) {
		t.Errorf("--json: exit code %d\n%s", code, out)
	}
	t.Setenv("SLIDEGATE_STORE_TYPE", "disk")
	if code, _, fails = command(t, "", "env", "--effective"); code != 1 || !strings.Contains(fails, "SLIDEGATE_STORE_TYPE") {
		t.Errorf("with a mistake: exit code %d, %s", code, fails)
	}
}
