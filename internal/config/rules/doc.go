// Package rules reads rules, in the notation of envoyproxy/ratelimit and a superset of it: from
// YAML files ([Read]), from an xDS server ([ReadDomains]) and from Go programs. It has every key of
// that language: domain, descriptors, rate_limit, by_tier, policies, calendars, replaces. It checks
// them, reports problems with positions, and makes the values of core/rules. Package portable
// finds what envoyproxy/ratelimit reads differently.
//
// docs/reference/rules.md has every key. It and docs/rules.schema.json are made from the types in
// language.go.
//
// A file holds one domain, or several as YAML documents separated by "---". A domain has one
// document, unless rules.merge_domains joins several.
//
//	domain: edge
//	descriptors:
//	  - key: api_key
//	    rate_limit: {unit: minute, requests_per_unit: 100}
//	  - key: route
//	    value: "/search/*"
//	    descriptors:
//	      - key: api_key
//	        rate_limit:
//	          name: search-per-key
//	          by_tier:
//	            free: {window: 24h, requests: 9500}
//	            pro:  {limits: [{window: 1s, requests: 500}, {window: 1h, requests: 20000}]}
//	            default: {unlimited: true}
//
// Files of envoyproxy/ratelimit mean the same here:
//
//   - A key or a value that YAML takes for a number or a truth value counts as its text.
//   - An empty value means any value. It gives a warning, since it is often the mistake of a
//     template.
//   - A descriptor without a rate_limit and without descriptors below it limits nothing. It
//     keeps its value from the rule for the key alone.
//   - A key of that language where it has no meaning is ignored, with a warning.
//
// # The written form
//
// Rules come from files, from an xDS server ([ReadDomains]) and from Go programs, whose rules are a
// file in JSON. All become the structs in language.go, whose fields are values with a position. From
// there on there is one reader, with one check and one wording, down to [rules.Rules.Add]:
//
//	rules.go, descriptor.go   the domain, and its tree of keys and values
//	rule.go, modes.go         rate_limit, and what of a rule excludes what
//	limits.go, policies.go    tiers and limits, and which keys a limit may have
//	sliding.go, calendars.go  precision and lease; periods
//	replaces.go               names, over all files
//
// [ReadOverrides] reads the limits that replace those of rules for one subject, in the same
// language.
package rules
