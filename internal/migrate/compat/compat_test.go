package compat

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// in returns the variables of an environment with rules, and further ones.
func in(t testing.TB, more ...string) []string {
	return append(strings.Fields(strings.ReplaceAll(least, "ROOT ", rulesDir(t)+" ")), more...)
}

func TestMode(t *testing.T) {
	for _, tt := range []struct {
		argv0, value string
		want         bool
		problem      string
	}{
		{"rls", "", false, ""},
		{"/usr/bin/rls", "", false, ""},
		{"ratelimit", "", true, ""},
		{"/bin/ratelimit", "", true, ""},
		{"./rls", "envoyproxy", true, ""},
		{"/bin/ratelimit", "envoyproxy", true, ""},
		{"rls", "envoy", false, `environment: SLIDEGATE_COMPAT: "envoy" is not one of envoyproxy`},
		{"ratelimit", "none", true, `environment: SLIDEGATE_COMPAT: "none" is not one of envoyproxy`},
	} {
		got, problem := Mode(tt.argv0, []string{"A=b", "SLIDEGATE_COMPAT=" + tt.value})
		text := ""
		if problem != nil {
			text = problem.String()
		}
		if got != tt.want || !strings.HasPrefix(text, tt.problem) || (text == "") != (tt.problem == "") {
			t.Errorf("%s with %q: got %v and %q, want %v and %q", tt.argv0, tt.value, got, text, tt.want, tt.problem)
		}
	}
	if _, _, err := settings.Load("", []string{"SLIDEGATE_COMPAT=envoyproxy"}); err != nil {
		t.Errorf("SLIDEGATE_COMPAT is an unknown variable: %v", err)
	}
}

func TestMistaken(t *testing.T) {
	if p := Mistaken([]string{"PATH=/bin", "GRPC_PORT=tcp://10.0.0.1:8081", "HOST=a"}); p != nil {
		t.Errorf("got %v, want no problem", p)
	}
	for _, name := range signs {
		p := Mistaken([]string{"PATH=/bin", name + "=secret"})
		if p == nil || p.Path != name || !strings.Contains(p.Message, "/bin/ratelimit") || !strings.Contains(p.Message, "SLIDEGATE_COMPAT=envoyproxy") || strings.Contains(p.String(), "secret") {
			t.Errorf("%s: got %v", name, p)
		}
	}
}

// TestSecretInAnotherVariable has URLs with a password in variables that expect another text.
func TestSecretInAnotherVariable(t *testing.T) {
	const url = "redis://user:tr0ub4dor&3@h:1"
	for _, name := range []string{"REDIS_SOCKET_TYPE", "REDIS_TYPE", "BACKEND_TYPE", "REDIS_POOL_SIZE", "REDIS_TLS", "REDIS_TIMEOUT", "NEAR_LIMIT_RATIO", "LOG_LEVEL", "HOST", "STATSD_HOST"} {
		checkReading(t, "tr0ub4dor", in(t, name+"="+url, "USE_STATSD=true")...)
	}
}

