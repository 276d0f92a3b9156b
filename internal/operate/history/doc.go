// Package history counts decisions and denials of the last 30 days: of each rule by the hour, and of
// the most denied subjects by the day, in UTC. Once a minute a [Counter] takes what the counters of
// the metrics and the ranking of package insight have counted since. No request waits for it.
//
// With Redis it adds what it took to two keys of the day, which all instances share and which expire
// by themselves. If Redis does not answer, the counts wait, and go there later. A minute whose answer
// is lost may count twice. With the memory store the counts are those of this process; a file
// next to the snapshot keeps them from one process to the next.
//
// What is kept has a bound, in Redis and in memory:
//
//   - A day has 100 rules. The others, and those with a name above 256 bytes, count as "other rules".
//   - A day has the 200 most denied subjects. A subject with few denials a minute may be missing, so
//     its count is never too large, but may be too small.
//   - Subjects are ids, digests of keys and masked addresses, never keys. No value of a descriptor is
//     kept.
//
// A day in Redis takes at most 5 MB. What another program wrote there is an error of Read.
package history
