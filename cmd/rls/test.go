package main

import (
	"bytes"
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
	"go.uber.org/zap"

	headers "github.com/slidegate/slidegate/internal/answer"
	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/redisclient"
	"github.com/slidegate/slidegate/internal/ruletest"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// testFiles are the names of files of tests in a directory.
const testFiles = "*_test.yaml"

type testCmd struct {
	Paths        []string
	Rules, Tiers string
	Redis        settings.URL
	Format       string
	Watch, Cover bool
}

func testOf(c *cli) *cobra.Command {
	var t testCmd
	cmd := &cobra.Command{
		Use:   "test PATH...",
		Short: "Run tests of rules; exit 1 if one fails.",
		Long: "Run tests of rules; exit 1 if one fails.\n\n" +
			"PATH is a file of tests, or a directory: then all files named " + testFiles + " in it and below. " +
			"Time is virtual, so a test of a month takes no longer than its requests. docs/testing.md describes the files.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name a file of tests, or a directory with files named %s", testFiles)
			}
			return nil
		},
		RunE: begin(func(args []string) error {
			t.Paths = args
			return t.Run(c)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&t.Rules, "rules", "", "test the rules of this `PATH`, whatever the files of tests say")
	f.StringVar(&t.Tiers, "tiers", "", "take the tiers of this `FILE`, whatever the files of tests say")
	f.Var(&urlFlag{&t.Redis}, "redis", "decide on the Redis of this `URL`, in real time, under a key prefix of its own")
	f.StringVar(&t.Format, "format", "text", "print the results as text, tap or junit (`FORMAT`)")
	f.BoolVar(&t.Cover, "require-coverage", false, "also fail if no test reaches a rule or a tier of it")
	f.BoolVar(&t.Watch, "watch", false, "run the tests again whenever a file changes")
	completeWords(cmd, "format", "text", "tap", "junit")
	return cmd
}

// urlFlag is a flag whose value may have a password.
type urlFlag struct{ *settings.URL }

func (u *urlFlag) Set(text string) error { return u.UnmarshalText([]byte(text)) }
func (*urlFlag) Type() string            { return "URL" }

// errTests ends a command that has printed which tests failed.
var errTests = errors.New("tests failed")

