package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/policy"
	"github.com/slidegate/slidegate/internal/daemon"
	"github.com/slidegate/slidegate/internal/offline/ruletest"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/tables"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/internal/text/words"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

type validateCmd struct {
	Paths []string
	JSON  bool
	// Portable refuses what envoyproxy/ratelimit reads otherwise.
	Portable bool
	// Subject or KeyStdin names the customer to look up in the source of tiers.
	Subject  string
	KeyStdin bool
	// configGiven is true if --config is on the command line.
	configGiven bool
}

func validate(c *cli) *cobra.Command {
	var v validateCmd
	cmd := &cobra.Command{
		Use:   "validate [PATH]...",
		Short: "Check settings, rules, tiers and tests; print every problem and exit 1 if there is one.",
		Long: "Check settings, rules, tiers and tests; print every problem and exit 1 if there is one.\n\n" +
			"PATH is a file of settings, tiers, rules or tests of rules, or a directory of rules; - is standard input. rls recognises a file by its keys. " +
			"rls checks the rules of several paths as one set, like those of a directory. " +
			"If no PATH has settings or tiers, they come from --config and the environment. rls checks a tiers file alone without rules, " +
			"and tests with the rules and tiers that they name. It does not run them: see rls test.\n\n" +
			"With --subject or --key-stdin it also asks tiers.source for one customer, with the query of the service, and prints the answer.",
	}
	cmd.RunE = begin(func(args []string) error {
		v.Paths, v.configGiven = args, cmd.Flags().Changed("config")
		return v.Run(c)
	})
	cmd.Flags().BoolVar(&v.Portable, "portable", false, "also refuse what envoyproxy/ratelimit cannot read, or would read otherwise, so that you can go back to it")
	cmd.Flags().BoolVar(&v.JSON, "json", false, "print problems, warnings and the summary as one JSON document")
	cmd.Flags().StringVar(&v.Subject, "subject", "", "also look up the customer with this `ID` in tiers.source")
	cmd.Flags().BoolVar(&v.KeyStdin, "key-stdin", false, "also read an API key from standard input and look up its customer in tiers.source")
	return cmd
}

// checked is the result of validating, and the document of --json.
type checked struct {
	Paths    []string         `json:"paths,omitempty"`  // empty: the built-in example, or Server
	Server   string           `json:"server,omitempty"` // has the rules
	Valid    bool             `json:"valid"`
	Problems []strict.Problem `json:"problems,omitempty"`
	Warnings []strict.Problem `json:"warnings,omitempty"`
	Rules    int              `json:"rules"`
	Tests    int              `json:"tests,omitempty"`
	Summary  *policy.Review   `json:"summary,omitempty"`
	Customer *admin.Customer  `json:"customer,omitempty"` // with --subject or --key-stdin
}

