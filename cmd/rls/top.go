package main

import (
	"context"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/tables"
)

type topCmd struct {
	adminPorts
	By, Order      string
	Minutes, Limit int
}

func top(c *cli) *cobra.Command {
	var t topCmd
	cmd := leaf("top", "Print who is denied most, or is nearest to its limits.", func() error { return t.Run(c) })
	cmd.Long = cmd.Short + "\n\nEach instance counts for itself. rls adds the counts of several instances, and their possible errors."
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
	ask, err := t.client(c)
	if err != nil {
		return err
	}
	several := len(ask.Instances) > 1
	limit := t.Limit
	if several {
		limit = max(limit, askedOfEach) // a sum needs more of each list than it shows, or is too large
	}
	values := url.Values{"by": {t.By}, "order": {t.Order}, "minutes": {strconv.Itoa(t.Minutes)}, "limit": {strconv.Itoa(limit)}}
	all := ask.Top(context.Background(), values)
	if t.JSON {
		if err := printJSON(several, all); err != nil {
			return err
		}
	} else if len(merge.Answered(all)) > 0 {
		sum := merge.Tops(all, limit, t.Limit)
		tables.Top(&stdout, &sum, t.By, t.Order, t.Minutes, pageOf(os.Stdout, false, ""))
	}
	if !several && all[0].Err == nil {
		noteAlone(ask, all[0].Value.Instances)
		return client.Missing(all[0].Value.Instances)
	}
	return client.Failed(all)
}

// askedOfEach is how many entries rls asks of each of several instances, at least.
const askedOfEach = 1000
