// Package metrics registers and updates every Prometheus metric of the service (slidegate_…): its
// name, help, labels and buckets, for calls, rules, stores, tiers, streams, traces, xDS and
// comparisons. [Metrics.Totals] reads counts for the console.
//
// Names begin with slidegate_, units are base units, and names of counters end in _total.
// Labels are names from the configuration, never a value from a request: no subject, no API
// key, no address, no unknown domain. The one exception are the values that a rule asks for
// (detailed_metric, value_to_metric). They have a metric of their own with a bounded number
// of series, and are never API keys.
//
// # Series of rules
//
// A series of a rule begins with its first outcome. With all twelve outcomes, 100,000 rules
// would have a million series, nearly all of them zero. The series ends when a new
// generation does not have the rule. If a later generation has the rule again, the series
// begins at zero, like a counter after a restart.
package metrics
