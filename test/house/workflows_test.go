package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/tree"
)

// TestWorkflows: every action is named by the digest of a commit, with its version behind it, and
// every target of make is in the Makefile.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	var (
		uses    = regexp.MustCompile(`(?m)^[\s-]*uses: *(.*)$`)
		pinned  = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
		own     = regexp.MustCompile(`^\./\.github/workflows/[\w-]+\.yml$`)
		targets = regexp.MustCompile(`(?m)run: make ([a-z0-9-]+)|target: \[(.*)\]`)
		rules   = tree.Read(t, "Makefile")
		count   = map[string]int{}
	)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllStringSubmatch(string(data), -1) {
			if count["actions"]++; !pinned.MatchString(m[1]) && !own.MatchString(m[1]) {
				t.Errorf("%s uses %s: write name@digest # v1.2.3, with the 40 digits of the commit", file, m[1])
			}
		}
		for _, m := range targets.FindAllStringSubmatch(string(data), -1) {
			for target := range strings.SplitSeq(m[1]+m[2], ", ") {
				if count["targets"]++; !strings.Contains(rules, "\n"+target+":") {
					t.Errorf("%s runs make %s, which the Makefile does not have", file, target)
				}
			}
		}
	}
	if count["actions"] < 5 || count["targets"] < 5 {
		t.Errorf("found %v", count)
	}
}
