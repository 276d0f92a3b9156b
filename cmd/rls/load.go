package main

import (
	"os"

	"golang.org/x/term"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/internal/operate/logs"
)

// loaded is the settings of a command.
type loaded struct {
	settings.Settings
	// Reading is what the variables of envoyproxy/ratelimit became. Nil: this process is not a
	// drop-in for it.
	Reading *compat.Reading
	// Origins say where the settings come from.
	Origins settings.Origins
}

// loader is [settings.Load] for one settings file.
type loader func(environ []string, dropIn ...settings.DropIn) (settings.Settings, settings.Origins, error)

// load returns the settings of a command, from --config and the environment.
func (c *cli) load() (loaded, error) { return load(c.loadSettings) }

// loadSettings is the loader of --config.
func (c *cli) loadSettings(environ []string, dropIn ...settings.DropIn) (settings.Settings, settings.Origins, error) {
	return settings.Load(c.Config, environ, dropIn...)
}

// load reads settings from the environment and a file. A drop-in for envoyproxy/ratelimit also
// reads the variables of that service. The error has all problems. On error, the settings are
// those that could be read, as for [settings.Load].
func load(from loader) (loaded, error) {
	environ := os.Environ()
	dropIn, problem := compat.Mode(os.Args[0], environ)
	var all strict.Problems
	if problem != nil {
		all = append(all, *problem)
	}
	if !dropIn {
		s, origins, err := from(environ)
		if _, set := origins["log.format"]; !set && term.IsTerminal(int(os.Stderr.Fd())) {
			s.Log.Format = logs.Console
		}
		return loaded{Settings: s, Origins: origins}, append(all, strict.ProblemsOf(err)...).Err()
	}
	s, reading, more := loadDropIn(environ, from)
	_, origins, _ := from(environ, reading.DropIn) // more has the problems
	return loaded{s, reading, origins}, append(all, more...).Err()
}

// loadDropIn reads settings together with the variables of envoyproxy/ratelimit.
func loadDropIn(environ []string, from loader) (settings.Settings, *compat.Reading, strict.Problems) {
	// The second load reports the problems of the first, too.
	configured, origins, _ := from(environ)
	reading := compat.Read(environ, compat.Configured{Settings: configured, Origins: origins})
	s, _, err := from(environ, reading.DropIn)
	reading.Complete(strict.ProblemsOf(err))
	if len(reading.Problems) == 0 {
		// With other problems, the rules may be missing because of one of them.
		return s, reading, compat.CheckExample(&s)
	}
	return s, reading, reading.Problems
}

// rulesOf loads the rules of a command that asks no service: those at two paths, where they are not empty, or
// those of the settings. It returns the settings with these paths.
func rulesOf(s settings.Settings, rules, tiers string) (settings.Settings, *config.Generation, error) {
	if rules != "" {
		s.Rules.Source, s.Rules.Path = settings.RulesFiles, rules
	}
	if tiers != "" {
		s.Tiers.Source, s.Tiers.Path = settings.TiersFile, tiers
	}
	if s.Rules.Source == settings.RulesXDS {
		return s, nil, usage("the rules come from the xDS server %s, which this command does not ask (rules.source: xds): give them with --rules", s.Rules.XDS.Address)
	}
	g, err := config.Load(s)
	if err != nil {
		return s, nil, invalid(err)
	}
	return s, g, nil
}

// rulesMissing reports whether a drop-in has no rules, so that loading them would load the
// built-in example. Another problem says why.
func (l *loaded) rulesMissing() bool {
	return l.Reading != nil && l.Rules.Source == settings.RulesFiles && l.Rules.Path == ""
}

// needRules returns an error if the settings have no rules, and the environment shows that
// this process was meant to be a drop-in for envoyproxy/ratelimit. It would serve the built-in
// example instead of the limits of the operator.
func (l *loaded) needRules() error {
	if l.Reading != nil || l.Rules.Path != "" || l.Rules.Source != settings.RulesFiles {
		return nil
	}
	if p := compat.Mistaken(os.Environ()); p != nil {
		return strict.Problems{*p}
	}
	return nil
}
