package limiter

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/answer"
	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// A Source says where rules come from. Everything in it is one set of rules.
type Source struct {
	// Paths are files of rules, directories of them, at most one tiers file and at most one settings
	// file of the service, in any order. The content says which is which, as for "rls validate".
	Paths []string
	// Texts are rules files in memory, such as embedded ones.
	Texts []Text
	// Environ has SLIDEGATE_ variables that override settings, in the form of os.Environ. Nil: none.
	Environ []string
}

// A Text is a rules file in memory. Problems call it by its name.
type Text struct {
	Name string
	Data []byte
}

// Rules say what is limited. They belong to one [Limiter]: read them again for another one. The zero
// value is not usable. The methods are safe for concurrent use.
type Rules struct {
	generation *config.Generation
	settings   settings.Settings
	headers    *answer.Renderer
	warnings   []Problem
	used       atomic.Bool
}

// ReadRules reads rules from files: see Paths in [Source].
func ReadRules(paths ...string) (*Rules, error) { return Source{Paths: paths}.Read() }

// ParseRules reads one rules file in memory. Problems call it by its name.
func ParseRules(name string, data []byte) (*Rules, error) {
	return Source{Texts: []Text{{name, data}}}.Read()
}

// Read reads and checks everything that s names. The error is [Problems].
func (s Source) Read() (*Rules, error) {
	if slices.Contains(s.Paths, "-") {
		return nil, Problems{{File: "-", Message: "the library does not read standard input: give the text to ParseRules"}}
	}
	in, err := config.NewInput(s.Paths, strings.NewReader(""))
	if err != nil {
		return nil, problemsOf(err)
	}
	if len(in.Tests) > 0 {
		return nil, Problems{{File: in.Tests[0], Message: "a file of tests of rules: give only rules, tiers and settings"}}
	}
	for _, t := range s.Texts {
		in.Texts = append(in.Texts, files.File{Name: t.Name, Data: t.Data})
	}
	given, _, err := in.LoadSettings(s.Environ)
	if err != nil {
		return nil, problemsOf(err)
	}
	if err := check(&in, &given); err != nil {
		return nil, err
	}
	g, err := in.Load(given)
	if err != nil {
		return nil, problemsOf(err)
	}
	r := &Rules{generation: g, settings: given}
	r.headers = answer.NewRenderer(given.Headers.Styles...)
	r.warnings = problemsOf(strict.Problems(g.Warnings))
	return r, nil
}

// check refuses what a program cannot do, and what the service takes from its examples.
func check(in *config.Input, s *settings.Settings) error {
	var problems Problems
	if in.Rules == nil && in.Texts == nil && s.Rules.Path == "" {
		problems = append(problems, Problem{Message: "no rules: give the path of a rules file, or its text"})
	}
	if in.Rules == nil && in.Texts == nil && s.Rules.Source == settings.RulesXDS {
		problems = append(problems, Problem{File: "settings", Path: "rules.source", Message: "the library does not ask a management server: give the rules as files or as texts"})
	}
	switch t := &s.Tiers; t.Source {
	case settings.TiersNone, settings.TiersInHeader:
	case settings.TiersFile:
		if in.Tiers == "" && t.Path == "" {
			t.Source = settings.TiersNone // not the example
		}
	default:
		problems = append(problems, Problem{File: "settings", Path: "tiers.source", Message: "the library has only the sources file, header and none: keep the subjects in a tiers file, or let rls decide"})
	}
	if problems != nil {
		return problems
	}
	return nil
}

// Warnings say what is right but unwise, each with its place. Nil: nothing.
func (r *Rules) Warnings() []Problem { return r.warnings }

// Domains returns the names of the domains, in their order as texts.
func (r *Rules) Domains() []string { return r.generation.Rules.Domains() }

// HasDomain reports whether there are rules for a domain. A request for another one is not limited.
func (r *Rules) HasDomain(name string) bool { return r.generation.Rules.HasDomain(name) }

// Digest is a short name for the content of the files and texts: the same content has the same one.
func (r *Rules) Digest() string { return r.generation.Digest }

// sameSecrets reports whether both digest API keys in the same way.
func (r *Rules) sameSecrets(other *Rules) bool {
	return reflect.DeepEqual(r.settings.Secrets, other.settings.Secrets) && reflect.DeepEqual(r.settings.Authz.Credentials, other.settings.Authz.Credentials)
}

// A Problem is a mistake in rules, tiers or settings. It shows no API key.
type Problem struct {
	// File is the file, the name of a [Text], "settings" or "environment".
	File string
	// Line and Column count from 1. Zero: unknown.
	Line, Column int
	// Path is the place inside the file, such as descriptors[route=search].rate_limit.unit.
	Path string
	// Message says what is wrong and what to do.
	Message string
}

// String returns file:line:column: path: message, without what is unknown.
func (p Problem) String() string { return strict.Problem(p).String() }

// Problems is the error of everything that reads rules: all problems at once.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func problemsOf(err error) (problems Problems) {
	var all strict.Problems
	if !errors.As(err, &all) {
		return Problems{{Message: err.Error()}}
	}
	for _, p := range all {
		problems = append(problems, Problem(p))
	}
	return problems
}
