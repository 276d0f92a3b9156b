package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/test/configtest"
)

func TestBuiltInExample(t *testing.T) {
	g, err := Load(settings.Default())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"edge: remote_address: per-address: 50000/1m",
		"edge: api_key: per-key: nothing, free 100/1m, pro 500/1s+20000/1m, starter 3000/1m; by api_key",
		"edge: subject: per-subject: nothing, free 100/1m, pro 500/1s+20000/1m, starter 3000/1m; by subject",
		"edge: tier: tier: unlimited",
		"edge: route=search > api_key: search-per-key: 9500/1d; by api_key",
		"edge: route=search > subject: search-per-subject: 9500/1d; by subject",
		"edge: route=login > remote_address: login-per-address: 10/1m",
	}
	configtest.Diff(t, want, configtest.DescribeAll(g.Rules), "rules")
	d := g.Rules.Tiers()
	configtest.Diff(t, []string{"free", "starter", "pro"}, d.Tiers(), "tiers")
	if got, want := d.DefaultTier(), "free"; got != want {
		t.Errorf("default tier: got %q, want %q", got, want)
	}
	for _, c := range []struct {
		key  string
		want *tier.Subject
	}{
		{"demo-starter", &tier.Subject{ID: "acme", Tier: "starter"}},
		{"demo-free", &tier.Subject{ID: "hobby", Tier: "free"}},
		{"demo-pro", &tier.Subject{ID: "bigco", Tier: "pro"}},
		{"demo-disabled", &tier.Subject{ID: "gone", Tier: "free", Disabled: true}},
		{"made-up", nil},
	} {
		configtest.Diff(t, c.want, d.ByDigest(g.Secrets.Digest(c.key)), "subject of %q", c.key)
	}
	if len(g.Files) != 0 {
		t.Errorf("files: got %q, want none", g.Files)
	}
	if len(g.Warnings) != 0 {
		t.Errorf("warnings: got %v, want none: it is an example", g.Warnings)
	}
}

// TestRulesDirectory reads the rules files of a directory and warns about its other files.
func TestRulesDirectory(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, dir, "b.yaml", "domain: b\ndescriptors: [{key: k}]\n")
	configtest.Put(t, dir, "a.yml", "domain: a\ndescriptors: [{key: k}]\n")
	configtest.Put(t, dir, ".hidden.yaml", "not even rules")
	configtest.Put(t, dir, "edge.conf", "not even rules")
	configtest.Put(t, dir, "LOUD.YAML", "domain: loud\n")
	configtest.MakeDir(t, dir, "empty.yaml")
	configtest.Put(t, configtest.MakeDir(t, dir, "team"), "d.yaml", "domain: d\n")
	configtest.Put(t, configtest.MakeDir(t, dir, "team", "more"), "e.Yml", "domain: e\n")
	configtest.Put(t, configtest.MakeDir(t, dir, "team", "more"), "README.md", "not even rules")
	configtest.Put(t, configtest.MakeDir(t, dir, ".git"), "c.yaml", "not even rules")
	s := settings.Default()
	s.Rules.Path = dir
	load := func() ([]string, []string) {
		t.Helper()
		g := mustLoad(t, s)
		files := make([]string, len(g.Files))
		for i, f := range g.Files {
			files[i] = strings.TrimPrefix(f, dir+"/")
		}
		return files, configtest.Texts(g.Warnings, dir+"/")
	}
	files, warnings := load()
	configtest.Diff(t, []string{"LOUD.YAML", "a.yml", "b.yaml", "team/d.yaml", "team/more/e.Yml"}, files, "files")
	want := []string{
		`LOUD.YAML:1: domain: no descriptors, so nothing is limited in "loud"`,
		"edge.conf: skipped: not .yaml or .yml; envoyproxy/ratelimit reads it",
		`team/d.yaml:1: domain: no descriptors, so nothing is limited in "d"`,
		"team/more/README.md: skipped: not .yaml or .yml; envoyproxy/ratelimit reads it",
		`team/more/e.Yml:1: domain: no descriptors, so nothing is limited in "e"`,
	}
	configtest.Diff(t, want, warnings, "warnings")

	s.DropIn.Files.IgnoreDotFiles = false
	_, err := Load(s)
	lines := fmt.Sprintf("%[1]s/.git/c.yaml:1: expected a mapping, got a text\n%[1]s/.hidden.yaml:1: expected a mapping, got a text\n", dir)
	configtest.Problems(t, err, lines)
	s.DropIn.Files.IgnoreDotFiles = true

	configtest.Put(t, dir, "c.yaml", "\ndomain: a\n")
	configtest.Put(t, dir, "team/d.yaml", "domain: []\n")
	_, err = Load(s)
	lines = fmt.Sprintf("%[1]s/c.yaml:2: domain: a second domain \"a\", the first is in %[1]s/a.yml:1: join them, or set rules.merge_domains\n%[1]s/team/d.yaml:1: domain: expected a text, got a list\n", dir)
	configtest.Problems(t, err, lines)
}

