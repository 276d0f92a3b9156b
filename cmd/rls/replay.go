package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/offline/outfile"
	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/describe"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
	"github.com/slidegate/slidegate/internal/offline/replay/report"
)

type replayCmd struct {
	Logs      []string
	Now       ruleSet // that decides
	Was       ruleSet // of --against
	Requests  requestFlags
	Format    string
	JSON      bool
	Decisions string
	HTML      string
	WhatIf    string
	FailIf    []string
	Reorder   time.Duration
}

// A ruleSet is paths of rules and tiers. An empty one is that of the settings.
type ruleSet struct{ Rules, Tiers string }

// requestFlags say which descriptors the requests of the logs have.
type requestFlags struct {
	Envoy    []string
	Map      string
	Domain   string
	Listener string
}

func replayOf(c *cli) *cobra.Command {
	var r replayCmd
	cmd := newCommand("replay LOG...", "Decide the requests of access logs, and report what the rules would have done.",
		"LOG is an access log of Envoy, nginx, Apache or Caddy, or any log in JSON, also packed by gzip or zstd; - is standard input. Name the logs of all instances in one call. "+
			"rls decides each request at its own time, in memory, and calls nothing. "+
			docsPage("rollout.md#3-replay")+" has examples.\n\n"+replay.Help(),
		func(args []string) error {
			r.Logs = args
			return r.Run(c)
		})
	f := cmd.Flags()
	f.StringVar(&r.Now.Rules, "rules", "", "a `PATH` of rules, instead of rules.path")
	f.StringVar(&r.Now.Tiers, "tiers", "", "a tiers `FILE`, instead of tiers.path")
	f.StringArrayVar(&r.Requests.Envoy, "envoy", nil, "a `FILE` of Envoy's configuration, which has the descriptors and the format of the log; several files are one configuration")
	f.StringVar(&r.Requests.Map, "map", "", "a mapping `FILE`: without --envoy the descriptors of a request, with --envoy the names of the fields in a JSON log")
	f.StringVar(&r.Requests.Domain, "domain", "", "the `NAME` of the domain, if the files of --envoy have no ratelimit filter")
	f.StringVar(&r.Requests.Listener, "listener", "", "the `NAME` of the listener that wrote the logs, if --envoy has several")
	f.StringVar(&r.Format, "format", "", "the `FORMAT` of the logs: json, envoy, nginx, caddy, or the text of a log format (default: rls recognises the named ones, and that of --envoy)")
	f.BoolVar(&r.JSON, "json", false, "print the report as JSON; "+docsPage("replay.schema.json")+" describes it")
	f.StringVar(&r.HTML, "html", "", "also write the report to this `FILE`, as a page with charts")
	f.StringVar(&r.Decisions, "decisions", "", "write each decision to this `FILE`, one JSON object a line; "+docsPage("replay-decisions.schema.json")+" describes it")
	f.StringVar(&r.Was.Rules, "against", "", "also decide by the rules of this `PATH`, those of now, and report who is newly denied and who is freed")
	f.StringVar(&r.Was.Tiers, "against-tiers", "", "the tiers `FILE` of --against (default: the same tiers)")
	f.StringVar(&r.WhatIf, "what-if", whatIfAll, "vary the limits of `RULES`: none, all, or the name of a rule")
	f.StringArrayVar(&r.FailIf, "fail-if", nil, "exit 1 if this `CONDITION` is true of the report, such as 'denied>0.1%' or 'rule:per-key.denied>100'; can be repeated")
	f.DurationVar(&r.Reorder, "reorder", accesslog.DefaultReorder, "how much later than a request that started after it a line may come")
	completeWords(cmd, "format", "json", "envoy", "nginx", "caddy")
	completeWords(cmd, "what-if", whatIfNone, whatIfAll)
	return cmd
}

// The words of --what-if. Any other text is the name of a rule.
const (
	whatIfNone = "none"
	whatIfAll  = "all"
)

// errCondition ends a command that has printed which conditions of --fail-if hold.
var errCondition = errors.New("a --fail-if holds")

