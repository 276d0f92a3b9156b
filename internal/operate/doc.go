// Package operate and the packages in it answer what operators ask a running service. They change
// nothing but what an operator resets or grants, and no request waits for them. Read them in this order:
//
//   - insight: who is denied, what is used, and resets; its types are the JSON of the API.
//   - history: decisions and denials of 30 days, in Redis or next to the snapshot.
//   - sharedlist: lists of records that all instances share, such as grants.
//   - glance: the types of /v1/state.
//   - merge: one answer of those of several instances.
//   - probelist: starts probes in all instances, and answers what they saw.
//   - admin: the HTTP API /v1/… with its parameters, tokens and guard, and the pages of text.
//   - console: HTML pages of the same answers for people.
//   - client: calls the API of running instances, for the commands of rls.
//   - tables: writes the answers that client gets, for a terminal.
//   - metrics: counts for Prometheus.
//   - rates: rates of these counts, for glance.State.
//   - calls: measures each call, and recovers from panics.
//   - tracing: spans of calls for OTLP.
//   - logs: makes the logger of a process.
//   - redislog: prints a log that Redis holds.
//   - docs: serves the manual.
//
// No package here decides a request.
package operate
