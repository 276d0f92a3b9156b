// Package ruletests reads the YAML files of tests for rules into a [File] with [Test], [Step],
// [Request] and [Expect]. Package ruletest of the wing offline runs them. It has the keys of such a
// file: requests, costs, times of steps, rows of tables, and the expected counts, rule, headers and
// waits.
//
// A file:
//
//	rules: rules.yaml
//	tiers: tiers.yaml
//	tests:
//	  - name: the tier free has ten a second
//	    request: {descriptors: ["api_key=demo"]}
//	    steps:
//	      - {at: 0s, times: 10, expect: {allowed: 10}}
//	      - {at: 400ms, expect: {allowed: false, rule: per-key, retry_after: 1s}}
//	      - {at: 1s, every: 100ms, for: 1m, expect: {allowed: 600}}
//
// A descriptor with a cost or a limit is a mapping:
//
//	descriptors: [{entries: "api_key=demo", cost: 5, limit: {requests: 10, window: 1m}}]
//
// A test is a list of steps, or a table with a row for each step. A step is one or several
// requests at times that the file gives. docs/reference/tests.md has every key.
package ruletests
