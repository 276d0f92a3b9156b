package main

import (
	"cmp"
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/tables"
)

type grantCmd struct {
	callerFlags
	adminPorts
	grant.Amount
	Until, Reason string
	List          bool
	Revoke        string
}

func grantOf(c *cli) *cobra.Command {
	var g grantCmd
	cmd := newCommand("grant"+callerUse+" --rule NAME --factor N --until TIME --reason TEXT",
		"Raise the limits of one rule for a customer, an address or a key until a time.",
		"All instances of the store know the grant within a second. It ends by itself, and what was used stays counted. A second grant for the same rule and customer replaces the first. "+
			"With the store memory, name all instances in --admin; a restart ends the grants there.",
		func(args []string) error { return g.Run(c, args) })
	g.callerFlags.flags(cmd, "the `NAME` of the rule whose limits are raised")
	f := cmd.Flags()
	f.Float64Var(&g.Factor, "factor", 0, "multiply the limits by `N`, such as 2 or 1.5")
	f.StringVar(&g.Limit, "limit", "", "raise the limit of this window to `N/WINDOW`, such as 500/minute or 500/10s; N alone is for requests in flight")
	f.StringVar(&g.Until, "until", "", "the `TIME` at which it ends, at most 31 days away: 18:00 (UTC), 2026-01-31T18:00:00Z, or 2h from now")
	f.StringVar(&g.Reason, "reason", "", "why: a `TEXT` for the audit log")
	f.BoolVar(&g.List, "list", false, "instead print the grants that have not ended")
	f.StringVar(&g.Revoke, "revoke", "", "instead end the grant with this `ID` now")
	g.adminPorts.flags(cmd, waitToRead)
	return cmd
}

// Run makes a grant, lists grants or revokes one.
func (g *grantCmd) Run(c *cli, args []string) error {
	var request insight.GrantRequest
	var err error
	if !g.List && g.Revoke == "" {
		request, err = g.request(c, args)
	} else if len(args) > 0 || g.callerFlags != (callerFlags{}) || g.Amount != (grant.Amount{}) || g.Until+g.Reason != "" || g.List && g.Revoke != "" {
		err = usage("--list and --revoke stand alone")
	}
	if err != nil {
		return err
	}
	ask, err := g.client(c)
	if err != nil {
		return err
	}
	one := func(g *grant.Grant) []*grant.Grant { return []*grant.Grant{g} }
	switch ctx := context.Background(); {
	case g.List:
		return showGrants(g, client.AskAll(ctx, ask, ask.Grants), func(a *admin.Grants) []*grant.Grant { return a.Grants })
	case g.Revoke != "":
		return showGrants(g, ask.Revoke(ctx, g.Revoke), one)
	default:
		return showGrants(g, ask.Grant(ctx, request), one)
	}
}

// request returns the grant that the arguments ask for.
func (g *grantCmd) request(c *cli, args []string) (r insight.GrantRequest, err error) {
	q, err := g.query(c, args)
	if err != nil {
		return r, err
	}
	switch {
	case g.Rule == "":
		return r, usage("--rule: name the rule whose limits are raised; rls usage lists those of a customer")
	case strings.TrimSpace(g.Reason) == "":
		return r, usage("--reason: say why, for the audit log")
	}
	if err := g.Valid(); err != nil {
		return r, usage("--factor, --limit: %w", err)
	}
	until, err := insight.Until(g.Until, time.Now())
	if err != nil {
		return r, usage("--until: %w", err)
	}
	return q.Grant(g.Rule, g.Amount, until.UTC().Format(time.RFC3339), g.Reason, ""), nil
}

// showGrants prints the grants in the answers, each once.
func showGrants[T any](g *grantCmd, all []merge.Answer[T], grants func(*T) []*grant.Grant) error {
	err := show(&g.adminPorts, all, func(answered []merge.Answer[T]) {
		var list []*grant.Grant
		for _, a := range answered {
			list = append(list, grants(a.Value)...)
		}
		tables.Grants(&stdout, list, pageOf(os.Stdout, false, ""))
	})
	return cmp.Or(err, client.Failed(all))
}
