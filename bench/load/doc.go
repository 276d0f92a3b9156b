// Command load sends requests as people and their programs do, through a real Envoy, and proves
// what limits do to them. "make load" runs it:
//
//	go -C bench run ./load -rls ../bin/rls [-envoy FILE] [-stores STORES] [-for 1m] [-seed N]
//
// The tables go to standard output.
//
// # Customers
//
// Nine of ten customers have the tier free, one of a hundred has enterprise, the others have pro.
// Zipf's law says how many callers a customer has: the first one has many, most have one. A caller
// is busy for a while and then pauses. Both times are exponential. While it is busy it sends, reads
// the answer, and thinks for a log-normal time. The customers differ in what they do after a denial:
//
//   - counts its own requests: it sends only what is within its limits for certain.
//   - heeds Retry-After: it waits that long, and no longer.
//   - heeds it and adds a random time: what docs/clients.md advises.
//   - ignores Retry-After: it tries again soon.
//   - saturates: one customer, whose callers never pause and never wait.
//
// After five denials of one request a customer gives up, and goes on with another request.
//
// Everything random comes from a seed, and each caller has its own source. On the virtual clock
// the same seed gives the same run. There, no Envoy and no network take part; rules, tiers and
// answers are those of rls.
//
// # The oracle
//
// The program knows when a call was sent and when it was answered. rls charged it in between. From
// these bounds it knows, of every interval of a window's length, how many charges lie in it for
// certain, and how many may lie in it. Neither depends on how fast the machine is: a late answer
// makes the bounds wider, and never makes a right answer wrong.
//
//   - No customer may have more than its limit in a window for certain.
//   - No request may be denied for which there was room for certain.
//
// Envoy and rls must have counted as many answers as the customers, and rls must not have decided
// without its store. Otherwise the run proves nothing and ends with an error. With -wrong the rules
// of rls differ from those of the oracle, so the run must fail.
//
// # The burst
//
// Then every customer starts a job at about the same time, which asks for more than its limit. All
// wait for Retry-After and come back. The same burst again, with retry_jitter, shows what that
// changes.
package main
