package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/offline/rulesdiff"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

type diffCmd struct {
	adminPorts
	Tiers, OldTiers, NewTiers string
	OldConfig                 string
	ExitCode, Live            bool
}

func diff(c *cli) *cobra.Command {
	var d diffCmd
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Print what changes in meaning between two sets of rules and tiers.",
		Long: "Print what changes in meaning between two sets of rules and tiers.\n\n" +
			"OLD and NEW are each a file of rules or of tiers, or a directory of rules; one of them can be -, which is standard input. " +
			"Where and in which order rules are written makes no difference. " + docsPage("rollout.md#2-compare") + " has an example.\n\n" +
			"Of the settings, rules.policy, rules.shadow_mode, store.on_error and the source of the tiers are compared. secrets must be equal.\n\n" +
			"With --live, rls also asks the running service what it has counted, and prints who would be denied now under the new limits. It charges nothing. It compares only limits that keep their policy and window, because others start with nothing used. " +
			"With the store memory, name all instances. rls reads at most 200,000 counters of an instance. Exit code 3: some instances did not answer.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage("name the old rules and the new rules: rls diff OLD NEW")
			}
			return nil
		},
		RunE: begin(func(args []string) error { return d.Run(c, args[0], args[1]) }),
	}
	d.flags(cmd, waitToRead)
	f := cmd.Flags()
	f.StringVar(&d.Tiers, "tiers", "", "the tiers `FILE` of both sets, instead of tiers.path of the settings")
	f.StringVar(&d.OldTiers, "old-tiers", "", "the tiers `FILE` of OLD")
	f.StringVar(&d.NewTiers, "new-tiers", "", "the tiers `FILE` of NEW")
	f.StringVar(&d.OldConfig, "old-config", "", "the settings `FILE` of OLD, if they change too; --config has those of NEW, and the environment is for both")
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
	var ask *caller
	if d.Live {
		var err error
		if ask, err = d.caller(c); err != nil {
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
	report := rulesdiff.Compare(was, is)
	var failure error
	if ask != nil {
		instances, problems, err := liveLogs(ask, report, was)
		if failure = err; err != nil && !errors.As(err, new(partial)) {
			return err
		}
		report.AddLive(was, is, instances, problems)
	}
	if err := d.write(report); err != nil {
		return err
	}
	if failure == nil && d.ExitCode && report.Changed {
		return errChanged
	}
	return failure
}

// load loads one set, and how API keys become digests in it.
func (d *diffCmd) load(c *cli, path, tiers string) (set rulesdiff.Set, secrets settings.Secrets, err error) {
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
	set = rulesdiff.Set{Path: path, Rules: g.Rules}
	for _, p := range g.Places {
		set.Places = append(set.Places, p.String())
	}
	return set, s.Secrets, nil
}

// Bounds of what is asked for of a running service.
const (
	maxLogPages  = 2000
	maxLogs      = 200_000
	maxAskedName = 4 << 10 // bytes of names of rules
)

// liveLogs returns the logs that instances have for the rules of a report. Instances that share a
// store count once.
func liveLogs(ask *caller, report *rulesdiff.Report, old rulesdiff.Set) (instances [][]insight.LimitUsage, problems []string, err error) {
	names := changedNames(report, old)
	all := askAll(context.Background(), ask.instances, func(ctx context.Context, to instance) (*insight.Logs, error) {
		return ask.logs(ctx, to, names)
	})
	seen := false
	for _, a := range all {
		if a.err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", a.from.name, a.err))
			continue
		}
		if a.value.Next != "" {
			problems = append(problems, fmt.Sprintf("%s has more than %d logs: these are a part of them", a.from.name, len(a.value.Logs)))
		}
		if a.value.Source == sourceRedis && seen {
			continue
		}
		seen = seen || a.value.Source == sourceRedis
		instances = append(instances, a.value.Logs)
	}
	return instances, problems, failed(all)
}

// changedNames returns the old names of the rules to ask for. Nil: all.
func changedNames(report *rulesdiff.Report, old rulesdiff.Set) (names []string) {
	if len(report.Tiers)+len(report.Subjects) > 0 {
		return nil
	}
	paths := make(map[string]bool)
	for i := range report.Rules {
		paths[report.Rules[i].Path] = report.Rules[i].What == "changed"
	}
	size := 0
	for _, r := range old.Rules.All() {
		if paths[r.String()] {
			names = append(names, r.Name)
			size += len(r.Name) + 1
		}
	}
	if size > maxAskedName {
		return nil
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// logs reads all pages of the logs of rules.
func (c *caller) logs(ctx context.Context, to instance, names []string) (whole *insight.Logs, err error) {
	values := url.Values{}
	if len(names) > 0 {
		values.Set("rule", strings.Join(names, ","))
	}
	for range maxLogPages {
		one := new(insight.Logs)
		if err := c.call(ctx, to, http.MethodGet, "/v1/logs?"+values.Encode(), nil, one); err != nil {
			return nil, err
		}
		if whole == nil {
			whole = one
		} else {
			whole.Logs, whole.Next = append(whole.Logs, one.Logs...), one.Next
		}
		if one.Next == "" || len(whole.Logs) > maxLogs {
			break
		}
		values.Set("cursor", one.Next)
	}
	return whole, nil
}

func (d *diffCmd) write(r *rulesdiff.Report) error {
	if d.JSON {
		return encode(r)
	}
	for _, l := range r.Lines() {
		line := strings.Repeat(terminal.Gap, l.Depth) + safetext.Text(l.Text)
		if l.Title {
			line = "\n" + coloursOf(os.Stdout).Bold(line)
		}
		if l.Verdict != "" {
			line += ": " + paintVerdict(l.Verdict)
		}
		fmt.Fprintln(&stdout, line)
	}
	return nil
}

// paintVerdict returns a verdict in its colour.
func paintVerdict(v rulesdiff.Verdict) string {
	paint := coloursOf(os.Stdout)
	switch v {
	case rulesdiff.Looser:
		return paint.Green(v.String())
	case rulesdiff.Stricter:
		return paint.Red(v.String())
	case rulesdiff.Both:
		return paint.Yellow(v.String())
	default:
		return v.String()
	}
}
