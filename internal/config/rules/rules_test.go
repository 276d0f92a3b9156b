package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/portable"
	configrules "github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/configtest"
)

// TestLanguage loads every file of testdata/language, one for each thing that the
// language can say. The .want file beside it has the rules, and the warnings without the
// name of the file.
func TestLanguage(t *testing.T) {
	files, err := filepath.Glob("testdata/language/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 19 {
		t.Errorf("got %d files, want at least 19", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			s := settings.Default()
			s.Rules.Path = file
			if name == "a-tier-called-default" {
				s.Tiers.Path = "testdata/tier-named-default.yaml"
			}
			g := mustLoad(t, s)
			got := strings.Join(configtest.DescribeAll(g.Rules), "\n") + "\n"
			for _, w := range configtest.Texts(g.Warnings, file) {
				got += "warning " + w + "\n"
			}
			configtest.Golden(t, strings.TrimSuffix(file, ".yaml")+".want", got)
			// The schema knows no key that is ignored.
			configtest.Valid(t, rulesSchema, file, name != "keys-where-envoyproxy-ratelimit-ignores-them")
		})
	}
}

// TestModesOfAllRules: the settings reach the rules, and contradictions with
// them are reported.
func TestModesOfAllRules(t *testing.T) {
	s := settings.Default()
	s.DropIn.QuotaMode = true
	s.Rules.Path = configtest.Write(t, "rules.yaml", `domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1, charge: always}}
  - {key: b, rate_limit: {limits: [{window: 1s, requests: 1}, {window: 2s, requests: 1}]}}
`)
	_, err := config.Load(s)
	want := s.Rules.Path + ":3: descriptors[a].rate_limit.charge: charge always cannot be combined with QUOTA_MODE of envoyproxy/ratelimit\n" +
		s.Rules.Path + ":4: descriptors[b].rate_limit.limits: a quota rule can have only one limit: see QUOTA_MODE of envoyproxy/ratelimit\n"
	configtest.Problems(t, err, want)
	for _, c := range []struct {
		name           string
		shadow, quota  bool
		observed, each bool
	}{{"none", false, false, false, false}, {"shadow", true, false, true, false}, {"quota", false, true, false, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := settings.Default()
			s.Rules.ShadowMode, s.DropIn.QuotaMode = c.shadow, c.quota
			s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 0}}, {key: l, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
			g := mustLoad(t, s)
			v := verdictOn(t, g.Rules, "k", "l")
			if got, want := v.Allowed, c.shadow || c.quota; got != want {
				t.Errorf("a request over one of two limits: allowed %v, want %v", got, want)
			}
			if got := v.Limits[0].Observed(); got != c.observed {
				t.Errorf("observed: got %v, want %v", got, c.observed)
			}
			if got := v.Limits[0].Quota; got != c.each {
				t.Errorf("quota: got %v, want %v", got, c.each)
			}
		})
	}
}

// TestSecretsAreNotRepeated: neither a problem nor a warning shows the value of an
// entry that is secret or seems to be, whichever way its key is written.
func TestSecretsAreNotRepeated(t *testing.T) {
	const rules = `domain: d
descriptors:
  - {key: Authorization, value: Bearer hush-1, rate_limit: {unit: day, requests_per_unit: 1, name: "a b"}}
  - {value: hush-2, key: X-Access-Token, descriptors: [{key: a*, rate_limit: {unit: day, requests_per_unit: 1}}]}
  - {key: my_password, value: hush 3, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: gone}]}}
  - {key: my_password, value: hush+3, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: my-secret, value: hush-4*, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a.secret, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, descriptors: [{key: secret, rate_limit: {unit: day, requests_per_unit: 1}}]}
`
	s := settings.Default()
	s.Rules.Path = configtest.Write(t, "rules.yaml", rules)
	g := mustLoad(t, s)
	suspect := func(key string) string {
		return fmt.Sprintf("if its values are API keys, add %q to secrets.entries: without that, rls keeps them in plain text and finds no subject for them", key)
	}
	want := []string{
		":3: descriptors[Authorization=***].value: an API key in plain text: add it to a subject of the tiers file, and give its tier a limit",
		`:3: descriptors[Authorization=***].rate_limit.name: headers and metrics call it a-b: there a name has only letters, digits and "_.-", and at most 64 of them`,
		":4: descriptors[X-Access-Token=***].key: " + suspect("X-Access-Token"),
		":4: descriptors[X-Access-Token=***].descriptors[a*].key: * is a wildcard in values only: this is a key with that character",
		":5: descriptors[my_password=***].key: " + suspect("my_password"),
		`:5: descriptors[my_password=***].rate_limit.replaces[0].name: no rule of the domain has the name "gone"`,
		":6: descriptors[my_password=***].key: " + suspect("my_password"),
		":6: descriptors[my_password=***].rate_limit: the rule on line 5 has the same name: give one of them another",
		":7: descriptors[my-secret=***].key: " + suspect("my-secret"),
		":8: descriptors[a.secret].key: " + suspect("a.secret"),
		":9: descriptors[a].descriptors[secret].key: " + suspect("secret"),
		":9: descriptors[a].descriptors[secret].rate_limit: the rule on line 8 has the same name, a.secret: give one of them another",
	}
	configtest.Diff(t, want, configtest.Texts(g.Warnings, s.Rules.Path), "warnings")
	if got, want := g.Rules.All()[0].Path[0].Value, g.Secrets.Digest("Bearer hush-1"); got != want {
		t.Errorf("the value that is kept of Authorization: got %q, want its digest", got)
	}
	s.Rules.Path = configtest.Write(t, "rules.yaml", strings.ReplaceAll(rules, "unit: day", "unit: dya"))
	if _, err := config.Load(s); strings.Contains(configtest.ProblemsOf(t, err), "hush") || strings.Count(configtest.ProblemsOf(t, err), "did you mean") != 7 {
		t.Errorf("problems: got\n%v", err)
	}
}

