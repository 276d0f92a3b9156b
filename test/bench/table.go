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

// write writes a comparison as a Markdown table.
func (m *measured) write(w io.Writer) {
	fmt.Fprintf(w, "| %s | answer | descriptors | req/s | %[2]s req/s | ratio (min–max) | CPU µs | %[2]s CPU µs | ratio | Redis CPU µs |\n", m.what, m.base)
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range m.rows {
		byRate := figures.Ratios(figures.Column(r.ours, rate), figures.Column(r.base, rate))
		byCPU := figures.Ratios(figures.Column(r.ours, cpu), figures.Column(r.base, cpu))
		redis := ""
		if r.service == onRedis {
			redis = fmt.Sprintf("%.1f", 1e6*figures.Median(figures.Column(r.ours, redisTime)))
		}
		fmt.Fprintf(w, "| %s | %s | %d | %.0f | %.0f | **%.2f** (%.2f–%.2f) | %.1f | %.1f | %.2f | %s |\n",
			r.service, r.scenario.name, r.scenario.descriptors,
			figures.Median(figures.Column(r.ours, rate)), figures.Median(figures.Column(r.base, rate)),
			figures.Median(byRate), slices.Min(byRate), slices.Max(byRate),
			1e6*figures.Median(figures.Column(r.ours, cpu)), 1e6*figures.Median(figures.Column(r.base, cpu)), figures.Median(byCPU), redis)
	}
	fmt.Fprintln(w)
}
