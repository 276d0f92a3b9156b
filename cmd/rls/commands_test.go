package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/offline/check"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/tree"
)

const reviewedRules = `domain: edge
descriptors:
  - key: path
    value: /v1/*
    rate_limit: {limits: [{window: 1s, requests: 2}, {window: 1m, requests: 120}]}
  - key: path
    value: /v1/a*
    rate_limit: {unit: hour, requests_per_unit: 1000000, lease: 1%}
  - key: api_key
    shadow_mode: true
    rate_limit:
      unit: minute
      requests_per_unit: 5
      by_tier: {pro: {unlimited: true}}
  - key: free
`

// write creates a rules file and returns its path.
func write(t *testing.T, rules string) string {
	t.Helper()
	return tree.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), rules)
}

// TestScopesWithoutSettings: each command on rules with a scope says what to do if the settings are not
// given, and reports what is wrong with the settings once.
func TestScopesWithoutSettings(t *testing.T) {
	rules := write(t, "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, requests_per_unit: 1, scope: global}\n")
	memory := write(t, "store:\n  scopes:\n    global: {redis: {url: redis://h}}\n")
	other := write(t, "store:\n  type: redis\n  scopes:\n    sales: {redis: {url: redis://h}}\n")
	redis := write(t, "store:\n  type: redis\n  scopes:\n    global: {redis: {url: redis://h}}\n")
	const (
		missing = `the settings have no scope "global", but region: set its redis.url in store.scopes of the settings file (rls: --config), or remove scope`
		scope   = `descriptors[a].rate_limit.scope: `
		store   = `:2: store.scopes: scopes need store.type redis`
	)
	for _, tt := range []struct {
		args   []string
		stderr string // empty: no error
	}{
		{[]string{"validate", rules}, rules + ":4: " + scope + missing},
		{[]string{"diff", rules, rules}, rules + ":4: " + scope + missing},
		{[]string{"validate", rules, memory}, memory + store},
		{[]string{"validate", rules, other}, rules + ":4: " + scope + `the settings have no scope "global", but region, sales: set its redis.url in store.scopes of the settings file (rls: --config), or remove scope`},
		{[]string{"validate", rules, redis}, ""},
		{[]string{"validate", "--config", redis, rules}, ""},
		{[]string{"diff", "--config", redis, rules, rules}, ""},
	} {
		code, _, stderr := command(t, "", tt.args...)
		if (code != 0) != (tt.stderr != "") || !strings.Contains(stderr, tt.stderr) || tt.args[len(tt.args)-1] == memory && strings.Contains(stderr, scope) || strings.Count(stderr, missing) > 1 {
			t.Errorf("rls %v: %d, %s", tt.args, code, stderr)
		}
	}
}

func TestValidateText(t *testing.T) {
	s := settings.Default()
	s.Rules.Path = write(t, reviewedRules)
	result := check.Run(check.Options{Paths: []string{"rules.yaml"}, Settings: s})
	var out strings.Builder
	result.WriteText(&out, false)
	want := `rules.yaml: valid
rules without on_store_error: local (store.on_error)

domain edge: 4 rules
  path.-v1--  path=/v1/*  (FILE:3)
    2 per 1s, exact, up to 36 B a key
    120 per 1m, exact, up to 1.2 kB a key
      POINTLESS: 2 per 1s never lets more than 120 through in 1m
  path.-v1-a-  path=/v1/a*  (FILE:6)
    UNREACHABLE: path=/v1/* comes before path=/v1/a* and matches all of its values
    1000000 per 1h, times rounded up to 360ms, up to 90.1 kB a key
      lease up to 10000 for 50ms, where a key is asked for often
  api_key  api_key  (FILE:9)
    others: 5 per 1m, exact, up to 63 B a key
      only observed for 100 % of the subjects
    pro: unlimited
      only observed for 100 % of the subjects
    note: by_tier does not list free, starter: the limit for other tiers applies
  free  free  (FILE:15)
    limits nothing

tiers that no by_tier names: free, starter
`
	if diff := cmp.Diff(want, strings.ReplaceAll(out.String(), s.Rules.Path, "FILE")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"valid":true`, `"rules":4`, `"unreachable":"path=/v1/* comes before`, `"bytes_per_key":1202`, `"tiers_without_rule":["free","starter"]`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the JSON has no %s:\n%s", want, text)
		}
	}
}

