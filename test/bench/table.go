package main

import (
	"fmt"
	"io"
	"slices"
)

// median returns the middle of values, which is not empty.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// column collects one figure of all samples.
func column(samples []sample, figure func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	return values
}

// ratios divides figure by figure: both lists are in the order of the rounds.
func ratios(ours, bare []float64) []float64 {
	r := make([]float64, len(ours))
	for i := range ours {
		r[i] = ours[i] / bare[i]
	}
	return r
}

func rate(s sample) float64      { return s.rate }
func cpu(s sample) float64       { return s.cpu }
func redisTime(s sample) float64 { return s.redisCPU }

// writeTable writes the result as a Markdown table.
func writeTable(w io.Writer, rows []*row) {
	fmt.Fprintln(w, "| store | answer | descriptors | req/s | bare req/s | ratio (min–max) | CPU µs | bare CPU µs | ratio | Redis CPU µs |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		byRate := ratios(column(r.ours, rate), column(r.bare, rate))
		byCPU := ratios(column(r.ours, cpu), column(r.bare, cpu))
		redis := ""
		if r.store == "redis" {
			redis = fmt.Sprintf("%.1f", 1e6*median(column(r.ours, redisTime)))
		}
		fmt.Fprintf(w, "| %s | %s | %d | %.0f | %.0f | **%.2f** (%.2f–%.2f) | %.1f | %.1f | %.2f | %s |\n",
			r.store, r.scenario.name, r.scenario.descriptors,
			median(column(r.ours, rate)), median(column(r.bare, rate)),
			median(byRate), slices.Min(byRate), slices.Max(byRate),
			1e6*median(column(r.ours, cpu)), 1e6*median(column(r.bare, cpu)), median(byCPU), redis)
	}
}