// TestMergedDomains joins a domain from several files and documents.
func TestMergedDomains(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, dir, "a.yaml", "domain: d\ndescriptors:\n- {key: p, value: a*, rate_limit: {name: one, unit: day, requests_per_unit: 1}}\n---\ndomain: e\n---\ndomain: d\ndescriptors:\n- {key: q}\n")
	configtest.Put(t, dir, "b.yaml", "domain: d\nheaders: [draft03]\ndescriptors:\n- {key: p, value: ab*, rate_limit: {unit: day, requests_per_unit: 2, replaces: [{name: one}]}}\n")
	configtest.Put(t, dir, ".c.yaml", "domain: d\ndescriptors:\n- {key: hidden}\n")
	s := settings.Default()
	s.Rules.Path = dir
	_, err := config.Load(s)
	want := fmt.Sprintf("%[1]s/a.yaml:7: domain: a second domain \"d\", the first is on line 1: join them, or set rules.merge_domains\n"+
		"%[1]s/b.yaml:1: domain: a second domain \"d\", the first is in %[1]s/a.yaml:1: join them, or set rules.merge_domains\n", dir)
	configtest.Problems(t, err, want)

	s.Rules.MergeDomains = true
	g := mustLoad(t, s)
	lines := []string{"d: p=a* (pattern): one: 1/1d", "d: q: q: nothing", `d: p=ab* (pattern): p.ab-: 2/1d; replaces ["one"]`}
	configtest.Diff(t, lines, configtest.DescribeAll(g.Rules), "rules")
	warnings := []string{dir + `/a.yaml:5: domain: no descriptors, so nothing is limited in "e"`}
	configtest.Diff(t, warnings, configtest.Texts(g.Warnings, ""), "warnings")
	places := []configrules.Location{{dir + "/a.yaml", 3}, {dir + "/a.yaml", 9}, {dir + "/b.yaml", 4}}
	configtest.Diff(t, places, g.Locations, "places")

	s.DropIn.Files.IgnoreDotFiles = false
	g = mustLoad(t, s)
	if got, want := configtest.DescribeAll(g.Rules)[0], "d: hidden: hidden: nothing"; got != want {
		t.Errorf("with dot files: got %q first, want %q", got, want)
	}
	if got, want := g.Files[0], filepath.Join(dir, ".c.yaml"); got != want {
		t.Errorf("with dot files: got %q first, want %q", got, want)
	}
	s.DropIn.Files.IgnoreDotFiles = true

	configtest.Put(t, dir, "c.yaml", "domain: d\nheaders: []\ndescriptors:\n- {key: q, descriptors: [{key: r}]}\n- {key: s, rate_limit: {name: two, unit: day, requests_per_unit: 1, replaces: [{name: three}]}}\n")
	configtest.Put(t, dir, "d.yaml", "domain: d\ndescriptors:\n- {key: t, rate_limit: {name: three, unit: day, requests_per_unit: 1, replaces: [{name: two}]}}\n")
	_, err = config.Load(s)
	want = fmt.Sprintf("%[1]s/c.yaml:2: headers: the domain already has headers, in %[1]s/b.yaml:2: give them once\n"+
		"%[1]s/c.yaml:4: descriptors[q]: a second descriptor like the one in %[1]s/a.yaml:9: put both into one\n"+
		"%[1]s/c.yaml:5: descriptors[s].rate_limit.replaces[0].name: a cycle: \"two\" replaces \"three\" in a cycle, or between two: if all rules of a cycle match a request, none of them counts\n"+
		"%[1]s/d.yaml:3: descriptors[t].rate_limit.replaces[0].name: a cycle: \"three\" replaces \"two\" in a cycle, or between two: if all rules of a cycle match a request, none of them counts\n", dir)
	configtest.Problems(t, err, want)
}

