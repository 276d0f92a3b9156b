package rules

import (
	"reflect"
	"testing"

	"github.com/slidegate/slidegate/internal/config/configtest"
)

// TestDocumented finds every key of rules files in docs/rules.md.
func TestDocumentedRules(t *testing.T) {
	configtest.Documented(t, "../../../docs/rules.md", 30, reflect.TypeFor[rulesDoc](), reflect.TypeFor[descriptorEntry](), reflect.TypeFor[rateLimit](), reflect.TypeFor[terms](), reflect.TypeFor[limit](), reflect.TypeFor[starts](), reflect.TypeFor[chargeOnce](), reflect.TypeFor[replacement]())
}
