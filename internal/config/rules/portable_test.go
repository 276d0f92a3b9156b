package rules_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/config/files"
	configrules "github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// TestPortable loads every file of testdata/portable for both services. The .want file beside
// it has the problems, or the warnings of a file of the name good*. Without Portable all files load.
func TestPortable(t *testing.T) {
	paths, err := filepath.Glob("testdata/portable/*.yaml")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d files, error %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			s := settings.Default()
			s.Rules.Path = path
			if _, err := config.Load(s); err != nil {
				t.Errorf("for rls alone: %v", err)
			}
			in := config.Input{Portable: true}
			g, err := in.Load(s)
			got := configtest.ProblemsOf(t, err)
			if g != nil {
				for _, w := range configtest.Texts(g.Warnings, path) {
					got += "warning " + w + "\n"
				}
			}
			if strings.HasPrefix(filepath.Base(path), "good") && err != nil {
				t.Errorf("problems:\n%s", got)
			}
			configtest.Golden(t, strings.TrimSuffix(path, ".yaml")+".want", got)
		})
	}
}

// TestPortableFiles: problems of several files, of files that rls skips, and of a tiers file.
func TestPortableFiles(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, dir, "a.yaml", "domain: d\ndescriptors: [{key: a, value: b_c, rate_limit: {unit: day, requests_per_unit: 2}}]\n")
	configtest.Put(t, dir, "b.yaml", "domain: d\ndescriptors: [{key: a_b, value: c, rate_limit: {unit: day, requests_per_unit: 2, name: mine}}]\n")
	configtest.Put(t, dir, "c.conf", "domain: e\n")
	s := settings.Default()
	s.Rules.Path, s.Rules.MergeDomains = dir, true
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", "tiers: [free]\ndefault: free\nsubjects:\n- {id: acme, keys: [{plain: k}], overrides: {mine: {unit: day, requests_per_unit: 9}}}\n")
	in := config.Input{Portable: true}
	_, err := in.Load(s)
	got := strings.ReplaceAll(strings.ReplaceAll(configtest.ProblemsOf(t, err), dir+"/", ""), s.Tiers.Path, "tiers.yaml")
	configtest.Diff(t, `tiers.yaml:4: subjects[0].overrides[0]: envoyproxy/ratelimit has no limits of single subjects: the rule's own limit would apply there
b.yaml:2: descriptors[a_b=c]: envoyproxy/ratelimit joins key and value by _, and so takes this for the descriptor in `+dir+`/a.yaml:2 a second time: change one of them
c.conf: rls skips this file, which is not .yaml or .yml, and envoyproxy/ratelimit reads it: move it to another directory, or rename it
`, strings.ReplaceAll(got, "in a.yaml", "in "+dir+"/a.yaml"), "problems")
}

// TestPortableOnceAKey: a key that rls refuses too has one problem.
func TestPortableOnceAKey(t *testing.T) {
	s := settings.Default()
	s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: d\nby_tier: {}\ndescriptors:\n- key: a\n  window: 1s\n  rate_limit: {unit: fortnight, requests_per_unit: 5, window: 10s, requests: 5x}\n")
	in := config.Input{Portable: true}
	_, err := in.Load(s)
	got := configtest.ProblemsOf(t, err)
	for _, what := range []string{"by_tier", "\"window\" has no meaning", "rate_limit.window:", "rate_limit.unit", "rate_limit.requests:"} {
		if n := strings.Count(got, what); n > 1 {
			t.Errorf("%d problems about %s:\n%s", n, what, got)
		}
	}
}

func FuzzCheckPortable(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("domain: a\n<<: &a [*a]\n"))
	f.Add([]byte("a: &a\n  descriptors: [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var report, warn strict.Report
		configrules.CheckPortable(configrules.Options{
			Identity: rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)}, Report: &report, Warn: &warn,
		}, []files.File{{Name: "rules.yaml", Data: data}})
		if err := report.Err(); err != nil {
			configtest.CheckProblems(t, err)
		}
	})
}
