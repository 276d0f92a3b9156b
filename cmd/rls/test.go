package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/offline/ruletest"
	"github.com/slidegate/slidegate/internal/text/words"
	redisfailure "github.com/slidegate/slidegate/pkg/window/redisstore/failure"
)

type testCmd struct {
	Paths        []string
	Rules, Tiers string
	Redis        settings.URL
	Format       string
	Only         string // a regular expression for names of tests; empty: all
	Watch, Cover bool
	Verbose      bool

	only *regexp.Regexp // nil: all
}

func testOf(c *cli) *cobra.Command {
	var t testCmd
	cmd := newCommand("test PATH...", "Run tests of rules; exit 1 if one fails.",
		"PATH is a file of tests, or a directory: then all files named "+ruletest.Names+" in it and below. "+
			"Time is virtual, so a test of a month takes no longer than its requests. "+docsPage("rollout.md#1-test")+" has an example.\n\n"+
			"At the end rls lists each rule, each tier of a rule, and at most 20 overrides of customers that no request matched.\n\n"+
			"With --redis each request waits for its time by the clock of Redis. start has no effect then, and a wait may be a second shorter: keep such tests short, and leave 100 ms at the edge of a window.",
		func(args []string) error {
			t.Paths = args
			return t.Run(c)
		})
	f := cmd.Flags()
	f.StringVar(&t.Rules, "rules", "", "a `PATH` of rules, instead of those that the files of tests name")
	f.StringVar(&t.Tiers, "tiers", "", "a tiers `FILE`, instead of those that the files of tests name")
	f.Var(&urlFlag{&t.Redis}, "redis", "decide on the Redis of this `URL`, in real time, under a separate key prefix; for a Cluster write redis-cluster://HOST:PORT")
	wordVar(cmd, &t.Format, "format", "text", "the `FORMAT` of the results: text or junit", "text", "junit")
	f.StringVar(&t.Only, "run", "", "only the tests whose name matches this `REGEXP`")
	f.BoolVar(&t.Verbose, "verbose", false, "also print what each step got, as its expect may say it")
	f.BoolVar(&t.Cover, "require-coverage", false, "also fail if no test reaches a rule or a tier of it")
	f.BoolVar(&t.Watch, "watch", false, "run the tests again whenever a file changes")
	return cmd
}

// urlFlag is a flag whose value may have a password.
type urlFlag struct{ *settings.URL }

func (u *urlFlag) Set(text string) error {
	if text == "" {
		return errors.New("expected the URL of a Redis")
	}
	return u.UnmarshalText([]byte(text))
}
func (*urlFlag) Type() string { return "URL" }

// errTests ends a command that has printed which tests failed.
var errTests = errors.New("tests failed")

// Run runs the tests, once or until the command is interrupted.
func (t *testCmd) Run(c *cli) error {
	if err := t.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !t.Watch {
		return t.once(ctx, c)
	}
	for ctx.Err() == nil {
		// The watcher notes the state of the files before they are read, so it sees every change.
		w := watch.New(watch.Options{Paths: t.watched(c)})
		fmt.Fprintln(&stdout, "---- "+time.Now().Format(time.TimeOnly)+" ----------------------------------------")
		if err := t.once(ctx, c); err != nil && !errors.Is(err, errTests) && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "rls: "+err.Error())
		}
		changed, cancel := context.WithCancel(ctx)
		err := w.Run(changed, cancel)
		cancel()
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// check refuses flags that mean nothing, or nothing together.
func (t *testCmd) check() (err error) {
	switch {
	case len(t.Paths) == 0:
		return usage("name a file of tests, or a directory with files named %s", ruletest.Names)
	case t.Watch && t.Format != "text":
		return usage("--watch: a report in the format %s is about one run: use --format text", t.Format)
	case t.Only != "" && t.Cover:
		return usage("--require-coverage: --run leaves tests out, so what only they reach would count as not tested: give one of the two")
	case t.Only == "":
		return nil
	}
	if t.only, err = regexp.Compile(t.Only); err != nil {
		return usage("--run: %w", err)
	}
	return nil
}

