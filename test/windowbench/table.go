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

func value(s sample) float64 { return s.value }
func extra(s sample) float64 { return s.extra }

// column collects one figure of all samples.
func column(samples []sample, figure func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	return values
}

// ratios divides round by round.
func ratios(ours, base []float64) []float64 {
	r := make([]float64, len(ours))
	for i := range ours {
		r[i] = ours[i] / base[i]
	}
	return r
}

// number prints a figure with three digits or so.
func number(f float64) string {
	switch {
	case f >= 1e6:
		return fmt.Sprintf("%.2f M", f/1e6)
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// verdict says what the row's target is and whether it is met.
func (r *row) verdict() (target, met string) {
	ours := median(column(r.our, value))
	var ok bool
	switch t := r.target; {
	case t.ratio > 0:
		target = fmt.Sprintf("≤ %.2f", t.ratio)
		ok = median(ratios(column(r.our, value), column(r.their, value))) <= t.ratio
	case t.most > 0:
		target = "≤ " + number(t.most)
		ok = ours <= t.most && median(column(r.our, extra)) == 0
	case t.least > 0:
		target = "≥ " + number(t.least)
		ok = ours >= t.least
	default:
		return "", ""
	}
	if ok {
		return target, "yes"
	}
	return target, "**no**"
}

// String is the row as a line of its table.
func (r *row) String() string {
	line := fmt.Sprintf("| %s | %s |", r.scene, number(median(column(r.our, value))))
	if r.base != nil {
		by := ratios(column(r.our, value), column(r.their, value))
		line += fmt.Sprintf(" %s | **%.3f** (%.3f–%.3f) |", number(median(column(r.their, value))), median(by), slices.Min(by), slices.Max(by))
	}
	if r.waits != nil {
		line += fmt.Sprintf(" %.2f |", median(ratios(column(r.our, value), column(r.theirWaits, value))))
	} else if r.topic.waits {
		line += "  |"
	}
	if r.topic.extra != "" {
		by := column(r.our, extra)
		if !r.topic.own {
			by = ratios(by, column(r.their, extra))
		}
		line += fmt.Sprintf(" %.2f |", median(by))
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
			head, line := "| "+t.name+" | ours, "+t.unit+" |", "|---|---|"
			if r.base != nil {
				head, line = head+" "+t.base+" | ratio (min–max) |", line+"---|---|"
			}
			if t.waits {
				head, line = head+" with waits |", line+"---|"
			}
			if t.extra != "" {
				head, line = head+" "+t.extra+" |", line+"---|"
			}
			fmt.Fprintf(w, "\n### %s\n\n%s\n\n%s target | met |\n%s---|---|\n", t.title, t.about, head, line)
		}
		fmt.Fprintln(w, r)
	}
}
