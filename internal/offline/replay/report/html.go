package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
)

//go:embed report.css
var style string

//go:embed report.html
var markup string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"count": words.Count, "counted": words.Counted, "percentage": percentage, "ratio": ratio, "percent": words.Percent, "when": when, "text": shown, "tied": tied,
	"bar": bar, "named": ruleName, "callers": callersOf, "smallest": smallest,
}).Parse(markup))

// A view is what the page shows.
type view struct {
	R           *replay.Report
	Policy      string
	Style       template.CSS
	Title, Lead string
	Period      string
	Misleading  []string
	Notes       []string
	Late        string
	Times       []timesChart
	Rules       []*replay.RuleReport // with details, those that denied most first
}

// WriteHTML writes a report as one HTML file, which needs no other file and no script.
func WriteHTML(w io.Writer, r *replay.Report) error {
	sum := sha256.Sum256([]byte(style))
	v := view{
		R: r, Style: template.CSS(style), Title: title(r), Lead: lead(r), Period: period(r), Misleading: misleading(r), Notes: notes(r), Late: late(r), //nolint:gosec // the style sheet of this package
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'",
		Times:  timesCharts(&r.Times),
	}
	for i := range r.Rules {
		if one := &r.Rules[i]; one.Requests > 0 && one.WhatIf != nil {
			v.Rules = append(v.Rules, one)
		}
	}
	slices.SortStableFunc(v.Rules, func(a, b *replay.RuleReport) int { return cmp.Compare(b.Denied, a.Denied) })
	if err := page.Execute(w, &v); err != nil {
		return fmt.Errorf("writing the report as HTML: %w", err)
	}
	return nil
}

// ruleName returns the name of a rule with its tier, without characters that cannot be seen.
func ruleName(one *replay.RuleReport) string {
	return terminal.Fit(safetext.Text(ofRule(one.Rule, one.Tier)), 80)
}

// callers are a table of callers, whose bars have a class.
type callers struct {
	All         []replay.DeniedSubject // the one that was denied most first
	Name, Class string
}

func callersOf(all []replay.DeniedSubject, name, class string) callers {
	return callers{All: all, Name: name, Class: class}
}

// lead says what belongs to the title.
func lead(r *replay.Report) string {
	if r.Requests == 0 {
		return "The logs have no request that could be decided."
	}
	return words.Counted(r.Requests, "request") + " of the logs were decided."
}

// shown returns an element with a text from anywhere, in which every character can be seen.
func shown(text string, most int) template.HTML {
	plain := safetext.Text(text)
	cut := terminal.Fit(plain, most)
	title := ""
	if cut != plain {
		title = ` title="` + template.HTMLEscapeString(terminal.Fit(plain, 1000)) + `"`
	}
	return template.HTML("<bdi" + title + ">" + template.HTMLEscapeString(cut) + "</bdi>") //nolint:gosec // escaped here
}

// tied returns a sentence in which no line begins with a percent sign.
func tied(sentence string) template.HTML {
	return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(sentence), " %", "&nbsp;%")) //nolint:gosec // escaped here
}

// bar returns a bar of a fraction from 0 to 1. The number follows it.
func bar(fraction float64, class string) template.HTML {
	width := 0.0
	if fraction > 0 {
		width = math.Min(math.Max(100*fraction, 1), 100)
	}
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 100 8" height="8" preserveAspectRatio="none" aria-hidden="true" focusable="false"><rect class="track" width="100" height="8"/><rect class="fill %s" width="%s" height="8"/></svg>`, class, words.Coordinate(width))) //nolint:gosec // numbers, and a class of this package
}
