// Package replay decides requests at times that the caller gives, by the code that decides live
// requests. A [Timeline] is a service on a virtual clock, and an [Engine] decides all requests of
// access logs. It has the figures of a [Report]: denials, most denied callers, what-if. A
// [Condition] is a bound on one figure, and [Live] decides on a store that has its own clock.
//
// The policy and the stores take time as an argument, so a month of requests is decided as fast
// as the process can. A [Timeline] is one service on a virtual clock: rules, an embedded store
// and nothing else.
//
// # The requests of logs
//
// An [Engine] decides the requests of access logs, one record after the other:
//
//  1. A [Describer] makes the questions that Envoy would have asked about the request.
//  2. A timeline decides each question at the time of the request. After a denial no further filter
//     asks. What Envoy asks at the end of the request waits in a heap until that time.
//  3. A tally counts what each limit of each rule did.
//  4. With other rules to compare with, a second timeline decides the same questions.
//  5. With a what-if, each limit is varied alone, on separate logs.
//
// The result is a [Report]. A [Condition] is a bound on one figure of it.
//
// # What a replay does not know
//
// Clients are not simulated: one that a replay denies did not wait. Live, a request counts when it is
// decided, some milliseconds after its start. If a limit is full, the next free hit can then go to
// another request, so lines differ in pairs and the sums stay nearly equal. All logs are empty at the
// first request. Faults are not repeated: a request that was answered without the store is decided as
// if the store had answered.
//
// # Memory
//
// A timeline sweeps its store by its clock: it has about twice the logs in which something counts.
// Everything else has a bound. Above it, the figures about logs and the what-if are taken from a
// fraction of the logs, which their hashes choose; the report has the fraction. The list of denied
// callers forgets those denied least.
//
// # What if
//
// The arithmetic of a what-if is that of the stores, package window. One pass over the requests
// decides for about a dozen limits at once, each on its own log of a caller; one that no limit
// denies has one log. It sees the requests that the limit applied to: after a denial, Envoy asks no
// further filter.
//
// If all requests have one cost, a larger limit never denies more. So the table has the two limits
// between which the smallest one is that denies less than a fraction of the requests.
package replay
