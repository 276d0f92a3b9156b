package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// domain is that of envoy/ratelimit.yaml.
const domain = "edge"

// rulesFile returns the rules of a service: the limits of each tier, by API key. options are
// further keys of the rule, each with a line end. more is how many requests each limit of the
// service has above the limits that customers may have, for runs in which the oracle must find it.
func rulesFile(tiers []tier, options string, more int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n  - key: api_key\n    rate_limit:\n      name: per-key\n", domain)
	for line := range strings.Lines(options) {
		b.WriteString("      " + line)
	}
	b.WriteString("      by_tier:\n")
	for _, t := range tiers {
		fmt.Fprintf(&b, "        %s: {limits: [", t.name)
		for i, l := range t.limits {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "{window: %v, requests: %d}", l.window, l.hits+more)
		}
		b.WriteString("]}\n")
	}
	return b.String()
}

// tiersFile returns the tiers of customers, with the digests of their API keys.
func tiersFile(tiers []tier, all []*customer) string {
	var b strings.Builder
	b.WriteString("tiers: [")
	for i, t := range tiers {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(t.name)
	}
	fmt.Fprintf(&b, "]\ndefault: %s\nsubjects:\n", tiers[len(tiers)-1].name)
	for _, c := range all {
		fmt.Fprintf(&b, "  - {id: %s, tier: %s, keys: [{sha256: %x}]}\n", c.name(), c.tier.name, sha256.Sum256([]byte(c.key())))
	}
	return b.String()
}
