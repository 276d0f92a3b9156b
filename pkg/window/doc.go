// Package window decides whether somebody may spend cost now, under an exact
// sliding-window log.
//
// # Terms
//
//   - A hit is one unit of cost. A [Limit] is a number of hits per window.
//   - A log is what has been spent on one key within one window length. It
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
//     concurrency. ([Always] is the explicit exception.)
//  2. All or nothing. If every check of a group has room, every one is charged,
//     at one instant per log. If one has none, none is charged. What [Mode]
//     changes about this is said below.
//  3. Denied is free. A denied group leaves every log as it was, but for what
//     [Always] and [Refund] record.
//  4. A limit is an argument, not state. Another limit on the same key counts at
//     the next call, with the history kept. Another window length is another log.
//  5. The clock is the store's, in whole microseconds, and never runs backwards
//     within a log: a clock that is set back is held at the time of the last
//     charge or refund that recorded something, even an expired one, until it has
//     caught up. Waits count from the clock as it is, so they say when that will be.
//  6. Cost 0 is a check: it asks whether anything remains, so it is denied when
//     nothing does, and it records nothing.
//  7. A cost above the limit can never have room, however long the caller waits.
//     That is [Decision.Never], an outcome of its own and not a long wait.
//  8. Checks of one group that name the same log are decided together: each is
//     allowed only if their summed cost fits. [Fold] states how. Modes see below.
//  9. An error means "could not decide" and nothing else. A store that answers
//     with an error has either charged the whole group or nothing of it, and
//     does not try again by itself: a second try could charge twice.
//  10. Idle logs disappear by themselves, at the latest when a window and a
//     little slack have passed since the last charge.
//  11. A limit of 0 denies without touching the store ([Always] and [Refund] are
//     recorded all the same). A limit of [MaxHits] is unlimited: it allows, and
//     stores nothing. [WithoutLog] answers both.
//  12. A [Check] with a precision counts each entry up to that much too long,
//     never too short: times are rounded up, so a log never admits more than
//     its limit. The clock itself is not rounded. Windows above six days keep
//     times in milliseconds, rounded up in the same way.
//
// A store that is asked without waiting keeps the same contract for the groups that it
// decides, and leaves no trace of those that it does not decide.
//
// # Modes
//
// A check has a [Mode], and a [Verdict] is what a group's checks add up to:
//
//   - [Enforce] denies the group if it has no room. Charged if the group is
//     allowed.
//   - [Any]: of all the group's checks of this mode at least one must have room,
//     or the group is denied. Those that have room are charged if it is allowed.
//   - [Observe] never denies. Charged if the group is allowed and it has room.
//   - [Always] denies the group if it has no room, but is charged whatever comes
//     of it, even over the limit. That is debt: used is then above the limit and
//     denies until enough has expired. A log holds 2^32-1 hits; what is charged
//     beyond that is lost.
//   - [Refund] gives its cost back, newest entries first and never below zero,
//     whatever comes of the group. It never denies; its decision is allowed and
//     says what remains then. The history older than the refund stays.
//
// Refunds are applied first, then checks of mode Always are judged and charged,
// each in the order of the group; then the others are judged together, and
// charged. So a refund and a charge may name one log in one group: the charge
// has the room that was given back. Checks of one log with modes that are both
// judged with the group (two of Enforce, Any and Observe) are refused with
// [ErrBadCheck]: a log belongs to one rule, and a rule has one mode.
//
// Decisions are as of after the call: what remains, and the waits, count what
// the call has recorded.
//
// # The log
//
// [View] is the arithmetic of one log on its packed bytes. [Decode] reads a log for
// operators. Both are pure: the log, the clock and the check go in; the answer and the
// log come out. [View.Reserve] charges cost that will be spent later; the contract above
// does not ask for it. Stores use View, or translate it to another language.
// testdata/vectors.jsonl.gz has histories that every translation must match, and
// docs/window.md explains the bytes.
//
// The suite in windowtest runs all of this against a naive oracle, for every store.
//
// # One key, step by step
//
// Limit 3 per 10 s, cost 1 unless said, times in seconds:
//
//	t=0    allowed  remaining 2              entries 0
//	t=4    allowed  remaining 1              entries 0 4
//	t=8    allowed  remaining 0              entries 0 4 8; a unit again in 2 s
//	t=9    denied   retry after 1 s          unchanged: denied is free
//	t=9    cost 2: denied, retry after 5 s   two units fit when 0 and 4 are gone
//	t=9    cost 4: never                     4 is more than 3
//	t=10   allowed  remaining 0              the entry of t=0 counts until, not at, 10
//
// A fixed window would have admitted three at t=9 and three more at t=10.
package window
