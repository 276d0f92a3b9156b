package rates

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

func last(points []float64) float64 { return points[len(points)-1] }

// TestSampler counts 10,000 rules, and has the rates of the busiest ones.
func TestSampler(t *testing.T) {
	round := 0
	s := New(func(totals *metrics.Totals) {
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
	var state glance.State
	s.Fill(&state)
	r := state.Rates
	if len(r.Rules) != sampledRules || len(r.Decisions) != samplePoints || len(r.Rules[0].Decisions) != samplePoints {
		t.Fatalf("%d rules, %d points, %d of a rule", len(r.Rules), len(r.Decisions), len(r.Rules[0].Decisions))
	}
	if r.Rules[0].Rule != "999" || last(r.Rules[0].Decisions) != 999.0/5 || math.Round(last(r.Denials)) != 200 || last(r.Degraded) != 2 {
		t.Errorf("rule %s has %v, denials %v, degraded %v", r.Rules[0].Rule, last(r.Rules[0].Decisions), last(r.Denials), last(r.Degraded))
	}
}
