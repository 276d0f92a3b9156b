// Package memstore is the embedded store: logs in the memory of one process.
//
// It implements the contract of [window.Store] for everything that one process
// sees. It shares nothing: two processes admit twice the limit. Where that matters,
// use redisstore. A restart forgets, unless the logs are saved: see below.
//
// # How it works
//
// A log is a string of bytes, the packed log of package window: a header, then
// nine bytes for every instant at which something was charged, its time and the
// running sum of the costs. [window.View] decides on the bytes where they are,
// by a subtraction or a binary search; docs/window.md explains them.
//
// Limit 5 per 10 s, as the slots (time, sum) see it, times in seconds:
//
//	charge 2 at t=0    (0, 2)
//	charge 1 at t=4    (0, 2) (4, 3)
//	charge 1 at t=4    (0, 2) (4, 4)          merged: same instant
//	ask 3 at t=7       used 4, two too many: (0, 2) frees 2, so retry after 3 s
//	charge 3 at t=10   (4, 4) (10, 7)         base 2; used 7-2 = 5
//
// Up to 13 slots are kept in order. More are a ring, where dropping the expired
// ones moves its head and nothing else. Answers never change a log, so a denial
// is a pure read, and only a charge drops, grows or shrinks: a ring has at most
// a quarter to spare when it is made and is cut to size when three quarters of
// it are unused, so that one burst does not hold memory for ever. A charge that
// needs no more bytes allocates nothing.
//
// Windows above six days are kept in milliseconds, rounded up: the contract's
// point 12. The others are exact to the microsecond.
//
// # Concurrency
//
// Logs are spread over shards by a hash of their id, each with a mutex. A group
// locks the shards that it touches in index order, so that two groups cannot
// wait for each other, and holds them all while it decides. Nothing blocks
// under a lock.
//
// # Time and memory
//
// Time is the monotonic clock of the process: setting the system's clock has
// no effect. A sweeper goroutine visits one shard after the other and drops the
// logs that have expired entirely, so a log outlives its last charge by its
// window and little more than [Options.SweepInterval]. It holds a lock for some
// 250 logs at a time. [Store.Close] ends it.
//
// A shard finds its logs by a hash table that grows and shrinks by one bucket at
// a time, so no call waits while a large table is moved, and what a burst of keys
// has taken is given back.
//
// A log with one hit costs about 105 bytes and its key, and one of 100 hits about
// 1,100: TestMemory measures it.
//
// # Bounds
//
// [Options.MaxKeys] and [Options.MaxBytes] bound the logs. Bytes are counted: the
// capacity of the packed log, the length of the key, and a constant for the
// structures; the sum is within a tenth of the truth.
//
// Every shard has an even share, so that no lock is global. There are 64 shards,
// or so many fewer that a share is not below 256 keys and 1 MiB, but for a single
// shard, which may have any: MaxKeys 1 works, and holds one log. Keys are spread by
// hash, so that shares fill up unevenly by a few per cent. A single log cannot be
// larger than a share.
//
// When a call needs room in a shard and there is none:
//
//   - Logs in which nothing counts any more go first.
//   - Then those that deny nobody, by the limit of the last check that could deny
//     (mode Enforce, Any or Always; a log without any denies nobody): of the
//     candidates that the shard knows, the log that has used the smallest share of
//     its limit, and of equals the one whose last charge is oldest. Candidates are
//     every new log, and the best of what a hand that goes round over the shard has
//     met. That is a sample: the one that goes is not always the least used of all,
//     but it never has used a larger share than the last new one had, from the
//     second new one on. So a flood of made-up keys pushes out itself.
//   - A log of which nothing remains, or that has debt, is never dropped. If there
//     is nothing else, the call is refused with [ErrFull], and nothing of its group
//     is charged. The logs of the group itself are never dropped for it. A call that
//     is refused may have dropped logs that deny nobody before that was known.
//
// Growth counts like a new log: a charge for which a log would have to grow beyond
// the bound is refused, one that finds its bytes there is not. The bound is hard,
// but for a group that charges one log in two modes with two precisions, which may
// exceed it by one growth of that log.
//
// Making room is O(1) in the long run. No call looks at all logs of a shard: the
// last 1/32 of its share is filled only while nothing is found that may go, with
// the hand going on at every call, so that it has been round when the share is full.
// From then on a refusal is right as of what the hand has seen on its last round: a
// log that has stopped limiting since is found within another one, which further
// calls and the sweeper see to.
//
// # Snapshots
//
// [Store.Save] writes the logs and [Load] reads them; the process saves when
// nothing is charged any more, and loads before anything is. Load goes on with the
// saved clock plus the time of day that has passed. What is read is checked as
// strictly as can be: a checksum over all, [window.Decode] on every log, and bounds
// on every number.
package memstore
