package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Request returns the request that a person describes, as the RLS adapter would make it: API keys in
// the descriptors become digests. An empty domain is the only one of the rules, and an empty tier is
// that of the subject. An error begins with the name of what is wrong, and repeats no typed text.
func (g *Generation) Request(domain, tierName string, all []descriptors.Descriptor, cost uint64) (*decide.Request, error) {
	domains, tiers := g.Rules.Domains(), g.Rules.Tiers()
	switch {
	case domain == "" && len(domains) == 1:
		domain = domains[0]
	case domain == "":
		return nil, fmt.Errorf("domain: the rules have %s: choose one", strings.Join(domains, ", "))
	case !slices.Contains(domains, domain):
		return nil, fmt.Errorf("domain: the rules have no such domain, only %s", strings.Join(domains, ", "))
	}
	switch {
	case tierName == "":
	case tiers == nil:
		return nil, fmt.Errorf("tier: the settings have no tiers (tiers.source: none)")
	case !tiers.HasTier(tierName):
		return nil, fmt.Errorf("tier: there is no such tier, expected one of %s", strings.Join(tiers.Tiers(), ", "))
	}
	req := &decide.Request{Domain: domain, Tier: tierName}
	for _, entries := range all {
		for i, e := range entries {
			entries[i].Value = g.Secrets.Value(e.Key, e.Value)
		}
		req.Descriptors = append(req.Descriptors, decide.Descriptor{Entries: entries, Cost: cost})
	}
	return req, nil
}
