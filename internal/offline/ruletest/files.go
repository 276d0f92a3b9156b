package ruletest

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/redisclient"
	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
)

// Options say how to run the tests of files.
type Options struct {
	Rules, Tiers string         // paths in place of those that the files name; empty: none
	Only         *regexp.Regexp // runs only tests with such names; nil: all
	Redis        bool           // decides on the Redis of the settings, in real time
	Verbose      bool           // keeps the answers of all steps
}

// RunFile runs the tests of a file and returns what they reached. The error says why none could be run,
// or that Redis does not answer.
func (o *Options) RunFile(ctx context.Context, s settings.Settings, name string) (results []Result, parts []Part, notRun int, err error) {
	f, err := ruletests.Read(name)
	if err != nil {
		return nil, nil, 0, err
	}
	all := len(f.Tests)
	if o.Only != nil {
		f.Tests = slices.DeleteFunc(f.Tests, func(test ruletests.Test) bool { return !o.Only.MatchString(test.Name) })
	}
	if notRun = all - len(f.Tests); len(f.Tests) == 0 {
		return nil, nil, notRun, nil
	}
	if s, err = Settings(s, f, o.Rules, o.Tiers); err != nil {
		return nil, nil, 0, err
	}
	g, err := config.Load(s)
	if err != nil {
		return nil, nil, 0, err
	}
	cover := NewCoverage(g, s.Tiers.Path)
	r := Runner{
		Generation: g, Coverage: cover, Verbose: o.Verbose, Begin: InMemory(g.Rules),
		Renderer: answer.NewRenderer(s.Headers.Styles...).Named(answer.ReferenceNames(s.DropIn.Headers)),
	}
	if o.Redis {
		client, err := redisclient.New(redisclient.Options{Redis: s.Store.Redis, Section: "--redis", Timeout: time.Second, Log: zap.NewNop()})
		if err != nil {
			return nil, nil, 0, fmt.Errorf("--redis: %w", err)
		}
		defer func() { _ = client.Close() }() // all answers were read
		r.Begin = InStore(g.Rules, func() KeptStore {
			// No other test and no other program uses the prefix.
			return redisstore.New(client, redisstore.Options{Prefix: fmt.Sprintf("rls-test:%d:%d:", os.Getpid(), time.Now().UnixNano()), Timeout: time.Second})
		})
	}
	for i := range f.Tests {
		result, err := r.Run(ctx, f, &f.Tests[i])
		if failure.Of(err) != "" {
			return nil, nil, 0, err
		}
		for _, p := range strict.ProblemsOf(err) {
			result.Problems = append(result.Problems, p.String())
		}
		if results = append(results, result); ctx.Err() != nil {
			break
		}
	}
	return results, cover.Parts(), notRun, nil
}

// Settings adds the rules and the tiers of a file of tests to settings. The paths rules and tiers
// replace them, unless they are empty.
func Settings(s settings.Settings, f *ruletests.File, rules, tiers string) (settings.Settings, error) {
	for _, path := range []string{f.Rules, rules} {
		if path != "" {
			s.Rules.Source, s.Rules.Path = settings.RulesFiles, path
		}
	}
	for _, path := range []string{f.Tiers, tiers} {
		if path != "" {
			s.Tiers.Source, s.Tiers.Path = settings.TiersFile, path
		}
	}
	switch {
	case s.Rules.Source == settings.RulesXDS:
		return s, strict.Problems{{File: f.Name, Path: "rules", Message: fmt.Sprintf("the rules come from the xDS server %s, which test does not ask (rules.source: xds): name rules in the file, or give --rules", s.Rules.XDS.Address)}}
	case s.Rules.Path == "":
		return s, strict.Problems{{File: f.Name, Path: "rules", Message: "no rules are named: write rules: rules.yaml, or set rules.path"}}
	}
	return s, nil
}
