package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/test/tree"
)

// dropInEnv sets the environment of a drop-in that starts, and returns the directory of its
// rules.
func dropInEnv(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tree.Write(t, filepath.Join(dir, "rules.yaml"), "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 3}}]\n")
	for name, value := range map[string]string{
		"SLIDEGATE_COMPAT": "envoyproxy", "RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
		"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:6379", "REDIS_AUTH": "user:open-sesame", "DEBUG_PORT": "6071", "LOCAL_CACHE_SIZE_IN_BYTES": "5",
	} {
		t.Setenv(name, value)
	}
	return dir
}

// TestCommandsOfADropIn runs commands with the variables of envoyproxy/ratelimit.
func TestCommandsOfADropIn(t *testing.T) {
	dir := dropInEnv(t)
	for _, tt := range []struct {
		line, env string
		code      int
		out       string // a part of both outputs
	}{
		{line: "validate", out: dir + ": valid\n"},
		{line: "explain --descriptor a=1", out: "rules: " + dir + "\n"},
		{line: "usage --raw k", code: 1, out: "redis"},
		{line: "usage a", code: 2, out: "no admin API"},
		{line: "env", out: "store.redis.url = redis://redis:6379"},
		{line: "env", out: "(always)"},
		{line: "validate", env: "PORT=http", code: 1, out: `environment: PORT: expected a whole number, got "http"`},
		{line: "serve", env: "PORT=http", code: 1, out: `environment: PORT: expected a whole number, got "http"`},
		{line: "healthcheck", env: "PORT=http", code: 1, out: "environment: PORT: "},
		{line: "digest", env: "PORT=http", code: 1, out: "environment: PORT: "},
		{line: "env", env: "PORT=http", code: 1, out: `refused: expected a whole number, got "http"`},
		{line: "env", env: "HOST=a b", code: 1, out: `refused: "a b:8080" is not an address`},
		{line: "serve", env: "RUNTIME_ROOT=/missing", code: 1, out: `environment: RUNTIME_ROOT: "/missing/ratelimit/config" does not exist`},
		{line: "serve", env: "SLIDEGATE_RULES_PATH=", code: 1, out: "rules.path: a drop-in for envoyproxy/ratelimit does not serve the built-in example"},
		{line: "validate", env: "SLIDEGATE_TIERS_SOURCE=file", code: 1, out: "tiers.path: a drop-in for envoyproxy/ratelimit does not serve the built-in example"},
		{line: "serve", env: "SLIDEGATE_COMPAT=envoy", code: 1, out: `environment: SLIDEGATE_COMPAT: "envoy" is not one of envoyproxy`},
		{line: "serve", env: "SLIDEGATE_COMPAT=", code: 1, out: "environment: RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, REDIS_URL, RUNTIME_WATCH_ROOT, REDIS_SOCKET_TYPE: rls does not read variables of envoyproxy/ratelimit"},
		{line: "validate", env: "SLIDEGATE_COMPAT=", code: 1, out: "environment: RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, REDIS_URL, RUNTIME_WATCH_ROOT, REDIS_SOCKET_TYPE: rls does not read variables of envoyproxy/ratelimit"},
		{line: "validate " + dir, env: "SLIDEGATE_COMPAT=", out: dir + ": valid\n"},
		{line: "env", env: "SLIDEGATE_COMPAT=", out: "rules.path = " + dir},
	} {
		t.Run(tt.line+" "+tt.env, func(t *testing.T) {
			if name, value, ok := strings.Cut(tt.env, "="); ok {
				t.Setenv(name, value)
			}
			code, stdout, stderr := command(t, "", strings.Fields(tt.line)...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.out) {
				t.Errorf("got exit code %d, %q, %q; want %d, %q", code, stdout, stderr, tt.code, tt.out)
			}
			if strings.Contains(stdout+stderr, "open-sesame") {
				t.Errorf("a password is shown: %q, %q", stdout, stderr)
			}
		})
	}
}

// TestEnvJSON reads the table as JSON.
func TestEnvJSON(t *testing.T) {
	dropInEnv(t)
	code, stdout, _ := command(t, "", "env", "--json")
	var got environment
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || !got.Valid || len(got.Variables) < 90 || len(got.Always) == 0 {
		t.Fatalf("got exit code %d, %v and\n%s", code, err, stdout)
	}
	for _, row := range got.Variables {
		if row.Name == "REDIS_AUTH" && (row.Value != "***" || len(row.Settings) != 2) {
			t.Errorf("got %+v", row)
		}
		if row.State == compat.StateRefused {
			t.Errorf("got %+v", row)
		}
	}
	t.Setenv("BACKEND_TYPE", "memcache")
	code, stdout, _ = command(t, "", "env", "--json")
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 1 || got.Valid || len(got.Problems) != 1 || got.Problems[0].Path != "BACKEND_TYPE" {
		t.Errorf("got exit code %d, %v and\n%s", code, err, stdout)
	}
}