// TestLinksInADirectory: every file counts once, however many paths lead to it, and
// links that lead in circles end.
func TestLinksInADirectory(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(dir string)
		want []string // also with dot files, unless dots
		dots []string
	}{
		{
			name: "a ConfigMap with folders, in the middle of a swap",
			make: func(dir string) {
				for _, v := range []string{"..v1", "..v2", "..v3"} {
					configtest.Put(t, configtest.MakeDir(t, dir, v), "rules.yaml", "domain: a\n")
					configtest.Put(t, configtest.MakeDir(t, dir, v), ".late.yaml", "domain: late\n")
					configtest.Put(t, configtest.MakeDir(t, dir, v, "sub"), "rules.yaml", "domain: b\n")
				}
				configtest.Link(t, "..v2", dir, "..data")
				configtest.Link(t, "..v3", dir, "..data_tmp")
				configtest.Link(t, "..data/rules.yaml", dir, "rules.yaml")
				configtest.Link(t, "..data/.late.yaml", dir, ".late.yaml")
				configtest.Link(t, "..data/sub", dir, "sub")
			},
			want: []string{"rules.yaml", "sub/rules.yaml"},
			dots: []string{".late.yaml", "rules.yaml", "sub/rules.yaml"},
		},
		{
			name: "circles",
			make: func(dir string) {
				configtest.Put(t, configtest.MakeDir(t, dir, "a", "b"), "rules.yaml", "domain: a\n")
				configtest.Link(t, "..", filepath.Join(dir, "a"), "up")
				configtest.Link(t, dir, filepath.Join(dir, "a", "b"), "top")
				configtest.Link(t, ".", dir, "self")
				configtest.Link(t, "a/b", dir, "again")
				configtest.Link(t, "loop", dir, "loop")
			},
			want: []string{"a/b/rules.yaml"},
		},
		{
			name: "names of another kind",
			make: func(dir string) {
				outside := t.TempDir()
				configtest.Put(t, outside, "rules", "domain: a\n")
				configtest.Put(t, dir, "z.yaml", "domain: z\n")
				configtest.Link(t, filepath.Join(outside, "rules"), dir, "rules.yaml")
				configtest.Link(t, "z.yaml", dir, "a.conf")
				configtest.Link(t, "z.yaml", dir, "zz.yaml")
				configtest.Link(t, "nowhere", dir, "nothing")
				if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
					panic(err)
				}
			},
			want: []string{"rules.yaml", "z.yaml"},
		},
		{
			name: "a version without links to its files",
			make: func(dir string) {
				configtest.Put(t, configtest.MakeDir(t, dir, "..v1"), "rules.yaml", "domain: a\n")
				configtest.Link(t, "..v1", dir, "..data")
				configtest.Put(t, dir, "x.yml", "domain: x\n")
			},
			want: []string{"x.yml"},
			dots: []string{"..data/rules.yaml", "x.yml"},
		},
		{
			name: "two dots without a ConfigMap",
			make: func(dir string) {
				configtest.Put(t, configtest.MakeDir(t, dir, "..v1"), "rules.yaml", "domain: a\n")
				configtest.Put(t, dir, "x.yml", "domain: x\n")
			},
			want: []string{"x.yml"},
			dots: []string{"..v1/rules.yaml", "x.yml"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "rules")
			configtest.MakeDir(t, dir)
			c.make(dir)
			configtest.Link(t, "rules", filepath.Dir(dir), "way")
			for _, path := range []string{dir, filepath.Join(filepath.Dir(dir), "way")} {
				for _, ignore := range []bool{true, false} {
					s := settings.Default()
					s.Rules.Path, s.DropIn.Files.IgnoreDotFiles, s.Tiers.Source = path, ignore, settings.TiersNone
					g := mustLoad(t, s)
					var got []string
					for _, f := range g.Files {
						got = append(got, strings.TrimPrefix(f, path+"/"))
					}
					want := c.want
					if !ignore && c.dots != nil {
						want = c.dots
					}
					configtest.Diff(t, want, got, "%s, without dot files: %v", path, ignore)
				}
			}
		})
	}
}

