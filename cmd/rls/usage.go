package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/redislog"
	"github.com/slidegate/slidegate/internal/operate/tables"
)

type usageCmd struct {
	callerFlags
	adminPorts
	Refresh    bool
	Raw, Scope string
	Entries    int
}

func usageOf(c *cli) *cobra.Command {
	var u usageCmd
	cmd := newCommand("usage"+callerUse, "Print the tier of a customer, an address or a key, what it has used of each of its limits, and when it may go on.",
		"It charges nothing. With the store memory, each instance counts for itself: name all of them in --admin. "+
			"With Redis, rls prints the first answer. If a store is unavailable, rls prints what the instances have counted meanwhile and what their local limits have left, and exits with 3.",
		func(args []string) error { return u.Run(c, args) })
	u.flagsWithDescriptor(cmd)
	f := cmd.Flags()
	f.BoolVar(&u.Refresh, "refresh", false, "first ask tiers.source again for this customer or key, or for all if none is named")
	f.StringVar(&u.Raw, "raw", "", "instead print the counter under this `KEY` in the Redis of the settings, as redis-cli --scan prints it")
	f.StringVar(&u.Scope, "scope", settings.ScopeRegion, "with --raw: the scope of the log")
	f.IntVar(&u.Entries, "entries", 40, "with --raw: how many of the newest entries to print, or of the requests that end last; -1: all")
	u.adminPorts.flags(cmd, waitToRead)
	return cmd
}

// Run prints the usage of one caller.
func (u *usageCmd) Run(c *cli, args []string) error {
	unnamed := len(args) == 0 && u.callerFlags == callerFlags{}
	if u.Raw != "" {
		return u.raw(c, unnamed)
	}
	var q insight.Query
	var err error
	if !u.Refresh || !unnamed {
		if q, err = u.query(c, args); err != nil {
			return err
		}
	}
	ask, err := u.client(c)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if u.Refresh {
		if !unnamed && q.Digest == "" && q.Subject == "" {
			return usage("--refresh: name a subject or a key; tiers.source has nothing else")
		}
		err := ask.Refresh(ctx, q.Digest, q.Subject)
		if err == nil && unnamed {
			_, err = fmt.Fprintln(&stdout, "The service asks its customer source again at the next request of each key and subject.")
		}
		if err != nil || unnamed {
			return err
		}
	}
	all := ask.Usage(ctx, q)
	shown := make([]merge.Answer[shownUsage], len(all))
	for i, a := range all {
		shown[i] = merge.Answer[shownUsage]{From: a.From, Err: a.Err}
		if a.Err == nil {
			shown[i].Value = &shownUsage{a.Value, ask.Lookup(ctx, a.From, q)}
		}
	}
	err = show(&u.adminPorts, shown, func(answered []merge.Answer[shownUsage]) {
		for i, a := range slices.DeleteFunc(answered, func(a merge.Answer[shownUsage]) bool { return a.Value.Unknown != "" }) {
			if i > 0 {
				fmt.Fprintln(&stdout)
			}
			tables.Usage(&stdout, a.Value.Usage, a.Value.Tiers, pageOf(os.Stdout, u.several, a.From))
		}
	})
	return cmp.Or(err, noCustomer(all), client.Incomplete(all, func(u *insight.Usage) string {
		if u.Problem == "" || u.Unknown != "" {
			return ""
		}
		return "the answer is not complete" // it says why
	}))
}

// A shownUsage is a usage, and the records of the caller in the instance and in tiers.source. They are
// nil if there is no source to ask.
type shownUsage struct {
	*insight.Usage
	Tiers *admin.TierLookup `json:"tiers,omitempty"`
}

// raw prints a log that the Redis of the settings holds.
func (u *usageCmd) raw(c *cli, alone bool) error {
	if !alone || u.Refresh || u.JSON || len(u.Admin) > 0 {
		return usage("--raw reads the Redis of the settings, and takes only --scope and --entries")
	}
	s, err := c.load()
	if err != nil {
		return err
	}
	return redislog.Print(context.Background(), s.Settings, u.Scope, u.Raw, u.Entries, &stdout)
}