// TestHeadersOfADomain: they reach its answers, and no other domain's.
func TestHeadersOfADomain(t *testing.T) {
	for _, c := range []struct {
		headers string
		want    []string
	}{{"", nil}, {"headers: []\n", []string{}}, {"headers: [draft03]\n", []string{"draft03"}}, {"headers:\n", nil}} {
		s := settings.Default()
		s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: other\nheaders: [x-ratelimit]\n---\ndomain: d\n"+c.headers+"descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
		g := mustLoad(t, s)
		configtest.Diff(t, c.want, verdictOn(t, g.Rules, "k").Headers, "%q", c.headers)
	}
}

// TestChainsOfReplaces: no cycle, however long or often reached, and not within
// another domain.
func TestChainsOfReplaces(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	const n = 20_000
	for i := range n {
		fmt.Fprintf(&b, "- {key: k%d, rate_limit: {name: n%d, unit: day, requests_per_unit: 1, replaces: [{name: n%d}, {name: n%d}]}}\n", i, i, i+1, i+2)
	}
	fmt.Fprintf(&b, "- {key: a, rate_limit: {name: n%d, unlimited: true}}\n- {key: b, rate_limit: {name: n%d, unlimited: true}}\n", n, n+1)
	fmt.Fprintf(&b, "---\ndomain: e\ndescriptors:\n- {key: k, rate_limit: {name: n%d, unlimited: true, replaces: [{name: m}]}}\n- {key: m, rate_limit: {name: m, unlimited: true}}\n", n)
	s := settings.Default()
	s.Rules.Path = configtest.Write(t, "rules.yaml", b.String())
	g := mustLoad(t, s)
	if got := configtest.Texts(g.Warnings, ""); len(got) > 0 {
		t.Errorf("got warnings %q, want none", got)
	}
}

// verdictOn asks for one request with a descriptor for each key.
func verdictOn(t *testing.T, rs *rules.Rules, keys ...string) *decide.Verdict {
	t.Helper()
	store := memstore.New(memstore.Options{SweepInterval: -1})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	req := decide.Request{Domain: "d"}
	for _, k := range keys {
		req.Descriptors = append(req.Descriptors, decide.Descriptor{Entries: descriptors.Descriptor{{Key: k, Value: "v"}}, Cost: 1})
	}
	var c decide.Call
	decide.NewDecider(rs, decide.Options{Store: store}).Begin(&c, req)
	if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
		t.Fatal(err)
	}
	return c.Verdict()
}

// TestRulesInDocs: the rules that pages show load and are valid.
func TestRulesInDocs(t *testing.T) {
	found := 0
	for _, name := range []string{"limits.md", "advanced.md"} {
		page, err := os.ReadFile("../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range regexp.MustCompile("(?s)```yaml\n((?:# [^\n]*\n)*domain:.*?)```").FindAllSubmatch(page, -1) {
			found++
			s := settings.Default()
			s.Store.Type, s.Store.Scopes = settings.StoreRedis, settings.Scopes{{Name: "global"}}
			s.Rules.Path = configtest.Write(t, "rules.yaml", string(e[1]))
			if _, err := config.Load(s); err != nil {
				t.Errorf("%s: %s\n%s", name, e[1], err)
			}
			configtest.Valid(t, rulesSchema, s.Rules.Path, true)
		}
	}
	if found < 18 {
		t.Errorf("only %d examples were found", found)
	}
}

// loadFile loads a file of testdata, which is rules, as its name says.
func loadFile(t *testing.T, file string) error {
	t.Helper()
	s := settings.Default()
	s.Rules.Path = file
	switch kind, _, _ := strings.Cut(filepath.Base(file), "-"); kind {
	case "rules":
	case "redis": // with logs in Redis
		s.Store.Type = settings.StoreRedis
	case "scoped": // with a store that all regions share
		s.Store.Type = settings.StoreRedis
		s.Store.Scopes = settings.Scopes{{Name: "global"}}
	case "untiered":
		s.Tiers.Source = settings.TiersNone
	default:
		t.Fatalf("%s: unknown kind %q", file, kind)
	}
	g, err := config.Load(s)
	if err != nil && g != nil {
		t.Errorf("%s: got a generation beside the error", file)
	}
	return err
}

