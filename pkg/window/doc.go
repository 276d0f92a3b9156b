// Package window decides whether a caller may spend cost now, under an exact sliding-window log. It
// has the contract of stores and its types: [Store], [Check], [Limit], [Decision], [Mode],
// [Policy], [Scope], [Once], [Priority]. It checks and folds groups of checks, and has no store
// itself.
//
// # Terms
//
//   - A hit is one unit of cost. A [Limit] is a number of hits per window.
//   - A log records what was spent on one key within one window length. It
//     holds entries (time, cost). A [LogID] names it.
//   - A window of length W that ends now is the half-open interval
//     (now-W, now]: an entry recorded at t counts until, but not at, t+W.
//   - used is the cost of the entries that still count.
//   - A [Check] asks one log for a cost under a limit; a [Decision] answers it.
//   - A group is all the checks of one [Store.Take] call: one request.
//
// # The contract of every store
//
//  1. Exact. A check has room if used + cost <= limit, where cost 0 needs the
//     room of 1. Entries are charged only where there is room, so no half-open
//     interval of length W ever holds more than the limit, whatever the
//     concurrency. ([Always] is the exception.)
//
//  2. All or nothing. If every check of a group has room, every check is charged,
//     at one instant per log. If one check has no room, no check is charged. The
//     section on modes says what a [Mode] changes.
//
//  3. Denied is free. A denied group leaves every log as it was, except for what
//     [Always] and [Refund] record.
//
//  4. A limit is an argument, not state. Another limit on the same key counts at
//     the next call, with the history kept. Another window length is another log.
//
//  5. The clock is the store's, in whole microseconds, and never runs backwards
//     within a log. If the clock is set back, the log is seen from the time of its
//     last write until the clock has caught up. A write is a charge or refund that
//     recorded something, even if that has expired. Waits count from the clock as
//     it is, so they include the time to catch up.
//
//  6. Cost 0 asks whether anything remains. It is denied if nothing remains, and
//     records nothing.
//
//  7. A cost above the limit never has room, however long the caller waits. The
//     answer is [Decision.Never], not a long wait.
//
//  8. Checks of one group that name the same log are decided together: each is
//     allowed only if their summed cost fits. [Fold] defines it.
//
//  9. An error means only "could not decide". A store that returns an error has
//     charged either the whole group or nothing of it. It does not try again by
//     itself, because a second try could charge twice.
//
//  10. Idle logs disappear by themselves, at the latest when a window and a
//     little slack have passed since the last charge.
//
//  11. A limit of 0 denies without a log, but [Refund] is still recorded. A limit of [Unlimited] is unlimited: it allows, and records
//     nothing. [WithoutLog] answers both.
//
//  12. A [Check] with a precision counts each entry up to one precision too long,
//     never too short. Times are rounded up, so a log never admits more than its
//     limit. The clock itself is not rounded. Windows above six days keep times in
//     milliseconds, rounded up in the same way.
//
//  13. A check with [Check.Once] is a repeat if the store has an idempotency record that covers it. This is the
//     idempotency record of a charge of the same log, with the same ID and no lower cost. It has not ended
//     and has repeats left. A repeat has room and charges nothing. A charge that is no repeat
//     leaves an idempotency record, unless the store has one with its ID. A denied group makes no idempotency record, and
//     uses no repeat. A store with bounds may drop idempotency records. A group on several servers or in
//     several scopes has none: it is charged each time.
//
// A store that is called without wait keeps the same contract for the groups that it
// decides. Groups that it does not decide leave no trace.
//
// # Modes
//
// A check has a [Mode]. A [Verdict] combines the checks of a group:
//
//   - [Enforce] denies the group if the check has no room. The check is charged if
//     the group is allowed.
//   - [Any] denies the group if no check of this mode has room. Those that have
//     room are charged if the group is allowed.
//   - [Observe] never denies. The check is charged if the group is allowed and the
//     check has room.
//   - [Always] denies the group if the check has no room. The check is charged
//     whatever the group decides, even over the limit. The overdrawn log denies later
//     checks until enough of it has expired. It is at most one limit, whatever the
//     costs are: of a charge beyond twice the limit, the rest is lost, and the
//     decision says [Decision.Cut]. A log holds 2^53-1 hits at most, and one of [Sliding] 2^32-1.
//   - [Refund] gives its cost back whatever the group decides, newest entries
//     first and never below zero. It never denies. Its decision is allowed and says
//     what remains afterwards. Entries older than the refunded ones stay.
//
// A store applies refunds first. Then it judges and charges the checks of mode Always,
// in the order of the group. Then it judges the others together, and charges them. So a
// charge can use the room that a refund in the same group gave back. One log may not
// have checks with two of the modes Enforce, Any and Observe in one group: [ErrBadCheck].
//
// Decisions describe the log after the call. What remains, and the waits, count what
// the call has recorded.
//
// # Scopes
//
// A [Check] has a [Scope], which says which of several stores has its log. A store of several
// scopes keeps the contract, with these differences. Checks of mode Always and Refund are recorded
// in each scope by itself, so they stay if another scope fails. A failure of some scopes is a
// [PartError].
//
// # Policies
//
// The contract above is that of [Sliding]. A limit may name another [Policy]; points 2 to 4 and 6
// to 13 hold for each, except that [InFlight] has no idempotency records. The modes mean the same. The comment
// on each policy says what it admits. A log of another policy is a short value, and package packed has
// the arithmetic of a log of any policy.
//
//   - The clock of every store counts from 1970, because fixed windows and periods of
//     a calendar begin at fixed times.
//   - A group with a [Check.Period] that contradicts the store's clock is refused with
//     [ErrPeriod] and charges nothing: [Period.Covers].
//   - A token bucket keeps its tokens if the limit changes, and never more than the new burst.
//     It is at most a burst below zero.
//   - A period that has begun never ends earlier because a calendar's anchor changes.
//   - A refund removes the newest hits of a [Sliding] log. It adds tokens to a bucket, up to the
//     burst, and lowers what counts now of the others. In flight it lowers the hold of its stream.
//   - What is charged over the limit of a sliding log expires hit by hit, that of a bucket is paid at its rate, and that of
//     the others ends with the window or the period.
//   - Another policy, window or unit of a rate is another log. Another limit, burst or rate in the
//     same unit, another calendar and another hold keep the log.
//
// # Budgets
//
// A check with a [Budget] reserves its cost for its stream, and [Releaser.End] settles it with what the stream has
// cost. The log is judged as if all that is reserved were spent, so what is spent and what is reserved are never more
// than the limit. A reservation has the names of what it is for: the check of a stream that has reserved something
// already has room and reserves nothing, and the check of a stream that has ended has none.
//
//   - A reservation that no end settles is spent once [Budget.Hold] is over, as of the time at which it was made, so the
//     window forgets it. A late end corrects it: it records what the stream has cost instead.
//   - A token bucket is charged for such a reservation by the next reservation or settlement of the log. A late end
//     changes nothing then.
//   - A log has 20,000 reservations at most; a further one has no room.
//   - The waits of a decision are those if no reservation is settled: usually room comes earlier.
//   - What is reserved is kept next to the log, and goes with it if an operator removes the log.
//
// # The log
//
// Package packed has the arithmetic of a log on its bytes, package inspect what operators see of
// logs. The suite in windowtest runs the contract against a naive oracle, for every store.
//
// # One key, step by step
//
// Limit 3 per 10 s, cost 1 unless said, times in seconds:
//
//	t=0    allowed  remaining 2              entries 0
//	t=4    allowed  remaining 1              entries 0 4
//	t=8    allowed  remaining 0              entries 0 4 8; one unit again in 2 s
//	t=9    denied   retry after 1 s          unchanged: denied is free
//	t=9    cost 2: denied, retry after 5 s   two units fit when 0 and 4 are gone
//	t=9    cost 4: never                     4 is more than 3
//	t=10   allowed  remaining 0              the entry of t=0 counts until, not at, 10
//
// A fixed window would have admitted three at t=9 and three more at t=10.
package window
