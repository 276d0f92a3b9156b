package tables

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
)

// topTitles are the titles of the column of counts, by the order.
var topTitles = map[string]string{"denied": "DENIED", "near": "NEAR", "shadow": "OBSERVED"}

// topWhat are the orders in words.
var topWhat = map[string]string{"denied": "was denied", "near": "was near a limit", "shadow": "would have been denied by a limit that is only observed"}

// Top writes a ranking.
func Top(w io.Writer, sum *insight.Top, p Page) {
	ago := words.Counted(uint64(max(sum.Minutes, 0)), "minute")
	if sum.Minutes == 1 {
		ago = "minute"
	}
	if len(sum.Entries) == 0 {
		fmt.Fprintf(w, "No request %s in the last %s.\n", topWhat[sum.Order], ago)
		return
	}
	out := &terminal.Table{Width: p.Width, Paint: p.Paint, Columns: []terminal.Column{
		{Title: "#", Right: true},
		{Title: map[string]string{"subject": "SUBJECT", "rule": "RULE", "route": "ROUTE", "address": "ADDRESS"}[sum.By], Least: 12},
		{Title: topTitles[sum.Order], Right: true},
		{Title: "", Want: 20, Least: 6, Drop: 1},
	}}
	if sum.Order == "near" {
		out.Columns = append(out.Columns, terminal.Column{Title: "USED", Right: true})
	}
	most := max(sum.Entries[0].Count, 1)
	for i, e := range sum.Entries {
		row := []terminal.Cell{terminal.Text(strconv.Itoa(i + 1)), terminal.Text(cmp.Or(e.Name, "-")), terminal.Text(fmt.Sprint(e.Count)), {Draw: terminal.Bar(float64(e.Count) / float64(most))}}
		if sum.Order == "near" {
			row = append(row, terminal.Text(words.Percent(e.Peak)))
		}
		out.Add(row...)
	}
	out.Write(w)
	fmt.Fprintf(w, "\nIn the last %s. %s\n", ago, sum.Accuracy())
}
