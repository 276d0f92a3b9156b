package main

import (
	"context"
	"os"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/daemon"
)

type inspectCmd struct {
	Key     string `arg:"" help:"The whole name of the log, as redis-cli --scan prints it." name:"KEY"`
	Entries int    `default:"40" help:"How many of the newest entries to print; -1 prints all." placeholder:"N"`
}

// Run prints a log that the Redis of the settings holds.
func (i inspectCmd) Run(c *cli) error {
	s, err := config.LoadSettings(c.Config, os.Environ())
	if err != nil {
		return err
	}
	return daemon.Inspect(context.Background(), s, i.Key, i.Entries, os.Stdout)
}
