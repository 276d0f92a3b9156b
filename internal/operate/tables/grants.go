package tables

import (
	"fmt"
	"io"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// Grants writes grants as a table, each once.
func Grants(w io.Writer, all []*grant.Grant, p Page) {
	if len(all) == 0 {
		fmt.Fprintln(w, "No grants.")
		return
	}
	t := &terminal.Table{Width: p.Width, Paint: p.Paint, Columns: []terminal.Column{
		{Title: "ID"},
		{Title: "WHO", Least: 10},
		{Title: "RULE", Least: 10},
		{Title: "GRANTED"},
		{Title: "UNTIL (UTC)"},
		{Title: "BY", Least: 8, Drop: 2},
		{Title: "REASON", Least: 10, Drop: 1},
	}}
	listed := make(map[string]bool)
	for _, g := range all {
		if listed[g.ID] {
			continue
		}
		listed[g.ID] = true
		who := Name(insight.Query{Subject: g.Subject, Address: g.Address, Digest: g.Digest})
		t.Add(terminal.Text(g.ID), terminal.Text(who), terminal.Text(g.Rule), terminal.Text(g.Amount.String()), terminal.Text(clock(g.Until, false)), terminal.Text(g.By), terminal.Text(g.Reason))
	}
	t.Write(w)
}
