package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/slidegate/slidegate/bench/internal/figures"
)

func rate(s sample) float64      { return s.rate }
func cpu(s sample) float64       { return s.cpu }
func redisTime(s sample) float64 { return s.redisCPU }
func allocs(s sample) float64    { return s.allocs }

// write writes a comparison as a Markdown table.
func (m *measured) write(w io.Writer) {
	header := fmt.Sprintf("| %s | answer | descriptors | req/s | %[2]s req/s | ratio (min–max) | CPU µs | %[2]s CPU µs | ratio |", m.what, m.base)
	if m.second != "" {
		header += fmt.Sprintf(" ratio to %s (min–max) | of CPU | allocs | %s allocs |", m.second, m.base)
	}
	withRedis := slices.ContainsFunc(m.services, hasRedis)
	if withRedis {
		header += " Redis CPU µs |"
	}
	figures.Head(w, header)
	for _, r := range m.rows {
		fmt.Fprintf(w, "| %s | %s | %d | %.0f | %.0f | %s | %.1f | %.1f | %.2f |",
			r.service, r.scenario.name, r.scenario.descriptors,
			median(r.ours, rate), median(r.base, rate), ratio(r.ours, r.base, rate),
			1e6*median(r.ours, cpu), 1e6*median(r.base, cpu), figures.Median(ratios(r.ours, r.base, cpu)))
		if m.second != "" {
			if r.service == m.second || len(r.second) == 0 {
				fmt.Fprint(w, "  |  |")
			} else {
				fmt.Fprintf(w, " %s | %.2f |", ratio(r.ours, r.second, rate), figures.Median(ratios(r.ours, r.second, cpu)))
			}
			fmt.Fprintf(w, " %.1f | %.1f |", median(r.ours, allocs), median(r.base, allocs))
		}
		switch {
		case hasRedis(r.service):
			fmt.Fprintf(w, " %.1f |", 1e6*median(r.ours, redisTime))
		case withRedis:
			fmt.Fprint(w, "  |")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

func median(samples []sample, figure func(sample) float64) float64 {
	return figures.Median(figures.Column(samples, figure))
}

// ratios are those of one figure, round by round.
func ratios(ours, base []sample, figure func(sample) float64) []float64 {
	return figures.Ratios(figures.Column(ours, figure), figures.Column(base, figure))
}

// ratio writes the median of the ratios, with the smallest and the largest.
func ratio(ours, base []sample, figure func(sample) float64) string {
	return figures.Spread(ratios(ours, base, figure), 2)
}
