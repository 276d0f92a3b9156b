package configtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// Update rewrites the .want files of testdata and the generated parts of docs from what the
// code says. Read the difference before you keep it.
var Update = flag.Bool("update", false, "rewrite the .want files of testdata and the generated parts of docs")

// ProblemsOf returns the lines of err, which must be Problems.
func ProblemsOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var ps strict.Problems
	if !errors.As(err, &ps) {
		t.Fatalf("got error of type %T (%v), want Problems", err, err)
	}
	if len(ps) == 0 {
		t.Fatal("got an error without problems")
	}
	return ps.Error() + "\n"
}

// Problems compares the lines of err, which must be Problems, with those that are wanted.
func Problems(t *testing.T, err error, want string) {
	t.Helper()
	if got := ProblemsOf(t, err); got != want {
		t.Errorf("problems: got\n%swant\n%s", got, want)
	}
}

// Diff reports how got differs from want. The arguments say what got is, in the format of fmt.
func Diff(t testing.TB, want, got any, what string, args ...any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", fmt.Sprintf(what, args...), diff)
	}
}

// Golden compares a text with a file, which -update writes.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	Diff(t, string(want), got, "%s; if the new one is right, run the test with -update", file)
}

// CheckProblems checks what holds for all problems: one line each, and a position.
func CheckProblems(t *testing.T, err error) {
	t.Helper()
	got := ProblemsOf(t, err)
	var ps strict.Problems
	if !errors.As(err, &ps) {
		t.Fatalf("%T is not Problems", err)
	}
	if lines := strings.Count(got, "\n"); lines != len(ps) {
		t.Errorf("%d problems in %d lines: %q", len(ps), lines, got)
	}
	for _, p := range ps {
		if p.Message == "" || len(p.String()) > 1<<16 {
			t.Errorf("bad problem %q", p)
		}
	}
}

// BadFiles loads every file of testdata/bad and compares the problems with those of the
// .want file next to it. There must be at least least files.
func BadFiles(t *testing.T, least int, load func(t *testing.T, file string) error) {
	t.Helper()
	files := glob(t, "testdata/bad/*.yaml")
	if len(files) < least {
		t.Errorf("got %d bad files, want at least %d", len(files), least)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			got := ProblemsOf(t, load(t, file))
			if got == "" {
				t.Fatalf("%s loads, want problems", file)
			}
			wantFile := strings.TrimSuffix(file, ".yaml") + ".want"
			if *Update {
				if err := os.WriteFile(wantFile, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(wantFile)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("problems of %s:\ngot\n%swant\n%s", file, got, want)
			}
			if strings.Contains(got, "hush") {
				t.Errorf("problems of %s show a secret:\n%s", file, got)
			}
		})
	}
}

// GoodFiles loads every file of testdata/good, which must have no problems.
func GoodFiles(t *testing.T, load func(t *testing.T, file string) error) {
	t.Helper()
	files := glob(t, "testdata/good/*.yaml")
	if len(files) == 0 {
		t.Fatal("no good files")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			if got := ProblemsOf(t, load(t, file)); got != "" {
				t.Errorf("%s has problems:\n%s", file, got)
			}
		})
	}
}

// glob returns the files that match a pattern.
func glob(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Seed adds the files that match a pattern, each followed by the other arguments of the
// fuzz target.
func Seed(f *testing.F, pattern string, others ...any) {
	f.Helper()
	for _, file := range glob(f, pattern) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append([]any{data}, others...)...)
	}
}

// Write writes a file into a separate directory and returns its path.
func Write(t testing.TB, name, text string) string {
	t.Helper()
	return Put(t, t.TempDir(), name, text)
}

