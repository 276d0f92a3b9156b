package tables

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// Denials writes denials as a table, in their order.
func Denials(w io.Writer, all []insight.Denial, p Page) {
	t := &terminal.Table{Width: p.Width, Paint: p.Paint, Columns: []terminal.Column{
		{Title: map[bool]string{false: "TIME (UTC)", true: "TIME"}[p.Local]},
		{Title: "RULE", Least: 10},
		{Title: "WHO", Least: 10},
		{Title: "TIER", Least: 8, Drop: 3, Sparse: true},
		{Title: "USED", Right: true},
		{Title: "LIMIT"},
		{Title: "WAIT", Right: true},
		{Title: "ROUTE", Least: 6, Drop: 4, Sparse: true},
		{Title: "REQUEST", Least: 8, Drop: 6, Sparse: true},
		{Title: "NOTE", Least: 12, Sparse: true},
	}}
	if p.Several {
		t.Columns = append(t.Columns, terminal.Column{Title: "INSTANCE", Least: 8, Drop: 5})
	}
	for i := range all {
		addDenial(t, &all[i], p)
	}
	t.Write(w)
}

func addDenial(t *terminal.Table, d *insight.Denial, p Page) {
	wait := terminal.Cell{Text: wait(d.Wait)}
	if d.Never {
		wait = terminal.Cell{Text: "never", Paint: p.Paint.Red}
	}
	row := []terminal.Cell{
		terminal.Text(clock(d.At, p.Local)), terminal.Text(d.Rule), terminal.Text(whoOf(d)), terminal.Text(d.Tier), terminal.Text(d.Units(d.Used)),
		terminal.Text(d.Amount()),
		wait, terminal.Text(d.Route), terminal.Text(d.RequestID),
		{Text: noteOfDenial(d), Paint: p.Paint.Yellow},
	}
	if p.Several {
		row = append(row, terminal.Text(d.Instance))
	}
	t.Add(row...)
}

// clock returns a time of the last day without its date: in UTC, or in the zone of this machine.
func clock(at time.Time, local bool) string {
	if at = at.UTC(); local {
		at = at.Local()
	}
	if since := time.Since(at); since > 12*time.Hour || since < -12*time.Hour {
		return at.Format("01-02 15:04:05")
	}
	return at.Format(time.TimeOnly)
}

// whoOf names the caller of a denial as well as it is known.
func whoOf(d *insight.Denial) string {
	switch {
	case d.Subject != "":
		return d.Subject
	case d.Digest != "":
		return "key " + tier.ShortDigest(d.Digest)
	default:
		return cmp.Or(d.Address, "-")
	}
}

func noteOfDenial(d *insight.Denial) string {
	var p parts
	p.add(d.Shadow, "observed")
	p.add(d.Degraded, "without store")
	p.add(d.Of > 1, fmt.Sprintf("one of %d limits", d.Of))
	p.add(d.Cost > 1, fmt.Sprintf("cost %d", d.Cost))
	p.add(d.Stands > 1, fmt.Sprintf("×%d", d.Stands))
	return strings.Join(p, ", ")
}

// DenialLine returns a denial as one line of at most p.Width columns.
func DenialLine(d *insight.Denial, p Page) string {
	at := clock(d.At, p.Local)
	if !p.Local {
		at += "Z"
	}
	passes := "passes in " + wait(d.Wait)
	if d.Never {
		passes = "never passes"
	}
	all := parts{at, d.Rule, whoOf(d), d.Use(), passes}
	for _, text := range []string{d.Tier, d.Route, noteOfDenial(d), d.RequestID, d.Instance} {
		all.add(text != "", text)
	}
	line := safetext.Text(strings.Join(all, terminal.Gap))
	if p.Width != terminal.Unbounded {
		line = terminal.Fit(line, p.Width)
	}
	return line
}
