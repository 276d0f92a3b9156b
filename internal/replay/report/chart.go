package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/replay"
	"github.com/slidegate/slidegate/internal/words"
)

// The charts are as wide as their place, so a position is a share of the width: in percent, or in
// an SVG of its own that is stretched. Texts and dots are not stretched.

// A timesChart is the requests or the denials over time.
type timesChart struct {
	Name, Top string
	X         []string
	SVG       template.HTML
}

// timesCharts returns the charts of a series, or none if it has no two buckets.
func timesCharts(s *replay.Series) []timesChart {
	n := min(len(s.Requests), len(s.Denied))
	if n < 2 {
		return nil
	}
	length := time.Duration(s.Seconds) * time.Second
	layout := "15:04:05"
	switch {
	case length*time.Duration(n) > 48*time.Hour:
		layout = "2 Jan"
	case length >= time.Minute:
		layout = "15:04"
	}
	var x []string
	for i := range 5 {
		x = append(x, s.From.UTC().Add(time.Duration(i)*time.Duration(n)*length/4).Format(layout))
	}
	per := "per " + words.Duration(length)
	requests := timesChart{Name: "Requests " + per}
	denied := timesChart{Name: "Denied " + per, X: x}
	requests.draw(s, s.Requests[:n], 96, true, "requests")
	if slices.Max(s.Denied[:n]) == 0 {
		requests.X = x
		return []timesChart{requests}
	}
	denied.draw(s, s.Denied[:n], 72, false, "denials")
	return []timesChart{requests, denied}
}

