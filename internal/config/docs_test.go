package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestDocumented finds every key of rules files in docs/rules.md and every key of
// tiers files in docs/configure.md.
func TestDocumented(t *testing.T) {
	for _, c := range []struct {
		page   string
		shapes []any
		least  int
	}{
		{"../../docs/rules.md", []any{rulesDoc{}, descriptorEntry{}, rateLimit{}, terms{}, limit{}, replacement{}}, 30},
		{"../../docs/configure.md", []any{tiersDoc{}, subject{}, subjectKey{}}, 9},
	} {
		page, err := os.ReadFile(c.page)
		if err != nil {
			t.Fatal(err)
		}
		keys := 0
		for _, s := range c.shapes {
			for _, key := range KeysOf(reflect.TypeOf(s)) {
				keys++
				k := key.Name
				if !strings.Contains(string(page), "`"+k+"`") && !strings.Contains(string(page), "."+k+"`") {
					t.Errorf("%s does not have the key %s", c.page, k)
				}
			}
		}
		if keys < c.least {
			t.Errorf("%s: only %d keys were found", c.page, keys)
		}
	}
}
