package main

import (
	"fmt"
	"io"

	"github.com/slidegate/slidegate/bench/internal/figures"
)

func value(s sample) float64 { return s.value }
func extra(s sample) float64 { return s.extra }

// number prints a figure with three digits or so.
func number(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// verdict returns the row's target and whether it is met.
func (r *row) verdict() (target, met string) {
	if r.target == 0 {
		return "", ""
	}
	target, met = fmt.Sprintf("≤ %.2f", r.target), "**no**"
	if figures.Median(figures.Ratios(figures.Column(r.our, value), figures.Column(r.their, value))) <= r.target {
		met = "yes"
	}
	return target, met
}

// String is the row as a line of its table.
func (r *row) String() string {
	line := fmt.Sprintf("| %s | %s |", r.state, number(figures.Median(figures.Column(r.our, value))))
	by := figures.Ratios(figures.Column(r.our, value), figures.Column(r.their, value))
	line += fmt.Sprintf(" %s | %s |", number(figures.Median(figures.Column(r.their, value))), figures.Spread(by, 3))
	if r.waits != nil {
		line += fmt.Sprintf(" %.2f |", figures.Median(figures.Ratios(figures.Column(r.our, value), figures.Column(r.theirWaits, value))))
	} else if r.topic.waits {
		line += "  |"
	}
	if r.topic.extra != "" {
		by := figures.Column(r.our, extra)
		if !r.topic.absolute {
			by = figures.Ratios(by, figures.Column(r.their, extra))
		}
		line += fmt.Sprintf(" %.2f |", figures.Median(by))
	}
	target, met := r.verdict()
	return line + fmt.Sprintf(" %s | %s |", target, met)
}

// writeTables writes the result, a Markdown table for each topic.
func writeTables(w io.Writer, rows []*row) {
	var last *topic
	for _, r := range rows {
		if t := r.topic; t != last {
			last = t
			fmt.Fprintf(w, "\n### %s\n\n%s\n\n", t.title, t.about)
			head := "| " + t.name + " | ours, " + t.unit + " | " + t.base + " | ratio (min–max) |"
			if t.waits {
				head += " with waits |"
			}
			if t.extra != "" {
				head += " " + t.extra + " |"
			}
			figures.Head(w, head+" target | met |")
		}
		fmt.Fprintln(w, r)
	}
}
