package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/test/figures"
)

func rate(s sample) float64      { return s.rate }
func cpu(s sample) float64       { return s.cpu }
func redisTime(s sample) float64 { return s.redisCPU }

// write writes a comparison as a Markdown table.
func (m *measured) write(w io.Writer) {
	header := fmt.Sprintf("| %s | answer | descriptors | req/s | %[2]s req/s | ratio (min–max) | CPU µs | %[2]s CPU µs | ratio |", m.what, m.base)
	withRedis := slices.Contains(m.services, onRedis)
	if withRedis {
		header += " Redis CPU µs |"
	}
	fmt.Fprintf(w, "%s\n%s|\n", header, strings.Repeat("|---", strings.Count(header, "|")-1))
	for _, r := range m.rows {
		byRate := figures.Ratios(figures.Column(r.ours, rate), figures.Column(r.base, rate))
		byCPU := figures.Ratios(figures.Column(r.ours, cpu), figures.Column(r.base, cpu))
		fmt.Fprintf(w, "| %s | %s | %d | %.0f | %.0f | **%.2f** (%.2f–%.2f) | %.1f | %.1f | %.2f |",
			r.service, r.scenario.name, r.scenario.descriptors,
			figures.Median(figures.Column(r.ours, rate)), figures.Median(figures.Column(r.base, rate)),
			figures.Median(byRate), slices.Min(byRate), slices.Max(byRate),
			1e6*figures.Median(figures.Column(r.ours, cpu)), 1e6*figures.Median(figures.Column(r.base, cpu)), figures.Median(byCPU))
		switch {
		case r.service == onRedis:
			fmt.Fprintf(w, " %.1f |", 1e6*figures.Median(figures.Column(r.ours, redisTime)))
		case withRedis:
			fmt.Fprint(w, "  |")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}
