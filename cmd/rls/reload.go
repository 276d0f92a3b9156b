package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/words"
)

func reloadOf(c *cli) *cobra.Command {
	var a adminPorts
	cmd := leaf("reload", "Make the running service read its rules and tiers again.",
		"If it refuses the files, the last good ones stay active, and rls exits with 1.", func() error { return reload(c, &a) })
	a.flags(cmd, waitToRead)
	return cmd
}

func reload(c *cli, a *adminPorts) error {
	ask, err := a.client(c)
	if err != nil {
		return err
	}
	all := client.AskAll(context.Background(), ask, ask.Reload)
	err = show(a, all, func(answered []merge.Answer[admin.Reloaded]) {
		for _, one := range answered {
			unchanged := ", unchanged"
			if one.Value.Changed {
				unchanged = ""
			}
			fmt.Fprintf(&stdout, "%s: %s active, generation %s%s\n", one.From, words.Counted(uint64(max(one.Value.Rules, 0)), "rule"), safetext.Text(one.Value.Generation), unchanged)
		}
	})
	return cmp.Or(err, client.Failed(all))
}
