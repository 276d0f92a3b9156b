package console

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/text/words"
)

// The charts are SVG without text, because a chart is stretched to the width of its cell.
// Labels are HTML next to them. Colours are classes of the style sheet.

// spark returns a small line of values.
func spark(values []float64, class string) template.HTML {
	const w, h = 96.0, 24.0
	top := slices.Max(append([]float64{0}, values...))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark %s" viewBox="0 0 %g %g" preserveAspectRatio="none" aria-hidden="true" focusable="false">`, class, w, h)
	writeArea(&b, values, top, w, h, "")
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers only
}

// writeArea writes a line through values, and the area below it.
func writeArea(b *strings.Builder, values []float64, top, w, h float64, class string) {
	if len(values) > 1 {
		line := path(values, top, w, h)
		fmt.Fprintf(b, `<path class="area%s" d="%s L%g %g L0 %g Z"/><path class="line%s" d="%s"/>`, class, line, w, h, h, class, line)
	}
}

// path returns the path of a line through values, from the left edge to the right one.
func path(values []float64, top, w, h float64) string {
	const margin = 2 // so that the edges do not cut the line
	var b strings.Builder
	for i, v := range values {
		if i == 0 {
			b.WriteByte('M')
		} else {
			b.WriteString(" L")
		}
		y := h - margin/2
		if top > 0 {
			y = h - margin/2 - (h-margin)*math.Min(math.Max(v, 0)/top, 1)
		}
		b.WriteString(words.Coordinate(w * float64(i) / float64(max(len(values)-1, 1))))
		b.WriteByte(' ')
		b.WriteString(words.Coordinate(y))
	}
	return b.String()
}

// niceTop returns the smallest of 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, … that is not below top.
func niceTop(top float64) float64 {
	if !(top > 0) || math.IsInf(top, 0) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(top)))
	for _, f := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10} {
		if f*unit >= top*0.999999 {
			return f * unit
		}
	}
	return 10 * unit
}

// A chart is the decisions, denials and degraded answers of one process over time.
type chart struct {
	SVG template.HTML
	// Top and Middle are the labels of the upper lines, Start and Half the labels of the instants.
	Top, Middle, Start, Half string
	// Degraded is true if the chart has degraded answers.
	Degraded bool
	// Text describes the chart for those who do not see it.
	Text string
}

// rateChart returns the chart of rates. Points are of one interval in seconds.
func rateChart(decisions, denials, degraded []float64, interval float64) chart {
	const w, h = 600.0, 160.0
	top := niceTop(slices.Max(slices.Concat([]float64{0}, decisions, denials)))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %g %g" preserveAspectRatio="none" aria-hidden="true" focusable="false">`, w, h)
	for _, y := range []float64{0.5, h / 2, h - 0.5} {
		fmt.Fprintf(&b, `<path class="grid" d="M0 %g H%g"/>`, y, w)
	}
	writeArea(&b, decisions, top, w, h, "")
	writeArea(&b, denials, top, w, h, " denied")
	some := slices.ContainsFunc(degraded, func(v float64) bool { return v > 0 })
	if some {
		fmt.Fprintf(&b, `<path class="line degraded" d="%s"/>`, path(degraded, top, w, h))
	}
	n := max(len(decisions), 1)
	for i := range decisions {
		at := words.Seconds(float64(len(decisions)-1-i)*interval) + " ago"
		if i == len(decisions)-1 {
			at = "now"
		}
		text := fmt.Sprintf("%s: %s decisions/s, %s denied/s", at, words.Short(decisions[i]), words.Short(element(denials, i)))
		if d := element(degraded, i); d > 0 {
			text += ", " + words.Short(d) + " degraded/s"
		}
		fmt.Fprintf(&b, `<rect class="hit" x="%s" y="0" width="%s" height="%g"><title>%s</title></rect>`,
			words.Coordinate(w*float64(i)/float64(n)), words.Coordinate(w/float64(n)), h, template.HTMLEscapeString(text))
	}
	b.WriteString(`</svg>`)
	c := chart{SVG: template.HTML(b.String()), Top: words.Short(top), Middle: words.Short(top / 2), Degraded: some} //nolint:gosec // numbers, and text that is escaped
	if span := float64(len(decisions)) * interval; span > 0 {
		c.Start, c.Half = "−"+words.Seconds(span), "−"+words.Seconds(span/2)
		c.Text = fmt.Sprintf("Decisions and denials of the last %s. Now: %s decisions and %s denials a second.",
			words.Seconds(span), words.Short(last(decisions)), words.Short(last(denials)))
	}
	return c
}

func element(values []float64, i int) float64 {
	if i < len(values) {
		return values[i]
	}
	return 0
}

// last returns the newest value, or zero.
func last(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

// usedBar returns the bar of a limit: what is used, and reserved, of the limit.
func usedBar(used, limit, reserved uint64) template.HTML {
	fraction, both := 1.0, 1.0
	if limit > 0 {
		fraction, both = math.Min(float64(used)/float64(limit), 1), math.Min(float64(used+reserved)/float64(limit), 1)
	}
	if reserved == 0 {
		both = 0
	}
	class := "bar"
	switch {
	case used >= limit:
		class += " full"
	case fraction >= 0.8:
		class += " near"
	}
	width := 0.0
	if used > 0 {
		width = math.Max(100*fraction, 0.5)
	}
	return template.HTML(fmt.Sprintf(`<svg class="%s" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false"><rect class="track" width="100" height="8"/><rect class="reserved" width="%s" height="8"/><rect class="fill" width="%s" height="8"/></svg>`, //nolint:gosec // numbers only
		class, words.Coordinate(100*both), words.Coordinate(width)))
}

// partBar returns the bar of one line of a list: as long as its part of the largest.
func partBar(part, most float64) template.HTML {
	width := 0.0
	if most > 0 && part > 0 {
		width = math.Min(math.Max(100*part/most, 1), 100)
	}
	return template.HTML(fmt.Sprintf(`<svg class="part" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false"><rect class="fill" width="%s" height="8"/></svg>`, words.Coordinate(width))) //nolint:gosec // numbers only
}

// timeline returns the hits of a log over its window, the oldest on the left.
func timeline(history []uint64, window float64) template.HTML {
	n := len(history)
	if n == 0 {
		return ""
	}
	part := window / float64(n)
	return columns(history, func(i int) string {
		return fmt.Sprintf("%s to %s ago: %s hits, free in %s", words.Seconds(float64(n-i)*part), words.Seconds(float64(n-i-1)*part), words.Count(history[i]), words.Seconds(float64(i+1)*part))
	})
}

// columns returns a column for each value. text describes one.
func columns(values []uint64, text func(int) string) template.HTML {
	const h = 48.0
	most := slices.Max(values)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="timeline" viewBox="0 0 %d %g" preserveAspectRatio="none" aria-hidden="true" focusable="false"><path class="grid" d="M0 %g H%d"/>`, 10*len(values), h, h-0.5, 10*len(values))
	for i, v := range values {
		height := 0.0
		if v > 0 {
			height = math.Max((h-2)*float64(v)/float64(most), 2)
		}
		fmt.Fprintf(&b, `<g><title>%s</title><rect class="hit" x="%d" y="0" width="10" height="%g"/>`, text(i), 10*i, h)
		if height > 0 {
			fmt.Fprintf(&b, `<rect class="column" x="%d" y="%s" width="8" height="%s"/>`, 10*i+1, words.Coordinate(h-height), words.Coordinate(height))
		}
		b.WriteString(`</g>`)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and units only
}