// TestBadFiles compares the problems of every file of testdata/bad with those that are
// wanted.
func TestBadFiles(t *testing.T) { configtest.BadFiles(t, 95, loadFile) }

// TestRulesAgainstSchema: files that load are valid, and so is what editors would say of
// most of the others.
func TestRulesAgainstSchema(t *testing.T) {
	configtest.FilesAgainstSchema(t, rulesSchema, []string{"testdata/language/rules-*.yaml", "../example/rules.yaml"}, "testdata/bad/rules-*.yaml", beyondRulesSchema)
}

// beyondRulesSchema are patterns of bad files whose mistake a schema cannot see, or not
// without saying something that is hard to understand.
var beyondRulesSchema = []string{
	// One value beside another.
	"rules-by-tier-default-beside-limit", "rules-duplicate-address", "rules-duplicate-descriptor", "rules-duplicate-space",
	"rules-duplicate-domain", "rules-limits-same-window",
	"rules-modes-that-contradict", "rules-replaces-cycle", "rules-replaces-itself", "rules-replaces-long-cycle",
	"rules-requests-per-unit-alone", "rules-share-threshold-without-wildcard", "rules-unlimited-false",
	// A value that another file or another setting excludes.
	"rules-tier-missing", "rules-tier-unknown", "rules-wildcard-in-api-key",
	// Details of YAML that the schema does not see.
	"rules-empty", "rules-requests-octal", "rules-tag", "rules-metadata-deep",
	// The content of a text, and the size of a value.
	"rules-control-characters", "rules-metadata-long-text",
}

// rulesSchema is the schema of rules files, made from the types that they are read into.
const rulesSchema = "../../../docs/rules.schema.json"

func mustLoad(t *testing.T, s settings.Settings) *config.Generation {
	t.Helper()
	g, err := config.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestPolicyOfAllRules: rules.policy is that of limits that name none, and no wider.
func TestPolicyOfAllRules(t *testing.T) {
	s := settings.Default()
	s.Rules.Policy = "fixed"
	s.Rules.Path = configtest.Write(t, "rules.yaml", `domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {policy: sliding, unit: day, requests_per_unit: 1}}
---
domain: e
policy: sliding
descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, precision: 1s}}]
`)
	want := []string{"d: a: a: fixed 1/1d", "d: b: b: 1/1d", "e: a: a: 1/1d to 1s"}
	configtest.Diff(t, want, configtest.DescribeAll(mustLoad(t, s).Rules), "rules")
	s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, precision: 1s}}]\n")
	_, err := config.Load(s)
	configtest.Problems(t, err, s.Rules.Path+":2: descriptors[a].rate_limit.precision: precision belongs to the policy sliding, but this limit has fixed, from the setting rules.policy: add policy: sliding, or remove precision\n")
}

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
			in := config.Input{Portable: compat.PlainValue}
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
	in := config.Input{Portable: compat.PlainValue}
	_, err := in.Load(s)
	got := strings.ReplaceAll(strings.ReplaceAll(configtest.ProblemsOf(t, err), dir+"/", ""), s.Tiers.Path, "tiers.yaml")
	configtest.Diff(t, `tiers.yaml:4: subjects[0].overrides[0]: envoyproxy/ratelimit has no limits of single subjects: the limit of the rule would apply there
b.yaml:2: descriptors[a_b=c]: envoyproxy/ratelimit joins key and value by _, and so takes this for the descriptor in `+dir+`/a.yaml:2 a second time: change one of them
c.conf: rls skips this file, which is not .yaml or .yml, and envoyproxy/ratelimit reads it: move it to another directory, or rename it
`, strings.ReplaceAll(got, "in a.yaml", "in "+dir+"/a.yaml"), "problems")
}

// TestPortableOnceAKey: a key that rls refuses too has one problem.
func TestPortableOnceAKey(t *testing.T) {
	s := settings.Default()
	s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: d\nby_tier: {}\ndescriptors:\n- key: a\n  window: 1s\n  rate_limit: {unit: fortnight, requests_per_unit: 5, window: 10s, requests: 5x}\n")
	in := config.Input{Portable: compat.PlainValue}
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
		portable.Check(configrules.Options{
			Identity: rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)}, Report: &report, Warn: &warn,
		}, []files.File{{Name: "rules.yaml", Data: data}}, compat.PlainValue)
		if err := report.Err(); err != nil {
			configtest.CheckProblems(t, err)
		}
	})
}
