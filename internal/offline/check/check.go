package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/ruletests"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/sources"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/migrate/compat/stats"
	"github.com/slidegate/slidegate/internal/offline/ruletest"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Options of [Run].
type Options struct {
	Paths    []string // of the input, as the operator wrote them
	Input    config.Input
	Settings settings.Settings
	Problems strict.Problems // of the settings
	// NoRules is true if rules are missing for a reason that is in Problems. Loading would load the
	// built-in example.
	NoRules bool
	// Customer has the keys of a customer to look up in the customer source. Nil: none.
	Customer []tier.Key
}

// A Result is the result of a check, and the document of --json.
type Result struct {
	Paths    []string         `json:"paths,omitempty"`  // empty: the built-in example, or Server
	Server   string           `json:"server,omitempty"` // has the rules
	Valid    bool             `json:"valid"`
	Problems []strict.Problem `json:"problems,omitempty"`
	Warnings []strict.Problem `json:"warnings,omitempty"`
	Rules    int              `json:"rules"`
	Tests    int              `json:"tests,omitempty"`
	Summary  *explain.Review  `json:"summary,omitempty"`
	Customer *admin.Customer  `json:"customer,omitempty"` // with Options.Customer
}

// Run loads everything as a service does, and reports all problems.
func Run(o Options) Result {
	s := o.Settings
	out := Result{Paths: o.Paths}
	if len(o.Paths) == 0 && s.Rules.Path != "" {
		out.Paths = []string{s.Rules.Path}
	}
	var sourceErr, loadErr, testsErr, customerErr error
	if !aboutTiers(o.Problems) {
		sourceErr = sources.Check(s)
	}
	var g *config.Generation
	if !o.NoRules && !o.Input.OnlyTests() {
		g, loadErr = o.Input.Load(s)
	}
	out.Tests, testsErr = checkTests(&o.Input, s)
	out.describe(g)
	if g != nil && g.Rules.Missing() {
		out.Server = string(s.Rules.XDS.Address)
	}
	if len(o.Customer) > 0 && sourceErr == nil {
		var warnings []strict.Problem
		out.Customer, warnings, customerErr = askCustomer(s, o.Customer, g)
		out.Warnings = append(out.Warnings, warnings...)
	}
	out.Problems = append(o.Problems, strict.ProblemsOf(sourceErr, config.CheckDirectories(s), stats.CheckMapping(s), loadErr, testsErr, customerErr)...)
	out.Valid = len(out.Problems) == 0
	return out
}

// describe adds what rules mean. g may be nil.
func (r *Result) describe(g *config.Generation) {
	if g == nil {
		return
	}
	locations := make(map[descriptors.RuleID]string)
	for i, rule := range g.Rules.All() {
		locations[rule.ID()] = g.Locations[i].String()
	}
	review := explain.NewReview(g.Rules)
	for i := range review.Domains {
		for j := range review.Domains[i].Rules {
			rule := &review.Domains[i].Rules[j]
			rule.Location = locations[rule.ID]
		}
	}
	r.Warnings, r.Rules, r.Summary = g.Warnings, len(g.Rules.All()), &review
}

// checkTests checks the files of tests of an input, with the rules and the tiers that they name. It
// returns how many tests they have.
func checkTests(in *config.Input, s settings.Settings) (tests int, err error) {
	var all strict.Problems
	for _, path := range in.Tests {
		f, err := in.ReadTests(path)
		if err == nil {
			tests += len(f.Tests)
			err = checkTest(f, s)
		}
		all = append(all, strict.ProblemsOf(err)...)
	}
	return tests, all.Err()
}

func checkTest(f *ruletests.File, s settings.Settings) error {
	s, err := ruletest.Settings(s, f, "", "")
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

// askTimeout bounds the look-up of validate, with the connection to the source.
const askTimeout = 10 * time.Second

// askCustomer asks the customer source for the first of keys that it knows. g may be nil: then the
// names of tiers and rules are not checked.
func askCustomer(s settings.Settings, keys []tier.Key, g *config.Generation) (c *admin.Customer, warnings []strict.Problem, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	found, err := sources.Ask(ctx, s, keys)
	if err != nil {
		return nil, nil, err
	}
	setting := "tiers." + s.Tiers.Source
	if found == nil {
		what := "has this id"
		if keys[0].Digest != "" {
			what = "has the key with the digest " + tier.ShortDigest(keys[0].Digest) + "…: compare it with the digest that rls digest prints"
		}
		return nil, nil, strict.Problems{{Path: setting, Message: "no customer " + what}}
	}
	c = admin.CustomerOf(found)
	if g == nil || g.Rules.Tiers() == nil {
		return c, nil, nil
	}
	tiers := g.Rules.Tiers()
	if found.Tier != "" && !tiers.HasTier(found.Tier) {
		return nil, nil, strict.Problems{{Path: setting, Message: fmt.Sprintf("customer %s has the tier %s, which tiers.path does not name: expected one of %s%s",
			strict.Label(found.ID), strict.Quote(found.Tier), strict.SomeNames(tiers.Tiers()), strict.DidYouMean(found.Tier, tiers.Tiers()))}}
	}
	return c, overrideWarnings(g.Rules, found, setting), nil
}

// overrideWarnings returns a warning for each override that does not apply as it is written.
func overrideWarnings(active *rules.Rules, of *tier.Subject, setting string) (warnings []strict.Problem) {
	if of.Extra == nil {
		return nil
	}
	tierName := of.Tier
	if tierName == "" {
		tierName = active.Tiers().DefaultTier()
	}
	for _, name := range slices.Sorted(maps.Keys(of.Extra.Overrides)) {
		o, note, named := of.Extra.Overrides[name], "no rule has this name", false
		for _, r := range active.All() {
			if r.Name != name {
				continue
			}
			if !named {
				note, named = "", true
			}
			if note == "" {
				note = active.OverrideNote(r, tierName, &o)
			}
		}
		if note != "" {
			message := fmt.Sprintf("customer %s, override of %s: %s", strict.Label(of.ID), strict.Label(name), note)
			warnings = append(warnings, strict.Problem{Path: setting, Message: message})
		}
	}
	return warnings
}
