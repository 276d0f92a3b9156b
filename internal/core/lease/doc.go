// Package lease decides in front of the shared store: with hits that it has reserved there, and
// with denials that package denials remembers. It asks the shared store for the rest. Its [Store]
// measures demand, reserves and spends leases, and gives unused hits back. It also sends again the
// ends of streams that failed, and has [Stats].
//
// Store forgets what it remembers of a log if cost was given back by a refund in [Store.Take], and after
// [Store.Reset]. If the call of a refund fails, it forgets the log at once. These groups always go to the
// shared store: with a check of mode Always or Refund, with checks of mode Any alone to deny them, with a
// log twice, or with a check that may repeat a charge ([window.Check.Once]). The last kind spends no
// lease.
//
// [Store.Take] without wait asks no other store and does not block. It decides groups that remembered
// denials deny, and groups that leases cover as a whole. The caller takes the others again with wait,
// and the two calls count as one.
//
// Close ends the goroutines, which give leases back, and send ends of streams again that the shared
// store could not take.
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
//   - One call of Take makes one reservation at most, because each is a round trip. If it is denied, Take
//     asks for the request alone, so it may take the shared store's timeout twice. Take
//     spends leases first, and puts the hits back if the rest of the group is denied.
//   - An answer from a lease adds what is left of the lease to what remained when it was
//     made. It allows, so it has no wait. A denial of a rule with leases counts what is
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
package lease
