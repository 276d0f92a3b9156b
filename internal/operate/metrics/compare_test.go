package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/migrate/compare"
)

// TestComparisons counts pairs and reasons, and ends the series of a rule that goes.
func TestComparisons(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry, Options{Version: "v0"})
	c := m.Comparisons(registry)
	const name = "slidegate_compare_total"
	m.Meter("edge", "stays")
	m.Meter("edge", "goes")
	m.Loaded()
	for _, rule := range []string{"stays", "goes", "unknown"} {
		c.Compared("edge", rule, compare.OK, compare.OK, compare.Same)
		c.Compared("edge", rule, compare.OK, compare.OverLimit, compare.FreeDenial)
	}
	c.Compared("", "", compare.Failed, compare.TimedOut, compare.Same)
	expect(t, registry, `
compare_total{domain="",ours="error",reason="",rule="",theirs="timeout"} 1
compare_total{domain="edge",ours="ok",reason="",rule="goes",theirs="ok"} 1
compare_total{domain="edge",ours="ok",reason="",rule="stays",theirs="ok"} 1
compare_total{domain="edge",ours="ok",reason="free_denial",rule="goes",theirs="over_limit"} 1
compare_total{domain="edge",ours="ok",reason="free_denial",rule="stays",theirs="over_limit"} 1
`, name)
	m.Meter("edge", "stays")
	m.Loaded()
	c.Compared("edge", "goes", compare.OK, compare.OK, compare.Same)
	expect(t, registry, `
compare_total{domain="",ours="error",reason="",rule="",theirs="timeout"} 1
compare_total{domain="edge",ours="ok",reason="",rule="stays",theirs="ok"} 1
compare_total{domain="edge",ours="ok",reason="free_denial",rule="stays",theirs="over_limit"} 1
`, name)
}
