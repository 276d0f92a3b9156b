package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/text/words"
)

// A timesChart is the requests or the denials over time. It is as wide as its column: its SVG is
// stretched, and has no text.
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
	per := " per " + words.Duration(length)
	charts := []timesChart{columns(s, s.Requests[:n], 96, "Requests"+per, "request")}
	if slices.Max(s.Denied[:n]) > 0 {
		charts = append(charts, columns(s, s.Denied[:n], 72, "Denied"+per, "denial"))
	}
	charts[len(charts)-1].X = x
	return charts
}

// columns draws counts. noun is what is counted, and the class of the columns.
func columns(s *replay.Series, counts []uint64, height float64, name, noun string) timesChart {
	most := slices.Max(counts)
	bucket := func(i int) string {
		return s.From.UTC().Add(time.Duration(i) * time.Duration(s.Seconds) * time.Second).Format("2 Jan 15:04:05")
	}
	about := fmt.Sprintf("%s. The most are %s, from %s UTC.", name, words.Count(most), bucket(slices.Index(counts, most)))
	var b strings.Builder
	fmt.Fprintf(&b, `<div role="img" aria-label="%s"><svg viewBox="0 0 %d %g" height="%[3]g" preserveAspectRatio="none" focusable="false">`, template.HTMLEscapeString(about), len(counts), height)
	fmt.Fprintf(&b, `<path class="grid" d="M0 0H%d"/>`, len(counts))
	for i, n := range counts {
		fmt.Fprintf(&b, `<g><title>%s UTC: %s</title><rect class="hit" x="%d" width="1" height="%g"/>`, bucket(i), words.Counted(n, noun), i, height)
		if top := math.Min(height*(1-ratio(n, most)), height-1.5); n > 0 {
			fmt.Fprintf(&b, `<rect class="column %s" x="%s" y="%s" width=".8" height="%s"/>`, noun, words.Coordinate(float64(i)+0.1), words.Coordinate(top), words.Coordinate(height-top))
		}
		b.WriteString(`</g>`)
	}
	fmt.Fprintf(&b, `<path class="base" d="M0 %gH%d"/></svg></div>`, height, len(counts))
	return timesChart{Name: name, Top: words.Short(float64(most)), SVG: template.HTML(b.String())} //nolint:gosec // numbers and words of this package
}
