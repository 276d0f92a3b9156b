package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/test/program"
)

func main() { program.Main("chaos", run) }

// controlCallers is how many callers send requests that need no store.
const controlCallers = 20

// options are the flags, and times that tests shorten.
type options struct {
	rls      string
	callers  int
	rate     int // calls a second of all callers
	rules    []string
	attempts int
	only     *regexp.Regexp

	explain io.Writer // for single calls that were charged wrongly; nil: they are not written

	warmUp, lasts, recovery time.Duration
}

// interval is the time from call to call of one caller.
func (o *options) interval() time.Duration {
	return time.Second * time.Duration(o.callers) / time.Duration(o.rate)
}

// defaults returns the options without flags.
func defaults() options {
	return options{warmUp: 2 * time.Second, lasts: 3 * time.Second, recovery: 3 * time.Second}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := program.NewFlags("chaos")
	o := defaults()
	flags.RLS(&o.rls)
	flags.IntVar(&o.callers, "callers", 100, "how many ask at once")
	flags.IntVar(&o.rate, "rate", 3000, "calls a `second` of all callers together")
	flags.IntVar(&o.attempts, "attempts", 3, "how often a fault is made at most, until the machine is quiet")
	rules := flags.String("rules", strings.Join(choices, ","), "the rules that callers ask in turn, by their on_store_error")
	flags.Only(&o.only, "run only faults whose name matches this `regexp`, such as SIGSTOP")
	explain := flags.Bool("explain", false, "tell of single calls whose answer and charge differ")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *explain {
		o.explain = progress
	}
	o.rules = strings.Split(*rules, ",")
	switch {
	case o.attempts < 1:
		return errors.New("-attempts must be at least 1")
	case o.callers < 1 || o.callers > 9999 || o.rate < 1:
		return errors.New("-callers must be from 1 to 9999 and -rate at least 1")
	}
	for _, r := range o.rules {
		if !slices.Contains(choices, r) {
			return fmt.Errorf("-rules: unknown choice %q, want some of %s", r, strings.Join(choices, ", "))
		}
	}
	m, err := measure(ctx, &o, progress)
	if err != nil {
		return err
	}
	redis := ""
	if len(m.results) > 0 {
		redis = ", Redis " + m.results[0].redis
	}
	fmt.Fprintf(out, "%s%s; %d callers, %d calls a second\n\n", program.Machine("Redis, service and load"), redis, o.callers, o.rate)
	m.write(out)
	if n := len(m.failures()); n > 0 {
		return fmt.Errorf("%d requirements are not met", n)
	}
	return nil
}

// scenarios are all faults.
func scenarios() []scenario {
	return slices.Concat(singleScenarios(), sentinelScenarios(), clusterScenarios(), regionScenarios())
}

// measured is the results of all scenarios.
type measured struct {
	results   []*result
	resharded *resharded // nil: not chosen
}

// measure runs the chosen scenarios one after the other.
func measure(ctx context.Context, o *options, progress io.Writer) (m measured, err error) {
	for _, s := range scenarios() {
		if !o.only.MatchString(s.name) {
			continue
		}
		r, err := runScenario(ctx, o, s)
		if err != nil {
			return m, fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(progress, "%s: %d requirements are not met\n", s.name, len(r.failures))
		m.results = append(m.results, r)
	}
	if o.only.MatchString(reshardedName) {
		if m.resharded, err = runResharded(ctx, o); err != nil {
			return m, fmt.Errorf("%s: %w", reshardedName, err)
		}
		fmt.Fprintf(progress, "%s: %d requirements are not met\n", reshardedName, len(m.resharded.failures))
	}
	if m.results == nil && m.resharded == nil {
		return m, fmt.Errorf("-only %s %w", o.only, errNoScenario)
	}
	return m, nil
}

// failures returns the requirements that are not met.
func (m measured) failures() []string {
	var all []string
	for _, r := range m.results {
		for _, f := range r.failures {
			all = append(all, r.scenario+": "+f)
		}
	}
	if m.resharded != nil {
		for _, f := range m.resharded.failures {
			all = append(all, reshardedName+": "+f)
		}
	}
	return all
}

func (m measured) write(w io.Writer) {
	if len(m.results) > 0 {
		writeTables(w, m.results)
		for _, r := range m.results {
			for _, n := range r.notes {
				fmt.Fprintf(w, "\n%s: %s.\n", r.scenario, n)
			}
		}
		fmt.Fprintln(w)
	}
	if m.resharded != nil {
		m.resharded.write(w)
		fmt.Fprintln(w)
	}
	for _, f := range m.failures() {
		fmt.Fprintln(w, "FAILED", f)
	}
}
