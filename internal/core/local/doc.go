// Package local decides what one process can decide without asking the shared store.
//
// # Denials
//
// A log records only what was allowed. So a denial stays true until its
// [window.Decision.RetryAfter] has passed, unless hits are given back or the log is removed. [Store]
// remembers the last answer of the shared store for each log, for a second at most. It denies a group
// from memory if it knows the wait of every check without room. So a refund or a reset by another
// process, and a shared store that has lost its logs, count here within a second.
//
// A denial ends earlier if cost was given back by a refund in [Store.Take], after [Store.Reset], under
// a larger limit, and under another precision. Store does not remember a denial that is marked
// [window.Decision.Unsettled], a denial in flight, or the answer of a call during which cost was given
// back. If the call of a refund fails, Store forgets the log at once.
//
// [Store.Take] without wait asks no other store and does not block. It decides groups that remembered
// denials deny, and groups that leases cover as a whole. The caller takes the others again with wait,
// and the two calls count as one.
//
// # What is exact, and what is not
//
// The denial from memory lasts no longer than one of the shared store: from the moment before the
// call was sent, less a microsecond, because the store's clock has whole microseconds. If a call is
// allowed and nothing remains, its answer already has the wait for one unit. The shared store may not
// say then whether other processes may give hits back. So Store believes such an answer for 100 ms.
//
// Waits count down from the moment at which the answer arrived. They are never shorter than
// the true waits, and longer by one round trip at most. Another process may spend meanwhile, so the
// true wait can become longer, for a second at most. If nothing remained, only a larger limit on the
// same log or a usage report can do that.
//
// A wait depends on one number, the level that the cost in the log must fall to: the limit less the
// cost of the request. A full log has three known waits: for one unit, for the cost that was denied,
// and until the log is empty. If the log reaches two of these levels at the same time, it reaches all
// levels between them too. For every other level Store asks the shared store.
//
// A denied group charges nothing, so its other checks only need a status. If nothing remained, it is
// exact until the wait for one unit has passed. Otherwise it is at most a second old. These groups
// always go to the shared store: with a check of mode Always or Refund, with checks of mode Any alone
// to deny them, with a log twice, or with a check that may repeat a charge ([window.Check.Once]). The
// last kind spends no lease.
//
// # Leases
//
// A rule may let a process reserve hits before requests spend them ([window.Check.Lease],
// [Options.Reserver]). The shared store records a reservation at the time at which the lease
// ends. So it counts from the call until one window after its last hit can be spent, and the
// limit is never exceeded.
//
//   - A log gets a lease if it is asked for at least twice within the length of a lease. The
//     lease reserves, in addition to the cost of the request, as much as was asked for in
//     that time. It reserves at most what the rule says, or a tenth of the limit if the rule
//     says nothing, and at most a quarter of what remained. If that is less than four hits,
//     Store asks for the request alone.
//   - The process spends the lease until a tenth of its length is left, counted from before
//     the call. It gives the rest back in that tenth. It gives the rest back earlier on a
//     refund, on a denial, under another limit or precision, and on [Store.Close].
//   - One call of Take makes one reservation at most, because each is a round trip. Take
//     spends leases first, and puts the hits back if the rest of the group is denied.
//   - An answer from a lease adds what is left of the lease to what remained when it was
//     made. It allows, so it tells no wait. A denial of a rule with leases counts what is
//     reserved. So its wait may be too long, and is never too short.
//
// Reserved hits that are not spent deny other processes while the lease lasts, and until they expire
// if they cannot be given back. A denial that counts the reservations of others has a ResetAfter
// longer than the window. Store believes it for the length of a lease. While a lease lasts, what
// others charge is recorded at its end, and expires up to one lease too late.
//
// [Store.Reset] ends the lease in the process that has removed a log. Its rest is not spent, and not
// given back, because the new log may have hits of another process at the same instant. Other
// processes spend their leases, so after a reset up to these hits more may be admitted. A refund by
// another process may take back hits that are reserved here. Then, for one window, up to its cost
// more may be admitted.
//
// # Shares
//
// If the shared store cannot decide, [Shares] decides for rules with on_store_error: local.
// A process admits its share of each limit: the limit divided by the number of processes of its scope,
// rounded down, but at least one hit. A limit of zero still denies, and an unlimited rule
// still allows.
//
//   - If the shared store has told the process what remained ([Shares.Learn]), the process
//     admits no more than its part of that, rounded up. This holds until the newest hit that
//     the shared store knew of has expired. The process does not know when the older hits
//     expire, so it admits too little rather than too much.
//   - Answers to calls at once arrive in any order, and the largest use is the latest. So
//     the largest use of the last one to two [ShareOptions.Timeout] counts.
//   - A cost above the share but not above the limit has room if nothing else counts. So a
//     process admits one such request in a window.
//   - The logs of a process hold only what it has admitted. They stay until their hits
//     expire, so an outage that comes and goes does not renew the share.
//   - The share of a bucket is a part of its burst and a part of its rate. What the shared store
//     knew to be missing fills up at the rate.
//   - The share of a limit of requests in flight is a part of its maximum, and counts what the streams
//     of this process hold, also in the shared store. What the streams of others hold does not count,
//     because when they end is not known. Streams that the shares admit are not held in the shared
//     store. So when it is back, there may be up to a share more in flight until they end.
//
// A call is late if the store decides and its answer does not come in time. The shares then decide,
// and nothing is charged later. So one late call adds at most its cost to what the shared store
// admits, and all of them together at most the share of this process. If some scopes fail, what was
// spent of leases stays spent until the caller takes the rest back ([window.PartError.GiveBack]).
//
// # Cost
//
// A denial from memory takes one look-up for each check and allocates nothing. Store remembers only
// answers that deny, or that will deny the next call, so a log with room takes no memory. Close ends
// the goroutines, which give leases back, sweep logs, and tell the shared store of ends of streams.
package local
