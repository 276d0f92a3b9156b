package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/sources"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/admin"
)

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
