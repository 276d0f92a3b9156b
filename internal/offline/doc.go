// Package offline and the packages in it answer what rules and settings would do, before a service
// runs with them. Read them in this order:
//
//   - check: what would a service load, and what is wrong with it?
//   - ruletest: do the rules decide as their tests expect?
//   - replay: what would the rules have done with the requests of access logs?
//   - replay/accesslog: reads the lines of access logs into records.
//   - replay/envoyfile: reads the configuration of Envoy, or a mapping file, into structs.
//   - replay/describe: evaluates these structs: which descriptors has a record?
//   - replay/report: writes the result as text, JSON and HTML.
//   - replay/report/reporttest: helpers of tests.
//   - diff: what changes in meaning from one set of rules to another?
//   - outfile: writes the files that a command is asked for.
//   - envoyconfig: which configuration of Envoy fits the settings?
//   - envoydump: what does the admin port of a live Envoy show?
//   - envoycheck: which limits are in force at a live Envoy, which are not, and why?
package offline
