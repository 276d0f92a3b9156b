package daemon

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/metrics"
)

// TestSampler counts 10,000 rules, and has the rates of the busiest ones.
func TestSampler(t *testing.T) {
	round := 0
	s := newSampler(func(totals *metrics.Totals) {
		*totals = metrics.Totals{Degraded: float64(10 * round)}
		for i := range 1000 {
			totals.Rules = append(totals.Rules, metrics.RuleTotals{Domain: "d", Rule: fmt.Sprint(i), Decisions: float64(round * i), Denials: float64(round)})
		}
	})
	now := time.Unix(1000, 0)
	for range 2 * samplePoints {
		s.sample(now)
		now, round = now.Add(sampleInterval), round+1
	}
	var state insight.State
	s.fill(&state)
	r := state.Rates
	if len(r.Rules) != sampledRules || len(r.Decisions) != samplePoints || len(r.Rules[0].Decisions) != samplePoints {
		t.Fatalf("%d rules, %d points, %d of a rule", len(r.Rules), len(r.Decisions), len(r.Rules[0].Decisions))
	}
	if r.Rules[0].Rule != "999" || last(r.Rules[0].Decisions) != 999.0/5 || math.Round(last(r.Denials)) != 200 || last(r.Degraded) != 2 {
		t.Errorf("rule %s has %v, denials %v, degraded %v", r.Rules[0].Rule, last(r.Rules[0].Decisions), last(r.Denials), last(r.Degraded))
	}
}

// TestHelpExists finds each section of docs/operate.md that a problem names.
func TestHelpExists(t *testing.T) {
	source, err := os.ReadFile("state.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := make(map[string]bool)
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(page), -1) {
		text := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(h[1]), "")
		sections[strings.ReplaceAll(text, " ", "-")] = true
	}
	for _, m := range regexp.MustCompile(`operate\.md#([a-z0-9-]+)`).FindAllStringSubmatch(string(source), -1) {
		if !sections[m[1]] {
			t.Errorf("docs/operate.md has no section #%s", m[1])
		}
	}
}
