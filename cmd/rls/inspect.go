package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/redislog"
)

type inspectCmd struct {
	Key     string
	Scope   string
	Entries int
}

func inspect(c *cli) *cobra.Command {
	var i inspectCmd
	cmd := &cobra.Command{
		Use: "inspect KEY", Short: "Print the content of a log in Redis.",
		Long: "Print the content of a log in Redis. KEY is the whole name of the log, as redis-cli --scan prints it.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("name one KEY, as redis-cli --scan prints it; got %d arguments", len(args))
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: begin(func(args []string) error {
			i.Key = args[0]
			return i.Run(c)
		}),
	}
	cmd.Flags().StringVar(&i.Scope, "scope", settings.ScopeRegion, "the scope of the log: region, or a name in store.scopes")
	cmd.Flags().IntVar(&i.Entries, "entries", 40, "how many of the newest entries to print, or of the holds that end last; -1 prints all")
	return cmd
}

// Run prints a log that the Redis of the settings holds.
func (i inspectCmd) Run(c *cli) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	return redislog.Print(context.Background(), s.Settings, i.Scope, i.Key, i.Entries, &stdout)
}
