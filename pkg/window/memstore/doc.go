// Package memstore is the embedded store: logs in the memory of one process.
//
// It implements the contract of [window.Store] for the calls of one process. Processes
// share nothing: two processes admit twice the limit. If that matters, use redisstore. A
// restart loses the logs unless [Store.Save] saved them.
//
// # How it works
//
// A log is a string of bytes, the packed log of package window. It has a header, then
// nine bytes for every instant of a charge: its time and the running sum of the costs.
// [window.View] decides on the bytes in place, by a subtraction or a binary search.
// layout.go of package window explains them.
//
// Limit 5 per 10 s, shown as slots (time, sum), times in seconds:
//
//	charge 2 at t=0    (0, 2)
//	charge 1 at t=4    (0, 2) (4, 3)
//	charge 1 at t=4    (0, 2) (4, 4)          merged: same instant
//	ask 3 at t=7       used 4, two too many: (0, 2) frees 2, so retry after 3 s
//	charge 3 at t=10   (4, 4) (10, 7)         base 2; used 7-2 = 5
//
// Up to 13 slots are in order. More slots form a ring: to drop its expired slots, only
// its head moves. Only charges and refunds change a log; a denial only reads it. A new
// ring has at most a quarter to spare. It shrinks when three quarters of it are unused,
// so one burst does not hold memory for ever. A charge that needs no more bytes allocates
// nothing.
//
// Windows above six days keep times in milliseconds, rounded up: point 12 of the
// contract. The others are exact to the microsecond.
//
// The other policies keep a short value instead: see [window.State]. The store treats it as it
// does a log. The bytes of a token bucket do not have its rate, so eviction estimates what the
// bucket uses: see [window.Weigh].
//
// # Concurrency
//
// Logs are spread over shards by a hash of their id. Each shard has a mutex. A group
// locks the shards of its logs in the order of their index, so two groups cannot
// deadlock. It holds all of them while it decides. No code blocks under a lock.
//
// # Time and memory
//
// Time is the time of day when the store was made, plus the monotonic time since. Setting the
// system's clock has no effect on a running store. A
// sweeper goroutine visits one shard after the other and drops the logs that have expired
// entirely. So a log outlives its last charge by its window and little more than
// [Options.SweepInterval]. The sweeper holds a lock for about 250 logs at a time.
// [Store.Close] ends it.
//
// A shard finds its logs by a hash table that grows and shrinks by one bucket at a time.
// So no call waits while a large table moves, and the memory of a burst of keys is freed.
//
// A log with one hit takes about 105 bytes and its key; a log with 100 hits takes about
// 1,100. TestMemory measures it.
//
// # Bounds
//
// [Options.MaxKeys] and [Options.MaxBytes] bound the logs. The store counts bytes: the
// capacity of the packed log, the length of the key, and a constant for the structures.
// The sum is within a tenth of the true memory.
//
// Every shard has an even share of the bounds, so no lock is global. There are 64 shards,
// or fewer if a share would be below 256 keys or 1 MiB. A single shard may have any
// share: MaxKeys 1 works, and holds one log. Keys are spread by hash, so shares fill
// unevenly by a few per cent. A single log cannot be larger than a share.
//
// A log is limiting if nothing remains of its limit, or if it has debt. Its limit is that
// of the last check that could deny: one of mode Enforce, Any or Always. A log without
// such a check never limits. If a call needs room in a full shard:
//
//   - The shard drops logs in which nothing counts any more first.
//   - Then it drops the best of its candidates, which has used the smallest share of its
//     limit. Among equals, that is the log whose last charge is oldest. Every new log is
//     a candidate. The other candidates are the best logs that a hand has met, which goes
//     round over the buckets of the shard. So the dropped log is not always the least
//     used log of the shard. But from the second new log on, it has never used a larger
//     share than the last new log. So a flood of invented keys evicts its own logs.
//   - It never drops a limiting log, or a log of the group itself. If all others are
//     gone, the call returns [ErrFull], and nothing of its group is charged. Such a call
//     may have dropped other logs before.
//
// With [Options.Owner] the logs of one owner, such as a rule, take at most seven times as
// much as is free in a shard. An owner at its bound makes a new log only in place of one of
// its own that may be dropped: the best of the candidates, of its newest log, and of some
// ten logs that a second hand meets. If there is none, the call returns [ErrFull]. So an
// owner alone fills seven eighths of a shard, and its flood of limiting logs leaves room to
// others. Owners are counted by a hash of 8 bits: owners with one hash share a bound.
//
// A log that grows needs room like a new log. A charge for which a log has to grow beyond
// the bound is refused; a charge that fits into the log's bytes is not. The bound is hard
// with one exception. A group that charges one log in two modes with two precisions may
// exceed it by one growth of that log.
//
// Making room takes O(1) steps per call in the long run. No call looks at all logs of a
// shard. The last 1/32 of a share is filled only while the hand finds no log to drop. The
// hand moves at every such call, so it has gone round once when the share is full. A
// refusal therefore holds for what the hand saw on its last round. If a log has stopped
// limiting since, the hand finds it within the next round, which further calls and the
// sweeper make.
//
// # Requests in flight
//
// The store is a [window.Ender]. For each stream that holds something, or has ended, it has one
// more log, which counts in the bounds and is saved. A stream that may hold something is never
// dropped before its last hold expires. One that has ended is dropped early if room is short:
// a check that arrives after the end of its stream may then hold until it expires.
//
// # Charges with receipts
//
// A receipt ([window.Check.Once]) is one more log, which counts in the bounds and is saved. It is never
// limiting, and is dropped before logs that have used more of their limits. A retry is then charged.
//
// # Seeing and removing logs
//
// The store is a [window.Keeper]. [Store.Read] locks one shard for one log at a time.
// [Store.Remove] locks the shards of all logs with one hash tag, in the order of their index,
// as a group does. [Store.List] goes through a shard in the order of the reversed hashes of
// its logs, about 256 logs under one lock. That order does not change when buckets split or
// merge, so a list misses no log.
//
// # Snapshots
//
// [Store.Save] writes the logs and [Load] reads them. The process saves after the last
// charge, and loads before the first. Load makes what it reads as old as the
// time of day says. It checks what it reads: a checksum over all bytes,
// [window.Decode] on every log, and bounds on every number.
package memstore
