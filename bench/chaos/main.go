package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/bench/internal/program"
	"github.com/slidegate/slidegate/test/process"
)

func main() { program.Main("chaos", run) }

// options are the flags, and numbers and times that tests reduce.
type options struct {
	rls     string
	only    *regexp.Regexp
	callers int
	rate    int // calls a second of all callers

	warmUp, lasts, recovery time.Duration
}

// interval is the time from call to call of one caller.
func (o *options) interval() time.Duration {
	return time.Second * time.Duration(o.callers) / time.Duration(o.rate)
}

// defaults returns the options without flags.
func defaults() options {
	return options{callers: 100, rate: 3000, warmUp: 2 * time.Second, lasts: 3 * time.Second, recovery: 3 * time.Second}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := program.NewFlags("chaos")
	o := defaults()
	flags.RLS(&o.rls)
	flags.Only(&o.only, "run only faults whose name matches this `regexp`, such as SIGSTOP")
	if err := flags.Parse(args); err != nil {
		return err
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

// A verdict is the requirements of a run that are not met.
type verdict struct {
	name     string // of the run
	failures []string
}

func (v *verdict) fail(format string, args ...any) {
	v.failures = append(v.failures, v.name+": "+fmt.Sprintf(format, args...))
}

// measured is the results of all chosen runs.
type measured struct {
	results []*result
	shared  []*shared
}

// measure makes the chosen runs one after the other.
func measure(ctx context.Context, o *options, progress io.Writer) (m measured, err error) {
	// one makes a run in which f fills v and the rest of the result.
	one := func(v *verdict, f func(t process.TB) error) error {
		err := process.Run(ctx, func(t process.TB) {
			if err := f(t); err != nil {
				t.Fatalf("%w", err)
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		fmt.Fprintf(progress, "%s: %d requirements are not met\n", v.name, len(v.failures))
		return nil
	}
	for _, s := range slices.Concat(singleScenarios(), sentinelScenarios(), clusterScenarios()) {
		if !o.only.MatchString(s.name) {
			continue
		}
		r := &result{verdict: verdict{name: s.name}}
		if err := one(&r.verdict, func(t process.TB) error { return r.run(t, o, s) }); err != nil {
			return m, err
		}
		m.results = append(m.results, r)
	}
	for _, s := range sharedRuns() {
		if !o.only.MatchString(s.name) {
			continue
		}
		if err := one(&s.verdict, func(t process.TB) error { return s.run(t, o) }); err != nil {
			return m, err
		}
		m.shared = append(m.shared, s)
	}
	if m.results == nil && m.shared == nil {
		return m, errors.New("-only matches no fault")
	}
	return m, nil
}

// failures returns the requirements that are not met.
func (m measured) failures() (all []string) {
	for _, r := range m.results {
		all = append(all, r.failures...)
	}
	for _, s := range m.shared {
		all = append(all, s.failures...)
	}
	return all
}

func (m measured) write(w io.Writer) {
	if len(m.results) > 0 {
		writeTables(w, m.results)
	}
	for _, s := range m.shared {
		s.write(w)
	}
	for _, f := range m.failures() {
		fmt.Fprintln(w, "FAILED", f)
	}
}
