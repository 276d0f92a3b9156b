// Package tiers reads tiers files: the names of the tiers, and the subjects with their tier and
// their API keys. It has the keys of this YAML: tiers, default, subjects, digests of API keys,
// disabled, overrides and labels. It hides their texts in problems, and fills a tier.Directory.
//
//	tiers: [free, starter, pro]
//	default: free
//	subjects:
//	  - id: acme
//	    tier: starter
//	    keys:
//	      - sha256: 2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683
//
//	    overrides: {search-per-key: {unit: minute, requests_per_unit: 500}}
//	    labels: {region: eu}
//
// In place of the list, tiers may be a mapping of each name to the limits that the tier carries.
//
// If subjects live elsewhere (tiers.source redis, postgres, http, header), the file has the
// names and the default alone.
//
// Any text of a tiers file may be an API key by mistake, so problems repeat none of it. Their paths
// have numbers in place of names.
package tiers