// TestLinksToNothing: a link that leads nowhere is one warning, whatever its name. Emacs makes such
// a link while a file is edited.
func TestLinksToNothing(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, dir, "rules.yaml", "domain: a\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	for name, target := range map[string]string{
		".#rules.yaml": "user@host.4711", "gone.yaml": "nowhere", "loop.yaml": "loop.yaml", "through.yaml": "rules.yaml/x", "sub": "nowhere", "a.txt": "nowhere",
	} {
		configtest.Link(t, target, dir, name)
	}
	s := settings.Default()
	s.Rules.Path, s.Tiers.Source = dir, settings.TiersNone
	for _, all := range []bool{false, true} {
		s.DropIn.Files.All, s.DropIn.Files.IgnoreDotFiles = all, !all
		g := mustLoad(t, s)
		configtest.Diff(t, []string{filepath.Join(dir, "rules.yaml")}, g.Files, "files")
		links := []string{".#rules.yaml", "a.txt", "gone.yaml", "loop.yaml", "sub", "through.yaml"}
		if s.DropIn.Files.IgnoreDotFiles {
			links = links[1:]
		}
		var want, got []string
		for _, name := range links {
			want = append(want, filepath.Join(dir, name)+": ignored: a symbolic link that leads nowhere")
		}
		for _, w := range g.Warnings {
			got = append(got, w.String())
		}
		slices.Sort(got)
		configtest.Diff(t, want, got, "warnings, all files: %v", all)
	}
	// A path that is named is not ignored.
	s.Rules.Path = filepath.Join(dir, "gone.yaml")
	_, err := Load(s)
	configtest.Problems(t, err, s.Rules.Path+": no such file or directory\n")
}

// TestNoFilesInPlaceOfTheReference: started in place of envoyproxy/ratelimit, rls limits nothing if
// the directory is empty, and says so. Otherwise an empty directory is a problem.
func TestNoFilesInPlaceOfTheReference(t *testing.T) {
	s := settings.Default()
	s.Rules.Path, s.Tiers.Source = t.TempDir(), settings.TiersNone
	_, err := Load(s)
	configtest.Problems(t, err, s.Rules.Path+": the directory holds no *.yaml or *.yml file\n")
	s.DropIn.Files.All, s.DropIn.Answers = true, true
	g := mustLoad(t, s)
	if len(g.Rules.All()) != 0 || g.Rules.Missing() || len(g.Warnings) != 1 || g.Warnings[0].String() != s.Rules.Path+": the directory holds no file: rls limits no request, as envoyproxy/ratelimit does" {
		t.Errorf("got %d rules, missing %v, and %v", len(g.Rules.All()), g.Rules.Missing(), g.Warnings)
	}
	s.Rules.Path = filepath.Join(s.Rules.Path, "gone")
	_, err = Load(s)
	configtest.Problems(t, err, s.Rules.Path+": no such file or directory\n")
}

