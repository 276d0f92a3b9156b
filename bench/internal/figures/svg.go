package figures

import (
	"encoding/xml"
	"fmt"
	"strings"
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

// An SVG is a picture that is being written. NewSVG makes one.
type SVG struct{ text strings.Builder }

// NewSVG begins a picture with its title, its description and a card as its ground. Sizes and
// positions are in units of the picture.
func NewSVG(width, height int, title, desc string) *SVG {
	d := new(SVG)
	d.Linef(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc">`, width, height)
	d.Linef(`  <title id="title">%s</title>`, escape(title))
	d.Linef(`  <desc id="desc">%s</desc>`, escape(desc))
	d.Linef(`  <style>%s</style>`, style)
	d.Linef(`  <rect class="card" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`, width-1, height-1)
	return d
}

// Linef writes a line of the document as it is.
func (d *SVG) Linef(format string, args ...any) { fmt.Fprintf(&d.text, format+"\n", args...) }

// Text writes a text. anchor is start, middle or end.
func (d *SVG) Text(x, y int, class, anchor, text string) {
	d.Linef(`  <text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`, class, x, y, anchor, escape(text))
}

// End ends the picture and returns it as a document.
func (d *SVG) End() string {
	d.Linef(`</svg>`)
	return d.text.String()
}

// escape makes a text safe between tags and in attributes.
func escape(text string) string {
	var b strings.Builder
	// A strings.Builder never fails.
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}
