package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
)

// mostTables bounds the what-if tables of the text. HTML and JSON have all.
const mostTables = 8

// WriteText writes a report for a terminal with a number of columns, or [terminal.Unbounded].
func WriteText(w io.Writer, r *replay.Report, width int, colours terminal.Colours) error {
	t := &text{width: width, Colours: colours}
	for _, m := range misleading(r) {
		t.line("", "Misleading: "+m, t.Red)
	}
	t.totals(r)
	for _, note := range notes(r) {
		t.WriteByte('\n')
		t.line("", note, t.Yellow)
	}
	t.rules(r)
	t.subjects("WHO WAS DENIED MOST", r.Subjects)
	t.whatIfs(r)
	t.against(r)
	t.limitations(r)
	_, err := io.WriteString(w, t.String())
	return err
}

// text is a text for a terminal.
type text struct {
	strings.Builder
	terminal.Colours
	width int
}

// line writes a line, wrapped at words and indented.
func (t *text) line(indent, s string, paint func(string) string) {
	if paint == nil {
		paint = func(s string) string { return s }
	}
	for line := range strings.SplitSeq(terminal.Wrap(safetext.Text(s), max(t.width-len(indent), 0)), "\n") {
		if t.width != terminal.Unbounded {
			line = terminal.Fit(line, t.width-len(indent))
		}
		fmt.Fprintln(t, indent+paint(line))
	}
}

// title begins a section.
func (t *text) title(s string) {
	t.WriteByte('\n')
	t.line("", s, t.Bold)
}

func (t *text) table(columns ...terminal.Column) *terminal.Table {
	return &terminal.Table{Width: t.width, Paint: t.Colours, Columns: columns}
}

func (t *text) totals(r *replay.Report) {
	if r.Requests == 0 {
		t.line("", lead(r), t.Yellow)
		return
	}
	t.line("", title(r), t.Bold)
	t.line("", words.Counted(r.Requests, "request")+", "+period(r), nil)
	t.WriteByte('\n')
	out := t.table(terminal.Column{}, terminal.Column{Right: true}, terminal.Column{Right: true})
	row := func(name string, n uint64, paint func(string) string) {
		out.Add(terminal.Cell{Text: name}, terminal.Cell{Text: words.Count(n), Paint: paint}, terminal.Cell{Text: percentage(n, r.Requests), Paint: paint})
	}
	row("allowed", r.Allowed, t.Green)
	paint := t.Red
	if r.Denied == 0 {
		paint = nil
	}
	row("denied", r.Denied, paint)
	if r.Unlimited > 0 {
		row("allowed without a limit", r.Unlimited, nil)
	}
	if r.NoQuestion > 0 {
		row("without a descriptor", r.NoQuestion, nil)
	}
	for i := range out.Rows {
		out.WriteRow(t, out.Widths(), out.Rows[i])
	}
	if r.Denied > 0 && len(r.Times.Denied) > 1 {
		columns := len(r.Times.Denied)
		if t.width != terminal.Unbounded {
			columns = min(columns, max(t.width-len("denied  "), 1))
		}
		fmt.Fprintf(t, "\ndenied  %s\n", t.Red(terminal.Spark(r.Times.Denied)(columns)))
	}
}

func (t *text) rules(r *replay.Report) {
	if len(r.Rules) == 0 {
		return
	}
	t.title("BY RULE AND TIER")
	out := t.table(
		terminal.Column{Title: "RULE", Least: 8}, terminal.Column{Title: "TIER", Least: 4, Sparse: true}, terminal.Column{Title: "LIMIT", Least: 10},
		terminal.Column{Title: "REQUESTS", Right: true}, terminal.Column{Title: "DENIED", Right: true}, terminal.Column{Title: "SHARE", Right: true},
		terminal.Column{Title: "NEAR", Right: true, Drop: 3}, terminal.Column{Title: "CALLERS", Right: true, Drop: 2}, terminal.Column{Title: "DENIED", Right: true, Drop: 1},
		terminal.Column{Title: "LOCATION", Drop: 9, First: true},
	)
	for i := range r.Rules {
		one := &r.Rules[i]
		paint := t.Red
		switch {
		case one.Denied == 0:
			paint = nil
		case one.Observed:
			paint = t.Yellow
		}
		out.Add(terminal.Text(one.Rule), terminal.Text(one.Tier), terminal.Text(one.Limit), terminal.Text(words.Count(one.Requests)),
			terminal.Cell{Text: words.Count(one.Denied), Paint: paint}, terminal.Cell{Text: percentage(one.Denied, one.Requests), Paint: paint},
			terminal.Text(words.Count(one.Near)), terminal.Text(words.Count(one.Logs)), terminal.Text(words.Count(one.DeniedLogs)), terminal.Text(one.Location))
		switch {
		case one.Requests == 0:
			out.Note("no request met it")
		case one.Override:
			out.Note("limits of subjects or requests, in place of those of the rule")
		case one.Observed:
			out.Note("only observed: its denials were allowed")
		}
	}
	out.Write(t)
	t.WriteByte('\n')
	t.line("", "NEAR counts requests that left at most a tenth of the limit. The second DENIED counts callers that were denied at least once.", nil)
}

// when writes an instant of a table.
func when(at time.Time) string { return at.UTC().Format("01-02 15:04:05") }

