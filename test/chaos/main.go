package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// controlCallers ask beside the others for what needs no store.
const controlCallers = 20

// options are the flags, and what tests make smaller.
type options struct {
	rls     string
	callers int
	rate    int // calls a second of all callers
	rules   []string
	only    *regexp.Regexp

	explain io.Writer // where single calls are told of that were charged wrongly; nil: nowhere

	warmUp, lasts, recovery time.Duration
}

// interval is the time from call to call of one caller.
func (o *options) interval() time.Duration {
	return time.Second * time.Duration(o.callers) / time.Duration(o.rate)
}

// defaults are the options without flags.
func defaults() options {
	return options{warmUp: 2 * time.Second, lasts: 3 * time.Second, recovery: 3 * time.Second}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	o := defaults()
	flags.StringVar(&o.rls, "rls", "bin/rls", "the `binary` of the service")
	flags.IntVar(&o.callers, "callers", 100, "how many ask at once")
	flags.IntVar(&o.rate, "rate", 3000, "calls a `second` of all callers together")
	rules := flags.String("rules", strings.Join(choices, ","), "the rules that callers ask in turn, by their on_store_error")
	only := flags.String("only", "", "run only faults whose name matches this `regexp`, such as SIGSTOP")
	explain := flags.Bool("explain", false, "tell of single calls whose answer and charge differ")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *explain {
		o.explain = progress
	}
	o.rules = strings.Split(*rules, ",")
	var err error
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.callers < 1 || o.callers > 9999 || o.rate < 1:
		return errors.New("-callers must be from 1 to 9999 and -rate at least 1")
	}
	for _, r := range o.rules {
		if !slices.Contains(choices, r) {
			return fmt.Errorf("-rules: unknown choice %q, want some of %s", r, strings.Join(choices, ", "))
		}
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if o.rls, err = filepath.Abs(o.rls); err != nil {
		return err
	}
	if _, err := exec.LookPath(o.rls); err != nil {
		return fmt.Errorf("-rls: %w: build it with make build", err)
	}
	results, err := measure(ctx, &o, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s/%s, %d CPUs shared by Redis, service and load, %s; %d callers, %d calls a second\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), o.callers, o.rate)
	writeTables(out, results)
	failed := 0
	for _, r := range results {
		for _, f := range r.failures {
			failed++
			fmt.Fprintf(out, "\nFAILED %s: %s\n", r.scenario, f)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d requirements are not met", failed)
	}
	return nil
}

// scenarios are all faults.
func scenarios() []scenario {
	return slices.Concat(singleScenarios(), sentinelScenarios(), clusterScenarios())
}

// measure runs the chosen scenarios one after the other.
func measure(ctx context.Context, o *options, progress io.Writer) ([]*result, error) {
	var results []*result
	for _, s := range scenarios() {
		if !o.only.MatchString(s.name) {
			continue
		}
		r, err := runScenario(ctx, o, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(progress, "%s: %d failures\n", s.name, len(r.failures))
		results = append(results, r)
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("-only %s %w", o.only, errNoScenario)
	}
	return results, nil
}