// TestAllFilesAndPrefix has the two forms of a directory that envoyproxy/ratelimit reads.
func TestAllFilesAndPrefix(t *testing.T) {
	dir := t.TempDir()
	put := func(file, domain string) { configtest.Put(t, dir, file, "domain: "+domain+"\ndescriptors: []\n") }
	for _, below := range []string{"config/more", "config.d", "conf", "configuration", ".config"} {
		configtest.MakeDir(t, dir, filepath.FromSlash(below))
	}
	put("config.yaml", "a")
	put("config.anything", "b")
	put("config/plain", "c")
	put("config/more/x.yml", "d")
	put("config/.hidden", "e")
	put("config.d/x.yaml", "f")
	put("other.yaml", "h")
	put("conf/x.yaml", "i")
	put("configuration/x.yaml", "j")
	put("config2.yaml", "k")
	put(".config/x.yaml", "l")
	configtest.Link(t, "config.yaml", dir, "config.link")
	configtest.Link(t, "nowhere", dir, "config.nowhere")
	if err := syscall.Mkfifo(filepath.Join(dir, "config", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		which files.Which
		want  []string
	}{
		{files.Which{}, []string{".config/x.yaml", "conf/x.yaml", "config.d/x.yaml", "config.yaml", "config/more/x.yml", "config2.yaml", "configuration/x.yaml", "other.yaml"}},
		{files.Which{IgnoreDotFiles: true, All: true}, []string{"conf/x.yaml", "config.anything", "config.d/x.yaml", "config.link", "config/more/x.yml", "config/plain", "config2.yaml", "configuration/x.yaml", "other.yaml"}},
		{files.Which{IgnoreDotFiles: true, All: true, Prefix: "config"}, []string{"config.anything", "config.d/x.yaml", "config.link", "config/more/x.yml", "config/plain"}},
		{files.Which{All: true, Prefix: "config"}, []string{"config.anything", "config.d/x.yaml", "config.link", "config/.hidden", "config/more/x.yml", "config/plain"}},
		{files.Which{Prefix: "config"}, []string{"config.d/x.yaml", "config.yaml", "config/more/x.yml"}},
		{files.Which{All: true, Prefix: ".config"}, []string{".config/x.yaml"}},
	} {
		s := settings.Default()
		s.Rules.Path, s.Tiers.Source = dir, settings.TiersNone
		s.DropIn.Files.IgnoreDotFiles, s.DropIn.Files.All, s.DropIn.Files.Prefix = c.which.IgnoreDotFiles, c.which.All, c.which.Prefix
		var got []string
		for _, f := range mustLoad(t, s).Files {
			got = append(got, strings.TrimPrefix(f, dir+"/"))
		}
		configtest.Diff(t, c.want, got, "%+v", c.which)
	}
}

// TestPrefixOfNothing refuses a prefix without a file.
func TestPrefixOfNothing(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, dir, "a.yaml", "domain: a\n")
	configtest.Put(t, dir, "config", "domain: [") // neither below config nor named config.*
	s := settings.Default()
	s.Tiers.Source, s.DropIn.Files.All, s.DropIn.Files.Prefix = settings.TiersNone, true, "config"
	s.Rules.Path = dir
	_, err := Load(s)
	configtest.Problems(t, err, dir+": the directory holds no file in config/ or named config.*\n")
	// Files that are named one by one have no prefix.
	if _, err := (&Input{Rules: []string{filepath.Join(dir, "a.yaml")}}).Load(s); err != nil {
		t.Error(err)
	}
}

// TestSettledReading: what comes or goes while files are read is noticed.
func TestSettledReading(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"a new file below":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "sub", "b.yaml"), nil, 0o600) },
		"a new file to skip": func(dir string) error { return os.WriteFile(filepath.Join(dir, "sub", "b.conf"), nil, 0o600) },
		"a file that went":   func(dir string) error { return os.Remove(filepath.Join(dir, "sub", "a.yaml")) },
	} {
		dir := t.TempDir()
		configtest.Put(t, configtest.MakeDir(t, dir, "sub"), "a.yaml", "domain: a\n")
		s := settings.Default()
		s.Rules.Path = dir
		l := &loader{settings: s, paths: []string{dir}}
		l.readFiles()
		if !l.settled() {
			t.Errorf("before %s: not settled", name)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if l.settled() {
			t.Errorf("after %s: settled", name)
		}
	}
	s := settings.Default()
	s.Rules.Path = t.TempDir()
	l := &loader{settings: s, paths: []string{s.Rules.Path}, listed: files.Listing{Failed: []strict.Problem{{File: "gone"}}}}
	if l.settled() {
		t.Error("a directory that could not be read, and now can: settled")
	}
	if l.readRulesFiles(); l.report.Count() != 1 {
		t.Errorf("a directory that cannot be read: got %v, want one problem", l.report.Err())
	}
}

