package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/compare"
)

// TestComparisons counts pairs and reasons, and ends the series of a rule that goes.
func TestComparisons(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{Version: "v0"})
	c := m.Comparisons(registry)
	names := []string{"slidegate_compare_total", "slidegate_compare_differences_total"}
	m.Meter("edge", "stays")
	m.Meter("edge", "goes")
	m.Loaded()
	for _, rule := range []string{"stays", "goes", "unknown"} {
		c.Compared("edge", rule, compare.OK, compare.OverLimit)
		c.Compared("edge", rule, compare.OK, compare.OverLimit)
		c.Differed("edge", rule, compare.FreeDenial)
	}
	c.Compared("", "", compare.Failed, compare.TimedOut)
	expect(t, registry, `
compare_differences_total{domain="edge",reason="free_denial",rule="goes"} 1
compare_differences_total{domain="edge",reason="free_denial",rule="stays"} 1
compare_total{domain="",ours="error",rule="",theirs="timeout"} 1
compare_total{domain="edge",ours="ok",rule="goes",theirs="over_limit"} 2
compare_total{domain="edge",ours="ok",rule="stays",theirs="over_limit"} 2
`, names...)
	m.Meter("edge", "stays")
	m.Loaded()
	c.Compared("edge", "goes", compare.OK, compare.OK)
	expect(t, registry, `
compare_differences_total{domain="edge",reason="free_denial",rule="stays"} 1
compare_total{domain="",ours="error",rule="",theirs="timeout"} 1
compare_total{domain="edge",ours="ok",rule="stays",theirs="over_limit"} 2
`, names...)
}
