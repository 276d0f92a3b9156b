package config

import (
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/text"
)

// An Input is a set of files that are checked together. The zero value is the files that
// the settings name.
type Input struct {
	// Settings is the settings file. Empty: none.
	Settings string
	// Tiers is the tiers file, instead of tiers.path. Empty: tiers.path.
	Tiers string
	// TiersOf is a file instead of rules.tiers_of. Empty: rules.tiers_of.
	TiersOf string
	// Rules are files and directories of rules, instead of rules.path. They are one set,
	// like the files of a directory. Nil: rules.path.
	Rules []string
	// Texts are rules files that are in memory. They are one set with Rules.
	Texts []files.File
	// Tests are files of tests of rules. They name the rules that they test.
	Tests []string
	// Portable refuses what envoyproxy/ratelimit cannot read, or would read otherwise: it returns what that
	// service makes of a YAML scalar without quotes. Nil: nothing is refused.
	Portable func(text string) any

	stdin []byte
}

// NewInput sorts paths by their content. A directory, and a file that is not recognised,
// hold rules. The path [files.Stdin] reads stdin. A second settings file or tiers file is an
// error.
func NewInput(paths []string, stdin io.Reader) (Input, error) {
	var in Input
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			continue
		}
		data, err := in.begin(path, stdin)
		if err != nil {
			return in, err
		}
		switch kindOfFile(data) {
		case settingsFile:
			if in.Settings != "" {
				return in, fmt.Errorf("%s and %s are both settings files: give one", in.Settings, path)
			}
			in.Settings = path
		case tiersFile:
			if in.Tiers != "" {
				return in, fmt.Errorf("%s and %s are both tiers files: give one", in.Tiers, path)
			}
			in.Tiers = path
		case tiersOfFile:
			if in.TiersOf != "" {
				return in, fmt.Errorf("%s and %s both say which limits tiers have: give one", in.TiersOf, path)
			}
			in.TiersOf = path
		case testsFile:
			in.Tests = append(in.Tests, path)
		default:
			in.Rules = append(in.Rules, path)
		}
	}
	return in, nil
}

// begin returns enough of a file to recognise it. If the file cannot be read, begin returns
// nil, and Load reports the problem.
func (in *Input) begin(path string, stdin io.Reader) ([]byte, error) {
	if path == files.Stdin {
		data, err := io.ReadAll(io.LimitReader(stdin, max(maxTiersFile, maxRulesFile)+1))
		if err == nil {
			data, err = text.WithoutMark(data)
		}
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		in.stdin = data
		return data[:min(len(data), maxKind)], nil
	}
	f, _, err := files.Open(path)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, _ := io.ReadAll(io.LimitReader(f, maxKind))
	return data, nil
}

const maxKind = 1 << 20

// The kinds of files.
const (
	rulesFile = iota
	tiersFile
	settingsFile
	testsFile
	tiersOfFile
)

// kindOfFile recognises a file by the keys at its top, even if it is not valid.
func kindOfFile(data []byte) int {
	keys, mappings := strict.TopKeys(data)
	section := slices.Contains(mappings, "tiers") // the section of settings
	has := func(names ...string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return slices.Contains(names, k) })
	}
	switch {
	case has("tests"): // also with a domain, rules or tiers
		return testsFile
	case has("domain", "descriptors"):
		return rulesFile
	case has("subjects", "default"):
		return tiersFile
	case has("tiers") && !section && len(keys) == 1:
		return tiersFile
	case has("rules") && len(keys) == 1 && !slices.Contains(mappings, "rules"):
		return tiersOfFile
	case slices.ContainsFunc(strict.KeysOf(reflect.TypeFor[settings.Settings]()), func(k strict.Key) bool { return has(k.Name) }):
		return settingsFile
	}
	return rulesFile
}

// LoadSettings is [settings.Load] for the settings file of the input.
func (in *Input) LoadSettings(environ []string, dropIn ...settings.DropIn) (settings.Settings, settings.Origins, error) {
	if in.Settings != files.Stdin {
		return settings.Load(in.Settings, environ, dropIn...)
	}
	return settings.Parse(files.Stdin, in.stdin, environ, dropIn...)
}

// ReadTests reads a file of tests of the input.
func (in *Input) ReadTests(path string) (*ruletests.File, error) {
	if path == files.Stdin {
		return ruletests.Parse(path, in.stdin)
	}
	return ruletests.Read(path)
}

// OnlyTests reports whether the input has files of tests, and nothing else.
func (in *Input) OnlyTests() bool {
	return len(in.Tests) > 0 && in.Settings == "" && in.Tiers == "" && in.Rules == nil
}

// Load is [Load] for the files of the input. It checks a tiers file alone without rules,
// since the built-in rules name other tiers. Rules of the input are read also if the settings
// take them from an xDS server.
func (in *Input) Load(s settings.Settings) (*Generation, error) {
	if in.Tiers != "" {
		s.Tiers.Path = in.Tiers
		if s.Tiers.Source == settings.TiersNone {
			s.Tiers.Source = settings.TiersFile
		}
	}
	if in.TiersOf != "" {
		s.Rules.TiersOf = in.TiersOf
	}
	paths := in.Rules
	if paths == nil && in.Texts == nil && s.Rules.Path != "" {
		paths = []string{s.Rules.Path}
	}
	noRules := in.Tiers != "" && paths == nil && in.Texts == nil && in.Settings == ""
	served := in.Rules == nil && in.Texts == nil && s.Rules.Source == settings.RulesXDS && !noRules
	if served {
		paths = nil
	}
	return load(loader{settings: s, paths: paths, texts: in.Texts, stdin: in.stdin, portable: in.Portable, noRules: noRules, served: served})
}
