// Command chaos does to Redis what happens to it in production, while a service
// is asked, and accounts for every answer and every charge. "make chaos" runs it:
//
//	go run ./test/chaos -rls bin/rls [-only REGEXP] [-rules CHOICES] [-explain]
//
// Redis is real: a single server, a Sentinel set, a Cluster of six nodes, and a
// proxy where the network is the fault. So is the service: a process with
// store.timeout at its default of 15 ms. The tables go to standard output, as
// docs/reliability.md shows them.
//
// # A run
//
// Callers, 100 by default, ask over gRPC on a few connections, as Envoy does. Each
// has a key of its own and one call at a time, and waits for its next turn after
// the answer, so that the machine is not busy and what is slow is the service. A
// third of them ask a rule with on_store_error: allow, a third one with deny and a
// third one with local. Twenty more ask for what no rule limits: their answers
// need no store and tell how the machine was. If one of those took more than 10 ms
// the fault is made again, up to -attempts times, and the quietest attempt is
// shown. What must not happen must not happen in any.
//
// After a warm-up the fault is made, lasts, is removed, and the callers go on for
// a while.
//
// # Latency
//
// Percentiles are of all answers that were under way between the beginning of the
// fault and its end, or the last degraded answer if that came later. "Exact again"
// is the time from the end of the fault to the last degraded answer. The fault of
// a failover ends when the new master takes writes.
//
// # The ledger
//
// The limits are so large and the windows so long that each charge stays in Redis
// as an entry with its time. A caller has one call at a time, so the entry's time
// says which call it belongs to: Redis, service and callers read the same clock.
//
//   - Told to be charged: the answer says allowed, and not that it is degraded.
//     Every such call must have one entry.
//   - Lost: it has none, and Redis has lost it by design: it restarted empty, or a
//     replica that had not got it became master.
//   - Missing: it has none for no such reason.
//   - Ghost: the answer was degraded and there is an entry. That cannot be helped
//     for calls in flight at the moment of the fault, and for those sent before the
//     service had noticed it (five calls that failed). Beyond are those which began
//     and ended while the service, by its own log, did not ask the server. Strays
//     were sent before or after the fault; something else was slow.
//   - Settled: the entry was made after on_store_error: local had allowed the call,
//     within 1.2 s, and no other entry pays for that call. A late call is charged so.
//   - Late: the entry was made after the caller had its answer, and is not settled.
//   - Double: there is an entry too many.
//
// # Three services
//
// The last run has three services share logs with small limits on a Cluster whose
// slots migrate all the time. A charge was made at some time between the sending
// of its call and the answer. So many as certainly lie in one window are counted,
// over the whole run; and the logs themselves are read all the time. Neither may
// ever exceed the limit.
//
// # What fails
//
// The program ends with an error if there is a gRPC error, or anything missing,
// late, double or beyond, a window that holds more than its limit, or a service
// that has more goroutines or memory than before. Latencies and the time until
// exact again are compared with their targets in the table, and fail nothing: they
// are the machine's as well. A cluster saves its state with fsync at every change
// of a slot, so the servers should have their files in memory (TMPDIR=/dev/shm).
package main
