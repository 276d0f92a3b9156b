package compat

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// environmentOf reads a file of testdata/environments and fills in its places.
func environmentOf(t *testing.T, name string, places ...string) (environ []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "environments", name+".env"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.NewReplacer(places...).Replace(string(text))) {
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
	ca, cert, key := servers.NewAuthority(t).ServerFiles()
	for _, tt := range []struct {
		name string
		// want is every setting that differs from the least drop-in, as Describe shows it.
		want    map[string]string
		ignored []string
		refused []string
	}{
		{"envoy-gateway", map[string]string{
			"log.level": "info", "grpc.tls.cert_file": cert, "grpc.tls.key_file": key, "rules.source": "xds", "rules.xds.address": "eg:18001", "rules.xds.node_id": "envoy-ratelimit",
			"rules.xds.tls.ca_file": ca, "rules.xds.tls.cert_file": cert, "rules.xds.tls.key_file": key, "dropin.xds.wait": "false",
			"dropin.metrics.address": ":19001", "dropin.metrics.mapper_file": mapper,
			"dropin.traces.protocol": "http", "dropin.traces.sampling": "60%",
			"dropin.traces.attributes": "service.name=envoy-ratelimit,service.namespace=envoy-gateway-system,service.instance.id=envoy-ratelimit-0",
		}, nil, nil},
		{"istio", map[string]string{
			"log.level": "debug", "rules.path": rules, "dropin.rules.ignore_dot_files": "true", "http.address": "[::]:8080", "grpc.address": "[::]:8081",
		}, nil, nil},
		{"contour", map[string]string{"log.level": "debug", "rules.path": rules, "dropin.rules.ignore_dot_files": "true"}, nil, nil},
		{"ai-gateway", map[string]string{
			"log.level": "info", "rules.source": "xds", "rules.xds.address": "eg:18001", "rules.xds.node_id": "envoy-ai-gateway-ratelimit", "dropin.xds.wait": "false",
			"store.redis.url": "redis-sentinel://redis:6379/mymaster",
		}, nil, nil},
		{"softonic", map[string]string{
			"log.level": "debug", "rules.path": filepath.Dir(rules), "dropin.rules.prefix": "config", "dropin.rules.ignore_dot_files": "true",
		}, nil, nil},
		{"istio-ratelimit-operator", map[string]string{
			"log.level": "debug", "rules.path": rules, "dropin.rules.ignore_dot_files": "true", "dropin.statsd.address": "localhost:9125",
		}, nil, nil},
		{"nomad", map[string]string{
			"log.level": "debug", "rules.source": "xds", "rules.xds.address": "eg:18001", "rules.xds.node_id": "default", "dropin.xds.wait": "false", "store.redis.url": "redis://redis:6379/11",
		}, nil, nil},
		{"kyma", nil, nil, []string{"BACKEND_TYPE"}},
	} {
		r, got, problems := read(environmentOf(t, tt.name, "{{DATA}}", data, "{{REDIS}}", "redis:6379", "{{XDS}}", "eg:18001",
			"{{ADDR}}", ":19001", "{{CERT}}", cert, "{{KEY}}", key, "{{CA}}", ca, "{{MAPPER}}", mapper)...)
		var ignored, refused []string
		for i := range r.Rows {
			switch r.Rows[i].State {
			case StateIgnored:
				ignored = append(ignored, r.Rows[i].Name)
			case StateRefused:
				refused = append(refused, r.Rows[i].Name)
			default:
			}
		}
		if !slices.Equal(ignored, tt.ignored) || !slices.Equal(refused, tt.refused) || len(problems) != len(tt.refused) {
			t.Errorf("%s: ignored %v, refused %v, problems %v; want %v and %v", tt.name, ignored, refused, problems, tt.ignored, tt.refused)
		}
		if tt.refused != nil {
			continue
		}
		_, least, _ := read("REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379", "SLIDEGATE_RULES_PATH=x")
		least.Rules.Path, least.Rules.AllFiles, least.Rules.XDS.Wait = "", got.Rules.Source == settings.RulesFiles, got.Rules.XDS.Wait
		if diff := cmp.Diff(tt.want, differences(least, got, tt.want)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
}

// differences returns the settings of b that differ from those of a, and those in expected.
func differences(a, b settings.Settings, expected map[string]string) map[string]string {
	all := make(map[string]string)
	before := configtest.Describe(a)
	for i, s := range configtest.Describe(b) {
		if _, ok := expected[s.Path]; ok || before[i].Default != s.Default {
			all[s.Path] = s.Default
		}
	}
	was := settings.DropInValues(&a)
	for path, v := range settings.DropInValues(&b) {
		text := configtest.TextOf(reflect.ValueOf(v).Elem())
		if _, ok := expected[path]; ok || configtest.TextOf(reflect.ValueOf(was[path]).Elem()) != text {
			all[path] = text
		}
	}
	return all
}
