package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
)

// TestSeveralPathsAreOneSet: paths that are checked together mean what a directory
// with all of them means.
func TestSeveralPathsAreOneSet(t *testing.T) {
	dir := t.TempDir()
	configtest.Put(t, dir, "a.yaml", "domain: a\n")
	configtest.Put(t, dir, "again.yaml", "domain: a\n")
	sub := configtest.MakeDir(t, dir, "sub")
	configtest.Put(t, sub, "b.yaml", "domain: b\n")
	configtest.Link(t, "a.yaml", dir, "link.yaml")
	for _, tt := range []struct {
		paths string
		stdin string
		want  string
	}{
		{paths: "a.yaml"},
		{paths: "a.yaml sub"},
		{paths: "a.yaml a.yaml link.yaml"},
		{paths: "sub/b.yaml sub sub/../sub/b.yaml"},
		{paths: "a.yaml again.yaml", want: "again.yaml:1: domain: a second domain \"a\", the first is in a.yaml:1: join them, or set rules.merge_domains\n"},
		{paths: "again.yaml a.yaml", want: "again.yaml:1: domain: a second domain \"a\", the first is in a.yaml:1: join them, or set rules.merge_domains\n"},
		{paths: ".", want: "again.yaml:1: domain: a second domain \"a\", the first is in a.yaml:1: join them, or set rules.merge_domains\n"},
		{paths: "sub -", stdin: "domain: b\n", want: "sub/b.yaml:1: domain: a second domain \"b\", the first is in -:1: join them, or set rules.merge_domains\n"},
		{paths: "-", stdin: "domain: c\n"},
		{paths: "-", stdin: "domain:\n", want: "-:1: domain: has no value: give it one, or remove the key\n"},
		{paths: "-", want: "-: the file is empty: it needs a domain and its descriptors\n"},
		{paths: "none.yaml gone", want: "none.yaml: no such file or directory\ngone: no such file or directory\n"},
	} {
		var paths []string
		for p := range strings.FieldsSeq(tt.paths) {
			if p != files.Stdin {
				p = filepath.Join(dir, p)
			}
			paths = append(paths, p)
		}
		in, err := NewInput(paths, strings.NewReader(tt.stdin))
		if err != nil {
			t.Fatal(err)
		}
		_, err = in.Load(settings.Default())
		if got := strings.ReplaceAll(configtest.ProblemsOf(t, err), dir+"/", ""); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.paths, got, tt.want)
		}
	}
}

// TestFilesAreRecognised: what a file holds shows in its keys, also if it is broken.
func TestFilesAreRecognised(t *testing.T) {
	for text, want := range map[string]int{
		"":                                  rulesFile,
		"domain: d\n":                       rulesFile,
		"# c\n\"domain\" : d\n":             rulesFile,
		"descriptors:\n\t- a":               rulesFile,
		"{domain: d, headers: []}":          rulesFile,
		"headers: []\ndomain: d":            rulesFile,
		"domian: d\n":                       rulesFile,
		"tiers: [a]\ndefault: a":            tiersFile,
		"tiers:\n  - a":                     tiersFile,
		"tiers:\n\t- a\nsubjects:":          tiersFile,
		`{"tiers": ["a"], "default": "a"}`:  tiersFile,
		"subjects:\n  - id: a\n":            tiersFile,
		"tiers: {source: none}":             settingsFile,
		"tiers:\n  source: none\n":          settingsFile,
		"tiers:\n  source: none\nlog:\n\tx": settingsFile,
		"grpc:\n  address: 127.0.0.1:1\n":   settingsFile,
		"log: {level: \"info}\n":            settingsFile,
		"[a, b]":                            rulesFile,
		"rules: r\ntiers: t\ntests: []":     testsFile,
		"domain: d\ntests:\n\t- a":          testsFile,
	} {
		if got := kindOfFile([]byte(text)); got != want {
			t.Errorf("%q: got kind %d, want %d", text, got, want)
		}
	}
	for file, want := range map[string]int{
		"settings/settings.full.yaml": settingsFile, "example/rules.yaml": rulesFile, "example/tiers.yaml": tiersFile,
		"../../docs/examples/limits_test.yaml": testsFile,
		"tiers/testdata/good/tiers-json.yaml":  tiersFile, "settings/testdata/good/settings-tiers.yaml": settingsFile,
	} {
		in, err := NewInput([]string{file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wanted := [...]Input{rulesFile: {Rules: []string{file}}, tiersFile: {Tiers: file}, settingsFile: {Settings: file}, testsFile: {Tests: []string{file}}}[want]
		if diff := cmp.Diff(wanted, in, cmp.AllowUnexported(Input{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	for paths, want := range map[string]string{
		"example/tiers.yaml tiers/testdata/good/tiers-json.yaml": "example/tiers.yaml and tiers/testdata/good/tiers-json.yaml are both tiers files: give one",
		"settings/settings.full.yaml -":                          "settings/settings.full.yaml and - are both settings files: give one",
	} {
		if _, err := NewInput(strings.Fields(paths), strings.NewReader("log: {}\n")); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", paths, err, want)
		}
	}
}

// TestTiersAlone: a tiers file is checked without the built-in rules, which name
// tiers of their own, and with the rules of the settings.
func TestTiersAlone(t *testing.T) {
	in := Input{Tiers: configtest.Write(t, "tiers.yaml", "tiers: [gold]\ndefault: gold\nsubjects:\n  - id: acme\n    overrides: {per-key: {unlimited: true}}\n")}
	g, err := in.Load(settings.Default())
	if err != nil || len(g.Rules.All()) != 0 || g.Rules.Tiers().DefaultTier() != "gold" {
		t.Errorf("got %v, %v, want the tiers without rules", g, err)
	} else if len(g.Warnings) != 0 {
		t.Errorf("got the warnings %v, want none: there are no rules that the override could name", g.Warnings)
	}
	s := settings.Default()
	s.Rules.Path = "example/rules.yaml"
	if _, err := in.Load(s); !strings.Contains(configtest.ProblemsOf(t, err), "unknown tier") {
		t.Errorf("with rules of other tiers: got %v, want their problems", err)
	}
}