// Run loads everything as serve does. It prints problems, warnings, and what the rules mean
// and cost. With a problem the exit code is 1.
func (v validateCmd) Run(c *cli) error {
	in, err := config.NewInput(v.Paths, os.Stdin)
	switch {
	case err != nil:
		return usageError{err}
	case in.Settings == "":
		in.Settings = c.Config
	case v.configGiven:
		return usage("--config %s and %s are both settings files: give one", c.Config, in.Settings)
	}
	if in.OnlyTests() && v.Portable {
		return usage("--portable is about rules: name rules, too")
	}
	in.Portable = v.Portable
	l, err := load(in.LoadSettings)
	s := l.Settings
	keys, keysErr := v.askFor(&s)
	if keysErr != nil && err == nil {
		return keysErr
	}
	var ruleErr error
	if len(v.Paths) == 0 {
		ruleErr = l.needRules()
	}
	var sourceErr error
	if !aboutTiers(problems(err)) {
		sourceErr = daemon.CheckSource(s)
	}
	dirErr, mappingErr := daemon.CheckDirectories(s), daemon.CheckMapping(s)
	var (
		g       *config.Generation
		loadErr error
	)
	switch {
	case in.OnlyTests():
	case len(v.Paths) > 0 || !l.rulesMissing():
		g, loadErr = in.Load(s)
	}
	tests, testsErr := validateTests(&in, s)
	paths := v.Paths
	if len(v.Paths) == 0 && s.Rules.Path != "" {
		paths = []string{s.Rules.Path}
	}
	var (
		found    *admin.Customer
		foundErr error
		warnings []strict.Problem
	)
	if len(keys) > 0 && err == nil && sourceErr == nil {
		found, warnings, foundErr = askCustomer(s, keys, g)
	}
	result := check(paths, g, problems(err, ruleErr, sourceErr, dirErr, mappingErr, loadErr, testsErr, foundErr))
	result.Tests, result.Customer = tests, found
	result.Warnings = append(result.Warnings, warnings...)
	if g != nil && g.Rules.Missing() {
		result.Server = string(s.Rules.XDS.Address)
	}
	if v.JSON {
		if err := encode(result); err != nil || result.Valid {
			return err
		}
		return errInvalid
	}
	paint := coloursOf(os.Stderr)
	for _, w := range result.Warnings {
		fmt.Fprintf(os.Stderr, "%s %s\n", paint.Yellow("warning:"), problemLine(paint, w))
	}
	if !result.Valid {
		return invalid(err, ruleErr, sourceErr, dirErr, mappingErr, loadErr, testsErr, foundErr)
	}
	summarize(&stdout, coloursOf(os.Stdout), &result)
	if found != nil {
		tables.Customer(&stdout, found, coloursOf(os.Stdout))
	}
	if v.Portable && result.Server == "" {
		fmt.Fprintf(&stdout, "\nportable: envoyproxy/ratelimit reads these rules the same\n")
	}
	return nil
}

// validateTests checks the files of tests of an input, with the rules and the tiers that they name.
// It returns how many tests they have.
func validateTests(in *config.Input, s settings.Settings) (tests int, err error) {
	var all strict.Problems
	for _, path := range in.Tests {
		f, err := in.ReadTests(path)
		if err == nil {
			tests += len(f.Tests)
			err = validateTest(f, s)
		}
		all = append(all, problems(err)...)
	}
	return tests, joined(all)
}

func validateTest(f *ruletests.File, s settings.Settings) error {
	s, err := new(testCmd).settings(s, f)
	if err != nil {
		return err
	}
	g, err := config.Load(s)
	if err != nil {
		return err
	}
	return (&ruletest.Runner{Generation: g}).Check(f)
}

// aboutTiers reports whether a problem is about a setting of tiers.
func aboutTiers(problems []strict.Problem) bool {
	return slices.ContainsFunc(problems, func(p strict.Problem) bool {
		return strings.HasPrefix(p.Path, "tiers.") || strings.HasPrefix(p.Path, settings.EnvPrefix+"TIERS_")
	})
}

// errInvalid ends a command that has printed the problems on standard output.
var errInvalid = errors.New("the configuration is not valid")

func check(paths []string, g *config.Generation, problems []strict.Problem) checked {
	out := checked{Paths: paths, Valid: len(problems) == 0, Problems: problems}
	if g == nil {
		return out
	}
	out.Warnings = g.Warnings
	places := make(map[descriptors.RuleID]string)
	for i, r := range g.Rules.All() {
		places[r.ID()] = g.Places[i].String()
	}
	review := g.Rules.Review()
	for i := range review.Domains {
		for j := range review.Domains[i].Rules {
			r := &review.Domains[i].Rules[j]
			r.Place = places[r.ID]
		}
	}
	out.Rules, out.Summary = len(g.Rules.All()), &review
	return out
}