func TestMissingFilesAreAllTold(t *testing.T) {
	dir := t.TempDir()
	s := settings.Default()
	s.Rules.Path = dir
	s.Tiers.Path = filepath.Join(dir, "tiers.txt")
	_, err := Load(s)
	want := fmt.Sprintf("%[1]s/tiers.txt: no such file or directory\n%[1]s: the directory holds no *.yaml or *.yml file\n", dir)
	configtest.Problems(t, err, want)
}

// TestBrokenTiersDoNotBlameTheRules: what by_tier says cannot be judged when the
// tiers are not known.
func TestBrokenTiersDoNotBlameTheRules(t *testing.T) {
	s := settings.Default()
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", "tiers: free\ndefault: free\n")
	s.Rules.Path = configtest.Write(t, "rules.yaml", "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      by_tier: {gold: {window: 1x, requests: 1}}\n")
	_, err := Load(s)
	want := s.Tiers.Path + ":1: tiers: expected a list, got a text\n" +
		s.Rules.Path + ":5: descriptors[k].rate_limit.by_tier.gold.window: \"1x\" is not a time: write it like 500ms, 10s, 1h30m, 7d or 1w\n"
	configtest.Problems(t, err, want)
}

func TestWarnings(t *testing.T) {
	s := settings.Default()
	s.Rules.Path = configtest.Write(t, "rules.yaml", `domain: d
descriptors:
  - key: api_key
    value: hush
    rate_limit: {name: twice, unit: hour, requests_per_unit: 1}
  - key: route
    value: ""
    rate_limit: {name: twice, unit: hour, requests_per_unit: 1}
  - key: backend
    value: all
    rate_limit: {policy: in_flight, max: 20, hold: 1m}
`)
	g := mustLoad(t, s)
	want := []string{
		"built-in tiers.yaml: the demo keys of the example are valid for your rules: set tiers.path, or tiers.source to none",
		s.Rules.Path + ":4: descriptors[api_key=***].value: an API key in plain text: add it to a subject of the tiers file, and give its tier a limit",
		s.Rules.Path + ":7: descriptors[route].value: an empty value means any value: if you want that, remove the key",
		s.Rules.Path + ":8: descriptors[route].rate_limit.name: the rule on line 5 has the same name: headers and metrics cannot distinguish them",
		s.Rules.Path + ":9: one client without an API key can use up \"backend.all\": add a rule with in_flight and a smaller max for its address, such as [in_flight=address, masked_remote_address]",
	}
	var got []string
	for _, w := range g.Warnings {
		got = append(got, w.String())
	}
	configtest.Diff(t, want, got, "warnings")
}

func TestDigestNamesTheContent(t *testing.T) {
	digest := func(rules string) string {
		s := settings.Default()
		s.Rules.Path = configtest.Write(t, "rules.yaml", rules)
		g := mustLoad(t, s)
		return g.Digest
	}
	a, again, b := digest("domain: a\n"), digest("domain: a\n"), digest("domain: b\n")
	if a != again {
		t.Errorf("the same content in another file: got %s and %s, want the same", a, again)
	}
	if a == b {
		t.Errorf("other content: got %s twice, want another", a)
	}
	if got, want := len(a), 2*digestLen; got != want {
		t.Errorf("length of %s: got %d, want %d", a, got, want)
	}
}

