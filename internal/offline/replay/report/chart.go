package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/text/words"
)

// A timesChart is the requests or the denials over time. It is as wide as its column: its SVG is
// stretched, and has no text.
type timesChart struct {
	Name, About, Top, Noun string
	X                      []string
	Height                 float64
	Columns                []column
}

// A column is one bucket of a chart. Its height is from zero to that of the chart.
type column struct {
	Name      string
	X         float64
	Y, Height float64
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
	c := timesChart{Name: name, Noun: noun, Top: words.Short(float64(most)), Height: height}
	for i, n := range counts {
		at := s.From.UTC().Add(time.Duration(i) * time.Duration(s.Seconds) * time.Second).Format("2 Jan 15:04:05")
		if n == most && c.About == "" {
			c.About = fmt.Sprintf("%s. The most are %s, from %s UTC.", name, words.Count(most), at)
		}
		one := column{Name: at + " UTC: " + words.Counted(n, noun), X: float64(i)}
		if n > 0 {
			one.Height = max(height*ratio(n, most), 1.5)
			one.Y = height - one.Height
		}
		c.Columns = append(c.Columns, one)
	}
	return c
}
