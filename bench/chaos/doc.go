// Command chaos makes the faults of a Redis in production while a service is under
// load, and compares every answer with every charge. docs/guarantees.md has the promises.
// "make chaos" runs it:
//
//	go -C bench run ./chaos -rls ../bin/rls [-only REGEXP]
//
// Redis is real: a single server, a Sentinel set, a Cluster of six nodes, and a
// proxy for faults of the network. The service is a process too, with its default settings.
// The tables go to standard output.
//
// # A run
//
// A hundred callers call over gRPC on a few connections, as Envoy does. Each
// has its own key and one call at a time. It waits for its next turn after the
// answer, so a slow answer is slow in the service. A third of them use a rule with
// on_store_error: allow, a third one with deny and a third one with local. Twenty more
// send requests that no rule limits. Their answers need no store and show how busy the
// machine was.
//
// After a warm-up the fault is made, lasts, is removed, and the callers go on for
// a while. Percentiles are of all answers that were under way between the beginning and
// the end of the fault, or the last degraded answer if that came later. "Exact again" is
// the time from the end of the fault to the last degraded answer. The fault of a failover
// ends when the new master takes writes.
//
// # The ledger
//
// The limits are so large and the windows so long that each charge stays in Redis
// as an entry with its time. A caller has one call at a time, so the entry's time
// identifies its call: Redis, service and callers read the same clock.
//
//   - Charged, by the answers: the answer is allowed and not degraded. Every such call
//     must have one entry.
//   - Lost: the entry is gone because Redis has lost it by design. It restarted empty,
//     or a replica that had not got the entry became master.
//   - Missing: the entry is gone for no such reason.
//   - Ghost: the answer was degraded and there is an entry. The service cannot avoid ghosts of
//     calls in flight at the moment of the fault, or before it notices the fault. Beyond are
//     ghosts whose call began and ended while the service, by its log, did not call the
//     server. Strays were sent before or after the fault; something else was slow.
//   - Late: the entry was made after the caller had its answer.
//   - Double: there is an entry too many.
//
// # Three services
//
// In the last two runs three services share logs with small limits, on a Cluster whose
// slots migrate, and on a Redis that is frozen for a minute and loses all data. The services
// count themselves. A charge is made between the sending of its call and the answer, so the
// program counts how many charges certainly lie in one window. With Redis these are at most
// the limit. Without Redis each service may admit the limit divided by three.
//
// # Failures
//
// The program ends with an error after a gRPC error, a degraded answer that is not that of
// on_store_error, and a missing, late, double or beyond charge. It also fails if a window has
// too much, or if a service has more goroutines or memory than before. The tables compare
// latencies and the time until exact again with their targets. These depend on the machine,
// so they fail nothing. A cluster saves its state with fsync at every change of a slot, so
// the servers should have their files in memory (TMPDIR=/dev/shm).
package main
