package tables

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
)

// Name returns the caller that a query names as text.
func Name(q insight.Query) string {
	switch {
	case q.Subject != "":
		return safetext.Text(q.Subject)
	case q.Digest != "":
		return "the key with the digest " + safetext.Text(tier.ShortDigest(q.Digest)) + "…"
	case q.Address != "":
		return "the address " + safetext.Text(q.Address)
	default:
		return safetext.Text(q.Descriptor)
	}
}

// recordText says what a record has of a caller.
func recordText(r *admin.TierRecord) string {
	switch {
	case r == nil:
		return "no record"
	case !r.Known:
		return "no such customer"
	}
	return tierText(&r.Customer)
}

// tiersText says what record an instance has of a caller, and what the customer source says now. It is
// empty without a source, and for tiers that the instance has itself, as from a file.
func tiersText(l *admin.TierLookup) string {
	if l == nil || l.Cached != nil && l.Source != nil && l.Cached.AgeSeconds == 0 && recordText(l.Cached) == recordText(l.Source) {
		return ""
	}
	text := "cached here: " + recordText(l.Cached)
	if l.Cached != nil && l.Cached.AgeSeconds > 0 {
		text += ", " + wait(l.Cached.AgeSeconds) + " old"
	}
	if l.Error != "" {
		return text + " · the source does not answer: " + safetext.Text(l.Error)
	}
	return text + " · the source says: " + recordText(l.Source)
}

// Page says how to write an answer.
type Page struct {
	Width   int
	Paint   terminal.Colours
	Several bool   // name the instance
	From    string // the instance
	Local   bool   // times are those of this machine, and not UTC
}

// Usage writes what a caller has used of its limits. tiers are its records; nil: there are none.
func Usage(w io.Writer, u *insight.Usage, tiers *admin.TierLookup, p Page) {
	head := parts{p.Paint.Bold(Name(u.Query))}
	head.add(u.Subject != "" && u.Subject != u.Query.Subject, "subject "+p.Paint.Bold(safetext.Text(u.Subject)))
	head.add(!u.Known && u.Query.Subject != "", p.Paint.Yellow("not in the tiers"))
	head.add(u.Tier != "", "tier "+safetext.Text(u.Tier))
	head.add(u.Disabled, p.Paint.Red("disabled"))
	head.add(true, countedIn(u, p))
	fmt.Fprintln(w, strings.Join(head, " · "))
	if text := tiersText(tiers); text != "" {
		fmt.Fprintln(w, terminal.Gap+text)
	}
	for _, name := range slices.Sorted(maps.Keys(u.Labels)) {
		fmt.Fprintf(w, "%s%s=%s\n", terminal.Gap, safetext.Text(name), safetext.Text(u.Labels[name]))
	}
	if u.Problem != "" {
		fmt.Fprintln(w, p.Paint.Yellow("not complete: "+safetext.Text(u.Problem)))
	}
	for _, note := range u.Notes {
		fmt.Fprintln(w, p.Paint.Yellow("note: "+safetext.Text(note)))
	}
	if len(u.Limits) == 0 {
		fmt.Fprintln(w, "No limit applies.")
		return
	}
	fmt.Fprintln(w)
	usageTable(u, p).Write(w)
	fmt.Fprintln(w)
	fmt.Fprintln(w, conclusion(u, p.Paint))
}

// countedIn says where the numbers are from.
func countedIn(u *insight.Usage, p Page) string {
	switch {
	case u.Source == "local":
		return "a store is unavailable; counted by " + p.From + " meanwhile"
	case u.Source != client.SourceRedis:
		return "counted by " + p.From
	case p.Several:
		return "counted in Redis, asked through " + p.From
	default:
		return "counted in Redis"
	}
}

// maxBuckets is the length of [insight.LimitUsage.History] at most.
const maxBuckets = 60

