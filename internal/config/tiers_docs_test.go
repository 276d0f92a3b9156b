package config

import (
	"reflect"
	"testing"
)

// TestDocumented finds every key of tiers files in docs/configure.md.
func TestDocumentedTiers(t *testing.T) {
	documented(t, "../../../docs/configure.md", 9, reflect.TypeFor[tiersDoc](), reflect.TypeFor[subject](), reflect.TypeFor[subjectKey]())
}