// watched returns the files that decide how the tests end, as far as they can be read.
func (t *testCmd) watched(c *cli) []string {
	paths := slices.Clone(t.Paths)
	if c.Config != "" {
		paths = append(paths, c.Config)
	}
	names, _ := t.names() // once reports the errors
	ofCommand, _ := t.load(c)
	for _, name := range names {
		f, err := ruletests.Read(name)
		if err != nil {
			continue
		}
		if s, err := ruletest.Settings(ofCommand, f, t.Rules, t.Tiers); err == nil {
			paths = append(paths, s.WatchPaths()...)
		}
	}
	return paths
}

func (t *testCmd) once(ctx context.Context, c *cli) error {
	names, err := t.names()
	if err != nil {
		return err
	}
	s, err := t.load(c)
	if err != nil {
		return err
	}
	report := ruletest.Report{Chosen: t.only != nil}
	o := ruletest.Options{Rules: t.Rules, Tiers: t.Tiers, Only: t.only, Redis: t.Redis != "", Verbose: t.Verbose}
	for _, name := range names {
		results, covered, notRun, err := o.RunFile(ctx, s, name)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if redisfailure.Of(err) != "" {
			rights := ""
			if redisfailure.Of(err) == redisfailure.Permission {
				rights = "; the user needs these rights, for the keys rls-test:*: " + docsPage("operate.md#set-up-redis")
			}
			return fmt.Errorf("--redis: %w%s", err, rights)
		}
		if err != nil {
			unread := ruletest.Result{File: name, Name: name}
			for _, p := range strict.ProblemsOf(err) {
				unread.Problems = append(unread.Problems, p.String())
			}
			results = []ruletest.Result{unread}
		}
		report.Add(results, covered, notRun)
	}
	if len(report.Results) == 0 {
		return usage("--run: none of the %s has a name that matches %q", words.Counted(uint64(report.NotRun), "test"), t.Only)
	}
	return t.print(&report)
}

// print prints a report. The error says whether a test failed.
func (t *testCmd) print(report *ruletest.Report) (err error) {
	var out bytes.Buffer
	if t.Format == "junit" {
		err = report.WriteJUnit(&out)
	} else {
		err = report.WriteText(&out)
	}
	if err == nil {
		_, err = stdout.Write(out.Bytes())
	}
	if err != nil {
		return err
	}
	if report.Failed() > 0 {
		return errTests
	}
	if untested := report.Untested(); t.Cover && len(untested) > 0 {
		return fmt.Errorf("--require-coverage: no test reaches\n%s", strings.Join(untested, "\n"))
	}
	return nil
}

// names returns the files of tests.
func (t *testCmd) names() ([]string, error) {
	names, err := ruletest.Files(t.Paths)
	if problems := strict.Problems(nil); errors.As(err, &problems) {
		return nil, invalid(err)
	}
	if err != nil {
		return nil, usageError{err}
	}
	return names, nil
}

// load returns the settings of the command.
func (t *testCmd) load(c *cli) (settings.Settings, error) {
	const variable = "SLIDEGATE_STORE_REDIS_URL"
	l, err := load(func(environ []string, dropIn ...settings.DropIn) (settings.Settings, settings.Origins, error) {
		if t.Redis != "" {
			redis := []string{"SLIDEGATE_STORE_TYPE=redis", variable + "=" + t.Redis.Reveal()}
			environ = append(slices.DeleteFunc(environ, func(v string) bool {
				return slices.ContainsFunc(redis, func(r string) bool { return strings.HasPrefix(v, r[:strings.Index(r, "=")+1]) })
			}), redis...)
		}
		return settings.Load(c.Config, environ, dropIn...)
	})
	if err == nil {
		return l.Settings, nil
	}
	for _, p := range strict.ProblemsOf(err) {
		if t.Redis != "" && p.Path == variable {
			return settings.Settings{}, usage("--redis: %s", p.Message)
		}
	}
	return settings.Settings{}, invalid(err)
}
