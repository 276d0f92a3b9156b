// Package offline and the packages in it answer what rules and settings would do, before a service
// runs with them. Read them in this order:
//
//   - check: what would a service load, and what is wrong with it?
//   - ruletest: do the rules decide as their tests expect?
//   - replay: what would the rules have done with the requests of access logs? Its accesslog reads
//     the logs, envoyfile the configuration of Envoy. Its describe makes the calls of Envoy, and
//     report writes the result.
//   - diff: what changes in meaning from one set of rules to another?
//   - envoyconfig: which configuration of Envoy fits the settings?
package offline