// Run decides the requests of the logs and prints the report.
func (r *replayCmd) Run(c *cli) error {
	conditions, err := r.check()
	if err != nil {
		return err
	}
	l, err := c.load()
	if err != nil {
		return invalid(err)
	}
	now, was, err := r.generations(l.Settings)
	if err != nil {
		return err
	}
	if err := r.checkNames(now.Rules, conditions); err != nil {
		return err
	}
	logs := accesslog.Options{Paths: r.Logs, Format: r.Format, Reorder: r.Reorder}
	o, err := r.options(now, was, &logs)
	if err != nil {
		return err
	}
	o.MaxBytes = l.Store.Memory.Bound()
	decisions, page, err := r.outputs(c, l)
	if err != nil {
		return err
	}
	defer decisions.Drop() // for the ways out below; the usual one reports the error
	defer page.Drop()
	if decisions != nil {
		o.Decisions = replay.NewDecisions(decisions, r.Logs)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal ends the process at once
	result, failed := replay.Logs(ctx, o, logs)
	if result == nil {
		return failed
	}
	if decisions != nil {
		if err := errors.Join(o.Decisions.Flush(), decisions.Finish()); err != nil {
			return fmt.Errorf("--decisions: %w", err)
		}
	}
	if page != nil {
		if err := errors.Join(report.WriteHTML(page, result), page.Finish()); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if err := r.write(result); err != nil {
		return err
	}
	if failed != nil {
		return partial{failed}
	}
	return r.judge(result, conditions)
}

// options returns how to decide, and sets what the files of --envoy and --map say of the logs.
func (r *replayCmd) options(now, was *config.Generation, logs *accesslog.Options) (o replay.EngineOptions, err error) {
	d, err := r.describer(now, logs)
	if err != nil {
		return o, err
	}
	if asked := d.Domains(); len(asked) > 0 && !slices.ContainsFunc(asked, now.Rules.HasDomain) {
		return o, fmt.Errorf("no rule would apply: the requests ask in the domain %s, and the rules have %s",
			strings.Join(asked, ", "), cmp.Or(strings.Join(now.Rules.Domains(), ", "), "none"))
	}
	o = replay.EngineOptions{Rules: now.Rules, Describer: d, Files: r.Logs}
	for _, p := range now.Locations {
		o.Locations = append(o.Locations, p.String())
	}
	if was != nil {
		o.Against = was.Rules
	}
	if r.WhatIf != whatIfNone {
		o.WhatIf = func(rule string) bool { return r.WhatIf == whatIfAll || rule == r.WhatIf }
	}
	return o, nil
}

// check returns the conditions of --fail-if. The error says what is wrong with the flags.
func (r *replayCmd) check() (conditions []replay.Condition, err error) {
	for _, text := range r.FailIf {
		c, err := replay.ParseCondition(text)
		if err != nil {
			return nil, usage("--fail-if: %w", err)
		}
		if c.Compares() && r.Was.Rules == "" {
			return nil, usage("--fail-if: %q compares with other rules: name them with --against", text)
		}
		conditions = append(conditions, c)
	}
	switch {
	case len(r.Logs) == 0:
		return nil, usage("name an access log, or - for standard input")
	case r.Reorder < 0:
		return nil, usage("--reorder: expected a time such as 1m, or 0 if the lines are in the order of the requests, not %v", r.Reorder)
	case r.Was.Tiers != "" && r.Was.Rules == "":
		return nil, usage("--against-tiers: name the rules of these tiers with --against")
	}
	for i, log := range r.Logs {
		if at := slices.IndexFunc(r.Logs[:i], func(other string) bool { return log == other || outfile.Same(log, other) }); at >= 0 {
			return nil, usage("%s and %s are one log, whose requests would count twice: name it once", r.Logs[at], log)
		}
	}
	if r.Reorder == 0 {
		r.Reorder = -1 // the reader takes 0 for its default
	}
	return conditions, nil
}

// checkNames returns an error for a rule that a flag names and the rules do not have.
func (r *replayCmd) checkNames(rs *rules.Rules, conditions []replay.Condition) error {
	var names []string
	for _, rule := range rs.All() {
		names = append(names, rule.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, c := range conditions {
		if name := c.Rule(); name != "" && !slices.Contains(names, name) {
			return usage("--fail-if: there is no rule %q, only %s", name, strings.Join(names, ", "))
		}
	}
	if !slices.Contains(append([]string{whatIfNone, whatIfAll}, names...), r.WhatIf) {
		return usage("--what-if: there is no rule %q, only %s", r.WhatIf, strings.Join(names, ", "))
	}
	return nil
}

// generations loads the rules that decide, and those of --against, which are nil without it.
func (r *replayCmd) generations(s settings.Settings) (now, was *config.Generation, err error) {
	load := func(rules, tiers string) (*config.Generation, error) {
		s, g, err := rulesOf(s, rules, tiers)
		switch {
		case err != nil:
			return nil, err
		case s.Rules.Path == "":
			return nil, usage("no rules are named: give them with --rules, or set rules.path")
		}
		if s.Tiers.Source == settings.TiersFile && s.Tiers.Path == "" { // only the built-in example is left
			for _, rule := range g.Rules.All() {
				if len(rule.ByTier) > 0 {
					return nil, usage("the rule %s has limits by tier, and no tiers are named: give them with --tiers, or set tiers.path", rule.Name)
				}
			}
		}
		return g, nil
	}
	if now, err = load(r.Now.Rules, r.Now.Tiers); err != nil || r.Was.Rules == "" {
		return now, nil, err
	}
	was, err = load(r.Was.Rules, cmp.Or(r.Was.Tiers, r.Now.Tiers))
	return now, was, err
}

// describer returns what makes descriptors of requests. It sets what its files say of the logs.
func (r *replayCmd) describer(g *config.Generation, logs *accesslog.Options) (*describe.Describer, error) {
	o := describe.Options{Secrets: g.Secrets, Domain: r.Requests.Domain, Listener: r.Requests.Listener}
	if r.Requests.Map != "" {
		m, err := envoyfile.ReadMap(r.Requests.Map, len(r.Requests.Envoy) > 0)
		if err != nil {
			return nil, invalid(err)
		}
		logs.Fields = m.Fields
		if len(r.Requests.Envoy) == 0 {
			if r.Requests.Domain != "" || r.Requests.Listener != "" {
				return nil, usage("--domain and --listener belong to --envoy: the mapping file says the domain")
			}
			return describe.NewMap(m, o), nil
		}
	}
	if len(r.Requests.Envoy) == 0 {
		return nil, usage("name Envoy's configuration with --envoy FILE, so that rls makes the descriptors that Envoy sends, or a mapping file with --map FILE")
	}
	c, err := envoyfile.Read(r.Requests.Envoy...)
	if err != nil {
		return nil, invalid(err)
	}
	d, err := describe.New(c, o)
	if err != nil {
		return nil, usage("--envoy: %w", err)
	}
	logs.Written = c.Logs
	return d, nil
}

func (r *replayCmd) write(result *replay.Report) error {
	if r.JSON {
		return report.WriteJSON(&stdout, result)
	}
	return report.WriteText(&stdout, result, widthOf(os.Stdout), coloursOf(os.Stdout))
}

// judge prints the conditions that hold.
func (r *replayCmd) judge(result *replay.Report, conditions []replay.Condition) (err error) {
	for _, c := range conditions {
		if figure, met := c.Met(result); met {
			fmt.Fprintf(os.Stderr, "rls: --fail-if %s: it is %s\n", c, figure)
			err = errCondition
		}
	}
	return err
}

// outputs creates the files of --decisions and --html.
func (r *replayCmd) outputs(c *cli, l loaded) (decisions, page *outfile.File, err error) {
	inputs := slices.Concat(r.Logs, r.Requests.Envoy, []string{c.Config, r.Requests.Map, r.Now.Rules, r.Now.Tiers, r.Was.Rules, r.Was.Tiers, l.Rules.Path, l.Tiers.Path})
	if r.Decisions != "" && filepath.Clean(r.Decisions) == filepath.Clean(r.HTML) && outfile.IsRegular(r.HTML) {
		return nil, nil, usage("--html and --decisions name the same file")
	}
	if decisions, err = createOutput("--decisions", r.Decisions, inputs); err != nil {
		return nil, nil, err
	}
	if page, err = createOutput("--html", r.HTML, inputs); err != nil {
		decisions.Drop()
	}
	return decisions, page, err
}

// createOutput creates the file that a flag names. It returns nil without a path.
func createOutput(flag, path string, inputs []string) (*outfile.File, error) {
	if path == "" {
		return nil, nil
	}
	out, err := outfile.Create(path, inputs)
	if err != nil && !errors.As(err, new(*os.PathError)) {
		return nil, usage("%s: %w", flag, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return out, nil
}
