// Package metrics holds every metric of the service, made by one constructor on
// a registry of the caller's.
//
// Names are prefixed slidegate_, units are base units, counters end in _total.
// Labels are names from the configuration, never a value that came over the
// wire: no subject, no API key, no address, no unknown domain. The one exception
// are the values that a rule asks for (detailed_metric, value_to_metric), in a
// metric of their own with a bounded number of series, and never an API key's.
// docs/operate.md lists them all, and a test compares that list with the code.
//
// # Series of rules
//
// A series of a rule begins with its first outcome: eleven outcomes of 100,000
// rules would be a million series, nearly all of them zero for ever. It ends when
// a new generation does not have the rule; if a later one has it again, it begins
// at zero, as a counter does after a restart.
package metrics