func TestTiersSourceNone(t *testing.T) {
	s := settings.Default()
	s.Tiers.Source = settings.TiersNone
	s.Tiers.Path = "nowhere"
	s.Rules.Path = "rules/testdata/language/rules-reference.yaml"
	g := mustLoad(t, s)
	if g.Rules.Tiers() != nil {
		t.Error("got a directory of tiers, want none")
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	var b strings.Builder
	b.WriteString("tiers: [free, starter, pro]\ndefault: free\nsubjects:\n")
	for i := range strict.MaxProblems + 5 {
		fmt.Fprintf(&b, "  - id: s%d\n    tier: gold\n", i)
	}
	s := settings.Default()
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", b.String())
	_, err := Load(s)
	lines := strings.Split(strings.TrimSpace(configtest.ProblemsOf(t, err)), "\n")
	if got, want := len(lines), strict.MaxProblems+1; got != want {
		t.Fatalf("lines: got %d, want %d", got, want)
	}
	if got, want := lines[strict.MaxProblems], "and 5 more problems"; got != want {
		t.Errorf("last line: got %q, want %q", got, want)
	}
}

// TestUnreadable: every file that cannot be read is reported, and nothing is loaded.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, dir, "a.yaml", "domain: a\n")
	configtest.Put(t, dir, "latin.yaml", "domain: caf\xe9\n")
	configtest.Put(t, dir, "nul.yaml", "domain: \x00\n")
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	configtest.Put(t, dir, "z.yaml", "")
	if err := os.Truncate(filepath.Join(dir, "z.yaml"), maxRulesFile+1); err != nil {
		t.Fatal(err)
	}
	s := settings.Default()
	s.Rules.Path = dir
	g, err := Load(s)
	if g != nil {
		t.Error("got a generation beside the error")
	}
	got := strings.ReplaceAll(configtest.ProblemsOf(t, err), dir+"/", "")
	want := "fifo.yaml: is not a regular file\n" +
		"latin.yaml:1: not YAML: not UTF-8; save the file as UTF-8\n" +
		"nul.yaml:1: not YAML: a control character; remove it, or write an escape such as \\u0007 in double quotes\n" +
		"z.yaml: larger than 16 MiB: spread its rules over several files; with rules.merge_domains several files may have one domain\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	s.Rules.Path = filepath.Join(dir, "more.yaml")
	if err := os.Mkdir(s.Rules.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = Load(s)
	if got, want := configtest.ProblemsOf(t, err), s.Rules.Path+": the directory holds no *.yaml or *.yml file\n"; got != want {
		t.Errorf("an empty directory: got %q, want %q", got, want)
	}
}

func TestFileOfTiersThatIsTooLarge(t *testing.T) {
	s := settings.Default()
	s.Tiers.Path = configtest.Write(t, "large.yaml", "")
	if err := os.Truncate(s.Tiers.Path, maxTiersFile+1); err != nil {
		t.Fatal(err)
	}
	_, err := Load(s)
	configtest.Problems(t, err, s.Tiers.Path+": larger than 16 MiB, about 100,000 subjects: keep the subjects in PostgreSQL, in Redis or behind an HTTP endpoint, and set tiers.source to postgres, redis or http\n")
}

// TestRoomForManyEntries: docs/reference/rules.md and docs/customers.md promise that one file may hold
// 100,000 rules, and one file 100,000 subjects.
func TestRoomForManyEntries(t *testing.T) {
	if size := len(manyRules("d", 0, 100_000)); size > maxRulesFile {
		t.Errorf("100,000 rules take %d bytes, a rules file may have %d", size, maxRulesFile)
	}
	if size := len(configtest.SubjectsFile(100_000)); size > maxTiersFile {
		t.Errorf("100,000 subjects take %d bytes, a tiers file may have %d", size, maxTiersFile)
	}
	subject := `{"id":"c","tier":"pro","keys":[{"sha256":"` + strings.Repeat("0", 64) + `"}],"labels":{"name":"c"},"overrides":{"per-key":{"unit":"minute","requests_per_unit":5}}},` + "\n"
	for name, text := range map[string][]byte{
		"100,000 rules":            manyRules("d", 0, 100_000),
		"100,000 subjects":         configtest.SubjectsFile(100_000),
		"100,000 rules as JSON":    bytes.Repeat([]byte(`{"key":"route","value":"/a","rate_limit":{"name":"a","unit":"minute","requests_per_unit":5},"descriptors":[{"key":"b"}]},`), 100_000),
		"16 MiB of large subjects": bytes.Repeat([]byte(subject), maxTiersFile/len(subject)),
	} {
		if got := strict.Parts(text); got > maxParts {
			t.Errorf("%s have %d keys and items, a file may have %d", name, got, maxParts)
		}
	}
}

// TestFilesOfTooManyParts has files within the bound in bytes that would take gigabytes of memory,
// and that many of them are refused together.
func TestFilesOfTooManyParts(t *testing.T) {
	items := func(n int) []byte { return append(bytes.Repeat([]byte("-\n"), n), "x"...) }
	s := settings.Default()
	dir := t.TempDir()
	s.Rules.Path, s.Tiers.Path = configtest.MakeDir(t, dir, "rules"), filepath.Join(dir, "tiers.yaml")
	configtest.Put(t, dir, "tiers.yaml", string(items(maxParts+1)))
	configtest.Put(t, s.Rules.Path, "a.yaml", string(items(maxParts+1)))
	_, err := Load(s)
	want := s.Tiers.Path + ": more than 2000000 keys and items of lists: keep the subjects in PostgreSQL, in Redis or behind an HTTP endpoint, and set tiers.source to postgres, redis or http\n" +
		"a.yaml: more than 2000000 keys and items of lists: spread its rules over several files; with rules.merge_domains several files may have one domain\n"
	if got := configtest.ProblemsOf(t, err); strings.ReplaceAll(got, s.Rules.Path+"/", "") != want {
		t.Errorf("got %swant %s", got, want)
	}
	l := loader{settings: s, paths: []string{s.Rules.Path}, before: new(Generation)}
	for i := range maxAllParts/maxParts + 1 {
		configtest.Put(t, s.Rules.Path, fmt.Sprintf("%c.yaml", 'a'+i), string(items(maxParts)))
	}
	l.readFiles()
	last := fmt.Sprintf("%c.yaml", 'a'+maxAllParts/maxParts)
	want = filepath.Join(s.Rules.Path, last) + ": with this file the rules have more than 16000000 keys and items of lists\n"
	if got := configtest.ProblemsOf(t, l.report.Err()); got != want {
		t.Errorf("got %swant %s", got, want)
	}
}

// TestTooManyAliases tells that aliases stand for too many values, and nothing that follows from it.
func TestTooManyAliases(t *testing.T) {
	dir := t.TempDir()
	s := settings.Default()
	s.Rules.Path, s.Tiers.Path = filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "tiers.yaml")
	var rules, subjects, labels, below strings.Builder
	for i := range 30 {
		fmt.Fprintf(&labels, "l%d: x, ", i)
		fmt.Fprintf(&below, "{key: c%d}, ", i)
	}
	fmt.Fprintf(&rules, "domain: edge\ndescriptors:\n  - {key: a, rate_limit: {unit: minute, requests_per_unit: 5}, descriptors: &d [%s]}\n", below.String())
	fmt.Fprintf(&subjects, "tiers: [free]\ndefault: free\nsubjects:\n  - {id: a, keys: [{plain: a-key}], labels: &l {%s}}\n", labels.String())
	for i := range 3_500 {
		fmt.Fprintf(&rules, "  - {key: b%d, rate_limit: {unit: minute, requests_per_unit: 5}, descriptors: *d}\n", i)
		fmt.Fprintf(&subjects, "  - {id: s%d, keys: [{plain: key-%[1]d}], labels: *l}\n", i)
	}
	configtest.Put(t, dir, "rules.yaml", rules.String())
	configtest.Put(t, dir, "tiers.yaml", subjects.String())
	_, err := Load(s)
	want := s.Tiers.Path + ":4: subjects[3226].labels[24]: aliases stand for more than 100000 values: write the values out\n" +
		s.Rules.Path + ":3: descriptors[b1639].descriptors[c10]: aliases stand for more than 100000 values: write the values out\n"
	if got := configtest.ProblemsOf(t, err); got != want {
		t.Errorf("got %.1000s, want %s", got, want)
	}
}

