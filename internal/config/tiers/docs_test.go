package tiers

import (
	"reflect"
	"testing"

	"github.com/slidegate/slidegate/internal/config/configtest"
)

// TestDocumented finds every key of tiers files in docs/configure.md.
func TestDocumentedTiers(t *testing.T) {
	configtest.Documented(t, "../../../docs/configure.md", 9, reflect.TypeFor[tiersDoc](), reflect.TypeFor[subject](), reflect.TypeFor[subjectKey]())
}
