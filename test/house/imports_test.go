package house

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/slidegate/slidegate/"

// wings says what the packages of each wing may import of this module.
var wings = []struct{ wing, imports string }{
	{"pkg internal/text internal/socket docs envoy deploy", "pkg internal/text"},
	{"internal/core", "internal/core internal/text pkg"},
	{"internal/config", "internal/config internal/core internal/socket internal/text pkg"},
	{"internal/edge", "internal/edge internal/core internal/config/settings internal/socket internal/text pkg"},
	{"internal/migrate internal/operate internal/offline", "internal pkg docs envoy"},
	{"internal/daemon limiter cmd", "internal pkg limiter docs"},
}

// libraries lists prefixes of import paths and the packages that may import them.
var libraries = []struct {
	prefix, why, packages string
}{
	{"github.com/envoyproxy/go-control-plane", "Envoy's protos stay at the edge", "internal/edge/ratelimit internal/edge/extauthz internal/edge/grpcserver internal/config/xds internal/migrate/compare internal/daemon"},
	{"github.com/redis/go-redis", "Redis is one store among others", "pkg/window/redisstore pkg/window/redisstore/failure pkg/window/redisstore/internal/script pkg/window/redisstore/document pkg/window/redisstore/internal/admin pkg/window/redisstore/internal/instances internal/core/tier/redissource internal/config/redisclient internal/operate/history internal/operate/redislog internal/daemon internal/daemon/stores"},
	{"github.com/jackc", "PostgreSQL is one source among others", "internal/core/tier/pgsource"},
	{"github.com/prometheus", "others get small interfaces", "internal/operate/metrics internal/operate/admin internal/migrate/compat/stats internal/daemon"},
	{"github.com/prometheus/statsd_exporter", "mappings belong to the metrics of envoyproxy/ratelimit", "internal/migrate/compat/stats"},
	{"github.com/maypok86/otter", "what is remembered has a bound", "internal/core/denials internal/core/lease internal/core/fallback internal/core/tier/cache"},
	{"go.yaml.in/yaml", "nothing else knows YAML", "internal/migrate/compat internal/config/strict internal/config/rules internal/config/portable internal/config/ruletests internal/config/tiers internal/offline/envoydump internal/offline/replay/envoyfile"},
	{"go.opentelemetry.io", "a span is made in one place", "internal/operate/tracing internal/daemon"},
	{"github.com/apache/datasketches-go", "what is counted for people has a bound", "internal/operate/insight"},
	{"github.com/klauspost/compress", "only access logs are packed", "internal/offline/replay/accesslog"},
	{"github.com/yuin/goldmark", "Markdown is only served", "internal/operate/docs"},
	{"github.com/spf13/cobra", "the command line ends at the command", "cmd/rls"},
}

// goPackage is what go list says of one package.
type goPackage struct {
	ImportPath string
	Imports    []string
}

// TestImports holds each package to its wing. Packages whose names end in test are helpers of tests.
func TestImports(t *testing.T) {
	for name, p := range list(t) {
		at := slices.IndexFunc(wings, func(w struct{ wing, imports string }) bool { return in(name, w.wing) })
		if at < 0 {
			t.Errorf("%s is in no wing: decide where it belongs", name)
			continue
		}
		for _, imported := range p.Imports {
			inner, ok := strings.CutPrefix(imported, module)
			if ok && !in(inner, wings[at].imports) {
				t.Errorf("%s imports %s, which its wing may not", name, inner)
			}
		}
	}
}

// TestLibraries holds each package to the libraries that it may import.
func TestLibraries(t *testing.T) {
	for name, p := range list(t) {
		for _, imported := range p.Imports {
			for _, l := range libraries {
				if strings.HasPrefix(imported, l.prefix) && !slices.Contains(strings.Fields(l.packages), name) {
					t.Errorf("%s imports %s: %s", name, imported, l.why)
				}
			}
			if strings.HasPrefix(name, "pkg/") && strings.Contains(imported, ".") && !strings.HasPrefix(imported, module) && !in(name, "pkg/window/redisstore") {
				t.Errorf("%s imports %s: pkg/ stands on the standard library", name, imported)
			}
		}
	}
}

// in reports whether a package is in one of these folders.
func in(name, folders string) bool {
	return slices.ContainsFunc(strings.Fields(folders), func(f string) bool { return name == f || strings.HasPrefix(name, f+"/") })
}

// list returns the packages of the module but for those of tests.
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
		if name := strings.TrimPrefix(p.ImportPath, module); name == "internal/offline/ruletest" || !strings.HasSuffix(name, "test") && !in(name, "test") {
			packages[name] = p
		}
	}
}

// mostForeign is how many packages of other modules a program gets by the library and the memory store.
const mostForeign = 9

// TestLibraryIsSmall bounds the packages of other modules that programs of our users get, but for those
// of gRPC in grpclimit.
func TestLibraryIsSmall(t *testing.T) {
	outside := func(packages ...string) []string {
		t.Helper()
		args := append([]string{"list", "-pgo=off", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)
		out, err := exec.CommandContext(t.Context(), "go", args...).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		return slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return strings.HasPrefix(p, module) })
	}
	grpc := outside("google.golang.org/grpc", "google.golang.org/genproto/googleapis/rpc/errdetails")
	for _, name := range []string{"limiter", "limiter/httplimit", "limiter/grpclimit"} {
		got := slices.DeleteFunc(outside(module+name), func(p string) bool { return name == "limiter/grpclimit" && slices.Contains(grpc, p) })
		if len(got) == 0 || len(got) > mostForeign {
			t.Errorf("%s brings %d packages of other modules, at most %d are allowed:\n%s", name, len(got), mostForeign, strings.Join(got, "\n"))
		}
	}
}