// Link makes a symbolic link in a directory.
func Link(t testing.TB, target, dir, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// MakeDir makes a directory with those above it and returns its path.
func MakeDir(t testing.TB, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Put writes a file into a directory, and returns its path.
func Put(t testing.TB, dir, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// describe writes everything that a rule says and that is not its default.
func describe(r *rules.Rule) string {
	var path []string
	for i, n := range r.Path {
		text := n.String()
		if n.Pattern {
			text += " (pattern)"
		}
		if i < len(r.OneLog) && r.OneLog[i] {
			text += " (shared)"
		}
		if i < len(r.Metric.Values) && r.Metric.Values[i] {
			text += " (in metrics)"
		}
		path = append(path, text)
	}
	line := r.Domain + ": " + strings.Join(path, " > ") + ": " + r.Name + ": " + formatTerms(r.Terms)
	var tiers []string
	for t, terms := range r.ByTier {
		tiers = append(tiers, t+" "+formatTerms(terms))
	}
	slices.Sort(tiers)
	for _, t := range tiers {
		line += ", " + t
	}
	add := func(is bool, format string, args ...any) {
		if is {
			line += "; " + fmt.Sprintf(format, args...)
		}
	}
	add(r.Subject != "", "by %s", r.Subject)
	add(r.Quota, "quota")
	add(r.Charge.Always, "always")
	add(r.Charge.Factor != 0, "cost %d", r.Charge.Factor)
	add(r.Charge.Once.Entry != "", "once by %v", r.Charge.Once)
	add(len(r.Replaces) > 0, "replaces %q", r.Replaces)
	add(r.Storage.Scope != "", "scope %s", r.Storage.Scope)
	add(r.Storage.OnError != 0, "store error %d", r.Storage.OnError)
	add(r.Answer.RetryJitter != 0, "retry jitter %v", r.Answer.RetryJitter)
	add(r.Answer.NeverRetry, "never retried")
	add(r.Answer.Denial != rules.Denial{}, "says %+v", r.Answer.Denial)
	if r.Answer.Metadata != nil {
		text, err := json.Marshal(r.Answer.Metadata)
		add(true, "metadata %s (%v)", text, err)
	}
	add(r.Metric.Detailed, "detailed")
	return line
}

// formatTerms writes the limits of a rule or of one of its tiers.
func formatTerms(t rules.Terms) string {
	var parts []string
	for _, l := range t.Limits {
		text := fmt.Sprintf("%d/%s", l.Hits, rules.FormatWindow(l.Window))
		switch l.Policy {
		case window.Sliding:
		case window.TokenBucket:
			text = fmt.Sprintf("token_bucket %d/%s burst %d", l.Rate, rules.FormatWindow(l.Window), l.Hits)
		case window.InFlight:
			text = fmt.Sprintf("in_flight %d hold %s", l.Hits, rules.FormatWindow(l.Window))
		case window.Calendar:
			text += fmt.Sprintf(" calendar (%v)", l.Calendar)
			if l.StartsLabel != "" {
				text += " label " + l.StartsLabel
			}
		default:
			text = l.Policy.String() + " " + text
		}
		if l.Policy == window.Sliding && l.Precision != window.Precision(l.Limit) {
			text += " to " + l.Precision.String()
		}
		if lease := rules.FormatLease(l.Lease); lease != "" {
			text += " lease " + lease
		}
		if b := l.Budget; b != nil {
			text += fmt.Sprintf(" budget %d to %d for %s", b.Reserve, b.Max, rules.FormatWindow(b.Hold))
			if b.PerByte != 0 {
				text += fmt.Sprintf(", %v a byte", b.PerByte)
			}
		}
		if l.Currency != "" {
			text += " in " + l.Currency
		}
		parts = append(parts, text)
	}
	if t.Unlimited {
		parts = append(parts, "unlimited")
	}
	text := strings.Join(parts, "+")
	if text == "" {
		text = "nothing"
	}
	if t.Observe > 0 {
		text += fmt.Sprintf(" observed %v", t.Observe)
	}
	return text
}

// DescribeAll is describe for all rules.
func DescribeAll(rs *rules.Rules) []string {
	var lines []string
	for _, r := range rs.All() {
		lines = append(lines, describe(r))
	}
	return lines
}

// Texts returns problems as text, without those of the built-in tiers file. It takes the
// text in without off the front.
func Texts(problems []strict.Problem, without string) []string {
	var lines []string
	for _, p := range problems {
		if p.File != "built-in tiers.yaml" {
			lines = append(lines, strings.TrimPrefix(p.String(), without))
		}
	}
	return lines
}

// SubjectsFile returns a tiers file with n subjects of the usual shape.
func SubjectsFile(n int) []byte {
	var b bytes.Buffer
	b.WriteString("# made by a program\ntiers: [free, starter, pro]\ndefault: free\nsubjects:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - id: customer-%d\n    tier: starter\n    keys:\n      - sha256: %064x\n", i, i)
	}
	return b.Bytes()
}
