package test

import (
	"strings"
	"testing"
)

// TestAlerts compares the alerts for the Prometheus operator with the table of docs/operate.md: each
// expression of one is in the other.
func TestAlerts(t *testing.T) {
	const (
		page = "docs/operate.md"
		rule = "deploy/kubernetes/shared/components/monitoring/prometheusrule.yaml"
	)
	_, section, _ := strings.Cut(read(t, page), "\n| alert | expression | first step |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	documented := make(map[string]bool)
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, " | "); len(cells) == 3 {
			documented[strings.Trim(cells[1], "`")] = true
		}
	}
	delete(documented, "---")
	alerts := make(map[string]bool)
	for line := range strings.Lines(read(t, rule)) {
		if _, expression, ok := strings.Cut(line, " expr: "); ok {
			alerts[strings.TrimSpace(expression)] = true
		}
	}
	if len(documented) == 0 || len(alerts) == 0 {
		t.Fatalf("got %d expressions of %s and %d of %s", len(documented), page, len(alerts), rule)
	}
	for e := range documented {
		if !alerts[e] {
			t.Errorf("%s has no alert %s of %s", rule, e, page)
		}
	}
	for e := range alerts {
		if !documented[e] {
			t.Errorf("%s does not explain the alert %s of %s", page, e, rule)
		}
	}
}
