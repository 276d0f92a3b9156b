package rulesdiff

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/safetext"
)

// maxRows bounds the lines of each part of a report in Markdown, because a comment has a bound.
const maxRows = 50

// WriteMarkdown writes the report for a comment on a pull request: a table, and details that are
// folded. Every text of the rules is escaped.
func (r *Report) WriteMarkdown(w io.Writer) error {
	m := markdown{w: w}
	m.printf("### Rate limits: %s\n\n", r.Title())
	m.printf("%s → %s: %d → %d rules\n", code(r.Old.Path), code(r.New.Path), r.Old.Rules, r.New.Rules)
	if r.Incomplete != "" {
		m.printf("\n**Not complete:** %s\n", text(r.Incomplete))
	}
	m.rules(r)
	m.matches(r)
	m.tiers(r)
	if r.Live != nil {
		m.live(r.Live)
	}
	return m.err
}

// A markdown writes Markdown, up to the first error.
type markdown struct {
	w   io.Writer
	err error
}

func (m *markdown) printf(format string, args ...any) {
	if m.err == nil {
		_, m.err = fmt.Fprintf(m.w, format, args...)
	}
}

// more says how many lines are left out.
func (m *markdown) more(n int) {
	if n > 0 {
		m.printf("\nAnd %d more.\n", n)
	}
}

// fold begins a part that is folded.
func (m *markdown) fold(format string, args ...any) {
	m.printf("\n<details><summary>%s</summary>\n\n", fmt.Sprintf(format, args...))
}

func (m *markdown) unfold() { m.printf("\n</details>\n") }

func (m *markdown) rules(r *Report) {
	if len(r.Rules)+len(r.Domains) == 0 {
		return
	}
	m.printf("\n| | rule | change | verdict | consequences |\n|---|---|---|---|---|\n")
	rows := 0
	row := func(cells ...string) {
		if rows++; rows <= maxRows {
			m.printf("| %s |\n", strings.Join(cells, " | "))
		}
	}
	for i := range r.Domains {
		row("domain", code(r.Domains[i].Domain), text(r.Domains[i].String()), string(Neither), "")
	}
	for i := range r.Rules {
		c := &r.Rules[i]
		name := code(c.Name) + "<br>" + code(c.Path)
		for n := range c.Changes {
			one := &c.Changes[n]
			verdict, note := one.Verdict, one.Consequences()
			if c.What != "changed" {
				verdict, note = c.Verdict, c.Note
			}
			row(c.What, name, text(one.String()), verdict.String(), text(note))
		}
	}
	m.more(rows - maxRows)
}

func (m *markdown) matches(r *Report) {
	var lines []string
	for i := range r.Matches {
		if c := &r.Matches[i]; !c.Told() {
			lines = append(lines, fmt.Sprintf("- %s (%s)<br>example: %s", text(c.String()), c.Verdict, code(c.Example)))
		}
	}
	if len(lines) == 0 && r.MatchesLeftOut == 0 {
		return
	}
	m.fold("Descriptors that get another rule: %d", len(lines)+r.MatchesLeftOut)
	m.lines(lines, r.MatchesLeftOut)
	m.unfold()
}

func (m *markdown) lines(lines []string, more int) {
	for i, l := range lines {
		if i == maxRows {
			more += len(lines) - maxRows
			break
		}
		m.printf("%s\n", l)
	}
	m.more(more)
}

func (m *markdown) tiers(r *Report) {
	if len(r.Tiers)+len(r.Subjects) == 0 {
		return
	}
	var lines []string
	add := func(title string, v Verdict, changes []Change, leftOut int) {
		lines = append(lines, fmt.Sprintf("- %s (%s)", text(title), v))
		for i := range changes {
			lines = append(lines, "  - "+text(changes[i].String()))
		}
		if leftOut > 0 {
			lines = append(lines, fmt.Sprintf("  - and %d more limits", leftOut))
		}
	}
	for i := range r.Tiers {
		t := &r.Tiers[i]
		add(t.String(), t.Verdict, t.Changes, t.LeftOut)
	}
	for i := range r.Subjects {
		s := &r.Subjects[i]
		add(s.String(), s.Verdict, s.Changes, s.LeftOut)
	}
	m.fold("Tiers and subjects: %d", len(r.Tiers)+len(r.Subjects))
	m.lines(lines, 0)
	m.unfold()
}

func (m *markdown) live(l *Live) {
	m.printf("\n#### By what the service has counted\n\n")
	for _, p := range l.Problems {
		m.printf("**Not complete:** %s\n\n", text(p))
	}
	if len(l.Limits) == 0 {
		m.printf("No log has another limit.\n")
	}
	for i := range l.Limits {
		one := &l.Limits[i]
		m.printf("- %s %s: %s\n", code(one.Rule), text(change(one.Old, one.New)), text(one.String()))
		for n := range one.Parties {
			m.printf("  - %s\n", text(one.Parties[n].String()))
		}
		if one.LeftOut > 0 {
			m.printf("  - and %d more\n", one.LeftOut)
		}
	}
}

// code returns a text as code.
func code(s string) string { return "<code>" + text(s) + "</code>" }

// text returns a text that Markdown and HTML show as it is, on one line.
func text(s string) string {
	var b strings.Builder
	s = safetext.Text(s)
	for i, r := range s {
		switch {
		case r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(safe, r):
			fmt.Fprintf(&b, "&#%d;", r)
		case r == ':' && strings.HasPrefix(s[i:], "://"):
			b.WriteString("&#58;")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// safe are the characters besides letters and digits that mean nothing to Markdown within a line.
const safe = " .,:;/=%?'-"
