package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/slidegate/slidegate/test/figures"
)

func rate(s sample) float64      { return s.rate }
func cpu(s sample) float64       { return s.cpu }
func redisTime(s sample) float64 { return s.redisCPU }

// writeTable writes the result as a Markdown table.
func writeTable(w io.Writer, rows []*row) {
	fmt.Fprintln(w, "| store | answer | descriptors | req/s | bare req/s | ratio (min–max) | CPU µs | bare CPU µs | ratio | Redis CPU µs |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		byRate := figures.Ratios(figures.Column(r.ours, rate), figures.Column(r.bare, rate))
		byCPU := figures.Ratios(figures.Column(r.ours, cpu), figures.Column(r.bare, cpu))
		redis := ""
		if r.store == "redis" {
			redis = fmt.Sprintf("%.1f", 1e6*figures.Median(figures.Column(r.ours, redisTime)))
		}
		fmt.Fprintf(w, "| %s | %s | %d | %.0f | %.0f | **%.2f** (%.2f–%.2f) | %.1f | %.1f | %.2f | %s |\n",
			r.store, r.scenario.name, r.scenario.descriptors,
			figures.Median(figures.Column(r.ours, rate)), figures.Median(figures.Column(r.bare, rate)),
			figures.Median(byRate), slices.Min(byRate), slices.Max(byRate),
			1e6*figures.Median(figures.Column(r.ours, cpu)), 1e6*figures.Median(figures.Column(r.bare, cpu)), figures.Median(byCPU), redis)
	}
}