func (t *text) subjects(title string, all []replay.DeniedSubject) {
	if len(all) == 0 {
		return
	}
	t.title(title)
	out := t.table(
		terminal.Column{Title: "WHO", Least: 28}, terminal.Column{Title: "RULE", Least: 12}, terminal.Column{Title: "TIER", Least: 4, Drop: 2, Sparse: true},
		terminal.Column{Title: "DENIED", Right: true}, terminal.Column{Title: "FIRST"}, terminal.Column{Title: "LAST", Drop: 1}, terminal.Column{Title: "SECONDS", Right: true, Drop: 3},
	)
	inexact := false
	for i := range all {
		s := &all[i]
		denied := words.Count(s.Denied)
		if s.Error > 0 {
			denied, inexact = "≤"+denied, true
		}
		out.Add(terminal.Text(s.Subject), terminal.Text(s.Rule), terminal.Text(s.Tier), terminal.Cell{Text: denied, Paint: t.Red},
			terminal.Text(when(s.First)), terminal.Text(when(s.Last)), terminal.Text(words.Count(s.Seconds)))
	}
	out.Write(t)
	t.WriteByte('\n')
	more := ""
	if inexact {
		more = " A count with ≤ may be too high."
	}
	t.line("", "Times are in UTC. SECONDS counts the seconds with a denial."+more, nil)
}

func (t *text) whatIfs(r *replay.Report) {
	var all []*replay.RuleReport
	for i := range r.Rules {
		if r.Rules[i].WhatIf != nil && len(r.Rules[i].WhatIf.Rows) > 0 {
			all = append(all, &r.Rules[i])
		}
	}
	if len(all) == 0 {
		return
	}
	t.title("WHAT IF THE LIMIT WERE ANOTHER")
	slices.SortStableFunc(all, func(a, b *replay.RuleReport) int { return cmp.Compare(b.Denied, a.Denied) })
	for _, one := range all[:min(len(all), mostTables)] {
		t.whatIf(one)
	}
	if n := len(all) - mostTables; n > 0 {
		t.line("", fmt.Sprintf("%s more: --html and --json have them.", words.Counted(uint64(n), "table")), nil)
	}
}

func (t *text) whatIf(one *replay.RuleReport) {
	t.WriteByte('\n')
	t.line("", ofRule(one.Rule, one.Tier)+": now "+one.Limit, nil)
	out := t.table(
		terminal.Column{}, terminal.Column{Title: "LIMIT", Right: true}, terminal.Column{Title: "DENIED", Right: true}, terminal.Column{Title: "SHARE", Right: true},
		terminal.Column{Title: "", Want: 16, Least: 4, Drop: 2}, terminal.Column{Title: "CALLERS", Right: true}, terminal.Column{Title: "SHARE", Right: true, Drop: 1},
	)
	for i, row := range one.WhatIf.Rows {
		if !informative(one.WhatIf.Rows, i) {
			continue
		}
		mark, paint := "", func(s string) string { return s }
		if row.Current {
			mark, paint = "now", t.Bold
		}
		out.Add(terminal.Cell{Text: mark, Paint: paint}, terminal.Cell{Text: words.Count(row.Limit), Paint: paint}, terminal.Cell{Text: words.Count(row.Denied), Paint: paint},
			terminal.Cell{Text: words.Percent(row.DeniedFraction), Paint: paint}, terminal.Cell{Draw: terminal.Bar(row.DeniedFraction)},
			terminal.Cell{Text: words.Count(row.DeniedLogs), Paint: paint}, terminal.Cell{Text: words.Percent(row.LogsFraction), Paint: paint})
	}
	out.Write(t)
	for _, s := range one.WhatIf.Smallest {
		t.line(terminal.Gap, smallest(s), nil)
	}
}

func (t *text) against(r *replay.Report) {
	a := r.Against
	if a == nil {
		return
	}
	t.title("COMPARED WITH THE RULES OF NOW")
	t.line("", fmt.Sprintf("now %s denied (%s), then %s (%s)", words.Count(a.Denied), percentage(a.Denied, a.Allowed+a.Denied), words.Count(r.Denied), percentage(r.Denied, r.Requests)), nil)
	paint := t.Red
	if a.NewlyDenied == 0 {
		paint = nil
	}
	t.line("", words.Counted(a.NewlyDenied, "request")+" newly denied", paint)
	t.line("", words.Counted(a.Freed, "request")+" freed", t.Green)
	t.subjects("NEWLY DENIED", a.NewlyDeniedTop)
	t.subjects("FREED", a.FreedTop)
}

// limitations writes what the log does not report, and what was wrong with it.
func (t *text) limitations(r *replay.Report) {
	if len(r.Unreported) > 0 {
		t.title("WHAT THE LOG DOES NOT SAY")
		for _, u := range r.Unreported {
			what := u.Location
			if u.Attribute != "" {
				what = u.Attribute.String() + ", which " + u.Location + " needs"
			}
			t.line("", fmt.Sprintf("%s (%s)", what, words.Counted(u.Requests, "request")), t.Yellow)
			t.line(terminal.Gap, u.Effect, nil)
		}
	}
	if l := &r.Logs; l.Broken > 0 {
		t.title("UNREADABLE LINES")
		t.line("", fmt.Sprintf("%s of %s could not be read:", words.Count(l.Broken), words.Counted(l.Lines, "line")), t.Yellow)
		for _, e := range l.Faults {
			t.line(terminal.Gap, fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason), nil)
		}
	}
	if s := late(r); s != "" {
		t.title("LATE REQUESTS")
		t.line("", s, t.Yellow)
	}
}
