package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/slidegate/slidegate/bench/internal/figures"
)

const (
	slowTarget    = 20 * time.Millisecond
	recoverTarget = time.Second
)

// quantiles of some durations.
type quantiles struct {
	count                   int
	p50, p99, p999, slowest time.Duration
}

// quantilesOf takes the answers that were under way in a span.
func quantilesOf(answers [][]answer, s span) quantiles {
	var took []time.Duration
	for _, calls := range answers {
		for i := range calls {
			if a := &calls[i]; a.during(s.from, s.to) {
				took = append(took, a.took())
			}
		}
	}
	if len(took) == 0 {
		return quantiles{}
	}
	slices.Sort(took)
	// The smallest that is not exceeded by more than that fraction.
	at := func(perMille int) time.Duration { return took[(len(took)*perMille+999)/1000-1] }
	return quantiles{len(took), at(500), at(990), at(999), took[len(took)-1]}
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func met(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}

// writeTables writes the results as Markdown: the times of answers, and the charges.
func writeTables(w io.Writer, results []*result) {
	figures.Head(w, "| fault | answers | p50 ms | p99 ms | p99.9 ms | ≤ 20 | slowest ms | no store: p99.9, slowest ms | gRPC errors | degraded | not asked after ms | exact again after ms | ≤ 1000 |")
	for _, r := range results {
		q := quantilesOf(r.answers, r.met())
		c := quantilesOf(r.control, r.met())
		noticed := "–"
		if r.noticed >= 0 {
			noticed = fmt.Sprint(r.noticed.Milliseconds())
		}
		again, known := r.recovered()
		after := fmt.Sprint(again.Milliseconds())
		if !known {
			after = fmt.Sprintf("not within %d", r.end.Sub(r.fault.to).Milliseconds())
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s | %s, %s | %d | %d | %s | %s | %s |\n",
			r.name, q.count, millis(q.p50), millis(q.p99), millis(q.p999), met(q.p999 <= slowTarget), millis(q.slowest),
			millis(c.p999), millis(c.slowest), r.errors, r.degraded, noticed, after, met(known && again <= recoverTarget))
	}

	fmt.Fprintln(w)
	figures.Head(w, "| fault | charged, by the answers | charged, by Redis | lost | missing | ghosts in flight | before it was noticed | beyond | strays | late | double | goroutines | heap MB | resident MB |")
	for _, r := range results {
		l := r.ledger
		lost := "–"
		if !r.lostBefore.IsZero() {
			lost = fmt.Sprint(l.lost)
		}
		fmt.Fprintf(w, "| %s | %d | %d | %s | %d | %d | %d | %d | %d | %d | %d | %.0f → %.0f | %.1f → %.1f | %.0f → %.0f |\n",
			r.name, l.exact, l.charges, lost, l.missing, l.atFault, l.unnoticed, l.beyond, l.strays, l.late, l.double,
			r.before.Goroutines, r.after.Goroutines, r.before.Heap/1e6, r.after.Heap/1e6, r.before.Resident/1e6, r.after.Resident/1e6)
	}
	fmt.Fprintln(w)
}
