package rules

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/configtest"
)

// TestRulesAreReadByPieces guards the way of large files: without it the other
// tests would still pass, and 100,000 rules take a gigabyte.
func TestRulesAreReadByPieces(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       int // descriptors; -1: not cut
	}{
		{"usual", string(configtest.ManyRules("d", 0, 8)), 4},
		{"block text", "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    body: |\n      'open\n\n      &a\n    unit: day\n- key: b\n", 2},
		{"anchor", "domain: d\ndescriptors:\n- key: &a a\n", -1},
		{"quote over lines", "domain: d\ndescriptors:\n- key: 'x\n- key: y'\n", -1},
		{"carriage returns", "domain: d\r\ndescriptors:\r\n- key: a\r\n", 1},
	} {
		data := plainLines([]byte(c.text))
		docs, ok := splitDocuments(data)
		got := -1
		if ok && len(docs) == 1 {
			if _, items, ok := SplitList(data, descriptorsKey); ok {
				got = len(items)
			}
		}
		if got != c.want {
			t.Errorf("%s: got %d descriptors, want %d", c.name, got, c.want)
		}
	}
	docs, ok := splitDocuments([]byte("# a\ndomain: a\n---\ndomain: b\ndescriptors:\n- key: k\n  rate_limit:\n    body: |\n      ---\n--- # c\ndomain: c\n"))
	if diff := cmp.Diff([]Item{{0, 14, 1}, {14, 86, 3}, {86, 104, 10}}, docs, cmp.AllowUnexported(Item{})); diff != "" || !ok {
		t.Errorf("documents (-want +got), %v:\n%s", ok, diff)
	}
}
