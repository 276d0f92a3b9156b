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

	"github.com/slidegate/slidegate/internal/replay"
	"github.com/slidegate/slidegate/internal/safetext"
	"github.com/slidegate/slidegate/internal/terminal"
	"github.com/slidegate/slidegate/internal/words"
)

//go:embed report.css
var style string

//go:embed report.html
var markup string

// maxOpen bounds the rules whose details are open at first: those that denied most.
const maxOpen = 6

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"count": words.Count, "counted": words.Counted, "share": share, "percent": words.Percent, "when": when, "text": shown, "tied": tied, "named": withBars,
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
	Bars        []barred[replay.RuleReport]
	Rules       []ruleView
}

// A barred is a row with a bar.
type barred[T any] struct {
	Of  T
	Bar template.HTML
}

// A ruleView is what other limits of a rule would have done.
type ruleView struct {
	*replay.RuleReport
	Name  string // without characters that cannot be seen
	Open  bool
	Curve *curve
	Peaks []peakView
}

// A peakView is a line of the peaks.
type peakView struct {
	Name, Share, Used string
	Bar               template.HTML
}

// WriteHTML writes a report as one HTML file, which needs no other file and no script.
func WriteHTML(w io.Writer, r *replay.Report) error {
	sum := sha256.Sum256([]byte(style))
	v := view{
		R: r, Style: template.CSS(style), Title: title(r), Lead: lead(r), Period: period(r), Misleading: misleading(r), Notes: notes(r), Late: late(r), //nolint:gosec // the style sheet of this package
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'",
		Times:  timesCharts(&r.Times),
	}
	most := uint64(0)
	for i := range r.Rules {
		most = max(most, r.Rules[i].Denied)
	}
	for i := range r.Rules {
		one := &r.Rules[i]
		class := "denied"
		if one.Observed {
			class = "watch"
		}
		v.Bars = append(v.Bars, barred[replay.RuleReport]{*one, bar(ratio(one.Denied, most), class)})
		if one.Requests > 0 && (one.WhatIf != nil || len(one.Peaks) > 0) {
			v.Rules = append(v.Rules, viewOf(one))
		}
	}
	slices.SortStableFunc(v.Rules, func(a, b ruleView) int { return cmp.Compare(b.Denied, a.Denied) })
	for i := range v.Rules[:min(len(v.Rules), maxOpen)] {
		v.Rules[i].Open = true
	}
	if err := page.Execute(w, &v); err != nil {
		return fmt.Errorf("writing the report as HTML: %w", err)
	}
	return nil
}

func viewOf(one *replay.RuleReport) ruleView {
	v := ruleView{RuleReport: one, Name: terminal.Fit(safetext.Text(ofRule(one.Rule, one.Tier)), 80)}
	if one.WhatIf != nil && len(one.WhatIf.Rows) > 1 {
		v.Curve = curveOf(one)
	}
	for _, p := range one.Peaks {
		class := ""
		switch {
		case p.Share >= 1:
			class = "denied"
		case p.Share >= 0.9:
			class = "near"
		}
		v.Peaks = append(v.Peaks, peakView{Name: percentile(p.Percentile), Share: words.Percent(p.Share), Used: words.Count(p.Used), Bar: bar(p.Share, class)})
	}
	return v
}

// A callerTable is a list of callers with bars of their denials.
type callerTable struct {
	Name string
	All  []barred[replay.DeniedSubject]
}

func withBars(all []replay.DeniedSubject, name string) callerTable {
	most := uint64(0)
	for i := range all {
		most = max(most, all[i].Denied)
	}
	class := "denied"
	if name == "Freed" {
		class = "freed"
	}
	t := callerTable{Name: name}
	for i := range all {
		t.All = append(t.All, barred[replay.DeniedSubject]{all[i], bar(ratio(all[i].Denied, most), class)})
	}
	return t
}

// lead says what belongs to the title.
func lead(r *replay.Report) string {
	all := deniedMost(r)
	switch {
	case r.Requests == 0:
		return "The logs have no request that could be decided."
	case r.Denied == 0 || len(all) == 0 || all[0].Observed:
		return words.Counted(r.Requests, "request") + " of the logs were decided."
	}
	one := all[0]
	return safetext.Text(fmt.Sprintf("%s of %s. Most denials are of the rule %s: it denied %s of %s at least once.", words.Count(r.Denied), words.Counted(r.Requests, "request"),
		terminal.Fit(ofRule(one.Rule, one.Tier), 80), words.Count(one.DeniedLogs), words.Counted(one.Logs, "caller")))
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

// bar returns a bar of a share from 0 to 1. The number stands beside it.
func bar(share float64, class string) template.HTML {
	width := 0.0
	if share > 0 {
		width = math.Min(math.Max(100*share, 1), 100)
	}
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 100 8" height="8" preserveAspectRatio="none" aria-hidden="true" focusable="false"><rect class="track" width="100" height="8"/><rect class="fill %s" width="%s" height="8"/></svg>`, class, words.Coordinate(width))) //nolint:gosec // numbers, and a class of this package
}
