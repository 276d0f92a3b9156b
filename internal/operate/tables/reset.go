package tables

import (
	"fmt"
	"io"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
)

// Reset writes what a reset removed.
func Reset(w io.Writer, r *insight.Reset, p Page) {
	where := ""
	if p.Several {
		where = " in " + p.From
	}
	if r.Logs == 0 {
		fmt.Fprintf(w, "%s had used nothing%s, so nothing was removed.\n", Name(r.Query), where)
	} else {
		fmt.Fprintf(w, "%s %s of %s%s.\n", p.Paint.Green("Removed"), words.Counted(uint64(r.Logs), "log"), p.Paint.Bold(Name(r.Query)), where)
	}
	if len(r.Removed) == 0 {
		return
	}
	t := &terminal.Table{Width: p.Width, Paint: p.Paint, Columns: []terminal.Column{
		{Title: "RULE", Least: 12}, {Title: "OF", Least: 12, Drop: 1, Sparse: true}, {Title: "LIMIT", Right: true}, {Title: "HAD USED", Right: true},
	}}
	for i := range r.Removed {
		l := &r.Removed[i]
		limit := l.Per() // an old limit may be gone from the rules
		if l.Limit > 0 {
			limit = l.Amount()
		}
		t.Add(terminal.Text(l.Rule), terminal.Text(l.Values), terminal.Text(limit), terminal.Text(fmt.Sprint(l.Used)))
		if l.Scope != "" {
			t.Note("scope " + safetext.Text(l.Scope))
		}
	}
	t.Write(w)
	if n := r.Logs - len(r.Removed); n > 0 {
		fmt.Fprintf(w, "and %s more\n", words.Counted(uint64(n), "log"))
	}
}
