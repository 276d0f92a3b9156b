package main

import (
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
	cmd := leaf("reload", "Make the running service read its rules and tiers again.", func() error { return reload(c, &a) })
	cmd.Long = cmd.Short + "\n\nIf it refuses the files, the last good ones stay active, and rls exits with 1."
	a.flags(cmd, waitToRead)
	return cmd
}

func reload(c *cli, a *adminPorts) error {
	ask, err := a.client(c)
	if err != nil {
		return err
	}
	all := client.AskAll(context.Background(), ask, ask.Reload)
	if a.JSON {
		if err := printJSON(len(all) > 1, all); err != nil {
			return err
		}
		return client.Failed(all)
	}
	for _, one := range merge.Answered(all) {
		fmt.Fprintf(&stdout, "%s: %s\n", one.From, reloaded(one.Value))
	}
	return client.Failed(all)
}

// reloaded says what a reload has changed.
func reloaded(r *admin.Reloaded) string {
	text := words.Counted(uint64(max(r.Rules, 0)), "rule") + " active, generation " + safetext.Text(r.Generation)
	if !r.Changed {
		text += ", unchanged"
	}
	return text
}
