package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/offline/diff"
	"github.com/slidegate/slidegate/internal/operate/client"
)

type diffCmd struct {
	adminPorts
	Tiers, OldTiers, NewTiers string
	OldConfig                 string
	ExitCode, Live            bool
}

func diffOf(c *cli) *cobra.Command {
	var d diffCmd
	cmd := newCommand("diff OLD NEW", "Print what changes in meaning between two sets of rules and tiers.",
		"OLD and NEW are each a file of rules or of tiers, or a directory of rules; one of them can be -, which is standard input. "+
			"Where and in which order rules are written makes no difference. "+docsPage("rollout.md#2-compare")+" has an example.\n\n"+
			"Of the settings, rules.policy, rules.shadow_mode, store.on_error and the source of the tiers are compared. secrets must be equal.\n\n"+
			"With --live, rls also asks the running service what it has counted, and prints who would be denied now under the new limits. It compares only limits that keep their policy and window. "+
			"With the store memory, name all instances. rls reads at most 200,000 counters of an instance.",
		func(args []string) error {
			if len(args) != 2 {
				return usage("name the old rules and the new rules: rls diff OLD NEW")
			}
			return d.Run(c, args[0], args[1])
		})
	d.flags(cmd, waitToRead)
	f := cmd.Flags()
	f.StringVar(&d.Tiers, "tiers", "", "the tiers `FILE` of both sets, instead of tiers.path")
	f.StringVar(&d.OldTiers, "old-tiers", "", "the tiers `FILE` of OLD")
	f.StringVar(&d.NewTiers, "new-tiers", "", "the tiers `FILE` of NEW")
	f.StringVar(&d.OldConfig, "old-config", "", "the settings `FILE` of OLD; --config has those of NEW, and the environment is for both")
	f.BoolVar(&d.ExitCode, "exit-code", false, "exit 1 if anything changes in meaning")
	f.BoolVar(&d.Live, "live", false, "also ask the running service who would be denied now")
	return cmd
}

// errChanged ends a command with --exit-code that has printed changes.
var errChanged = errors.New("the sets differ in meaning")

// Run compares two sets and prints the report.
func (d *diffCmd) Run(c *cli, old, now string) error {
	switch {
	case !d.Live && (len(d.Admin) > 0 || d.TokenFile != ""):
		return usage("--admin and --token-file are for --live: give it too")
	case old == files.Stdin && now == files.Stdin:
		return usage("OLD and NEW are both standard input: name a file for one of them")
	}
	var ask *client.Client
	if d.Live {
		var err error
		if ask, err = d.client(c); err != nil {
			return err
		}
	}
	before := *c
	before.Config = cmp.Or(d.OldConfig, c.Config)
	was, wasSecrets, wasErr := d.load(&before, old, cmp.Or(d.OldTiers, d.Tiers))
	is, isSecrets, isErr := d.load(c, now, cmp.Or(d.NewTiers, d.Tiers))
	for _, err := range []error{wasErr, isErr} {
		if errors.As(err, new(usageError)) {
			return err
		}
	}
	if wasErr != nil || isErr != nil {
		return invalid(wasErr, isErr)
	}
	if !reflect.DeepEqual(wasSecrets, isSecrets) {
		return usage("--old-config: secrets is other than in the new settings, so no API key of one set can be found in the other: compare the settings without this change")
	}
	report := diff.Compare(was, is)
	var failure error
	if ask != nil {
		instances, problems, err := ask.Logs(context.Background(), report.Asks(was))
		if failure = err; err != nil && !errors.As(err, new(client.Partial)) {
			return err
		}
		report.AddLive(was, is, instances, problems)
	}
	if d.JSON {
		if err := encode(report); err != nil {
			return err
		}
	} else {
		report.WriteText(&stdout, coloursOf(os.Stdout))
	}
	if failure == nil && d.ExitCode && report.Changed {
		return errChanged
	}
	return failure
}

// load loads one set, and how API keys become digests in it.
func (d *diffCmd) load(c *cli, path, tiers string) (set diff.Set, secrets settings.Secrets, err error) {
	in, err := config.NewInput([]string{path}, os.Stdin)
	switch {
	case err != nil:
		return set, secrets, usageError{err}
	case in.Settings != "":
		return set, secrets, usage("%s is a settings file: name rules or tiers, and give --config for settings", path)
	case len(in.Tests) > 0:
		return set, secrets, usage("%s is a file of tests: name rules or tiers", path)
	case in.Tiers != "" && tiers != "":
		return set, secrets, usage("%s and %s are both tiers files: give one", path, tiers)
	case tiers != "":
		in.Tiers = tiers
	}
	s, err := c.load()
	if err != nil {
		return set, secrets, err
	}
	g, err := in.Load(s.Settings)
	if err != nil {
		return set, secrets, err
	}
	set = diff.Set{Path: path, Rules: g.Rules}
	for _, p := range g.Locations {
		set.Locations = append(set.Locations, p.String())
	}
	return set, s.Secrets, nil
}
