package simulate

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/tree"
)

// TestMap compares the list of promises in doc.go with docs/guarantees.md. Each promise of the page is in the
// list, word for word, with functions of a run or tests that exist.
func TestMap(t *testing.T) {
	functions := functionsBelow(t, "../..")
	listed := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^//   - (.+?)[.:] ((?:[A-Za-z]+, )*[A-Za-z]+)$`).FindAllStringSubmatch(tree.Text(t, "doc.go"), -1) {
		listed[m[1]] = m[2]
	}
	page := regexp.MustCompile(`(?m)^\*\*([^*]+)\*\*`).FindAllStringSubmatch(tree.Read(t, "docs/guarantees.md"), -1)
	if len(page) == 0 {
		t.Error("docs/guarantees.md has no promises")
	}
	for _, m := range page {
		sentence := strings.TrimSuffix(m[1], ".")
		names, ok := listed[sentence]
		if !ok {
			t.Errorf("doc.go has no function beside the promise %q", m[1])
		}
		delete(listed, sentence)
		for _, name := range strings.Split(names, ", ") {
			if ok && !functions[name] {
				t.Errorf("doc.go has %s beside %q, but there is no such function", name, m[1])
			}
		}
	}
	for sentence := range listed {
		t.Errorf("docs/guarantees.md does not promise %q, which doc.go has", sentence)
	}
}

// TestWords compares the constants of promises_test.go with docs/guarantees.md: the page has each of their sentences.
func TestWords(t *testing.T) {
	page := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(tree.Read(t, "docs/guarantees.md"), "$1")
	page = strings.Join(strings.Fields(strings.NewReplacer("*", "", "`", "").Replace(page)), " ")
	constants := regexp.MustCompile(`\tpromise\w+ += "(.*)"`).FindAllStringSubmatch(tree.Text(t, "promises_test.go"), -1)
	if len(constants) == 0 {
		t.Error("promises_test.go has no promises")
	}
	for _, m := range constants {
		for _, sentence := range strings.SplitAfter(m[1], ". ") {
			if sentence = strings.TrimSpace(sentence); !strings.Contains(page, sentence) {
				t.Errorf("docs/guarantees.md has no sentence %q", sentence)
			}
		}
	}
}

// functionsBelow returns the names of the functions of this package, and of the tests in a folder.
func functionsBelow(t *testing.T, root string) map[string]bool {
	names := make(map[string]bool)
	declares := regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?([A-Za-z]+)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declares.FindAllSubmatch(text, -1) {
			name := string(m[1])
			if filepath.Dir(path) == filepath.Join(root, "test/simulate") || strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
				names[name] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
