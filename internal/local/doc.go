// Package local answers what a process can answer by itself, so that a shared store
// is asked less.
//
// # Denials
//
// Only what is allowed is recorded in a log. So a denial stays true until its
// [window.Decision.RetryAfter] has passed, whatever other processes do. [Store]
// remembers what the store it asks has said last of each log. It answers a group by
// itself if that denies the group and tells the wait of every check that has no room.
//
// A denial ends early, and the store is asked again, where
//
//   - something was given back: by a refund in a call of [Store.Take], or by another
//     process, which [Store.Forget] is told;
//   - the store may have lost its logs: [Store.ForgetAll];
//   - the limit is larger than the one that denied, as after a change of tier, or
//     the precision is another one;
//   - it is older than [Options.MaxAge].
//
// A denial that is marked [window.Decision.Unsettled] is not remembered. Nor is
// anything of a call that was under way while something was given back. A refund
// whose call fails is told at once as well; if it is recorded after that, a denial
// may be remembered for as long as MaxAge, unless Forget is told.
//
// # At once
//
// [Store.TryTake] answers what [Store.Take] answers without the store: denials that are
// remembered, and groups that leases cover as a whole. It looks for the leases first
// and spends them when all are there. Everything else it leaves to Take, unchanged.
//
// # What is exact, and what is not
//
// A group is denied without the store only if a check of mode Enforce denies it.
// That such a check has no room is exact. It is denied for no longer than the store
// would deny it: its time ends with the moment before the call was sent, plus the
// wait that the store told, less a microsecond for what the store's clock cuts off.
//
// Whoever allows says already what the next call will meet: if nothing remains, the
// wait for a unit is known. So a full log is asked once for each hit that it admits.
// A store need not say of what it allows whether that counts what may be taken back,
// so this is believed for 100 ms; then the store is asked once, and denies.
//
// Waits count down from the moment at which the answer was received, so they are
// never shorter than the true ones and longer by one round trip at most. Whoever
// comes back after the wait is decided by the store.
//
// Every wait that is told is one that the store has told. A wait depends on one number
// alone: the level that the cost in the log must fall to, which is the limit less the
// cost of the request. So the wait of one limit and cost serves every other pair with
// that difference. A full log has three of them: until a unit has room, until the cost
// that was denied has room, and until the log is empty. If the log reaches two levels
// at the same time, it reaches all levels between them then too. For every other level
// the store is asked.
//
// As long as nothing remains, nothing is recorded, so the waits that the store tells
// for several costs and smaller limits hold together. A record keeps eight of them
// beside those of the last answer. It is as old as the oldest answer in it.
//
// While an answer is remembered, another process may spend. Where something remained,
// that makes the wait longer than the one that is told, for a second at most. Where
// nothing remained, only a larger limit on the same log or a usage report can do that,
// for MaxAge at most. As long as one process alone spends on a log, every wait is the
// one that the store would tell.
//
// A group that is denied charges nobody, so the others of its checks need no
// decision but only a status. What they are told:
//
//   - Nothing remained: exact until the wait for a unit has passed, with the exception
//     above.
//   - Something remained: as it was a second ago at most, less what others have spent
//     since. The same holds for what is told to a check that never has room.
//
// If there is a check of which nothing as good is known, the store is asked. It is
// always asked about groups that record something whatever becomes of them (Always,
// Refund), about groups that could only be denied by checks of mode Any, and about
// groups that name a log twice.
//
// # Leases
//
// A rule may allow a process to reserve hits ahead of the requests that will spend
// them ([window.Check.Lease], [Options.Reserver]). What is reserved is recorded at the
// time at which the lease ends, so it counts from the moment of the call until a window
// after it could last be spent: the limit is never exceeded.
//
//   - A log gets a lease if it was asked for at least twice within the length of one.
//     It reserves, beside the cost of the request that it is asked with, as much as was
//     asked for in that time, within three bounds: what the rule says, or a tenth of
//     the limit; and a quarter of what remained. If that is less than four hits the
//     store is asked in the ordinary way.
//   - It is spent until a tenth of it is left, by the clock of this process from before
//     the call. In that tenth the rest goes back. It goes back earlier on a refund,
//     under another limit or precision, on a denial, and when the store is closed.
//   - One call of Take reserves once at most, since every reservation is a round trip.
//     In a group leases are spent first, and put back if the rest is not allowed.
//   - Answers from a lease say what remained when it was made, and what is left of it.
//     They allow, so they tell no wait for a denial. A denial of a rule with leases
//     tells the wait of the log, which counts what is reserved: it may be too long by
//     what is given back, and is never too short.
//
// What is reserved and not spent denies others for as long as the lease lasts, and if
// it cannot be given back until it expires. A denial that counts what others have
// reserved (its ResetAfter is longer than the window) is believed for the length of a
// lease and no longer. While a lease lasts, what others charge is recorded at its end,
// since a log is in the order of its times, so it counts up to a lease too long. If
// the answer to a reservation is lost, so is what it has reserved, until it expires.
// A refund takes the newest hits. By another process, that may be what is reserved
// here, instead of older hits that expire sooner: for a window, up to the cost of the
// refund more may be admitted.
//
// # Shares
//
// [Shares] decide for rules that say so (on_store_error: local) while the store
// cannot. A process admits its share of each limit: the limit divided by the number
// of processes, rounded down, but one hit at least. What a limit of zero denies and
// an unlimited rule allows stays as it is.
//
//   - A process that has been told by the store what remained ([Shares.Learn])
//     admits no more than its part of that, rounded up, until the newest hit that
//     the store knew of has expired. Nobody here knows when the others expire, so it
//     is too little rather than too much.
//   - A cost above the share but not above the limit has room if nothing else
//     counts. Otherwise it would never have, although the rule does not say so. So a
//     process admits one such request in a window, as it admits one hit of a limit
//     that is smaller than the number of processes.
//   - The store's hits are not recorded here. The logs of a process stay until they expire: an
//     outage that comes and goes does not hand out the share again each time.
//   - What remains, in the answer, is what remains of the share. Waits are those of
//     the share, too: until enough of what was admitted here has expired, or what the
//     store knew does not count any more.
//
// # Debts
//
// A call to the store that is late leaves open whether it was charged ([Settler.Doubt]).
// If the shares then admit the group, the process owes each of its logs what it admitted,
// unless the late call was charged. Until a debt is settled the shares decide all groups
// that name the log ([Shares.TakeOwed]).
//
// One goroutine for each log with a debt waits until every call of the process that was
// under way has ended, reads the log, charges what it does not find there, with mode
// Always, and removes the same from the log of this process. Answers of calls that were
// under way are looked at again ([Shares.Recheck]): if the log has no room for both the
// answer and the debt, the charge of the answer pays the debt. A debt is given up after a
// second, when the store does not decide, and if 1,024 logs have one already. Refunds are
// never owed.
//
// # Cost
//
// A denial takes a look-up for each check and allocates nothing. An allowed call
// pays the same look-ups: only answers that deny, or will deny the next call, are
// remembered, so a log that is not full takes no memory.
//
// A [Store] starts one goroutine if it may reserve, which gives back, and [Shares] one
// that sweeps their logs. Close ends them.
package local
