package tiers

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slidegate/slidegate/internal/config/configtest"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/rules"
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

// readTiers reads a tiers file, as a whole or by items where that is possible.
func readTiers(data []byte, whole bool) (*tiersReader, *strict.Report, *strict.Report) {
	r, warn := new(strict.Report), new(strict.Report)
	t := &tiersReader{report: r, warn: warn, secrets: tier.NewSecrets(nil, nil)}
	if src := (files.File{Name: "fuzz.yaml", Data: data}); whole {
		t.whole(src)
	} else {
		t.read(src)
	}
	return t, r, warn
}

// sameByItems reads a tiers file by items and as a whole, which must give the
// same, and returns the problems.
func sameByItems(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte,
) error {
	t.Helper()
	a, aReport, aWarn := readTiers(data, false)
	b, bReport, bWarn := readTiers(data, true)
	if diff := cmp.Diff(bReport.Sorted(), aReport.Sorted()); diff != "" {
		t.Fatalf("%s\nproblems by items differ (-whole +items):\n%s", data, diff)
	}
	if diff := cmp.Diff(bWarn.Sorted(), aWarn.Sorted()); diff != "" {
		t.Fatalf("%s\nwarnings by items differ (-whole +items):\n%s", data, diff)
	}
	if (a.directory == nil) != (b.directory == nil) {
		t.Fatalf("%s\ndirectory by items: %v, as a whole: %v", data, a.directory, b.directory)
	}
	if err := aReport.Err(); err != nil {
		return err
	}
	if a.directory == nil {
		t.Fatalf("%s\nno problem and no directory", data)
	}
	if diff := cmp.Diff(b.directory, a.directory, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Fatalf("%s\ndirectory by items differs (-whole +items):\n%s", data, diff)
	}
	return nil
}

// TestSubjectsByItemsAreThoseOfTheWhole makes files from lines that are good
// and lines that are trouble, at all indentations.
func TestSubjectsByItemsAreThoseOfTheWhole(t *testing.T) {
	digest := strings.Repeat("0a", tier.DigestLen/2)
	lines := []string{
		"- id: a", "- id: b", "  id: c", "- id: 'q'", "- id: x y", "- id: null", "- id: 5", "- id:", "id: b # c",
		"  tier: pro", "  tier: free", "tier: gold", "  disabled: true", "  disabled: yes",
		"  keys:", "    - plain: x", "    - sha256: " + digest, "  - sha256: " + strings.ToUpper(digest), "- plain: 'y'",
		"  keys: [{plain: z}]", "- {id: f, tier: pro}", "- {id: g,", "}", "]", "- [", "-", "- - id: n", "-id: m",
		"# comment", "  # comment", "", " ", "text", "'open", "\"open", "x: |", "x: >-", "- &a x", "- *a", "<<: {id: m}",
		"  overrides: {a: {unlimited: true}}", "  overrides:", "    a: {window: 1s, requests: 1}", "      window: 1h", "  labels: {a: b}", "  labels:", "    a: b",
		"? k", ": v", "- ! t", "subjects:", "subjects: []", "default: free", "other: 1", "---", "...", "--- x", "%YAML 1.2", "\t", "- id: \u2028",
	}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("tiers: [free, pro]\n")
		if rapid.Bool().Draw(t, "default first") {
			b.WriteString("default: free\n")
		}
		b.WriteString("subjects:\n")
		for range rapid.IntRange(0, 8).Draw(t, "lines") {
			// Mostly as written, so that many files are nearly good.
			if rapid.IntRange(0, 3).Draw(t, "shift") == 0 {
				b.WriteString(strings.Repeat(" ", rapid.IntRange(0, 5).Draw(t, "indent")))
			}
			b.WriteString(rapid.SampledFrom(lines).Draw(t, "line"))
			if rapid.IntRange(0, 30).Draw(t, "end") > 0 {
				b.WriteString("\n")
			}
		}
		_ = sameByItems(t, []byte(b.String()))
	})
}

// FuzzTiers reads any bytes as a tiers file, by items and as a whole, which must
// give the same.
func FuzzTiers(f *testing.F) {
	configtest.Seed(f, "testdata/*/tiers-*.yaml")
	f.Add(builtIn(f))
	f.Add(subjectsFile(3))
	f.Add([]byte("tiers: [a]\ndefault: a\nsubjects:\n- id: x\n  keys:\n  - plain: \"a # b\"\n# c\n- id: 'it''s'\nother: 1\n"))
	f.Add([]byte("subjects:\n  - id: a\n      tier: x\n  - id: b\n    keys:\n    - plain: a\n     - plain: b\ntiers: [x]\ndefault: x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := sameByItems(t, data); err != nil {
			configtest.CheckProblems(t, err)
		}
	})
}

// subjectsFile returns a tiers file with n subjects of the usual shape.
func subjectsFile(n int) []byte {
	var b bytes.Buffer
	b.WriteString("# made by a program\ntiers: [free, starter, pro]\ndefault: free\nsubjects:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - id: customer-%d\n    tier: starter\n    keys:\n      - sha256: %064x\n", i, i)
	}
	return b.Bytes()
}

// TestSubjectsAreReadByItems guards the fast way: without it the other tests
// would still pass, and a million subjects take gigabytes.
func TestSubjectsAreReadByItems(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"usual", string(subjectsFile(2)), true},
		{"built in", string(builtIn(t)), true},
		{"quoted and flow", "tiers: [a]\nsubjects: # all\n- {id: 'x y', keys: [{plain: \"#\\\"[\"}]}\n- id: user@example.com\n# end\ndefault: a\n", true},
		{"block text", "tiers: [a]\nsubjects:\n- id: |\n    x\n", true},
		{"anchor", "tiers: [a]\nsubjects:\n- id: &a x\n", false},
		{"quote over lines", "tiers: [a]\nsubjects:\n- id: 'x\n- id: y'\n", false},
		{"carriage return", "tiers: [a]\r\nsubjects:\r\n- id: x\r\n", false},
		{"flow", "{tiers: [a], subjects: [{id: x}]}\n", false},
	} {
		if _, _, got := rules.SplitList([]byte(c.text), subjectsKey); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	text := subjectsFile(2)
	_, items, _ := rules.SplitList(text, subjectsKey)
	for _, i := range items {
		if _, ok := readPlain(text[i.Start:i.End]); !ok {
			t.Errorf("got no plain subject for\n%s", text[i.Start:i.End])
		}
	}
}

// BenchmarkTiers reads 100,000 subjects: in the usual shape, in a shape that
// only the library reads, and as one tree.
func BenchmarkTiers(b *testing.B) {
	const subjects = 100_000
	usual := subjectsFile(subjects)
	quoted := bytes.ReplaceAll(usual, []byte("tier: starter"), []byte(`tier: "starter"`))
	for _, c := range []struct {
		name  string
		data  []byte
		whole bool
	}{{"usual", usual, false}, {"quoted", quoted, false}, {"whole", usual, true}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.data)))
			b.ReportAllocs()
			for b.Loop() {
				t, r, _ := readTiers(c.data, c.whole)
				if err := r.Err(); err != nil {
					b.Fatal(err)
				}
				if got := t.directory.Subjects(); got != subjects {
					b.Fatalf("subjects: got %d, want %d", got, subjects)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/subjects*1e6, "s/1Msubjects")
		})
	}
}