// loadRules reads a text as rules of the built-in tiers.
func loadRules(text []byte) (*Generation, error) {
	s := settings.Default()
	s.Rules.MergeDomains = true
	l := loader{settings: s, contents: contents{rules: []files.File{{Name: "fuzz.yaml", Data: text}}, tiers: &files.File{Name: builtInTiers, Data: exampleTiers}}}
	return l.generation()
}

// TestLargeRules reads a long file with mistakes and with warnings in all parts of it.
func TestLargeRules(t *testing.T) {
	text := manyRules("d", 0, 4000)
	bad := bytes.ReplaceAll(text, []byte("unit: minute\n      requests_per_unit: 17"), []byte("unit: minutes\n      requests_per_unit: 17"))
	s := settings.Default()
	s.Rules.Path = configtest.Write(t, "rules.yaml", string(bad))
	_, err := Load(s)
	if got, want := strings.Count(configtest.ProblemsOf(t, err), "did you mean \"minute\"?"), bytes.Count(bad, []byte("minutes")); got != want || want < 50 {
		t.Errorf("got %d problems of units, want %d, at least 50", got, want)
	}

	g, err := loadRules(bytes.ReplaceAll(text, []byte("    value: /api"), []byte("    unit: day\n    value: /api")))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(g.Warnings), strict.MaxProblems+1; got != want {
		t.Errorf("got %d warnings, want %d", got, want)
	}
}