func usageTable(u *insight.Usage, p Page) *terminal.Table {
	t := &terminal.Table{Width: p.Width, Paint: p.Paint, Columns: []terminal.Column{
		{Title: "RULE", Least: 12},
		{Title: "LIMIT", Right: true},
		{Title: "USED", Right: true},
		{Title: "", Want: 20, Least: 6, Drop: 2},
		{Title: "REMAINING", Right: true},
		{Title: "NEXT FREE", Right: true},
		{Title: "EMPTY", Right: true},
		{Title: "HISTORY", Want: maxBuckets, Least: 8, Drop: 1, First: true},
	}}
	for i := range u.Limits {
		l := &u.Limits[i]
		row := make([]terminal.Cell, len(t.Columns))
		row[0], row[1] = terminal.Text(l.Rule), terminal.Text(l.Amount())
		switch known := !l.Sent && !l.Chosen(); {
		case l.Unlimited:
			row[1] = terminal.Text("unlimited")
		default:
			row[2], row[4] = terminal.Text(l.Units(l.Used)), terminal.Text("-")
			row[5], row[6] = terminal.Text(wait(l.NextFree)), terminal.Text(wait(l.Empty))
			if slices.Max(append(l.History, 0)) > 0 {
				row[7].Draw = terminal.Spark(l.History)
			}
			if l.Sent {
				row[1] = terminal.Text(l.Per())
			}
			if known {
				fraction, paint := usedOf(l, p.Paint)
				row[3] = terminal.Cell{Draw: terminal.Bar(fraction), Paint: paint}
				row[4] = terminal.Cell{Text: l.Units(l.Remaining), Paint: paint}
			}
		}
		t.Add(row...)
		t.Note(noteOf(l, u.Tier))
	}
	return t
}

// usedOf returns the fraction of a limit that is used, and its colour.
func usedOf(l *insight.LimitUsage, paint terminal.Colours) (fraction float64, colour func(string) string) {
	fraction = 1
	if l.Limit > 0 {
		fraction = float64(l.Used) / float64(l.Limit)
	}
	switch {
	case l.Remaining == 0:
		return fraction, paint.Red
	case fraction >= 0.8:
		return fraction, paint.Yellow
	}
	return fraction, paint.Green
}

// noteOf returns what else there is to know of a limit of a subject of a tier.
func noteOf(l *insight.LimitUsage, tier string) string {
	var p parts
	p.add(l.Values != "", safetext.Text(l.Values))
	p.add(l.Scope != "", "scope "+l.Scope)
	p.add(l.Chosen(), "the store is unavailable: on_store_error "+safetext.Text(l.OnStoreError)+" decides")
	p.add(l.Local && !l.Chosen(), "fallback quota of this instance")
	p.add(l.Budget, "budget: "+l.Use())
	p.add(l.Carried != "", "carried by the tier, as "+safetext.Text(l.Carried))
	p.add(l.Tier != "" && l.Tier != tier, "limit of tier "+safetext.Text(l.Tier))
	p.add(l.Override, "override of the subject")
	if l.Grant != nil {
		p.add(true, "granted: "+l.Grant.String())
	}
	p.add(l.Shadow && l.ObserveOverride, "shadow: only observed for this subject")
	p.add(l.Shadow && !l.ObserveOverride, "shadow: only observed")
	p.add(!l.Shadow && l.ObserveOverride, "enforced for this subject")
	p.add(l.Sent, "each request brings the limit")
	p.add(l.NoLog, "no log yet, for any value of its other entries")
	p.add(len(l.ReplacedBy) > 0, "not in requests that match "+safetext.Text(strings.Join(l.ReplacedBy, ", ")))
	return strings.Join(p, " · ")
}

// parts are parts of a line.
type parts []string

func (p *parts) add(is bool, text string) {
	if is {
		*p = append(*p, text)
	}
}

// maxNamed is the most columns of a rule's name in a sentence.
const maxNamed = 60

// conclusion says whether a request passes now.
func conclusion(u *insight.Usage, paint terminal.Colours) string {
	full := u.Denying()
	switch {
	case len(full) == 0 && u.ByAddress:
		return paint.Yellow("Ask with --address whether its requests pass: the address of the client counts for it.")
	case len(full) == 0 && u.Uncertain():
		return paint.Yellow("Whether its requests pass cannot be known while the store is unavailable.")
	case len(full) == 0 && slices.ContainsFunc(u.Limits, func(l insight.LimitUsage) bool { return l.Sent }):
		return paint.Yellow("No limit of a rule is used up. For a limit that requests bring, see rls denials.")
	case len(full) == 0:
		return paint.Green("No limit is used up.")
	}
	const most = 5
	var lines parts
	for _, l := range full[:min(len(full), most)] {
		lines.add(true, fmt.Sprintf("%s: %s. %s", terminal.Fit(safetext.Text(l.Rule), maxNamed), l.Use(), l.Passes()))
	}
	lines.add(len(full) > most, fmt.Sprintf("and %d more", len(full)-most))
	return paint.Red("Used up, so requests are denied:") + "\n" + terminal.Gap + strings.Join(lines, "\n"+terminal.Gap)
}

// wait returns a number of seconds to wait for a table.
func wait(s float64) string {
	if s <= 0 {
		return "-"
	}
	return words.Seconds(s)
}
