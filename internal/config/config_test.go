package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// update rewrites the .want files of testdata from what the code says. Read the
// difference before you keep it.
var update = flag.Bool("update", false, "rewrite the .want files of testdata")

func TestMain(m *testing.M) {
	if dir := os.Getenv(envLoadOnce); dir != "" {
		loadOnce(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// problemsOf returns the lines of err, which must be Problems.
func problemsOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var ps Problems
	if !errors.As(err, &ps) {
		t.Fatalf("got error of type %T (%v), want Problems", err, err)
	}
	if len(ps) == 0 {
		t.Fatal("got an error without problems")
	}
	return ps.Error() + "\n"
}

// TestBadFiles reads every file of testdata/bad and compares the problems with
// those of the .want file beside it. The first part of the name says what kind
// of file it is.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 45 {
		t.Errorf("got %d bad files, want at least 45", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			got := problemsOf(t, loadAs(t, file))
			if got == "" {
				t.Fatalf("%s loads, want problems", file)
			}
			wantFile := strings.TrimSuffix(file, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(wantFile, []byte(got), 0o644); err != nil {
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

// TestGoodFiles reads every file of testdata/good.
func TestGoodFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no good files")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			if got := problemsOf(t, loadAs(t, file)); got != "" {
				t.Errorf("%s has problems:\n%s", file, got)
			}
		})
	}
}

// loadAs loads a file of testdata as what its name says.
func loadAs(t *testing.T, file string) error {
	t.Helper()
	s := Default()
	switch kind, _, _ := strings.Cut(filepath.Base(file), "-"); kind {
	case "settings":
		_, err := LoadSettings(file, nil)
		return err
	case "tiers":
		s.Tiers.Path = file
	case "rules":
		s.Rules.Path = file
	case "redis": // rules, with logs in Redis
		s.Rules.Path = file
		s.Store.Type = StoreRedis
	case "untiered":
		s.Rules.Path = file
		s.Tiers.Source = TiersNone
	default:
		t.Fatalf("%s: unknown kind %q", file, kind)
	}
	g, err := Load(s)
	if err != nil && g != nil {
		t.Errorf("%s: got a generation beside the error", file)
	}
	return err
}
