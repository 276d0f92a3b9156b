package settings

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/test/configtest"
)

// fullExample returns the settings file that sets every setting to its default.
func fullExample(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("settings.full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestFullExampleEqualsDefault(t *testing.T) {
	got, _, err := Load("settings.full.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	configtest.Diff(t, Default(), got, "settings.full.yaml differs from Default")
}

func TestFullExampleHoldsEverySetting(t *testing.T) {
	var tree map[string]any
	if err := yaml.Unmarshal(fullExample(t), &tree); err != nil {
		t.Fatal(err)
	}
	for _, s := range Describe(Default()) {
		var at any = tree
		for part := range strings.SplitSeq(s.Path, ".") {
			m, _ := at.(map[string]any)
			next, ok := m[part]
			if !ok {
				t.Errorf("settings.full.yaml lacks %s", s.Path)
				break
			}
			at = next
		}
	}
}

func TestDescribe(t *testing.T) {
	all := Describe(Default())
	seen := make(map[string]string)
	for _, s := range all {
		if s.Doc == "" {
			t.Errorf("%s has no doc", s.Path)
		}
		if other, ok := seen[s.Env]; ok {
			t.Errorf("%s and %s have the same variable %s", s.Path, other, s.Env)
		}
		seen[s.Env] = s.Path
		if s.Env == EnvConfig {
			t.Errorf("%s takes the name of the settings file, %s", s.Path, EnvConfig)
		}
	}
	for _, want := range []Setting{
		{Path: "grpc.address", Env: "SLIDEGATE_GRPC_ADDRESS", Default: ":8081"},
		{Path: "grpc.socket_mode", Env: "SLIDEGATE_GRPC_SOCKET_MODE", Default: "0660"},
		{Path: "store.timeout", Env: "SLIDEGATE_STORE_TIMEOUT", Default: "15ms"},
		{Path: "store.redis.url", Env: "SLIDEGATE_STORE_REDIS_URL", Default: "redis://127.0.0.1:6379/0"},
		{Path: "secrets.entries", Env: "SLIDEGATE_SECRETS_ENTRIES", Default: "api_key,authorization,x-api-key"},
		{Path: "secrets.key_file", Env: "SLIDEGATE_SECRETS_KEY_FILE", Default: ""},
		{Path: "drain.not_serving", Env: "SLIDEGATE_DRAIN_NOT_SERVING", Default: "false"},
	} {
		found := false
		for _, got := range all {
			got.Doc = ""
			found = found || got == want
		}
		if !found {
			t.Errorf("Describe lacks %+v", want)
		}
	}
}

// TestDefaultsReadBack sets every setting to its described default by its
// variable.
func TestDefaultsReadBack(t *testing.T) {
	var environ []string
	for _, s := range Describe(Default()) {
		if s.Path == "store.scopes" {
			continue // sections by name
		}
		environ = append(environ, s.Env+"="+s.Default)
	}
	got, _, err := Load("", environ)
	if err != nil {
		t.Fatal(err)
	}
	configtest.Diff(t, Default(), got, "the described defaults differ from Default")
}

func TestLoadSettingsPrecedence(t *testing.T) {
	file := configtest.Write(t, "settings.yaml", "store:\n  type: redis\n  timeout: 10ms\ngrpc:\n  address: [':1', ':2']\nheaders:\n  styles: draft03, x-ratelimit\n")
	got, _, err := Load(file, []string{
		"PATH=/bin",
		"SLIDEGATE_CONFIG=" + file,
		"SLIDEGATE_ADMIN_TOKEN=t",
		"SLIDEGATE_STORE_TIMEOUT=5ms",
		"SLIDEGATE_HTTP_ADDRESS=",
		"SLIDEGATE_SECRETS_ENTRIES= api_key , token ",
		"SLIDEGATE_DRAIN_NOT_SERVING=true",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Store.Type = StoreRedis
	want.Store.Timeout = 5 * time.Millisecond
	want.GRPC.Address = []Address{":1", ":2"}
	want.HTTP.Address = ""
	want.Headers.Styles = []string{rules.StyleDraft03, rules.StyleXRateLimit}
	want.Secrets.Entries = []string{"api_key", "token"}
	want.Drain.NotServing = true
	configtest.Diff(t, want, got, "settings")
}

func TestLoadSettingsTellsAllProblemsOfFileAndEnvironment(t *testing.T) {
	file := configtest.Write(t, "settings.yaml", "stor: {}\nstore:\n  timeout: 1h\n  type: disk\nlog:\n  level: loud\n")
	_, _, err := Load(file, []string{
		"SLIDEGATE_STORE_TIMOUT=1s",
		"SLIDEGATE_STORE_TYPE=tape",
		"SLIDEGATE_DRAIN_DELAY=15",
		"SLIDEGATE_STORE_MEMORY_MAX_BYTES=-1",
		"SLIDEGATE_METRICS_MAX_DETAIL_SERIES=",
		"SLIDEGATE_DRAIN_NOT_SERVING=maybe",
		"SLIDEGATE_SECRETS_KEY=hush",
		"SLIDEGATE_GRPC_PORT=8081",
	})
	want := strings.ReplaceAll(`FILE:1: unknown key "stor", did you mean "store"?
FILE:3: store.timeout: 1h0m0s is not between 1ms and 10s
FILE:6: log.level: "loud" is not one of debug, info, warn, error
environment: SLIDEGATE_STORE_TIMOUT: unknown variable, did you mean "SLIDEGATE_STORE_TIMEOUT"?
environment: SLIDEGATE_DRAIN_DELAY: "15" has no unit: write 15s or 15ms
environment: SLIDEGATE_STORE_MEMORY_MAX_BYTES: "-1" is negative
environment: SLIDEGATE_METRICS_MAX_DETAIL_SERIES: expected a whole number, got ""
environment: SLIDEGATE_DRAIN_NOT_SERVING: expected true or false, got "maybe"
environment: SLIDEGATE_GRPC_PORT: unknown variable, did you mean "SLIDEGATE_GRPC_TRANSPORT"?
environment: SLIDEGATE_STORE_TYPE: "tape" is not one of memory, redis
environment: SLIDEGATE_SECRETS_KEY: the secret has fewer than 16 bytes
`, "FILE", file)
	configtest.Problems(t, err, want)
}

// TestKubernetesServiceVariablesAreNoProblem has what Kubernetes puts into every
// pod beside a service named slidegate, or slidegate-grpc.
func TestKubernetesServiceVariablesAreNoProblem(t *testing.T) {
	got, _, err := Load("", []string{
		"SLIDEGATE_SERVICE_HOST=10.0.0.11",
		"SLIDEGATE_SERVICE_PORT=8081",
		"SLIDEGATE_SERVICE_PORT_GRPC=8081",
		"SLIDEGATE_PORT=tcp://10.0.0.11:8081",
		"SLIDEGATE_PORT_8081_TCP=tcp://10.0.0.11:8081",
		"SLIDEGATE_PORT_8081_TCP_PROTO=tcp",
		"SLIDEGATE_PORT_8081_TCP_PORT=8081",
		"SLIDEGATE_PORT_8081_TCP_ADDR=10.0.0.11",
		"SLIDEGATE_GRPC_SERVICE_HOST=10.0.0.12",
		"SLIDEGATE_GRPC_PORT=tcp://10.0.0.12:8081",
	})
	if err != nil {
		t.Fatal(err)
	}
	configtest.Diff(t, Default(), got, "settings")
}

func TestLoadSettingsWithoutTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nowhere.yaml")
	_, _, err := Load(file, nil)
	if got, want := configtest.ProblemsOf(t, err), file+": no such file or directory\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	dir := t.TempDir()
	_, _, err = Load(dir, nil)
	if got, want := configtest.ProblemsOf(t, err), dir+": is a directory\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSecretKeyFile(t *testing.T) {
	file := configtest.Write(t, "key", "0123456789abcdef\n")
	got, _, err := Load("", []string{"SLIDEGATE_SECRETS_KEY_FILE=" + file})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(got.Secrets.Key.Reveal()), "0123456789abcdef"; got != want {
		t.Errorf("secret: got %q, want %q", got, want)
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	s := Default()
	s.Secrets.Key = "hush-hush-hush-hush"
	s.Store.Redis.URL.URL = "rediss://user:hush@host:6380/1?x=hush"
	s.Store.Redis.URL.Password = "hush"
	s.Store.Redis.Password, s.Store.Redis.SentinelPassword = "hush", "hush"
	s.Secrets.PreviousKey = "hush-hush-hush-hush"
	s.Tiers.Redis.URL.URL = "redis://:hush@host"
	s.Tiers.Postgres.URL.URL, s.Tiers.Postgres.Password = "postgres://user:hush@host/db", "hush"
	s.Tiers.HTTP.URL.URL, s.Tiers.HTTP.Token = "https://host/path?key=hush", "hush"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%5t", "%U"} {
		for _, v := range []any{s, &s, s.Secrets, s.Tiers, s.Tiers.Redis, s.Secrets.Key, &s.Secrets.Key, s.Store.Redis.URL, []any{s.Secrets.Key}} {
			got := fmt.Sprintf(verb, v)
			if strings.Contains(got, "hush") || strings.Contains(got, fmt.Sprintf("%x", "hush")) {
				t.Errorf("%s of %T shows the secret: %s", verb, v, got)
			}
		}
	}
	asJSON, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Dump(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{string(asJSON), string(asYAML)} {
		if strings.Contains(got, "hush") || !strings.Contains(got, "rediss://user:***@host:6380/1?***") {
			t.Errorf("encoded settings: got %s, want the URL without its password and no secret", got)
		}
	}
	for _, c := range []struct{ url, want URL }{
		{"", ""},
		{"redis://:hush@h", "redis://:***@h"},
		{"redis://h:1/0", "redis://h:1/0"},
		{"redis://user:hu/sh@h", "***"},
		{"hush", "***"},
		{"redis-sentinel://user:hush@h1:1,[::1]/main/1", "redis-sentinel://user:***@h1:1,[::1]/main/1"},
		{"redis://user:12/hush@h", "***"},
		{"redis://user:12?hush@h", "***"},
		{"postgres://user:hush@h1:1,h2/db?password=hush", "postgres://user:***@h1:1,h2/db?***"},
		{"https://host/path?key=hush", "https://host/path?***"},
	} {
		if got := c.url.String(); got != string(c.want) {
			t.Errorf("String: got %q, want %q", got, string(c.want))
		}
	}
	if got := Secret("").Reveal(); got != nil {
		t.Errorf("Reveal of no secret: got %q, want nil", got)
	}
}

// TestEverySettingIsReached guards eachSetting: a field without a yaml tag would
// be no setting at all.
func TestEverySettingIsReached(t *testing.T) {
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, at string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Tag.Get("yaml") == "" && !f.Anonymous {
				t.Errorf("%s.%s has no yaml tag", at, f.Name)
			}
			if isSection(f.Type) && f.Tag.Get("yaml") != "-" {
				walk(f.Type, at+"."+f.Name)
			}
		}
	}
	walk(reflect.TypeFor[Settings](), "Settings")
}

// FuzzSettings reads any text as a settings file and as a variable: it gives
// problems or settings that are valid, and never panics.
func FuzzSettings(f *testing.F) {
	configtest.Seed(f, "testdata/*/settings-*.yaml", "")
	f.Add(fullExample(f), "SLIDEGATE_STORE_TIMEOUT=1s")
	f.Add([]byte("a: &a [*a]\n<<: *a"), "SLIDEGATE_GRPC_SOCKET_MODE=")
	f.Fuzz(func(t *testing.T, data []byte, variable string) {
		if strings.Contains(strings.ToLower(string(data)+variable), "_file") {
			return // would read other files; TestSecretKeyFile and others have these
		}
		s, _, err := Parse("fuzz.yaml", data, []string{variable})
		if err != nil {
			configtest.CheckProblems(t, err)
			return
		}
		if len(s.GRPC.Address) == 0 || s.Store.Timeout <= 0 {
			t.Errorf("invalid settings were accepted: %+v", s)
		}
	})
}

// TestScopeThatOnlyAVariableNames: a mistyped name of a scope makes another scope, and what is said
// of it leads to the variable.
func TestScopeThatOnlyAVariableNames(t *testing.T) {
	_, _, err := Parse("s.yaml", []byte("store:\n  type: redis\n  scopes:\n    global: {redis: {url: redis://a}}\n"), []string{"SLIDEGATE_STORE_SCOPES_GLOBL_TIMEOUT=50ms"})
	configtest.Problems(t, err, "environment: SLIDEGATE_STORE_SCOPES_GLOBL_REDIS_URL: a scope needs the URL of its Redis, such as redis://host:port/db\n")
	_, _, err = Parse("s.yaml", nil, []string{"SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_URL=redis://a"})
	configtest.Problems(t, err, "environment: SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_URL: scopes need store.type redis: a request can meet limits of several scopes, and only Redis can take back what one of them has charged\n")
}

// TestScopesByVariables: variables set scopes of the file, and make scopes of their own.
func TestScopesByVariables(t *testing.T) {
	got, _, err := Parse("s.yaml", []byte("store:\n  type: redis\n  scopes:\n    global: {timeout: 50ms, redis: {url: redis://a}}\n"), []string{
		"SLIDEGATE_STORE_SCOPES_GLOBAL_REDIS_POOL_SIZE=7",
		"SLIDEGATE_STORE_SCOPES_EU_WEST_REDIS_URL=rediss://user:hush@b:1/2",
		"SLIDEGATE_STORE_SCOPES_EU_WEST_REDIS_PASSWORD_FILE=",
		"SLIDEGATE_STORE_SCOPES_EU_WEST_TIMEOUT=20ms",
	})
	if err != nil {
		t.Fatal(err)
	}
	west, global := newScope("eu_west"), newScope("global")
	west.Timeout = 20 * time.Millisecond
	west.Redis.URL = RedisURL{"rediss://user:hush@b:1/2", RedisServers{TLS: true, Addresses: []string{"b:1"}, Database: 2, Username: "user", Password: "hush"}}
	global.Timeout, global.Redis.PoolSize = 50*time.Millisecond, 7
	global.Redis.URL = RedisURL{"redis://a", RedisServers{Addresses: []string{"a:6379"}}}
	configtest.Diff(t, Scopes{west, global}, got.Store.Scopes, "scopes")
	if names := got.Store.Scopes.Names(); !slices.Equal(names, []string{"region", "eu_west", "global"}) {
		t.Errorf("the names are %q", names)
	}
	_, _, err = Parse("s.yaml", []byte("store: {type: redis}"), []string{"SLIDEGATE_STORE_SCOPES_A_REDIS_UR=x", "SLIDEGATE_STORE_SCOPES_REGION_TIMEOUT=1s"})
	if err == nil || !strings.Contains(err.Error(), "SLIDEGATE_STORE_SCOPES_A_REDIS_UR: unknown variable") || !strings.Contains(err.Error(), "SLIDEGATE_STORE_SCOPES_REGION_TIMEOUT: unknown variable") {
		t.Errorf("got error %v, want two unknown variables", err)
	}
}
