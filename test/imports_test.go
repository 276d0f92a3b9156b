package test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/slidegate/slidegate/"

// layers reads the layers of docs/architecture.md. Each package may import those of later layers.
func layers(t *testing.T) (depth map[string]int) {
	t.Helper()
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "## Packages and directions")
	_, text, _ = strings.Cut(text, "```\n")
	text, _, _ = strings.Cut(text, "```")
	depth = make(map[string]int)
	layer := 0
	for line := range strings.Lines(text) {
		if line[0] != ' ' {
			layer++
		}
		for _, p := range strings.Fields(line) {
			if !isPackage.MatchString(p) {
				break // what the package does
			}
			depth[p] = layer
		}
	}
	return depth
}

var isPackage = regexp.MustCompile(`^((docs|envoy)$|(cmd|deploy|internal|pkg)/)`)

// only lists prefixes of import paths and the packages that may import them.
var only = []struct {
	prefix, why string
	packages    []string
}{
	{"github.com/envoyproxy/go-control-plane", "Envoy's protos stay in the adapters", []string{"internal/ratelimit", "internal/extauthz", "internal/xds", "internal/compare", "internal/daemon"}},
	{"github.com/redis/go-redis", "Redis is one store among others", []string{"pkg/window/redisstore", "internal/tier/redissource", "internal/redisclient", "internal/redislog", "internal/daemon"}},
	{"github.com/jackc", "PostgreSQL is one source among others", []string{"internal/tier/pgsource"}},
	{"github.com/prometheus", "others get small interfaces", []string{"internal/metrics", "internal/admin", "internal/compat/stats", "internal/daemon"}},
	{"github.com/prometheus/statsd_exporter", "mappings belong to the metrics of envoyproxy/ratelimit", []string{"internal/compat/stats"}},
	{"github.com/maypok86/otter", "what is remembered has a bound", []string{"internal/local", "internal/tier"}},
	{"go.yaml.in/yaml", "nothing else knows YAML", []string{"internal/config/strict", "internal/config/rules", "internal/config/ruletests", "internal/config/envoyfile", "internal/config/tiers", "internal/docgen"}},
	{"go.opentelemetry.io", "a span is made in one place", []string{"internal/tracing", "internal/daemon"}},
	{"github.com/apache/datasketches-go", "what is counted for people has a bound", []string{"internal/insight", "internal/replay"}},
	{"github.com/klauspost/compress", "only access logs are packed", []string{"internal/replay/accesslog"}},
	{"github.com/yuin/goldmark", "Markdown is only served", []string{"internal/docs"}},
	{"github.com/spf13/cobra", "the command line ends at the command", []string{"cmd/rls"}},
}

// goPackage is what go list says of one package.
type goPackage struct {
	ImportPath string
	Imports    []string
}

// TestImports holds the code to the directions of docs/architecture.md.
func TestImports(t *testing.T) {
	depth := layers(t)
	packages := list(t)
	for p := range depth {
		if _, ok := packages[p]; !ok {
			t.Errorf("%s is in a layer but is no package", p)
		}
	}
	for name, p := range packages {
		if strings.HasPrefix(name, "test") || name == "pkg/window/windowtest" || name == "internal/tier/tiertest" || name == "internal/policy/policytest" || name == "internal/adapter/adaptertest" || name == "internal/config/configtest" || name == "internal/console/consoletest" || name == "internal/replay/report/reporttest" || name == "pkg/limiter/middleware/middlewaretest" {
			continue
		}
		level, ok := depth[name]
		if !ok {
			t.Errorf("%s is in no layer: decide where it belongs", name)
			continue
		}
		for _, imported := range p.Imports {
			if inner, ok := strings.CutPrefix(imported, module); ok {
				if below, ok := depth[inner]; !ok || below <= level {
					t.Errorf("%s imports %s, which is not below it", name, inner)
				}
				continue
			}
			for _, o := range only {
				if strings.HasPrefix(imported, o.prefix) && !slices.Contains(o.packages, name) {
					t.Errorf("%s imports %s: %s", name, imported, o.why)
				}
			}
			if strings.HasPrefix(name, "pkg/") && strings.Contains(imported, ".") && !slices.Contains([]string{"pkg/window/redisstore", "pkg/limiter/redislimit", "pkg/limiter/grpclimit"}, name) {
				t.Errorf("%s imports %s: pkg/ stands on the standard library, and the limiter on this module", name, imported)
			}
		}
	}
}

func list(t *testing.T) map[string]goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-pgo=off", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := make(map[string]goPackage)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}
