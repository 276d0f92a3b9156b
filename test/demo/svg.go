package main

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"
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

// style draws in the colours of the reader's preference. Admitted and denied
// differ in shape too, for readers who do not see the colours.
const style = `
    text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2328; }
    .card { fill: #ffffff; stroke: #d1d9e0; }
    .title { font-size: 17px; font-weight: 600; }
    .note { fill: #59636e; font-size: 13px; }
    .name { font-weight: 600; }
    .count { font-size: 26px; font-weight: 700; }
    .track { stroke: #d1d9e0; stroke-width: 2; }
    .second { stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 5 4; }
    .admitted { fill: #0969da; stroke: #ffffff; stroke-width: 1.5; }
    .denied { fill: none; stroke: #bc4c00; stroke-width: 2.5; stroke-linecap: round; }
    .over { fill: #bc4c00; }
    .exact { fill: #0969da; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .card { fill: #0d1117; stroke: #3d444d; }
      .note { fill: #9198a1; }
      .track { stroke: #3d444d; }
      .second { stroke: #9198a1; }
      .admitted { fill: #4493f8; stroke: #0d1117; }
      .denied { stroke: #f0883e; }
      .over { fill: #f0883e; }
      .exact { fill: #4493f8; }
    }
  `

// drawing returns the burst as an SVG document.
func drawing(b *burst, how string) string {
	d := new(svg)
	d.linef(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`, width, height, width, height)
	d.linef(`  <title id="title">%s</title>`, escape(fmt.Sprintf("%d requests around a full second, limit %d a second", len(b.requests), limit)))
	d.linef(`  <desc id="desc">%s</desc>`, escape(b.summary()))
	d.linef(`  <style>%s</style>`, style)
	d.linef(`  <rect class="card" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`, width-1, height-1)
	d.text(24, 36, "title", "start", fmt.Sprintf("%d requests around a full second; the limit is %d a second", len(b.requests), limit))
	d.text(24, 58, "note", "start", fmt.Sprintf("%s, within %d ms, at the same moments for both counters", how, b.length().Milliseconds()))

	d.text(middle, laneTop-34, "note", "middle", "a full second")
	d.linef(`  <line class="second" x1="%d" y1="%d" x2="%d" y2="%d"/>`, middle, laneTop-26, middle, axisTop-6)

	d.lane(b, 0, "Fixed window", fixed)
	d.lane(b, 1, "Slidegate", slidegate)
	d.axis(reach(b))
	d.legend()
	d.linef(`</svg>`)
	return d.String()
}

// svg is a document that is being written.
type svg struct{ strings.Builder }

func (d *svg) linef(format string, args ...any) { fmt.Fprintf(&d.Builder, format+"\n", args...) }

func (d *svg) text(x, y int, class, anchor, text string) {
	d.linef(`  <text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`, class, x, y, anchor, escape(text))
}

// lane draws the marks of one counter and how many it admits.
func (d *svg) lane(b *burst, row int, name string, by lane) {
	y := laneTop + row*laneStep
	d.text(24, y+5, "name", "start", name)
	d.linef(`  <line class="track" x1="%d" y1="%d" x2="%d" y2="%d"/>`, plotLeft, y, plotRight, y)
	for _, r := range b.requests {
		d.mark(position(r.offset, reach(b)), y, by(r))
	}
	n, class := b.admitted(by), "exact"
	if n > limit {
		class = "over"
	}
	d.text(plotRight+24, y+4, "count "+class, "start", fmt.Sprint(n))
	d.text(plotRight+24, y+22, "note", "start", "admitted")
}

// mark draws a disc for a request that is admitted and a cross for one that is
// denied.
func (d *svg) mark(x float64, y int, admitted bool) {
	if admitted {
		d.linef(`  <circle class="admitted" cx="%.1f" cy="%d" r="%d"/>`, x, y, radius)
		return
	}
	const arm = radius - 2
	d.linef(`  <path class="denied" d="M%.1f %d l%d %d m0 %d l%d %d"/>`, x-arm, y-arm, 2*arm, 2*arm, -2*arm, -2*arm, 2*arm)
}

// position is where an offset lies on an axis that reaches span to both sides.
func position(offset, span time.Duration) float64 {
	return middle + float64(middle-plotLeft)*float64(offset)/float64(span)
}

func (d *svg) axis(span time.Duration) {
	const tick = 20 * time.Millisecond
	for at := -span; at <= span; at += tick {
		label := "0"
		if at != 0 {
			label = milliseconds(at)
		}
		d.text(int(position(at, span)), axisTop+12, "note", "middle", strings.Replace(label, "-", "−", 1))
	}
}

func (d *svg) legend() {
	const y = height - 24
	d.mark(plotLeft+7, y, true)
	d.text(plotLeft+22, y+5, "note", "start", "admitted")
	d.mark(plotLeft+111, y, false)
	d.text(plotLeft+126, y+5, "note", "start", "denied")
}

// escape makes a text safe between tags and in attributes.
func escape(text string) string {
	var b strings.Builder
	// A strings.Builder never fails.
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}
