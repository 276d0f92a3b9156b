package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestDocumented finds every key of rules and tiers files in docs/configure.md.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configure.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := slices.Clone(notYet)
	for _, shape := range []any{rulesDoc{}, descriptorEntry{}, rateLimit{}, tierLimits{}, limit{}, tiersDoc{}, subject{}, subjectKey{}} {
		s := reflect.TypeOf(shape)
		for i := range s.NumField() {
			name, _, _ := strings.Cut(s.Field(i).Tag.Get("yaml"), ",")
			if name != "" {
				keys = append(keys, name)
			}
		}
	}
	if len(keys) < 30 {
		t.Fatalf("only %d keys were found: %v", len(keys), keys)
	}
	for _, k := range keys {
		if !strings.Contains(string(page), "`"+k+"`") && !strings.Contains(string(page), "."+k+"`") {
			t.Errorf("docs/configure.md does not have the key %s", k)
		}
	}
}
