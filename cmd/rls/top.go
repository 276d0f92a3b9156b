package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
)

type topCmd struct {
	adminPorts
	By, Order      string
	Minutes, Limit int
}

func top(c *cli) *cobra.Command {
	var t topCmd
	cmd := leaf("top", "Print who is denied most, or is nearest to its limits.", func() error { return t.Run(c) })
	cmd.Long = cmd.Short + "\n\nEach instance counts for itself. rls adds the counts of several instances, and their possible errors. A name that the list of an instance lacks may have up to the smallest count of the list there."
	f := cmd.Flags()
	f.StringVar(&t.By, "by", "subject", "`WHAT` to count by: subject, rule, route or address")
	f.StringVar(&t.Order, "order", "denied", "`WHAT` to count: denied requests, requests near a limit (near), or requests that only a limit in shadow mode would deny (shadow)")
	f.IntVar(&t.Minutes, "minutes", 5, "count the last `N` minutes: 1, 5 or 60")
	f.IntVar(&t.Limit, "limit", 20, "at most `N` lines")
	t.flags(cmd, waitToRead)
	completeWords(cmd, "by", insight.TopBys[:]...)
	completeWords(cmd, "order", insight.TopOrders[:]...)
	completeWords(cmd, "minutes", "1", "5", "60")
	return cmd
}

// Run prints the list.
func (t *topCmd) Run(c *cli) error {
	switch {
	case !slices.Contains(insight.TopBys[:], t.By):
		return usage("--by: expected subject, rule, route or address, not %q", t.By)
	case !slices.Contains(insight.TopOrders[:], t.Order):
		return usage("--order: expected denied, near or shadow, not %q", t.Order)
	case !slices.Contains(insight.TopMinutes[:], t.Minutes):
		return usage("--minutes: expected 1, 5 or 60, not %d", t.Minutes)
	case t.Limit < 1:
		return usage("--limit: expected a number above 0")
	}
	caller, err := t.caller(c)
	if err != nil {
		return err
	}
	several := len(caller.instances) > 1
	limit := t.Limit
	if several {
		limit = max(limit, askedOfEach) // a sum needs more of each list than it shows, or is too large
	}
	values := url.Values{"by": {t.By}, "order": {t.Order}, "minutes": {strconv.Itoa(t.Minutes)}, "limit": {strconv.Itoa(limit)}}
	all := askAll(context.Background(), caller.instances, func(ctx context.Context, to instance) (*insight.Top, error) {
		out := new(insight.Top)
		return out, caller.call(ctx, to, http.MethodGet, "/v1/top?"+values.Encode(), nil, out)
	})
	if t.JSON {
		if err := printJSON(!several, all); err != nil {
			return err
		}
		return failed(all)
	}
	if good := answered(all); len(good) > 0 {
		sum := summed(good, limit)
		if len(sum.Entries) > t.Limit {
			sum.Entries = sum.Entries[:t.Limit]
		}
		writeTop(&stdout, &sum, t, page{width: widthOf(os.Stdout), paint: coloursOf(os.Stdout)})
	}
	return failed(all)
}

// askedOfEach is how many entries rls asks of each of several instances, at least.
const askedOfEach = 1000

// summed adds tops, of which each has at most limit entries. An entry that an instance does not list
// counts with what it may have there, so that no count is smaller than the true one.
func summed(all []answer[insight.Top], limit int) (sum insight.Top) {
	if len(all) == 1 {
		return *all[0].value
	}
	type name struct{ shown, digest, address string } // a subject may have the name of a key
	entries := make(map[name]insight.TopEntry)
	for _, a := range all {
		sum.Error, sum.Sampled = sum.Error+mayHave(a.value, limit), sum.Sampled || a.value.Sampled
	}
	for _, a := range all {
		for _, e := range a.value.Entries {
			n := name{e.Name, e.Digest, e.Address}
			have, listed := entries[n]
			if !listed {
				have.Count = sum.Error
			}
			e.Count += have.Count - mayHave(a.value, limit)
			e.Peak = max(e.Peak, have.Peak)
			entries[n] = e
		}
	}
	sum.Entries = slices.SortedFunc(maps.Values(entries), func(a, b insight.TopEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return sum
}

// mayHave returns how often a name can occur that a list of at most limit entries lacks.
func mayHave(t *insight.Top, limit int) uint64 {
	if n := len(t.Entries); n >= limit {
		return max(t.Error, t.Entries[n-1].Count)
	}
	return t.Error
}

// topTitles are the titles of the column of counts, by the order.
var topTitles = map[string]string{"denied": "DENIED", "near": "NEAR", "shadow": "OBSERVED"}

// topWhat are the orders in words.
var topWhat = map[string]string{"denied": "was denied", "near": "was near a limit", "shadow": "would have been denied by a limit that is only observed"}

func writeTop(w io.Writer, sum *insight.Top, t *topCmd, p page) {
	ago := words.Counted(uint64(t.Minutes), "minute")
	if t.Minutes == 1 {
		ago = "minute"
	}
	if len(sum.Entries) == 0 {
		fmt.Fprintf(w, "No request %s in the last %s.\n", topWhat[t.Order], ago)
		return
	}
	out := &terminal.Table{Width: p.width, Paint: p.paint, Columns: []terminal.Column{
		{Title: "#", Right: true},
		{Title: map[string]string{"subject": "SUBJECT", "rule": "RULE", "route": "ROUTE", "address": "ADDRESS"}[t.By], Least: 12},
		{Title: topTitles[t.Order], Right: true},
		{Title: "", Want: 20, Least: 6, Drop: 1},
	}}
	if t.Order == "near" {
		out.Columns = append(out.Columns, terminal.Column{Title: "USED", Right: true})
	}
	most := max(sum.Entries[0].Count, 1)
	for i, e := range sum.Entries {
		row := []terminal.Cell{terminal.Text(strconv.Itoa(i + 1)), terminal.Text(cmp.Or(e.Name, "-")), terminal.Text(fmt.Sprint(e.Count)), {Draw: terminal.Bar(float64(e.Count) / float64(most))}}
		if t.Order == "near" {
			row = append(row, terminal.Text(words.Percent(e.Peak)))
		}
		out.Add(row...)
	}
	out.Write(w)
	fmt.Fprintf(w, "\nIn the last %s.", ago)
	if sum.Error > 0 {
		fmt.Fprintf(w, " Each count may be up to %d too large.", sum.Error)
	}
	if sum.Sampled {
		fmt.Fprint(w, " The counts are estimates from a sample, because there were many.")
	}
	fmt.Fprintln(w)
}
