package tiers

import (
	"os"
	"testing"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/test/configtest"
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
func readTiers(data []byte) (file *File, problems, warnings *strict.Report) {
	problems, warnings = new(strict.Report), new(strict.Report)
	o := Options{Report: problems, Warn: warnings, Secrets: tier.NewSecrets(nil, nil)}
	return Read(o, files.File{Name: "fuzz.yaml", Data: data}), problems, warnings
}

// TestAddressesAsIDs: a subject whose id is an address is found by the address that requests have.
func TestAddressesAsIDs(t *testing.T) {
	_, _, warnings := readTiers([]byte("tiers: [a]\ndefault: a\nsubjects:\n- {id: 2001:DB8::1}\n- {id: 2001:db8::2}\n- {id: ::ffff:10.0.0.0/104}\n- {id: 10.0.0.1}\n- {id: acme}\n"))
	configtest.Diff(t, []string{
		"fuzz.yaml:4: subjects[0].id: no request has this subject: requests have the address 2001:db8::1",
		"fuzz.yaml:6: subjects[2].id: no request has this subject: requests have the address 10.0.0.0/8",
	}, configtest.Texts(warnings.Sorted(), ""), "warnings")
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
		} else if tiers.Directory == nil {
			t.Error("no problem and no directory")
		}
	})
}