func summarize(w io.Writer, paint terminal.Colours, c *checked) {
	what := "the built-in example"
	switch {
	case len(c.Paths) > 0:
		what = strings.Join(c.Paths, ", ")
	case c.Server != "":
		what = fmt.Sprintf("settings and tiers (the rules come from the management server %s, which validate does not ask)", c.Server)
	}
	fmt.Fprintf(w, "%s: %s\n", safetext.Text(what), paint.Green("valid"))
	if c.Tests > 0 {
		fmt.Fprintf(w, "tests: %d\n", c.Tests)
	}
	if c.Rules > 0 {
		fmt.Fprintf(w, "rules without on_store_error: %s (store.on_error)\n", c.Summary.OnStoreError)
	}
	if c.Summary == nil {
		return // there are only tests
	}
	for _, d := range c.Summary.Domains {
		fmt.Fprintf(w, "\ndomain %s: %s\n", paint.Bold(safetext.Text(d.Name)), words.Counted(uint64(len(d.Rules)), "rule"))
		for i := range d.Rules {
			summarizeRule(w, paint, &d.Rules[i])
		}
	}
	if t := c.Summary.TiersWithoutRule; len(t) > 0 {
		fmt.Fprintf(w, "\ntiers that no by_tier names: %s\n", safetext.Text(strings.Join(t, ", ")))
	}
	if t := c.Summary.TiersWithoutSubject; len(t) > 0 {
		fmt.Fprintf(w, "\ntiers that no subject has: %s\n", safetext.Text(strings.Join(t, ", ")))
	}
}

func summarizeRule(w io.Writer, paint terminal.Colours, r *policy.RuleReview) {
	fmt.Fprintf(w, "  %s  %s", paint.Bold(safetext.Text(r.Name)), safetext.Text(r.Path))
	if r.Place != "" {
		fmt.Fprintf(w, "  (%s)", safetext.Text(r.Place))
	}
	fmt.Fprintln(w)
	if r.Unreachable != "" {
		fmt.Fprintf(w, "    %s %s\n", paint.Yellow("UNREACHABLE:"), safetext.Text(r.Unreachable))
	}
	if len(r.Traits) > 0 {
		fmt.Fprintf(w, "    %s\n", safetext.Text(strings.Join(r.Traits, ", ")))
	}
	if len(r.Terms) == 0 {
		fmt.Fprintf(w, "    limits nothing\n")
	}
	for i := range r.Terms {
		t := &r.Terms[i]
		who := ""
		if t.Tier != "" {
			who = safetext.Text(t.Tier) + ": "
		} else if len(r.Terms) > 1 {
			who = "others: "
		}
		if t.Unlimited {
			fmt.Fprintf(w, "    %sunlimited\n", who)
		}
		for _, l := range t.Limits {
			fmt.Fprintf(w, "    %s%s, %s\n", who, l.Limit, cost(&l))
			if l.Words != "" {
				fmt.Fprintf(w, "      %s\n", safetext.Text(l.Words))
			}
			if l.Lease != "" {
				fmt.Fprintf(w, "      lease %s, where a key is asked for often\n", l.Lease)
			}
			if l.Pointless != "" {
				fmt.Fprintf(w, "      %s %s\n", paint.Yellow("POINTLESS:"), l.Pointless)
			}
		}
		if t.Observe > 0 {
			fmt.Fprintf(w, "      only observed for %s of the subjects\n", words.Percent(t.Observe))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "    note: %s\n", safetext.Text(note))
	}
}

// cost returns how exact a limit is, and how much memory a key takes.
func cost(l *policy.LimitReview) string {
	precision := "exact, "
	switch {
	case l.Policy != window.Sliding.String():
		precision = ""
	case l.Precision != "":
		precision = "times rounded up to " + l.Precision + ", "
	}
	if l.Bytes == 0 {
		return precision + "stores nothing"
	}
	upTo := "up to "
	switch l.Policy {
	case window.Sliding.String(), window.InFlight.String():
	default:
		upTo = "" // a log has one size
	}
	return fmt.Sprintf("%s%s%s a key", precision, upTo, words.Bytes(int64(l.Bytes)))
}