// FuzzExplain explains any descriptors, under rules with many traits.
func FuzzExplain(f *testing.F) {
	path := filepath.Join(f.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(reviewedRules), 0o600); err != nil {
		f.Fatal(err)
	}
	s := settings.Default()
	s.Rules.Path = path
	g, err := config.Load(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("path=/v1/a", "api_key=demo-pro", uint64(1))
	f.Add("free=,x=y", `a\,b=c`, uint64(0))
	f.Fuzz(func(t *testing.T, first, second string, hits uint64) {
		lines, err := (&explainCmd{Descriptor: []string{first, second}, Hits: hits}).explain(g, nil)
		if err == nil && !strings.HasPrefix(lines[0], "descriptor 1") {
			t.Errorf("explain %q %q: %q", first, second, lines)
		}
	})
}

// TestWatched: rls test --watch runs the tests again if a file of tests, the settings, the rules or the
// tiers change.
func TestWatched(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string { return configtest.Put(t, dir, name, text) }
	set, rules := file("rls.yaml", "secrets: {entries: [token]}\n"), file("rules.yaml", "domain: d\ndescriptors: [{key: a, rate_limit: {window: 1m, requests: 5}}]\n")
	tests := file("a_test.yaml", "rules: rules.yaml\ntests: [{name: a, request: {descriptors: [\"a=1\"]}, steps: [{expect: {allowed: true}}]}]\n")
	got := (&testCmd{Paths: []string{tests}}).watched(&cli{Config: set})
	for _, want := range []string{tests, set, rules} {
		if !slices.Contains(got, want) {
			t.Errorf("watched: %q, without %s", got, want)
		}
	}
}

// TestBuild: what was linked counts first, then what the go command recorded.
func TestBuild(t *testing.T) {
	checkout := &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122193000-0123456789ab+dirty"}}
	type linked struct{ version, commit, date string }
	for _, tt := range []struct {
		name   string
		linked linked
		info   *debug.BuildInfo
		want   build
	}{
		{"nothing is known", linked{}, nil, build{"dev", "unknown", "unknown"}},
		{"a test", linked{}, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, build{"dev", "unknown", "unknown"}},
		{"go build", linked{}, checkout, build{"0.0.0-20261122193000-0123456789ab+dirty", "unknown", "unknown"}},
		{"make build", linked{"0.1.0-3-g0123456", "0123456789abcdef-dirty", "2026-11-22T19:30:00Z"}, checkout, build{"0.1.0-3-g0123456", "0123456789abcdef-dirty", "2026-11-22T19:30:00Z"}},
		{"go install", linked{}, &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, build{"0.1.0", "unknown", "unknown"}},
		{"an image", linked{"v0.1.0", "fedcba", "2026-12-01T00:00:00Z"}, &debug.BuildInfo{}, build{"0.1.0", "fedcba", "2026-12-01T00:00:00Z"}},
	} {
		version, commit, date = tt.linked.version, tt.linked.commit, tt.linked.date
		if got := buildOf(tt.info, tt.info != nil); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	version, commit, date = "", "", ""
}

// TestLiveNothing asks addresses on which nothing listens, and one that never answers.
func TestLiveNothing(t *testing.T) {
	quiet, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	defer quiet.Close()
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	args := func(more ...string) []string {
		return append([]string{"explain", "--live", "--domain", "d", "--descriptor", "a=b", "--timeout", "500ms"}, more...)
	}
	for _, tt := range []struct {
		own  string // SLIDEGATE_GRPC_ADDRESS
		args []string
		want string
	}{
		{gone.Addr().String(), args(), "rls: explain: nothing listens on " + gone.Addr().String() + ": start rls there, or name another --address\n"},
		{"", args("--address", gone.Addr().String()), "rls: explain: nothing listens on " + gone.Addr().String() + ": start rls there, or name another --address\n"},
		{socket, args(), "rls: explain: nothing listens on " + socket + ": start rls there, or name another --address\n"},
		{quiet.Addr().String(), args(), "DeadlineExceeded"},
	} {
		if tt.own != "" {
			t.Setenv("SLIDEGATE_GRPC_ADDRESS", tt.own)
		}
		code, out, fails := command(t, "", tt.args...)
		if code != 1 || out != "" || !strings.Contains(fails, tt.want) {
			t.Errorf("%q: got exit code %d, %q and %q, want 1 and %q", tt.args, code, out, fails, tt.want)
		}
	}
}
