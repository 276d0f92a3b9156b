package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/bench/internal/figures"
)

// The drawing, in units of its view box.
const (
	width, height = 760, 296
	plotLeft      = 150 // where the axis begins
	plotRight     = 630 // and where it ends
	middle        = (plotLeft + plotRight) / 2
	laneTop       = 118 // the first lane
	laneStep      = 70
	axisTop       = 232
	radius        = 7
)

// drawing returns the burst as an SVG document.
func drawing(b *burst, how string) string {
	d := svg{figures.NewSVG(width, height,
		fmt.Sprintf("%d requests around a full second, limit %d a second", len(b.requests), limit), b.summary())}
	d.Text(24, 36, "title", "start", fmt.Sprintf("%d requests around a full second; the limit is %d a second", len(b.requests), limit))
	d.Text(24, 58, "note", "start", fmt.Sprintf("%s, within %d ms, at the same moments for both counters", how, b.length().Milliseconds()))

	d.Text(middle, laneTop-34, "note", "middle", "a full second")
	d.Linef(`  <line class="second" x1="%d" y1="%d" x2="%d" y2="%d"/>`, middle, laneTop-26, middle, axisTop-6)

	d.lane(b, 0, "Fixed window", fixed)
	d.lane(b, 1, "Slidegate", slidegate)
	d.axis(reach(b))
	d.legend()
	return d.End()
}

// svg is a picture with marks.
type svg struct{ *figures.SVG }

// lane draws the marks of one counter and how many it admits.
func (d svg) lane(b *burst, row int, name string, by lane) {
	y := laneTop + row*laneStep
	d.Text(24, y+5, "name", "start", name)
	d.Linef(`  <line class="track" x1="%d" y1="%d" x2="%d" y2="%d"/>`, plotLeft, y, plotRight, y)
	for _, r := range b.requests {
		d.mark(position(r.offset, reach(b)), y, by(r))
	}
	n, class := b.admitted(by), "exact"
	if n > limit {
		class = "over"
	}
	d.Text(plotRight+24, y+4, "count "+class, "start", fmt.Sprint(n))
	d.Text(plotRight+24, y+22, "note", "start", "admitted")
}

// mark draws a disc for a request that is admitted and a cross for one that is
// denied.
func (d svg) mark(x float64, y int, admitted bool) {
	if admitted {
		d.Linef(`  <circle class="admitted" cx="%.1f" cy="%d" r="%d"/>`, x, y, radius)
		return
	}
	const arm = radius - 2
	d.Linef(`  <path class="denied" d="M%.1f %d l%d %d m0 %d l%d %d"/>`, x-arm, y-arm, 2*arm, 2*arm, -2*arm, -2*arm, 2*arm)
}

// position is where an offset lies on an axis that reaches span to the left and to the right.
func position(offset, span time.Duration) float64 {
	return middle + float64(middle-plotLeft)*float64(offset)/float64(span)
}

func (d svg) axis(span time.Duration) {
	const tick = 20 * time.Millisecond
	for at := -span; at <= span; at += tick {
		label := "0"
		if at != 0 {
			label = milliseconds(at)
		}
		d.Text(int(position(at, span)), axisTop+12, "note", "middle", strings.Replace(label, "-", "−", 1))
	}
}

func (d svg) legend() {
	const y = height - 24
	d.mark(plotLeft+7, y, true)
	d.Text(plotLeft+22, y+5, "note", "start", "admitted")
	d.mark(plotLeft+111, y, false)
	d.Text(plotLeft+126, y+5, "note", "start", "denied")
}
