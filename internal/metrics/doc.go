// Package metrics holds every metric of the service, made by one constructor on
// a registry of the caller's.
//
// Names are prefixed slidegate_, units are base units, counters end in _total.
// Labels are names from the configuration, never a value that came over the
// wire: no subject, no API key, no address, no unknown domain. docs/operate.md
// lists them, and a test compares that list with the code.
package metrics
