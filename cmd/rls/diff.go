package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/rulesdiff"
	"github.com/slidegate/slidegate/internal/safetext"
	"github.com/slidegate/slidegate/internal/terminal"
)

type diffCmd struct {
	adminPorts
	Tiers, OldTiers, NewTiers string
	OldConfig                 string
	Markdown, ExitCode, Live  bool
}

func diff(c *cli) *cobra.Command {
	var d diffCmd
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Print what changes in meaning between two sets of rules and tiers.",
		Long: "Print what changes in meaning between two sets of rules and tiers.\n\n" +
			"OLD and NEW are each a file of rules or of tiers, or a directory of rules; one of them can be -, which is standard input. " +
			"Where and in which order rules are written makes no difference. " + docsPage("diff.md") + " describes the output.\n\n" +
			"With --live, rls also asks the running service what it has counted, and prints who would be denied now under the new limits. It charges nothing.",
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
	f.BoolVar(&d.Markdown, "markdown", false, "print Markdown, for a comment on a pull request")
	f.BoolVar(&d.ExitCode, "exit-code", false, "exit 1 if anything changes in meaning")
	f.BoolVar(&d.Live, "live", false, "also ask the running service who would be denied now")
	return cmd
}

// errChanged ends a command with --exit-code that has printed changes.
var errChanged = errors.New("the sets differ in meaning")

// Run compares two sets and prints the report.
func (d *diffCmd) Run(c *cli, old, now string) error {
	switch {
	case d.JSON && d.Markdown:
		return usage("--json and --markdown are both formats: give one")
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

// write prints the report.
func (d *diffCmd) write(r *rulesdiff.Report) error {
	switch {
	case d.JSON:
		return encode(r)
	case d.Markdown:
		return r.WriteMarkdown(&stdout)
	default:
		var b strings.Builder
		diffText{&b, coloursOf(os.Stdout)}.write(r)
		_, err := io.WriteString(&stdout, b.String())
		return err
	}
}

// A diffText writes a report as text.
type diffText struct {
	w     io.Writer
	paint terminal.Colours
}

// maxDiffLines bounds the lines of each part of the text.
const maxDiffLines = 100

func (t diffText) linef(indent int, format string, args ...any) {
	fmt.Fprintln(t.w, strings.Repeat("  ", indent)+fmt.Sprintf(format, args...))
}

// verdict returns a verdict in its colour.
func (t diffText) verdict(v rulesdiff.Verdict) string {
	switch v {
	case rulesdiff.Looser:
		return t.paint.Green(v.String())
	case rulesdiff.Stricter:
		return t.paint.Red(v.String())
	case rulesdiff.Both:
		return t.paint.Yellow(v.String())
	default:
		return v.String()
	}
}

func (t diffText) write(r *rulesdiff.Report) {
	title := r.Title()
	if r.Changed {
		title = t.verdict(r.Verdict)
	}
	t.linef(0, "%s → %s: %s", safetext.Text(r.Old.Path), safetext.Text(r.New.Path), title)
	if r.Incomplete != "" {
		t.linef(0, "%s %s", t.paint.Yellow("not complete:"), r.Incomplete)
	}
	for i := range r.Domains {
		t.linef(0, "%s", safetext.Text(r.Domains[i].String()))
	}
	t.rules(r.Rules)
	t.matches(r)
	t.tiers(r)
	if r.Live != nil {
		t.live(r.Live)
	}
}

func (t diffText) more(all, most int) {
	if all > most {
		t.linef(1, "and %d more, which --json has", all-most)
	}
}

func (t diffText) rules(all []rulesdiff.RuleChange) {
	for i := range all {
		c := &all[i]
		if i == maxDiffLines {
			break
		}
		place := cmp.Or(c.NewPlace, c.OldPlace)
		if place != "" {
			place = "  (" + safetext.Text(place) + ")"
		}
		fmt.Fprintln(t.w)
		t.linef(0, "%s %s  %s%s: %s", c.What, t.paint.Bold(safetext.Text(c.Name)), safetext.Text(c.Path), place, t.verdict(c.Verdict))
		if c.Note != "" {
			t.linef(1, "%s", c.Note)
		}
		t.changes(c.Changes, 0, c.What == "changed" && len(c.Changes) > 1)
	}
	t.more(len(all), maxDiffLines)
}

// changes writes changes, and the verdict of each if there are several.
func (t diffText) changes(all []rulesdiff.Change, leftOut int, several bool) {
	for i := range all {
		c := &all[i]
		text := safetext.Text(c.String())
		if several {
			text += ": " + t.verdict(c.Verdict)
		}
		t.linef(1, "%s", text)
		if more := c.Consequences(); more != "" {
			t.linef(2, "%s", safetext.Text(more))
		}
	}
	if leftOut > 0 {
		t.linef(1, "and %d more limits", leftOut)
	}
}

func (t diffText) matches(r *rulesdiff.Report) {
	n := 0
	for i := range r.Matches {
		m := &r.Matches[i]
		if m.Told() {
			continue
		}
		if n == 0 {
			fmt.Fprintln(t.w)
			t.linef(0, "%s", t.paint.Bold("descriptors that get another rule"))
		}
		if n++; n <= maxDiffLines {
			t.linef(1, "%s: %s", safetext.Text(m.String()), t.verdict(m.Verdict))
			t.linef(2, "for example %s", safetext.Text(m.Example))
		}
	}
	t.more(n+r.MatchesLeftOut, min(n, maxDiffLines))
}

func (t diffText) tiers(r *rulesdiff.Report) {
	if len(r.Tiers)+len(r.Subjects) > 0 {
		fmt.Fprintln(t.w)
		t.linef(0, "%s", t.paint.Bold("tiers and subjects"))
	}
	for i := range r.Tiers {
		one := &r.Tiers[i]
		t.linef(1, "%s: %s", safetext.Text(one.String()), t.verdict(one.Verdict))
		t.changes(one.Changes, one.LeftOut, false)
	}
	for i := range r.Subjects {
		one := &r.Subjects[i]
		if i == maxDiffLines {
			break
		}
		t.linef(1, "%s: %s", safetext.Text(one.String()), t.verdict(one.Verdict))
		t.changes(one.Changes, one.LeftOut, false)
	}
	t.more(len(r.Subjects), maxDiffLines)
}

func (t diffText) live(l *rulesdiff.Live) {
	fmt.Fprintln(t.w)
	t.linef(0, "%s", t.paint.Bold("by what the service has counted"))
	for _, p := range l.Problems {
		t.linef(1, "%s %s", t.paint.Yellow("not complete:"), safetext.Text(p))
	}
	if len(l.Limits) == 0 {
		t.linef(1, "no log has another limit")
	}
	for i := range l.Limits {
		one := &l.Limits[i]
		t.linef(1, "%s: %s → %s: %s", t.paint.Bold(safetext.Text(one.Rule)), safetext.Text(one.Old), safetext.Text(one.New), one.String())
		for n := range one.Parties {
			t.linef(2, "%s", safetext.Text(one.Parties[n].String()))
		}
		if one.LeftOut > 0 {
			t.linef(2, "and %d more", one.LeftOut)
		}
	}
}