// draw draws counts: as an area, or as columns.
func (c *timesChart) draw(s *replay.Series, counts []uint64, height float64, area bool, noun string) {
	most, at := uint64(0), 0
	for i, n := range counts {
		if n > most {
			most, at = n, i
		}
	}
	c.Top = words.Short(float64(most))
	y := func(n uint64) float64 { return height * (1 - ratio(n, max(most, 1))) }
	bucket := func(i int) string {
		return s.From.UTC().Add(time.Duration(i) * time.Duration(s.Seconds) * time.Second).Format("2 Jan 15:04:05")
	}
	about := fmt.Sprintf("%s. No %s at any time.", c.Name, noun)
	if most > 0 {
		about = fmt.Sprintf("%s. The most are %s, from %s UTC.", c.Name, words.Count(most), bucket(at))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<div role="img" aria-label="%s"><svg viewBox="0 0 %d %g" height="%g" preserveAspectRatio="none" focusable="false">`,
		template.HTMLEscapeString(about), len(counts), height, height)
	fmt.Fprintf(&b, `<path class="grid" d="M0 0H%d"/>`, len(counts))
	if area {
		line := fmt.Sprintf("M0 %s", words.Coordinate(y(counts[0])))
		for i, n := range counts {
			line += fmt.Sprintf("L%s %s", words.Coordinate(float64(i)+0.5), words.Coordinate(y(n)))
		}
		line += fmt.Sprintf("L%d %s", len(counts), words.Coordinate(y(counts[len(counts)-1])))
		fmt.Fprintf(&b, `<path class="area" d="%sV%gH0Z"/><path class="edge" d="%s"/>`, line, height, line)
	}
	for i, n := range counts {
		fmt.Fprintf(&b, `<g><title>%s UTC: %s</title><rect class="hit" x="%d" width="1" height="%g"/>`, bucket(i), words.Counted(n, noun[:len(noun)-1]), i, height)
		if top := math.Min(y(n), height-1.5); !area && n > 0 {
			fmt.Fprintf(&b, `<rect class="column" x="%s" y="%s" width=".8" height="%s"/>`, words.Coordinate(float64(i)+0.1), words.Coordinate(top), words.Coordinate(height-top))
		}
		b.WriteString(`</g>`)
	}
	fmt.Fprintf(&b, `<path class="base" d="M0 %gH%d"/></svg></div>`, height, len(counts))
	c.SVG = template.HTML(b.String()) //nolint:gosec // numbers and words of this package
}

// A curve is the denied shares by limit, on a scale with equal steps for each factor of ten.
type curve struct {
	Y        []string // the labels of the scale, from the top
	SVG      template.HTML
	Smallest []string
	Note     string // what makes the curve inexact
}

const (
	curveHeight = 180.0
	leastDecade = -4 // the scale ends at 10^leastDecade; what is less is drawn there
)

// curveOf returns the curve of the limits of a rule, which has at least two.
func curveOf(one *replay.RuleReport) *curve {
	rows := one.WhatIf.Rows
	c := &curve{Note: caveat(one)}
	most := 0.0
	for i := range rows {
		most = math.Max(most, math.Max(rows[i].DeniedShare, rows[i].LogsShare))
	}
	top := leastDecade + 1
	for top < 0 && most > math.Pow10(top) {
		top++
	}
	for d := top; d > leastDecade; d-- {
		c.Y = append(c.Y, words.Percent(math.Pow10(d)))
	}
	c.Y = append(c.Y, "0 %")
	y := func(share float64) float64 {
		if !(share > math.Pow10(leastDecade)) {
			return curveHeight
		}
		return curveHeight * math.Max(float64(top)-math.Log10(share), 0) / float64(top-leastDecade)
	}
	x := func(i int) float64 { return 2 + 96*float64(i)/float64(len(rows)-1) }
	var b strings.Builder
	fmt.Fprintf(&b, `<div role="img" aria-label="%s"><svg height="%g" focusable="false">`, template.HTMLEscapeString(aboutCurve(one)), curveHeight+24)
	fmt.Fprintf(&b, `<svg viewBox="0 0 100 %g" width="100%%" height="%g" preserveAspectRatio="none">`, curveHeight, curveHeight)
	for d := top; d >= leastDecade; d-- {
		class := "grid"
		if d == leastDecade {
			class = "base"
		}
		fmt.Fprintf(&b, `<path class="%s" d="M0 %sH100"/>`, class, words.Coordinate(curveHeight*float64(top-d)/float64(top-leastDecade)))
	}
	requests, callers := "", ""
	for i, row := range rows {
		command := "L"
		if i == 0 {
			command = "M"
		}
		requests += command + words.Coordinate(x(i)) + " " + words.Coordinate(y(row.DeniedShare))
		callers += command + words.Coordinate(x(i)) + " " + words.Coordinate(y(row.LogsShare))
	}
	fmt.Fprintf(&b, `<path class="line callers" d="%s"/><path class="line" d="%s"/></svg>`, callers, requests)
	labels := labelled(rows)
	for i, row := range rows {
		at := words.Coordinate(x(i)) + "%"
		if row.Current {
			fmt.Fprintf(&b, `<line class="mark" x1="%s" x2="%s" y1="0" y2="%g"/>`, at, at, curveHeight)
		}
		class, bold := "", ""
		if row.Current {
			class, bold = " now", ` class="now"`
		}
		about := fmt.Sprintf("limit %s: %s of requests and %s of callers denied", words.Count(row.Limit), words.Percent(row.DeniedShare), words.Percent(row.LogsShare))
		fmt.Fprintf(&b, `<g><title>%s</title><circle class="hit" cx="%s" cy="%s" r="14"/><circle class="dot%s" cx="%s" cy="%s" r="3.5"/></g>`, about, at, words.Coordinate(y(row.DeniedShare)), class, at, words.Coordinate(y(row.DeniedShare)))
		if labels[i] {
			fmt.Fprintf(&b, `<text%s x="%s" y="%g" text-anchor="middle">%s</text>`, bold, at, curveHeight+18, words.Short(float64(row.Limit)))
		}
	}
	b.WriteString(`</svg></div>`)
	c.SVG = template.HTML(b.String()) //nolint:gosec // numbers and words of this package
	for _, s := range one.WhatIf.Smallest {
		c.Smallest = append(c.Smallest, smallest(s))
	}
	return c
}

// aboutCurve says what a curve shows.
func aboutCurve(one *replay.RuleReport) string {
	rows := one.WhatIf.Rows
	first, last := rows[0], rows[len(rows)-1]
	text := fmt.Sprintf("Share of requests denied by limit: %s with a limit of %s, %s with %s.", words.Percent(first.DeniedShare), words.Count(first.Limit), words.Percent(last.DeniedShare), words.Count(last.Limit))
	for _, row := range rows {
		if row.Current {
			text += fmt.Sprintf(" Now, with %s, it is %s.", words.Count(row.Limit), words.Percent(row.DeniedShare))
		}
	}
	return text
}

// labelled says which limits have a label, so that the labels do not touch.
func labelled(rows []replay.WhatIfRow) []bool {
	const most = 7
	all := make([]bool, len(rows))
	step := (len(rows) + most - 1) / most
	start := 0
	for i, row := range rows {
		if row.Current {
			start = i % step
		}
	}
	for i := start; i < len(rows); i += step {
		all[i] = true
	}
	return all
}
