package tiers

import (
	"os"
	"testing"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/tier"
)

// builtIn returns the built-in tiers file.
func builtIn(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("../example/tiers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// readTiers reads a tiers file and returns its problems and its warnings.
func readTiers(data []byte) (t *tiersReader, problems, warnings *strict.Report) {
	t = &tiersReader{report: new(strict.Report), warn: new(strict.Report), secrets: tier.NewSecrets(nil, nil)}
	t.read(files.File{Name: "fuzz.yaml", Data: data})
	return t, t.report, t.warn
}

// FuzzTiers reads any bytes as a tiers file, which gives problems or a directory,
// never a panic.
func FuzzTiers(f *testing.F) {
	configtest.Seed(f, "testdata/*/tiers-*.yaml")
	f.Add(builtIn(f))
	f.Add(configtest.SubjectsFile(3))
	f.Add([]byte("tiers: [a]\ndefault: a\nsubjects:\n- id: x\n  keys:\n  - plain: \"a # b\"\n# c\n- id: 'it''s'\nother: 1\n"))
	f.Add([]byte("subjects:\n  - id: a\n      tier: x\n  - id: b\n    keys:\n    - plain: a\n     - plain: b\ntiers: [x]\ndefault: x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tiers, report, _ := readTiers(data)
		if err := report.Err(); err != nil {
			configtest.CheckProblems(t, err)
		} else if tiers.directory == nil {
			t.Error("no problem and no directory")
		}
	})
}
