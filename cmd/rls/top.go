package main

import (
	"context"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/tables"
)

type topCmd struct {
	adminPorts
	By, Order, Minutes string
	Limit              int
}

func top(c *cli) *cobra.Command {
	var t topCmd
	cmd := leaf("top", "Print who is denied most, or is nearest to its limits.",
		"Each instance counts for itself. rls adds the counts of several instances, and their possible errors.", func() error { return t.Run(c) })
	wordVar(cmd, &t.By, "by", "subject", "`WHAT` to count by: subject, rule, route or address", insight.TopBys[:]...)
	wordVar(cmd, &t.Order, "order", "denied", "`WHAT` to count: denied requests, requests near a limit (near), or denials of limits in shadow mode (shadow)", insight.TopOrders[:]...)
	wordVar(cmd, &t.Minutes, "minutes", "5", "count the last `N` minutes: 1, 5 or 60", "1", "5", "60")
	cmd.Flags().IntVar(&t.Limit, "limit", 20, "at most `N` lines")
	t.flags(cmd, waitToRead)
	return cmd
}

// Run prints the list.
func (t *topCmd) Run(c *cli) error {
	if t.Limit < 1 {
		return usage("--limit: expected a number above 0")
	}
	ask, err := t.client(c)
	if err != nil {
		return err
	}
	limit := t.Limit
	if t.several {
		limit = max(limit, askedOfEach) // a sum needs more of each list than it shows, or is too large
	}
	values := url.Values{"by": {t.By}, "order": {t.Order}, "minutes": {t.Minutes}, "limit": {strconv.Itoa(limit)}}
	all := ask.Top(context.Background(), values)
	err = show(&t.adminPorts, all, func([]merge.Answer[insight.Top]) {
		sum := merge.Tops(all, limit, t.Limit)
		tables.Top(&stdout, &sum, pageOf(os.Stdout, false, ""))
	})
	if err != nil {
		return err
	}
	if !t.several && all[0].Err == nil {
		noteAlone(ask, all[0].Value.Instances)
		return client.Missing(all[0].Value.Instances)
	}
	return client.Failed(all)
}

// askedOfEach is how many entries rls asks of each of several instances, at least.
const askedOfEach = 1000
