// Package config reads what an operator writes: the service's settings, the
// rules and the tiers. Nothing else in the service knows YAML.
//
// # Terms
//
//   - [Settings] are how the service runs: listeners, store, headers, logs. They
//     are read once, at start, by [LoadSettings].
//   - A rules file says what is limited, in the notation of envoyproxy/ratelimit
//     and a superset of it. A tiers file says who belongs to which tier.
//   - A [Generation] is one consistent reading of the rules and tiers files, made
//     by [Load]. It is immutable; a reload makes a new one and swaps it.
//   - A [Problem] is one mistake, with file, line, path and message.
//
// # Settings and their precedence
//
// [Default] is the one place that knows defaults. A settings file overrides
// them, the environment overrides the file. The variable of a setting is its
// path in capitals, so store.redis.url is SLIDEGATE_STORE_REDIS_URL; lists are
// separated by commas. A variable that is set but empty sets the empty value.
// [Describe] lists every setting, and [FullExample] is a commented file with all
// of them. Relative paths are relative to the working directory.
//
// # Problems
//
// Reading is strict, and says everything at once: the files are parsed into
// nodes by the YAML library, and walked here, because no decoder reports unknown
// keys, duplicate keys, wrong types, missing values and bad values together,
// each with its line and its path:
//
//	rules.yaml:12: descriptors[route=search].rate_limit.unit: unknown unit "minutes", did you mean "minute"?
//	environment: SLIDEGATE_STORE_TIMEOUT: "15" has no unit: write 15s or 15ms
//
// [Problems] is the error that holds them, in the order in which they stand in
// the files. Only a file that is not YAML at all ends with the first problem,
// since nothing after it can be trusted. A problem never shows a secret: not a
// plain API key of a tiers file, not the value of a rule for an API key or what
// seems to be one, not secrets.key, not a password or a token, not one in a URL.
//
// What is right but unwise, such as an API key in plain text, is a warning: a
// Problem in [Generation.Warnings], and no error.
//
// # Rules files
//
// A file holds one domain, or several as YAML documents separated by "---". A
// directory is all *.yaml and *.yml files in it and below, in the order of their
// paths; other files are skipped with a warning, and every file is read once,
// whichever symbolic links lead to it. One domain stands in one document only,
// unless rules.merge_domains joins them. docs/rules.md describes every key, and
// docs/rules.schema.json is made from the types in language.go.
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
// The habits of envoyproxy/ratelimit are kept on purpose, so that its files mean
// the same here. A key or a value that YAML takes for a number or a truth value
// counts as the text that was written. A value that is empty means any value, as
// if it were left out; since that is more often a template that went wrong than a
// wish, it gives a warning. A descriptor without a rate_limit and without
// descriptors below it limits nothing and keeps its value from the rule for the
// key alone. And a key of that language in a place where it has no meaning there
// is ignored, with a warning.
//
// # Large files
//
// A tree of YAML nodes takes up to a hundred times the memory of its text. So
// files of rules beyond some kilobytes are cut where lines alone tell where a
// descriptor ends, and parsed some descriptors at a time, on all processors;
// rules are made from them in order. What cannot be cut, because of anchors or of
// quotes over several lines, is read as a whole, up to a bound. The result is the
// same, problems included, and a fuzz test compares the two.
//
// # Tiers files
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
// Where subjects live elsewhere (tiers.source redis, postgres, http, header), the
// file has the names and the default alone. [ReadOverrides] reads the overrides of
// such subjects, in the same language.
//
// [Load] refuses a tiers file or a rules file above 16 MiB, since the YAML library takes
// about 30 times the size of a file while it reads it. More subjects belong into another
// source of tiers, more rules into several files.
//
// # Reload
//
// [Watcher] calls back when the files may have changed. The callback runs [Load]
// and swaps the generation if there is no error; if there is, the last good one
// stays. Whether the content really is another one, [Generation.Digest] tells.
package config