// Run runs the tests, once or until the command is interrupted.
func (t *testCmd) Run(c *cli) error {
	if !slices.Contains([]string{"text", "tap", "junit"}, t.Format) {
		return usage("--format: expected text, tap or junit, not %q", t.Format)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !t.Watch {
		return t.once(ctx, c)
	}
	for ctx.Err() == nil {
		// The watcher notes the state of the files before they are read, so it sees every change.
		w := watch.New(watch.Options{Paths: t.watched(c), Interval: time.Second})
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

// watched returns the files that decide how the tests end, as far as they can be read.
func (t *testCmd) watched(c *cli) []string {
	paths := slices.Clone(t.Paths)
	names, _ := t.names() // once reports the errors
	ofCommand, _ := t.load(c)
	for _, name := range names {
		f, err := ruletests.Read(name)
		if err != nil {
			continue
		}
		if s, err := t.settings(ofCommand, f); err == nil {
			paths = append(paths, s.WatchPaths()...)
		}
	}
	return paths
}

// once runs all tests once.
func (t *testCmd) once(ctx context.Context, c *cli) error {
	names, err := t.names()
	if err != nil {
		return err
	}
	s, err := t.load(c)
	if err != nil {
		return err
	}
	var results []ruletest.Result
	var parts []ruletest.Part
	for _, name := range names {
		ofFile, covered, err := t.file(ctx, s, name)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			unread := ruletest.Result{File: name, Name: name}
			for _, p := range problems(err) {
				unread.Problems = append(unread.Problems, p.String())
			}
			ofFile = []ruletest.Result{unread}
		}
		results, parts = append(results, ofFile...), merge(parts, covered)
	}
	var out bytes.Buffer
	switch t.Format {
	case "tap":
		err = ruletest.WriteTAP(&out, results, parts)
	case "junit":
		err = ruletest.WriteJUnit(&out, results)
	default:
		err = ruletest.WriteText(&out, results, parts)
	}
	if err == nil {
		_, err = os.Stdout.Write(out.Bytes())
	}
	if err != nil {
		return err
	}
	if ruletest.Failed(results) > 0 {
		return errTests
	}
	var untested []string
	for i := range parts {
		if parts[i].Requests == 0 {
			untested = append(untested, parts[i].String())
		}
	}
	if t.Cover && len(untested) > 0 {
		return fmt.Errorf("--require-coverage: no test reaches\n%s", strings.Join(untested, "\n"))
	}
	return nil
}

// merge adds parts of the same rules, which several files of tests may reach.
func merge(all, more []ruletest.Part) []ruletest.Part {
	for _, p := range more {
		if i := slices.IndexFunc(all, func(a ruletest.Part) bool { return a.Place == p.Place && a.Rule == p.Rule && a.Tier == p.Tier }); i >= 0 {
			all[i].Requests += p.Requests
		} else {
			all = append(all, p)
		}
	}
	return all
}

// names returns the files of tests.
func (t *testCmd) names() (names []string, err error) {
	for _, path := range t.Paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, usageError{err}
		}
		if !info.IsDir() {
			names = append(names, path)
			continue
		}
		found := false
		list := files.List([]string{path}, files.Which{})
		if len(list.Failed) > 0 {
			return nil, invalid(strict.Problems(list.Failed))
		}
		for _, file := range list.Files {
			if ok, _ := filepath.Match(testFiles, filepath.Base(file)); ok {
				names, found = append(names, file), true
			}
		}
		if !found {
			return nil, usage("%s: the directory has no files named %s", path, testFiles)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// load returns the settings of the command.
func (t *testCmd) load(c *cli) (settings.Settings, error) {
	l, err := load(func(environ []string, given ...settings.Given) (settings.Settings, settings.Origins, error) {
		if t.Redis != "" {
			redis := []string{"SLIDEGATE_STORE_TYPE=redis", "SLIDEGATE_STORE_REDIS_URL=" + t.Redis.Reveal()}
			environ = append(slices.DeleteFunc(environ, func(v string) bool {
				return slices.ContainsFunc(redis, func(r string) bool { return strings.HasPrefix(v, r[:strings.Index(r, "=")+1]) })
			}), redis...)
		}
		return settings.Load(c.Config, environ, given...)
	})
	if err != nil {
		return settings.Settings{}, invalid(err)
	}
	return l.Settings, nil
}

// settings adds the rules and the tiers of a file of tests to the settings of the command.
func (t *testCmd) settings(s settings.Settings, f *ruletests.File) (settings.Settings, error) {
	for _, path := range []string{f.Rules, t.Rules} {
		if path != "" {
			s.Rules.Source, s.Rules.Path = settings.RulesFiles, path
		}
	}
	for _, path := range []string{f.Tiers, t.Tiers} {
		if path != "" {
			s.Tiers.Source, s.Tiers.Path = settings.TiersFile, path
		}
	}
	switch {
	case s.Rules.Source == settings.RulesXDS:
		return s, fmt.Errorf("%s: the rules come from the management server %s, which test does not ask (rules.source: xds): name rules in the file, or give --rules", f.Name, s.Rules.XDS.Address)
	case s.Rules.Path == "":
		return s, fmt.Errorf("%s: rules: no rules are named: write rules: rules.yaml, give --rules, or set rules.path", f.Name)
	}
	return s, nil
}

// file runs the tests of a file. The error says why none could be run.
func (t *testCmd) file(ctx context.Context, s settings.Settings, name string) ([]ruletest.Result, []ruletest.Part, error) {
	f, err := ruletests.Read(name)
	if err != nil {
		return nil, nil, err
	}
	if s, err = t.settings(s, f); err != nil {
		return nil, nil, err
	}
	g, err := config.Load(s)
	if err != nil {
		return nil, nil, err
	}
	cover := ruletest.NewCoverage(g)
	r := ruletest.Runner{
		Generation: g, Coverage: cover, Begin: ruletest.InMemory(g.Rules),
		Renderer: headers.NewRenderer(s.Headers.Styles...).Named(headers.ReferenceNames(s.Headers.Reference)),
	}
	if t.Redis != "" {
		store, end, err := t.store(s)
		if err != nil {
			return nil, nil, err
		}
		defer end()
		r.Begin = ruletest.InStore(g.Rules, store)
	}
	var results []ruletest.Result
	for i := range f.Tests {
		result, err := r.Run(ctx, f, &f.Tests[i])
		if err != nil {
			result.Problems = append(result.Problems, err.Error())
		}
		if results = append(results, result); ctx.Err() != nil {
			break
		}
	}
	return results, cover.Parts(), nil
}

// store returns a store on the Redis of --redis, with a key prefix that no other program uses.
func (t *testCmd) store(s settings.Settings) (store *redisstore.Store, end func(), err error) {
	client, err := redisclient.New(redisclient.Options{Redis: s.Store.Redis.Redis, Section: "--redis", Timeout: time.Second, Log: zap.NewNop()})
	if err != nil {
		return nil, nil, fmt.Errorf("--redis: %w", err)
	}
	store = redisstore.New(client, redisstore.Options{Prefix: fmt.Sprintf("rls-test:%d:%d:", os.Getpid(), time.Now().UnixNano()), Timeout: time.Second})
	return store, func() { _, _ = store.Close(), client.Close() }, nil // all answers were read
}
