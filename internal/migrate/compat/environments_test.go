package compat

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

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
