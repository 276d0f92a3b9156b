package diff

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// maxLines bounds what each part of the text lists. The JSON has all.
const maxLines = 50

// lines writes a report as indented lines.
type lines struct {
	io.Writer
	paint terminal.Colours
}

// WriteText writes the report for people. The first line says which sets it compares, and the verdict.
func (r *Report) WriteText(w io.Writer, paint terminal.Colours) {
	l := &lines{w, paint}
	l.add(0, r.Old.Path+" → "+r.New.Path+": "+r.Title(), "")
	if r.Incomplete != "" {
		l.add(0, "not complete: "+r.Incomplete, "")
	}
	for i := range r.Domains {
		l.add(0, r.Domains[i].String(), "")
	}
	l.rules(r.Rules)
	l.matches(r)
	l.tiers(r)
	if r.Live != nil {
		l.live(r.Live)
	}
}

// title begins a part.
func (l *lines) title(text string, v Verdict) {
	fmt.Fprintln(l)
	l.write(l.paint.Bold(safetext.Text(text)), v)
}

func (l *lines) add(depth int, text string, v Verdict) {
	l.write(strings.Repeat(terminal.Gap, depth)+safetext.Text(text), v)
}

// write writes a line, and a verdict behind it unless that is empty.
func (l *lines) write(line string, v Verdict) {
	paint := map[Verdict]func(string) string{Looser: l.paint.Green, Stricter: l.paint.Red, Both: l.paint.Yellow}[v]
	switch {
	case paint != nil:
		line += ": " + paint(v.String())
	case v != "":
		line += ": " + v.String()
	}
	fmt.Fprintln(l, line)
}

// more says how many entries are left out.
func (l *lines) more(depth, n int, what string) {
	if n > 0 {
		l.add(depth, fmt.Sprintf("and %d more%s", n, what), "")
	}
}

func (l *lines) rules(all []RuleChange) {
	for i := range all[:min(len(all), maxLines)] {
		c := &all[i]
		text := fmt.Sprintf("%s %s  %s", c.What, c.Name, c.Path)
		if location := cmp.Or(c.NewLocation, c.OldLocation); location != "" {
			text += "  (" + location + ")"
		}
		l.title(text, c.Verdict)
		if c.Note != "" {
			l.add(1, c.Note, "")
		}
		l.changes(c.Changes, c.What == "changed" && len(c.Changes) > 1)
	}
	l.more(1, len(all)-maxLines, ", which --json has")
}

// changes adds changes, and the verdict of each if there are several.
func (l *lines) changes(all []Change, several bool) {
	for i := range all {
		c, v := &all[i], Verdict("")
		if several {
			v = c.Verdict
		}
		l.add(1, c.String(), v)
		if more := c.Consequences(); more != "" {
			l.add(2, more, "")
		}
	}
}

func (l *lines) matches(r *Report) {
	n := 0
	for i := range r.Matches {
		m := &r.Matches[i]
		if m.implied {
			continue
		}
		if n++; n == 1 {
			l.title("descriptors that get another rule", "")
		}
		if n <= maxLines {
			l.add(1, m.String(), m.Verdict)
			l.add(2, "for example "+m.Example, "")
		}
	}
	l.more(1, n+r.MatchesLeftOut-min(n, maxLines), ", which --json has")
}

func (l *lines) tiers(r *Report) {
	if len(r.Tiers)+len(r.Subjects) > 0 {
		l.title("tiers and subjects", "")
	}
	add := func(text string, v Verdict, changes []Change, leftOut int) {
		l.add(1, text, v)
		l.changes(changes, false)
		l.more(1, leftOut, " limits")
	}
	for i := range r.Tiers {
		t := &r.Tiers[i]
		add(t.String(), t.Verdict, t.Changes, t.LeftOut)
	}
	for i := range r.Subjects[:min(len(r.Subjects), maxLines)] {
		s := &r.Subjects[i]
		add(s.String(), s.Verdict, s.Changes, s.LeftOut)
	}
	l.more(1, len(r.Subjects)-maxLines, ", which --json has")
}

func (l *lines) live(live *Live) {
	l.title("by what the service has counted", "")
	for _, p := range live.Problems {
		l.add(1, "not complete: "+p, "")
	}
	if len(live.Limits) == 0 {
		l.add(1, "no log has another limit", "")
	}
	for i := range live.Limits {
		one := &live.Limits[i]
		l.add(1, fmt.Sprintf("%s: %s → %s: %s", one.Rule, one.Old, one.New, one), "")
		for n := range one.Callers {
			l.add(2, one.Callers[n].String(), "")
		}
		l.more(2, one.LeftOut, "")
	}
}