// TestLineEndsOfWindows reads the same rules and subjects with both line ends.
func TestLineEndsOfWindows(t *testing.T) {
	text := "domain: d\ndescriptors:\n- key: a\n  value: b\n  rate_limit:\n    unit: day\n    requests_per_unit: 1\n    body: |\n      one\n      two\n"
	unix, err := loadRules([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	windows, err := loadRules([]byte(strings.ReplaceAll(text, "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(configtest.DescribeAll(unix.Rules), configtest.DescribeAll(windows.Rules)); diff != "" {
		t.Errorf("rules (-LF +CRLF):\n%s", diff)
	}
	if diff := cmp.Diff(unix.Locations, windows.Locations); diff != "" {
		t.Errorf("places (-LF +CRLF):\n%s", diff)
	}
	s := settings.Default()
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", string(bytes.ReplaceAll(configtest.SubjectsFile(3), []byte("\n"), []byte("\r\n"))))
	g := mustLoad(t, s)
	if got := g.Rules.Tiers().Subjects(); got != 3 {
		t.Errorf("got %d subjects, want 3", got)
	}
}

// FuzzRules reads any bytes as a rules file, which gives problems or a generation,
// never a panic.
func FuzzRules(f *testing.F) {
	configtest.Seed(f, "rules/testdata/*/rules-*.yaml")
	f.Add(exampleRules)
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("domain: d\ndescriptors: [{key: &k k, *k : v}]"))
	f.Add([]byte("domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    body: |\n      x\n# c\n---\ndomain: d\ndescriptors:\n- key: a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := loadRules(data)
		if err != nil {
			configtest.CheckProblems(t, err)
			return
		}
		if len(g.Rules.Domains()) == 0 {
			t.Error("a generation without a domain")
		}
		if got, want := len(g.Locations), len(g.Rules.All()); got != want {
			t.Errorf("%d places of %d rules", got, want)
		}
		for _, r := range g.Rules.All() {
			if !rules.ValidName(r.Name) {
				t.Errorf("rule %s has the bad name %q", r.ID(), r.Name)
			}
			for _, l := range r.Terms.Limits {
				if err := l.Valid(); err != nil {
					t.Errorf("rule %s: %v", r.ID(), err)
				}
			}
			if _, err := structpb.NewStruct(r.Answer.Metadata); err != nil {
				t.Errorf("rule %s: metadata: %v", r.ID(), err)
			}
		}
	})
}