// TestOwnSettingsWin sets SLIDEGATE_ variables besides those of the reference. They count, and
// they cure variables that would be refused.
func TestOwnSettingsWin(t *testing.T) {
	for _, tt := range []struct {
		name    string
		environ []string
		check   func(*settings.Settings) any
		want    any
	}{
		{"memory instead of Redis", in(t, "SLIDEGATE_STORE_TYPE=memory"), func(s *settings.Settings) any { return s.Store.Type }, "memory"},
		{"memory instead of twemproxy", []string{"RUNTIME_ROOT=" + rulesDir(t), "RUNTIME_SUBDIRECTORY=sub", "SLIDEGATE_STORE_TYPE=memory"}, func(s *settings.Settings) any { return s.Store.Type }, "memory"},
		{"memory instead of memcached", in(t, "BACKEND_TYPE=memcache", "REDIS_TYPE=ring", "REDIS_TLS=x", "SLIDEGATE_STORE_TYPE=memory"), func(s *settings.Settings) any { return s.Store.Type }, "memory"},
		{"Redis instead of memcached", in(t, "BACKEND_TYPE=memcache", "SLIDEGATE_STORE_TYPE=redis"), func(s *settings.Settings) any { return s.Store.Redis.URL.Addresses[0] }, "redis:6379"},
		{"another Redis", in(t, "REDIS_URL=", "REDIS_TYPE=ring", "SLIDEGATE_STORE_REDIS_URL=redis://h:1"), func(s *settings.Settings) any { return s.Store.Redis.URL.Addresses[0] }, "h:1"},
		{"a password file", in(t, "REDIS_AUTH=u:p", "SLIDEGATE_STORE_REDIS_PASSWORD_FILE="+file(t, "q")), func(s *settings.Settings) any { return s.Store.Redis.Password.String() }, ""},
		{"rules elsewhere", in(t, "RUNTIME_ROOT=/missing", "RUNTIME_APPDIRECTORY=", "SLIDEGATE_RULES_PATH=/r"), func(s *settings.Settings) any { return [2]any{s.Rules.Path, s.DropIn.Files.Prefix} }, [2]any{"/r", ""}},
		{"a port", in(t, "PORT=http", "SLIDEGATE_HTTP_ADDRESS=:9"), func(s *settings.Settings) any { return s.HTTP.Address }, settings.Address(":9")},
		{"a log level", in(t, "LOG_LEVEL=loud", "SLIDEGATE_LOG_LEVEL=debug"), func(s *settings.Settings) any { return s.Log.Level }, "debug"},
		{"tiers", in(t, "SLIDEGATE_TIERS_PATH=/t.yaml"), func(s *settings.Settings) any { return s.Tiers.Source }, "file"},
		{"client certificates for Envoy Gateway", in(t, "GRPC_SERVER_TLS_CA_CERT=/x", "SLIDEGATE_STORE_ON_ERROR=report"), func(s *settings.Settings) any { return s.Store.OnError }, "report"},
	} {
		_, s, problems := read(tt.environ...)
		if got := tt.check(&s); got != tt.want || len(problems) > 0 {
			t.Errorf("%s: got %v and problems %v, want %v", tt.name, got, problems, tt.want)
		}
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	return configtest.Write(t, "file", text)
}

// TestADropInIsLikeTheReference reads an environment that says little. What no variable says is
// as in the reference.
func TestADropInIsLikeTheReference(t *testing.T) {
	_, s, problems := read(in(t)...)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	got := map[string]any{
		"tiers": s.Tiers.Source, "styles": len(s.Headers.Styles), "store": s.Store.Type, "on_error": s.Store.OnError, "answers": s.DropIn.Answers, "usage": s.DropIn.UsageReports,
		"pages": s.DropIn.Pages, "all_files": s.DropIn.Files.All, "dots": s.DropIn.Files.IgnoreDotFiles, "age": s.GRPC.MaxConnectionAge.String(), "admin": s.Admin.Address,
		"level": s.Log.Level, "timeout": s.Store.Timeout.String(), "statsd": s.DropIn.Statsd.Address, "prometheus": s.DropIn.Metrics.Address, "secrets": strings.Join(s.Secrets.Entries, ","),
	}
	want := map[string]any{
		"tiers": "none", "styles": 0, "store": "redis", "on_error": "local", "answers": true, "usage": true,
		"pages": true, "all_files": true, "dots": false, "age": "24h0m0s", "admin": settings.Address("0.0.0.0:6070"),
		"level": "warn", "timeout": "10s", "statsd": "", "prometheus": settings.Address(""), "secrets": "api_key,authorization,x-api-key",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestAllProblemsAtOnce expects one problem for each wrong variable, and those of rls itself.
func TestAllProblemsAtOnce(t *testing.T) {
	environ := in(t, "PORT=http", "GRPC_SERVER_USE_TLS=yes", "LOG_LEVEL=loud", "RUNTIME_WATCH_ROOT=perhaps", "EXTRA_TAGS=a", "HOST=a b", "SLIDEGATE_STORE_TIMEOUT=5", "SLIDEGATE_GRPC_PORT=1")
	environ = append(environ, "CACHE_KEY_PREFIX=a b", "GRPC_HOST=c d")
	_, _, problems := read(environ...)
	var got []string
	for _, p := range problems {
		if p.File != environment {
			t.Errorf("got file %q", p.File)
		}
		got = append(got, p.Path)
	}
	slices.Sort(got)
	want := []string{"CACHE_KEY_PREFIX", "EXTRA_TAGS", "GRPC_HOST", "GRPC_SERVER_USE_TLS", "LOG_LEVEL", "PORT", "RUNTIME_WATCH_ROOT", "SLIDEGATE_GRPC_PORT", "SLIDEGATE_STORE_TIMEOUT"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s\n%v", diff, problems)
	}
}

// TestVariablesThatCountAsNotSet sets variables as Kubernetes does for services, and empty ones.
func TestVariablesThatCountAsNotSet(t *testing.T) {
	r, s, problems := read(in(t, "GRPC_PORT=tcp://10.0.0.1:8081", "STATSD_PORT=tcp://10.0.0.2:8125", "REDIS_PORT=tcp://10.0.0.3:6379", "USE_STATSD=true",
		"PORT=", "SHADOW_MODE=", "LOG_LEVEL=", "REDIS_TIMEOUT=", "CONFIG_TYPE=", "HOST=", "EXTRA_TAGS=", "REDIS_AUTH=")...)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if s.GRPC.Address[0] != "0.0.0.0:8081" || s.DropIn.Statsd.Address != "localhost:8125" || s.HTTP.Address != ":8080" || s.Log.Level != "warn" {
		t.Errorf("got %v, %v, %v, %v", s.GRPC.Address, s.DropIn.Statsd.Address, s.HTTP.Address, s.Log.Level)
	}
	for _, name := range []string{"GRPC_PORT", "STATSD_PORT", "PORT", "SHADOW_MODE", "LOG_LEVEL", "REDIS_TIMEOUT", "CONFIG_TYPE"} {
		if got := row(t, r, name); got.State != StateIgnored || !strings.Contains(got.Why, "as not set") {
			t.Errorf("%s: got %s, %q; want a warning", name, got.State, got.Why)
		}
	}
}

// TestTheBuiltInExampleIsNotServed overrides what a drop-in has so that the example would be
// served.
func TestTheBuiltInExampleIsNotServed(t *testing.T) {
	_, s, _ := read(in(t, "SLIDEGATE_RULES_PATH=", "SLIDEGATE_TIERS_SOURCE=file")...)
	if got := CheckExample(&s); len(got) != 2 {
		t.Errorf("got %v, want two problems", got)
	}
	_, s, _ = read(in(t, "CONFIG_TYPE=GRPC_XDS_SOTW")...)
	if got := CheckExample(&s); len(got) != 0 {
		t.Errorf("got %v, want no problem", got)
	}
}

// TestTable checks what package compat says of the variables.
func TestTable(t *testing.T) {
	all := make(map[string]bool)
	for _, s := range settings.Describe(settings.Default()) {
		all[s.Path] = true
		all[strings.TrimSuffix(s.Path, "_file")] = true // the secret itself
	}
	seen := make(map[string]bool)
	for _, v := range table {
		if seen[v.name] {
			t.Errorf("%s is listed twice", v.name)
		}
		seen[v.name] = true
		for _, path := range v.sets {
			if !all[path] && !strings.HasPrefix(path, "dropin.") {
				t.Errorf("%s sets %s, which is no setting", v.name, path)
			}
		}
		if len(v.sets) == 0 && v.doc == "" && v.why == "" {
			t.Errorf("%s says nothing", v.name)
		}
	}
}

// FuzzRead reads any value of any variable. No row, value or problem shows a secret, and each
// variable that is set has an explanation.
func FuzzRead(f *testing.F) {
	const secret = "tr0ub4dor&3"
	f.Add(uint8(0), "::", uint8(1), "x", uint8(3), "a=b,c=d")
	f.Add(uint8(41), "redis://u:%s@h:1/2?db=3", uint8(42), "u:%s", uint8(90), "a:%s,b:c")
	f.Add(uint8(40), "sentinel", uint8(41), "main,h:1,%s@h:2", uint8(44), "true")
	f.Add(uint8(40), "cluster", uint8(41), "redis://:%s@h:1", uint8(29), "GRPC_XDS_SOTW")
	f.Add(uint8(31), "http://%s@h", uint8(29), "GRPC_XDS_SOTW", uint8(34), "authorization:%s")
	dir := rulesDir(f)
	f.Fuzz(func(t *testing.T, i uint8, a string, j uint8, b string, k uint8, c string) {
		environ := []string{"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=sub"}
		for n, text := range map[uint8]string{i: a, j: b, k: c} {
			v := table[int(n)%len(table)]
			// Only values that may have a secret get one, at places of passwords and tokens.
			url := strings.HasSuffix(v.name, "_URL") && (strings.Contains(text, "%s@") || strings.Contains(text, "?password=%s"))
			if strings.Count(text, "%s") == 1 && (v.secret || url) {
				text = strings.Replace(text, "%s", secret, 1)
			}
			environ = append([]string{v.name + "=" + text}, environ...)
		}
		checkReading(t, secret, environ...)
	})
}

// checkReading reads an environment. No row, value or problem shows the secret, and each
// variable that is set has an explanation.
func checkReading(t *testing.T, secret string, environ ...string) {
	t.Helper()
	r, _, problems := read(environ...)
	shown := fmt.Sprintf("%+v %v %v %v", r.Rows, r.Always, problems, r.Understood())
	if strings.Contains(shown, secret) {
		t.Errorf("%q: a secret is shown: %s", environ, shown)
	}
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Set && row.Became() == "" {
			t.Errorf("%q: nothing is said of %s, %s", environ, row.Name, row.State)
		}
	}
	for _, p := range problems {
		if p.Path == "" || strings.ContainsAny(p.String(), "\n\r") {
			t.Errorf("%q: got the problem %q", environ, p)
		}
	}
}

// TestOddValues gives each variable values that no program expects. make test takes a fifth of them at
// random.
func TestOddValues(t *testing.T) {
	const secret = "tr0ub4dor&3"
	rng := random.Rand(t, 0)
	skips := func() bool { return !random.Long() && rng.IntN(5) > 0 }
	for i, g := range groups {
		more := []string{"", "", "CONFIG_TYPE=GRPC_XDS_SOTW", "REDIS_TYPE=sentinel", "USE_STATSD=1"}[i]
		environ := in(t, more)
		for _, v := range g.variables {
			for _, text := range []string{"", " ", ",:,", "a\nb", "-99999999999999999999", "redis://%zz@:", "NaN"} {
				if !skips() {
					checkReading(t, secret, append([]string{v.name + "=" + text}, environ...)...)
				}
			}
			if v.secret || strings.HasSuffix(v.name, "_URL") {
				for _, text := range []string{"redis://:%s@h:1", "u:%s@h:1", "redis://h?password=%s", "a:b:%s@,", "main,h:1,:%s@h"} {
					if !skips() {
						checkReading(t, secret, append([]string{v.name + "=" + fmt.Sprintf(text, secret)}, environ...)...)
					}
				}
			}
		}
	}
}

// environmentOf reads a file of testdata/environments and fills in its fields.
func environmentOf(t *testing.T, name string, fields ...string) (environ []string) {
	t.Helper()
	text := tree.Text(t, filepath.Join("testdata", "environments", name+".env"))
	for line := range strings.Lines(strings.NewReplacer(fields...).Replace(text)) {
		if !strings.HasPrefix(line, "#") {
			environ = append(environ, strings.TrimSuffix(line, "\n"))
		}
	}
	return environ
}

// TestEnvironments reads the environments of projects that deploy the reference. Each becomes
// the expected settings, with the expected warnings, or is refused.
func TestEnvironments(t *testing.T) {
	data := t.TempDir()
	rules := configtest.MakeDir(t, data, "ratelimit", "config")
	mapper := configtest.Write(t, "mapper.yaml", "mappings: []\n")
	noDots := func(d *settings.DropIn) { d.Files = files.Which{All: true, IgnoreDotFiles: true} }
	early := func(d *settings.DropIn) { d.WithoutRules = true }
	ca, cert, key := servers.NewAuthority(t).ServerFiles()
	for _, tt := range []struct {
		name string
		// want is every setting that differs from the least drop-in, as Describe shows it, and change
		// makes its values those of this one.
		want    map[string]string
		change  func(*settings.DropIn)
		refused []string
	}{
		{"envoy-gateway", map[string]string{
			"log.level": "info", "grpc.tls.cert_file": cert, "grpc.tls.key_file": key, "rules.source": "xds", "rules.xds.address": "eg:18001", "rules.xds.node_id": "envoy-ratelimit",
			"rules.xds.tls.ca_file": ca, "rules.xds.tls.cert_file": cert, "rules.xds.tls.key_file": key,
		}, func(d *settings.DropIn) {
			d.WithoutRules = true
			d.Metrics = settings.ReferenceMetrics{Address: ":19001", Path: "/metrics", MapperFile: mapper}
			d.Traces = settings.Traces{Protocol: "http", Sampling: 0.6, Attributes: []string{
				"service.name=envoy-ratelimit", "service.namespace=envoy-gateway-system", "service.instance.id=envoy-ratelimit-0",
			}}
		}, nil},
		{"istio", map[string]string{
			"log.level": "debug", "rules.path": rules, "http.address": "[::]:8080", "grpc.address": "[::]:8081",
		}, noDots, nil},
		{"contour", map[string]string{"log.level": "debug", "rules.path": rules}, noDots, nil},
		{"ai-gateway", map[string]string{
			"log.level": "info", "rules.source": "xds", "rules.xds.address": "eg:18001", "rules.xds.node_id": "envoy-ai-gateway-ratelimit",
			"store.redis.url": "redis-sentinel://redis:6379/mymaster",
		}, early, nil},
		{"softonic", map[string]string{
			"log.level": "debug", "rules.path": filepath.Dir(rules),
		}, func(d *settings.DropIn) { d.Files = files.Which{All: true, Prefix: "config", IgnoreDotFiles: true} }, nil},
		{"istio-ratelimit-operator", map[string]string{
			"log.level": "debug", "rules.path": rules,
		}, func(d *settings.DropIn) {
			noDots(d)
			d.Statsd = settings.Statsd{Address: "localhost:9125", Protocol: "tcp", Interval: 10 * time.Second}
		}, nil},
		{"nomad", map[string]string{
			"log.level": "debug", "rules.source": "xds", "rules.xds.address": "eg:18001", "rules.xds.node_id": "default", "store.redis.url": "redis://redis:6379/11",
		}, early, nil},
		{"kyma", nil, nil, []string{"BACKEND_TYPE"}},
	} {
		r, got, problems := read(environmentOf(t, tt.name, "{{DATA}}", data, "{{REDIS}}", "redis:6379", "{{XDS}}", "eg:18001",
			"{{ADDR}}", ":19001", "{{CERT}}", cert, "{{KEY}}", key, "{{CA}}", ca, "{{MAPPER}}", mapper)...)
		var refused []string
		for i := range r.Rows {
			switch r.Rows[i].State {
			case StateIgnored:
				t.Errorf("%s: ignores %s", tt.name, r.Rows[i].Name)
			case StateRefused:
				refused = append(refused, r.Rows[i].Name)
			default:
			}
		}
		if !slices.Equal(refused, tt.refused) || len(problems) != len(tt.refused) {
			t.Errorf("%s: refused %v, problems %v; want %v", tt.name, refused, problems, tt.refused)
		}
		if tt.refused != nil {
			continue
		}
		_, least, _ := read("REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379", "SLIDEGATE_RULES_PATH=x")
		least.Rules.Path = ""
		if diff := cmp.Diff(tt.want, differences(least, got, tt.want)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
		d := least.DropIn
		d.Files = files.Which{All: true}
		tt.change(&d)
		d.Given, got.DropIn.Given = nil, nil
		if diff := cmp.Diff(d, got.DropIn); diff != "" {
			t.Errorf("%s, of the drop-in (-want +got)\n%s", tt.name, diff)
		}
	}
}

// differences returns the settings of b that differ from those of a, and those in expected.
func differences(a, b settings.Settings, expected map[string]string) map[string]string {
	all := make(map[string]string)
	before := settings.Describe(a)
	for i, s := range settings.Describe(b) {
		if _, ok := expected[s.Path]; ok || before[i].Default != s.Default {
			all[s.Path] = s.Default
		}
	}
	return all
}
